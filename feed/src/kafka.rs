//! Output to Kafka, in one transaction with the offsets.
//!
//! What a consumer knows of each key, its position and a text of the application, is a record in a
//! compacted *state topic*, in the partition with the number of the one that is read, written in the same
//! transaction. The next owner of a partition reads it from there.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerGroupMetadata};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::consumer::{ANSWER_MAX, Settings};
use crate::message::Message;
use crate::order::{Key, Position};
use crate::sink::{Batch, SetAside, Sink, Start};

mod size;
#[cfg(test)]
mod tests;

use size::{Deliveries, Origin, Outgoing, Refused, place};

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

/// How long a transaction may take, unless the settings say something else, in milliseconds.
const TRANSACTION_MS_MAX: u64 = 10_000;
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

/// How a transaction has ended.
enum Ended {
    Committed,
    /// A rebalance has ended meanwhile, so the group has a new generation.
    Regrouped,
    /// The brokers have refused these records for their size, or for that of the record batch they were in.
    TooLarge(Vec<usize>),
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
    producer: Option<Arc<BaseProducer<Deliveries>>>,
    /// Whether each record is sent alone, because the brokers have refused a whole record batch for its size.
    alone: bool,
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
            alone: false,
            states: BTreeMap::new(),
        }
    }

    /// How long a transaction may take.
    fn transaction_max(&self) -> Duration {
        let set = self.settings.kafka.get("transaction.timeout.ms");
        let set = set.and_then(|set| set.parse().ok());
        Duration::from_millis(set.unwrap_or(TRANSACTION_MS_MAX))
    }

    /// Sends the offsets to the transaction. librdkafka can wait for ever here, whatever timeout it has, if the
    /// group's coordinator goes away (confluentinc/librdkafka#5456, #5511). So a thread waits, which is left
    /// behind with its producer if the transaction takes too long: the next producer ends the transaction.
    fn send_offsets(
        &self,
        producer: &Arc<BaseProducer<Deliveries>>,
        offsets: &TopicPartitionList,
        group: ConsumerGroupMetadata,
    ) -> Result<KafkaResult<()>, Error> {
        let (producer, offsets) = (Arc::clone(producer), offsets.clone());
        let (answer, answered) = mpsc::channel();
        std::thread::spawn(move || {
            let sent = producer.send_offsets_to_transaction(&offsets, &group, ANSWER_MAX);
            // Nobody may wait any more.
            let _ = answer.send(sent);
        });
        answered.recv_timeout(self.transaction_max()).map_err(|_| {
            Error::Again("the coordinator of the group does not take the offsets in time".into())
        })
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
        // The position has eleven numbers of 20 digits at most.
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

    /// What follows from a batch: its records, and the states of its keys.
    fn records<'a>(
        &mut self,
        batch: &Batch<'a>,
        refused: &Refused,
    ) -> (Vec<Outgoing<'a>>, BTreeMap<(i32, &'a Key), State>) {
        let mut all = Vec::new();
        let mut states: BTreeMap<(i32, &Key), State> = BTreeMap::new();
        let bytes_max = self.record_bytes_max();
        let dead_topic = self.dead_topic.clone();
        let letter = |aside: &SetAside, message: &'a Message| {
            let bytes_max = refused.letters.get(&place(message)).map_or(bytes_max, |&max| max);
            let record = letter(&dead_topic, batch.topic, aside, bytes_max);
            Outgoing { partition: None, record, of: Origin::Letter(message) }
        };
        let known = |states: &BTreeMap<i32, HashMap<Key, State>>, partition: i32, key: &Key| {
            let state = states.get(&partition).and_then(|states| states.get(key));
            state.cloned().unwrap_or_default()
        };
        for message in batch.accepted {
            let Message { partition, key, .. } = message;
            let state = states
                .entry((*partition, key))
                .or_insert_with(|| known(&self.states, *partition, key));
            let mut text = state.text.clone();
            let applied = match refused.messages.get(&place(message)) {
                Some(reason) => Err(reason.clone()),
                None => self.apply(message, &mut text, bytes_max),
            };
            match applied {
                Ok(records) => {
                    state.text = text;
                    let of = || Origin::Message(message);
                    let outgoing = |record| Outgoing { partition: None, record, of: of() };
                    all.extend(records.into_iter().map(outgoing));
                }
                Err(reason) => {
                    all.push(letter(&SetAside { message: message.clone(), reason }, message));
                }
            }
        }
        all.extend(batch.set_aside.iter().map(|aside| letter(aside, &aside.message)));
        for (partition, key, position) in batch.positions {
            let state = states
                .entry((*partition, key))
                .or_insert_with(|| known(&self.states, *partition, key));
            state.position = position.clone();
        }
        for ((partition, key), state) in &states {
            let record = self.state(key, state);
            all.push(Outgoing { partition: Some(*partition), record, of: Origin::State(key) });
        }
        (all, states)
    }

    /// Commits records and offsets.
    fn transact(
        &self,
        records: &[Outgoing<'_>],
        offsets: &TopicPartitionList,
        batch: &Batch<'_>,
    ) -> Result<Ended, Error> {
        let producer = self.producer.as_ref().expect("the feed has begun");
        producer.begin_transaction()?;
        let sent = records.iter().enumerate().try_for_each(|(which, one)| {
            send(producer, which, one)?;
            if self.alone {
                producer.flush(ANSWER_MAX)?;
            }
            Ok(())
        });
        // Also after an error: it may follow from what the brokers have refused.
        let sent = producer.flush(ANSWER_MAX).map_err(Error::from).and(sent);
        let too_large = producer.context().take();
        if !too_large.is_empty() {
            producer.abort_transaction(ANSWER_MAX)?;
            return Ok(Ended::TooLarge(too_large));
        }
        sent?;
        match self.send_offsets(producer, offsets, (batch.group)()?)? {
            Err(KafkaError::Transaction(error))
                if error.code() == RDKafkaErrorCode::IllegalGeneration =>
            {
                producer.abort_transaction(ANSWER_MAX)?;
                return Ok(Ended::Regrouped);
            }
            ended => ended?,
        }
        let begun = Instant::now();
        loop {
            match producer.commit_transaction(ANSWER_MAX) {
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && begun.elapsed() < ANSWER_MAX => {}
                ended => return Ok(ended.map(|()| Ended::Committed)?),
            }
        }
    }

    /// Opens a new producer: what a former one has left open is aborted, and it can commit no more.
    fn open(&mut self) -> Result<(), Error> {
        self.producer = None;
        let mut config = self.settings.client();
        config
            .set("transactional.id", &self.transactional_id)
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0");
        config.set("transaction.timeout.ms", self.transaction_max().as_millis().to_string());
        config.remove("session.timeout.ms");
        let producer: BaseProducer<Deliveries> = config
            .create_with_context(Deliveries::default())
            .map_err(|error| Error::Stop(error.to_string()))?;
        producer.init_transactions(ANSWER_MAX)?;
        self.producer = Some(Arc::new(producer));
        Ok(())
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let mut offsets = TopicPartitionList::new();
        for progress in batch.progress {
            let mut one = offsets.add_partition(batch.topic, progress.partition);
            one.set_offset(Offset::Offset(progress.to.next))?;
            one.set_metadata(progress.to.lost_below.to_string());
        }
        let mut refused = Refused::default();
        loop {
            // Before the transaction begins: readers of the output wait for what is open.
            let (records, states) = self.records(batch, &refused);
            let begun = Instant::now();
            // The partitions of a member that the group still knows are its own until it returns them, also
            // in the next generation.
            let too_large = loop {
                match self.transact(&records, &offsets, batch)? {
                    Ended::Committed => break Vec::new(),
                    Ended::TooLarge(which) => break which,
                    Ended::Regrouped if begun.elapsed() > ANSWER_MAX => {
                        let why = "the group does not come to an end with a rebalance";
                        return Err(Error::Again(why.into()));
                    }
                    Ended::Regrouped => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            if too_large.is_empty() {
                for ((partition, key), state) in states {
                    self.states.entry(partition).or_default().insert(key.clone(), state);
                }
                self.alone &= refused.is_empty();
                return Ok(());
            }
            // The next transaction of this producer would fail, because numbers of records are missing
            // between those that the broker has.
            self.open()?;
            if !self.alone {
                // Which of them are too large, and not only together, is seen when each is sent alone.
                self.alone = true;
                continue;
            }
            for which in too_large {
                refused.add(&records[which], batch.accepted)?;
            }
        }
    }
}

impl<F> Sink for KafkaSink<F>
where
    F: FnMut(&Message, &mut String) -> Result<Vec<Record>, String>,
{
    fn begin(&mut self) -> Result<(), Error> {
        self.states.clear();
        self.alone = false;
        self.open()
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

fn send(
    producer: &BaseProducer<Deliveries>,
    which: usize,
    outgoing: &Outgoing<'_>,
) -> Result<(), Error> {
    let Record { topic, key, payload, headers } = &outgoing.record;
    let all = headers.iter().fold(OwnedHeaders::new(), |all, (name, value)| {
        all.insert(Header { key: name, value: Some(value.as_slice()) })
    });
    let mut record = BaseRecord::<str, [u8], usize>::with_opaque_to(topic, which)
        .key(key)
        .payload(payload.as_slice())
        .headers(all);
    if let Some(partition) = outgoing.partition {
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
