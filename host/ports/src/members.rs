//! Cluster membership: the members from which the ring is built.
//!
//! A node joins under its permanent name and remains a member while its lease is kept alive. In an
//! adapter that also coordinates, membership and leadership share one lease: a node that loses one
//! loses both. Which member owns which partition is decided in `besom_core::ring`.
//!
//! The caller drives the lease and decides how long to trust it: it reads the time *before* it
//! calls [`Members::keep_alive`], and a renewed lease lasts at least its time to live from then on.

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::command::Command;
use besom_core::ids::Incarnation;
use besom_core::ring::{NodeName, RingMember};
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

use super::coordination::Result;

/// The maximum weight of a member.
pub const WEIGHT_MAX: u32 = 1_000;

/// Whether a member takes part in the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// Has joined and owns no partitions yet.
    Joining,
    /// Owns its share of the partitions.
    Active,
    /// Finishes its current work and receives no new partitions.
    Draining,
}

impl MemberState {
    /// The command that records that an operator has set a node's state.
    pub fn noted(self, node: String) -> Command {
        match self {
            MemberState::Draining => Command::Drained { node },
            MemberState::Active | MemberState::Joining => Command::Rejoined { node },
        }
    }
}

/// What a node announces when it joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// The address at which other nodes reach it.
    pub addr: String,
    /// Its weight: its share of the partitions relative to the other members.
    pub weight: NonZeroU32,
    /// The state in which it joins.
    pub state: MemberState,
}

/// A member of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its permanent name, which survives restarts. The ring is built from these names.
    pub name: NodeName,
    /// This process of the node, as the store records it as an owner.
    pub incarnation: Incarnation,
    /// The address at which other nodes reach it.
    pub addr: String,
    /// Its weight: its share of the partitions relative to the other members.
    pub weight: NonZeroU32,
    /// Whether it takes part in the ring.
    pub state: MemberState,
    /// Set if the member cannot reach the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_away: Option<StoreAway>,
}

/// A member's report that it cannot reach the store. Membership is the only channel on which it can
/// report this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAway {
    /// Since when, by the member's own clock.
    pub since: Time,
    /// The last error instead of an answer.
    pub why: String,
    /// Whether the member stands aside: it has no part of the ring and does not campaign.
    pub aside: bool,
}

impl StoreAway {
    /// A description for people: the error, and what the node does about it.
    pub fn told(&self) -> String {
        match self.aside {
            true => {
                format!("{}; it stands aside: members that reach the store do its work", self.why)
            }
            false => self.why.clone(),
        }
    }
}

impl Member {
    /// Whether the member has a part of the ring.
    pub fn is_on_ring(&self) -> bool {
        let aside = self.store_away.as_ref().is_some_and(|away| away.aside);
        self.state == MemberState::Active && !aside
    }
}

/// All members at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Increases with every change. Two results with the same revision are equal; the revision may
    /// also increase without a change.
    pub revision: u64,
    /// The members in the order of their names.
    pub members: Vec<Member>,
}

impl Membership {
    /// The members from which the ring is built: those that are active and do not stand aside.
    pub fn ring(&self) -> Vec<RingMember> {
        let active = self.members.iter().filter(|member| member.is_on_ring());
        active.map(|m| RingMember { name: m.name.clone(), weight: m.weight }).collect()
    }

    /// The member with that name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name.as_str() == name)
    }
}

/// The membership of one node.
#[async_trait]
pub trait Members: Send + Sync {
    /// Joins under this handle's name, or updates the announcement. Returns the revision at which
    /// the other members see it.
    ///
    /// # Errors
    /// [`Unavailable`](super::coordination::Error::Unavailable) while an earlier incarnation of the
    /// name is registered: it may have died, and then disappears when its lease expires.
    /// [`Refused`](super::coordination::Error::Refused) if it stays registered after that: two
    /// nodes have the same name.
    async fn join(&self, announcement: &Announcement) -> Result<u64>;

    /// Renews the membership, and a leadership on the same lease. `false`: the membership is lost
    /// and the node has to join again.
    async fn keep_alive(&self) -> Result<bool>;

    /// Sets the state of the member with that name, which may be this node or another one. `false`:
    /// there is no such member.
    async fn set_state(&self, name: &NodeName, state: MemberState) -> Result<bool>;

    /// Reports to the other members that this node cannot reach the store, or with `None` that it
    /// can. The report remains until it is replaced, even if the node joins again. `false`: the
    /// node is not a member.
    async fn say_of_store(&self, away: Option<StoreAway>) -> Result<bool>;

    /// Leaves immediately, and releases a leadership on the same lease. Having left before is not
    /// an error.
    async fn leave(&self) -> Result<()>;

    /// All members at one revision.
    async fn members(&self) -> Result<Membership>;

    /// Returns when the members may have changed after the revision `since`, at the latest after
    /// `timeout`. This is a hint: the caller has to check.
    async fn members_changed(&self, since: u64, timeout: Duration);
}
