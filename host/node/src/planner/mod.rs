//! The planner: slots become runs, runs scan, scans become items.
//!
//! The planner works only while its node leads, and everything it writes carries the fence. Its
//! state is loaded from the store when the leadership begins and discarded when it ends. Each run
//! has one command under way at a time; runs of different tasks proceed in parallel.
//!
//! ```text
//! slot due ── decide ──> run ── tenants ── scan ── scan ... ── end of scan ──> ended
//!                                                                 (once its log items are terminal)
//! ```

mod commands;
mod pauses;
mod reviews;
mod runs;
mod slots;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use besom_core::brake::Brakes;
use besom_core::fair::{self, Cycle, Quota};
use besom_core::ids::{FencingToken, RunId, TaskName, Tenant};
use besom_core::mode::Mode;
use besom_core::plan::{
    GRACE_DEFAULT, NewRun, Pause, Run, SlotDecision, SlotOutcome, SlotRecord, Start, TaskState,
    Trigger,
};
use besom_core::review::State;
use besom_core::time::Time;
use besom_core::undo;
use besom_snapshot::{Cause, Cut};

use super::HOLDS;
use besom_ports::store::{self, Applied, CommandEffect, CommandRow, EndOfScan, Planned};
use besom_ports::task::TaskDefinition;

pub use slots::Scheduled;

/// Maximum number of commands from outside read at a time; a full page is followed by the next one
/// immediately.
pub const COMMANDS_PAGE: u32 = 64;

/// The stored state, read when a leadership begins.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// The states of all tasks ever seen.
    pub states: Vec<TaskState>,
    /// The runs that have not ended.
    pub runs: Vec<Run>,
    /// The runs whose reviews wait.
    pub waiting: Vec<(RunId, Opened)>,
}

/// How an open review waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Until when it can be decided.
    pub until: Time,
    /// Why nobody has to decide, so that it ends by itself; none: it waits for a decision.
    pub nothing: Option<String>,
}

/// Why a page was not planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScanError {
    /// The plugin failed, possibly because of the tenant's data. The scan continues with the next
    /// tenant.
    Failed(String),
    /// The infrastructure failed. The same page is tried again.
    Infrastructure(String),
    /// The database rejects the reads of the scan. The task is held, and the same page is tried
    /// again.
    Refused(Cause, String),
    /// The result of planning the page is unknown. The page is tried again and may already have
    /// been planned.
    Unknown(String),
    /// This number of items of the task is already waiting. The scan pauses.
    Full(u64),
    /// The leadership has ended.
    Fenced,
}

/// An input of the planner.
#[derive(Debug)]
pub enum Event {
    /// The result of a slot decision.
    Decided(Decided, store::Result<Vec<RunId>>),
    /// The tenants of a run.
    Tenants(RunId, Result<Vec<Tenant>, ScanError>),
    /// A page was scanned and planned; the flag says whether the scan continues.
    Planned(RunId, Result<(Planned, bool), ScanError>),
    /// The scan of a run has ended; the flag says whether the run has ended too.
    ScanEnded(RunId, store::Result<bool>),
    /// Commands from outside.
    Commands(store::Result<Vec<CommandRow>>),
    /// The result of applying a command.
    Applied(Box<Applying>, store::Result<Applied>),
    /// What a run would change was examined, and its review opened; none: it does not wait. A preview whose scan has
    /// [failed](ScanError::Failed) ends with that error.
    Examined(RunId, Result<Option<Opened>, ScanError>),
    /// The request to discard what a run has planned was recorded.
    Lapsed(RunId, store::Result<()>),
    /// The stored state, read again.
    Reread(store::Result<Loaded>),
}

/// A slot decision on its way to the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Decided {
    /// The complete decision.
    pub decision: SlotDecision,
    /// When to consider the tasks again.
    pub next: Vec<(TaskName, Option<Time>)>,
}

/// A command on its way to the store.
#[derive(Debug, Clone, PartialEq)]
pub struct Applying {
    /// The command as stored.
    pub row: CommandRow,
    /// Its effect.
    pub effect: CommandEffect,
    /// The result for the requester.
    pub result: String,
    /// Maximum number of dead letters to take at once.
    pub letters: NonZeroU32,
}

