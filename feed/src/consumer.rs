//! Reads a topic as a member of a group, and hands batches to a sink.
//!
//! A batch is read, decided and committed before the next one is read. So nothing is in a transaction
//! while partitions change hands: what was read of a partition that is taken away is dropped, and its next
//! owner reads it again. After any failed commit the feed begins anew from what is committed.
//!
//! The group gives a partition to nobody else before this consumer has returned it, unless it removes the
//! consumer because it was not heard of for too long. Then its commit is refused: by the broker, which knows
//! the generation of the group, or by the owner's number in the database.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CStr;
use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::bindings::{rd_kafka_mem_free, rd_kafka_memberid};
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaRespErr;

use crate::Error;
use crate::message::{Message, Numbering, Read};
use crate::order::{Arrival, Bounds, Decision, Key, Order};
use crate::sink::{Batch, Kept, Progress, SetAside, Sink, Start};

/// How long an answer of the brokers is awaited.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long the feed waits for a first message before it looks at other things.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The shortest and longest pause before the feed begins anew.
const PAUSE: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How often, within which time, the group may prefer another member with the same name. It does so, too,
/// after its coordinator has failed over, when there is none.
const FENCED_MAX: (usize, Duration) = (3, Duration::from_secs(300));

/// Why a batch is not committed.
const REMOVED: &str = "the group has removed this consumer, which it had not heard of for too long";

/// What is read, by whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// `host:port`, separated by commas.
    pub brokers: String,
    /// The topic that is read, which has to exist.
    pub topic: String,
    /// The group: its members share the partitions.
    pub group: String,
    /// The member's own name in the group, the same after each restart (`group.instance.id`). Of two that
    /// run with one name, one ends with an error. None: a member that stops leaves its partitions to the
    /// others at once.
    pub instance: Option<String>,
    /// How messages are told apart.
    pub numbering: Numbering,
    /// How many messages are committed at once, at most.
    pub batch_max: usize,
    /// What may wait in memory.
    pub bounds: Bounds,
    /// Numbers that will never come, with all below them.
    pub skip: BTreeMap<Key, u64>,
    /// Further settings of librdkafka, for example `security.protocol`.
    pub kafka: BTreeMap<String, String>,
}

impl Settings {
    /// With the defaults: a member without a name of its own, 100 messages at once, told apart by their
    /// numbers.
    pub fn new(brokers: &str, topic: &str, group: &str) -> Settings {
        Settings {
            brokers: brokers.to_owned(),
            topic: topic.to_owned(),
            group: group.to_owned(),
            instance: None,
            numbering: Numbering::Sequence,
            batch_max: 100,
            bounds: Bounds::default(),
            skip: BTreeMap::new(),
            kafka: BTreeMap::new(),
        }
    }

    /// A client's configuration: the addresses and the settings of the user.
    pub(crate) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.brokers);
        for (name, value) in &self.kafka {
            config.set(name, value);
        }
        config
    }
}

/// What a person may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// These messages were committed.
    Committed {
        /// How many of them, in one commit.
        messages: usize,
    },
    /// Messages came again, and were dropped.
    Duplicates {
        /// How many of them, in one commit.
        messages: usize,
    },
    /// A message was set aside.
    SetAside {
        /// Whose message it is.
        key: Key,
        /// Its number among those of the key; 0 if it has none.
        number: u64,
        /// Why, with the missing numbers if there are any.
        reason: String,
    },
    /// A message waits for missing ones.
    Gap {
        /// Whose message it is.
        key: Key,
        /// The missing numbers.
        missing: RangeInclusive<u64>,
    },
    /// Messages will not come: the topic's retention removed them, or the settings skip them.
    Lost {
        /// Whose messages they are.
        key: Key,
        /// The numbers that were not read, first to last.
        missing: RangeInclusive<u64>,
    },
    /// The topic begins above the offset that is next.
    Behind {
        /// Its number within the topic.
        partition: i32,
        /// The offset that is next.
        next: i64,
        /// The first one there is.
        first: i64,
    },
    /// A partition was given to this consumer.
    Assigned {
        /// Its number within the topic.
        partition: i32,
    },
    /// A partition was taken away.
    Revoked {
        /// Its number within the topic.
        partition: i32,
    },
    /// A passing error of the brokers.
    Trouble(String),
    /// The feed begins anew.
    Anew(String),
}

