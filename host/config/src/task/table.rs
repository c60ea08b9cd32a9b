//! The keys of `[tasks.NAME]` and of its tables `retry` and `yield`.

use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::lane;
use besom_core::mode::{self, Mode};
use besom_ports::task::{Overlap, RetryPolicy};

use crate::keys::{Fault, RowsOrShare, defaults, keys};
use crate::limits::LimitsTable;
use crate::quantity::{days, ms, secs};

keys! {
    /// A task.
    #[derive(Debug, Clone, Default)]
    pub struct TaskTable {
        /// A built-in plugin, or a file in the plugin directory.
        pub plugin: String;
        /// Five fields as in crontab(5), six with seconds first, a macro such as @hourly, or "@every 30s";
        /// without it, the task runs only when triggered.
        pub schedule: Option<String>;
        /// IANA time zone of the schedule.
        pub timezone: String = "UTC";
        /// What to do with a slot while the previous run is active.
        pub overlap: Option<Overlap> = "skip", one of &["skip", "queue", "allow"] => |word| Some(match word {
            "queue" => Overlap::Queue,
            "allow" => Overlap::Allow,
            _ => Overlap::Skip,
        });
        /// What to do with slots that passed while no host led.
        pub catch_up: String = "coalesce", one of &["skip", "coalesce", "all"] => str::to_owned;
        /// With catch_up = "all", the maximum number of passed slots that run, the latest ones.
        pub catch_up_max: u32 = 10, within 1..=1_000;
        /// Maximum delay of a run after its slot; delays are distributed evenly.
        pub jitter: Duration = "0s", within secs(0)..=days(1);
        /// Whether the task also runs when a leader starts, and when its settings change.
        pub at_start: bool = false;
        /// How far ahead due items are planned (default: twice the widest gap of the schedule).
        pub horizon: Duration, within secs(1)..=days(366);
        /// How long before-images of rows are kept; "0s" keeps none.
        pub keep_removed: Duration = "7d", within secs(0)..=days(3_650);
        /// Maximum number of items waiting in the log; above it, nothing more is planned until the nodes have
        /// caught up.
        pub queue_max: u32 = 100000, within 1..=1_000_000_000;
        /// Maximum number of timers and retries; at the limit, nothing more is planned (default: 10000000 in
        /// the lane due, 1000000 in other lanes).
        pub timers_max: u32, within 1..=1_000_000_000;
        /// Maximum number of open dead letters; at the limit, nothing more is planned until some are retried
        /// or discarded.
        pub dead_max: u32 = 100000, within 1..=1_000_000_000;
        /// Maximum number of rows that all nodes together change per second for this task; 0 means no limit.
        pub rows_per_second: u32 = 0, within 0..=1_000_000_000;
        /// Maximum number of rows that one run may delete from each collection, or the maximum part of the
        /// collection, such as "5%"; a run that wants more is stopped and the task paused.
        pub max_delete: Option<RowsOrShare>;
        /// Number of rows that one run may delete however small the part in max_delete is. A table with fewer rows
        /// may be emptied.
        pub max_delete_floor: u64 = 100, within 0..=1_000_000_000_000;
        /// Maximum number of items of one run that are set aside; a run that wants more is stopped and the
        /// task paused. Without the key there is no limit.
        pub max_dead_letters: Option<NonZeroU32>, within 1..=1_000_000_000;
        /// Number of runs in a row that fail before the task is paused. Without the key there is no limit.
        pub max_failed_runs: Option<NonZeroU32>, within 1..=1_000;
        /// When the task may scan and execute, such as ["Mon-Fri 22:00-05:00 Europe/Berlin"]; without it,
        /// always. A window that names no time zone follows `timezone`.
        pub windows: Vec<String>;
        /// How far a run goes by itself: preview shows what it would change, approve waits for an approval of
        /// what it has planned, live executes it (default: host.default_mode).
        pub mode: Option<Mode>, one of mode::NAMES => Mode::parse;
        /// With mode = "approve", how long what a run has planned may wait; then it is discarded.
        pub approve_within: Duration = "7d", within secs(1)..=days(366);
        /// Lane granted to your own plugin if it requests another than normal: due has the highest priority,
        /// heavy the largest limits.
        pub lane: String, one of lane::NAMES => str::to_owned;
        /// SHA-256 of the plugin file, in hexadecimal; any other file is refused. `besom task pin` writes it.
        pub sha256: Option<String>;
    }
}

/// The key that pins the plugin of a task.
pub const PIN: &str = "sha256";

/// The tables of a task, and their descriptions.
pub const TABLES: [(&str, &str); 6] = [
    ("settings", "Settings of the plugin, and projects_per_run and candidates_per_project."),
    ("limits", LimitsTable::DOC),
    ("retry", RetryTable::DOC),
    ("yield", YieldTable::DOC),
    (
        "collections",
        "The collections that this task uses under the plugin's names: NAME = \"COLLECTION\".",
    ),
    (
        "grants",
        "What the task may do: COLLECTION = [\"read\", \"insert\", \"update\", \"delete\"], topics = [...].",
    ),
];

keys! {
    /// How failures are retried.
    #[derive(Debug, Clone, Default)]
    pub struct RetryTable {
        /// Maximum number of executions, after which an item becomes a dead letter.
        pub attempts_max: u32 = 5, within 1..=1_000;
        /// Pause after the first failure; it doubles with each further failure.
        pub backoff: Duration = "1s", within ms(1)..=days(1);
        /// Longest pause between two executions.
        pub backoff_max: Duration = "10m", within ms(1)..=days(30);
        /// Maximum number of failed guards, after which an item is skipped as contended.
        pub guard_retries_max: u32 = 10, within 0..=1_000;
        /// Maximum number of host deaths during an item, after which it becomes a dead letter.
        pub deaths_max: u32 = 3, within 1..=1_000;
    }
}

keys! {
    /// Changes fewer rows per second while the product is served late, and as many as rows_per_second
    /// otherwise. Without the table, the task does not yield.
    #[derive(Debug, Clone, Default)]
    pub struct YieldTable {
        /// How late the database may answer, and how long others may wait for locks of Besom, before the task
        /// changes fewer rows.
        pub latency: Duration = "20ms", within ms(1)..=secs(60);
        /// How far replicas of PostgreSQL may be behind; "0s" does not look at them.
        pub lag: Duration = "10s", within secs(0)..=days(1);
        /// Rows per second that are always allowed.
        pub floor: u32 = 500, within 1..=1_000_000_000;
    }
}

impl RetryTable {
    pub(super) fn policy(self) -> RetryPolicy {
        let RetryTable { attempts_max, backoff, backoff_max, guard_retries_max, deaths_max } = self;
        RetryPolicy { attempts_max, backoff, backoff_max, guard_retries_max, deaths_max }
    }
}

/// Returns the retry policy of a task without `[tasks.NAME.retry]`.
pub fn default_retry() -> RetryPolicy {
    defaults(RetryTable::KEYS).policy()
}

/// Checks a value of one of the keys of a task.
///
/// # Errors
/// An unknown key, or what is wrong with the value.
pub fn judge(key: &str, text: &str) -> Result<(), Fault> {
    match TaskTable::KEYS.iter().find(|known| known.name == key) {
        Some(known) => known.read_text(&mut TaskTable::default(), text),
        None => Err(Fault::new(format!("there is no task key `{key}`"))),
    }
}
