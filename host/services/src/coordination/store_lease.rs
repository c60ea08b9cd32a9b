//! The store lease: a leadership kept as one row of the store, so that a deployment on one machine
//! needs no other service.
//!
//! ```text
//!   row free, released or expired ──take──> held ──renew──> held
//!   holder's file lock is free    ──take──>   └──resign──> released
//! ```
//!
//! For a store in a file, the lease is measured by the machine's clock: a boot id and
//! CLOCK_BOOTTIME, which continues while the machine is suspended and never jumps. For a server
//! that several machines share, it is measured by the server's clock. The row is taken by
//! compare-and-swap, so that two campaigns never both win. A holder that also locks the file beside
//! the database is recognized as dead immediately; a frozen one keeps its lock and loses the lease
//! by time. Neither is a fence: a stale leader is stopped by the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Incarnation, Term};
use besom_core::time::Time;
use rand::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use super::lease_file::LeaseFile;
use besom_ports::coordination::{Campaign, Coordination, Error, LeaderRecord, Result};
use besom_ports::embedded::{LeaseLedger, LeaseRow};
use besom_ports::store;

/// Default for the duration of a lease without renewal.
pub const LEASE_TTL_DEFAULT: Duration = Duration::from_secs(15);

/// How often a follower checks whether the holder's lock is free.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// A follower reads the row once per this number of checks of the lock.
const ROW_EVERY: u32 = 10;

/// The machine's clocks.
#[derive(Clone)]
pub struct LeaseClock {
    /// The id of the machine's current boot.
    pub boot_id: String,
    /// Time since that boot, including suspended time.
    pub since_boot: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The wall clock, for display.
    pub wall: Arc<dyn Fn() -> Time + Send + Sync>,
}

impl LeaseClock {
    /// The given clocks, with the boot id of this machine.
    pub fn of_machine(
        since_boot: Arc<dyn Fn() -> Duration + Send + Sync>,
        wall: Arc<dyn Fn() -> Time + Send + Sync>,
    ) -> LeaseClock {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned());
        LeaseClock { boot_id, since_boot, wall }
    }
}

/// The store lease of one node.
pub struct StoreLease {
    ledger: Arc<dyn LeaseLedger>,
    node: Incarnation,
    hostname: String,
    ttl: Duration,
    clock: LeaseClock,
    inner: Mutex<Inner>,
}

struct Inner {
    file: LeaseFile,
    /// The hash of the token of the last campaign, whose result may be unknown.
    attempt: Option<[u8; 32]>,
    /// Whether this node holds the lease, as far as it knows.
    leading: bool,
}

