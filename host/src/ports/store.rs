//! The store: one database that holds the user's tables and the engine's own, so that one
//! transaction can hold both.
//!
//! The operations are coarse and typed: no SQL passes through, and every one of them is
//! atomic. Two kinds of writers are refused by the store itself: a leader below the fence
//! ([`Error::Fenced`]) and an owner whose epoch has passed (its streams are left out of
//! the commit, [`Outcome::Left`]).
//!
//! Errors separate *this item* (an [`Outcome`]) from *the infrastructure* (an [`Error`]):
//! an error consumes no attempt and makes no dead letter.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
pub use besom_core::budget::Grant;
use besom_core::collection::{Collections, Operations};
pub use besom_core::delivery::{Attempt, Claimed, Delivery};
use besom_core::ids::{
    CommitId, Fence, NodeName, OwnerEpoch, Partition, RunId, Seq, TaskName, Tenant, Term,
};
use besom_core::item::{Candidate, Identity, Item, Source};
pub use besom_core::ownership::{Claim, PartitionRow, RingPosition};
use besom_core::proposal::{Change, Condition, ReadSet};
use besom_core::snapshot::{Cause, DeadGroup, Report};
use besom_core::time::Time;
use besom_core::value::{Field, Row, RowKey, Value};
use serde::{Deserialize, Serialize};

use super::guests::Lane;

/// The infrastructure failed, or refused the writer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The writer's term is below the fence, or its token is another's.
    #[error("fenced: the store knows a later term")]
    Fenced,
    /// Busy, locked, deadlocked, timed out: nothing was changed, try again.
    #[error("the store is busy: {0}")]
    Busy(String),
    /// Gone, full, read-only or broken: nothing was changed.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The transaction may or may not have committed: [`Store::find_commit`] tells.
    #[error("the result of the commit is unknown: {0}")]
    Unknown(String),
    /// The database refuses the statement as it and its tables are now, whatever the item: a
    /// privilege is missing, or a table, a column or a type is not what is mapped. Nothing was
    /// changed; it goes on once that is mended.
    #[error("the database refuses: {1}")]
    Refused(Cause, String),
    /// The request cannot be right, on any attempt: a fault of the program, a mapping or
    /// a configuration.
    #[error("{0}")]
    Invalid(String),
    /// A read returns more than whoever reads may have ([`Snapshot::read_at_most`]).
    #[error("{0}")]
    TooLarge(String),
}

/// The result of a store operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

// ------------------------------------------------------------------------ leadership

/// What a raise of the fence has settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raised {
    /// Partitions this node owns from now on, with their new epochs.
    pub owned: Vec<(Partition, OwnerEpoch)>,
}

/// The fence as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceState {
    /// The highest term.
    pub term: Term,
    /// Who raised it.
    pub node: NodeName,
    /// When.
    pub raised_at: Time,
}

/// What has come into the queues, for a node that executes what another one plans. It may
/// name more than there is, and never less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// Up to here it tells; the next question goes on from it.
    pub mark: u64,
    /// Whether a stream has grown.
    pub log: bool,
    /// The earliest due time among new timers.
    pub timer: Option<Time>,
    /// The earliest time among retries that did not come from a commit.
    pub retry: Option<Time>,
}

// ---------------------------------------------------------------------------- planning

pub use besom_core::plan::{
    NewRun, Pause, Run, Seen, SlotDecision, SlotOutcome, SlotRecord, TaskState, Trigger,
};

/// A page of a scan, to be planned in one transaction with its cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct PlanPage {
    /// The run.
    pub run: RunId,
    /// Its task.
    pub task: TaskName,
    /// The tenant that was scanned; none for a scan over all.
    pub tenant: Option<Tenant>,
    /// What was found. Equal identities within a page count once.
    pub candidates: Vec<Candidate>,
    /// The cursor of (task, tenant) from now on; none: begin anew next time.
    pub cursor: Option<Vec<u8>>,
    /// Rows looked at.
    pub scanned: u64,
    /// At most so many are planned, in order; from the first candidate on that would be
    /// one too many, the rest is left for another page, and then the cursor is not moved.
    /// (A quota. Candidates that wait already or are blocked do not use it up.)
    pub quota: u64,
}

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Planned {
    /// Items planned.
    pub planned: u64,
    /// Candidates that wait already (log, timer or retry).
    pub deduplicated: u64,
    /// Candidates blocked by a settled skip, a discard or an open dead letter of the same
    /// version.
    pub blocked: u64,
    /// Candidates left because the quota was used up.
    pub left: u64,
    /// Partitions whose streams have grown.
    pub partitions: Vec<Partition>,
    /// The earliest due time planned.
    pub earliest_due: Option<Time>,
}

/// The answer to a decision about the slots of a task that was made from elsewhere than where the
/// store stands: the runs that this term has started for them (`started`, as far as it has).
pub(crate) fn late_copy(
    task: &TaskName,
    decision: &SlotDecision,
    started: Vec<RunId>,
) -> Result<Vec<RunId>> {
    if started.is_empty() || started.len() < decision.runs.len() {
        let why = format!("the slots of {task} were decided anew since that was decided");
        return Err(Error::Invalid(why));
    }
    Ok(started)
}