/// An output of the planner.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Write decided slots and start their runs.
    Decide(FencingToken, Box<Decided>),
    /// Ask the plugin for tenants.
    Tenants {
        /// The run that needs them.
        run: RunId,
        /// The definition of the run.
        definition: Arc<TaskDefinition>,
        /// Return tenants after this one.
        after: Option<Tenant>,
        /// Maximum number of tenants.
        limit: u32,
    },
    /// Scan a page from the tenant's cursor and plan it.
    Scan(Scan),
    /// Record the end of a scan.
    EndScan {
        /// The leader's fencing token.
        fence: FencingToken,
        /// What is recorded.
        end: EndOfScan,
        /// What the run left for the next one; none: the scan ended before.
        cut: Option<Cut>,
        /// How many failed runs in a row pause the task, if the scan failed.
        failures: Option<NonZeroU32>,
    },
    /// Examine what a run would change, and open its review.
    Examine {
        /// The leader's fencing token.
        fence: FencingToken,
        /// The run. Of a held run, what it has planned is examined; of a preview, what it finds.
        run: RunId,
        /// The definition of the run.
        definition: Arc<TaskDefinition>,
        /// Whether the run is held.
        held: bool,
        /// Number of items that it has planned.
        planned: u64,
        /// The error of its scan.
        error: Option<String>,
    },
    /// Request to discard what a run has planned, with the reason.
    Lapse(RunId, String),
    /// Read commands from outside.
    FetchCommands,
    /// Apply a command.
    Apply(FencingToken, Box<Applying>),
    /// Read the stored state again, because the planner's copy may be wrong.
    Reread,
}

/// A request to scan a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Scan {
    /// The leader's fencing token.
    pub fence: FencingToken,
    /// The run that scans.
    pub run: RunId,
    /// The definition of the run.
    pub definition: Arc<TaskDefinition>,
    /// The tenant to scan; `None`: all tenants.
    pub tenant: Option<Tenant>,
    /// Maximum number of candidates.
    pub limit: u32,
    /// Maximum number of items to plan.
    pub quota: u64,
}

/// A consequence of an event for the rest of the node.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// Items were planned.
    Planned {
        /// Whether items were appended to the log.
        to_log: bool,
        /// The earliest due time among the new timers.
        earliest_due: Option<Time>,
    },
    /// A run was started with this definition.
    Started(RunId, Arc<TaskDefinition>),
    /// A run has ended.
    Ended(RunId),
    /// Dead letters were moved to the retries.
    Revived,
    /// Planned items were discarded.
    Discarded,
    /// The store has rejected this leader.
    Fenced,
    /// The leader was asked to resign.
    Resign,
}

/// The limits and intervals of planning. The defaults are those of the configuration; a test compares
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How often commands from outside are read.
    pub command_poll: Duration,
    /// Number of candidates requested at a time.
    pub page: u32,
    /// Maximum number of pages of one tenant in one run, in case none of their candidates can be
    /// planned.
    pub pages_max: u32,
    /// How late a slot may start and still count as on time.
    pub grace: Duration,
    /// A pass: everything is planned regardless of the schedules until nothing new is found; then
    /// the node stops.
    pub pass: bool,
    /// Maximum number of dead letters that a command takes in one transaction.
    pub command_letters: NonZeroU32,
    /// Maximum number of failures of a command in a row, after which it is refused.
    pub command_attempts_max: u32,
    /// Maximum number of rounds of a pass. A task that plans new items in every round is reported
    /// as endless.
    pub rounds_max: u32,
    /// Maximum number of rounds in a row that plan items without committing any of them or setting
    /// any aside, or that plan and commit the same items as the round before. Then the tasks that planned are
    /// reported as endless.
    pub idle_rounds_max: u32,
}

/// The tasks of a pass that was ended although they still planned items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endless {
    /// The tasks, sorted.
    pub tasks: Vec<TaskName>,
    /// What they did in the last rounds.
    pub still: Still,
}

/// What the tasks of a pass still did when it was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Still {
    /// They planned items in each of [`Settings::rounds_max`] rounds.
    Plan,
    /// They planned items and committed none of them, for [`Settings::idle_rounds_max`] rounds.
    Skip,
    /// They planned and committed the same items in the same versions, for [`Settings::idle_rounds_max`] rounds.
    Repeat,
}

/// What a task has planned in a round of a pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct InRound {
    items: u64,
    /// See [`Planned::digest`].
    digest: u64,
}

