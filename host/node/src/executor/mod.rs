//! Executes waiting items: log items of owned streams, timers at their time, and retries.
//!
//! One batch is in flight per stream. A batch is a [`Flight`] from the moment its items are chosen
//! until its commit is known. Streams are executed in parallel, with a limit per lane. After a
//! failure of the infrastructure everything returns to where it was; such failures differ by type
//! from the items' own failures and consume no attempt.
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
mod clock;
mod land;
mod memory;
mod stop;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::backoff::Backoff;
use besom_core::brake::Wanted;
use besom_core::collection::Collections;
use besom_core::ids::{CommitId, Incarnation, OwnerEpoch, Partition, RunId, Seq, TaskName};
use besom_core::item::{Identity, Item, Source};
use besom_core::lane::{LANES, Lane, PerLane};
use besom_core::queue::{Cut, Decision, Touched, check_changes_of_one_row, decide};
use besom_core::refusal::{self, Judgement, Streak};
use besom_core::time::Time;

use super::HOLDS;
use super::flight::{Flight, Phase, Ticket};
use super::weight;
use super::window::Read;
use super::windows::{Tasks, Windows};
use begin::Turns;
use besom_ports::guests::{self, Acted};
use besom_ports::store::{
    self, Allowance, Batch, Committed, Entry, LeftOut, LogRead, Outcome, Stream, Waiting,
};
use besom_ports::task::TaskDefinition;

/// The limits of execution. The defaults are those of the configuration; a test compares them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of batches executed at once, by lane.
    pub batches: PerLane<usize>,
    /// How long before its due time an item is executed. It is never committed before its due time.
    pub due_ahead: Duration,
    /// Items that are executed ahead of their time share a batch, and so wait for each other, only
    /// if their due times are within this span.
    pub due_span: Duration,
    /// A batch that is executed for longer than this leaves its place in the lane to other tasks.
    pub long_after: Duration,
    /// Maximum time that the commit of a yielding lane waits for due items.
    pub heavy_wait_max: Duration,
    /// Maximum number of items in one commit, regardless of the task's own limit.
    pub commit_items: usize,
    /// Maximum number of rows of ranges that one commit changes; a single item may exceed it.
    pub commit_rows: u64,
    /// Maximum size of the changes in one commit, in bytes; a single item may exceed it.
    pub commit_bytes: usize,
    /// Maximum size of the changes in all commits at once, in bytes; further batches wait, and a
    /// single larger one is committed alone. Batches of at most [`SMALL`] of it neither count nor
    /// wait, so that items that are due do not wait for a large commit.
    pub commit_bytes_in_flight: usize,
    /// Memory of a lane's batches, in bytes, from which on no further batch is started of a task whose
    /// calls use much. Lanes whose batches all take long are not bounded by it.
    pub memory_in_flight: u64,
    /// Maximum age of a commit that the store could not accept. After that, its items are executed
    /// again.
    pub commit_age_max: Duration,
    /// Number of timers, and of retries, held in memory.
    pub window: u32,
    /// Whether the store keeps the activity and reads it inside the commit.
    pub activity_in_store: bool,
    /// Whether retries are executed immediately (in a pass without a host).
    pub ignore_backoff: bool,
    /// Number of items that are refused in a row for the same reason before their task is held.
    pub refused_items_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            batches: PerLane::of(|row| row.batches as usize),
            due_ahead: Duration::from_millis(20),
            due_span: Duration::from_millis(2),
            long_after: Duration::from_millis(250),
            heavy_wait_max: Duration::from_secs(5),
            commit_items: 1_000,
            commit_rows: 2_000,
            commit_bytes: 16 << 20,
            commit_bytes_in_flight: 16 << 20,
            memory_in_flight: 128 << 20,
            commit_age_max: Duration::from_secs(10),
            window: 20_000,
            activity_in_store: true,
            ignore_backoff: false,
            refused_items_max: 20,
        }
    }
}

/// How long the first call of a task may keep its place while other tasks wait for it. It is then
/// executed again, as one of a task that is known to take long.
pub const FIRST_CALL_MAX: Duration = Duration::from_secs(1);

/// The part of [`Settings::commit_bytes_in_flight`] up to which a batch is small. There are about as
/// many places in all lanes, so that small batches together have at most this size again.
pub const SMALL: usize = 16;

/// The partitions to query; `None`: all.
pub type Scope = Option<Arc<[Partition]>>;