// --------------------------------------------------------------------------- execution

/// A stream with items that are not acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Stream {
    /// The task.
    pub task: TaskName,
    /// The partition.
    pub partition: Partition,
    /// The last acknowledged sequence number.
    pub acked: Seq,
    /// The last one written.
    pub tail: Seq,
}

/// A stream and what is there of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRow {
    /// Where it stands.
    pub stream: Stream,
    /// Rows behind the last acknowledged sequence number. As many as there are numbers, unless
    /// the stream is broken.
    pub items: u64,
}

/// An item and where it waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    /// Where.
    pub source: Source,
    /// What.
    pub item: Item,
    /// When it may be executed: the due time of a timer, the time of a retry; the epoch
    /// for the log.
    pub run_at: Time,
}

/// A stream that cannot be read: a row is missing, or is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenStream {
    /// The partition.
    pub partition: Partition,
    /// What is wrong with it, with the place.
    pub why: String,
}

/// The answer to a read of a stream of which a number is missing.
pub(crate) fn gap(task: &TaskName, partition: Partition, missing: u64) -> Error {
    let place = format!("the stream of {task} in partition {partition}");
    Error::Invalid(format!("{place} has a gap: {missing} is missing"))
}

/// What several streams of a task gave.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LogRead {
    /// What was read, one stream after the other.
    pub items: Vec<Waiting>,
    /// The streams that hold themselves back.
    pub broken: Vec<BrokenStream>,
    /// The streams that were looked at, these included: there was no room for the others.
    pub looked: Vec<Partition>,
}

/// What [`Store::read_logs`] has read so far, and how much it may still read.
#[derive(Debug)]
pub struct LogRoom {
    /// What was read.
    pub read: LogRead,
    each: u32,
    limit: u32,
    bytes: usize,
}

impl LogRoom {
    /// Room for so many items, of one stream and of all, and about so many bytes.
    pub fn new(each: u32, limit: u32, bytes: usize) -> LogRoom {
        LogRoom { read: LogRead::default(), each, limit, bytes }
    }

    /// Items of all streams together.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Items and bytes that may be read of the next stream; none: the room is used up.
    pub fn left(&self) -> Option<(u32, usize)> {
        let read = u32::try_from(self.read.items.len()).unwrap_or(u32::MAX);
        let items = self.limit.saturating_sub(read).min(self.each);
        let full = items == 0 || (self.bytes == 0 && !self.read.items.is_empty());
        (!full).then_some((items, self.bytes))
    }

    /// Takes what a stream gave; whether the next one may be read. A stream that is broken
    /// ([`Error::Invalid`]) holds back itself alone.
    ///
    /// # Errors
    /// The infrastructure's, where nothing was read before it.
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
            // What was read is good; the rest is asked for again.
            Err(error) if !self.read.items.is_empty() => {
                tracing::debug!(%error, "the streams are read in parts");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

/// What to do with one item in a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where it waits: this is acknowledged.
    pub source: Source,
    /// The item.
    pub item: Item,
    /// The epoch under which the committer owns the item's partition.
    pub epoch: OwnerEpoch,
    /// What is to happen.
    pub decision: Decision,
}

pub use super::lines::{RunLine, RunLines};
pub use besom_core::queue::Decision;

/// A batch to be committed in one transaction: any number of tasks and streams. Entries of
/// one stream are in the order of their sequence numbers and without gaps from its cursor;
/// a stream that is not is left out whole ([`LeftOut::NotThere`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// Its unique mark.
    pub id: CommitId,
    /// Who commits.
    pub node: NodeName,
    /// The entries. No two of them touch the same row; they take effect as if one after
    /// the other.
    pub entries: Vec<Entry>,
    /// The latest instant that a guest was given as the present: what it decided holds from then
    /// on, and is left out before it by the store's clock ([`LeftOut::NotDue`]).
    pub as_of: Time,
    /// For [`besom_core::proposal::Guard::Idle`]: the activity keys observed as idle just
    /// before the commit, per entry index, by the caller. The store's own activity table,
    /// where the adapter has it, is read again inside the transaction.
    pub idle: Vec<(usize, String)>,
    /// Whether the activity is kept in this store (then it is read inside the
    /// transaction and `idle` is not looked at).
    pub activity_in_store: bool,
    /// The lane of their task: how the batch is ordered among what waits for the store.
    pub lane: Lane,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// Applied.
    Committed,
    /// Skipped, with the reason (its own, or of a guard that failed).
    Skipped(String),
    /// Moved to the retries until then.
    Retried(Time),
    /// Moved to the dead letters.
    Dead(String),
    /// Left out with its effects, because...
    Left(LeftOut),
}

/// Why an entry was left out of a commit. Nothing of it has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftOut {
    /// The partition has another owner or epoch.
    NotOwner,
    /// The stream's cursor, or the timer or retry, is not where the batch expects it:
    /// somebody has acknowledged it.
    NotThere,
    /// A timer before its due time, or a batch before [`Batch::as_of`], by the store's clock. A
    /// retry may be executed before its time: back-off is the host's choice, and a pass without
    /// a host has none.
    NotDue,
}

