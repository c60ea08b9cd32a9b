//! A broker: a topic of Kafka.
//!
//! [`besom_core::delivery::producer`] decides what is sent to which partition and when it is repeated;
//! this module connects to the brokers, finds the leaders of the partitions, and makes the requests. All
//! batches that may be sent are sent at once, and then their answers are awaited. A topic is never
//! created.

mod connection;
mod records;
mod sasl;

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use besom_core::delivery::event::{Envelope, Origin};
use besom_core::delivery::producer::{
    Answer, Entry, Identity, Producer, RecordBatch, partition_of,
};
use besom_core::delivery::{Claimed, Fate};
use bytes::Bytes;
use futures::future::join_all;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    InitProducerIdRequest, MetadataRequest, ProduceRequest, ProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::Record;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::tls;
use besom_config::delivery::{KafkaServers, Route};
use besom_ports::courier::Broker;
use connection::{Access, Connection, NO_ANSWER, User};

/// How long the leaders and the number of partitions are not asked for again without a reason.
const METADATA_AGE_MAX: Duration = Duration::from_secs(300);
/// All replicas that are in sync confirm a batch.
const ACKS_ALL: i16 = -1;

/// The topic in Kafka of a topic.
pub struct KafkaTopic {
    servers: Vec<(String, u16)>,
    access: Access,
    /// The name in Kafka.
    topic: String,
    store: String,
    content_type: String,
    schema: Option<String>,
    envelope: Envelope,
    timeout: Duration,
    state: Mutex<State>,
}

/// What is known and open.
#[derive(Default)]
struct State {
    cluster: Option<Cluster>,
    /// One connection to each broker; those in use are taken out.
    open: BTreeMap<i32, Connection>,
    producer: Producer,
    /// The batch of each partition that was sent last, for its repetition.
    sent: BTreeMap<i32, Bytes>,
}

/// The brokers, and which of them leads which partition.
struct Cluster {
    brokers: BTreeMap<i32, (String, u16)>,
    /// By partition.
    leaders: Vec<i32>,
    found: Instant,
}

impl KafkaTopic {
    /// The topic in Kafka of a topic whose URL names these servers. Nothing is connected yet.
    ///
    /// # Errors
    /// Certificates, a key or a password that cannot be read.
    pub fn new(
        topic: &str,
        route: &Route,
        servers: &KafkaServers,
        ca: Option<&Path>,
        store: &str,
    ) -> anyhow::Result<KafkaTopic> {
        let identity = route.cert.as_deref().zip(route.key.as_deref());
        let identity = identity.map(|(cert, key)| tls::Identity { cert, key });
        let tls = servers.secure.then(|| tls::client_with(ca, identity)).transpose()?;
        let user = route.user.clone().zip(route.password_file.clone());
        let user = user.map(|(name, password_file)| User { name, password_file, sasl: route.sasl });
        if let Some(user) = &user {
            super::password(&user.password_file)
                .map_err(|why| anyhow::anyhow!("topics.{topic}: {why}"))?;
        }
        Ok(KafkaTopic {
            servers: servers.hosts.clone(),
            access: Access { tls: tls.map(|tls| TlsConnector::from(Arc::new(tls))), user },
            topic: route.topic.clone().unwrap_or_else(|| topic.to_owned()),
            store: store.to_owned(),
            content_type: route.content_type.clone(),
            schema: route.schema.clone(),
            envelope: route.envelope,
            timeout: route.timeout,
            state: Mutex::default(),
        })
    }

    /// The topic and its servers, for messages.
    fn place(&self) -> String {
        let servers: Vec<String> =
            self.servers.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        format!("Kafka {}, topic {}", servers.join(", "), self.topic)
    }

    fn name(&self) -> TopicName {
        TopicName(StrBytes::from_string(self.topic.clone()))
    }

    /// Sends what the producer has. An error is the reason for whatever was not sent.
    async fn deliver(
        &self,
        state: &mut State,
        records: &mut BTreeMap<u64, Record>,
        deadline: Instant,
    ) -> Result<(), String> {
        let mut is_again = false;
        loop {
            if state.producer.needs_identity() {
                let identity = self.identity(state, deadline).await?;
                state.producer.set_identity(identity);
                state.sent.clear();
            }
            let batches = state.producer.batches();
            if batches.is_empty() {
                // A connection that the broker has closed, or another leader: once more at once.
                let is_lost = state.cluster.is_none();
                if !is_lost || is_again || Instant::now() >= deadline {
                    return Ok(());
                }
                is_again = true;
                self.find(state, deadline).await?;
                state.producer.try_again();
                continue;
            }
            self.round(state, batches, records, deadline).await;
        }
    }

