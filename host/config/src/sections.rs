//! The sections of `besom.toml` that configure the host as a whole, with bounds and defaults. Tasks,
//! topics and collections, which have names of their own, are defined in other modules.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::clock::SkewBounds;
use besom_core::lane::{LANES, Lane, PerLane};
use besom_core::mode::{self, Mode};
use serde::Serialize;

use super::activity::{self, Activity};
use super::api::{self, Api};
use super::cluster::{self, Coordination, Ring};
use super::delivery::{self, Delivery, Route};
use super::keys::{Key, Setter};
use besom_ports::members::WEIGHT_MAX;
use besom_runtime::{Signing, TrustedKey};

/// The settings of `[store]`: a SQLite file or a PostgreSQL server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Store {
    /// The SQLite file, absolute or relative to the working directory; ignored if `url` is set.
    pub path: PathBuf,
    /// URL of the PostgreSQL server; `None` for a SQLite file.
    #[serde(serialize_with = "besom_system::secret::masked")]
    pub url: Option<String>,
    /// File with the password of the database user.
    pub password_file: Option<PathBuf>,
    /// Certificate authorities (PEM) for verifying the server.
    pub root_certificate: Option<PathBuf>,
    /// Schema of Besom's own tables on the server.
    pub schema: String,
    /// Minimum free space on the disk of the SQLite file, in bytes.
    pub disk_free_min: u64,
    /// Number of partitions of a new store on the server.
    pub partitions: u32,
    /// Maximum number of connections for commits.
    pub commit_connections: u32,
    /// Maximum number of connections for the snapshots of acts and scans.
    pub act_connections: u32,
    /// Maximum number of connections for other reads.
    pub read_connections: u32,
    /// Maximum time for connecting, and for waiting for a free connection.
    pub connect_timeout: Duration,
    /// Maximum time for one statement.
    pub statement_timeout: Duration,
    /// Maximum time that a statement waits for a lock.
    pub lock_timeout: Duration,
    /// Maximum time that a commit spends on guards that query rows by conditions.
    pub guard_timeout: Duration,
    /// Maximum size of the before-images of a commit, in bytes before they are packed.
    pub undo_bytes: u64,
    /// Percent of the time for which tasks may change ranges of rows while others write to the database.
    pub write_share: u32,
    /// Time after which the server ends an idle write transaction.
    pub idle_in_transaction_timeout: Duration,
    /// Time without a TCP acknowledgement after which a connection is closed.
    pub tcp_user_timeout: Duration,
}

/// The settings of `[node]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Node {
    /// Lasting name of the node; `None` means the host name.
    pub name: Option<String>,
    /// Address shown to people; `None` means the host name.
    pub address: Option<String>,
    /// Share of the partitions of a cluster, relative to the weights of the other nodes.
    pub weight: u32,
}

/// The settings of `[lease]`: the lease of the leader.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Lease {
    /// Duration of the lease.
    pub ttl: Duration,
    /// Interval at which the lease is renewed; at most a third of `ttl`.
    pub renew: Duration,
}

/// The settings of `[clock]`: the difference between the clocks of the machine and of the store.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Clock {
    /// Interval at which the store's clock is read.
    pub read_every: Duration,
    /// Difference from which a warning is logged.
    pub skew_warn: Duration,
    /// Difference from which the node does not lead; at least `skew_warn`.
    pub skew_max: Duration,
}

impl Clock {
    /// Returns both bounds of the difference.
    pub fn bounds(&self) -> SkewBounds {
        SkewBounds { warn: self.skew_warn, max: self.skew_max }
    }
}

/// Writes the batches of each lane as the keys of the configuration name them.
fn batches<S: serde::Serializer>(batches: &PerLane<u32>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(LANES.iter().map(|row| (format!("{}_batches", row.name), batches[row.lane])))
}

