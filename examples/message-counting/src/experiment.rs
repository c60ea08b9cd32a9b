//! Starts a host of Besom, counters, aggregators and clients, kills them at random if it is asked to, and
//! compares every number at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
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
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::{COUNTS, Consuming, DEAD, LINES, TEXTS, aggregator, client, counter, text};

/// How many lines of each log are shown if not all is counted in time.
const LOG_LINES: usize = 12;
/// How often the experiment looks whether all is counted.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The brokers of Kafka, without the topics of this example.
    #[arg(long)]
    brokers: String,
    /// The program of Besom.
    #[arg(long, default_value = "besom")]
    besom: PathBuf,
    /// How many clients send the text.
    #[arg(long, default_value_t = 10)]
    clients: usize,
    /// How many lines each of them sends.
    #[arg(long, default_value_t = 4_422)]
    lines: usize,
    /// The text; without a file, lines are made up.
    #[arg(long)]
    text: Option<PathBuf>,
    /// How many partitions each topic has.
    #[arg(long, default_value_t = 10)]
    partitions: i32,
    /// How many replicas each partition has.
    #[arg(long, default_value_t = 1)]
    replication: i32,
    /// How many counters, and how many aggregators.
    #[arg(long, default_value_t = 3)]
    consumers: usize,
    /// How often a part is killed and started again.
    #[arg(long, default_value_t = 0)]
    kills: usize,
    /// Which parts are killed, and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seconds it may take until all is counted.
    #[arg(long, default_value_t = 300)]
    patience: u64,
}

/// A process that is started again when it is killed.
struct Part {
    name: String,
    command: Command,
    child: Child,
}

impl Part {
    fn start(name: &str, mut command: Command) -> Result<Part> {
        let child = command.spawn().with_context(|| format!("{name}: {command:?}"))?;
        Ok(Part { name: name.to_owned(), command, child })
    }

