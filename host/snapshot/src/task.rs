//! A task, its next slot and its waiting items.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::run::{RunState, Stop};
use besom_core::ids::RunId;
use besom_core::mode::Mode;
use besom_core::plan::{self, Pause, SlotRecord};
use besom_core::review::{Review, State};
use besom_core::time::Time;
use besom_core::window::Windows;

/// Ended or active runs shown with a task.
pub const RUNS_OF_TASK: usize = 20;
/// Slot records shown with a task.
pub const SLOTS_OF_TASK: usize = 64;

/// A task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Task {
    /// The task's name in the configuration.
    pub name: String,
    /// The plugin that it uses.
    pub plugin: String,
    /// SHA-256 of the plugin, in hexadecimal; empty: unknown to the answering host.
    pub digest: String,
    /// The schedule's expression; none: it runs by trigger only.
    pub schedule: Option<String>,
    /// The time zone of the expression.
    pub timezone: String,
    /// `skip`, `queue`, `allow`.
    pub overlap: String,
    /// `skip`, `coalesce`, or the number of missed slots that are run.
    pub catch_up: String,
    /// The maximum random delay of a run after its slot, in milliseconds.
    pub jitter_ms: u64,
    /// The name of its lane, of [`besom_core::lane::NAMES`].
    pub lane: String,
    /// The limits of a call.
    pub limits: Limits,
    /// Its pause, or that of all tasks; none: it is not paused.
    pub paused: Option<Pause>,
    /// Whether no configuration defines the task although items of it are waiting.
    pub orphaned: bool,
    /// The next slot; none: the task is paused, runs by trigger only, or is orphaned.
    pub next: Option<Time>,
    /// How far its runs go by themselves.
    pub mode: Mode,
    /// What one of its runs has planned and waits for an approval.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub review: Option<WaitingReview>,
    /// What its last run has planned although the database refuses all of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedPlan>,
    /// What its last run has left out, because an undo holds it back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_back: Option<HeldBack>,
    /// When the task may scan and execute; none: always.
    pub windows: Windows,
    /// When the next window opens; none: one is open, or the task has none.
    pub opens_at: Option<Time>,
    /// Since when its tables have not been scanned as scheduled: items that became due since then
    /// are in no queue. None: they have been scanned.
    pub unscanned_since: Option<Time>,
    /// The numbers of its waiting items.
    pub depth: Depth,
    /// Items planned since the store was created.
    pub planned: u64,
    /// Items planned per second over the last minute; none: not known yet.
    pub in_per_s: Option<f64>,
    /// Items that ended per second over the last minute.
    pub out_per_s: Option<f64>,
    /// Its latest runs, oldest first; at most [`RUNS_OF_TASK`].
    pub last: Vec<LastRun>,
    /// The 99th percentile of the durations of its last [`RUNS_JUDGED`](super::RUNS_JUDGED) ended
    /// runs, in milliseconds; none: none has ended.
    pub p99_ms: Option<u64>,
    /// The outcomes of its latest slots, newest first; at most [`SLOTS_OF_TASK`].
    pub slots: Vec<SlotRecord>,
}

impl Task {
    /// Whether a brake has stopped it.
    pub fn is_braked(&self) -> bool {
        self.paused.as_ref().is_some_and(Pause::is_brake)
    }

    /// Why its runs do not go on.
    pub fn stop(&self) -> Option<Stop> {
        Stop::of(self.paused.as_ref(), self.opens_at)
    }

    /// Whether what this run has planned waits for an approval; until then, a held run plans.
    pub fn waits(&self, run: u64) -> bool {
        self.review.as_ref().is_some_and(|review| review.run.0 == run)
    }
}

/// A review that waits for a decision, in short.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingReview {
    /// The run that it is about.
    pub run: RunId,
    /// When it was opened.
    pub opened_at: Time,
    /// When it lapses.
    pub expires_at: Option<Time>,
    /// The number of items that were planned.
    pub items: u64,
    /// What the run would change, in words.
    pub summary: String,
    /// Why a brake would stop the run and pause its task; none: no limit is known to be exceeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brake: Option<String>,
}

