//! Three brokers of Kafka, each of them a controller as well (KRaft).

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use besom_feed::rdkafka::ClientConfig;
use besom_feed::rdkafka::consumer::{BaseConsumer, Consumer as _};

use super::process::{Process, free_ports, wait_for};

/// The list of what a broker needs.
const FILES: &str = include_str!("../../../../scripts/kafka-jars");
/// The settings of Java: little memory, and a quick start.
const JAVA: &[&str] = &[
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
];
/// The same on all brokers. Nothing is confirmed before two brokers have it. A killed broker is given up
/// after three seconds; one that starts on a busy machine has ten minutes.
const SETTINGS: &str = "process.roles=broker,controller
controller.listener.names=CONTROLLER
listener.security.protocol.map=OPEN:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=OPEN
auto.create.topics.enable=false
min.insync.replicas=2
offsets.topic.replication.factor=3
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
transaction.state.log.num.partitions=3
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
initial.broker.registration.timeout.ms=600000
controller.quorum.fetch.timeout.ms=4000
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=1
num.io.threads=2
";
/// How long a broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// The brokers, which are killed when this is dropped.
pub(super) struct Kafka {
    pub(super) brokers: Vec<Process>,
    ports: Vec<u16>,
}

impl Kafka {
    /// Starts them, and waits until they are a cluster.
    pub(super) fn start(place: &Path) -> Result<Kafka> {
        let ports = free_ports(6)?;
        let (ports, controllers) = ports.split_at(3);
        let voters: Vec<String> = (1..)
            .zip(controllers)
            .map(|(number, port)| format!("{number}@127.0.0.1:{port}"))
            .collect();
        let mut kafka = Kafka { brokers: Vec::new(), ports: ports.to_vec() };
        let mut formatting = Vec::new();
        for (number, (port, controller)) in (1..).zip(ports.iter().zip(controllers)) {
            let name = format!("broker-{number}");
            let (data, settings) = (place.join(&name), settings_file(place, &name));
            let own = format!(
                "{SETTINGS}node.id={number}\ncontroller.quorum.voters={}\nlog.dirs={}\n\
                 listeners=OPEN://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
                 advertised.listeners=OPEN://127.0.0.1:{port}\n",
                voters.join(","),
                data.display(),
            );
            std::fs::write(&settings, own)?;
            let mut format = Command::new("java");
            format.args(java("kafka.tools.StorageTool")?);
            format.args(["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA", "--config"]);
            let hint = "java: install it (apt-get install default-jre-headless)";
            format.arg(settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
            formatting.push((name, format.spawn().context(hint)?));
        }
        for (name, format) in formatting {
            let formatted = format.wait_with_output()?;
            let said = String::from_utf8_lossy(&formatted.stderr).into_owned();
            ensure!(formatted.status.success(), "{name}: {said}");
            let mut arguments = java("kafka.Kafka")?;
            arguments.push(settings_file(place, &name).display().to_string());
            kafka.brokers.push(Process::start(place, &name, "java", &arguments)?);
        }
        wait_for("the brokers are a cluster", || kafka.is_whole())?;
        Ok(kafka)
    }

    /// Their addresses.
    pub(super) fn addresses(&self) -> String {
        self.ports.iter().map(|port| address(*port)).collect::<Vec<_>>().join(",")
    }

    /// Kills a broker and starts it again, and waits until it has caught up with all partitions.
    pub(super) fn kill(&mut self, which: usize) -> Result<()> {
        let broker = &mut self.brokers[which];
        broker.kill();
        broker.resume()?;
        wait_for("the broker has caught up", || self.is_whole())
    }

    /// Whether every broker says that each partition has a leader, and all of its replicas in sync.
    fn is_whole(&mut self) -> Result<bool> {
        for broker in &mut self.brokers {
            broker.check()?;
        }
        let count = self.ports.len();
        Ok(self.ports.iter().all(|port| {
            let mut config = ClientConfig::new();
            // The first question goes to this broker, which answers none before it has caught up with the
            // controllers. So the answer is not that of a broker that does not know of a kill.
            config.set("bootstrap.servers", address(*port)).set("log_level", "0");
            let consumer: Result<BaseConsumer, _> = config.create();
            let Ok(metadata) = consumer.and_then(|one| one.fetch_metadata(None, ANSWER_MAX)) else {
                return false;
            };
            let mut partitions = metadata.topics().iter().flat_map(|topic| topic.partitions());
            metadata.brokers().len() == count
                && partitions
                    .all(|one| one.leader() >= 0 && one.isr().len() == one.replicas().len())
        }))
    }
}

fn address(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

fn settings_file(place: &Path, name: &str) -> PathBuf {
    place.join(format!("{name}.properties"))
}

/// The arguments of Java for a program of Kafka.
fn java(program: &str) -> Result<Vec<String>> {
    let directory = files()?;
    let paths = names().map(|name| directory.join(name).display().to_string());
    let paths = paths.collect::<Vec<_>>().join(":");
    let fixed = JAVA.iter().map(|&argument| argument.to_owned());
    Ok(fixed.chain(["-cp".to_owned(), paths, program.to_owned()]).collect())
}

/// The names of the files.
fn names() -> impl Iterator<Item = &'static str> {
    let lines = FILES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once('/')).map(|(_, name)| name)
}

/// Where the files are: `BESOM_KAFKA`, or the place to which scripts/prepare downloads them.
fn files() -> Result<PathBuf> {
    let named = std::env::var_os("BESOM_KAFKA").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let place = named.or_else(|| Some(cache.or_else(home)?.join("besom/kafka")));
    let place = place.context("neither BESOM_KAFKA nor HOME is set")?;
    ensure!(
        names().all(|name| place.join(name).exists()),
        "Kafka is not in {}: download it with `bash -c 'source scripts/prepare; require_kafka'`, name the \
         directory of its files in BESOM_KAFKA, or use brokers of your own with --brokers",
        place.display()
    );
    Ok(place)
}
