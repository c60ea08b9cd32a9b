//! The parts that the tests need to call a plugin: a runtime, a view of two tenants, a batch.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use besom_core::collection::{Grants, Operations};
use besom_core::ids::{Partition, RunId, TaskName, Tenant};
use besom_core::item::{Identity, Item};
use besom_core::proposal::{Condition, Verdict};
use besom_core::time::Time;
use besom_core::value::{Field, Row, RowKey, Value};
use besom_ports::activity::{self, Activity};
use besom_ports::guests::{Acted, Call, Error, Fault, Guests as _, Limits, StopFlag};
use besom_ports::lines::RunLog;
use besom_ports::store::{Delivery, Error as StoreError, Range, RangePage, ReadView, Result};
use besom_runtime::{Loaded, Runtime, Settings};
use besom_snapshot::Cause;
use tokio::sync::OnceCell;

/// Rows that each tenant has.
pub const ROWS: i64 = 10;
/// Calls of imports that the tests allow.
pub const HOST_CALLS_MAX: u64 = 1_000;

/// The hostile plugin in a runtime that all tests of the process share.
pub async fn hostile() -> &'static (Runtime, Loaded) {
    static SHARED: OnceCell<(Runtime, Loaded)> = OnceCell::const_new();
    SHARED.get_or_init(|| async { start(Settings::default()).await }).await
}

/// A runtime of its own, with the hostile plugin. They share their compiled components
/// unless `settings` says otherwise.
pub async fn start(settings: Settings) -> (Runtime, Loaded) {
    let own = settings.cache.map(|directory| directory.join("compiled"));
    let cache = own.or_else(|| Some(besom_tests::compiled()));
    let settings = Settings { host_calls_max: HOST_CALLS_MAX, cache, ..settings };
    let runtime = Runtime::start(settings).unwrap();
    let loaded = runtime.load(besom_tests::plugin("hostile")).await.unwrap();
    (runtime, loaded)
}

/// Limits that only the misdeeds exceed.
pub fn limits() -> Limits {
    Limits {
        memory_bytes: 64 << 20,
        fuel: 2_000_000_000,
        hostcall_fuel: 1 << 20,
        wall_ms: 60_000,
        batch_items: 512,
        batch_bytes: 1 << 20,
        rows_read: 1_000,
        read_bytes: 16 << 20,
        changes: 100,
        deletes: 10,
        log_bytes: 16 << 10,
    }
}

/// A call of that plugin, with `scan` as its setting.
pub fn call(digest: &str, limits: Limits) -> Call {
    let all = Operations { read: true, insert: true, update: true, delete: true };
    let grants: Grants = [("things".into(), all), ("elsewhere".into(), all)].into();
    Call {
        task: TaskName::from("hostile"),
        digest: digest.into(),
        now: Time(1_700_000_000_000_000),
        seed: 42,
        settings: vec![
            Field::new("scan", Value::Text("well".into())),
            Field::new("words", Value::Json(r#"["well","\u00e9\n"]"#.into())),
        ],
        horizon: Duration::from_secs(60),
        grants: Arc::new(grants),
        limits,
        topics: vec!["cleaned".into()],
        aliases: Arc::default(),
        columns: Arc::default(),
        all_tenants: true,
        activity: true,
        unmapped: vec![],
        described: vec![],
        stop: StopFlag::default(),
        log: RunLog::default(),
    }
}

/// Items of the tenant `a` with these keys.
pub fn items<'a>(keys: impl IntoIterator<Item = &'a str>) -> Vec<Item> {
    let item = |key: &str| Item {
        identity: Identity {
            task: TaskName::from("hostile"),
            tenant: Some(Tenant::from("a")),
            key: key.into(),
            due: None,
        },
        route: key.into(),
        partition: Partition(0),
        version: String::new(),
        payload: vec![],
        run: RunId(1),
        planned_at: Time::EPOCH,
        attempts: 0,
        guard_retries: 0,
        deaths: 0,
        errors: vec![],
    };
    keys.into_iter().map(item).collect()
}

/// Calls `act` of the shared runtime.
pub async fn act(limits: Limits, keys: &[&str]) -> Result<Acted, Error> {
    let (runtime, loaded) = hostile().await;
    let call = call(&loaded.digest, limits);
    runtime.act(&call, things(), Arc::new(Nobody), &items(keys.iter().copied())).await
}

/// The verdict on one item alone.
pub async fn verdict(key: &str) -> Result<Verdict, Fault> {
    act(limits(), &[key]).await.unwrap().verdicts.remove(0)
}

/// The plugin's reason for skipping an item.
pub async fn told(key: &str) -> String {
    match verdict(key).await.unwrap() {
        Verdict::Skip { reason, .. } => reason,
        other => panic!("{key}: {other:?} is no skip"),
    }
}

/// The verdict on an item without a misdeed.
pub fn behaved() -> Result<Verdict, Fault> {
    Ok(Verdict::Skip { reason: "behaved".into(), settled: true })
}

/// A view of `things`.
pub fn things() -> Arc<Things> {
    Arc::default()
}

/// The collection `things`: ten rows in each of the tenants `a` and `b`.
#[derive(Default)]
pub struct Things {
    /// Reads so far.
    pub reads: AtomicU32,
    /// How reads end.
    pub mood: Mood,
    /// The number of rows that each read examines.
    pub examined: u64,
    /// The deadline and the size that the last call has set for its reads.
    pub bounds: Mutex<(Option<Instant>, u64)>,
}

/// How reads end.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// With an answer.
    #[default]
    Well,
    /// With an error of the infrastructure.
    Gone,
    /// Never.
    Stuck,
    /// With a panic of the host.
    Panics,
    /// With the end of the call's time, whatever used it.
    Late,
}