    fn again(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = self.command.spawn()?;
        Ok(())
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One row of the table: what it should be and what it is.
struct Row(String, u64, u64);

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    let begun = Instant::now();
    let lines = text::lines(arguments.text.as_deref(), arguments.lines)?;
    let sum = (lines.len() * arguments.clients) as u64;
    create_topics(arguments)?;
    let place = tempfile::tempdir()?;
    let mut parts = start(arguments, place.path())?;
    let database = aggregator::open(&place.path().join("counts.db"))?;
    let total = || -> Result<u64> {
        let sql = "SELECT coalesce(sum(count), 0) FROM message_count";
        Ok(database.query_row(sql, [], |row| row.get(0))?)
    };
    let mut random = SmallRng::seed_from_u64(arguments.seed);
    let mut kills: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..arguments.kills {
        std::thread::sleep(Duration::from_millis(random.random_range(100..1_500)));
        let one = random.random_range(0..parts.len());
        parts[one].again()?;
        *kills.entry(parts[one].name.clone()).or_default() += 1;
    }
    let killed_for = begun.elapsed();
    while total()? < sum {
        let late = begun.elapsed() > Duration::from_secs(arguments.patience);
        if late {
            eprintln!("after {} s, not all is counted", arguments.patience);
            tell_logs(place.path());
            break;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let taken = begun.elapsed();
    // Whatever would be counted twice, would be now.
    std::thread::sleep(Duration::from_secs(1));
    let rows = rows(arguments, &lines, place.path(), &database)?;
    for (name, times) in &kills {
        println!("killed {name}: {times}");
    }
    if arguments.kills > 0 {
        println!("kills within {:.1} s, seed {}", killed_for.as_secs_f64(), arguments.seed);
    }
    println!("{:<40} {:>9} {:>9}", "", "expected", "found");
    for Row(name, expected, found) in &rows {
        let mark = if expected == found { "" } else { "  <- off" };
        println!("{name:<40} {expected:>9} {found:>9}{mark}");
    }
    println!("{} messages in {:.1} s", sum, taken.as_secs_f64());
    Ok(rows.iter().all(|Row(_, expected, found)| expected == found))
}

/// Prints the last lines that each part has logged.
fn tell_logs(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    logs.retain(|path| path.extension().is_some_and(|ends| ends == "log"));
    logs.sort();
    for path in logs {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        eprintln!("the end of {}:", path.file_name().unwrap_or_default().display());
        for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
            eprintln!("  {line}");
        }
    }
}

fn rows(
    arguments: &Arguments,
    lines: &[String],
    place: &Path,
    database: &rusqlite::Connection,
) -> Result<Vec<Row>> {
    let (each, clients) = (lines.len() as u64, arguments.clients as u64);
    let socket = place.join("besom-activity.sock");
    let mut rows = Vec::new();
    let consuming = Consuming { brokers: arguments.brokers.clone(), instance: None };
    let settings = counter::settings(&consuming);
    let mut counted = BTreeMap::new();
    for partition in 0..arguments.partitions {
        let begun = Instant::now();
        let states = loop {
            match read_state(&settings, COUNTS, partition) {
                // The broker may just have begun.
                Err(Error::Again(_)) if begun.elapsed() < Duration::from_secs(60) => {
                    std::thread::sleep(LOOK_EVERY);
                }
                ended => break ended?,
            }
        };
        for (key, state) in states {
            counted.insert(key.key, state.text.parse::<u64>().context("no count")?);
        }
    }
    let (mut stored, mut of_clients) = (0, Vec::new());
    for name in client::names("client", arguments.clients) {
        stored += client::last(&socket, &name)?;
        of_clients.push(Row(
            format!("counted of {name}"),
            each,
            counted.remove(&name).unwrap_or(0),
        ));
    }
    rows.push(Row("sent and stored".into(), each * clients, stored));
    let in_lines = records(&settings, LINES, arguments.partitions)?;
    rows.push(Row(format!("in {LINES}, each number once"), each * clients, in_lines));
    rows.extend(of_clients);
    rows.push(Row("counted of other clients".into(), 0, counted.values().sum()));
    let in_texts = records(&settings, TEXTS, arguments.partitions)?;
    rows.push(Row(format!("in {TEXTS}"), each * clients, in_texts));
    rows.push(Row(format!("in {DEAD}"), 0, records(&settings, DEAD, 1)?));
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    for line in lines {
        *expected.entry(line).or_default() += clients;
    }
    let mut statement = database.prepare("SELECT text, count FROM message_count")?;
    let found = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let found: BTreeMap<String, u64> = found.collect::<Result<_, _>>()?;
    rows.push(Row("sum over messages".into(), each * clients, found.values().sum()));
    let exact = expected.iter().filter(|(line, count)| found.get(**line) == Some(count));
    let (right, texts) = (exact.count() as u64, expected.len() as u64);
    rows.push(Row("different messages".into(), texts, found.len() as u64));
    rows.push(Row("of them with the exact count".into(), texts, right));
    Ok(rows)
}

fn create_topics(arguments: &Arguments) -> Result<()> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", &arguments.brokers);
    let admin: AdminClient<DefaultClientContext> = config.create()?;
    // A message that is confirmed is on two brokers at least, if there are three.
    let in_sync = if arguments.replication > 2 { "2" } else { "1" };
    let topic = |name, partitions| {
        let replication = TopicReplication::Fixed(arguments.replication);
        NewTopic::new(name, partitions, replication).set("min.insync.replicas", in_sync)
    };
    let topics = [
        topic(LINES, arguments.partitions),
        topic(COUNTS, arguments.partitions).set("cleanup.policy", "compact"),
        topic(TEXTS, arguments.partitions),
        topic(DEAD, 1),
    ];
    let created = admin.create_topics(&topics, &AdminOptions::new());
    for one in tokio::runtime::Runtime::new()?.block_on(created)? {
        if let Err((name, error)) = one {
            bail!("the topic {name}: {error} (the experiment needs brokers without its topics)");
        }
    }
    Ok(())
}

/// Besom, the consumers and the clients.
fn start(arguments: &Arguments, place: &Path) -> Result<Vec<Part>> {
    let brokers = &arguments.brokers;
    let hosts: Vec<String> = brokers.split(',').map(|broker| format!("{broker:?}")).collect();
    let config = format!(
        "[activity]\nsocket = \"besom-activity.sock\"\n\
         [delivery]\nhosts = [{}]\npoll = \"50ms\"\n\
         [topics.{LINES}]\nurl = \"kafka://{brokers}\"\nfeed = true\nbackoff = \"100ms\"\n\
         backoff_max = \"1s\"\n",
        hosts.join(", ")
    );
    std::fs::write(place.join("besom.toml"), config)?;
    let besom = if arguments.besom.components().count() > 1 {
        std::path::absolute(&arguments.besom)?
    } else {
        arguments.besom.clone()
    };
    let mut host = Command::new(besom);
    let log = std::fs::File::create(place.join("besom.log"))?;
    host.arg("serve").current_dir(place).env_remove("BESOM_CONFIG").stderr(log);
    host.stdin(Stdio::null()).stdout(Stdio::null());
    let mut host = Part::start("besom", host)?;
    let socket = place.join("besom-activity.sock");
    let begun = Instant::now();
    while !socket.exists() {
        let log = || std::fs::read_to_string(place.join("besom.log")).unwrap_or_default();
        ensure!(host.child.try_wait()?.is_none(), "besom serve has ended:\n{}", log());
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "besom serve does not begin:\n{}",
            log()
        );
        std::thread::sleep(LOOK_EVERY);
    }
    let mut parts = vec![host];
    let own = std::env::current_exe()?;
    for number in 0..arguments.consumers {
        for name in ["counter", "aggregator"] {
            let mut command = Command::new(&own);
            let instance = format!("{name}-{number}");
            command.current_dir(place).args([name, "--brokers", brokers, "--instance", &instance]);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            command.stderr(std::fs::File::create(place.join(format!("{instance}.log")))?);
            parts.push(Part::start(&instance, command)?);
        }
    }
    let mut command = Command::new(&own);
    let (clients, lines) = (arguments.clients.to_string(), arguments.lines.to_string());
    command.args(["client", "--massive", "--clients", &clients, "--lines", &lines, "--socket"]);
    command.arg(&socket).stdin(Stdio::null());
    if let Some(text) = &arguments.text {
        command.arg("--text").arg(std::path::absolute(text)?);
    }
    parts.push(Part::start("clients", command)?);
    Ok(parts)
}

/// How many different messages are committed in a topic: by key and number, where there are numbers.
fn records(settings: &Settings, topic: &str, partitions: i32) -> Result<u64> {
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
    let mut seen = std::collections::BTreeSet::new();
    let (mut open, begun) = (partitions, Instant::now());
    while open > 0 {
        ensure!(begun.elapsed() < Duration::from_secs(60), "{topic} cannot be read");
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
