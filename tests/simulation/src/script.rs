//! Scripted tasks: the tables of the simulated product, and the verdicts of its tasks.
//!
//! The fate of a key follows from the key alone, so that a simulation can be checked at its end
//! without its history.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::brake::{Brakes, DeletesMax};
use besom_core::collection::{Collection, Collections, Column, Encoding, Operations};
use besom_core::ids::{RunId, TaskName, Tenant};
use besom_core::item::{Candidate, Identity, Item};
use besom_core::mode::Mode;
use besom_core::pace::Yielding;
use besom_core::plan::{CatchUp, Overlap};
use besom_core::proposal::{Change, Condition, Guard, OnGuardFailed, Proposal, Verdict};
use besom_core::queue::RetryPolicy;
use besom_core::time::Time;
use besom_core::value::{Field, Kind, Value};
use besom_ports::activity::Activity;
use besom_ports::guests::{
    Acted, Call, CollectionRequest, Error, Fault, Guests, Lane, Limits, Manifest, Page, Usage,
};
use besom_ports::store::{Range, ReadView};
use besom_ports::task::{APPROVE_WITHIN_DEFAULT, TaskDefinition};

/// The tasks of the simulated product: one for the log, one for due items, one in the lane heavy, and one
/// that deletes. Each has a brake but the second.
pub const TASKS: [&str; 4] = ["sweep", "expire", "grind", "purge"];

/// The number of rows that a run of `purge` may delete.
pub const DELETES_MAX: u64 = 8;
/// The number of items of a run of `sweep` that may be set aside.
pub const LETTERS_MAX: NonZeroU32 = NonZeroU32::new(2).unwrap();
/// The number of runs of `grind` that may fail in a row.
pub const FAILURES_MAX: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// The most rows per second that `grind` may change: each of its things changes two, and a batch up to 16.
pub const ROWS_MAX: NonZeroU32 = NonZeroU32::new(12).unwrap();
/// When `grind` yields.
pub const YIELDING: Yielding = Yielding {
    latency: Duration::from_millis(50),
    lag: Duration::from_secs(5),
    // So that a world comes to rest in time whatever is behind after a late restore.
    floor: NonZeroU32::new(4).unwrap(),
};

/// The topic of the messages about what is done.
pub const TOPIC: &str = "done";

/// The states of a thing. Only an open one is a candidate; the product has changed one that is kept.
pub const OPEN: &str = "open";
/// See [`OPEN`].
pub const DONE: &str = "done";
/// See [`OPEN`].
pub const KEPT: &str = "kept";

/// The expected end of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Its effect happens, once.
    Done,
    /// Its effect happens once, after two executions that ask for a retry.
    DoneLater,
    /// It is skipped, settled.
    Skipped,
    /// Its plugin sets it aside.
    Hopeless,
    /// Its plugin fails on it every time.
    Poison,
}

/// The fate of a key.
pub fn fate(key: &str) -> Fate {
    let sum: u32 = key.bytes().map(u32::from).sum();
    match sum % 23 {
        0 => Fate::Poison,
        1 => Fate::Hopeless,
        2 => Fate::Skipped,
        3 | 4 => Fate::DoneLater,
        _ => Fate::Done,
    }
}

