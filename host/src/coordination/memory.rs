//! One lease in the memory of one process, shared by several handles: the meaning of the
//! coordination port, for tests and simulations.
//!
//! It decides what a lease service decides (who holds, until when, under which term) and
//! nothing of an election. Terms only grow, over every loss and resignation.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{Fence, NodeName, Term};
use besom_core::time::Time;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use crate::ports::coordination::{Campaign, Coordination, Error, LeaderRecord, Result};

/// An injected clock.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The lease that the handles share.
pub struct MemoryLease {
    ttl: Duration,
    clock: Clock,
    state: Mutex<LeaseState>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct LeaseState {
    /// The highest term ever given.
    term: Term,
    held: Option<Held>,
}

#[derive(Clone)]
struct Held {
    record: LeaderRecord,
    expires_at: Time,
}

impl MemoryLease {
    /// A free lease that lasts `ttl` from each renewal.
    pub fn new(ttl: Duration, clock: Clock) -> Arc<MemoryLease> {
        let (changes, _) = watch::channel(0);
        Arc::new(MemoryLease { ttl, clock, state: Mutex::default(), changes })
    }

    /// The view of one node.
    pub fn handle(self: &Arc<Self>, node: NodeName, hostname: &str) -> MemoryCoordination {
        MemoryCoordination {
            lease: Arc::clone(self),
            node,
            hostname: hostname.to_owned(),
            faults: Mutex::default(),
        }
    }

    /// Ends the lease as if it had expired, without a word to its holder.
    pub fn expire(&self) {
        self.lock().held = None;
        self.announce();
    }

    /// Sets the highest term back, as a service does that was restored from a backup.
    pub fn restore(&self, term: Term) {
        *self.lock() = LeaseState { term, held: None };
        self.announce();
    }

    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        // A panic of another holder cannot leave the lease half written.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn announce(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn campaign(&self, node: &NodeName, hostname: &str, at_least: Option<Term>) -> Campaign {
        let now = (self.clock)();
        let mut state = self.lock();
        if let Some(held) = state.held.as_mut().filter(|held| held.expires_at > now) {
            if held.record.node != *node {
                let leader = held.record.clone();
                return Campaign::Held { leader, retry_in: held.expires_at.since(now) };
            }
            // Its own success, of which it may not have heard; unless the store knows a
            // higher term, for then this one could never raise the fence.
            if at_least.is_none_or(|least| held.record.term > least) {
                held.record.renewed_at = now;
                held.expires_at = now + self.ttl;
                return Campaign::Won(fence_of(&held.record));
            }
        }
        let term = Term(state.term.max(at_least.unwrap_or_default()).0 + 1);
        let record = LeaderRecord {
            node: node.clone(),
            hostname: hostname.to_owned(),
            term,
            token_hash: token_hash(node, term),
            elected_at: now,
            renewed_at: now,
        };
        let fence = fence_of(&record);
        *state = LeaseState { term, held: Some(Held { record, expires_at: now + self.ttl }) };
        drop(state);
        self.announce();
        Campaign::Won(fence)
    }

    fn renew(&self, fence: &Fence) -> bool {
        let now = (self.clock)();
        let mut state = self.lock();
        let held = state
            .held
            .as_mut()
            .filter(|held| held.expires_at > now && fence_of(&held.record) == *fence);
        let Some(held) = held else { return false };
        held.record.renewed_at = now;
        held.expires_at = now + self.ttl;
        true
    }

    fn resign(&self, fence: &Fence) {
        let mut state = self.lock();
        if state.held.as_ref().is_some_and(|held| fence_of(&held.record) == *fence) {
            state.held = None;
            drop(state);
            self.announce();
        }
    }

    fn leader(&self) -> Option<LeaderRecord> {
        let now = (self.clock)();
        self.lock().held.as_ref().filter(|held| held.expires_at > now).map(|h| h.record.clone())
    }
}

fn fence_of(record: &LeaderRecord) -> Fence {
    Fence { term: record.term, token_hash: record.token_hash }
}

/// In place of a random token: the same simulation sees the same tokens.
fn token_hash(node: &NodeName, term: Term) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(node.as_str().as_bytes());
    hash.update(term.0.to_le_bytes());
    hash.finalize().into()
}

/// What goes wrong between one node and the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Faults {
    away: bool,
    lose_answer: bool,
}

/// One node's handle of a [`MemoryLease`]. All but [`Coordination::changed`] never suspend.
pub struct MemoryCoordination {
    lease: Arc<MemoryLease>,
    node: NodeName,
    hostname: String,
    faults: Mutex<Faults>,
}

impl MemoryCoordination {
    /// Cuts this node off from the service, or lets it back.
    pub fn set_away(&self, away: bool) {
        self.faults().away = away;
    }

    /// The next call takes effect, but its answer is lost.
    pub fn lose_next_answer(&self) {
        self.faults().lose_answer = true;
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn call<T>(&self, f: impl FnOnce(&MemoryLease) -> T) -> Result<T> {
        let lost = std::mem::take(&mut self.faults().lose_answer);
        if self.faults().away {
            return Err(Error::Unavailable("the lease service is away".into()));
        }
        let answer = f(&self.lease);
        if lost {
            return Err(Error::Unavailable("the answer was lost".into()));
        }
        Ok(answer)
    }
}

#[async_trait]
impl Coordination for MemoryCoordination {
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign> {
        self.call(|lease| lease.campaign(&self.node, &self.hostname, at_least))
    }

    async fn renew(&self, fence: &Fence) -> Result<bool> {
        self.call(|lease| lease.renew(fence))
    }

    async fn resign(&self, fence: &Fence) -> Result<()> {
        self.call(|lease| lease.resign(fence))
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        self.call(MemoryLease::leader)
    }

    async fn changed(&self, timeout: Duration) {
        // Without a timer (a simulation) the hint comes at once: the caller asks again.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let mut changes = self.lease.changes.subscribe();
        // Both ends mean the same to the caller.
        let _ = tokio::time::timeout(timeout, changes.changed()).await;
    }
}
