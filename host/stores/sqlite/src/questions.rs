//! The time limit of guards, within a transaction of the single writer.
//!
//! The cost of a guard depends on the table's content, and every other write waits for it, including
//! the renewal of the leadership's lease. Those that search rows, and those on one row, therefore have a time
//! limit in each transaction. A guard that searches rows is interrupted when it expires. A guard on one row runs to
//! its end, because SQLite checks for interrupts only between rows. After it expires no more of them
//! begin, unless the transaction has only waited for the disk: its changes need the same rows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rusqlite::{Connection, ErrorCode};

use super::error::Failure;
use besom_tables::late;

/// Instructions of SQLite's virtual machine between two checks of the clock.
const STEPS: i32 = 200;
/// No guard is running.
const NEVER: u64 = u64::MAX;

/// Limits the time of guards on one connection.
pub(super) struct Questions {
    max: Duration,
    opened: Instant,
    /// The deadline of the running guard, in microseconds since `opened`.
    until: AtomicU64,
    /// The time that guards which search rows have used in this transaction, in microseconds.
    spent: AtomicU64,
    /// The time that guards on one row have used in this transaction, in nanoseconds.
    of_rows: AtomicU64,
    /// The processor time of this thread when this transaction began, in microseconds.
    began: AtomicU64,
}

impl Questions {
    /// Installs the limit on a connection.
    pub(super) fn watch(conn: &mut Connection, max: Duration) -> rusqlite::Result<Arc<Questions>> {
        let questions = Arc::new(Questions {
            max,
            opened: Instant::now(),
            until: AtomicU64::new(NEVER),
            spent: AtomicU64::new(0),
            of_rows: AtomicU64::new(0),
            began: AtomicU64::new(0),
        });
        let seen = Arc::clone(&questions);
        conn.progress_handler(STEPS, Some(move || seen.is_over()))?;
        Ok(questions)
    }

    /// Starts the budget of a new transaction.
    pub(super) fn begin(&self) {
        self.until.store(NEVER, Ordering::Relaxed);
        self.spent.store(0, Ordering::Relaxed);
        self.of_rows.store(0, Ordering::Relaxed);
        self.began.store(processor_time(), Ordering::Relaxed);
    }

    /// Runs a guard on one row, unless the limit is exceeded.
    pub(super) fn of_row<T, E: From<Failure>>(
        &self,
        ask: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let max = micros(self.max);
        if self.of_rows.load(Ordering::Relaxed) / 1_000 > max
            && processor_time().saturating_sub(self.began.load(Ordering::Relaxed)) > max
        {
            return Err(Failure::from(late::guards_cancelled(self.max)).into());
        }
        let since = Instant::now();
        let answer = ask();
        let took = u64::try_from(since.elapsed().as_nanos()).unwrap_or(NEVER);
        self.of_rows.fetch_add(took, Ordering::Relaxed);
        answer
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
