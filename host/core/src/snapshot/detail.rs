//! What is asked for beside the snapshot: one thing at a time, when somebody looks at it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::run::Run;
use super::task::LastRun;
use crate::plan::SlotRecord;
use crate::time::Time;

/// Dead letters in one page.
pub const DEAD_PAGE: u32 = 200;
/// Lines of log in one page.
pub const LOG_PAGE: u32 = 500;
/// Slot records in one answer: those of two hours of a task that runs every three seconds.
pub const SLOTS_PAGE: u32 = 2_500;
/// Runs in one answer, of all its tasks together.
pub const RUNS_PAGE: u32 = 2_000;
/// Tasks in one question about runs.
pub const RUNS_TASKS_MAX: usize = 8;
/// Ended runs by which a task is judged: its typical length, and what its next slots would meet.
pub const RUNS_JUDGED: u32 = 200;

/// A question to a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "query", rename_all = "snake_case")]
pub enum Query {
    /// Open dead letters, newest first: [`DeadPage`].
    Dead {
        /// Of this task.
        task: Option<String>,
        /// With exactly this last error.
        error: Option<String>,
        /// With numbers below this one.
        before: Option<u64>,
    },
    /// One run: [`RunDetail`].
    Run {
        /// Its number.
        run: u64,
    },
    /// What its guests have logged: [`LogPage`].
    Log {
        /// The run.
        run: u64,
        /// Lines after this number.
        after: u64,
    },
    /// The answering host's configuration file: [`ConfigFile`].
    Config,
    /// What an edit of it would come to, or comes to: [`Edited`].
    Edit(Edit),
    /// Runs, newest first: [`RunPage`].
    Runs {
        /// Of these tasks, at most [`RUNS_TASKS_MAX`]; empty: of all.
        tasks: Vec<String>,
        /// At most so many of each, up to [`RUNS_PAGE`].
        limit: u32,
    },
    /// What the books have of a task's slots and runs: [`TaskPast`].
    Past {
        /// The task.
        task: String,
        /// How far back from now, in seconds.
        back_s: u64,
    },
    /// How much has waited in the last 15 minutes, as far as the answering host has looked:
    /// [`DepthSample`]s, oldest first.
    Depths,
    /// Why a slot ran, or did not: [`Explained`].
    Explain {
        /// The task.
        task: String,
        /// The slot.
        at: Time,
    },
}

/// The answer to a [`Query`], or to an action.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// Dead letters.
    Dead(DeadPage),
    /// A run.
    Run(Box<RunDetail>),
    /// Lines of log.
    Log(LogPage),
    /// A configuration file.
    Config(ConfigFile),
    /// An edit of it.
    Edited(Edited),
    /// Runs.
    Runs(RunPage),
    /// What the books have of a task.
    Past(TaskPast),
    /// How much has waited.
    Depths(Vec<DepthSample>),
    /// Why a slot ran, or did not.
    Explained(Explained),
    /// What came of an action.
    Done(Done),
    /// It cannot be answered, or done.
    Refused(Refusal),
}

/// Why something was not answered, or not done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// What is wrong, and how to mend it.
    pub message: String,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadPage {
    /// Newest first.
    pub letters: Vec<Letter>,
    /// Whether there are older ones.
    pub more: bool,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Letter {
    /// Its number.
    pub id: u64,
    /// The task.
    pub task: String,
    /// The tenant.
    pub tenant: Option<String>,
    /// The key.
    pub key: String,
    /// When it was due.
    pub due: Option<Time>,
    /// The version that the scan saw.
    pub version: String,
    /// The partition.
    pub partition: u32,
    /// The run that planned it.
    pub run: u64,
    /// The slot of that run.
    pub planned_at: Time,
    /// When it was set aside.
    pub at: Time,
    /// How often it was executed.
    pub attempts: u32,
    /// What went wrong, oldest first.
    pub errors: Vec<String>,
    /// What the scan wanted the act to know: text where it is text, hexadecimal otherwise.
    pub payload: String,
    /// Its length, in bytes.
    pub payload_bytes: u64,
}

/// A run with what became of its items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// Items by what became of them (`committed`, `skipped`, `dead`, `discarded`), as far as the
    /// newest of its history tell ([`RunDetail::items`]).
    pub outcomes: BTreeMap<String, u64>,
    /// Its newest history, newest first.
    pub items: Vec<ItemRow>,
    /// The definition it runs by, as JSON.
    pub definition: String,
}

