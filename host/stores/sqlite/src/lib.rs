//! The store on SQLite: one file, one writer thread, and concurrent readers.
//!
//! This file connects the port's operations to jobs on connections; the modules decide what a job
//! does. WAL with `synchronous = FULL`: a commit that has returned is on disk. ATTACH is
//! refused, because in WAL mode attached files commit separately.

mod audit;
mod brakes;
mod budget;
mod check;
mod checkpoint;
mod clock;
mod commands;
mod commit;
mod damage;
mod effects;
mod embedded;
mod error;
mod fault;
mod feed;
mod fits;
mod guards;
mod hint;
mod holds;
mod inspection;
mod items;
mod leadership;
mod ledger;
mod lines;
mod lookup;
mod mapping;
mod open;
mod outbox;
pub mod place;
mod plan;
mod planning;
mod prune;
mod purge;
mod questions;
mod queue;
mod range;
mod range_change;
mod readers;
mod readset;
mod restore;
mod reviews;
mod runs;
mod schema;
mod shape;
mod snapshot;
mod statements;
mod stored;
mod streams;
mod tally;
mod tenants;
#[cfg(test)]
mod tests;
mod values;
mod waiting;
mod wal;
mod writer;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use besom_core::activity::{Listening, Timeouts};
use besom_core::collection::{Collections, Operations};
use besom_core::delivery;
use besom_core::ids::{
    CommitId, FencingToken, Incarnation, OwnerEpoch, Partition, RunId, Seq, TaskName, Tenant,
};
use besom_core::item::{Candidate, Identity, Item, Source};
use besom_core::proposal::{Change, Restore};
use besom_core::time::Time;
use besom_snapshot::DeadGroup;
use rusqlite::Connection;

pub use self::clock::{TimeSource, wall_clock};
pub use self::fault::{Fault, Faults};
pub use self::open::Options;
pub use self::shape::describe;

use self::clock::Clock;
use self::damage::{Damage, Watched};
use self::error::{Failure, Job};
use self::mapping::Mapping;
use self::open::SchemaSeen;
use self::place::{Gone, Loss, Place};
use self::queue::{Priority, Turn};
use self::readers::Readers;
use self::writer::{Tx, Writer};
use besom_ports::embedded::{Dialect, Scripts};
use besom_ports::guests;
use besom_ports::store::*;
use besom_record::activity::Observation;
use besom_record::begun;
use besom_record::courtesy::Bulk;

/// How long a stopping host waits for its write-ahead log to be written into the database.
const WRITE_OUT_MAX: Duration = Duration::from_secs(30);

/// How many rows of ranges one commit may change while others write. They wait in steps of 1, 2 and 5 ms: most wait
/// for one or two of them with this many, and for all three with twice as many.
const ROWS_BESIDE_OTHERS: u64 = 500;

/// The store on one SQLite file.
pub struct SqliteStore {
    path: PathBuf,
    place: Place,
    damage: Damage,
    watched: Watched,
    founded: schema::Foundation,
    clock: Clock,
    writer: Writer,
    /// When a task's last long commit ended.
    long: Arc<Mutex<LongCommits>>,
    /// For snapshots, which may be open for long.
    acts: Arc<Readers>,
    /// For short reads.
    inspection: Arc<Readers>,
    mapping: RwLock<Arc<Mapping>>,
    /// The version of the schema that was seen last.
    schema: SchemaSeen,
    /// The maximum size of the before-images of a commit, in bytes before they are packed.
    undo_bytes: u64,
    timeouts: Timeouts,
    opened_at: Time,
    /// Since when the activity endpoint has been listening; unset: it is not listening.
    listening_since: OnceLock<Time>,
}

impl SqliteStore {
    /// The mapping; made anew if the schema has changed since, because it remembers what the tables are like.
    fn mapping(&self) -> Arc<Mapping> {
        let known = Arc::clone(&self.mapping.read().unwrap_or_else(|e| e.into_inner()));
        let schema = self.schema.load(Ordering::Acquire);
        if known.schema == schema {
            return known;
        }
        let mapping = Arc::new(Mapping::new(&known.collections, schema));
        let mut current = self.mapping.write().unwrap_or_else(|e| e.into_inner());
        // Others may be mapped meanwhile.
        if Arc::ptr_eq(&*current, &known) {
            *current = mapping;
        }
        Arc::clone(&current)
    }

