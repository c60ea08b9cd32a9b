//! What the embedded coordination and activity keep in the store beside the user's tables.
//!
//! The store adapters implement it; the store lease and the embedded activity
//! build on it and decide.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::ids::{Fence, Term};
use besom_core::time::Time;

use super::activity::State;
use super::coordination::LeaderRecord;
use super::store::{Result, Store};

/// A store that also keeps the lease and the activity: all that a node needs beside its guests.
pub trait Embedded: Store + LeaseLedger + ActivityLedger {}

impl<T: Store + LeaseLedger + ActivityLedger> Embedded for T {}

/// The row of the store lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseRow {
    /// Who holds it.
    pub leader: LeaderRecord,
    /// The boot of the machine that `expires_at` counts from; empty: the epoch, by the clock
    /// of the server that keeps the row.
    pub boot_id: String,
    /// When it ends, since then (suspended time included); zero: it was given up.
    pub expires_at: Duration,
    /// Whether the holder also holds the lock on the file beside the database.
    pub file_locked: bool,
}

/// The ledger of the store lease. Every method is one transaction.
#[async_trait]
pub trait LeaseLedger: Send + Sync {
    /// The file of the database; none: it is in memory, and there is no file beside it.
    fn path(&self) -> Option<&Path>;

    /// The time of the server that keeps the row, which all of its nodes share; none: the row
    /// is in a file, and the time is that of the machine.
    ///
    /// # Errors
    /// Where the server does not answer.
    async fn server_time(&self) -> Result<Option<Time>> {
        Ok(None)
    }

    /// The row; none: nobody ever held the lease.
    async fn lease(&self) -> Result<Option<LeaseRow>>;

    /// Replaces the row if it still is `seen`, with a term above every earlier one, above the
    /// fence and above `at_least`. Returns the term; none: somebody was faster.
    async fn take_lease(
        &self,
        seen: Option<&LeaseRow>,
        next: &LeaseRow,
        at_least: Option<Term>,
    ) -> Result<Option<Term>>;

    /// Prolongs the lease of that term and token, if it has not ended by `now` (since the
    /// boot). False: it has ended, is another's, or was given up.
    async fn renew_lease(
        &self,
        fence: &Fence,
        renewed_at: Time,
        now: Duration,
        expires_at: Duration,
        file_locked: bool,
    ) -> Result<bool>;

    /// Gives up the lease of that term and token, if it is still held.
    async fn release_lease(&self, fence: &Fence) -> Result<()>;
}

/// The ledger of the embedded activity. It survives the process; a power failure may lose
/// the last moments (and every connection with them).
#[async_trait]
pub trait ActivityLedger: Send + Sync {
    /// From now on every sign of life is noted: what shows none for the idle timeout is idle.
    fn listen(&self);

    /// The state of each key, in their order.
    async fn activity_states(&self, keys: &[String]) -> Result<Vec<State>>;

    /// A connection is open: opened, or heard of.
    async fn activity_seen(&self, key: &str, connection: &str) -> Result<()>;

    /// A connection was closed. One that is not known changes nothing.
    async fn activity_closed(&self, key: &str, connection: &str) -> Result<()>;
}
