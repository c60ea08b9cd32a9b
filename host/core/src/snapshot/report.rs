//! What a node says of itself with each sign of life, for the others to show.
//!
//! It is small (a few kilobytes), because every node writes one every few seconds, and holds
//! its own recent past, so that whoever looks for the first time sees more than a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::held::Held;
use crate::time::Time;

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

/// A node of itself.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The version of the program.
    pub version: String,
    /// When this start of it began.
    pub started_at: Time,
    /// Items that are being executed or committed.
    pub running: u32,
    /// Items brought to an end since the start (committed, skipped, dead), by task.
    pub finished: BTreeMap<String, u64>,
    /// Items that became dead letters since the start.
    pub died: u64,
    /// Items brought to an end in each of the last samples of [`RATE_SAMPLE_S`] seconds, oldest
    /// first; at most [`RATE_SAMPLES`]. The last one is not complete.
    pub rates: Vec<u32>,
    /// How long items of the last 15 minutes took from the beginning of their batch to its commit.
    pub latency: Latency,
    /// The keys with the most work in the last 15 minutes, most first.
    pub hot: Vec<HotKey>,
    /// Items that [`Report::hot`] is a part of.
    pub hot_of: u64,
    /// What it does for runs that go on.
    pub runs: Vec<RunAtNode>,
    /// Why its configuration file was not taken over when it last changed; none: it was.
    pub config_fault: Option<String>,
    /// The path of its configuration file.
    pub config_path: String,
    /// When it took its configuration over.
    pub config_at: Time,
    /// What it has to hold back, and why.
    pub held: Vec<Held>,
    /// Its clock beside the store's; none: not read yet.
    pub clock: Option<ClockReport>,
}

/// A machine's clock beside the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClockReport {
    /// Microseconds that the machine's clock is ahead of the store's; negative: behind.
    pub skew_us: i64,
    /// Whether that is worth a warning, by the node's settings.
    pub noticed: bool,
    /// Whether it keeps the node from leading.
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

/// How often things took how long: a count for each bucket of [`LATENCY_BOUNDS_US`], and one
/// more for everything beyond.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Latency(pub Vec<u64>);

impl Latency {
    /// Counts something that took so many microseconds.
    pub fn add(&mut self, us: u64) {
        self.0.resize(LATENCY_BOUNDS_US.len() + 1, 0);
        let at = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
        self.0[at] += 1;
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The bound below which that part (0 to 1) of them stayed, in microseconds: the upper bound
    /// of a bucket, twice the last one for what is beyond all; none: nothing was counted.
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

    /// The counts of both.
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
    /// The task.
    pub task: String,
    /// The tenant.
    pub tenant: Option<String>,
    /// The key by which the item's partition was chosen.
    pub key: String,
    /// Its partition.
    pub partition: u32,
    /// Items brought to an end; at most this many, if it came late among the hottest.
    pub count: u64,
}

/// What a node does, and has done, for a run that goes on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunAtNode {
    /// The run.
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
    /// The most fuel that one call has used.
    pub fuel_most: u64,
    /// The most linear memory that one call has used, in bytes.
    pub memory_most: u64,
    /// Calls of imports.
    pub host_calls: u64,
    /// Rows read.
    pub rows_read: u64,
    /// Instances.
    pub instances: u64,
}
