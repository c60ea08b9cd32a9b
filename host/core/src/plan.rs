//! Slots and runs: what a schedule's times become.
//!
//! Decides which slots start a run, which wait, and why the others do not run, so that
//! every slot is explained. Does not decide when slots are ([`crate::cron`]), nor what a run
//! does ([`crate::fair`]).
//!
//! ```text
//!             ┌─ Ran
//!   slot ─────┼─ Queued ──> Ran | Skipped | Missed | Paused
//!             └─ Skipped | Coalesced | Missed | Paused | Fenced
//! ```
//! `Queued` is the only outcome that is followed by another row for the same slot.

mod admit;
mod decide;
mod explain;
pub mod forecast;
mod policy;
#[cfg(test)]
mod property;
#[cfg(test)]
mod tests;
mod unscanned;

use serde::{Deserialize, Serialize};

pub use admit::{Admission, admit};
pub use decide::{Decision, decide};
pub use explain::explain;
pub use forecast::{Forecast, forecast};
pub use policy::{
    ActiveRun, CATCH_UP_RUNS_MAX, CLOCK_BACK_MAX, GRACE_DEFAULT, GRACE_MIN, Leadership, Policy,
    Start, start_of,
};

pub use unscanned::{SCAN_GRACE, Scan, ScanEnd, unscanned_since};

use crate::ids::{RunId, TaskName, Tenant, Term};
use crate::time::Time;

/// What happens to a slot while the run before is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The slot is skipped.
    Skip,
    /// The slot waits; at most one does.
    Queue,
    /// Both run.
    Allow,
}

/// What happens to slots that passed while nobody led.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are missed.
    Skip,
    /// One run stands for all of them.
    Coalesce,
    /// Each is run, the latest so many.
    All(u32),
}

/// What the store remembers of a task between runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// The task.
    pub task: TaskName,
    /// The schedule (expression and time zone, canonical) that `last_slot` belongs to. A
    /// different one in the configuration is a new schedule and counts from now.
    pub schedule: String,
    /// The last planned time about which something was decided.
    pub last_slot: Option<Time>,
    /// Set while the task is paused.
    pub paused: Option<Pause>,
    /// The tenant at which the last run's cycle ended.
    pub tenant_cursor: Option<Tenant>,
    /// Slots that wait for the active run to end, oldest first: at most one for
    /// `overlap = queue`, more only while missed slots are being caught up.
    pub queued_slots: Vec<Time>,
}

/// Who paused a task, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Pause {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// Since when.
    pub since: Time,
}

/// What became of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SlotOutcome {
    /// A run was started for it.
    Ran,
    /// It was folded into the run of a later slot (`catch_up = coalesce`).
    Coalesced,
    /// The run before was still active (`overlap = skip`).
    Skipped,
    /// It waits for the run before (`overlap = queue`).
    Queued,
    /// No leader was there at its time, and `catch_up` does not ask for it.
    Missed,
    /// The task was paused.
    Paused,
    /// The leader lost its leadership between deciding and starting.
    Fenced,
}

/// A row of the slot history. Equal consecutive outcomes share one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// The task.
    pub task: TaskName,
    /// The first slot it speaks of.
    pub from: Time,
    /// The last.
    pub to: Time,
    /// How many.
    pub count: u64,
    /// What became of them.
    pub outcome: SlotOutcome,
    /// Why, in words for a person.
    pub reason: String,
    /// The run that was started, or was in the way.
    pub run: Option<RunId>,
    /// The term of the leader that decided.
    pub term: Term,
}

impl SlotRecord {
    /// Takes in the next row of the same task if it says the same about later slots: equal
    /// consecutive outcomes share one row. A row that started a run stays alone.
    pub fn absorb(&mut self, next: &SlotRecord) -> bool {
        let same = self.task == next.task
            && self.outcome == next.outcome
            && self.outcome != SlotOutcome::Ran
            && self.reason == next.reason
            && self.run == next.run
            && self.term == next.term
            && self.to < next.from;
        if same {
            self.to = next.to;
            self.count += next.count;
        }
        same
    }
}

/// What started a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Its schedule.
    Schedule,
    /// A person, by a command.
    Manual {
        /// Who.
        by: String,
        /// Why.
        reason: String,
    },
    /// The start of a leader (tasks that plan at once at a takeover).
    Takeover,
    /// `besom run`.
    Pass,
}

/// A run to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRun {
    /// The task.
    pub task: TaskName,
    /// The slot it runs for; the time of the command for a manual one.
    pub slot: Time,
    /// What started it.
    pub trigger: Trigger,
    /// SHA-256 of the plugin, in hexadecimal.
    pub digest: String,
    /// The task's definition (settings, limits, grants) as JSON: owners act by this one.
    pub definition: String,
}

/// A run as the store knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number.
    pub id: RunId,
    /// The task.
    pub task: TaskName,
    /// The slot it runs for.
    pub slot: Time,
    /// What started it.
    pub trigger: Trigger,
    /// The leader's term.
    pub term: Term,
    /// SHA-256 of the plugin.
    pub digest: String,
    /// The definition it runs by.
    pub definition: String,
    /// When it was started.
    pub started_at: Time,
    /// When its scan and its log items had ended.
    pub ended_at: Option<Time>,
    /// Whether its scan has reached its end.
    pub scan_done: bool,
    /// How it ended, if not well: the error of its scan, `cancelled by ...`.
    pub error: Option<String>,
    /// Items planned by it.
    pub planned: u64,
    /// Candidates that were waiting already.
    pub deduplicated: u64,
    /// Candidates blocked by a settled skip or an open dead letter of the same version.
    pub blocked: u64,
    /// Its items that are still in the log.
    pub open: u64,
    /// Rows that its scans looked at.
    pub scanned: u64,
}

/// Slots decided together, and what follows from them, in one transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlotDecision {
    /// Rows of the slot history (merged with an equal last row).
    pub slots: Vec<SlotRecord>,
    /// Runs to be started, in order; the ids come back in the same order. A `Ran` slot
    /// without a run gets the id of the new run of its task and time.
    pub runs: Vec<NewRun>,
    /// The state of the tasks from now on (all fields but `paused`, which only commands
    /// change).
    pub states: Vec<TaskState>,
    /// From where it was decided. A decision from somewhere else than where the store stands is
    /// a late copy, or that of somebody who has not read what happened since: nothing of it is
    /// written.
    pub seen: Vec<Seen>,
}

/// Where the slots of a task stood when something was decided about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The task.
    pub task: TaskName,
    /// Up to where its slots were decided.
    pub last_slot: Option<Time>,
    /// Slots that waited.
    pub queued_slots: Vec<Time>,
}

impl Seen {
    /// Where that state stands.
    pub fn of(state: &TaskState) -> Seen {
        let TaskState { task, last_slot, queued_slots, .. } = state.clone();
        Seen { task, last_slot, queued_slots }
    }

    /// Whether the store stands there; a task that it has not seen yet stands at the beginning.
    pub fn is_at(&self, last_slot: Option<Time>, queued_slots: &[Time]) -> bool {
        self.last_slot == last_slot && self.queued_slots == queued_slots
    }
}
