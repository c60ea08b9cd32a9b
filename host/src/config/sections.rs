//! The sections of `besom.toml` that concern the host as a whole, with every bound and its
//! default. Tasks and collections, which have names of their own, are elsewhere.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use besom_core::clock::SkewBounds;
use serde::Serialize;

use super::activity::{self, Activity};
use super::api::{self, Api};
use super::cluster::{self, Coordination, Ring};
use super::delivery::{self, Delivery, Route};
use super::keys::{Key, Slot};
use crate::ports::members::WEIGHT_MAX;

/// Where the database is: a file or a server.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Store {
    /// The SQLite file, absolute or from the working directory; meaningless beside a URL.
    pub path: PathBuf,
    /// The PostgreSQL server; none: the file.
    #[serde(serialize_with = "crate::secret::masked")]
    pub url: Option<String>,
    /// The file with the password.
    pub password_file: Option<PathBuf>,
    /// The certificates (PEM) that the server's has to come from.
    pub root_certificate: Option<PathBuf>,
    /// The schema of Besom's own tables on the server.
    pub schema: String,
    /// Bytes that are left free on the disk of the SQLite file.
    pub disk_free_min: u64,
    /// Partitions of a store that is created on the server.
    pub partitions: u32,
    /// Connections that commit.
    pub commit_connections: u32,
    /// Connections for the snapshots of acts and scans.
    pub act_connections: u32,
    /// Connections for other reads.
    pub read_connections: u32,
    /// How long a connection may take, or be waited for.
    pub connect_timeout: Duration,
    /// How long one statement may take.
    pub statement_timeout: Duration,
    /// How long a statement waits for a lock.
    pub lock_timeout: Duration,
    /// How long guards that ask for rows by conditions may take in a commit.
    pub guard_timeout: Duration,
    /// After how long the server ends a write transaction that was left alone.
    pub idle_in_transaction_timeout: Duration,
    /// After how long without an acknowledgement a connection is given up.
    pub tcp_user_timeout: Duration,
}

/// Who this node is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Node {
    /// Its lasting name; none: the host name.
    pub name: Option<String>,
    /// Where people and other nodes find it; none: the host name.
    pub address: Option<String>,
    /// Its share of a cluster's partitions beside the others'.
    pub weight: u32,
}

/// The lease on the leadership.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Lease {
    /// How long it lasts.
    pub ttl: Duration,
    /// How often it is renewed; at most a third of `ttl`.
    pub renew: Duration,
}

/// The machine's clock beside the store's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Clock {
    /// How often the store's is read.
    pub read_every: Duration,
    /// From which difference on it is warned of.
    pub skew_warn: Duration,
    /// From which difference on the node does not lead; at least `skew_warn`.
    pub skew_max: Duration,
}

impl Clock {
    /// The bounds of the difference.
    pub fn bounds(&self) -> SkewBounds {
        SkewBounds { warn: self.skew_warn, max: self.skew_max }
    }
}

/// Bounds of the host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Host {
    /// Threads that guests run on; 0: one per processor.
    pub guest_threads: u32,
    /// Batches of due items, of the normal lane and of heavy work that are executed at once.
    pub due_batches: u32,
    /// See there.
    pub normal_batches: u32,
    /// See there.
    pub heavy_batches: u32,
    /// Items of one commit.
    pub batch_items: u32,
    /// Bytes of the payloads and changes of one commit.
    pub batch_bytes: u64,
    /// A batch that is executed for longer leaves its place in the lane to other tasks.
    pub long_after: Duration,
    /// How long heavy work may be put off for due items.
    pub heavy_wait_max: Duration,
    /// Lines that plugins log, of one task in a second, that are kept.
    pub log_lines_per_s: u32,
    /// Lines that are kept of one run.
    pub log_lines_max: u32,
    /// Bytes of notes and reasons that one task leaves in the history in a day.
    pub history_text_max: u64,
    /// How long the snapshot of one act may stay open.
    pub act_snapshot_max: Duration,
    /// Timers held in memory; the rest is read when these have fired.
    pub timers_ahead: u32,
    /// Candidates of one page of a scan.
    pub scan_page_items: u32,
    /// Rounds of `besom run`.
    pub pass_rounds_max: u32,
    /// How long a stopping host waits for work in flight.
    pub drain_max: Duration,
    /// How long a starting host waits for a server that cannot be reached.
    pub connect_wait_max: Duration,
}

