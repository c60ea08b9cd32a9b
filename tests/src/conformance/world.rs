//! A store with its tables, a leader that owns all partitions, and the steps that cases are
//! made of.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, RunId, Seq, TaskName, Tenant, Term,
};
use besom_core::item::{Candidate, Identity};
use besom_core::mode::Mode;
use besom_core::proposal::{
    Change, Condition, Guard, OnGuardFailed, PLANNED_ROWS, Proposal, Settle,
};
use besom_core::time::Time;
use besom_core::value::{Field, Row, Value};
use besom_ports::guests::Lane;
use besom_ports::store::{
    Audit, Batch, BeforeImage, CommandRow, Committed, Decision, EndOfScan, Entry, Error,
    HistoryQuery, HistoryRow, NewRun, Outcome, PlanPage, Planned, Range, RangePage, Result,
    SlotDecision, Store, Trigger, Waiting,
};
use besom_snapshot::Cause;

use super::Fixture;
use super::tables;

/// The first instant of every world: a whole second, far from the epoch.
pub const START: Time = Time::from_secs(1_750_000_000);

/// More than any case reads.
pub const ALL: u32 = 10_000;

/// More dead letters than any case has, so that a command takes all of them at once.
pub const LETTERS: NonZeroU32 = NonZeroU32::MAX;

/// A store under test with its leader.
pub struct World {
    /// What the adapter's test provides.
    pub fixture: Box<dyn Fixture>,
    /// The leader's fence.
    pub fence: FencingToken,
    /// The leader.
    pub node: Incarnation,
    /// The epochs of the partitions it owns.
    pub epochs: BTreeMap<Partition, OwnerEpoch>,
    /// The store's present.
    pub now: Time,
    commits: AtomicU64,
}

impl World {
    /// Creates the tables and raises the fence at term 1.
    pub async fn new(fixture: Box<dyn Fixture>) -> World {
        fixture.set_now(START);
        fixture.create_tables(&tables::all()).await;
        fixture.store().set_collections(tables::collections());
        let node = Incarnation::from("node-1");
        let (fence, epochs) = (fence(1), BTreeMap::new());
        let mut world =
            World { fixture, fence, node, epochs, now: START, commits: AtomicU64::new(1) };
        world.lead(1, "node-1").await;
        world
    }

    /// The store.
    pub fn store(&self) -> Arc<dyn Store> {
        self.fixture.store()
    }

    /// The command with that number.
    pub async fn asked(&self, id: u64) -> CommandRow {
        self.store().command(id).await.unwrap().expect("the command")
    }

    /// Another leader takes everything over.
    pub async fn lead(&mut self, term: u64, node: &str) {
        (self.fence, self.node) = (fence(term), Incarnation::from(node));
        let raised = self.store().raise_fence(&self.fence, &self.node, None).await;
        self.epochs = raised.expect("a higher term raises the fence").owned.into_iter().collect();
    }

    /// Restarts the store.
    pub async fn reopen(&mut self) {
        self.fixture.reopen().await;
        self.store().set_collections(tables::collections());
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: Duration) {
        self.now = self.now + span;
        self.fixture.set_now(self.now);
    }

    /// A mark that was not used before.
    pub fn mark(&self) -> CommitId {
        CommitId(u128::from(self.commits.fetch_add(1, Ordering::Relaxed)) << 64 | 7)
    }

    // ---- planning

    /// Starts a run.
    pub async fn run(&self, task: &str) -> RunId {
        let runs = vec![new_run(task, self.now)];
        let decision = SlotDecision { runs, ..SlotDecision::default() };
        self.store().decide_slots(&self.fence, &decision).await.expect("a run starts")[0]
    }

    /// Plans candidates without a bound.
    pub async fn plan(&self, task: &str, run: RunId, candidates: Vec<Candidate>) -> Planned {
        let page = page(task, run, candidates);
        self.store().plan_page(&self.fence, &page).await.expect("a page is planned")
    }

    /// Starts a run, plans candidates in it and ends its scan.
    pub async fn planned(&self, task: &str, candidates: Vec<Candidate>) -> RunId {
        let run = self.run(task).await;
        self.plan(task, run, candidates).await;
        self.end_scan(task, run).await;
        run
    }

    /// Ends the scan of a run; returns whether the run has ended.
    pub async fn end_scan(&self, task: &str, run: RunId) -> bool {
        let end = EndOfScan::of(task.into(), run);
        self.store().end_scan(&self.fence, &end).await.expect("a scan ends")
    }

    // ---- execution

    /// Everything that waits in the log of a task, by partition and position.
    pub async fn log(&self, task: &str) -> Vec<Waiting> {
        let mut items = Vec::new();
        let store = self.store();
        for stream in store.backlog(None).await.expect("the backlog is read") {
            if stream.task.as_str() == task {
                let (task, partition, acked) = (&stream.task, stream.partition, stream.acked);
                let read = store.read_log(task, partition, acked, ALL, usize::MAX).await;
                items.extend(read.expect("the log is read"));
            }
        }
        items
    }

