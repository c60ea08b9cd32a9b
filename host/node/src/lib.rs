//! One node as a state machine: events in, commands out.
//!
//! The node combines three machines: the election (whether this node leads), the planner (what has
//! to be done) and the executor (doing it). It has no clock, no randomness of its own and no I/O:
//! the shell passes the current time and the answers in, and carries the commands out. The
//! simulation uses the same machine with simulated time and failures.
//!
//! ```text
//!             ┌───────── Node ──────────┐
//! events ───> │ election  planner  exec │ ───> commands
//!    ^        └─────────────────────────┘          │
//!    └───────────────── shell <────────────────────┘
//! ```

pub mod executor;
#[cfg(test)]
mod fixture;
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

use besom_core::backoff::Backoff;
use besom_core::brake::Brakes;
use besom_core::burial::Burial;
use besom_core::collection::Collections;
use besom_core::election::{self, CampaignResult, Election, RaiseResult, Timing};
use besom_core::ids::{FencingToken, Incarnation, OwnerEpoch, Partition, TaskName, Term};
use besom_core::reach::{self, Away, Reach};
use besom_core::time::{Mono, Time};
use besom_core::undo;
pub use besom_snapshot::Role;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use besom_ports::members::MemberState;
use besom_ports::store;
use executor::Executor;
use holdings::{Arrived, Holdings};
use planner::{Endless, Loaded, Notice, Planner, Scheduled};
use resignation::Resignation;

/// The current time, read once per event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// The store's clock, used for schedules and due times: a lower bound of what it shows.
    pub wall: Time,
    /// The monotonic clock that the lease is measured with.
    pub mono: Mono,
}

/// The settings of a node, from the configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// This incarnation of the node.
    pub node: Incarnation,
    /// The timing of the lease.
    pub timing: Timing,
    /// The limits of execution.
    pub executor: executor::Settings,
    /// The limits and intervals of planning.
    pub planner: planner::Settings,
    /// How long a stopping node waits for work in flight.
    pub drain_max: Duration,
    /// How often old history is removed.
    pub prune_every: Duration,
    /// How a cluster node acquires partitions; `None`: the leader owns all of them.
    pub cluster: Option<holdings::Settings>,
}

/// One period of owning partitions, from its beginning until all of them were released. Answers
/// from an earlier tenure concern partitions that may belong to another node and are dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenure(pub u64);

/// A group of guest calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// The calls that scan for the leader.
    Planner,
    /// The calls that act for an owner.
    Executor,
}

/// The tasks and collections of the node. A reload replaces them as a whole.
#[derive(Debug, Clone, Default)]
pub struct Work {
    /// The configured tasks with their schedules.
    pub tasks: BTreeMap<TaskName, Scheduled>,
    /// The configured tasks that a pass leaves out, with their brakes: commands about them are applied.
    pub left_out: BTreeMap<TaskName, Brakes>,
    /// The mapped collections.
    pub collections: Arc<Collections>,
}

/// An input of the node.
#[derive(Debug)]
pub enum Event {
    /// Time has passed.
    Tick,
    /// The leadership may have changed hands; the node has to check.
    LeaderChanged,
    /// The answer to a campaign that was sent at that time.
    Campaigned(Mono, CampaignResult),
    /// The answer to a renewal that was sent at that time.
    Renewed(Mono, Option<bool>),
    /// The lease was released.
    Resigned,
    /// The lease could not be released. The node tries again, because the membership may keep the
    /// lease alive.
    NotResigned(FencingToken),
    /// The result of raising the fence.
    Raised(FencingToken, Raise),
    /// The stored state of the tasks, for the leadership with that fencing token.
    Loaded(FencingToken, store::Result<Loaded>),
    /// An answer for the executor, with the tenure in which the command was issued.
    Executor(Tenure, executor::Event),
    /// An answer for the membership and the partitions of a cluster node.
    Holdings(holdings::Event),
    /// An answer for the planner, with the term under which the command was issued.
    Planner(Term, planner::Event),
    /// Sets or clears a condition that keeps the node from leading.
    Barred(Bar, bool),
    /// The incarnations with begun batches, as requested by the leader with that fencing token.
    Begun(FencingToken, store::Result<Vec<Incarnation>>),
    /// The result of a probe of the store.
    Probed {
        /// When the probe was sent.
        begun: Mono,
        /// Whether the store answered.
        answered: bool,
        /// The term that the store has recorded; `None`: unknown.
        term: Option<Term>,
    },
    /// The store has lost data that this node has written: it was restored to an earlier state.
    StoreWentBack,
    /// Whether the other members could be informed of this state of the store.
    ToldOfStore(Option<Away>, bool),
    /// Old history was removed. `true`: there is more to remove.
    Pruned(store::Result<bool>),
    /// A command was submitted for the leader.
    Nudged,
    /// The configuration has changed.
    Reconfigured(Work),
    /// Stop: finish the work in flight and release the lease.
    Shutdown,
}

