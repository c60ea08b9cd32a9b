//! A broker of Kafka of the tests' own, on free ports, and what an administrator and a consumer do
//! with it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::{
    ApiKey, BrokerId, CreateTopicsRequest, CreateTopicsResponse, FetchRequest, FetchResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, MetadataRequest,
    MetadataResponse, RequestHeader, ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, StrBytes};
use kafka_protocol::records::{Record, RecordBatchDecoder};
use rustix::process::Signal;

use super::guard::{self, Running};

/// The list of what a broker needs.
const FILES: &str = include_str!("../../../scripts/kafka-jars");
/// The memory that a broker's files may take, in bytes.
const MEMORY: u64 = 256 << 20;
/// How often other ports are chosen, because another process was faster.
const START_TRIES_MAX: usize = 5;
/// How long the broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// The settings of Java: little memory, and a quick start.
const JAVA: &[&str] = &[
    "-Xmx256m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info",
];
/// What a broker prints when it has started.
const STARTED: &str = "Kafka Server started";
/// The operation that sets a setting, and the kind of resource that is a topic.
const SET: i8 = 0;
// Codes of errors while a new topic has no leader.
const UNKNOWN_PARTITION: i16 = 3;
const NOT_LEADER: i16 = 6;
const TOPIC: i8 = 2;
/// The user of the listener with SASL.
pub const USER: &str = "feed";
/// Its password.
pub const PASSWORD: &str = "right-secret";

/// Certificate and key of the broker (PEM), and the authority that clients' certificates must have.
pub struct Tls<'a> {
    /// The certificate.
    pub certificate: &'a str,
    /// The key.
    pub key: &'a str,
    /// The authority.
    pub authority: &'a str,
}

/// A broker: its process can be frozen, killed and started again.
pub struct Kafka {
    ports: [u16; 3],
    running: Option<Running>,
    /// Where it keeps its files.
    directory: tempfile::TempDir,
}

impl Kafka {
    /// Starts one with the listeners that are used by tests: open, with SASL, and, if certificates are
    /// given, with TLS. It creates topics of any name when a client asks for it.
    pub fn start(tls: Option<Tls<'_>>) -> Kafka {
        let mut said = String::new();
        for _ in 0..START_TRIES_MAX {
            match Kafka::try_start(tls.as_ref()) {
                Ok(server) => return server,
                Err(error) => said = error,
            }
        }
        panic!("a broker of Kafka does not start: {said}");
    }

    fn try_start(tls: Option<&Tls<'_>>) -> Result<Kafka, String> {
        let ports = guard::free_ports(4);
        let directory = guard::directory(MEMORY)?;
        let path = directory.path();
        let [open, sasl, secure, controller] = [ports[0], ports[1], ports[2], ports[3]];
        let mut listeners = vec![("OPEN", open), ("SASL", sasl)];
        let mut more = String::new();
        if let Some(Tls { certificate, key, authority }) = tls {
            listeners.push(("TLS", secure));
            let line = |pem: &str| pem.trim().replace('\n', "\\n");
            more = format!(
                "listener.name.tls.ssl.keystore.type=PEM\n\
                 listener.name.tls.ssl.keystore.certificate.chain={}\n\
                 listener.name.tls.ssl.keystore.key={}\n\
                 listener.name.tls.ssl.truststore.type=PEM\n\
                 listener.name.tls.ssl.truststore.certificates={}\n\
                 listener.name.tls.ssl.client.auth=required\n",
                line(certificate),
                line(key),
                line(authority)
            );
        }
        let listeners: Vec<String> = listeners
            .into_iter()
            .map(|(name, port)| format!("{name}://127.0.0.1:{port}"))
            .collect();
        let listeners = listeners.join(",");
        let settings = format!(
            "process.roles=broker,controller\n\
             node.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listeners={listeners},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners={listeners}\n\
             inter.broker.listener.name=OPEN\n\
             listener.security.protocol.map=OPEN:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,CONTROLLER:PLAINTEXT\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.sasl.plain.sasl.jaas.config=\
             org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}=\"{PASSWORD}\";\n\
             listener.name.sasl.scram-sha-256.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             listener.name.sasl.scram-sha-512.sasl.jaas.config=\
             org.apache.kafka.common.security.scram.ScramLoginModule required;\n\
             log.dirs={}\n\
             auto.create.topics.enable=true\n\
             offsets.topic.replication.factor=1\n\
             offsets.topic.num.partitions=2\n\
             transaction.state.log.num.partitions=2\n\
             transaction.state.log.replication.factor=1\n\
             transaction.state.log.min.isr=1\n\
             group.initial.rebalance.delay.ms=0\n\
             group.min.session.timeout.ms=500\n\
             transaction.abort.timed.out.transaction.cleanup.interval.ms=500\n\
             num.network.threads=1\n\
             num.io.threads=2\n\
             log.cleaner.enable=false\n\
             log.index.size.max.bytes=65536\n\
             broker.session.timeout.ms=1000\n\
             broker.heartbeat.interval.ms=200\n\
             {more}",
            path.join("data").display()
        );
        std::fs::write(path.join("settings"), settings).map_err(|e| e.to_string())?;
        let formatted = Command::new("java")
            .args(arguments("kafka.tools.StorageTool"))
            .args(["format", "--cluster-id", "AAAAAAAAAAAAAAAAAAAAAA", "--config"])
            .arg(path.join("settings"))
            .args(["SCRAM-SHA-256", "SCRAM-SHA-512"].iter().flat_map(|mechanism| {
                let user = format!("{mechanism}=[name={USER},password={PASSWORD}]");
                ["--add-scram".to_owned(), user]
            }))
            .output()
            .map_err(|e| format!("java: {e} (install it: apt-get install default-jre-headless)"))?;
        if !formatted.status.success() {
            return Err(String::from_utf8_lossy(&formatted.stderr).into_owned());
        }
        let mut server = Kafka { ports: [open, sasl, secure], running: None, directory };
        server.keep_classes()?;
        server.spawn()?;
        Ok(server)
    }

