//! A run as the snapshot shows it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use besom_core::mode::Mode;
use besom_core::plan::{self, Pause, Scan, ScanEnd, Trigger};
use besom_core::review::State;
use besom_core::time::Time;

/// The state of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its scan looks for candidates.
    #[default]
    Scanning,
    /// Its scan has ended; its items are being executed.
    Executing,
    /// It has ended without an error.
    Ok,
    /// Nothing of it was executed: what it had planned was rejected.
    Rejected,
    /// Nothing of it was executed: what it had planned was not approved in time, or is of a rule before.
    Lapsed,
    /// Its scan has failed, or the run was cancelled.
    Failed,
    /// Of a later version of this model.
    #[serde(other)]
    Unknown,
}

impl RunState {
    /// The word for it in output and JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Scanning => "scanning",
            RunState::Executing => "executing",
            RunState::Ok => "ok",
            RunState::Rejected => "rejected",
            RunState::Lapsed => "lapsed",
            RunState::Failed => "failed",
            RunState::Unknown => "unknown",
        }
    }

    /// How a run stands that was never released, by the end of its review.
    #[must_use]
    pub fn by_review(self, review: State) -> RunState {
        match (self, review) {
            (RunState::Rejected, State::Lapsed) => RunState::Lapsed,
            // Nothing would have been changed.
            (RunState::Rejected, State::Done) => RunState::Ok,
            (state, _) => state,
        }
    }

    /// Whether it has not ended.
    pub fn is_active(self) -> bool {
        matches!(self, RunState::Scanning | RunState::Executing)
    }
}

/// Why the runs of a task do not go on: a pause, or its windows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stop {
    /// `braked`, `paused` or `closed`.
    pub word: &'static str,
    /// The reason.
    pub why: String,
}

impl Stop {
    /// By the pause of a task or of all tasks, and by the time at which the task's next window opens.
    pub fn of(paused: Option<&Pause>, opens_at: Option<Time>) -> Option<Stop> {
        let (word, why) = match (paused, opens_at) {
            (Some(pause), _) if pause.is_brake() => {
                ("braked", format!("stopped by a brake: {}", pause.reason))
            }
            (Some(pause), _) => ("paused", format!("paused by {}: {}", pause.by, pause.reason)),
            (None, Some(at)) => ("closed", format!("outside its windows: it opens at {at}")),
            (None, None) => return None,
        };
        Some(Stop { word, why })
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// The run's number in the store.
    pub id: u64,
    /// The task's name in the configuration.
    pub task: String,
    /// The slot that it runs for.
    pub slot: Time,
    /// What started the run.
    pub trigger: Trigger,
    /// The leader's term.
    pub term: u64,
    /// SHA-256 of the plugin, in hexadecimal; empty: unknown to the answering host.
    #[serde(default)]
    pub plugin_digest: String,
    /// When it was started.
    pub started_at: Time,
    /// When its scan and its items in the log had ended; none: it is active.
    pub ended_at: Option<Time>,
    /// How it stands.
    pub state: RunState,
    /// Its error, if it failed.
    pub error: Option<String>,
    /// Items planned by it.
    pub planned: u64,
    /// Candidates that were already waiting.
    pub deduplicated: u64,
    /// Candidates left alone because this version was settled or set aside.
    pub blocked: u64,
    /// Its items that are still in the log.
    pub open: u64,
    /// Rows that its scans read.
    pub scanned: u64,
    /// How far it goes by itself.
    pub mode: Mode,
    /// Whether what it has planned waits for an approval.
    pub held: bool,
}

impl From<&plan::Run> for Run {
    fn from(run: &plan::Run) -> Run {
        Run {
            id: run.id.0,
            task: run.task.to_string(),
            slot: run.slot,
            trigger: run.trigger.clone(),
            term: run.term.0,
            plugin_digest: run.digest.clone(),
            started_at: run.started_at,
            ended_at: run.ended_at,
            state: match (run.ended_at, &run.error, run.scan_done) {
                (_, Some(_), _) => RunState::Failed,
                // Without a plan there was nothing to decide.
                (Some(_), None, _) if run.held && run.planned > 0 => RunState::Rejected,
                (Some(_), None, _) => RunState::Ok,
                (None, None, false) => RunState::Scanning,
                (None, None, true) => RunState::Executing,
            },
            error: run.error.clone(),
            planned: run.planned,
            deduplicated: run.deduplicated,
            blocked: run.blocked,
            open: run.open,
            scanned: run.scanned,
            mode: run.mode,
            held: run.held,
        }
    }
}

impl Run {
    /// How long it took; none: it is active, or it waited for an approval, which takes as long as people do.
    pub fn took(&self) -> Option<Duration> {
        plan::took(self.started_at, self.ended_at, self.mode)
    }

    /// What the run says about whether the tables were scanned.
    pub fn scan(&self) -> Scan {
        let ended = match self.state {
            RunState::Scanning | RunState::Unknown => None,
            RunState::Failed => Some(ScanEnd::Failed),
            RunState::Executing | RunState::Ok | RunState::Rejected | RunState::Lapsed => {
                Some(ScanEnd::Complete)
            }
        };
        Scan { slot: self.slot, started_at: self.started_at, ended }
    }
}
