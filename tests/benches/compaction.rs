//! What the sandbox costs a compaction: whole documents as the component reads and compacts
//! them, beside the same updates given to the library natively. Run `cargo plugins` first.
//!
//! The public editing traces are measured where they are present (`BESOM_SHARED_DATA`).

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom::config::limits::default_limits;
use besom::ports::activity::{Activity, Error as ActivityError, State};
use besom::ports::guests::{Call, Guests as _, Lane, Limits, StopFlag};
use besom::ports::store::{Range, RangePage, Result, Snapshot};
use besom::runtime::{Loaded, Runtime, Settings};
use besom_compaction::yjs;
use besom_core::collection::Operations;
use besom_core::ids::{Partition, RunId, TaskName, Tenant};
use besom_core::item::{Identity, Item};
use besom_core::proposal::{Condition, Verdict};
use besom_core::time::Time;
use besom_core::value::{Field, Row, RowKey, Value};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use yrs::{Doc, Text, Transact};

const NOW: Time = Time(1_750_000_000_000_000);
/// Small documents of one measurement, and the changes of each.
const DOCUMENTS: usize = 1_000;
const CHANGES: usize = 20;

/// Every document has this log; it lies in memory, so that no database is measured.
struct Log(Vec<Vec<u8>>);

impl Log {
    fn row(&self, index: usize, key: &[Value], columns: &[String]) -> Row {
        let number = Value::Integer(index as i64 + 1);
        let column = |name: &String| match name.as_str() {
            "doc_id" => key[0].clone(),
            "server_seq" | "lamport" => number.clone(),
            "payload" => Value::Bytes(self.0[index].clone()),
            _ => Value::Null,
        };
        columns.iter().map(column).collect()
    }
}

#[async_trait]
impl Snapshot for Log {
    async fn get_many(
        &self,
        _: Option<&Tenant>,
        _: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        let column = |name: &String| match name.as_str() {
            "format" => Value::Text("yjs".into()),
            "server_seq" => Value::Integer(self.0.len() as i64),
            _ => Value::Integer(0),
        };
        Ok(keys.iter().map(|_| Some(columns.iter().map(column).collect())).collect())
    }

    async fn read_range(&self, _: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        let edits = Condition::equal("kind", Value::Text("edit".into()));
        if range.collection != "changes" || !range.conditions.contains(&edits) {
            return Ok(RangePage::default());
        }
        let from = range.after.as_ref().map_or(0, |after| {
            usize::from_le_bytes(after.as_slice().try_into().expect("a token of this log"))
        });
        let (mut to, mut bytes) = (from, 0);
        while to < self.0.len() && to - from < range.limit as usize && bytes < range.bytes_max {
            bytes += self.0[to].len();
            to += 1;
        }
        let key = |index: usize| {
            let mut key = range.prefix.clone();
            key.push(Value::Integer(index as i64 + 1));
            key
        };
        Ok(RangePage {
            rows: (from..to).map(|i| self.row(i, &range.prefix, &range.columns)).collect(),
            keys: if range.keys { (from..to).map(key).collect() } else { vec![] },
            next: (to < self.0.len()).then(|| to.to_le_bytes().to_vec()),
            scanned: (to - from) as u64,
        })
    }

    async fn exists(&self, _: Option<&Tenant>, _: &str, _: &[Condition]) -> Result<bool> {
        Ok(false)
    }

    async fn tenants(&self, _: &Range, _: Option<&Tenant>, _: u32) -> Result<Vec<Tenant>> {
        Ok(vec![])
    }
}

/// Nobody is there; compaction does not ask.
struct Nobody;

#[async_trait]
impl Activity for Nobody {
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, ActivityError> {
        Ok(vec![State::Unknown; keys.len()])
    }

    async fn connect(&self, _: &str, _: &str) -> Result<(), ActivityError> {
        Ok(())
    }

    async fn disconnect(&self, _: &str, _: &str) -> Result<(), ActivityError> {
        Ok(())
    }

