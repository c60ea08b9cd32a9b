//! Membership: the keys under `members/`.

use besom_core::ring::NodeName;
use etcd_client::{Compare, CompareOp, GetOptions, PutOptions, Txn, TxnOp};

use super::Etcd;
use super::endpoints::revision;
use super::keys::{MemberValue, decode, encode};
use super::session::Session;
use super::watch::Roll;
use besom_ports::coordination::{Error, Result};
use besom_ports::members::{Announcement, Member, MemberState, Membership, StoreAway};

/// How often a write of a member is retried because the member changed concurrently.
const WRITE_TRIES_MAX: usize = 5;

impl Etcd {
    /// Registers the member, or updates its announcement.
    pub(super) async fn announce(&self, said: &Announcement) -> Result<u64> {
        self.lock().announced = Some(said.clone());
        let kept = self.lock().session;
        if let Some(session) = kept {
            if self.prolong(session).await? {
                if let Some(revision) = self.rewrite(session, said).await? {
                    return Ok(revision);
                }
                // The key was removed manually.
                self.revoke(session.lease).await?;
            }
            self.forget(session);
        }
        let (session, fresh) = self.make_session(Some(said)).await?;
        if fresh {
            return Ok(session.created.unsigned_abs());
        }
        // A campaign was faster and has registered the node as joining.
        let revision = self.rewrite(session, said).await?;
        revision.ok_or_else(|| {
            Error::Unavailable("the member has left in the meantime; try again".into())
        })
    }

    /// Writes the node's announcement into its member. `None`: the member no longer exists.
    async fn rewrite(&self, session: Session, said: &Announcement) -> Result<Option<u64>> {
        let key = self.keys.own();
        let value = encode(&self.member_value(Some(said)))?;
        let same = Compare::create_revision(key.clone(), CompareOp::Equal, session.created);
        let leased = PutOptions::new().with_lease(session.lease);
        let put = TxnOp::put(key, value, Some(leased));
        let answer = self.endpoints.txn(Txn::new().when([same]).and_then([put])).await?;
        if !answer.succeeded() {
            return Ok(None);
        }
        self.lock().joined = true;
        Ok(Some(revision(answer.header()).unsigned_abs()))
    }

    pub(super) async fn keep_membership(&self) -> Result<bool> {
        let session = {
            let inner = self.lock();
            // A session that only a campaign created does not mean that the node has joined.
            inner.session.filter(|_| inner.joined)
        };
        let Some(session) = session else { return Ok(false) };
        let kept = self.prolong(session).await?;
        if !kept {
            self.forget(session);
        }
        Ok(kept)
    }

    pub(super) async fn set_member_state(
        &self,
        name: &NodeName,
        state: MemberState,
    ) -> Result<bool> {
        let key = self.keys.member(name);
        self.change_member(key, None, |value| MemberValue { state, ..value }).await
    }

    pub(super) async fn tell_of_store(&self, away: Option<StoreAway>) -> Result<bool> {
        let session = {
            let mut inner = self.lock();
            inner.store_away = away.clone();
            inner.session
        };
        let Some(session) = session else { return Ok(false) };
        let change = |value| MemberValue { store_away: away.clone(), ..value };
        self.change_member(self.keys.own(), Some(session.created), change).await
    }

    /// Updates a member; if a revision is given, only the member created at that revision. `false`:
    /// it does not exist.
    async fn change_member(
        &self,
        key: String,
        created: Option<i64>,
        change: impl Fn(MemberValue) -> MemberValue,
    ) -> Result<bool> {
        for _ in 0..WRITE_TRIES_MAX {
            let found = self.endpoints.get(key.clone(), None).await?;
            let Some(kv) = found.kvs().first() else { return Ok(false) };
            if created.is_some_and(|created| created != kv.create_revision()) {
                return Ok(false);
            }
            let value = encode(&change(decode(&key, kv.value())?))?;
            let same = Compare::mod_revision(key.clone(), CompareOp::Equal, kv.mod_revision());
            // The lease remains that of the member, whichever node writes.
            let keep = PutOptions::new().with_ignore_lease();
            let put = TxnOp::put(key.clone(), value, Some(keep));
            if self.endpoints.txn(Txn::new().when([same]).and_then([put])).await?.succeeded() {
                return Ok(true);
            }
        }
        Err(Error::Unavailable(format!(
            "the member {key} changes too often to be updated; try again"
        )))
    }

    pub(super) async fn read_members(&self) -> Result<Membership> {
        let prefix = self.keys.members();
        let options = GetOptions::new().with_prefix();
        let found = self.endpoints.get(prefix.clone(), Some(options)).await?;
        let mut members = Vec::with_capacity(found.kvs().len());
        let mut keys = Vec::with_capacity(found.kvs().len());
        for kv in found.kvs() {
            let key = String::from_utf8_lossy(kv.key());
            let name = key.strip_prefix(&prefix).unwrap_or(&key);
            let value: MemberValue = decode(&key, kv.value())?;
            members.push(value.into_member(name));
            keys.push((kv.key().to_vec(), kv.mod_revision()));
        }
        members.sort_by(|a: &Member, b: &Member| a.name.cmp(&b.name));
        let revision = revision(found.header()).unsigned_abs();
        self.lock().roll = Some(Roll { revision, keys });
        Ok(Membership { revision, members })
    }
}
