//! One node: events in, commands out.
//!
//! The node puts three machines together: the election (does this node lead), the planner
//! (what is to be done) and the executor (doing it). It has no clock, no randomness of its
//! own and no I/O: the shell hands it the present and the answers, and carries its
//! commands out. The simulation hands it other presents and worse answers.
//!
//! ```text
//!             ┌───────── Node ──────────┐
//! events ───> │ election  planner  exec │ ───> commands
//!    ^        └─────────────────────────┘          │
//!    └───────────────── shell <────────────────────┘
//! ```

pub mod executor;
pub mod flight;
pub mod holdings;
pub mod planner;
mod resignation;
mod weight;
pub mod window;
pub mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use besom_core::burial::Burial;
use besom_core::collection::Collections;
use besom_core::election::{self, CampaignResult, Election, RaiseResult, Timing};
use besom_core::ids::{Fence, NodeName, OwnerEpoch, Partition, TaskName, Term};
use besom_core::reach::{self, Away, Reach};
use besom_core::time::{Mono, Time};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::ports::members::MemberState;
use crate::ports::store;
use executor::Executor;
use holdings::{Arrived, Holdings};
use planner::{Loaded, Notice, Planner, Scheduled};
use resignation::Resignation;

/// The present, read once per event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The store's clock, for schedules and due times: what it shows at least.
    pub wall: Time,
    /// The lease's time.
    pub mono: Mono,
}

/// What a node is made of, from the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This incarnation.
    pub node: NodeName,
    /// The spans of the lease.
    pub timing: Timing,
    /// The bounds of execution.
    pub executor: executor::Settings,
    /// The spans of planning.
    pub planner: planner::Settings,
    /// How long a stopping node waits for what is in flight.
    pub drain_max: Duration,
    /// How often old history is removed.
    pub prune_every: Duration,
    /// How a node of a cluster comes to what it executes; none: who leads owns everything.
    pub cluster: Option<holdings::Settings>,
}

/// One time of owning something, from its beginning until all of it was given up. Answers
/// from an earlier one are about what is not ours any more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure(pub u64);

/// Which guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// Those that scan for a leader.
    Planner,
    /// Those that act for an owner.
    Executor,
}

/// What the node works by; replaced as a whole on reload.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// The tasks.
    pub tasks: BTreeMap<TaskName, Scheduled>,
    /// The collections.
    pub collections: Arc<Collections>,
}

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The leadership may have changed hands: look.
    LeaderChanged,
    /// The answer to a campaign sent at that time.
    Campaigned(Mono, CampaignResult),
    /// The answer to a renewal sent at that time.
    Renewed(Mono, Option<bool>),
    /// The lease was given up.
    Resigned,
    /// It could not be: it is tried again, for the membership may keep it alive.
    NotResigned(Fence),
    /// The answer to the raise of the fence.
    Raised(Fence, Raise),
    /// What the store remembers, for the leadership of that fence.
    Loaded(Fence, store::Result<Loaded>),
    /// An answer for the executor, with the tenure in which it was asked.
    Executor(Tenure, executor::Event),
    /// For what a node of a cluster holds.
    Holdings(holdings::Event),
    /// An answer for the planner.
    Planner(Term, planner::Event),
    /// Whether that keeps the node from leading, from now on.
    Barred(Bar, bool),
    /// Who has begun something and not ended it, as the leader of that fence has asked.
    Begun(Fence, store::Result<Vec<NodeName>>),
    /// What came of the probe of the store.
    Probed {
        /// When it was begun.
        begun: Mono,
        /// Whether the store answers.
        answered: bool,
        /// The term that the store knows; none: that was not heard.
        term: Option<Term>,
    },
    /// The store has lost what this node has written: it was put back to an older state.
    StoreWentBack,
    /// Whether the others were told so of this node's way to the store.
    ToldOfStore(Option<Away>, bool),
    /// Old history was removed; whether there is more.
    Pruned(store::Result<bool>),
    /// A command has been put down for the leader.
    Nudged,
    /// The configuration has changed.
    Reconfigured(Work),
    /// Stop: finish what is in flight, give the lease up.
    Shutdown,
}