impl InRound {
    fn add(&mut self, items: u64, digest: u64) {
        self.items += items;
        self.digest = self.digest.wrapping_add(digest);
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            command_poll: Duration::from_millis(500),
            page: 1_000,
            pages_max: 64,
            grace: GRACE_DEFAULT,
            pass: false,
            command_letters: NonZeroU32::new(1_000).unwrap_or(NonZeroU32::MIN),
            command_attempts_max: 8,
            rounds_max: 10_000,
            idle_rounds_max: 10,
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
    /// How often in a row the store has rejected a decision about this task, and until when no
    /// decision is made.
    refusals: u32,
    hold_until: Option<Time>,
    /// Slots that the store rejects because they already ran.
    ran: BTreeSet<Time>,
    /// Run once at the next opportunity: a leadership has begun, or the settings have changed.
    at_start: bool,
}

impl Task {
    /// Removes slots that already ran under an earlier term whose clock was ahead: they are already
    /// recorded.
    fn leave_what_ran(&self, starts: &mut Vec<Start>, slots: &mut Vec<SlotRecord>) {
        if self.ran.is_empty() {
            return;
        }
        starts.retain(|start| !self.ran.contains(&start.slot));
        slots.retain(|record| record.outcome != SlotOutcome::Ran || !self.ran.contains(&record.to));
    }

    /// When the task needs a decision.
    fn wanted_at(&self) -> Option<Time> {
        self.next.map(|at| self.hold_until.map_or(at, |hold| at.max(hold)))
    }
}

/// A run that has not ended.
#[derive(Debug)]
struct Active {
    run: Run,
    definition: Arc<TaskDefinition>,
    /// The progress through the tenants; `None` once the scan has ended.
    cycle: Option<Cycle>,
    /// The command to repeat after a failure of the infrastructure, and when.
    again: Option<(Time, fair::Command)>,
    failures: u32,
    /// How often in a row the reads of the same page used up the time of their call.
    slow: u32,
    cancelled: Option<String>,
    /// The command to continue with once the task is neither paused nor outside its windows.
    stopped: Option<fair::Command>,
    /// How far its review is.
    review: Reviewing,
    /// How many items the store has confirmed as planned in it.
    confirmed: u64,
}

/// How far the review of a run is.
#[derive(Debug, Clone, PartialEq, Default)]
enum Reviewing {
    /// It is not examined yet, or needs no review.
    #[default]
    Open,
    /// It is being examined; the end of its scan follows.
    Examined(fair::Command),
    /// Its review waits; the end of its scan follows.
    Waits {
        opened: Opened,
        end: fair::Command,
        /// Whether a request to discard what it has planned is on its way.
        lapsing: bool,
    },
    /// The end of its scan may be recorded.
    Done,
}

/// The planner of one node.
#[derive(Debug)]
pub struct Planner {
    settings: Settings,
    fence: Option<FencingToken>,
    /// When the leadership began.
    since: Time,
    tasks: BTreeMap<TaskName, Task>,
    /// The states of tasks that are not in the configuration: a task that returns is still paused.
    absent: BTreeMap<TaskName, TaskState>,
    runs: BTreeMap<RunId, Active>,
    commands: VecDeque<CommandRow>,
    /// Commands that wait for a run to end.
    parked: Vec<CommandRow>,
    /// In a pass: the runs that have ended meanwhile.
    over: BTreeSet<RunId>,
    /// In a pass: commands that concern other tasks or a running host. They stay in the store.
    left: HashSet<u64>,
    applying: bool,
    /// Commands that the store could not apply, by number: how often in a row, and the last error.
    failing: BTreeMap<u64, (u32, String)>,
    /// A command whose result is unknown. It is sent again unchanged, which has no further effect.
    unanswered: Option<Box<Applying>>,
    /// Decisions on their way to the store. A repeated answer is ignored, and a late one does not
    /// affect a later decision.
    asked: Vec<Decided>,
    /// Set if the store may differ from the planner's copy. Nothing is decided until then.
    doubt: bool,
    rereading: bool,
    /// Runs that ended while the state was being read; the answer may be older.
    ended_meanwhile: BTreeSet<RunId>,
    /// The runs whose scans have ended since then.
    scanned_meanwhile: BTreeSet<RunId>,
    /// Whether the store is known to be older than it was, since the state was last requested.
    went_back: bool,
    /// The same of the time before that request.
    lost: bool,
    /// Runs that were seen in the store but are not (yet) known here.
    strangers: BTreeSet<RunId>,
    fetching: bool,
    /// Whether the answer under way is older than the state that was read again.
    fetch_is_old: bool,
    /// Whether the commands have been read since the leadership began.
    has_fetched: bool,
    fetch_at: Option<Time>,
    hold_until: Option<Time>,
    failures: u32,
    /// In a pass: tasks whose last run planned items, or that have not run yet.
    unfinished: HashSet<TaskName>,
    rounds: u32,
    /// Tasks that were paused during the pass.
    stopped: BTreeSet<TaskName>,
    /// In a pass: the tasks of the configuration that it leaves out, with their brakes. Commands about
    /// them are applied, but nothing of them is planned.
    left_out: BTreeMap<TaskName, Brakes>,
    /// The pause of all tasks.
    all_paused: Option<Pause>,
    /// Whether the paused tasks may have changed since they were last told.
    pauses_changed: bool,
    /// Rounds in a row without an effect or with the same items, and whether the current one has any effect.
    idle_rounds: u32,
    has_effects: bool,
    endless: Option<Endless>,
    planned_in_round: HashMap<TaskName, InRound>,
    planned_before: HashMap<TaskName, InRound>,
    /// Items of the current round that changed nothing, because foreign keys keep their rows.
    kept_in_round: u64,
    now: Time,
}

/// The definition of a run: the one that it was started with if that can still be called, without
/// rights that were revoked since.
pub fn definition_of(run: &Run, current: &Arc<TaskDefinition>) -> Arc<TaskDefinition> {
    match TaskDefinition::of_run(run) {
        // A plugin version that is no longer loaded cannot be called.
        Some(own) if own.digest == current.digest && own != **current => {
            Arc::new(own.restricted_to(current))
        }
        Some(_) | None => Arc::clone(current),
    }
}

/// How the review of a run waits; none: it does not.
fn opened(waiting: &[(RunId, Opened)], run: RunId) -> Option<Opened> {
    waiting.iter().find(|(id, _)| *id == run).map(|(_, opened)| opened.clone())
}

impl Planner {
    /// How often in a row the reads of one page may use up the time of their call.
    const SLOW_MAX: u32 = 3;
    /// How often a run whose scan has ended is checked until it has ended.
    const END_PAUSE: Duration = Duration::from_secs(30);
    /// How long a scan waits for the owners to catch up before it checks again.
    const FULL_PAUSE: Duration = Duration::from_secs(1);