/// How long things are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Retention {
    /// The history of items, slots and runs.
    pub history: Duration,
    /// Nodes that vanished.
    pub nodes: Duration,
}

/// The WebAssembly runtime.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Runtime {
    /// Where compiled plugins are kept: private, and only what this node wrote is loaded.
    pub cache: PathBuf,
    /// Whether the file names it: otherwise the user's own cache is taken before it.
    #[serde(skip)]
    pub cache_named: bool,
}

/// The user's plugins.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plugins {
    /// The directory that `plugin = "NAME.wasm"` refers to.
    pub dir: PathBuf,
    /// Whether each plugin of the directory has to be pinned by its task.
    pub require_pin: bool,
    /// The largest file of a plugin, in bytes.
    pub bytes_max: u64,
    /// The address space of the process that compiles a plugin, in bytes.
    pub compile_memory: u64,
    /// The time of a processor that compiling a plugin may take.
    pub compile_time: Duration,
}

/// Everything that concerns the host as a whole.
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
    /// `[topics.NAME]`, which have names of their own.
    pub topics: BTreeMap<String, Route>,
}

/// A section.
pub struct Section {
    /// The name of its table.
    pub name: &'static str,
    /// What it is about.
    pub doc: &'static str,
    /// Its keys.
    pub keys: &'static [Key<Sections>],
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

const DAY_MS: u64 = 86_400_000;
const MIB: u64 = 1 << 20;

/// All sections. A change of any key here takes effect at the next start; tasks,
/// collections and plugins are taken up while the host runs.
pub static SECTIONS: &[Section] = &[
    Section {
        name: "store",
        doc: "The database that holds your tables and Besom's own.",
        keys: &[
            Key {
                name: "path",
                default: "",
                doc: "The SQLite file, by default besom.db; a relative path is meant from this \
                      file's directory.",
                slot: Slot::Path(|s| &mut s.store.path),
            },
            Key {
                name: "disk_free_min",
                default: "\"256MiB\"",
                doc: "Bytes that are left free on the disk of the SQLite file: below it nothing is \
                      planned or committed.",
                slot: Slot::Bytes(|s| &mut s.store.disk_free_min, 0, 1 << 50),
            },
            Key {
                name: "url",
                default: "",
                doc: "A PostgreSQL server instead of a file: postgres://USER@HOST:PORT/DATABASE, \
                      with sslmode (disable, prefer, require, verify-ca, verify-full).",
                slot: Slot::OptionalText(|s| &mut s.store.url),
            },
            Key {
                name: "password_file",
                default: "",
                doc: "The file (mode 0600) with the password; by default the password is in PGPASSWORD.",
                slot: Slot::OptionalPath(|s| &mut s.store.password_file),
            },
            Key {
                name: "root_certificate",
                default: "",
                doc: "The certificates (PEM) that the server's has to come from; needed for \
                      sslmode verify-ca and verify-full.",
                slot: Slot::OptionalPath(|s| &mut s.store.root_certificate),
            },
            Key {
                name: "schema",
                default: "\"besom\"",
                doc: "The schema of Besom's own tables on the server.",
                slot: Slot::Text(|s| &mut s.store.schema),
            },
            Key {
                name: "partitions",
                default: "1024",
                doc: "Partitions of a store that is created on the server; one that exists keeps \
                      its own.",
                slot: Slot::U32(|s| &mut s.store.partitions, 1, 65_536),
            },
            Key {
                name: "commit_connections",
                default: "16",
                doc: "Connections that commit: so many batches at once.",
                slot: Slot::U32(|s| &mut s.store.commit_connections, 1, 1_000),
            },
            Key {
                name: "act_connections",
                default: "16",
                doc: "Connections for the reads of acts and scans: so many snapshots at once.",
                slot: Slot::U32(|s| &mut s.store.act_connections, 1, 1_000),
            },
            Key {
                name: "read_connections",
                default: "4",
                doc: "Connections for all other reads.",
                slot: Slot::U32(|s| &mut s.store.read_connections, 1, 1_000),
            },
            Key {
                name: "connect_timeout",
                default: "\"5s\"",
                doc: "How long a connection may take, or be waited for.",
                slot: Slot::Duration(|s| &mut s.store.connect_timeout, ms(100), ms(600_000)),
            },
            Key {
                name: "statement_timeout",
                default: "\"30s\"",
                doc: "How long the server works on one statement.",
                slot: Slot::Duration(|s| &mut s.store.statement_timeout, ms(100), ms(3_600_000)),
            },
            Key {
                name: "lock_timeout",
                default: "\"5s\"",
                doc: "How long a statement waits for a lock of your product's.",
                slot: Slot::Duration(|s| &mut s.store.lock_timeout, ms(10), ms(600_000)),
            },
            Key {
                name: "guard_timeout",
                default: "\"1s\"",
                doc: "How long a commit spends on guards that ask for rows by conditions; an item \
                      whose own guards take longer has failed.",
                slot: Slot::Duration(|s| &mut s.store.guard_timeout, ms(10), ms(60_000)),
            },
            Key {
                name: "idle_in_transaction_timeout",
                default: "\"2s\"",
                doc: "After how long the server ends a write that its node has left alone, so \
                      that a frozen leader does not hold up the next one.",
                slot: Slot::Duration(
                    |s| &mut s.store.idle_in_transaction_timeout,
                    ms(100),
                    ms(60_000),
                ),
            },
            Key {
                name: "tcp_user_timeout",
                default: "\"10s\"",
                doc: "After how long a connection is given up whose other end takes nothing, by \
                      the node and by the server: so long a frozen node may keep its locks.",
                slot: Slot::Duration(|s| &mut s.store.tcp_user_timeout, ms(1_000), ms(600_000)),
            },
        ],
    },
    Section {
        name: "node",
        doc: "This node among others.",
        keys: &[
            Key {
                name: "name",
                default: "",
                doc: "Its name; by default the host name. An incarnation is added to it at every start.",
                slot: Slot::OptionalText(|s| &mut s.node.name),
            },
            Key {
                name: "address",
                default: "",
                doc: "Where it is found, as `besom node ls` shows it; by default the host name.",
                slot: Slot::OptionalText(|s| &mut s.node.address),
            },
            Key {
                name: "weight",
                default: "1",
                doc: "Its share of a cluster's partitions beside the others'.",
                slot: Slot::U32(|s| &mut s.node.weight, 1, WEIGHT_MAX),
            },
        ],
    },
    Section {
        name: "clock",
        doc: "The machine's clock beside the store's, which decides what is due.",
        keys: &[
            Key {
                name: "read_every",
                default: "\"10s\"",
                doc: "How often the store's clock is read.",
                slot: Slot::Duration(|s| &mut s.clock.read_every, ms(100), ms(600_000)),
            },
            Key {
                name: "skew_warn",
                default: "\"1s\"",
                doc: "From which difference on it is warned of.",
                slot: Slot::Duration(|s| &mut s.clock.skew_warn, ms(10), ms(DAY_MS)),
            },
            Key {
                name: "skew_max",
                default: "\"10s\"",
                doc: "From which difference on the node does not lead; at least skew_warn.",
                slot: Slot::Duration(|s| &mut s.clock.skew_max, ms(10), ms(DAY_MS)),
            },
        ],
    },
    Section {
        name: "lease",
        doc: "The lease on the leadership.",
        keys: &[
            Key {
                name: "ttl",
                default: "\"15s\"",
                doc: "How long it lasts: after a crash of the machine the others wait so long.",
                slot: Slot::Duration(|s| &mut s.lease.ttl, ms(1_000), ms(3_600_000)),
            },
            Key {
                name: "renew",
                default: "\"5s\"",
                doc: "How often it is renewed; at most a third of ttl.",
                slot: Slot::Duration(|s| &mut s.lease.renew, ms(100), ms(1_200_000)),
            },
        ],
    },
    activity::ACTIVITY,
    api::API,
    Section {
        name: "host",
        doc: "Bounds of the host.",
        keys: &[
            Key {
                name: "guest_threads",
                default: "0",
                doc: "Threads that plugins run on; 0: one per processor.",
                slot: Slot::U32(|s| &mut s.host.guest_threads, 0, 1024),
            },
            Key {
                name: "due_batches",
                default: "2",
                doc: "Batches of due items executed at once.",
                slot: Slot::U32(|s| &mut s.host.due_batches, 1, 64),
            },
            Key {
                name: "normal_batches",
                default: "2",
                doc: "Batches of normal tasks executed at once.",
                slot: Slot::U32(|s| &mut s.host.normal_batches, 1, 64),
            },
            Key {
                name: "heavy_batches",
                default: "2",
                doc: "Batches of heavy tasks executed at once, on threads of low priority.",
                slot: Slot::U32(|s| &mut s.host.heavy_batches, 1, 64),
            },
            Key {
                name: "long_after",
                default: "\"250ms\"",
                doc: "A batch that is executed for longer leaves its place in the lane to other \
                      tasks; not in the heavy lane.",
                slot: Slot::Duration(|s| &mut s.host.long_after, ms(1), ms(3_600_000)),
            },
            Key {
                name: "batch_items",
                default: "1000",
                doc: "Items of one commit.",
                slot: Slot::U32(|s| &mut s.host.batch_items, 1, 100_000),
            },
            Key {
                name: "batch_bytes",
                default: "\"16MiB\"",
                doc: "Bytes of one commit.",
                slot: Slot::Bytes(|s| &mut s.host.batch_bytes, 4096, 1024 * MIB),
            },
            Key {
                name: "heavy_wait_max",
                default: "\"5s\"",
                doc: "How long heavy work may be put off for items that fall due.",
                slot: Slot::Duration(|s| &mut s.host.heavy_wait_max, ms(0), ms(3_600_000)),
            },
            Key {
                name: "log_lines_per_s",
                default: "200",
                doc: "Lines of one task in a second that are kept for `besom runs logs`; more are \
                      counted and left out.",
                slot: Slot::U32(|s| &mut s.host.log_lines_per_s, 1, 100_000),
            },
            Key {
                name: "log_lines_max",
                default: "1000",
                doc: "Lines kept of one run, the newest; as long as the run itself.",
                slot: Slot::U32(|s| &mut s.host.log_lines_max, 1, 1_000_000),
            },
            Key {
                name: "history_text_max",
                default: "\"1GiB\"",
                doc: "Bytes of notes and reasons that one task leaves in the history in a day, on each host; beyond it \
                      notes are left out and reasons cut to 256 bytes.",
                slot: Slot::Bytes(|s| &mut s.host.history_text_max, 1 << 10, 1 << 40),
            },
            Key {
                name: "act_snapshot_max",
                default: "\"150s\"",
                doc: "How long the reads of one call may hold their snapshot; at least `limits.wall` of every task.",
                slot: Slot::Duration(|s| &mut s.host.act_snapshot_max, ms(100), ms(3_600_000)),
            },
            Key {
                name: "timers_ahead",
                default: "20000",
                doc: "Timers held in memory; the rest is read when these have fired.",
                slot: Slot::U32(|s| &mut s.host.timers_ahead, 1, 10_000_000),
            },
            Key {
                name: "scan_page_items",
                default: "1000",
                doc: "Candidates of one page of a scan.",
                slot: Slot::U32(|s| &mut s.host.scan_page_items, 1, 100_000),
            },
            Key {
                name: "pass_rounds_max",
                default: "10000",
                doc: "Rounds of `besom run`: as long as a round plans something, another one follows.",
                slot: Slot::U32(|s| &mut s.host.pass_rounds_max, 1, 1_000_000_000),
            },
            Key {
                name: "drain_max",
                default: "\"20s\"",
                doc: "How long a stopping host waits for work in flight.",
                slot: Slot::Duration(|s| &mut s.host.drain_max, ms(0), ms(3_600_000)),
            },
            Key {
                name: "connect_wait_max",
                default: "\"60s\"",
                doc: "How long a starting host waits for a database, or for etcd, that cannot be \
                      reached; then it ends with exit code 69.",
                slot: Slot::Duration(|s| &mut s.host.connect_wait_max, ms(0), ms(86_400_000)),
            },
        ],
    },
    Section {
        name: "retention",
        doc: "How long things are kept.",
        keys: &[
            Key {
                name: "history",
                default: "\"30d\"",
                doc: "The history of items, slots and runs. The audit balances all the same.",
                slot: Slot::Duration(|s| &mut s.retention.history, ms(60_000), ms(36_500 * DAY_MS)),
            },
            Key {
                name: "nodes",
                default: "\"1d\"",
                doc: "How long a node that vanished is shown as gone; one that stops leaves at once.",
                slot: Slot::Duration(|s| &mut s.retention.nodes, ms(60_000), ms(36_500 * DAY_MS)),
            },
        ],
    },
    Section {
        name: "runtime",
        doc: "The WebAssembly runtime.",
        keys: &[Key {
            name: "cache",
            default: "",
            doc: "A private directory for compiled plugins; by default besom in the user's cache ($XDG_CACHE_HOME, ~/.cache), or else besom-cache beside the database.",
            slot: Slot::Path(|s| &mut s.runtime.cache),
        }],
    },
    Section {
        name: "plugins",
        doc: "Your own plugins.",
        keys: &[
            Key {
                name: "dir",
                default: "\"plugins.d\"",
                doc: "The directory that plugin = \"NAME.wasm\" refers to.",
                slot: Slot::Path(|s| &mut s.plugins.dir),
            },
            Key {
                name: "require_pin",
                default: "false",
                doc: "Whether a task with a plugin of the directory has to name its SHA-256.",
                slot: Slot::Bool(|s| &mut s.plugins.require_pin),
            },
            Key {
                name: "bytes_max",
                default: "\"64MiB\"",
                doc: "The largest file of a plugin.",
                slot: Slot::Bytes(|s| &mut s.plugins.bytes_max, 1 << 10, 1 << 30),
            },
            Key {
                name: "compile_memory",
                default: "\"2GiB\"",
                doc: "The address space of the process that compiles a plugin.",
                slot: Slot::Bytes(|s| &mut s.plugins.compile_memory, 256 << 20, 64 << 30),
            },
            Key {
                name: "compile_time",
                default: "\"60s\"",
                doc: "The time of a processor that compiling a plugin may take.",
                slot: Slot::Duration(|s| &mut s.plugins.compile_time, ms(1_000), ms(3_600_000)),
            },
        ],
    },
    cluster::COORDINATION,
    cluster::RING,
    delivery::DELIVERY,
];

impl Sections {
    /// The defaults alone; paths that depend on others are still empty.
    pub fn defaults() -> Sections {
        let mut sections = Sections::default();
        for key in SECTIONS.iter().flat_map(|s| s.keys) {
            key.set_default(&mut sections);
        }
        sections
    }

    /// Makes paths independent of where the program runs: relative ones are meant from
    /// `dir`, and those that were not given stand beside the database.
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
                .chain(self.topics.values_mut().map(|route| &mut route.token_file))
                .flatten()
        {
            *path = dir.join(&path);
        }
    }
}