    /// Runs a job in one read transaction.
    async fn look<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Connection) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        self.inspection.read(job).await
    }

    /// Runs a job of normal priority in one write transaction.
    async fn write<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Tx<'_>) -> Job<T> + Send + 'static,
    ) -> Result<T> {
        self.writer.run(Priority::Normal, job).await
    }

    fn observation(&self) -> Observation {
        let listening =
            Listening { opened_at: self.opened_at, since: self.listening_since.get().copied() };
        Observation { timeouts: self.timeouts, listening }
    }
}

/// The writer's priority for work in a lane. The operator decides the lane, so whether an
/// item is due makes no difference.
fn priority_of(lane: guests::Lane) -> Priority {
    if lane.row().punctual { Priority::Due } else { Priority::Normal }
}

/// When the last long commit of each task ended.
type LongCommits = HashMap<TaskName, Instant>;

fn known(long: &Mutex<LongCommits>) -> MutexGuard<'_, LongCommits> {
    long.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From this duration on, a commit is long. Work on an item takes several writes, one after the other, and
/// each of them may have to wait for a commit.
const LONG_COMMIT: Duration = Duration::from_millis(100);
/// How long the commits of a task let other jobs go first after one of them was long.
const LONG_FOR: Duration = Duration::from_secs(60);

/// A batch with more guards than this may take long. One with a guard for each of a thousand items
/// does not.
const GUARDS_MANY: usize = 4_000;

fn turn_of_batch(batch: &Batch, long: &LongCommits) -> Turn {
    let priority = priority_of(batch.lane);
    let bulky = |entry: &Entry| match &entry.decision {
        Decision::Apply { proposal, .. } => proposal
            .changes
            .iter()
            .any(|change| matches!(change, Change::DeleteReadSet(_)) || change.range().is_some()),
        Decision::Settle(_) => false,
    };
    let was_long = |entry: &Entry| {
        long.get(&entry.item.identity.task).is_some_and(|ended| ended.elapsed() < LONG_FOR)
    };
    let guards = batch.entries.iter().map(|entry| match &entry.decision {
        Decision::Apply { proposal, .. } => proposal.guards.len(),
        Decision::Settle(_) => 0,
    });
    let may_take_long = || {
        batch.entries.iter().any(|entry| bulky(entry) || was_long(entry))
            || guards.sum::<usize>() > GUARDS_MANY
    };
    let bulk = Bulk::of(batch);
    match priority {
        Priority::Normal if may_take_long() => Priority::Heavy.bulk(bulk),
        Priority::Normal | Priority::Heavy => priority.bulk(bulk),
        Priority::Lease | Priority::Due => priority.into(),
    }
}

#[async_trait]
impl Scripts for SqliteStore {
    fn dialect(&self) -> Dialect {
        Dialect::Sqlite
    }

    async fn run(&self, texts: Vec<String>) -> Result<()> {
        let run = move |tx: &mut Tx<'_>| {
            texts.iter().try_for_each(|text| tx.conn.execute_batch(text).map_err(Failure::from))
        };
        self.writer.run(Priority::Heavy, run).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn now(&self) -> Result<Time> {
        Ok(self.clock.now())
    }

    fn is_damaged(&self) -> bool {
        self.damage.found().is_some()
    }

    async fn lost(&self) -> Option<String> {
        if let Some(told) = self.damage.found() {
            return Some(told.to_owned());
        }
        let Some(loss) = self.place.lost() else {
            if let Some(max) = self.watched.check_due(&self.place) {
                // The caller renews its lease and does not wait; the next call reports what is found.
                let readers = Arc::clone(&self.inspection);
                tokio::task::spawn_blocking(move || readers.examine(max));
            }
            return None;
        };
        let saved = match loss {
            // The only copy of the log is the one that this process has open. Nothing has been committed
            // to an empty one.
            Loss::Log(Gone::Removed | Gone::ReplacedByEmpty) => {
                let written = self.writer.with(Priority::Lease, |writing| writing.write_out());
                matches!(tokio::time::timeout(WRITE_OUT_MAX, written).await, Ok(Ok(true)))
            }
            // Next to another log, or in another file, it would cause damage.
            Loss::Log(Gone::Replaced) | Loss::File(_) => false,
        };
        if saved {
            self.place.note_saved();
        }
        Some(self.place.told(loss, saved))
    }

