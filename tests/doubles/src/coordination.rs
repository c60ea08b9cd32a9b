//! A lease service in the memory of one process, shared by several handles: the reference
//! implementation of the ports for coordination and membership, for tests and simulations.
//!
//! It decides what a lease service decides (the holder, the expiry, the term, the members) and
//! nothing about elections. Every node has one lease, which carries its membership and, while it
//! leads, the leadership. Terms only increase, across every loss and resignation.

mod members;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Incarnation, Term};
use besom_core::ring::NodeName;
use besom_core::time::Time;
use sha2::{Digest, Sha256};
use tokio::sync::watch;

use besom_ports::coordination::{Campaign, Coordination, Error, LeaderRecord, Result};
use besom_ports::members::Member;

/// An injected clock.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The service that the handles share.
pub struct MemoryLease {
    ttl: Duration,
    clock: Clock,
    state: Mutex<LeaseState>,
    changes: watch::Sender<u64>,
}

#[derive(Default)]
struct LeaseState {
    /// The highest term ever assigned.
    term: Term,
    leader: Option<LeaderRecord>,
    /// By incarnation, until they expire.
    leases: BTreeMap<Incarnation, Lease>,
    /// Increases with every change of the members.
    revision: u64,
}

/// The lease of a node, and its member.
struct Lease {
    expires_at: Time,
    member: Member,
    /// Whether the node has joined; otherwise a campaign has registered it.
    joined: bool,
}

impl LeaseState {
    /// Removes expired leases and what they carry.
    fn expire(&mut self, now: Time) {
        let before = self.leases.len();
        self.leases.retain(|_, lease| lease.expires_at > now);
        if self.leases.len() != before {
            self.revision += 1;
        }
        let leases = &self.leases;
        self.leader = self.leader.take().filter(|leader| leases.contains_key(&leader.node));
    }

    fn members(&self) -> impl Iterator<Item = &Member> {
        self.leases.values().map(|lease| &lease.member)
    }

    /// Renews a node's lease. `false`: it has none.
    fn prolong(&mut self, node: &Incarnation, until: Time) -> bool {
        let lease = self.leases.get_mut(node);
        lease.map(|lease| lease.expires_at = until).is_some()
    }

    /// Revokes a node's lease and what it carries.
    fn revoke(&mut self, node: &Incarnation) {
        if self.leases.remove(node).is_some() {
            self.revision += 1;
        }
        self.leader = self.leader.take().filter(|leader| leader.node != *node);
    }
}

impl MemoryLease {
    /// Creates a service whose leases last `ttl` from each renewal.
    pub fn new(ttl: Duration, clock: Clock) -> Arc<MemoryLease> {
        let (changes, _) = watch::channel(0);
        Arc::new(MemoryLease { ttl, clock, state: Mutex::default(), changes })
    }

    /// The handle of one node, whose permanent name is the name of its incarnation.
    pub fn handle(self: &Arc<Self>, node: Incarnation, hostname: &str) -> MemoryCoordination {
        self.handle_named(node.as_str().into(), node, hostname)
    }

    /// The handle of one incarnation of a node.
    pub fn handle_named(
        self: &Arc<Self>,
        name: NodeName,
        node: Incarnation,
        hostname: &str,
    ) -> MemoryCoordination {
        MemoryCoordination {
            lease: Arc::clone(self),
            name,
            node,
            hostname: hostname.to_owned(),
            faults: Mutex::default(),
            own: Mutex::default(),
        }
    }

    /// Expires the leader's lease without informing its holder.
    pub fn expire(&self) {
        let mut state = self.lock();
        if let Some(leader) = state.leader.take() {
            state.revoke(&leader.node);
        }
        drop(state);
        self.announce();
    }

    /// Sets the highest term back, like a service that was restored from a backup.
    pub fn restore(&self, term: Term) {
        let mut state = self.lock();
        let revision = state.revision + 1;
        *state = LeaseState { term, revision, ..LeaseState::default() };
        drop(state);
        self.announce();
    }