/// Reads and commits until `stop` is set.
///
/// # Errors
/// [`Error::Stop`]: trying again cannot help.
pub fn run(
    settings: &Settings,
    sink: &mut impl Sink,
    tell: &mut dyn FnMut(Notice),
    stop: &AtomicBool,
) -> Result<(), Error> {
    let (mut pause, mut fenced) = (PAUSE.0, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let mut committed = false;
        let mut told = |notice: Notice| {
            committed |= matches!(notice, Notice::Committed { .. });
            tell(notice);
        };
        let ended = sink.begin().and_then(|()| {
            let mut session = Session::open(settings, sink, &mut fenced)?;
            session.run(&mut told, stop)
        });
        match ended {
            Ok(()) => break,
            Err(Error::Again(why)) => tell(Notice::Anew(why)),
            Err(error @ Error::Stop(_)) => return Err(error),
        }
        pause = if committed { PAUSE.0 } else { (pause * 2).min(PAUSE.1) };
        let since = Instant::now();
        while since.elapsed() < pause && !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_EVERY.min(pause));
        }
    }
    Ok(())
}

/// Partitions that were given or taken.
struct Change {
    given: bool,
    partitions: TopicPartitionList,
}

/// Notes what the group decides: the session applies it between two batches. The group waits for that.
#[derive(Default)]
struct Changes {
    all: Mutex<Vec<Change>>,
    closing: AtomicBool,
}

impl ClientContext for Changes {}

impl ConsumerContext for Changes {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Changes>,
        code: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        if self.closing.load(Ordering::Relaxed) {
            // The consumer ends, whether or not it had these.
            let _ = consumer.incremental_unassign(partitions);
            return;
        }
        let given = code == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        let change = Change { given, partitions: partitions.clone() };
        self.all.lock().expect("no holder panics").push(change);
    }
}

struct Session<'a, S: Sink> {
    settings: &'a Settings,
    sink: &'a mut S,
    consumer: BaseConsumer<Changes>,
    order: Order<Message>,
    begun: Instant,
    /// What is committed of each partition that this consumer has.
    kept: BTreeMap<i32, Kept>,
    /// From where each of them was to be read.
    from: BTreeMap<i32, i64>,
    /// The id under which the group gave them.
    member: String,
    /// When the group has preferred another member with the same name.
    fenced: &'a mut Vec<Instant>,
}

impl<S: Sink> Drop for Session<'_, S> {
    fn drop(&mut self) {
        self.consumer.context().closing.store(true, Ordering::Relaxed);
        let waiting = std::mem::take(&mut *self.changes());
        for change in waiting {
            let _ = self.consumer.incremental_unassign(&change.partitions);
        }
    }
}

impl<'a, S: Sink> Session<'a, S> {
    fn open(
        settings: &'a Settings,
        sink: &'a mut S,
        fenced: &'a mut Vec<Instant>,
    ) -> Result<Session<'a, S>, Error> {
        let mut config = settings.client();
        config
            .set("group.id", &settings.group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("allow.auto.create.topics", "false");
        if let Some(instance) = &settings.instance {
            config.set("group.instance.id", instance);
        }
        if !settings.kafka.contains_key("session.timeout.ms") {
            config.set("session.timeout.ms", "10000");
        }
        let consumer: BaseConsumer<Changes> = config
            .create_with_context(Changes::default())
            .map_err(|error| Error::Stop(error.to_string()))?;
        consumer.subscribe(&[&settings.topic])?;
        let mut order = Order::new(settings.bounds.clone());
        for (key, number) in &settings.skip {
            order.skip(key.clone(), *number);
        }
        Ok(Session {
            settings,
            sink,
            consumer,
            order,
            begun: Instant::now(),
            kept: BTreeMap::new(),
            from: BTreeMap::new(),
            member: String::new(),
            fenced,
        })
    }

