//! Executes what waits: log items of owned streams, timers at their time, retries.
//!
//! One batch is in flight per stream, and a batch is a [`Flight`] from the moment its
//! items are chosen until its commit is known. Parallelism is across streams, bounded per
//! lane. Failures of the infrastructure put everything back where it was; they are told
//! apart from the items' own failures by type and consume no attempt.
//!
//! ```text
//! streams ─┐          ┌─ rationed ─┬─ held (ahead of its time, or ──┐
//!          │          │            │  a due item goes first)        │
//! timers ──┼─> acting ┴────────────┴────────────────────────────────┴─> committing ─> done
//! retries ─┘      │ stopped, store away                                   │ unknown
//!                 └──> back where it was                                  └─> resolving ─> done / back
//! ```

mod answer;
mod begin;
mod land;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::Collections;
use besom_core::ids::{CommitId, NodeName, OwnerEpoch, Partition, RunId, Seq, TaskName};
use besom_core::item::{Identity, Item, Source};
use besom_core::queue::{Cut, Decision, Touched, decide};
use besom_core::time::Time;

use super::flight::{Flight, Phase, Ticket};
use super::weight;
use super::window::Read;
use super::windows::{Tasks, Windows};
use crate::ports::guests::{self, Acted, Lane};
use crate::ports::store::{
    self, Batch, Committed, Entry, Grant, LeftOut, LogRead, Outcome, Stream, Waiting,
};
use crate::task::TaskDefinition;

/// The bounds of execution, from the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Batches executed at once in the lane of due items.
    pub due_batches: usize,
    /// So many more of them may be ready: waiting for their time, or at their commit.
    pub due_batches_ready: usize,
    /// How long before its time an item is executed. It is never committed before it.
    pub due_ahead: Duration,
    /// What is executed ahead shares a batch, and so waits for each other, if it is due
    /// within so long.
    pub due_span: Duration,
    /// In the normal lane.
    pub normal_batches: usize,
    /// In the lane of heavy work.
    pub heavy_batches: usize,
    /// A batch that is executed for longer leaves its place in the lane to other tasks.
    pub long_after: Duration,
    /// The longest that a heavy commit waits for due items.
    pub heavy_wait_max: Duration,
    /// Items in one commit, whatever a task's own limit says.
    pub commit_items: usize,
    /// Bytes of changes in one commit; a single item may exceed it.
    pub commit_bytes: usize,
    /// The longest that a commit which the store could not take is kept before its items
    /// are executed anew.
    pub commit_age_max: Duration,
    /// Timers, and retries, held in memory.
    pub window: u32,
    /// Whether the store holds the activity, and reads it inside the commit.
    pub activity_in_store: bool,
    /// Retries are executed at once (a pass without a host).
    pub ignore_backoff: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            due_batches: 2,
            due_batches_ready: 8,
            due_ahead: Duration::from_millis(20),
            due_span: Duration::from_millis(2),
            normal_batches: 2,
            heavy_batches: 1,
            long_after: Duration::from_millis(250),
            heavy_wait_max: Duration::from_secs(2),
            commit_items: 1_000,
            commit_bytes: 8 << 20,
            commit_age_max: Duration::from_secs(10),
            window: 8_192,
            activity_in_store: true,
            ignore_backoff: false,
        }
    }
}

