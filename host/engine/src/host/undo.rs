//! The task `undo`: its items put back what the items of other runs have done.
//!
//! It is a task like any other, except that the engine itself scans and acts: planning, ownership, the commit, the
//! history and undo of its own items are those of every task. A request is in the settings of its run. Its
//! candidates are history rows, newest first and in one stream, so that the last change is taken back first; where no
//! order matters, they are spread over several. What may be put back is decided by the store, inside the commit.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::command::{Undo, counted};
use besom_core::ids::{Partition, RunId, TaskName, Tenant};
use besom_core::item::{Candidate, End, Identity, Item};
use besom_core::mode::Mode;
use besom_core::plan::{CatchUp, Overlap};
use besom_core::proposal::{Again, Change, OnGuardFailed, Proposal, Restore, Verdict};
use besom_core::queue::RetryPolicy;
use besom_core::time::Time;
use besom_core::undo::{self, Target};
use besom_core::value::{Field, Value};
use besom_snapshot::LeftOut;
use futures::FutureExt as _;
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

use besom_node::Work;
use besom_node::planner::Scheduled;
use besom_ports::activity::Activity;
use besom_ports::guests::{Acted, Call, Error, Fault, Guests, Lane, Limits, Manifest, Page, Usage};
use besom_ports::history;
use besom_ports::store::{self, HistoryQuery, HistoryRow, Message, MessageQuery, ReadView, Store};
use besom_ports::task::{
    APPROVE_WITHIN_DEFAULT, DEAD_MAX_DEFAULT, QUEUE_MAX_DEFAULT, TaskDefinition,
};
use besom_ports::undone::{DEPTH_MAX, ONLY_PLANNED_AGAIN, Recorded, Standing, key_of};

/// In place of the digest of a component.
const DIGEST: &str = "besom-undo";
/// The plugin whose items are undone as a whole or not at all: a part of a log is no document.
const COMPACTION: &str = "compaction";
/// The note of a compaction that names its mode, and the mode that is not undone.
const MODE: (&str, &str) = ("mode", "reset");
/// How long the rows that were changed by an undo are kept, if no task keeps its own for longer.
const RETENTION: Duration = Duration::from_secs(7 * 86_400);
/// How the reason of an item begins that has nothing left to undo.
pub const ALREADY: &str = "already undone";
/// How many items are looked up at once.
const ACTING: usize = 4;
/// Maximum number of items of one commit.
const TOGETHER: u32 = 256;
/// Maximum number of rows that one commit puts back, unless one item has more. There is one stream of items, so that
/// what a commit costs by itself delays the undo; on SQLite, the product's writers wait for all of them.
const ROWS_TOGETHER: u64 = 4_000;

/// Adds the task to the work of a host that serves every request.
pub fn add(work: &mut Work) {
    let tasks = work.tasks.values().map(|scheduled| &*scheduled.definition);
    let definition = Arc::new(definition(tasks));
    let name = definition.name.clone();
    work.tasks.insert(name, Scheduled { definition, schedule: None });
}

/// The definition of the task. What it undoes is in the settings of a run.
pub fn definition<'a>(tasks: impl Iterator<Item = &'a TaskDefinition>) -> TaskDefinition {
    TaskDefinition {
        name: TaskName::from(undo::TASK),
        plugin: undo::TASK.to_owned(),
        digest: DIGEST.to_owned(),
        schedule: None,
        timezone: "UTC".to_owned(),
        overlap: Overlap::Queue,
        catch_up: CatchUp::Skip,
        jitter: Duration::ZERO,
        at_start: false,
        horizon: Duration::from_secs(86_400),
        settings: Vec::new(),
        limits: Limits {
            memory_bytes: 0,
            fuel: 0,
            hostcall_fuel: 0,
            wall_ms: 0,
            batch_items: TOGETHER,
            batch_bytes: 1 << 20,
            rows_read: 0,
            read_bytes: 0,
            changes: 1,
            deletes: 0,
            log_bytes: 0,
        },
        dependants: Vec::new(),
        grants: Default::default(),
        columns: Default::default(),
        all_tenants: true,
        aliases: Default::default(),
        topics: Vec::new(),
        unmapped: Vec::new(),
        described: Vec::new(),
        per_tenant: false,
        activity: false,
        // Its scan is not cut, and others do not delay it.
        lane: Lane::Due,
        tenants_per_run: u32::MAX,
        candidates_per_tenant: u32::MAX,
        retry: RetryPolicy {
            attempts_max: 5,
            backoff: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            guard_retries_max: 5,
            deaths_max: 3,
        },
        brakes: Default::default(),
        windows: Default::default(),
        mode: Mode::Live,
        approve_within: APPROVE_WITHIN_DEFAULT,
        mapping: String::new(),
        keep_removed: tasks.map(|task| task.keep_removed).fold(RETENTION, Duration::max),
        queue_max: QUEUE_MAX_DEFAULT,
        timers_max: QUEUE_MAX_DEFAULT,
        dead_max: DEAD_MAX_DEFAULT,
        rows_per_second: None,
        yields: None,
    }
}

