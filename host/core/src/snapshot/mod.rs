//! What is known of a deployment at one moment: the one model that the admin API, the
//! dashboard and the command line share.
//!
//! It is a picture, gathered from the store, the coordination and what every node says of
//! itself with its sign of life; nothing is decided by it. Rows are behind [`Arc`], so that
//! pictures of many moments share what has not changed. What is unbounded in a deployment
//! (dead letters, runs, events) is here as its newest so many, or as groups; the rest is
//! asked for.
//!
//! ```text
//! node ── Report ──> store ──┐
//! store, coordination ───────┼─> Snapshot ── diff ──> Patch ──> another process ── apply ──> Snapshot
//! ```
//!
//! Times are microseconds since the epoch ([`Time`]). Text of plugins and of users' keys is as
//! it came: whoever shows it makes it harmless first.

mod attention;
mod dead;
mod detail;
mod event;
mod held;
mod leadership;
mod node;
mod patch;
mod report;
mod ring;
mod run;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use attention::{Attention, SILENT_MAX_DEFAULT, Subject, Thresholds, Urgency, attention, span};
pub use dead::DeadGroup;
pub use detail::{
    Answer, ConfigFile, DEAD_PAGE, DeadPage, DepthSample, DiffKind, DiffLine, Done, Edit, Edited,
    Explained, ItemRow, LOG_PAGE, Letter, LogLine, LogPage, Problem, Query, RUNS_JUDGED, RUNS_PAGE,
    RUNS_TASKS_MAX, Refusal, RunDetail, RunPage, SLOTS_PAGE, TaskPast,
};
pub use event::{Event, EventKind};
pub use held::{Cause, Held};
pub use leadership::{Leader, Leadership, TermRow};
pub use node::{Missing, Node, NodeState};
pub use patch::{Frame, Mismatch, Patch, Rows, diff};
pub use report::{
    ClockReport, HotKey, LATENCY_BOUNDS_US, Latency, RATE_SAMPLE_S, RATE_SAMPLES, Report, RunAtNode,
};
pub use ring::{Owner, Ring};
pub use run::{Run, RunState};
pub use task::{Depth, LastRun, Limits, Pause, RUNS_OF_TASK, SLOTS_OF_TASK, Task};

use crate::time::Time;

/// The version of this model on the wire. A reader of another one says so and goes on: fields
/// that it does not know are left out, fields that it misses have their defaults.
pub const MODEL: u32 = 1;

/// Runs in a snapshot: those that go on, then the newest.
pub const RUNS_MAX: usize = 200;
/// Groups of dead letters in a snapshot, newest first.
pub const DEAD_GROUPS_MAX: usize = 200;
/// Events in a snapshot, newest first.
pub const EVENTS_MAX: usize = 200;

/// A deployment at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// [`MODEL`] of whoever gathered it.
    pub model: u32,
    /// When, by the store's clock (by the answering host's while the store is away).
    pub at: Time,
    /// The cluster's name; the database's file name on one machine.
    pub cluster: String,
    /// The lasting name of the host that answers.
    pub host: String,
    /// The version of the program that answers.
    pub version: String,
    /// Whether requests on this connection may change anything.
    pub readonly: bool,
    /// What the answering host cannot reach; what it told of these is of earlier.
    pub missing: Vec<Missing>,
    /// Who leads.
    pub leadership: Arc<Leadership>,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Arc<Node>>,
    /// The tasks of the leader's configuration, then orphaned ones, each in the order of their
    /// names.
    pub tasks: Vec<Arc<Task>>,
    /// Runs, newest first; at most [`RUNS_MAX`].
    pub runs: Vec<Arc<Run>>,
    /// Open dead letters by task and error, newest first; at most [`DEAD_GROUPS_MAX`].
    pub dead: Vec<Arc<DeadGroup>>,
    /// Who owns which partition.
    pub ring: Arc<Ring>,
    /// What has happened, newest first; at most [`EVENTS_MAX`].
    pub events: Vec<Arc<Event>>,
}

impl Snapshot {
    /// The node of that lasting name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The task of that name.
    pub fn task(&self, name: &str) -> Option<&Arc<Task>> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// The run of that number.
    pub fn run(&self, id: u64) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// Items that wait for nothing but their turn (log and retries), of all tasks.
    pub fn queued(&self) -> u64 {
        self.tasks.iter().map(|task| task.depth.log + task.depth.retries).sum()
    }

    /// Open dead letters of all tasks.
    pub fn dead_letters(&self) -> u64 {
        self.tasks.iter().map(|task| task.depth.dead).sum()
    }
}
