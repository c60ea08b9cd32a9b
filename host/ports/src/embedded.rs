//! The lease and the activity that a store keeps beside the user's tables, for deployments without
//! etcd and Redis.
//!
//! The store adapters implement these ledgers. The decisions are made by the store lease and the
//! embedded activity, which are built on them.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{FencingToken, Term};
use besom_core::time::{Time, micros};

use super::activity::State;
use super::coordination::LeaderRecord;
use super::store::{Error, Result, Store};

/// A store that also keeps the lease and the activity: everything that a node needs except its
/// guests.
pub trait Embedded: Store + LeaseLedger + ActivityLedger {}

impl<T: Store + LeaseLedger + ActivityLedger> Embedded for T {}

/// The language of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// A database as the product beside the engine reaches it, for the tables and rows that are the
/// product's own (`besom_product::model::product`). A host has no use for it and is not given it.
#[async_trait]
pub trait Scripts: Send + Sync {
    /// The language of the scripts.
    fn dialect(&self) -> Dialect;

    /// Runs texts of one or more statements each in one transaction. SQLite copies the rest of a text for
    /// each of its statements: a long text of many takes quadratic time.
    async fn run(&self, texts: Vec<String>) -> Result<()>;
}

/// The row of the store lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// The holder of the lease.
    pub leader: LeaderRecord,
    /// The boot id of the machine since whose boot `expires_at` counts; empty: it counts from the
    /// epoch, by the clock of the server that keeps the row.
    pub boot_id: String,
    /// When the lease ends, counted as described by `boot_id` (suspended time included); zero: it
    /// was released.
    pub expires_at: Duration,
    /// Whether the holder also holds the lock on the file beside the database.
    pub file_locked: bool,
}

impl LeaseRow {
    /// Refuses a cluster while a host without one holds the lease, by the clock of the server that keeps
    /// the row.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it is held.
    pub fn check_free(&self, now: Time) -> Result<()> {
        if Time(micros(self.expires_at)) <= now {
            return Ok(());
        }
        Err(Error::Invalid(format!(
            "the host {} on {} uses this store without a cluster: correct [store], or stop that host first",
            self.leader.node, self.leader.hostname
        )))
    }

    /// The term of the next leader: above that of the holder in the way, above the fence and above
    /// `at_least`.
    pub fn next_term(seen: Option<&LeaseRow>, fence: Term, at_least: Option<Term>) -> Term {
        let held = seen.map(|row| row.leader.term);
        let highest = fence.max(held.unwrap_or_default()).max(at_least.unwrap_or_default());
        Term(highest.0 + 1)
    }
}

/// The storage of the store lease. Every method is one transaction.
#[async_trait]
pub trait LeaseLedger: Send + Sync {
    /// The file of the database; `None`: the database is in memory and there is no file beside it.
    fn path(&self) -> Option<&Path>;

    /// The time of the server that keeps the row, which is common to all its nodes; `None`: the row
    /// is in a file, and the machine's own time applies.
    ///
    /// # Errors
    /// The server does not answer.
    async fn server_time(&self) -> Result<Option<Time>> {
        Ok(None)
    }

    /// The row of the lease; `None`: the lease was never held.
    async fn lease(&self) -> Result<Option<LeaseRow>>;

    /// Replaces the row with `next` if it still equals `seen`, under a term above every earlier
    /// one, above the fence and above `at_least`. Returns the term; `None`: another node has
    /// changed the row.
    async fn take_lease(
        &self,
        seen: Option<&LeaseRow>,
        next: &LeaseRow,
        at_least: Option<Term>,
    ) -> Result<Option<Term>>;

    /// Renews the lease of that term and token, unless it has ended by `now` (counted since the
    /// boot). `false`: the lease has ended, was taken or was released.
    async fn renew_lease(
        &self,
        fence: &FencingToken,
        renewed_at: Time,
        now: Duration,
        expires_at: Duration,
        file_locked: bool,
    ) -> Result<bool>;

    /// Releases the lease of that term and token, if it is still held.
    async fn release_lease(&self, fence: &FencingToken) -> Result<()>;

    /// Records that the store belongs to this cluster, whose leaders are elected elsewhere. Nothing
    /// happens for a store that no cluster can use.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it belongs to another cluster, or a host
    /// without a cluster holds the lease.
    async fn assign_to(&self, cluster: &str) -> Result<()> {
        let _ = cluster;
        Ok(())
    }
}

/// The storage of the embedded activity. It survives the process; a power failure may lose the most
/// recent records together with their connections.
#[async_trait]
pub trait ActivityLedger: Send + Sync {
    /// Declares that every sign of activity is recorded from now on: a key without any during the
    /// idle timeout is idle.
    fn listen(&self);

    /// The state of each key, in the order of `keys`.
    async fn activity_states(&self, keys: &[String]) -> Result<Vec<State>>;

    /// Records that a connection is open: it was opened, or sent a heartbeat.
    async fn activity_seen(&self, key: &str, connection: &str) -> Result<()>;

    /// Records that a connection was closed. Closing an unknown connection changes nothing.
    async fn activity_closed(&self, key: &str, connection: &str) -> Result<()>;
}
