//! `[activity]`: where the activity of things is kept, and the endpoint that hears of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::diagnostic::{Diagnostic, Place};
use super::keys::{Key, Slot};
use super::sections::{Section, Sections};

/// Whether a connection wakes its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// Where a task may change workspaces, or the file maps them.
    #[default]
    Mapped,
    /// Never.
    Never,
}

/// Where activity is kept, and the endpoint to which products report connections.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Activity {
    /// Its Unix socket.
    pub socket: PathBuf,
    /// Its TCP address; none: not reachable by TCP.
    pub tcp: Option<SocketAddr>,
    /// The file with the tokens that TCP callers show.
    pub token_file: Option<PathBuf>,
    /// The certificate that TCP callers see (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Its key (PEM).
    pub tls_key: Option<PathBuf>,
    /// Origins of web pages that may open WebSockets over TCP.
    pub origins: Vec<String>,
    /// The file with the keys that tickets of web pages are signed with.
    pub ticket_key_file: Option<PathBuf>,
    /// How far ahead the end of a ticket may lie.
    pub ticket_life_max: Duration,
    /// Open WebSockets of one ticket.
    pub websockets_per_ticket: u32,
    /// Open WebSockets of this host.
    pub websockets_max: u32,
    /// Other connections at once, of the Unix socket and of the TCP address each.
    pub connections_max: u32,
    /// How long after the last disconnection a thing counts as idle.
    pub idle_timeout: Duration,
    /// How long a connection lives without a heartbeat.
    pub heartbeat_timeout: Duration,
    /// Whether a connection wakes its workspace.
    pub wake: Wake,
    /// The servers of Redis; none: activity is kept in the store.
    pub redis: Vec<String>,
    /// The user of Redis.
    pub redis_user: Option<String>,
    /// The file with its password.
    pub redis_password_file: Option<PathBuf>,
    /// The authorities of Redis's certificates, as PEM.
    pub redis_ca: Option<PathBuf>,
    /// This host's certificate, as PEM.
    pub redis_cert: Option<PathBuf>,
    /// Its key, as PEM.
    pub redis_key: Option<PathBuf>,
    /// The key of the connections, with `{id}` in it.
    pub redis_connections: String,
    /// The key of the timer, with `{id}` in it.
    pub redis_timer: String,
    /// How long a connection to Redis may take.
    pub redis_connect_timeout: Duration,
    /// How long an answer of Redis may take.
    pub redis_timeout: Duration,
    /// The longest pause between two attempts to connect to Redis.
    pub redis_backoff_max: Duration,
    /// Commands of one round trip to Redis.
    pub redis_batch: u32,
}

impl Activity {
    /// Whether it is kept in Redis and not in the store.
    pub fn in_redis(&self) -> bool {
        !self.redis.is_empty()
    }