/// A condition that keeps a node from leading. While it holds, a leader resigns and the node does
/// not campaign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bar {
    /// The node's clock differs too much from the store's.
    Clock,
    /// The node cannot reach the store, but other nodes can.
    Store,
}

/// The result of raising the fence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raise {
    /// The store has recorded this node's term, and the node owns these partitions.
    Done(Vec<(Partition, OwnerEpoch)>),
    /// The store has already recorded this term or a higher one.
    Fenced(Term),
    /// The store did not answer.
    Failed,
}

/// An output of the node: work for the shell.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Request the lease, under a term above `at_least`.
    Campaign {
        /// The highest term known to be in use.
        at_least: Option<Term>,
    },
    /// Renew the lease.
    Renew(FencingToken),
    /// Release the lease.
    Resign(FencingToken),
    /// Raise the store's fence and take the partitions over.
    Raise(FencingToken),
    /// Read the stored state of the tasks. On a single machine, first count the deaths of earlier
    /// hosts: there, only the leader executes items.
    Load(FencingToken),
    /// Find the incarnations with begun batches.
    LookForBegun(FencingToken),
    /// Count the deaths of items that these dead incarnations had begun.
    Bury(FencingToken, Vec<Incarnation>),
    /// Stop these guest calls, whose results are no longer needed.
    StopGuests {
        /// The calls to stop.
        whose: Whose,
        /// The reason, for the log.
        reason: &'static str,
    },
    /// A command of the executor.
    Executor(Tenure, executor::Command),
    /// A command of the membership and the partitions of a cluster node.
    Holdings(holdings::Command),
    /// A command of the planner.
    Planner(Term, planner::Command),
    /// Send the store an inexpensive query. The time identifies the probe; it counts as failed if
    /// it has no answer within the given duration.
    Probe(Mono, Duration),
    /// Report that the store is older than this node has seen it.
    StoreWentBack {
        /// The highest term seen in the store.
        seen: Term,
    },
    /// Inform the other members whether this node reaches the store.
    TellOfStore(Option<Away>),
    /// Remove old history.
    Prune(FencingToken),
    /// The node has stopped.
    Finished,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Draining { until: Mono },
    Resigning,
    Stopped,
}

/// The state machine of one node.
#[derive(Debug)]
pub struct Node {
    settings: Settings,
    work: Work,
    election: Election,
    planner: Planner,
    executor: Executor,
    /// The membership and partitions; only in a cluster.
    holdings: Option<Holdings>,
    /// The store no longer has what this node has read: it was restored, or another node owns
    /// something that this node believes to own.
    doubts: bool,
    tenure: Tenure,
    /// Partitions taken over with the fence, kept here until the state of the tasks is loaded.
    taken: Vec<(Partition, OwnerEpoch)>,
    phase: Phase,
    resignation: Resignation,
    /// The conditions that keep the node from campaigning.
    bars: BTreeSet<Bar>,
    reach: Reach,
    /// The highest term that this node has seen in the store.
    fence_seen: Option<Term>,
    /// `fence_seen` when the probe under way was sent: its answer may be older than later
    /// observations.
    fence_before_probe: Option<Term>,
    /// The members whose work has to end before the deaths of their items are counted; only in a
    /// cluster.
    burial: Burial,
    loaded: bool,
    load_at: Option<Mono>,
    /// Whether messages are being delivered.
    delivering: bool,
    prune_at: Mono,
    /// When all stored state that is cached in memory is read again.
    reread_at: Mono,
    random: StdRng,
    /// The time of the last step.
    last: Now,
    endless: Option<Endless>,
}

