//! How the rows about the use of keys are judged ([`besom_core::activity::state_of`]).

use besom_core::activity::{Listening, Timeouts};

/// What decides the state of a key, besides its rows.
#[derive(Debug, Clone, Copy)]
pub struct Observation {
    /// The time-outs.
    pub timeouts: Timeouts,
    /// Since when heartbeats have been recorded.
    pub listening: Listening,
}
