//! Leader election and membership in etcd.
//!
//! ```text
//! /besom/{cluster}/term             no lease, never deleted
//! /besom/{cluster}/leader           leased: the leader, its term and nonce
//! /besom/{cluster}/members/{node}   leased: a member
//! /besom/{cluster}/store            no lease: the store that the cluster uses
//! ```
//!
//! One lease per process of a node carries its member and, while it leads, the leader. Leader and
//! term change in one transaction; every deletion compares the revision at which the key was
//! created. An unknown result is resolved by the nonce of the attempt.
//!
//! Nothing runs in the background: a lease lives while the caller renews it, so that a node whose
//! loop has stopped loses what it holds. Every operation may be sent twice (a second endpoint is
//! called if the first is slow), so each is idempotent.
//!
//! Not decided here: when to campaign and how long to rely on a lease (`besom_core::election`), and
//! which partitions the members own (`besom_core::ring`).

mod election;
mod endpoints;
mod fault;
mod keys;
mod members;
mod options;
mod session;
mod watch;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Incarnation, Term};
use besom_core::ring::NodeName;
use besom_core::time::Time;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use rand::SeedableRng;
use rand::rngs::StdRng;

use besom_ports::coordination::{Campaign, Coordination, Error, LeaderRecord, Result};
use besom_ports::members::{Announcement, MemberState, Members, Membership, StoreAway};
use election::{Attempt, Leading};
use endpoints::Endpoints;
use keys::Keys;
pub use options::{Credentials, Options, Tls};
use session::{Rival, Session};
use watch::{Roll, Seen};

/// The identity of one process of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The permanent name of the node.
    pub name: NodeName,
    /// The incarnation: this process of the node.
    pub incarnation: Incarnation,
    /// The name of the machine.
    pub hostname: String,
}

/// The clocks of a node.
#[derive(Clone)]
pub struct Clocks {
    /// Time since an arbitrary start, which continues while the machine is suspended.
    pub since_boot: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The wall clock, for display.
    pub wall: Arc<dyn Fn() -> Time + Send + Sync>,
}

/// One node's handle of a cluster's keys.
pub struct Etcd {
    endpoints: Endpoints,
    keys: Keys,
    identity: Identity,
    options: Options,
    clocks: Clocks,
    inner: Mutex<Inner>,
    /// Held while a session is created, so that a node has at most one lease.
    making: tokio::sync::Mutex<()>,
}

/// The state of a handle. Never locked across an await.
#[derive(Default)]
struct Inner {
    session: Option<Session>,
    /// The last announcement of [`Members::join`].
    announced: Option<Announcement>,
    /// The last report of [`Members::say_of_store`].
    store_away: Option<StoreAway>,
    /// Whether the node was announced in the current session.
    joined: bool,
    rival: Option<Rival>,
    /// By how much its lease may have been extended, because etcd was away.
    extended: Duration,
    attempts: VecDeque<Attempt>,
    leading: Option<Leading>,
    seen: Option<Seen>,
    /// The last membership that was read.
    roll: Option<Roll>,
}

impl Etcd {
    /// Creates a handle. It connects on the first call.
    ///
    /// # Errors
    /// [`Error::Refused`] for names that cannot be keys, invalid addresses, and certificates that
    /// cannot be read.
    pub fn new(identity: Identity, options: Options, clocks: Clocks) -> Result<Etcd> {
        let keys = Keys::new(&options.cluster, identity.name.as_str())?;
        let endpoints = Endpoints::new(&options)?;
        Ok(Etcd {
            endpoints,
            keys,
            identity,
            options,
            clocks,
            inner: Mutex::default(),
            making: tokio::sync::Mutex::default(),
        })
    }

    /// Records which store this cluster uses, or compares it with the recorded one: two clusters on
    /// one store would permanently fence each other off.
    ///
    /// # Errors
    /// [`Error::Refused`] if the cluster uses another store.
    pub async fn claim(&self, store: &str) -> Result<()> {
        let key = self.keys.store();
        let absent = Compare::create_revision(key.clone(), CompareOp::Equal, 0);
        let txn = Txn::new()
            .when([absent])
            .and_then([TxnOp::put(key.clone(), store, None)])
            .or_else([TxnOp::get(key, None)]);
        let answer = self.endpoints.txn(txn).await?;
        if answer.succeeded() {
            return Ok(());
        }
        let found = endpoints::gets(&answer).into_iter().find_map(|mut get| get.take_kvs().pop());
        match found.map(|kv| String::from_utf8_lossy(kv.value()).into_owned()) {
            Some(other) if other != store => Err(Error::Refused(format!(
                "the cluster `{}` uses the store {other}, but this node uses {store}: set another \
                 name in [coordination] cluster, or correct [store]",
                self.options.cluster
            ))),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another holder leaves the fields consistent: each is set independently.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A generator seeded by the system, created for each use so that none is held across an await.
fn random() -> StdRng {
    StdRng::from_os_rng()
}

#[async_trait]
impl Coordination for Etcd {
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign> {
        self.campaign_for(at_least).await
    }

    async fn renew(&self, fence: &FencingToken) -> Result<bool> {
        self.renew_leadership(fence).await
    }

    async fn resign(&self, fence: &FencingToken) -> Result<()> {
        self.resign_leadership(fence).await
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        Ok(self.read_election().await?.leader.map(|leader| leader.value.into_record()))
    }

    async fn changed(&self, timeout: Duration) {
        // A change and a timeout mean the same to the caller.
        let _ = tokio::time::timeout(timeout, self.leader_changed()).await;
    }
}

#[async_trait]
impl Members for Etcd {
    async fn join(&self, announcement: &Announcement) -> Result<u64> {
        self.announce(announcement).await
    }

    async fn keep_alive(&self) -> Result<bool> {
        self.keep_membership().await
    }

    async fn set_state(&self, name: &NodeName, state: MemberState) -> Result<bool> {
        self.set_member_state(name, state).await
    }

    async fn say_of_store(&self, away: Option<StoreAway>) -> Result<bool> {
        self.tell_of_store(away).await
    }

    async fn leave(&self) -> Result<()> {
        self.end_session().await
    }

    async fn members(&self) -> Result<Membership> {
        self.read_members().await
    }

    async fn members_changed(&self, since: u64, timeout: Duration) {
        let _ = tokio::time::timeout(timeout, self.roll_changed(since)).await;
    }
}
