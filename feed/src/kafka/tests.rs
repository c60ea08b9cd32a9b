//! The sink with librdkafka's own mock of a cluster, of which single brokers go away.

use rdkafka::ClientConfig;
use rdkafka::mocking::{MockCluster, MockCoordinator};

use super::*;
use crate::sink::{Kept, Progress};

const TRANSACTIONS: i32 = 1;
const OFFSETS: i32 = 2;

#[test]
fn a_commit_ends_while_the_coordinator_of_the_group_is_away() {
    let cluster = MockCluster::new(2).unwrap();
    for topic in ["lines", "out", "state", "dead"] {
        cluster.create_topic(topic, 1, 1).unwrap();
        cluster.partition_leader(topic, 0, Some(TRANSACTIONS)).unwrap();
    }
    let of_transactions = MockCoordinator::Transaction("group-one".into());
    cluster.coordinator(of_transactions, TRANSACTIONS).unwrap();
    cluster.coordinator(MockCoordinator::Group("group".into()), OFFSETS).unwrap();
    let mut settings = Settings::new(&cluster.bootstrap_servers(), "lines", "group");
    settings.instance = Some("one".into());
    settings.kafka.insert("transaction.timeout.ms".into(), "1000".into());
    let handle = |message: &Message, _: &mut String| {
        let key = message.key.key.clone();
        Ok(vec![Record { topic: "out".into(), key, ..Record::default() }])
    };
    let mut sink = KafkaSink::new(&settings, "state", "dead", handle);
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &settings.brokers).set("group.id", "group");
    let consumer: BaseConsumer = config.create().unwrap();
    let accepted = [Message {
        partition: 0,
        offset: 0,
        key: Key { tenant: String::new(), key: "a".into() },
        number: 1,
        payload: Vec::new(),
        headers: Vec::new(),
    }];
    let batch = Batch {
        topic: "lines",
        accepted: &accepted,
        set_aside: &[],
        positions: &[],
        progress: &[Progress { partition: 0, to: Kept { next: 1, lost_below: 0 } }],
        group: &|| Ok(consumer.group_metadata().unwrap()),
    };
    sink.begin().unwrap();
    cluster.broker_down(OFFSETS).unwrap();
    let ended = sink.commit(&batch).unwrap_err();
    let expected = "the coordinator of the group does not take the offsets in time";
    assert_eq!(ended.to_string(), expected);
    assert!(matches!(ended, Error::Again(_)));
    cluster.broker_up(OFFSETS).unwrap();
    sink.begin().unwrap();
    sink.commit(&batch).unwrap();
}
