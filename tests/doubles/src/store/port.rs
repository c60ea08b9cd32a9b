//! Implements the port and the activity as calls of the state under its mutex.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use besom_core::books::Known;
use besom_core::budget::{self, Allowance};
use besom_core::collection::Collections;
use besom_core::delivery;
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, RunId, Seq, TaskName, Tenant,
};
use besom_core::item::{Candidate, Identity, Item, Source};
use besom_core::pace::Strain;
use besom_core::plan::{Run, SlotDecision, SlotRecord, TaskState};
use besom_core::proposal::{Change, Restore};
use besom_core::time::Time;
use besom_snapshot::DeadGroup;

use super::outbox::Origin;
use super::state::State;
use super::tables::Violation;
use super::view::View;
use super::{Broken, MemoryStore, On, mapping};
use besom_ports::activity::{self, Activity};
use besom_ports::guests::Lane;
use besom_ports::store::{
    Applied, Arrivals, Attempt, Audit, Batch, BeforeImage, Brake, Claim, Claimed, Command,
    CommandEffect, CommandRow, Committed, DeadLetter, DeadSelector, Depth, EndOfScan, Entered,
    Error, FeedTopics, Fence, HistoryQuery, HistoryRow, KeptItem, Letters, MappingFault, Message,
    MessageQuery, NewReview, NodeRow, Offered, OutboxTopic, PartitionRow, Pending, PlanPage,
    Planned, Pruned, Raised, ReadView, Restored, Result, Retention, Review, ReviewQuery,
    RingPosition, RunLine, RunLines, Store, Stream, StreamRow, Tried, Waiting,
};

impl MemoryStore {
    /// Applies changes as the product does, beside the engine: each under its tenant, without guards
    /// and history.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a change violates a constraint; nothing is changed then.
    pub fn write(&self, changes: &[(Option<Tenant>, Change)]) -> Result<()> {
        let (collections, now) = (self.collections(), self.time());
        self.perform(On::Write, |state| {
            let messages = state.outbox.len();
            let emits = changes.iter().any(|(_, change)| matches!(change, Change::Emit { .. }));
            let sequences = emits.then(|| state.sequences.clone());
            let mut touched = Vec::new();
            for (tenant, change) in changes {
                let origin =
                    Origin { task: None, run: None, history: None, tenant: tenant.as_ref(), now };
                let applied =
                    state.apply(&collections, origin.tenant, std::slice::from_ref(change));
                if let Change::Emit { topic, key, payload } = change {
                    state.emit(origin, topic, key, payload, None);
                }
                match applied {
                    Ok(more) => touched.extend(more),
                    Err(Violation(said)) => {
                        state.tables.restore(&touched);
                        if let Some(sequences) = sequences {
                            state.sequences = sequences;
                            Arc::make_mut(&mut state.outbox).truncate(messages);
                        }
                        return Err(Error::Invalid(said));
                    }
                }
            }
            Ok(())
        })
    }
}

#[async_trait]
impl Store for MemoryStore {
    async fn now(&self) -> Result<Time> {
        self.perform(On::Read, |_| Ok(self.time()))
    }

    fn identity(&self) -> &str {
        "memory"
    }

    fn partitions(&self) -> u32 {
        self.shared.partitions
    }

    fn set_collections(&self, collections: Arc<Collections>) {
        *self.collections.write().unwrap_or_else(PoisonError::into_inner) = collections;
    }

    async fn check(&self, collections: &Collections) -> Result<Vec<MappingFault>> {
        self.perform(On::Read, |state| Ok(mapping::check(&state.tables, collections)))
    }

    // ---- leadership

    async fn raise_fence(
        &self,
        fence: &FencingToken,
        node: &Incarnation,
        partitions: Option<&[Partition]>,
    ) -> Result<Raised> {
        let now = self.time();
        self.write_as("raise_fence", |state| state.raise_fence(fence, node, partitions, now))
    }

    async fn fence(&self) -> Result<Option<Fence>> {
        self.perform(On::Read, |state| Ok(state.fence.as_ref().map(|(fence, _)| fence.clone())))
    }