/// What a commit has done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// One for each entry.
    pub outcomes: Vec<Outcome>,
    /// The store's clock in the transaction.
    pub at: Time,
    /// Runs that ended with it.
    pub runs_ended: Vec<RunId>,
}

impl Batch {
    /// Where the store's clock has not come to [`Batch::as_of`] yet: nothing is done, nor is the
    /// mark written, and all entries are left out.
    pub(crate) fn ahead_of(&self, now: Time) -> Option<Committed> {
        (self.as_of > now).then(|| Committed {
            outcomes: vec![Outcome::Left(LeftOut::NotDue); self.entries.len()],
            at: now,
            runs_ended: Vec::new(),
        })
    }
}

// ---------------------------------------------------------------------------- commands

use besom_core::command::counted;
pub use besom_core::command::{Command, DeadSelector, MessageSelector};

/// A command from the words that a store keeps. What cannot be read is [`Command::Unknown`], so
/// that it keeps no other command from being read.
pub(crate) fn command_of(json: &str) -> Command {
    serde_json::from_str(json).unwrap_or(Command::Unknown)
}

/// A command as it stands in the store.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CommandRow {
    /// Its number.
    pub id: u64,
    /// What.
    pub command: Command,
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Time,
    /// When a leader applied it.
    pub applied_at: Option<Time>,
    /// What came of it.
    pub result: Option<String>,
    /// Whether the leader has refused it; the result says why.
    pub refused: bool,
}

/// The effect of a command, applied under the fence in one transaction with the mark
/// that it was applied.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandEffect {
    /// Slots and runs (trigger).
    Slots(SlotDecision),
    /// Pause, from the row's who, why and when.
    Pause(TaskName),
    /// Resume; the schedule counts from now.
    Resume(TaskName),
    /// End the scan of the run with this error, as [`Store::end_scan`] does: the run itself
    /// ends with the last of its items in the log. A run that has ended is left alone.
    Cancel(RunId, String),
    /// Dead letters into the retries, at once, with fresh attempts (errors are kept). An
    /// identity waits only once: a dead letter whose identity waits already is left, and
    /// of several of one identity the newest goes. Where [`DeadSelector::expect`] is another
    /// number than the open letters that match, the command is refused.
    RetryDead(DeadSelector),
    /// Dead letters discarded, each with a history row that names who and why. Their versions
    /// are not planned again. Refused likewise where another number matches.
    DiscardDead(DeadSelector),
    /// Messages that were given up become pending again, to be delivered at once with fresh
    /// attempts (the last error is kept). One that a later message of its task, tenant, topic
    /// and key has followed is left: its receiver knows better by now.
    RetryMessages(MessageSelector),
    /// Every stream of the task that is broken (it misses rows, or has one that cannot be read) is
    /// numbered anew behind its last number, in its order. Rows that cannot be read are removed.
    /// What the counters know and the log no longer has is written off: counted as discarded, in
    /// the baseline, and taken from the runs that planned it; nothing blocks it. Refused where no
    /// stream is broken.
    RepairStreams(TaskName),
    /// Nothing but the mark: what was asked is no matter of the store.
    Note,
    /// Nothing: it cannot be done, for this reason.
    Refuse(String),
}

impl CommandEffect {
    /// Whether the command is refused.
    pub fn is_refusal(&self) -> bool {
        matches!(self, CommandEffect::Refuse(_))
    }

    /// What is kept of the command: whether it is refused, and the leader's words with what only
    /// the transaction knows.
    pub fn outcome(&self, words: &str, applied: &Applied) -> (bool, String) {
        match (self, &applied.refused) {
            (_, Some(why)) => (true, why.clone()),
            (CommandEffect::RetryDead(_) | CommandEffect::DiscardDead(_), None) => {
                (false, format!("{words}: {}", counted(applied.dead, "dead letter")))
            }
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

/// What an applied command has done.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Applied {
    /// Runs started.
    pub runs: Vec<RunId>,
    /// Dead letters moved or discarded.
    pub dead: u64,
    /// Messages that are pending again.
    pub messages: u64,
    /// Streams that were repaired.
    #[serde(default)]
    pub repaired: Repaired,
    /// Why nothing was done: something else was found than whoever asked had seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// What a repair of streams has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Repaired {
    /// Streams that were numbered anew.
    pub streams: u64,
    /// Items that were written off.
    pub lost: u64,
}

impl Repaired {
    /// The refusal where there was nothing to repair.
    pub(crate) fn refusal(self, task: &TaskName) -> Option<String> {
        (self == Repaired::default()).then(|| format!("no stream of {task} is broken"))
    }
}

// -------------------------------------------------------------------------- inspection

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeadLetter {
    /// Its number.
    pub id: u64,
    /// The item, with every error.
    pub item: Item,
    /// When it was set aside.
    pub at: Time,
    /// When a later commit of the same identity did what this item could not; none: it is
    /// open. A resolved one blocks nothing and can neither be retried nor discarded.
    pub resolved_at: Option<Time>,
}

/// Which dead letters of a selection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Letters {
    /// Those that somebody has to look at.
    Open,
    /// Resolved ones as well.
    All,
}

/// A row of the history: what became of one item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryRow {
    /// Its number.
    pub id: u64,
    /// The item.
    pub identity: Identity,
    /// The run that planned it.
    pub run: RunId,
    /// When.
    pub at: Time,
    /// `committed`, `skipped`, `dead`, `discarded`.
    pub outcome: String,
    /// Whether a skip was settled.
    pub settled: bool,
    /// Why, for the outcomes without effects.
    pub reason: Option<String>,
    /// The plugin's notes, where it committed.
    pub notes: Vec<Field>,
    /// Who committed; for a discarded item, who raised the fence.
    pub node: NodeName,
    /// The mark of the commit; 0 for a discarded item.
    pub commit: CommitId,
    /// Bytes of the before-images held for undo.
    pub undo_bytes: u64,
}

