//! A node's periodic report about itself, for the others to show.
//!
//! It is small (a few kilobytes), because every node writes one every few seconds. It contains the
//! node's recent past, so that a reader sees more than a moment from the start.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::held::Held;
use super::paced::Paced;
use besom_core::time::Time;

/// The length of one sample of [`Report::rates`], in seconds.
pub const RATE_SAMPLE_S: u64 = 15;
/// How many samples a report holds: the last 15 minutes.
pub const RATE_SAMPLES: usize = 60;
/// The upper bounds of the buckets of a [`Latency`], in microseconds; the last bucket is open.
pub const LATENCY_BOUNDS_US: [u64; 19] = [
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// The first line of a [`Report::config_fault`] about plugins alone, whose files cannot be used.
pub const CODE_KEPT: &str = "the files of the plugins named here are refused, and these plugins keep the code that \
                             they run with; all other changes of the configuration have taken effect";

/// What a [`Report::config_fault`] says of plugins after [`CODE_KEPT`]; none: it is about the whole file.
pub fn of_code(fault: &str) -> Option<&str> {
    fault.strip_prefix(CODE_KEPT).map(str::trim_start)
}

/// A node's report about itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The version of the program.
    pub version: String,
    /// When its process started.
    pub started_at: Time,
    /// Items that are being executed or committed.
    pub running: u32,
    /// Items that ended since the start (committed, skipped, dead), by task.
    pub finished: BTreeMap<String, u64>,
    /// Items that became dead letters since the start.
    pub died: u64,
    /// Messages that were given up since the start.
    pub given_up: u64,
    /// Items that ended in each of the latest samples of [`RATE_SAMPLE_S`] seconds, oldest first;
    /// at most [`RATE_SAMPLES`]. The last sample is incomplete.
    pub rates: Vec<u32>,
    /// How long items of the last 15 minutes took from the start of their batch to its commit.
    pub latency: Latency,
    /// The keys with the most work in the last 15 minutes, most first.
    pub hot: Vec<HotKey>,
    /// The number of items that [`Report::hot`] was counted from.
    pub hot_of: u64,
    /// Its work for active runs.
    pub runs: Vec<RunAtNode>,
    /// Why the last change of its configuration file was rejected, or which plugins keep their code
    /// ([`CODE_KEPT`]); none: it was loaded.
    pub config_fault: Option<String>,
    /// The keys of its configuration file whose changes take effect at its next start.
    pub needs_restart: Vec<String>,
    /// The path of its configuration file.
    pub config_path: String,
    /// When it loaded its configuration.
    pub config_at: Time,
    /// What it holds back, and why.
    pub held: Vec<Held>,
    /// The tasks whose last run left candidates for the next one; told by the leader.
    pub cut: Vec<Cut>,
    /// The rows that scans cannot plan; told by the leader.
    pub left_out: Vec<LeftOut>,
    /// Its clock relative to the store's; none: not read yet.
    pub clock: Option<ClockReport>,
    /// The paces of its tasks that yield.
    pub paces: Vec<Paced>,
}

impl Report {
    /// Why it runs with another configuration than its file.
    pub fn file_refused(&self) -> Option<&str> {
        self.config_fault.as_deref().filter(|fault| of_code(fault).is_none())
    }
}

/// Candidates that a run has left for the next one, because it had planned as many as it may.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Cut {
    /// The task.
    pub task: String,
    /// Tenants with candidates left; 1 for a task without tenants.
    pub tenants: u32,
    /// Items that a run plans for each tenant at most (`candidates_per_project`).
    pub candidates_max: u32,
}

impl Cut {
    /// In words, for a list of tasks.
    pub fn words(&self) -> String {
        let bound = format!("candidates_per_project ({})", self.candidates_max);
        match self.tenants {
            1 => format!("more is due: the last run stopped at {bound}"),
            n => format!("more is due in {n} tenants: the last run stopped at {bound}"),
        }
    }
}