/// Which partitions are asked for; none: all there are.
pub type Scope = Option<Arc<[Partition]>>;

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// The streams with something to execute.
    Backlog(store::Result<Vec<Stream>>),
    /// Items of the log.
    LogRead(Ticket, store::Result<LogRead>),
    /// Timers, in answer to the read of that number.
    TimersRead(u64, store::Result<Vec<Waiting>>),
    /// Retries, likewise.
    RetriesRead(u64, store::Result<Vec<Waiting>>),
    /// Verdicts.
    Acted(Ticket, Result<Acted, guests::Error>),
    /// What came of asking for rows.
    RowsTaken(Ticket, store::Result<Grant>),
    /// The result of the commit of that mark.
    Committed(Ticket, CommitId, store::Result<Committed>),
    /// What the store knows of the commit of that mark.
    Found(Ticket, CommitId, store::Result<Option<Committed>>),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Ask for the streams of these partitions with something to execute.
    Backlog(Scope),
    /// Read items of these streams, each from its cursor, at most so many together.
    ReadLog {
        /// The batch.
        ticket: Ticket,
        /// The task.
        task: TaskName,
        /// The streams and their cursors.
        streams: Vec<(Partition, Seq)>,
        /// Items.
        limit: u32,
        /// Items of one stream.
        each: u32,
        /// Bytes.
        bytes_max: usize,
    },
    /// Read timers of these tasks and partitions.
    ReadTimers(Read, Tasks, Scope),
    /// Read their retries.
    ReadRetries(Read, Tasks, Scope),
    /// Note the items as begun, and execute them.
    Act {
        /// The batch.
        ticket: Ticket,
        /// The mark of its commit to be.
        commit: CommitId,
        /// What they are executed by.
        definition: Arc<TaskDefinition>,
        /// The guest's present.
        now: Time,
        /// The guest's randomness.
        seed: u64,
        /// The items.
        items: Vec<(Source, Item)>,
    },
    /// Forget a begun batch.
    Abandon(CommitId),
    /// Take the rows of a batch from its task's budget.
    TakeRows {
        /// The batch.
        ticket: Ticket,
        /// The task.
        task: TaskName,
        /// How many.
        rows: u64,
        /// The budget.
        per_second: NonZeroU32,
    },
    /// Commit.
    Commit(Ticket, Box<Batch>),
    /// Look a commit of unknown result up.
    FindCommit(Ticket, CommitId),
    /// Read the store's clock again: it is not what it was taken for.
    ReadClock,
    /// For the planner and the operator: what a commit has done.
    Report(Report),
}

/// What a commit has done.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The task.
    pub task: TaskName,
    /// Runs that ended with it.
    pub runs_ended: Vec<RunId>,
    /// Items with effects.
    pub committed: u64,
    /// Without.
    pub skipped: u64,
    /// To be tried again.
    pub retried: u64,
    /// Set aside, with the reason of the first.
    pub dead: u64,
    /// Why the first was set aside.
    pub reason: Option<String>,
    /// Whether an item was left out because its partition is another's.
    pub disowned: bool,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    acked: Seq,
    tail: Seq,
    held: bool,
}

/// How long something is held back.
#[derive(Debug, Clone, Copy)]
struct Hold {
    until: Time,
    /// How often it has failed in a row.
    failures: u32,
    /// Whether it is tried again since `until`.
    over: bool,
}

impl Hold {
    /// Held once more from `now` on, twice as long as before and at most for `max`.
    fn again(before: Option<Hold>, now: Time, max: Duration) -> Hold {
        let failures = before.map_or(0, |hold| hold.failures);
        let wait = Executor::HOLD_MIN.saturating_mul(1 << failures.min(16)).min(max);
        Hold { until: now + wait, failures: failures.saturating_add(1), over: false }
    }
}

/// How often something went wrong in a row, and since when.
#[derive(Debug, Clone, Copy)]
struct Slow {
    times: u32,
    since: Time,
}

