//! The store port: one database that holds both the user's tables and the engine's own, so that one
//! transaction can change both.
//!
//! This port defines what a store adapter must guarantee; the conformance suite checks it. Every
//! operation is coarse, typed and atomic, and no SQL passes through the port. The store itself
//! rejects two kinds of stale writers: a leader whose term is below the fence ([`Error::Fenced`])
//! and an owner whose epoch has passed (its streams are left out of the commit, [`Outcome::Left`]).
//!
//! A failure of *one item* is an [`Outcome`]; a failure of *the infrastructure* is an [`Error`]. An
//! error consumes no attempt and creates no dead letter.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
pub use besom_core::brake::{Brake, Brakes};
pub use besom_core::budget::Allowance;
use besom_core::collection::{Collections, Operations};
use besom_core::delivery;
pub use besom_core::delivery::feed::{Entered, Offered};
pub use besom_core::delivery::{Attempt, Claimed, Delivery};
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, RunId, Seq, TaskName, Tenant, Term,
};
pub use besom_core::item::End;
use besom_core::item::{Candidate, Identity, Item, Source};
pub use besom_core::ownership::{Claim, PartitionRow, RingPosition};
pub use besom_core::pace::Strain;
use besom_core::proposal::{Condition, ReadSet, Restore, RowRange, Settle};
use besom_core::review;
pub use besom_core::review::{NewReview, Review};
use besom_core::time::Time;
use besom_core::value::{Field, Row, RowKey, Value};
use besom_snapshot::{Cause, DeadGroup, Report};
pub use besom_snapshot::{Missing, Role};
use serde::{Deserialize, Serialize};

use super::guests::Lane;

/// The error of a message that an operator has given up.
pub const DISCARDED: &str = "discarded by an operator: `besom commands ls` says by whom and why";

/// Why a database without the engine's tables is refused where it is only read.
pub const NO_TABLES: &str =
    "the database has no tables of Besom; `besom serve` and `besom run` create them";

/// The infrastructure failed, or the store rejected the writer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The writer's term is below the fence, or its token belongs to another leadership.
    #[error("fenced: the store knows a later term")]
    Fenced,
    /// The store is busy, locked, deadlocked or timed out. Nothing was changed; the call can be
    /// retried.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// The store is unreachable, full or read-only. Nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// A trigger or a function in the database has raised an error that names the infrastructure as
    /// its cause, but the connection works. Nothing was changed. If it repeats for the same item
    /// alone, that item is to blame.
    #[error("the database raised: {0}")]
    Raised(String),
    /// A statement took longer than its limit without waiting for a lock. Nothing was changed. If it
    /// repeats for the same item alone while other batches are committed, that item is to blame.
    #[error("the database needs too long: {0}")]
    TimedOut(String),
    /// The guards of a commit used up the time that they have together. Nothing was changed. The
    /// same items would take as long again; fewer of them may be committed.
    #[error("{0}")]
    GuardsTimedOut(String),
    /// The database is malformed. Nothing was changed; nothing more is written until somebody restores
    /// it, and [`Store::lost`] says so from now on.
    #[error("{0}")]
    Damaged(String),
    /// The database refuses the connection, for example because the password is wrong. Only opening a
    /// store fails with it, and it fails again until somebody corrects the cause.
    #[error("{0}")]
    Denied(String),
    /// The transaction may or may not have committed. [`Store::find_commit`] determines which.
    #[error("the result of the commit is unknown: {0}")]
    Unknown(String),
    /// The database rejects the statement regardless of the item: a privilege is missing, or a
    /// table, a column or a type differs from its mapping. Nothing was changed; the same call
    /// succeeds after the database or the mapping is corrected.
    #[error("the database refuses: {1}")]
    Refused(Cause, String),
    /// The request is invalid and would fail on every attempt: a bug, a wrong mapping or a wrong
    /// configuration.
    #[error("{0}")]
    Invalid(String),
    /// A read would return more than the reader's limit ([`ReadView::read_at_most`]).
    #[error("{0}")]
    TooLarge(String),
}

/// What a privilege that is missing takes, in [`Error::Refused`].
pub const GRANTS: &str = "`besom grants` prints what the role needs";
/// What a privilege that is missing takes when rows are put back: a task needs it not.
pub const UNDO_GRANTS: &str =
    "uncomment the statements for `besom undo` in what `besom grants` prints, and run them";
/// Promises in [`Error::Refused`] that hold for a host, which tries again, and not for a verb.
pub const UNTIL_GRANTED: &str = "; work continues once it is granted";
/// See [`UNTIL_GRANTED`].
pub const UNTIL_MATCHED: &str = "; work continues once they match";

impl Error {
    /// The error for a caller that does not try again: without the promise that work continues.
    #[must_use]
    pub fn once(self) -> Error {
        match self {
            Error::Refused(cause, said) => {
                let cut = [UNTIL_GRANTED, UNTIL_MATCHED]
                    .into_iter()
                    .find_map(|promise| said.strip_suffix(promise).map(str::to_owned));
                Error::Refused(cause, cut.unwrap_or(said))
            }
            other => other,
        }
    }
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// ------------------------------------------------------------------------ leadership

/// The result of raising the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// The partitions that this node owns from now on, with their new epochs.
    pub owned: Vec<(Partition, OwnerEpoch)>,
}

/// The highest term that the store has recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The highest term.
    pub term: Term,
    /// The node that raised the fence to this term.
    pub node: Incarnation,
    /// When the fence was raised.
    pub raised_at: Time,
}

/// What has arrived in the queues, for a node that executes what another node plans. It may report
/// more than has arrived, but never less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// Everything up to this mark is reported. Pass it to the next call.
    pub mark: u64,
    /// Whether any stream has new items.
    pub log: bool,
    /// The earliest due time among new timers.
    pub timer: Option<Time>,
    /// The earliest time among retries that did not come from a commit.
    pub retry: Option<Time>,
}

// ---------------------------------------------------------------------------- planning

pub use besom_core::plan::{
    EndOfScan, NewRun, Pause, Run, Seen, SlotDecision, SlotOutcome, SlotRecord, TaskState, Trigger,
};

pub use besom_core::books::{PlanPage, Planned};

/// The run of a slot that already has one, for a leader that starts it again: it is the same if this
/// leadership has started it, and only the answer was lost.
///
/// # Errors
/// [`Error::Invalid`] if another leadership has started it.
pub fn started(run: &NewRun, term: Term, (id, of): (RunId, Term)) -> Result<RunId> {
    if of == term {
        return Ok(id);
    }
    let NewRun { task, slot, .. } = run;
    Err(Error::Invalid(format!("{task} already has a run for the slot {slot}")))
}

/// The answer to a slot decision that was based on an outdated state of the store: the runs that
/// the same term has already started for these slots (`started`).
///
/// # Errors
/// [`Error::Invalid`] if they are fewer than the decision starts.
pub fn late_copy(
    task: &TaskName,
    decision: &SlotDecision,
    started: Vec<RunId>,
) -> Result<Vec<RunId>> {
    if started.is_empty() || started.len() < decision.runs.len() {
        let why = format!("the slots of {task} were decided again since this decision");
        return Err(Error::Invalid(why));
    }
    Ok(started)
}

