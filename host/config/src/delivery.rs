//! `[delivery]` and `[topics.NAME]`: where messages of the outbox are sent.
//!
//! URLs come only from the configuration, never from a plugin. The host of each URL must also be listed
//! in `delivery.hosts`, so that adding a topic does not open access to another host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::delivery::event::Envelope;
use besom_core::delivery::{Rules, broker};
use serde::Serialize;

use super::diagnostic::{Diagnostic, Place, Source};
use super::keys::{Key, Setter};
use super::sections::{Section, Sections};
use super::tree::{Entry, Span, Table};
use super::walk::{Spans, Walker};

/// The settings of `[delivery]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Delivery {
    /// Hosts that messages may be sent to, as `name` or `name:port`.
    pub hosts: Vec<String>,
    /// Maximum number of concurrent requests, over all topics.
    pub concurrency: u32,
    /// Interval at which the leader looks for messages.
    pub poll: Duration,
    /// Certificate authorities for verifying receivers; `None` means the system's.
    pub ca: Option<PathBuf>,
    /// Maximum number of undelivered messages of a task per topic.
    pub pending_max: u32,
    /// Maximum total size of these messages, in bytes.
    pub pending_bytes_max: u64,
}

/// The settings of `[topics.NAME]`: the route of a topic.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Route {
    /// URL that each message is posted to, or the servers of a broker.
    pub url: String,
    /// File with the bearer token for the receiver.
    pub token_file: Option<PathBuf>,
    /// Value of the `Content-Type` header.
    pub content_type: String,
    /// Maximum time for one attempt.
    pub timeout: Duration,
    /// Maximum number of attempts, after which a message is given up.
    pub attempts_max: u32,
    /// Pause after the first failure; it doubles with each further failure.
    pub backoff: Duration,
    /// Longest pause between two attempts.
    pub backoff_max: Duration,
    /// Maximum number of concurrent requests of this topic.
    pub concurrency: u32,
    /// Maximum size of the kept part of an answer, in bytes.
    pub reply_bytes_max: u64,
    /// How the attributes of a message are sent.
    pub envelope: Envelope,
    /// URI of the schema of the payloads.
    pub schema: Option<String>,
    /// User of the broker.
    pub user: Option<String>,
    /// File with the user's password.
    pub password_file: Option<PathBuf>,
    /// Name of the stream; `None` means the topic's name.
    pub stream: Option<String>,
    /// Approximate maximum length of the stream; 0 means no limit.
    pub length_max: u64,
    /// Number of replicas that must have a message before it is delivered.
    pub replicas: u32,
    /// Maximum number of messages sent to the broker at once.
    pub batch: u32,
    /// Maximum size of their payloads, in bytes.
    pub batch_bytes: u64,
}

/// Longest pause between two attempts to reach a broker: all messages of its topic wait for it.
const BROKER_PAUSE_MAX: Duration = Duration::from_secs(30);

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
            backoff_max: self.backoff_max.min(BROKER_PAUSE_MAX),
            poll,
        }
    }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const DAY_MS: u64 = 86_400_000;