    /// Sends one batch to each of some partitions, and waits for all answers.
    async fn round(
        &self,
        state: &mut State,
        batches: Vec<RecordBatch>,
        records: &mut BTreeMap<u64, Record>,
        deadline: Instant,
    ) {
        let mut of_broker: BTreeMap<i32, Vec<(i32, Bytes)>> = BTreeMap::new();
        let mut answers = Vec::new();
        let mut is_lost = false;
        for batch in batches {
            let partition = batch.partition;
            let repeated = state.sent.get(&partition).filter(|_| batch.is_repeated).cloned();
            let bytes = match repeated.map_or_else(|| records::encoded(&batch, records), Ok) {
                Ok(bytes) => bytes,
                Err(error) => {
                    answers.push((partition, Answer::Refused(error)));
                    continue;
                }
            };
            state.sent.insert(partition, bytes.clone());
            match state.cluster.as_ref().and_then(|cluster| cluster.leader(partition)) {
                Some(leader) => of_broker.entry(leader).or_default().push((partition, bytes)),
                None => {
                    is_lost = true;
                    let why = format!("partition {partition} has no leader");
                    answers.push((partition, Answer::Refused(why)));
                }
            }
        }
        let requests = of_broker.into_iter().map(|(broker, batches)| {
            let open = state.open.remove(&broker).filter(|open| !open.is_over());
            let address = state.cluster.as_ref().and_then(|found| found.brokers.get(&broker));
            self.produce(broker, open, address.cloned(), batches, deadline)
        });
        for (broker, open, of_partitions) in join_all(requests.collect::<Vec<_>>()).await {
            match open {
                Some(open) => drop(state.open.insert(broker, open)),
                None => is_lost = true,
            }
            for (partition, code, answer) in of_partitions {
                is_lost |= code.is_some_and(is_moved);
                answers.push((partition, answer));
            }
        }
        // After the others: these can take away the numbers of all partitions.
        let is_last =
            |answer: &Answer| matches!(answer, Answer::Forgotten(_) | Answer::TooLarge(_));
        answers.sort_by_key(|(_, answer)| is_last(answer));
        for (partition, answer) in answers {
            state.producer.answered(partition, answer);
        }
        if is_lost {
            state.cluster = None;
        }
    }

