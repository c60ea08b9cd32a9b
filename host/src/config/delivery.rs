//! `[delivery]` and `[topics.NAME]`: where messages of the outbox are sent.
//!
//! A URL comes from here and never from a plugin, and its host has to be listed once more in
//! `delivery.hosts`: whoever adds a topic cannot open a way to somewhere else by it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::delivery::Rules;
use serde::Serialize;

use super::diagnostic::{Diagnostic, Place, Source};
use super::keys::{Key, Slot};
use super::sections::{Section, Sections};
use super::tree::{Entry, Span, Table};
use super::walk::{Spans, Walker};

/// `[delivery]`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Delivery {
    /// The hosts that may be called, as `name` or `name:port`.
    pub hosts: Vec<String>,
    /// Requests under way at once, of all topics.
    pub concurrency: u32,
    /// How often the leader looks for messages.
    pub poll: Duration,
    /// The authorities that receivers' certificates are held against; none: the system's.
    pub ca: Option<PathBuf>,
    /// Messages of a task to one topic that may wait to be delivered.
    pub pending_max: u32,
    /// The bytes of these.
    pub pending_bytes_max: u64,
}

/// `[topics.NAME]`: where the messages of a topic go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Route {
    /// The address that each message is posted to.
    pub url: String,
    /// The file with the token that is shown there.
    pub token_file: Option<PathBuf>,
    /// The type that is said of the content.
    pub content_type: String,
    /// How long one attempt may take.
    pub timeout: Duration,
    /// Attempts before a message is given up.
    pub attempts_max: u32,
    /// The wait after the first failure.
    pub backoff: Duration,
    /// The longest wait.
    pub backoff_max: Duration,
    /// Requests under way at once.
    pub concurrency: u32,
    /// How much of an answer is kept, in bytes.
    pub reply_bytes_max: u64,
}

impl Route {
    /// The rules of its delivery.
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

/// `[delivery]`
pub(super) const DELIVERY: Section = Section {
    name: "delivery",
    doc: "How messages of the outbox are delivered. Where to is said by [topics.NAME].",
    keys: &[
        Key {
            name: "hosts",
            default: "",
            doc: "The hosts that may be called, each as name or name:port; no other ever is.",
            slot: Slot::Texts(|s: &mut Sections| &mut s.delivery.hosts),
        },
        Key {
            name: "concurrency",
            default: "32",
            doc: "Requests under way at once, of all topics.",
            slot: Slot::U32(|s: &mut Sections| &mut s.delivery.concurrency, 1, 10_000),
        },
        Key {
            name: "poll",
            default: "\"1s\"",
            doc: "How often the leader looks for messages, where a topic has a route.",
            slot: Slot::Duration(|s: &mut Sections| &mut s.delivery.poll, ms(10), ms(600_000)),
        },
        Key {
            name: "ca",
            default: "",
            doc: "The authorities that receivers' certificates are held against (PEM); by default the system's.",
            slot: Slot::OptionalPath(|s: &mut Sections| &mut s.delivery.ca),
        },
        Key {
            name: "pending_max",
            default: "100000",
            doc: "Messages of a task to one topic that may wait to be delivered; above it the task is \
                  held. Of a topic without a route the oldest are removed instead.",
            slot: Slot::U32(|s: &mut Sections| &mut s.delivery.pending_max, 1, 1_000_000_000),
        },
        Key {
            name: "pending_bytes_max",
            default: "\"1GiB\"",
            doc: "The bytes of the messages of a task to one topic that may wait to be delivered.",
            slot: Slot::Bytes(
                |s: &mut Sections| &mut s.delivery.pending_bytes_max,
                1 << 20,
                1 << 50,
            ),
        },
    ],
};

/// The keys of a topic.
pub static KEYS: &[Key<Route>] = &[
    Key {
        name: "url",
        default: "",
        doc: "The address that each message is posted to: http:// or https://, a host of delivery.hosts.",
        slot: Slot::Text(|r| &mut r.url),
    },
    Key {
        name: "token_file",
        default: "",
        doc: "The file (mode 0600) with the token that is sent as `Authorization: Bearer`.",
        slot: Slot::OptionalPath(|r| &mut r.token_file),
    },
    Key {
        name: "content_type",
        default: "\"application/json\"",
        doc: "The type that is said of the content.",
        slot: Slot::Text(|r| &mut r.content_type),
    },
    Key {
        name: "timeout",
        default: "\"10s\"",
        doc: "How long one attempt may take, from the connection to the end of the answer.",
        slot: Slot::Duration(|r| &mut r.timeout, ms(10), ms(3_600_000)),
    },
    Key {
        name: "attempts_max",
        default: "10",
        doc: "Attempts before a message is given up.",
        slot: Slot::U32(|r| &mut r.attempts_max, 1, 1_000),
    },
    Key {
        name: "backoff",
        default: "\"1s\"",
        doc: "The wait after the first failure; it doubles with each further one, less up to half of it by chance.",
        slot: Slot::Duration(|r| &mut r.backoff, ms(1), ms(DAY_MS)),
    },
    Key {
        name: "backoff_max",
        default: "\"10m\"",
        doc: "The longest wait, also where the receiver asks for a longer one.",
        slot: Slot::Duration(|r| &mut r.backoff_max, ms(1), ms(30 * DAY_MS)),
    },
    Key {
        name: "concurrency",
        default: "4",
        doc: "Requests of this topic under way at once.",
        slot: Slot::U32(|r| &mut r.concurrency, 1, 1_000),
    },
    Key {
        name: "reply_bytes_max",
        default: "\"64KiB\"",
        doc: "How much of an answer is kept for the task; the rest is not read.",
        slot: Slot::Bytes(|r| &mut r.reply_bytes_max, 0, 1 << 20),
    },
];

/// A topic as its table says.
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
    /// Where the file of its token is named.
    pub(super) fn token(&self) -> Option<(String, Span)> {
        Some((self.name.clone(), self.spans.get("token_file")?.clone()))
    }
}

/// The routes, as far as nothing is wrong with them.
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
        let message = format!("`{}` is no content type", route.content_type);
        wrong("content_type", message, "write for instance \"application/json\"".into());
    }
    if route.url.is_empty() {
        // An empty one was reported where it was read.
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

/// Where a URL leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Whether it is https.
    pub secure: bool,
    /// The host, lower case; an IPv6 address between brackets.
    pub host: String,
    /// The port, the scheme's own where none is given.
    pub port: u16,
    /// Path and query.
    pub path: String,
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it, and how to mend it.
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
            return Err(("holds a user or a password", "put the token into token_file"));
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

    /// Whether the host is among those listed, as `name` or `name:port`.
    pub fn is_listed(&self, hosts: &[String]) -> bool {
        let with_port = format!("{}:{}", self.host, self.port);
        hosts.iter().any(|listed| {
            listed.eq_ignore_ascii_case(&self.host) || listed.eq_ignore_ascii_case(&with_port)
        })
    }

    /// Whether what is sent stays on this machine.
    fn is_near(&self) -> bool {
        let host = self.host.trim_matches(['[', ']']);
        host == "localhost"
            || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}