impl From<&Review> for WaitingReview {
    fn from(review: &Review) -> WaitingReview {
        WaitingReview {
            run: review.run,
            opened_at: review.opened_at,
            expires_at: review.expires_at,
            items: review.plan.items,
            summary: review.plan.words(),
            brake: review.plan.brake.clone(),
        }
    }
}

/// A plan of which the database refuses so much that nothing would be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusedPlan {
    /// The run that has planned it.
    pub run: RunId,
    /// The number of items that the database refuses.
    pub items: u64,
    /// Why: the most frequent reason.
    pub reason: String,
}

impl RefusedPlan {
    /// What a review that is done says about refusals; none: it is not done, or nothing was refused.
    pub fn of(review: &Review) -> Option<RefusedPlan> {
        let (items, reason) = review.plan.refused().filter(|_| review.state == State::Done)?;
        Some(RefusedPlan { run: review.run, items, reason: reason.to_owned() })
    }

    /// It in words: `run 5 would change nothing: the database refuses 8 items`.
    pub fn words(&self) -> String {
        let items = besom_core::command::counted(self.items, "item");
        format!("run {} would change nothing: the database refuses {items}", self.run)
    }
}

/// Candidates that the last run of a task has left out, because an undo holds them back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldBack {
    /// Their number.
    pub candidates: u64,
    /// What was undone, as `besom undo` takes it.
    pub undone: String,
}

impl HeldBack {
    /// In words, with the command that lets the task plan them again.
    pub fn words(&self) -> String {
        let candidates = besom_core::command::counted(self.candidates, "candidate");
        let (are, they) =
            if self.candidates == 1 { ("is", "it was") } else { ("are", "they were") };
        let undone = &self.undone;
        format!(
            "{candidates} {are} held back, because {they} undone: `besom undo {undone} --plan-again`"
        )
    }
}

/// The limits of one call of a plugin.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Limits {
    /// Fuel per call; 0: not counted.
    pub fuel: u64,
    /// Linear memory, in bytes.
    pub memory_bytes: u64,
    /// Wall-clock time, in milliseconds.
    pub wall_ms: u64,
    /// Items per batch at most.
    pub batch_items: u32,
    /// Executions before an item is set aside.
    pub attempts: u32,
}

/// The numbers of a task's waiting items.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Depth {
    /// Items in the log, waiting for their turn.
    pub log: u64,
    /// Timers, waiting for their due time.
    pub timers: u64,
    /// Retries, waiting for their next attempt.
    pub retries: u64,
    /// Open dead letters.
    pub dead: u64,
    /// The due time of the next timer.
    pub next_due: Option<Time>,
    /// Since when the oldest item that could be executed has been waiting.
    pub oldest: Option<Time>,
    /// Bytes of stored before-images.
    pub undo_bytes: u64,
    /// Rows of the product that the task has ever changed.
    pub rows: u64,
}

/// A run of a task, in short.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LastRun {
    /// The number that the store assigned.
    pub id: u64,
    /// The slot it ran for.
    pub slot: Time,
    /// When it was started.
    pub started_at: Time,
    /// When it ended; none: it is active.
    pub ended_at: Option<Time>,
    /// How it stands.
    pub state: RunState,
    /// Items it planned.
    pub planned: u64,
    /// How far it went by itself.
    pub mode: Mode,
    /// Whether its task is known to have been stopped or resumed while it was active.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stood: bool,
}

impl LastRun {
    /// How long it took; none: it is active, it waited for an approval, or it stood, which takes as long as
    /// people do.
    pub fn took(&self) -> Option<Duration> {
        plan::took(self.started_at, self.ended_at, self.mode).filter(|_| !self.stood)
    }
}
