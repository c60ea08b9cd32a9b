//! A run.

use serde::{Deserialize, Serialize};

use crate::plan::{self, Scan, ScanEnd, Trigger};
use crate::time::Time;

/// How a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its scan looks for candidates.
    #[default]
    Scanning,
    /// Its scan is done; items wait for their turn.
    Executing,
    /// It has ended well.
    Ok,
    /// Its scan has failed, or it was cancelled.
    Failed,
    /// Of a later version of this model.
    #[serde(other)]
    Unknown,
}

impl RunState {
    /// How a run stands by what the store knows of it.
    pub fn of(run: &plan::Run) -> RunState {
        match (run.ended_at, &run.error, run.scan_done) {
            (_, Some(_), _) => RunState::Failed,
            (Some(_), None, _) => RunState::Ok,
            (None, None, false) => RunState::Scanning,
            (None, None, true) => RunState::Executing,
        }
    }

    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Scanning => "scanning",
            RunState::Executing => "executing",
            RunState::Ok => "ok",
            RunState::Failed => "failed",
            RunState::Unknown => "unknown",
        }
    }

    /// Whether it has not ended.
    pub fn is_active(self) -> bool {
        matches!(self, RunState::Scanning | RunState::Executing)
    }
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Its number.
    pub id: u64,
    /// The task.
    pub task: String,
    /// The slot it runs for.
    pub slot: Time,
    /// What started it.
    pub trigger: Trigger,
    /// The leader's term.
    pub term: u64,
    /// When it was started.
    pub started_at: Time,
    /// When its scan and its log items had ended.
    pub ended_at: Option<Time>,
    /// How it stands.
    pub state: RunState,
    /// How it ended, if not well.
    pub error: Option<String>,
    /// Items planned by it.
    pub planned: u64,
    /// Candidates that were waiting already.
    pub deduplicated: u64,
    /// Candidates left alone: settled, or set aside, in this version.
    pub blocked: u64,
    /// Its items that are still in the log.
    pub open: u64,
    /// Rows that its scans looked at.
    pub scanned: u64,
}

impl Run {
    /// What it says of whether the tables were looked at.
    pub fn scan(&self) -> Scan {
        let ended = match self.state {
            RunState::Scanning | RunState::Unknown => None,
            RunState::Failed => Some(ScanEnd::Failed),
            RunState::Executing | RunState::Ok => Some(ScanEnd::Complete),
        };
        Scan { slot: self.slot, started_at: self.started_at, ended }
    }
}
