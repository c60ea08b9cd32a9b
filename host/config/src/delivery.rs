//! `[delivery]` and `[topics.NAME]`: where messages of the outbox are sent.
//!
//! URLs come only from the configuration, never from a plugin. The host of each URL must also be listed
//! in `delivery.hosts`, so that adding a topic does not open access to another host.

mod receiver;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::delivery::event::Envelope;
use besom_core::delivery::{Rules, broker};
use serde::Serialize;

use super::diagnostic::{Diagnostic, Place, Source};
use super::keys::{Bytes, U64OrNone, defaults, keys};
use super::quantity::{days, ms, secs};
use super::sections::Sections;
use super::tree::{Entry, Span, Table};
use super::walk::{Spans, Walker};

pub use receiver::{KafkaServers, Receiver, RedisServers, Target};

keys! {
    /// How messages of the outbox are delivered. [topics.NAME] says where to.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Delivery in [delivery] {
        /// Hosts that messages may be sent to, each as name or name:port; all others are refused.
        pub hosts: Vec<String>;
        /// Maximum number of concurrent requests, over all topics; one of them is kept for each topic without
        /// any.
        pub concurrency: u32 = 32, within 1..=10_000;
        /// Interval at which the leader looks for messages, if a topic has a route.
        pub poll: Duration = "1s", within ms(10)..=secs(600);
        /// Certificate authorities for verifying receivers (PEM) (default: the system's).
        pub ca: Option<PathBuf>;
        /// Maximum number of undelivered messages of a task per topic; above it, the task is held. For a
        /// topic without a route, the oldest messages are removed instead.
        pub pending_max: u32 = 100000, within 1..=1_000_000_000;
        /// Maximum total size of the undelivered messages of a task per topic.
        pub pending_bytes_max: Bytes = "1GiB", within 1 << 20..=1 << 50;
    }
}

keys! {
    /// The route of a topic.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Route {
        /// URL that each message is posted to (http:// or https://), or the servers of a Redis stream
        /// (redis://host:port or rediss://host:port; several, separated by commas, are nodes of a cluster) or
        /// of a topic of Kafka (kafka://host:port or kafka+ssl://host:port; one or several brokers of a
        /// cluster). Every host must be in delivery.hosts.
        pub url: String;
        /// File (mode 0600) with the token that is sent as `Authorization: Bearer`.
        pub token_file: Option<PathBuf>;
        /// Media type of the payloads: the Content-Type header, or the attribute datacontenttype.
        pub content_type: String = "application/json";
        /// Maximum time for one attempt, from connecting to the end of the answer.
        pub timeout: Duration = "10s", within ms(10)..=secs(3_600);
        /// Maximum number of attempts, after which a message is given up: with the default pauses after about
        /// half a day.
        pub attempts_max: u32 = 200, within 1..=1_000_000;
        /// Pause after the first failure; it doubles with each further failure, minus a random part of up to
        /// one half.
        pub backoff: Duration = "1s", within ms(1)..=days(1);
        /// Longest pause between two attempts, even if the receiver requests a longer one; to a broker at
        /// most 30s.
        pub backoff_max: Duration = "5m", within ms(1)..=days(30);
        /// Maximum number of concurrent requests of this topic.
        pub concurrency: u32 = 4, within 1..=1_000;
        /// Maximum size of an answer that is kept for the task; the rest is not read.
        pub reply_bytes_max: Bytes = "64KiB", within 0..=1 << 20;
        /// Whether the product may enter messages: with POST /feed/TOPIC/KEY to the activity endpoint, or by
        /// inserting rows into the table besom_feed (PostgreSQL: besom.feed).
        pub feed: bool = false;
        /// How the CloudEvents attributes are sent: beside the payload (binary), or with it in one JSON
        /// object (structured).
        pub envelope: Envelope = "binary", one of &["binary", "structured"] => |word| match word {
            "structured" => Envelope::Structured,
            _ => Envelope::Binary,
        };
        /// URI of the schema of the payloads: the attribute dataschema.
        pub schema: Option<String>;
        /// Redis: the user (default: the server's default user). Kafka: the user of SASL (default: no SASL).
        pub user: Option<String>;
        /// Redis, Kafka: file (mode 0600) with the user's password.
        pub password_file: Option<PathBuf>;
        /// Redis: name of the stream (default: the topic's name).
        pub stream: Option<String>;
        /// Redis: approximate number of messages that the stream keeps; older ones are removed, read or not.
        /// 0: all of them.
        pub length_max: U64OrNone = 0, within 1..=u64::MAX >> 1;
        /// Redis: number of replicas that must have a message before it counts as delivered. With 0, a
        /// failover can lose the latest delivered messages.
        pub replicas: u32 = 0, within 0..=100;
        /// Kafka: name of the topic in Kafka (default: the name of this topic). It must exist.
        pub topic: Option<String>;
        /// Kafka: mechanism by which the user identifies itself.
        pub sasl: Sasl = "scram-sha-512",
            one of &["plain", "scram-sha-256", "scram-sha-512"] => |word| match word {
                "plain" => Sasl::Plain,
                "scram-sha-256" => Sasl::ScramSha256,
                _ => Sasl::ScramSha512,
            };
        /// Kafka: client certificate (PEM), if the brokers require one; requires key.
        pub cert: Option<PathBuf>;
        /// Kafka: private key of cert (PEM, mode 0600).
        pub key: Option<PathBuf>;
        /// Redis, Kafka: maximum number of messages that are sent at once.
        pub batch: u32 = 2000, within 1..=100_000;
        /// Redis, Kafka: maximum size of their payloads; a larger message is sent alone.
        pub batch_bytes: Bytes = "4MiB", within 1 << 10..=1 << 30;
    }
}