/// The executor of one node.
#[derive(Debug)]
pub struct Executor {
    settings: Settings,
    node: NodeName,
    collections: Arc<Collections>,
    owned: BTreeMap<Partition, OwnerEpoch>,
    /// What is owned, for questions to the store.
    scope: Scope,
    definitions: BTreeMap<TaskName, Arc<TaskDefinition>>,
    /// Definitions of runs that differ from the current one: their items keep theirs.
    of_runs: HashMap<RunId, Arc<TaskDefinition>>,
    streams: BTreeMap<TaskName, BTreeMap<Partition, Cursor>>,
    timers: Windows,
    retries: Windows,
    flights: BTreeMap<Ticket, Flight>,
    next_ticket: u64,
    /// The task whose turn came last, for each lane: tasks of a lane take turns.
    last_turn: BTreeMap<Lane, TaskName>,
    /// The task whose late timers were begun last.
    last_due: Option<TaskName>,
    /// Tasks whose last batch took long.
    long: HashSet<TaskName>,
    backlog_wanted: bool,
    backlog_reading: bool,
    /// The answer to that is not taken: where streams stand was forgotten since it was asked for.
    backlog_void: bool,
    /// Nothing is begun until then: the store could not be used.
    hold_until: Option<Time>,
    failures: u32,
    /// Tasks of which nothing is begun for a while: the database refuses what they need.
    held: BTreeMap<TaskName, Hold>,
    /// Streams that cannot be read, likewise: their neighbours go on.
    broken: BTreeMap<(TaskName, Partition), Hold>,
    /// Items whose reads took all the time of their call, alone.
    slow: HashMap<Identity, Slow>,
    /// Tasks whose last calls the infrastructure has failed.
    troubled: HashMap<TaskName, Slow>,
    /// When the store last took a batch.
    committed_at: Option<Time>,
    /// So many next batches of the task have a single item: one of them was refused whole.
    singly: HashMap<TaskName, u32>,
    heavy_micros_per_kib: f64,
    /// How many items of one stream can be in one batch of the task, as it turned out.
    yields: HashMap<TaskName, usize>,
    draining: bool,
    /// Batches that guests were stopped in when everything owned was given up: they are
    /// abandoned once the guests have ended, for what notes them as begun may be under way.
    ceased: BTreeMap<Ticket, CommitId>,
    now: Time,
}

impl Executor {
    const HOLD_MIN: Duration = Duration::from_millis(50);
    const HOLD_MAX: Duration = Duration::from_secs(5);
    /// So often in a row an item's reads may take all the time of their call before it is to blame.
    const SLOW_MAX: u32 = 3;
    /// The same where nothing else is committed meanwhile.
    const SLOW_ALONE_MAX: u32 = 20;
    /// So often in a row the infrastructure may fail a task's calls, while others are committed,
    /// before its items are to blame.
    const TROUBLED_MAX: u32 = 10;
    /// A commit that waited for so long has waited for a lock of somebody's.
    const LOCK_WAITED: Duration = Duration::from_secs(1);
    /// How long an item is left alone that the store does not take while it takes others.
    const POSTPONED: Duration = Duration::from_secs(2);
    /// Items of which that is counted.
    const SLOW_KEPT_MAX: usize = 1_000;
    /// How long a stream that cannot be read is left alone, at most.
    const BROKEN_MAX: Duration = Duration::from_secs(30);
    /// How far a batch may be ahead of the store's clock without a doubt about that clock.
    const AHEAD_MAX: Duration = Duration::from_millis(100);
    /// How long a timer waits that was not due yet by the store's clock.
    const NOT_DUE: Duration = Duration::from_millis(1);

    /// An executor that owns nothing yet.
    pub fn new(node: NodeName, settings: Settings) -> Executor {
        Executor {
            timers: Windows::new(settings.window),
            retries: Windows::new(settings.window),
            settings,
            node,
            collections: Arc::default(),
            owned: BTreeMap::new(),
            scope: None,
            definitions: BTreeMap::new(),
            of_runs: HashMap::new(),
            streams: BTreeMap::new(),
            flights: BTreeMap::new(),
            next_ticket: 1,
            last_turn: BTreeMap::new(),
            last_due: None,
            long: HashSet::new(),
            backlog_wanted: false,
            backlog_reading: false,
            backlog_void: false,
            hold_until: None,
            failures: 0,
            held: BTreeMap::new(),
            slow: HashMap::new(),
            troubled: HashMap::new(),
            committed_at: None,
            broken: BTreeMap::new(),
            singly: HashMap::new(),
            heavy_micros_per_kib: 20.0,
            yields: HashMap::new(),
            draining: false,
            ceased: BTreeMap::new(),
            now: Time::EPOCH,
        }
    }