/// The keys of `[delivery]`.
pub(super) const DELIVERY: Section = Section {
    name: "delivery",
    doc: "How messages of the outbox are delivered. [topics.NAME] says where to.",
    keys: &[
        Key {
            name: "hosts",
            default: "",
            doc: "Hosts that messages may be sent to, each as name or name:port; all others are refused.",
            setter: Setter::Texts(|s: &mut Sections| &mut s.delivery.hosts),
        },
        Key {
            name: "concurrency",
            default: "32",
            doc: "Maximum number of concurrent requests, over all topics; one of them is kept for each \
                  topic without any.",
            setter: Setter::U32(|s: &mut Sections| &mut s.delivery.concurrency, 1, 10_000),
        },
        Key {
            name: "poll",
            default: "\"1s\"",
            doc: "Interval at which the leader looks for messages, if a topic has a route.",
            setter: Setter::Duration(|s: &mut Sections| &mut s.delivery.poll, ms(10), ms(600_000)),
        },
        Key {
            name: "ca",
            default: "",
            doc: "Certificate authorities for verifying receivers (PEM) (default: the system's).",
            setter: Setter::OptionalPath(|s: &mut Sections| &mut s.delivery.ca),
        },
        Key {
            name: "pending_max",
            default: "100000",
            doc: "Maximum number of undelivered messages of a task per topic; above it, the task is held. \
                  For a topic without a route, the oldest messages are removed instead.",
            setter: Setter::U32(|s: &mut Sections| &mut s.delivery.pending_max, 1, 1_000_000_000),
        },
        Key {
            name: "pending_bytes_max",
            default: "\"1GiB\"",
            doc: "Maximum total size of the undelivered messages of a task per topic.",
            setter: Setter::Bytes(
                |s: &mut Sections| &mut s.delivery.pending_bytes_max,
                1 << 20,
                1 << 50,
            ),
        },
    ],
};

/// The keys of `[topics.NAME]`.
pub static KEYS: &[Key<Route>] = &[
    Key {
        name: "url",
        default: "",
        doc: "URL that each message is posted to (http:// or https://), or the servers of a Redis stream \
              (redis://host:port or rediss://host:port; several, separated by commas, are nodes of a \
              cluster). Every host must be in delivery.hosts.",
        setter: Setter::Text(|r| &mut r.url),
    },
    Key {
        name: "token_file",
        default: "",
        doc: "File (mode 0600) with the token that is sent as `Authorization: Bearer`.",
        setter: Setter::OptionalPath(|r| &mut r.token_file),
    },
    Key {
        name: "content_type",
        default: "\"application/json\"",
        doc: "Media type of the payloads: the Content-Type header, or the attribute datacontenttype.",
        setter: Setter::Text(|r| &mut r.content_type),
    },
    Key {
        name: "timeout",
        default: "\"10s\"",
        doc: "Maximum time for one attempt, from connecting to the end of the answer.",
        setter: Setter::Duration(|r| &mut r.timeout, ms(10), ms(3_600_000)),
    },
    Key {
        name: "attempts_max",
        default: "10",
        doc: "Maximum number of attempts, after which a message is given up.",
        setter: Setter::U32(|r| &mut r.attempts_max, 1, 1_000),
    },
    Key {
        name: "backoff",
        default: "\"1s\"",
        doc: "Pause after the first failure; it doubles with each further failure, minus a random part of up to one half.",
        setter: Setter::Duration(|r| &mut r.backoff, ms(1), ms(DAY_MS)),
    },
    Key {
        name: "backoff_max",
        default: "\"10m\"",
        doc: "Longest pause between two attempts, even if the receiver requests a longer one; to a broker at \
              most 30s.",
        setter: Setter::Duration(|r| &mut r.backoff_max, ms(1), ms(30 * DAY_MS)),
    },
    Key {
        name: "concurrency",
        default: "4",
        doc: "Maximum number of concurrent requests of this topic.",
        setter: Setter::U32(|r| &mut r.concurrency, 1, 1_000),
    },
    Key {
        name: "reply_bytes_max",
        default: "\"64KiB\"",
        doc: "Maximum size of an answer that is kept for the task; the rest is not read.",
        setter: Setter::Bytes(|r| &mut r.reply_bytes_max, 0, 1 << 20),
    },
    Key {
        name: "envelope",
        default: "\"binary\"",
        doc: "How the CloudEvents attributes are sent: beside the payload (binary), or with it in one \
              JSON object (structured).",
        setter: Setter::Choice(&["binary", "structured"], |r, word| {
            r.envelope = if word == "structured" { Envelope::Structured } else { Envelope::Binary };
        }),
    },
    Key {
        name: "schema",
        default: "",
        doc: "URI of the schema of the payloads: the attribute dataschema.",
        setter: Setter::OptionalText(|r| &mut r.schema),
    },
    Key {
        name: "user",
        default: "",
        doc: "Redis: the user (default: the server's default user).",
        setter: Setter::OptionalText(|r| &mut r.user),
    },
    Key {
        name: "password_file",
        default: "",
        doc: "Redis: file (mode 0600) with the user's password.",
        setter: Setter::OptionalPath(|r| &mut r.password_file),
    },
    Key {
        name: "stream",
        default: "",
        doc: "Redis: name of the stream (default: the topic's name).",
        setter: Setter::OptionalText(|r| &mut r.stream),
    },
    Key {
        name: "length_max",
        default: "0",
        doc: "Redis: approximate number of messages that the stream keeps; older ones are removed, read or \
              not. 0: all of them.",
        setter: Setter::U64OrNone(|r| &mut r.length_max, 1, u64::MAX >> 1),
    },
    Key {
        name: "replicas",
        default: "0",
        doc: "Redis: number of replicas that must have a message before it counts as delivered. With 0, a \
              failover can lose the latest delivered messages.",
        setter: Setter::U32(|r| &mut r.replicas, 0, 100),
    },
    Key {
        name: "batch",
        default: "1000",
        doc: "Redis: maximum number of messages that are sent at once.",
        setter: Setter::U32(|r| &mut r.batch, 1, 100_000),
    },
    Key {
        name: "batch_bytes",
        default: "\"4MiB\"",
        doc: "Redis: maximum size of their payloads; a larger message is sent alone.",
        setter: Setter::Bytes(|r| &mut r.batch_bytes, 1 << 10, 1 << 30),
    },
];