// --------------------------------------------------------------------------- execution

/// The position of a stream. A stream holds the items of one task in one partition.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The task whose items the stream holds.
    pub task: TaskName,
    /// The partition of the items.
    pub partition: Partition,
    /// The last acknowledged sequence number.
    pub acked: Seq,
    /// The last sequence number written.
    pub tail: Seq,
}

/// A stream and the number of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// The position of the stream.
    pub stream: Stream,
    /// Number of rows after the last acknowledged sequence number. It equals `tail - acked`, unless
    /// the stream is broken.
    pub items: u64,
}

/// An item and the place where it is waiting.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Where the item is waiting.
    pub source: Source,
    /// The item.
    pub item: Item,
    /// The earliest time of execution: the due time of a timer, the retry time of a retry, or the
    /// epoch for an item of the log.
    pub run_at: Time,
}

/// A stream that cannot be read because a row is missing or damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenStream {
    /// The partition of the stream.
    pub partition: Partition,
    /// What is wrong, including the place.
    pub why: String,
}

/// The error for a stream in which a sequence number is missing.
pub fn gap(task: &TaskName, partition: Partition, missing: u64) -> Error {
    let place = format!("the stream of {task} in partition {partition}");
    Error::Invalid(format!("{place} has a gap: {missing} is missing"))
}

/// The result of reading several streams of one task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogRead {
    /// The items read, stream by stream.
    pub items: Vec<Waiting>,
    /// The streams that could not be read. They do not affect the other streams.
    pub broken: Vec<BrokenStream>,
    /// The streams that were examined, including broken ones. There was no room for the others.
    pub looked: Vec<Partition>,
}

/// The progress of [`Store::read_logs`]: what was read, and how much more may be read.
#[derive(Debug)]
pub struct LogRoom {
    /// What was read so far.
    pub read: LogRead,
    each: u32,
    limit: u32,
    bytes: usize,
}

impl LogRoom {
    /// Allows at most `each` items of one stream, `limit` items of all streams, and about `bytes`
    /// bytes of payload.
    pub fn new(each: u32, limit: u32, bytes: usize) -> LogRoom {
        LogRoom { read: LogRead::default(), each, limit, bytes }
    }

    /// The maximum number of items of all streams together.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of items and bytes that may be read from the next stream; `None`: there is no
    /// room left.
    pub fn left(&self) -> Option<(u32, usize)> {
        let read = u32::try_from(self.read.items.len()).unwrap_or(u32::MAX);
        let items = self.limit.saturating_sub(read).min(self.each);
        let full = items == 0 || (self.bytes == 0 && !self.read.items.is_empty());
        (!full).then_some((items, self.bytes))
    }

    /// Adds the result of reading one stream. Returns whether the next stream may be read. A broken
    /// stream ([`Error::Invalid`]) is recorded and does not stop the others.
    ///
    /// # Errors
    /// A failure of the infrastructure, if nothing was read before it.
    pub fn take<E: Into<Error>>(
        &mut self,
        partition: Partition,
        read: Result<Vec<Waiting>, E>,
    ) -> Result<bool> {
        let read = read.map_err(E::into);
        if matches!(read, Ok(_) | Err(Error::Invalid(_))) {
            self.read.looked.push(partition);
        }
        match read {
            Ok(items) => {
                let bytes: usize = items.iter().map(|w| w.item.payload.len()).sum();
                self.bytes = self.bytes.saturating_sub(bytes);
                self.read.items.extend(items);
                Ok(true)
            }
            Err(Error::Invalid(why)) => {
                self.read.broken.push(BrokenStream { partition, why });
                Ok(true)
            }
            // What was read before the failure is valid; the caller asks for the rest again.
            Err(error) if !self.read.items.is_empty() => {
                tracing::debug!(%error, "only some of the streams were read");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

pub use super::lines::{RunLine, RunLines};
pub use besom_core::books::{Committed, Entry, LeftOut, Outcome};
pub use besom_core::queue::Decision;

/// A batch to be committed in one transaction, with entries of any number of tasks and streams. The
/// entries of one stream are in the order of their sequence numbers and follow its cursor without
/// gaps; a stream that violates this is left out completely ([`LeftOut::NotThere`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The unique id of this commit. It makes an unknown result decidable ([`Store::find_commit`]).
    pub id: CommitId,
    /// The incarnation that commits.
    pub node: Incarnation,
    /// The entries. The executor lets no two of them change the same row, but a guard may read a row
    /// that an earlier entry changes: they take effect as if committed one after the other.
    pub entries: Vec<Entry>,
    /// The latest instant that a guest was given as the present. Its decisions hold from that
    /// instant on: while the store's clock is behind it, the batch is left out
    /// ([`LeftOut::NotDue`]).
    pub as_of: Time,
    /// For [`besom_core::proposal::Guard::Idle`]: the activity keys that the caller observed as
    /// idle just before the commit, by entry index. Ignored if `activity_in_store` is set.
    pub idle: Vec<(usize, String)>,
    /// Whether the activity is kept in this store. If so, it is read inside the transaction and
    /// `idle` is ignored.
    pub activity_in_store: bool,
    /// The lane of the task. It determines the order among the requests that wait for the store.
    pub lane: Lane,
    /// Whether the task has brakes, so that the commit counts what its runs delete. If a run would exceed
    /// its limit, every entry is left out ([`LeftOut::Braked`]), and nothing is written. Held runs need no
    /// brake.
    pub braked: bool,
}

impl Batch {
    /// The lowest term under which an entry that was never queued is committed: the store refuses
    /// the batch if its fence is higher. `None`: every entry was queued.
    ///
    /// # Errors
    /// [`Error::Invalid`] if such an entry could be retried or set aside: it ends with its commit.
    pub fn unqueued(&self) -> Result<Option<Term>> {
        let ends = |settle: &Settle| matches!(settle, Settle::Skip { .. });
        let mut lowest: Option<Term> = None;
        for Entry { source, decision, item, .. } in &self.entries {
            let Source::Unqueued(term) = source else { continue };
            let sound = match decision {
                Decision::Apply { on_guard_failed, on_violation, .. } => {
                    ends(on_guard_failed) && ends(on_violation)
                }
                Decision::Settle(settle) => ends(settle),
            };
            if !sound || item.run != RunId::NONE {
                let key = &item.identity.key;
                let why = format!("the item {key} was never queued: it has no run and no retry");
                return Err(Error::Invalid(why));
            }
            lowest = Some(lowest.map_or(*term, |lowest| lowest.min(*term)));
        }
        Ok(lowest)
    }

    /// The result that leaves out every entry for this reason. The store then writes nothing, not even
    /// the commit id.
    pub fn all_left(&self, why: LeftOut, now: Time) -> Committed {
        Committed {
            outcomes: vec![Outcome::Left(why); self.entries.len()],
            at: now,
            runs_ended: Vec::new(),
        }
    }

    /// If the store's clock is behind [`Batch::as_of`], returns the result that leaves out every
    /// entry. The store then writes nothing, not even the commit id.
    pub fn ahead_of(&self, now: Time) -> Option<Committed> {
        (self.as_of > now).then(|| self.all_left(LeftOut::NotDue, now))
    }
}

// ---------------------------------------------------------------------------- commands

use besom_core::command::counted;
pub use besom_core::command::{Command, DeadSelector, MessageSelector};
pub use besom_core::purge::{Place, Purge, Purged};

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
    /// of its runs that scan or have items left become what [`Brake::resumed`] says.
    Resume(TaskName, Brakes),
    /// Ends the scans of the task's active runs with the given error, and discards the items that wait in
    /// the log, as timers and as retries, each with a history row that names the requester and the reason.
    /// Nothing blocks planning them again. A batch that is being executed is left out of its commit. Takes
    /// as many items in one transaction as dead letters.
    DiscardPlanned(TaskName, String),
    /// Approves a held run whose review waits: the run is held no longer, and its brakes become what
    /// [`Brake::resumed`] says. The end of its scan follows.
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
    /// Ends the scan of the run with this error, as [`Store::end_scan`] does; the run itself ends
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
    /// Gives up pending messages, with [`DISCARDED`] as their error. Attempts under way are not
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

// -------------------------------------------------------------------------- inspection

pub use besom_core::books::{DeadLetter, Progress};

/// Which dead letters of a selection to return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Open letters only: those that need attention.
    Open,
    /// Open and resolved letters.
    All,
}

/// A row of the history: the outcome of one item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// The number of the row. Newer rows have higher numbers.
    pub id: u64,
    /// The identity of the item.
    pub identity: Identity,
    /// The run that planned the item; [`RunId::NONE`] for an item that was never queued.
    pub run: RunId,
    /// When the outcome was committed, by the store's clock.
    pub at: Time,
    /// How the item ended.
    pub outcome: End,
    /// Whether a skip was settled. A settled skip blocks planning the same version again.
    pub settled: bool,
    /// Number of the product's rows that the item changed.
    pub rows: u64,
    /// The reason, for outcomes without effects; for others, why rows were left as they were.
    pub reason: Option<String>,
    /// The plugin's notes, for a committed item.
    pub notes: Vec<Field>,
    /// The node that committed the outcome; for a discarded item, the leader.
    pub node: Incarnation,
    /// The id of the commit; 0 for a discarded item.
    pub commit: CommitId,
    /// Size of the before-images held for undo, in bytes.
    pub undo_bytes: u64,
}

/// Selects history rows. A row must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryQuery {
    /// Rows of this task only.
    pub task: Option<TaskName>,
    /// Rows of this tenant only.
    pub tenant: Option<Tenant>,
    /// Rows of this key only.
    pub key: Option<String>,
    /// Rows of items that this run planned.
    pub run: Option<RunId>,
    /// Rows with lower numbers than this one, for paging.
    pub before: Option<u64>,
    /// Maximum number of rows, newest first.
    pub limit: u32,
}