    fn changes(&self) -> std::sync::MutexGuard<'_, Vec<Change>> {
        self.consumer.context().all.lock().expect("no holder panics")
    }

    fn run(&mut self, tell: &mut dyn FnMut(Notice), stop: &AtomicBool) -> Result<(), Error> {
        while !stop.load(Ordering::Relaxed) {
            let read = self.read(tell)?;
            self.commit(read, tell)?;
        }
        Ok(())
    }

    /// The next messages: all that are there, up to the bound.
    fn read(&mut self, tell: &mut dyn FnMut(Notice)) -> Result<Vec<Read>, Error> {
        let mut all: Vec<Read> = Vec::new();
        while all.len() < self.settings.batch_max {
            let patience = if all.is_empty() { LOOK_EVERY } else { Duration::ZERO };
            let record = match self.consumer.poll(patience) {
                None => None,
                Some(Ok(record)) => {
                    Some(self.check(Message::read(&record, self.settings.numbering)))
                }
                Some(Err(error)) => {
                    trouble(&error, self.fenced, tell)?;
                    None
                }
            };
            let changes = std::mem::take(&mut *self.changes());
            let is_last = record.is_none() && changes.is_empty();
            all.extend(record.filter(|one| self.kept.contains_key(&partition(one))));
            for change in changes {
                let topic = &self.settings.topic;
                all.retain(|one| change.partitions.find_partition(topic, partition(one)).is_none());
                self.apply(change, tell)?;
            }
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    /// Sets aside a message whose key cannot be kept.
    fn check(&self, read: Read) -> Read {
        let message = read?;
        let is_kept = self.settings.numbering == Numbering::Sequence;
        match self.sink.refuses(&message.key).filter(|_| is_kept) {
            Some(reason) => Err(Box::new(SetAside { message, reason })),
            None => Ok(message),
        }
    }

    fn apply(&mut self, change: Change, tell: &mut dyn FnMut(Notice)) -> Result<(), Error> {
        let Change { given, mut partitions } = change;
        let of: Vec<i32> = partitions.elements().iter().map(|one| one.partition()).collect();
        if !given {
            for partition in of {
                self.order.end(partition);
                self.sink.end(partition);
                self.kept.remove(&partition);
                tell(Notice::Revoked { partition });
            }
            return Ok(self.consumer.incremental_unassign(&partitions)?);
        }
        let member = member(&self.consumer);
        if !self.kept.is_empty() && member != self.member {
            return Err(Error::Again(REMOVED.into()));
        }
        self.member = member;
        if of.is_empty() {
            return Ok(self.consumer.incremental_assign(&partitions)?);
        }
        // The broker answers once no transaction has undecided offsets of these partitions.
        let committed =
            self.consumer.committed_offsets(partitions.clone(), ANSWER_MAX).map_err(|error| {
                Error::Again(format!(
                    "{error}: the brokers do not tell the offsets of the group; does a transaction hang?"
                ))
            })?;
        for partition in of {
            let next = self.begin(partition, &committed, tell)?;
            let offset = Offset::Offset(next);
            partitions.set_partition_offset(&self.settings.topic, partition, offset)?;
            tell(Notice::Assigned { partition });
        }
        Ok(self.consumer.incremental_assign(&partitions)?)
    }

    /// Begins with a partition: the offset to read from.
    fn begin(
        &mut self,
        partition: i32,
        committed: &TopicPartitionList,
        tell: &mut dyn FnMut(Notice),
    ) -> Result<i64, Error> {
        let topic = &self.settings.topic;
        let (kept, positions) = match self.sink.start(topic, partition)? {
            Start::Kept(kept) => (kept, Vec::new()),
            Start::Broker { positions } => {
                let found = committed.find_partition(topic, partition);
                let kept = found.and_then(|found| match found.offset() {
                    Offset::Offset(next) => {
                        Some(Kept { next, lost_below: found.metadata().parse().unwrap_or(0) })
                    }
                    _ => None,
                });
                (kept.unwrap_or_default(), positions)
            }
        };
        let (first, end) = self.consumer.fetch_watermarks(topic, partition, ANSWER_MAX)?;
        let Kept { next: wanted, mut lost_below } = kept;
        if wanted > end {
            return Err(Error::Stop(format!(
                "{topic}, partition {partition}: offset {wanted} is next, and the topic ends at {end}: \
                 was it created again? A consumer of another topic has another group"
            )));
        }
        if wanted < first {
            lost_below = first;
            tell(Notice::Behind { partition, next: wanted, first });
        }
        let next = wanted.max(first);
        self.order.begin(partition, next, lost_below);
        for (key, position) in positions {
            self.order.learn(partition, key, position);
        }
        self.kept.insert(partition, Kept { next: wanted, lost_below });
        self.from.insert(partition, wanted);
        Ok(next)
    }

    /// Decides about messages, and commits what follows.
    fn commit(&mut self, read: Vec<Read>, tell: &mut dyn FnMut(Notice)) -> Result<(), Error> {
        let now_ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut outcome = Outcome::default();
        self.learn(&read)?;
        for one in read {
            match one {
                Err(aside) => {
                    self.order.pass(aside.message.partition, aside.message.offset);
                    outcome.touched.insert(aside.message.partition);
                    outcome.set_aside.push(*aside);
                }
                Ok(message) if self.settings.numbering == Numbering::Offsets => {
                    self.order.pass(message.partition, message.offset);
                    outcome.touched.insert(message.partition);
                    outcome.accepted.push(message);
                }
                Ok(message) => {
                    let partition = message.partition;
                    let arrival = Arrival {
                        key: message.key.clone(),
                        number: message.number,
                        digest: message.digest(),
                        time: message.time(),
                        bytes: message.bytes(),
                        offset: message.offset,
                        message,
                    };
                    for decision in self.order.offer(partition, arrival, now_ms) {
                        if let Decision::Early { key, .. } = &decision {
                            self.look_back(partition, &key.clone())?;
                        }
                        outcome.add(partition, decision, tell);
                    }
                }
            }
        }
        for (partition, decision) in self.order.expire(now_ms) {
            outcome.add(partition, decision, tell);
        }
        let positions: Vec<_> = outcome
            .changed
            .iter()
            .filter_map(|(partition, key)| {
                Some((*partition, key.clone(), self.order.position(*partition, key)?.clone()))
            })
            .collect();
        let progress: Vec<_> = self
            .kept
            .iter()
            .filter_map(|(&partition, kept)| {
                let to = Kept { next: self.order.resume(partition)?, ..*kept };
                // Also where an early message holds the offset: who has lost the partition is refused by it.
                let told = to != *kept || outcome.touched.contains(&partition);
                told.then_some(Progress { partition, to })
            })
            .collect();
        if outcome.duplicates > 0 {
            tell(Notice::Duplicates { messages: outcome.duplicates });
        }
        let nothing = outcome.accepted.is_empty() && outcome.set_aside.is_empty();
        if nothing && progress.is_empty() {
            return Ok(());
        }
        let (consumer, id) = (&self.consumer, &self.member);
        let group = || {
            let group = consumer.group_metadata();
            // Asked after it: an id that is gone does not come back.
            let now = member(consumer);
            let removed = || Error::Again(REMOVED.into());
            group.filter(|_| !now.is_empty() && now == *id).ok_or_else(removed)
        };
        self.sink.commit(&Batch {
            topic: &self.settings.topic,
            accepted: &outcome.accepted,
            set_aside: &outcome.set_aside,
            positions: &positions,
            progress: &progress,
            group: &group,
        })?;
        for Progress { partition, to, .. } in progress {
            self.kept.insert(partition, to);
        }
        for SetAside { message, reason } in outcome.set_aside {
            tell(Notice::SetAside { key: message.key, number: message.number, reason });
        }
        if !outcome.accepted.is_empty() {
            tell(Notice::Committed { messages: outcome.accepted.len() });
        }
        Ok(())
    }

    /// What is missing before an early message may be before the offset from which the partition was read, if
    /// the sink has lost it.
    fn look_back(&mut self, partition: i32, key: &Key) -> Result<(), Error> {
        let taken = self.order.position(partition, key).map_or(-1, |position| position.offset);
        let topic = &self.settings.topic;
        let is_before = self.from.get(&partition).is_some_and(|&from| taken + 1 < from);
        if is_before && self.sink.again_from(topic, partition, taken + 1)? {
            return Err(Error::Again(format!(
                "a message of the key {} is early: {topic}, partition {partition}, is read again from offset {}",
                key.key,
                taken + 1
            )));
        }
        Ok(())
    }

    /// Asks the sink for the positions of keys that are new here.
    fn learn(&mut self, read: &[Read]) -> Result<(), Error> {
        if self.settings.numbering == Numbering::Offsets {
            return Ok(());
        }
        let mut unknown = BTreeMap::new();
        for message in read.iter().flatten() {
            if !self.order.knows(message.partition, &message.key) {
                unknown.insert(message.key.clone(), message.partition);
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let keys: Vec<Key> = unknown.keys().cloned().collect();
        for (key, position) in self.sink.positions(&self.settings.topic, &keys)? {
            if let Some(&partition) = unknown.get(&key) {
                self.order.learn(partition, key, position);
            }
        }
        Ok(())
    }
}

#[derive(Default)]
struct Outcome {
    accepted: Vec<Message>,
    set_aside: Vec<SetAside>,
    changed: BTreeSet<(i32, Key)>,
    touched: BTreeSet<i32>,
    duplicates: usize,
}

impl Outcome {
    fn add(&mut self, partition: i32, decision: Decision<Message>, tell: &mut dyn FnMut(Notice)) {
        let is_held = matches!(decision, Decision::Early { .. });
        let is_dropped = matches!(decision, Decision::Duplicate { .. } | Decision::Back { .. });
        if !is_held && !is_dropped {
            self.touched.insert(partition);
        }
        match decision {
            Decision::Accept { key, message, .. } => {
                self.changed.insert((partition, key));
                self.accepted.push(message);
            }
            Decision::Duplicate { .. } | Decision::Back { .. } => self.duplicates += 1,
            Decision::Differs { number, message, .. } => {
                let reason = format!(
                    "number {number} came before with another message: the producer's numbers went back, as after the \
                     restore of a backup"
                );
                self.set_aside.push(SetAside { message, reason });
            }
            Decision::Early { key, missing, .. } => tell(Notice::Gap { key, missing }),
            Decision::Lost { key, missing } => tell(Notice::Lost { key, missing }),
            Decision::Dead { message, missing, .. } => {
                let reason =
                    format!("numbers {} to {} are missing", missing.start(), missing.end());
                self.set_aside.push(SetAside { message, reason });
            }
        }
    }
}

fn partition(read: &Read) -> i32 {
    read.as_ref().unwrap_or_else(|aside| &aside.message).partition
}

/// The id under which the group knows a consumer; empty: it has removed it.
fn member(consumer: &BaseConsumer<Changes>) -> String {
    let client = consumer.client().native_ptr();
    // SAFETY: the client lives as long as the consumer, and gives a text that its caller frees.
    unsafe {
        let id = rd_kafka_memberid(client);
        if id.is_null() {
            return String::new();
        }
        let copy = CStr::from_ptr(id).to_string_lossy().into_owned();
        rd_kafka_mem_free(client, id.cast());
        copy
    }
}

/// Whether an error of the consumer passes by itself.
fn trouble(
    error: &KafkaError,
    fenced: &mut Vec<Instant>,
    tell: &mut dyn FnMut(Notice),
) -> Result<(), Error> {
    use RDKafkaErrorCode::{AutoOffsetReset, FencedInstanceId, PollExceeded};
    match error.rdkafka_error_code() {
        Some(FencedInstanceId) => {
            fenced.retain(|at| at.elapsed() < FENCED_MAX.1);
            fenced.push(Instant::now());
            Err(match fenced.len() > FENCED_MAX.0 {
                true => Error::Stop(
                    "another consumer runs with this instance: give each its own name".into(),
                ),
                false => Error::Again(
                    "the group knows another member with this instance: does one run?".into(),
                ),
            })
        }
        Some(AutoOffsetReset | PollExceeded) => Err(Error::Again(error.to_string())),
        _ if matches!(error, KafkaError::MessageConsumptionFatal(_)) => {
            Err(Error::Again(error.to_string()))
        }
        _ => {
            tell(Notice::Trouble(error.to_string()));
            Ok(())
        }
    }
}
