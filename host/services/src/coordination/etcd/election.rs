//! Leader election: taking, renewing and releasing the key `leader`.

use std::time::Duration;

use besom_core::ids::{FencingToken, Term};
use etcd_client::{Compare, CompareOp, KeyValue, PutOptions, Txn, TxnOp};
use rand::{Rng as _, RngCore as _};
use sha2::{Digest as _, Sha256};

use super::endpoints::{Outcome, gets, revision};
use super::keys::{LeaderValue, decode, encode};
use super::session::Session;
use super::watch::Seen;
use super::{Etcd, random};
use besom_ports::coordination::{Campaign, Error, Result};

/// Maximum number of attempts whose results may still arrive; more than are ever under way.
const ATTEMPTS_MAX: usize = 8;

/// How often one campaign starts again because the keys changed during it.
const CAMPAIGN_TRIES_MAX: usize = 4;

/// An attempt to take the leadership, whose result may be unknown. If its nonce is found in the
/// key, it has won.
#[derive(Debug, Clone)]
pub(super) struct Attempt {
    nonce: String,
}

/// The leadership that this node holds.
#[derive(Debug, Clone)]
pub(super) struct Leading {
    value: LeaderValue,
    /// The revision at which the key was created, which identifies this leadership.
    created: i64,
}

/// The keys of the election, read together.
pub(super) struct Election {
    pub(super) leader: Option<Leader>,
    term: Term,
    /// The revision at which `term` was last changed; 0: it does not exist.
    term_changed: i64,
}

/// The key `leader` as it was read.
pub(super) struct Leader {
    pub(super) value: LeaderValue,
    created: i64,
    lease: i64,
}

impl Etcd {
    /// Reads the keys of the election together, linearizably.
    pub(super) async fn read_election(&self) -> Result<Election> {
        let reads = [self.keys.leader(), self.keys.term()].map(|key| TxnOp::get(key, None));
        let answer = self.endpoints.txn(Txn::new().and_then(reads)).await?;
        let mut found = gets(&answer).into_iter().map(|mut get| get.take_kvs().pop());
        let leader = found.next().flatten().map(|kv| self.leader_of(&kv)).transpose()?;
        let (term, term_changed) = match found.next().flatten() {
            Some(kv) => (self.term_of(&kv)?, kv.mod_revision()),
            None => (Term(0), 0),
        };
        let nonce = leader.as_ref().map(|leader| leader.value.nonce.clone());
        self.lock().seen = Some(Seen { revision: revision(answer.header()), nonce });
        Ok(Election { leader, term, term_changed })
    }

    fn leader_of(&self, kv: &KeyValue) -> Result<Leader> {
        let value = decode(&self.keys.leader(), kv.value())?;
        Ok(Leader { value, created: kv.create_revision(), lease: kv.lease() })
    }

    fn term_of(&self, kv: &KeyValue) -> Result<Term> {
        decode(&self.keys.term(), kv.value())
    }

    pub(super) async fn campaign_for(&self, at_least: Option<Term>) -> Result<Campaign> {
        for _ in 0..CAMPAIGN_TRIES_MAX {
            let session = self.session().await?;
            // The lease has to last from now on: the caller relies on it from before this call.
            if !self.prolong(session).await? {
                self.forget(session);
                continue;
            }
            let read = self.read_election().await?;
            let Some(leader) = read.leader else {
                self.jitter().await;
                match self.take(session, read.term, read.term_changed, at_least).await? {
                    Some(fence) => return Ok(Campaign::Won(fence)),
                    None => continue,
                }
            };
            if let Some(fence) = self.own(&leader, session) {
                // Below the term that the store has recorded, it could never raise the fence.
                if at_least.is_none_or(|least| fence.term > least) {
                    return Ok(Campaign::Won(fence));
                }
                self.delete_leader(leader.created).await?;
                self.lock().leading = None;
                continue;
            }
            let retry_in = self.remaining(leader.lease).await?;
            return Ok(Campaign::Held { leader: leader.value.into_record(), retry_in });
        }
        Err(Error::Unavailable("the leadership changes too often to be read".into()))
    }

    /// The fence of a leader that is one of this node's own attempts; records that this node leads.
    fn own(&self, leader: &Leader, session: Session) -> Option<FencingToken> {
        let mut inner = self.lock();
        let ours = inner.attempts.iter().any(|attempt| attempt.nonce == leader.value.nonce);
        if !ours || leader.lease != session.lease {
            return None;
        }
        inner.leading = Some(Leading { value: leader.value.clone(), created: leader.created });
        Some(leader.value.fence())
    }