/// An input of the executor.
#[derive(Debug)]
pub enum Event {
    /// The streams with items to execute.
    Backlog(store::Result<Vec<Stream>>),
    /// Items of the log.
    LogRead(Ticket, store::Result<LogRead>),
    /// Timers, in answer to the read with that number.
    TimersRead(u64, store::Result<Vec<Waiting>>),
    /// Retries, in answer to the read with that number.
    RetriesRead(u64, store::Result<Vec<Waiting>>),
    /// The verdicts on a batch.
    Acted(Ticket, Result<Acted, guests::Error>),
    /// The answer to a request for rows of the budget.
    RowsTaken(Ticket, store::Result<Allowance>),
    /// The result of the commit with that id.
    Committed(Ticket, CommitId, store::Result<Committed>),
    /// The result of looking up the commit with that id.
    Found(Ticket, CommitId, store::Result<Option<Committed>>),
}

/// An output of the executor.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Read the streams of these partitions that have items to execute.
    Backlog(Scope),
    /// Read items of these streams, each from its cursor.
    ReadLog {
        /// The batch to fill.
        ticket: Ticket,
        /// The task of the streams.
        task: TaskName,
        /// The streams and their cursors.
        streams: Vec<(Partition, Seq)>,
        /// Maximum number of items of all streams together.
        limit: u32,
        /// Maximum number of items of one stream.
        each: u32,
        /// Approximate maximum size of the payloads, in bytes.
        bytes_max: usize,
    },
    /// Read timers of these tasks and partitions.
    ReadTimers(Read, Tasks, Scope),
    /// Read retries of these tasks and partitions.
    ReadRetries(Read, Tasks, Scope),
    /// Record the items as begun, and execute them.
    Act {
        /// The batch of the items.
        ticket: Ticket,
        /// The id of its future commit.
        commit: CommitId,
        /// The definition by which the items are executed.
        definition: Arc<TaskDefinition>,
        /// The present, as the guest sees it.
        now: Time,
        /// The guest's seed for random numbers.
        seed: u64,
        /// The items with the places where they are waiting.
        items: Vec<(Source, Item)>,
    },
    /// Remove the record of a begun batch.
    Abandon(CommitId),
    /// Take the rows of a batch from its task's budget.
    TakeRows {
        /// The batch that needs the rows.
        ticket: Ticket,
        /// The task whose budget is used, with its bounds.
        definition: Arc<TaskDefinition>,
        /// Number of rows.
        rows: u64,
    },
    /// Commit a batch.
    Commit(Ticket, Arc<Batch>),
    /// Wait no longer for the commit of this batch: its result is unknown then.
    StopCommit(Ticket),
    /// Stop the call of this batch, which then answers [`guests::Error::Stopped`]: other tasks wait for
    /// its place.
    StopAct(Ticket),
    /// Look up a commit whose result is unknown.
    FindCommit(Ticket, CommitId),
    /// Read the store's clock again, because it differs from the assumed one.
    ReadClock,
    /// Report the results of a commit to the planner and the operator.
    Report(Report),
    /// Report that a task is held.
    Hold(TaskName, Halted),
    /// Request a pause of the task: a brake has stopped a batch, which wanted this, by run.
    Trip(TaskName, BTreeMap<RunId, Wanted>),
}

/// Why the executor holds a task although the database accepts its requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Halted {
    /// Its items are refused for this reason, one after the other.
    Refused(String),
    /// Single items took too much of the store, again and again.
    Overrun {
        /// What they took.
        of: Overrun,
        /// The latest message.
        words: String,
        /// How long nothing of the task is started.
        rest: Duration,
    },
}

/// What a single item may use up of the store while all other changes wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Overrun {
    /// The time for guards.
    Guards,
    /// The room for before-images.
    Images,
}

/// The results of a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// The task of the batch.
    pub task: TaskName,
    /// Runs that ended with the commit.
    pub runs_ended: Vec<RunId>,
    /// Number of items with effects.
    pub committed: u64,
    /// Number of items that were committed without a change, because foreign keys keep their rows.
    pub kept: u64,
    /// Number of items without effects.
    pub skipped: u64,
    /// Number of items to be retried.
    pub retried: u64,
    /// Number of items set aside.
    pub dead: u64,
    /// The reason why the first of them was set aside.
    pub reason: Option<String>,
    /// Whether an item was left out because another node owns its partition.
    pub disowned: bool,
}

