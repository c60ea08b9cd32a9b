//! Limits what a task may leave behind: items waiting for their time, dead letters, messages waiting
//! for delivery, free disk space, and text in the history.
//!
//! If one of the first four is exhausted, the task's work is refused: the task is held and no item
//! uses an attempt. Text beyond its limit is dropped. So are the oldest messages of topics without
//! a route, because they cannot be delivered and must not hold up the task.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use besom_core::command::counted;
use besom_core::ids::{TaskName, Term};
use besom_core::proposal::{Change, OnGuardFailed, Verdict};
use besom_core::queue::Decision;
use besom_snapshot::Cause;

use besom_ports::guests::Acted;
use besom_ports::store::{self, Batch, Pending, Store};

/// How long a measurement is used.
const MEASURED_FOR: Duration = Duration::from_secs(5);
/// How soon a value over its limit is measured again.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The period over which text in the history is counted.
const TEXT_SPAN: Duration = Duration::from_secs(24 * 3600);
/// The length to which reasons beyond the limit are truncated, in bytes.
const REASON_BYTES_LEFT: usize = 256;

/// If there are too many messages without a route, this percentage of them is removed at a time,
/// oldest first, and at most this number in one transaction.
const DROP_PERCENT: u64 = 10;
const DROP_MAX: u32 = 10_000;
/// How often messages are removed before one commit; the next commit continues.
const DROPS_MAX: u32 = 10;

/// A task and a topic to which it emits.
type Lane = (TaskName, String);

/// What a batch leaves behind, by task and topic.
#[derive(Debug, Default)]
pub struct Left(BTreeMap<Lane, Pending>);

/// The limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of messages of one task to one topic that wait for delivery.
    pub pending_messages: u32,
    /// Maximum size of these messages, in bytes.
    pub pending_bytes: u64,
    /// The topics that have a route. For any other topic, the oldest messages are removed and the
    /// task is not held.
    pub routed: BTreeSet<String>,
    /// Maximum size of the notes and reasons that a task leaves in the history per day, in bytes.
    pub history_text: u64,
    /// The database file on a local disk, and the number of bytes to keep free there.
    pub disk: Option<(PathBuf, u64)>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            pending_messages: 100_000,
            pending_bytes: 1 << 30,
            routed: BTreeSet::new(),
            history_text: 1 << 30,
            disk: None,
        }
    }
}

/// Why no more messages of `whose` to a topic may wait: these reach a maximum, of their number or of
/// their size in bytes.
pub(super) fn full(
    pending: Pending,
    (messages_max, bytes_max): (u32, u64),
    whose: &str,
    topic: &str,
) -> Option<String> {
    let (what, key) = if pending.messages >= u64::from(messages_max) {
        (counted(pending.messages, "message"), "pending_max")
    } else if pending.bytes >= bytes_max {
        (format!("{} MiB of messages", pending.bytes >> 20), "pending_bytes_max")
    } else {
        return None;
    };
    Some(format!(
        "{what} of {whose} to the topic `{topic}` are waiting to be delivered, which reaches \
         `delivery.{key}`: see `besom outbox ls --topic {topic}`"
    ))
}

/// The measurements, and what was added since.
#[derive(Debug, Default)]
pub struct Quota {
    bounds: Bounds,
    lanes: Mutex<BTreeMap<Lane, Measured>>,
    open: Mutex<Option<(Instant, BTreeMap<TaskName, Open>)>>,
    /// Held during a measurement; other callers use the last known value.
    measuring: tokio::sync::Mutex<()>,
    disk: Mutex<Option<(Instant, Result<(), String>)>>,
    text: Mutex<BTreeMap<TaskName, (Instant, u64)>>,
    queued: Mutex<BTreeMap<TaskName, Queued>>,
}

