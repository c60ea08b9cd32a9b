//! Messages that the product itself enters: which topics take them, and how many may wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use besom_core::delivery::feed::NAME_BYTES_MAX;
use besom_core::ids::{FencingToken, Tenant};
use besom_ports::store::{self, Entered, Offered, Pending, Store};
use besom_snapshot::Cause;
use tokio::sync::watch;

use super::health::Health;
use super::quota;

/// How long a measurement is used at least.
const MEASURED_FOR: Duration = Duration::from_secs(1);
/// How long it is used, in multiples of the time that it took, so that counting a long backlog takes the
/// store a small share of its time; and at most.
const MEASURED_FACTOR: u32 = 50;
const MEASURED_FOR_MAX: Duration = Duration::from_secs(10);
/// Maximum number of messages that are moved from the table in one transaction.
const COLLECTED_MAX: u32 = 8_000;
/// Maximum size of their payloads, in bytes.
const COLLECTED_BYTES_MAX: u64 = 4 << 20;
/// How often it is looked whether anything was written, if the store knows that at almost no cost.
const GLANCE: Duration = Duration::from_millis(50);
/// How many topics are named that have rows in the table and take none.
const OTHERS_SHOWN: u32 = 5;
/// The part of the node that such topics are shown as.
const TABLE: &str = "rows of the table feed";
/// The pause after the store has failed.
const STORE_RETRY: Duration = Duration::from_secs(1);

/// How much may wait, and how often the table is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bounds {
    /// Maximum number of entered messages of one topic that wait for delivery.
    pub pending_messages: u32,
    /// Maximum size of their keys and payloads, in bytes.
    pub pending_bytes: u64,
    /// How often the leader looks for messages in the table, even if nothing seems to be written.
    pub poll: Duration,
}

impl Default for Bounds {
    fn default() -> Bounds {
        let quota::Bounds { pending_messages, pending_bytes, .. } = quota::Bounds::default();
        Bounds { pending_messages, pending_bytes, poll: Duration::from_secs(1) }
    }
}

/// How much is moved in one transaction at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Room {
    messages: u64,
    /// The size of their payloads, in bytes.
    bytes: u64,
}

impl Room {
    /// For a single message.
    const ONE: Room = Room { messages: 1, bytes: 1 };
    const MAX: Room = Room { messages: COLLECTED_MAX as u64, bytes: COLLECTED_BYTES_MAX };

    /// What may be moved if so much is waiting.
    fn beside(bounds: &Bounds, pending: Pending) -> Room {
        let messages = u64::from(bounds.pending_messages).saturating_sub(pending.messages);
        let bytes = bounds.pending_bytes.saturating_sub(pending.bytes);
        Room { messages: messages.min(Room::MAX.messages), bytes: bytes.min(Room::MAX.bytes) }
    }

    fn holds(self, other: Room) -> bool {
        self.messages >= other.messages && self.bytes >= other.bytes
    }
}

/// Why messages are not taken.
#[derive(Debug, Clone)]
pub enum Refused {
    /// The topic takes none.
    Topic(String),
    /// Too many messages of the topic are waiting for delivery.
    Full(String),
    /// The store has failed.
    Store(store::Error),
}

/// What was waiting of a topic, and what was taken since.
#[derive(Debug, Clone, Copy)]
struct Measured {
    /// Until when it is used.
    until: Instant,
    pending: Pending,
    /// Whether it may be less.
    is_bound: bool,
}

/// Takes messages of the product.
pub struct Feed {
    store: Arc<dyn Store>,
    topics: Vec<String>,
    bounds: Bounds,
    measured: Mutex<BTreeMap<String, Measured>>,
    /// Changes whenever messages have been stored in the outbox.
    news: watch::Sender<()>,
}

impl Feed {
    /// Takes messages of these topics.
    pub fn new(store: Arc<dyn Store>, topics: Vec<String>, bounds: Bounds) -> Arc<Feed> {
        let news = watch::channel(()).0;
        Arc::new(Feed { store, topics, bounds, measured: Mutex::default(), news })
    }

    /// Changes whenever this host has stored messages in the outbox.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Whether any topic takes messages.
    pub fn is_used(&self) -> bool {
        !self.topics.is_empty()
    }

