//! Messages of a product from their `INSERT` until a broker has confirmed them: `besom serve` on SQLite
//! with Kafka and with a stream of Redis, beside a bare producer that sends the same messages, and for Kafka beside
//! a relay written by hand, which has nothing but a table and this producer.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use besom_tests::servers::kafka::Kafka;
use besom_tests::servers::redis::Redis;
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rusqlite::{Connection, params};

use super::idle::Serving;
use super::report::Figures;

const MESSAGES: u32 = 200_000;
const KEYS: u32 = 1_000;
const PARTITIONS: i32 = 10;
/// Rows of a transaction of the product, and messages of a transaction of the bare client of Redis.
const TOGETHER: u32 = 1_000;
/// How long the broker may take to confirm all of them.
const PATIENCE: Duration = Duration::from_secs(300);
/// How often it is asked whether all are confirmed.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Rows of a transaction of the relay.
const RELAYED: u32 = 4_000;

const TOPIC: &str = "lines";
const BARE: &str = "bare";
const RELAY: &str = "relay";

/// Sends the messages to Kafka, and then to Redis; fails if one is missing, doubled or out of order.
pub async fn run() -> Result<()> {
    let kafka = Kafka::start(None);
    for topic in [TOPIC, BARE, RELAY] {
        kafka.create(topic, PARTITIONS, &[]);
    }
    let bare = to_kafka(&kafka)?;
    let relay = relay(&kafka)?;
    let ours = besom(&kafka.url())?;
    let records = kafka.read(TOPIC, PARTITIONS);
    let sequences = records.into_values().flatten().map(|record| {
        let sequence = record.headers.iter().find(|(name, _)| name.as_str() == "ce_sequence");
        let sequence = sequence.and_then(|(_, value)| value.as_deref());
        (text(record.key.as_deref()), text(sequence))
    });
    in_order(sequences)?;
    show("Kafka, one broker, 10 partitions", bare, Some(relay), ours);

    let redis = Redis::start(&[]);
    let bare = to_redis(&redis)?;
    let ours = besom(&redis.url())?;
    let mut range = redis::cmd("XRANGE");
    let entries: Vec<(String, BTreeMap<String, String>)> =
        range.arg(TOPIC).arg("-").arg("+").query(&mut redis.connect())?;
    let attribute = |entry: &BTreeMap<String, String>, name| entry.get(name).cloned();
    let sequences = entries.iter().map(|(_, entry)| {
        let of = |name| attribute(entry, name).unwrap_or_default();
        (of("subject"), of("sequence"))
    });
    in_order(sequences)?;
    show("Redis, one stream", bare, None, ours);
    Ok(())
}

fn show(case: &str, bare: f64, relay: Option<f64>, ours: Sent) {
    let mut figures = Figures::of("delivery", case)
        .with("messages_per_s", ours.per_s)
        .with("bare_messages_per_s", bare)
        .with("ratio", ours.per_s / bare)
        .with("cpu_us_per_message", ours.cpu_us);
    if let Some(relay) = relay {
        figures =
            figures.with("relay_messages_per_s", relay).with("relay_ratio", ours.per_s / relay);
    }
    figures.show();
}

fn text(bytes: Option<&[u8]>) -> String {
    String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned()
}

/// Every message once, and those of each key in their order.
fn in_order(sequences: impl Iterator<Item = (String, String)>) -> Result<()> {
    let (mut last, mut all) = (BTreeMap::<String, u64>::new(), 0);
    for (key, sequence) in sequences {
        let (sequence, last) = (sequence.parse::<u64>()?, last.entry(key).or_default());
        ensure!(sequence == *last + 1, "{sequence} after {last}");
        (*last, all) = (sequence, all + 1);
    }
    ensure!(all == MESSAGES, "{all} messages");
    Ok(())
}

fn message(number: u32) -> (String, String) {
    (format!("key-{}", number % KEYS), format!("{{\"line\": \"{number:088}\"}}"))
}

/// An idempotent producer.
fn producer(kafka: &Kafka) -> Result<BaseProducer> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", kafka.url().trim_start_matches("kafka://"))
        .set("enable.idempotence", "true")
        .set("acks", "all");
    Ok(config.create()?)
}

fn send(producer: &BaseProducer, topic: &str, key: &str, payload: &str) -> Result<()> {
    let mut record = BaseRecord::to(topic).key(key).payload(payload);
    while let Err((error, again)) = producer.send(record) {
        let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
        ensure!(error == full, "{error}");
        producer.poll(Duration::from_millis(10));
        record = again;
    }
    producer.poll(Duration::ZERO);
    Ok(())
}

/// Waits until all that was sent is confirmed. `Producer::flush` would notice that up to 100 ms later.
fn confirmed(producer: &BaseProducer) -> Result<()> {
    let begun = Instant::now();
    while producer.in_flight_count() > 0 {
        ensure!(begun.elapsed() < PATIENCE, "not all messages are confirmed");
        producer.poll(Duration::from_millis(1));
    }
    Ok(())
}