/// The plugins, and beside them the task that undoes what they have done.
pub struct Undoing {
    plugins: Arc<dyn Guests>,
    own: Proposer,
}

/// Finds and proposes what is put back.
pub struct Proposer {
    store: Arc<dyn Store>,
    /// The topics with [`UNDONE`] that have a route.
    told: BTreeSet<String>,
}

/// The end of the topic to which a message goes when what another message has told was undone: `orders.closed.undone`.
pub const UNDONE: &str = ".undone";
/// Maximum number of messages of an item that are looked at.
const MESSAGES_MAX: u32 = 1_000;

/// The payload of such a message.
#[derive(Serialize)]
struct Told<'a> {
    /// The number of the message (`Besom-Message`) that told what was undone.
    message: u64,
    /// The item that had sent it.
    task: &'a str,
    run: u64,
    item: &'a str,
}

/// How an item is undone.
enum Terms {
    /// Row by row: those that somebody has changed stay.
    Rows,
    /// Every row, or none.
    Whole,
    /// Not at all, for this reason.
    Never(&'static str),
}

/// Why a reset is not undone.
const RESET: &str = "a reset of a document is not undone: a client that has loaded it since would merge it beside the \
                     former document";

/// What an item undoes.
#[derive(Debug, Serialize, Deserialize)]
struct Undone {
    /// The history row.
    history: u64,
    identity: Identity,
    run: RunId,
}

impl Undone {
    fn of(row: &HistoryRow) -> Undone {
        Undone { history: row.id, identity: row.identity.clone(), run: row.run }
    }

    /// What had been planned, as far as it decides whether it is planned again.
    fn item(&self, version: String) -> Item {
        Item {
            identity: self.identity.clone(),
            route: self.identity.key.clone(),
            partition: Partition(0),
            version,
            payload: Vec::new(),
            run: self.run,
            planned_at: Time::EPOCH,
            attempts: 0,
            guard_retries: 0,
            deaths: 0,
            errors: Vec::new(),
        }
    }
}

/// The plugins of runs that were looked at.
#[derive(Default)]
pub struct Plugins(Mutex<HashMap<RunId, Option<String>>>);

impl Plugins {
    async fn of(&self, store: &dyn Store, run: RunId) -> store::Result<Option<String>> {
        let known = |all: &Mutex<HashMap<RunId, Option<String>>>| {
            all.lock().unwrap_or_else(PoisonError::into_inner).get(&run).cloned()
        };
        if let Some(plugin) = known(&self.0) {
            return Ok(plugin);
        }
        let found = store.run(run).await?;
        let of = found.as_ref().and_then(TaskDefinition::of_run);
        let plugin = of.map(|definition| definition.plugin);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(run, plugin.clone());
        Ok(plugin)
    }
}

/// Whether a row of the history has changed rows that could be put back.
pub fn is_candidate(row: &HistoryRow) -> bool {
    row.outcome == End::Committed && (row.rows > 0 || row.undo_bytes > 0)
}

/// Why nothing of a target can be put back, if none of the rows that it has changed is kept.
///
/// # Errors
/// The store cannot be read.
pub async fn nothing_kept(store: &dyn Store, target: &Target) -> store::Result<Option<String>> {
    let (mut rows, mut has_changed) = (history::Rows::of_target(store, target), false);
    while let Some(row) = rows.next().await? {
        if is_candidate(&row) {
            has_changed = true;
            if row.undo_bytes > 0 {
                return Ok(None);
            }
        }
    }
    Ok(has_changed.then(|| {
        format!(
            "the rows of {target} are kept no longer (keep_removed, or purged), or never were: nothing can be put back"
        )
    }))
}

/// Whether a row of the history has changed rows that a request puts back.
pub fn is_part(request: &Undo, row: &HistoryRow) -> bool {
    is_candidate(row) && request.has(&key_of(row.run, row.id))
}

/// The cursor of a scan: the request that it belongs to, and the last history row.
fn cursor(request: &str, last: u64) -> Vec<u8> {
    let mut bytes = last.to_le_bytes().to_vec();
    bytes.extend(request.as_bytes());
    bytes
}

/// The history row of a cursor; `None`: it belongs to another request.
fn before(cursor: Option<&[u8]>, request: &str) -> Option<u64> {
    let (last, of) = cursor?.split_first_chunk()?;
    (of == request.as_bytes()).then_some(u64::from_le_bytes(*last))
}

impl Undoing {
    /// These plugins, and the task beside them.
    pub fn new(plugins: Arc<dyn Guests>, own: Proposer) -> Undoing {
        Undoing { plugins, own }
    }
}

impl Proposer {
    /// From what a store has kept. Of the topics that have a route, those with [`UNDONE`] are told.
    pub fn new<'t>(
        store: Arc<dyn Store>,
        routed: impl IntoIterator<Item = &'t String>,
    ) -> Proposer {
        let told = routed.into_iter().filter(|topic| topic.ends_with(UNDONE)).cloned().collect();
        Proposer { store, told }
    }

