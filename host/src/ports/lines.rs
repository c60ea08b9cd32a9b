//! What guests log in a run, as the store keeps it.
//!
//! A run's lines are bounded: the newest stay, because the end of a run tells more of what
//! went wrong than its beginning, and whatever goes is counted.

use std::fmt;
use std::sync::Arc;

use besom_core::ids::{RunId, TaskName};
use besom_core::snapshot::LogLine;
use besom_core::time::Time;

/// Lines kept of a run.
pub const LINES_MAX_DEFAULT: u32 = 1_000;

/// A line to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine {
    /// The run.
    pub run: RunId,
    /// When it was logged, by the node's clock.
    pub at: Time,
    /// On which node: its lasting name.
    pub node: String,
    /// `trace`, `debug`, `info`, `warn`, `error`.
    pub level: &'static str,
    /// What it said.
    pub text: String,
    /// Lines of this node and run that were dropped just before it.
    pub dropped: u64,
}

/// Lines of a run, as they were kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunLines {
    /// In the order of their numbers.
    pub lines: Vec<LogLine>,
    /// Lines of the whole run that are not kept: dropped by their node, or gone to make room.
    pub lost: u64,
}

/// Where the lines of guests go. Whoever calls it is a guest, which never waits for its log.
pub trait LineSink: Send + Sync {
    /// Takes a line of a task, or drops and counts it.
    fn line(&self, task: &TaskName, run: RunId, level: &'static str, text: &str);
}

/// The log of the run that a call of a guest counts for. The default is a call outside of any
/// run, whose lines are in the host's own log only.
#[derive(Clone, Default)]
pub struct RunLog(Option<(RunId, Arc<dyn LineSink>)>);

impl RunLog {
    /// Of that run.
    pub fn new(run: RunId, sink: Arc<dyn LineSink>) -> RunLog {
        RunLog(Some((run, sink)))
    }

    /// Takes a line.
    pub fn line(&self, task: &TaskName, level: &'static str, text: &str) {
        if let Some((run, sink)) = &self.0 {
            sink.line(task, *run, level, text);
        }
    }
}

impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunLog").field(&self.0.as_ref().map(|(run, _)| run)).finish()
    }
}