pub use besom_core::books::Counts;

/// The counters of one task and tenant, and their recount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// The task of the counters.
    pub task: TaskName,
    /// The tenant of the counters; `None` for items without a tenant.
    pub tenant: Option<Tenant>,
    /// The stored counters.
    pub counted: Counts,
    /// The recount of the history (with the baseline of pruned rows), dead letters, log, timers and
    /// retries.
    pub recounted: Counts,
}

/// The recount of the engine's books, made in one snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Audit {
    /// One row per task and tenant.
    pub rows: Vec<AuditRow>,
    /// Inconsistencies other than numbers: gaps in a stream, an item that waits twice, an index
    /// entry without its item, a run with wrong counts.
    pub violations: Vec<String>,
}

impl Audit {
    /// Whether all counters equal their recount and balance, and there are no violations.
    pub fn balanced(&self) -> bool {
        self.violations.is_empty()
            && self.rows.iter().all(|row| row.counted == row.recounted && row.counted.conserved())
    }
}

/// Selects reviews. A review must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReviewQuery {
    /// The review of this run only.
    pub run: Option<RunId>,
    /// Reviews of this task only.
    pub task: Option<TaskName>,
    /// Only those that wait for a decision.
    pub waiting: bool,
    /// Reviews with lower numbers than this one, for paging.
    pub before: Option<RunId>,
    /// Maximum number of reviews, newest first.
    pub limit: u32,
}

/// Why a review cannot be decided: it does not wait for a decision.
pub fn not_waiting(run: RunId, found: Option<&review::Standing>) -> String {
    match found {
        None => format!("there is no review of run {run}"),
        Some(review::Standing { state: review::State::Shown, .. }) => {
            format!("the review of run {run} is a preview: there is nothing to decide")
        }
        Some(decided) => format!("the review of run {run} is {decided}"),
    }
}

/// Why a run cannot be decided: the decision that was made about it, or else `why`.
pub fn decided_or(run: RunId, found: Option<review::Standing>, why: &str) -> String {
    let decided = found.filter(|found| found.state != review::State::Waiting);
    decided.map_or_else(|| why.to_owned(), |decided| not_waiting(run, Some(&decided)))
}

/// What a commit would have done, had it not been rolled back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tried {
    /// What would have become of each entry.
    pub outcomes: Vec<Outcome>,
    /// What each entry would have changed.
    pub changes: Vec<TriedChanges>,
}

/// What an entry would have changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TriedChanges {
    /// Number of rows.
    pub rows: u64,
    /// The rows as they are now, as far as they would be kept.
    pub images: Vec<BeforeImage>,
    /// Their size as they would be kept, in bytes.
    pub bytes: u64,
    /// Why rows would be left as they are.
    pub said: Option<String>,
    /// The rows that another session has locked, so that they were left out of the trial.
    pub locked: Option<LockedRows>,
}

/// Rows of an entry that another session has locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedRows {
    /// How many rows; 1 if the statement has ended with the first.
    pub rows: u64,
    /// The key of the first of them, if it is known.
    pub first: Option<String>,
}

/// How many items of one task are waiting.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Depth {
    /// The task; always set in results of [`Store::depths`].
    pub task: Option<TaskName>,
    /// Items ever planned. The difference to the waiting items have ended.
    pub planned: u64,
    /// Items in the log.
    pub log: u64,
    /// Items that are waiting as timers for their due time.
    pub timers: u64,
    /// Items that are waiting to be retried.
    pub retries: u64,
    /// Open dead letters.
    pub dead: u64,
    /// The due time of the earliest timer.
    pub next_due: Option<Time>,
    /// Since when the oldest item of the log has been waiting, or the due time of the earliest
    /// overdue timer.
    pub oldest: Option<Time>,
    /// Size of the before-images held, in bytes.
    pub undo_bytes: u64,
    /// Rows of the product that the task has ever changed.
    pub rows: u64,
}

