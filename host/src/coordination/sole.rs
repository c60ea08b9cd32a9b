//! The membership of a host that is alone: no service tells it of others, and its store has
//! one leader at a time, who owns everything.
//!
//! It is a member from when it joins until it leaves. Its lease is not looked after here:
//! the store lease says whether it may work.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::NodeName;
use besom_core::ring::ServerName;

use crate::ports::coordination::Result;
use crate::ports::members::{Announcement, Member, MemberState, Members, Membership};

/// The only member there is.
pub struct SoleMember {
    name: ServerName,
    incarnation: NodeName,
    membership: Mutex<Membership>,
}

impl SoleMember {
    /// A node that has not joined yet.
    pub fn new(name: ServerName, incarnation: NodeName) -> SoleMember {
        let membership = Mutex::new(Membership { revision: 0, members: Vec::new() });
        SoleMember { name, incarnation, membership }
    }

    fn lock(&self) -> MutexGuard<'_, Membership> {
        // A panic of another holder leaves it as it was or as it should be.
        self.membership.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Members for SoleMember {
    async fn join(&self, said: &Announcement) -> Result<u64> {
        let mut membership = self.lock();
        let member = Member {
            name: self.name.clone(),
            incarnation: self.incarnation.clone(),
            addr: said.addr.clone(),
            weight: said.weight,
            state: said.state,
        };
        membership.members = vec![member];
        membership.revision += 1;
        Ok(membership.revision)
    }

    async fn keep_alive(&self) -> Result<bool> {
        Ok(!self.lock().members.is_empty())
    }

    async fn set_state(&self, name: &ServerName, state: MemberState) -> Result<bool> {
        let mut membership = self.lock();
        let Some(member) = membership.members.iter_mut().find(|member| member.name == *name) else {
            return Ok(false);
        };
        member.state = state;
        membership.revision += 1;
        Ok(true)
    }

    async fn leave(&self) -> Result<()> {
        let mut membership = self.lock();
        if membership.members.pop().is_some() {
            membership.revision += 1;
        }
        Ok(())
    }

    async fn members(&self) -> Result<Membership> {
        Ok(self.lock().clone())
    }

    async fn members_changed(&self, since: u64, timeout: Duration) {
        // Nobody but this node changes anything, so there is nothing to wait for but time.
        let changed = self.lock().revision != since;
        if !changed {
            tokio::time::sleep(timeout).await;
        }
    }
}