    /// The node owns these partitions from now on: all there are.
    pub fn own(&mut self, owned: impl IntoIterator<Item = (Partition, OwnerEpoch)>) {
        self.disown();
        self.owned = owned.into_iter().collect();
        self.backlog_wanted = true;
    }

    /// The node owns these as well, or under another epoch.
    pub fn gain(&mut self, gained: &[(Partition, OwnerEpoch)]) {
        let again: Vec<Partition> = gained.iter().map(|(partition, _)| *partition).collect();
        self.lose(&again);
        self.owned.extend(gained.iter().copied());
        self.rescope();
        self.backlog_wanted = true;
        // What waits in them for a time may come before what is known.
        self.timers.added(Time(i64::MIN));
        self.retries.added(Time(i64::MIN));
    }

    /// The node does not own these any more. What of them is in flight is left out by the
    /// store, or was committed before.
    pub fn lose(&mut self, lost: &[Partition]) {
        let lost: HashSet<Partition> = lost.iter().copied().collect();
        self.owned.retain(|partition, _| !lost.contains(partition));
        self.rescope();
        for streams in self.streams.values_mut() {
            streams.retain(|partition, _| !lost.contains(partition));
        }
        self.drop_foreign();
        for flight in self.flights.values_mut() {
            // Nothing of them goes back to where it was.
            flight.streams.retain(|partition| !lost.contains(partition));
            let (lost, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut flight.taken)
                .into_iter()
                .partition(|waiting| lost.contains(&waiting.item.partition));
            flight.taken = kept;
            for waiting in lost {
                match waiting.source {
                    Source::Timer(id) => self.timers.finished(id),
                    Source::Retry(id) => self.retries.finished(id),
                    Source::Log(_) => {}
                }
            }
        }
    }

    /// Drops what waits in partitions that are not owned: an answer may be older than a loss.
    fn drop_foreign(&mut self) {
        if self.scope.is_some() {
            let owned = &self.owned;
            self.timers.retain(|waiting| owned.contains_key(&waiting.item.partition));
            self.retries.retain(|waiting| owned.contains_key(&waiting.item.partition));
        }
    }

    fn rescope(&mut self) {
        self.scope = Some(self.owned.keys().copied().collect());
    }

    /// The node owns nothing any more. What is in flight is abandoned, for this host is alive:
    /// nobody is to count a death of it.
    pub fn give_up(&mut self, out: &mut Vec<Command>) {
        for (ticket, flight) in std::mem::take(&mut self.flights) {
            match flight.phase {
                // Nothing was begun, or its answer tells what came of it.
                Phase::Reading | Phase::Committing { .. } => {}
                Phase::Acting { .. } => drop(self.ceased.insert(ticket, flight.commit)),
                Phase::Rationed { .. } | Phase::Held { .. } | Phase::Resolving { .. } => {
                    out.push(Command::Abandon(flight.commit));
                }
            }
        }
        self.disown();
    }

    /// The guests of a batch have ended that was given up meanwhile.
    pub fn ceased(&mut self, ticket: Ticket) -> Option<Command> {
        self.ceased.remove(&ticket).map(Command::Abandon)
    }

    /// The node owns nothing any more. What is in flight is forgotten: the store refuses it.
    fn disown(&mut self) {
        self.owned.clear();
        self.scope = None;
        self.streams.clear();
        self.flights.clear();
        self.of_runs.clear();
        self.timers.reset(self.settings.window);
        self.retries.reset(self.settings.window);
        self.backlog_wanted = false;
        self.backlog_reading = false;
        self.backlog_void = false;
        self.hold_until = None;
        self.failures = 0;
        self.held.clear();
        self.broken.clear();
        self.long.clear();
    }