/// What waits in the queue of a task at most: what was measured, and what this leadership has planned
/// since. Nobody else plans, and everything else only makes it less.
#[derive(Debug, Clone, Copy)]
struct Queued {
    term: Term,
    most: u64,
}

/// The items of a task that have not ended.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// Timers and retries.
    waiting: u64,
    /// Dead letters.
    dead: u64,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    pending: Pending,
}

impl Quota {
    /// Creates a quota without measurements.
    pub fn new(bounds: Bounds) -> Quota {
        Quota { bounds, ..Quota::default() }
    }

    /// Checks that the disk has room for more data.
    ///
    /// # Errors
    /// [`store::Error::Refused`], naming the space that is missing.
    pub fn disk_room(&self) -> store::Result<()> {
        self.free_enough().map_err(|why| store::Error::Refused(Cause::Full, why))
    }

    /// Checks that there is room for what a batch leaves behind, and returns what that is.
    ///
    /// # Errors
    /// [`store::Error::Refused`], naming what is full and how to empty it; or an error of the
    /// store.
    pub async fn room_for(&self, store: &dyn Store, batch: &Batch) -> store::Result<Left> {
        self.disk_room()?;
        let left = Left(emitted(batch));
        for lane in left.0.keys() {
            let pending = self.pending(lane, async || self.count(store, lane).await).await?;
            let Some(why) = self.over(lane, pending) else { continue };
            if self.bounds.routed.contains(&lane.1) {
                return Err(store::Error::Refused(Cause::Full, why));
            }
            self.drop_oldest(store, lane, pending).await?;
        }
        Ok(left)
    }

    /// Records what a batch has left behind.
    pub fn note(&self, left: &Left) {
        if left.0.is_empty() {
            return;
        }
        let mut lanes = self.lanes();
        for (lane, added) in &left.0 {
            if let Some(known) = lanes.get_mut(lane) {
                known.pending.messages += added.messages;
                known.pending.bytes += added.bytes;
            }
        }
    }

    /// Checks that a task may plan more: fewer than `timers_max` of its items may be waiting for their
    /// time, and fewer than `dead_max` may be open dead letters.
    ///
    /// # Errors
    /// [`store::Error::Refused`], naming how many there are; or an error of the store.
    pub async fn room_to_plan(
        &self,
        store: &dyn Store,
        task: &TaskName,
        timers_max: u32,
        dead_max: u32,
    ) -> store::Result<()> {
        let (timers_max, dead_max) = (u64::from(timers_max), u64::from(dead_max));
        let is_full = |open: Open| open.waiting >= timers_max || open.dead >= dead_max;
        let Open { waiting, dead } = self.open(store, task, is_full).await?;
        let why = if waiting >= timers_max {
            format!(
                "{waiting} timers and retries of `{task}` are waiting, which reaches \
                 `tasks.{task}.timers_max`: it plans no more items until fewer are waiting"
            )
        } else if dead >= dead_max {
            format!(
                "{dead} dead letters of `{task}` are open, which reaches `tasks.{task}.dead_max`: it \
                 plans no more items until some are retried or discarded: see \
                 `besom dead ls --task {task}`"
            )
        } else {
            return Ok(());
        };
        Err(store::Error::Refused(Cause::Full, why))
    }

    /// The most items that can wait in the queue of a task; `None`: this leadership has not measured them.
    pub fn queued_most(&self, task: &TaskName, term: Term) -> Option<u64> {
        self.queued().get(task).filter(|known| known.term == term).map(|known| known.most)
    }

    /// Records how many items wait in the queue of a task.
    pub fn note_queue(&self, task: &TaskName, term: Term, waiting: u64) {
        self.queued().insert(task.clone(), Queued { term, most: waiting });
    }

    /// Records the result of planning a page of a task: how many items, or that this is not known.
    pub fn note_queued(&self, task: &TaskName, term: Term, planned: Option<u64>) {
        let mut queued = self.queued();
        match (queued.get_mut(task), planned) {
            (Some(known), Some(planned)) if known.term == term => known.most += planned,
            _ => drop(queued.remove(task)),
        }
    }

