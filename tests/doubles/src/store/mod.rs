//! The store in memory: the executable specification of the port, for tests and simulations.
//!
//! One synchronous [`state::State`] behind a mutex, with a method per operation; clarity comes
//! before speed. An operation runs entirely under the mutex, which is its transaction. The async
//! methods never suspend, so that a simulation can poll them with a waker that does nothing, and
//! the clock is injected.
//!
//! This module decides what every operation of the port means, for every adapter. It does not
//! decide how a database achieves that (locks, isolation, SQL), and nothing outlives the process.
//!
//! ```text
//!   MemoryStore ──┐   a handle per node, each with its mapping and its faults
//!   MemoryStore ──┼──> Mutex<State>: queue, books, the user's tables, activity
//!   MemoryStore ──┘
//! ```

mod books;
mod brakes;
mod commands;
mod commit;
mod fault;
mod ledger;
mod lines;
mod mapping;
mod ordered;
mod outbox;
mod ownership;
mod planning;
mod port;
mod queue;
mod reviews;
mod state;
mod streams;
mod tables;
mod view;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use besom_core::activity::Timeouts;
use besom_core::collection::{Collection, Collections};
use besom_core::time::Time;

use besom_ports::store::Offered;

pub use fault::{Broken, Chance, Corruption, Fault, On, READ};
pub use outbox::Message;

use fault::Faults;
use state::State;

use crate::activity::Book;

/// An injected clock.
pub type Clock = Arc<dyn Fn() -> Time + Send + Sync>;

/// The default number of partitions.
pub const PARTITIONS_DEFAULT: u32 = 64;

/// One node's handle to a store in memory.
pub struct MemoryStore {
    shared: Arc<Shared>,
    collections: RwLock<Arc<Collections>>,
    faults: Mutex<Faults>,
}

/// A copy of a store's content.
#[derive(Debug, Clone)]
pub struct Backup(Box<State>);

struct Shared {
    clock: Clock,
    partitions: u32,
    state: Mutex<State>,
}

impl MemoryStore {
    /// An empty store; its activity is observed from now on.
    ///
    /// # Panics
    /// Panics if `partitions` is 0.
    pub fn new(partitions: u32, timeouts: Timeouts, clock: Clock) -> MemoryStore {
        assert!(partitions > 0, "a store has at least one partition");
        let state = State::new(partitions, Book::new(timeouts, clock()));
        MemoryStore::open(Arc::new(Shared { clock, partitions, state: Mutex::new(state) }))
    }

    /// A store with a defect. It lets a simulation show that its checks detect that.
    pub fn broken(
        broken: Broken,
        partitions: u32,
        timeouts: Timeouts,
        clock: Clock,
    ) -> MemoryStore {
        let store = MemoryStore::new(partitions, timeouts, clock);
        store.lock().broken = Some(broken);
        store
    }

    /// Another handle to the same store: another node's, or one after a restart. It has no
    /// collections and no faults yet.
    pub fn handle(&self) -> MemoryStore {
        MemoryStore::open(Arc::clone(&self.shared))
    }

    fn open(shared: Arc<Shared>) -> MemoryStore {
        MemoryStore { shared, collections: RwLock::default(), faults: Mutex::default() }
    }

    /// A copy of the whole content, as a backup contains it.
    pub fn back_up(&self) -> Backup {
        Backup(Box::new(self.lock().clone()))
    }

    /// Replaces the content by the copy, for every handle: later changes are lost.
    pub fn restore(&self, backup: Backup) {
        *self.lock() = *backup.0;
    }

    /// Creates the table of a collection; its key columns and those of `not_null` must not be null.
    /// An existing table is not changed.
    pub fn create_table(&self, collection: &Collection, not_null: &[&str]) {
        self.lock().tables.create(collection, not_null);
    }

    /// Sets what [`Store::strain`](besom_ports::store::Store::strain) measures.
    pub fn set_strain(&self, strain: besom_core::pace::Strain) {
        self.lock().strain = strain;
    }

    /// The emitted messages, oldest first.
    pub fn outbox(&self) -> Vec<Message> {
        self.lock().outbox.to_vec()
    }

    /// Looks at the emitted messages, oldest first.
    pub fn look_into_outbox<T>(&self, look: impl FnOnce(&[Message]) -> T) -> T {
        look(&self.lock().outbox)
    }

    /// Inserts rows into the table `feed`, as the product does.
    pub fn insert_messages(&self, offered: &[Offered]) {
        self.lock().feed.extend_from_slice(offered);
    }

    /// Discards all activity, as a server does when it is flushed or restarted.
    pub fn flush_activity(&self) {
        let now = self.time();
        self.lock().activity.flush(now);
    }

    fn time(&self) -> Time {
        (self.shared.clock)()
    }

    fn collections(&self) -> Arc<Collections> {
        Arc::clone(&self.collections.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned state is half written: continuing would hide the panic's cause.
        self.shared.state.lock().expect("an operation of the store panicked")
    }
}
