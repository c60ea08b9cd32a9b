//! Items per second on PostgreSQL, by workers, with ownership, guard, history and before-image,
//! beside a bare log with a cursor on the same server that has none of these.
//!
//! The work is the same: a batch of items of one stream is read, each adds one to a row of its
//! own, and the cursor moves in the same transaction. The server waits for the disk.
//!
//! `BESOM_QUEUE_PEERS` names a command that measures other queues on the same server, which it
//! finds by `PGPORT` on 127.0.0.1; it is run in every round, and shows its figures itself.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use besom_core::collection::{Collection, Column, Encoding};
use besom_core::ids::{CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, Term};
use besom_core::item::Candidate;
use besom_core::mode::Mode;
use besom_core::proposal::{Change, Condition, Guard, OnGuardFailed, Proposal, Settle};
use besom_core::time::Time;
use besom_core::value::{Field, Kind, Value};
use besom_ports::guests::Lane;
use besom_ports::store::{
    Batch, Decision, EndOfScan, Entry, NewRun, Outcome, PlanPage, SlotDecision, Store, Stream,
    Trigger,
};
use besom_postgres::{Options, PostgresStore};
use besom_tests::servers::postgres::{Database, Disk, Server, Setup};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use super::report::{Figures, cpu, median};
use super::server_cpu;

/// Items of one measurement.
const ITEMS: i64 = 64_000;
/// Items of one commit.
const BATCHES: [u32; 2] = [100, 1_000];
/// Streams that the items are spread over; each has a whole number of the largest batches.
const STREAMS: i64 = 64;
const WORKERS: [usize; 3] = [1, 4, 16];
const REPEATS: u32 = 3;

/// Both, taking turns, for each number of workers.
pub async fn run() -> Result<()> {
    // The memory that the peers are measured with elsewhere.
    let settings = vec!["shared_buffers=1GB".to_owned()];
    let setup = Setup { settings, tcp: true, ..Setup::new(Disk::Synced) };
    let server: &'static Server = Box::leak(Box::new(Server::with(&setup)));
    let mut all: Vec<((u32, usize), Rounds)> = BATCHES
        .iter()
        .flat_map(|batch| WORKERS.map(|workers| ((*batch, workers), Rounds::default())))
        .collect();
    for _ in 0..REPEATS {
        for ((batch, workers), rounds) in &mut all {
            let limit = bare_log(&effects(server).await?, *workers, *batch).await?;
            let took = besom_store(&effects(server).await?, *workers, *batch).await?;
            rounds.bare.push(&limit);
            rounds.ours.push(&took);
            rounds.ratios.push(limit.wall.as_secs_f64() / took.wall.as_secs_f64());
        }
        peers(server.port())?;
    }
    for ((batch, workers), rounds) in all {
        Figures::of("pgqueue", format!("{workers} workers, batches of {batch}"))
            .with("items_per_s", median(rounds.ours.rates))
            .with("bare_items_per_s", median(rounds.bare.rates))
            .with("ratio", median(rounds.ratios))
            .with("server_us_per_item", median(rounds.ours.server_us))
            .with("bare_server_us_per_item", median(rounds.bare.server_us))
            .with("client_us_per_item", median(rounds.ours.client_us))
            .with("bare_client_us_per_item", median(rounds.bare.client_us))
            .show();
    }
    Ok(())
}

/// What each round has taken, and our rate by the bare log's in the same round.
#[derive(Default)]
struct Rounds {
    bare: Taken,
    ours: Taken,
    ratios: Vec<f64>,
}

/// Items per second, and microseconds of a processor for an item, of each round.
#[derive(Default)]
struct Taken {
    rates: Vec<f64>,
    server_us: Vec<f64>,
    client_us: Vec<f64>,
}

impl Taken {
    fn push(&mut self, spent: &Spent) {
        let each = |span: Duration| span.as_secs_f64() * 1e6 / ITEMS as f64;
        self.rates.push(ITEMS as f64 / spent.wall.as_secs_f64());
        self.server_us.push(each(spent.server));
        self.client_us.push(each(spent.client));
    }
}

/// Time on the wall, and of processors, by the server and by this program.
struct Spent {
    wall: Duration,
    server: Duration,
    client: Duration,
}

/// What has been spent since [`Watch::start`].
struct Watch {
    url: String,
    began: Instant,
    server: Duration,
    client: Duration,
}

impl Watch {
    fn start(database: &Database) -> Result<Watch> {
        let url = database.url();
        let server = server_cpu::used(&url)?;
        Ok(Watch { url, server, client: cpu(), began: Instant::now() })
    }

    fn stop(self) -> Result<Spent> {
        let (wall, client) = (self.began.elapsed(), cpu() - self.client);
        Ok(Spent { wall, client, server: server_cpu::used(&self.url)?.saturating_sub(self.server) })
    }
}

/// Other queues, where somebody names them.
fn peers(port: u16) -> Result<()> {
    let Some(command) = std::env::var_os("BESOM_QUEUE_PEERS") else { return Ok(()) };
    let mut shell = std::process::Command::new("sh");
    let done = shell.arg("-c").arg(command).env("PGPORT", port.to_string()).status()?;
    ensure!(done.success(), "the command for the other queues failed: {done}");
    Ok(())
}