/// Messages per second of the bare producer.
fn to_kafka(kafka: &Kafka) -> Result<f64> {
    let producer = producer(kafka)?;
    let begun = Instant::now();
    for number in 0..MESSAGES {
        let (key, payload) = message(number);
        send(&producer, BARE, &key, &payload)?;
    }
    confirmed(&producer)?;
    Ok(f64::from(MESSAGES) / begun.elapsed().as_secs_f64())
}

/// Messages per second of a relay: the product inserts them into a table, from which another thread sends
/// and then deletes them, in their order and nothing else. No number, no history, no limit, no second topic.
fn relay(kafka: &Kafka) -> Result<f64> {
    let dir = tempfile::tempdir()?;
    let (product, reader) = (connect(dir.path())?, connect(dir.path())?);
    product.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
         CREATE TABLE besom_feed (id INTEGER PRIMARY KEY AUTOINCREMENT, topic TEXT NOT NULL,
           key TEXT NOT NULL, payload BLOB NOT NULL) STRICT;",
    )?;
    reader.execute_batch("PRAGMA synchronous = FULL")?;
    let producer = producer(kafka)?;
    let begun = Instant::now();
    let sender = std::thread::spawn(move || -> Result<()> {
        let mut sent = 0;
        while sent < MESSAGES {
            ensure!(begun.elapsed() < PATIENCE, "not all messages are confirmed");
            let mut select = reader.prepare_cached(
                "SELECT id, key, CAST(payload AS TEXT) FROM besom_feed ORDER BY id LIMIT ?1",
            )?;
            let mut rows = select.query([RELAYED])?;
            let mut last = None;
            while let Some(row) = rows.next()? {
                let (key, payload): (String, String) = (row.get(1)?, row.get(2)?);
                send(&producer, RELAY, &key, &payload)?;
                (last, sent) = (Some(row.get::<_, i64>(0)?), sent + 1);
            }
            drop(rows);
            confirmed(&producer)?;
            match last {
                Some(last) => {
                    reader.execute("DELETE FROM besom_feed WHERE id <= ?1", [last])?;
                }
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
        Ok(())
    });
    insert(&product)?;
    sender.join().expect("the relay ends")?;
    Ok(f64::from(MESSAGES) / begun.elapsed().as_secs_f64())
}

/// The product inserts all messages.
fn insert(product: &Connection) -> Result<()> {
    for from in (0..MESSAGES).step_by(TOGETHER as usize) {
        product.execute_batch("BEGIN IMMEDIATE")?;
        let mut insert = product.prepare_cached(
            "INSERT INTO besom_feed (topic, key, payload) VALUES (?1, ?2, CAST(?3 AS BLOB))",
        )?;
        for number in from..from + TOGETHER {
            let (key, payload) = message(number);
            insert.execute(params![TOPIC, key, payload])?;
        }
        product.execute_batch("COMMIT")?;
    }
    Ok(())
}

/// Messages per second of a client that appends as many in each transaction as Besom does.
fn to_redis(redis: &Redis) -> Result<f64> {
    let mut connection = redis.connect();
    let begun = Instant::now();
    for from in (0..MESSAGES).step_by(TOGETHER as usize) {
        let mut all = redis::pipe();
        all.atomic();
        for number in from..from + TOGETHER {
            let (key, payload) = message(number);
            all.cmd("XADD").arg(BARE).arg("*").arg("subject").arg(key).arg("data").arg(payload);
        }
        all.exec(&mut connection)?;
    }
    Ok(f64::from(MESSAGES) / begun.elapsed().as_secs_f64())
}

struct Sent {
    per_s: f64,
    /// Of the host.
    cpu_us: f64,
}

/// A product inserts the messages while a host runs.
fn besom(url: &str) -> Result<Sent> {
    let dir = tempfile::tempdir()?;
    let config = dir.path().join("besom.toml");
    let (_, host) = url.split_once("://").context("an address")?;
    let host = host.trim_end_matches('/');
    let settings = format!(
        "[delivery]\nhosts = [\"{host}\"]\npending_max = {}\n\n\
         [topics.\"{TOPIC}\"]\nurl = \"{url}\"\nfeed = true\n",
        2 * MESSAGES
    );
    std::fs::write(&config, settings)?;
    let serving = Serving::start(&config)?;
    let product = connect(dir.path())?;
    let (cpu, begun) = (serving.cpu()?, Instant::now());
    insert(&product)?;
    let waits = "SELECT EXISTS (SELECT 1 FROM besom_feed) OR EXISTS (
        SELECT 1 FROM besom_outbox WHERE delivered_at IS NULL AND given_up_at IS NULL)";
    while product.query_row(waits, [], |row| row.get::<_, bool>(0))? {
        ensure!(begun.elapsed() < PATIENCE, "not all messages are confirmed");
        std::thread::sleep(LOOK_EVERY);
    }
    let per_s = f64::from(MESSAGES) / begun.elapsed().as_secs_f64();
    let cpu_us = (serving.cpu()? - cpu) * 1e6 / f64::from(MESSAGES);
    Ok(Sent { per_s, cpu_us })
}

fn connect(dir: &Path) -> Result<Connection> {
    let conn = Connection::open(dir.join("besom.db"))?;
    conn.busy_timeout(PATIENCE)?;
    Ok(conn)
}