/// A node as it last reported itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// The incarnation of the node.
    pub node: Incarnation,
    /// What it does.
    pub state: Role,
    /// When the node wrote this row.
    pub seen_at: Time,
    /// The digest of its configuration.
    pub config_digest: String,
    /// The services that it could not reach at that time.
    pub missing: Vec<Missing>,
    /// The name of its machine; empty: the row was written by an earlier version.
    pub hostname: String,
    /// The address at which other nodes reach it; empty: none.
    pub address: String,
    /// Its weight: its share of the partitions relative to the other nodes.
    pub weight: u32,
    /// The node's own report; `None`: it has not reported yet, or used the format of another
    /// version.
    pub report: Option<Report>,
}

/// How many brakes of a task's newest unfinished runs a resumption sets anew.
pub const BRAKES_RESUMED: u32 = 1_000;

/// The number of newest terms that are kept regardless of their age.
pub const TERMS_KEPT: u32 = 20;

/// How long data is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention<'a> {
    /// History, slots, runs with their log lines, commands, ended messages, settled versions,
    /// tenants' cursors since their last visit, and terms except for the newest [`TERMS_KEPT`].
    pub history: Duration,
    /// Before-images, by task. Those of a task that is not listed are removed with their history
    /// row.
    pub undo: &'a [(TaskName, Duration)],
    /// Nodes, counted from when they were last seen.
    pub nodes: Duration,
    /// The topics that have a route. Messages waiting for any other topic cannot be delivered and
    /// are kept as long as the history; of each topic, one call examines as many as it may remove,
    /// in the order of their next attempts. `None`: the routes are unknown, and all waiting messages
    /// are kept.
    pub routed: Option<&'a [String]>,
}

/// What [`Store::prune`] has removed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// History rows, which were added to the baseline.
    pub history: u64,
    /// Before-images of items.
    pub undo: u64,
    /// Other rows: commits, slots, runs and their lines, commands, ended messages, resolved dead
    /// letters, terms.
    pub other: u64,
}

// ------------------------------------------------------------------------------ outbox

/// A message of the outbox and the state of its delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The task that emitted it; `None`: the row names none.
    pub task: Option<TaskName>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<Tenant>,
    /// The topic, which determines the receiver.
    pub topic: String,
    /// The messages of one topic, tenant and key are delivered in order.
    pub key: String,
    /// The state of the delivery.
    pub delivery: Delivery,
    /// A pending message is not attempted before this time.
    pub next_at: Time,
    /// Whether a later one of its topic, tenant and key was delivered or is being tried: once it is given up, only
    /// `--force` retries it.
    pub superseded: bool,
}

/// The messages of a topic that wait for their delivery, and those that were given up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutboxTopic {
    /// Its name.
    pub topic: String,
    /// How many messages wait.
    pub waiting: u64,
    /// When the first of them was committed.
    pub oldest: Option<Time>,
    /// The error of its last attempt.
    pub waiting_error: Option<String>,
    /// How many rows of it are in the table `feed`: they are no messages yet.
    pub inserted: u64,
    /// How many of the latest [`GIVEN_UP_READ_MAX`] messages that were given up can be retried: those that were not
    /// discarded, and that no later message has superseded.
    pub given_up: u64,
    /// Of the latest of these: when it was given up, and why.
    pub last_given_up: Option<(Time, String)>,
}

/// Maximum number of messages of a topic that are examined for [`OutboxTopic::given_up`].
pub const GIVEN_UP_READ_MAX: u32 = besom_snapshot::Topic::GIVEN_UP_MAX;

/// The topics of rows in the table `feed`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedTopics {
    /// Those among the topics that were asked for, in their order.
    pub known: Vec<String>,
    /// Others, in an order of the store's.
    pub others: Vec<String>,
}

/// The number and size of messages that wait for delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pending {
    /// Number of messages.
    pub messages: u64,
    /// Size of their keys and payloads, in bytes.
    pub bytes: u64,
}

/// Selects messages. A message must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageQuery {
    /// Messages of this topic only.
    pub topic: Option<String>,
    /// Messages in this state only.
    pub state: Option<besom_core::delivery::State>,
    /// Messages of the item with this history row only.
    pub history: Option<u64>,
    /// The message of this number only.
    pub id: Option<u64>,
    /// Messages of this key only.
    pub key: Option<String>,
    /// Maximum number of messages, newest first.
    pub limit: u32,
}

// --------------------------------------------------------------------------- snapshots

/// A range read: the rows of one tenant in the order of an index; rows with equal values are in the
/// order of the key. NULL sorts before every value, and a bound excludes NULL. In a read over all
/// tenants, the tenant sorts before the index.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Range {
    /// The collection to read.
    pub collection: String,
    /// The index to read by; `None`: the key.
    pub index: Option<String>,
    /// Values that the first columns of the index must equal.
    pub prefix: Vec<Value>,
    /// The inclusive lower bound of the column after the prefix.
    pub lower: Option<Value>,
    /// The inclusive upper bound of the column after the prefix.
    pub upper: Option<Value>,
    /// An exclusive lower bound of the column after the prefix; every value is beyond NULL.
    pub beyond: Option<Value>,
    /// Further conditions that the rows within the range must meet.
    pub conditions: Vec<Condition>,
    /// The columns to return.
    pub columns: Vec<String>,
    /// Whether to read from the upper end.
    pub descending: bool,
    /// Maximum number of rows.
    pub limit: u32,
    /// Approximate maximum size, in bytes. At least one row is returned.
    pub bytes_max: usize,
    /// Maximum number of rows examined before the page ends, regardless of how many meet the
    /// conditions; 0: no limit.
    pub scan_max: u64,
    /// Where the previous page ended ([`RangePage::next`]).
    pub after: Option<Vec<u8>>,
    /// Whether to return the keys of the rows as well.
    pub keys: bool,
}

impl From<&RowRange> for Range {
    /// A read of all rows of a range that a commit changes.
    fn from(range: &RowRange) -> Range {
        Range {
            collection: range.collection.clone(),
            index: range.index.clone(),
            prefix: range.prefix.clone(),
            lower: range.lower.clone(),
            upper: range.upper.clone(),
            conditions: range.conditions.clone(),
            limit: range.rows,
            after: range.after.clone(),
            ..Range::default()
        }
    }
}

/// A page of a range read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RangePage {
    /// The rows that meet the conditions.
    pub rows: Vec<Row>,
    /// The key of each row, if requested.
    pub keys: Vec<RowKey>,
    /// Where the next page starts; `None`: the end of the range was reached.
    pub next: Option<Vec<u8>>,
    /// Rows that the database examined, as far as it reports them: the returned rows and those that
    /// the conditions excluded.
    pub scanned: u64,
}

/// A consistent view of the user's tables, for the reads of one act or one scan. `tenant` is added
/// to every query of a collection with a tenant column; `None` means all tenants. An embedded store
/// reads on the calling thread, which may block: reads are made from the guests' threads.
#[async_trait]
pub trait ReadView: Send + Sync {
    /// Sets the deadline of all following reads. A read that has not ended by then fails with
    /// [`Cause::Slow`] and is cancelled in the database.
    fn read_by(&self, deadline: Instant);

