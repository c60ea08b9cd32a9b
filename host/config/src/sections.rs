//! The sections of `besom.toml` that configure the host as a whole, with bounds and defaults. Tasks,
//! topics and collections, which have names of their own, are defined in other modules.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use besom_core::clock::SkewBounds;
use besom_core::lane::{LANES, Lane, PerLane};
use besom_core::mode::{self, Mode};
use serde::Serialize;

use super::activity::Activity;
use super::api::Api;
use super::cluster::{Coordination, Ring};
use super::delivery::{Delivery, Route};
use super::keys::{Bytes, Key, defaults, keys};
use super::quantity::{days, ms, secs};
use besom_ports::members::WEIGHT_MAX;
use besom_runtime::{Signing, TrustedKey};

keys! {
    /// The database that holds your tables and Besom's own.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Store in [store] {
        /// SQLite file (default: besom.db); a relative path is resolved against the directory of this file.
        // Once resolved: absolute or relative to the working directory; ignored if `url` is set.
        pub path: PathBuf;
        /// Minimum free space on the disk of the SQLite file; below it, nothing is planned or committed.
        pub disk_free_min: Bytes = "256MiB", within 0..=1 << 50;
        /// PostgreSQL server to use instead of a file: postgres://USER@HOST:PORT/DATABASE, with sslmode
        /// (disable, prefer, require, verify-ca, verify-full).
        #[serde(serialize_with = "besom_system::secret::masked")]
        pub url: Option<String>;
        /// File (mode 0600) with the password (default: the variable PGPASSWORD).
        pub password_file: Option<PathBuf>;
        /// Certificate authorities (PEM) for verifying the server; required for sslmode verify-ca and
        /// verify-full.
        pub root_certificate: Option<PathBuf>;
        /// Schema of Besom's own tables on the server.
        pub schema: String = "besom";
        /// Number of partitions of a new store on the server; an existing store keeps its number.
        pub partitions: u32 = 1024, within 1..=65_536;
        /// Maximum number of connections for commits, and so of concurrent commits.
        pub commit_connections: u32 = 16, within 1..=1_000;
        /// Maximum number of connections for acts and scans, and so of concurrent snapshots.
        pub act_connections: u32 = 16, within 1..=1_000;
        /// Maximum number of connections for all other reads.
        pub read_connections: u32 = 4, within 1..=1_000;
        /// Maximum time for connecting, and for waiting for a free connection.
        pub connect_timeout: Duration = "5s", within ms(100)..=secs(600);
        /// Maximum time for one statement.
        pub statement_timeout: Duration = "30s", within ms(100)..=secs(3_600);
        /// Maximum time that a statement waits for a lock held by your product.
        pub lock_timeout: Duration = "5s", within ms(10)..=secs(600);
        /// Maximum time that a commit spends on guards that query rows by conditions; an item whose own
        /// guards take longer fails.
        pub guard_timeout: Duration = "1s", within ms(10)..=secs(60);
        /// Maximum size of the rows that a commit changes or deletes, as they were before; an item whose own
        /// are larger fails.
        // Bytes before they are packed.
        pub undo_bytes: Bytes = "128MiB", within 1 << 20..=1 << 30;
        /// Percent of the time for which tasks may change ranges of rows while others write to the database,
        /// other items at least 50; 100 does not limit them.
        pub write_share: u32 = 5, within 1..=100;
        /// Time after which the server ends an idle write transaction, so that a frozen leader does not block
        /// its successor.
        pub idle_in_transaction_timeout: Duration = "2s", within ms(100)..=secs(60);
        /// Time after which the node and the server close a connection whose other end does not acknowledge
        /// data; a frozen node may keep its locks for this long.
        pub tcp_user_timeout: Duration = "10s", within secs(1)..=secs(600);
    }
}

keys! {
    /// The identity of this node.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Node in [node] {
        /// Name of the node (default: the host name); each start adds an incarnation to it.
        pub name: Option<String>;
        /// Address of the node as shown by `besom node ls` (default: the host name).
        pub address: Option<String>;
        /// Share of the partitions of a cluster, relative to the weights of the other nodes.
        pub weight: u32 = 1, within 1..=WEIGHT_MAX;
    }
}

keys! {
    /// The difference between the machine's clock and the store's, which decides what is due.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Clock in [clock] {
        /// Interval at which the store's clock is read.
        pub read_every: Duration = "10s", within ms(100)..=secs(600);
        /// Difference from which a warning is logged.
        pub skew_warn: Duration = "1s", within ms(10)..=days(1);
        /// Difference from which the node does not lead; at least skew_warn.
        pub skew_max: Duration = "10s", within ms(10)..=days(1);
    }
}

