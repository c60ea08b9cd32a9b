//! The current leader, and earlier leaderships.

use serde::{Deserialize, Serialize};

use besom_core::time::Time;

/// The leadership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Leadership {
    /// The holder of the lease; none: there is none, or it is unknown ([`Leadership::fault`]).
    pub leader: Option<Leader>,
    /// Why the leader is unknown.
    pub fault: Option<String>,
    /// The highest term that the store knows.
    pub fence: Option<u64>,
    /// How long a lease lasts without a renewal, in milliseconds.
    pub lease_ms: u64,
    /// Leaderships, newest first.
    pub terms: Vec<TermRow>,
}

/// The holder of the lease.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Leader {
    /// The node's name, the same after a restart.
    pub node: String,
    /// The node's current incarnation.
    pub incarnation: String,
    /// The name of its machine.
    pub hostname: String,
    /// Its term.
    pub term: u64,
    /// When it was elected, by its own clock.
    pub elected_at: Time,
    /// When it last renewed, by its own clock.
    pub renewed_at: Time,
}

/// One leadership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TermRow {
    /// Its term.
    pub term: u64,
    /// The node's name, the same after a restart.
    pub node: String,
    /// When it raised the fence, by the store's clock.
    pub since: Time,
}