/// The keys that only a route to a broker has.
const OF_BROKERS: &[&str] =
    &["user", "password_file", "stream", "length_max", "replicas", "batch", "batch_bytes"];
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
        let mut route = Route::default();
        for key in KEYS {
            key.set_default(&mut route);
        }
        let spans = walker.read(&format!("topics.{}", entry.key), table, KEYS, &[], &mut route);
        RawTopic { name: entry.key.clone(), name_span: entry.key_span.clone(), spans, route }
    }
}

impl RawTopic {
    /// The topic with the place of the file of its token or password, if it has one.
    pub(super) fn token(&self) -> Option<(String, Span)> {
        let span = self.spans.get("token_file").or_else(|| self.spans.get("password_file"))?;
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
    let (foreign, what) = match &receiver {
        Receiver::Http(_) => (OF_BROKERS, "over HTTP"),
        Receiver::Redis(_) => (OF_HTTP, "to Redis"),
    };
    for key in foreign.iter().filter(|key| topic.spans.contains_key(**key)) {
        let message = format!("`{key}` has no effect: the topic `{name}` is delivered {what}");
        wrong(key, message, "remove it".into());
    }
    for (host, port) in receiver.hosts() {
        if !is_listed(&host, port, hosts) {
            let message = match &receiver {
                Receiver::Http(_) => {
                    format!("the host of `{}` is not in delivery.hosts", route.url)
                }
                Receiver::Redis(_) => format!("the server `{host}` is not in delivery.hosts"),
            };
            wrong("url", message, format!("add \"{host}:{port}\" to delivery.hosts"));
        }
    }
    let secret = if route.token_file.is_some() { "token" } else { "password" };
    let is_sent = route.token_file.is_some() || route.password_file.is_some();
    if is_sent && !receiver.is_secure() && !receiver.hosts().iter().all(|(host, _)| is_near(host)) {
        let fix = match &receiver {
            Receiver::Http(_) => "write https://",
            Receiver::Redis(_) => "write rediss://",
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

/// Where the messages of a topic go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Receiver {
    /// Each is posted to a URL.
    Http(Target),
    /// They are appended to a stream of Redis.
    Redis(RedisServers),
}

impl Receiver {
    /// Parses the URL of a topic.
    ///
    /// # Errors
    /// What is wrong with the URL, and the fix.
    pub fn parse(url: &str) -> Result<Receiver, (&'static str, &'static str)> {
        match url.split_once("://") {
            Some(("redis", servers)) => Ok(Receiver::Redis(RedisServers::parse(false, servers)?)),
            Some(("rediss", servers)) => Ok(Receiver::Redis(RedisServers::parse(true, servers)?)),
            _ => Ok(Receiver::Http(Target::parse(url)?)),
        }
    }

    /// The hosts and ports that are connected to.
    fn hosts(&self) -> Vec<(String, u16)> {
        match self {
            Receiver::Http(target) => vec![(target.host.clone(), target.port)],
            Receiver::Redis(servers) => servers.hosts.clone(),
        }
    }

    fn is_secure(&self) -> bool {
        match self {
            Receiver::Http(target) => target.secure,
            Receiver::Redis(servers) => servers.secure,
        }
    }
}

/// The servers of a URL such as `redis://a:6379,b:6379/0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RedisServers {
    /// Whether the connections use TLS.
    pub secure: bool,
    /// Hosts and ports; several are nodes of one cluster.
    pub hosts: Vec<(String, u16)>,
    /// The number of the database.
    pub database: u32,
}

impl RedisServers {
    fn parse(secure: bool, text: &str) -> Result<RedisServers, (&'static str, &'static str)> {
        const SHAPE: &str = "write redis://host:port, or redis://host:port,host:port for a cluster";
        if text.contains('@') {
            return Err(("contains a user or a password", "write user and password_file"));
        }
        let (servers, database) = text.split_once('/').unwrap_or((text, ""));
        let database = match database {
            "" => 0,
            number => number.parse().map_err(|_| ("has no number as its database", SHAPE))?,
        };
        let mut hosts = Vec::new();
        for server in servers.split(',') {
            let authority: hyper::http::uri::Authority =
                server.trim().parse().map_err(|_| ("names no server", SHAPE))?;
            let host = authority.host().to_ascii_lowercase();
            if host.is_empty() {
                return Err(("names no server", SHAPE));
            }
            hosts.push((host, authority.port_u16().unwrap_or(6379)));
        }
        if hosts.len() > 1 && database > 0 {
            return Err(("names a database of a cluster, which has only 0", "remove it"));
        }
        Ok(RedisServers { secure, hosts, database })
    }

    /// One URL for each server.
    pub fn urls(&self) -> Vec<String> {
        let scheme = if self.secure { "rediss" } else { "redis" };
        let url =
            |(host, port): &(String, u16)| format!("{scheme}://{host}:{port}/{}", self.database);
        self.hosts.iter().map(url).collect()
    }
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

/// A parsed URL of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whether the scheme is https.
    pub secure: bool,
    /// The host, lower case; an IPv6 address between brackets.
    pub host: String,
    /// The port; by default 443 for https and 80 for http.
    pub port: u16,
    /// The path and query.
    pub path: String,
}

impl Target {
    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong with the URL, and the fix.
    pub fn parse(url: &str) -> Result<Target, (&'static str, &'static str)> {
        const SHAPE: &str = "write https://host/path or http://host:port/path";
        let uri: hyper::Uri = url.parse().map_err(|_| ("is not a URL", SHAPE))?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => {
                return Err((
                    "is neither http nor https",
                    "write https://host/path, http://host:port/path, or redis://host:port for a stream",
                ));
            }
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or(("names no host", SHAPE))?;
        if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err(("contains a user or a password", "put the token into token_file"));
        }
        if url.contains('#') {
            return Err(("has a fragment, which is never sent", "remove it"));
        }
        Ok(Target {
            secure,
            host: host.to_ascii_lowercase(),
            port: uri.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            path: uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
        })
    }
}
