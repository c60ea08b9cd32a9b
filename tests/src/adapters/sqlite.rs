//! The store on SQLite as a fixture: its own file in a temporary directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::collection::Collections;
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::Kind;
use besom_ports::activity::Activity;
use besom_ports::embedded::ActivityLedger;
use besom_ports::store::{Offered, Store};
use besom_product::model::product::{self, Product};
use besom_services::activity::store::StoreActivity;
use besom_sqlite::{self as sqlite, Faults, Options, SqliteStore};
use rusqlite::{Connection, params};

use super::Hand;
use crate::conformance::tables::Table;
use crate::conformance::{Corruption, Fault, Fixture};

/// The store on SQLite.
pub struct Sqlite {
    hand: Hand,
    store: Arc<SqliteStore>,
    path: PathBuf,
    faults: Faults,
    options: Options,
    /// Removed with the fixture.
    _directory: tempfile::TempDir,
}

impl Sqlite {
    /// A store in a new file.
    pub fn open() -> Sqlite {
        Sqlite::open_with(Options::default())
    }

    /// The same with other limits.
    pub fn open_with(limits: Options) -> Sqlite {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let (hand, path) = (Hand::new(), directory.path().join("besom.db"));
        let faults = Faults::default();
        let options = Options { time: hand.clock(), faults: faults.clone(), ..limits };
        let store = open_at(&path, &options);
        Sqlite { hand, store, path, faults, options, _directory: directory }
    }

    /// The store itself.
    pub fn inner(&self) -> Arc<SqliteStore> {
        Arc::clone(&self.store)
    }

    /// The same file, opened as another process opens it.
    pub fn another(&self) -> Arc<SqliteStore> {
        open_at(&self.path, &Options { faults: Faults::default(), ..self.options.clone() })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A connection beside the store's own, as a product or an operator has one.
    fn beside(&self) -> Connection {
        let conn = Connection::open(&self.path).expect("the file opens");
        conn.busy_timeout(Duration::from_secs(5)).expect("a busy time-out");
        conn
    }
}

fn open_at(path: &Path, options: &Options) -> Arc<SqliteStore> {
    let store = SqliteStore::open(path, options.clone()).expect("the store opens");
    // As the host that serves the activity endpoint does at its start.
    store.listen();
    store
}

/// The table and the indexes of a collection, with its anchors as foreign keys.
fn definition(table: &Table) -> String {
    table.definition(|kind| match kind {
        Kind::Text | Kind::Json | Kind::Uuid | Kind::Decimal | Kind::Date => "TEXT",
        Kind::Integer | Kind::Bool | Kind::Timestamp => "INTEGER",
        Kind::Float => "REAL",
        Kind::Bytes => "BLOB",
    })
}

#[async_trait]
impl Fixture for Sqlite {
    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store) as Arc<dyn Store>
    }

    fn activity(&self) -> Arc<dyn Activity> {
        Arc::new(StoreActivity::listening(self.inner()))
    }

    fn set_now(&self, now: Time) {
        self.hand.set(now);
    }

    async fn create_tables(&self, tables: &[Table]) {
        let conn = self.beside();
        for table in tables {
            conn.execute_batch(&definition(table)).expect("a table is created");
        }
    }

    async fn create_model(&self) {
        product::create_tables(&*self.store).await.expect("the entity model");
    }

    async fn write(&self, collections: &Arc<Collections>, changes: &[(Option<Tenant>, Change)]) {
        let product = Product::new(self.inner(), Arc::clone(collections));
        product.write(changes).await.expect("the product's write");
    }

    async fn reopen(&mut self) {
        self.store = open_at(&self.path, &self.options);
    }

    async fn outbox(&self) -> Vec<(String, String, Vec<u8>)> {
        let conn = self.beside();
        let mut statement = conn
            .prepare("SELECT topic, key, payload FROM besom_outbox ORDER BY id")
            .expect("an outbox");
        let rows = statement.query_map([], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)));
        rows.expect("messages").map(|row| row.expect("a message")).collect()
    }

    async fn insert_messages(&self, offered: &[Offered]) {
        let conn = self.beside();
        for one in offered {
            let sql =
                "INSERT INTO besom_feed (topic, tenant, key, payload) VALUES (?1, ?2, ?3, ?4)";
            let Offered { topic, tenant, key, payload, .. } = one;
            let row = params![topic, tenant.as_ref().map(Tenant::as_str), key, payload];
            conn.execute(sql, row).expect("a row is inserted");
        }
    }

    fn fail_next_commit(&self, fault: Fault) {
        self.faults.fail_next(match fault {
            Fault::Busy => sqlite::Fault::Busy,
            Fault::Unavailable => sqlite::Fault::Full,
            Fault::UnknownApplied => sqlite::Fault::CommitUnconfirmed,
            Fault::UnknownNotApplied => sqlite::Fault::CommitFailed,
        });
    }

    async fn corrupt(&self, corruption: &Corruption) {
        let conn = self.beside();
        let damaged = match corruption {
            Corruption::LoseHistory(id) => {
                conn.execute("DELETE FROM besom_history WHERE id = ?1", [id])
            }
            Corruption::LoseLog(task, partition, seq) => conn.execute(
                "DELETE FROM besom_log WHERE part = ?2 AND seq = ?3
                   AND task = (SELECT id FROM besom_task WHERE name = ?1)",
                params![task.as_str(), partition.0, seq.0],
            ),
            Corruption::LosePositions(task) => conn
                .execute(
                    "DELETE FROM besom_stream
                     WHERE task = (SELECT id FROM besom_task WHERE name = ?1)",
                    [task.as_str()],
                )
                .map(|rows| rows.min(1)),
            Corruption::LoseTimer(id) => {
                conn.execute("DELETE FROM besom_timer WHERE id = ?1", [id])
            }
            Corruption::MiscountPlanned(task) => conn.execute(
                "UPDATE besom_counter SET planned = planned + 1
                 WHERE task = (SELECT id FROM besom_task WHERE name = ?1)",
                [task.as_str()],
            ),
            Corruption::MiscountRun(run) => {
                conn.execute("UPDATE besom_run SET items = items + 1 WHERE id = ?1", [run.0])
            }
            Corruption::MiscountRows(task) => conn.execute(
                "UPDATE besom_counter SET rows = rows + 1
                 WHERE task = (SELECT id FROM besom_task WHERE name = ?1)",
                [task.as_str()],
            ),
            Corruption::MiscountRowsOfItem(id) => {
                conn.execute("UPDATE besom_history SET rows = rows + 1 WHERE id = ?1", [id])
            }
        };
        assert_eq!(damaged.expect("the damage is done"), 1, "{corruption:?}");
    }
}
