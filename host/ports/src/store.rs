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

mod commands;
mod commit;
mod error;
mod inspection;
mod leadership;
mod outbox;
mod planning;
mod reads;
mod streams;
mod undo;
mod upkeep;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
pub use besom_core::books::{
    Committed, Counts, DeadLetter, Entry, LeftOut, Outcome, PlanPage, Planned, Progress,
};
pub use besom_core::brake::{Brake, Brakes};
pub use besom_core::budget::Allowance;
use besom_core::collection::{Collections, Operations};
pub use besom_core::command::{Command, DeadSelector, MessageSelector};
use besom_core::delivery;
pub use besom_core::delivery::feed::{Entered, Offered};
pub use besom_core::delivery::{Attempt, Claimed, Delivery};
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, RunId, Seq, TaskName, Tenant,
};
pub use besom_core::item::End;
use besom_core::item::{Candidate, Identity, Item, Source};
pub use besom_core::ownership::{Claim, PartitionRow, RingPosition};
pub use besom_core::pace::Strain;
pub use besom_core::plan::{
    EndOfScan, NewRun, Pause, Run, Seen, SlotDecision, SlotOutcome, SlotRecord, TaskState, Trigger,
};
use besom_core::proposal::Restore;
pub use besom_core::purge::{Place, Purge, Purged};
pub use besom_core::queue::Decision;
pub use besom_core::review::{NewReview, Review};
use besom_core::time::Time;
use besom_snapshot::DeadGroup;
pub use besom_snapshot::{Missing, Role};

pub use self::commands::{
    Applied, BRAKES_RESUMED, CommandEffect, CommandRow, Repaired, broken, command_of,
};
pub use self::commit::{Batch, LockedRows, Tried, TriedChanges};
pub use self::error::{
    Error, GRANTS, NO_TABLES, Result, UNDO_GRANTS, UNTIL_GRANTED, UNTIL_MATCHED,
};
pub use self::inspection::{Audit, AuditRow, Depth, HistoryQuery, HistoryRow, Letters};
pub use self::leadership::{Arrivals, Fence, Raised, TERMS_KEPT};
pub use self::outbox::{
    DISCARDED, FeedTopics, GIVEN_UP_READ_MAX, Message, MessageQuery, OutboxTopic, Pending,
};
pub use self::planning::{ReviewQuery, decided_or, late_copy, not_waiting, started};
pub use self::reads::{MappingFault, Range, RangePage, ReadSets, ReadView};
pub use self::streams::{BrokenStream, LogRead, LogRoom, Stream, StreamRow, Waiting, gap};
pub use self::undo::{BeforeImage, Given, KeptItem, Left, Restored, Staying};
pub use self::upkeep::{NodeRow, Pruned, Retention};
use super::guests::Lane;
pub use super::lines::{RunLine, RunLines};

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

    /// The review of a run.
    async fn review_of(&self, run: RunId) -> Result<Option<Review>> {
        let query = ReviewQuery { run: Some(run), limit: 1, ..ReviewQuery::default() };
        Ok(self.reviews(&query).await?.pop())
    }

    /// The newest review of a task.
    async fn latest_review(&self, task: &TaskName) -> Result<Option<Review>> {
        let query = ReviewQuery { task: Some(task.clone()), limit: 1, ..ReviewQuery::default() };
        Ok(self.reviews(&query).await?.pop())
    }

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