/// A database with a row for each item.
async fn effects(server: &'static Server) -> Result<Database> {
    let database = server.empty();
    let client = database.connect().await;
    client
        .batch_execute(&format!(
            "CREATE TABLE effect (id bigint PRIMARY KEY, n bigint NOT NULL);
             INSERT INTO effect SELECT id, 0 FROM generate_series(0, {ITEMS} - 1) id;
             ANALYZE effect"
        ))
        .await?;
    Ok(database)
}

/// Every effect took place once.
async fn check(database: &Database) -> Result<()> {
    let client = database.connect().await;
    let row = client.query_one("SELECT count(*) FROM effect WHERE n <> 1", &[]).await?;
    let wrong: i64 = row.get(0);
    ensure!(wrong == 0, "{wrong} effects did not take place once");
    Ok(())
}

// --------------------------------------------------------------------------------- bare

async fn bare_log(database: &Database, workers: usize, batch: u32) -> Result<Spent> {
    let client = database.connect().await;
    client
        .batch_execute(&format!(
            "CREATE TABLE part (id int PRIMARY KEY, acked bigint NOT NULL, epoch bigint NOT NULL);
             CREATE TABLE log (part int, seq bigint, key text, id bigint, PRIMARY KEY (part, seq));
             INSERT INTO part SELECT p, 0, 1 FROM generate_series(0, {STREAMS} - 1) p;
             INSERT INTO log SELECT id % {STREAMS}, id / {STREAMS} + 1, 'key-' || id, id
               FROM generate_series(0, {ITEMS} - 1) id;
             ANALYZE; CHECKPOINT"
        ))
        .await?;
    let mut clients = Vec::new();
    for _ in 0..workers {
        clients.push(database.connect().await);
    }
    let (mut all, watch) = (JoinSet::new(), Watch::start(database)?);
    for (worker, client) in clients.into_iter().enumerate() {
        all.spawn(async move { bare_worker(&client, worker, workers, batch).await });
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    let took = watch.stop()?;
    check(database).await?;
    Ok(took)
}

/// Three round trips a batch: begin and read, effects and cursor, commit.
async fn bare_worker(
    client: &tokio_postgres::Client,
    worker: usize,
    workers: usize,
    batch: u32,
) -> Result<()> {
    let read = client
        .prepare("SELECT seq, id FROM log WHERE part = $1 AND seq > $2 ORDER BY seq LIMIT $3")
        .await?;
    let effect = client
        .prepare(
            "UPDATE effect SET n = n + 1 FROM unnest($1::bigint[]) u(id) WHERE effect.id = u.id",
        )
        .await?;
    let cursor = client
        .prepare("UPDATE part SET acked = $3 WHERE id = $1 AND acked = $2 AND epoch = 1")
        .await?;
    for part in (worker as i32..STREAMS as i32).step_by(workers) {
        let mut acked = 0_i64;
        loop {
            let limit = i64::from(batch);
            let params: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&part, &acked, &limit];
            let (begun, rows) =
                futures::future::join(client.batch_execute("BEGIN"), client.query(&read, &params))
                    .await;
            begun?;
            let rows = rows?;
            let Some(last) = rows.last() else { break };
            let (last, ids): (i64, Vec<i64>) =
                (last.get(0), rows.iter().map(|row| row.get(1)).collect());
            let moved: [&(dyn tokio_postgres::types::ToSql + Sync); 3] = [&part, &acked, &last];
            let (done, moved) = futures::future::join(
                client.execute(&effect, &[&ids]),
                client.execute(&cursor, &moved),
            )
            .await;
            ensure!(done? == ids.len() as u64 && moved? == 1, "an effect is missing");
            client.batch_execute("COMMIT").await?;
            acked = last;
        }
        client.batch_execute("ROLLBACK").await?;
    }
    Ok(())
}

// --------------------------------------------------------------------------------- ours

