//! Faults of a write transaction that tests can inject: SQLite's own codes, at the places where
//! SQLite returns them. They are handled (rollback, the port's error) by the code that handles real
//! failures.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::ffi;

/// How a write transaction fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// BEGIN finds that another process has been writing for longer than the limit.
    Busy,
    /// COMMIT finds the disk full.
    Full,
    /// COMMIT cannot write, and nothing reaches the file.
    CommitFailed,
    /// COMMIT succeeds, but its success is not reported.
    CommitUnconfirmed,
}

/// Pending faults, one per write transaction; none by default.
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
    /// The error returned by BEGIN.
    pub(super) fn at_begin(self) -> Option<rusqlite::Error> {
        (self == Fault::Busy).then(|| error(ffi::SQLITE_BUSY))
    }

    /// The error returned by COMMIT before it has done anything.
    pub(super) fn before_commit(self) -> Option<rusqlite::Error> {
        match self {
            Fault::Full => Some(error(ffi::SQLITE_FULL)),
            Fault::CommitFailed => Some(error(ffi::SQLITE_IOERR_WRITE)),
            Fault::Busy | Fault::CommitUnconfirmed => None,
        }
    }

    /// The error returned by COMMIT after it has succeeded.
    pub(super) fn after_commit(self) -> Option<rusqlite::Error> {
        (self == Fault::CommitUnconfirmed).then(|| error(ffi::SQLITE_IOERR_FSYNC))
    }
}

fn error(code: std::ffi::c_int) -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("a fault of a test".into()))
}
