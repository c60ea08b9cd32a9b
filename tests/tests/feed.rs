//! The consuming half on a real broker: each message once, in order, whatever ends in between; and the
//! example that counts messages.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use besom_feed::kafka::{KafkaSink, Record};
use besom_feed::order::{Bounds, Key};
use besom_feed::rdkafka::consumer::{BaseConsumer, Consumer as _};
use besom_feed::rdkafka::error::KafkaError;
use besom_feed::rdkafka::message::{Header, Headers as _, Message as _, OwnedHeaders};
use besom_feed::rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use besom_feed::rdkafka::{ClientConfig, Offset, TopicPartitionList};
use besom_feed::sink::{Batch, Kept, Progress, Sink as _, Start};
use besom_feed::sqlite::{Failure, SqliteSink};
use besom_feed::{Error, Message, Notice, Settings};
use besom_tests::servers::kafka::Kafka;
use rusqlite::Connection;

/// How long anything here may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// The broker of all tests here.
fn broker() -> MutexGuard<'static, Kafka> {
    static BROKER: OnceLock<Mutex<Kafka>> = OnceLock::new();
    let broker = BROKER.get_or_init(|| Mutex::new(Kafka::start(None)));
    broker.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn address(broker: &Kafka) -> String {
    broker.url().trim_start_matches("kafka://").to_owned()
}

/// Produces messages as Besom does: the key and number of each; the payload is the number.
fn produce(brokers: &str, topic: &str, messages: impl IntoIterator<Item = (&'static str, u64)>) {
    let with_payload = |(key, number): (&'static str, u64)| (key, Some(number), number.to_string());
    produce_as_they_are(brokers, topic, messages.into_iter().map(with_payload));
}

fn produce_as_they_are(
    brokers: &str,
    topic: &str,
    messages: impl IntoIterator<Item = (&'static str, Option<u64>, String)>,
) {
    let producer: BaseProducer =
        ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
    for (key, number, payload) in messages {
        let mut record = BaseRecord::to(topic).key(key).payload(payload.as_bytes());
        if let Some(number) = number {
            let number = format!("{number:020}");
            let header = Header { key: "ce_sequence", value: Some(number.as_bytes()) };
            record = record.headers(OwnedHeaders::new().insert(header));
        }
        producer.send(record).map_err(|(error, _)| error).unwrap();
    }
    producer.flush(PATIENCE).unwrap();
}

/// What is committed in a topic: key, payload, and the header with the reason.
fn committed(brokers: &str, topic: &str, partitions: i32) -> Vec<(String, String, String)> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "reader")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .create()
        .unwrap();
    let mut all = TopicPartitionList::new();
    for partition in 0..partitions {
        all.add_partition_offset(topic, partition, Offset::Beginning).unwrap();
    }
    consumer.assign(&all).unwrap();
    let (mut found, mut open, begun) = (Vec::new(), partitions, Instant::now());
    while open > 0 {
        assert!(begun.elapsed() < PATIENCE, "{topic} cannot be read");
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(record)) => {
                let text = |bytes: Option<&[u8]>| {
                    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
                };
                let headers = record.headers().into_iter().flat_map(|headers| headers.iter());
                let mut reason = headers.filter(|header| header.key == "feed_reason");
                let reason = text(reason.next().and_then(|header| header.value));
                found.push((text(record.key()), text(record.payload()), reason));
            }
            Some(Err(KafkaError::PartitionEOF(_))) => open -= 1,
            _ => {}
        }
    }
    found
}

/// Where output goes, and what the tests read there.
trait Place: Sync {
    fn run(
        &self,
        settings: &Settings,
        tell: &mut dyn FnMut(Notice),
        stop: &AtomicBool,
    ) -> Result<(), Error>;
    /// Key and payload, in order within each key.
    fn output(&self) -> Vec<(String, String)>;
    /// Payload and reason.
    fn dead(&self) -> Vec<(String, String)>;
}

