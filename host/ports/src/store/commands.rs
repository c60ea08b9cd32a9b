//! Commands as they are stored, their effects, and what came of them.

use std::num::NonZeroU32;

use besom_core::books::Progress;
use besom_core::brake::Brakes;
use besom_core::command::{Command, DeadSelector, MessageSelector, counted};
use besom_core::ids::{RunId, TaskName};
use besom_core::plan::SlotDecision;
use besom_core::purge::{Place, Purge, Purged};
use besom_core::review;
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

use super::{Error, Result};

/// How many brakes of a task's newest unfinished runs a resumption sets anew.
pub const BRAKES_RESUMED: u32 = 1_000;

/// Parses a stored command. A command that cannot be parsed becomes [`Command::Unknown`], so that
/// it does not block the commands after it.
pub fn command_of(json: &str) -> Command {
    serde_json::from_str(json).unwrap_or(Command::Unknown)
}

/// A command as it is stored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRow {
    /// The number of the command, in the order of submission.
    pub id: u64,
    /// What was requested.
    pub command: Command,
    /// The identity of the requester.
    pub by: String,
    /// The requester's reason; empty if none was given.
    pub reason: String,
    /// When it was submitted.
    pub at: Time,
    /// When a leader applied it; `None`: it is pending.
    pub applied_at: Option<Time>,
    /// The result for the requester, once a leader has applied or refused it; before that, how far a
    /// command over many dead letters has come.
    pub result: Option<String>,
    /// Whether the leader refused the command. `result` has the reason.
    pub refused: bool,
}

impl CommandRow {
    /// Checks that the command that the store has under its number is this one: a restored store gives the
    /// numbers of commands that it has lost to others.
    ///
    /// # Errors
    /// It has another one.
    pub fn check_is(&self, found: &CommandRow) -> Result<()> {
        let of = |row: &CommandRow| (row.id, row.at, row.by.clone(), row.command.clone());
        if of(self) == of(found) {
            return Ok(());
        }
        let id = self.id;
        Err(Error::Invalid(format!("the store was restored: the command {id} is another one now")))
    }

    /// Why a review is decided by it: the requester's reason, or what was requested.
    pub fn why(&self) -> &str {
        match (&self.command, self.reason.as_str()) {
            (Command::Cancel { .. }, "") => "the run was cancelled",
            (_, reason) => reason,
        }
    }
}