    fn java(&self) -> Vec<String> {
        let mut arguments = arguments("kafka.Kafka");
        arguments.push(self.directory.path().join("settings").display().to_string());
        arguments
    }

    /// Keeps the classes of a broker that has started as Java loads them fastest, unless that was done
    /// before: all others start in half the time.
    fn keep_classes(&self) -> Result<(), String> {
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(classes) = classes().filter(|classes| !classes.exists()) else { return Ok(()) };
        let part = self.directory.path().join("classes");
        let mut arguments = self.java();
        arguments.insert(0, format!("-XX:ArchiveClassesAtExit={}", part.display()));
        let (running, mut output) = Running::start("java".as_ref(), &arguments)?;
        let mut said = String::new();
        while !said.contains(STARTED) {
            match output.read_line(&mut said) {
                Ok(0) => return Err(said),
                read => _ = read.map_err(|e| e.to_string())?,
            }
        }
        running.signal(Signal::TERM);
        output.read_to_string(&mut said).map_err(|e| e.to_string())?;
        // Complete under its name, or not at all: other processes look for it.
        let moved = classes.with_extension(std::process::id().to_string());
        std::fs::copy(&part, &moved)
            .and_then(|_| std::fs::rename(&moved, &classes))
            .map_err(|e| format!("{}: {e}: {said}", classes.display()))
    }

    fn spawn(&mut self) -> Result<(), String> {
        let (running, output) = Running::start("java".as_ref(), &self.java())?;
        guard::ready(output, &[STARTED])?;
        self.running = Some(running);
        Ok(())
    }

