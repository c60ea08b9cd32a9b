//! Slots and runs: decides which slots of a schedule start a run.
//!
//! Decides which slots start a run, which wait, and why the others do not run, so that every slot
//! is explained. Does not decide when slots are ([`crate::cron`]) or what a run does
//! ([`crate::fair`]).
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
mod unusual;

use serde::{Deserialize, Serialize};

pub use admit::{Admission, admit};
pub use decide::{Decision, decide};
pub use explain::explain;
pub use forecast::{Forecast, forecast, took};
pub use policy::{
    ActiveRun, CATCH_UP_RUNS_MAX, CLOCK_BACK_MAX, GRACE_DEFAULT, GRACE_MIN, Leadership, Policy,
    Start, start_of,
};

pub use unscanned::{Past, SCAN_GRACE, Scan, ScanEnd, unscanned_since};
pub use unusual::{UNUSUAL_RUNS, Unusual};

use crate::brake;
use crate::ids::{RunId, TaskName, Tenant, Term};
use crate::mode::Mode;
use crate::time::Time;
use crate::window::Windows;

/// What happens to a slot while the previous run is active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overlap {
    /// The slot is skipped.
    Skip,
    /// The slot waits for the run to end; at most one slot waits.
    Queue,
    /// The runs overlap.
    Allow,
}

/// What happens to slots whose time passed without a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CatchUp {
    /// They are missed.
    Skip,
    /// One run covers all of them.
    Coalesce,
    /// Each of them runs; if there are more than this number, only the latest.
    All(u32),
}

/// A task's state that the store keeps between runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskState {
    /// The task's name in the configuration.
    pub task: TaskName,
    /// The schedule (canonical expression and time zone) that `last_slot` belongs to. If the
    /// configuration has a different one, that schedule is new and counts from now.
    pub schedule: String,
    /// The latest slot that has been decided.
    pub last_slot: Option<Time>,
    /// The pause; none: the task is not paused.
    pub paused: Option<Pause>,
    /// The tenant at which the last run's cycle ended.
    pub tenant_cursor: Option<Tenant>,
    /// Slots that wait for the active run to end, oldest first: at most one with `overlap = queue`,
    /// more only while missed slots are caught up.
    pub queued_slots: Vec<Time>,
}

impl TaskState {
    /// The state of a task that the store has never seen.
    pub fn initial(task: TaskName) -> TaskState {
        TaskState {
            task,
            schedule: String::new(),
            last_slot: None,
            paused: None,
            tenant_cursor: None,
            queued_slots: Vec::new(),
        }
    }
}

/// A task's pause.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Pause {
    /// The operator who paused it.
    pub by: String,
    /// The operator's reason.
    pub reason: String,
    /// When it was paused.
    pub since: Time,
}

/// The author of the pause of a task that is outside its windows.
const WINDOWS: &str = "windows";

impl Pause {
    /// The pause of a task until its next window opens; none: it is open.
    pub fn until_open(windows: &Windows, now: Time) -> Option<Pause> {
        if windows.is_open(now) {
            return None;
        }
        let reason = match windows.opens_at(now) {
            Some(at) => format!("outside its windows: it opens at {at}"),
            None => "outside its windows".to_owned(),
        };
        // Every slot that has not been decided is outside.
        Some(Pause { by: WINDOWS.to_owned(), reason, since: Time::EPOCH })
    }

    /// Whether one of the task's brakes has requested it.
    pub fn is_brake(&self) -> bool {
        self.by == brake::BY
    }

    /// Why a run is not started, in words.
    pub fn words(&self) -> String {
        match self.by.as_str() {
            WINDOWS => self.reason.clone(),
            by => format!("paused by {by} since {}: {}", self.since, self.reason),
        }
    }
}

/// The outcome of a slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum SlotOutcome {
    /// A run was started for it.
    Ran,
    /// It was covered by the run of a later slot (`catch_up = coalesce`).
    Coalesced,
    /// The previous run was still active (`overlap = skip`).
    Skipped,
    /// It waits for the previous run (`overlap = queue`).
    Queued,
    /// There was no leader at its time, and `catch_up` does not cover it.
    Missed,
    /// The task was paused.
    Paused,
    /// The leader lost its leadership between the decision and the start.
    Fenced,
}

impl SlotOutcome {
    /// The word for it, in JSON as well as on screens.
    pub fn as_str(&self) -> &'static str {
        match self {
            SlotOutcome::Ran => "ran",
            SlotOutcome::Coalesced => "coalesced",
            SlotOutcome::Skipped => "skipped",
            SlotOutcome::Queued => "queued",
            SlotOutcome::Missed => "missed",
            SlotOutcome::Paused => "paused",
            SlotOutcome::Fenced => "fenced",
        }
    }
}