/// The effect of a command. It is applied under the fence, in the transaction that marks the
/// command as applied.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandEffect {
    /// Writes slots and starts runs (trigger).
    Slots(SlotDecision),
    /// Pauses the task ([`TaskName::ALL`]: all tasks), with the requester, the reason and the time of the
    /// command.
    Pause(TaskName),
    /// Resumes the task. Its schedule counts from now on, and the newest [`BRAKES_RESUMED`] brakes of those
    /// of its runs that scan or have items left become what [`besom_core::brake::Brake::resumed`] says.
    Resume(TaskName, Brakes),
    /// Ends the scans of the task's active runs with the given error, and discards the items that wait in
    /// the log, as timers and as retries, each with a history row that names the requester and the reason.
    /// Nothing blocks planning them again. A batch that is being executed is left out of its commit. Takes
    /// as many items in one transaction as dead letters.
    DiscardPlanned(TaskName, String),
    /// Approves a held run whose review waits: the run is held no longer, and its brakes become what
    /// [`besom_core::brake::Brake::resumed`] says. The end of its scan follows.
    Approve(RunId, Brakes),
    /// Rejects a held run whose review waits or is not opened yet, with this state: ends its scan with the error, and discards
    /// its items in the log and its timers as [`CommandEffect::DiscardPlanned`] does. The run stays held.
    Reject {
        /// The task of the run.
        task: TaskName,
        /// The run's number in the store.
        run: RunId,
        /// How its review stands then.
        state: review::State,
        /// The error of its scan, if it is cut.
        error: Option<String>,
    },
    /// Ends the scan of the run with this error, as [`super::Store::end_scan`] does; the run itself ends
    /// with the last of its items in the log. A run that has already ended is left unchanged.
    Cancel(RunId, String),
    /// Moves dead letters to the retries, due immediately and with fresh attempts; their errors are
    /// kept. An identity can wait only once: a dead letter whose identity is already waiting is
    /// left where it is, and of several dead letters of one identity only the newest moves. If the
    /// number of matching open letters differs from [`DeadSelector::expect`], the command is
    /// refused. It takes the letters that were open when its first transaction began; one that is
    /// retried and fails again is not retried twice.
    RetryDead(DeadSelector),
    /// Discards dead letters, each with a history row that names the requester and the reason.
    /// Their versions are not planned again. The command is refused as for
    /// [`CommandEffect::RetryDead`] if the number of matching letters differs.
    DiscardDead(DeadSelector),
    /// Makes messages due that wait for their next attempt: of each sequence the first counts as one. Makes messages
    /// pending again that were given up, due immediately and with fresh attempts; the last error is kept. A message
    /// that was followed by a later one of the same task, tenant, topic and key is left as it is, because its receiver
    /// already has newer information.
    RetryMessages(MessageSelector),
    /// Gives up pending messages, with [`super::DISCARDED`] as their error. Attempts under way are not
    /// stopped, and their results change nothing.
    DiscardMessages(MessageSelector),
    /// Renumbers every broken stream of the task, that is, one with missing or unreadable rows, in
    /// its order and after its last number. Unreadable rows are removed. Items that were counted
    /// but no longer exist are written off: they count as discarded, in the baseline, and are
    /// subtracted from the runs that planned them; nothing blocks planning them again. Refused if
    /// no stream is broken.
    RepairStreams(TaskName),
    /// Removes rows from what is kept of items, and with them what these items were given. If all rows of an item
    /// go, nothing is kept of it. A place whose number of rows or size is another one now is left as it is, and
    /// counted. Takes as many places in one transaction as dead letters, and about
    /// [`besom_core::purge::STEP_BYTES`].
    Purge(Purge),
    /// Only marks the command as applied: its effect is not in the store.
    Note,
    /// Does nothing: the command is refused for this reason.
    Refuse(String),
    /// Does nothing: the run cannot be approved or rejected. The command is refused with the decision that was
    /// made about it, or without one, for this reason.
    NotWaiting(RunId, String),
}

impl CommandEffect {
    /// Whether the effect is a refusal.
    pub fn is_refusal(&self) -> bool {
        matches!(self, CommandEffect::Refuse(_) | CommandEffect::NotWaiting(..))
    }

    /// The outcome to record: whether the command is refused, and the result. The result is the
    /// leader's text, extended by numbers that are known only inside the transaction.
    pub fn outcome(&self, words: &str, applied: &Applied) -> (bool, String) {
        match (self, &applied.refused) {
            (_, Some(why)) => (true, why.clone()),
            (CommandEffect::Refuse(_), None) if applied.dead > 0 => {
                (true, format!("stopped after {}: {words}", counted(applied.dead, "dead letter")))
            }
            (CommandEffect::Refuse(_), None) if applied.purged.items > 0 => {
                let rows = counted(applied.purged.rows, "purged row");
                (true, format!("stopped after {rows}: {words}"))
            }
            (CommandEffect::RetryDead(_) | CommandEffect::DiscardDead(_), None) => {
                if let Some(progress) = &applied.progress {
                    return (false, format!("in progress: {progress}"));
                }
                (false, format!("{words}: {}", counted(applied.dead, "dead letter")))
            }
            (CommandEffect::DiscardPlanned(..) | CommandEffect::Reject { .. }, None) => {
                match &applied.progress {
                    Some(_) => (false, format!("in progress: {}", counted(applied.dead, "item"))),
                    None => (false, format!("{words}: {}", counted(applied.dead, "item"))),
                }
            }
            (CommandEffect::Purge(purge), None) => match &applied.progress {
                Some(_) => {
                    let all = counted(purge.places.len() as u64, "item");
                    (false, format!("in progress: {} of {all}", applied.purged.places))
                }
                None => applied.purged.outcome(words),
            },
            (CommandEffect::RetryMessages(_) | CommandEffect::DiscardMessages(_), None)
                if applied.messages > 0 =>
            {
                (false, format!("{words}: {}", counted(applied.messages, "message")))
            }
            (CommandEffect::RetryMessages(selector), None) => (true, selector.mismatch()),
            (CommandEffect::DiscardMessages(selector), None) => (true, selector.none_pending()),
            (CommandEffect::RepairStreams(_), None) => {
                let Repaired { streams, lost } = applied.repaired;
                (
                    false,
                    format!(
                        "{words}: {}, {} lost",
                        counted(streams, "stream"),
                        counted(lost, "item")
                    ),
                )
            }
            (_, None) => (self.is_refusal(), words.to_owned()),
        }
    }
}

