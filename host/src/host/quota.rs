//! How much a task may leave behind: messages that wait to be delivered, what is left of the disk,
//! and text in the history. Who has no room for the first two is refused, which holds its task and
//! costs no item an attempt; text beyond its bound is left out, for it holds nothing up.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use besom_core::ids::TaskName;
use besom_core::proposal::{Change, OnGuardFailed, Verdict};
use besom_core::queue::Decision;
use besom_core::snapshot::Cause;

use crate::ports::guests::Acted;
use crate::ports::store::{self, Batch, Pending, Store};

/// How long a measurement counts.
const MEASURED_FOR: Duration = Duration::from_secs(5);
/// What is over its bound is measured again after so long.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The span for which text in the history is counted.
const TEXT_SPAN: Duration = Duration::from_secs(24 * 3600);
/// What is left of a reason beyond the bound, in bytes.
const REASON_BYTES_LEFT: usize = 256;

/// A task and a topic that it emits to.
type Lane = (TaskName, String);

/// The bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Messages of a task to one topic that wait to be delivered.
    pub pending_messages: u32,
    /// The bytes of these.
    pub pending_bytes: u64,
    /// Bytes of notes and reasons that a task leaves in the history in a day.
    pub history_text: u64,
    /// The database's file on a disk of this machine, and the bytes that are left free there.
    pub disk: Option<(PathBuf, u64)>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            pending_messages: 100_000,
            pending_bytes: 1 << 30,
            history_text: 1 << 30,
            disk: None,
        }
    }
}

/// What was measured, and what was added since.
#[derive(Debug, Default)]
pub struct Quota {
    bounds: Bounds,
    lanes: Mutex<BTreeMap<Lane, Measured>>,
    disk: Mutex<Option<(Instant, Result<(), String>)>>,
    text: Mutex<BTreeMap<TaskName, (Instant, u64)>>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    pending: Pending,
}

impl Quota {
    /// Nothing is measured yet.
    pub fn new(bounds: Bounds) -> Quota {
        Quota { bounds, lanes: Mutex::default(), disk: Mutex::default(), text: Mutex::default() }
    }

    /// Whether the disk has room for anything.
    ///
    /// # Errors
    /// [`store::Error::Refused`] with how much is missing.
    pub fn disk_room(&self) -> store::Result<()> {
        self.free_enough().map_err(|why| store::Error::Refused(Cause::Full, why))
    }

    /// Whether there is room for what a batch leaves behind.
    ///
    /// # Errors
    /// [`store::Error::Refused`] with what is full and how it is emptied, or the store's own.
    pub async fn room_for(&self, store: &dyn Store, batch: &Batch) -> store::Result<()> {
        self.disk_room()?;
        let lanes: Vec<Lane> = emitted(batch).into_keys().collect();
        for lane in lanes {
            let pending = self.pending(store, &lane).await?;
            if let Some(why) = self.over(&lane, pending) {
                return Err(store::Error::Refused(Cause::Full, why));
            }
        }
        Ok(())
    }

    /// Notes what a batch has left behind.
    pub fn note(&self, batch: &Batch) {
        let emitted = emitted(batch);
        if emitted.is_empty() {
            return;
        }
        let mut lanes = self.lanes();
        for (lane, added) in emitted {
            if let Some(known) = lanes.get_mut(&lane) {
                known.pending.messages += added.messages;
                known.pending.bytes += added.bytes;
            }
        }
    }

    /// Leaves out what a task says beyond its bound: notes, and reasons after their first
    /// [`REASON_BYTES_LEFT`].
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
                "notes are left out and reasons cut for the rest of a day: the task has left as many \
                 bytes in the history as `host.history_text_max` says"
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
        let (what, key) = if pending.messages >= u64::from(pending_messages) {
            (format!("{} messages", pending.messages), "pending_max")
        } else if pending.bytes >= pending_bytes {
            (format!("{} MiB of messages", pending.bytes >> 20), "pending_bytes_max")
        } else {
            return None;
        };
        Some(format!(
            "{what} of `{task}` to the topic `{topic}` wait to be delivered, at most as many as \
             `delivery.{key}` says: see `besom outbox ls --topic {topic}`"
        ))
    }

    async fn pending(&self, store: &dyn Store, lane: &Lane) -> store::Result<Pending> {
        let known = self.lanes().get(lane).copied();
        if let Some(known) = known {
            let is_full = self.over(lane, known.pending).is_some();
            let lasts = if is_full { AGAIN_AFTER } else { MEASURED_FOR };
            if known.at.elapsed() < lasts {
                return Ok(known.pending);
            }
        }
        let at = Instant::now();
        let most = self.bounds.pending_messages;
        let pending = store.pending_messages(&lane.0, &lane.1, most).await?;
        self.lanes().insert(lane.clone(), Measured { at, pending });
        Ok(pending)
    }

    fn free_enough(&self) -> Result<(), String> {
        let Some((path, left)) = &self.bounds.disk else { return Ok(()) };
        let mut disk = self.disk.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, known)) = &*disk
            && at.elapsed() < MEASURED_FOR
        {
            return known.clone();
        }
        // A disk that cannot be asked is the store's to tell of.
        let free = free(path).unwrap_or(u64::MAX);
        let room = if free >= *left {
            Ok(())
        } else {
            Err(format!(
                "the disk of {} has {} MiB left, at least {} MiB are kept free \
                 (`store.disk_free_min`): make room, then it goes on",
                path.display(),
                free >> 20,
                left >> 20
            ))
        };
        *disk = Some((Instant::now(), room.clone()));
        room
    }
}

/// What this user may still write there, in bytes.
fn free(path: &std::path::Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Bytes of a verdict that go into the history.
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

/// What a batch emits.
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

    use besom_core::ids::{CommitId, OwnerEpoch, Partition, RunId, Seq};
    use besom_core::item::{Identity, Item, Source};
    use besom_core::proposal::{Proposal, Settle};
    use besom_core::time::Time;

    use super::*;
    use besom_core::value::{Field, Value};

    use crate::ports::activity::Timeouts;
    use crate::ports::store::Entry;
    use crate::store::memory::MemoryStore;

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
        }
    }

    fn refused(room: store::Result<()>) -> String {
        match room {
            Err(store::Error::Refused(Cause::Full, why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_task_that_left_too_much_behind_is_refused_and_its_neighbours_are_not() {
        let few = Bounds { pending_messages: 2, ..Bounds::default() };
        let small = Bounds { pending_bytes: 200, ..Bounds::default() };
        for (bounds, words) in [
            (few, ["2 messages of `sweep` to the topic `t`", "`delivery.pending_max`"]),
            (small, ["MiB of messages of `sweep`", "`delivery.pending_bytes_max`"]),
        ] {
            let (quota, store) = (Quota::new(bounds), store());
            for _ in 0..2 {
                quota.room_for(&store, &batch("sweep", &["t"])).await.expect("room");
                quota.note(&batch("sweep", &["t"]));
            }
            let why = refused(quota.room_for(&store, &batch("sweep", &["u", "t"])).await);
            assert!(words.iter().all(|word| why.contains(word)), "{why}");
            for neighbour in [batch("sweep", &["u"]), batch("another", &["t"]), batch("sweep", &[])]
            {
                quota.room_for(&store, &neighbour).await.expect("room");
            }
        }
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
        let quota = Quota::new(Bounds { disk: disk(1), ..Bounds::default() });
        quota.room_for(&store(), &batch("sweep", &[])).await.expect("room");
    }
}
