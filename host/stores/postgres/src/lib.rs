//! The store on PostgreSQL: the engine's tables are in a schema of their own, next to the user's.
//!
//! This file connects the port's operations to jobs on connections; the modules decide what a job
//! does. Transactions use READ COMMITTED: what must not change is locked, in one order, and
//! what depends on it is read by a later statement.

mod anchors;
mod arrivals;
mod audit;
mod brakes;
mod budget;
mod catalog;
mod check;
mod clock;
mod columns;
mod commands;
mod commit;
mod conditions;
mod connect;
mod direct;
mod effects;
mod embedded;
mod error;
mod fault;
mod feed;
mod guards;
mod inspection;
mod items;
mod leadership;
mod ledger;
mod lines;
mod locks;
mod lookup;
mod mapping;
mod nudge;
mod open;
mod options;
mod outbox;
mod ownership;
mod plan;
mod planning;
mod pooler;
mod prune;
mod purge;
mod range;
mod range_change;
mod readset;
mod restore;
mod reviews;
mod runs;
mod scene;
mod schema;
mod session;
mod set;
mod shape;
mod snapshot;
mod spelling;
mod strain;
mod streams;
mod tally;
mod tasks;
mod tenants;
mod text;
mod tls;
mod together;
mod turns;
mod units;
mod values;
mod waiting;
mod whole;
mod work;

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

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
use besom_snapshot::Cause;
use besom_snapshot::DeadGroup;

pub use self::clock::TimeSource;
pub use self::connect::{database_of, is_unchecked};
pub use self::fault::{Fault, Faults};
pub use self::options::{Options, PARTITIONS_DEFAULT, Password, ReadPassword, SCHEMA_DEFAULT};
pub use self::shape::{Lack, describe, lack};

use self::clock::{Clock, NOW};
use self::commit::Attempted;
use self::connect::{Pools, Use};
use self::mapping::Mapping;
use self::nudge::Nudges;
use self::schema::Foundation;
use self::session::{Session, params};
use self::tasks::Tasks;
use self::turns::Turns;
use besom_ports::embedded::{Dialect, Scripts};
use besom_ports::guests::Lane;
use besom_ports::store::*;
use besom_record::activity::Observation;
use besom_record::courtesy::Bulk;
use besom_tables::plan::Good;

/// The store in one database of a PostgreSQL server.
pub struct PostgresStore {
    pools: Pools,
    nudges: Nudges,
    founded: Foundation,
    clock: Clock,
    tasks: Tasks,
    collections: RwLock<Arc<Collections>>,
    /// The collections with their catalog information, and how often the catalog had been doubted
    /// when it was read; none until the first use.
    mapping: RwLock<Option<(u64, Arc<Mapping>)>>,
    /// The accepted plans for these collections.
    good: RwLock<Arc<Good>>,
    timeouts: Timeouts,
    opened_at: Time,
    opened: Instant,
    /// Since when the activity endpoint has been listening; unset: it is not listening.
    listening_since: OnceLock<Time>,
    faults: Faults,
    /// Time limits of a commit's statements.
    bounds: guards::Bounds,
    turns: Turns,
    /// The memory for before-images.
    undo: commit::Undo,
    /// How long the server may wait for a node to read an answer while others wait for that node.
    unheard_max: Duration,
}

impl PostgresStore {
    /// The collections with their forms. Reads the catalog the first time, and again after a
    /// statement did not match the tables.
    async fn mapping(&self, session: &Session) -> Result<Arc<Mapping>> {
        // Read before the catalog: a doubt in the meantime counts for the next call.
        let doubts = self.pools.doubts();
        if let Some((at, known)) = &*self.mapping.read().unwrap_or_else(PoisonError::into_inner)
            && *at == doubts
        {
            return Ok(Arc::clone(known));
        }
        let collections = self.collections();
        let mapping = Arc::new(Mapping::complete(session, &collections).await?);
        let mut known = self.mapping.write().unwrap_or_else(PoisonError::into_inner);
        // The collections may have been replaced in the meantime.
        if Arc::ptr_eq(&collections, &self.collections()) {
            *self.good.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
            *known = Some((doubts, Arc::clone(&mapping)));
        }
        Ok(mapping)
    }