    /// Makes one request with batches for partitions of one broker. Returns the connection if it can be
    /// used again, and for each partition the code of its error and what became of its batch.
    async fn produce(
        &self,
        broker: i32,
        open: Option<Connection>,
        address: Option<(String, u16)>,
        batches: Vec<(i32, Bytes)>,
        deadline: Instant,
    ) -> (i32, Option<Connection>, Vec<(i32, Option<i16>, Answer)>) {
        let partitions: Vec<i32> = batches.iter().map(|(partition, _)| *partition).collect();
        let all = |answer: Answer| {
            partitions.iter().map(|partition| (*partition, None, answer.clone())).collect()
        };
        let open = match (open, address) {
            (Some(open), _) => Ok(open),
            (None, Some((host, port))) => {
                Connection::open(&self.access, &host, port, deadline).await
            }
            (None, None) => Err(format!("the address of broker {broker} is unknown")),
        };
        let mut open = match open {
            Ok(open) => open,
            Err(error) => return (broker, None, all(Answer::Refused(error))),
        };
        let data = |(partition, bytes)| {
            PartitionProduceData::default().with_index(partition).with_records(Some(bytes))
        };
        let topic = TopicProduceData::default()
            .with_name(self.name())
            .with_partition_data(batches.into_iter().map(data).collect());
        // The broker gives up the confirmations of replicas before its own answer is given up.
        let millis = i32::try_from((self.timeout / 2).as_millis().max(1)).unwrap_or(i32::MAX);
        let request = ProduceRequest::default()
            .with_acks(ACKS_ALL)
            .with_timeout_ms(millis)
            .with_topic_data(vec![topic]);
        let answer = match open.ask(&request, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                let error = format!("broker {broker}: {error}");
                return (broker, None, all(Answer::Unknown(error)));
            }
        };
        let found: BTreeMap<i32, _> = answer
            .responses
            .into_iter()
            .flat_map(|topic| topic.partition_responses)
            .map(|found| (found.index, (found.error_code, found.error_message)))
            .collect();
        let of = |partition: &i32| match found.get(partition) {
            Some((code, text)) => (*partition, Some(*code), judged(*code, text.as_deref())),
            None => {
                let why = format!("broker {broker} says nothing of partition {partition}");
                (*partition, None, Answer::Unknown(why))
            }
        };
        let answers = partitions.iter().map(of).collect();
        (broker, Some(open), answers)
    }

    /// An identity for the producer, which any broker assigns.
    async fn identity(&self, state: &mut State, deadline: Instant) -> Result<Identity, String> {
        let request = InitProducerIdRequest::default()
            .with_transactional_id(None)
            .with_producer_id(ProducerId(-1))
            .with_producer_epoch(-1);
        let (broker, mut open) = self.any(state, deadline).await?;
        let answer = match open.ask(&request, deadline).await {
            Ok(answer) => answer,
            Err(error) => {
                state.cluster = None;
                return Err(format!("the producer has no identity: {error}"));
            }
        };
        keep(state, broker, open);
        match answer.error_code {
            0 => Ok(Identity { id: answer.producer_id.0, epoch: answer.producer_epoch }),
            code => Err(format!("the producer has no identity: {}", words(code, None))),
        }
    }

    /// Finds the brokers and the leaders.
    async fn find(&self, state: &mut State, deadline: Instant) -> Result<(), String> {
        let request = MetadataRequest::default()
            .with_allow_auto_topic_creation(false)
            .with_topics(Some(vec![MetadataRequestTopic::default().with_name(Some(self.name()))]));
        let (broker, mut open) = self.any(state, deadline).await?;
        let answer = match open.ask(&request, deadline).await {
            Ok(answer) => answer,
            Err(_) if broker.is_some() => {
                // It may have been closed meanwhile.
                open = self.bootstrap(deadline).await?;
                open.ask(&request, deadline).await.map_err(|error| self.unasked(error))?
            }
            Err(error) => return Err(self.unasked(error)),
        };
        keep(state, broker, open);
        let Some(topic) = answer.topics.into_iter().next() else {
            return Err("it says nothing of the topic".to_owned());
        };
        if topic.error_code != 0 {
            return Err(words(topic.error_code, None));
        }
        let broker = |of: kafka_protocol::messages::metadata_response::MetadataResponseBroker| {
            (of.node_id.0, (of.host.to_string(), u16::try_from(of.port).unwrap_or_default()))
        };
        let brokers: BTreeMap<_, _> = answer.brokers.into_iter().map(broker).collect();
        state.open.retain(|broker, _| brokers.contains_key(broker));
        let (leaders, found) = (leaders(topic), Instant::now());
        if leaders.is_empty() {
            return Err("the topic has no partitions".to_owned());
        }
        state.cluster = Some(Cluster { brokers, leaders, found });
        Ok(())
    }

    fn unasked(&self, error: String) -> String {
        match &self.access.user {
            Some(_) => error,
            None => format!("{error}; has the listener SASL (`user` of the topic)?"),
        }
    }

    /// An open connection, with its broker, or else a new one to any of the servers.
    async fn any(
        &self,
        state: &mut State,
        deadline: Instant,
    ) -> Result<(Option<i32>, Connection), String> {
        while let Some((broker, open)) = state.open.pop_first() {
            if !open.is_over() {
                return Ok((Some(broker), open));
            }
        }
        Ok((None, self.bootstrap(deadline).await?))
    }

    /// A new connection to the first of the servers that accepts one.
    async fn bootstrap(&self, deadline: Instant) -> Result<Connection, String> {
        let mut errors: Vec<String> = Vec::new();
        for ((host, port), left) in self.servers.iter().zip((1..=self.servers.len()).rev()) {
            // A server that does not answer leaves time for the others.
            let share = deadline.saturating_duration_since(Instant::now()) / u32_of(left);
            match Connection::open(&self.access, host, *port, Instant::now() + share).await {
                Ok(open) => return Ok(open),
                Err(error) => errors.push(error),
            }
        }
        Err(errors.join("; "))
    }
}

fn u32_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Keeps a connection to a broker for the next request. One to a server of the configuration is closed:
/// which broker it is, is not known.
fn keep(state: &mut State, broker: Option<i32>, open: Connection) {
    if let Some(broker) = broker {
        state.open.insert(broker, open);
    }
}

impl Cluster {
    fn leader(&self, partition: i32) -> Option<i32> {
        let leader = self.leaders.get(usize::try_from(partition).ok()?).copied();
        leader.filter(|leader| self.brokers.contains_key(leader))
    }
}

/// The leader of each partition; -1: none.
fn leaders(topic: MetadataResponseTopic) -> Vec<i32> {
    let mut leaders = vec![-1; topic.partitions.len()];
    for partition in topic.partitions {
        let place = usize::try_from(partition.partition_index).ok();
        if let Some(leader) = place.and_then(|place| leaders.get_mut(place)) {
            *leader = partition.leader_id.0;
        }
    }
    leaders
}