struct ToKafka {
    brokers: String,
    name: String,
}

impl ToKafka {
    fn new(broker: &Kafka, name: &str, partitions: i32) -> ToKafka {
        broker.create(&format!("{name}-out"), 2, &[]);
        broker.create(&format!("{name}-dead"), 1, &[]);
        broker.create(&format!("{name}-state"), partitions, &[("cleanup.policy", "compact")]);
        ToKafka { brokers: address(broker), name: name.into() }
    }
}

impl Place for ToKafka {
    fn run(
        &self,
        settings: &Settings,
        tell: &mut dyn FnMut(Notice),
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        let (state, dead) = (format!("{}-state", self.name), format!("{}-dead", self.name));
        let topic = format!("{}-out", self.name);
        let handle = |message: &Message, seen: &mut String| {
            if message.payload == b"poison" {
                return Err("it cannot be applied".to_owned());
            }
            seen.push('.');
            let (key, payload) = (message.key.key.clone(), message.payload.clone());
            Ok(vec![Record { topic: topic.clone(), key, payload, headers: Vec::new() }])
        };
        let mut sink = KafkaSink::new(settings, &state, &dead, handle);
        besom_feed::run(settings, &mut sink, tell, stop)
    }

    fn output(&self) -> Vec<(String, String)> {
        let all = committed(&self.brokers, &format!("{}-out", self.name), 2);
        all.into_iter().map(|(key, payload, _)| (key, payload)).collect()
    }

    fn dead(&self) -> Vec<(String, String)> {
        let all = committed(&self.brokers, &format!("{}-dead", self.name), 1);
        all.into_iter().map(|(_, payload, reason)| (payload, reason)).collect()
    }
}

struct ToSqlite(tempfile::TempDir);

impl ToSqlite {
    fn new() -> ToSqlite {
        let place = ToSqlite(tempfile::tempdir().unwrap());
        let table =
            "PRAGMA journal_mode = wal; CREATE TABLE output (id INTEGER PRIMARY KEY, key, payload)";
        place.open().execute_batch(table).unwrap();
        place
    }

    fn open(&self) -> Connection {
        let connection = Connection::open(self.0.path().join("out.db")).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }

    fn sink(&self) -> SqliteSink<impl FnMut(&Connection, &Message) -> Result<(), Failure> + use<>> {
        let insert = "INSERT INTO output (key, payload) VALUES (?1, ?2)";
        let handle = |database: &Connection, message: &Message| {
            let payload = String::from_utf8_lossy(&message.payload).into_owned();
            database.prepare_cached(insert)?.execute([&message.key.key, &payload])?;
            match payload.as_str() {
                "poison" => Err(Failure::Refused("it cannot be applied".into())),
                _ => Ok(()),
            }
        };
        SqliteSink::new(self.open(), "test", handle).unwrap()
    }

    fn pairs(&self, sql: &str) -> Vec<(String, String)> {
        let database = self.open();
        let mut statement = database.prepare(sql).unwrap();
        let text = |row: &rusqlite::Row<'_>, place| {
            Ok::<String, rusqlite::Error>(match row.get_ref(place)? {
                rusqlite::types::ValueRef::Blob(bytes) => {
                    String::from_utf8_lossy(bytes).into_owned()
                }
                other => other.as_str()?.to_owned(),
            })
        };
        let rows = statement.query_map([], |row| Ok((text(row, 0)?, text(row, 1)?))).unwrap();
        rows.map(Result::unwrap).collect()
    }
}

impl Place for ToSqlite {
    fn run(
        &self,
        settings: &Settings,
        tell: &mut dyn FnMut(Notice),
        stop: &AtomicBool,
    ) -> Result<(), Error> {
        besom_feed::run(settings, &mut self.sink(), tell, stop)
    }

    fn output(&self) -> Vec<(String, String)> {
        self.pairs("SELECT key, payload FROM output ORDER BY id")
    }