/// Which history rows: all fields that are given hold.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct HistoryQuery {
    /// Of this task.
    pub task: Option<TaskName>,
    /// Of this tenant.
    pub tenant: Option<Tenant>,
    /// Of this key.
    pub key: Option<String>,
    /// Of this run.
    pub run: Option<RunId>,
    /// Numbers below this one.
    pub before: Option<u64>,
    /// At most so many, newest first.
    pub limit: u32,
}

/// Counters of a task and tenant.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Items planned, ever.
    pub planned: u64,
    /// With effects.
    pub committed: u64,
    /// Without.
    pub skipped: u64,
    /// Set aside, and neither retried nor discarded. A later commit of the same identity
    /// resolves a dead letter, but it was planned as an item of its own and is counted as
    /// such: what ended as dead stays in the sum.
    pub dead: u64,
    /// Dead letters discarded.
    pub discarded: u64,
    /// In the log, the timers and the retries.
    pub pending: u64,
    /// Of the dead ones: resolved. For the recount alone: it is no part of the sum, and of no
    /// report.
    #[serde(skip)]
    pub resolved: u64,
}

impl std::ops::AddAssign<&Counts> for Counts {
    fn add_assign(&mut self, more: &Counts) {
        self.planned += more.planned;
        self.committed += more.committed;
        self.skipped += more.skipped;
        self.dead += more.dead;
        self.discarded += more.discarded;
        self.pending += more.pending;
        self.resolved += more.resolved;
    }
}

impl Counts {
    /// Conservation: whatever was planned is at its end, set aside or waiting.
    pub fn conserved(&self) -> bool {
        self.planned == self.committed + self.skipped + self.dead + self.discarded + self.pending
    }
}

/// The recount of one task and tenant beside its counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRow {
    /// The task.
    pub task: TaskName,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// What the counters say.
    pub counted: Counts,
    /// What history (with the baseline of what was pruned), dead letters, log, timers and
    /// retries add up to.
    pub recounted: Counts,
}

/// The engine's own books, recounted in one snapshot.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Audit {
    /// Per task and tenant.
    pub rows: Vec<AuditRow>,
    /// What is wrong beyond numbers: gaps in a stream, an item waiting twice, an index
    /// entry without its item, a run that counts wrongly.
    pub violations: Vec<String>,
}

impl Audit {
    /// Whether the counters equal their recount and are conserved, and nothing else is wrong.
    pub fn balanced(&self) -> bool {
        self.violations.is_empty()
            && self.rows.iter().all(|row| row.counted == row.recounted && row.counted.conserved())
    }
}

/// How much waits, of one task.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Depth {
    /// The task.
    pub task: Option<TaskName>,
    /// Items planned, ever. What of them does not wait has come to its end.
    pub planned: u64,
    /// In the log.
    pub log: u64,
    /// Timers.
    pub timers: u64,
    /// Retries.
    pub retries: u64,
    /// Open dead letters.
    pub dead: u64,
    /// The next due time of a timer.
    pub next_due: Option<Time>,
    /// Since when the oldest item of the log waits, or the due time of an overdue timer.
    pub oldest: Option<Time>,
    /// Bytes of before-images held.
    pub undo_bytes: u64,
}

/// A node as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    /// Its name.
    pub node: NodeName,
    /// `following`, `leading`, `draining`, `stopped`.
    pub state: String,
    /// When it last said so.
    pub seen_at: Time,
    /// Its configuration's digest.
    pub config_digest: String,
    /// What it could not reach then.
    pub missing: Vec<Missing>,
    /// Its machine's name; empty: it is of an earlier version.
    pub hostname: String,
    /// Where the others reach it; empty: nowhere.
    pub address: String,
    /// Its share of the partitions beside the others'.
    pub weight: u32,
    /// What it says of itself; none: nothing yet, or in a form of another version.
    pub report: Option<Report>,
}

/// Something that a node cannot reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    /// What.
    pub what: String,
    /// Since when it has not answered.
    pub since: Time,
    /// What came instead of the last answer.
    pub why: String,
}

/// Terms that are remembered however old they are.
pub const TERMS_KEPT: u32 = 20;

