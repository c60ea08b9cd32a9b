//! What the sandbox costs: batches of share-expiry as a component, in a fresh instance
//! each, beside the same decisions called natively. Run `cargo plugins` first.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::collection::Operations;
use besom_core::ids::{Partition, RunId, TaskName, Tenant};
use besom_core::item::{Candidate, Identity, Item};
use besom_core::proposal::{Condition, Verdict};
use besom_core::time::Time;
use besom_core::value::{Field, Row, RowKey, Value};
use besom_ports::activity::{Activity, Error as ActivityError, State};
use besom_ports::guests::{Call, Guests as _, Limits, StopFlag};
use besom_ports::lines::RunLog;
use besom_ports::store::{Delivery, Range, RangePage, ReadView, Result};
use besom_runtime::{Loaded, Runtime, Settings};
use besom_share_expiry::decide;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const NOW: Time = Time(1_750_000_000_000_000);
const DAY_MS: u64 = 86_400_000;
const BATCHES: [u32; 4] = [1, 64, 256, 512];

/// Shares that ended a day ago, as many as are asked for.
struct Shares;

fn row(id: i64, columns: &[String]) -> Row {
    let started = Time(NOW.0 - 8 * DAY_MS as i64 * 1_000);
    let column = |name: &String| match name.as_str() {
        "share_id" => Value::Text(format!("share-{id}")),
        "start_date" => Value::Timestamp(started),
        _ => Value::Null,
    };
    columns.iter().map(column).collect()
}

#[async_trait]
impl ReadView for Shares {
    fn read_by(&self, _deadline: std::time::Instant) {}

    fn read_at_most(&self, _bytes: u64) {}

    async fn get_many(
        &self,
        _: Option<&Tenant>,
        _: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>> {
        Ok(keys.iter().map(|_| Some(row(0, columns))).collect())
    }

    async fn read_range(&self, _: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        let rows = (0..i64::from(range.limit)).map(|id| row(id, &range.columns)).collect();
        Ok(RangePage { rows, scanned: u64::from(range.limit), ..RangePage::default() })
    }

    async fn count(&self, _: Option<&Tenant>, _: &str, _: &[Condition], _: u32) -> Result<u32> {
        Ok(1)
    }

    fn bounded(&self, _: &Range) -> Result<(String, bool)> {
        Ok(("id".to_owned(), true))
    }

    async fn tenants(&self, _: &Range, _: Option<&Tenant>, _: u32) -> Result<Vec<Tenant>> {
        Ok(vec![Tenant::from("t")])
    }

    async fn deliveries(
        &self,
        _: &TaskName,
        _: Option<&Tenant>,
        _: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        Ok(vec![None; keys.len()])
    }
}

/// Nobody is there; share-expiry does not ask.
struct Nobody;

#[async_trait]
impl Activity for Nobody {
    async fn states(&self, keys: &[String]) -> Result<Vec<State>, ActivityError> {
        Ok(vec![State::Idle; keys.len()])
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

fn call(loaded: &Loaded) -> Call {
    let settings = loaded.manifest.settings.iter();
    let settings = settings.map(|s| Field::new(&s.name, s.default.clone().unwrap_or(Value::Null)));
    Call {
        task: TaskName::from("share-expiry"),
        digest: loaded.digest.clone(),
        now: NOW,
        seed: 1,
        settings: settings.collect(),
        horizon: Duration::from_millis(DAY_MS),
        grants: Arc::new(
            [("shares".into(), Operations { read: true, update: true, ..Default::default() })]
                .into(),
        ),
        columns: Arc::default(),
        all_tenants: true,
        activity: true,
        limits: Limits {
            memory_bytes: 64 << 20,
            fuel: 10_000_000_000,
            hostcall_fuel: 16 << 20,
            wall_ms: 60_000,
            batch_items: 512,
            batch_bytes: 16 << 20,
            rows_read: 100_000,
            read_bytes: 16 << 20,
            changes: 100,
            deletes: 100,
            log_bytes: 16 << 10,
        },
        topics: vec![],
        aliases: Arc::default(),
        unmapped: vec![],
        described: vec![],
        stop: StopFlag::default(),
        log: RunLog::default(),
    }
}

fn item(candidate: Candidate) -> Item {
    Item {
        identity: Identity {
            task: TaskName::from("share-expiry"),
            tenant: candidate.tenant,
            key: candidate.key,
            due: candidate.due,
        },
        route: candidate.route,
        partition: Partition(0),
        version: candidate.version,
        payload: candidate.payload,
        run: RunId(1),
        planned_at: NOW,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: vec![],
    }
}

fn runtime(c: &mut Criterion) {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cache = tempfile::tempdir().unwrap();
    let settings =
        || Settings { cache: Some(cache.path().join("compiled")), ..Settings::default() };
    let component = besom_tests::plugin("share-expiry");
    let guests = Runtime::start(settings()).unwrap();
    let loaded = tokio.block_on(guests.load(component.clone())).unwrap();
    let call = call(&loaded);
    let tenant = Tenant::from("t");

    let mut group = c.benchmark_group("act");
    for batch in BATCHES {
        let scan =
            guests.scan(&call, Arc::new(Shares), Arc::new(Nobody), Some(&tenant), None, batch);
        let page = tokio.block_on(scan).unwrap();
        assert_eq!(page.candidates.len(), batch as usize);
        let items: Vec<Item> = page.candidates.into_iter().map(item).collect();
        let act = || guests.act(&call, Arc::new(Shares), Arc::new(Nobody), &items);
        let acted = tokio.block_on(act()).unwrap();
        assert!(acted.verdicts.iter().all(|v| matches!(v, Ok(Verdict::Propose(_)))));
        group.throughput(Throughput::Elements(u64::from(batch)));
        group.bench_function(BenchmarkId::new("component", batch), |b| {
            b.iter(|| tokio.block_on(act()).unwrap());
        });
        let limits =
            decide::Limits { limit_ms: 7 * DAY_MS, limit_min_ms: 0, window_max_ms: DAY_MS };
        let share = decide::Share {
            start_us: NOW.0 - 8 * DAY_MS as i64 * 1_000,
            limit_s: None,
            unshared_us: None,
        };
        group.bench_function(BenchmarkId::new("native", batch), |b| {
            b.iter(|| {
                for _ in 0..batch {
                    black_box(decide::decide(
                        black_box(Some(share)),
                        black_box(&limits),
                        black_box(NOW.0),
                    ));
                }
            });
        });
    }
    group.finish();

    let mut group = c.benchmark_group("load");
    group.sample_size(10);
    group.bench_function("from the cache", |b| {
        b.iter(|| {
            guests.unload(&loaded.digest);
            tokio.block_on(guests.load(component.clone())).unwrap()
        });
    });
    let cold = Runtime::start(Settings::default()).unwrap();
    group.bench_function("compiled", |b| {
        b.iter(|| {
            cold.unload(&loaded.digest);
            tokio.block_on(cold.load(component.clone())).unwrap()
        });
    });
    group.finish();
}

criterion_group!(benches, runtime);
criterion_main!(benches);