    async fn heartbeat(&self, _: &str, _: &str) -> Result<(), ActivityError> {
        Ok(())
    }
}

/// A call within the default limits of its lane.
fn call(loaded: &Loaded) -> Call {
    let settings = loaded.manifest.settings.iter();
    let settings = settings.map(|s| Field::new(&s.name, s.default.clone().unwrap_or(Value::Null)));
    let asked = loaded.manifest.collections.iter();
    let grants = asked.map(|request| (request.collection.clone(), request.operations));
    Call {
        task: TaskName::from("compaction"),
        digest: loaded.digest.clone(),
        now: NOW,
        seed: 1,
        settings: settings.collect(),
        horizon: Duration::ZERO,
        grants: Arc::new(grants.collect::<std::collections::BTreeMap<String, Operations>>()),
        limits: Limits { wall_ms: 3_600_000, ..default_limits(Lane::Heavy) },
        topics: vec![],
        stop: StopFlag::default(),
    }
}

fn item(number: usize) -> Item {
    let key = format!("document-{number}");
    Item {
        identity: Identity {
            task: TaskName::from("compaction"),
            tenant: Some(Tenant::from("t")),
            key: key.clone(),
            due: None,
        },
        route: key,
        partition: Partition(0),
        version: String::new(),
        payload: vec![],
        run: RunId(1),
        planned_at: NOW,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: vec![],
    }
}

/// What one who types a short note sends.
fn note() -> Vec<Vec<u8>> {
    let doc = Doc::with_client_id(7);
    let text = doc.get_or_insert_text("text");
    let change = |n: usize| {
        let mut txn = doc.transact_mut();
        text.insert(&mut txn, 0, &format!("word {n} "));
        txn.encode_update_v1()
    };
    (0..CHANGES).map(change).collect()
}

fn traces() -> Vec<PathBuf> {
    let shared = std::env::var_os("BESOM_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    let Ok(entries) = std::fs::read_dir(shared.join("editing-traces")) else { return vec![] };
    let mut traces: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    traces.sort();
    traces
}

fn compaction(c: &mut Criterion) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let guests = Runtime::start(Settings::default()).unwrap();
    let loaded = tokio.block_on(guests.load(besom_tests::plugin("compaction"))).unwrap();
    let call = call(&loaded);
    let mut group = c.benchmark_group("compaction");
    group.sample_size(10).sampling_mode(criterion::SamplingMode::Flat);

    let mut measure = |name: &str, log: Vec<Vec<u8>>, documents: usize| {
        let updates: Vec<&[u8]> = log.iter().map(Vec::as_slice).collect();
        let items: Vec<Item> = (0..documents).map(item).collect();
        let log = Arc::new(Log(log.clone()));
        let act = || async {
            for batch in items.chunks(call.limits.batch_items as usize) {
                let view = Arc::clone(&log);
                let acted = guests.act(&call, view, Arc::new(Nobody), batch).await.unwrap();
                for verdict in &acted.verdicts {
                    assert!(matches!(verdict, Ok(Verdict::Propose(_))), "{verdict:?}");
                }
                black_box(acted);
            }
        };
        group.throughput(Throughput::Elements((updates.len() * documents) as u64));
        group.bench_function(BenchmarkId::new("component", name), |b| {
            b.iter(|| tokio.block_on(act()));
        });
        group.bench_function(BenchmarkId::new("native", name), |b| {
            b.iter(|| {
                for _ in 0..documents {
                    black_box(yjs::compact(black_box(&updates)).unwrap());
                }
            });
        });
    };
    measure("1000 small documents", note(), DOCUMENTS);
    for path in traces() {
        let trace = besom::demo::trace::load(&path).unwrap();
        let log = trace.replay(&mut |_, _| {}).unwrap();
        measure(&trace.name(), log.edits.into_iter().map(|edit| edit.payload).collect(), 1);
    }
    group.finish();
}

criterion_group!(benches, compaction);
criterion_main!(benches);
