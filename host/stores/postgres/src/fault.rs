//! Faults of a commit that tests can inject, at the places where PostgreSQL or the network would
//! fail. They are handled by the code that handles real failures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A lock is not available in time.
    Busy,
    /// The connection is lost before anything was written.
    Away,
    /// The connection breaks before COMMIT reaches the server.
    CommitLost,
    /// The connection breaks after COMMIT, before its answer.
    CommitUnconfirmed,
}

/// Pending faults, one per commit; none by default.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<VecDeque<Fault>>>);

impl Faults {
    /// Makes the next commit fail; further calls queue up.
    pub fn fail_next(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    pub(super) fn next(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}