    /// Commits a batch, or only tries to.
    async fn attempt(&self, batch: &Batch, trial: bool) -> Result<Attempted> {
        let doubts = self.pools.doubts();
        let done = match self.commit_once(batch, trial).await {
            // A deployment has changed columns: the catalog is read again.
            Err(Error::Refused(Cause::Schema, _) | Error::Busy(_))
                if self.pools.doubts() != doubts =>
            {
                self.commit_once(batch, trial).await
            }
            done => done,
        };
        match done {
            // A trial waits for a moment only.
            Err(Error::Busy(said)) if !trial => {
                Err(self.locked(batch).await.unwrap_or(Error::Busy(said)))
            }
            done => done,
        }
    }

    /// The refusal of a batch that other sessions keep from its tables; none: they do not.
    async fn locked(&self, batch: &Batch) -> Option<Error> {
        let session = self.look().await.ok()?;
        let mapping = self.mapping(&session).await.ok()?;
        locks::refused_commit(&session, &mapping, &self.collections(), batch).await
    }

    /// Whether sessions that are not Besom's have been seen to write in the last seconds.
    pub fn others_write(&self) -> bool {
        self.turns.others_write()
    }

    async fn look_for_others(&self) {
        let looked = match self.pools.take(Use::Write).await {
            Ok(session) => self.turns.look(&session).await.map_err(Error::from),
            Err(error) => Err(error),
        };
        if let Err(error) = looked {
            tracing::debug!(%error, "whether others write is not known");
        }
    }

    async fn commit_once(&self, batch: &Batch, trial: bool) -> Result<Attempted> {
        let session = self.pools.take(Use::Write).await?;
        let collections = self.collections();
        let mapping = self.mapping(&session).await?;
        let tasks = self.tasks.numbers(&session, tasks_of(batch).into_iter()).await?;
        let setting = commit::Setting {
            pools: &self.pools,
            clock: &self.clock,
            tasks: &tasks,
            mapping: &mapping,
            collections: &collections,
            observation: self.observation(),
            fault: self.faults.next(),
            bounds: if trial { self.bounds.of_trial() } else { self.bounds },
            undo: &self.undo,
            trial,
        };
        commit::commit(session, batch, &setting).await
    }

