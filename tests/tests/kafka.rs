//! Topics of Kafka as brokers, on real servers: what arrives, in which order, and what is held while it
//! does not.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::OnceLock;

use besom_core::delivery::State;
use besom_tests::servers::certificates::Authority;
use besom_tests::servers::kafka::{Kafka, PASSWORD, Tls, USER};
use besom_tests::way::{Way, emitted, until};
use kafka_protocol::records::Record;
use tokio::sync::{Mutex, MutexGuard};

/// The certificates of the shared broker, and of its clients.
struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.file(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

/// The broker of all tests that do not disturb it.
fn shared() -> &'static (Kafka, Certificates) {
    static SHARED: OnceLock<(Kafka, Certificates)> = OnceLock::new();
    SHARED.get_or_init(|| {
        let ours = Authority::new("ours");
        let certificates = Certificates { directory: tempfile::tempdir().unwrap() };
        certificates.write("ca.pem", ours.certificate());
        certificates.write("others.pem", Authority::new("others").certificate());
        let (cert, key) = ours.sign("client", false);
        certificates.write("cert.pem", &cert);
        certificates.write("key.pem", &key);
        let (certificate, key) = ours.sign("127.0.0.1", false);
        let (certificate, key, authority) = (&certificate, &key, ours.certificate());
        (Kafka::start(Some(Tls { certificate, key, authority })), certificates)
    })
}

/// A broker that one test at a time freezes and kills.
async fn disturbed() -> MutexGuard<'static, Kafka> {
    static DISTURBED: OnceLock<Mutex<Kafka>> = OnceLock::new();
    DISTURBED.get_or_init(|| Mutex::new(Kafka::start(None))).lock().await
}

fn text(bytes: Option<&bytes::Bytes>) -> &str {
    bytes.map_or("", |bytes| std::str::from_utf8(bytes).expect("text"))
}

fn header<'a>(record: &'a Record, name: &str) -> &'a str {
    text(record.headers.get(name.as_bytes()).and_then(Option::as_ref))
}

/// What a consumer keeps that drops repeated messages: the payloads of each key. A number that is
/// left out is an error, and so is a key in two partitions.
fn consumed(partitions: &BTreeMap<i32, Vec<Record>>) -> BTreeMap<String, Vec<String>> {
    let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for records in partitions.values() {
        for record in records {
            let kept = of.entry(text(record.key.as_ref()).to_owned()).or_default();
            let number: usize = header(record, "ce_sequence").parse().expect("a number");
            assert!(number <= kept.len() + 1, "{number} follows {}", kept.len());
            if number == kept.len() + 1 {
                kept.push(text(record.value.as_ref()).to_owned());
            }
        }
    }
    of
}