    async fn terms(&self, limit: u32) -> Result<Vec<Fence>> {
        self.perform(On::Read, |state| {
            Ok(state.terms.values().rev().take(limit as usize).cloned().collect())
        })
    }

    // ---- ownership

    async fn partition_table(&self) -> Result<Vec<PartitionRow>> {
        self.perform(On::Read, |state| Ok(state.partition_table()))
    }

    async fn claim_partitions(
        &self,
        node: &Incarnation,
        at: RingPosition,
        claims: &[Claim],
    ) -> Result<Vec<(Partition, OwnerEpoch)>> {
        self.write_as("claim_partitions", |state| Ok(state.claim_partitions(node, at, claims)))
    }

    async fn arrivals(&self, since: u64) -> Result<Arrivals> {
        self.perform(On::Read, |state| Ok(state.arrivals(since)))
    }

    // ---- planning

    async fn task_states(&self) -> Result<Vec<TaskState>> {
        self.perform(On::Read, |state| Ok(state.tasks.values().cloned().collect()))
    }

    async fn active_runs(&self) -> Result<Vec<Run>> {
        self.perform(On::Read, |state| {
            Ok(state.runs.values().filter(|run| run.ended_at.is_none()).cloned().collect())
        })
    }

    async fn decide_slots(
        &self,
        fence: &FencingToken,
        decision: &SlotDecision,
    ) -> Result<Vec<RunId>> {
        let now = self.time();
        self.write_as("decide_slots", |state| state.decide_slots(fence, decision, now))
    }

    async fn cursor(&self, task: &TaskName, tenant: Option<&Tenant>) -> Result<Option<Vec<u8>>> {
        let account = (task.clone(), tenant.cloned());
        self.perform(On::Read, |state| {
            Ok(state.cursors.get(&account).map(|(_, cursor)| cursor.clone()))
        })
    }

    async fn plan_page(&self, fence: &FencingToken, page: &PlanPage) -> Result<Planned> {
        let now = self.time();
        self.write_as("plan_page", |state| state.plan_page(fence, page, now))
    }

    async fn blocked(&self, task: &TaskName, candidates: &[Candidate]) -> Result<Vec<bool>> {
        let blocked = |state: &State| {
            candidates.iter().map(|of| state.known(task, of) == Known::Blocked).collect()
        };
        self.perform(On::Read, |state| Ok(blocked(state)))
    }

    async fn end_scan(&self, fence: &FencingToken, end: &EndOfScan) -> Result<bool> {
        let now = self.time();
        self.write_as("end_scan", |state| state.end_scan(fence, end, now))
    }

    async fn estimate(&self, name: &str, count_max: u64) -> Result<u64> {
        let collections = self.collections();
        self.perform(On::Read, |state| {
            let Some(collection) = collections.get(name) else {
                return Err(Error::Invalid(format!("there is no collection `{name}`")));
            };
            Ok((state.tables.rows_of(collection) as u64).min(count_max))
        })
    }

    async fn set_brakes(&self, fence: &FencingToken, brakes: &[Brake]) -> Result<()> {
        self.write_as("set_brakes", |state| state.set_brakes(fence, brakes))
    }

    async fn brakes(&self, task: &TaskName, limit: u32) -> Result<Vec<Brake>> {
        self.perform(On::Read, |state| Ok(state.list_brakes(task, limit)))
    }

    async fn open_review(&self, fence: &FencingToken, review: &NewReview) -> Result<()> {
        let now = self.time();
        self.write_as("open_review", |state| state.open_review(fence, review, now))
    }

    async fn reviews(&self, query: &ReviewQuery) -> Result<Vec<Review>> {
        self.perform(On::Read, |state| Ok(state.list_reviews(query)))
    }

    // ---- commands

    async fn submit(&self, command: &Command, by: &str, reason: &str) -> Result<u64> {
        let now = self.time();
        self.write_as("submit", |state| Ok(state.submit(command, by, reason, now)))
    }

    async fn pending_commands(&self, limit: u32) -> Result<Vec<CommandRow>> {
        self.perform(On::Read, |state| {
            let pending = state.commands.values().filter(|row| row.applied_at.is_none());
            Ok(pending.take(limit as usize).cloned().collect())
        })
    }

