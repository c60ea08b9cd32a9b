//! The store lease: a leadership kept as one row of the store's own file, so that a
//! one-file deployment needs no other service.
//!
//! ```text
//!   row free, given up or expired ──take──> held ──renew──> held
//!   holder's file lock is free    ──take──>   └──resign──> given up
//! ```
//!
//! The lease's time is the machine's: a boot id and CLOCK_BOOTTIME, which goes on while the
//! machine is suspended and never jumps. Whoever takes the row compares it with what it has
//! read, so two campaigns never both win. A holder that locks the file beside the database
//! as well is found dead at once; a frozen one keeps its lock and loses the lease by time.
//! Neither is a fence: a stale leader is stopped by the store.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{Fence, NodeName, Term};
use besom_core::time::Time;
use rand::{RngCore, SeedableRng};
use sha2::{Digest, Sha256};

use super::lease_file::LeaseFile;
use crate::ports::coordination::{Campaign, Coordination, Error, LeaderRecord, Result};
use crate::ports::embedded::{LeaseLedger, LeaseRow};
use crate::ports::store;

/// How long a lease lasts without renewal.
pub const LEASE_TTL_DEFAULT: Duration = Duration::from_secs(15);

/// How often a follower looks whether the holder's lock is free.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// A follower reads the row at every so many looks at the lock.
const ROW_EVERY: u32 = 10;

/// The machine's clocks.
#[derive(Clone)]
pub struct LeaseClock {
    /// Which boot of the machine this is.
    pub boot_id: String,
    /// Time since that boot, suspended time included.
    pub since_boot: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The wall clock, for people.
    pub wall: Arc<dyn Fn() -> Time + Send + Sync>,
}

impl LeaseClock {
    /// This machine's, with its wall clock given.
    pub fn of_machine(wall: Arc<dyn Fn() -> Time + Send + Sync>) -> LeaseClock {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map_or_else(|_| "unknown".to_owned(), |id| id.trim().to_owned());
        let since_boot = || {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
            let (s, ns) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
            Duration::new(s.unwrap_or(0), ns.unwrap_or(0))
        };
        LeaseClock { boot_id, since_boot: Arc::new(since_boot), wall }
    }
}

/// The store lease of one node.
pub struct StoreLease {
    ledger: Arc<dyn LeaseLedger>,
    node: NodeName,
    hostname: String,
    ttl: Duration,
    clock: LeaseClock,
    inner: Mutex<Inner>,
}

struct Inner {
    file: LeaseFile,
    /// The hash of the token of the last campaign, whose result may have got lost.
    attempt: Option<[u8; 32]>,
    /// While this node holds the lease, as far as it knows.
    leading: bool,
}