    /// Sets the maximum size of the values that each following read may return, in bytes. A read by
    /// keys that exceeds it fails with [`Error::TooLarge`] while its rows arrive. A page of a range
    /// ends with the row that reaches the limit; only a single larger row makes it fail.
    fn read_at_most(&self, bytes: u64);

    /// Approximate number of rows examined by [`ReadView::count`] and [`ReadView::tenants`]; 0 if
    /// the database does not report it.
    fn looked_at(&self) -> u64 {
        0
    }

    /// Reads rows by key, in the order of the keys; `None` for a row that does not exist.
    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>>;

    /// Reads one page of rows in the order of an index.
    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage>;

    /// The number of rows that match all conditions, counted up to `limit`.
    async fn count(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
        limit: u32,
    ) -> Result<u32>;

    /// The column that the bounds of a range are for, and whether its table has tenants.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the index has no column after the prefix.
    fn bounded(&self, range: &Range) -> Result<(String, bool)>;

    /// The tenants after `after`, in order, that have at least one row in the range. It skips from
    /// tenant to tenant in the index.
    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>>;

    /// The delivery states of a task's own messages: for each key, the latest message that an item
    /// of this tenant emitted to the topic; `None` if there is no such message (any more: messages
    /// are removed with the history).
    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>>;
}

/// A difference between a user's table and its mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingFault {
    /// The collection whose mapping is concerned.
    pub collection: String,
    /// The key within the collection's table in `besom.toml` that is wrong: `table`,
    /// `columns.NAME`, `indexes.NAME`, `key`, `tenant`, `anchor`.
    pub place: String,
    /// What is wrong and how to correct it.
    pub message: String,
    /// Whether it is only a warning.
    pub warning: bool,
}

impl MappingFault {
    /// The place of a fault about rows that a foreign key deletes with those of the collection.
    pub const CASCADES: &str = "accept_cascades";
}

/// The store: the engine's tables and the user's tables in one database.
#[async_trait]
pub trait Store: Send + Sync {
    // ---- the store itself

    /// The store's clock, which decides what is due.
    async fn now(&self) -> Result<Time>;

    /// A unique identifier that is generated when the store is created and never changes.
    fn identity(&self) -> &str;

    /// The number of partitions, which is fixed when the store is created.
    fn partitions(&self) -> u32;

    /// Sets the collections for all following operations. Reads and commits that are already
    /// running keep theirs.
    fn set_collections(&self, collections: Arc<Collections>);

    /// Compares the mapping with the database: tables, columns, keys, indexes, anchors.
    async fn check(&self, collections: &Collections) -> Result<Vec<MappingFault>>;

    /// Compares the operations that tasks may perform on collections (`granted`, by name) with the
    /// database: what its role may not do, and what the database does by itself beside them. Empty for a
    /// store that has neither roles nor triggers.
    async fn check_granted(
        &self,
        _collections: &Collections,
        _granted: &BTreeMap<String, Operations>,
    ) -> Result<Vec<MappingFault>> {
        Ok(Vec::new())
    }

    /// Whether rows can be moved between these collections, from the first into the second of each pair, as far
    /// as the columns of their tables show. Empty for a store whose tables have no other columns than the mapping.
    async fn check_moves(
        &self,
        _collections: &Collections,
        _moves: &[(String, String)],
    ) -> Result<Vec<MappingFault>> {
        Ok(Vec::new())
    }

    // ---- leadership

    /// Raises the fence to a higher term and takes over the given partitions (all if `partitions`
    /// is `None`), raising their epochs, in one transaction.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the fence is already at or above `fence.term`.
    async fn raise_fence(
        &self,
        fence: &FencingToken,
        node: &Incarnation,
        partitions: Option<&[Partition]>,
    ) -> Result<Raised>;

    /// Why this store is permanently not the one that other processes find at the same place (its
    /// file was replaced, or is malformed); `None`: it is still the same. Before it reports a loss, the adapter
    /// saves what it can.
    async fn lost(&self) -> Option<String> {
        None
    }

    /// Whether the database was found to be malformed ([`Error::Damaged`]); [`Store::lost`] then has
    /// the reason. It does not wait.
    fn is_damaged(&self) -> bool {
        false
    }

    /// The current fence; `None` in a store that never had a leader.
    async fn fence(&self) -> Result<Option<Fence>>;

    /// The raises of the fence that are still recorded, newest first.
    async fn terms(&self, limit: u32) -> Result<Vec<Fence>>;

    // ---- ownership

    /// The owners of all partitions, in order.
    async fn partition_table(&self) -> Result<Vec<PartitionRow>>;

    /// Takes over those of the partitions that still have the expected epoch and were claimed by an
    /// older ring, raising their epochs, in one transaction. The others are left unchanged. Returns
    /// the partitions taken. From then on, entries under an earlier epoch are left out of commits.
    async fn claim_partitions(
        &self,
        node: &Incarnation,
        at: RingPosition,
        claims: &[Claim],
    ) -> Result<Vec<(Partition, OwnerEpoch)>>;

    /// What a leader has added to the queues since that mark (0: since the beginning). Used by
    /// owners that do not lead. The returned mark is the one to pass to the next call. It is lower
    /// than `since` if the store has lost data (it was restored, or a lagging standby took over);
    /// then anything may have arrived.
    async fn arrivals(&self, since: u64) -> Result<Arrivals>;

    /// Returns when something may have arrived or a command may have been submitted, at the latest
    /// after `timeout`. This is a hint: the caller has to check.
    async fn nudged(&self, timeout: Duration) {
        tokio::time::sleep(timeout).await;
    }

    // ---- planning: every write here is rejected below the fence

    /// The stored state of every task ever seen.
    async fn task_states(&self) -> Result<Vec<TaskState>>;

    /// All runs that have not ended.
    async fn active_runs(&self) -> Result<Vec<Run>>;

    /// Writes decided slots, starts runs and stores task states. Returns the ids of the runs, in
    /// order.
    ///
    /// The call can be repeated after a lost answer: slots that are already written are not written
    /// again, and a run of [`Trigger::Schedule`] or [`Trigger::Takeover`] that the same term has
    /// already started for that task and slot is not started again; its id is returned. A decision
    /// that was based on an outdated state of the store ([`SlotDecision::seen`]) writes nothing:
    /// the result is the runs that the same term has already started for its slots.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an earlier term has started such a run, or if the decision is outdated
    /// and the same term has not started its runs.
    async fn decide_slots(
        &self,
        fence: &FencingToken,
        decision: &SlotDecision,
    ) -> Result<Vec<RunId>>;

    /// The cursor of (task, tenant); `None`: the scan starts at the beginning.
    async fn cursor(&self, task: &TaskName, tenant: Option<&Tenant>) -> Result<Option<Vec<u8>>>;

