//! Leadership and membership in etcd.
//!
//! ```text
//! /besom/{cluster}/term             no lease, never deleted
//! /besom/{cluster}/leader           leased: who leads, under which term and nonce
//! /besom/{cluster}/members/{node}   leased: who is there
//! /besom/{cluster}/store            no lease: which store the cluster works on
//! ```
//!
//! One lease for each start of a node carries its member and, while it leads, the leader.
//! Leader and term change in one transaction; every deletion compares the revision at which
//! the key was created. An unknown result is looked up by the nonce of the attempt.
//!
//! Nothing runs in the background: a lease lives while the caller renews it, so a node whose
//! loop has stopped loses what it holds. Every operation may be sent twice (a second endpoint
//! is asked when the first is slow), so each is written to mean the same twice.
//!
//! Not decided here: when to campaign, and how long a lease is trusted
//! (`besom_core::election`); what members own (`besom_core::ring`).

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
use besom_core::ids::{Fence, NodeName, Term};
use besom_core::ring::ServerName;
use besom_core::time::Time;
use etcd_client::{Compare, CompareOp, Txn, TxnOp};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::ports::coordination::{Campaign, Coordination, Error, LeaderRecord, Result};
use crate::ports::members::{Announcement, MemberState, Members, Membership, StoreAway};
use election::{Attempt, Leading};
use endpoints::Endpoints;
use keys::Keys;
pub use options::{Credentials, Options, Tls};
use session::{Rival, Session};
use watch::{Roll, Seen};

/// Who this start of a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Its lasting name.
    pub name: ServerName,
    /// This start of it.
    pub incarnation: NodeName,
    /// Its machine's name.
    pub hostname: String,
}

/// The clocks of a node.
#[derive(Clone)]
pub struct Clocks {
    /// Since an arbitrary start, going on while the machine is suspended.
    pub since_boot: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// The wall clock, for people.
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
    /// Held while a session is made: a node has one lease, not two.
    making: tokio::sync::Mutex<()>,
}

/// What a handle knows. Never locked over an await.
#[derive(Default)]
struct Inner {
    session: Option<Session>,
    /// What was last said by [`Members::join`].
    announced: Option<Announcement>,
    /// What was last said by [`Members::say_of_store`].
    store_away: Option<StoreAway>,
    /// Whether the node was announced under the present session.
    joined: bool,
    rival: Option<Rival>,
    attempts: VecDeque<Attempt>,
    leading: Option<Leading>,
    seen: Option<Seen>,
    /// The last membership read.
    roll: Option<Roll>,
}

impl Etcd {
    /// A handle. Nothing is connected before the first call.
    ///
    /// # Errors
    /// [`Error::Refused`] for names that cannot be keys, addresses that are none, and
    /// certificates that cannot be read.
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

    /// Notes which store this cluster works on, or compares it with what was noted: two
    /// clusters on one store would fence each other off for ever.
    ///
    /// # Errors
    /// [`Error::Refused`] when the cluster works on another store.
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
                "the cluster `{}` works on the store {other}, not on {store}: \
                 name this one differently in [coordination] cluster, or mend [store]",
                self.options.cluster
            ))),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // A panic of another holder leaves the fields consistent: each is set alone.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A generator seeded by the system, one for each use: none is held over an await.
fn random() -> StdRng {
    StdRng::from_os_rng()
}

#[async_trait]
impl Coordination for Etcd {
    async fn campaign(&self, at_least: Option<Term>) -> Result<Campaign> {
        self.campaign_for(at_least).await
    }

    async fn renew(&self, fence: &Fence) -> Result<bool> {
        self.renew_leadership(fence).await
    }

    async fn resign(&self, fence: &Fence) -> Result<()> {
        self.resign_leadership(fence).await
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        Ok(self.read_election().await?.leader.map(|leader| leader.value.into_record()))
    }

    async fn changed(&self, timeout: Duration) {
        // Both ends mean the same to the caller.
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

    async fn set_state(&self, name: &ServerName, state: MemberState) -> Result<bool> {
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