    fn identity(&self) -> &str {
        &self.founded.identity
    }

    fn partitions(&self) -> u32 {
        self.founded.partitions
    }

    fn set_collections(&self, collections: Arc<Collections>) {
        let mapping = Arc::new(Mapping::new(&collections, self.schema.load(Ordering::Acquire)));
        *self.mapping.write().unwrap_or_else(|e| e.into_inner()) = mapping;
    }

    async fn check(&self, collections: &Collections) -> Result<Vec<MappingFault>> {
        let collections = collections.clone();
        self.look(move |conn| check::check(conn, &collections)).await
    }

    async fn check_granted(
        &self,
        collections: &Collections,
        granted: &BTreeMap<String, Operations>,
    ) -> Result<Vec<MappingFault>> {
        let (collections, granted) = (collections.clone(), granted.clone());
        self.look(move |conn| check::check_granted(conn, &collections, &granted)).await
    }

    async fn check_moves(
        &self,
        collections: &Collections,
        moves: &[(String, String)],
    ) -> Result<Vec<MappingFault>> {
        let (collections, moves) = (collections.clone(), moves.to_vec());
        self.look(move |conn| check::check_moves(conn, &collections, &moves)).await
    }

    async fn raise_fence(
        &self,
        fence: &FencingToken,
        node: &Incarnation,
        partitions: Option<&[Partition]>,
    ) -> Result<Raised> {
        let (fence, node) = (fence.clone(), node.clone());
        let partitions = partitions.map(<[Partition]>::to_vec);
        let raised = self
            .writer
            .run(Priority::Lease, move |tx| {
                leadership::raise_fence(tx, &fence, &node, partitions.as_deref())
            })
            .await?;
        self.place.note_log();
        Ok(raised)
    }

    async fn fence(&self) -> Result<Option<Fence>> {
        self.look(leadership::fence).await
    }

    async fn terms(&self, limit: u32) -> Result<Vec<Fence>> {
        self.look(move |conn| leadership::terms(conn, limit)).await
    }

    async fn partition_table(&self) -> Result<Vec<PartitionRow>> {
        self.look(leadership::partition_table).await
    }

    async fn claim_partitions(
        &self,
        node: &Incarnation,
        at: RingPosition,
        claims: &[Claim],
    ) -> Result<Vec<(Partition, OwnerEpoch)>> {
        let (node, claims) = (node.clone(), claims.to_vec());
        self.writer
            .run(Priority::Lease, move |tx| leadership::claim_partitions(tx, &node, at, &claims))
            .await
    }

    async fn arrivals(&self, since: u64) -> Result<Arrivals> {
        // The leader of a file owns all of it and knows what it has planned: too few callers ask
        // this for a journal to be worth its writes.
        let any = Some(Time(i64::MIN));
        Ok(Arrivals { mark: since, log: true, timer: any, retry: any })
    }

    async fn task_states(&self) -> Result<Vec<TaskState>> {
        self.look(runs::task_states).await
    }

    async fn active_runs(&self) -> Result<Vec<Run>> {
        self.look(runs::active_runs).await
    }

    async fn decide_slots(
        &self,
        fence: &FencingToken,
        decision: &SlotDecision,
    ) -> Result<Vec<RunId>> {
        let (fence, decision) = (fence.clone(), decision.clone());
        self.write(move |tx| runs::decide_slots(tx, &fence, &decision)).await
    }

    async fn cursor(&self, task: &TaskName, tenant: Option<&Tenant>) -> Result<Option<Vec<u8>>> {
        let (task, tenant) = (task.clone(), tenant.cloned());
        self.look(move |conn| planning::cursor(conn, &task, tenant.as_ref())).await
    }