#[derive(Debug, Clone, Copy)]
struct Cursor {
    acked: Seq,
    tail: Seq,
    held: bool,
    /// The acknowledged position when the store was first seen to be behind it.
    doubt: Option<Seq>,
}

impl Cursor {
    fn new(stream: &Stream) -> Cursor {
        Cursor { acked: stream.acked, tail: stream.tail, held: false, doubt: None }
    }
}

/// A period during which nothing is started of a task or a stream.
#[derive(Debug, Clone, Copy)]
struct Hold {
    until: Time,
    /// Number of failures in a row.
    failures: u32,
    /// Whether the period is over and another try has begun.
    over: bool,
    /// Whether the period continues when a batch of the task is committed.
    despite_commits: bool,
}

impl Hold {
    /// A new period that starts at `now`, longer than the previous one.
    fn again(before: Option<Hold>, now: Time, pauses: &Backoff) -> Hold {
        let failures = before.map_or(0, |hold| hold.failures);
        Hold {
            until: now + pauses.pause(failures, 0),
            failures: failures.saturating_add(1),
            over: false,
            despite_commits: false,
        }
    }
}

/// How often in a row something failed, and since when.
#[derive(Debug, Clone, Copy)]
struct Slow {
    times: u32,
    since: Time,
}

/// The executor of one node.
#[derive(Debug)]
pub struct Executor {
    settings: Settings,
    node: Incarnation,
    collections: Arc<Collections>,
    owned: BTreeMap<Partition, OwnerEpoch>,
    /// The owned partitions, for queries to the store.
    scope: Scope,
    definitions: BTreeMap<TaskName, Arc<TaskDefinition>>,
    /// Definitions of runs that differ from the current one. Items of these runs keep them.
    of_runs: HashMap<RunId, Arc<TaskDefinition>>,
    streams: BTreeMap<TaskName, BTreeMap<Partition, Cursor>>,
    timers: Windows,
    retries: Windows,
    flights: BTreeMap<Ticket, Flight>,
    next_ticket: u64,
    /// The turns of tasks.
    turns: Turns,
    /// The turns of tasks with late timers, in punctual lanes.
    due_turns: Turns,
    /// Tasks whose batches take long, and how long: the last one, or half of what was known before
    /// if that is more, so that one quick batch among slow ones does not make a task a quick one.
    long: HashMap<TaskName, Duration>,
    /// The memory of each task's calls, in bytes: of the last batch, or half of what was known before
    /// if that is more.
    memory: HashMap<TaskName, u64>,
    /// The size of each task's changes in one commit, in bytes: of the last batch, or half of what was
    /// known before if that is more.
    sizes: HashMap<TaskName, usize>,
    backlog_wanted: bool,
    backlog_reading: bool,
    /// Set if the answer to the read of the backlog has to be dropped, because the positions of the
    /// streams were discarded since.
    backlog_void: bool,
    /// Nothing is started before this time, because the store was unavailable.
    hold_until: Option<Time>,
    failures: u32,
    /// Tasks of which nothing is started for a while, because the database rejects their requests.
    held: BTreeMap<TaskName, Hold>,
    /// Tasks that are paused.
    paused: BTreeSet<TaskName>,
    /// Tasks outside their windows, and when a window next opens or closes.
    closed: BTreeSet<TaskName>,
    windows_at: Option<Time>,
    /// Streams that cannot be read and are skipped for a while. Other streams continue.
    broken: BTreeMap<(TaskName, Partition), Hold>,
    /// Items whose reads used up the time of a call of their own.
    slow: HashMap<Identity, Slow>,
    /// Items that the store rejected alone as if it were away, and how often in a row.
    doubted: HashMap<Identity, u32>,
    /// Tasks whose last calls failed because of the infrastructure.
    troubled: HashMap<TaskName, Slow>,
    /// Tasks with items whose guards took too long: how often, and when last.
    overrun: HashMap<TaskName, Slow>,
    /// When the store last committed a batch.
    committed_at: Option<Time>,
    /// Per task, the items that were refused in a row.
    refused: HashMap<TaskName, Streak>,
    /// How many of the next batches of the task contain a single item, because a batch was rejected
    /// as a whole.
    singly: HashMap<TaskName, u32>,
    /// How many items of the task have verdicts that fit into one commit, if not all of a batch do.
    fitting: HashMap<TaskName, usize>,
    /// The observed duration of a yielding commit, per KiB of its weight.
    micros_per_kib: f64,
    /// How many items of one stream fit into one batch of the task, as observed.
    yields: HashMap<TaskName, usize>,
    /// Since when nothing more is started; none: the node is not stopping.
    draining: Option<Time>,
    /// The commits that were stopped.
    stopped: HashSet<CommitId>,
    /// Batches whose guests were stopped when all partitions were released. They are abandoned once
    /// the guests have ended, because the record of their begin may still be under way.
    ceased: BTreeMap<Ticket, CommitId>,
    now: Time,
}