/// How often all stored state that is cached in memory is read again.
const REREAD_EVERY: Duration = Duration::from_secs(60);

impl Node {
    /// Creates a node that campaigns immediately. `seed` is its only source of randomness.
    pub fn new(settings: Settings, work: Work, seed: [u8; 32], now: Now) -> Node {
        let mut executor = Executor::new(settings.node.clone(), settings.executor.clone());
        executor.define(definitions(&work), Arc::clone(&work.collections));
        let mut planner = Planner::new(settings.planner);
        planner.leave_out(&work.left_out);
        Node {
            election: Election::new(settings.timing, now.mono),
            planner,
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
            delivering: false,
            // Sooner at first: a host that is often restarted prunes as well.
            prune_at: now.mono + settings.prune_every / 4,
            reread_at: now.mono + REREAD_EVERY,
            random: StdRng::from_seed(seed),
            last: now,
            endless: None,
            work,
            settings,
        }
    }

    /// The tasks of a pass that still planned items when it was ended; none: it has found nothing new.
    pub fn endless(&self) -> Option<&Endless> {
        self.endless.as_ref()
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

    /// The fencing token of its leadership; `None`: it does not lead.
    pub fn fence(&self) -> Option<&FencingToken> {
        self.election.leading()
    }

    /// How long the node may still rely on its lease.
    pub fn lease_left(&self, now: Mono) -> Option<Duration> {
        self.election.trusted_for(now)
    }

    /// Its membership and partitions; `None`: the node is not in a cluster.
    pub fn holdings(&self) -> Option<&Holdings> {
        self.holdings.as_ref()
    }

    /// Whether the node reaches the store.
    pub fn reach(&self) -> &Reach {
        &self.reach
    }

    /// The planner, for inspection.
    pub fn planner(&self) -> &Planner {
        &self.planner
    }

    /// The executor, for inspection.
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Whether messages are being delivered, which a stopping or resigning node waits for.
    pub fn set_delivering(&mut self, delivering: bool) {
        self.delivering = delivering;
    }

    /// Whether the node only finishes what is under way, to stop or to resign.
    pub fn finishes_work(&self) -> bool {
        self.phase != Phase::Running || self.resignation.is_asked()
    }

    /// How long the shell may sleep if no answer arrives; `None`: until an answer arrives.
    ///
    /// Work that was due in the last step was attempted then and is waiting for an answer or for
    /// the leadership, so that only later deadlines count.
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

    /// Processes an event and appends the resulting commands to `out`.
    pub fn step(&mut self, now: Now, event: Event, out: &mut Vec<Command>) {
        let mut elected = Vec::new();
        let mut notices = Vec::new();
        let mut held = Vec::new();
        self.last = now;
        if let Event::Planner(..) | Event::Executor(..) | Event::Loaded(..) | Event::Begun(..) =
            event
        {
            // A process that was stopped receives old answers: nothing follows from them after the end of
            // the lease. A renewal on its way may still prolong it.
            let mut over = Vec::new();
            self.election.step(now.mono, election::Event::Tick, &mut over);
            self.apply_election(now, over, &mut notices, out);
        }
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
            // An answer about an earlier lease says nothing about the current state of the store.
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
            // A commit that landed after a short loss of the partitions: the items that it put back
            // are in no window.
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
                    let node = &self.settings.node;
                    let own = members.members.iter().find(|member| member.incarnation == *node);
                    if let Some(own) = own {
                        let away = own.store_away.as_ref();
                        let away = away.map(|away| Away { since: away.since, aside: away.aside });
                        self.reached(now, reach::Event::Registered(away), &mut elected, out);
                    }
                }
                self.with_holdings(out, |holdings, commands| {
                    holdings.step(now.mono, event, &mut held, commands);
                });
            }
            Event::Begun(fence, begun) if self.is_current(fence.term) => {
                let members = self.holdings.as_ref().and_then(Holdings::members);
                let members: Vec<Incarnation> = members
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
            // Answers to commands of an earlier leadership or tenure are dropped.
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
                // A shorter retention takes effect at once.
                self.prune_at = self.prune_at.min(now.mono);
            }
            Event::Shutdown => {
                if self.phase == Phase::Running {
                    self.executor.drain(now.wall);
                    self.phase = Phase::Draining { until: now.mono + self.settings.drain_max };
                }
            }
        }
        if self.probes() {
            self.reached(now, reach::Event::Tick, &mut elected, out);
        }
        if now.mono >= self.reread_at {
            self.read_again(now, false);
        }
        let doubts = std::mem::take(&mut self.doubts);
        if doubts && self.holdings.is_none() {
            // A leader that owns every partition took them over with its fence. If the store has
            // other owners under the same term, it was restored: the fence is raised again.
            self.election.step(now.mono, election::Event::StoreWentBack, &mut elected);
        }
        self.election.step(now.mono, election::Event::Tick, &mut elected);
        self.apply_election(now, elected, &mut notices, out);
        self.with_holdings(out, |holdings, commands| {
            if doubts {
                holdings.doubt(now.mono, &mut held, commands);
            }
            holdings.tick(now.mono, &mut held, commands);
        });
        self.apply_holdings(now, held, &mut notices, out);
        self.apply_notices(now, notices, out);
        if let Some(fence) = self.election.leading().filter(|_| self.loaded)
            && self.burial.is_due(now.mono)
        {
            out.push(Command::LookForBegun(fence.clone()));
        }
    }

    /// Processes a term that was read from the store. A term below `fence_seen` shows that the
    /// store was restored to an earlier state.
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

    /// The store is older than this node: all cached state is read again.
    fn store_went_back(&mut self, out: &mut Vec<Command>) {
        self.read_again(self.last, true);
        self.doubts = true;
        out.push(Command::StoreWentBack { seen: self.fence_seen.unwrap_or_default() });
    }

    /// Discards all cached state of the store. After a failover, a server may lack the last
    /// transactions that it had confirmed, without reporting it.
    fn read_again(&mut self, now: Now, went_back: bool) {
        self.reread_at = now.mono + REREAD_EVERY;
        self.executor.read_again();
        self.planner.read_again(went_back);
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
            // A node that was also asked to resign stays out of the election for the time that the
            // resignation requires.
            (true, false)
                if self.phase == Phase::Running && self.resignation.deadline().is_none() =>
            {
                election::Event::Rejoin
            }
            _ => return,
        };
        self.election.step(now.mono, event, elected);
    }

    /// Whether the node has to know if it reaches the store: it has not left yet.
    fn probes(&self) -> bool {
        matches!(self.phase, Phase::Running | Phase::Draining { .. })
    }

    /// Applies a change in whether the node reaches the store.
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

    /// Applies the notices of the membership and the partitions.
    fn apply_holdings(
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
                holdings::Notice::Cease(reason) => self.abandon_work(reason, out),
                holdings::Notice::StoreWentBack => self.store_went_back(out),
                holdings::Notice::ClaimedUnder(term) => {
                    let mut elected = Vec::new();
                    let event = election::Event::ClaimedUnder(term);
                    self.election.step(now.mono, event, &mut elected);
                    self.apply_election(now, elected, notices, out);
                }
                holdings::Notice::Arrived(arrived) => self.arrived(now, arrived, notices),
                holdings::Notice::Gone if self.loaded => self.burial.look(now.mono),
                // The leader counts their deaths.
                holdings::Notice::Gone => {}
            }
        }
    }

    /// Releases all partitions.
    fn abandon_work(&mut self, reason: &'static str, out: &mut Vec<Command>) {
        let mut commands = Vec::new();
        self.executor.give_up(&mut commands);
        self.tenure.0 += 1;
        let tenure = self.tenure;
        out.extend(commands.into_iter().map(|command| Command::Executor(tenure, command)));
        out.push(Command::StopGuests { whose: Whose::Executor, reason });
    }

    /// Processes arrivals that another node has planned, and runs that other nodes have ended.
    fn arrived(&mut self, now: Now, arrived: Arrived, notices: &mut Vec<Notice>) {
        let Arrived { arrivals, runs, paused } = arrived;
        let tasks = &self.work.tasks;
        // A leader knows sooner.
        if !self.loaded {
            let all = paused.iter().any(TaskName::is_all);
            let is_paused =
                |task: &&TaskName| all && undo::stops_with_all(task) || paused.contains(*task);
            self.executor.pause(tasks.keys().filter(is_paused).cloned().collect());
        }
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

    /// Whether an answer for the planner belongs to the current leadership.
    fn is_current(&self, term: Term) -> bool {
        self.loaded && self.election.leading().is_some_and(|fence| fence.term == term)
    }

    /// Carries out the commands of the election.
    fn apply_election(
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
                election::Command::Lead(fence) => {
                    // A process that was stopped can win and lose the lease in one step.
                    if self.election.leading() == Some(&fence) {
                        out.push(Command::Load(fence));
                    }
                }
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
                        self.abandon_work(reason, out);
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
        fence: FencingToken,
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
                if report.committed + report.dead > 0 {
                    self.planner.note_effects();
                }
                self.planner.note_kept(report.kept);
                for run in &report.runs_ended {
                    self.planner.ended(*run, notices);
                }
                self.doubts |= report.disowned;
            }
            out.push(Command::Executor(self.tenure, command));
        }
    }

    /// Applies notices and starts all work that can be started.
    fn apply_notices(&mut self, now: Now, notices: Vec<Notice>, out: &mut Vec<Command>) {
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
                Notice::Discarded => self.executor.read_again(),
                Notice::Fenced => fenced = true,
                Notice::Resign => {
                    self.resignation.ask(now.mono + self.settings.drain_max);
                }
            }
        }
        if fenced {
            let mut elected = Vec::new();
            self.election.step(now.mono, election::Event::Fenced, &mut elected);
            self.apply_election(now, elected, &mut Vec::new(), out);
        }
        self.begin_work(now, out);
        self.resign_if_asked(now, out);
        self.drain(now, out);
    }

    /// Resigns if that was requested, and campaigns again later.
    fn resign_if_asked(&mut self, now: Now, out: &mut Vec<Command>) {
        if self.phase != Phase::Running || !self.bars.is_empty() {
            return;
        }
        // In a cluster, execution does not depend on the leadership.
        let finished = (self.holdings.is_some() || self.executor.is_idle()) && !self.delivering;
        let stand_again = now.mono + self.settings.timing.renew;
        if let Some(event) = self.resignation.step(now.mono, finished, stand_again) {
            let mut elected = Vec::new();
            self.election.step(now.mono, event, &mut elected);
            self.apply_election(now, elected, &mut Vec::new(), out);
        }
    }

    fn begin_work(&mut self, now: Now, out: &mut Vec<Command>) {
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
        if let Some(paused) = self.planner.changed_pauses() {
            self.executor.pause(paused);
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
            self.endless = self.planner.endless().cloned();
            self.phase = Phase::Draining { until: now.mono };
        }
    }

    fn drain(&mut self, now: Now, out: &mut Vec<Command>) {
        if let Phase::Draining { until } = self.phase
            && (now.mono >= until || self.executor.is_idle() && !self.delivering)
        {
            self.phase = Phase::Resigning;
            let mut elected = Vec::new();
            self.election.step(now.mono, election::Event::Resign, &mut elected);
            self.apply_election(now, elected, &mut Vec::new(), out);
            let mut held = Vec::new();
            self.with_holdings(out, |holdings, commands| {
                holdings.leave(now.mono, &mut held, commands);
            });
            self.apply_holdings(now, held, &mut Vec::new(), out);
        }
        let has_left = self.holdings.as_ref().is_none_or(Holdings::has_left);
        if self.phase == Phase::Resigning && self.election.is_retired() && has_left {
            self.phase = Phase::Stopped;
            out.push(Command::Finished);
        }
    }
}

/// The pauses after most failures.
const HOLDS: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));

fn definitions(work: &Work) -> BTreeMap<TaskName, Arc<besom_ports::task::TaskDefinition>> {
    work.tasks
        .iter()
        .map(|(name, scheduled)| (name.clone(), Arc::clone(&scheduled.definition)))
        .collect()
}