    /// The current state, without expired leases.
    fn lock(&self) -> MutexGuard<'_, LeaseState> {
        let now = (self.clock)();
        // A panic of another holder cannot leave the leases in an inconsistent state.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.expire(now);
        state
    }

    fn announce(&self) {
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn campaign(&self, member: Member, hostname: &str, at_least: Option<Term>) -> Campaign {
        let (now, node) = ((self.clock)(), &member.incarnation.clone());
        let mut state = self.lock();
        // Whether or not the candidate wins, it now has a lease and is a member.
        if !state.prolong(node, now + self.ttl) {
            let lease = Lease { expires_at: now + self.ttl, member, joined: false };
            state.leases.insert(node.clone(), lease);
            state.revision += 1;
        }
        if let Some(record) = &mut state.leader {
            if record.node != *node {
                let leader = record.clone();
                let expires_at = state.leases.get(&leader.node).map_or(now, |l| l.expires_at);
                return Campaign::Held { leader, retry_in: expires_at.since(now) };
            }
            // The candidate's own earlier success, whose answer may have been lost; unless the
            // store has recorded a higher term, because then this term could never raise the fence.
            if at_least.is_none_or(|least| record.term > least) {
                record.renewed_at = now;
                return Campaign::Won(fence_of(record));
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
        (state.term, state.leader) = (term, Some(record));
        drop(state);
        self.announce();
        Campaign::Won(fence)
    }

    fn renew(&self, fence: &FencingToken) -> bool {
        let now = (self.clock)();
        let mut state = self.lock();
        let held = state.leader.as_mut().filter(|record| fence_of(record) == *fence);
        let Some(record) = held else { return false };
        record.renewed_at = now;
        let node = record.node.clone();
        state.prolong(&node, now + self.ttl)
    }

    fn resign(&self, fence: &FencingToken) {
        let mut state = self.lock();
        if state.leader.as_ref().is_some_and(|record| fence_of(record) == *fence) {
            state.leader = None;
            drop(state);
            self.announce();
        }
    }

    fn leader(&self) -> Option<LeaderRecord> {
        self.lock().leader.clone()
    }
}

fn fence_of(record: &LeaderRecord) -> FencingToken {
    FencingToken { term: record.term, token_hash: record.token_hash }
}

/// Replaces a random token, so that a simulation is reproducible.
fn token_hash(node: &Incarnation, term: Term) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(node.as_str().as_bytes());
    hash.update(term.0.to_le_bytes());
    hash.finalize().into()
}

/// Injected faults between one node and the service.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Faults {
    away: bool,
    lose_answer: bool,
}

/// One node's handle of a [`MemoryLease`]. Only waiting for changes suspends.
pub struct MemoryCoordination {
    lease: Arc<MemoryLease>,
    name: NodeName,
    node: Incarnation,
    hostname: String,
    faults: Mutex<Faults>,
    own: Mutex<members::Own>,
}

impl MemoryCoordination {
    /// Disconnects this node from the service, or reconnects it.
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
        self.call(|lease| {
            self.check_rival()?;
            Ok(lease.campaign(self.candidate(), &self.hostname, at_least))
        })?
    }

    async fn renew(&self, fence: &FencingToken) -> Result<bool> {
        self.call(|lease| lease.renew(fence))
    }

    async fn resign(&self, fence: &FencingToken) -> Result<()> {
        self.call(|lease| lease.resign(fence))
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        self.call(MemoryLease::leader)
    }

    async fn changed(&self, timeout: Duration) {
        self.wait(timeout).await;
    }
}

impl MemoryCoordination {
    /// Waits for any change of the service.
    async fn wait(&self, timeout: Duration) {
        // Without a timer (in a simulation) the hint comes immediately: the caller checks again.
        if tokio::runtime::Handle::try_current().is_err() {
            return;
        }
        let mut changes = self.lease.changes.subscribe();
        // A change and a timeout mean the same to the caller.
        let _ = tokio::time::timeout(timeout, changes.changed()).await;
    }
}