    /// Plans a page: items with a due time become timers, even if they are overdue; the others are
    /// appended to their streams without gaps. Counters, run and cursor are written in the same
    /// transaction.
    ///
    /// Candidates that are already waiting or are blocked are left out and counted. A candidate is
    /// blocked by a settled skip, a discard or an open dead letter of its identity and version.
    /// With another version it is a new item, and the old dead letter stays open. A later settled
    /// skip replaces what blocked the identity, and a commit removes it; no other outcome affects
    /// it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the scan of the run has ended.
    async fn plan_page(&self, fence: &FencingToken, page: &PlanPage) -> Result<Planned>;

    /// Whether each of these candidates of a task is blocked, as [`Store::plan_page`] would find it: it does not wait,
    /// and a settled skip, an undo, a discard or an open dead letter of its identity and version keeps it from being
    /// planned. Nothing is written.
    async fn blocked(&self, task: &TaskName, candidates: &[Candidate]) -> Result<Vec<bool>>;

    /// Ends the scan of a run, with an error or without. Also ends the run if none of its items is
    /// in the log; timers and retries outlive the run. Returns whether the run has ended. Repeating
    /// the call changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the task has no such run, or the run has planned fewer items than the leader was told: the
    /// store was restored to an earlier state.
    async fn end_scan(&self, fence: &FencingToken, end: &EndOfScan) -> Result<bool>;

    /// The number of rows of a collection, of all tenants: as the database's planner estimates it, or
    /// counted up to `count_max` if it has no estimate. It never reads more rows than that.
    async fn estimate(&self, collection: &str, count_max: u64) -> Result<u64>;

    /// Whether deleted rows of a collection come back the same in whatever order they are put back: it has no
    /// dependants, and its table neither refers to itself nor has triggers of the product.
    async fn is_order_free(&self, collection: &str) -> Result<bool>;

    /// Sets the brakes of a run, before its first items are planned. A brake that is set already stays
    /// as it is.
    async fn set_brakes(&self, fence: &FencingToken, brakes: &[Brake]) -> Result<()>;

    /// The brakes of the newest runs of a task, newest first; at most `limit` brakes.
    async fn brakes(&self, task: &TaskName, limit: u32) -> Result<Vec<Brake>>;

    /// Opens the review of a run whose scan has not ended. The review of a held run waits for a decision;
    /// that of another is only shown. Repeating the call changes nothing.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such run.
    async fn open_review(&self, fence: &FencingToken, review: &NewReview) -> Result<()>;

    /// The reviews that match, newest first. They are removed with their runs.
    async fn reviews(&self, query: &ReviewQuery) -> Result<Vec<Review>>;

    // ---- commands

    /// Submits a command for the leader. Any process may do so. Returns the number of the command.
    async fn submit(&self, command: &Command, by: &str, reason: &str) -> Result<u64>;

    /// Commands that no leader has applied yet, oldest first.
    async fn pending_commands(&self, limit: u32) -> Result<Vec<CommandRow>>;

    /// All commands, newest first, with numbers below `before`.
    async fn commands(&self, before: Option<u64>, limit: u32) -> Result<Vec<CommandRow>>;

    /// The command with that number.
    async fn command(&self, id: u64) -> Result<Option<CommandRow>>;

    /// Applies the effect of a command and marks the command as applied, with the result. A command
    /// that is already marked is not applied again; its earlier result is returned. If the number belongs
    /// to another command ([`CommandRow::check_is`]), nothing is applied.
    ///
    /// One call is one transaction and takes at most `letters` dead letters. If more may be left, it
    /// records its progress instead of the mark ([`Applied::progress`]): the command stays pending,
    /// and the next call continues, under any leader. `expect` is checked by the first call only.
    async fn apply_command(
        &self,
        fence: &FencingToken,
        command: &CommandRow,
        effect: &CommandEffect,
        result: &str,
        letters: NonZeroU32,
    ) -> Result<Applied>;

    // ---- execution

    /// The streams of these partitions (`None`: all) that have items to execute.
    async fn backlog(&self, partitions: Option<&[Partition]>) -> Result<Vec<Stream>>;

    /// All streams with the number of their rows; of one task if given.
    async fn streams(&self, task: Option<&TaskName>) -> Result<Vec<StreamRow>>;

