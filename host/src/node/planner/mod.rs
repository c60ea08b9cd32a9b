//! Plans: slots become runs, runs scan, scans become items.
//!
//! The planner of a node works only while the node leads, and everything it writes carries
//! the fence. What it knows is loaded from the store when the leadership begins and is
//! forgotten when it ends. A run has one command under way at a time; runs of different
//! tasks go on beside one another.
//!
//! ```text
//! slot due ── decide ──> run ── tenants ── scan ── scan ... ── end of scan ──> ended
//!                                                                 (once its log items are terminal)
//! ```

mod commands;
mod runs;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use besom_core::fair::{self, Cycle, Quota};
use besom_core::ids::{Fence, RunId, TaskName, Tenant};
use besom_core::plan::{
    NewRun, Run, SlotDecision, SlotOutcome, SlotRecord, Start, TaskState, Trigger,
};
use besom_core::snapshot::Cause;
use besom_core::time::Time;

use crate::ports::store::{self, Applied, CommandEffect, CommandRow, Planned};
use crate::task::TaskDefinition;

pub use slots::Scheduled;

/// What the store remembers, read when a leadership begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// Of every task it has seen.
    pub states: Vec<TaskState>,
    /// Runs that have not ended.
    pub runs: Vec<Run>,
}

/// Why a page was not planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanError {
    /// The plugin's fault, or its tenant's: the cycle goes on with the next.
    Failed(String),
    /// The infrastructure's: the same page is tried again.
    Infrastructure(String),
    /// The database refuses what the scan needs: the task is held, and the same page is tried
    /// again.
    Refused(Cause, String),
    /// The answer to its planning was lost: it is tried again, and may have been planned.
    Unknown(String),
    /// So many items of the task wait already: it is asked again later.
    Full(u64),
    /// The leadership is over.
    Fenced,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// Slots were decided (or not).
    Decided(Decided, store::Result<Vec<RunId>>),
    /// The tenants of a run.
    Tenants(RunId, Result<Vec<Tenant>, ScanError>),
    /// A page was scanned and planned; whether the scan goes on.
    Planned(RunId, Result<(Planned, bool), ScanError>),
    /// The scan of a run has ended; whether the run has.
    ScanEnded(RunId, store::Result<bool>),
    /// Commands from outside.
    Commands(store::Result<Vec<CommandRow>>),
    /// A command was applied.
    Applied(Box<Applying>, store::Result<Applied>),
    /// What the store remembers, read again.
    Reread(store::Result<Loaded>),
}

/// Slots on their way to the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// What was decided, complete.
    pub decision: SlotDecision,
    /// When to look at the tasks again.
    pub next: Vec<(TaskName, Option<Time>)>,
}

/// A command on its way to the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Applying {
    /// The command.
    pub row: CommandRow,
    /// What it comes to.
    pub effect: CommandEffect,
    /// For whoever asked.
    pub result: String,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Write decided slots and start their runs.
    Decide(Fence, Box<Decided>),
    /// Ask the plugin for tenants.
    Tenants {
        /// The run.
        run: RunId,
        /// What it runs by.
        definition: Arc<TaskDefinition>,
        /// After this one.
        after: Option<Tenant>,
        /// At most so many.
        limit: u32,
    },
    /// Scan a page from the tenant's cursor, and plan it.
    Scan(Scan),
    /// The scan has ended.
    EndScan {
        /// The leader's.
        fence: Fence,
        /// The run.
        run: RunId,
        /// Where the next cycle begins.
        cursor: Option<Tenant>,
        /// What has failed.
        error: Option<String>,
    },
    /// Read commands from outside.
    FetchCommands,
    /// Apply one.
    Apply(Fence, Box<Applying>),
    /// Read again what the store remembers: what the planner takes for it may be wrong.
    Reread,
}

/// A page to be scanned.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The leader's.
    pub fence: Fence,
    /// The run.
    pub run: RunId,
    /// What it runs by.
    pub definition: Arc<TaskDefinition>,
    /// The tenant.
    pub tenant: Option<Tenant>,
    /// Candidates at most.
    pub limit: u32,
    /// Items to be planned at most.
    pub quota: u64,
}

