//! Starts brokers, a Redis Cluster, a host of Besom, counters, aggregators and clients, kills them at random
//! if it is asked to, and compares every number at the end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::SeedableRng as _;
use rand::rngs::SmallRng;

use crate::{Consuming, DEAD, LINES, TEXTS, client, counter, text};

mod counts;
mod kafka;
mod kills;
mod process;
mod redis;
mod topics;

use counts::Counts;
use kafka::Kafka;
use kills::{Course, Killed, Kind};
use process::{Process, pause, tail, wait_for};
use redis::Redis;

/// How often the experiment looks whether all is counted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// Whatever is counted twice, is within this time: a feed that begins anew pauses for 5 s at most.
const QUIET: Duration = Duration::from_secs(6);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Brokers of Kafka of your own, without the topics of this example. Without them, three are started.
    #[arg(long)]
    brokers: Option<String>,
    /// Nodes of a Redis Cluster of your own, each with a replica: redis://host:port, separated by commas.
    /// Without them, three primaries and three replicas are started.
    #[arg(long, value_delimiter = ',', conflicts_with = "sqlite")]
    redis: Vec<String>,
    /// Count into SQLite, without Redis.
    #[arg(long)]
    sqlite: bool,
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
    /// How many replicas each partition has: by default 3, with brokers of your own 1.
    #[arg(long)]
    replication: Option<i32>,
    /// How many counters, and how many aggregators.
    #[arg(long, default_value_t = 3)]
    consumers: usize,
    /// How often a part is killed and started again. Servers of your own are not killed.
    #[arg(long, default_value_t = 0)]
    kills: usize,
    /// Which parts are killed, and when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seconds it may take until all is counted.
    #[arg(long, default_value_t = 300)]
    patience: u64,
}

/// One row of the table: what it should be and what it is.
struct Row(String, u64, u64);

/// The servers that the experiment uses, and those of them that it has started.
struct Servers {
    brokers: String,
    counts: Counts,
    kafka: Option<Kafka>,
    redis: Option<Redis>,
}

impl Servers {
    fn start(arguments: &Arguments, place: &Path) -> Result<Servers> {
        let (kafka, brokers) = match &arguments.brokers {
            Some(brokers) => (None, brokers.clone()),
            None => {
                let kafka = Kafka::start(place)?;
                let addresses = kafka.addresses();
                (Some(kafka), addresses)
            }
        };
        let own = || -> Result<_> {
            let redis = Redis::start(place)?;
            let urls = redis.urls();
            Ok((Some(redis), Counts::Redis(urls)))
        };
        let (redis, counts) = match arguments.redis.as_slice() {
            _ if arguments.sqlite => (None, Counts::Sqlite(place.join("counts.db"))),
            [] => own()?,
            urls => (None, Counts::Redis(urls.to_vec())),
        };
        Ok(Servers { brokers, counts, kafka, redis })
    }

    /// What can be killed.
    fn kinds(&self) -> Vec<Kind> {
        let broker = self.kafka.is_some().then_some(Kind::Broker);
        let primary = self.redis.is_some().then_some(Kind::Primary);
        Kind::PRODUCT.into_iter().chain(broker).chain(primary).collect()
    }
}