    fn queued(&self) -> MutexGuard<'_, BTreeMap<TaskName, Queued>> {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records how many items of a task have been added to those waiting for their time.
    pub fn note_planned(&self, task: &TaskName, timers: u64) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = &mut *open
            && timers > 0
        {
            known.entry(task.clone()).or_default().waiting += timers;
        }
    }

    /// Removes text beyond the limit: notes, and reasons after their first [`REASON_BYTES_LEFT`].
    pub fn bound_text(&self, task: &TaskName, acted: &mut Acted) {
        let said: u64 = acted.verdicts.iter().flatten().map(text_bytes).sum();
        let mut text = self.text.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) = text.entry(task.clone()).or_insert_with(|| (Instant::now(), 0));
        if since.elapsed() >= TEXT_SPAN {
            (*since, *before) = (Instant::now(), 0);
        }
        let most = self.bounds.history_text;
        if *before + said <= most {
            *before += said;
            return;
        }
        if *before <= most {
            tracing::warn!(
                %task,
                bytes = *before + said,
                "the task has reached `host.history_text_max` for one day: notes are dropped and \
                 reasons truncated for the rest of it"
            );
        }
        *before = most + 1;
        drop(text);
        for verdict in acted.verdicts.iter_mut().flatten() {
            let reason = match verdict {
                Verdict::Propose(proposal) => {
                    proposal.notes.clear();
                    match &mut proposal.on_guard_failed {
                        OnGuardFailed::Skip(reason) => reason,
                        OnGuardFailed::Retry(_) => continue,
                    }
                }
                Verdict::Skip { reason, .. }
                | Verdict::Retry { reason, .. }
                | Verdict::Dead { reason } => reason,
            };
            reason.truncate(reason.floor_char_boundary(REASON_BYTES_LEFT));
        }
    }

    fn lanes(&self) -> MutexGuard<'_, BTreeMap<Lane, Measured>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self, (task, topic): &Lane, pending: Pending) -> Option<String> {
        let Bounds { pending_messages, pending_bytes, .. } = self.bounds;
        full(pending, (pending_messages, pending_bytes), &format!("`{task}`"), topic)
    }

    /// What is waiting in a lane: the known value, or the result of `measure`. Only one caller
    /// measures at a time; others use an earlier value if there is one.
    async fn pending(
        &self,
        lane: &Lane,
        measure: impl AsyncFnOnce() -> store::Result<Pending>,
    ) -> store::Result<Pending> {
        let known = || self.lanes().get(lane).copied();
        let is_fresh = |known: &Measured| {
            let is_full = self.over(lane, known.pending).is_some();
            known.at.elapsed() < if is_full { AGAIN_AFTER } else { MEASURED_FOR }
        };
        let before = known();
        if let Some(fresh) = before.filter(is_fresh) {
            return Ok(fresh.pending);
        }
        let _measuring = match (self.measuring.try_lock(), before) {
            (Ok(guard), _) => guard,
            (Err(_), Some(before)) => return Ok(before.pending),
            (Err(_), None) => self.measuring.lock().await,
        };
        if let Some(fresh) = known().filter(is_fresh) {
            return Ok(fresh.pending);
        }
        let at = Instant::now();
        let pending = measure().await?;
        self.lanes().insert(lane.clone(), Measured { at, pending });
        Ok(pending)
    }

    /// The items of a task that have not ended; a full value is measured again sooner.
    async fn open(
        &self,
        store: &dyn Store,
        task: &TaskName,
        is_full: impl Fn(Open) -> bool,
    ) -> store::Result<Open> {
        let known = || {
            let known = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            let (at, all) = known.as_ref()?;
            let open = all.get(task).copied().unwrap_or_default();
            let lasts = if is_full(open) { AGAIN_AFTER } else { MEASURED_FOR };
            (at.elapsed() < lasts).then_some(open)
        };
        if let Some(open) = known() {
            return Ok(open);
        }
        let _measuring = self.measuring.lock().await;
        if let Some(open) = known() {
            return Ok(open);
        }
        let at = Instant::now();
        let of = |depth: store::Depth| {
            let waiting = depth.timers + depth.retries;
            Some((depth.task?, Open { waiting, dead: depth.dead }))
        };
        let all: BTreeMap<TaskName, Open> =
            store.depths().await?.into_iter().filter_map(of).collect();
        let open = all.get(task).copied().unwrap_or_default();
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = Some((at, all));
        Ok(open)
    }

    /// Counts what waits in a lane, far enough to know how much has to be removed at once.
    async fn count(&self, store: &dyn Store, (task, topic): &Lane) -> store::Result<Pending> {
        let limit = self.bounds.pending_messages.saturating_add(DROP_MAX);
        store.pending_messages(Some(task), topic, limit).await
    }

    /// Makes room in a lane without a route.
    async fn drop_oldest(
        &self,
        store: &dyn Store,
        lane: &Lane,
        mut pending: Pending,
    ) -> store::Result<()> {
        let (task, topic) = lane;
        let mut dropped = 0;
        let kept = u64::from(self.bounds.pending_messages) * (100 - DROP_PERCENT) / 100;
        for _ in 0..DROPS_MAX {
            if self.over(lane, pending).is_none() {
                break;
            }
            let beyond = pending.messages.saturating_sub(kept);
            let count = beyond.max(pending.messages * DROP_PERCENT / 100);
            let count = u32::try_from(count).unwrap_or(DROP_MAX).clamp(1, DROP_MAX);
            let gone = store.drop_messages(task, topic, count).await?;
            if gone.messages == 0 {
                break;
            }
            dropped += gone.messages;
            pending = self.count(store, lane).await?;
        }
        if let Some(known) = self.lanes().get_mut(lane) {
            known.pending = pending;
        }
        if dropped > 0 {
            tracing::warn!(
                %task, topic, dropped,
                "the oldest messages of a topic without a route are removed: the topic exceeds \
                 `delivery.pending_max` or `pending_bytes_max`"
            );
        }
        Ok(())
    }

    fn free_enough(&self) -> Result<(), String> {
        let Some((path, left)) = &self.bounds.disk else { return Ok(()) };
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, known)) = &*disk
            && at.elapsed() < MEASURED_FOR
        {
            return known.clone();
        }
        // If the free space cannot be determined, the store will report the problem.
        let free = free(path).unwrap_or(u64::MAX);
        let room = if free >= *left {
            Ok(())
        } else {
            Err(format!(
                "the disk of {} has {} MiB left, less than the minimum of {} MiB \
                 (`store.disk_free_min`): free disk space to continue",
                path.display(),
                free >> 20,
                left >> 20
            ))
        };
        *disk = Some((Instant::now(), room.clone()));
        room
    }
}

