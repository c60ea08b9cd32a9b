//! `[activity]`: where activity is kept, and the endpoint that receives reports of it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use super::diagnostic::{Diagnostic, Place};
use super::keys::{Key, Setter};
use super::sections::{Section, Sections};

/// Whether a connection wakes its workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wake {
    /// Only if a task may change workspaces, or if the file maps them.
    #[default]
    Mapped,
    /// Never.
    Never,
}

/// The settings of `[activity]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Activity {
    /// Unix socket of the endpoint.
    pub socket: PathBuf,
    /// TCP address of the endpoint; `None` disables TCP.
    pub tcp: Option<SocketAddr>,
    /// File with the tokens of TCP callers.
    pub token_file: Option<PathBuf>,
    /// Certificate chain of the TCP address (PEM).
    pub tls_cert: Option<PathBuf>,
    /// Private key of `tls_cert` (PEM).
    pub tls_key: Option<PathBuf>,
    /// Origins of web pages that may open WebSockets over TCP.
    pub origins: Vec<String>,
    /// File with the keys that sign tickets of web pages.
    pub ticket_key_file: Option<PathBuf>,
    /// Maximum time from now until a ticket expires.
    pub ticket_life_max: Duration,
    /// Maximum number of open WebSockets per ticket.
    pub websockets_per_ticket: u32,
    /// Maximum number of open WebSockets of this host.
    pub websockets_max: u32,
    /// Maximum number of other connections, for the Unix socket and the TCP address each.
    pub connections_max: u32,
    /// Time after the last disconnection until a thing is idle.
    pub idle_timeout: Duration,
    /// Time without a heartbeat until a connection is considered closed.
    pub heartbeat_timeout: Duration,
    /// Whether a connection wakes its workspace.
    pub wake: Wake,
    /// Redis servers; if empty, activity is kept in the store.
    pub redis: Vec<String>,
    /// Redis user.
    pub redis_user: Option<String>,
    /// File with the Redis password.
    pub redis_password_file: Option<PathBuf>,
    /// Certificate authorities for Redis (PEM).
    pub redis_ca: Option<PathBuf>,
    /// Client certificate for Redis (PEM).
    pub redis_cert: Option<PathBuf>,
    /// Private key of `redis_cert` (PEM).
    pub redis_key: Option<PathBuf>,
    /// Redis key of the number of connections; contains `{id}` once.
    pub redis_connections: String,
    /// Redis key of the idle timer; contains `{id}` once.
    pub redis_timer: String,
    /// Maximum time for connecting to Redis.
    pub redis_connect_timeout: Duration,
    /// Maximum time for an answer of Redis.
    pub redis_timeout: Duration,
    /// Longest pause between two attempts to connect to Redis.
    pub redis_backoff_max: Duration,
    /// Maximum number of commands in one round trip to Redis.
    pub redis_batch: u32,
}

impl Activity {
    /// Whether activity is kept in Redis instead of the store.
    pub fn in_redis(&self) -> bool {
        !self.redis.is_empty()
    }

