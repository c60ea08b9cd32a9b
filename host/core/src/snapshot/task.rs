//! A task, what it does next and what waits for it.

use serde::{Deserialize, Serialize};

use super::run::RunState;
use crate::plan::SlotRecord;
use crate::time::Time;

/// Ended or active runs shown with a task.
pub const RUNS_OF_TASK: usize = 20;
/// Slot records shown with a task.
pub const SLOTS_OF_TASK: usize = 64;

/// A task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// Its name.
    pub name: String,
    /// The plugin it is done by.
    pub plugin: String,
    /// SHA-256 of the plugin, in hexadecimal; empty: not known to the answering host.
    pub digest: String,
    /// The expression; none: it runs by trigger only.
    pub schedule: Option<String>,
    /// The time zone of the expression.
    pub timezone: String,
    /// `skip`, `queue`, `allow`.
    pub overlap: String,
    /// `skip`, `coalesce`, or how many are made up for.
    pub catch_up: String,
    /// How much later than its slot a run may start, in milliseconds.
    pub jitter_ms: u64,
    /// `due`, `normal`, `heavy`.
    pub lane: String,
    /// Its bounds.
    pub limits: Limits,
    /// Who paused it; none: it is not.
    pub paused: Option<Pause>,
    /// Whether its items wait for a task that no configuration has.
    pub orphaned: bool,
    /// The next slot; none: paused, by trigger only, or orphaned.
    pub next: Option<Time>,
    /// Since when its tables were not looked at as its schedule says: what has fallen due there
    /// meanwhile is in no queue. None: they were.
    pub unscanned_since: Option<Time>,
    /// What waits.
    pub depth: Depth,
    /// Items planned since the store was created.
    pub planned: u64,
    /// Items planned in each second, over the last minute; none: not known yet.
    pub in_per_s: Option<f64>,
    /// Items brought to an end in each second, over the last minute.
    pub out_per_s: Option<f64>,
    /// Its latest runs, oldest first; at most [`RUNS_OF_TASK`].
    pub last: Vec<LastRun>,
    /// The length that 99 of 100 of its last [`RUNS_JUDGED`](super::RUNS_JUDGED) runs that ended
    /// did not exceed, in milliseconds; none: none has ended.
    pub p99_ms: Option<u64>,
    /// What became of its latest slots, newest first; at most [`SLOTS_OF_TASK`].
    pub slots: Vec<SlotRecord>,
}

/// The bounds of one call of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Fuel.
    pub fuel: u64,
    /// Linear memory, in bytes.
    pub memory_bytes: u64,
    /// Wall-clock time, in milliseconds.
    pub wall_ms: u64,
    /// Items of one batch.
    pub batch_items: u32,
    /// How often an item is tried before it is set aside.
    pub attempts: u32,
}

/// Who paused a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pause {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Time,
}

/// What waits of a task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Depth {
    /// In the log: for their turn.
    pub log: u64,
    /// Timers: for their due time.
    pub timers: u64,
    /// Retries: for their next attempt.
    pub retries: u64,
    /// Open dead letters.
    pub dead: u64,
    /// The next due time of a timer.
    pub next_due: Option<Time>,
    /// Since when the oldest item waits that could have been done.
    pub oldest: Option<Time>,
    /// Bytes of rows kept as they were before.
    pub undo_bytes: u64,
}

/// A run of a task, in short.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRun {
    /// Its number.
    pub id: u64,
    /// The slot it ran for.
    pub slot: Time,
    /// When it was started.
    pub started_at: Time,
    /// When it ended; none: it goes on.
    pub ended_at: Option<Time>,
    /// How it stands.
    pub state: RunState,
    /// Items it planned.
    pub planned: u64,
}
