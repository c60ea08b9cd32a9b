//! Questions for details that the snapshot does not contain, one object at a time.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::run::Run;
use super::task::LastRun;
use besom_core::books::DeadLetter;
use besom_core::item::End;
use besom_core::plan::SlotRecord;
use besom_core::review::Review;
use besom_core::time::Time;

/// Dead letters in one page.
pub const DEAD_PAGE: u32 = 200;
/// Lines of log in one page.
pub const LOG_PAGE: u32 = 500;
/// Slot records in one answer: two hours of a task that runs every three seconds.
pub const SLOTS_PAGE: u32 = 2_500;
/// Runs in one answer, of all its tasks together.
pub const RUNS_PAGE: u32 = 2_000;
/// Tasks in one question about runs.
pub const RUNS_TASKS_MAX: usize = 8;
/// Ended runs used to judge a task: its typical duration, and its forecast.
pub const RUNS_JUDGED: u32 = 200;

/// A question to a host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(tag = "query", rename_all = "snake_case")]
pub enum Query {
    /// Open dead letters, newest first: [`DeadPage`].
    Dead {
        /// Only of this task.
        task: Option<String>,
        /// Only with exactly this last error.
        error: Option<String>,
        /// Only with numbers below this one.
        before: Option<u64>,
    },
    /// One run: [`RunDetail`].
    Run {
        /// The number that the store assigned.
        run: u64,
    },
    /// The log lines of a run's guests: [`LogPage`].
    Log {
        /// The run's number in the store.
        run: u64,
        /// Only lines with a greater number.
        after: u64,
    },
    /// The answering host's configuration file: [`ConfigFile`].
    Config,
    /// An edit of the file, or its preview: [`Edited`].
    Edit(Edit),
    /// Runs, newest first: [`RunPage`].
    Runs {
        /// Only of these tasks, at most [`RUNS_TASKS_MAX`]; if empty, of all tasks.
        tasks: Vec<String>,
        /// The maximum number per task, up to [`RUNS_PAGE`].
        limit: u32,
    },
    /// The stored history of a task's slots and runs: [`TaskPast`].
    Past {
        /// The task's name in the configuration.
        task: String,
        /// How far back from now, in seconds.
        back_s: u64,
    },
    /// The number of waiting items over the last 15 minutes, as far as the answering host has
    /// recorded it: [`DepthSample`]s, oldest first.
    Depths,
    /// Why a slot ran or did not run: [`Explained`].
    Explain {
        /// The task's name in the configuration.
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
    /// The result or the preview of an edit.
    Edited(Edited),
    /// Runs.
    Runs(RunPage),
    /// The stored history of a task.
    Past(TaskPast),
    /// The number of waiting items over time.
    Depths {
        /// Oldest first.
        samples: Vec<DepthSample>,
    },
    /// Why a slot ran or did not run.
    Explained(Box<Explained>),
    /// The result of an action.
    Done(Done),
    /// The question cannot be answered, or the action was refused.
    Refused(Refusal),
}

/// Why a question was not answered or an action was refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Refusal {
    /// What is wrong, and the fix.
    pub message: String,
}

/// A page of dead letters.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DeadPage {
    /// Newest first.
    pub letters: Vec<Letter>,
    /// Whether there are older dead letters.
    pub more: bool,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Letter {
    /// The number that the store assigned.
    pub id: u64,
    /// The task's name in the configuration.
    pub task: String,
    /// The tenant; none: the task has no tenants.
    pub tenant: Option<String>,
    /// The key within the tenant.
    pub key: String,
    /// When it was due.
    pub due: Option<Time>,
    /// The version that the scan saw.
    pub version: String,
    /// The partition that the item belongs to.
    pub partition: u32,
    /// The run that planned it.
    pub run: u64,
    /// The slot of that run.
    pub planned_at: Time,
    /// When the item was set aside.
    pub at: Time,
    /// When a later commit of the same item succeeded; none: the letter is open.
    pub resolved_at: Option<Time>,
    /// How often the item was executed.
    pub attempts: u32,
    /// How often its host died while executing it.
    pub deaths: u32,
    /// The node that set it aside; none: a former version did.
    pub node: Option<String>,
    /// Its last error.
    pub error: Option<String>,
    /// Its errors, oldest first.
    pub errors: Vec<String>,
    /// Data from the scan for `act`: as text if it is text, otherwise in hexadecimal.
    pub payload: String,
    /// The payload's length, in bytes.
    pub payload_bytes: u64,
}