    /// The definitions and collections from now on. Items of runs that are active keep the
    /// definition their run was started with, without the rights that were taken from the task.
    pub fn define(
        &mut self,
        definitions: BTreeMap<TaskName, Arc<TaskDefinition>>,
        collections: Arc<Collections>,
    ) {
        for own in self.of_runs.values_mut() {
            let current = definitions.get(&own.name);
            if let Some(current) = current.filter(|current| !own.is_within(current)) {
                *own = Arc::new(TaskDefinition::clone(own).restricted_to(current));
            }
        }
        for flight in self.flights.values_mut() {
            let current = definitions.get(&flight.task);
            // Of a task that is gone nothing is granted any more.
            flight.revoked |= current.is_none_or(|current| !flight.definition.is_within(current));
        }
        let lanes = definitions.iter().map(|(task, definition)| (task, definition.lane));
        self.timers.define(lanes.clone());
        self.retries.define(lanes);
        self.definitions = definitions;
        self.collections = collections;
        // What was refused may be granted, or mapped, by now.
        self.held.clear();
        if !self.owned.is_empty() {
            self.timers.added(Time(i64::MIN));
            self.retries.added(Time(i64::MIN));
        }
    }

    /// The items of a run are executed by this definition.
    pub fn pin(&mut self, run: RunId, definition: Arc<TaskDefinition>) {
        self.of_runs.insert(run, definition);
    }

    /// These runs are executed by definitions of their own, and no others.
    pub fn pin_only(&mut self, of_runs: HashMap<RunId, Arc<TaskDefinition>>) {
        self.of_runs = of_runs;
    }

    /// A run is over; what is left of its items is executed by the current definition.
    pub fn unpin(&mut self, run: RunId) {
        self.of_runs.remove(&run);
    }

    /// Items were planned.
    pub fn planned(&mut self, to_log: bool, earliest_due: Option<Time>) {
        self.backlog_wanted |= to_log;
        if let Some(due) = earliest_due {
            self.timers.added(due);
        }
    }

    /// The store may be older than it was: positions count anew, and everything that waits in it
    /// is looked at. What is in flight is left out by the store, or is as it was.
    pub fn read_again(&mut self) {
        if self.owned.is_empty() {
            return;
        }
        for streams in self.streams.values_mut() {
            streams.retain(|_, cursor| cursor.held);
        }
        self.read_backlog();
        self.timers.reread(self.now);
        self.retries.reread(self.now);
    }

    /// Items were put into the retries from outside, to be tried at once.
    pub fn revived(&mut self, now: Time) {
        self.retries.added(now);
    }

    /// Begin nothing more; what is in flight goes on.
    pub fn drain(&mut self) {
        self.draining = true;
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether nothing is in flight and nothing waits but timers of the future (and, unless
    /// back-off is ignored, retries).
    pub fn is_drained(&self, now: Time) -> bool {
        self.is_idle()
            && !self.backlog_wanted
            && !self.backlog_reading
            && self.streams.iter().all(|(task, streams)| {
                !self.definitions.contains_key(task) || streams.values().all(|c| c.acked == c.tail)
            })
            && (!self.settings.ignore_backoff || self.retries.is_empty())
            && self.timers.next().is_none_or(|due| due > now)
            && !self.timers.is_unread()
    }

    /// Batches in flight: task, lane and number of items taken or being read.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.values()
    }

    /// The next due time of a timer, as far as it is known.
    pub fn next_due(&self) -> Option<Time> {
        self.timers.next()
    }

    /// When something is to be done next, apart from answers.
    pub fn deadline(&self) -> Option<Time> {
        if self.owned.is_empty() {
            return None;
        }
        let flights = self.flights.values().filter_map(|flight| match &flight.phase {
            Phase::Held { until, .. } => Some(*until),
            Phase::Rationed { ask_at, .. } | Phase::Resolving { ask_at, .. } => *ask_at,
            Phase::Reading | Phase::Acting { .. } => Some(flight.since + self.settings.long_after),
            Phase::Committing { .. } => None,
        });
        let holds = self.held.values().chain(self.broken.values());
        let holds = holds.filter(|hold| !hold.over).map(|hold| hold.until);
        // What could be done by now has been tried by the last step, and waits for an answer.
        flights
            .chain(holds)
            .chain(
                [
                    self.timers.deadline(self.settings.due_ahead),
                    self.retries.deadline(Duration::ZERO),
                    self.hold_until,
                ]
                .into_iter()
                .flatten(),
            )
            .filter(|at| *at > self.now)
            .min()
    }

    /// Takes an event in; [`Executor::fill`] goes on from there.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.now = now;
        match event {
            Event::Backlog(result) => self.backlog(result),
            Event::LogRead(ticket, result) => self.log_read(ticket, result, out),
            Event::TimersRead(number, result) => {
                self.note_failure(result.is_err());
                self.timers.read(now, number, result.ok());
                self.drop_foreign();
            }
            Event::RetriesRead(number, result) => {
                self.note_failure(result.is_err());
                self.retries.read(now, number, result.ok());
                self.drop_foreign();
            }
            Event::Acted(ticket, result) => self.acted(ticket, result, out),
            Event::RowsTaken(ticket, result) => self.rows_taken(ticket, result, out),
            Event::Committed(ticket, mark, result) => self.committed(ticket, mark, result, out),
            Event::Found(ticket, mark, result) => self.found(ticket, mark, result, out),
        }
    }