    /// Resolves relative paths against `dir`.
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
    doc: "Activity: the endpoint to which your product reports connections, and Redis.",
    keys: &[
        Key {
            name: "socket",
            default: "",
            doc: "Unix socket of the endpoint (default: besom-activity.sock beside the SQLite file, or \
                  with PostgreSQL beside the configuration).",
            setter: Setter::Path(|s| &mut s.activity.socket),
        },
        Key {
            name: "tcp",
            default: "",
            doc: "TCP address to listen on as well; requires token_file.",
            setter: Setter::OptionalAddress(|s| &mut s.activity.tcp),
        },
        Key {
            name: "token_file",
            default: "",
            doc: "File (mode 0600) with the tokens of TCP callers, one TOKEN or NAME TOKEN per line; it is \
                  read again when it changes.",
            setter: Setter::OptionalPath(|s| &mut s.activity.token_file),
        },
        Key {
            name: "tls_cert",
            default: "",
            doc: "Certificate of the TCP address (PEM, with its chain); required unless it is loopback.",
            setter: Setter::OptionalPath(|s| &mut s.activity.tls_cert),
        },
        Key {
            name: "tls_key",
            default: "",
            doc: "Private key of tls_cert (PEM, mode 0600).",
            setter: Setter::OptionalPath(|s| &mut s.activity.tls_key),
        },
        Key {
            name: "origins",
            default: "",
            doc: "Origins of web pages that may open WebSockets over TCP with a ticket, such as \
                  [\"https://app.example\"] (default: none).",
            setter: Setter::Texts(|s| &mut s.activity.origins),
        },
        Key {
            name: "ticket_key_file",
            default: "",
            doc: "File (mode 0600) with the keys that your back end signs tickets of web pages with, one \
                  KEY or NAME KEY per line; it is read again when it changes.",
            setter: Setter::OptionalPath(|s| &mut s.activity.ticket_key_file),
        },
        Key {
            name: "ticket_life_max",
            default: "\"1d\"",
            doc: "Maximum time from now until a ticket expires.",
            setter: Setter::Duration(
                |s| &mut s.activity.ticket_life_max,
                ms(1_000),
                ms(30 * DAY_MS),
            ),
        },
        Key {
            name: "websockets_per_ticket",
            default: "16",
            doc: "Maximum number of open WebSockets per ticket on this host; more are refused with 503.",
            setter: Setter::U32(|s| &mut s.activity.websockets_per_ticket, 1, 1_000_000),
        },
        Key {
            name: "websockets_max",
            default: "10000",
            doc: "Maximum number of open WebSockets on this host; more are refused with 503.",
            setter: Setter::U32(|s| &mut s.activity.websockets_max, 1, 1_000_000),
        },
        Key {
            name: "connections_max",
            default: "1024",
            doc: "Maximum number of connections without WebSockets, for the Unix socket and the TCP \
                  address each; at least one for each process that reports. At the limit, a new connection \
                  closes the one that has been idle for longest.",
            setter: Setter::U32(|s| &mut s.activity.connections_max, 8, 1_000_000),
        },
        Key {
            name: "idle_timeout",
            default: "\"300s\"",
            doc: "Time after the last disconnection until a thing is idle.",
            setter: Setter::Duration(|s| &mut s.activity.idle_timeout, ms(1), ms(30 * DAY_MS)),
        },
        Key {
            name: "heartbeat_timeout",
            default: "\"60s\"",
            doc: "Time without a heartbeat until a connection is considered closed.",
            setter: Setter::Duration(
                |s| &mut s.activity.heartbeat_timeout,
                ms(100),
                ms(30 * DAY_MS),
            ),
        },
        Key {
            name: "wake",
            default: "\"mapped\"",
            doc: "Whether a connection sets desired_state = RUNNING and last_access_at in `workspaces`: \
                  \"mapped\" (if a task may change them, or this file maps them), or \"never\".",
            setter: Setter::Choice(&["mapped", "never"], |s, word| {
                s.activity.wake = if word == "never" { Wake::Never } else { Wake::Mapped };
            }),
        },
        Key {
            name: "redis",
            default: "",
            doc: "Redis servers that keep activity instead of the store, such as \
                  [\"redis://127.0.0.1:6379\"] (rediss:// for TLS); several form one Redis Cluster.",
            setter: Setter::Texts(|s| &mut s.activity.redis),
        },
        Key {
            name: "redis_user",
            default: "",
            doc: "Redis user (ACL); requires redis_password_file.",
            setter: Setter::OptionalText(|s| &mut s.activity.redis_user),
        },
        Key {
            name: "redis_password_file",
            default: "",
            doc: "File (mode 0600) with the Redis password.",
            setter: Setter::OptionalPath(|s| &mut s.activity.redis_password_file),
        },
        Key {
            name: "redis_ca",
            default: "",
            doc: "Certificate authorities for verifying Redis (PEM) (default: the system's).",
            setter: Setter::OptionalPath(|s| &mut s.activity.redis_ca),
        },
        Key {
            name: "redis_cert",
            default: "",
            doc: "Client certificate (PEM), if Redis requires one; requires redis_key.",
            setter: Setter::OptionalPath(|s| &mut s.activity.redis_cert),
        },
        Key {
            name: "redis_key",
            default: "",
            doc: "Private key of redis_cert (PEM, mode 0600).",
            setter: Setter::OptionalPath(|s| &mut s.activity.redis_key),
        },
        Key {
            name: "redis_connections",
            default: "\"ws_conn:{id}\"",
            doc: "Redis key of the number of connections; {{id}} makes the ID a hash tag.",
            setter: Setter::Text(|s| &mut s.activity.redis_connections),
        },
        Key {
            name: "redis_timer",
            default: "\"idle_timer:{id}\"",
            doc: "Redis key of the idle timer.",
            setter: Setter::Text(|s| &mut s.activity.redis_timer),
        },
        Key {
            name: "redis_connect_timeout",
            default: "\"2s\"",
            doc: "Maximum time for connecting to Redis.",
            setter: Setter::Duration(
                |s| &mut s.activity.redis_connect_timeout,
                ms(10),
                ms(600_000),
            ),
        },
        Key {
            name: "redis_timeout",
            default: "\"1s\"",
            doc: "Maximum time for an answer of Redis.",
            setter: Setter::Duration(|s| &mut s.activity.redis_timeout, ms(10), ms(600_000)),
        },
        Key {
            name: "redis_backoff_max",
            default: "\"5s\"",
            doc: "Longest pause between two attempts to connect to Redis.",
            setter: Setter::Duration(|s| &mut s.activity.redis_backoff_max, ms(10), ms(600_000)),
        },
        Key {
            name: "redis_batch",
            default: "500",
            doc: "Maximum number of commands in one round trip to Redis.",
            setter: Setter::U32(|s| &mut s.activity.redis_batch, 1, 100_000),
        },
    ],
};