#[expect(clippy::print_stdout, reason = "the table is what the command is for")]
pub(crate) fn run(arguments: &Arguments) -> Result<bool> {
    process::watch_interruptions()?;
    let lines = text::lines(arguments.text.as_deref(), arguments.lines)?;
    let place = tempfile::tempdir()?;
    let mut servers = Servers::start(arguments, place.path())?;
    ensure!(
        servers.counts.all()?.is_empty(),
        "the experiment needs servers of Redis without its counts"
    );
    let replication = arguments.replication.unwrap_or(if servers.kafka.is_some() { 3 } else { 1 });
    topics::create(&servers.brokers, arguments.partitions, replication)?;
    let begun = Instant::now();
    let mut parts = start(arguments, &servers, place.path())?;
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for line in &lines {
        *expected.entry(servers.counts.name(line)).or_default() += arguments.clients as u64;
    }
    let course = Course::new(expected.values().sum());
    let killed = kill(arguments, &mut servers, &mut parts, &course, &expected)?;
    let taken = begun.elapsed();
    if course.counted.load(Ordering::Relaxed) < course.sum {
        eprintln!("after {} s, not all is counted", arguments.patience);
        tell_logs(place.path());
    }
    pause(if arguments.kills > 0 { QUIET } else { Duration::from_secs(1) })?;
    let rows = rows(arguments, &servers, &expected, place.path())?;
    for (name, times) in &killed.parts {
        println!("killed {name}: {times}");
    }
    if arguments.kills > 0 {
        let (all, on_the_way) = (killed.parts.values().sum::<usize>(), killed.on_the_way);
        println!("{all} kills, {on_the_way} before all was counted, seed {}", arguments.seed);
    }
    println!("{:<40} {:>9} {:>9}", "", "expected", "found");
    for Row(name, expected, found) in &rows {
        let mark = if expected == found { "" } else { "  <- off" };
        println!("{name:<40} {expected:>9} {found:>9}{mark}");
    }
    println!("{} messages in {:.1} s", course.sum, taken.as_secs_f64());
    Ok(rows.iter().all(|Row(_, expected, found)| expected == found))
}

/// Kills what is to be killed, and waits until all is counted, or for as long as it may take.
fn kill(
    arguments: &Arguments,
    servers: &mut Servers,
    parts: &mut [Process],
    course: &Course,
    expected: &BTreeMap<String, u64>,
) -> Result<Killed> {
    let mut random = SmallRng::seed_from_u64(arguments.seed);
    let plan = kills::plan(&mut random, &servers.kinds(), arguments.kills);
    let Servers { counts, kafka, redis, .. } = servers;
    std::thread::scope(|scope| {
        let mut killing = vec![scope.spawn(|| kills::kill_parts(course, &plan, parts))];
        if let Some(kafka) = kafka {
            killing.push(scope.spawn(|| kills::kill_brokers(course, &plan, kafka)));
        }
        if let Some(redis) = redis {
            killing.push(scope.spawn(|| kills::kill_primaries(course, &plan, redis)));
        }
        let begun = Instant::now();
        let watched = loop {
            // While a server of Redis is away, the last sum stands.
            if let Ok(sum) = counts.sum(expected.keys()) {
                course.counted.store(sum, Ordering::Relaxed);
            }
            let all = course.counted.load(Ordering::Relaxed) >= course.sum;
            let late = begun.elapsed() > Duration::from_secs(arguments.patience);
            if late || all && killing.iter().all(|one| one.is_finished()) {
                break Ok(());
            }
            if let Err(error) = pause(LOOK_EVERY) {
                break Err(error);
            }
        };
        course.over.store(true, Ordering::Relaxed);
        for one in killing {
            one.join().expect("who kills does not panic")?;
        }
        watched
    })?;
    Ok(course.killed())
}

/// Prints the last lines that each part has logged.
fn tell_logs(place: &Path) {
    let entries = std::fs::read_dir(place).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    logs.retain(|path| path.extension().is_some_and(|ends| ends == "log"));
    logs.sort();
    for path in logs {
        eprintln!("the end of {}:", path.file_name().unwrap_or_default().display());
        tail(&path).lines().for_each(|line| eprintln!("  {line}"));
    }
}