    async fn plan_page(&self, fence: &FencingToken, page: &PlanPage) -> Result<Planned> {
        let (fence, page, partitions) = (fence.clone(), page.clone(), self.founded.partitions);
        self.writer
            .run(Priority::Normal.bulk(Bulk::Items), move |tx| {
                planning::plan_page(tx, &fence, &page, partitions)
            })
            .await
    }

    async fn blocked(&self, task: &TaskName, candidates: &[Candidate]) -> Result<Vec<bool>> {
        let (task, candidates) = (task.clone(), candidates.to_vec());
        self.look(move |conn| planning::blocked(conn, &task, &candidates)).await
    }

    async fn end_scan(&self, fence: &FencingToken, end: &EndOfScan) -> Result<bool> {
        let (fence, end) = (fence.clone(), end.clone());
        self.write(move |tx| runs::end_scan(tx, &fence, &end)).await
    }

    async fn open_review(&self, fence: &FencingToken, review: &NewReview) -> Result<()> {
        let (fence, review) = (fence.clone(), review.clone());
        self.write(move |tx| reviews::open(tx, &fence, &review)).await
    }

    async fn reviews(&self, query: &ReviewQuery) -> Result<Vec<Review>> {
        let query = query.clone();
        self.look(move |conn| reviews::list(conn, &query)).await
    }

    async fn submit(&self, command: &Command, by: &str, reason: &str) -> Result<u64> {
        let (command, by, reason) = (command.clone(), by.to_owned(), reason.to_owned());
        self.write(move |tx| commands::submit(tx, &command, &by, &reason)).await
    }

    async fn pending_commands(&self, limit: u32) -> Result<Vec<CommandRow>> {
        self.look(move |conn| commands::pending(conn, limit)).await
    }

    async fn commands(&self, before: Option<u64>, limit: u32) -> Result<Vec<CommandRow>> {
        self.look(move |conn| commands::newest(conn, before, limit)).await
    }

    async fn command(&self, id: u64) -> Result<Option<CommandRow>> {
        self.look(move |conn| commands::command(conn, id)).await
    }

    async fn estimate(&self, collection: &str, count_max: u64) -> Result<u64> {
        let (mapping, collection) = (self.mapping(), collection.to_owned());
        self.look(move |conn| brakes::estimate(conn, &mapping, &collection, count_max)).await
    }

    async fn set_brakes(&self, fence: &FencingToken, brakes: &[Brake]) -> Result<()> {
        let (fence, brakes) = (fence.clone(), brakes.to_vec());
        self.write(move |tx| brakes::set(tx, &fence, &brakes)).await
    }

    async fn brakes(&self, task: &TaskName, limit: u32) -> Result<Vec<Brake>> {
        let task = task.clone();
        self.look(move |conn| brakes::of_task(conn, &task, limit)).await
    }

    async fn apply_command(
        &self,
        fence: &FencingToken,
        command: &CommandRow,
        effect: &CommandEffect,
        result: &str,
        letters: NonZeroU32,
    ) -> Result<Applied> {
        let (fence, command) = (fence.clone(), command.clone());
        let (effect, result) = (effect.clone(), result.to_owned());
        self.write(move |tx| commands::apply(tx, &fence, &command, &effect, &result, letters)).await
    }

    async fn backlog(&self, partitions: Option<&[Partition]>) -> Result<Vec<Stream>> {
        let partitions = partitions.map(<[Partition]>::to_vec);
        self.look(move |conn| waiting::backlog(conn, partitions.as_deref())).await
    }

    async fn streams(&self, task: Option<&TaskName>) -> Result<Vec<StreamRow>> {
        let task = task.cloned();
        self.look(move |conn| streams::rows(conn, task.as_ref())).await
    }

