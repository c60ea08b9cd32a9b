//! A database with documents, a product that writes to it, and a host that is driven step by step.

mod hand;
mod written;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use besom::cli::assembly::Assembly;
use besom::cli::open::Purpose;
use besom::cli::{Format, Global};
use besom_config::limits::default_limits;
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, TaskName, Tenant,
};
use besom_core::item::Item;
use besom_core::queue;
use besom_core::time::Time;
use besom_engine::host::perform::call_of;
use besom_ports::embedded::Scripts;
use besom_ports::guests::{Call, Lane, Limits, StopFlag, Usage};
use besom_ports::store::{
    Batch, Decision, EndOfScan, Entry, Outcome, SlotDecision, Store, Waiting,
};
use besom_ports::task::TaskDefinition;
use besom_postgres::PostgresStore;
use besom_product::doc::{self, Name, Shown};
use besom_product::model::default_collections;
use besom_product::model::product::{self, Product};
use besom_sqlite::{Options as StoreOptions, SqliteStore};
use rusqlite::{Connection, params};

use crate::adapters::postgres::patient;
use crate::conformance::world;
use crate::servers::postgres::{Database, Server};

pub use written::{text, typed};

/// The tenant of every document here.
pub const TENANT: &str = "a";
const NODE: &str = "node-1";
/// The task that compacts.
pub const TASK: &str = "compaction";
/// The task that detaches.
pub const DEACTIVATION: &str = "client-deactivation";
/// What [`Site::new`] sets.
const FEW_CHANGES: &str = "min_changes = 2";
/// How long a snapshot may stay open.
const OPEN_MAX: Duration = Duration::from_secs(60);

/// Which database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A file.
    Sqlite,
    /// A separate database on the tests' server.
    Postgres,
}

impl Place {
    /// Both.
    pub const ALL: [Place; 2] = [Place::Sqlite, Place::Postgres];
}

/// The owner epoch of each partition.
pub type Epochs = BTreeMap<Partition, OwnerEpoch>;

/// One host and its database.
pub struct Site {
    assembly: Assembly,
    definitions: BTreeMap<TaskName, Arc<TaskDefinition>>,
    fence: FencingToken,
    epochs: Epochs,
    commits: AtomicU64,
    product: Product,
    directory: tempfile::TempDir,
    /// Dropped after the store.
    database: Option<Database>,
}

/// The component's decision about an item, and the item.
pub struct Decided {
    waiting: Waiting,
    /// What is to be committed.
    pub decision: Decision,
    /// The cost of the decision.
    pub usage: Usage,
}

impl Site {
    /// A host on SQLite with the entity model and no document, which leads.
    pub async fn new() -> Site {
        Site::on(Place::Sqlite, FEW_CHANGES).await
    }

    /// The same on either database, with these settings of compaction.
    pub async fn on(place: Place, settings: &str) -> Site {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("besom.toml");
        let cache = crate::compiled();
        let database = match place {
            Place::Sqlite => None,
            Place::Postgres => Some(Server::shared().database()),
        };
        let url = database.as_ref().map(Database::url);
        let store = url.as_ref().map_or(String::new(), |url| format!("[store]\nurl = {url:?}\n"));
        let text = format!(
            "{store}[runtime]\ncache = {cache:?}\n\
             [tasks.{TASK}]\nplugin = \"compaction\"\nschedule = \"@every 30s\"\n\
             [tasks.{TASK}.settings]\n{settings}\n\
             [tasks.{DEACTIVATION}]\nplugin = \"client-deactivation\"\nschedule = \"@every 30s\"\n"
        );
        std::fs::write(&config, text).unwrap();
        let scripts: Arc<dyn Scripts> = match &url {
            None => {
                let path = directory.path().join("besom.db");
                SqliteStore::open(&path, StoreOptions::default()).unwrap()
            }
            Some(url) => PostgresStore::open(url, patient()).await.unwrap(),
        };
        product::create_tables(&*scripts).await.unwrap();
        let product = Product::new(scripts, Arc::new(default_collections()));
        let global = Global {
            config,
            output: Format::Json,
            log: "info".into(),
            set: vec!["host.default_mode=live".into()],
        };
        let assembly = match Assembly::new(&global, Purpose::Pass).await {
            Ok(assembly) => assembly,
            Err(failure) => panic!("{failure}"),
        };
        let definitions = assembly.config.tasks.clone();
        let fence = world::fence(1);
        let store = &assembly.ports.store;
        let raised = store.raise_fence(&fence, &Incarnation::from(NODE), None).await.unwrap();
        let epochs = raised.owned.into_iter().collect();
        let commits = AtomicU64::new(1);
        let site =
            Site { assembly, definitions, fence, epochs, commits, product, directory, database };
        site.found().await;
        site
    }