impl Things {
    /// With this end of reads.
    pub fn in_mood(mood: Mood) -> Arc<Things> {
        Arc::new(Things { mood, ..Things::default() })
    }

    async fn read(&self) -> Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        match self.mood {
            Mood::Well => Ok(()),
            Mood::Gone => Err(StoreError::Unavailable("the disk is gone".into())),
            Mood::Late => Err(StoreError::Refused(Cause::Slow, "the time was up".into())),
            Mood::Stuck => std::future::pending().await,
            Mood::Panics => panic!("a bug of the store"),
        }
    }
}

#[async_trait]
impl ReadView for Things {
    fn read_by(&self, deadline: Instant) {
        self.bounds.lock().unwrap().0 = Some(deadline);
    }

    fn read_at_most(&self, bytes: u64) {
        self.bounds.lock().unwrap().1 = bytes;
    }

    fn looked_at(&self) -> u64 {
        u64::from(self.reads.load(Ordering::Relaxed)) * self.examined
    }

    async fn get_many(
        &self,
        _: Option<&Tenant>,
        _: &str,
        keys: &[RowKey],
        _: &[String],
    ) -> Result<Vec<Option<Row>>> {
        self.read().await?;
        Ok(keys.iter().cloned().map(Some).collect())
    }

    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage> {
        self.read().await?;
        // The ids of tenant b begin where those of a end.
        let first = if tenant == Some(&Tenant::from("b")) { ROWS } else { 0 };
        let is_beyond = |id: &i64| match range.beyond {
            Some(Value::Integer(last)) => *id > last,
            _ => true,
        };
        let ids = || (first..first + ROWS).filter(is_beyond);
        let value = |id: i64, column: &String| match column.as_str() {
            "name" => Value::Text(format!("é{id}")),
            "data" => Value::Bytes(vec![7; id as usize]),
            "state" if id % 2 == 1 => Value::Null,
            _ => Value::Integer(id),
        };
        let row = |id| range.columns.iter().map(|column| value(id, column)).collect();
        let rows: Vec<Row> = ids().map(row).collect();
        let keys = ids().filter(|_| range.keys).map(|id| vec![Value::Integer(id)]).collect();
        Ok(RangePage { scanned: rows.len() as u64, rows, keys, next: None })
    }

    async fn count(
        &self,
        _: Option<&Tenant>,
        _: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32> {
        self.read().await?;
        // As many as there are rows, or conditions.
        let rows = if conditions.is_empty() { ROWS as u32 } else { conditions.len() as u32 };
        Ok(limit.min(rows))
    }

    fn bounded(&self, _: &Range) -> Result<(String, bool)> {
        Ok(("id".to_owned(), true))
    }

    async fn tenants(&self, _: &Range, after: Option<&Tenant>, limit: u32) -> Result<Vec<Tenant>> {
        self.read().await?;
        // Items of the second and the third cannot be stored.
        let names = ["a".to_owned(), "a\0".into(), "a".repeat(1_025), "b".into()];
        let all = names.iter().map(|name| Tenant::from(name.as_str()));
        Ok(all
            .filter(|tenant| after.is_none_or(|after| tenant > after))
            .take(limit as usize)
            .collect())
    }

    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>> {
        self.read().await?;
        // Every key has a message, with the task, the tenant and the topic in its answer.
        let whose = tenant.map_or("-", Tenant::as_str);
        let delivery = |key: &String| Delivery {
            id: 1,
            sequence: 1,
            emitted_at: Time::EPOCH,
            payload: key.clone().into_bytes(),
            state: besom_core::delivery::State::Delivered,
            attempts: 1,
            error: None,
            reply: Some(besom_core::delivery::Reply {
                status: 200,
                body: format!("{task} {whose} {topic}").into_bytes(),
                cut: false,
            }),
            ended_at: Some(Time::EPOCH),
        };
        Ok(keys.iter().map(|key| Some(delivery(key))).collect())
    }
}

/// Activity without connections.
pub struct Nobody;

#[async_trait]
impl Activity for Nobody {
    async fn states(&self, keys: &[String]) -> Result<Vec<activity::State>, activity::Error> {
        Ok(vec![activity::State::Idle; keys.len()])
    }

    async fn connect(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }

    async fn disconnect(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }

    async fn heartbeat(&self, _: &str, _: &str) -> Result<(), activity::Error> {
        Ok(())
    }
}