/// The result of applying a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Applied {
    /// Runs that were started.
    pub runs: Vec<RunId>,
    /// Number of dead letters moved or discarded, or of planned items discarded, by all calls for this
    /// command.
    pub dead: u64,
    /// How far a command over dead letters has come; `None`: nothing is left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Number of messages that are pending again, or that were given up.
    pub messages: u64,
    /// The streams that were repaired.
    #[serde(default)]
    pub repaired: Repaired,
    /// What was removed from what is kept, by all calls for this command.
    #[serde(default)]
    pub purged: Purged,
    /// Why nothing was done: the store has changed since the requester looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

impl Applied {
    /// The next of these places, if one transaction may take another one after `taken` places with `bytes`.
    pub fn next_place<'p>(
        &self,
        purge: &'p Purge,
        (taken, bytes): (u64, u64),
        limit: NonZeroU32,
    ) -> Option<&'p Place> {
        let is_full = taken >= u64::from(limit.get()) || bytes >= besom_core::purge::STEP_BYTES;
        let next = usize::try_from(self.purged.places).ok()?;
        purge.places.get(next).filter(|_| taken == 0 || !is_full)
    }

    /// Counts a place and what was removed there: a number of rows, `None` if what is kept has changed.
    /// Nothing is kept there any more where `kept` is false.
    pub fn count_place(&mut self, kept: bool, removed: Option<u64>) {
        self.purged.places += 1;
        match removed {
            Some(rows) => {
                self.purged.items += 1;
                self.purged.rows += rows;
            }
            None => self.purged.changed += u64::from(kept),
        }
    }

    /// Continues in another transaction if places are left.
    pub fn end_step(&mut self, purge: &Purge) {
        let is_done = self.purged.places >= purge.places.len() as u64;
        self.progress = (!is_done).then(|| Progress::begin(0));
    }

    /// Adds planned items that one transaction has discarded, of at most `limit`; a full transaction is
    /// followed by another.
    pub fn planned_discarded(&mut self, discarded: u64, limit: NonZeroU32) {
        self.dead += discarded;
        let is_full = discarded >= u64::from(limit.get());
        self.progress = is_full.then(|| Progress::begin(0));
    }
}

/// Why planned items are not discarded: a stream of the task cannot be read.
pub fn broken(task: &TaskName, why: &str) -> String {
    format!("{why}: repair it with `besom stream repair {task} --reason TEXT`, then discard again")
}

/// The result of repairing streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Repaired {
    /// Number of streams that were renumbered.
    pub streams: u64,
    /// Number of items that were written off.
    pub lost: u64,
}

impl Repaired {
    /// The refusal if there was nothing to repair.
    pub fn refusal(self, task: &TaskName) -> Option<String> {
        (self == Repaired::default()).then(|| format!("no stream of {task} is broken"))
    }
}