/// The product's tables: things with a state, and a ledger that counts the effects on each.
pub fn collections() -> Collections {
    let column = |kind| Column { kind, encoding: Encoding::Native };
    let table = |name: &str, columns: &[(&str, Kind)], indexes: &[(&str, &[&str])]| Collection {
        name: name.into(),
        table: name.into(),
        tenant: Some("tenant".into()),
        key: vec!["id".into()],
        columns: columns.iter().map(|(name, kind)| ((*name).into(), column(*kind))).collect(),
        indexes: indexes
            .iter()
            .map(|(name, columns)| {
                ((*name).into(), columns.iter().map(|column| (*column).into()).collect())
            })
            .collect(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    [
        table(
            "things",
            &[
                ("id", Kind::Text),
                ("task", Kind::Text),
                ("state", Kind::Text),
                ("due", Kind::Timestamp),
            ],
            &[("by_task_state", &["task", "state"])],
        ),
        table("ledger", &[("id", Kind::Text), ("effects", Kind::Integer)], &[]),
    ]
    .into_iter()
    .map(|collection| (collection.name.clone(), collection))
    .collect()
}

/// A thing of a task, and its line in the ledger.
pub fn thing(task: &str, id: &str, due: Option<Time>) -> [Change; 2] {
    let text = |s: &str| Value::Text(s.into());
    [
        Change::Insert {
            collection: "things".into(),
            fields: vec![
                Field::new("id", text(id)),
                Field::new("task", text(task)),
                Field::new("state", text(OPEN)),
                Field::new("due", due.map_or(Value::Null, Value::Timestamp)),
            ],
        },
        Change::Insert {
            collection: "ledger".into(),
            fields: vec![Field::new("id", text(id)), Field::new("effects", Value::Integer(0))],
        },
    ]
}

/// Changes the due time of a thing.
pub fn put_off(id: &str, due: Time) -> Change {
    Change::Update {
        collection: "things".into(),
        key: vec![Value::Text(id.into())],
        fields: vec![Field::new("due", Value::Timestamp(due))],
    }
}

/// The product changes a thing that is done: what an undo has to leave alone.
pub fn keep(id: &str) -> Change {
    Change::Update {
        collection: "things".into(),
        key: vec![Value::Text(id.into())],
        fields: vec![Field::new("state", Value::Text(KEPT.into()))],
    }
}

/// The digest of a version of a task's plugin.
pub fn digest(task: &str, version: u32) -> String {
    format!("{task}@{version}")
}

/// The definition of a task of the simulation, with a version of its plugin.
pub fn definition(task: &str, version: u32) -> TaskDefinition {
    let all = Operations { read: true, insert: true, update: true, delete: true };
    let lane = match task {
        "expire" => Lane::Due,
        "grind" => Lane::Heavy,
        _ => Lane::Normal,
    };
    let (schedule, overlap) = match task {
        "expire" => ("@every 7s", Overlap::Skip),
        "grind" => ("@every 5s", Overlap::Queue),
        _ => ("@every 3s", Overlap::Skip),
    };
    TaskDefinition {
        name: task.into(),
        plugin: task.into(),
        digest: digest(task, version),
        schedule: Some(schedule.into()),
        timezone: "UTC".into(),
        overlap,
        catch_up: CatchUp::Coalesce,
        jitter: Duration::ZERO,
        at_start: lane == Lane::Due,
        horizon: Duration::from_secs(10),
        settings: Vec::new(),
        limits: Limits {
            memory_bytes: 1 << 20,
            fuel: 1_000_000,
            hostcall_fuel: 1 << 20,
            wall_ms: 1_000,
            batch_items: 8,
            batch_bytes: 1 << 20,
            rows_read: 10_000,
            read_bytes: 16 << 20,
            changes: 100,
            deletes: 100,
            log_bytes: 1_024,
        },
        dependants: Vec::new(),
        grants: [("things".to_owned(), all), ("ledger".to_owned(), all)].into(),
        topics: vec![TOPIC.into()],
        columns: Default::default(),
        all_tenants: true,
        aliases: Default::default(),
        unmapped: Vec::new(),
        described: Vec::new(),
        per_tenant: true,
        activity: false,
        lane,
        tenants_per_run: 2,
        candidates_per_tenant: 12,
        retry: RetryPolicy {
            attempts_max: 4,
            backoff: Duration::from_millis(500),
            backoff_max: Duration::from_secs(5),
            guard_retries_max: 5,
            deaths_max: u32::MAX,
        },
        keep_removed: Duration::from_secs(60),
        queue_max: besom_ports::task::QUEUE_MAX_DEFAULT,
        timers_max: Lane::Normal.row().timers_max,
        dead_max: besom_ports::task::DEAD_MAX_DEFAULT,
        rows_per_second: Some(ROWS_MAX).filter(|_| task == "grind"),
        yields: Some(YIELDING).filter(|_| task == "grind"),
        brakes: Brakes {
            deletes: (task == "purge").then_some(DeletesMax::Rows(DELETES_MAX)),
            letters: Some(LETTERS_MAX).filter(|_| task == "sweep"),
            failures: Some(FAILURES_MAX).filter(|_| task == "grind"),
        },
        windows: Default::default(),
        mode: Mode::Live,
        approve_within: APPROVE_WITHIN_DEFAULT,
        mapping: String::new(),
    }
}

/// A call of a plugin, as the invariants see it.
#[derive(Debug, Clone, PartialEq)]
pub struct Called {
    /// The task by whose definition it was called.
    pub task: TaskName,
    /// The digest of the plugin.
    pub digest: String,
    /// The items: the task and the run that planned each, and its key.
    pub items: Vec<(TaskName, RunId, String)>,
}

/// What a world and its plugins know of each other.
#[derive(Debug, Default)]
pub struct Stage {
    called: Mutex<Vec<Called>>,
    /// Whether the scans of `grind` fail: a bad plugin is deployed.
    pub is_bad: AtomicBool,
}

impl Stage {
    /// The calls since the last question.
    pub fn take_called(&self) -> Vec<Called> {
        std::mem::take(&mut *self.called.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The tasks, as a host calls them.
#[derive(Debug, Default)]
pub struct Script(pub Arc<Stage>);

/// The task of a digest.
fn task_of(digest: &str) -> &str {
    digest.split_once('@').map_or(digest, |(task, _)| task)
}

#[async_trait]
impl Guests for Script {
    fn manifest(&self, digest: &str) -> Option<Arc<Manifest>> {
        let request = |name: &str| CollectionRequest {
            collection: name.into(),
            operations: Operations { read: true, insert: true, update: true, delete: true },
            columns: Vec::new(),
            ..CollectionRequest::default()
        };
        Some(Arc::new(Manifest {
            name: task_of(digest).into(),
            version: "1.0.0".into(),
            doc: String::new(),
            settings: Vec::new(),
            collections: vec![request("things"), request("ledger")],
            topics: vec![TOPIC.into()],
            activity: false,
            per_tenant: true,
            lane: definition(task_of(digest), 1).lane,
            extra: Vec::new(),
        }))
    }

    async fn tenants(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        _: Arc<dyn Activity>,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>, Error> {
        let range = open_things(task_of(&call.digest), None, limit);
        view.tenants(&range, after, limit)
            .await
            .map_err(|error| Error::Infrastructure(error.to_string()))
    }

    async fn scan(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        _: Arc<dyn Activity>,
        tenant: Option<&Tenant>,
        cursor: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page, Error> {
        let task = task_of(&call.digest);
        if task == "grind" && self.0.is_bad.load(Ordering::Relaxed) {
            return Err(Error::Guest(Fault::new("error", "this version cannot scan")));
        }
        let range = open_things(task, cursor, limit);
        let page = view
            .read_range(tenant, &range)
            .await
            .map_err(|error| Error::Infrastructure(error.to_string()))?;
        let candidates = page.rows.iter().filter_map(|row| match row.as_slice() {
            [Value::Text(key), due] => Some(Candidate {
                tenant: tenant.cloned(),
                key: key.clone(),
                route: key.clone(),
                due: match due {
                    Value::Timestamp(due) => Some(*due),
                    _ => None,
                },
                version: "1".into(),
                payload: Vec::new(),
            }),
            _ => None,
        });
        Ok(Page {
            candidates: candidates.collect(),
            next: page.next,
            scanned: page.scanned,
            left_out: besom_snapshot::LeftOut::default(),
            usage: Usage::default(),
        })
    }

    async fn act(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        _: Arc<dyn Activity>,
        items: &[Item],
    ) -> Result<Acted, Error> {
        let of = |item: &Item| {
            let Identity { task, key, .. } = item.identity.clone();
            (task, item.run, key)
        };
        let called = Called {
            task: call.task.clone(),
            digest: call.digest.clone(),
            items: items.iter().map(of).collect(),
        };
        self.0.called.lock().unwrap_or_else(PoisonError::into_inner).push(called);
        let mut verdicts = Vec::with_capacity(items.len());
        for item in items {
            let due = match item.identity.due {
                Some(_) => due_of(view.as_ref(), item).await?,
                None => None,
            };
            // Its due time may have been postponed since it was planned: then it is another item.
            verdicts.push(match due {
                Some(due) if item.identity.due != Some(due) => {
                    Ok(Verdict::Skip { reason: "not due any more".into(), settled: false })
                }
                Some(_) | None => verdict(item, due),
            });
        }
        Ok(Acted { verdicts, usage: Usage::default() })
    }
}

fn open_things(task: &str, cursor: Option<&[u8]>, limit: u32) -> Range {
    Range {
        collection: "things".into(),
        index: Some("by_task_state".into()),
        prefix: vec![Value::Text(task.into()), Value::Text(OPEN.into())],
        columns: vec!["id".into(), "due".into()],
        limit,
        bytes_max: 1 << 20,
        after: cursor.map(<[u8]>::to_vec),
        ..Range::default()
    }
}

/// When a thing is due now.
async fn due_of(view: &dyn ReadView, item: &Item) -> Result<Option<Time>, Error> {
    let keys = [vec![Value::Text(item.identity.key.clone())]];
    let tenant = item.identity.tenant.as_ref();
    let rows = view.get_many(tenant, "things", &keys, &["due".into()]).await;
    let row = rows.map_err(|error| Error::Infrastructure(error.to_string()))?.pop().flatten();
    Ok(match row.as_deref() {
        Some([Value::Timestamp(due)]) => Some(*due),
        _ => None,
    })
}

fn verdict(item: &Item, due: Option<Time>) -> Result<Verdict, Fault> {
    let key = &item.identity.key;
    match fate(key) {
        Fate::Poison => Err(Fault::new("unreachable", format!("poison: {key}"))),
        Fate::Hopeless => Ok(Verdict::Dead { reason: "hopeless".into() }),
        Fate::Skipped => Ok(Verdict::Skip { reason: "not today".into(), settled: true }),
        Fate::DoneLater if item.attempts < 2 => {
            Ok(Verdict::Retry { after_ms: 100, reason: "later".into() })
        }
        Fate::Done | Fate::DoneLater => Ok(Verdict::Propose(effect(key, due))),
    }
}

/// The key of the messages about a thing: its task.
fn stream_of(key: &str) -> &str {
    key.split_once('-').map_or(key, |(task, _)| task)
}

/// The effect: counted in the ledger, so that a second one would show. Only every other key has a
/// guard; the others rely on the engine alone. Due things are guarded by the due time that was
/// read.
fn effect(key: &str, due: Option<Time>) -> Proposal {
    let row = vec![Value::Text(key.into())];
    let guard = Guard::Columns {
        collection: "things".into(),
        key: row.clone(),
        conditions: [Condition::equal("state", Value::Text(OPEN.into()))]
            .into_iter()
            .chain(due.map(|due| Condition::equal("due", Value::Timestamp(due))))
            .collect(),
    };
    let guarded = due.is_some() || key.len().is_multiple_of(2);
    let ended = match key.starts_with("purge") {
        true => Change::Delete { collection: "things".into(), key: row.clone() },
        false => Change::Update {
            collection: "things".into(),
            key: row.clone(),
            fields: vec![Field::new("state", Value::Text(DONE.into()))],
        },
    };
    Proposal {
        guards: if guarded { vec![guard] } else { Vec::new() },
        changes: vec![
            ended,
            Change::Increment {
                collection: "ledger".into(),
                key: row,
                fields: vec![Field::new("effects", Value::Integer(1))],
            },
            // Its key is that of many messages, so that their order matters.
            Change::Emit {
                topic: TOPIC.into(),
                key: stream_of(key).into(),
                payload: key.as_bytes().to_vec(),
            },
        ],
        on_guard_failed: OnGuardFailed::Skip("done already".into()),
        notes: Vec::new(),
    }
}