#[async_trait]
impl Broker for KafkaTopic {
    async fn send(&self, batch: &[Claimed], ids: &[String]) -> Vec<Fate> {
        let deadline = Instant::now() + self.timeout;
        let fail = |error: &str| Fate::Unknown(format!("{}: {error}", self.place()));
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let is_known =
            state.cluster.as_ref().is_some_and(|found| found.found.elapsed() < METADATA_AGE_MAX);
        if !is_known && let Err(error) = self.find(state, deadline).await {
            return vec![fail(&error)];
        }
        let origin = Origin {
            store: &self.store,
            content_type: &self.content_type,
            schema: self.schema.as_deref(),
        };
        let partitions = state.cluster.as_ref().map_or(0, |found| found.leaders.len());
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        let (mut records, mut entries) = (BTreeMap::new(), Vec::new());
        let mut sequences = HashMap::new();
        let mut room = records::room(batch);
        for (message, id) in batch.iter().zip(ids) {
            let record = records::record(origin, self.envelope, message, id, &mut room);
            let partition = partition_of(message.key.as_bytes(), partitions);
            let next = u32_of(sequences.len());
            let sequence = *sequences.entry((&message.tenant, &message.key)).or_insert(next);
            let bytes = records::size(&record);
            entries.push(Entry { id: message.id, partition, sequence, bytes });
            records.insert(message.id, record);
        }
        state.producer.begin(&entries);
        let done = self.deliver(state, &mut records, deadline).await;
        if !state.producer.is_in_doubt() {
            state.sent.clear();
        }
        let otherwise = done.err().unwrap_or_else(|| NO_ANSWER.to_owned());
        let mut fates = state.producer.end(&otherwise);
        for fate in &mut fates {
            if let Fate::Held(error) | Fate::Unknown(error) = fate {
                *error = format!("{}: {error}", self.place());
            }
        }
        fates
    }
}

/// What became of a batch, by the code of its partition.
fn judged(code: i16, text: Option<&str>) -> Answer {
    use ResponseError as E;
    let Some(error) = ResponseError::try_from_code(code) else { return Answer::Appended };
    let words = words(code, text);
    match error {
        E::DuplicateSequenceNumber => Answer::Appended,
        E::MessageTooLarge | E::RecordListTooLarge => Answer::TooLarge(words),
        E::OutOfOrderSequenceNumber
        | E::UnknownProducerId
        | E::InvalidProducerEpoch
        | E::InvalidProducerIdMapping
        | E::ProducerFenced => Answer::Forgotten(words),
        E::UnknownTopicOrPartition
        | E::LeaderNotAvailable
        | E::NotLeaderOrFollower
        | E::FencedLeaderEpoch
        | E::UnknownLeaderEpoch
        | E::NotEnoughReplicas
        | E::TopicAuthorizationFailed
        | E::ClusterAuthorizationFailed
        | E::InvalidTopicException
        | E::InvalidTimestamp
        | E::InvalidRecord
        | E::PolicyViolation => Answer::Refused(words),
        // Anything else says nothing of the log.
        _ => Answer::Unknown(words),
    }
}

/// Whether the leaders must be asked for again.
fn is_moved(code: i16) -> bool {
    use ResponseError as E;
    matches!(
        ResponseError::try_from_code(code),
        Some(
            E::UnknownTopicOrPartition
                | E::LeaderNotAvailable
                | E::NotLeaderOrFollower
                | E::FencedLeaderEpoch
                | E::UnknownLeaderEpoch
                | E::KafkaStorageError
        )
    )
}

/// An error of a broker, with the fix of those that an operator can correct.
fn words(code: i16, text: Option<&str>) -> String {
    use ResponseError as E;
    let Some(error) = ResponseError::try_from_code(code) else { return "no error".to_owned() };
    let known = match error {
        E::UnknownTopicOrPartition => "the topic does not exist: create it; Besom creates none",
        E::MessageTooLarge | E::RecordListTooLarge => {
            "a message is larger than the topic accepts: raise its max.message.bytes"
        }
        E::TopicAuthorizationFailed => "the user needs Describe and Write on the topic",
        E::ClusterAuthorizationFailed => {
            "the user needs IdempotentWrite on the cluster, as before Kafka 2.8"
        }
        E::NotEnoughReplicas | E::NotEnoughReplicasAfterAppend => {
            "fewer replicas are in sync than min.insync.replicas"
        }
        E::RequestTimedOut => "not all replicas in sync have confirmed in time",
        E::LeaderNotAvailable | E::NotLeaderOrFollower => "the partition has no leader now",
        _ => "",
    };
    match (text.filter(|text| !text.is_empty()), known) {
        (Some(text), "") => text.to_owned(),
        (None, "") => format!("{error} (code {code})"),
        (_, known) => known.to_owned(),
    }
}