impl Executor {
    /// How often in a row an item's reads may use up the time of their call before the item is to
    /// blame.
    const SLOW_MAX: u32 = 3;
    /// The same limit if no other work is committed in the meantime.
    const SLOW_ALONE_MAX: u32 = 20;
    /// How often in a row a task's calls may fail because of the infrastructure, while other work
    /// is committed, before its items are to blame.
    const TROUBLED_MAX: u32 = 10;
    /// How often in a row the database may raise an error for an item alone, as if it were away,
    /// before the item is to blame.
    const RAISED_MAX: u32 = 3;
    /// How often a task's items may take too much of the store without a pause.
    const OVERRUN_FREE: u32 = 2;
    /// Such items are counted anew after this time without any.
    const OVERRUN_FORGOTTEN: Duration = Duration::from_secs(900);
    /// How long a task pauses whose items take too much again. The guards of one item may take a
    /// second, so the longest pause leaves it less than a two-hundredth of the writer's time.
    const RESTS: Backoff = Backoff::new(Duration::from_secs(5), Duration::from_secs(300));
    /// A commit that took this long has waited for a lock of another transaction.
    const LOCK_WAITED: Duration = Duration::from_secs(1);
    /// How long a stopping node waits for one commit. Whoever stops a host waits for it, and the next
    /// owner repeats what was not committed.
    const STOPPING_COMMIT_MAX: Duration = Duration::from_secs(3);
    /// How long an item is postponed that the store rejects while it accepts others.
    const POSTPONED: Duration = Duration::from_secs(2);
    /// Maximum number of items whose slow reads are counted, and of those that are doubted.
    const SLOW_KEPT_MAX: usize = 1_000;
    /// How long an unreadable stream is skipped.
    const BROKEN: Backoff = Backoff::new(HOLDS.first, Duration::from_secs(30));
    /// How far a batch may be ahead of the store's clock before that clock is read again.
    const AHEAD_MAX: Duration = Duration::from_millis(100);
    /// How long a timer waits that was not due yet by the store's clock.
    const NOT_DUE: Duration = Duration::from_millis(1);