/// A row of the slot history. Consecutive slots with equal outcomes share a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SlotRecord {
    /// The task's name in the configuration.
    pub task: TaskName,
    /// The first slot that it covers.
    pub from: Time,
    /// The last slot that it covers.
    pub to: Time,
    /// The number of slots.
    pub count: u64,
    /// Their outcome.
    pub outcome: SlotOutcome,
    /// Why, in words for a person.
    pub reason: String,
    /// The run that was started, or that prevented the start.
    pub run: Option<RunId>,
    /// The term of the leader that decided.
    pub term: Term,
}

impl SlotRecord {
    /// Merges the next row of the same task if it says the same about later slots; returns whether
    /// it did. A row that started a run is never merged.
    pub fn absorb(&mut self, next: &SlotRecord) -> bool {
        let same = self.says_what(next) && self.outcome != SlotOutcome::Ran && self.to < next.from;
        if same {
            self.to = next.to;
            self.count += next.count;
        }
        same
    }

    /// Whether both rows say the same, about whichever slots.
    fn says_what(&self, other: &SlotRecord) -> bool {
        self.task == other.task
            && self.outcome == other.outcome
            && self.reason == other.reason
            && self.run == other.run
            && self.term == other.term
    }

    /// What becomes of the row in a history: of its task, the last row (by `to`, then by age) first,
    /// and every other row that covers the same slots.
    pub fn place(self, history: &[SlotRecord]) -> Placed {
        let covers = |known: &SlotRecord| {
            known.says_what(&self) && known.from <= self.from && known.to >= self.to
        };
        if history.iter().any(covers) {
            return Placed::Known;
        }
        if let Some(mut last) = history.first().cloned()
            && last.absorb(&self)
        {
            return Placed::Last(last);
        }
        Placed::New(self)
    }
}

/// What becomes of a row of decided slots in the stored history.
#[derive(Debug, Clone, PartialEq)]
pub enum Placed {
    /// A row that says so exists; nothing is written.
    Known,
    /// The last row is replaced by this one.
    Last(SlotRecord),
    /// The row is added.
    New(SlotRecord),
}

/// What started a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// A slot of its schedule.
    Schedule,
    /// An operator's command.
    Manual {
        /// The operator.
        by: String,
        /// The operator's reason.
        reason: String,
    },
    /// The start of a leader (tasks with `at_start`).
    Takeover,
    /// The command `besom run`.
    Pass,
}

impl Trigger {
    /// Whether a slot has at most one run of this kind: one on schedule, and one at a takeover.
    pub fn is_of_slot(&self) -> bool {
        match self {
            Trigger::Schedule | Trigger::Takeover => true,
            Trigger::Manual { .. } | Trigger::Pass => false,
        }
    }

    /// The word for it, in JSON as well as on screens.
    pub fn as_str(&self) -> &'static str {
        match self {
            Trigger::Schedule => "schedule",
            Trigger::Manual { .. } => "manual",
            Trigger::Takeover => "takeover",
            Trigger::Pass => "pass",
        }
    }

    /// The operator and the operator's reason, if one requested the run.
    pub fn request(&self) -> Option<(&str, &str)> {
        match self {
            Trigger::Manual { by, reason } => Some((by, reason)),
            Trigger::Schedule | Trigger::Takeover | Trigger::Pass => None,
        }
    }
}

/// A run to be started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NewRun {
    /// The task's name in the configuration.
    pub task: TaskName,
    /// The slot it runs for; the time of the command for a manual one.
    pub slot: Time,
    /// What started the run.
    pub trigger: Trigger,
    /// SHA-256 of the plugin, in hexadecimal.
    pub digest: String,
    /// The task's definition (settings, limits, grants) as JSON; owners execute items by it.
    pub definition: String,
    /// How far it goes by itself. A run in the mode `approve` is held until it is approved.
    pub mode: Mode,
}

