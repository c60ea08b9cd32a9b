//! The outward model: the types that the admin API serialises, the dashboard shows and the command
//! line prints, so that each fact has one shape and one set of fields. The command line prints
//! instants as RFC 3339 text; on the wire they are numbers ([`Time`]).
//!
//! A [`Snapshot`] is the state of a deployment at one moment. It is gathered from the store, the
//! coordination and every node's report; nothing is decided by it. Rows are behind [`Arc`], so that
//! successive snapshots share unchanged rows. What is unbounded in a deployment (dead letters, runs,
//! events) is limited to its newest entries or grouped; the rest has to be queried.
//!
//! ```text
//! node ── Report ──> store ──┐
//! store, coordination ───────┼─> Snapshot ── diff ──> Patch ──> another process ── apply ──> Snapshot
//! ```
//!
//! Times are microseconds since the epoch ([`Time`]). Text from plugins and users' keys is
//! unmodified: the code that displays it has to escape it.

mod attention;
mod dead;
mod detail;
mod event;
mod held;
mod leadership;
mod message;
pub mod meter;
pub mod metrics;
mod node;
mod paced;
mod patch;
mod report;
mod ring;
mod run;
mod task;
#[cfg(test)]
mod tests;
mod topic;

use std::collections::BTreeSet;
use std::sync::Arc;

use besom_core::plan::Trigger;
use besom_core::undo;
use serde::{Deserialize, Serialize};

pub use attention::{
    Attention, SILENT_MAX_DEFAULT, Subject, Thresholds, Urgency, attention, span, unlike_leader,
};
pub use besom_core::plan::Pause;
pub use dead::DeadGroup;
pub use detail::{
    Answer, ConfigFile, DEAD_PAGE, DeadPage, DepthSample, DiffKind, DiffLine, Done, Edit, Edited,
    Explained, ItemRow, LOG_PAGE, Letter, LogLine, LogPage, Problem, Query, RUNS_JUDGED, RUNS_PAGE,
    RUNS_TASKS_MAX, Refusal, RunDetail, RunPage, SLOTS_PAGE, Staying, TaskPast, payload_text,
};
pub use event::{Event, EventKind};
pub use held::{Cause, Held};
pub use leadership::{Leader, Leadership, TermRow};
pub use message::Message;
pub use node::{Missing, Node, NodeState, Role};
pub use paced::Paced;
pub use patch::{Frame, Mismatch, Patch, Rows, diff};
pub use report::{
    CODE_KEPT, ClockReport, Cut, HotKey, LATENCY_BOUNDS_US, Latency, LeftOut, RATE_SAMPLE_S,
    RATE_SAMPLES, Report, RunAtNode, of_code,
};
pub use ring::{Owner, Ring};
pub use run::{Run, RunState, Stop};
pub use task::{
    Depth, HeldBack, LastRun, Limits, RUNS_OF_TASK, RefusedPlan, SLOTS_OF_TASK, Task, WaitingReview,
};

pub use topic::Topic;

use besom_core::time::Time;

/// The version of this model on the wire. A reader with another version reports that and continues:
/// unknown fields are ignored, missing fields have their defaults.
pub const MODEL: u32 = 1;

/// Runs in a snapshot: the active ones, then the newest.
pub const RUNS_MAX: usize = 200;
/// Groups of dead letters in a snapshot, newest first.
pub const DEAD_GROUPS_MAX: usize = 200;
/// Topics in a snapshot.
pub const TOPICS_MAX: usize = 100;
/// Events in a snapshot, newest first.
pub const EVENTS_MAX: usize = 200;

