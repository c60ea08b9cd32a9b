//! The store on PostgreSQL as a fixture: its own database on the tests' server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom::cli::grants::{Wanted, statements};
use besom_core::collection::{Collections, Operations};
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::Kind;
use besom_ports::activity::Activity;
use besom_ports::embedded::ActivityLedger;
use besom_ports::store::{Offered, Store};
use besom_postgres::{self as postgres, Faults, Options, PARTITIONS_DEFAULT, PostgresStore};
use besom_product::model::product::{self, Product};
use besom_services::activity::store::StoreActivity;

use super::Hand;
use crate::conformance::tables::Table;
use crate::conformance::{Corruption, Fault, Fixture};
use crate::servers::postgres::{Database, Server};

/// Generous bounds, because a busy machine may stall for longer than a leader may. Tests of the
/// bounds set their own.
pub fn patient() -> Options {
    let long = Duration::from_secs(120);
    Options {
        connect_timeout: long,
        lock_timeout: long,
        statement_timeout: long,
        idle_in_transaction_timeout: long,
        ..Options::default()
    }
}

/// The store on PostgreSQL.
pub struct Postgres {
    hand: Hand,
    store: Arc<PostgresStore>,
    faults: Faults,
    options: Options,
    /// The role of the store, with the rights that `besom grants` prints; none: the role of the
    /// tests.
    role: Option<&'static str>,
    /// Dropped with the fixture, after the store.
    database: Database,
}

impl Postgres {
    /// A store in a new database.
    pub async fn open() -> Postgres {
        Postgres::open_with(patient()).await
    }

    /// The same, opened with other bounds.
    pub async fn open_with(options: Options) -> Postgres {
        Postgres::open_on(Server::shared(), options).await
    }

    /// The same on the test's own server.
    pub async fn open_on(server: &'static Server, options: Options) -> Postgres {
        // The template has the default number of partitions.
        let database = match options.partitions {
            PARTITIONS_DEFAULT => server.database(),
            _ => server.empty(),
        };
        let (hand, faults) = (Hand::new(), Faults::default());
        let options = Options { time: Some(hand.clock()), faults: faults.clone(), ..options };
        let store = open_at(&database.url(), &options).await;
        Postgres { hand, store, faults, options, role: None, database }
    }

    /// A store that works as a role with the rights that `besom grants` prints, and with no others.
    pub async fn open_as_granted() -> Postgres {
        let database = Server::shared().granted(GRANTED, &printed(&Collections::default()));
        let (hand, faults) = (Hand::new(), Faults::default());
        let options = Options { time: Some(hand.clock()), faults: faults.clone(), ..patient() };
        let store = open_at(&database.url_of(GRANTED), &options).await;
        Postgres { hand, store, faults, options, role: Some(GRANTED), database }
    }

    fn url(&self) -> String {
        match self.role {
            Some(role) => self.database.url_of(role),
            None => self.database.url(),
        }
    }

    /// The store itself.
    pub fn inner(&self) -> Arc<PostgresStore> {
        Arc::clone(&self.store)
    }

    /// The same database, opened as another node opens it.
    pub async fn another(&self) -> Arc<PostgresStore> {
        let options = Options { faults: Faults::default(), ..self.options.clone() };
        open_at(&self.url(), &options).await
    }

    /// The database.
    pub fn database(&self) -> &Database {
        &self.database
    }
}

/// The role of [`Postgres::open_as_granted`].
const GRANTED: &str = "granted";

/// The output of `besom grants` for tasks with all operations on these collections.
fn printed(collections: &Collections) -> String {
    let operations = Operations { read: true, insert: true, update: true, delete: true };
    let wanted = Wanted { operations, ..Wanted::default() };
    let wanted = collections.keys().map(|name| (name.clone(), wanted.clone())).collect();
    let schema = Options::default().schema;
    statements(collections, &wanted, &schema, GRANTED, "granted_look").join(";\n")
}

async fn open_at(url: &str, options: &Options) -> Arc<PostgresStore> {
    let store = PostgresStore::open(url, options.clone()).await;
    let store = store.expect("the store opens");
    // As the host that serves the activity endpoint does at its start.
    store.listen();
    store
}