/// How long things are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention<'a> {
    /// History, slots, runs with what they logged, commands, messages at their end, what the
    /// tasks have settled, cursors of tenants since they were last visited; terms, but for the newest [`TERMS_KEPT`].
    pub history: Duration,
    /// Before-images, by task; those of a task that is not named go with their history row.
    pub undo: &'a [(TaskName, Duration)],
    /// Nodes, from when they were last seen.
    pub nodes: Duration,
    /// The topics that have a route: what waits of any other is nobody's to deliver, and is kept as
    /// long as the history. None: that is not known, and all that waits stays.
    pub routed: Option<&'a [String]>,
}

/// What is removed by [`Store::prune`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pruned {
    /// History rows, added to the baseline.
    pub history: u64,
    /// Before-images.
    pub undo: u64,
    /// Other rows: commits, slots, runs and their lines, commands, messages at their end,
    /// resolved dead letters, terms.
    pub other: u64,
}

// ------------------------------------------------------------------------------ outbox

/// A message and what has become of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// The task that emitted it; none: an operator's write.
    pub task: Option<TaskName>,
    /// The tenant of the item that emitted it.
    pub tenant: Option<Tenant>,
    /// Where it goes.
    pub topic: String,
    /// Messages of one task, tenant, topic and key are delivered in their order.
    pub key: String,
    /// What has become of it.
    pub delivery: Delivery,
    /// Not tried before then, while it is pending.
    pub next_at: Time,
}

/// Messages that wait to be delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pending {
    /// How many.
    pub messages: u64,
    /// The bytes of their keys and payloads.
    pub bytes: u64,
}

/// Which messages.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageQuery {
    /// Of this topic.
    pub topic: Option<String>,
    /// In this state.
    pub state: Option<besom_core::delivery::State>,
    /// At most so many, newest first.
    pub limit: u32,
}

// --------------------------------------------------------------------------- snapshots

/// A range read: rows of one tenant in the order of an index, equal ones in the order of
/// the key. NULL comes before every value; a bound leaves NULL out. Over all tenants, the
/// tenant comes before the index.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Range {
    /// The collection.
    pub collection: String,
    /// The index; none: the key.
    pub index: Option<String>,
    /// Equal values of the first columns of the index.
    pub prefix: Vec<Value>,
    /// Inclusive bounds of the column after the prefix.
    pub lower: Option<Value>,
    /// Inclusive.
    pub upper: Option<Value>,
    /// Further conditions on the rows inside the range.
    pub conditions: Vec<Condition>,
    /// What to return.
    pub columns: Vec<String>,
    /// From the upper end.
    pub descending: bool,
    /// At most so many rows.
    pub limit: u32,
    /// At most about so many bytes (at least one row).
    pub bytes_max: usize,
    /// The page ends where so many rows were looked at, however few of them the conditions have
    /// left; 0: no bound.
    pub scan_max: u64,
    /// Where the page before ended ([`RangePage::next`]).
    pub after: Option<Vec<u8>>,
    /// Return the keys of the rows as well.
    pub keys: bool,
}

/// A page of a range read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RangePage {
    /// The rows.
    pub rows: Vec<Row>,
    /// The key of each row, if asked for.
    pub keys: Vec<RowKey>,
    /// Where the next page goes on; none: the range is at its end.
    pub next: Option<Vec<u8>>,
    /// Rows the database looked at, as far as it is known: those returned and those that
    /// the conditions left out.
    pub scanned: u64,
}

/// One consistent view of the user's tables, for the reads of one act or one scan.
/// `tenant` is added to every query of a collection with a tenant column; none there means
/// all tenants. An embedded store reads on the caller's thread: reads are made from guests'
/// threads, where nobody else waits.
#[async_trait]
pub trait Snapshot: Send + Sync {
    /// Reads end by then, from now on: one that has not is given up with [`Cause::Slow`], and the
    /// database is told to end it.
    fn read_by(&self, deadline: Instant);

    /// One read returns values of at most so many bytes, from now on. One by keys that would
    /// return more is ended with [`Error::TooLarge`] while its rows arrive; a page of a range ends
    /// with the row that reaches it, and only a single row that is larger ends the read so.
    fn read_at_most(&self, bytes: u64);

    /// Rows that questions for existence and for tenants have looked at, about; 0 where the
    /// database does not tell.
    fn looked_at(&self) -> u64 {
        0
    }

    /// Rows by key; none for a row that is not there.
    async fn get_many(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        keys: &[RowKey],
        columns: &[String],
    ) -> Result<Vec<Option<Row>>>;

    /// Rows in the order of an index.
    async fn read_range(&self, tenant: Option<&Tenant>, range: &Range) -> Result<RangePage>;

    /// Whether a row matches all conditions.
    async fn exists(
        &self,
        tenant: Option<&Tenant>,
        collection: &str,
        conditions: &[Condition],
    ) -> Result<bool>;

    /// Tenants after `after`, in order, with at least one row in the range: a skip scan.
    async fn tenants(
        &self,
        range: &Range,
        after: Option<&Tenant>,
        limit: u32,
    ) -> Result<Vec<Tenant>>;