/// The space that this user may still write there, in bytes.
fn free(path: &std::path::Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The size of the text of a verdict that is written to the history, in bytes.
fn text_bytes(verdict: &Verdict) -> u64 {
    let bytes = match verdict {
        Verdict::Propose(proposal) => {
            let reason = match &proposal.on_guard_failed {
                OnGuardFailed::Skip(reason) => reason.len(),
                OnGuardFailed::Retry(_) => 0,
            };
            proposal.notes.iter().map(|n| n.name.len() + n.value.weight()).sum::<usize>() + reason
        }
        Verdict::Skip { reason, .. } | Verdict::Retry { reason, .. } | Verdict::Dead { reason } => {
            reason.len()
        }
    };
    bytes as u64
}

/// The messages that a batch emits.
fn emitted(batch: &Batch) -> BTreeMap<Lane, Pending> {
    let mut emitted: BTreeMap<Lane, Pending> = BTreeMap::new();
    for entry in &batch.entries {
        let Decision::Apply { proposal, .. } = &entry.decision else { continue };
        for change in &proposal.changes {
            let Change::Emit { topic, key, payload } = change else { continue };
            let lane = (entry.item.identity.task.clone(), topic.clone());
            let pending = emitted.entry(lane).or_default();
            pending.messages += 1;
            pending.bytes += (key.len() + payload.len()) as u64;
        }
    }
    emitted
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_core::ids::{CommitId, OwnerEpoch, Partition, RunId, Seq, Term};
    use besom_core::item::{Identity, Item, Source};
    use besom_core::proposal::{Proposal, Settle};
    use besom_core::time::Time;

    use super::*;
    use besom_core::value::{Field, Value};

    use besom_doubles::store::MemoryStore;
    use besom_ports::activity::Timeouts;
    use besom_ports::store::{Entry, MessageQuery};

    fn store() -> MemoryStore {
        MemoryStore::new(1, Timeouts::default(), Arc::new(|| Time::EPOCH))
    }

    /// A batch of a task that emits 100 bytes to each of these topics.
    fn batch(task: &str, topics: &[&str]) -> Batch {
        let emit = |topic: &&str| Change::Emit {
            topic: (*topic).into(),
            key: "k".into(),
            payload: vec![0; 99],
        };
        let settle = || Settle::Skip { reason: String::new(), settled: false };
        let proposal = Proposal {
            guards: Vec::new(),
            changes: topics.iter().map(emit).collect(),
            on_guard_failed: OnGuardFailed::Skip(String::new()),
            notes: Vec::new(),
        };
        let item = Item {
            identity: Identity { task: task.into(), tenant: None, key: "k".into(), due: None },
            route: "k".into(),
            partition: Partition(0),
            version: String::new(),
            payload: Vec::new(),
            run: RunId(1),
            planned_at: Time::EPOCH,
            attempts: 0,
            guard_retries: 0,
            deaths: 0,
            errors: Vec::new(),
        };
        let decision = Decision::Apply {
            on_guard_failed: settle(),
            on_violation: settle(),
            proposal,
            undo: false,
        };
        let entry = Entry { source: Source::Log(Seq(1)), item, epoch: OwnerEpoch(1), decision };
        Batch {
            id: CommitId(1),
            node: "n".into(),
            entries: vec![entry],
            as_of: Time::EPOCH,
            idle: Vec::new(),
            activity_in_store: false,
            lane: besom_ports::guests::Lane::Normal,
            braked: false,
        }
    }

    fn refused<T: std::fmt::Debug>(room: store::Result<T>) -> String {
        match room {
            Err(store::Error::Refused(Cause::Full, why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_task_that_left_too_much_behind_is_refused_and_its_neighbours_are_not() {
        let routed = || BTreeSet::from(["t".to_owned(), "u".to_owned()]);
        let few = Bounds { pending_messages: 2, routed: routed(), ..Bounds::default() };
        let small = Bounds { pending_bytes: 200, routed: routed(), ..Bounds::default() };
        for (bounds, words) in [
            (few, ["2 messages of `sweep` to the topic `t`", "`delivery.pending_max`"]),
            (small, ["MiB of messages of `sweep`", "`delivery.pending_bytes_max`"]),
        ] {
            let (quota, store) = (Quota::new(bounds), store());
            for _ in 0..2 {
                let left = quota.room_for(&store, &batch("sweep", &["t"])).await.expect("room");
                quota.note(&left);
            }
            let why = refused(quota.room_for(&store, &batch("sweep", &["u", "t"])).await);
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
            for neighbour in [batch("sweep", &["u"]), batch("another", &["t"]), batch("sweep", &[])]
            {
                quota.room_for(&store, &neighbour).await.expect("room");
            }
        }
    }

    /// Messages without a route are never delivered, so no task waits for that.
    #[tokio::test]
    async fn a_topic_without_a_route_holds_no_task() {
        let bounds = Bounds { pending_messages: 2, pending_bytes: 200, ..Bounds::default() };
        let (quota, store) = (Quota::new(bounds), store());
        for _ in 0..5 {
            let left = quota.room_for(&store, &batch("sweep", &["t"])).await.expect("room");
            quota.note(&left);
        }
    }

    /// What exceeds the bound is removed from the store, the oldest first.
    #[tokio::test]
    async fn the_oldest_messages_of_a_topic_without_a_route_are_removed() {
        let bounds = Bounds { pending_messages: 20, ..Bounds::default() };
        let (quota, store, task) = (Quota::new(bounds), store(), "sweep".into());
        let emit = |n: u8| Change::Emit { topic: "t".into(), key: "k".into(), payload: vec![n] };
        for id in 0..30 {
            let Decision::Apply { mut proposal, .. } =
                batch("sweep", &[]).entries.remove(0).decision
            else {
                panic!("a proposal")
            };
            proposal.changes.push(emit(id));
            let identity =
                Identity { task: "sweep".into(), tenant: None, key: "k".into(), due: None };
            let entry = Entry::unqueued(Term(1), identity, Time::EPOCH, proposal, "", false);
            let entries = vec![entry];
            let id = CommitId(u128::from(id) + 1);
            store.commit(&Batch { id, entries, ..batch("sweep", &[]) }).await.expect("a commit");
        }
        let next = batch("sweep", &["t"]);
        quota.room_for(&store, &next).await.expect("room");
        let pending = store.pending_messages(Some(&task), "t", u32::MAX).await.expect("a count");
        assert_eq!(pending.messages, 18);
        let query = MessageQuery { limit: u32::MAX, ..MessageQuery::default() };
        let left = store.messages(&query).await.expect("the messages");
        assert_eq!(left.len() as u64, pending.messages);
        let payloads: Vec<u8> = left.iter().map(|message| message.delivery.payload[0]).collect();
        let newest: Vec<u8> = (0..30).rev().take(left.len()).collect();
        assert_eq!(payloads, newest);
    }

    #[tokio::test]
    async fn one_measures_and_the_others_go_on_with_what_is_known() {
        let quota = Quota::new(Bounds::default());
        let lane: Lane = ("sweep".into(), "t".into());
        let counted = |messages| Pending { messages, bytes: 0 };
        let first = quota.pending(&lane, async || Ok(counted(1))).await.expect("a count");
        assert_eq!(first.messages, 1);
        let unasked = async || panic!("it is known already");
        assert_eq!(quota.pending(&lane, unasked).await.expect("a count").messages, 1);
        let old = Instant::now().checked_sub(MEASURED_FOR).expect("a machine up for seconds");
        quota.lanes().get_mut(&lane).expect("it is known").at = old;
        let (answer, answered) = tokio::sync::oneshot::channel();
        let slow = quota.pending(&lane, async || Ok(counted(answered.await.expect("it answers"))));
        let meanwhile = async {
            let unasked = async || panic!("somebody measures already");
            let known = quota.pending(&lane, unasked).await.expect("a count").messages;
            answer.send(7).expect("somebody measures");
            known
        };
        let (measured, known) = tokio::join!(slow, meanwhile);
        assert_eq!((measured.expect("a count").messages, known), (7, 1));
    }

    #[tokio::test]
    async fn who_plans_without_end_for_later_is_refused() {
        let (quota, store, task) = (Quota::new(Bounds::default()), store(), "sweep".into());
        quota.room_to_plan(&store, &task, 10, 10).await.expect("room");
        quota.note_planned(&task, 9);
        quota.note_planned(&"another".into(), 100);
        quota.room_to_plan(&store, &task, 10, 10).await.expect("room");
        quota.note_planned(&task, 1);
        let why = refused(quota.room_to_plan(&store, &task, 10, 10).await);
        assert!(why.contains("10 timers and retries of `sweep`"), "{why}");
        assert!(why.contains("`tasks.sweep.timers_max`"), "{why}");
    }

    #[tokio::test]
    async fn who_plans_what_cannot_be_done_is_refused() {
        let (quota, store, task) = (Quota::new(Bounds::default()), store(), "sweep".into());
        let counted = |dead| {
            let all = [("sweep".into(), Open { waiting: 0, dead })].into();
            *quota.open.lock().expect("no panic") = Some((Instant::now(), all));
        };
        counted(9);
        quota.room_to_plan(&store, &task, 10, 10).await.expect("room");
        counted(10);
        let why = refused(quota.room_to_plan(&store, &task, 10, 10).await);
        assert!(why.contains("10 dead letters of `sweep` are open"), "{why}");
        assert!(why.contains("`tasks.sweep.dead_max`"), "{why}");
    }

    #[test]
    fn what_a_queue_holds_at_most_is_known_to_the_leadership_that_has_measured_it() {
        let (quota, task) = (Quota::default(), TaskName::from("sweep"));
        assert_eq!(quota.queued_most(&task, Term(1)), None);
        quota.note_queue(&task, Term(1), 40);
        quota.note_queued(&task, Term(1), Some(2));
        assert_eq!(quota.queued_most(&task, Term(1)), Some(42));
        // Another leadership may have planned in between.
        assert_eq!(quota.queued_most(&task, Term(2)), None);
        // A page of which nobody knows whether it was planned.
        quota.note_queued(&task, Term(1), None);
        assert_eq!(quota.queued_most(&task, Term(1)), None);
    }

    #[test]
    fn text_beyond_the_bound_is_left_out_and_the_verdicts_stay() {
        let quota = Quota::new(Bounds { history_text: 2_000, ..Bounds::default() });
        let acted = || {
            let mut proposal = batch("sweep", &["t"]).entries.remove(0).decision;
            let Decision::Apply { proposal, .. } = &mut proposal else { panic!("it is applied") };
            proposal.notes = vec![Field::new("why", Value::Text("x".repeat(500)))];
            let dead = Verdict::Dead { reason: "é".repeat(200) };
            let verdicts = vec![Ok(Verdict::Propose(proposal.clone())), Ok(dead)];
            Acted { verdicts, usage: Default::default() }
        };
        let bounded = |task: &str| {
            let mut said = acted();
            quota.bound_text(&task.into(), &mut said);
            let [Ok(Verdict::Propose(proposal)), Ok(Verdict::Dead { reason })] = &said.verdicts[..]
            else {
                panic!("{said:?}")
            };
            assert_eq!(proposal.changes.len(), 1);
            (proposal.notes.len(), reason.len())
        };
        assert_eq!([bounded("sweep"), bounded("sweep")], [(1, 400), (1, 400)]);
        assert_eq!([bounded("sweep"), bounded("sweep")], [(0, 256), (0, 256)]);
        assert_eq!(bounded("another"), (1, 400), "a neighbour has a bound of its own");
    }

    #[tokio::test]
    async fn a_disk_that_is_nearly_full_refuses_everything_and_names_what_to_do() {
        let disk = |free| Some((std::env::temp_dir(), free));
        let quota = Quota::new(Bounds { disk: disk(u64::MAX), ..Bounds::default() });
        let why = refused(quota.room_for(&store(), &batch("sweep", &[])).await);
        assert!(why.contains("`store.disk_free_min`"), "{why}");
        // Nothing is planned either.
        assert_eq!(refused(quota.disk_room()), why);
        let quota = Quota::new(Bounds { disk: disk(1), ..Bounds::default() });
        quota.room_for(&store(), &batch("sweep", &[])).await.expect("room");
    }
}