/// The settings of `[host]`: limits of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Host {
    /// Number of threads for plugins; 0 means one per processor.
    pub guest_threads: u32,
    /// Processor time after which a call of a plugin continues with low priority.
    pub guest_slice: Duration,
    /// Maximum number of concurrent batches, by lane.
    #[serde(flatten, serialize_with = "batches")]
    pub batches: PerLane<u32>,
    /// Maximum number of items in one commit.
    pub batch_items: u32,
    /// Maximum total size of the payloads and changes in one commit, in bytes.
    pub batch_bytes: u64,
    /// Maximum total size of the changes in all commits at once, in bytes.
    pub commit_bytes_in_flight: u64,
    /// Memory of a lane's batches, in bytes, from which on no batch of a task whose calls use much is
    /// started.
    pub memory_in_flight: u64,
    /// Execution time after which a batch leaves its place in the lane to other tasks.
    pub long_after: Duration,
    /// Maximum delay of heavy work in favour of due items.
    pub heavy_wait_max: Duration,
    /// Maximum number of log lines kept per task and second.
    pub log_lines_per_s: u32,
    /// Maximum number of log lines kept per run.
    pub log_lines_max: u32,
    /// Maximum size of the notes and reasons that one task adds to the history per day, in bytes.
    pub history_text_max: u64,
    /// Maximum time that the snapshot of one act stays open.
    pub act_snapshot_max: Duration,
    /// Maximum number of timers held in memory; the rest are read later.
    pub timers_ahead: u32,
    /// Maximum number of candidates in one page of a scan.
    pub scan_page_items: u32,
    /// Maximum number of dead letters that one transaction of a command takes.
    pub command_letters: u32,
    /// Maximum number of failures of a command in a row, after which it is refused.
    pub command_attempts_max: u32,
    /// The mode of tasks that name none.
    pub default_mode: Mode,
    /// Maximum number of rounds of `besom run`.
    pub pass_rounds_max: u32,
    /// Maximum number of rounds in a row of `besom run` that change nothing.
    pub pass_idle_rounds_max: u32,
    /// Number of items refused in a row for the same reason before their task is held.
    pub refused_items_max: u32,
    /// Maximum time that a stopping host waits for work in flight.
    pub drain_max: Duration,
    /// Maximum time that a starting host waits for a database or etcd that cannot be reached.
    pub connect_wait_max: Duration,
}

/// The settings of `[retention]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Retention {
    /// How long the history of items, slots and runs is kept.
    pub history: Duration,
    /// How long vanished nodes are shown.
    pub nodes: Duration,
}

/// The settings of `[runtime]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Runtime {
    /// Private directory for compiled plugins; only files that this node wrote are loaded.
    pub cache: PathBuf,
    /// Whether `cache` is configured; otherwise the cache of the user is preferred to it.
    #[serde(skip)]
    pub cache_named: bool,
}

/// The settings of `[plugins]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plugins {
    /// The directory of plugin files.
    pub dir: PathBuf,
    /// Whether tasks must pin their plugin files.
    pub require_pin: bool,
    /// The public keys of minisign whose signatures of plugin files are accepted.
    pub trusted_keys: Vec<String>,
    /// Whether a plugin file must be signed by one of them.
    pub require_signature: bool,
    /// Maximum size of a plugin file, in bytes.
    pub bytes_max: u64,
    /// Maximum address space of the process that compiles a plugin, in bytes.
    pub compile_memory: u64,
    /// Maximum CPU time for compiling a plugin.
    pub compile_time: Duration,
}

/// The values of all sections.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Sections {
    /// `[store]`
    pub store: Store,
    /// `[node]`
    pub node: Node,
    /// `[lease]`
    pub lease: Lease,
    /// `[clock]`
    pub clock: Clock,
    /// `[activity]`
    pub activity: Activity,
    /// `[api]`
    pub api: Api,
    /// `[host]`
    pub host: Host,
    /// `[retention]`
    pub retention: Retention,
    /// `[runtime]`
    pub runtime: Runtime,
    /// `[plugins]`
    pub plugins: Plugins,
    /// `[coordination]`
    pub coordination: Coordination,
    /// `[ring]`
    pub ring: Ring,
    /// `[delivery]`
    pub delivery: Delivery,
    /// The routes of `[topics.NAME]`, by topic.
    pub topics: BTreeMap<String, Route>,
}