/// What follows for the rest of the node from an event.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// Items were planned.
    Planned {
        /// Into the log.
        to_log: bool,
        /// Timers, the earliest.
        earliest_due: Option<Time>,
    },
    /// A run was started with this definition.
    Started(RunId, Arc<TaskDefinition>),
    /// A run is over.
    Ended(RunId),
    /// Dead letters are to be tried again.
    Revived,
    /// The store refuses this leader.
    Fenced,
    /// Somebody has asked for another leader.
    Resign,
}

/// The spans of planning, from the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How often commands from outside are looked for.
    pub command_poll: Duration,
    /// Candidates asked for at a time.
    pub page: u32,
    /// Pages of one tenant in one run, in case none of their candidates can be planned.
    pub pages_max: u32,
    /// How late a slot may be begun and still count as on time.
    pub grace: Duration,
    /// Everything is planned, whatever the schedules say, until nothing new is found; then
    /// the node is done.
    pub pass: bool,
    /// Rounds of a pass: whoever plans in each of them plans without end.
    pub rounds_max: u32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            command_poll: Duration::from_millis(500),
            page: 500,
            pages_max: 64,
            grace: Duration::from_secs(30),
            pass: false,
            rounds_max: 10_000,
        }
    }
}

/// A task as the leader plans it.
#[derive(Debug)]
struct Task {
    scheduled: Scheduled,
    state: TaskState,
    deciding: bool,
    next: Option<Time>,
    /// How often in a row the store has refused what was decided of this task, and until
    /// when nothing is decided of it.
    refusals: u32,
    hold_until: Option<Time>,
    /// Slots that the store refuses because they ran before.
    ran: BTreeSet<Time>,
    /// Run once at the next opportunity: a leadership has begun, or the settings changed.
    at_start: bool,
}

impl Task {
    /// Takes out what ran before, under an earlier term whose clock was ahead: it is explained
    /// already.
    fn leave_what_ran(&self, starts: &mut Vec<Start>, slots: &mut Vec<SlotRecord>) {
        if self.ran.is_empty() {
            return;
        }
        starts.retain(|start| !self.ran.contains(&start.slot));
        slots.retain(|record| record.outcome != SlotOutcome::Ran || !self.ran.contains(&record.to));
    }

    /// When something is to be decided of it.
    fn wanted_at(&self) -> Option<Time> {
        self.next.map(|at| self.hold_until.map_or(at, |hold| at.max(hold)))
    }
}

/// A run that has not ended.
#[derive(Debug)]
struct Active {
    run: Run,
    definition: Arc<TaskDefinition>,
    /// The way through the tenants; none once the scan has ended.
    cycle: Option<Cycle>,
    /// The command to repeat, and when: the infrastructure has failed.
    again: Option<(Time, fair::Command)>,
    failures: u32,
    /// How often in a row the reads of the same place took all the time of their call.
    slow: u32,
    cancelled: Option<String>,
}

/// The planner of one node.
#[derive(Debug)]
pub struct Planner {
    settings: Settings,
    fence: Option<Fence>,
    /// When the leadership began.
    since: Time,
    tasks: BTreeMap<TaskName, Task>,
    /// What the store remembers of tasks that are not in the configuration: one that comes
    /// back is still paused.
    absent: BTreeMap<TaskName, TaskState>,
    runs: BTreeMap<RunId, Active>,
    commands: VecDeque<CommandRow>,
    /// Commands that wait for a run to end.
    parked: Vec<CommandRow>,
    applying: bool,
    /// A command whose answer was lost: the same is sent again, and does nothing twice.
    unanswered: Option<Box<Applying>>,
    /// Decisions on their way to the store: an answer that comes twice is one, and a late one says
    /// nothing about a later decision.
    asked: Vec<Decided>,
    /// The store may have done something that the planner does not know of, or forgotten
    /// something: nothing is decided before it has been read again.
    doubt: bool,
    rereading: bool,
    /// Runs that ended while it was read: the answer may be older.
    ended_meanwhile: BTreeSet<RunId>,
    /// Runs that somebody has seen in the store and that are not known here (yet).
    strangers: BTreeSet<RunId>,
    fetching: bool,
    fetch_at: Option<Time>,
    hold_until: Option<Time>,
    failures: u32,
    /// Of a pass: tasks whose last run planned something, or that have not run yet.
    unfinished: HashSet<TaskName>,
    rounds: u32,
    endless: Vec<TaskName>,
    planned_in_round: HashMap<TaskName, u64>,
    now: Time,
}