/// Rows that the last run of a task could not plan, because an item of their key could not be stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LeftOut {
    /// Name of the task; empty in what one page has left out.
    pub task: String,
    /// The number of rows.
    pub rows: u64,
    /// The key of the first of them, or how it begins.
    pub first: String,
    /// What is wrong with it.
    pub why: String,
}

impl LeftOut {
    /// In words, for a list of tasks.
    pub fn words(&self) -> String {
        let rows = besom_core::command::counted(self.rows, "row");
        let were = if self.rows == 1 { "was" } else { "were" };
        let LeftOut { first, why, .. } = self;
        format!(
            "{rows} {were} left out, because no item can have their key; the first is {first:?}: {why}"
        )
    }

    /// Adds rows of a later page.
    pub fn add(&mut self, more: &LeftOut) {
        if self.rows == 0 {
            self.first.clone_from(&more.first);
            self.why.clone_from(&more.why);
        }
        self.rows += more.rows;
    }
}

/// A machine's clock relative to the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockReport {
    /// Microseconds that the machine's clock is ahead of the store's; negative: behind.
    pub skew_us: i64,
    /// Whether the skew exceeds the node's warning threshold.
    pub noticed: bool,
    /// Whether the skew keeps the node from leading.
    pub leads_not: bool,
}

impl ClockReport {
    /// In words: `30.0s ahead of the store's`.
    pub fn words(&self) -> String {
        let seconds = Duration::from_micros(self.skew_us.unsigned_abs()).as_secs_f64();
        let side = if self.skew_us < 0 { "behind" } else { "ahead of" };
        format!("{seconds:.1}s {side} the store's")
    }
}

/// A histogram of durations: a count per bucket of [`LATENCY_BOUNDS_US`], and one more for
/// everything beyond.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latency(pub Vec<u64>);

impl Latency {
    /// Counts a duration in microseconds.
    pub fn add(&mut self, us: u64) {
        self.0.resize(LATENCY_BOUNDS_US.len() + 1, 0);
        let at = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.0[at] += 1;
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// A quantile (0 to 1) in microseconds: the upper bound of its bucket, or twice the last bound
    /// for the open bucket; none: nothing was counted.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * part).ceil() as u64).clamp(1, count);
        let mut seen = 0;
        let bucket = self.0.iter().position(|n| {
            seen += n;
            seen >= rank
        })?;
        let last = LATENCY_BOUNDS_US[LATENCY_BOUNDS_US.len() - 1];
        Some(LATENCY_BOUNDS_US.get(bucket).copied().unwrap_or(last * 2))
    }

    /// Adds the counts of `other`.
    pub fn merge(&mut self, other: &Latency) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine += theirs;
        }
    }
}

/// A key with much work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct HotKey {
    /// The task's name in the configuration.
    pub task: String,
    /// The tenant; none: the task has no tenants.
    pub tenant: Option<String>,
    /// The text by which the item's partition was chosen.
    pub key: String,
    /// Its partition.
    pub partition: u32,
    /// The upper bound of its items that ended; exact unless it became one of the hottest keys
    /// late.
    pub count: u64,
}

/// A node's past and current work for an active run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunAtNode {
    /// The run's number in the store.
    pub run: u64,
    /// Items being executed or committed.
    pub running: u32,
    /// Items committed.
    pub committed: u64,
    /// Items skipped.
    pub skipped: u64,
    /// Items moved to the retries.
    pub retried: u64,
    /// Items set aside.
    pub dead: u64,
    /// Fuel of all calls.
    pub fuel: u64,
    /// The maximum fuel that one call used.
    pub fuel_most: u64,
    /// The maximum linear memory that one call used, in bytes.
    pub memory_most: u64,
    /// Calls of imports.
    pub host_calls: u64,
    /// Rows read.
    pub rows_read: u64,
    /// Instances created.
    pub instances: u64,
}