    /// Reads the items of a stream after `acked` (which is not below the stream's cursor), in
    /// order, at most `limit` items and about `bytes_max` bytes, but at least one item if there is
    /// one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a sequence number is missing; the message names it.
    async fn read_log(
        &self,
        task: &TaskName,
        partition: Partition,
        acked: Seq,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<Waiting>>;

    /// Reads several streams of a task, one after the other, at most `each` items of one stream and
    /// `limit` items of all. A broken stream is reported and does not prevent reading the others.
    /// Adapters that can do so read all streams from one snapshot.
    ///
    /// # Errors
    /// A failure of the store, if nothing was read before it; otherwise the failure ends the read,
    /// and what was read is returned.
    async fn read_logs(
        &self,
        task: &TaskName,
        streams: &[(Partition, Seq)],
        each: u32,
        limit: u32,
        bytes_max: usize,
    ) -> Result<LogRead> {
        let mut room = LogRoom::new(each, limit, bytes_max);
        for (partition, acked) in streams {
            let Some((items, bytes)) = room.left() else { break };
            let read = self.read_log(task, *partition, *acked, items, bytes).await;
            if !room.take(*partition, read)? {
                break;
            }
        }
        Ok(room.read)
    }

    /// Timers of these tasks and partitions (`None`: all) after `after`, ordered by due time, then
    /// id.
    async fn read_timers(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>>;

    /// Retries of these tasks and partitions (`None`: all) after `after`, ordered by time, then id.
    async fn read_retries(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>>;

    /// Takes rows from the task's budget for a batch that is about to change them. All nodes share
    /// the budget, which is measured by the store's clock ([`besom_core::budget`]). This is a
    /// separate transaction before that of the batch, so that no transaction waits for the budget
    /// while holding locks. A crash of the store may lose what was taken.
    async fn take_rows(
        &self,
        task: &TaskName,
        rows: u64,
        per_second: NonZeroU32,
    ) -> Result<Allowance>;

    /// Measures what the other users of the database feel, with requests that are small and end soon;
    /// `collections` are those whose rows are being changed. What happened since the last call counts
    /// where the store sees it happen; elsewhere, this moment. What cannot be measured, for example
    /// because a privilege is missing, is `None`.
    async fn strain(&self, collections: &[String]) -> Result<Strain>;

    /// Records which items are about to be executed, so that a death of the host during their
    /// execution is counted ([`Item::deaths`]). The record survives the process, but not
    /// necessarily the machine. `lane` determines the order among the requests that wait for the
    /// store.
    async fn begin(
        &self,
        id: CommitId,
        node: &Incarnation,
        lane: Lane,
        items: &[(Source, &Item)],
    ) -> Result<()>;

    /// Removes the record of a begun batch that will not be committed.
    async fn abandon(&self, id: CommitId) -> Result<()>;

    /// The incarnations with begun batches that are neither committed nor abandoned.
    async fn begun_by(&self) -> Result<Vec<Incarnation>>;

    /// For the batches of these incarnations that are neither committed nor abandoned: counts one
    /// death for each of their items that still waits where it was, and removes the records of the
    /// batches. Returns the identities counted. Requires the fence, because the leader decides
    /// which incarnations are dead.
    async fn bury(&self, fence: &FencingToken, dead: &[Incarnation]) -> Result<Vec<Identity>>;

    /// Commits a batch (docs/architecture.md): ownership and cursors, anchors, guards, changes,
    /// before-images, history, counters, outbox, acknowledgement.
    ///
    /// The commit is all or nothing, except for entries that are left out and items whose guards or
    /// constraints failed; those settle as their entry says. An item that moves to the retries gets
    /// a new id there. A committed item resolves the open dead letters of its identity. A batch
    /// whose id is already committed is not applied again; its earlier result is returned. A batch
    /// whose [`Batch::as_of`] is ahead of the store's clock does nothing.
    ///
    /// An item that was never queued ([`Source::Unqueued`]) is planned and ended by its commit,
    /// and counts in the books as both.
    ///
    /// Whoever drops the future before it has a result does not know the result, as after
    /// [`Error::Unknown`]: [`Store::find_commit`] decides. A store cancels what it can.
    ///
    /// # Errors
    /// [`Error::Fenced`] if the batch has such an item and the fence is above its term.
    ///
    /// A batch with an item of a held run ([`Run::held`]) does nothing: every entry is left out
    /// ([`LeftOut::Braked`]).
    async fn commit(&self, batch: &Batch) -> Result<Committed>;

    /// Does what [`Store::commit`] does with a batch of items that were never queued, and rolls it back:
    /// guards, constraints and triggers speak, and nothing is changed. Keeps the rows of entries that keep
    /// before-images.
    ///
    /// # Errors
    /// Those of [`Store::commit`].
    async fn try_commit(&self, batch: &Batch) -> Result<Tried>;

    /// After [`Error::Unknown`]: the result of the commit with that id. `None`: it has not happened
    /// and never will. The id is then abandoned, and a later commit of a batch with it fails with
    /// [`Error::Invalid`].
    async fn find_commit(&self, id: CommitId) -> Result<Option<Committed>>;

    // ---- the outbox

    /// Records the results of attempts, then claims messages for one attempt each, in one transaction: the
    /// oldest of each topic. A result is ignored if it is not of the latest attempt of its message, or if
    /// the message has ended. Each claim counts one attempt and hides the message for the hold. Of one
    /// topic, tenant and key, only the first pending message can be claimed; it is due from the moment on in
    /// which it became the first. A row that cannot be read is given up. Without results, and if nothing is found,
    /// nothing is written.
    ///
    /// # Errors
    /// [`Error::Fenced`] below the fence.
    async fn claim_messages(
        &self,
        fence: &FencingToken,
        ended: &[Attempt],
        claim: &delivery::Claim,
    ) -> Result<Vec<Claimed>>;

    /// Reads the first pending messages of a topic for a broker, without those that are known and those
    /// of the sequences that are held: at most `limit`, and no more than `bytes` of payloads if it is not
    /// a single one. Messages of a sequence are returned in its order and without gaps, unless a gap is
    /// known. Nothing is written, except that a row that cannot be read is given up.
    async fn read_messages(
        &self,
        topic: &str,
        known: &[u64],
        held: &[delivery::Sequence],
        limit: u32,
        bytes: u64,
    ) -> Result<Vec<Claimed>>;

    /// Records the results of messages that were read by [`Store::read_messages`]. Each counts one
    /// attempt. [`delivery::End::Again`] only records the error. Messages that have ended are left alone.
    ///
    /// # Errors
    /// [`Error::Fenced`] below the fence.
    async fn end_messages(&self, fence: &FencingToken, ends: &[(u64, delivery::End)])
    -> Result<()>;

    /// The number and size of a task's messages to a topic that wait for delivery; `None`: of the
    /// messages that no task has emitted. Counts at most `limit` messages.
    async fn pending_messages(
        &self,
        task: Option<&TaskName>,
        topic: &str,
        limit: u32,
    ) -> Result<Pending>;

    /// Removes the oldest waiting messages of a task to a topic, at most `count`. Used for topics
    /// without a route, whose messages cannot be delivered. Returns what was removed.
    async fn drop_messages(&self, task: &TaskName, topic: &str, count: u32) -> Result<Pending>;

    /// The topics of which messages wait for their delivery, or were given up and can be retried, in the order of their
    /// names and at most `topics_max` of each kind. Messages that wait are counted up to `count_max`.
    async fn outbox_topics(&self, topics_max: u32, count_max: u32) -> Result<Vec<OutboxTopic>>;

    /// The messages that match, newest first.
    async fn messages(&self, query: &MessageQuery) -> Result<Vec<Message>>;

    // ---- messages of the product itself

    /// Stores messages in one transaction and answers for each, in their order. Numbers are judged by
    /// [`besom_core::delivery::feed::judge`], each after the messages before it. Needs no fence: any
    /// host accepts messages, as any transaction of the product may.
    async fn enter_messages(&self, offered: &[Offered]) -> Result<Vec<Entered>>;

    /// The highest number that the product has given to a message of this topic, tenant and key; 0:
    /// none.
    async fn last_entered(&self, topic: &str, tenant: Option<&Tenant>, key: &str) -> Result<u64>;

    /// When anything was written to the database last, if that is known at almost no cost; none: it is not. A write
    /// within a few milliseconds of another one may have the same time.
    fn written_at(&self) -> Option<SystemTime> {
        None
    }

    /// The topics of the rows that the product has inserted into the table `feed`: all that are `known`,
    /// and at most `others_max` others.
    async fn feed_topics(&self, known: &[String], others_max: u32) -> Result<FeedTopics>;

    /// Moves messages that the product has inserted into the table `feed`: of these topics, in the
    /// order of their numbers there, at most `limit`, and no more than `bytes` of payloads if it is not
    /// a single one. Returns how many were moved.
    ///
    /// # Errors
    /// [`Error::Fenced`] below the fence.
    async fn collect_messages(
        &self,
        fence: &FencingToken,
        topics: &[String],
        limit: u32,
        bytes: u64,
    ) -> Result<u64>;

    // ---- the user's tables

    /// Opens a consistent view that lives for at most `open_max`.
    async fn snapshot(&self, open_max: Duration) -> Result<Arc<dyn ReadView>>;

    // ---- inspection

    /// How many items are waiting, per task.
    async fn depths(&self) -> Result<Vec<Depth>>;

    /// The runs of one task or of all, newest first.
    async fn runs(&self, task: Option<&TaskName>, limit: u32) -> Result<Vec<Run>>;

    /// The newest run of a task whose scan ended without an error; `None`: there was none, or it
    /// was pruned.
    async fn last_scanned(&self, task: &TaskName) -> Result<Option<Run>>;

    /// The run with that id.
    async fn run(&self, id: RunId) -> Result<Option<Run>>;

    /// The slot history of a task that overlaps [from, to], newest first.
    async fn slots(
        &self,
        task: &TaskName,
        from: Time,
        to: Time,
        limit: u32,
    ) -> Result<Vec<SlotRecord>>;

    /// The dead letters that match and have numbers below `before`, newest first.
    async fn dead_letters(
        &self,
        selector: &DeadSelector,
        letters: Letters,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>>;

    /// The open dead letters grouped by task and last error; the group with the newest letter comes
    /// first. Needs one pass over an index, regardless of the size of the letters.
    async fn dead_groups(&self, limit: u32) -> Result<Vec<DeadGroup>>;

    /// The history rows that match, newest first.
    async fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>>;

    /// The before-images of a history row, oldest change first. `None`: there is no such row, or
    /// its images were pruned or never kept.
    async fn before_images(&self, history: u64) -> Result<Option<Vec<BeforeImage>>>;

    /// What is kept of the item of a history row. `None`: there is no such row, or its images were
    /// pruned or never kept.
    async fn kept(&self, history: u64) -> Result<Option<KeptItem>>;

    /// Puts rows back as [`besom_core::proposal::Change::Restore`] does, in a transaction that is
    /// rolled back: constraints and triggers speak, and nothing is changed.
    async fn rehearse(&self, tenant: Option<&Tenant>, restore: &Restore) -> Result<Restored>;

    // ---- what guests log

    /// Writes log lines, numbering those of each run from 1 without gaps, and adds `lost` to the
    /// lost lines of their runs. Only the newest `lines_max` lines of a run are kept; the removed
    /// ones count as lost. Lines of unknown runs are ignored.
    async fn write_lines(
        &self,
        lines: &[RunLine],
        lost: &[(RunId, u64)],
        lines_max: u32,
    ) -> Result<()>;

    /// The log lines of a run with numbers above `after`, in order.
    async fn lines(&self, run: RunId, after: u64, limit: u32) -> Result<RunLines>;

    /// Recounts the books in one snapshot.
    async fn audit(&self) -> Result<Audit>;

    // ---- upkeep

    /// Writes this node's row and returns the [`NodeRow::seen_at`] of the row that it replaces.
    /// Only the node itself writes its row: if the returned time differs from the last one it
    /// wrote, the store has lost data (it was restored, or a lagging standby took over).
    async fn report_node(&self, node: &NodeRow) -> Result<Option<Time>>;

    /// All nodes that were seen and not removed.
    async fn nodes(&self) -> Result<Vec<NodeRow>>;

    /// Removes the row of a node that has left. An unknown node is not an error.
    async fn forget_node(&self, node: &Incarnation) -> Result<()>;

    /// Removes data that is older than its retention, at most `limit` rows of each kind (of
    /// before-images, of each task). Removed history is added to the baseline in the same
    /// transaction. A run is kept as long as an item or an open dead letter refers to it. A settled
    /// skip is removed with the history, so that an item that was left alone is examined again once
    /// per retention period; a discard is never removed.
    async fn prune(&self, fence: &FencingToken, keep: Retention<'_>, limit: u32) -> Result<Pruned>;
}

/// A row before a commit changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeImage {
    /// The collection of the row.
    pub collection: String,
    /// The tenant of the row; `None` if the collection has no tenant column.
    pub tenant: Option<Tenant>,
    /// The key of the row.
    pub key: RowKey,
    /// The names and values of all mapped columns; `None`: the row did not exist.
    pub row: Option<Vec<Field>>,
    /// Every column of the table, mapped or not, in the form in which the database gives it: SQLite its storage
    /// class, PostgreSQL a text in its own spelling, and bytes for `bytea`. Empty: the row did not exist.
    pub stored: Vec<Field>,
    /// How the commit left the row.
    pub left: Left,
}

/// How a commit left a row that it changed: by this it is known whether somebody has changed the row since.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Left {
    /// A version of Besom has kept the row that did not record it.
    #[default]
    Unknown,
    /// It is deleted.
    Gone,
    /// These columns were set, or inserted, as the proposal spelt them.
    Set(Vec<Field>),
    /// These columns were set, or inserted, in the form of [`BeforeImage::stored`].
    As(Vec<Field>),
    /// It is deleted, and was inserted into this collection with all its columns.
    Moved(String),
    /// It is the other place of a row that was moved.
    Copy,
}

/// What is kept of an item, so that it can be undone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct KeptItem {
    /// The version of the item; `None`: a version of Besom has kept it that did not record it.
    pub version: Option<String>,
    /// The collections of its rows, each once.
    pub collections: Vec<String>,
    /// Number of rows.
    pub rows: u64,
    /// What it was given when it was executed; `None`: a version of Besom has kept it that did not record it.
    pub given: Option<Given>,
    /// Number of its rows that were purged.
    pub purged: u64,
    /// The collections of these rows, each once.
    pub purged_of: Vec<String>,
}

/// What an item was given when it was executed, and what its plugin proposed, so that the call can be repeated.
/// The rest is in its history row: its identity, its run, and the commit, whose id has the seed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// The present.
    pub now: Time,
    /// The route of the item; `None`: its key.
    pub route: Option<String>,
    /// The payload of the item.
    pub payload: Vec<u8>,
    /// The slot of its run.
    pub planned_at: Time,
    /// Its failed executions before this one.
    pub attempts: u32,
    /// How often a guard had failed.
    pub guard_retries: u32,
    /// [`besom_core::proposal::Proposal::digest`] of what was proposed.
    pub proposal: u128,
}

impl Given {
    /// What the item of an entry was given, where `now` was the present; `None`: nothing was proposed for it.
    pub fn of(entry: &Entry, now: Time) -> Option<Given> {
        let Decision::Apply { proposal, .. } = &entry.decision else { return None };
        let item = &entry.item;
        Some(Given {
            now,
            route: (item.route != item.identity.key).then(|| item.route.clone()),
            payload: item.payload.clone(),
            planned_at: item.planned_at,
            attempts: item.attempts,
            guard_retries: item.guard_retries,
            proposal: proposal.digest(),
        })
    }
}

/// The result of putting rows back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Restored {
    /// Number of rows that were changed.
    pub rows: u64,
    /// Number of rows that were as they had been, or that an earlier attempt has put back.
    pub already: u64,
    /// Rows that stay as they are.
    pub stay: Vec<Staying>,
    /// What is different although rows were put back, and what could not be looked at.
    pub notes: Vec<String>,
    /// The triggers of the tables that were changed.
    pub triggers: Vec<String>,
}

/// A row that stays as it is, although it was to be put back.
#[derive(Debug, Clone, PartialEq)]
pub struct Staying {
    /// The collection of the row.
    pub collection: String,
    /// Its key.
    pub key: RowKey,
    /// What keeps it from being put back, in words for the user.
    pub why: String,
    /// The row as it was kept, in the form of [`BeforeImage::stored`]; empty: it did not exist.
    pub kept: Vec<Field>,
    /// The row as it is now; `None`: there is none with this key.
    pub now: Option<Vec<Field>>,
}

/// The sets of rows that one act has read, as collected by the runtime.
pub type ReadSets = Vec<Arc<ReadSet>>;
