//! A store in its own directory, a manual clock, and a leader.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, RunId, TaskName, Tenant, Term,
};
use besom_core::item::Candidate;
use besom_core::mode::Mode;
use besom_core::plan::{NewRun, SlotDecision, Trigger};
use besom_core::proposal::{Change, Guard, OnGuardFailed, Proposal, Settle};
use besom_core::time::Time;
use besom_core::value::{Field, Value};

use super::super::{Options, SqliteStore};
use besom_ports::guests::Lane;
use besom_ports::store::{Batch, Committed, Decision, Entry, PlanPage, Store, Waiting};
use besom_product::model::default_collections;
use besom_product::model::product::{self, Product};

pub(super) const START: Time = Time::from_secs(1_700_000_000);

pub(super) struct Fixture {
    pub(super) dir: tempfile::TempDir,
    pub(super) store: Arc<SqliteStore>,
    pub(super) clock: Arc<AtomicI64>,
    pub(super) fence: FencingToken,
    pub(super) task: TaskName,
    pub(super) tenant: Tenant,
    pub(super) run: RunId,
    commits: AtomicU64,
}

pub(super) fn options(clock: &Arc<AtomicI64>) -> Options {
    let clock = Arc::clone(clock);
    Options {
        time: Arc::new(move || Time(clock.load(Ordering::Relaxed))),
        busy_max: Duration::from_millis(20),
        ..Options::default()
    }
}

pub(super) fn node() -> Incarnation {
    "node-1".into()
}

impl Fixture {
    pub(super) async fn new() -> Fixture {
        Fixture::with(|options| options).await
    }

    /// The same, opened with other bounds.
    pub(super) async fn with(change: impl FnOnce(Options) -> Options) -> Fixture {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(AtomicI64::new(START.0));
        let options = change(options(&clock));
        let store = SqliteStore::open(dir.path().join("besom.db"), options).expect("opens");
        product::create_tables(&*store).await.expect("creates");
        store.set_collections(Arc::new(default_collections()));
        let fence = FencingToken { term: Term(1), token_hash: [7; 32] };
        store.raise_fence(&fence, &node(), None).await.expect("raises");
        let task = TaskName::from("sweep");
        let run = NewRun {
            task: task.clone(),
            slot: START,
            trigger: Trigger::Schedule,
            digest: "d".into(),
            definition: "{}".into(),
            mode: Mode::Live,
        };
        let decision = SlotDecision { runs: vec![run], ..SlotDecision::default() };
        let run = store.decide_slots(&fence, &decision).await.expect("decides")[0];
        let (tenant, commits) = (Tenant::from("t"), AtomicU64::new(1));
        Fixture { dir, store, clock, fence, task, tenant, run, commits }
    }

    pub(super) fn candidate(&self, key: &str, due: Option<Time>) -> Candidate {
        Candidate {
            tenant: Some(self.tenant.clone()),
            key: key.into(),
            route: "route".into(),
            due,
            version: "1".into(),
            payload: vec![1, 2, 3],
        }
    }

    /// Plans items without due times, all in one stream, and returns the waiting items.
    pub(super) async fn plan(&self, keys: &[&str]) -> Vec<Waiting> {
        self.plan_candidates(keys.iter().map(|key| self.candidate(key, None)).collect()).await;
        let stream = self.store.backlog(None).await.expect("reads").pop().expect("a stream");
        self.store
            .read_log(&self.task, stream.partition, stream.acked, 10_000, usize::MAX)
            .await
            .expect("reads")
    }

    pub(super) async fn plan_candidates(&self, candidates: Vec<Candidate>) {
        let page = PlanPage {
            run: self.run,
            task: self.task.clone(),
            tenant: Some(self.tenant.clone()),
            candidates,
            cursor: None,
            scanned: 0,
            quota: u64::MAX,
        };
        self.store.plan_page(&self.fence, &page).await.expect("plans");
    }

    pub(super) fn batch(&self, entries: Vec<(Waiting, Decision)>) -> Batch {
        let epoch = OwnerEpoch(1);
        let entry = |(w, decision): (Waiting, Decision)| Entry {
            source: w.source,
            item: w.item,
            epoch,
            decision,
        };
        Batch {
            id: CommitId(u128::from(self.commits.fetch_add(1, Ordering::Relaxed))),
            node: node(),
            entries: entries.into_iter().map(entry).collect(),
            as_of: Time::EPOCH,
            idle: Vec::new(),
            activity_in_store: true,
            lane: Lane::Normal,
            braked: false,
        }
    }

    pub(super) async fn commit(&self, entries: Vec<(Waiting, Decision)>) -> Committed {
        self.store.commit(&self.batch(entries)).await.expect("commits")
    }

    pub(super) async fn write(&self, changes: Vec<Change>) {
        let tenant = Some(self.tenant.clone());
        let changes: Vec<_> = changes.into_iter().map(|c| (tenant.clone(), c)).collect();
        self.write_as(&changes).await;
    }

    /// Writes as the product does, each change under its tenant.
    pub(super) async fn write_as(&self, changes: &[(Option<Tenant>, Change)]) {
        let product = Product::new(self.store.clone(), Arc::new(default_collections()));
        product.write(changes).await.expect("writes");
    }

    /// The books balance.
    pub(super) async fn balanced(&self) {
        let audit = self.store.audit().await.expect("audits");
        assert!(audit.balanced(), "{audit:#?}");
    }
}

pub(super) fn text(s: &str) -> Value {
    Value::Text(s.into())
}

pub(super) fn document(key: &str) -> Change {
    Change::Insert {
        collection: "documents".into(),
        fields: vec![
            Field::new("doc_id", text(key)),
            Field::new("created_at", Value::Timestamp(START)),
            Field::new("updated_at", Value::Timestamp(START)),
        ],
    }
}

pub(super) fn change(key: &str, seq: i64, payload: &[u8]) -> Change {
    Change::Insert {
        collection: "changes".into(),
        fields: vec![
            Field::new("doc_id", text(key)),
            Field::new("server_seq", Value::Integer(seq)),
            Field::new("actor_id", text("a")),
            Field::new("client_seq", Value::Integer(seq)),
            Field::new("lamport", Value::Integer(seq)),
            Field::new("payload", Value::Bytes(payload.to_vec())),
        ],
    }
}

pub(super) fn update(key: &str, column: &str, value: Value) -> Change {
    Change::Update {
        collection: "documents".into(),
        key: vec![text(key)],
        fields: vec![Field::new(column, value)],
    }
}

pub(super) fn apply(guards: Vec<Guard>, changes: Vec<Change>) -> Decision {
    let skip = |reason: &str| Settle::Skip { reason: reason.into(), settled: false };
    Decision::Apply {
        proposal: Proposal {
            guards,
            changes,
            on_guard_failed: OnGuardFailed::Skip("guard".into()),
            notes: vec![Field::new("bytes", Value::Integer(1))],
        },
        on_guard_failed: skip("guard"),
        on_violation: Settle::Dead { attempts: 1, reason: "violation".into() },
        undo: true,
    }
}