/// A section of the file.
pub struct Section {
    /// Name of the table.
    pub name: &'static str,
    /// Description of the section.
    pub doc: &'static str,
    /// The keys of the section.
    pub keys: &'static [Key<Sections>],
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const DAY_MS: u64 = 86_400_000;
const MIB: u64 = 1 << 20;

/// All sections. A changed key takes effect at the next start; only tasks, collections and plugins are
/// reloaded by a running host.
pub static SECTIONS: &[Section] = &[
    Section {
        name: "store",
        doc: "The database that holds your tables and Besom's own.",
        keys: &[
            Key {
                name: "path",
                default: "",
                doc: "SQLite file (default: besom.db); a relative path is resolved against the directory \
                      of this file.",
                setter: Setter::Path(|s| &mut s.store.path),
            },
            Key {
                name: "disk_free_min",
                default: "\"256MiB\"",
                doc: "Minimum free space on the disk of the SQLite file; below it, nothing is planned or \
                      committed.",
                setter: Setter::Bytes(|s| &mut s.store.disk_free_min, 0, 1 << 50),
            },
            Key {
                name: "url",
                default: "",
                doc: "PostgreSQL server to use instead of a file: postgres://USER@HOST:PORT/DATABASE, \
                      with sslmode (disable, prefer, require, verify-ca, verify-full).",
                setter: Setter::OptionalText(|s| &mut s.store.url),
            },
            Key {
                name: "password_file",
                default: "",
                doc: "File (mode 0600) with the password (default: the variable PGPASSWORD).",
                setter: Setter::OptionalPath(|s| &mut s.store.password_file),
            },
            Key {
                name: "root_certificate",
                default: "",
                doc: "Certificate authorities (PEM) for verifying the server; required for sslmode \
                      verify-ca and verify-full.",
                setter: Setter::OptionalPath(|s| &mut s.store.root_certificate),
            },
            Key {
                name: "schema",
                default: "\"besom\"",
                doc: "Schema of Besom's own tables on the server.",
                setter: Setter::Text(|s| &mut s.store.schema),
            },
            Key {
                name: "partitions",
                default: "1024",
                doc: "Number of partitions of a new store on the server; an existing store keeps its \
                      number.",
                setter: Setter::U32(|s| &mut s.store.partitions, 1, 65_536),
            },
            Key {
                name: "commit_connections",
                default: "16",
                doc: "Maximum number of connections for commits, and so of concurrent commits.",
                setter: Setter::U32(|s| &mut s.store.commit_connections, 1, 1_000),
            },
            Key {
                name: "act_connections",
                default: "16",
                doc: "Maximum number of connections for acts and scans, and so of concurrent snapshots.",
                setter: Setter::U32(|s| &mut s.store.act_connections, 1, 1_000),
            },
            Key {
                name: "read_connections",
                default: "4",
                doc: "Maximum number of connections for all other reads.",
                setter: Setter::U32(|s| &mut s.store.read_connections, 1, 1_000),
            },
            Key {
                name: "connect_timeout",
                default: "\"5s\"",
                doc: "Maximum time for connecting, and for waiting for a free connection.",
                setter: Setter::Duration(|s| &mut s.store.connect_timeout, ms(100), ms(600_000)),
            },
            Key {
                name: "statement_timeout",
                default: "\"30s\"",
                doc: "Maximum time for one statement.",
                setter: Setter::Duration(
                    |s| &mut s.store.statement_timeout,
                    ms(100),
                    ms(3_600_000),
                ),
            },
            Key {
                name: "lock_timeout",
                default: "\"5s\"",
                doc: "Maximum time that a statement waits for a lock held by your product.",
                setter: Setter::Duration(|s| &mut s.store.lock_timeout, ms(10), ms(600_000)),
            },
            Key {
                name: "guard_timeout",
                default: "\"1s\"",
                doc: "Maximum time that a commit spends on guards that query rows by conditions; an item \
                      whose own guards take longer fails.",
                setter: Setter::Duration(|s| &mut s.store.guard_timeout, ms(10), ms(60_000)),
            },
            Key {
                name: "undo_bytes",
                default: "\"128MiB\"",
                doc: "Maximum size of the rows that a commit changes or deletes, as they were before; an item \
                      whose own are larger fails.",
                setter: Setter::Bytes(|s| &mut s.store.undo_bytes, 1 << 20, 1 << 30),
            },
            Key {
                name: "write_share",
                default: "5",
                doc: "Percent of the time for which tasks may change ranges of rows while others write to the \
                      database, other items at least 50; 100 does not limit them.",
                setter: Setter::U32(|s| &mut s.store.write_share, 1, 100),
            },
            Key {
                name: "idle_in_transaction_timeout",
                default: "\"2s\"",
                doc: "Time after which the server ends an idle write transaction, so that a frozen leader \
                      does not block its successor.",
                setter: Setter::Duration(
                    |s| &mut s.store.idle_in_transaction_timeout,
                    ms(100),
                    ms(60_000),
                ),
            },
            Key {
                name: "tcp_user_timeout",
                default: "\"10s\"",
                doc: "Time after which the node and the server close a connection whose other end does not \
                      acknowledge data; a frozen node may keep its locks for this long.",
                setter: Setter::Duration(|s| &mut s.store.tcp_user_timeout, ms(1_000), ms(600_000)),
            },
        ],
    },
    Section {
        name: "node",
        doc: "The identity of this node.",
        keys: &[
            Key {
                name: "name",
                default: "",
                doc: "Name of the node (default: the host name); each start adds an incarnation to it.",
                setter: Setter::OptionalText(|s| &mut s.node.name),
            },
            Key {
                name: "address",
                default: "",
                doc: "Address of the node as shown by `besom node ls` (default: the host name).",
                setter: Setter::OptionalText(|s| &mut s.node.address),
            },
            Key {
                name: "weight",
                default: "1",
                doc: "Share of the partitions of a cluster, relative to the weights of the other nodes.",
                setter: Setter::U32(|s| &mut s.node.weight, 1, WEIGHT_MAX),
            },
        ],
    },
    Section {
        name: "clock",
        doc: "The difference between the machine's clock and the store's, which decides what is due.",
        keys: &[
            Key {
                name: "read_every",
                default: "\"10s\"",
                doc: "Interval at which the store's clock is read.",
                setter: Setter::Duration(|s| &mut s.clock.read_every, ms(100), ms(600_000)),
            },
            Key {
                name: "skew_warn",
                default: "\"1s\"",
                doc: "Difference from which a warning is logged.",
                setter: Setter::Duration(|s| &mut s.clock.skew_warn, ms(10), ms(DAY_MS)),
            },
            Key {
                name: "skew_max",
                default: "\"10s\"",
                doc: "Difference from which the node does not lead; at least skew_warn.",
                setter: Setter::Duration(|s| &mut s.clock.skew_max, ms(10), ms(DAY_MS)),
            },
        ],
    },
    Section {
        name: "lease",
        doc: "The lease of the leader.",
        keys: &[
            Key {
                name: "ttl",
                default: "\"15s\"",
                doc: "Duration of the lease: how long other nodes wait after the machine of the leader crashed.",
                setter: Setter::Duration(|s| &mut s.lease.ttl, ms(1_000), ms(3_600_000)),
            },
            Key {
                name: "renew",
                default: "\"5s\"",
                doc: "Interval at which the lease is renewed; at most a third of ttl.",
                setter: Setter::Duration(|s| &mut s.lease.renew, ms(100), ms(1_200_000)),
            },
        ],
    },
    activity::ACTIVITY,
    api::API,
    Section {
        name: "host",
        doc: "Limits of the host.",
        keys: &[
            Key {
                name: "guest_threads",
                default: "0",
                doc: "Number of threads for plugins, at least 8; 0 means one per processor.",
                setter: Setter::U32(|s| &mut s.host.guest_threads, 0, 1024),
            },
            Key {
                name: "guest_slice",
                default: "\"5ms\"",
                doc: "Processor time after which a call of a plugin continues with low priority; calls in \
                      the lane heavy always have it.",
                setter: Setter::Duration(|s| &mut s.host.guest_slice, ms(1), ms(60_000)),
            },
            Key {
                name: "due_batches",
                default: "2",
                doc: "Maximum number of concurrent batches in the lane due.",
                setter: Setter::U32(|s| &mut s.host.batches[Lane::Due], 1, 64),
            },
            Key {
                name: "normal_batches",
                default: "2",
                doc: "Maximum number of concurrent batches in the lane normal.",
                setter: Setter::U32(|s| &mut s.host.batches[Lane::Normal], 1, 64),
            },
            Key {
                name: "heavy_batches",
                default: "2",
                doc: "Maximum number of concurrent batches in the lane heavy, on threads of low priority.",
                setter: Setter::U32(|s| &mut s.host.batches[Lane::Heavy], 1, 64),
            },
            Key {
                name: "long_after",
                default: "\"250ms\"",
                doc: "Execution time after which a batch leaves its place in the lane to other tasks; does \
                      not apply to the lane heavy.",
                setter: Setter::Duration(|s| &mut s.host.long_after, ms(1), ms(3_600_000)),
            },
            Key {
                name: "batch_items",
                default: "1000",
                doc: "Maximum number of items in one commit.",
                setter: Setter::U32(|s| &mut s.host.batch_items, 1, 100_000),
            },
            Key {
                name: "batch_bytes",
                default: "\"16MiB\"",
                doc: "Maximum size of one commit.",
                setter: Setter::Bytes(|s| &mut s.host.batch_bytes, 4096, 1024 * MIB),
            },
            Key {
                name: "commit_bytes_in_flight",
                default: "\"16MiB\"",
                doc: "Maximum size of all commits at once; further ones wait, and a larger one is made alone. \
                      Commits of at most a sixteenth of it neither count nor wait.",
                setter: Setter::Bytes(|s| &mut s.host.commit_bytes_in_flight, 4096, 1024 * MIB),
            },
            Key {
                name: "memory_in_flight",
                default: "\"128MiB\"",
                doc: "Memory of the calls and changes of a lane's batches from which on no further batch \
                      is started of a task whose calls use more than 16 MiB. The lane heavy is not bounded \
                      by it.",
                setter: Setter::Bytes(|s| &mut s.host.memory_in_flight, MIB, 1024 * 1024 * MIB),
            },
            Key {
                name: "heavy_wait_max",
                default: "\"5s\"",
                doc: "Maximum delay of heavy work in favour of items that fall due.",
                setter: Setter::Duration(|s| &mut s.host.heavy_wait_max, ms(0), ms(3_600_000)),
            },
            Key {
                name: "log_lines_per_s",
                default: "200",
                doc: "Maximum number of log lines per task and second kept for `besom runs logs`; further \
                      lines are dropped and counted.",
                setter: Setter::U32(|s| &mut s.host.log_lines_per_s, 1, 100_000),
            },
            Key {
                name: "log_lines_max",
                default: "1000",
                doc: "Maximum number of log lines kept per run, the newest; they are kept as long as the run.",
                setter: Setter::U32(|s| &mut s.host.log_lines_max, 1, 1_000_000),
            },
            Key {
                name: "history_text_max",
                default: "\"1GiB\"",
                doc: "Maximum size of the notes and reasons that one task adds to the history per day and host; \
                      beyond it, notes are omitted and reasons truncated to 256 bytes.",
                setter: Setter::Bytes(|s| &mut s.host.history_text_max, 1 << 10, 1 << 40),
            },
            Key {
                name: "act_snapshot_max",
                default: "\"150s\"",
                doc: "Maximum time that the reads of one call hold their snapshot; at least `limits.wall` of every task.",
                setter: Setter::Duration(|s| &mut s.host.act_snapshot_max, ms(100), ms(3_600_000)),
            },
            Key {
                name: "timers_ahead",
                default: "20000",
                doc: "Maximum number of timers held in memory; the rest are read when these have fired.",
                setter: Setter::U32(|s| &mut s.host.timers_ahead, 1, 10_000_000),
            },
            Key {
                name: "scan_page_items",
                default: "5000",
                doc: "Maximum number of candidates in one page of a scan; on SQLite 1000, because other writers \
                      wait for a page.",
                setter: Setter::U32(|s| &mut s.host.scan_page_items, 1, 100_000),
            },
            Key {
                name: "command_letters",
                default: "1000",
                doc: "Maximum number of dead letters that one transaction of `besom dead retry` or \
                      `besom dead discard` takes; further transactions follow.",
                setter: Setter::U32(|s| &mut s.host.command_letters, 1, 100_000),
            },
            Key {
                name: "command_attempts_max",
                default: "8",
                doc: "Number of failures of a command in a row, such as timeouts of the database, after \
                      which it is refused with the reason.",
                setter: Setter::U32(|s| &mut s.host.command_attempts_max, 1, 1_000),
            },
            Key {
                name: "default_mode",
                default: "\"preview\"",
                doc: "The mode of tasks that name none: preview, approve or live.",
                setter: Setter::Choice(mode::NAMES, |s, word| {
                    s.host.default_mode = Mode::parse(word).unwrap_or(Mode::Preview);
                }),
            },
            Key {
                name: "pass_rounds_max",
                default: "10000",
                doc: "Maximum number of rounds of `besom run`; a new round follows while the last one has planned items.",
                setter: Setter::U32(|s| &mut s.host.pass_rounds_max, 1, 1_000_000_000),
            },
            Key {
                name: "pass_idle_rounds_max",
                default: "10",
                doc: "Maximum number of rounds in a row of `besom run` that plan items and commit none of them.",
                setter: Setter::U32(|s| &mut s.host.pass_idle_rounds_max, 1, 1_000_000_000),
            },
            Key {
                name: "refused_items_max",
                default: "20",
                doc: "Number of items of a task that are refused in a row for the same reason in its mapping, \
                      grants or settings before the task is held.",
                setter: Setter::U32(|s| &mut s.host.refused_items_max, 1, 1_000_000),
            },
            Key {
                name: "drain_max",
                default: "\"20s\"",
                doc: "Maximum time that a stopping host waits for work in flight. A commit that takes longer \
                      than 3 s meanwhile is stopped.",
                setter: Setter::Duration(|s| &mut s.host.drain_max, ms(0), ms(3_600_000)),
            },
            Key {
                name: "connect_wait_max",
                default: "\"60s\"",
                doc: "Maximum time that a starting host waits for a database or etcd that cannot be \
                      reached, before it exits with code 69.",
                setter: Setter::Duration(|s| &mut s.host.connect_wait_max, ms(0), ms(86_400_000)),
            },
        ],
    },
    Section {
        name: "retention",
        doc: "How long data is kept.",
        keys: &[
            Key {
                name: "history",
                default: "\"30d\"",
                doc: "How long the history of items, slots and runs is kept; pruning it does not affect the audit.",
                setter: Setter::Duration(
                    |s| &mut s.retention.history,
                    ms(60_000),
                    ms(36_500 * DAY_MS),
                ),
            },
            Key {
                name: "nodes",
                default: "\"1d\"",
                doc: "How long a vanished node is shown as gone; a node that stops is removed immediately.",
                setter: Setter::Duration(
                    |s| &mut s.retention.nodes,
                    ms(60_000),
                    ms(36_500 * DAY_MS),
                ),
            },
        ],
    },
    Section {
        name: "runtime",
        doc: "The WebAssembly runtime.",
        keys: &[Key {
            name: "cache",
            default: "",
            doc: "Private directory for compiled plugins (default: besom in $XDG_CACHE_HOME or ~/.cache, otherwise besom-cache beside the database).",
            setter: Setter::Path(|s| &mut s.runtime.cache),
        }],
    },
    Section {
        name: "plugins",
        doc: "Your own plugins.",
        keys: &[
            Key {
                name: "dir",
                default: "\"plugins.d\"",
                doc: "Directory of the files that plugin = \"NAME.wasm\" refers to.",
                setter: Setter::Path(|s| &mut s.plugins.dir),
            },
            Key {
                name: "require_pin",
                default: "false",
                doc: "Whether a task must pin the SHA-256 of its plugin file.",
                setter: Setter::Bool(|s| &mut s.plugins.require_pin),
            },
            Key {
                name: "trusted_keys",
                default: "",
                doc: "Public keys of minisign, such as [\"RW...\"]: a signature NAME.wasm.minisig beside a \
                      plugin file must be by one of them (default: signatures are not read).",
                setter: Setter::Texts(|s| &mut s.plugins.trusted_keys),
            },
            Key {
                name: "require_signature",
                default: "false",
                doc: "Whether a plugin file must have a signature by one of the trusted keys; built-in \
                      plugins need none.",
                setter: Setter::Bool(|s| &mut s.plugins.require_signature),
            },
            Key {
                name: "bytes_max",
                default: "\"64MiB\"",
                doc: "Maximum size of a plugin file.",
                setter: Setter::Bytes(|s| &mut s.plugins.bytes_max, 1 << 10, 1 << 30),
            },
            Key {
                name: "compile_memory",
                default: "\"2GiB\"",
                doc: "Maximum address space of the process that compiles a plugin.",
                setter: Setter::Bytes(|s| &mut s.plugins.compile_memory, 256 << 20, 64 << 30),
            },
            Key {
                name: "compile_time",
                default: "\"60s\"",
                doc: "Maximum CPU time for compiling a plugin.",
                setter: Setter::Duration(|s| &mut s.plugins.compile_time, ms(1_000), ms(3_600_000)),
            },
        ],
    },
    cluster::COORDINATION,
    cluster::RING,
    delivery::DELIVERY,
];

impl Plugins {
    /// Whose signatures plugin files need. A key that is none is left out: the configuration is refused for it.
    pub fn signing(&self) -> Signing {
        let keys = self.trusted_keys.iter().filter_map(|key| TrustedKey::parse(key).ok());
        Signing { keys: keys.collect(), required: self.require_signature }
    }
}

impl Sections {
    /// Returns the defaults; paths that depend on other paths are still empty.
    pub fn defaults() -> Sections {
        let mut sections = Sections::default();
        for key in SECTIONS.iter().flat_map(|s| s.keys) {
            key.set_default(&mut sections);
        }
        sections
    }