    /// Whether any topic is told.
    pub fn tells(&self) -> bool {
        !self.told.is_empty()
    }

    /// The first messages of the item with this history row, newest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn sent(&self, history: u64) -> store::Result<Vec<Message>> {
        let (history, limit) = (Some(history), MESSAGES_MAX);
        self.store.messages(&MessageQuery { history, limit, ..MessageQuery::default() }).await
    }

    /// What is told to those to whom an item has sent messages.
    async fn told(&self, undone: &Undone) -> store::Result<Vec<Change>> {
        if !self.tells() {
            return Ok(Vec::new());
        }
        let sent = self.sent(undone.history).await?;
        let tell = |message: Message| {
            let topic = format!("{}{UNDONE}", message.topic);
            let told = Told {
                message: message.delivery.id,
                task: undone.identity.task.as_str(),
                run: undone.run.0,
                item: &undone.identity.key,
            };
            let payload = serde_json::to_vec(&told).unwrap_or_default();
            let is_told = self.told.contains(&topic);
            is_told.then_some(Change::Emit { topic, key: message.key, payload })
        };
        Ok(sent.into_iter().rev().filter_map(tell).collect())
    }

    async fn scan_history(
        &self,
        call: &Call,
        at: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page, Error> {
        let usage = Usage::default();
        // A pass of other tasks, or a run that nobody has asked for.
        let Some((request, id)) = undo::requested(&call.settings) else {
            return Ok(Page {
                candidates: Vec::new(),
                next: None,
                scanned: 0,
                left_out: LeftOut::default(),
                usage,
            });
        };
        let target =
            Target::parse(&request.target).map_err(|why| Error::Guest(Fault::new("error", why)))?;
        let mut read =
            history::Rows::of_target(&*self.store, &target).paged(before(at, &id), limit);
        let rows = read.page().await.map_err(infrastructure)?;
        let candidate = |row: &HistoryRow| Candidate {
            tenant: row.identity.tenant.clone(),
            key: key_of(row.run, row.id),
            // One stream keeps the order: a run may delete a row that has come back since.
            route: undo::TASK.to_owned(),
            due: None,
            version: id.clone(),
            payload: serde_json::to_vec(&Undone::of(row)).unwrap_or_default(),
        };
        let candidates: Vec<Candidate> =
            rows.iter().filter(|row| is_part(&request, row)).map(candidate).collect();
        let next = read.more().map(|last| cursor(&id, last));
        let scanned = rows.len() as u64;
        let usage = Usage { rows_read: scanned.max(1), ..usage };
        Ok(Page { candidates, next, scanned, left_out: LeftOut::default(), usage })
    }

    async fn act_on(
        &self,
        request: Option<&Undo>,
        item: &Item,
        plugins: &Plugins,
    ) -> Result<Verdict, Error> {
        let undone = serde_json::from_slice::<Undone>(&item.payload);
        let (Some(request), Ok(undone)) = (request, undone) else {
            let reason = "it belongs to no request".to_owned();
            return Ok(Verdict::Skip { reason, settled: true });
        };
        self.judge(request, &undone, plugins).await.map_err(infrastructure)
    }

    /// What the task would propose for a history row.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn propose(
        &self,
        request: &Undo,
        row: &HistoryRow,
        plugins: &Plugins,
    ) -> store::Result<Verdict> {
        self.judge(request, &Undone::of(row), plugins).await
    }

    async fn judge(
        &self,
        request: &Undo,
        undone: &Undone,
        plugins: &Plugins,
    ) -> store::Result<Verdict> {
        let skip = |reason: String| Ok(Verdict::Skip { reason, settled: true });
        let whole = match self.terms(undone, plugins).await? {
            Terms::Rows => false,
            Terms::Whole => true,
            Terms::Never(why) => return skip(why.to_owned()),
        };
        let Identity { task, key, .. } = &undone.identity;
        let only = request.only(&key_of(undone.run, undone.history));
        if whole && only.is_some() {
            return skip(format!(
                "{task} {key} is undone as a whole or not at all: rows of it cannot be chosen"
            ));
        }
        let Some(kept) = self.store.kept(undone.history).await? else {
            if request.plan_again {
                return Ok(only_planned_again(undone));
            }
            return skip(format!(
                "the rows of {task} {key} are kept no longer (keep_removed, or purged), or never were"
            ));
        };
        if whole && kept.purged > 0 {
            return skip(format!(
                "{} of {task} {key} were purged, and it is undone as a whole or not at all",
                counted(kept.purged, "row")
            ));
        }
        let recorded = Recorded::of_item(&*self.store, undone.run, undone.history).await?;
        if let Some(by) = recorded.by(undone.run, undone.history) {
            return match request.plan_again {
                true => Ok(only_planned_again(undone)),
                false => skip(format!("{ALREADY} by run {by}")),
            };
        }
        let Standing { earlier, reverted } = recorded.standing(undone.run, undone.history);
        // Who was told by an earlier attempt is not told again.
        let told = if earlier.is_empty() { self.told(undone).await? } else { Vec::new() };
        // What is no longer blocked is so whatever its version is.
        let version = kept.version.or_else(|| request.plan_again.then(String::new));
        let mut collections = kept.collections;
        let others = kept.purged_of.iter().filter(|name| !collections.contains(name));
        let others: Vec<String> = others.cloned().collect();
        collections.extend(others);
        let restore = Restore {
            history: undone.history,
            again: if request.plan_again { Again::Yes } else { Again::No },
            undone: version.map(|version| undone.item(version)),
            collections,
            rows: kept.rows,
            forced: Arc::new(request.forced.iter().cloned().collect()),
            earlier,
            reverted,
            // Rows that were not chosen are not missed.
            purged: if only.is_some() { 0 } else { kept.purged },
            only: only.map(Arc::new),
            purged_of: kept.purged_of,
            whole,
        };
        Ok(proposed(undone, restore, (told, Vec::new())))
    }

    /// How an item is undone.
    async fn terms(&self, undone: &Undone, plugins: &Plugins) -> store::Result<Terms> {
        let (mut run, mut number) = (undone.run, undone.history);
        // The undo of an undo is that of its origin.
        for _ in 0..DEPTH_MAX {
            let plugin = plugins.of(&*self.store, run).await?;
            let is_undo = match plugin.as_deref() {
                Some(COMPACTION) => false,
                Some(undo::TASK) => true,
                _ => return Ok(Terms::Rows),
            };
            let query = HistoryQuery {
                run: Some(run),
                before: Some(number.saturating_add(1)),
                limit: 1,
                ..HistoryQuery::default()
            };
            let row = self.store.history(&query).await?.into_iter().find(|row| row.id == number);
            let Some(row) = row else { return Ok(Terms::Whole) };
            if !is_undo {
                let is_reset = |note: &Field| {
                    note.name == MODE.0 && note.value == Value::Text(MODE.1.to_owned())
                };
                return Ok(match row.notes.iter().any(is_reset) {
                    true => Terms::Never(RESET),
                    false => Terms::Whole,
                });
            }
            match (Target::parse(&row.identity.key).ok()).map(|of| (of.number(), of)) {
                Some((Some(of), Target::Item(origin, _))) => (run, number) = (origin, of),
                _ => return Ok(Terms::Rows),
            }
        }
        Ok(Terms::Whole)
    }
}