    /// All timers, of every task.
    pub async fn timers(&self) -> Vec<Waiting> {
        self.store().read_timers(None, None, None, ALL).await.expect("the timers are read")
    }

    /// All retries, of every task.
    pub async fn retries(&self) -> Vec<Waiting> {
        self.store().read_retries(None, None, None, ALL).await.expect("the retries are read")
    }

    /// The one item in the log of a task.
    pub async fn only(&self, task: &str) -> Waiting {
        let mut items = self.log(task).await;
        assert_eq!(items.len(), 1, "one item in the log");
        items.remove(0)
    }

    /// An entry under the epoch of the world's leader.
    pub fn entry(&self, waiting: &Waiting, decision: Decision) -> Entry {
        let (source, item) = (waiting.source, waiting.item.clone());
        Entry { source, epoch: self.epochs[&item.partition], item, decision }
    }

    /// A batch of the world's leader.
    pub fn batch(&self, entries: Vec<Entry>) -> Batch {
        let (id, node) = (self.mark(), self.node.clone());
        let (as_of, idle) = (self.now, Vec::new());
        Batch {
            id,
            node,
            entries,
            as_of,
            idle,
            activity_in_store: false,
            lane: Lane::Normal,
            braked: false,
        }
    }

    /// Commits decisions about waiting items.
    pub async fn commit(&self, decisions: Vec<(&Waiting, Decision)>) -> Committed {
        let entries = decisions.into_iter().map(|(w, d)| self.entry(w, d)).collect();
        self.store().commit(&self.batch(entries)).await.expect("the batch is committed")
    }

    /// Plans one item, and returns why its commit is refused because of the tables.
    pub async fn refusal(&self, candidate: Candidate, decision: Decision) -> String {
        self.planned("task", vec![candidate]).await;
        let item = self.log("task").await.pop().expect("an item");
        match self.store().commit(&self.batch(vec![self.entry(&item, decision)])).await {
            Err(Error::Refused(Cause::Schema, said)) => said,
            other => panic!("{other:?}"),
        }
    }

    /// Plans one item in a run of its own and commits a decision about it.
    pub async fn settle(&self, candidate: Candidate, decision: Decision) -> Committed {
        self.planned("task", vec![candidate]).await;
        let item = self.only("task").await;
        self.commit(vec![(&item, decision)]).await
    }

    // ---- the user's tables

    /// Writes as the product, in tenant `a`.
    pub async fn write(&self, changes: Vec<Change>) {
        let changes: Vec<_> = changes.into_iter().map(|c| (Some(tenant("a")), c)).collect();
        self.write_as(&changes).await;
    }

    /// Writes as the product, each change under its tenant.
    pub async fn write_as(&self, changes: &[(Option<Tenant>, Change)]) {
        self.fixture.write(&tables::collections(), changes).await;
    }

    /// Commits changes as an item that was never queued.
    pub async fn unqueued(&self, tenant: Option<Tenant>, changes: Vec<Change>) -> Outcome {
        let entry = unqueued(self.fence.term, self.now, tenant, changes);
        let committed = self.store().commit(&self.batch(vec![entry])).await;
        committed.expect("the batch is committed").outcomes.remove(0)
    }

    /// A range read of tenant `a`, from a new snapshot.
    pub async fn read(&self, range: &Range) -> Result<RangePage> {
        let view = self.store().snapshot(Duration::from_secs(60)).await?;
        view.read_range(Some(&tenant("a")), range).await
    }

    /// All rows of a collection in tenant `a`, by key.
    pub async fn rows(&self, collection: &str, columns: &[&str]) -> Vec<Row> {
        let page = self.read(&range(collection, None, columns)).await.expect("a range is read");
        assert_eq!(page.next, None, "one page holds all rows");
        page.rows
    }

    // ---- the books

    /// All history, oldest first.
    pub async fn history(&self) -> Vec<HistoryRow> {
        let query = HistoryQuery { limit: ALL, ..HistoryQuery::default() };
        let mut rows = self.store().history(&query).await.expect("the history is read");
        rows.reverse();
        rows
    }

    /// The before-images of the latest history row.
    pub async fn latest_images(&self) -> Vec<BeforeImage> {
        let id = self.history().await.last().expect("a history row").id;
        self.store().before_images(id).await.expect("images are read").unwrap_or_default()
    }

    /// The audit, which has to balance.
    pub async fn balanced(&self) -> Audit {
        let audit = self.store().audit().await.expect("an audit");
        assert!(audit.balanced(), "{audit:#?}");
        audit
    }
}

/// The fence of a term.
pub fn fence(term: u64) -> FencingToken {
    FencingToken { term: Term(term), token_hash: [term as u8; 32] }
}