    async fn commands(&self, before: Option<u64>, limit: u32) -> Result<Vec<CommandRow>> {
        self.perform(On::Read, |state| {
            let below = state.commands.range(..before.unwrap_or(u64::MAX));
            Ok(below.rev().take(limit as usize).map(|(_, row)| row.clone()).collect())
        })
    }

    async fn command(&self, id: u64) -> Result<Option<CommandRow>> {
        self.perform(On::Read, |state| Ok(state.commands.get(&id).cloned()))
    }

    async fn apply_command(
        &self,
        fence: &FencingToken,
        command: &CommandRow,
        effect: &CommandEffect,
        result: &str,
        letters: NonZeroU32,
    ) -> Result<Applied> {
        let now = self.time();
        self.write_as("apply_command", |state| {
            state.apply_command(fence, command, (effect, result), letters, now)
        })
    }

    // ---- execution

    async fn backlog(&self, partitions: Option<&[Partition]>) -> Result<Vec<Stream>> {
        self.perform(On::Read, |state| Ok(state.backlog(partitions)))
    }

    async fn streams(&self, task: Option<&TaskName>) -> Result<Vec<StreamRow>> {
        self.perform(On::Read, |state| Ok(state.stream_rows(task)))
    }

    async fn read_log(
        &self,
        task: &TaskName,
        partition: Partition,
        acked: Seq,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<Waiting>> {
        self.perform(On::Read, |state| state.read_log(task, partition, acked, limit, bytes_max))
    }

    async fn read_timers(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>> {
        self.perform(On::Read, |state| Ok(state.read_timers(tasks, partitions, after, limit)))
    }

    async fn read_retries(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>> {
        self.perform(On::Read, |state| Ok(state.read_retries(tasks, partitions, after, limit)))
    }

    async fn take_rows(
        &self,
        task: &TaskName,
        rows: u64,
        per_second: NonZeroU32,
    ) -> Result<Allowance> {
        let now = self.time();
        self.write_as("take_rows", |state| {
            let free_at = state.free_at.get(task).copied();
            let free_at = free_at.filter(|_| !state.is_broken(Broken::Budget));
            let (grant, after) = budget::take(free_at, now, rows, per_second);
            if let Some(after) = after {
                state.free_at.insert(task.clone(), after);
            }
            Ok(grant)
        })
    }

    async fn strain(&self, _: &[String]) -> Result<Strain> {
        self.perform(On::Read, |state| Ok(state.strain))
    }

    async fn begin(
        &self,
        id: CommitId,
        node: &Incarnation,
        _: Lane,
        items: &[(Source, &Item)],
    ) -> Result<()> {
        self.write_as("begin", |state| {
            state.begin(id, node, items);
            Ok(())
        })
    }

    async fn abandon(&self, id: CommitId) -> Result<()> {
        self.write_as("abandon", |state| {
            state.begun.remove(&id);
            Ok(())
        })
    }

    async fn begun_by(&self) -> Result<Vec<Incarnation>> {
        self.perform(On::Read, |state| {
            let nodes: BTreeSet<&Incarnation> = state.begun.values().map(|b| &b.node).collect();
            Ok(nodes.into_iter().cloned().collect())
        })
    }

    async fn bury(&self, fence: &FencingToken, dead: &[Incarnation]) -> Result<Vec<Identity>> {
        self.write_as("bury", |state| {
            state.check_fence(fence)?;
            Ok(state.bury(dead))
        })
    }

    async fn commit(&self, batch: &Batch) -> Result<Committed> {
        let (collections, now) = (self.collections(), self.time());
        let result = self.commit_as("commit", |state| state.commit(batch, &collections, now));
        if let Err(Error::Unknown(_) | Error::Busy(_)) = &result {
            self.lock().purge(batch, now);
        }
        result
    }

    async fn try_commit(&self, batch: &Batch) -> Result<Tried> {
        let (collections, now) = (self.collections(), self.time());
        self.perform(On::Read, |state| state.clone().try_commit(batch, &collections, now))
    }

    async fn find_commit(&self, id: CommitId) -> Result<Option<Committed>> {
        self.write_as("find_commit", |state| Ok(state.find_commit(id)))
    }

    // ---- the outbox

    async fn claim_messages(
        &self,
        fence: &FencingToken,
        ended: &[Attempt],
        claim: &delivery::Claim,
    ) -> Result<Vec<Claimed>> {
        let now = self.time();
        self.write_as("claim_messages", |state| state.claim_messages(fence, ended, claim, now))
    }

    async fn read_messages(
        &self,
        topic: &str,
        known: &[u64],
        held: &[delivery::Sequence],
        limit: u32,
        bytes: u64,
    ) -> Result<Vec<Claimed>> {
        self.perform(On::Read, |state| Ok(state.read_messages(topic, known, held, limit, bytes)))
    }

    async fn end_messages(
        &self,
        fence: &FencingToken,
        ends: &[(u64, delivery::End)],
    ) -> Result<()> {
        let now = self.time();
        self.write_as("end_messages", |state| state.end_messages(fence, ends, now))
    }

    async fn drop_messages(&self, task: &TaskName, topic: &str, count: u32) -> Result<Pending> {
        self.write_as("drop_messages", |state| Ok(state.drop_messages(task, topic, count)))
    }

    async fn pending_messages(
        &self,
        task: Option<&TaskName>,
        topic: &str,
        limit: u32,
    ) -> Result<Pending> {
        self.perform(On::Read, |state| Ok(state.pending_messages(task, topic, limit)))
    }

    async fn enter_messages(&self, offered: &[Offered]) -> Result<Vec<Entered>> {
        let now = self.time();
        self.write_as("enter_messages", |state| Ok(state.enter_messages(offered, now)))
    }

    async fn last_entered(&self, topic: &str, tenant: Option<&Tenant>, key: &str) -> Result<u64> {
        self.perform(On::Read, |state| Ok(state.last_entered(topic, tenant, key)))
    }

    async fn feed_topics(&self, known: &[String], others_max: u32) -> Result<FeedTopics> {
        self.perform(On::Read, |state| Ok(state.feed_topics(known, others_max)))
    }

    async fn collect_messages(
        &self,
        fence: &FencingToken,
        topics: &[String],
        limit: u32,
        bytes: u64,
    ) -> Result<u64> {
        let now = self.time();
        self.write_as("collect_messages", |state| {
            state.collect_messages(fence, topics, limit, bytes, now)
        })
    }

    async fn outbox_topics(&self, _: u32, count_max: u32) -> Result<Vec<OutboxTopic>> {
        self.perform(On::Read, |state| Ok(state.outbox_topics(count_max)))
    }

    async fn messages(&self, query: &MessageQuery) -> Result<Vec<Message>> {
        self.perform(On::Read, |state| Ok(state.messages(query)))
    }

    // ---- the user's tables

    async fn snapshot(&self, open_max: Duration) -> Result<Arc<dyn ReadView>> {
        let (collections, opened_at) = (self.collections(), self.time());
        let clock = Arc::clone(&self.shared.clock);
        self.perform(On::Read, |state| {
            let (tables, outbox) = (state.tables.clone(), Arc::clone(&state.outbox));
            let view: Arc<dyn ReadView> = Arc::new(View {
                tables,
                outbox,
                collections,
                clock,
                opened_at,
                open_max,
                bytes_max: u64::MAX.into(),
            });
            Ok(view)
        })
    }

    // ---- inspection

    async fn depths(&self) -> Result<Vec<Depth>> {
        let now = self.time();
        self.perform(On::Read, |state| Ok(state.depths(now)))
    }

    async fn runs(&self, task: Option<&TaskName>, limit: u32) -> Result<Vec<Run>> {
        self.perform(On::Read, |state| Ok(state.list_runs(task, limit)))
    }

    async fn last_scanned(&self, task: &TaskName) -> Result<Option<Run>> {
        self.perform(On::Read, |state| {
            let complete = |run: &&Run| run.scan_done && run.error.is_none();
            Ok(state.list_runs(Some(task), u32::MAX).iter().find(complete).cloned())
        })
    }

    async fn run(&self, id: RunId) -> Result<Option<Run>> {
        self.perform(On::Read, |state| Ok(state.runs.get(&id).cloned()))
    }

    async fn slots(
        &self,
        task: &TaskName,
        from: Time,
        to: Time,
        limit: u32,
    ) -> Result<Vec<SlotRecord>> {
        self.perform(On::Read, |state| Ok(state.list_slots(task, from, to, limit)))
    }

    async fn dead_letters(
        &self,
        selector: &DeadSelector,
        letters: Letters,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        self.perform(On::Read, |state| {
            let selected = state.select_dead(selector, letters).into_iter();
            let older = selected.filter(|letter| before.is_none_or(|before| letter.id < before));
            Ok(older.take(limit as usize).cloned().collect())
        })
    }

    async fn dead_groups(&self, limit: u32) -> Result<Vec<DeadGroup>> {
        self.perform(On::Read, |state| Ok(state.dead_groups(limit)))
    }

    async fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>> {
        self.perform(On::Read, |state| Ok(state.list_history(query)))
    }

    async fn before_images(&self, history: u64) -> Result<Option<Vec<BeforeImage>>> {
        self.perform(On::Read, |state| Ok(state.images(history)))
    }

    async fn kept(&self, history: u64) -> Result<Option<KeptItem>> {
        self.perform(On::Read, |state| Ok(state.kept(history)))
    }

    async fn rehearse(&self, _: Option<&Tenant>, restore: &Restore) -> Result<Restored> {
        let collections = self.collections();
        self.perform(On::Write, |state| {
            let (touched, restored) = state
                .restore(&collections, restore)
                .map_err(|violation| Error::Invalid(violation.0))?;
            state.tables.restore(&touched);
            Ok(restored)
        })
    }

    async fn write_lines(
        &self,
        lines: &[RunLine],
        lost: &[(RunId, u64)],
        lines_max: u32,
    ) -> Result<()> {
        self.write_as("write_lines", |state| {
            state.write_lines(lines, lost, lines_max);
            Ok(())
        })
    }

    async fn lines(&self, run: RunId, after: u64, limit: u32) -> Result<RunLines> {
        self.perform(On::Read, |state| Ok(state.list_lines(run, after, limit)))
    }

    async fn audit(&self) -> Result<Audit> {
        self.perform(On::Read, |state| Ok(state.audit()))
    }

    // ---- upkeep

    async fn report_node(&self, node: &NodeRow) -> Result<Option<Time>> {
        self.write_as("report_node", |state| {
            let before = state.nodes.insert(node.node.clone(), node.clone());
            Ok(before.map(|row| row.seen_at))
        })
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>> {
        self.perform(On::Read, |state| Ok(state.nodes.values().cloned().collect()))
    }

    async fn forget_node(&self, node: &Incarnation) -> Result<()> {
        self.write_as("forget_node", |state| {
            state.nodes.remove(node);
            Ok(())
        })
    }

    async fn prune(&self, fence: &FencingToken, keep: Retention<'_>, limit: u32) -> Result<Pruned> {
        let now = self.time();
        self.write_as("prune", |state| state.prune(fence, keep, limit, now))
    }
}

/// The activity that [`Batch::activity_in_store`] refers to.
#[async_trait]
impl Activity for MemoryStore {
    async fn states(&self, keys: &[String]) -> Result<Vec<activity::State>, activity::Error> {
        let now = self.time();
        self.perform(On::Read, |state| {
            Ok(keys.iter().map(|key| state.activity.state(key, now)).collect())
        })
        .map_err(activity_error)
    }

    async fn connect(&self, key: &str, connection: &str) -> Result<(), activity::Error> {
        let now = self.time();
        self.perform(On::Write, |state| {
            state.activity.connect(key, connection, now);
            Ok(())
        })
        .map_err(activity_error)
    }

    async fn disconnect(&self, key: &str, connection: &str) -> Result<(), activity::Error> {
        let now = self.time();
        self.perform(On::Write, |state| {
            state.activity.disconnect(key, connection, now);
            Ok(())
        })
        .map_err(activity_error)
    }

    async fn heartbeat(&self, key: &str, connection: &str) -> Result<(), activity::Error> {
        Activity::connect(self, key, connection).await
    }
}

fn activity_error(error: Error) -> activity::Error {
    activity::Error(error.to_string())
}