    fn dead(&self) -> Vec<(String, String)> {
        self.sink();
        self.pairs("SELECT payload, reason FROM feed_dead ORDER BY id")
    }
}

/// Runs a consumer until the condition holds, and returns what it told.
fn consume(place: &dyn Place, settings: &Settings, mut done: impl FnMut() -> bool) -> Vec<Notice> {
    let (stop, told) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let mut tell = |notice| told.lock().unwrap().push(notice);
            place.run(settings, &mut tell, &stop)
        });
        let begun = Instant::now();
        while !done() && !running.is_finished() && begun.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        let late = begun.elapsed() >= PATIENCE;
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
        assert!(!late, "not done: {:?}", told.lock().unwrap());
    });
    told.into_inner().unwrap()
}

fn by_key(output: Vec<(String, String)>) -> BTreeMap<String, Vec<u64>> {
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (key, payload) in output {
        all.entry(key).or_default().push(payload.parse().unwrap());
    }
    all
}

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// What every sink has to do; `name` is that of topic and group.
fn each_message_once(brokers: &str, place: &dyn Place, name: &str) {
    let settings = Settings::new(brokers, name, name, "one");
    // In order; again from the middle, as after a restart of the producer; with two that change places.
    let first = (1..=150).flat_map(|number| KEYS.map(|key| (key, number)));
    produce(brokers, name, first);
    consume(place, &settings, || place.output().len() >= 300);
    let again = (100..=200).flat_map(|number| KEYS.map(|key| (key, number)));
    produce(brokers, name, again);
    produce(brokers, name, [("a", 202), ("a", 203), ("a", 201)]);
    consume(place, &settings, || place.output().len() >= 803);
    let other = Settings::new(brokers, name, name, "two");
    produce(brokers, name, [("a", 203), ("b", 201)]);
    consume(place, &other, || place.output().len() >= 804);
    let found = by_key(place.output());
    for (key, count) in [("a", 203), ("b", 201), ("c", 200), ("d", 200)] {
        assert_eq!(found[key], (1..=count).collect::<Vec<u64>>(), "{key}");
    }
    assert_eq!(place.dead(), []);
}

/// What every sink does with messages that cannot be taken.
fn what_cannot_be_taken_is_set_aside(brokers: &str, place: &dyn Place, name: &str) {
    let mut settings = Settings::new(brokers, name, name, "one");
    settings.bounds = Bounds { gap_ms_max: 500, ..Bounds::default() };
    let message = |key, number, payload: &str| (key, number, payload.to_owned());
    produce_as_they_are(
        brokers,
        name,
        [
            message("a", Some(1), "1"),
            message("a", Some(1), "other"),
            message("a", None, "without number"),
            message("a", Some(2), "poison"),
            message("a", Some(3), "3"),
            message("b", Some(1), "1"),
            message("b", Some(4), "4"),
        ],
    );
    let told = consume(place, &settings, || place.dead().len() >= 4);
    assert_eq!(by_key(place.output()), [("a".into(), vec![1, 3]), ("b".into(), vec![1])].into());
    let dead: BTreeSet<_> = place.dead().into_iter().collect();
    let expected = [
        ("other", "number 1 came before with another payload"),
        ("without number", "there is no header ce_sequence: is the topic's `envelope` binary?"),
        ("poison", "it cannot be applied"),
        ("4", "numbers 2 to 3 are missing"),
    ];
    assert_eq!(dead, expected.map(|(payload, why)| (payload.into(), why.into())).into());
    let key = Key { tenant: String::new(), key: "b".into() };
    assert!(told.contains(&Notice::Gap { key, missing: 2..=3 }), "{told:?}");
    // The producer sends again from the first missing one.
    produce(brokers, name, (2..=5).map(|number| ("b", number)));
    consume(place, &settings, || place.output().len() >= 7);
    assert_eq!(by_key(place.output())["b"], [1, 2, 3, 4, 5]);
    assert_eq!(place.dead().len(), 4);
}

