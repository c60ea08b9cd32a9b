//! How much a task may leave behind: messages that wait to be delivered, and what is left of the
//! disk. Who has no room is refused, which holds its task and costs no item an attempt.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use besom_core::proposal::Change;
use besom_core::queue::Decision;
use besom_core::snapshot::Cause;

use crate::ports::store::{self, Batch, Pending, Store};

/// How long a measurement counts.
const MEASURED_FOR: Duration = Duration::from_secs(5);
/// What is over its bound is measured again after so long.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// The bounds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Messages of one topic that wait to be delivered.
    pub pending_messages: u32,
    /// The bytes of these.
    pub pending_bytes: u64,
    /// The database's file on a disk of this machine, and the bytes that are left free there.
    pub disk: Option<(PathBuf, u64)>,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds { pending_messages: 100_000, pending_bytes: 1 << 30, disk: None }
    }
}

/// What was measured, and what was added since.
#[derive(Debug, Default)]
pub struct Quota {
    bounds: Bounds,
    topics: Mutex<BTreeMap<String, Measured>>,
    disk: Mutex<Option<(Instant, Result<(), String>)>>,
}

#[derive(Debug, Clone, Copy)]
struct Measured {
    at: Instant,
    pending: Pending,
}

impl Quota {
    /// Nothing is measured yet.
    pub fn new(bounds: Bounds) -> Quota {
        Quota { bounds, topics: Mutex::default(), disk: Mutex::default() }
    }

    /// Whether there is room for what a task leaves behind that emits to these topics.
    ///
    /// # Errors
    /// [`store::Error::Refused`] with what is full and how it is emptied, or the store's own.
    pub async fn room(&self, store: &dyn Store, topics: &[&str]) -> store::Result<()> {
        self.disk_room().map_err(|why| store::Error::Refused(Cause::Full, why))?;
        for topic in topics {
            let pending = self.pending(store, topic).await?;
            if let Some(why) = self.over(topic, pending) {
                return Err(store::Error::Refused(Cause::Full, why));
            }
        }
        Ok(())
    }

    /// The same for a batch.
    ///
    /// # Errors
    /// As [`Quota::room`].
    pub async fn room_for(&self, store: &dyn Store, batch: &Batch) -> store::Result<()> {
        let topics: Vec<&str> = emitted(batch).into_keys().collect();
        self.room(store, &topics).await
    }

    /// Notes what a batch has left behind.
    pub fn note(&self, batch: &Batch) {
        let emitted = emitted(batch);
        if emitted.is_empty() {
            return;
        }
        let mut topics = self.topics();
        for (topic, added) in emitted {
            if let Some(known) = topics.get_mut(topic) {
                known.pending.messages += added.messages;
                known.pending.bytes += added.bytes;
            }
        }
    }

    fn topics(&self) -> MutexGuard<'_, BTreeMap<String, Measured>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn over(&self, topic: &str, pending: Pending) -> Option<String> {
        let Bounds { pending_messages, pending_bytes, .. } = self.bounds;
        let (what, key) = if pending.messages >= u64::from(pending_messages) {
            (format!("{} messages", pending.messages), "pending_max")
        } else if pending.bytes >= pending_bytes {
            (format!("{} MiB of messages", pending.bytes >> 20), "pending_bytes_max")
        } else {
            return None;
        };
        Some(format!(
            "{what} of the topic `{topic}` wait to be delivered, at most as many as \
             `delivery.{key}` says: see `besom outbox ls --topic {topic}`"
        ))
    }

    async fn pending(&self, store: &dyn Store, topic: &str) -> store::Result<Pending> {
        let known = self.topics().get(topic).copied();
        if let Some(known) = known {
            let is_full = self.over(topic, known.pending).is_some();
            let lasts = if is_full { AGAIN_AFTER } else { MEASURED_FOR };
            if known.at.elapsed() < lasts {
                return Ok(known.pending);
            }
        }
        let at = Instant::now();
        let pending = store.pending_messages(topic, self.bounds.pending_messages).await?;
        self.topics().insert(topic.to_owned(), Measured { at, pending });
        Ok(pending)
    }

    fn disk_room(&self) -> Result<(), String> {
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

/// What a batch emits, by topic.
fn emitted(batch: &Batch) -> BTreeMap<&str, Pending> {
    let mut emitted: BTreeMap<&str, Pending> = BTreeMap::new();
    for entry in &batch.entries {
        let Decision::Apply { proposal, .. } = &entry.decision else { continue };
        for change in &proposal.changes {
            let Change::Emit { topic, key, payload } = change else { continue };
            let pending = emitted.entry(topic).or_default();
            pending.messages += 1;
            pending.bytes += (key.len() + payload.len()) as u64;
        }
    }
    emitted
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_core::time::Time;

    use super::*;
    use crate::ports::activity::Timeouts;
    use crate::store::memory::MemoryStore;

    async fn store(messages: usize) -> MemoryStore {
        let store = MemoryStore::new(1, Timeouts::default(), Arc::new(|| Time::from_secs(1)));
        for _ in 0..messages {
            let emit = Change::Emit { topic: "t".into(), key: "k".into(), payload: vec![0; 99] };
            store.write(&[(None, emit)]).await.unwrap();
        }
        store
    }

    fn said(room: store::Result<()>) -> String {
        match room {
            Err(store::Error::Refused(Cause::Full, why)) => why,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn a_topic_with_too_much_that_waits_is_refused_and_others_are_not() {
        let store = store(3).await;
        let bounds = Bounds { pending_messages: 3, ..Bounds::default() };
        let quota = Quota::new(bounds.clone());
        let why = said(quota.room(&store, &["u", "t"]).await);
        assert!(why.contains("3 messages of the topic `t`"), "{why}");
        assert!(why.contains("delivery.pending_max"), "{why}");
        assert!(quota.room(&store, &["u"]).await.is_ok());
        let quota = Quota::new(Bounds { pending_messages: 4, ..bounds.clone() });
        assert!(quota.room(&store, &["t"]).await.is_ok());
        let quota = Quota::new(Bounds { pending_messages: 4, pending_bytes: 300, ..bounds });
        let why = said(quota.room(&store, &["t"]).await);
        assert!(why.contains("delivery.pending_bytes_max"), "{why}");
    }

    #[tokio::test]
    async fn a_disk_that_is_nearly_full_refuses_everything_and_names_what_to_do() {
        let disk = Some((std::env::temp_dir(), u64::MAX));
        let quota = Quota::new(Bounds { disk, ..Bounds::default() });
        let why = said(quota.room(&store(0).await, &[]).await);
        assert!(why.contains("store.disk_free_min"), "{why}");
        let disk = Some((std::env::temp_dir(), 1));
        let quota = Quota::new(Bounds { disk, ..Bounds::default() });
        assert!(quota.room(&store(0).await, &[]).await.is_ok());
    }
}