impl From<&DeadLetter> for Letter {
    fn from(dead: &DeadLetter) -> Letter {
        let DeadLetter { id, item, at, resolved_at, context } = dead;
        let identity = &item.identity;
        Letter {
            id: *id,
            task: identity.task.to_string(),
            tenant: identity.tenant.as_ref().map(ToString::to_string),
            key: identity.key.clone(),
            due: identity.due,
            version: item.version.clone(),
            partition: item.partition.0,
            run: item.run.0,
            planned_at: item.planned_at,
            at: *at,
            resolved_at: *resolved_at,
            attempts: item.attempts,
            deaths: item.deaths,
            node: context.node.as_ref().map(ToString::to_string),
            error: item.errors.last().cloned(),
            errors: item.errors.clone(),
            payload: payload_text(&item.payload),
            payload_bytes: item.payload.len() as u64,
        }
    }
}

/// A payload as text; in hexadecimal if it is none.
pub fn payload_text(bytes: &[u8]) -> String {
    std::str::from_utf8(bytes).map_or_else(|_| hex::encode(bytes), str::to_owned)
}

/// A run with the outcomes of its items.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunDetail {
    /// The run.
    pub run: Run,
    /// The number of items by outcome (`committed`, `skipped`, `dead`, `discarded`), among those in
    /// [`RunDetail::items`].
    pub outcomes: BTreeMap<End, u64>,
    /// The number of the product's rows that [`RunDetail::items`] have changed.
    #[serde(default)]
    pub rows: u64,
    /// Its newest history rows, newest first.
    pub items: Vec<ItemRow>,
    /// The definition that it runs with, as JSON.
    pub definition: String,
    /// What it would change; none: its mode is `live`, or it is not examined yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// Which rows its task took when the review was opened, in words; none: there is no review, or the plugin has no
    /// such rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The rows that it leaves as they are; none: it undoes nothing, or has put back every row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staying: Option<Staying>,
}

/// Rows that an undo leaves as they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Staying {
    /// Their number, as far as it is known.
    pub rows: u64,
    /// Whether there may be more of them.
    pub or_more: bool,
    /// What was to be undone, as `besom undo` takes it.
    pub undone: String,
}

impl Staying {
    /// It in words, with the command that lists them.
    pub fn words(&self) -> String {
        let rows = besom_core::command::counted(self.rows, "row");
        let at_least = if self.or_more { "at least " } else { "" };
        let stay = if self.rows == 1 { "stays as it is" } else { "stay as they are" };
        format!("{at_least}{rows} {stay}: `besom undo {}` lists what stays", self.undone)
    }
}

/// The outcome of an item.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ItemRow {
    /// The tenant; none: the task has no tenants.
    pub tenant: Option<String>,
    /// The key within the tenant.
    pub key: String,
    /// When it was due.
    pub due: Option<Time>,
    /// When the item ended.
    pub at: Time,
    /// How it ended.
    pub outcome: End,
    /// Whether it is not planned again while its version is the same.
    pub settled: bool,
    /// The number of the product's rows that it changed.
    pub rows: u64,
    /// How many of the rows that were planned with it stayed as they were; none: its task does not say how many were
    /// planned.
    pub stayed: Option<u64>,
    /// The reason, if the item had no effects, or why it left some of its rows as they were.
    pub reason: Option<String>,
    /// The plugin's notes: bytes in hexadecimal, instants as RFC 3339.
    pub notes: serde_json::Map<String, serde_json::Value>,
    /// The incarnation that committed it.
    pub node: String,
    /// The id of the commit.
    pub commit: String,
    /// Size of the before-images held for undo, in bytes.
    pub undo_bytes: u64,
}

/// Lines that guests have logged in a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogPage {
    /// The lines in order; at most [`LOG_PAGE`].
    pub lines: Vec<LogLine>,
    /// Lines of the whole run that were dropped because guests logged faster or more than is kept.
    pub dropped: u64,
    /// Whether more lines may follow.
    pub open: bool,
}

