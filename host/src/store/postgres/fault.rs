//! What can go wrong with a commit, called forth by tests at the places where PostgreSQL or
//! the network would do it. What follows is the code that a real failure takes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// How a commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A lock is not to be had in time.
    Busy,
    /// The connection is gone before anything was written.
    Away,
    /// The connection breaks before COMMIT reaches the server.
    CommitLost,
    /// The connection breaks after COMMIT, before its answer.
    CommitUnconfirmed,
}

/// Faults to come, one for each commit; none by default.
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
