//! `[delivery]` and `[topics.NAME]`: where messages of the outbox are sent.
//!
//! URLs come only from the configuration, never from a plugin. The host of each URL must also be listed
//! in `delivery.hosts`, so that adding a topic does not open access to another host.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::delivery::Rules;
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
    /// URL that each message is posted to.
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
            doc: "Maximum number of concurrent requests, over all topics.",
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
        doc: "URL that each message is posted to (http:// or https://); its host must be in delivery.hosts.",
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
        doc: "Value of the Content-Type header.",
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
        doc: "Longest pause between two attempts, even if the receiver requests a longer one.",
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
];

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
    /// The topic with the place of its `token_file`, if it has one.
    pub(super) fn token(&self) -> Option<(String, Span)> {
        Some((self.name.clone(), self.spans.get("token_file")?.clone()))
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
    let target = match Target::parse(&route.url) {
        Ok(target) => target,
        Err((why, fix)) => {
            return wrong("url", format!("`{}` {why}", route.url), fix.into());
        }
    };
    if !target.is_listed(hosts) {
        let message = format!("the host of `{}` is not in delivery.hosts", route.url);
        let fix = format!("add \"{}:{}\" to delivery.hosts", target.host, target.port);
        wrong("url", message, fix);
    }
    if route.token_file.is_some() && !target.secure && !target.is_near() {
        problems.push(
            Diagnostic::warning(
                place("url"),
                format!("the token of the topic `{name}` is sent without encryption"),
            )
            .fix("write https://"),
        );
    }
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
            _ => return Err(("is neither http nor https", SHAPE)),
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

    /// Whether the host is listed, as `name` or `name:port`.
    pub fn is_listed(&self, hosts: &[String]) -> bool {
        let with_port = format!("{}:{}", self.host, self.port);
        hosts.iter().any(|listed| {
            listed.eq_ignore_ascii_case(&self.host) || listed.eq_ignore_ascii_case(&with_port)
        })
    }

    /// Whether the host is this machine.
    fn is_near(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}