fn count(partitions: &BTreeMap<i32, Vec<Record>>) -> usize {
    partitions.values().map(Vec::len).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_arrive_as_events_in_the_order_of_their_keys() {
    let (server, _) = shared();
    server.create("order", 3, &[]);
    let more = "topic = \"order\"\nbatch = 100\nschema = \"urn:example\"";
    let way = Way::new(&server.url(), more).await;
    way.emit(0..1_000, 7);
    assert_eq!(count(&server.read("order", 3)), 0, "nobody leads");
    way.lead(1).await;
    way.until_delivered(1_000).await;
    let all = server.read("order", 3);
    assert_eq!((count(&all), consumed(&all)), (1_000, emitted(1_000, 7)));
    assert!(all.values().filter(|records| !records.is_empty()).count() > 1, "by key");
    let mut first = all.values().flatten().filter(|record| text(record.key.as_ref()) == "0");
    let first = first.next().expect("a message");
    let names = ["ce_specversion", "ce_type", "ce_subject", "ce_partitionkey", "ce_sequence"];
    assert_eq!(
        names.map(|name| header(first, name)),
        ["1.0", "t", "0", "0", "00000000000000000001"]
    );
    let names = ["content-type", "ce_dataschema", "ce_besomtenant", "ce_datacontenttype"];
    assert_eq!(names.map(|name| header(first, name)), ["application/json", "urn:example", "p", ""]);
    assert_eq!(header(first, "ce_source"), format!("urn:besom:{}", way.store.identity()));
    let ids: BTreeSet<_> = all.values().flatten().map(|record| header(record, "ce_id")).collect();
    assert_eq!((ids.len(), ids.first().map(|id| id.len())), (1_000, Some(32)));
    assert_eq!(text(first.value.as_ref()), "{\"n\":0}");
    assert!(first.producer_id >= 0, "the producer is idempotent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_structured_event_is_the_value() {
    let (server, _) = shared();
    server.create("events", 1, &[]);
    let more = "envelope = \"structured\"\ntopic = \"events\"";
    let way = Way::new(&server.url(), more).await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_delivered(1).await;
    let all = server.read("events", 1);
    let event = &all[&0][0];
    assert_eq!(header(event, "content-type"), "application/cloudevents+json");
    let event: serde_json::Value = serde_json::from_str(text(event.value.as_ref())).expect("JSON");
    assert_eq!((&event["data"]["n"], &event["subject"]), (&0.into(), &"0".into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_frozen_broker_is_waited_for_within_the_timeout_and_gets_nothing_twice() {
    let server = disturbed().await;
    server.create("frozen", 2, &[]);
    let way = Way::new(&server.url(), "topic = \"frozen\"").await;
    way.emit(0..1, 3);
    way.lead(1).await;
    way.until_delivered(1).await;
    server.freeze();
    way.emit(1..100, 3);
    way.until_held("no answer within").await;
    server.thaw();
    way.until_delivered(100).await;
    let all = server.read("frozen", 2);
    assert_eq!((count(&all), consumed(&all)), (100, emitted(100, 3)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_that_is_killed_and_a_leader_that_is_replaced_lose_nothing() {
    let mut server = disturbed().await;
    server.create("killed", 3, &[]);
    let way = Way::new(&server.url(), "topic = \"killed\"\nbatch = 50").await;
    way.lead(1).await;
    for (term, from) in [(2, 0), (3, 1_000)] {
        way.emit(from..from + 1_000, 10);
        until("some arrive", async || way.in_state(State::Delivered).await.len() > from + 100)
            .await;
        server.kill();
        way.lead(term).await;
        way.until_held("cannot connect").await;
        server.restart();
    }
    way.until_delivered(2_000).await;
    assert_eq!(consumed(&server.read("killed", 3)), emitted(2_000, 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_does_not_exist_is_not_created_and_holds_its_messages() {
    let (server, _) = shared();
    let way = Way::new(&server.url(), "topic = \"absent\"").await;
    way.emit(0..20, 3);
    way.lead(1).await;
    way.until_held("topic absent: the topic does not exist").await;
    assert!(!server.topics().contains(&"absent".to_owned()));
    server.create("absent", 2, &[]);
    way.until_delivered(20).await;
    assert_eq!(consumed(&server.read("absent", 2)), emitted(20, 3));
}

/// Messages of three keys in the one partition of a topic of small messages, of which the 60th is too
/// large. Waits until it is held, and all messages of other keys are there.
async fn with_a_large_one(server: &Kafka, topic: &str) -> Way {
    server.create(topic, 1, &[("max.message.bytes", "20000")]);
    let way = Way::new(&server.url(), &format!("topic = \"{topic}\"\nbatch = 25")).await;
    way.emit_as_they_are((0..100).map(|n| ((n % 3).to_string(), mixed(n))));
    way.lead(1).await;
    way.until_held("raise its max.message.bytes").await;
    way.until_delivered(86).await;
    way.emit_as_they_are((100..130).map(|n| ((n % 3).to_string(), mixed(n))));
    way.until_delivered(106).await;
    let all = server.read(topic, 1);
    let expected: BTreeMap<_, _> = (0..3).map(|key| (key.to_string(), of_key(key))).collect();
    let mut those_before = expected.clone();
    those_before.get_mut("0").expect("a key").truncate(20);
    assert_eq!((count(&all), consumed(&all)), (106, those_before), "each once");
    let held = way.in_state(State::Pending).await;
    let failed: Vec<_> = held.iter().filter(|m| m.delivery.error.is_some()).collect();
    assert_eq!((held.len(), failed.len()), (24, 1), "those behind it were not sent");
    assert_eq!(failed[0].delivery.payload, mixed(60).as_bytes());
    way
}

fn mixed(n: usize) -> String {
    n.to_string().repeat(if n == 60 { 30_000 } else { 1_000 })
}

/// The payloads of a key in the order of their commits.
fn of_key(key: usize) -> Vec<String> {
    (0..130).filter(|n| n % 3 == key).map(mixed).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_holds_up_its_key_until_the_topic_takes_it() {
    let (server, _) = shared();
    let way = with_a_large_one(server, "small").await;
    server.create("order-of-another", 1, &[]);
    let other = Way::new(&server.url(), "topic = \"order-of-another\"").await;
    other.emit(0..10, 1);
    other.lead(1).await;
    other.until_delivered(10).await;
    server.set("small", "max.message.bytes", "200000");
    way.until_delivered(130).await;
    let all = server.read("small", 1);
    let expected = (0..3).map(|key| (key.to_string(), of_key(key))).collect();
    assert_eq!((count(&all), consumed(&all)), (130, expected), "each once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_too_large_and_discarded_makes_way_for_its_key() {
    let (server, _) = shared();
    let way = with_a_large_one(server, "discarding").await;
    let large = way.in_state(State::Pending).await.pop().expect("the oldest").delivery.id;
    way.discard(large).await;
    way.until_delivered(129).await;
    let records = server.read("discarding", 1).remove(&0).expect("the partition");
    let key = |record: &&Record| text(record.key.as_ref()) == "0";
    let arrived = records.iter().filter(key).map(|record| text(record.value.as_ref()));
    let expected: Vec<_> = of_key(0).into_iter().filter(|text| *text != mixed(60)).collect();
    assert_eq!(arrived.collect::<Vec<_>>(), expected, "each once, in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_is_read_from_its_file_at_each_connection() {
    let (server, certificates) = shared();
    server.create("secret", 1, &[]);
    for (n, sasl) in ["plain", "scram-sha-256", "scram-sha-512"].into_iter().enumerate() {
        let file = certificates.write(sasl, "wrong-secret\n");
        let more = format!(
            "topic = \"secret\"\nuser = \"{USER}\"\nsasl = \"{sasl}\"\npassword_file = \"{}\"",
            file.display()
        );
        let way = Way::new(&server.sasl_url(), &more).await;
        way.emit(0..5, 1);
        way.lead(1).await;
        let failed = format!("authentication of `{USER}` with {} failed", sasl.to_uppercase());
        way.until_held(&failed).await;
        let pending = way.in_state(State::Pending).await;
        let shown = format!("{pending:?}");
        assert!(!shown.contains("wrong-secret") && shown.contains("topic secret"), "{shown}");
        assert!(shown.contains(&file.display().to_string()), "{shown}");
        certificates.write(sasl, &format!("{PASSWORD}\n"));
        way.until_delivered(5).await;
        assert_eq!(count(&server.read("secret", 1)), (n + 1) * 5);
    }
    let way = Way::new(&server.sasl_url(), "topic = \"secret\"").await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_held("has the listener SASL").await;
    let file = certificates.write("right", PASSWORD);
    let more = format!("user = \"{USER}\"\npassword_file = \"{}\"", file.display());
    let way = Way::new(&server.url(), &more).await;
    way.emit(0..1, 1);
    way.lead(1).await;
    way.until_held("has the listener SASL").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broker_and_a_client_are_identified_by_their_certificates() {
    let (server, certificates) = shared();
    server.create("certified", 1, &[]);
    let url = format!("kafka+ssl://127.0.0.1:{}", server.tls_port());
    let file = |name: &str| certificates.file(name);
    let (cert, key) = (file("cert.pem"), file("key.pem"));
    let topic = "topic = \"certified\"";
    let client = format!("{topic}\ncert = \"{}\"\nkey = \"{}\"", cert.display(), key.display());
    let plain = url.replace("+ssl", "");
    for (ca, url, more, held) in [
        ("ca.pem", url.as_str(), client.as_str(), ""),
        ("others.pem", &url, &client, "UnknownIssuer"),
        ("ca.pem", &url, topic, "`cert`"),
        ("ca.pem", &plain, topic, "does the listener need TLS"),
        ("ca.pem", &server.url().replace("kafka:", "kafka+ssl:"), topic, "has the listener TLS"),
    ] {
        let way = Way::trusting(Some(&file(ca)), url, more).await;
        way.emit(0..10, 3);
        way.lead(1).await;
        match held {
            "" => way.until_delivered(10).await,
            held => way.until_held(held).await,
        }
    }
    assert_eq!(consumed(&server.read("certified", 1)), emitted(10, 3));
}