/// A deployment at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Snapshot {
    /// The [`MODEL`] of the host that gathered it.
    pub model: u32,
    /// When it was gathered, by the store's clock (by the answering host's while the store is
    /// unreachable).
    pub at: Time,
    /// The cluster's name; the database's file name on one machine.
    pub cluster: String,
    /// The name of the host that answers.
    pub host: String,
    /// The version of the program that answers.
    pub version: String,
    /// Whether requests on this connection may change anything.
    pub readonly: bool,
    /// What the answering host cannot reach; the parts that depend on it are outdated.
    pub missing: Vec<Missing>,
    /// The leader, and earlier leaderships.
    pub leadership: Arc<Leadership>,
    /// The nodes, in the order of their names.
    pub nodes: Vec<Arc<Node>>,
    /// The tasks of the leader's configuration, then orphaned ones, each in the order of their
    /// names.
    pub tasks: Vec<Arc<Task>>,
    /// The pause of all tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_paused: Option<Pause>,
    /// Runs, newest first; at most [`RUNS_MAX`].
    pub runs: Vec<Arc<Run>>,
    /// Open dead letters by task and error, newest first; at most [`DEAD_GROUPS_MAX`].
    pub dead: Vec<Arc<DeadGroup>>,
    /// The topics with a route, and those of which messages wait, in the order of their names; at most [`TOPICS_MAX`].
    pub topics: Vec<Arc<Topic>>,
    /// The owner of each partition.
    pub ring: Arc<Ring>,
    /// Events, newest first; at most [`EVENTS_MAX`].
    pub events: Vec<Arc<Event>>,
}

impl Snapshot {
    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Arc<Node>> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// The task of that name.
    pub fn task(&self, name: &str) -> Option<&Arc<Task>> {
        self.tasks.iter().find(|task| task.name == name)
    }

    /// Whether what a run has planned waits for an approval.
    pub fn waits(&self, run: &Run) -> bool {
        run.state.is_active() && self.task(&run.task).is_some_and(|task| task.waits(run.id))
    }

    /// Why a run does not go on although it has not ended; none: it goes on, or waits for an approval.
    pub fn stop(&self, run: &Run) -> Option<Stop> {
        let stands = run.state.is_active() && !self.waits(run);
        self.task(&run.task).filter(|_| stands)?.stop()
    }

    /// The run of that number.
    pub fn run(&self, id: u64) -> Option<&Arc<Run>> {
        self.runs.iter().find(|run| run.id == id)
    }

    /// The node at which a task that yields has fallen the furthest, and its pace there; none: it has fallen nowhere.
    pub fn slowed(&self, task: &str) -> Option<(&str, &Paced)> {
        let found = self.nodes.iter().flat_map(|node| {
            let paces = node.report.iter().flat_map(|report| &report.paces);
            let slowed = paces.filter(|pace| pace.task == task && pace.reason.is_some());
            slowed.map(|pace| (node.name.as_str(), pace))
        });
        found.min_by_key(|(_, pace)| pace.rows_per_second)
    }

    /// The terms of passes (`besom run`, and `besom undo` without a host), as far as their runs are known. They are no
    /// changes of leadership: each pass leads under a term of its own, as a person wants it.
    pub fn passes(&self) -> BTreeSet<u64> {
        let is_undo = |run: &Run| run.task == undo::TASK && run.trigger.request().is_some();
        let (passes, others): (Vec<&Run>, Vec<&Run>) =
            self.runs.iter().map(|run| &**run).partition(|run| run.trigger == Trigger::Pass);
        let (undone, others): (Vec<_>, Vec<_>) = others.into_iter().partition(|run| is_undo(run));
        // A host undoes as well.
        let leader = self.leadership.leader.iter().map(|leader| leader.term);
        let led: BTreeSet<u64> = others.iter().map(|run| run.term).chain(leader).collect();
        let undone = undone.iter().map(|run| run.term).filter(|term| !led.contains(term));
        passes.iter().map(|run| run.term).chain(undone).collect()
    }

    /// Waiting items that could be executed now or at their next attempt (log and retries), of all
    /// tasks.
    pub fn queued(&self) -> u64 {
        self.tasks.iter().map(|task| task.depth.log + task.depth.retries).sum()
    }

    /// Open dead letters of all tasks.
    pub fn dead_letters(&self) -> u64 {
        self.tasks.iter().map(|task| task.depth.dead).sum()
    }
}