/// Reports keys that are valid alone but not in combination. `place` locates a key of `[activity]`.
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
        let message = "activity.tcp without a token is open to every local user".to_owned();
        let fix = "set activity.token_file to a file (mode 0600) that contains a token";
        wrong("tcp", message, fix);
    }
    for (have, other, has, lacks) in [
        ("origins", "ticket_key_file", !a.origins.is_empty(), a.ticket_key_file.is_none()),
        ("ticket_key_file", "origins", a.ticket_key_file.is_some(), a.origins.is_empty()),
    ] {
        if has && lacks {
            let message = format!("activity.{have} requires activity.{other}");
            wrong(have, message, &format!("set activity.{other} as well, or remove {have}"));
        }
    }
    for origin in &a.origins {
        let host = origin.strip_prefix("https://").or(origin.strip_prefix("http://"));
        if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*'])) {
            let message = format!("`{origin}` is not a valid origin");
            wrong("origins", message, "write https://HOST or https://HOST:PORT, without a path");
        }
    }
    for server in &a.redis {
        let rest = server.strip_prefix("redis://").or(server.strip_prefix("rediss://"));
        if rest.is_some_and(|rest| rest.contains('@')) {
            let message = "activity.redis contains a user or a password".to_owned();
            let fix =
                "set redis_user to the user, and redis_password_file to a file with the password";
            // Reported without its place, because the line must not be shown.
            wrong("", message, fix);
        } else if !rest.is_some_and(|host| host.contains(':') && !host.starts_with(':')) {
            let message = format!("`{server}` is not a Redis address");
            wrong("redis", message, "write redis://HOST:PORT, or rediss://HOST:PORT for TLS");
        }
    }
    for (key, template) in
        [("redis_connections", &a.redis_connections), ("redis_timer", &a.redis_timer)]
    {
        if template.matches("{id}").count() != 1 {
            let message = format!("activity.{key} must contain {{id}} exactly once");
            wrong(key, message, "write {id} where the ID belongs, as in \"ws_conn:{id}\"");
        }
    }
    if a.redis_connections == a.redis_timer {
        let message = "activity.redis_timer must differ from activity.redis_connections".to_owned();
        wrong("redis_timer", message, "choose another name for activity.redis_timer");
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
            let message = format!("activity.{have} requires activity.{other}");
            wrong(have, message, &format!("set activity.{other} as well, or remove {have}"));
        }
    }
    let secure = a.redis.iter().any(|server| server.starts_with("rediss://"));
    for (key, there) in [("redis_ca", a.redis_ca.is_some()), ("redis_cert", a.redis_cert.is_some())]
    {
        if there && a.in_redis() && !secure {
            let message = format!("activity.{key} requires TLS, but every address is redis://");
            wrong(key, message, "write rediss:// in activity.redis, or remove it");
        }
    }
}
