//! Membership in memory.

use std::num::NonZeroU32;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::Incarnation;
use besom_core::ring::NodeName;
use besom_core::time::Time;

use super::{Lease, MemoryCoordination};
use besom_ports::coordination::{Error, Result};
use besom_ports::members::{Announcement, Member, MemberState, Members, Membership, StoreAway};

/// The handle's state of its node.
#[derive(Default)]
pub(super) struct Own {
    /// Another incarnation with the same name, and since when it has been in the way.
    rival: Option<(Incarnation, Time)>,
    /// The last announcement of [`Members::join`].
    announced: Option<Announcement>,
    /// The last report of [`Members::say_of_store`].
    store_away: Option<StoreAway>,
}

impl MemoryCoordination {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails while another incarnation has this node's name and this one has no lease. A dead
    /// incarnation disappears when its lease expires; one that remains for longer than a lease is
    /// alive.
    pub(super) fn check_rival(&self) -> Result<()> {
        let now = (self.lease.clock)();
        let state = self.lease.lock();
        let other = state.members().find(|m| m.name == self.name && m.incarnation != self.node);
        let mut own = self.own();
        let Some(other) = other else {
            own.rival = None;
            return Ok(());
        };
        let since = match &own.rival {
            Some((incarnation, since)) if *incarnation == other.incarnation => *since,
            _ => now,
        };
        own.rival = Some((other.incarnation.clone(), since));
        if now.since(since) > self.lease.ttl {
            return Err(Error::Refused(format!("another node is alive as `{}`", self.name)));
        }
        Err(Error::Unavailable(format!("`{}` is still registered", self.name)))
    }

    fn member(&self, said: Announcement) -> Member {
        Member {
            name: self.name.clone(),
            incarnation: self.node.clone(),
            addr: said.addr,
            weight: said.weight,
            state: said.state,
            store_away: self.own().store_away.clone(),
        }
    }

    /// The member that a campaign registers if the node has not joined.
    pub(super) fn candidate(&self) -> Member {
        let unknown = Announcement {
            addr: String::new(),
            weight: NonZeroU32::MIN,
            state: MemberState::Joining,
        };
        let announced = self.own().announced.clone();
        let said = announced.map(|said| Announcement { state: MemberState::Joining, ..said });
        self.member(said.unwrap_or(unknown))
    }

    fn joined(&self, said: &Announcement) -> u64 {
        let expires_at = (self.lease.clock)() + self.lease.ttl;
        let lease = Lease { expires_at, member: self.member(said.clone()), joined: true };
        self.own().announced = Some(said.clone());
        let mut state = self.lease.lock();
        state.leases.insert(self.node.clone(), lease);
        state.revision += 1;
        let revision = state.revision;
        drop(state);
        self.lease.announce();
        revision
    }
}

#[async_trait]
impl Members for MemoryCoordination {
    async fn join(&self, said: &Announcement) -> Result<u64> {
        self.call(|_| {
            self.check_rival()?;
            Ok(self.joined(said))
        })?
    }

    async fn keep_alive(&self) -> Result<bool> {
        self.call(|lease| {
            let until = (lease.clock)() + lease.ttl;
            let mut state = lease.lock();
            let joined = state.leases.get(&self.node).is_some_and(|lease| lease.joined);
            joined && state.prolong(&self.node, until)
        })
    }

    async fn set_state(&self, name: &NodeName, to: MemberState) -> Result<bool> {
        self.call(|lease| {
            let mut state = lease.lock();
            let mut members = state.leases.values_mut().map(|lease| &mut lease.member);
            let Some(member) = members.find(|member| member.name == *name) else { return false };
            member.state = to;
            state.revision += 1;
            drop(state);
            lease.announce();
            true
        })
    }

    async fn say_of_store(&self, away: Option<StoreAway>) -> Result<bool> {
        self.own().store_away.clone_from(&away);
        self.call(|lease| {
            let mut state = lease.lock();
            let Some(own) = state.leases.get_mut(&self.node) else { return false };
            own.member.store_away = away;
            state.revision += 1;
            drop(state);
            lease.announce();
            true
        })
    }

    async fn leave(&self) -> Result<()> {
        self.call(|lease| {
            lease.lock().revoke(&self.node);
            lease.announce();
        })
    }

    async fn members(&self) -> Result<Membership> {
        self.call(|lease| {
            let state = lease.lock();
            let mut members: Vec<Member> = state.members().cloned().collect();
            members.sort_by(|a, b| a.name.cmp(&b.name));
            Membership { revision: state.revision, members }
        })
    }

    async fn members_changed(&self, since: u64, timeout: Duration) {
        if self.lease.lock().revision == since {
            self.wait(timeout).await;
        }
    }
}