    /// What has become of a task's own messages: the latest of each key, among those that its
    /// items of this tenant have emitted to the topic; none for a key of which there is none
    /// (any more: it is forgotten with the history).
    async fn deliveries(
        &self,
        task: &TaskName,
        tenant: Option<&Tenant>,
        topic: &str,
        keys: &[String],
    ) -> Result<Vec<Option<Delivery>>>;
}

/// What a table of the user turned out to be, compared with its mapping.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingFault {
    /// The collection.
    pub collection: String,
    /// The key in its table in `besom.toml` that is wrong: `table`, `columns.NAME`,
    /// `indexes.NAME`, `key`, `tenant`, `anchor`.
    pub place: String,
    /// What is wrong, and how to mend it.
    pub message: String,
    /// Whether it only deserves a warning.
    pub warning: bool,
}

/// The store.
#[async_trait]
pub trait Store: Send + Sync {
    // ---- the store itself

    /// The store's clock: it decides what is due.
    async fn now(&self) -> Result<Time>;

    /// A name drawn when the store was created, unlike every other store's; it stays.
    fn identity(&self) -> &str;

    /// How many partitions it was created with.
    fn partitions(&self) -> u32;

    /// The collections from now on. Reads and commits already running keep theirs.
    fn set_collections(&self, collections: Arc<Collections>);

    /// Compares the mapping with the database: tables, columns, keys, indexes, anchors.
    async fn check(&self, collections: &Collections) -> Result<Vec<MappingFault>>;

    /// What tasks may do to collections (`granted`, by name) and the database's role may not: each
    /// a warning. None where the database knows no roles.
    async fn privileges(
        &self,
        _collections: &Collections,
        _granted: &BTreeMap<String, Operations>,
    ) -> Result<Vec<MappingFault>> {
        Ok(Vec::new())
    }

    // ---- leadership

    /// Raises the fence to a higher term and takes over all partitions named (all of them
    /// where `partitions` is none), raising their epochs, in one transaction. [`Error::Fenced`] if the
    /// fence is at or above `fence.term`.
    async fn raise_fence(
        &self,
        fence: &Fence,
        node: &NodeName,
        partitions: Option<&[Partition]>,
    ) -> Result<Raised>;

    /// Why this store is for good not the one that others find where it was opened (its file was
    /// replaced); none: it is. What can be saved of it is saved first.
    async fn lost(&self) -> Option<String> {
        None
    }

    /// The fence; none in a store that never had a leader.
    async fn fence(&self) -> Result<Option<FenceState>>;

    /// Every raise of the fence that is remembered, newest first.
    async fn terms(&self, limit: u32) -> Result<Vec<FenceState>>;

    // ---- ownership

    /// Who owns the partitions: all of them, in order.
    async fn partition_table(&self) -> Result<Vec<PartitionRow>>;

    /// Takes over the partitions that still have the epoch seen and were claimed by an older
    /// ring, raising their epochs, in one transaction; the others are left alone. Returns those taken. A
    /// commit that shows an earlier epoch is left out from then on.
    async fn claim_partitions(
        &self,
        node: &NodeName,
        at: RingPosition,
        claims: &[Claim],
    ) -> Result<Vec<(Partition, OwnerEpoch)>>;

    /// What a leader has put into the queues since that mark (0: since ever). For owners that
    /// do not lead. The mark to ask with next comes back: it is lower where the store has lost
    /// what it had (restored, or a standby that lagged), and then anything may have come.
    async fn arrivals(&self, since: u64) -> Result<Arrivals>;

    /// Returns when something may have arrived, or a command may have been put down; at the
    /// latest after `timeout`. A hint: the caller asks.
    async fn nudged(&self, timeout: Duration) {
        tokio::time::sleep(timeout).await;
    }

    // ---- planning: everything here is refused below the fence

    /// What the store remembers of every task it has seen.
    async fn task_states(&self) -> Result<Vec<TaskState>>;

    /// Runs that have not ended.
    async fn active_runs(&self) -> Result<Vec<Run>>;

    /// Writes decided slots, starts runs and stores task states. The ids of the runs come
    /// back in their order. A run of [`Trigger::Schedule`], or of [`Trigger::Takeover`], that
    /// the same term has started for that task and slot is not started twice: its id comes
    /// back. One of an earlier term is [`Error::Invalid`]. Slots that are written already are
    /// not written twice: a decision whose answer was lost may be repeated. One that was made from
    /// elsewhere than where the store stands ([`SlotDecision::seen`]) writes nothing: it is
    /// answered with the runs that the same term has started for its slots, or is
    /// [`Error::Invalid`].
    async fn decide_slots(&self, fence: &Fence, decision: &SlotDecision) -> Result<Vec<RunId>>;

    /// The cursor of (task, tenant); none: at the beginning.
    async fn cursor(&self, task: &TaskName, tenant: Option<&Tenant>) -> Result<Option<Vec<u8>>>;

    /// Plans a page: items with a due time become timers, the others are appended to their
    /// streams without a gap; waiting and blocked candidates are left out and counted;
    /// counters, run and cursor are written in the same transaction. A candidate with a due
    /// time becomes a timer even if it is overdue. It is blocked by a settled skip, a discard
    /// or an open dead letter of its identity and version; with another version it is a new
    /// item, and the old dead letter stays open. A later settled skip replaces what blocked the
    /// identity, a commit lifts it; no other end touches it. [`Error::Invalid`] if the run's scan has ended.
    async fn plan_page(&self, fence: &Fence, page: &PlanPage) -> Result<Planned>;