    /// Creates an executor that owns nothing.
    pub fn new(node: Incarnation, settings: Settings) -> Executor {
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
            turns: Turns::default(),
            due_turns: Turns::default(),
            long: HashMap::new(),
            memory: HashMap::new(),
            sizes: HashMap::new(),
            backlog_wanted: false,
            backlog_reading: false,
            backlog_void: false,
            hold_until: None,
            failures: 0,
            held: BTreeMap::new(),
            paused: BTreeSet::new(),
            closed: BTreeSet::new(),
            windows_at: None,
            slow: HashMap::new(),
            doubted: HashMap::new(),
            troubled: HashMap::new(),
            overrun: HashMap::new(),
            committed_at: None,
            broken: BTreeMap::new(),
            refused: HashMap::new(),
            singly: HashMap::new(),
            fitting: HashMap::new(),
            micros_per_kib: 20.0,
            yields: HashMap::new(),
            draining: None,
            stopped: HashSet::new(),
            ceased: BTreeMap::new(),
            now: Time::EPOCH,
        }
    }

    /// Sets the owned partitions.
    pub fn own(&mut self, owned: impl IntoIterator<Item = (Partition, OwnerEpoch)>) {
        self.disown();
        self.owned = owned.into_iter().collect();
        self.backlog_wanted = true;
    }

    /// Adds owned partitions, or changes their epochs.
    pub fn gain(&mut self, gained: &[(Partition, OwnerEpoch)]) {
        let again: Vec<Partition> = gained.iter().map(|(partition, _)| *partition).collect();
        self.lose(&again);
        self.owned.extend(gained.iter().copied());
        self.rescope();
        self.backlog_wanted = true;
        // Timers in the new partitions may be earlier than all known ones.
        self.timers.added(Time(i64::MIN));
        self.retries.added(Time(i64::MIN));
    }

    /// Removes owned partitions. The store leaves out their entries in flight, or has already
    /// committed them.
    pub fn lose(&mut self, lost: &[Partition]) {
        let lost: HashSet<Partition> = lost.iter().copied().collect();
        self.owned.retain(|partition, _| !lost.contains(partition));
        self.rescope();
        for streams in self.streams.values_mut() {
            streams.retain(|partition, _| !lost.contains(partition));
        }
        self.drop_foreign();
        for flight in self.flights.values_mut() {
            // None of its items return to where they were.
            flight.streams.retain(|partition| !lost.contains(partition));
            let (lost, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut flight.taken)
                .into_iter()
                .partition(|waiting| lost.contains(&waiting.item.partition));
            flight.taken = kept;
            for waiting in lost {
                match waiting.source {
                    Source::Timer(id) => self.timers.finished(id),
                    Source::Retry(id) => self.retries.finished(id),
                    Source::Log(_) | Source::Unqueued(_) => {}
                }
            }
        }
    }

    /// Drops items of partitions that are not owned: an answer may be older than the loss.
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

    /// Releases all partitions. Batches in flight are abandoned, because this host is alive and no
    /// death of it may be counted.
    pub fn give_up(&mut self, out: &mut Vec<Command>) {
        for (ticket, flight) in std::mem::take(&mut self.flights) {
            match flight.phase {
                // Nothing was begun, or the answer will show the result.
                Phase::Reading | Phase::Committing { .. } => {}
                Phase::Acting { .. } => drop(self.ceased.insert(ticket, flight.commit)),
                Phase::Rationed { .. } | Phase::Held { .. } | Phase::Resolving { .. } => {
                    out.push(Command::Abandon(flight.commit));
                }
            }
        }
        self.disown();
    }

    /// The guests of a batch have ended that was abandoned in the meantime.
    pub fn ceased(&mut self, ticket: Ticket) -> Option<Command> {
        self.ceased.remove(&ticket).map(Command::Abandon)
    }

    /// Releases all partitions and discards what is in flight: the store rejects it.
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
        self.overrun.clear();
        self.refused.clear();
        self.broken.clear();
        self.long.clear();
        self.memory.clear();
        self.sizes.clear();
        self.turns.clear();
        self.due_turns.clear();
    }

    /// Replaces the definitions and collections. Items of active runs keep the definition with
    /// which their run was started, without rights that the task has lost.
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
            // A task that was removed has no grants.
            flight.revoked |= current.is_none_or(|current| !flight.definition.is_within(current));
        }
        let lanes = definitions.iter().map(|(task, definition)| (task, definition.lane));
        self.timers.define(lanes.clone());
        self.retries.define(lanes);
        self.definitions = definitions;
        self.collections = collections;
        self.windows_at = Some(Time(i64::MIN));
        // Rejected requests may be granted or mapped by now.
        self.held.clear();
        self.refused.clear();
        if !self.owned.is_empty() {
            self.timers.added(Time(i64::MIN));
            self.retries.added(Time(i64::MIN));
        }
    }

    /// Sets the definition by which the items of a run are executed.
    pub fn pin(&mut self, run: RunId, definition: Arc<TaskDefinition>) {
        self.of_runs.insert(run, definition);
    }

    /// Replaces all run-specific definitions.
    pub fn pin_only(&mut self, of_runs: HashMap<RunId, Arc<TaskDefinition>>) {
        self.of_runs = of_runs;
    }

    /// A run has ended; its remaining items are executed by the current definition.
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

    /// The store may be older than it was: all positions and all waiting items are read again. The
    /// store leaves out what is in flight, or it is still valid.
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

    /// Items were moved to the retries from outside, due immediately.
    pub fn revived(&mut self, now: Time) {
        self.retries.added(now);
    }

    /// Starts nothing more. What is in flight continues, but commits that take long are stopped.
    pub fn drain(&mut self, now: Time) {
        self.draining.get_or_insert(now);
    }

    /// Whether nothing is in flight.
    pub fn is_idle(&self) -> bool {
        self.flights.is_empty()
    }

    /// Whether nothing is in flight, and nothing is waiting except future timers (and retries,
    /// unless back-off is ignored).
    pub fn is_drained(&self, now: Time) -> bool {
        self.is_idle()
            && !self.backlog_wanted
            && !self.backlog_reading
            && self.streams.iter().all(|(task, streams)| {
                !self.definitions.contains_key(task)
                    || self.is_stopped(task)
                    || streams.values().all(|c| c.acked == c.tail)
            })
            // Timers and retries of a held task are not kept in memory.
            && self.held.iter().all(|(task, hold)| hold.over || self.is_stopped(task))
            && (!self.settings.ignore_backoff || self.retries.is_empty())
            && self.timers.next().is_none_or(|due| due > now)
            && !self.timers.is_unread()
    }

    /// The batches in flight.
    pub fn flights(&self) -> impl Iterator<Item = &Flight> {
        self.flights.values()
    }

    /// The due time of the next timer, as far as it is known.
    pub fn next_due(&self) -> Option<Time> {
        self.timers.next()
    }

    /// When the executor needs attention next, apart from answers.
    pub fn deadline(&self) -> Option<Time> {
        if self.owned.is_empty() {
            return None;
        }
        let flights = self.flights.values().filter_map(|flight| match &flight.phase {
            Phase::Held { until, .. } => Some(*until),
            Phase::Rationed { ask_at, .. } | Phase::Resolving { ask_at, .. } => *ask_at,
            Phase::Acting { .. } if self.takes_long(flight) => Some(flight.since + FIRST_CALL_MAX),
            Phase::Reading | Phase::Acting { .. } => Some(flight.since + self.settings.long_after),
            Phase::Committing { since, .. } => self.stops_at(*since),
        });
        let holds = self.held.values().chain(self.broken.values());
        let holds = holds.filter(|hold| !hold.over).map(|hold| hold.until);
        // What was possible until now was tried in the last step and is waiting for an answer.
        flights
            .chain(holds)
            .chain(self.stops_at(Time(i64::MIN)))
            .chain(
                [
                    self.timers.deadline(self.settings.due_ahead),
                    self.retries.deadline(Duration::ZERO),
                    self.hold_until,
                    self.windows_at,
                ]
                .into_iter()
                .flatten(),
            )
            .filter(|at| *at > self.now)
            .min()
    }

    /// Processes an event; [`Executor::fill`] continues from there.
    pub fn step(&mut self, now: Time, event: Event, out: &mut Vec<Command>) {
        self.continue_at(now, out);
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

    /// Starts everything that can be started at `now`. `allowed`: the node may start new work.
    pub fn fill(
        &mut self,
        now: Time,
        allowed: bool,
        random: &mut dyn FnMut() -> u64,
        out: &mut Vec<Command>,
    ) {
        self.continue_at(now, out);
        if self.owned.is_empty() {
            return;
        }
        self.look_at_windows();
        if let Some(since) = self.draining {
            self.give_waiting_back(since, out);
        }
        self.release_held(out);
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
        if !allowed || self.draining.is_some() {
            return;
        }
        for lane in Lane::punctual() {
            while self.begin_due(lane, random, out) {}
        }
        for row in LANES {
            while self.begin_next(row.lane, random, out) {}
        }
        self.make_way(out);
    }

    /// Whether nothing of the task may be started because it is held.
    fn is_held(&self, task: &TaskName) -> bool {
        self.held.get(task).is_some_and(|hold| !hold.over) || self.is_stopped(task)
    }

    /// Holds a task because the database rejects its requests. No item uses an attempt.
    fn hold_task(&mut self, task: &TaskName) {
        let before = self.held.get(task).copied();
        if before.is_none_or(|hold| hold.over || !hold.despite_commits) {
            self.held.insert(task.clone(), Hold::again(before, self.now, &HOLDS));
        }
    }

    /// Ends expired holds. Items of a held task that came near their time were dropped, so that
    /// they did not block others; they are read again.
    fn end_holds(&mut self) {
        let now = self.now;
        let mut ended = false;
        for hold in self.held.values_mut().filter(|hold| !hold.over && hold.until <= now) {
            hold.over = true;
            ended = true;
        }
        // The position of such a stream is read again, because it may have been repaired.
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

/// Whether the entry changes no row of the product.
fn is_settled(entry: &Entry) -> bool {
    matches!(entry.decision, Decision::Settle(_))
}