/// What keeps a node from leading: it resigns, and does not stand for election until it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bar {
    /// Its clock is too far from the store's.
    Clock,
    /// It does not reach the store, and others do.
    Store,
}

/// What came of the raise of the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raise {
    /// The store knows our term, and we own these partitions.
    Done(Vec<(Partition, OwnerEpoch)>),
    /// The store knows this term or a higher one.
    Fenced(Term),
    /// No answer.
    Failed,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Ask for the lease, under a term above `at_least`.
    Campaign {
        /// The highest term known to be used.
        at_least: Option<Term>,
    },
    /// Prolong the lease.
    Renew(Fence),
    /// Give it up.
    Resign(Fence),
    /// Raise the store's fence and take the partitions over.
    Raise(Fence),
    /// Read what the store remembers. On one machine, first count the deaths of earlier hosts:
    /// there, who does not lead executes nothing.
    Load(Fence),
    /// See who has begun something and not ended it.
    LookForBegun(Fence),
    /// Count the deaths of these: they are gone.
    Bury(Fence, Vec<NodeName>),
    /// Stop these guests: what they would return is not wanted any more.
    StopGuests {
        /// Which.
        whose: Whose,
        /// Why.
        reason: &'static str,
    },
    /// For the executor.
    Executor(Tenure, executor::Command),
    /// For what a node of a cluster holds.
    Holdings(holdings::Command),
    /// For the planner.
    Planner(Term, planner::Command),
    /// Ask the store something that costs little. The time names the probe; after that span it
    /// is taken for missed.
    Probe(Mono, Duration),
    /// Say that the store is older than what this node has seen of it.
    StoreWentBack {
        /// The highest term that was seen in it.
        seen: Term,
    },
    /// Tell the other members of this node's way to the store.
    TellOfStore(Option<Away>),
    /// Remove old history.
    Prune(Fence),
    /// The node is at its end.
    Finished,
}

/// What a node is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Somebody else leads, or nobody does yet.
    Following,
    /// It leads.
    Leading,
    /// It finishes what is in flight.
    Draining,
    /// It is at its end.
    Stopped,
}

impl Role {
    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Following => "following",
            Role::Leading => "leading",
            Role::Draining => "draining",
            Role::Stopped => "stopped",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Draining { until: Mono },
    Resigning,
    Stopped,
}

/// One node.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    work: Work,
    election: Election,
    planner: Planner,
    executor: Executor,
    /// Of a node of a cluster.
    holdings: Option<Holdings>,
    /// The store says that something is another's that is taken for ours.
    doubts: bool,
    tenure: Tenure,
    /// Partitions taken over with the fence, until the store's memory is loaded.
    taken: Vec<(Partition, OwnerEpoch)>,
    phase: Phase,
    resignation: Resignation,
    /// Why it does not stand for election.
    bars: BTreeSet<Bar>,
    reach: Reach,
    /// The highest term that the store is known to know.
    fence_seen: Option<Term>,
    /// The same as the probe under way was begun: its answer may be older than what came since.
    fence_before_probe: Option<Term>,
    /// Of a node of a cluster: whom it waits for before it counts their deaths.
    burial: Burial,
    loaded: bool,
    load_at: Option<Mono>,
    prune_at: Mono,
    /// When everything that is kept of the store in memory is read again.
    reread_at: Mono,
    random: StdRng,
    /// The present of the last step.
    last: Now,
    endless: Vec<TaskName>,
}

/// How often what is kept of the store in memory is read again.
const REREAD_EVERY: Duration = Duration::from_secs(60);

impl Node {
    /// A node that campaigns at once. `seed` is its only randomness.
    pub fn new(settings: Settings, work: Work, seed: [u8; 32], now: Now) -> Node {
        let mut executor = Executor::new(settings.node.clone(), settings.executor.clone());
        executor.define(definitions(&work), Arc::clone(&work.collections));
        Node {
            election: Election::new(settings.timing, now.mono),
            planner: Planner::new(settings.planner),
            executor,
            holdings: settings.cluster.clone().map(|cluster| {
                Holdings::new(settings.node.clone(), settings.timing, cluster, now.mono)
            }),
            doubts: false,
            tenure: Tenure::default(),
            taken: Vec::new(),
            phase: Phase::Running,
            resignation: Resignation::None,
            bars: BTreeSet::new(),
            reach: Reach::new(settings.timing, now.mono),
            fence_seen: None,
            fence_before_probe: None,
            burial: Burial::default(),
            loaded: false,
            load_at: None,
            prune_at: now.mono + settings.prune_every,
            reread_at: now.mono + REREAD_EVERY,
            random: StdRng::from_seed(seed),
            last: now,
            endless: Vec::new(),
            work,
            settings,
        }
    }

