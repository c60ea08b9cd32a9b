//! The time limit of guards that search rows by conditions, within a transaction of the single
//! writer.
//!
//! The cost of such a guard depends on the table's content, and every other write waits for it,
//! including the renewal of the leadership's lease. All of them together therefore have a time
//! limit in each transaction, and the guard that is running when it expires is interrupted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::error::Failure;
use besom_tables::late;

/// Instructions of SQLite's virtual machine between two checks of the clock.
const STEPS: i32 = 1_000;
/// No guard is running.
const NEVER: u64 = u64::MAX;

/// Limits the time of guards on one connection.
pub(super) struct Questions {
    max: Duration,
    opened: Instant,
    /// The deadline of the running guard, in microseconds since `opened`.
    until: AtomicU64,
    /// The time that guards of this transaction have used, in microseconds.
    spent: AtomicU64,
}

impl Questions {
    /// Installs the limit on a connection.
    pub(super) fn watch(conn: &mut Connection, max: Duration) -> rusqlite::Result<Arc<Questions>> {
        let (until, spent) = (AtomicU64::new(NEVER), AtomicU64::new(0));
        let questions = Arc::new(Questions { max, opened: Instant::now(), until, spent });
        let seen = Arc::clone(&questions);
        conn.progress_handler(STEPS, Some(move || seen.is_over()))?;
        Ok(questions)
    }

    /// Starts the budget of a new transaction.
    pub(super) fn begin(&self) {
        self.until.store(NEVER, Ordering::Relaxed);
        self.spent.store(0, Ordering::Relaxed);
    }

    /// Runs a guard's query within the limit.
    pub(super) fn ask<T>(&self, ask: impl FnOnce() -> rusqlite::Result<T>) -> Result<T, Failure> {
        let since = self.now();
        let left = micros(self.max).saturating_sub(self.spent.load(Ordering::Relaxed));
        self.until.store(since.saturating_add(left), Ordering::Relaxed);
        let answer = ask();
        self.until.store(NEVER, Ordering::Relaxed);
        self.spent.fetch_add(self.now().saturating_sub(since), Ordering::Relaxed);
        answer.map_err(|e| match e.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => late::guards_cancelled(self.max).into(),
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