impl StoreLease {
    /// The lease in that ledger, for that node.
    pub fn new(
        ledger: Arc<dyn LeaseLedger>,
        node: NodeName,
        ttl: Duration,
        clock: LeaseClock,
    ) -> StoreLease {
        let file = LeaseFile::beside(ledger.path());
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let inner = Mutex::new(Inner { file, attempt: None, leading: false });
        StoreLease { ledger, node, hostname, ttl, clock, inner }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another holder leaves the fields consistent: each is set alone.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long the row still holds; zero: it is free.
    fn remaining(&self, row: &LeaseRow) -> Duration {
        if row.boot_id != self.clock.boot_id {
            return Duration::ZERO;
        }
        row.expires_at.saturating_sub((self.clock.since_boot)())
    }

    /// Whether the row holds: its time is not over, and its holder is not known to be dead.
    fn holds(&self, row: &LeaseRow, file: &LeaseFile) -> bool {
        let dead = row.file_locked && file.is_free();
        !dead && !self.remaining(row).is_zero()
    }
}

fn failed(e: store::Error) -> Error {
    match e {
        store::Error::Invalid(said) => Error::Refused(said),
        other => Error::Unavailable(other.to_string()),
    }
}

#[async_trait]
impl Coordination for StoreLease {
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign> {
        let seen = self.ledger.lease().await.map_err(failed)?;
        let (next, token_hash) = {
            let mut inner = self.lock();
            if let Some(row) = &seen {
                let own = inner.attempt == Some(row.leader.token_hash);
                if own && !self.remaining(row).is_zero() {
                    inner.leading = true;
                    let (term, token_hash) = (row.leader.term, row.leader.token_hash);
                    return Ok(Campaign::Won(Fence { term, token_hash }));
                }
                if !inner.file.is_held() && self.holds(row, &inner.file) {
                    let (leader, retry_in) = (row.leader.clone(), self.remaining(row));
                    return Ok(Campaign::Held { leader, retry_in });
                }
                if inner.file.is_held() && !row.file_locked && !self.remaining(row).is_zero() {
                    // A holder without the lock lives until its time is over.
                    let (leader, retry_in) = (row.leader.clone(), self.remaining(row));
                    inner.file.release();
                    return Ok(Campaign::Held { leader, retry_in });
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
            let expires_at = (self.clock.since_boot)() + self.ttl;
            let boot_id = self.clock.boot_id.clone();
            (LeaseRow { leader, boot_id, expires_at, file_locked }, token_hash)
        };
        match self.ledger.take_lease(seen.as_ref(), &next, at_least).await.map_err(failed)? {
            Some(term) => {
                self.lock().leading = true;
                Ok(Campaign::Won(Fence { term, token_hash }))
            }
            None => {
                self.lock().file.release();
                let row = self.ledger.lease().await.map_err(failed)?;
                let row = row.ok_or_else(|| Error::Unavailable("the lease row is gone".into()))?;
                let retry_in = self.remaining(&row);
                Ok(Campaign::Held { leader: row.leader, retry_in })
            }
        }
    }

    async fn renew(&self, fence: &Fence) -> Result<bool> {
        let (wall, expires_at) = ((self.clock.wall)(), (self.clock.since_boot)() + self.ttl);
        // Whoever took the lease from a frozen holder gets the lock when that one ends.
        let file_locked = self.lock().file.try_hold();
        let renewed =
            self.ledger.renew_lease(fence, wall, expires_at, file_locked).await.map_err(failed)?;
        if !renewed {
            let mut inner = self.lock();
            inner.leading = false;
            inner.file.release();
        }
        Ok(renewed)
    }

    async fn resign(&self, fence: &Fence) -> Result<()> {
        let released = self.ledger.release_lease(fence).await.map_err(failed);
        let mut inner = self.lock();
        inner.leading = false;
        inner.attempt = None;
        inner.file.release();
        released
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        let row = self.ledger.lease().await.map_err(failed)?;
        let inner = self.lock();
        let held = row.filter(|row| {
            !self.remaining(row).is_zero() && (inner.file.is_held() || self.holds(row, &inner.file))
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
            let free = match &row {
                None => true,
                Some(row) => !self.holds(row, &self.lock().file),
            };
            if free {
                return;
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
mod tests {
    use std::path::Path;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A ledger in memory: one row, and the fence that terms have to exceed.
    #[derive(Default)]
    struct Ledger {
        row: Mutex<Option<LeaseRow>>,
        path: Option<std::path::PathBuf>,
        /// The next write happens and its answer gets lost.
        lose_answer: Mutex<bool>,
    }

    #[async_trait]
    impl LeaseLedger for Ledger {
        fn path(&self) -> Option<&Path> {
            self.path.as_deref()
        }

        async fn lease(&self) -> store::Result<Option<LeaseRow>> {
            Ok(self.row.lock().unwrap().clone())
        }

        async fn take_lease(
            &self,
            seen: Option<&LeaseRow>,
            next: &LeaseRow,
            at_least: Option<Term>,
        ) -> store::Result<Option<Term>> {
            let mut row = self.row.lock().unwrap();
            if row.as_ref() != seen {
                return Ok(None);
            }
            let held = row.as_ref().map_or(0, |row| row.leader.term.0);
            let term = Term(held.max(at_least.map_or(0, |t| t.0)) + 1);
            let mut next = next.clone();
            next.leader.term = term;
            *row = Some(next);
            if std::mem::take(&mut *self.lose_answer.lock().unwrap()) {
                return Err(store::Error::Unknown("the answer got lost".into()));
            }
            Ok(Some(term))
        }

        async fn renew_lease(
            &self,
            fence: &Fence,
            renewed_at: Time,
            expires_at: Duration,
            file_locked: bool,
        ) -> store::Result<bool> {
            let mut row = self.row.lock().unwrap();
            let Some(row) = row.as_mut().filter(|row| row.leader.token_hash == fence.token_hash)
            else {
                return Ok(false);
            };
            row.leader.renewed_at = renewed_at;
            row.expires_at = expires_at;
            row.file_locked = file_locked;
            Ok(true)
        }

        async fn release_lease(&self, fence: &Fence) -> store::Result<()> {
            let mut row = self.row.lock().unwrap();
            if let Some(row) = row.as_mut().filter(|r| r.leader.token_hash == fence.token_hash) {
                row.expires_at = Duration::ZERO;
            }
            Ok(())
        }
    }

    struct Machine {
        ledger: Arc<Ledger>,
        seconds: Arc<AtomicU64>,
        _dir: Option<tempfile::TempDir>,
    }

    impl Machine {
        fn new(with_file: bool) -> Machine {
            let dir = with_file.then(|| tempfile::tempdir().unwrap());
            let path = dir.as_ref().map(|dir| dir.path().join("besom.db"));
            let ledger = Arc::new(Ledger { path, ..Ledger::default() });
            Machine { ledger, seconds: Arc::new(AtomicU64::new(100)), _dir: dir }
        }

        fn node(&self, name: &str) -> StoreLease {
            let seconds = Arc::clone(&self.seconds);
            let clock = LeaseClock {
                boot_id: "boot".into(),
                since_boot: Arc::new(move || Duration::from_secs(seconds.load(Ordering::Relaxed))),
                wall: Arc::new(|| Time::EPOCH),
            };
            StoreLease::new(self.ledger.clone(), name.into(), LEASE_TTL_DEFAULT, clock)
        }

        fn pass(&self, seconds: u64) {
            self.seconds.fetch_add(seconds, Ordering::Relaxed);
        }
    }

    async fn won(lease: &StoreLease) -> Fence {
        match lease.campaign(None).await.unwrap() {
            Campaign::Won(fence) => fence,
            held => panic!("{held:?}"),
        }
    }

    #[tokio::test]
    async fn the_lease_is_free_again_when_its_time_is_over_and_not_before() {
        let machine = Machine::new(false);
        let (a, b) = (machine.node("a"), machine.node("b"));
        let first = won(&a).await;
        machine.pass(14);
        let Campaign::Held { leader, retry_in } = b.campaign(None).await.unwrap() else {
            panic!("two leaders")
        };
        assert_eq!((leader.node, retry_in), ("a".into(), Duration::from_secs(1)));
        machine.pass(1);
        let second = won(&b).await;
        assert!(second.term > first.term);
        assert!(!a.renew(&first).await.unwrap());
        assert!(b.renew(&second).await.unwrap());
    }

    #[tokio::test]
    async fn a_holder_that_died_is_followed_at_once_and_a_living_one_is_not() {
        let machine = Machine::new(true);
        let (a, b) = (machine.node("a"), machine.node("b"));
        won(&a).await;
        assert!(matches!(b.campaign(None).await.unwrap(), Campaign::Held { .. }));
        assert_eq!(b.leader().await.unwrap().unwrap().node, "a".into());
        drop(a);
        b.changed(Duration::from_secs(3600)).await;
        assert_eq!(b.leader().await.unwrap(), None);
        won(&b).await;
    }

    #[tokio::test]
    async fn a_frozen_holder_keeps_its_lock_and_loses_the_lease() {
        let machine = Machine::new(true);
        let (frozen, b, c) = (machine.node("a"), machine.node("b"), machine.node("c"));
        let old = won(&frozen).await;
        machine.pass(15);
        let fence = won(&b).await;
        // The lock gets free, but the new holder never had it and lives.
        drop(frozen);
        assert!(matches!(c.campaign(None).await.unwrap(), Campaign::Held { .. }));
        assert!(b.renew(&fence).await.unwrap());
        assert!(fence.term > old.term);
        drop(b);
        won(&c).await;
    }

    #[tokio::test]
    async fn a_campaign_finds_its_own_success_after_its_answer_got_lost() {
        let machine = Machine::new(true);
        let a = machine.node("a");
        *machine.ledger.lose_answer.lock().unwrap() = true;
        assert!(matches!(a.campaign(None).await, Err(Error::Unavailable(_))));
        assert_eq!(won(&a).await.term, Term(1));
    }

    #[tokio::test]
    async fn a_resigned_lease_is_free_at_once_and_its_term_is_not_used_again() {
        let machine = Machine::new(true);
        let (a, b) = (machine.node("a"), machine.node("b"));
        let first = won(&a).await;
        a.resign(&first).await.unwrap();
        assert_eq!(b.leader().await.unwrap(), None);
        let Campaign::Won(second) = b.campaign(Some(Term(41))).await.unwrap() else {
            panic!("it is free")
        };
        assert_eq!(second.term, Term(42));
    }
}