/// What became of an item.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ItemRow {
    /// The tenant.
    pub tenant: Option<String>,
    /// The key.
    pub key: String,
    /// When.
    pub at: Time,
    /// `committed`, `skipped`, `dead`, `discarded`.
    pub outcome: String,
    /// Why, where it had no effects.
    pub reason: Option<String>,
    /// Who committed: a node's start.
    pub node: String,
}

/// Lines that guests have logged in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogPage {
    /// In their order; at most [`LOG_PAGE`].
    pub lines: Vec<LogLine>,
    /// Lines of the whole run that were not kept, because guests logged faster or more than is
    /// kept.
    pub dropped: u64,
    /// Whether the run may still log.
    pub open: bool,
}

/// A line that a guest has logged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogLine {
    /// Its number, which grows within a run.
    pub no: u64,
    /// When.
    pub at: Time,
    /// On which node: its lasting name.
    pub node: String,
    /// `debug`, `info`, `warn`, `error`.
    pub level: String,
    /// What it said.
    pub text: String,
    /// Lines of this node that were dropped just before it.
    pub dropped: u64,
}

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigFile {
    /// Whose: the lasting name of the host.
    pub host: String,
    /// Where it is.
    pub path: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub digest: String,
    /// What it says.
    pub text: String,
    /// Why it cannot be replaced; none: it can.
    pub locked: Option<String>,
}

/// Changes to the keys of one task in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Edit {
    /// The task.
    pub task: String,
    /// The digest of the file that the changes were made for.
    pub base: String,
    /// By key (`schedule`, `timezone`, `overlap`, `catch_up`, `jitter`): its value as text; none:
    /// the key is removed, and its default holds.
    pub set: BTreeMap<String, Option<String>>,
    /// Whether the file is to be replaced; otherwise it is only said what would come of it.
    pub save: bool,
    /// Why; kept with the event.
    pub reason: String,
}

/// What came, or would come, of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Edited {
    /// Lines around what changed.
    pub diff: Vec<DiffLine>,
    /// What is wrong with the result, or remarkable.
    pub problems: Vec<Problem>,
    /// Whether the file was replaced.
    pub saved: bool,
    /// The digest of the file as it is now.
    pub digest: String,
}

/// A line of a difference.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffLine {
    /// What is done with it.
    pub kind: DiffKind,
    /// Its number, from 1: in the old file where it is removed, in the new one otherwise.
    pub line: u32,
    /// The line without its end.
    pub text: String,
}

/// What becomes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// It stays.
    #[default]
    Kept,
    /// It goes.
    Removed,
    /// It is new.
    Added,
}

/// Something wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Whether it only deserves a warning.
    pub warning: bool,
    /// The key that is wrong, where it is one of the edited task (`schedule`).
    pub key: Option<String>,
    /// The line, from 1; 0: the file as a whole.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The characters that are wrong.
    pub chars: u32,
    /// The line's text.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub fix: String,
}

/// Runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunPage {
    /// Newest first.
    pub runs: Vec<Run>,
    /// Whether there are older ones.
    pub more: bool,
}

/// What the books have of a task's slots and runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskPast {
    /// The task.
    pub task: String,
    /// From when on slots were looked for.
    pub from: Time,
    /// Its slots, newest first; at most [`SLOTS_PAGE`].
    pub slots: Vec<SlotRecord>,
    /// Whether older ones were left out.
    pub more: bool,
    /// Its latest runs, newest first; at most [`RUNS_JUDGED`].
    pub runs: Vec<LastRun>,
}

/// How much waited at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DepthSample {
    /// When, by the store's clock.
    pub at: Time,
    /// Items in the log and the retries, by task.
    pub tasks: BTreeMap<String, u64>,
}

/// Why a slot ran, or did not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explained {
    /// The task.
    pub task: String,
    /// The slot.
    pub at: Time,
    /// Why, in words.
    pub text: String,
}

/// What came of an action.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// The number of the command in the store's books; none: it was no command.
    pub command: Option<u64>,
    /// Whether it has been applied; a command waits for a leader otherwise.
    pub applied: bool,
    /// What came of it.
    pub result: Option<String>,
}