/// A mechanism of SASL, by which a user proves that it knows its password.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sasl {
    /// The password itself is sent.
    Plain,
    /// A challenge with SHA-256; the password is not sent.
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    /// A challenge with SHA-512; the password is not sent.
    #[default]
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

impl Route {
    /// Returns the delivery rules of this route.
    pub fn rules(&self) -> Rules {
        Rules {
            timeout: self.timeout,
            attempts_max: self.attempts_max,
            backoff: self.backoff,
            backoff_max: self.backoff_max,
            concurrency: self.concurrency,
        }
    }

    /// Returns the delivery rules of this route if it leads to a broker.
    pub fn broker_rules(&self, poll: Duration) -> broker::Rules {
        broker::Rules {
            batch: self.batch,
            batch_bytes: self.batch_bytes,
            backoff: self.backoff,
            backoff_max: self.backoff_max.min(broker::PAUSE_MAX),
            poll,
        }
    }
}

/// The keys that only a route to a broker has.
const OF_BROKERS: &[&str] = &["user", "password_file", "batch", "batch_bytes"];
/// The keys that only a route to Redis has.
const OF_REDIS: &[&str] = &["stream", "length_max", "replicas"];
/// The keys that only a route to Kafka has.
const OF_KAFKA: &[&str] = &["topic", "sasl", "cert", "key"];
/// The keys that only a route over HTTP has.
const OF_HTTP: &[&str] = &["token_file", "concurrency", "reply_bytes_max", "attempts_max"];

/// A topic as read from its table.
#[derive(Debug, Clone)]
pub(super) struct RawTopic {
    name: String,
    name_span: Span,
    spans: Spans,
    route: Route,
}

impl RawTopic {
    pub(super) fn read(walker: &mut Walker<'_>, entry: &Entry, table: &Table) -> RawTopic {
        let mut route = defaults(Route::KEYS);
        let path = format!("topics.{}", entry.key);
        let spans = walker.read(&path, table, Route::KEYS, &[], &mut route);
        RawTopic { name: entry.key.clone(), name_span: entry.key_span.clone(), spans, route }
    }
}

impl RawTopic {
    /// The topic with the place of the file of its token, password or key, if it has one.
    pub(super) fn token(&self) -> Option<(String, Span)> {
        let mut keys = ["token_file", "password_file", "key"].into_iter();
        let span = keys.find_map(|key| self.spans.get(key))?;
        Some((self.name.clone(), span.clone()))
    }
}

/// Returns the routes of the topics, and reports what is wrong with them.
pub(super) fn routes(
    topics: Vec<RawTopic>,
    sections: &Sections,
    source: &Source,
    problems: &mut Vec<Diagnostic>,
) -> BTreeMap<String, Route> {
    let mut routes = BTreeMap::new();
    for topic in topics {
        judge(&topic, &sections.delivery.hosts, source, problems);
        routes.insert(topic.name, topic.route);
    }
    routes
}