    /// Tasks of a pass that planned in each round that it may have.
    pub fn endless(&self) -> &[TaskName] {
        &self.endless
    }

    /// What the node is doing.
    pub fn role(&self) -> Role {
        match self.phase {
            Phase::Running if self.loaded => Role::Leading,
            Phase::Running => Role::Following,
            Phase::Draining { .. } | Phase::Resigning => Role::Draining,
            Phase::Stopped => Role::Stopped,
        }
    }

    /// The fence it leads under.
    pub fn fence(&self) -> Option<&Fence> {
        self.election.leading()
    }

    /// How long its lease is trusted from now on.
    pub fn lease_left(&self, now: Mono) -> Option<Duration> {
        self.election.trusted_for(now)
    }

    /// What it holds as a node of a cluster.
    pub fn holdings(&self) -> Option<&Holdings> {
        self.holdings.as_ref()
    }

    /// Its way to the store.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// Its planner, to look at.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// Its executor, to look at.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// How long the shell may sleep, if nothing is answered meanwhile; none: until then.
    ///
    /// What was due by the last step was tried in it, and waits for an answer or for the
    /// leadership: only what lies ahead counts.
    pub fn sleep(&self, now: Now) -> Option<Duration> {
        let last = self.last;
        let mono = |at: Mono| (at > last.mono).then(|| at.since(now.mono));
        let wall = |at: Time| (at > last.wall).then(|| at.since(now.wall));
        let drain = match self.phase {
            Phase::Draining { until } => mono(until),
            Phase::Running | Phase::Resigning | Phase::Stopped => None,
        };
        let plan =
            self.loaded.then(|| [self.planner.deadline().and_then(wall), mono(self.prune_at)]);
        let execute = self.executor.deadline().and_then(wall);
        let hold = self.holdings.iter().flat_map(Holdings::deadlines).filter_map(mono);
        let resign = self.resignation.deadline().and_then(mono);
        let load = self.load_at.and_then(mono);
        let probe = self.probes().then(|| self.reach.deadline()).and_then(mono);
        let bury = self.burial.deadline().and_then(mono);
        let reread = mono(self.reread_at);
        [self.election.deadline().and_then(mono), drain, resign, load, execute, probe, bury, reread]
            .into_iter()
            .chain(plan.into_iter().flatten())
            .flatten()
            .chain(hold)
            .min()
    }

