//! The commits of tasks take turns, and rest in between, while others write to the database.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use besom_record::courtesy::{BULK_KINDS, Bulk, Courtesy};
use tokio::sync;

use super::error::Job;
use super::session::{Session, cell, params};

/// How often it is looked whether others write, at most.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Whether a session of this database that is not Besom's has changed something in its open transaction. As
/// Besom's count those of this role with this application name, of all hosts.
const OTHERS_WRITE: &str =
    "SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
  WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted
    AND a.datname = current_database()
    AND NOT (a.usename = current_user
      AND a.application_name = current_setting('application_name')))";

/// Whose turn it is.
pub(super) struct Turns {
    courtesy: Mutex<Courtesy>,
    looked: Mutex<Option<Instant>>,
    /// By kind: no such commit begins before this time. Locked by the one that has its turn.
    next: [sync::Mutex<Option<Instant>>; BULK_KINDS],
}

/// The turn of one commit, until it is dropped.
pub(super) struct Turn<'a> {
    turns: &'a Turns,
    next: sync::MutexGuard<'a, Option<Instant>>,
    bulk: Bulk,
    begun: Instant,
}

impl Turns {
    /// Commits take at most `share` percent of the time while others write.
    pub(super) fn new(share: u32) -> Turns {
        Turns {
            courtesy: Mutex::new(Courtesy::new(share)),
            looked: Mutex::default(),
            next: Default::default(),
        }
    }

    fn courtesy(&self) -> MutexGuard<'_, Courtesy> {
        self.courtesy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether others write.
    pub(super) fn others_write(&self) -> bool {
        self.courtesy().others_write(Instant::now())
    }

    /// Waits for a turn among its kind; none: nobody else writes, so commits do not wait for each other.
    pub(super) async fn take(&self, bulk: Bulk) -> Option<Turn<'_>> {
        if !self.courtesy().is_shared(Instant::now()) {
            return None;
        }
        let next = self.next[bulk as usize].lock().await;
        if let Some(at) = *next {
            tokio::time::sleep_until(at.into()).await;
        }
        Some(Turn { turns: self, next, bulk, begun: Instant::now() })
    }

    /// Whether it is time to look again.
    pub(super) fn is_time(&self) -> bool {
        let mut looked = self.looked.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_time = looked.is_none_or(|at| now.duration_since(at) >= LOOK_EVERY);
        if is_time {
            *looked = Some(now);
        }
        is_time
    }

    /// Looks whether others write.
    pub(super) async fn look(&self, session: &Session) -> Job<()> {
        if session.maybe(OTHERS_WRITE, params![], cell).await? == Some(true) {
            let said = self.courtesy().notice(Instant::now());
            if let Some(said) = said {
                tracing::info!("{said}");
            }
        }
        Ok(())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        let took = now.duration_since(self.begun);
        *self.next = Some(now + self.turns.courtesy().rest_after(self.bulk, took, now));
    }
}