    /// Takes the leadership in one transaction, if it is free, the term is unchanged and the member
    /// is registered. `None`: something has changed.
    async fn take(
        &self,
        session: Session,
        term: Term,
        term_changed: i64,
        at_least: Option<Term>,
    ) -> Result<Option<FencingToken>> {
        let (leader, term_key) = (self.keys.leader(), self.keys.term());
        let value = self.candidate(Term(term.max(at_least.unwrap_or_default()).0 + 1));
        {
            let mut inner = self.lock();
            inner.attempts.push_back(Attempt { nonce: value.nonce.clone() });
            if inner.attempts.len() > ATTEMPTS_MAX {
                inner.attempts.pop_front();
            }
        }
        let leased = PutOptions::new().with_lease(session.lease);
        let txn = Txn::new()
            .when([
                Compare::create_revision(leader.clone(), CompareOp::Equal, 0),
                Compare::mod_revision(term_key.clone(), CompareOp::Equal, term_changed),
                Compare::create_revision(self.keys.own(), CompareOp::Equal, session.created),
            ])
            .and_then([
                TxnOp::put(leader.clone(), encode(&value)?, Some(leased)),
                TxnOp::put(term_key, encode(&value.term)?, None),
            ])
            .or_else([TxnOp::get(leader, None), TxnOp::get(self.keys.own(), None)]);
        let answer = match self.endpoints.txn(txn).await {
            Ok(answer) => answer,
            Err(fault) => {
                // The result is unknown: a read may be answered by another endpoint.
                let read = self.read_election().await;
                let found = read.ok().and_then(|read| read.leader);
                return match found.and_then(|leader| self.own(&leader, session)) {
                    Some(fence) => Ok(Some(fence)),
                    None => Err(fault.into()),
                };
            }
        };
        if answer.succeeded() {
            let fence = value.fence();
            let mut inner = self.lock();
            inner.leading = Some(Leading { value, created: revision(answer.header()) });
            return Ok(Some(fence));
        }
        let mut found = gets(&answer).into_iter().map(|mut get| get.take_kvs().pop());
        let leader = found.next().flatten().map(|kv| self.leader_of(&kv)).transpose()?;
        let member = found.next().flatten();
        if member.is_none_or(|kv| kv.create_revision() != session.created) {
            // The member was removed manually: its lease is no longer useful.
            let _ = self.revoke(session.lease).await;
            self.forget(session);
        }
        Ok(leader.and_then(|leader| self.own(&leader, session)))
    }

    /// A new token, a new nonce, and this node as the leader.
    fn candidate(&self, term: Term) -> LeaderValue {
        let (mut token, mut random) = ([0_u8; 32], random());
        random.fill_bytes(&mut token);
        let wall = (self.clocks.wall)();
        LeaderValue {
            node: self.identity.incarnation.clone(),
            hostname: self.identity.hostname.clone(),
            term,
            nonce: format!("{:032x}", random.random::<u128>()),
            token_sha256: Sha256::digest(token).into(),
            elected_at: wall,
            renewed_at: wall,
        }
    }

    async fn jitter(&self) {
        let most = self.options.jitter_max;
        if !most.is_zero() {
            tokio::time::sleep(random().random_range(Duration::ZERO..most)).await;
        }
    }

    pub(super) async fn renew_leadership(&self, fence: &FencingToken) -> Result<bool> {
        let (leading, session) = {
            let inner = self.lock();
            let leading = inner.leading.clone().filter(|leading| leading.value.fence() == *fence);
            (leading, inner.session)
        };
        let (Some(leading), Some(session)) = (leading, session) else { return Ok(false) };
        // Concurrently: renew the lease, and check that the key still belongs to this node.
        let (kept, ours) =
            futures::join!(self.prolong(session), self.note_renewed(&leading, session));
        if matches!(kept, Ok(false)) {
            self.forget(session);
            return Ok(false);
        }
        if matches!(ours, Ok(false)) {
            self.cease(&leading);
            return Ok(false);
        }
        // Unless both are certain, the leader may not continue.
        Ok(kept? && ours?)
    }

    /// Records the time of the renewal, if the key still belongs to this leadership.
    async fn note_renewed(&self, leading: &Leading, session: Session) -> Result<bool> {
        let key = self.keys.leader();
        let value = LeaderValue { renewed_at: (self.clocks.wall)(), ..leading.value.clone() };
        let same = Compare::create_revision(key.clone(), CompareOp::Equal, leading.created);
        let leased = PutOptions::new().with_lease(session.lease);
        let put = TxnOp::put(key, encode(&value)?, Some(leased));
        let answer = self.endpoints.txn(Txn::new().when([same]).and_then([put])).await;
        match answer {
            Ok(answer) => Ok(answer.succeeded()),
            // The lease expired between the comparison and the write.
            Err(fault) if fault.is(tonic::Code::NotFound) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    pub(super) async fn resign_leadership(&self, fence: &FencingToken) -> Result<()> {
        let leading = self.lock().leading.clone();
        let Some(leading) = leading.filter(|leading| leading.value.fence() == *fence) else {
            return Ok(());
        };
        self.delete_leader(leading.created).await?;
        self.cease(&leading);
        Ok(())
    }

    /// Removes the local record of a leadership, unless it has been replaced.
    fn cease(&self, leading: &Leading) {
        let mut inner = self.lock();
        if inner.leading.as_ref().is_some_and(|now| now.created == leading.created) {
            inner.leading = None;
        }
    }

    /// Deletes the key `leader` if it was created at that revision.
    async fn delete_leader(&self, created: i64) -> Outcome<()> {
        let key = self.keys.leader();
        let same = Compare::create_revision(key.clone(), CompareOp::Equal, created);
        let txn = Txn::new().when([same]).and_then([TxnOp::delete(key, None)]);
        self.endpoints.txn(txn).await.map(|_| ())
    }
}