    /// Relative paths are meant from `dir`.
    pub(super) fn settle_paths(&mut self, dir: &Path) {
        for path in [
            &mut self.token_file,
            &mut self.ticket_key_file,
            &mut self.tls_cert,
            &mut self.tls_key,
            &mut self.redis_password_file,
            &mut self.redis_ca,
            &mut self.redis_cert,
            &mut self.redis_key,
        ]
        .into_iter()
        .flatten()
        {
            *path = dir.join(&path);
        }
    }
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const DAY_MS: u64 = 86_400_000;

/// `[activity]`
pub(super) const ACTIVITY: Section = Section {
    name: "activity",
    doc: "Who is connected to what: the endpoint to which your product reports it, and Redis.",
    keys: &[
        Key {
            name: "socket",
            default: "",
            doc: "Its Unix socket; by default besom-activity.sock beside the database.",
            slot: Slot::Path(|s| &mut s.activity.socket),
        },
        Key {
            name: "tcp",
            default: "",
            doc: "A TCP address to listen on as well; needs token_file.",
            slot: Slot::OptionalAddress(|s| &mut s.activity.tcp),
        },
        Key {
            name: "token_file",
            default: "",
            doc: "The file (mode 0600) with the tokens that TCP callers send: a line each, TOKEN or \
                  NAME TOKEN. It is read again when it changes.",
            slot: Slot::OptionalPath(|s| &mut s.activity.token_file),
        },
        Key {
            name: "tls_cert",
            default: "",
            doc: "The certificate of the TCP address (PEM, with its chain); needed beyond loopback.",
            slot: Slot::OptionalPath(|s| &mut s.activity.tls_cert),
        },
        Key {
            name: "tls_key",
            default: "",
            doc: "The key of tls_cert (PEM, mode 0600).",
            slot: Slot::OptionalPath(|s| &mut s.activity.tls_key),
        },
        Key {
            name: "origins",
            default: "",
            doc: "Origins of web pages that may open WebSockets over TCP with a ticket, such as \
                  [\"https://app.example\"]; by default none.",
            slot: Slot::Texts(|s| &mut s.activity.origins),
        },
        Key {
            name: "ticket_key_file",
            default: "",
            doc: "The file (mode 0600) with the keys that your back end signs tickets of web pages with: a \
                  line each, KEY or NAME KEY. It is read again when it changes.",
            slot: Slot::OptionalPath(|s| &mut s.activity.ticket_key_file),
        },
        Key {
            name: "ticket_life_max",
            default: "\"1d\"",
            doc: "How far ahead the end of a ticket may lie.",
            slot: Slot::Duration(|s| &mut s.activity.ticket_life_max, ms(1_000), ms(30 * DAY_MS)),
        },
        Key {
            name: "websockets_per_ticket",
            default: "16",
            doc: "Open WebSockets of one ticket on this host; a further one is refused with 503.",
            slot: Slot::U32(|s| &mut s.activity.websockets_per_ticket, 1, 1_000_000),
        },
        Key {
            name: "websockets_max",
            default: "10000",
            doc: "Open WebSockets of this host; a further one is refused with 503.",
            slot: Slot::U32(|s| &mut s.activity.websockets_max, 1, 1_000_000),
        },
        Key {
            name: "connections_max",
            default: "1024",
            doc: "Connections at once that are no WebSockets, of the Unix socket and of the TCP address \
                  each: as many as your product has processes that report, or more. At the bound the one \
                  that has waited for its next request for the longest is closed for a newcomer.",
            slot: Slot::U32(|s| &mut s.activity.connections_max, 8, 1_000_000),
        },
        Key {
            name: "idle_timeout",
            default: "\"300s\"",
            doc: "How long after the last disconnection a thing counts as idle.",
            slot: Slot::Duration(|s| &mut s.activity.idle_timeout, ms(1), ms(30 * DAY_MS)),
        },
        Key {
            name: "heartbeat_timeout",
            default: "\"60s\"",
            doc: "How long a connection lives without a heartbeat.",
            slot: Slot::Duration(|s| &mut s.activity.heartbeat_timeout, ms(100), ms(30 * DAY_MS)),
        },
        Key {
            name: "wake",
            default: "\"mapped\"",
            doc: "Whether a connection sets desired_state = RUNNING and last_access_at in `workspaces`: \
                  \"mapped\" (where a task may change them, or this file maps them), or \"never\".",
            slot: Slot::Choice(&["mapped", "never"], |s, word| {
                s.activity.wake = if word == "never" { Wake::Never } else { Wake::Mapped };
            }),
        },
        Key {
            name: "redis",
            default: "",
            doc: "Redis instead of the store: [\"redis://127.0.0.1:6379\"], rediss:// for TLS; \
                  several are members of one Redis Cluster.",
            slot: Slot::Texts(|s| &mut s.activity.redis),
        },
        Key {
            name: "redis_user",
            default: "",
            doc: "The user of Redis's access control list; needs redis_password_file.",
            slot: Slot::OptionalText(|s| &mut s.activity.redis_user),
        },
        Key {
            name: "redis_password_file",
            default: "",
            doc: "The file (mode 0600) with Redis's password.",
            slot: Slot::OptionalPath(|s| &mut s.activity.redis_password_file),
        },
        Key {
            name: "redis_ca",
            default: "",
            doc: "The authorities that Redis's certificates are held against (PEM); by default the system's.",
            slot: Slot::OptionalPath(|s| &mut s.activity.redis_ca),
        },
        Key {
            name: "redis_cert",
            default: "",
            doc: "This host's certificate (PEM), if Redis wants one; needs redis_key.",
            slot: Slot::OptionalPath(|s| &mut s.activity.redis_cert),
        },
        Key {
            name: "redis_key",
            default: "",
            doc: "That certificate's key (PEM, mode 0600).",
            slot: Slot::OptionalPath(|s| &mut s.activity.redis_key),
        },
        Key {
            name: "redis_connections",
            default: "\"ws_conn:{id}\"",
            doc: "The key with the number of connections; {{id}} makes the id a hash tag.",
            slot: Slot::Text(|s| &mut s.activity.redis_connections),
        },
        Key {
            name: "redis_timer",
            default: "\"idle_timer:{id}\"",
            doc: "The key of the idle timer.",
            slot: Slot::Text(|s| &mut s.activity.redis_timer),
        },
        Key {
            name: "redis_connect_timeout",
            default: "\"2s\"",
            doc: "How long a connection to Redis may take.",
            slot: Slot::Duration(|s| &mut s.activity.redis_connect_timeout, ms(10), ms(600_000)),
        },
        Key {
            name: "redis_timeout",
            default: "\"1s\"",
            doc: "How long an answer of Redis may take.",
            slot: Slot::Duration(|s| &mut s.activity.redis_timeout, ms(10), ms(600_000)),
        },
        Key {
            name: "redis_backoff_max",
            default: "\"5s\"",
            doc: "The longest pause between two attempts to connect to Redis.",
            slot: Slot::Duration(|s| &mut s.activity.redis_backoff_max, ms(10), ms(600_000)),
        },
        Key {
            name: "redis_batch",
            default: "500",
            doc: "Commands of one round trip to Redis.",
            slot: Slot::U32(|s| &mut s.activity.redis_batch, 1, 100_000),
        },
    ],
};

/// What is wrong with keys that are each right on their own. `place` finds a key of
/// `[activity]`.
pub(super) fn judge(
    sections: &Sections,
    place: impl Fn(&str) -> Place,
    problems: &mut Vec<Diagnostic>,
) {
    let a = &sections.activity;
    let tls = super::api::TlsKeys {
        tcp: a.tcp,
        cert: a.tls_cert.is_some(),
        key: a.tls_key.is_some(),
        client_ca: false,
    };
    tls.judge("activity", &place, problems);
    let mut wrong = |key: &str, message: String, fix: &str| {
        problems.push(Diagnostic::error(place(key), message).fix(fix));
    };
    if a.tcp.is_some() && a.token_file.is_none() {
        let message = "activity.tcp is open to every local user without a token".to_owned();
        let fix = "set activity.token_file to a file (mode 0600) that holds one";
        wrong("tcp", message, fix);
    }
    for (have, other, has, lacks) in [
        ("origins", "ticket_key_file", !a.origins.is_empty(), a.ticket_key_file.is_none()),
        ("ticket_key_file", "origins", a.ticket_key_file.is_some(), a.origins.is_empty()),
    ] {
        if has && lacks {
            let message = format!("web pages need activity.{other} as well");
            wrong(have, message, &format!("set activity.{other}, or remove {have}"));
        }
    }
    for origin in &a.origins {
        let host = origin.strip_prefix("https://").or(origin.strip_prefix("http://"));
        if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*'])) {
            let message = format!("`{origin}` is not the origin of a page");
            wrong("origins", message, "write https://HOST or https://HOST:PORT, without a path");
        }
    }
    for server in &a.redis {
        let rest = server.strip_prefix("redis://").or(server.strip_prefix("rediss://"));
        if rest.is_some_and(|rest| rest.contains('@')) {
            let message = "activity.redis holds a user or a password".to_owned();
            let fix =
                "name the user in redis_user, and a file with the password in redis_password_file";
            // Without its place: the line is not to be shown.
            wrong("", message, fix);
        } else if !rest.is_some_and(|host| host.contains(':') && !host.starts_with(':')) {
            let message = format!("`{server}` is not an address of Redis");
            wrong("redis", message, "write redis://HOST:PORT, or rediss://HOST:PORT for TLS");
        }
    }
    for (key, template) in
        [("redis_connections", &a.redis_connections), ("redis_timer", &a.redis_timer)]
    {
        if template.matches("{id}").count() != 1 {
            let message = format!("activity.{key} does not say where the id stands");
            wrong(key, message, "write {id} once in it, as in \"ws_conn:{id}\"");
        }
    }
    if a.redis_connections == a.redis_timer {
        let message = "the connections and the timer cannot share one key".to_owned();
        wrong("redis_timer", message, "give activity.redis_timer a name of its own");
    }
    for (have, other, has, lacks) in [
        (
            "redis_user",
            "redis_password_file",
            a.redis_user.is_some(),
            a.redis_password_file.is_none(),
        ),
        ("redis_cert", "redis_key", a.redis_cert.is_some(), a.redis_key.is_none()),
        ("redis_key", "redis_cert", a.redis_key.is_some(), a.redis_cert.is_none()),
    ] {
        if has && lacks {
            let message = format!("activity.{have} is of no use without {other}");
            wrong(have, message, &format!("set activity.{other} as well, or remove {have}"));
        }
    }
    let secure = a.redis.iter().any(|server| server.starts_with("rediss://"));
    for (key, there) in [("redis_ca", a.redis_ca.is_some()), ("redis_cert", a.redis_cert.is_some())]
    {
        if there && a.in_redis() && !secure {
            let message = format!("activity.{key} is for TLS, and every address is redis://");
            wrong(key, message, "write rediss:// in activity.redis, or remove it");
        }
    }
}