fn judge(topic: &RawTopic, hosts: &[String], source: &Source, problems: &mut Vec<Diagnostic>) {
    let place =
        |key: &str| -> Place { source.at(topic.spans.get(key).unwrap_or(&topic.name_span)) };
    let (name, route) = (&topic.name, &topic.route);
    let mut wrong = |key: &str, message: String, fix: String| {
        problems.push(Diagnostic::error(place(key), message).fix(fix));
    };
    if route.backoff > route.backoff_max {
        let message = format!("`backoff` of the topic `{name}` is longer than `backoff_max`");
        wrong("backoff", message, "raise backoff_max".into());
    }
    if hyper::header::HeaderValue::from_str(&route.content_type).is_err() {
        let message = format!("`{}` is not a content type", route.content_type);
        wrong("content_type", message, "write, for example, \"application/json\"".into());
    }
    if route.url.is_empty() {
        // An empty URL was reported when it was read.
        if !topic.spans.contains_key("url") {
            let message = format!("the topic `{name}` has no url");
            wrong("url", message, "add url = \"https://host/path\"".into());
        }
        return;
    }
    let receiver = match Receiver::parse(&route.url) {
        Ok(receiver) => receiver,
        Err((why, fix)) => {
            return wrong("url", format!("`{}` {why}", route.url), fix.into());
        }
    };
    let (foreign, what): (&[&[&str]], _) = match &receiver {
        Receiver::Http(_) => (&[OF_BROKERS, OF_REDIS, OF_KAFKA], "over HTTP"),
        Receiver::Redis(_) => (&[OF_HTTP, OF_KAFKA], "to Redis"),
        Receiver::Kafka(_) => (&[OF_HTTP, OF_REDIS], "to Kafka"),
    };
    for key in foreign.concat().into_iter().filter(|key| topic.spans.contains_key(*key)) {
        let message = format!("`{key}` has no effect: the topic `{name}` is delivered {what}");
        wrong(key, message, "remove it".into());
    }
    if let Receiver::Kafka(servers) = &receiver {
        for (key, message, fix) in faults_of_kafka(name, route, servers, &topic.spans) {
            wrong(key, message, fix.into());
        }
    }
    for (host, port) in receiver.hosts() {
        if !is_listed(&host, port, hosts) {
            let message = match &receiver {
                Receiver::Http(_) => {
                    format!("the host of `{}` is not in delivery.hosts", route.url)
                }
                Receiver::Redis(_) | Receiver::Kafka(_) => {
                    format!("the server `{host}` is not in delivery.hosts")
                }
            };
            wrong("url", message, format!("add \"{host}:{port}\" to delivery.hosts"));
        }
    }
    let secret = if route.token_file.is_some() { "token" } else { "password" };
    // The password of a challenge is not sent.
    let is_password_sent = !matches!(receiver, Receiver::Kafka(_)) || route.sasl == Sasl::Plain;
    let is_sent = route.token_file.is_some() || (route.password_file.is_some() && is_password_sent);
    if is_sent && !receiver.is_secure() && !receiver.hosts().iter().all(|(host, _)| is_near(host)) {
        let fix = match &receiver {
            Receiver::Http(_) => "write https://",
            Receiver::Redis(_) => "write rediss://",
            Receiver::Kafka(_) => "write kafka+ssl://, or sasl = \"scram-sha-512\"",
        };
        problems.push(
            Diagnostic::warning(
                place("url"),
                format!("the {secret} of the topic `{name}` is sent without encryption"),
            )
            .fix(fix),
        );
    }
}

/// What is wrong with the keys of a route to Kafka: the key, the message and the fix.
fn faults_of_kafka(
    name: &str,
    route: &Route,
    servers: &KafkaServers,
    spans: &Spans,
) -> Vec<(&'static str, String, &'static str)> {
    let mut faults = Vec::new();
    let topic = route.topic.as_deref().unwrap_or(name);
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.len() > 249 || matches!(topic, "." | "..") || !topic.chars().all(is_legal) {
        let message = format!("`{topic}` is not the name of a topic of Kafka");
        faults.push(("topic", message, "write at most 249 of a-z, A-Z, 0-9, `.`, `_` and `-`"));
    }
    let pairs = [
        ("user", "password_file", route.user.is_some(), route.password_file.is_some()),
        ("password_file", "user", route.password_file.is_some(), route.user.is_some()),
        ("cert", "key", route.cert.is_some(), route.key.is_some()),
        ("key", "cert", route.key.is_some(), route.cert.is_some()),
        ("sasl", "user", spans.contains_key("sasl"), route.user.is_some()),
    ];
    for (key, other, is_set, is_other_set) in pairs {
        if is_set && !is_other_set {
            let message = format!("`{key}` of the topic `{name}` requires `{other}`");
            faults.push((key, message, "write both"));
        }
    }
    if route.cert.is_some() && !servers.secure {
        let message = format!("`cert` has no effect: the topic `{name}` is delivered without TLS");
        faults.push(("cert", message, "write kafka+ssl://"));
    }
    faults
}

/// Whether a host is listed, as `name` or `name:port`.
fn is_listed(host: &str, port: u16, listed: &[String]) -> bool {
    let with_port = format!("{host}:{port}");
    listed
        .iter()
        .any(|listed| listed.eq_ignore_ascii_case(host) || listed.eq_ignore_ascii_case(&with_port))
}

/// Whether a host is this machine.
fn is_near(host: &str) -> bool {
    let host = host.trim_matches(['[', ']']);
    host == "localhost"
        || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}
