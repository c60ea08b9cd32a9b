//! Who is there: the members that a ring is made of.
//!
//! A node joins under its lasting name and stays while its lease is kept alive. In an adapter
//! that also coordinates, membership and leadership hang on one lease: whoever loses one
//! loses both. What follows from a set of members (who owns what) is decided in
//! `besom_core::ring`.
//!
//! The caller drives the lease and measures its trust: it takes the time *before*
//! [`Members::keep_alive`] is called, and a lease that was kept lasts at least until then plus
//! its time to live.

use std::num::NonZeroU32;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::command::Command;
use besom_core::ids::NodeName;
use besom_core::ring::{RingMember, ServerName};
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

use super::coordination::Result;

/// The heaviest a member may be.
pub const WEIGHT_MAX: u32 = 1_000;

/// What a member takes part in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MemberState {
    /// It is there, and owns nothing yet.
    Joining,
    /// It owns its share.
    Active,
    /// It finishes what it has and gets nothing new.
    Draining,
}

impl MemberState {
    /// What is kept of somebody having set a node's state.
    pub fn noted(self, node: String) -> Command {
        match self {
            MemberState::Draining => Command::Drained { node },
            MemberState::Active | MemberState::Joining => Command::Rejoined { node },
        }
    }
}

/// What a node says of itself when it joins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcement {
    /// Where the others reach it.
    pub addr: String,
    /// Its share of the partitions beside the others'.
    pub weight: NonZeroU32,
    /// What it takes part in.
    pub state: MemberState,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its lasting name, the same after a restart: rings are made of it.
    pub name: ServerName,
    /// This start of it: what a store notes as an owner.
    pub incarnation: NodeName,
    /// Where the others reach it.
    pub addr: String,
    /// Its share of the partitions beside the others'.
    pub weight: NonZeroU32,
    /// What it takes part in.
    pub state: MemberState,
    /// That it misses the store; none: it reaches it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_away: Option<StoreAway>,
}

/// What a member says of a store that it misses. It can tell the others nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreAway {
    /// Since when, by its own clock.
    pub since: Time,
    /// What came instead of an answer.
    pub why: String,
    /// Whether it stands aside: it has no part of the ring and stands for no election.
    pub aside: bool,
}

impl StoreAway {
    /// For people: what came instead of an answer, and what the node does about it.
    pub fn told(&self) -> String {
        match self.aside {
            true => {
                format!("{}; it stands aside: others that reach the store do its work", self.why)
            }
            false => self.why.clone(),
        }
    }
}

impl Member {
    /// Whether it has a part of the ring.
    pub fn is_on_ring(&self) -> bool {
        let aside = self.store_away.as_ref().is_some_and(|away| away.aside);
        self.state == MemberState::Active && !aside
    }
}

/// The members as they were together at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Grows with every change. Between two answers with the same revision nothing changed;
    /// it may grow without one.
    pub revision: u64,
    /// In the order of their names.
    pub members: Vec<Member>,
}

impl Membership {
    /// The members that a ring is made of: those that are active and do not stand aside.
    pub fn ring(&self) -> Vec<RingMember> {
        let active = self.members.iter().filter(|member| member.is_on_ring());
        active.map(|m| RingMember { name: m.name.clone(), weight: m.weight }).collect()
    }

    /// The member of that name.
    pub fn get(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name.as_str() == name)
    }
}

/// One node's place among the members.
#[async_trait]
pub trait Members: Send + Sync {
    /// Joins under this handle's name, or says something new of itself. Returns the revision
    /// from which on the others see it.
    ///
    /// # Errors
    /// [`Unavailable`](super::coordination::Error::Unavailable) while an earlier incarnation
    /// of the name is registered: it may be dead, and then goes with its lease.
    /// [`Refused`](super::coordination::Error::Refused) when it outlives that: two nodes have
    /// one name.
    async fn join(&self, announcement: &Announcement) -> Result<u64>;

    /// Prolongs the membership (and a leadership on the same lease). False: it is lost, join
    /// again.
    async fn keep_alive(&self) -> Result<bool>;

    /// Sets the state of the member of that name, this node's or another's. False: there is
    /// no such member.
    async fn set_state(&self, name: &ServerName, state: MemberState) -> Result<bool>;

    /// Tells the others that this node misses the store, or (none) that it reaches it. It holds
    /// until something else is said, also when the node joins again. False: it is no member.
    async fn say_of_store(&self, away: Option<StoreAway>) -> Result<bool>;

    /// Leaves at once, with a leadership on the same lease. Having left before is no error.
    async fn leave(&self) -> Result<()>;

    /// All members at one revision.
    async fn members(&self) -> Result<Membership>;

    /// Returns when the members may have changed after `since`, at the latest after
    /// `timeout`. A hint: the caller asks again.
    async fn members_changed(&self, since: u64, timeout: Duration);
}