    /// Stores messages of one topic.
    ///
    /// # Errors
    /// Why none of them is stored; after [`store::Error::Unknown`], they may be.
    pub async fn enter(&self, topic: &str, offered: &[Offered]) -> Result<Vec<Entered>, Refused> {
        self.admits(topic)?;
        let pending = self.pending(topic, Room::ONE).await.map_err(Refused::Store)?;
        if let Some(why) = self.full(topic, pending)
            && !self.repeats(topic, offered).await.map_err(Refused::Store)?
        {
            return Err(Refused::Full(why));
        }
        let entered = self.store.enter_messages(offered).await.map_err(Refused::Store)?;
        let mut stored = Pending::default();
        for (one, entered) in offered.iter().zip(&entered) {
            if matches!(entered, Entered::Stored { .. }) {
                stored.messages += 1;
                stored.bytes += (one.key.len() + one.payload.len()) as u64;
            }
        }
        if stored.messages > 0 {
            self.stored([topic], stored);
        }
        Ok(entered)
    }

    /// Counts messages that were stored in the outbox, of each of these topics at most this many.
    fn stored<'a>(&self, topics: impl IntoIterator<Item = &'a str>, most: Pending) {
        let mut measured = self.measured();
        for topic in topics {
            if let Some(Measured { pending, is_bound, .. }) = measured.get_mut(topic) {
                pending.messages += most.messages;
                pending.bytes += most.bytes;
                *is_bound = true;
            }
        }
        drop(measured);
        self.news.send_replace(());
    }

    /// The highest number that the product has given to a message of this topic, tenant and key; 0: none.
    ///
    /// # Errors
    /// The topic takes no messages, or the store has failed.
    pub async fn last(
        &self,
        topic: &str,
        tenant: Option<&Tenant>,
        key: &str,
    ) -> Result<u64, Refused> {
        self.admits(topic)?;
        self.store.last_entered(topic, tenant, key).await.map_err(Refused::Store)
    }

    fn admits(&self, topic: &str) -> Result<(), Refused> {
        if self.topics.iter().any(|one| one == topic) {
            return Ok(());
        }
        Err(Refused::Topic(format!(
            "the topic `{topic}` takes no messages of the product: set feed = true in its [topics] section, and \
             restart the host: it reads the topics when it starts"
        )))
    }

    /// Whether every number was used before: a producer that sends again what it is not sure of learns
    /// that it is stored, however much waits.
    async fn repeats(&self, topic: &str, offered: &[Offered]) -> store::Result<bool> {
        let mut last = BTreeMap::new();
        for Offered { tenant, key, number, .. } in offered {
            let Some(number) = number else { return Ok(false) };
            let known = match last.get(&(tenant, key)) {
                Some(known) => *known,
                None => self.store.last_entered(topic, tenant.as_ref(), key).await?,
            };
            if *number > known {
                return Ok(false);
            }
            last.insert((tenant, key), known);
        }
        Ok(true)
    }

    /// Why a topic takes nothing more while so much is waiting.
    fn full(&self, topic: &str, pending: Pending) -> Option<String> {
        let Bounds { pending_messages, pending_bytes, .. } = self.bounds;
        quota::full(pending, (pending_messages, pending_bytes), "the product", topic)
    }

    /// How much of a topic is waiting, at most; measured if there seems to be less room than `enough`.
    async fn pending(&self, topic: &str, enough: Room) -> store::Result<Pending> {
        let known = self.measured().get(topic).copied();
        if let Some(Measured { until, pending, is_bound }) = known
            && Instant::now() < until
            && (!is_bound || Room::beside(&self.bounds, pending).holds(enough))
        {
            return Ok(pending);
        }
        let begin = Instant::now();
        let most = self.bounds.pending_messages;
        let pending = self.store.pending_messages(None, topic, most).await?;
        let used_for = (begin.elapsed() * MEASURED_FACTOR).clamp(MEASURED_FOR, MEASURED_FOR_MAX);
        let measured = Measured { until: Instant::now() + used_for, pending, is_bound: false };
        self.measured().insert(topic.to_owned(), measured);
        Ok(pending)
    }

    fn measured(&self) -> MutexGuard<'_, BTreeMap<String, Measured>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves messages from the table to the outbox until the store rejects the fence.
    pub(super) async fn collect(&self, fence: &FencingToken, health: &Health) {
        loop {
            let before = self.store.written_at();
            match self.collect_once(fence, health).await {
                Ok(0) => self.pause(before).await,
                Ok(moved) => tracing::debug!(moved, "messages of the product were taken up"),
                Err(store::Error::Fenced) => return,
                Err(error) => {
                    tracing::warn!(%error, "messages of the product could not be taken up");
                    tokio::time::sleep(STORE_RETRY.max(self.bounds.poll)).await;
                }
            }
        }
    }

    /// Waits until it is time to look again, or until something was written since `before`.
    async fn pause(&self, before: Option<SystemTime>) {
        let Some(before) = before.filter(|_| self.is_used()) else {
            return tokio::time::sleep(self.bounds.poll).await;
        };
        // What was written is seen once it is synced, which shows as no other write: after a write, the pauses
        // between two looks grow with its age.
        let age = before.elapsed().unwrap_or_default();
        let end = Instant::now() + age.clamp(GLANCE.min(self.bounds.poll), self.bounds.poll);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            tokio::time::sleep(left.min(GLANCE)).await;
            if left <= GLANCE || self.store.written_at() != Some(before) {
                return;
            }
        }
    }

    /// Moves messages of the topics that have room, and returns how many.
    async fn collect_once(&self, fence: &FencingToken, health: &Health) -> store::Result<u64> {
        let waiting = self.store.feed_topics(&self.topics, OTHERS_SHOWN).await?;
        match waiting.others.is_empty() {
            true => health.free_node(TABLE),
            false => {
                let names = waiting.others.join(", ");
                let why = format!(
                    "they belong to topics that take no messages of the product: {names}; set feed = \
                     true in their [topics] sections and restart the host, or correct or delete the rows"
                );
                health.hold_node_for(TABLE, (Cause::NotTaken, &why), self.bounds.poll);
            }
        }
        // Those with room for all that a transaction moves, and the others, each with its room.
        let (mut ample, mut scarce) = (Vec::new(), Vec::new());
        for topic in waiting.known {
            let what = format!("feed of the topic {topic}");
            let pending = self.pending(&topic, Room::MAX).await?;
            if let Some(why) = self.full(&topic, pending) {
                health.hold_node_for(&what, (Cause::Full, &why), self.bounds.poll);
                continue;
            }
            health.free_node(&what);
            let room = Room::beside(&self.bounds, pending);
            match room == Room::MAX {
                true => ample.push(topic),
                false => scarce.push((vec![topic], room)),
            }
        }
        let mut all = 0;
        for (topics, room) in std::iter::once((ample, Room::MAX)).chain(scarce) {
            if !topics.is_empty() {
                all += self.move_rows(fence, &topics, room, health).await?;
            }
        }
        Ok(all)
    }

    /// Moves messages of these topics, and returns how many.
    async fn move_rows(
        &self,
        fence: &FencingToken,
        topics: &[String],
        room: Room,
        health: &Health,
    ) -> store::Result<u64> {
        let moved = match self.take_up(fence, topics, room).await {
            Err(error) if is_of_rows(&error) => {
                self.collect_by_topic(fence, topics, &error, health).await?
            }
            moved => {
                let moved = moved?;
                topics.iter().for_each(|topic| health.free_node(&rows_of(topic)));
                moved
            }
        };
        if moved > 0 {
            // What was moved is not known by topic.
            let bytes = room.bytes + moved * NAME_BYTES_MAX as u64;
            self.stored(topics.iter().map(String::as_str), Pending { messages: moved, bytes });
        }
        Ok(moved)
    }

    async fn take_up(
        &self,
        fence: &FencingToken,
        topics: &[String],
        room: Room,
    ) -> store::Result<u64> {
        let limit = u32::try_from(room.messages).unwrap_or(u32::MAX);
        self.store.collect_messages(fence, topics, limit, room.bytes).await
    }

    /// Moves messages of one topic after the other, so that a row that cannot be moved holds up its own alone.
    async fn collect_by_topic(
        &self,
        fence: &FencingToken,
        topics: &[String],
        error: &store::Error,
        health: &Health,
    ) -> store::Result<u64> {
        let mut all = 0;
        for topic in topics {
            let moved = match topics {
                [_] => Err(error.clone()),
                _ => self.take_up(fence, std::slice::from_ref(topic), Room::MAX).await,
            };
            match moved {
                Ok(moved) => {
                    health.free_node(&rows_of(topic));
                    all += moved;
                }
                Err(error) if is_of_rows(&error) => {
                    let why = format!(
                        "{error}; rows of the table feed are not moved to the outbox until this is repaired, and \
                         those of other topics are"
                    );
                    let shown = self.bounds.poll.max(STORE_RETRY) * 3;
                    health.hold_node_for(&rows_of(topic), (Cause::Stream, &why), shown);
                    tracing::warn!(topic, %error, "messages of the product could not be taken up");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// What is shown of a topic of which a row cannot be moved.
fn rows_of(topic: &str) -> String {
    format!("rows of the topic {topic}")
}

/// Whether the error may be due to single rows, and not to the store as a whole.
fn is_of_rows(error: &store::Error) -> bool {
    use store::Error::{Busy, Damaged, Fenced, Unavailable, Unknown};
    !matches!(error, Busy(_) | Unavailable(_) | Unknown(_) | Damaged(_) | Fenced)
}
