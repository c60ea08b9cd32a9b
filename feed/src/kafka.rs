//! Output to Kafka, in one transaction with the offsets.
//!
//! What a consumer knows of each key, its position and a text of the application, is a record in a
//! compacted *state topic*, in the partition with the number of the one that is read, written in the same
//! transaction. The next owner of a partition reads it from there.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::consumer::{ANSWER_MAX, Settings};
use crate::message::Message;
use crate::order::{Key, Position};
use crate::sink::{Batch, SetAside, Sink, Start};

/// A record that the application writes.
#[derive(Debug, Clone, Default)]
pub struct Record {
    /// The topic that it is written to, which has to exist.
    pub topic: String,
    /// The key, which decides the partition.
    pub key: String,
    /// The value, of any bytes.
    pub payload: Vec<u8>,
    /// Names and values of the headers, in their order.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// The `message.max.bytes` of librdkafka.
const RECORD_BYTES_MAX: usize = 1_000_000;
/// What a record takes beside its parts, at most.
const RECORD_BYTES_MORE: usize = 100;

impl Record {
    fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len() + 10);
        RECORD_BYTES_MORE + self.key.len() + self.payload.len() + headers.sum::<usize>()
    }
}

/// What the state topic has of a key.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct State {
    /// How far the key was taken.
    pub position: Position,
    /// The application's own text.
    pub text: String,
}

/// Writes the records that `handle` makes of a message and of the text that the application keeps for the
/// message's key. An error of `handle` sets the message aside.
pub struct KafkaSink<F> {
    settings: Settings,
    /// The same as long as this sink lives, so that its new producer ends the transaction of the former one.
    transactional_id: String,
    state_topic: String,
    dead_topic: String,
    handle: F,
    producer: Option<BaseProducer>,
    states: BTreeMap<i32, HashMap<Key, State>>,
}