fn rows(
    arguments: &Arguments,
    servers: &Servers,
    expected: &BTreeMap<String, u64>,
    place: &Path,
) -> Result<Vec<Row>> {
    let sum: u64 = expected.values().sum();
    let each = sum / arguments.clients as u64;
    let socket = place.join("besom-activity.sock");
    let consuming = Consuming { brokers: servers.brokers.clone(), instance: None };
    let settings = counter::settings(&consuming);
    let mut counted = topics::counted(&settings, arguments.partitions)?;
    let (mut rows, mut stored, mut of_clients) = (Vec::new(), 0, Vec::new());
    for name in client::names("client", arguments.clients) {
        stored += client::last(&socket, &name)?;
        let count = counted.remove(&name).unwrap_or(0);
        of_clients.push(Row(format!("counted of {name}"), each, count));
    }
    rows.push(Row("sent and stored".into(), sum, stored));
    let records = |topic, partitions| topics::records(&settings, topic, partitions);
    let in_lines = records(LINES, arguments.partitions)?;
    rows.push(Row(format!("in {LINES}, each number once"), sum, in_lines));
    rows.extend(of_clients);
    rows.push(Row("counted of other clients".into(), 0, counted.values().sum()));
    rows.push(Row(format!("in {TEXTS}"), sum, records(TEXTS, arguments.partitions)?));
    rows.push(Row(format!("in {DEAD}"), 0, records(DEAD, 1)?));
    let mut found = BTreeMap::new();
    wait_for("the counts can be read", || Ok(servers.counts.all().map(|all| found = all).is_ok()))?;
    rows.push(Row("sum over messages".into(), sum, found.values().sum()));
    let exact = expected.iter().filter(|(name, count)| found.get(*name) == Some(count)).count();
    let texts = expected.len() as u64;
    rows.push(Row("different messages".into(), texts, found.len() as u64));
    rows.push(Row("of them with the exact count".into(), texts, exact as u64));
    Ok(rows)
}

/// Besom, the consumers and the clients.
fn start(arguments: &Arguments, servers: &Servers, place: &Path) -> Result<Vec<Process>> {
    let brokers = &servers.brokers;
    let hosts: Vec<String> = brokers.split(',').map(|broker| format!("{broker:?}")).collect();
    let config = format!(
        "[activity]\nsocket = \"besom-activity.sock\"\n\
         [delivery]\nhosts = [{}]\npoll = \"50ms\"\n\
         [topics.{LINES}]\nurl = \"kafka://{brokers}\"\nfeed = true\nbackoff = \"100ms\"\n\
         backoff_max = \"1s\"\n",
        hosts.join(", ")
    );
    std::fs::write(place.join("besom.toml"), config)?;
    let besom = match arguments.besom.components().count() {
        1 => arguments.besom.clone(),
        _ => std::path::absolute(&arguments.besom)?,
    };
    let mut host = Process::start(place, "besom", besom, &["serve"])?;
    let socket = place.join("besom-activity.sock");
    wait_for("besom serve listens", || {
        host.check()?;
        Ok(socket.exists())
    })?;
    let mut parts = vec![host];
    let own = std::env::current_exe()?;
    let place_of_counts = match &servers.counts {
        Counts::Sqlite(path) => ["--database".into(), path.display().to_string()],
        Counts::Redis(urls) => ["--redis".into(), urls.join(",")],
    };
    for number in 0..arguments.consumers {
        for name in ["counter", "aggregator"] {
            let instance = format!("{name}-{number}");
            let mut all = [name, "--brokers", brokers, "--instance", &instance].to_vec();
            if name == "aggregator" {
                all.extend(place_of_counts.iter().map(String::as_str));
            }
            parts.push(Process::start(place, &instance, &own, &all)?);
        }
    }
    let (clients, lines) = (arguments.clients.to_string(), arguments.lines.to_string());
    let mut all: Vec<String> =
        ["client", "--massive", "--clients", &clients, "--lines", &lines].map(str::to_owned).into();
    all.extend(["--socket".to_owned(), "besom-activity.sock".to_owned()]);
    if let Some(text) = &arguments.text {
        all.extend(["--text".to_owned(), std::path::absolute(text)?.display().to_string()]);
    }
    parts.push(Process::start(place, "clients", &own, &all)?);
    Ok(parts)
}