    async fn read_log(
        &self,
        task: &TaskName,
        partition: Partition,
        acked: Seq,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<Waiting>> {
        let task = task.clone();
        self.look(move |conn| waiting::read_log(conn, &task, partition, acked, limit, bytes_max))
            .await
    }

    async fn read_logs(
        &self,
        task: &TaskName,
        streams: &[(Partition, Seq)],
        each: u32,
        limit: u32,
        bytes_max: usize,
    ) -> Result<LogRead> {
        let (task, streams) = (task.clone(), streams.to_vec());
        let rows_max = self.writer.others_write().then_some(ROWS_BESIDE_OTHERS);
        self.look(move |conn| {
            let mut room = LogRoom::new(each, limit, bytes_max);
            for (partition, acked) in streams {
                let Some((items, bytes)) = room.left() else { break };
                let read = waiting::read_log(conn, &task, partition, acked, items, bytes);
                if !room.take(partition, read)? {
                    break;
                }
            }
            Ok(LogRead { rows_max, ..room.read })
        })
        .await
    }

    async fn read_timers(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>> {
        let partitions = partitions.map(<[Partition]>::to_vec);
        let tasks = tasks.map(<[TaskName]>::to_vec);
        self.look(move |conn| {
            waiting::read_timers(conn, tasks.as_deref(), partitions.as_deref(), after, limit)
        })
        .await
    }

    async fn read_retries(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>> {
        let partitions = partitions.map(<[Partition]>::to_vec);
        let tasks = tasks.map(<[TaskName]>::to_vec);
        self.look(move |conn| {
            waiting::read_retries(conn, tasks.as_deref(), partitions.as_deref(), after, limit)
        })
        .await
    }

    async fn take_rows(
        &self,
        task: &TaskName,
        rows: u64,
        per_second: NonZeroU32,
    ) -> Result<Allowance> {
        let task = task.clone();
        self.write(move |tx| budget::take(tx, &task, rows, per_second)).await
    }

    async fn strain(&self, _: &[String]) -> Result<Strain> {
        Ok(self.writer.holds.take(Instant::now()))
    }

    async fn begin(
        &self,
        id: CommitId,
        node: &Incarnation,
        lane: guests::Lane,
        items: &[(Source, &Item)],
    ) -> Result<()> {
        let begun = begun::pack(items).map_err(Failure::from)?;
        let node = node.clone();
        self.writer
            .run_light(priority_of(lane), move |tx| waiting::begin(tx, id, &node, &begun))
            .await
    }

    async fn abandon(&self, id: CommitId) -> Result<()> {
        self.writer.run_light(Priority::Normal, move |tx| waiting::abandon(tx, id)).await
    }

    async fn begun_by(&self) -> Result<Vec<Incarnation>> {
        self.look(waiting::begun_by).await
    }

    async fn bury(&self, fence: &FencingToken, dead: &[Incarnation]) -> Result<Vec<Identity>> {
        let (fence, dead) = (fence.clone(), dead.to_vec());
        self.write(move |tx| waiting::bury(tx, &fence, &dead)).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Committed> {
        let (batch, mapping, observation) = (batch.clone(), self.mapping(), self.observation());
        let turn = turn_of_batch(&batch, &known(&self.long));
        let (long, undo_bytes) = (Arc::clone(&self.long), self.undo_bytes);
        self.writer
            .with(turn, move |writing| {
                let began = Instant::now();
                let done = commit::commit(writing, &batch, &mapping, &observation, undo_bytes);
                if began.elapsed() >= LONG_COMMIT {
                    let ended = Instant::now();
                    let tasks = batch.entries.iter().map(|entry| &entry.item.identity.task);
                    known(&long).extend(tasks.map(|task| (task.clone(), ended)));
                }
                done
            })
            .await
    }

    async fn try_commit(&self, batch: &Batch) -> Result<Tried> {
        let (batch, mapping, observation) = (batch.clone(), self.mapping(), self.observation());
        let undo_bytes = self.undo_bytes;
        self.writer
            .with(Priority::Heavy, move |writing| {
                commit::rehearse(writing, &batch, &mapping, &observation, undo_bytes)
            })
            .await
    }

    async fn find_commit(&self, id: CommitId) -> Result<Option<Committed>> {
        self.write(move |tx| commit::find(tx, id)).await
    }

    async fn claim_messages(
        &self,
        fence: &FencingToken,
        ended: &[Attempt],
        claim: &delivery::Claim,
    ) -> Result<Vec<Claimed>> {
        let (asked, now) = (claim.clone(), self.clock.now());
        let any = move |conn: &_| outbox::any(conn, &asked, now);
        if ended.is_empty() && !self.look(any).await? {
            return Ok(Vec::new());
        }
        let mut ended = ended.to_vec();
        loop {
            let (fence, ended, claim) = (fence.clone(), std::mem::take(&mut ended), claim.clone());
            let claim = move |tx: &mut Tx<'_>| outbox::claim(tx, &fence, &ended, &claim);
            let (claimed, lagging) = self.writer.run(Priority::Heavy, claim).await?;
            if !claimed.is_empty() || !lagging {
                return Ok(claimed);
            }
        }
    }

    async fn read_messages(
        &self,
        topic: &str,
        known: &[u64],
        held: &[delivery::Sequence],
        limit: u32,
        bytes: u64,
    ) -> Result<Vec<Claimed>> {
        let (topic, known, held) = (topic.to_owned(), known.to_vec(), held.to_vec());
        let read = move |conn: &_| outbox::read(conn, &topic, &known, &held, limit, bytes);
        let (read, unreadable) = self.look(read).await?;
        if !unreadable.is_empty() {
            let all = move |tx: &mut Tx<'_>| {
                unreadable.iter().try_for_each(|message| outbox::give_up_unread(tx, message))
            };
            self.writer.run(Priority::Heavy, all).await?;
        }
        Ok(read)
    }

    async fn end_messages(
        &self,
        fence: &FencingToken,
        ends: &[(u64, delivery::End)],
    ) -> Result<()> {
        let (fence, ends) = (fence.clone(), ends.to_vec());
        self.writer.run(Priority::Heavy, move |tx| outbox::end_read(tx, &fence, &ends)).await
    }

    async fn drop_messages(&self, task: &TaskName, topic: &str, count: u32) -> Result<Pending> {
        let (task, topic) = (task.clone(), topic.to_owned());
        self.writer
            .run(Priority::Heavy, move |tx| outbox::drop_oldest(tx, &task, &topic, count))
            .await
    }

    async fn pending_messages(
        &self,
        task: Option<&TaskName>,
        topic: &str,
        limit: u32,
    ) -> Result<Pending> {
        let (task, topic) = (task.cloned(), topic.to_owned());
        let count = move |conn: &_| outbox::pending(conn, task.as_ref(), &topic, limit);
        self.look(count).await
    }

    async fn enter_messages(&self, offered: &[Offered]) -> Result<Vec<Entered>> {
        let offered = offered.to_vec();
        self.write(move |tx| feed::enter(tx, &offered)).await
    }

    async fn last_entered(&self, topic: &str, tenant: Option<&Tenant>, key: &str) -> Result<u64> {
        let (topic, tenant, key) = (topic.to_owned(), tenant.cloned(), key.to_owned());
        self.look(move |conn| feed::last(conn, &topic, tenant.as_ref(), &key)).await
    }

    fn written_at(&self) -> Option<SystemTime> {
        self.place.log_written_at()
    }

    async fn feed_topics(&self, known: &[String], others_max: u32) -> Result<FeedTopics> {
        let known = known.to_vec();
        self.look(move |conn| feed::topics(conn, &known, others_max)).await
    }

    async fn collect_messages(
        &self,
        fence: &FencingToken,
        topics: &[String],
        limit: u32,
        bytes: u64,
    ) -> Result<u64> {
        let (fence, topics) = (fence.clone(), topics.to_vec());
        self.writer
            .run(Priority::Heavy, move |tx| feed::collect(tx, &fence, &topics, limit, bytes))
            .await
    }

    async fn outbox_topics(&self, topics_max: u32, count_max: u32) -> Result<Vec<OutboxTopic>> {
        self.look(move |conn| outbox::topics(conn, topics_max, count_max)).await
    }

    async fn messages(&self, query: &MessageQuery) -> Result<Vec<Message>> {
        let query = query.clone();
        self.look(move |conn| outbox::messages(conn, &query)).await
    }

    async fn snapshot(&self, open_max: Duration) -> Result<Arc<dyn ReadView>> {
        Ok(Arc::new(snapshot::open(&self.acts, self.mapping(), open_max).await?))
    }

    async fn depths(&self) -> Result<Vec<Depth>> {
        let now = self.clock.now();
        self.look(move |conn| inspection::depths(conn, now)).await
    }

    async fn runs(&self, task: Option<&TaskName>, limit: u32) -> Result<Vec<Run>> {
        let task = task.cloned();
        self.look(move |conn| runs::runs(conn, task.as_ref(), limit)).await
    }

    async fn last_scanned(&self, task: &TaskName) -> Result<Option<Run>> {
        let task = task.clone();
        self.look(move |conn| runs::last_scanned(conn, &task)).await
    }

    async fn run(&self, id: RunId) -> Result<Option<Run>> {
        self.look(move |conn| runs::run(conn, id)).await
    }

    async fn slots(
        &self,
        task: &TaskName,
        from: Time,
        to: Time,
        limit: u32,
    ) -> Result<Vec<SlotRecord>> {
        let task = task.clone();
        self.look(move |conn| runs::slots(conn, &task, from, to, limit)).await
    }

    async fn dead_letters(
        &self,
        selector: &DeadSelector,
        letters: Letters,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let selector = selector.clone();
        self.look(move |conn| commands::dead_letters(conn, &selector, letters, before, Some(limit)))
            .await
    }

    async fn dead_groups(&self, limit: u32) -> Result<Vec<DeadGroup>> {
        self.look(move |conn| commands::dead_groups(conn, limit)).await
    }

    async fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>> {
        let query = query.clone();
        self.look(move |conn| inspection::history(conn, &query)).await
    }

    async fn before_images(&self, history: u64) -> Result<Option<Vec<BeforeImage>>> {
        self.look(move |conn| inspection::before_images(conn, history)).await
    }

    async fn kept(&self, history: u64) -> Result<Option<KeptItem>> {
        self.look(move |conn| restore::kept(conn, history)).await
    }

    async fn rehearse(&self, tenant: Option<&Tenant>, restore: &Restore) -> Result<Restored> {
        let (tenant, restore, mapping) = (tenant.cloned(), restore.clone(), self.mapping());
        let job = move |tx: &mut Tx<'_>| restore::rehearse(tx, &mapping, tenant.as_ref(), &restore);
        self.writer.run(Priority::Heavy, job).await
    }

    async fn write_lines(
        &self,
        lines: &[RunLine],
        lost: &[(RunId, u64)],
        lines_max: u32,
    ) -> Result<()> {
        let new = lines::Lines { lines: lines.to_vec(), lost: lost.to_vec(), lines_max };
        self.writer.run_light(Priority::Heavy, move |tx| lines::write(tx, &new)).await
    }

    async fn lines(&self, run: RunId, after: u64, limit: u32) -> Result<RunLines> {
        self.look(move |conn| lines::lines(conn, run, after, limit)).await
    }

    async fn audit(&self) -> Result<Audit> {
        self.look(audit::audit).await
    }

    async fn report_node(&self, node: &NodeRow) -> Result<Option<Time>> {
        let node = node.clone();
        self.writer.run_light(Priority::Normal, move |tx| inspection::report_node(tx, &node)).await
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>> {
        self.look(inspection::nodes).await
    }

    async fn forget_node(&self, node: &Incarnation) -> Result<()> {
        let node = node.clone();
        self.writer.run_light(Priority::Normal, move |tx| inspection::forget_node(tx, &node)).await
    }

    async fn prune(&self, fence: &FencingToken, keep: Retention<'_>, limit: u32) -> Result<Pruned> {
        let (fence, undo) = (fence.clone(), keep.undo.to_vec());
        let (history, nodes) = (keep.history, keep.nodes);
        let routed = keep.routed.map(<[String]>::to_vec);
        let silent = self.timeouts.forgotten();
        self.writer
            .run(Priority::Heavy.bulk(Bulk::Items), move |tx| {
                let keep = Retention { history, nodes, undo: &undo, routed: routed.as_deref() };
                prune::prune(tx, &fence, keep, silent, limit)
            })
            .await
    }
}
