//! `[activity]`: where activity is kept, and the endpoint that receives reports of it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use super::judge::Judge;
use super::keys::keys;
use super::quantity::{days, ms, secs};

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

keys! {
    /// Activity: the endpoint to which your product reports connections, and Redis.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Activity in [activity] {
        /// Unix socket of the endpoint (default: besom-activity.sock beside the SQLite file, or with
        /// PostgreSQL beside the configuration).
        pub socket: PathBuf;
        /// TCP address to listen on as well; requires token_file.
        pub tcp: Option<SocketAddr>;
        /// File (mode 0600) with the tokens of TCP callers, one TOKEN or NAME TOKEN per line; it is read
        /// again when it changes.
        pub token_file: Option<PathBuf>;
        /// Certificate of the TCP address (PEM, with its chain); required unless it is loopback.
        pub tls_cert: Option<PathBuf>;
        /// Private key of tls_cert (PEM, mode 0600).
        pub tls_key: Option<PathBuf>;
        /// Origins of web pages that may open WebSockets over TCP with a ticket, such as
        /// ["https://app.example"] (default: none).
        pub origins: Vec<String>;
        /// File (mode 0600) with the keys that your back end signs tickets of web pages with, one KEY or NAME
        /// KEY per line; it is read again when it changes.
        pub ticket_key_file: Option<PathBuf>;
        /// Maximum time from now until a ticket expires.
        pub ticket_life_max: Duration = "1d", within secs(1)..=days(30);
        /// Maximum number of open WebSockets per ticket on this host; more are refused with 503.
        pub websockets_per_ticket: u32 = 16, within 1..=1_000_000;
        /// Maximum number of open WebSockets on this host; more are refused with 503.
        pub websockets_max: u32 = 10000, within 1..=1_000_000;
        /// Maximum number of connections without WebSockets, for the Unix socket and the TCP address each; at
        /// least one for each process that reports. At the limit, a new connection closes the one that has
        /// been idle for longest.
        pub connections_max: u32 = 1024, within 8..=1_000_000;
        /// Time after the last disconnection until a thing is idle.
        pub idle_timeout: Duration = "300s", within ms(1)..=days(30);
        /// Time without a heartbeat until a connection is considered closed.
        pub heartbeat_timeout: Duration = "60s", within ms(100)..=days(30);
        /// Whether a connection sets desired_state = RUNNING and last_access_at in `workspaces`: "mapped" (if a
        /// task may change them, or this file maps them), or "never".
        pub wake: Wake = "mapped", one of &["mapped", "never"] => |word| match word {
            "never" => Wake::Never,
            _ => Wake::Mapped,
        };
        /// Redis servers that keep activity instead of the store, such as ["redis://127.0.0.1:6379"]
        /// (rediss:// for TLS); several form one Redis Cluster.
        pub redis: Vec<String>;
        /// Redis user (ACL); requires redis_password_file.
        pub redis_user: Option<String>;
        /// File (mode 0600) with the Redis password.
        pub redis_password_file: Option<PathBuf>;
        /// Certificate authorities for verifying Redis (PEM) (default: the system's).
        pub redis_ca: Option<PathBuf>;
        /// Client certificate (PEM), if Redis requires one; requires redis_key.
        pub redis_cert: Option<PathBuf>;
        /// Private key of redis_cert (PEM, mode 0600).
        pub redis_key: Option<PathBuf>;
        /// Redis key of the number of connections; {{id}} makes the ID a hash tag.
        // Contains `{id}` once.
        pub redis_connections: String = "ws_conn:{id}";
        /// Redis key of the idle timer.
        // Contains `{id}` once.
        pub redis_timer: String = "idle_timer:{id}";
        /// Maximum time for connecting to Redis.
        pub redis_connect_timeout: Duration = "2s", within ms(10)..=secs(600);
        /// Maximum time for an answer of Redis.
        pub redis_timeout: Duration = "1s", within ms(10)..=secs(600);
        /// Longest pause between two attempts to connect to Redis.
        pub redis_backoff_max: Duration = "5s", within ms(10)..=secs(600);
        /// Maximum number of commands in one round trip to Redis.
        pub redis_batch: u32 = 500, within 1..=100_000;
    }
}

impl Activity {
    /// Whether activity is kept in Redis instead of the store.
    pub fn in_redis(&self) -> bool {
        !self.redis.is_empty()
    }
}

/// Reports keys of `[activity]` that are valid alone but not in combination.
pub(super) fn judge(a: &Activity, judge: &mut Judge<'_>) {
    let tls = super::api::TlsKeys {
        tcp: a.tcp,
        cert: a.tls_cert.is_some(),
        key: a.tls_key.is_some(),
        client_ca: false,
    };
    tls.judge("activity", judge);
    if a.tcp.is_some() && a.token_file.is_none() {
        let message = "activity.tcp without a token is open to every local user";
        let fix = "set activity.token_file to a file (mode 0600) that contains a token";
        judge.error("activity.tcp", message, fix);
    }
    let ticket_key = ("ticket_key_file", a.ticket_key_file.is_some());
    judge.require_both("activity", ("origins", !a.origins.is_empty()), ticket_key);
    for origin in &a.origins {
        let host = origin.strip_prefix("https://").or(origin.strip_prefix("http://"));
        if !host.is_some_and(|host| !host.is_empty() && !host.contains(['/', '*'])) {
            let message = format!("`{origin}` is not a valid origin");
            let fix = "write https://HOST or https://HOST:PORT, without a path";
            judge.error("activity.origins", message, fix);
        }
    }
    for server in &a.redis {
        let rest = server.strip_prefix("redis://").or(server.strip_prefix("rediss://"));
        if rest.is_some_and(|rest| rest.contains('@')) {
            let message = "activity.redis contains a user or a password";
            let fix =
                "set redis_user to the user, and redis_password_file to a file with the password";
            // Reported without its place, because the line must not be shown.
            judge.error("", message, fix);
        } else if !rest.is_some_and(|host| host.contains(':') && !host.starts_with(':')) {
            let message = format!("`{server}` is not a Redis address");
            let fix = "write redis://HOST:PORT, or rediss://HOST:PORT for TLS";
            judge.error("activity.redis", message, fix);
        }
    }
    for (path, template) in [
        ("activity.redis_connections", &a.redis_connections),
        ("activity.redis_timer", &a.redis_timer),
    ] {
        if template.matches("{id}").count() != 1 {
            let message = format!("{path} must contain {{id}} exactly once");
            judge.error(path, message, "write {id} where the ID belongs, as in \"ws_conn:{id}\"");
        }
    }
    if a.redis_connections == a.redis_timer {
        let message = "activity.redis_timer must differ from activity.redis_connections";
        judge.error(
            "activity.redis_timer",
            message,
            "choose another name for activity.redis_timer",
        );
    }
    let password = ("redis_password_file", a.redis_password_file.is_some());
    judge.require("activity", ("redis_user", a.redis_user.is_some()), password);
    let cert = a.redis_cert.is_some();
    judge.require_both("activity", ("redis_cert", cert), ("redis_key", a.redis_key.is_some()));
    let secure = a.redis.iter().any(|server| server.starts_with("rediss://"));
    for (path, is_set) in
        [("activity.redis_ca", a.redis_ca.is_some()), ("activity.redis_cert", cert)]
    {
        if is_set && a.in_redis() && !secure {
            let message = format!("{path} requires TLS, but every address is redis://");
            judge.error(path, message, "write rediss:// in activity.redis, or remove it");
        }
    }
}