impl Clock {
    /// Returns both bounds of the difference.
    pub fn bounds(&self) -> SkewBounds {
        SkewBounds { warn: self.skew_warn, max: self.skew_max }
    }
}

keys! {
    /// The lease of the leader.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Lease in [lease] {
        /// Duration of the lease: how long other nodes wait after the machine of the leader crashed.
        pub ttl: Duration = "15s", within secs(1)..=secs(3_600);
        /// Interval at which the lease is renewed; at most a third of ttl.
        pub renew: Duration = "5s", within ms(100)..=secs(1_200);
    }
}

/// Writes the batches of each lane as the keys of the configuration name them.
fn batches<S: serde::Serializer>(batches: &PerLane<u32>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(LANES.iter().map(|row| (format!("{}_batches", row.name), batches[row.lane])))
}

keys! {
    /// Limits of the host.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Host in [host] {
        /// Number of threads for plugins, at least 8; 0 means one per processor.
        pub guest_threads: u32 = 0, within 0..=1024;
        /// Processor time after which a call of a plugin continues with low priority; calls in the lane heavy
        /// always have it.
        pub guest_slice: Duration = "5ms", within ms(1)..=secs(60);
        /// Maximum number of concurrent batches in the lane due.
        pub due_batches: u32 = 2, within 1..=64, at batches[Lane::Due];
        /// Maximum number of concurrent batches in the lane normal.
        pub normal_batches: u32 = 2, within 1..=64, at batches[Lane::Normal];
        /// Maximum number of concurrent batches in the lane heavy, on threads of low priority.
        pub heavy_batches: u32 = 2, within 1..=64, at batches[Lane::Heavy];
        /// Execution time after which a batch leaves its place in the lane to other tasks; does not apply to
        /// the lane heavy.
        pub long_after: Duration = "250ms", within ms(1)..=secs(3_600);
        /// Maximum number of items in one commit.
        pub batch_items: u32 = 1000, within 1..=100_000;
        /// Maximum number of rows of ranges that one commit changes, unless a single item has more; on SQLite at
        /// most 500 while others write.
        pub batch_rows: u32 = 2000, within 1..=1_000_000;
        /// Maximum size of one commit.
        // Of the payloads and changes.
        pub batch_bytes: Bytes = "16MiB", within 4096..=1024 * MIB;
        /// Maximum size of all commits at once; further ones wait, and a larger one is made alone. Commits of
        /// at most a sixteenth of it neither count nor wait.
        // Of the changes.
        pub commit_bytes_in_flight: Bytes = "16MiB", within 4096..=1024 * MIB;
        /// Memory of the calls and changes of a lane's batches from which on no further batch is started of a
        /// task whose calls use more than 16 MiB. The lane heavy is not bounded by it.
        pub memory_in_flight: Bytes = "128MiB", within MIB..=1024 * 1024 * MIB;
        /// Maximum delay of heavy work in favour of items that fall due.
        pub heavy_wait_max: Duration = "5s", within secs(0)..=secs(3_600);
        /// Maximum number of log lines per task and second kept for `besom runs logs`; further lines are
        /// dropped and counted.
        pub log_lines_per_s: u32 = 200, within 1..=100_000;
        /// Maximum number of log lines kept per run, the newest; they are kept as long as the run.
        pub log_lines_max: u32 = 1000, within 1..=1_000_000;
        /// Maximum size of the notes and reasons that one task adds to the history per day and host; beyond
        /// it, notes are omitted and reasons truncated to 256 bytes.
        pub history_text_max: Bytes = "1GiB", within 1 << 10..=1 << 40;
        /// Maximum time that the reads of one call hold their snapshot; at least `limits.wall` of every task.
        pub act_snapshot_max: Duration = "150s", within ms(100)..=secs(3_600);
        /// Maximum number of timers held in memory; the rest are read when these have fired.
        pub timers_ahead: u32 = 20000, within 1..=10_000_000;
        /// Maximum number of candidates in one page of a scan; on SQLite 1000, because other writers wait for a
        /// page.
        pub scan_page_items: u32 = 5000, within 1..=100_000;
        /// Maximum number of dead letters that one transaction of `besom dead retry` or `besom dead discard`
        /// takes; further transactions follow.
        pub command_letters: u32 = 1000, within 1..=100_000;
        /// Number of failures of a command in a row, such as timeouts of the database, after which it is
        /// refused with the reason.
        pub command_attempts_max: u32 = 8, within 1..=1_000;
        /// The mode of tasks that name none: preview, approve or live.
        pub default_mode: Mode = "preview",
            one of mode::NAMES => |word| Mode::parse(word).unwrap_or(Mode::Preview);
        /// Maximum number of rounds of `besom run`; a new round follows while the last one has planned items.
        pub pass_rounds_max: u32 = 10000, within 1..=1_000_000_000;
        /// Maximum number of rounds in a row of `besom run` that plan items and commit none of them, or the same ones again.
        pub pass_idle_rounds_max: u32 = 10, within 1..=1_000_000_000;
        /// Number of items of a task that are refused in a row for the same reason in its mapping, grants or
        /// settings before the task is held.
        pub refused_items_max: u32 = 20, within 1..=1_000_000;
        /// Maximum time that a stopping host waits for work in flight. A commit that takes longer than 3 s
        /// meanwhile is stopped.
        pub drain_max: Duration = "20s", within secs(0)..=secs(3_600);
        /// Maximum time that a starting host waits for a database or etcd that cannot be reached, before it
        /// exits with code 69.
        pub connect_wait_max: Duration = "60s", within secs(0)..=days(1);
    } with {
        /// Maximum number of concurrent batches, by lane.
        #[serde(flatten, serialize_with = "batches")]
        pub batches: PerLane<u32>,
    }
}