/// What a run goes by: the definition it was started with, where that can still be called, with no
/// right that was taken away since.
pub fn definition_of(run: &Run, current: &Arc<TaskDefinition>) -> Arc<TaskDefinition> {
    match serde_json::from_str::<TaskDefinition>(&run.definition) {
        // A version of the plugin that is gone cannot be called any more.
        Ok(own) if own.digest == current.digest && own != **current => {
            Arc::new(own.restricted_to(current))
        }
        Ok(_) | Err(_) => Arc::clone(current),
    }
}

/// Of a task that the store has never seen.
fn initial_state(name: &TaskName) -> TaskState {
    TaskState {
        task: name.clone(),
        schedule: String::new(),
        last_slot: None,
        paused: None,
        tenant_cursor: None,
        queued_slots: Vec::new(),
    }
}

impl Planner {
    const HOLD_MIN: Duration = Duration::from_millis(50);
    const HOLD_MAX: Duration = Duration::from_secs(5);
    /// So often in a row the reads of one place of a scan may take all the time of their call.
    const SLOW_MAX: u32 = 3;
    /// How often a run whose scan has ended is looked at, until it has ended.
    const END_PAUSE: Duration = Duration::from_secs(30);
    /// How long a scan waits for the owners to catch up before it looks again.
    const FULL_PAUSE: Duration = Duration::from_secs(1);

    /// A planner that does not lead.
    pub fn new(settings: Settings) -> Planner {
        Planner {
            settings,
            fence: None,
            since: Time::EPOCH,
            tasks: BTreeMap::new(),
            absent: BTreeMap::new(),
            runs: BTreeMap::new(),
            commands: VecDeque::new(),
            parked: Vec::new(),
            applying: false,
            unanswered: None,
            asked: Vec::new(),
            doubt: false,
            rereading: false,
            ended_meanwhile: BTreeSet::new(),
            strangers: BTreeSet::new(),
            fetching: false,
            fetch_at: None,
            hold_until: None,
            failures: 0,
            unfinished: HashSet::new(),
            rounds: 0,
            endless: Vec::new(),
            planned_in_round: HashMap::new(),
            now: Time::EPOCH,
        }
    }

    /// The leadership has begun. `tasks` are those of the configuration.
    pub fn lead(
        &mut self,
        now: Time,
        fence: Fence,
        loaded: Loaded,
        tasks: &BTreeMap<TaskName, Scheduled>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        self.cease();
        self.now = now;
        self.fence = Some(fence);
        self.since = now;
        self.fetch_at = Some(now);
        self.absent = loaded.states.into_iter().map(|state| (state.task.clone(), state)).collect();
        for (name, scheduled) in tasks {
            self.insert(name, scheduled.clone());
        }
        self.unfinished = self.tasks.keys().cloned().collect();
        for run in loaded.runs {
            let Some(task) = self.tasks.get(&run.task) else { continue };
            let definition = definition_of(&run, &task.scheduled.definition);
            self.adopt(run, definition, notices, out);
        }
    }

    /// The leadership is over.
    pub fn cease(&mut self) {
        *self = Planner::new(self.settings);
    }

    /// The tasks of the configuration from now on. What runs goes on with the definition
    /// it was started with.
    pub fn redefine(&mut self, now: Time, tasks: &BTreeMap<TaskName, Scheduled>) {
        self.now = now;
        if self.fence.is_none() {
            return;
        }
        let gone: Vec<TaskName> =
            self.tasks.keys().filter(|name| !tasks.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(task) = self.tasks.remove(&name) {
                self.absent.insert(name, task.state);
            }
        }
        for (name, scheduled) in tasks {
            match self.tasks.get_mut(name) {
                Some(task) => {
                    let changed =
                        task.scheduled.definition.settings != scheduled.definition.settings;
                    task.at_start |= changed && scheduled.definition.at_start;
                    task.scheduled = scheduled.clone();
                    task.next = Some(now);
                    let current = &scheduled.definition;
                    for active in self.runs.values_mut().filter(|active| active.run.task == *name) {
                        if !active.definition.is_within(current) {
                            let own = TaskDefinition::clone(&active.definition);
                            active.definition = Arc::new(own.restricted_to(current));
                        }
                    }
                }
                None => self.insert(name, scheduled.clone()),
            }
        }
    }