/// A run started by a person.
pub fn new_run(task: &str, slot: Time) -> NewRun {
    NewRun {
        task: task.into(),
        slot,
        trigger: Trigger::Manual { by: "ann".into(), reason: "a test".into() },
        digest: "d1".into(),
        definition: "{}".into(),
        mode: Mode::Live,
    }
}

/// A page without a bound.
pub fn page(task: &str, run: RunId, candidates: Vec<Candidate>) -> PlanPage {
    PlanPage {
        run,
        task: task.into(),
        tenant: None,
        scanned: candidates.len() as u64,
        candidates,
        cursor: None,
        quota: u64::MAX,
    }
}

/// A candidate of tenant `a`, version `v1`.
pub fn candidate(key: &str) -> Candidate {
    Candidate {
        tenant: Some(tenant("a")),
        key: key.to_owned(),
        route: key.to_owned(),
        due: None,
        version: "v1".to_owned(),
        payload: key.as_bytes().to_vec(),
    }
}

/// A candidate of tenant `a` with a due time.
pub fn due(key: &str, due: Time) -> Candidate {
    Candidate { due: Some(due), ..candidate(key) }
}

/// Candidates that share one stream.
pub fn in_one_stream(keys: &[&str]) -> Vec<Candidate> {
    keys.iter().map(|key| Candidate { route: "one".into(), ..candidate(key) }).collect()
}

/// A tenant.
pub fn tenant(name: &str) -> Tenant {
    Tenant::from(name)
}

/// A task's name.
pub fn task(name: &str) -> TaskName {
    TaskName::from(name)
}

/// The position of a log entry.
pub fn seq(seq: u64) -> Seq {
    Seq(seq)
}

/// A range over a whole collection.
pub fn range(collection: &str, index: Option<&str>, columns: &[&str]) -> Range {
    Range {
        collection: collection.to_owned(),
        index: index.map(str::to_owned),
        columns: columns.iter().map(|&c| c.to_owned()).collect(),
        limit: ALL,
        bytes_max: usize::MAX,
        ..Range::default()
    }
}

/// Guarded changes.
pub fn proposal(guards: Vec<Guard>, changes: Vec<Change>) -> Proposal {
    let on_guard_failed = OnGuardFailed::Skip("guard".into());
    Proposal { guards, changes, on_guard_failed, notes: Vec::new() }
}

/// Changes as an item that was never queued; a violation is skipped with `violation`.
pub fn unqueued(term: Term, now: Time, tenant: Option<Tenant>, changes: Vec<Change>) -> Entry {
    let identity = Identity { task: "aside".into(), tenant, key: "k".into(), due: None };
    Entry::unqueued(term, identity, now, proposal(vec![], changes), "violation", true)
}

/// Apply, with before-images; a failed guard skips with `guard`, a violation is dead with
/// `violation`.
pub fn apply(guards: Vec<Guard>, changes: Vec<Change>) -> Decision {
    Decision::Apply {
        proposal: proposal(guards, changes),
        on_guard_failed: Settle::Skip { reason: "guard".into(), settled: false },
        on_violation: Settle::Dead { attempts: 1, reason: "violation".into() },
        undo: true,
    }
}

/// Apply, or skip; the task has found so many rows in the ranges.
pub fn apply_to(planned: i64, changes: Vec<Change>) -> Decision {
    let mut decision = apply(vec![], changes);
    if let Decision::Apply { proposal, .. } = &mut decision {
        proposal.notes = vec![Field::new(PLANNED_ROWS, Value::Integer(planned))];
    }
    decision
}

/// Skip, unsettled.
pub fn skip(reason: &str) -> Decision {
    Decision::Settle(Settle::Skip { reason: reason.into(), settled: false })
}

/// Skip for as long as the version is the same.
pub fn settled(reason: &str) -> Decision {
    Decision::Settle(Settle::Skip { reason: reason.into(), settled: true })
}

/// Try again.
pub fn retry(run_at: Time, attempts: u32, reason: &str) -> Decision {
    Decision::Settle(Settle::Retry { run_at, attempts, guard_retries: 0, reason: reason.into() })
}

/// Set aside at the first attempt.
pub fn dead(reason: &str) -> Decision {
    dead_after(1, reason)
}

/// Set aside after so many attempts.
pub fn dead_after(attempts: u32, reason: &str) -> Decision {
    Decision::Settle(Settle::Dead { attempts, reason: reason.into() })
}

/// The guard that a row of things has `n` equal to a value.
pub fn n_is(id: &str, n: i64) -> Guard {
    Guard::Columns {
        collection: "things".into(),
        key: vec![tables::text(id)],
        conditions: vec![Condition::equal("n", Value::Integer(n))],
    }
}

/// The change that sets `n` of a thing.
pub fn set_n(id: &str, n: i64) -> Change {
    Change::Update {
        collection: "things".into(),
        key: vec![tables::text(id)],
        fields: tables::fields([("n", Value::Integer(n))]),
    }
}