impl<F> KafkaSink<F>
where
    F: FnMut(&Message, &mut String) -> Result<Vec<Record>, String>,
{
    /// Both topics have to exist; the state topic with as many partitions as the one that is read, and with
    /// `cleanup.policy=compact`.
    pub fn new(settings: &Settings, state_topic: &str, dead_topic: &str, handle: F) -> Self {
        // Without a name, another one in each process.
        let unique = || format!("{:016x}", RandomState::new().build_hasher().finish());
        let instance = settings.instance.clone().unwrap_or_else(unique);
        KafkaSink {
            settings: settings.clone(),
            transactional_id: format!("{}-{instance}", settings.group),
            state_topic: state_topic.to_owned(),
            dead_topic: dead_topic.to_owned(),
            handle,
            producer: None,
            states: BTreeMap::new(),
        }
    }

    /// How many bytes a record can have.
    fn record_bytes_max(&self) -> usize {
        let set = self.settings.kafka.get("message.max.bytes");
        set.and_then(|set| set.parse().ok()).unwrap_or(RECORD_BYTES_MAX)
    }

    /// What follows from a message, if the brokers can take all of it.
    fn apply(
        &mut self,
        message: &Message,
        text: &mut String,
        bytes_max: usize,
    ) -> Result<Vec<Record>, String> {
        let records = (self.handle)(message, text)?;
        let too_large = |bytes: usize, topic: &str| {
            format!(
                "a record of {bytes} bytes for {topic} is larger than message.max.bytes ({bytes_max})"
            )
        };
        if let Some(record) = records.iter().find(|record| record.bytes() > bytes_max) {
            return Err(too_large(record.bytes(), &record.topic));
        }
        let state = self.state(&message.key, &State { text: text.clone(), ..State::default() });
        // The position has ten numbers of 20 digits at most.
        match state.bytes() + 300 {
            bytes if bytes > bytes_max => Err(too_large(bytes, &self.state_topic)),
            _ => Ok(records),
        }
    }

    fn state(&self, key: &Key, state: &State) -> Record {
        let (key, state) = (serde_json::to_string(key), serde_json::to_vec(state));
        let (key, payload) = (key.expect("text"), state.expect("text"));
        Record { topic: self.state_topic.clone(), key, payload, headers: vec![] }
    }

    /// The records of a batch, each with its partition if that is fixed.
    fn records(&mut self, batch: &Batch<'_>) -> Vec<(Option<i32>, Record)> {
        let mut all = Vec::new();
        let mut changed: BTreeSet<(i32, &Key)> = BTreeSet::new();
        let bytes_max = self.record_bytes_max();
        for message in batch.accepted {
            let states = self.states.entry(message.partition).or_default();
            let mut text = states.entry(message.key.clone()).or_default().text.clone();
            match self.apply(message, &mut text, bytes_max) {
                Ok(records) => {
                    let states = self.states.entry(message.partition).or_default();
                    states.entry(message.key.clone()).or_default().text = text;
                    all.extend(records.into_iter().map(|record| (None, record)));
                }
                Err(reason) => {
                    let aside = SetAside { message: message.clone(), reason };
                    all.push((None, letter(&self.dead_topic, batch.topic, &aside, bytes_max)));
                }
            }
            changed.insert((message.partition, &message.key));
        }
        for aside in batch.set_aside {
            all.push((None, letter(&self.dead_topic, batch.topic, aside, bytes_max)));
        }
        for (partition, key, position) in batch.positions {
            let states = self.states.entry(*partition).or_default();
            states.entry(key.clone()).or_default().position = position.clone();
            changed.insert((*partition, key));
        }
        for (partition, key) in changed {
            let record = self.state(key, &self.states[&partition][key]);
            all.push((Some(partition), record));
        }
        all
    }

    /// Commits records and offsets. False: a rebalance has ended meanwhile, so the group has a new generation.
    fn transact(
        &self,
        records: &[(Option<i32>, Record)],
        offsets: &TopicPartitionList,
        batch: &Batch<'_>,
    ) -> Result<bool, Error> {
        let producer = self.producer.as_ref().expect("the feed has begun");
        producer.begin_transaction()?;
        for (partition, record) in records {
            send(producer, *partition, record)?;
        }
        producer.flush(ANSWER_MAX)?;
        match producer.send_offsets_to_transaction(offsets, &(batch.group)()?, ANSWER_MAX) {
            Err(KafkaError::Transaction(error))
                if error.code() == RDKafkaErrorCode::IllegalGeneration =>
            {
                producer.abort_transaction(ANSWER_MAX)?;
                return Ok(false);
            }
            ended => ended?,
        }
        let begun = Instant::now();
        loop {
            match producer.commit_transaction(ANSWER_MAX) {
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && begun.elapsed() < ANSWER_MAX => {}
                ended => return Ok(ended.map(|()| true)?),
            }
        }
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut offsets = TopicPartitionList::new();
        for progress in batch.progress {
            let mut one = offsets.add_partition(batch.topic, progress.partition);
            one.set_offset(Offset::Offset(progress.to.next))?;
            one.set_metadata(progress.to.lost_below.to_string());
        }
        // Before the transaction begins: readers of the output wait for what is open.
        let records = self.records(batch);
        let begun = Instant::now();
        // The partitions of a member that the group still knows are its own until it returns them, also in
        // the next generation.
        while !self.transact(&records, &offsets, batch)? {
            if begun.elapsed() > ANSWER_MAX {
                return Err(Error::Again(
                    "the group does not come to an end with a rebalance".into(),
                ));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

impl<F> Sink for KafkaSink<F>
where
    F: FnMut(&Message, &mut String) -> Result<Vec<Record>, String>,
{
    fn begin(&mut self) -> Result<(), Error> {
        self.states.clear();
        self.producer = None;
        let mut config = self.settings.client();
        config
            .set("transactional.id", &self.transactional_id)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0");
        if !self.settings.kafka.contains_key("transaction.timeout.ms") {
            config.set("transaction.timeout.ms", "10000");
        }
        config.remove("session.timeout.ms");
        let producer: BaseProducer = config.create().map_err(|e| Error::Stop(e.to_string()))?;
        // What a former life has left open is aborted, and that life can commit no more.
        producer.init_transactions(ANSWER_MAX)?;
        self.producer = Some(producer);
        Ok(())
    }

    fn start(&mut self, _: &str, partition: i32) -> Result<Start, Error> {
        let states = read_state(&self.settings, &self.state_topic, partition)?;
        let positions = states.iter().map(|(key, state)| (key.clone(), state.position.clone()));
        let positions = positions.collect();
        self.states.insert(partition, states);
        Ok(Start::Broker { positions })
    }

    fn end(&mut self, partition: i32) {
        self.states.remove(&partition);
    }

    fn positions(&mut self, _: &str, _: &[Key]) -> Result<Vec<(Key, Position)>, Error> {
        Ok(Vec::new())
    }

    fn commit(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.write(batch).inspect_err(|_| {
            if let Some(producer) = &self.producer {
                // If this fails as well, the next life's begin aborts it.
                let _ = producer.abort_transaction(ANSWER_MAX);
            }
        })
    }
}

/// What the dead-letter topic has of a message: without payload and headers if they are too large for it.
fn letter(dead_topic: &str, topic: &str, aside: &SetAside, bytes_max: usize) -> Record {
    let SetAside { message, reason } = aside;
    let more = |reason: String| {
        let values = [
            ("feed_reason", reason),
            ("feed_topic", topic.to_owned()),
            ("feed_partition", message.partition.to_string()),
            ("feed_offset", message.offset.to_string()),
        ];
        values.map(|(name, value)| (name.to_owned(), value.into_bytes()))
    };
    let mut headers = message.headers.clone();
    headers.extend(more(reason.clone()));
    let (key, payload) = (message.key.key.clone(), message.payload.clone());
    let mut record = Record { topic: dead_topic.to_owned(), key, payload, headers };
    if record.bytes() > bytes_max {
        let bytes = record.bytes();
        record.payload.clear();
        record.headers = more(format!(
            "{reason}; payload and headers are left out here, because the record would have {bytes} bytes"
        ))
        .into();
    }
    record
}

fn send(producer: &BaseProducer, partition: Option<i32>, record: &Record) -> Result<(), Error> {
    let Record { topic, key, payload, headers } = record;
    let all = headers.iter().fold(OwnedHeaders::new(), |all, (name, value)| {
        all.insert(Header { key: name, value: Some(value.as_slice()) })
    });
    let mut record =
        BaseRecord::<str, [u8]>::to(topic).key(key).payload(payload.as_slice()).headers(all);
    if let Some(partition) = partition {
        record = record.partition(partition);
    }
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), again)) => {
                record = again;
                producer.poll(Duration::from_millis(10));
            }
            Err((error, _)) => return Err(error.into()),
        }
    }
}