    fn insert(&mut self, name: &TaskName, scheduled: Scheduled) {
        let state = self.absent.remove(name).unwrap_or_else(|| initial_state(name));
        let at_start = scheduled.definition.at_start;
        self.tasks.insert(
            name.clone(),
            Task {
                scheduled,
                state,
                deciding: false,
                next: Some(self.now),
                refusals: 0,
                hold_until: None,
                ran: BTreeSet::new(),
                at_start,
            },
        );
    }

    /// Tasks of a pass that planned in its last round.
    pub fn endless(&self) -> &[TaskName] {
        &self.endless
    }

    /// Whether a pass has found nothing new (or goes on for ever), and everything it planned has left the scans.
    pub fn pass_is_complete(&self) -> bool {
        self.settings.pass
            && self.fence.is_some()
            && self.unfinished.is_empty()
            && self.runs.is_empty()
            && self.tasks.values().all(|task| !task.deciding)
    }

    /// Runs that have not ended, and whether they are scanning.
    pub fn active(&self) -> impl Iterator<Item = (&Run, bool)> {
        self.runs.values().map(|active| (&active.run, active.cycle.is_some()))
    }

    /// The next planned start of each task.
    pub fn next_slots(&self) -> impl Iterator<Item = (&TaskName, Option<Time>)> {
        self.tasks.iter().map(|(name, task)| (name, task.next))
    }

    /// When something is to be done next, apart from answers.
    pub fn deadline(&self) -> Option<Time> {
        self.fence.as_ref()?;
        if let Some(hold) = self.hold_until.filter(|at| *at > self.now) {
            return Some(hold);
        }
        let slots = self.tasks.values().filter(|task| !task.deciding).filter_map(Task::wanted_at);
        let again = self.runs.values().filter_map(|run| run.again.as_ref().map(|(at, _)| *at));
        slots
            .chain(again)
            .chain(self.fetch_at.filter(|_| !self.fetching && !self.applying))
            .filter(|at| *at > self.now)
            .min()
    }

    /// Takes the answer to a command in; [`Planner::plan`] goes on from there.
    pub fn step(
        &mut self,
        now: Time,
        event: Event,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        self.now = now;
        match event {
            Event::Decided(decided, result) => self.decided(decided, result, notices, out),
            Event::Tenants(run, result) => self.tenants(run, result, notices, out),
            Event::Planned(run, result) => self.planned(run, result, notices, out),
            Event::ScanEnded(run, result) => self.scan_ended(run, result, notices),
            Event::Commands(result) => self.fetched(result, notices),
            Event::Applied(applying, result) => self.applied(applying, result, notices, out),
            Event::Reread(result) => self.reread(result, notices, out),
        }
    }

    /// Begins whatever is due. `idle`: the executor has nothing to do but wait (a pass
    /// begins its next round then).
    pub fn plan(&mut self, now: Time, idle: bool, out: &mut Vec<Command>) {
        self.now = now;
        let Some(fence) = self.fence.clone() else { return };
        if self.hold_until.is_some_and(|at| now < at) {
            return;
        }
        self.hold_until = None;
        if self.doubt || self.rereading {
            self.look_again(out);
        } else if self.settings.pass {
            self.next_round(&fence, idle, out);
        } else {
            self.decide_due(&fence, out);
            self.poll_commands(&fence, out);
        }
        self.repeat(out);
    }

    /// An answer of the store that ends the leadership, or makes the planner wait.
    fn failed(&mut self, error: &store::Error, notices: &mut Vec<Notice>) {
        if matches!(error, store::Error::Fenced) {
            notices.push(Notice::Fenced);
        }
        // Several answers may tell of one failure.
        if self.hold_until.is_some_and(|at| self.now < at) {
            return;
        }
        self.hold_until = Some(self.now + Self::pause(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// How long to wait after so many failures in a row.
    fn pause(failures: u32) -> Duration {
        Self::HOLD_MIN.saturating_mul(1 << failures.min(10)).min(Self::HOLD_MAX)
    }
}