/// A run as recorded in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The run's number in the store.
    pub id: RunId,
    /// The task's name in the configuration.
    pub task: TaskName,
    /// The slot that it runs for.
    pub slot: Time,
    /// What started the run.
    pub trigger: Trigger,
    /// The leader's term.
    pub term: Term,
    /// SHA-256 of the plugin, in hexadecimal.
    pub digest: String,
    /// The task's definition as JSON, as of the run's start.
    pub definition: String,
    /// When it was started.
    pub started_at: Time,
    /// When its scan and its items in the log had ended; none: it is active.
    pub ended_at: Option<Time>,
    /// Whether its scan has reached its end.
    pub scan_done: bool,
    /// Its error, if it failed: the scan's error, or `cancelled by ...`.
    pub error: Option<String>,
    /// Items that the run planned.
    pub planned: u64,
    /// Candidates that were already waiting.
    pub deduplicated: u64,
    /// Candidates blocked by a settled skip or an open dead letter of the same version.
    pub blocked: u64,
    /// Its items that are still in the log.
    pub open: u64,
    /// Rows that its scans read.
    pub scanned: u64,
    /// How far it goes by itself.
    pub mode: Mode,
    /// Whether it waits for an approval: the store commits none of its items.
    pub held: bool,
}

/// Slots decided together and their consequences, stored in one transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlotDecision {
    /// Rows of the slot history, merged with an equal last row.
    pub slots: Vec<SlotRecord>,
    /// Runs to be started, in order; the ids come back in the same order. A `Ran` slot
    /// without a run gets the id of the new run of its task and time.
    pub runs: Vec<NewRun>,
    /// The new state of the tasks (all fields but `paused`, which only commands change).
    pub states: Vec<TaskState>,
    /// The state that the decision was based on. If the store's state differs, the decision is a
    /// late copy, or its author has not read what happened since: nothing is written.
    pub seen: Vec<Seen>,
}

impl SlotDecision {
    /// The rows to be written, given the ids of the started runs, in order: a `Ran` row without a
    /// run gets the run of its task and time.
    pub fn rows(&self, started: &[RunId]) -> Vec<SlotRecord> {
        let with_run = |slot: &SlotRecord| {
            let own = |(new, _): &(&NewRun, &RunId)| new.task == slot.task && new.slot == slot.to;
            let ran = slot.outcome == SlotOutcome::Ran;
            let run = || self.runs.iter().zip(started).find(own).filter(|_| ran);
            SlotRecord { run: slot.run.or_else(|| run().map(|(_, id)| *id)), ..slot.clone() }
        };
        self.slots.iter().map(with_run).collect()
    }
}

/// The last decided slot of a task that was paused and is resumed `now`: its schedule counts from
/// now on, because slots in between were paused, not missed.
pub fn last_slot_on_resume(last_slot: Option<Time>, now: Time) -> Time {
    last_slot.map_or(now, |last| last.max(now))
}

/// The state of a task's slots when a decision about them was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// The task's name in the configuration.
    pub task: TaskName,
    /// The latest slot that was decided.
    pub last_slot: Option<Time>,
    /// The slots that were waiting.
    pub queued_slots: Vec<Time>,
}

impl Seen {
    /// The state that `state` describes.
    pub fn of(state: &TaskState) -> Seen {
        let TaskState { task, last_slot, queued_slots, .. } = state.clone();
        Seen { task, last_slot, queued_slots }
    }

    /// Whether the store is in this state; an unknown task is in its initial state.
    pub fn is_at(&self, last_slot: Option<Time>, queued_slots: &[Time]) -> bool {
        self.last_slot == last_slot && self.queued_slots == queued_slots
    }
}

/// The end of the scan of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndOfScan {
    /// The task of the run.
    pub task: TaskName,
    /// The run whose scan has ended.
    pub run: RunId,
    /// How many items the store has confirmed as planned in the run; 0: it is not compared.
    pub planned: u64,
    /// The tenant after which the next scan begins.
    pub cursor: Option<Tenant>,
    /// The error, if the scan failed.
    pub error: Option<String>,
}

impl EndOfScan {
    /// The end of a scan without an error, whose number of items is not compared.
    pub fn of(task: TaskName, run: RunId) -> EndOfScan {
        EndOfScan { task, run, planned: 0, cursor: None, error: None }
    }

    /// Checks that the store has the run, and all that the leader knows it to have planned. `planned`: how many
    /// items it has planned according to the store; `None`: the task has no such run.
    ///
    /// # Errors
    /// What the store lacks: it was restored to an earlier state.
    pub fn check(&self, planned: Option<u64>) -> Result<(), String> {
        let EndOfScan { task, run, planned: told, .. } = self;
        match planned {
            None => Err(format!("{task} has no run {run}")),
            Some(planned) if planned < *told => {
                Err(format!("run {run} of {task} has planned {planned} items, not {told}"))
            }
            Some(_) => Ok(()),
        }
    }
}
