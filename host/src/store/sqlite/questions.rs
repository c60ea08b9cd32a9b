//! The time of guards that ask for rows by conditions, within a transaction of the one writer.
//!
//! What such a question costs depends on what is in the table, and everything else that writes
//! waits for it, the lease of the leadership included. So all of them together have a time in each
//! transaction, and the one that is asked when it is up is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::error::Failure;
use crate::ports::store::Error;

/// So many steps of the database's machine pass between two looks at the clock.
const STEPS: i32 = 1_000;
/// No question is under way.
const NEVER: u64 = u64::MAX;

/// See the module.
pub(super) struct Questions {
    max: Duration,
    opened: Instant,
    /// When the one under way ends, in microseconds from `opened`.
    until: AtomicU64,
    /// What those of this transaction have taken, in microseconds.
    spent: AtomicU64,
}

impl Questions {
    /// Watches over a connection.
    pub(super) fn watch(conn: &mut Connection, max: Duration) -> rusqlite::Result<Arc<Questions>> {
        let (until, spent) = (AtomicU64::new(NEVER), AtomicU64::new(0));
        let questions = Arc::new(Questions { max, opened: Instant::now(), until, spent });
        let seen = Arc::clone(&questions);
        conn.progress_handler(STEPS, Some(move || seen.is_over()))?;
        Ok(questions)
    }

    /// A transaction begins.
    pub(super) fn begin(&self) {
        self.until.store(NEVER, Ordering::Relaxed);
        self.spent.store(0, Ordering::Relaxed);
    }

    /// Asks one.
    pub(super) fn ask<T>(&self, ask: impl FnOnce() -> rusqlite::Result<T>) -> Result<T, Failure> {
        let since = self.now();
        let left = micros(self.max).saturating_sub(self.spent.load(Ordering::Relaxed));
        self.until.store(since.saturating_add(left), Ordering::Relaxed);
        let answer = ask();
        self.until.store(NEVER, Ordering::Relaxed);
        self.spent.fetch_add(self.now().saturating_sub(since), Ordering::Relaxed);
        answer.map_err(|e| match e.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => too_long(self.max).into(),
            _ => e.into(),
        })
    }

    fn is_over(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        until != NEVER && self.now() >= until
    }

    fn now(&self) -> u64 {
        micros(self.opened.elapsed())
    }
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(NEVER - 1)
}

/// The batch cannot be taken as it is: its items come back one by one, and the one whose own
/// questions take so long has failed.
fn too_long(max: Duration) -> Error {
    Error::Invalid(format!(
        "guards on rows by conditions (`exists`, `absent`) took longer than {} ms \
         (`store.guard_timeout`)",
        max.as_millis()
    ))
}
