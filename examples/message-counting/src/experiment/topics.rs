//! The topics of the example: made at the beginning, and read at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use besom_feed::kafka::read_state;
use besom_feed::rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use besom_feed::rdkafka::client::DefaultClientContext;
use besom_feed::rdkafka::consumer::{BaseConsumer, Consumer as _};
use besom_feed::rdkafka::error::KafkaError;
use besom_feed::rdkafka::message::{Headers as _, Message as _};
use besom_feed::rdkafka::{ClientConfig, Offset, TopicPartitionList};
use besom_feed::{Error, Settings};

use super::process::pause;
use crate::{COUNTS, DEAD, LINES, TEXTS};

/// How long the brokers may take to answer: one of them may just have begun.
const ANSWER_MAX: Duration = Duration::from_secs(300);

/// Creates all topics. With three replicas, a message that is confirmed is on two brokers at least.
pub(super) fn create(brokers: &str, partitions: i32, replication: i32) -> Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers);
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    let in_sync = if replication > 2 { "2" } else { "1" };
    let topic = |name, partitions| {
        NewTopic::new(name, partitions, TopicReplication::Fixed(replication))
            .set("min.insync.replicas", in_sync)
    };
    let topics = [
        topic(LINES, partitions),
        topic(COUNTS, partitions).set("cleanup.policy", "compact"),
        topic(TEXTS, partitions),
        topic(DEAD, 1),
    ];
    let options =
        AdminOptions::new().request_timeout(Some(ANSWER_MAX)).operation_timeout(Some(ANSWER_MAX));
    let created = admin.create_topics(&topics, &options);
    for one in tokio::runtime::Runtime::new()?.block_on(created)? {
        if let Err((name, error)) = one {
            bail!("the topic {name}: {error} (the experiment needs brokers without its topics)");
        }
    }
    Ok(())
}

/// What the counters have counted of each client.
pub(super) fn counted(settings: &Settings, partitions: i32) -> Result<BTreeMap<String, u64>> {
    let mut counted = BTreeMap::new();
    for partition in 0..partitions {
        let begun = Instant::now();
        let states = loop {
            match read_state(settings, COUNTS, partition) {
                Err(Error::Again(_)) if begun.elapsed() < ANSWER_MAX => {
                    pause(Duration::from_millis(200))?;
                }
                ended => break ended?,
            }
        };
        for (key, state) in states {
            counted.insert(key.key, state.text.parse::<u64>().context("no count")?);
        }
    }
    Ok(counted)
}

/// How many different messages are committed in a topic: by key and number, where there are numbers.
pub(super) fn records(settings: &Settings, topic: &str, partitions: i32) -> Result<u64> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", &settings.brokers)
        .set("group.id", "experiment")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed");
    let consumer: BaseConsumer = config.create()?;
    let mut from = TopicPartitionList::new();
    for partition in 0..partitions {
        from.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&from)?;
    let mut seen = BTreeSet::new();
    let (mut open, begun) = (partitions, Instant::now());
    while open > 0 {
        ensure!(begun.elapsed() < ANSWER_MAX, "{topic} cannot be read");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            Some(Ok(record)) => {
                let number = record.headers().and_then(|headers| {
                    let one = headers.iter().find(|header| header.key == "ce_sequence")?;
                    one.value.map(<[u8]>::to_vec)
                });
                let key = record.key().unwrap_or_default().to_vec();
                let place = (record.partition(), record.offset());
                seen.insert(number.map_or_else(
                    || (place.0.to_string().into_bytes(), place.1.to_string().into_bytes()),
                    |number| (key, number),
                ));
            }
            Some(Err(_)) | None => {}
        }
    }
    Ok(seen.len() as u64)
}