keys! {
    /// How long data is kept.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Retention in [retention] {
        /// How long the history of items, slots and runs is kept; pruning it does not affect the audit.
        pub history: Duration = "30d", within secs(60)..=days(36_500);
        /// How long a vanished node is shown as gone; a node that stops is removed immediately.
        pub nodes: Duration = "1d", within secs(60)..=days(36_500);
    }
}

keys! {
    /// The WebAssembly runtime.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Runtime in [runtime] {
        /// Private directory for compiled plugins (default: besom in $XDG_CACHE_HOME or ~/.cache, otherwise
        /// besom-cache beside the database).
        // Only files that this node wrote are loaded.
        pub cache: PathBuf;
    } with {
        /// Whether `cache` is configured; otherwise the cache of the user is preferred to it.
        #[serde(skip)]
        pub cache_named: bool,
    }
}

keys! {
    /// Your own plugins.
    #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
    pub struct Plugins in [plugins] {
        /// Directory of the files that plugin = "NAME.wasm" refers to.
        pub dir: PathBuf = "plugins.d";
        /// Whether a task must pin the SHA-256 of its plugin file.
        pub require_pin: bool = false;
        /// Public keys of minisign, such as ["RW..."]: a signature NAME.wasm.minisig beside a plugin file
        /// must be by one of them (default: signatures are not read).
        pub trusted_keys: Vec<String>;
        /// Whether a plugin file must have a signature by one of the trusted keys; built-in plugins need
        /// none.
        pub require_signature: bool = false;
        /// Maximum size of a plugin file.
        pub bytes_max: Bytes = "64MiB", within 1 << 10..=1 << 30;
        /// Maximum address space of the process that compiles a plugin.
        pub compile_memory: Bytes = "2GiB", within 256 << 20..=64 << 30;
        /// Maximum CPU time for compiling a plugin.
        pub compile_time: Duration = "60s", within secs(1)..=secs(3_600);
    }
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

impl Section {
    /// The key with this name.
    pub fn key(&self, name: &str) -> Option<&'static Key<Sections>> {
        self.keys.iter().find(|key| key.name == name)
    }
}

const MIB: u64 = 1 << 20;

/// All sections. A changed key takes effect at the next start; only tasks, collections and plugins are
/// reloaded by a running host.
pub static SECTIONS: &[Section] = &[
    Store::SECTION,
    Node::SECTION,
    Clock::SECTION,
    Lease::SECTION,
    Activity::SECTION,
    Api::SECTION,
    Host::SECTION,
    Retention::SECTION,
    Runtime::SECTION,
    Plugins::SECTION,
    Coordination::SECTION,
    Ring::SECTION,
    Delivery::SECTION,
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
        defaults(SECTIONS.iter().flat_map(|section| section.keys))
    }

    /// Resolves relative paths against `dir`, and sets paths that are not configured to files beside the
    /// database.
    pub fn settle_paths(&mut self, dir: &Path) {
        self.runtime.cache_named = !self.runtime.cache.as_os_str().is_empty();
        if self.store.path.as_os_str().is_empty() {
            self.store.path = "besom.db".into();
        }
        for key in SECTIONS.iter().flat_map(|section| section.keys) {
            key.settle_path(self, dir);
        }
        for route in self.topics.values_mut() {
            Route::KEYS.iter().for_each(|key| key.settle_path(route, dir));
        }
        let beside = self.store.path.parent().unwrap_or(dir);
        for (path, name) in [
            (&mut self.activity.socket, "besom-activity.sock"),
            (&mut self.api.socket, "besom.sock"),
            (&mut self.runtime.cache, "besom-cache"),
        ] {
            if path.as_os_str().is_empty() {
                *path = beside.join(name);
            }
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