/// What a partition of a state topic has, as soon as no transaction of it is undecided.
///
/// # Errors
/// The brokers' errors; a record that is no state.
pub fn read_state(
    settings: &Settings,
    topic: &str,
    partition: i32,
) -> Result<HashMap<Key, State>, Error> {
    let reader = |isolation: &str| -> Result<BaseConsumer, Error> {
        let mut config = settings.client();
        config
            .set("group.id", format!("{}-state", settings.group))
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true")
            .set("auto.offset.reset", "error")
            // The end is known from an answer without records.
            .set("fetch.wait.max.ms", "10")
            .set("allow.auto.create.topics", "false")
            .set("isolation.level", isolation);
        config.create().map_err(|e| Error::Stop(e.to_string()))
    };
    let (first, end) = reader("read_uncommitted")?
        .fetch_watermarks(topic, partition, ANSWER_MAX)
        .map_err(|error| {
        Error::Again(format!("{topic}, partition {partition}: {error}: does it exist?"))
    })?;
    let committed = reader("read_committed")?;
    let begun = Instant::now();
    while committed.fetch_watermarks(topic, partition, ANSWER_MAX)?.1 < end {
        if begun.elapsed() > ANSWER_MAX * 2 {
            let why = format!("{topic}, partition {partition}: a transaction does not end");
            return Err(Error::Again(why));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let mut states = HashMap::new();
    if first == end {
        return Ok(states);
    }
    let mut from = TopicPartitionList::new();
    from.add_partition_offset(topic, partition, Offset::Offset(first))?;
    committed.assign(&from)?;
    let mut heard = Instant::now();
    loop {
        match committed.poll(Duration::from_millis(100)) {
            Some(Ok(record)) => {
                let key = serde_json::from_slice(record.key().unwrap_or_default());
                let state = serde_json::from_slice(record.payload().unwrap_or_default());
                let (Ok(key), Ok(state)) = (key, state) else {
                    return Err(Error::Stop(format!(
                        "{topic}, partition {partition}, offset {}: this is no state of a feed",
                        record.offset()
                    )));
                };
                states.insert(key, state);
                heard = Instant::now();
            }
            Some(Err(KafkaError::PartitionEOF(_))) => return Ok(states),
            Some(Err(_)) | None if heard.elapsed() < ANSWER_MAX => {}
            Some(Err(error)) => return Err(error.into()),
            None => return Err(Error::Again(format!("{topic}, partition {partition}: no answer"))),
        }
    }
}