    /// Begins whatever can be begun at `now`. `allowed`: the node may begin new work.
    pub fn fill(
        &mut self,
        now: Time,
        allowed: bool,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        self.now = now;
        if self.owned.is_empty() {
            return;
        }
        self.release_held(out);
        if self.draining {
            self.give_rationed_back(out);
        }
        self.ask_again(out);
        if self.hold_until.is_some_and(|at| now < at) {
            return;
        }
        self.hold_until = None;
        self.end_holds();
        if self.backlog_wanted && !self.backlog_reading {
            self.backlog_wanted = false;
            self.backlog_reading = true;
            out.push(Command::Backlog(self.scope.clone()));
        }
        while let Some((read, tasks)) = self.timers.wanted(now) {
            out.push(Command::ReadTimers(read, tasks, self.scope.clone()));
        }
        while let Some((read, tasks)) = self.retries.wanted(now) {
            out.push(Command::ReadRetries(read, tasks, self.scope.clone()));
        }
        if !allowed || self.draining {
            return;
        }
        while self.begin_due(random, out) {}
        for lane in [Lane::Due, Lane::Normal, Lane::Heavy] {
            while self.begin_next(lane, random, out) {}
        }
    }

    /// Whether nothing of the task may be begun: it is held, and its time is not over.
    fn is_held(&self, task: &TaskName) -> bool {
        self.held.get(task).is_some_and(|hold| !hold.over)
    }

    /// The database refuses what the task needs. It costs no item an attempt.
    fn hold_task(&mut self, task: &TaskName) {
        let hold = Hold::again(self.held.get(task).copied(), self.now, Self::HOLD_MAX);
        self.held.insert(task.clone(), hold);
    }

    /// Lets go on what was held for long enough. What of a held task came near its time was
    /// dropped meanwhile, so that it is no wall for the others; it is read again.
    fn end_holds(&mut self) {
        let now = self.now;
        let mut ended = false;
        for hold in self.held.values_mut().filter(|hold| !hold.over && hold.until <= now) {
            hold.over = true;
            ended = true;
        }
        // Where such a stream goes on is looked up: it may have been repaired.
        let broken = self.broken.iter_mut().filter(|(_, hold)| !hold.over && hold.until <= now);
        let retried: Vec<_> = broken
            .map(|(stream, hold)| {
                hold.over = true;
                stream.clone()
            })
            .collect();
        for (task, partition) in retried {
            self.forget(&task, &[partition]);
        }
        if ended {
            self.timers.added(Time(i64::MIN));
            self.retries.added(Time(i64::MIN));
        }
    }
}
