//! What can go wrong with a write transaction, called forth by tests: SQLite's own codes, at
//! the places where SQLite gives them. What follows (rolling back, what the port is told) is
//! the code that a real failure takes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::ffi;

/// How a write transaction fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// BEGIN finds another process writing for longer than is waited.
    Busy,
    /// COMMIT finds the disk full.
    Full,
    /// COMMIT cannot write, and nothing reaches the file.
    CommitFailed,
    /// COMMIT has happened, and its success does not become known.
    CommitUnconfirmed,
}

/// Faults to come, one for each write transaction; none by default.
#[derive(Debug, Clone, Default)]
pub struct Faults(Arc<Mutex<VecDeque<Fault>>>);

impl Faults {
    /// Makes the next write transaction fail; further calls queue up.
    pub fn fail_next(&self, fault: Fault) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push_back(fault);
    }

    pub(super) fn next(&self) -> Option<Fault> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }
}

impl Fault {
    /// The error that BEGIN gives.
    pub(super) fn at_begin(self) -> Option<rusqlite::Error> {
        (self == Fault::Busy).then(|| error(ffi::SQLITE_BUSY))
    }

    /// The error that COMMIT gives before it has done anything.
    pub(super) fn before_commit(self) -> Option<rusqlite::Error> {
        match self {
            Fault::Full => Some(error(ffi::SQLITE_FULL)),
            Fault::CommitFailed => Some(error(ffi::SQLITE_IOERR_WRITE)),
            Fault::Busy | Fault::CommitUnconfirmed => None,
        }
    }

    /// The error that COMMIT gives after everything is done.
    pub(super) fn after_commit(self) -> Option<rusqlite::Error> {
        (self == Fault::CommitUnconfirmed).then(|| error(ffi::SQLITE_IOERR_FSYNC))
    }
}

fn error(code: std::ffi::c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("a fault of a test".into()))
}
