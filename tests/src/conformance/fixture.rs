//! The fixture that an adapter's test provides.

use std::sync::Arc;

use async_trait::async_trait;
use besom_core::collection::Collections;
use besom_core::ids::{Partition, RunId, Seq, TaskName, Tenant};
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_ports::activity::Activity;
use besom_ports::store::{Offered, Store};

use super::tables::Table;

/// How the next commit fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// With `Busy`.
    Busy,
    /// With `Unavailable`.
    Unavailable,
    /// With `Unknown`, after it was applied.
    UnknownApplied,
    /// With `Unknown`, without having been applied.
    UnknownNotApplied,
}

/// A damage to the engine's books.
#[derive(Debug, Clone, PartialEq)]
pub enum Corruption {
    /// A history row disappears.
    LoseHistory(u64),
    /// An item disappears from the log.
    LoseLog(TaskName, Partition, Seq),
    /// The positions of a task's streams disappear. Their items stay.
    LosePositions(TaskName),
    /// A timer disappears.
    LoseTimer(u64),
    /// A counter of a task has one planned item too many.
    MiscountPlanned(TaskName),
    /// A run has one item too many.
    MiscountRun(RunId),
    /// A counter of a task has one changed row of the product too many.
    MiscountRows(TaskName),
    /// A history row has one changed row of the product too many.
    MiscountRowsOfItem(u64),
}

/// A store under test with its clock, its tables and its faults.
#[async_trait]
pub trait Fixture: Send + Sync {
    /// The store as it is open now.
    fn store(&self) -> Arc<dyn Store>;

    /// The activity kept in the store.
    fn activity(&self) -> Arc<dyn Activity>;

    /// Sets the store's clock.
    fn set_now(&self, now: Time);

    /// Creates the user's tables.
    async fn create_tables(&self, tables: &[Table]);

    /// Creates the tables of the entity model.
    async fn create_model(&self);

    /// Writes rows of these collections as the product does, without the engine.
    async fn write(&self, collections: &Arc<Collections>, changes: &[(Option<Tenant>, Change)]);

    /// Closes the store and opens it again, as after a restart.
    async fn reopen(&mut self);

    /// Topic, key and payload of everything in the outbox, oldest first.
    async fn outbox(&self) -> Vec<(String, String, Vec<u8>)>;

    /// Inserts rows into the table `feed`, as the product does. Their numbers are not used.
    async fn insert_messages(&self, offered: &[Offered]);

    /// Makes the next commit fail.
    fn fail_next_commit(&self, fault: Fault);

    /// Damages the books without the store.
    async fn corrupt(&self, corruption: &Corruption);
}