/// A log line of a guest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LogLine {
    /// Its number, which increases within a run.
    pub no: u64,
    /// When it was logged.
    pub at: Time,
    /// The name of the node that ran the guest.
    pub node: String,
    /// `debug`, `info`, `warn`, `error`.
    pub level: String,
    /// The message.
    pub text: String,
    /// Lines of this node that were dropped immediately before it.
    pub dropped: u64,
}

/// A configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConfigFile {
    /// The name of the host that has the file.
    pub host: String,
    /// The file's path.
    pub path: String,
    /// SHA-256 of its bytes, in hexadecimal.
    pub digest: String,
    /// The file's content.
    pub text: String,
    /// Why it cannot be replaced; none: it can be replaced.
    pub locked: Option<String>,
}

/// Changes to the keys of one task in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Edit {
    /// The task's name in the configuration.
    pub task: String,
    /// The digest of the file that the changes are based on.
    pub base: String,
    /// The new value as text by key (`schedule`, `timezone`, `overlap`, `catch_up`, `jitter`);
    /// none: the key is removed and its default applies.
    pub set: BTreeMap<String, Option<String>>,
    /// Whether to replace the file; otherwise this is a preview.
    pub save: bool,
    /// The reason, recorded with the event.
    pub reason: String,
}

/// The result or the preview of an edit.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Edited {
    /// The changed lines with context.
    pub diff: Vec<DiffLine>,
    /// Errors and warnings about the resulting file.
    pub problems: Vec<Problem>,
    /// Whether the file was replaced.
    pub saved: bool,
    /// The digest of the current file.
    pub digest: String,
}

/// A line of a diff.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DiffLine {
    /// Whether the line is kept, removed or added.
    pub kind: DiffKind,
    /// Its number, from 1: in the old file if it is removed, otherwise in the new file.
    pub line: u32,
    /// The line without its end.
    pub text: String,
}

/// What a diff does with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiffKind {
    /// The line is kept.
    #[default]
    Kept,
    /// The line is removed.
    Removed,
    /// The line is added.
    Added,
}

/// A problem in a configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Problem {
    /// Whether it is only a warning.
    pub warning: bool,
    /// The invalid key, if it is one of the edited task's (`schedule`).
    pub key: Option<String>,
    /// The line, from 1; 0 means the whole file.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The number of invalid characters.
    pub chars: u32,
    /// The line's text.
    pub text: String,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: String,
}

/// Runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RunPage {
    /// Newest first.
    pub runs: Vec<Run>,
    /// Whether there are older runs.
    pub more: bool,
}

/// The stored history of a task's slots and runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskPast {
    /// The task's name in the configuration.
    pub task: String,
    /// The earliest time of the slots included.
    pub from: Time,
    /// Its slots, newest first; at most [`SLOTS_PAGE`].
    pub slots: Vec<SlotRecord>,
    /// Whether older slots were left out.
    pub more: bool,
    /// Its latest runs, newest first; at most [`RUNS_JUDGED`].
    pub runs: Vec<LastRun>,
}

/// The number of waiting items at one time.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct DepthSample {
    /// The time of the sample, by the store's clock.
    pub at: Time,
    /// Items in the log and the retries, by task.
    pub tasks: BTreeMap<String, u64>,
}

/// Why a slot ran or did not run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Explained {
    /// The task's name in the configuration.
    pub task: String,
    /// The slot.
    pub at: Time,
    /// The explanation, as text.
    pub text: String,
    /// `ran`, `coalesced`, `skipped`, `queued`, `missed`, `paused`, `fenced`; `to_come` for a future
    /// slot, `undecided` for a past slot that no leader has decided, `no_slot` for a time that is not
    /// a slot of the schedule.
    pub outcome: String,
    /// The reason for the outcome.
    pub reason: String,
    /// The records of the slot history that cover the time.
    pub records: Vec<SlotRecord>,
    /// The run that the slot started, or that prevented it.
    pub run: Option<Run>,
}

/// The result of an action.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Done {
    /// The command's number in the store; none: the action was not a command.
    pub command: Option<u64>,
    /// Whether it has been applied; otherwise the command is waiting for a leader.
    pub applied: bool,
    /// The command's result.
    pub result: Option<String>,
}