    /// Another host takes over everything; returns the previous owner epochs.
    pub async fn lead(&mut self, term: u64) -> Epochs {
        self.fence = world::fence(term);
        let node = Incarnation::from(NODE);
        let raised = self.store().raise_fence(&self.fence, &node, None).await.unwrap();
        std::mem::replace(&mut self.epochs, raised.owned.into_iter().collect())
    }

    /// The leader's fencing token.
    pub fn fence(&self) -> &FencingToken {
        &self.fence
    }

    /// The store.
    pub fn store(&self) -> &dyn Store {
        &*self.assembly.ports.store
    }

    /// The database, if it is on the tests' server.
    pub fn database(&self) -> Option<&Database> {
        self.database.as_ref()
    }

    fn definition(&self, task: &str) -> &TaskDefinition {
        &self.definitions[task]
    }

    /// The embedded store's file, which has the product's tables as well.
    pub fn file(&self) -> PathBuf {
        self.directory.path().join("besom.db")
    }

    /// The product's own connection to the file.
    pub fn product(&self) -> Connection {
        let connection = Connection::open(self.file()).unwrap();
        connection.busy_timeout(Duration::from_secs(5)).unwrap();
        connection
    }

    /// Creates a Yjs document with its edits.
    pub fn document(&self, name: &str, updates: &[Vec<u8>]) {
        self.document_of("yjs", name, updates);
    }

    /// Creates a document of a format with its edits.
    pub fn document_of(&self, format: &str, name: &str, updates: &[Vec<u8>]) {
        let mut product = self.product();
        let tx = product.transaction().unwrap();
        tx.execute(
            "INSERT INTO documents (project_id, doc_id, format, server_seq, created_at, updated_at)
             VALUES ('a', ?1, ?2, ?3, 0, 0)",
            params![name, format, updates.len()],
        )
        .unwrap();
        let mut insert = tx
            .prepare("INSERT INTO changes VALUES ('a', ?1, ?2, 'ann', ?2, ?2, 'edit', ?3, NULL)")
            .unwrap();
        for (n, update) in updates.iter().enumerate() {
            insert.execute(params![name, n + 1, update]).unwrap();
        }
        drop(insert);
        tx.commit().unwrap();
    }

    /// Appends a change, as a product does: the number is assigned and the row written in one
    /// transaction.
    pub fn append(&self, name: &str, kind: &str, payload: &[u8]) {
        let mut product = self.product();
        let tx = product.transaction().unwrap();
        let next: i64 = tx
            .query_row(
                "UPDATE documents SET server_seq = server_seq + 1 WHERE doc_id = ?1
                 RETURNING server_seq",
                [name],
                |row| row.get(0),
            )
            .unwrap();
        tx.execute(
            "INSERT INTO changes VALUES ('a', ?1, ?2, 'ann', ?2, ?2, ?3, ?4, NULL)",
            params![name, next, kind, payload],
        )
        .unwrap();
        tx.commit().unwrap();
    }

    /// Attaches the client `ann`, who has pulled up to that number.
    pub fn attach(&self, name: &str, server_seq: i64) {
        self.product()
            .execute(
                "INSERT INTO attachments
                     (project_id, doc_id, client_id, state, server_seq, client_seq)
                 VALUES ('a', ?1, 'ann', 'attached', ?2, 0)",
                params![name, server_seq],
            )
            .unwrap();
    }

