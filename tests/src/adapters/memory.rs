//! The in-memory store as a fixture.

use std::sync::Arc;

use async_trait::async_trait;
use besom_core::collection::Collections;
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_doubles::store::{self as memory, MemoryStore, On};
use besom_ports::activity::{Activity, Timeouts};
use besom_ports::store::{Offered, Store};
use besom_product::model::default_collections;

use super::Hand;
use crate::conformance::tables::Table;
use crate::conformance::{Corruption, Fault, Fixture};

/// The store in memory.
pub struct Memory {
    hand: Hand,
    store: Arc<MemoryStore>,
}

impl Memory {
    /// An empty store.
    pub fn open() -> Memory {
        let hand = Hand::new();
        let partitions = memory::PARTITIONS_DEFAULT;
        let store = MemoryStore::new(partitions, Timeouts::default(), hand.clock());
        Memory { hand, store: Arc::new(store) }
    }

    /// The store itself.
    pub fn inner(&self) -> Arc<MemoryStore> {
        Arc::clone(&self.store)
    }
}

#[async_trait]
impl Fixture for Memory {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn activity(&self) -> Arc<dyn Activity> {
        Arc::clone(&self.store) as Arc<dyn Activity>
    }

    fn set_now(&self, now: Time) {
        self.hand.set(now);
    }

    async fn create_tables(&self, tables: &[Table]) {
        for table in tables {
            self.store.create_table(&table.collection, &table.not_null);
        }
    }

    async fn create_model(&self) {
        for collection in default_collections().values() {
            self.store.create_table(collection, &[]);
        }
    }

    async fn write(&self, _: &Arc<Collections>, changes: &[(Option<Tenant>, Change)]) {
        self.store.write(changes).expect("the product's write");
    }

    async fn reopen(&mut self) {
        self.store = Arc::new(self.store.handle());
    }

    async fn outbox(&self) -> Vec<(String, String, Vec<u8>)> {
        self.store.outbox().into_iter().map(|m| (m.topic, m.key, m.payload)).collect()
    }

    async fn insert_messages(&self, offered: &[Offered]) {
        self.store.insert_messages(offered);
    }

    fn fail_next_commit(&self, fault: Fault) {
        let fault = match fault {
            Fault::Busy => memory::Fault::Busy,
            Fault::Unavailable => memory::Fault::Unavailable,
            Fault::UnknownApplied => memory::Fault::UnknownApplied,
            Fault::UnknownNotApplied => memory::Fault::UnknownNotApplied,
        };
        self.store.fail_next(On::Commit, fault);
    }

    async fn corrupt(&self, corruption: &Corruption) {
        self.store.corrupt(&match corruption.clone() {
            Corruption::LoseHistory(id) => memory::Corruption::LoseHistory(id),
            Corruption::LoseLog(task, partition, seq) => {
                memory::Corruption::LoseLog(task, partition, seq)
            }
            Corruption::LosePositions(task) => memory::Corruption::LosePositions(task),
            Corruption::LoseTimer(id) => memory::Corruption::LoseTimer(id),
            Corruption::MiscountPlanned(task) => memory::Corruption::MiscountPlanned(task),
            Corruption::MiscountRun(run) => memory::Corruption::MiscountRun(run),
            Corruption::MiscountRows(task) => memory::Corruption::MiscountRows(task),
            Corruption::MiscountRowsOfItem(id) => memory::Corruption::MiscountRowsOfItem(id),
        });
    }
}