    /// The scan of a run has ended (with an error or well); ends the run where none of its
    /// items is in the log. Returns whether it has ended. Doing it twice changes nothing.
    /// Timers and retries outlive the run.
    async fn end_scan(
        &self,
        fence: &Fence,
        run: RunId,
        tenant_cursor: Option<&Tenant>,
        error: Option<&str>,
    ) -> Result<bool>;

    // ---- commands

    /// Puts a command down for the leader. Anybody may.
    async fn submit(&self, command: &Command, by: &str, reason: &str) -> Result<u64>;

    /// Commands that no leader has applied, oldest first.
    async fn pending_commands(&self, limit: u32) -> Result<Vec<CommandRow>>;

    /// Commands, applied or not, newest first: those with numbers below `before`.
    async fn commands(&self, before: Option<u64>, limit: u32) -> Result<Vec<CommandRow>>;

    /// One command, applied or not.
    async fn command(&self, id: u64) -> Result<Option<CommandRow>>;

    /// Applies a command's effect and marks it applied with that result. A command that is
    /// marked already is left alone: what it has done then comes back.
    async fn apply_command(
        &self,
        fence: &Fence,
        id: u64,
        effect: &CommandEffect,
        result: &str,
    ) -> Result<Applied>;

    // ---- execution

    /// Streams of these partitions (none: all) that have items to execute.
    async fn backlog(&self, partitions: Option<&[Partition]>) -> Result<Vec<Stream>>;

    /// The same, with how many of their items are there; of one task where given.
    async fn streams(&self, task: Option<&TaskName>) -> Result<Vec<StreamRow>>;