    /// The numbers and kinds of a document's changes.
    pub fn changes(&self, name: &str) -> Vec<(i64, String)> {
        let product = self.product();
        let mut rows = product
            .prepare("SELECT server_seq, kind FROM changes WHERE doc_id = ?1 ORDER BY server_seq")
            .unwrap();
        let rows = rows.query_map([name], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }

    /// Scans for documents, and plans what is found.
    pub async fn plan(&self) -> u64 {
        self.plan_of(TASK).await
    }

    /// Has a task scan, and plans what is found.
    pub async fn plan_of(&self, task: &str) -> u64 {
        let store = self.store();
        let now = store.now().await.unwrap();
        let runs = vec![world::new_run(task, now)];
        let slots = SlotDecision { runs, ..SlotDecision::default() };
        let run = store.decide_slots(&self.fence, &slots).await.unwrap()[0];
        let view = store.snapshot(OPEN_MAX).await.unwrap();
        let activity = Arc::clone(&self.assembly.ports.activity);
        let call = call_of(self.definition(task), now, 0, &StopFlag::default());
        let tenant = Tenant::from(TENANT);
        let guests = &self.assembly.ports.guests;
        let found = guests.scan(&call, view, activity, Some(&tenant), None, world::ALL).await;
        let page = world::page(task, run, found.unwrap().candidates);
        let planned = store.plan_page(&self.fence, &page).await.unwrap();
        store.end_scan(&self.fence, &EndOfScan::of(task.into(), run)).await.unwrap();
        planned.planned
    }

    /// The waiting items of the log and the retries.
    pub async fn waiting(&self) -> Vec<Waiting> {
        let store = self.store();
        let mut waiting = store.read_retries(None, None, None, world::ALL).await.unwrap();
        for stream in store.backlog(None).await.unwrap() {
            let (task, partition) = (&stream.task, stream.partition);
            let items = store.read_log(task, partition, stream.acked, world::ALL, usize::MAX).await;
            waiting.extend(items.unwrap());
        }
        waiting
    }

    /// Calls the component to decide about an item; nothing is committed yet.
    pub async fn decide(&self, waiting: &Waiting) -> Decided {
        self.decide_all(std::slice::from_ref(waiting)).await.remove(0)
    }

    /// The same with no more linear memory than that.
    pub async fn decide_within(&self, memory_bytes: u64, waiting: &Waiting) -> Decided {
        let limits = Limits { memory_bytes, ..self.limits().clone() };
        self.decide_under(limits, std::slice::from_ref(waiting)).await.remove(0)
    }

    /// The same of the only item that is planned, with its fuel counted, which it is not by
    /// default.
    pub async fn decide_one_counted(&self) -> Decided {
        let waiting = self.planned_one().await;
        let fuel = default_limits(Lane::Heavy).fuel;
        let limits = Limits { fuel, ..self.limits().clone() };
        self.decide_under(limits, std::slice::from_ref(&waiting)).await.remove(0)
    }

    /// The same for several items of one task in one call; each has the cost of all.
    pub async fn decide_all(&self, waiting: &[Waiting]) -> Vec<Decided> {
        let task = &waiting.first().expect("an item").item.identity.task;
        self.decide_under(self.definition(task.as_str()).limits.clone(), waiting).await
    }

    async fn decide_under(&self, limits: Limits, waiting: &[Waiting]) -> Vec<Decided> {
        let store = self.store();
        let now = store.now().await.unwrap();
        let task = waiting.first().expect("an item").item.identity.task.clone();
        let definition = self.definition(task.as_str());
        let call = Call { limits, ..call_of(definition, now, 0, &StopFlag::default()) };
        let view = store.snapshot(OPEN_MAX).await.unwrap();
        let activity = Arc::clone(&self.assembly.ports.activity);
        let items: Vec<Item> = waiting.iter().map(|waiting| waiting.item.clone()).collect();
        let acted = self.assembly.ports.guests.act(&call, view, activity, &items).await.unwrap();
        let decided = waiting.iter().zip(acted.verdicts).map(|(waiting, verdict)| {
            let said = verdict.map_err(|fault| fault.message);
            let decision = queue::decide(&definition.retry, &waiting.item, now, said, true);
            Decided { waiting: waiting.clone(), decision, usage: acted.usage }
        });
        decided.collect()
    }

    /// Plans, and decides about the one item that waits.
    pub async fn decide_one(&self) -> Decided {
        let waiting = self.planned_one().await;
        self.decide(&waiting).await
    }

    async fn planned_one(&self) -> Waiting {
        self.plan().await;
        let mut waiting = self.waiting().await;
        assert_eq!(waiting.len(), 1, "{waiting:?}");
        waiting.remove(0)
    }

    /// Commits a decision.
    pub async fn commit(&self, decided: &Decided) -> Outcome {
        self.commit_all(std::slice::from_ref(decided)).await.remove(0)
    }

    /// Commits the decisions about several items in one transaction.
    pub async fn commit_all(&self, decided: &[Decided]) -> Vec<Outcome> {
        self.commit_under(&self.epochs, decided).await
    }

    /// Commits as a host that owned everything under those epochs.
    pub async fn commit_as(&self, epochs: Epochs, decided: &Decided) -> Outcome {
        self.commit_under(&epochs, std::slice::from_ref(decided)).await.remove(0)
    }

    async fn commit_under(&self, epochs: &Epochs, decided: &[Decided]) -> Vec<Outcome> {
        let entry = |Decided { waiting, decision, .. }: &Decided| {
            let (source, item, decision) = (waiting.source, waiting.item.clone(), decision.clone());
            Entry { source, epoch: epochs[&item.partition], item, decision }
        };
        let entries = decided.iter().map(entry).collect();
        let id = CommitId(u128::from(self.commits.fetch_add(1, Ordering::Relaxed)));
        let node = Incarnation::from(NODE);
        let (as_of, idle) = (Time::EPOCH, Vec::new());
        let batch = Batch {
            id,
            node,
            entries,
            as_of,
            idle,
            activity_in_store: false,
            lane: Lane::Normal,
            braked: false,
        };
        self.store().commit(&batch).await.unwrap().outcomes
    }

    /// Plans, decides and commits until nothing waits; the outcome of the last attempt.
    pub async fn to_the_end(&self) -> Option<Outcome> {
        self.to_the_end_of(TASK).await
    }

    /// The same of a task.
    pub async fn to_the_end_of(&self, task: &str) -> Option<Outcome> {
        self.plan_of(task).await;
        let mut last = None;
        while let Some(waiting) = self.waiting().await.first() {
            last = Some(self.commit(&self.decide(waiting).await).await);
        }
        last
    }

    /// The data of `besom doc show`.
    pub async fn shown(&self, name: &str) -> Shown {
        doc::show(self.store(), &of(name), &[TASK.into()]).await.unwrap()
    }

    /// The text of the output of `besom doc export`, read by yrs.
    pub async fn text(&self, name: &str) -> String {
        text(&doc::export(self.store(), &of(name)).await.unwrap())
    }

    /// The books, which have to balance.
    pub async fn balanced(&self) {
        let audit = self.store().audit().await.unwrap();
        assert!(audit.balanced(), "{audit:#?}");
    }

    /// Sets the number of a document's last change, like another commit in progress.
    pub fn give_out_a_number(&self, name: &str) {
        let sql = "UPDATE documents SET server_seq = server_seq + 1 WHERE doc_id = ?1";
        self.product().execute(sql, [name]).unwrap();
    }

    /// The bounds of a call.
    pub fn limits(&self) -> &Limits {
        &self.definition(TASK).limits
    }

    /// How often an item is tried.
    pub fn attempts_max(&self) -> u32 {
        self.definition(TASK).retry.attempts_max
    }

    /// The store's present.
    pub async fn now(&self) -> Time {
        self.store().now().await.unwrap()
    }
}

fn of(name: &str) -> Name {
    Name { tenant: Tenant::from(TENANT), key: name.to_owned() }
}

/// Notes of a commit, by name.
pub fn notes(shown: &Shown) -> HashMap<String, besom_core::value::Value> {
    let row = shown.last_compaction.as_ref().expect("it was compacted");
    row.notes.iter().map(|note| (note.name.to_string(), note.value.clone())).collect()
}
