//! The lease of a node and the keys attached to it.
//!
//! ```text
//!   none ──grant, register──> session ──keep alive──> session
//!                                └── lost, left ──> none
//! ```

use std::time::Duration;

use besom_core::ids::Incarnation;
use etcd_client::{Compare, CompareOp, KeyValue, LeaseGrantOptions, PutOptions, Txn, TxnOp};
use rand::Rng as _;
use tonic::Code;

use super::endpoints::{Outcome, revision};
use super::fault::Fault;
use super::keys::{MemberValue, decode, encode};
use super::{Etcd, random};
use besom_ports::coordination::{Error, Result};
use besom_ports::members::{Announcement, MemberState};

/// By how much etcd extends leases, at most, when it starts or elects a leader: its election timeout.
const EXTENDED: Duration = Duration::from_secs(5);

/// Part of etcd's error for a key whose lease does not exist.
const LEASE_NOT_FOUND: &str = "lease not found";

/// A lease and the member attached to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) lease: i64,
    /// The revision at which the member was created, which identifies this registration.
    pub(super) created: i64,
}

/// Another incarnation with this node's name, and since when it has been in the way.
#[derive(Debug, Clone)]
pub(super) struct Rival {
    incarnation: Incarnation,
    since: Duration,
}

impl Etcd {
    /// The current session. If there is none, one is created, with its member
    /// [`MemberState::Joining`].
    pub(super) async fn session(&self) -> Result<Session> {
        let kept = self.lock().session;
        match kept {
            Some(session) => Ok(session),
            None => {
                let (session, _) = self.make_session(None).await?;
                Ok(session)
            }
        }
    }

    /// Creates a session, or returns one that another caller has just created. Also returns whether
    /// it was created with this announcement.
    pub(super) async fn make_session(
        &self,
        said: Option<&Announcement>,
    ) -> Result<(Session, bool)> {
        let _making = self.making.lock().await;
        let kept = self.lock().session;
        if let Some(session) = kept {
            return Ok((session, false));
        }
        let value = self.member_value(said);
        self.check_rival().await?;
        let lease = self.grant().await?;
        let session = match self.register(lease, &value).await {
            Ok(session) => session,
            Err(error) => {
                // No key is attached to it; if revoking fails too, it expires.
                let _ = self.revoke(lease).await;
                return Err(error);
            }
        };
        let mut inner = self.lock();
        inner.session = Some(session);
        inner.rival = None;
        inner.joined = said.is_some();
        Ok((session, true))
    }

    /// The last announcement, or a joining member if there is none yet.
    pub(super) fn member_value(&self, said: Option<&Announcement>) -> MemberValue {
        let known = match said {
            Some(said) => said.clone(),
            None => {
                let announced = self.lock().announced.clone();
                let (addr, weight) = announced
                    .map_or((String::new(), std::num::NonZeroU32::MIN), |a| (a.addr, a.weight));
                Announcement { addr, weight, state: MemberState::Joining }
            }
        };
        let store_away = self.lock().store_away.clone();
        MemberValue::new(&self.identity.incarnation, &known, store_away)
    }