    /// Takes an event in and pushes what is to be done.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        let mut elected = Vec::new();
        let mut notices = Vec::new();
        let mut held = Vec::new();
        self.last = now;
        match event {
            Event::Tick => {}
            Event::LeaderChanged => {
                self.election.step(now.mono, election::Event::Vacant, &mut elected);
            }
            Event::Campaigned(sent, result) => {
                let event = election::Event::Campaigned { sent, result };
                self.election.step(now.mono, event, &mut elected);
            }
            Event::Renewed(sent, kept) => {
                let event = election::Event::Renewed { sent, kept };
                self.election.step(now.mono, event, &mut elected);
            }
            Event::NotResigned(fence) => {
                self.election.step(now.mono, election::Event::NotResigned(fence), &mut elected);
            }
            Event::Resigned => {
                self.election.step(now.mono, election::Event::Resigned, &mut elected);
            }
            // An answer about an earlier lease says nothing of what the store knows by now.
            Event::Raised(fence, _) if self.election.raising() != Some(&fence) => {}
            Event::Raised(fence, raise) => {
                let result = match raise {
                    Raise::Done(taken) => {
                        self.taken = taken;
                        self.fence_seen = self.fence_seen.max(Some(fence.term));
                        RaiseResult::Done
                    }
                    Raise::Fenced(term) => RaiseResult::Fenced(term),
                    Raise::Failed => RaiseResult::Failed,
                };
                self.election.step(now.mono, election::Event::Raised(result), &mut elected);
            }
            Event::Loaded(fence, result) => {
                self.on_loaded(now, fence, result, &mut notices, out);
            }
            Event::Executor(tenure, event) if tenure == self.tenure => {
                let mut commands = Vec::new();
                self.executor.step(now.wall, event, &mut commands);
                self.of_executor(commands, &mut notices, out);
            }
            Event::Executor(_, executor::Event::Acted(ticket, _)) => {
                if let Some(abandon) = self.executor.ceased(ticket) {
                    out.push(Command::Executor(self.tenure, abandon));
                }
            }
            // A commit that landed behind a short loss of the partitions: what it has put back
            // is in nobody's window.
            Event::Executor(_, executor::Event::Committed(_, mark, result)) => {
                if result.is_err() {
                    let abandon = executor::Command::Abandon(mark);
                    out.push(Command::Executor(self.tenure, abandon));
                }
                self.executor.revived(now.wall);
            }
            Event::Holdings(event) => {
                if let holdings::Event::Members(_, members) = &event {
                    let others = members.members.iter().any(|member| {
                        let there = member.state != MemberState::Joining;
                        there
                            && member.incarnation != self.settings.node
                            && member.store_away.is_none()
                    });
                    self.reached(now, reach::Event::Others(others), &mut elected, out);
                }
                self.with_holdings(out, |holdings, commands| {
                    holdings.step(now.mono, event, &mut held, commands);
                });
            }
            Event::Begun(fence, begun) if self.is_current(fence.term) => {
                let members = self.holdings.as_ref().and_then(Holdings::members);
                let members: Vec<NodeName> = members
                    .iter()
                    .flat_map(|members| &members.members)
                    .map(|member| member.incarnation.clone())
                    .chain([self.settings.node.clone()])
                    .collect();
                let (lease, begun) = (self.settings.timing.ttl, begun.as_deref().ok());
                let dead = self.burial.begun(now.mono, lease, begun, &members);
                if !dead.is_empty() {
                    out.push(Command::Bury(fence, dead));
                }
            }
            Event::Begun(..) => {}
            Event::StoreWentBack => self.store_went_back(out),
            Event::Probed { begun, answered, term } => {
                let term = term.filter(|_| self.reach.is_probing(begun));
                self.on_fence_read(now, term, &mut elected, out);
                self.reached(now, reach::Event::Probed(begun, answered), &mut elected, out);
            }
            Event::ToldOfStore(away, told) => {
                self.reached(now, reach::Event::Told(away, told), &mut elected, out);
            }
            Event::Planner(term, event) if self.is_current(term) => {
                let mut commands = Vec::new();
                self.planner.step(now.wall, event, &mut notices, &mut commands);
                out.extend(commands.into_iter().map(|command| Command::Planner(term, command)));
            }
            // Answers to an earlier leadership: what they would change is not ours any more.
            Event::Executor(..) | Event::Planner(..) => {}
            Event::Barred(bar, barred) => self.bar(now, bar, barred, &mut elected),
            Event::Pruned(result) => {
                let soon = matches!(result, Ok(true));
                let wait = if soon { Duration::from_secs(1) } else { self.settings.prune_every };
                self.prune_at = now.mono + wait;
            }
            Event::Nudged => {
                self.planner.nudge(now.wall);
                if let Some(holdings) = &mut self.holdings {
                    holdings.nudge(now.mono);
                }
            }
            Event::Reconfigured(work) => {
                self.work = work;
                self.executor.define(definitions(&self.work), Arc::clone(&self.work.collections));
                self.planner.redefine(now.wall, &self.work.tasks);
            }
            Event::Shutdown => {
                if self.phase == Phase::Running {
                    self.executor.drain();
                    self.phase = Phase::Draining { until: now.mono + self.settings.drain_max };
                }
            }
        }
        if self.probes() {
            self.reached(now, reach::Event::Tick, &mut elected, out);
        }
        if now.mono >= self.reread_at {
            self.read_again(now);
        }
        self.election.step(now.mono, election::Event::Tick, &mut elected);
        self.follow(now, elected, &mut notices, out);
        let doubts = std::mem::take(&mut self.doubts);
        self.with_holdings(out, |holdings, commands| {
            if doubts {
                holdings.doubt(now.mono, &mut held, commands);
            }
            holdings.tick(now.mono, &mut held, commands);
        });
        self.hold(now, held, &mut notices, out);
        self.go_on(now, notices, out);
        if let Some(fence) = self.election.leading().filter(|_| self.loaded)
            && self.burial.is_due(now.mono)
        {
            out.push(Command::LookForBegun(fence.clone()));
        }
    }

    /// The store knows that term. One below what it has known is a fact of its own: it was put
    /// back to an older state.
    fn on_fence_read(
        &mut self,
        now: Now,
        found: Option<Term>,
        elected: &mut Vec<election::Command>,
        out: &mut Vec<Command>,
    ) {
        let Some(found) = found else { return };
        if self.fence_before_probe.is_none_or(|before| before <= found) {
            self.fence_seen = self.fence_seen.max(Some(found));
            return;
        }
        self.store_went_back(out);
        self.fence_seen = Some(found);
        let leads = self.election.leading().is_some_and(|fence| fence.term > found);
        if leads {
            self.election.step(now.mono, election::Event::StoreWentBack, elected);
        }
    }

    /// The store is older than this node: whatever is kept of it in memory is read again.
    fn store_went_back(&mut self, out: &mut Vec<Command>) {
        self.read_again(self.last);
        self.doubts = true;
        out.push(Command::StoreWentBack { seen: self.fence_seen.unwrap_or_default() });
    }

    /// Nothing that is kept of the store in memory is taken for granted: a server that others
    /// have taken the place of may lack the last of what it had confirmed, and says nothing.
    fn read_again(&mut self, now: Now) {
        self.reread_at = now.mono + REREAD_EVERY;
        self.executor.read_again();
        self.planner.read_again();
    }

    fn bar(&mut self, now: Now, bar: Bar, barred: bool, elected: &mut Vec<election::Command>) {
        let was = !self.bars.is_empty();
        if barred {
            self.bars.insert(bar);
        } else {
            self.bars.remove(&bar);
        }
        let event = match (was, !self.bars.is_empty()) {
            (false, true) => election::Event::Resign,
            // Who was asked to resign as well stays away for as long as that wants.
            (true, false)
                if self.phase == Phase::Running && self.resignation.deadline().is_none() =>
            {
                election::Event::Rejoin
            }
            _ => return,
        };
        self.election.step(now.mono, event, elected);
    }

    /// Whether it matters that the node reaches the store: it has not left yet.
    fn probes(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining { .. })
    }

    /// What follows from whether the node reaches the store.
    fn reached(
        &mut self,
        now: Now,
        event: reach::Event,
        elected: &mut Vec<election::Command>,
        out: &mut Vec<Command>,
    ) {
        let mut commands = Vec::new();
        self.reach.step(now.mono, now.wall, event, &mut commands);
        for command in commands {
            match command {
                reach::Command::Probe(sent, within) => {
                    self.fence_before_probe = self.fence_seen;
                    out.push(Command::Probe(sent, within));
                }
                reach::Command::Tell(away) => out.push(Command::TellOfStore(away)),
                reach::Command::StandAside => self.bar(now, Bar::Store, true, elected),
                reach::Command::ComeBack => self.bar(now, Bar::Store, false, elected),
            }
        }
    }

    fn with_holdings(
        &mut self,
        out: &mut Vec<Command>,
        step: impl FnOnce(&mut Holdings, &mut Vec<holdings::Command>),
    ) {
        if let Some(holdings) = &mut self.holdings {
            let mut commands = Vec::new();
            step(holdings, &mut commands);
            out.extend(commands.into_iter().map(Command::Holdings));
        }
    }

    /// What follows from what the node holds.
    fn hold(
        &mut self,
        now: Now,
        held: Vec<holdings::Notice>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        for notice in held {
            match notice {
                holdings::Notice::Own(gained) => self.executor.gain(&gained),
                holdings::Notice::Disown(lost) => self.executor.lose(&lost),
                holdings::Notice::Cease(reason) => self.give_up(reason, out),
                holdings::Notice::StoreWentBack => self.store_went_back(out),
                holdings::Notice::Arrived(arrived) => self.arrived(now, arrived, notices),
                holdings::Notice::Gone if self.loaded => self.burial.look(now.mono),
                // Whoever leads counts their deaths.
                holdings::Notice::Gone => {}
            }
        }
    }

    /// Everything owned is another's from now on.
    fn give_up(&mut self, reason: &'static str, out: &mut Vec<Command>) {
        let mut commands = Vec::new();
        self.executor.give_up(&mut commands);
        self.tenure.0 += 1;
        let tenure = self.tenure;
        out.extend(commands.into_iter().map(|command| Command::Executor(tenure, command)));
        out.push(Command::StopGuests { whose: Whose::Executor, reason });
    }

    /// Something may have come into the queues, planned by another node; and runs may have
    /// ended on others.
    fn arrived(&mut self, now: Now, arrived: Arrived, notices: &mut Vec<Notice>) {
        let Arrived { arrivals, runs } = arrived;
        let tasks = &self.work.tasks;
        let pinned = runs.iter().filter_map(|run| {
            let current = &tasks.get(&run.task)?.definition;
            let own = planner::definition_of(run, current);
            (*own != **current).then_some((run.id, own))
        });
        self.executor.pin_only(pinned.collect());
        self.executor.planned(arrivals.log, arrivals.timer);
        if let Some(at) = arrivals.retry {
            self.executor.revived(at.max(now.wall));
        }
        self.planner.still_active(&runs, notices);
    }

    /// Whether an answer for the planner is about this leadership.
    fn is_current(&self, term: Term) -> bool {
        self.loaded && self.election.leading().is_some_and(|fence| fence.term == term)
    }

    /// What the election wants.
    fn follow(
        &mut self,
        now: Now,
        elected: Vec<election::Command>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        for command in elected {
            match command {
                election::Command::Campaign { at_least } => {
                    out.push(Command::Campaign { at_least });
                }
                election::Command::Raise(fence) => out.push(Command::Raise(fence)),
                election::Command::Lead(fence) => out.push(Command::Load(fence)),
                election::Command::Renew(fence) => out.push(Command::Renew(fence)),
                election::Command::Resign(fence) => out.push(Command::Resign(fence)),
                election::Command::Cease { reason } => {
                    self.loaded = false;
                    self.load_at = None;
                    self.resignation.ceased();
                    self.planner.cease();
                    self.burial.cease();
                    notices.clear();
                    out.push(Command::StopGuests { whose: Whose::Planner, reason });
                    if self.holdings.is_none() {
                        self.give_up(reason, out);
                    }
                }
            }
        }
        if self.load_at.is_some_and(|at| at <= now.mono) {
            self.load_at = None;
            if let Some(fence) = self.election.leading() {
                out.push(Command::Load(fence.clone()));
            }
        }
    }

    fn on_loaded(
        &mut self,
        now: Now,
        fence: Fence,
        result: store::Result<Loaded>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        if self.election.leading() != Some(&fence) || self.loaded {
            return;
        }
        let Ok(loaded) = result else {
            self.load_at = Some(now.mono + self.settings.timing.retry());
            return;
        };
        self.loaded = true;
        if self.holdings.is_none() {
            self.tenure.0 += 1;
            self.executor.own(std::mem::take(&mut self.taken));
        } else {
            self.burial.look(now.mono);
        }
        let (term, mut commands) = (fence.term, Vec::new());
        self.planner.lead(now.wall, fence, loaded, &self.work.tasks, notices, &mut commands);
        out.extend(commands.into_iter().map(|command| Command::Planner(term, command)));
    }

    fn of_executor(
        &mut self,
        commands: Vec<executor::Command>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        for command in commands {
            if let executor::Command::Report(report) = &command {
                for run in &report.runs_ended {
                    self.planner.ended(*run, notices);
                }
                self.doubts |= report.disowned;
            }
            out.push(Command::Executor(self.tenure, command));
        }
    }

    /// Passes notices on, and begins whatever can be begun.
    fn go_on(&mut self, now: Now, notices: Vec<Notice>, out: &mut Vec<Command>) {
        let mut fenced = false;
        for notice in notices {
            match notice {
                Notice::Planned { to_log, earliest_due } => {
                    self.executor.planned(to_log, earliest_due);
                }
                Notice::Started(run, definition) => {
                    let current = self.work.tasks.get(&definition.name);
                    if current.is_none_or(|task| *task.definition != *definition) {
                        self.executor.pin(run, definition);
                    }
                }
                Notice::Ended(run) => self.executor.unpin(run),
                Notice::Revived => self.executor.revived(now.wall),
                Notice::Fenced => fenced = true,
                Notice::Resign => {
                    self.resignation.ask(now.mono + self.settings.drain_max);
                }
            }
        }
        if fenced {
            let mut elected = Vec::new();
            self.election.step(now.mono, election::Event::Fenced, &mut elected);
            self.follow(now, elected, &mut Vec::new(), out);
        }
        self.work_on(now, out);
        self.step_down(now, out);
        self.wind_down(now, out);
    }

    /// Gives the leadership up where that was asked for, and stands for it again later.
    fn step_down(&mut self, now: Now, out: &mut Vec<Command>) {
        if self.phase != Phase::Running || !self.bars.is_empty() {
            return;
        }
        // What a node of a cluster executes is not bound to the leadership.
        let finished = self.holdings.is_some() || self.executor.is_idle();
        let stand_again = now.mono + self.settings.timing.renew;
        if let Some(event) = self.resignation.step(now.mono, finished, stand_again) {
            let mut elected = Vec::new();
            self.election.step(now.mono, event, &mut elected);
            self.follow(now, elected, &mut Vec::new(), out);
        }
    }

    fn work_on(&mut self, now: Now, out: &mut Vec<Command>) {
        let leading = self.election.leading().cloned().filter(|_| self.loaded);
        let may_plan = self.election.may_begin(now.mono).is_some();
        let stays = self.phase == Phase::Running && !self.resignation.is_asked();
        if let Some(fence) = leading.filter(|_| may_plan && stays) {
            let (term, mut commands) = (fence.term, Vec::new());
            let idle = self.executor.is_drained(now.wall);
            self.planner.plan(now.wall, idle, &mut commands);
            out.extend(commands.into_iter().map(|command| Command::Planner(term, command)));
            if now.mono >= self.prune_at {
                self.prune_at = now.mono + self.settings.prune_every;
                out.push(Command::Prune(fence));
            }
        }
        let may_execute = match &self.holdings {
            Some(holdings) => holdings.may_begin(now.mono),
            None => may_plan && !self.resignation.is_asked(),
        };
        let mut commands = Vec::new();
        let random = &mut self.random;
        self.executor.fill(now.wall, may_execute, &mut || random.random(), &mut commands);
        self.of_executor(commands, &mut Vec::new(), out);
        if self.planner.pass_is_complete()
            && self.executor.is_drained(now.wall)
            && self.phase == Phase::Running
        {
            self.endless = self.planner.endless().to_vec();
            self.phase = Phase::Draining { until: now.mono };
        }
    }

    fn wind_down(&mut self, now: Now, out: &mut Vec<Command>) {
        if let Phase::Draining { until } = self.phase
            && (now.mono >= until || self.executor.is_idle())
        {
            self.phase = Phase::Resigning;
            let mut elected = Vec::new();
            self.election.step(now.mono, election::Event::Resign, &mut elected);
            self.follow(now, elected, &mut Vec::new(), out);
            let mut held = Vec::new();
            self.with_holdings(out, |holdings, commands| {
                holdings.leave(now.mono, &mut held, commands);
            });
            self.hold(now, held, &mut Vec::new(), out);
        }
        let has_left = self.holdings.as_ref().is_none_or(Holdings::has_left);
        if self.phase == Phase::Resigning && self.election.is_retired() && has_left {
            self.phase = Phase::Stopped;
            out.push(Command::Finished);
        }
    }
}

fn definitions(work: &Work) -> BTreeMap<TaskName, Arc<crate::task::TaskDefinition>> {
    work.tasks
        .iter()
        .map(|(name, scheduled)| (name.clone(), Arc::clone(&scheduled.definition)))
        .collect()
}