fn collection() -> Collection {
    let column = Column { kind: Kind::Integer, encoding: Encoding::Native };
    Collection {
        name: "effect".into(),
        table: "effect".into(),
        tenant: None,
        key: vec!["id".into()],
        columns: [("id".to_owned(), column), ("n".to_owned(), column)].into(),
        indexes: BTreeMap::new(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    }
}

async fn besom_store(database: &Database, workers: usize, batch: u32) -> Result<Spent> {
    let options = Options { readers_max: workers.max(4), ..Options::default() };
    let store = PostgresStore::open(&database.url(), options).await?;
    store.set_collections(Arc::new([("effect".to_owned(), collection())].into()));
    let fence = FencingToken { term: Term(1), token_hash: [1; 32] };
    let node = Incarnation::from("bench");
    let epochs: BTreeMap<Partition, OwnerEpoch> =
        store.raise_fence(&fence, &node, None).await?.owned.into_iter().collect();
    plan(&store, &fence).await?;
    database.connect().await.batch_execute("ANALYZE; CHECKPOINT").await?;
    let streams = store.backlog(None).await?;
    let mut all = JoinSet::new();
    let watch = Watch::start(database)?;
    for worker in 0..workers {
        let mine: VecDeque<Stream> =
            streams.iter().skip(worker).step_by(workers).cloned().collect();
        let (store, node, epochs) = (Arc::clone(&store), node.clone(), epochs.clone());
        let waiting = Mutex::new(mine);
        let worker = Arc::new(Worker { store, node, epochs, batch, waiting });
        for _ in 0..FLIGHTS {
            all.spawn(Arc::clone(&worker).fly());
        }
    }
    while let Some(done) = all.join_next().await {
        done??;
    }
    let took = watch.stop()?;
    check(database).await?;
    let audit = store.audit().await?;
    ensure!(audit.balanced(), "{audit:?}");
    Ok(took)
}

async fn plan(store: &PostgresStore, fence: &FencingToken) -> Result<()> {
    let run = NewRun {
        task: "bench".into(),
        slot: Time::EPOCH,
        trigger: Trigger::Pass,
        digest: String::new(),
        definition: "{}".into(),
        mode: Mode::Live,
    };
    let decision = SlotDecision { runs: vec![run], ..SlotDecision::default() };
    let run = store.decide_slots(fence, &decision).await?[0];
    for from in (0..ITEMS).step_by(4_000) {
        let candidates: Vec<Candidate> = (from..ITEMS.min(from + 4_000)).map(candidate).collect();
        let page = PlanPage {
            run,
            task: "bench".into(),
            tenant: None,
            scanned: candidates.len() as u64,
            candidates,
            cursor: None,
            quota: u64::MAX,
        };
        store.plan_page(fence, &page).await?;
    }
    store.end_scan(fence, &EndOfScan::of("bench".into(), run)).await?;
    Ok(())
}

fn candidate(id: i64) -> Candidate {
    Candidate {
        tenant: None,
        key: id.to_string(),
        route: format!("stream-{}", id % STREAMS),
        due: None,
        version: "1".into(),
        payload: Vec::new(),
    }
}

/// Batches in flight of one worker.
const FLIGHTS: usize = 2;

/// What a host does whose lane executes one batch at once: it has two in flight, of different
/// streams; only one of them is read and decided at a time, beside the other's commit.
struct Worker {
    store: Arc<PostgresStore>,
    node: Incarnation,
    epochs: BTreeMap<Partition, OwnerEpoch>,
    batch: u32,
    /// The streams of which nothing is in flight.
    waiting: Mutex<VecDeque<Stream>>,
}

impl Worker {
    /// One batch after the other, until every stream is at its end or in flight.
    async fn fly(self: Arc<Worker>) -> Result<()> {
        loop {
            let (mut stream, batch) = {
                let mut waiting = self.waiting.lock().await;
                let Some(stream) = waiting.pop_front() else { return Ok(()) };
                let batch = self.decided(&stream).await?;
                (stream, batch)
            };
            let committed = self.store.commit(&batch).await?;
            let all = committed.outcomes.iter().all(|outcome| *outcome == Outcome::Committed);
            ensure!(all, "not everything was committed");
            stream.acked.0 += batch.entries.len() as u64;
            if stream.acked < stream.tail {
                self.waiting.lock().await.push_back(stream);
            }
        }
    }

    /// The next batch of a stream, read, noted as begun and decided.
    async fn decided(&self, stream: &Stream) -> Result<Batch> {
        let (task, part, acked) = (&stream.task, stream.partition, stream.acked);
        let waiting = self.store.read_log(task, part, acked, self.batch, usize::MAX).await?;
        let id = CommitId(u128::from(part.0) << 64 | u128::from(acked.0));
        let items: Vec<_> = waiting.iter().map(|w| (w.source, &w.item)).collect();
        self.store.begin(id, &self.node, Lane::Normal, &items).await?;
        let epoch = self.epochs[&part];
        let entries = waiting
            .into_iter()
            .map(|waiting| Entry {
                source: waiting.source,
                epoch,
                decision: add(&waiting.item.identity.key),
                item: waiting.item,
            })
            .collect();
        let node = self.node.clone();
        Ok(Batch {
            id,
            node,
            entries,
            as_of: Time::EPOCH,
            idle: Vec::new(),
            activity_in_store: false,
            lane: Lane::Normal,
            braked: false,
        })
    }
}

fn add(key: &str) -> Decision {
    let row = vec![Value::Integer(key.parse().unwrap_or(-1))];
    let untouched = Guard::Columns {
        collection: "effect".into(),
        key: row.clone(),
        conditions: vec![Condition::equal("n", Value::Integer(0))],
    };
    let change = Change::Increment {
        collection: "effect".into(),
        key: row,
        fields: vec![Field::new("n", Value::Integer(1))],
    };
    let skip = || Settle::Skip { reason: "changed meanwhile".into(), settled: false };
    Decision::Apply {
        proposal: Proposal {
            guards: vec![untouched],
            changes: vec![change],
            on_guard_failed: OnGuardFailed::Skip("changed meanwhile".into()),
            notes: Vec::new(),
        },
        on_guard_failed: skip(),
        on_violation: skip(),
        undo: true,
    }
}