#[test]
fn kafka_has_each_message_once_and_in_order() {
    let broker = broker();
    broker.create("once-k", 3, &[]);
    let place = ToKafka::new(&broker, "once-k", 3);
    each_message_once(&address(&broker), &place, "once-k");
}

#[test]
fn sqlite_has_each_message_once_and_in_order() {
    let broker = broker();
    broker.create("once-s", 3, &[]);
    each_message_once(&address(&broker), &ToSqlite::new(), "once-s");
}

#[test]
fn kafka_has_the_dead_letters_with_their_reasons() {
    let broker = broker();
    broker.create("dead-k", 1, &[]);
    let place = ToKafka::new(&broker, "dead-k", 1);
    what_cannot_be_taken_is_set_aside(&address(&broker), &place, "dead-k");
}

#[test]
fn sqlite_has_the_dead_letters_with_their_reasons() {
    let broker = broker();
    broker.create("dead-s", 1, &[]);
    what_cannot_be_taken_is_set_aside(&address(&broker), &ToSqlite::new(), "dead-s");
}

#[test]
fn who_has_lost_a_partition_commits_nothing_to_sqlite() {
    let place = ToSqlite::new();
    let (mut zombie, mut owner) = (place.sink(), place.sink());
    let brokers = address(&broker());
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &brokers)
        .set("group.id", "zombie")
        .create()
        .unwrap();
    let group = consumer.group_metadata().unwrap();
    let message = |number: u64| Message {
        partition: 0,
        offset: i64::try_from(number).unwrap() - 1,
        key: Key { tenant: String::new(), key: "a".into() },
        number,
        payload: number.to_string().into_bytes(),
        headers: Vec::new(),
    };
    let commit = |sink: &mut dyn FnMut(&Batch<'_>) -> Result<(), Error>, from, next| {
        let to = Kept { next, lost_below: 0 };
        let accepted = [message(u64::try_from(next).unwrap())];
        sink(&Batch {
            topic: "t",
            accepted: &accepted,
            set_aside: &[],
            positions: &[],
            progress: &[Progress { partition: 0, from, to }],
            group: &group,
        })
    };
    commit(&mut |batch| zombie.commit(batch), None, 1).unwrap();
    let one = Some(Kept { next: 1, lost_below: 0 });
    assert!(matches!(owner.start("t", 0), Ok(Start::Kept(found)) if found == one));
    commit(&mut |batch| owner.commit(batch), one, 2).unwrap();
    let refused = commit(&mut |batch| zombie.commit(batch), one, 2).unwrap_err();
    assert!(refused.to_string().contains("another consumer has committed"), "{refused}");
    assert_eq!(by_key(place.output())["a"], [1, 2]);
}

/// The example in small: everything is killed at random, and the broker once.
#[test]
fn the_experiment_counts_exactly_while_its_parts_are_killed() {
    let mut broker = broker();
    let besom = Path::new(env!("CARGO_BIN_EXE_besom-under-test"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_message-counting-under-test"));
    command.args(["experiment", "--brokers", &address(&broker), "--besom"]).arg(besom);
    command.args(["--clients", "4", "--lines", "500", "--partitions", "3", "--consumers", "2"]);
    command.args(["--kills", "10", "--patience", "90"]).stdout(std::process::Stdio::piped());
    let running = command.spawn().unwrap();
    std::thread::sleep(Duration::from_secs(5));
    broker.kill();
    broker.restart();
    let output = running.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}");
    let shown = |name: &str, count: &str| {
        let row = |line: &str| line.starts_with(name) && line.split(' ').any(|word| word == count);
        assert!(said.lines().any(row), "{name}: {said}");
    };
    shown("sent and stored", "2000");
    shown("counted of client-3", "500");
    shown("sum over messages", "2000");
}