impl StoreLease {
    /// The lease of this node in that ledger.
    pub fn new(
        ledger: Arc<dyn LeaseLedger>,
        node: Incarnation,
        ttl: Duration,
        clock: LeaseClock,
    ) -> StoreLease {
        let file = LeaseFile::beside(ledger.path());
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let inner = Mutex::new(Inner { file, attempt: None, leading: false });
        StoreLease { ledger, node, hostname, ttl, clock, inner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another holder leaves the fields consistent: each is set independently.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time of the lease: the server's, or this machine's.
    async fn present(&self) -> Result<Present> {
        let server = self.ledger.server_time().await.map_err(failed)?;
        Ok(match server {
            Some(now) => Present { boot_id: String::new(), since_boot: now.since(Time::EPOCH) },
            None => {
                let since_boot = (self.clock.since_boot)();
                Present { boot_id: self.clock.boot_id.clone(), since_boot }
            }
        })
    }

    /// How long the row prevents this node from taking it; `None`: it may be taken.
    fn kept_out(&self, row: &LeaseRow, now: &Present, file: &mut LeaseFile) -> Option<Duration> {
        let remaining = now.remaining(row);
        if remaining.is_zero() {
            return None;
        }
        if !file.is_held() {
            return self.holds(row, now, file).then_some(remaining);
        }
        // This process has the lock: a holder that had it is dead; one without it keeps the lease
        // until it expires.
        if row.file_locked {
            return None;
        }
        file.release();
        Some(remaining)
    }

    /// Whether the row is valid: it has not expired, and its holder is not known to be dead.
    fn holds(&self, row: &LeaseRow, now: &Present, file: &LeaseFile) -> bool {
        let dead = row.file_locked && file.is_free();
        !dead && !now.remaining(row).is_zero()
    }
}

/// The time of the lease, read once.
struct Present {
    /// The boot since which it counts; empty: the epoch, by the server's clock.
    boot_id: String,
    since_boot: Duration,
}

impl Present {
    /// How long the row remains valid; zero: it is free.
    fn remaining(&self, row: &LeaseRow) -> Duration {
        if row.boot_id != self.boot_id {
            return Duration::ZERO;
        }
        row.expires_at.saturating_sub(self.since_boot)
    }
}

fn failed(e: store::Error) -> Error {
    match e {
        store::Error::Invalid(said) | store::Error::Refused(_, said) => Error::Refused(said),
        other => Error::Unavailable(other.to_string()),
    }
}

#[async_trait]
impl Coordination for StoreLease {
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign> {
        let now = self.present().await?;
        let seen = self.ledger.lease().await.map_err(failed)?;
        let (next, token_hash) = {
            let mut inner = self.lock();
            if let Some(row) = &seen {
                let own =
                    inner.attempt == Some(row.leader.token_hash) && !now.remaining(row).is_zero();
                let term = row.leader.term;
                // Below the term that the store has recorded, it could never raise the fence.
                if own && at_least.is_none_or(|least| term > least) {
                    inner.leading = true;
                    return Ok(Campaign::Won(FencingToken {
                        term,
                        token_hash: row.leader.token_hash,
                    }));
                }
                if !own && let Some(retry_in) = self.kept_out(row, &now, &mut inner.file) {
                    return Ok(Campaign::Held { leader: row.leader.clone(), retry_in });
                }
            }
            let file_locked = inner.file.try_hold();
            let mut token = [0_u8; 32];
            rand::rngs::StdRng::from_os_rng().fill_bytes(&mut token);
            let token_hash: [u8; 32] = Sha256::digest(token).into();
            inner.attempt = Some(token_hash);
            let wall = (self.clock.wall)();
            let leader = LeaderRecord {
                node: self.node.clone(),
                hostname: self.hostname.clone(),
                term: Term(0),
                token_hash,
                elected_at: wall,
                renewed_at: wall,
            };
            let expires_at = now.since_boot + self.ttl;
            let boot_id = now.boot_id.clone();
            (LeaseRow { leader, boot_id, expires_at, file_locked }, token_hash)
        };
        match self.ledger.take_lease(seen.as_ref(), &next, at_least).await.map_err(failed)? {
            Some(term) => {
                self.lock().leading = true;
                Ok(Campaign::Won(FencingToken { term, token_hash }))
            }
            None => {
                self.lock().file.release();
                let row = self.ledger.lease().await.map_err(failed)?;
                let row =
                    row.ok_or_else(|| Error::Unavailable("the lease row does not exist".into()))?;
                let retry_in = now.remaining(&row);
                Ok(Campaign::Held { leader: row.leader, retry_in })
            }
        }
    }

    async fn renew(&self, fence: &FencingToken) -> Result<bool> {
        let (wall, now) = ((self.clock.wall)(), self.present().await?.since_boot);
        // A node that took the lease from a frozen holder obtains the lock when that process ends.
        let file_locked = self.lock().file.try_hold();
        let renewed = self
            .ledger
            .renew_lease(fence, wall, now, now + self.ttl, file_locked)
            .await
            .map_err(failed)?;
        if !renewed {
            let mut inner = self.lock();
            inner.leading = false;
            inner.file.release();
        }
        Ok(renewed)
    }

    async fn resign(&self, fence: &FencingToken) -> Result<()> {
        let released = self.ledger.release_lease(fence).await.map_err(failed);
        let mut inner = self.lock();
        inner.leading = false;
        inner.attempt = None;
        inner.file.release();
        released
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        let now = self.present().await?;
        let row = self.ledger.lease().await.map_err(failed)?;
        let inner = self.lock();
        let held = row.filter(|row| {
            let by_lock = || inner.file.is_held() || self.holds(row, &now, &inner.file);
            !now.remaining(row).is_zero() && by_lock()
        });
        Ok(held.map(|row| row.leader))
    }

    async fn changed(&self, timeout: Duration) {
        if self.lock().leading {
            return tokio::time::sleep(timeout).await;
        }
        let looks = timeout.as_millis().div_ceil(LOCK_POLL.as_millis()).max(1);
        let mut row = self.ledger.lease().await.ok().flatten();
        for look in 1..=u32::try_from(looks).unwrap_or(u32::MAX) {
            tokio::time::sleep(LOCK_POLL.min(timeout)).await;
            if look % ROW_EVERY == 0 || self.ledger.path().is_some() {
                // Without an answer, assume that nothing has changed.
                let Ok(now) = self.present().await else { continue };
                let free = match &row {
                    None => true,
                    Some(row) => !self.holds(row, &now, &self.lock().file),
                };
                if free {
                    return;
                }
            }
            if look % ROW_EVERY == 0 {
                let now = self.ledger.lease().await.ok().flatten();
                let term = |row: &Option<LeaseRow>| row.as_ref().map(|row| row.leader.term);
                if term(&now) != term(&row) {
                    return;
                }
                row = now;
            }
        }
    }
}

#[cfg(test)]
mod tests;