    /// The items after `acked` (not below the stream's cursor) of a stream, in order,
    /// without a gap ([`Error::Invalid`] names one), at most `limit` and about `bytes_max`,
    /// but at least one if there is one.
    async fn read_log(
        &self,
        task: &TaskName,
        partition: Partition,
        acked: Seq,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<Waiting>>;

    /// The same of several streams of a task, one after the other, at most `each` items of one
    /// and `limit` of all. A stream that is broken is named and the others are read; a failure of
    /// the store ends the answer, and is the answer where nothing was read before it. A store
    /// that can reads all of them in one view.
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

    /// Timers of these tasks and partitions (none: of all) by due time, then id: those after
    /// `after`.
    async fn read_timers(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>>;

    /// Retries, likewise, by time, then id.
    async fn read_retries(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>>;

    /// Takes rows that a batch is about to change from its task's budget, which all nodes share,
    /// by the store's clock ([`besom_core::budget`]). In a transaction of its own, before that
    /// of the batch: nobody waits for rows while holding a lock. A crash of the store may forget
    /// what was taken.
    async fn take_rows(&self, task: &TaskName, rows: u64, per_second: NonZeroU32) -> Result<Grant>;

    /// Notes which items are about to be executed, so that a death of the host during
    /// them is counted ([`Item::deaths`]). Survives the process, not necessarily the machine. `lane`:
    /// how it is ordered among what waits for the store.
    async fn begin(
        &self,
        id: CommitId,
        node: &NodeName,
        lane: Lane,
        items: &[(Source, &Item)],
    ) -> Result<()>;

    /// Forgets a begun batch that will not be committed.
    async fn abandon(&self, id: CommitId) -> Result<()>;

    /// The incarnations that have begun batches which are neither committed nor abandoned.
    async fn begun_by(&self) -> Result<Vec<NodeName>>;

    /// Batches begun by these incarnations and neither committed nor abandoned: counts one death
    /// for each of their items that still waits where it was and forgets the batches. Returns the
    /// identities counted. Under the fence: who leads decides who is dead.
    async fn bury(&self, fence: &Fence, dead: &[NodeName]) -> Result<Vec<Identity>>;

    /// The commit (docs/architecture.md): ownership and cursors, anchors, guards, changes,
    /// before-images, history, counters, outbox, acknowledgement. All or nothing, but for
    /// entries left out and items whose guards or constraints failed, which settle as
    /// their entry says. What moves to the retries gets a new id there. A batch whose mark is
    /// known is not applied again: what it has done comes back. One whose [`Batch::as_of`] lies
    /// ahead of the store's clock does nothing. An item that is committed resolves the open dead
    /// letters of its identity.
    async fn commit(&self, batch: &Batch) -> Result<Committed>;

    /// After [`Error::Unknown`]: what the commit of that mark has done; none: it has not
    /// happened and never will: the
    /// mark is given up, and a batch that shows it later is [`Error::Invalid`].
    async fn find_commit(&self, id: CommitId) -> Result<Option<Committed>>;

    // ---- the outbox

    /// Takes pending messages whose time has come, at most so many of each topic, oldest
    /// first: their attempts count one more and they show themselves again after `hold`. Of
    /// one task, tenant, topic and key only the first that is pending is taken. A store that
    /// finds nothing writes nothing. Refused below the fence.
    async fn claim_messages(
        &self,
        fence: &Fence,
        room: &[(String, u32)],
        hold: Duration,
    ) -> Result<Vec<Claimed>>;

    /// Writes down what came of attempts. One that is not the latest of its message, or whose
    /// message is at its end, changes nothing. Refused below the fence.
    async fn end_attempts(&self, fence: &Fence, attempts: &[Attempt]) -> Result<()>;

    /// A task's messages of a topic that wait to be delivered, at most so many of them counted.
    async fn pending_messages(&self, task: &TaskName, topic: &str, limit: u32) -> Result<Pending>;

    /// Removes the oldest messages of a task to a topic that wait, at most so many: what has no
    /// route is nobody's to deliver. With what is gone.
    async fn drop_messages(&self, task: &TaskName, topic: &str, count: u32) -> Result<Pending>;

    /// Messages, newest first.
    async fn messages(&self, query: &MessageQuery) -> Result<Vec<Message>>;

    // ---- the user's tables

    /// Opens a consistent view, for at most `open_max`.
    async fn snapshot(&self, open_max: Duration) -> Result<Arc<dyn Snapshot>>;

    /// Applies changes of an operator (an import, the demo) in one transaction, each under
    /// its tenant. No guard, no history. [`Error::Invalid`] on a violation, and nothing is
    /// changed.
    async fn write(&self, changes: &[(Option<Tenant>, Change)]) -> Result<()>;

    /// Creates the tables of the built-in entity model where they are missing.
    async fn create_entity_model(&self) -> Result<()>;

    // ---- inspection

    /// What waits, per task.
    async fn depths(&self) -> Result<Vec<Depth>>;

    /// Runs, newest first; of one task where given.
    async fn runs(&self, task: Option<&TaskName>, limit: u32) -> Result<Vec<Run>>;

    /// The newest run of a task whose scan came to its end without an error; none: none did, or
    /// it was pruned.
    async fn last_scanned(&self, task: &TaskName) -> Result<Option<Run>>;

    /// One run.
    async fn run(&self, id: RunId) -> Result<Option<Run>>;

    /// The slot history of a task, newest first, that touches [from, to].
    async fn slots(
        &self,
        task: &TaskName,
        from: Time,
        to: Time,
        limit: u32,
    ) -> Result<Vec<SlotRecord>>;

    /// Dead letters that match, newest first: those with numbers below `before`.
    async fn dead_letters(
        &self,
        selector: &DeadSelector,
        letters: Letters,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>>;

    /// Open dead letters by task and last error, those with the newest letter first. One pass
    /// over an index, whatever the letters hold.
    async fn dead_groups(&self, limit: u32) -> Result<Vec<DeadGroup>>;

    /// History rows, newest first.
    async fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>>;

    /// A history row's before-images, oldest change first: collection, key and the row as it was
    /// (none: it did not exist). None: no such row, or its images were pruned or not kept.
    async fn before_images(&self, history: u64) -> Result<Option<Vec<BeforeImage>>>;

    // ---- what guests log

    /// Writes lines, numbering those of each run from 1 without a gap, and counts `lost` ones.
    /// Of each run the newest `lines_max` stay; those that go are counted as lost. Lines of
    /// runs that are not known are left out.
    async fn write_lines(
        &self,
        lines: &[RunLine],
        lost: &[(RunId, u64)],
        lines_max: u32,
    ) -> Result<()>;

    /// The lines of a run with numbers above `after`, in their order.
    async fn lines(&self, run: RunId, after: u64, limit: u32) -> Result<RunLines>;

    /// Recounts the books in one snapshot.
    async fn audit(&self) -> Result<Audit>;

    // ---- upkeep

    /// Writes this node's row; returns the [`NodeRow::seen_at`] of the row in whose place it comes.
    /// Only the node writes it: whoever finds another than it wrote last has a store that lost
    /// what it had (restored, or a standby that lagged).
    async fn report_node(&self, node: &NodeRow) -> Result<Option<Time>>;

    /// All nodes seen and not forgotten.
    async fn nodes(&self) -> Result<Vec<NodeRow>>;

    /// Forgets a node that has left. One that is not known is forgotten already.
    async fn forget_node(&self, node: &NodeName) -> Result<()>;

    /// Removes, at most `limit` rows of each kind (of before-images, of each task), what is
    /// older than its retention; what leaves the history is added to the baseline in the same
    /// transaction. A run stays while an item or an open dead letter refers to it. A settled
    /// skip is forgotten with the history, so that what was left alone is looked at again once
    /// in a retention; what somebody gave up is not.
    async fn prune(&self, fence: &Fence, keep: Retention<'_>, limit: u32) -> Result<Pruned>;
}

/// A row as it was before a commit changed it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BeforeImage {
    /// The collection.
    pub collection: String,
    /// Its tenant.
    pub tenant: Option<Tenant>,
    /// Its key.
    pub key: RowKey,
    /// Names and values of all its mapped columns; none: the row did not exist.
    pub row: Option<Vec<Field>>,
}

/// The rows that one act has read, as the runtime collects them.
pub type ReadSets = Vec<Arc<ReadSet>>;
