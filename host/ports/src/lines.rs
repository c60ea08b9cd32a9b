//! The log lines of guests, as the store keeps them for each run.
//!
//! The number of lines per run is bounded. The newest lines are kept, because the end of a run says
//! more about a failure than its beginning, and removed lines are counted.

use std::fmt;
use std::sync::Arc;

use besom_core::ids::{RunId, TaskName};
use besom_core::time::Time;
use besom_snapshot::LogLine;

/// Default for the maximum number of lines kept per run.
pub const LINES_MAX_DEFAULT: u32 = 1_000;

/// A log line to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLine {
    /// The run during which the line was logged.
    pub run: RunId,
    /// When it was logged, by the node's clock.
    pub at: Time,
    /// The permanent name of the node that logged it.
    pub node: String,
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: &'static str,
    /// The text of the line.
    pub text: String,
    /// Number of lines of this node and run that were dropped immediately before this line.
    pub dropped: u64,
}

/// The stored log lines of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunLines {
    /// The lines in the order of their numbers.
    pub lines: Vec<LogLine>,
    /// Number of lines of the whole run that are missing: the node dropped them, or newer lines
    /// replaced them.
    pub lost: u64,
}

/// Receives the log lines of guests. It must not block, because it is called on a guest's thread.
pub trait LineSink: Send + Sync {
    /// Accepts a line of a task, or drops and counts it. `None`: it is beyond the rate of its task, and
    /// no log is to contain it; otherwise the number of such lines since the last that was not.
    fn line(&self, task: &TaskName, run: RunId, level: &'static str, text: &str) -> Option<u64>;
}

/// The log of the run that a guest's call belongs to. The default is a call outside of any run,
/// whose lines appear only in the host's own log.
#[derive(Clone, Default)]
pub struct RunLog(Option<(RunId, Arc<dyn LineSink>)>);

impl RunLog {
    /// The log of this run.
    pub fn new(run: RunId, sink: Arc<dyn LineSink>) -> RunLog {
        RunLog(Some((run, sink)))
    }

    /// Passes a line to the sink; without a run, does nothing and has no rate. Returns what
    /// [`LineSink::line`] does.
    pub fn line(&self, task: &TaskName, level: &'static str, text: &str) -> Option<u64> {
        self.0.as_ref().map_or(Some(0), |(run, sink)| sink.line(task, *run, level, text))
    }
}

impl fmt::Debug for RunLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RunLog").field(&self.0.as_ref().map(|(run, _)| run)).finish()
    }
}