    /// Its address for everyone.
    pub fn url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.ports[0])
    }

    /// Its address for the user.
    pub fn sasl_url(&self) -> String {
        format!("kafka://127.0.0.1:{}", self.ports[1])
    }

    /// Its port with TLS.
    pub fn tls_port(&self) -> u16 {
        self.ports[2]
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.running = None;
    }

    /// Stops its process, which keeps its connections.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Starts it again on the same ports, with the same files.
    pub fn restart(&mut self) {
        self.running = None;
        self.spawn().expect("the broker starts again");
    }

    fn signal(&self, signal: Signal) {
        self.running.as_ref().expect("it runs").signal(signal);
    }

    /// Creates a topic.
    pub fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let setting = |(name, value): &(&str, &str)| {
            CreatableTopicConfig::default().with_name(text(name)).with_value(Some(text(value)))
        };
        let topic = CreatableTopic::default()
            .with_name(name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(settings.iter().map(setting).collect());
        let request =
            CreateTopicsRequest::default().with_topics(vec![topic]).with_timeout_ms(10_000);
        let answer: CreateTopicsResponse = self.ask(ApiKey::CreateTopics, 4, &request);
        for topic in answer.topics {
            assert_eq!(topic.error_code, 0, "{:?}", topic.error_message);
        }
    }

    /// Changes a setting of a topic.
    pub fn set(&self, topic: &str, setting: &str, value: &str) {
        let text = |text: &str| StrBytes::from_string(text.to_owned());
        let change = AlterableConfig::default()
            .with_name(text(setting))
            .with_config_operation(SET)
            .with_value(Some(text(value)));
        let resource = AlterConfigsResource::default()
            .with_resource_type(TOPIC)
            .with_resource_name(text(topic))
            .with_configs(vec![change]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        let answer: IncrementalAlterConfigsResponse =
            self.ask(ApiKey::IncrementalAlterConfigs, 0, &request);
        assert_eq!(answer.responses[0].error_code, 0, "{:?}", answer.responses[0].error_message);
    }

    /// The names of all topics.
    pub fn topics(&self) -> Vec<String> {
        let request = MetadataRequest::default().with_topics(None);
        let answer: MetadataResponse = self.ask(ApiKey::Metadata, 5, &request);
        let names = answer.topics.into_iter().filter_map(|topic| topic.name);
        names.map(|name| name.0.to_string()).collect()
    }

    /// What a topic contains, by partition.
    pub fn read(&self, topic: &str, partitions: i32) -> BTreeMap<i32, Vec<Record>> {
        let mut all: BTreeMap<i32, Vec<Record>> = BTreeMap::new();
        for partition in 0..partitions {
            let records = all.entry(partition).or_default();
            loop {
                let from = records.last().map_or(0, |record| record.offset + 1);
                let partition = FetchPartition::default()
                    .with_partition(partition)
                    .with_fetch_offset(from)
                    .with_partition_max_bytes(64 << 20);
                let topic =
                    FetchTopic::default().with_topic(name(topic)).with_partitions(vec![partition]);
                let request = FetchRequest::default()
                    .with_replica_id(BrokerId(-1))
                    .with_max_bytes(64 << 20)
                    .with_topics(vec![topic]);
                let answer = self.fetched(&request);
                let found = &answer.responses[0].partitions[0];
                let mut batches = found.records.clone().unwrap_or_default();
                for batch in RecordBatchDecoder::decode_all(&mut batches).expect("record batches") {
                    records.extend(batch.records);
                }
                if records.last().map_or(0, |record| record.offset + 1) >= found.high_watermark {
                    break;
                }
            }
        }
        all
    }

    /// The answer to a fetch of one partition, as soon as it has a leader.
    fn fetched(&self, request: &FetchRequest) -> FetchResponse {
        let begun = Instant::now();
        loop {
            let answer: FetchResponse = self.ask(ApiKey::Fetch, 4, request);
            let code = answer.responses[0].partitions[0].error_code;
            if code == 0 {
                return answer;
            }
            let is_new = [UNKNOWN_PARTITION, NOT_LEADER].contains(&code);
            assert!(
                is_new && begun.elapsed() < ANSWER_MAX,
                "the error {code} after {:?}",
                begun.elapsed()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// One request, in a version without optional fields.
    fn ask<Q: Encodable + HeaderVersion, A: Decodable + HeaderVersion>(
        &self,
        key: ApiKey,
        version: i16,
        request: &Q,
    ) -> A {
        let mut stream = TcpStream::connect(("127.0.0.1", self.ports[0])).expect("it listens");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("a limit");
        let header = RequestHeader::default()
            .with_request_api_key(key as i16)
            .with_request_api_version(version);
        let mut frame = BytesMut::zeroed(4);
        header.encode(&mut frame, Q::header_version(version)).expect("a header");
        request.encode(&mut frame, version).expect("a request");
        let length = u32::try_from(frame.len() - 4).expect("a short request");
        frame[..4].copy_from_slice(&length.to_be_bytes());
        stream.write_all(&frame).expect("it listens");
        let mut length = [0; 4];
        stream.read_exact(&mut length).expect("an answer");
        let mut answer = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut answer).expect("an answer");
        let mut answer = Bytes::from(answer);
        ResponseHeader::decode(&mut answer, A::header_version(version)).expect("a header");
        A::decode(&mut answer, version).expect("an answer")
    }
}

fn name(topic: &str) -> TopicName {
    TopicName(StrBytes::from_string(topic.to_owned()))
}

/// The arguments of Java for a program of Kafka.
fn arguments(program: &str) -> Vec<String> {
    let directory = files();
    let paths = names().map(|name| directory.join(name).display().to_string());
    let paths = paths.collect::<Vec<_>>().join(":");
    let fixed = JAVA.iter().map(|&argument| argument.to_owned());
    let kept = classes().filter(|classes| classes.exists());
    let kept = kept.map(|classes| format!("-XX:SharedArchiveFile={}", classes.display()));
    fixed.chain(kept).chain(["-cp".to_owned(), paths, program.to_owned()]).collect()
}

/// Where the classes of a broker are kept: in the build directory. Java does without them if they are not
/// its own version's, or another Kafka's.
fn classes() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.join("kafka.jsa"))
}

/// The names of the files.
fn names() -> impl Iterator<Item = &'static str> {
    let lines = FILES.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once('/')).map(|(_, name)| name)
}

/// Where the files are: `BESOM_KAFKA`, or the place to which scripts/prepare downloads them.
fn files() -> PathBuf {
    let named = std::env::var_os("BESOM_KAFKA").map(PathBuf::from);
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
    let place = named.or_else(|| Some(cache.or_else(home)?.join("besom/kafka")));
    let place = place.expect("HOME is set");
    let missing = names().find(|name| !place.join(name).exists());
    assert!(
        missing.is_none(),
        "Kafka is not in {}: download it with `bash -c 'source scripts/prepare; require_kafka'`, or name \
         the directory of its files in BESOM_KAFKA",
        place.display()
    );
    place
}