fn proposed(undone: &Undone, restore: Restore, (told, more): (Vec<Change>, Vec<Field>)) -> Verdict {
    let Identity { task, key, .. } = &undone.identity;
    let mut notes = vec![
        Field::new("task", Value::Text(task.to_string())),
        Field::new("key", Value::Text(key.clone())),
    ];
    notes.extend(more);
    Verdict::Propose(Proposal {
        guards: Vec::new(),
        changes: std::iter::once(Change::Restore(Arc::new(restore))).chain(told).collect(),
        on_guard_failed: OnGuardFailed::Skip("it could not be undone".to_owned()),
        notes,
    })
}

/// Puts nothing back, and lets the task plan the item again.
fn only_planned_again(undone: &Undone) -> Verdict {
    let restore = Restore {
        history: undone.history,
        undone: Some(undone.item(String::new())),
        again: Again::Only,
        ..Restore::default()
    };
    let note = Field::new(ONLY_PLANNED_AGAIN, Value::Bool(true));
    proposed(undone, restore, (Vec::new(), vec![note]))
}

/// The number of rows that a verdict puts back.
fn rows_of(verdict: &Verdict) -> u64 {
    match verdict {
        Verdict::Propose(proposal) => proposal.rows(),
        Verdict::Skip { .. } | Verdict::Retry { .. } | Verdict::Dead { .. } => 0,
    }
}