    fn collections(&self) -> Arc<Collections> {
        Arc::clone(&self.collections.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn good(&self) -> Arc<Good> {
        Arc::clone(&self.good.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// An estimate of the store's clock, without asking the server.
    fn present(&self) -> Time {
        self.clock.given().map_or_else(|| self.opened_at + self.opened.elapsed(), Time)
    }

    fn observation(&self) -> Observation {
        let listening =
            Listening { opened_at: self.opened_at, since: self.listening_since.get().copied() };
        Observation { timeouts: self.timeouts, listening }
    }

    async fn look(&self) -> Result<Session> {
        self.pools.take(Use::Look).await
    }

    async fn read_streams(
        &self,
        task: &TaskName,
        streams: &[(Partition, Seq)],
        room: LogRoom,
    ) -> Result<LogRead> {
        let session = self.look().await?;
        Ok(waiting::read_logs(&session, &self.tasks, task, streams, room).await?)
    }
}

#[async_trait]
impl Scripts for PostgresStore {
    fn dialect(&self) -> Dialect {
        Dialect::Postgres
    }

    async fn run(&self, texts: Vec<String>) -> Result<()> {
        Ok(self.pools.take(Use::Write).await?.script(&texts.join(";\n")).await?)
    }
}

/// The tasks that the writes of a batch name.
fn tasks_of(batch: &Batch) -> Vec<&TaskName> {
    let mut tasks = Vec::with_capacity(batch.entries.len());
    for Entry { item, decision, .. } in &batch.entries {
        tasks.push(&item.identity.task);
        if let Decision::Apply { proposal, .. } = decision {
            let restores = proposal.changes.iter().filter_map(Change::restore);
            let undone = restores.filter_map(|restore| restore.undone.as_ref());
            tasks.extend(undone.map(|item| &item.identity.task));
        }
    }
    tasks
}

#[async_trait]
impl Store for PostgresStore {
    async fn now(&self) -> Result<Time> {
        let asked = params![self.clock.given()];
        Ok(Time(self.look().await?.one(&format!("SELECT {NOW}"), asked).await?))
    }

    fn identity(&self) -> &str {
        &self.founded.identity
    }

    fn partitions(&self) -> u32 {
        self.founded.partitions
    }

    fn set_collections(&self, collections: Arc<Collections>) {
        let mut mapping = self.mapping.write().unwrap_or_else(PoisonError::into_inner);
        *self.collections.write().unwrap_or_else(PoisonError::into_inner) = collections;
        *self.good.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        *mapping = None;
    }

    async fn check(&self, collections: &Collections) -> Result<Vec<MappingFault>> {
        Ok(check::check(&mut self.look().await?, collections).await?)
    }

    async fn check_granted(
        &self,
        collections: &Collections,
        granted: &BTreeMap<String, Operations>,
    ) -> Result<Vec<MappingFault>> {
        Ok(check::check_granted(&self.look().await?, collections, granted).await?)
    }

    async fn check_moves(
        &self,
        collections: &Collections,
        moves: &[(String, String)],
    ) -> Result<Vec<MappingFault>> {
        Ok(check::check_moves(&self.look().await?, collections, moves).await?)
    }

    async fn raise_fence(
        &self,
        fence: &FencingToken,
        node: &Incarnation,
        partitions: Option<&[Partition]>,
    ) -> Result<Raised> {
        self.tasks.forget();
        let session = self.pools.take(Use::Lead).await?;
        let count = self.founded.partitions;
        let unheard_max = self.unheard_max;
        leadership::raise_fence(session, &self.clock, fence, node, partitions, count, unheard_max)
            .await
    }

    async fn fence(&self) -> Result<Option<Fence>> {
        Ok(leadership::fence(&self.look().await?).await?)
    }

    async fn terms(&self, limit: u32) -> Result<Vec<Fence>> {
        Ok(leadership::terms(&self.look().await?, limit).await?)
    }

    async fn partition_table(&self) -> Result<Vec<PartitionRow>> {
        Ok(leadership::partition_table(&self.look().await?).await?)
    }

    async fn claim_partitions(
        &self,
        node: &Incarnation,
        at: RingPosition,
        claims: &[Claim],
    ) -> Result<Vec<(Partition, OwnerEpoch)>> {
        let session = self.pools.take(Use::Lead).await?;
        let unheard_max = self.unheard_max;
        leadership::claim_partitions(session, &self.clock, node, at, claims, unheard_max).await
    }

    async fn arrivals(&self, since: u64) -> Result<Arrivals> {
        Ok(arrivals::since(&self.look().await?, since).await?)
    }

    async fn nudged(&self, timeout: Duration) {
        self.nudges.heard(timeout).await;
    }

    async fn task_states(&self) -> Result<Vec<TaskState>> {
        Ok(runs::task_states(&self.look().await?).await?)
    }

    async fn active_runs(&self) -> Result<Vec<Run>> {
        Ok(runs::active_runs(&self.look().await?).await?)
    }

    async fn decide_slots(
        &self,
        fence: &FencingToken,
        decision: &SlotDecision,
    ) -> Result<Vec<RunId>> {
        let session = self.pools.take(Use::Lead).await?;
        runs::decide_slots(session, &self.clock, &self.tasks, fence, decision).await
    }

    async fn cursor(&self, task: &TaskName, tenant: Option<&Tenant>) -> Result<Option<Vec<u8>>> {
        Ok(planning::cursor(&self.look().await?, task, tenant).await?)
    }

    async fn plan_page(&self, fence: &FencingToken, page: &PlanPage) -> Result<Planned> {
        let session = self.pools.take(Use::Lead).await?;
        let (clock, tasks) = (&self.clock, &self.tasks);
        let planned =
            planning::plan_page(session, clock, tasks, fence, page, self.founded.partitions)
                .await?;
        if planned.planned > 0 {
            self.nudges.say();
        }
        Ok(planned)
    }

    async fn blocked(&self, task: &TaskName, candidates: &[Candidate]) -> Result<Vec<bool>> {
        Ok(planning::blocked(&self.look().await?, &self.tasks, task, candidates).await?)
    }

    async fn end_scan(&self, fence: &FencingToken, end: &EndOfScan) -> Result<bool> {
        runs::end_scan(self.pools.take(Use::Lead).await?, &self.clock, fence, end).await
    }

    async fn submit(&self, command: &Command, by: &str, reason: &str) -> Result<u64> {
        let session = self.pools.take(Use::Write).await?;
        let id = commands::submit(&session, &self.clock, command, by, reason).await?;
        self.nudges.say_now(&session).await;
        Ok(id)
    }

    async fn pending_commands(&self, limit: u32) -> Result<Vec<CommandRow>> {
        Ok(commands::pending(&self.look().await?, limit).await?)
    }

    async fn commands(&self, before: Option<u64>, limit: u32) -> Result<Vec<CommandRow>> {
        Ok(commands::newest(&self.look().await?, before, limit).await?)
    }

    async fn command(&self, id: u64) -> Result<Option<CommandRow>> {
        Ok(commands::command(&self.look().await?, id).await?)
    }

    async fn apply_command(
        &self,
        fence: &FencingToken,
        command: &CommandRow,
        effect: &CommandEffect,
        result: &str,
        letters: NonZeroU32,
    ) -> Result<Applied> {
        let session = self.pools.take(Use::Lead).await?;
        let (clock, tasks) = (&self.clock, &self.tasks);
        let asked = commands::Asked { command, effect, result, letters };
        let applied = commands::apply(session, clock, tasks, fence, asked).await?;
        if applied.dead > 0 {
            self.nudges.say();
        }
        Ok(applied)
    }

    async fn backlog(&self, partitions: Option<&[Partition]>) -> Result<Vec<Stream>> {
        Ok(waiting::backlog(&self.look().await?, partitions).await?)
    }

    async fn streams(&self, task: Option<&TaskName>) -> Result<Vec<StreamRow>> {
        Ok(streams::rows(&self.look().await?, task).await?)
    }

    async fn read_log(
        &self,
        task: &TaskName,
        partition: Partition,
        acked: Seq,
        limit: u32,
        bytes_max: usize,
    ) -> Result<Vec<Waiting>> {
        let room = LogRoom::new(limit, limit, bytes_max);
        let read = self.read_streams(task, &[(partition, acked)], room).await?;
        match read.broken.into_iter().next() {
            Some(broken) => Err(Error::Invalid(broken.why)),
            None => Ok(read.items),
        }
    }

    async fn read_logs(
        &self,
        task: &TaskName,
        streams: &[(Partition, Seq)],
        each: u32,
        limit: u32,
        bytes_max: usize,
    ) -> Result<LogRead> {
        self.read_streams(task, streams, LogRoom::new(each, limit, bytes_max)).await
    }

    async fn read_timers(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>> {
        Ok(waiting::read_timers(&self.look().await?, tasks, partitions, after, limit).await?)
    }

    async fn read_retries(
        &self,
        tasks: Option<&[TaskName]>,
        partitions: Option<&[Partition]>,
        after: Option<(Time, u64)>,
        limit: u32,
    ) -> Result<Vec<Waiting>> {
        Ok(waiting::read_retries(&self.look().await?, tasks, partitions, after, limit).await?)
    }

    async fn estimate(&self, collection: &str, count_max: u64) -> Result<u64> {
        let session = self.look().await?;
        let mapping = self.mapping(&session).await?;
        Ok(brakes::estimate(&session, &mapping, collection, count_max).await?)
    }

    async fn set_brakes(&self, fence: &FencingToken, brakes: &[Brake]) -> Result<()> {
        brakes::set(self.pools.take(Use::Lead).await?, &self.clock, fence, brakes).await
    }

    async fn open_review(&self, fence: &FencingToken, review: &NewReview) -> Result<()> {
        reviews::open(self.pools.take(Use::Lead).await?, &self.clock, fence, review).await
    }

    async fn reviews(&self, query: &ReviewQuery) -> Result<Vec<Review>> {
        Ok(reviews::list(&self.look().await?, query).await?)
    }

    async fn brakes(&self, task: &TaskName, limit: u32) -> Result<Vec<Brake>> {
        Ok(brakes::of_task(&self.look().await?, task, limit).await?)
    }

    async fn take_rows(
        &self,
        task: &TaskName,
        rows: u64,
        per_second: NonZeroU32,
    ) -> Result<Allowance> {
        let session = self.pools.take(Use::Write).await?;
        Ok(budget::take(&session, &self.clock, &self.tasks, task, rows, per_second).await?)
    }

    async fn strain(&self, collections: &[String]) -> Result<Strain> {
        let mut session = self.look().await?;
        let mapping = self.mapping(&session).await?;
        Ok(strain::measure(&mut session, &mapping, collections).await?)
    }

    async fn begin(
        &self,
        id: CommitId,
        node: &Incarnation,
        _: Lane,
        items: &[(Source, &Item)],
    ) -> Result<()> {
        Ok(waiting::begin(&self.pools.take(Use::Write).await?, id, node, items).await?)
    }

    async fn abandon(&self, id: CommitId) -> Result<()> {
        Ok(waiting::abandon(&self.pools.take(Use::Write).await?, id).await?)
    }

    async fn begun_by(&self) -> Result<Vec<Incarnation>> {
        Ok(waiting::begun_by(&self.look().await?).await?)
    }

    async fn bury(&self, fence: &FencingToken, dead: &[Incarnation]) -> Result<Vec<Identity>> {
        waiting::bury(self.pools.take(Use::Lead).await?, &self.clock, fence, dead).await
    }

    async fn commit(&self, batch: &Batch) -> Result<Committed> {
        // What falls due waits for nobody.
        let is_bulk = !batch.lane.row().punctual;
        let turn = if is_bulk { self.turns.take(Bulk::of(batch)).await } else { None };
        let attempted = self.attempt(batch, false).await;
        drop(turn);
        if is_bulk && self.turns.is_time() {
            self.look_for_others().await;
        }
        match attempted? {
            Attempted::Committed(committed) => Ok(committed),
            Attempted::Tried(_) => Err(Error::Invalid("a commit was only tried".into())),
        }
    }

    async fn try_commit(&self, batch: &Batch) -> Result<Tried> {
        match self.attempt(batch, true).await? {
            Attempted::Tried(tried) => Ok(tried),
            Attempted::Committed(_) => Err(Error::Invalid("the batch was committed before".into())),
        }
    }

    async fn find_commit(&self, id: CommitId) -> Result<Option<Committed>> {
        Ok(commit::find(&self.pools.take(Use::Write).await?, &self.clock, id).await?)
    }

    async fn claim_messages(
        &self,
        fence: &FencingToken,
        ended: &[Attempt],
        claim: &delivery::Claim,
    ) -> Result<Vec<Claimed>> {
        let mut ended = ended;
        loop {
            let session = self.pools.take(Use::Write).await?;
            let (claimed, lagging) =
                outbox::claim(session, &self.clock, fence, ended, claim).await?;
            if !claimed.is_empty() || !lagging {
                return Ok(claimed);
            }
            ended = &[];
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
        Ok(outbox::read(&self.look().await?, topic, known, held, limit, bytes).await?)
    }

    async fn end_messages(
        &self,
        fence: &FencingToken,
        ends: &[(u64, delivery::End)],
    ) -> Result<()> {
        let session = self.pools.take(Use::Write).await?;
        outbox::end_read(session, &self.clock, fence, ends).await
    }

    async fn drop_messages(&self, task: &TaskName, topic: &str, count: u32) -> Result<Pending> {
        let session = self.pools.take(Use::Write).await?;
        Ok(outbox::drop_oldest(&session, task, topic, count).await?)
    }

    async fn pending_messages(
        &self,
        task: Option<&TaskName>,
        topic: &str,
        limit: u32,
    ) -> Result<Pending> {
        Ok(outbox::pending(&self.look().await?, task, topic, limit).await?)
    }

    async fn enter_messages(&self, offered: &[Offered]) -> Result<Vec<Entered>> {
        let session = self.pools.take(Use::Write).await?;
        feed::enter(session, &self.clock, offered).await
    }

    async fn last_entered(&self, topic: &str, tenant: Option<&Tenant>, key: &str) -> Result<u64> {
        Ok(feed::last(&self.look().await?, topic, tenant, key).await?)
    }

    async fn feed_topics(&self, known: &[String], others_max: u32) -> Result<FeedTopics> {
        Ok(feed::topics(&self.look().await?, known, others_max).await?)
    }

    async fn collect_messages(
        &self,
        fence: &FencingToken,
        topics: &[String],
        limit: u32,
        bytes: u64,
    ) -> Result<u64> {
        let session = self.pools.take(Use::Write).await?;
        feed::collect(session, &self.clock, fence, topics, limit, bytes).await
    }

    async fn outbox_topics(&self, topics_max: u32, count_max: u32) -> Result<Vec<OutboxTopic>> {
        Ok(outbox::topics(&self.look().await?, topics_max, count_max).await?)
    }

    async fn messages(&self, query: &MessageQuery) -> Result<Vec<Message>> {
        Ok(outbox::messages(&self.look().await?, query).await?)
    }

    async fn snapshot(&self, open_max: Duration) -> Result<Arc<dyn ReadView>> {
        let session = self.pools.take(Use::Act).await?;
        let (mapping, good) = (self.mapping(&session).await?, self.good());
        let canceller = session.canceller()?;
        Ok(Arc::new(snapshot::open(session, canceller, mapping, good, open_max).await?))
    }

    async fn depths(&self) -> Result<Vec<Depth>> {
        Ok(inspection::depths(&self.look().await?, &self.clock).await?)
    }

    async fn runs(&self, task: Option<&TaskName>, limit: u32) -> Result<Vec<Run>> {
        Ok(runs::runs(&self.look().await?, task, limit).await?)
    }

    async fn last_scanned(&self, task: &TaskName) -> Result<Option<Run>> {
        Ok(runs::last_scanned(&self.look().await?, task).await?)
    }

    async fn run(&self, id: RunId) -> Result<Option<Run>> {
        Ok(runs::run(&self.look().await?, id).await?)
    }

    async fn slots(
        &self,
        task: &TaskName,
        from: Time,
        to: Time,
        limit: u32,
    ) -> Result<Vec<SlotRecord>> {
        Ok(runs::slots(&self.look().await?, task, from, to, limit).await?)
    }

    async fn dead_letters(
        &self,
        selector: &DeadSelector,
        letters: Letters,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<DeadLetter>> {
        let (session, limit) = (self.look().await?, Some(limit));
        let found = commands::dead_letters(&session, selector, letters, before, limit).await?;
        Ok(found.into_iter().map(|(_, letter)| letter).collect())
    }

    async fn dead_groups(&self, limit: u32) -> Result<Vec<DeadGroup>> {
        Ok(commands::dead_groups(&self.look().await?, limit).await?)
    }

    async fn history(&self, query: &HistoryQuery) -> Result<Vec<HistoryRow>> {
        Ok(inspection::history(&self.look().await?, query).await?)
    }

    async fn before_images(&self, history: u64) -> Result<Option<Vec<BeforeImage>>> {
        Ok(inspection::before_images(&self.look().await?, history).await?)
    }

    async fn kept(&self, history: u64) -> Result<Option<KeptItem>> {
        Ok(restore::kept(&self.look().await?, history).await?)
    }

    async fn rehearse(&self, tenant: Option<&Tenant>, restore: &Restore) -> Result<Restored> {
        let mut session = self.pools.take(Use::Write).await?;
        let mapping = self.mapping(&session).await?;
        let done = restore::rehearse(&mut session, &mapping, tenant, restore).await;
        Ok(done.inspect_err(|failure| session.doubted(failure))?)
    }

    async fn write_lines(
        &self,
        lines: &[RunLine],
        lost: &[(RunId, u64)],
        lines_max: u32,
    ) -> Result<()> {
        let session = self.pools.take(Use::Write).await?;
        Ok(lines::write(session, lines, lost, lines_max).await?)
    }

    async fn lines(&self, run: RunId, after: u64, limit: u32) -> Result<RunLines> {
        Ok(lines::lines(&self.look().await?, run, after, limit).await?)
    }

    async fn audit(&self) -> Result<Audit> {
        Ok(audit::audit(&mut self.look().await?).await?)
    }

    async fn report_node(&self, node: &NodeRow) -> Result<Option<Time>> {
        self.tasks.forget();
        Ok(inspection::report_node(&self.pools.take(Use::Write).await?, node).await?)
    }

    async fn nodes(&self) -> Result<Vec<NodeRow>> {
        Ok(inspection::nodes(&self.look().await?).await?)
    }

    async fn forget_node(&self, node: &Incarnation) -> Result<()> {
        Ok(inspection::forget_node(&self.pools.take(Use::Write).await?, node).await?)
    }

    async fn prune(&self, fence: &FencingToken, keep: Retention<'_>, limit: u32) -> Result<Pruned> {
        let session = self.pools.take(Use::Lead).await?;
        let silent = self.timeouts.forgotten();
        prune::prune(session, &self.clock, &self.tasks, fence, keep, silent, limit).await
    }
}