    /// Resolves relative paths against `dir`, and sets paths that are not configured to files beside the
    /// database.
    pub fn settle_paths(&mut self, dir: &std::path::Path) {
        let file = match self.store.path.as_os_str().is_empty() {
            true => std::path::Path::new("besom.db"),
            false => &self.store.path,
        };
        self.store.path = dir.join(file);
        self.runtime.cache_named = !self.runtime.cache.as_os_str().is_empty();
        let beside = self.store.path.parent().unwrap_or(dir).to_owned();
        for (path, name) in [
            (&mut self.activity.socket, "besom-activity.sock"),
            (&mut self.api.socket, "besom.sock"),
            (&mut self.runtime.cache, "besom-cache"),
        ] {
            *path = if path.as_os_str().is_empty() { beside.join(name) } else { dir.join(&path) };
        }
        self.plugins.dir = dir.join(&self.plugins.dir);
        self.coordination.settle_paths(dir);
        self.activity.settle_paths(dir);
        self.api.settle_paths(dir);
        for path in
            [&mut self.store.password_file, &mut self.store.root_certificate, &mut self.delivery.ca]
                .into_iter()
                .chain(self.topics.values_mut().flat_map(Route::files))
                .flatten()
        {
            *path = dir.join(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_a_key_with_the_default_of_its_row() {
        let defaults = Sections::defaults().host;
        assert_eq!(defaults.batches, PerLane::of(|row| row.batches));
        let host = SECTIONS.iter().find(|section| section.name == "host").expect("a section");
        let written = serde_json::to_value(&defaults).expect("it can be written");
        for row in LANES {
            let name = format!("{}_batches", row.name);
            assert!(host.keys.iter().any(|key| key.name == name), "{name}");
            assert_eq!(written[&name], row.batches, "{name}");
        }
    }
}