fn infrastructure(error: store::Error) -> Error {
    match error {
        store::Error::Refused(cause, why) => Error::Refused(cause, why),
        error => Error::Infrastructure(error.to_string()),
    }
}

#[async_trait]
impl Guests for Undoing {
    fn manifest(&self, digest: &str) -> Option<Arc<Manifest>> {
        self.plugins.manifest(digest)
    }

    async fn tenants(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>, Error> {
        self.plugins.tenants(call, view, activity, after, limit).await
    }

    async fn scan(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        tenant: Option<&Tenant>,
        cursor: Option<&[u8]>,
        limit: u32,
    ) -> Result<Page, Error> {
        match call.digest == DIGEST {
            true => self.own.scan_history(call, cursor, limit).await,
            false => self.plugins.scan(call, view, activity, tenant, cursor, limit).await,
        }
    }

    async fn act(
        &self,
        call: &Call,
        view: Arc<dyn ReadView>,
        activity: Arc<dyn Activity>,
        items: &[Item],
    ) -> Result<Acted, Error> {
        if call.digest != DIGEST {
            return self.plugins.act(call, view, activity, items).await;
        }
        let plugins = Plugins::default();
        // Whether an undo was undone is seen once that is committed.
        let request = undo::requested(&call.settings).map(|(request, _)| request);
        let alone = request.as_ref().is_some_and(|request| {
            let target = Target::parse(&request.target);
            matches!(target, Ok(Target::Span { task, .. }) if task.as_str() == undo::TASK)
        });
        let (mut verdicts, mut rows) = (Vec::with_capacity(items.len()), 0);
        let is_full = |rows| alone || rows > ROWS_TOGETHER;
        // Some at a time: each waits for the store several times.
        for some in items.chunks(ACTING) {
            if let Some(why) = call.stop.reason() {
                return Err(Error::Stopped(why.to_owned()));
            }
            if !verdicts.is_empty() && is_full(rows) {
                verdicts.extend(some.iter().map(|_| Err(Fault::no_room())));
                continue;
            }
            let mut acting = Vec::with_capacity(some.len());
            for item in some {
                acting.push(self.own.act_on(request.as_ref(), item, &plugins).boxed());
            }
            for verdict in try_join_all(acting).await? {
                rows += rows_of(&verdict);
                let fits = verdicts.is_empty() || !is_full(rows);
                verdicts.push(if fits { Ok(verdict) } else { Err(Fault::no_room()) });
            }
        }
        Ok(Acted { verdicts, usage: Usage::default() })
    }
}
