//! The time limit of guards, within a transaction of the single writer.
//!
//! The cost of a guard depends on the table's content, and every other write waits for it, including
//! the renewal of the leadership's lease. All of them together therefore have a time limit in each
//! transaction. A guard that searches rows is interrupted when it expires. A guard on one row runs to
//! its end, because SQLite checks for interrupts only between rows, and its waits for the disk do not
//! count: the change needs the same row.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::error::Failure;
use besom_tables::late;

/// Instructions of SQLite's virtual machine between two checks of the clock.
const STEPS: i32 = 200;
/// A guard on one row that is faster is not counted.
const ROW_MIN: u64 = 1_000;
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
    /// The processor time of this thread when it was last counted, in microseconds.
    used: AtomicU64,
}

impl Questions {
    /// Installs the limit on a connection.
    pub(super) fn watch(conn: &mut Connection, max: Duration) -> rusqlite::Result<Arc<Questions>> {
        let (until, spent, used) = (AtomicU64::new(NEVER), AtomicU64::new(0), AtomicU64::new(0));
        let questions = Arc::new(Questions { max, opened: Instant::now(), until, spent, used });
        let seen = Arc::clone(&questions);
        conn.progress_handler(STEPS, Some(move || seen.is_over()))?;
        Ok(questions)
    }

    /// Starts the budget of a new transaction.
    pub(super) fn begin(&self) {
        self.until.store(NEVER, Ordering::Relaxed);
        self.spent.store(0, Ordering::Relaxed);
        self.used.store(processor_time(), Ordering::Relaxed);
    }

    /// Runs a guard on one row, unless the limit is exceeded.
    pub(super) fn of_row<T, E: From<Failure>>(
        &self,
        ask: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        self.check()?;
        let since = self.now();
        let answer = ask();
        let took = self.now().saturating_sub(since);
        if took >= ROW_MIN {
            let used = processor_time();
            let before = self.used.swap(used, Ordering::Relaxed);
            self.spent.fetch_add(took.min(used.saturating_sub(before)), Ordering::Relaxed);
        }
        answer
    }

    fn check(&self) -> Result<(), Failure> {
        match self.spent.load(Ordering::Relaxed) > micros(self.max) {
            true => Err(late::guards_cancelled(self.max).into()),
            false => Ok(()),
        }
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

/// The processor time of this thread, in microseconds.
fn processor_time() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    (now.tv_sec as u64).saturating_mul(1_000_000).saturating_add(now.tv_nsec as u64 / 1_000)
}