/// The table and the indexes of a collection, with its anchors as foreign keys.
pub fn definition(table: &Table) -> String {
    table.definition(|kind| match kind {
        Kind::Text => "text",
        // `json` keeps the written text.
        Kind::Json => "json",
        Kind::Uuid => "uuid",
        Kind::Decimal => "numeric",
        Kind::Integer => "bigint",
        Kind::Bool => "boolean",
        Kind::Timestamp => "timestamptz",
        Kind::Float => "double precision",
        Kind::Bytes => "bytea",
        Kind::Date => "date",
    })
}

#[async_trait]
impl Fixture for Postgres {
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
        let sql: String = tables.iter().map(definition).collect();
        let product = self.database.connect().await;
        product.batch_execute(&sql).await.expect("tables are created");
        if self.role.is_some() {
            let mapped = tables.iter().map(|table| &table.collection);
            let mapped = mapped.map(|mapped| (mapped.name.clone(), mapped.clone())).collect();
            product.batch_execute(&printed(&mapped)).await.expect("rights are granted");
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
        self.store = open_at(&self.url(), &self.options).await;
    }

    async fn outbox(&self) -> Vec<(String, String, Vec<u8>)> {
        let client = self.database.connect().await;
        let sql = "SELECT topic, key, payload FROM besom.outbox ORDER BY id";
        let rows = client.query(sql, &[]).await.expect("messages");
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
    }

    async fn insert_messages(&self, offered: &[Offered]) {
        let client = self.database.connect().await;
        for one in offered {
            let sql =
                "INSERT INTO besom.feed (topic, tenant, key, payload) VALUES ($1, $2, $3, $4)";
            let Offered { topic, tenant, key, payload, .. } = one;
            let tenant = tenant.as_ref().map(Tenant::as_str);
            client.execute(sql, &[topic, &tenant, key, payload]).await.expect("a row is inserted");
        }
    }

    fn fail_next_commit(&self, fault: Fault) {
        self.faults.fail_next(match fault {
            Fault::Busy => postgres::Fault::Busy,
            Fault::Unavailable => postgres::Fault::Away,
            Fault::UnknownApplied => postgres::Fault::CommitUnconfirmed,
            Fault::UnknownNotApplied => postgres::Fault::CommitLost,
        });
    }

    async fn corrupt(&self, corruption: &Corruption) {
        let client = self.database.connect().await;
        let damaged = match corruption {
            Corruption::LoseHistory(id) => {
                let sql = "DELETE FROM besom.history WHERE id = $1";
                client.execute(sql, &[&(*id as i64)]).await
            }
            Corruption::LoseLog(task, partition, seq) => {
                let sql = "DELETE FROM besom.item WHERE part = $2 AND no = $3 AND place = 0
                     AND task = (SELECT id FROM besom.task WHERE name = $1)";
                let (part, no) = (partition.0 as i32, seq.0 as i64);
                client.execute(sql, &[&task.as_str(), &part, &no]).await
            }
            Corruption::LosePositions(task) => {
                let of = "task = (SELECT id FROM besom.task WHERE name = $1)";
                let heads = format!("DELETE FROM besom.stream_head WHERE {of}");
                let tails = format!("DELETE FROM besom.stream_tail WHERE {of}");
                let lost = client.execute(&heads, &[&task.as_str()]).await.expect("deleted");
                let too = client.execute(&tails, &[&task.as_str()]).await;
                too.map(|tails| tails.min(lost).min(1))
            }
            Corruption::LoseTimer(id) => {
                let sql = "DELETE FROM besom.item WHERE place = 1 AND no = $1";
                client.execute(sql, &[&(*id as i64)]).await
            }
            Corruption::MiscountPlanned(task) => {
                // The counters of a task may still be in the tally.
                let sql = "INSERT INTO besom.tally
                     SELECT id, 'a', 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 FROM besom.task WHERE name = $1";
                client.execute(sql, &[&task.as_str()]).await
            }
            Corruption::MiscountRun(run) => {
                let sql = "INSERT INTO besom.run_share VALUES ($1, -1, 0, -1)";
                client.execute(sql, &[&(run.0 as i64)]).await
            }
            Corruption::MiscountRows(task) => {
                let sql = "INSERT INTO besom.tally
                     SELECT id, 'a', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 FROM besom.task WHERE name = $1";
                client.execute(sql, &[&task.as_str()]).await
            }
            Corruption::MiscountRowsOfItem(id) => {
                let sql = "UPDATE besom.history SET rows = rows + 1 WHERE id = $1";
                client.execute(sql, &[&(*id as i64)]).await
            }
        };
        assert_eq!(damaged.expect("the damage is done"), 1, "{corruption:?}");
    }
}