    /// Grants a lease with an id chosen by this node, so that a repeated request grants only one.
    async fn grant(&self) -> Result<i64> {
        let id = random().random_range(1..=i64::MAX);
        let ttl = self.options.ttl_s();
        let granted = self
            .endpoints
            .call(|client| async move {
                let options = LeaseGrantOptions::new().with_id(id);
                client.lease_client().grant(ttl, Some(options)).await
            })
            .await;
        match granted {
            Ok(_) => Ok(id),
            Err(fault) if fault.is(Code::FailedPrecondition) && says(&fault, "already exists") => {
                Ok(id)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// Fails while another incarnation has this node's name.
    async fn check_rival(&self) -> Result<()> {
        let found = self.endpoints.get(self.keys.own(), None).await.inspect_err(|_| {
            // When etcd comes back, every lease lasts for its whole time again, and longer.
            let mut inner = self.lock();
            (inner.rival, inner.extended) = (None, EXTENDED);
        })?;
        match found.kvs().first() {
            Some(kv) => self.judge_rival(kv).await,
            None => Ok(()),
        }
    }

    /// A dead incarnation disappears when its lease expires, which etcd notices a moment later. One whose lease still
    /// lasts, after longer than a lease since it was first seen or since etcd came back, has renewed it: it is alive.
    async fn judge_rival(&self, kv: &KeyValue) -> Result<()> {
        let value: MemberValue = decode(&self.keys.own(), kv.value())?;
        if value.incarnation == self.identity.incarnation {
            return Ok(());
        }
        let now = (self.clocks.since_boot)();
        let since = self.rival_since(&value.incarnation, now);
        let name = &self.identity.name;
        let seen = now.saturating_sub(since);
        let lease = Duration::from_secs(self.options.ttl_s().unsigned_abs());
        if seen > lease && self.remaining(kv.lease()).await? > Duration::ZERO {
            return Err(Error::Refused(format!(
                "another node of the cluster `{}` is already running under the name `{name}` ({} \
                 at `{}`): give each node its own [node] name",
                self.options.cluster, value.incarnation, value.addr
            )));
        }
        Err(Error::Unavailable(format!(
            "`{name}` is still registered by {}; if that process has ended, its lease expires \
             within {} s",
            value.incarnation,
            (since + lease).saturating_sub(now).as_secs() + 1
        )))
    }

    /// When a rival was first seen, or etcd came back.
    fn rival_since(&self, rival: &Incarnation, now: Duration) -> Duration {
        let mut inner = self.lock();
        match &inner.rival {
            Some(known) if known.incarnation == *rival => known.since,
            _ => {
                let since = now + inner.extended;
                inner.rival = Some(Rival { incarnation: rival.clone(), since });
                since
            }
        }
    }

    /// Registers the member under a lease.
    async fn register(&self, lease: i64, value: &MemberValue) -> Result<Session> {
        let (key, bytes) = (self.keys.own(), encode(value)?);
        let put = |lease| {
            let options = PutOptions::new().with_lease(lease);
            TxnOp::put(key.clone(), bytes.clone(), Some(options))
        };
        let txn = Txn::new()
            .when([Compare::create_revision(key.clone(), CompareOp::Equal, 0)])
            .and_then([put(lease)])
            .or_else([TxnOp::get(key.clone(), None)]);
        let answer = self.endpoints.txn(txn).await?;
        if answer.succeeded() {
            return Ok(Session { lease, created: revision(answer.header()) });
        }
        let found =
            super::endpoints::gets(&answer).into_iter().find_map(|mut g| g.take_kvs().pop());
        let Some(kv) = found else {
            return Err(Error::Unavailable(
                "the member joined and left in the meantime; try again".into(),
            ));
        };
        self.judge_rival(&kv).await?;
        let session = Session { lease, created: kv.create_revision() };
        if kv.lease() == lease {
            // The request was sent twice, and the first one succeeded.
            return Ok(session);
        }
        // The member of an earlier session of this process that was believed to have ended: it
        // moves to this lease.
        let same = Compare::create_revision(key.clone(), CompareOp::Equal, session.created);
        let answer = self.endpoints.txn(Txn::new().when([same]).and_then([put(lease)])).await?;
        if answer.succeeded() {
            return Ok(session);
        }
        Err(Error::Unavailable("the member changed in the meantime; try again".into()))
    }

    /// Renews a lease. `false`: it has expired.
    pub(super) async fn prolong(&self, session: Session) -> Outcome<bool> {
        let kept = self
            .endpoints
            .call(|client| async move {
                // A new stream for each renewal, so that a broken one is never waited for.
                match client.lease_client().keep_alive(session.lease).await {
                    Ok(_) => Ok(true),
                    Err(etcd_client::Error::LeaseKeepAliveError(said))
                        if said.contains(LEASE_NOT_FOUND) =>
                    {
                        Ok(false)
                    }
                    Err(error) => Err(error),
                }
            })
            .await;
        match kept {
            Err(fault) if fault.is(Code::NotFound) => Ok(false),
            kept => kept,
        }
    }

    /// How long a lease still lasts without renewal.
    pub(super) async fn remaining(&self, lease: i64) -> Outcome<Duration> {
        let left = self
            .endpoints
            .call(|client| async move { client.lease_client().time_to_live(lease, None).await })
            .await?;
        Ok(Duration::from_secs(u64::try_from(left.ttl()).unwrap_or(0)))
    }

    /// Revokes a lease and all keys attached to it. An expired lease is not an error.
    pub(super) async fn revoke(&self, lease: i64) -> Outcome<()> {
        let revoked = self
            .endpoints
            .call(|client| async move { client.lease_client().revoke(lease).await })
            .await;
        match revoked {
            Err(fault) if fault.is(Code::NotFound) => Ok(()),
            revoked => revoked.map(|_| ()),
        }
    }

    /// Removes the local record of a session that has ended, unless it has been replaced.
    pub(super) fn forget(&self, ended: Session) {
        let mut inner = self.lock();
        if inner.session == Some(ended) {
            inner.session = None;
            inner.joined = false;
            inner.leading = None;
        }
    }

    /// Leaves: revokes the lease, and with it membership and leadership.
    pub(super) async fn end_session(&self) -> Result<()> {
        let kept = self.lock().session;
        let Some(session) = kept else { return Ok(()) };
        self.revoke(session.lease).await?;
        self.forget(session);
        Ok(())
    }
}

fn says(fault: &Fault, words: &str) -> bool {
    matches!(fault, Fault::Answer(status) if status.message().contains(words))
}