    /// Creates a planner that does not lead.
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
            over: BTreeSet::new(),
            left: HashSet::new(),
            applying: false,
            failing: BTreeMap::new(),
            unanswered: None,
            asked: Vec::new(),
            doubt: false,
            rereading: false,
            ended_meanwhile: BTreeSet::new(),
            scanned_meanwhile: BTreeSet::new(),
            went_back: false,
            lost: false,
            strangers: BTreeSet::new(),
            fetching: false,
            fetch_is_old: false,
            has_fetched: false,
            fetch_at: None,
            hold_until: None,
            failures: 0,
            unfinished: HashSet::new(),
            rounds: 0,
            stopped: BTreeSet::new(),
            left_out: BTreeMap::new(),
            all_paused: None,
            pauses_changed: false,
            idle_rounds: 0,
            has_effects: false,
            endless: None,
            planned_in_round: HashMap::new(),
            planned_before: HashMap::new(),
            kept_in_round: 0,
            now: Time::EPOCH,
        }
    }

    /// Starts a leadership. `tasks` are those of the configuration.
    pub fn lead(
        &mut self,
        now: Time,
        fence: FencingToken,
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
        self.take_pause_of_all();
        for (name, scheduled) in tasks {
            self.insert(name, scheduled.clone());
        }
        self.unfinished = self.rounds_of().collect();
        for run in loaded.runs {
            let Some(task) = self.tasks.get(&run.task) else { continue };
            let definition = definition_of(&run, &task.scheduled.definition);
            let opened = opened(&loaded.waiting, run.id);
            self.adopt(run, definition, opened, notices, out);
        }
    }

    /// Ends the leadership.
    pub fn cease(&mut self) {
        let left_out = std::mem::take(&mut self.left_out);
        *self = Planner { left_out, ..Planner::new(self.settings) };
    }

    /// Names the tasks of the configuration that a pass leaves out, with their brakes.
    pub fn leave_out(&mut self, tasks: &BTreeMap<TaskName, Brakes>) {
        self.left_out.clone_from(tasks);
    }

    /// Replaces the configured tasks. Active runs keep the definition that they were started with.
    pub fn redefine(&mut self, now: Time, tasks: &BTreeMap<TaskName, Scheduled>) {
        self.now = now;
        if self.fence.is_none() {
            return;
        }
        self.pauses_changed = true;
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

    /// The tasks that run in every round of a pass. Nothing is undone unless somebody asks for it.
    fn rounds_of(&self) -> impl Iterator<Item = TaskName> {
        self.tasks.keys().filter(|name| name.as_str() != undo::TASK).cloned()
    }

    fn insert(&mut self, name: &TaskName, scheduled: Scheduled) {
        let state = self.absent.remove(name).unwrap_or_else(|| TaskState::initial(name.clone()));
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

    /// The tasks of a pass that still planned items when it was ended; none: it has found nothing new.
    pub fn endless(&self) -> Option<&Endless> {
        self.endless.as_ref()
    }

    /// Items were committed with effects or set aside, so the next round may find fewer candidates.
    pub fn note_effects(&mut self) {
        self.has_effects = true;
    }

    /// So many items were committed without a change, because foreign keys keep their rows: the next round of a pass
    /// would find the same.
    pub fn note_kept(&mut self, items: u64) {
        self.kept_in_round += items;
    }

    /// Whether a pass has found nothing new (or has reached its last round), and all its scans have
    /// ended.
    pub fn pass_is_complete(&self) -> bool {
        self.settings.pass
            && self.fence.is_some()
            && self.unfinished.is_empty()
            && self.runs.values().all(|active| active.waits() || self.is_stopped(&active.run.task))
            && self.tasks.values().all(|task| !task.deciding)
            && self.has_applied_commands()
    }

    /// The runs that have not ended, and whether they are scanning.
    pub fn active(&self) -> impl Iterator<Item = (&Run, bool)> {
        self.runs.values().map(|active| (&active.run, active.cycle.is_some()))
    }

    /// When the planner needs attention next, apart from answers.
    pub fn deadline(&self) -> Option<Time> {
        self.fence.as_ref()?;
        if let Some(hold) = self.hold_until.filter(|at| *at > self.now) {
            return Some(hold);
        }
        let slots = self.tasks.values().filter(|task| !task.deciding).filter_map(Task::wanted_at);
        let again = self.runs.values().filter_map(|run| run.again.as_ref().map(|(at, _)| *at));
        // The scan of a run that waits for a window continues then.
        let stopped = self.runs.values().filter(|run| run.stopped.is_some());
        let opens = stopped.filter_map(|run| {
            self.tasks.get(&run.run.task)?.scheduled.definition.windows.opens_at(self.now)
        });
        slots
            .chain(again)
            .chain(opens)
            .chain(self.runs.values().filter_map(Active::expires_at))
            .chain(self.fetch_at.filter(|_| !self.fetching && !self.applying))
            .filter(|at| *at > self.now)
            .min()
    }

    /// Processes the answer to a command; [`Planner::plan`] continues from there.
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
            Event::Examined(run, result) => self.examined(run, result, notices, out),
            Event::Lapsed(run, result) => self.lapsed(run, result, notices),
            Event::Reread(result) => self.reread(result, notices, out),
        }
    }

    /// Starts everything that is due. `idle`: the executor only waits (a pass then starts its next
    /// round).
    pub fn plan(&mut self, now: Time, idle: bool, out: &mut Vec<Command>) {
        self.now = now;
        let Some(fence) = self.fence.clone() else { return };
        if self.hold_until.is_some_and(|at| now < at) {
            return;
        }
        self.hold_until = None;
        self.go_on_where_open(out);
        self.lapse_outdated(out);
        if self.doubt || self.rereading {
            self.look_again(out);
        } else if self.settings.pass {
            // A retried item belongs to this pass, and a resumed task runs in it.
            self.poll_commands(&fence, out);
            if self.has_applied_commands() {
                self.next_round(&fence, idle, out);
            }
        } else {
            self.decide_due(&fence, out);
            self.poll_commands(&fence, out);
        }
        self.repeat(out);
    }

    /// Handles an error of the store: it ends the leadership or makes the planner wait.
    fn failed(&mut self, error: &store::Error, notices: &mut Vec<Notice>) {
        if matches!(error, store::Error::Fenced) {
            notices.push(Notice::Fenced);
        }
        // Several answers may report the same failure.
        if self.hold_until.is_some_and(|at| self.now < at) {
            return;
        }
        self.hold_until = Some(self.now + HOLDS.pause(self.failures, 0));
        self.failures = self.failures.saturating_add(1);
    }
}
