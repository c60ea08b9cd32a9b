//! The simulated world: its clock, its queue of events, and the messages of its nodes.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash as _, Hasher as _};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use besom_config::{Config, Overrides, RawConfig};
use besom_core::activity::Timeouts;
use besom_core::delivery;
use besom_core::ids::{FencingToken, Incarnation, Tenant, Term};
use besom_core::time::{Mono, Time};
use besom_doubles::coordination::MemoryLease;
use besom_doubles::store::{Backup, MemoryStore};
use besom_engine::host::perform::Ports;
use besom_node::{Command, Event, Role, Whose, executor, holdings};
use besom_ports::guests::StopFlag;
use besom_ports::store::{LeftOut, Outcome, Store as _};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::faults::{CALM, Dies, Doom, Luck, repeatable, unanswered, write_of};
use super::host::Host;
use super::invariants::{self, Invariant, Made, NodeAtRest, Rest, Step, Violation, now};
use super::script::{self, Stage};
use super::{Plan, Report, words};

pub(super) const START: Time = Time::from_secs(1_800_000_000);
pub(super) const PARTITIONS: NonZeroU32 = NonZeroU32::new(8).unwrap();
/// The maximum drift of a machine's clock, in parts per million.
const DRIFT_PPM: i64 = 200;

/// A future event.
#[derive(Debug)]
pub(super) enum Coming {
    /// A command of an incarnation reaches its port.
    Perform { node: usize, life: u64, command: Command, sent: Mono, stop: StopFlag },
    /// An answer reaches the incarnation that asked.
    Deliver { node: usize, life: u64, event: Event },
    /// A node handles the time.
    Wake { node: usize, life: u64 },
    /// A node reads the members.
    Look { node: usize, life: u64 },
    /// A node reads the store's clock.
    ReadClock { node: usize, life: u64 },
    /// A node writes its row.
    Report { node: usize, life: u64 },
    /// Delivery of a leader handles an event.
    Outbox { node: usize, life: u64, term: Term, event: delivery::Event },
    /// A command of delivery reaches the store or the receiver.
    Ask { node: usize, life: u64, fence: FencingToken, command: delivery::Command },
    /// A node measures the strain.
    Pace { node: usize, life: u64 },
    /// A host reaches the store again.
    Reconnect { node: usize, life: u64 },
    /// The load of the database has passed.
    Calm,
    /// A host starts (again).
    Start { node: usize },
    /// The product creates things.
    Product,
    /// The product postpones the due time of a thing, if it is still open.
    PutOff { tenant: Tenant, key: String, due: Time },
    /// An operator acts.
    Operate,
    /// The store is restored from a backup, taken when the product had done this.
    Restore { backup: Backup, made: Made },
    /// A fault.
    Trouble,
}

impl Coming {
    /// What happens, for the trace; `None`: too small to be told.
    fn words(&self) -> Option<String> {
        Some(match self {
            Coming::Perform { node, life, command, .. } => {
                format!("{} -> {}", name(*node, *life), words::command(command)?)
            }
            Coming::Deliver { node, life, event } => {
                format!("{} <- {}", name(*node, *life), words::event(event)?)
            }
            Coming::Ask { node, life, command, .. } => {
                format!("{} -> {}", name(*node, *life), words::delivery(command))
            }
            Coming::Reconnect { node, .. } => format!("host-{node} reaches the store again"),
            Coming::Calm => "the load of the database has passed".to_owned(),
            Coming::Start { node } => format!("host-{node} starts"),
            Coming::PutOff { key, due, .. } => {
                format!("the product puts {key} off to {}", words::time(*due))
            }
            Coming::Wake { .. }
            | Coming::Look { .. }
            | Coming::ReadClock { .. }
            | Coming::Pace { .. }
            | Coming::Outbox { .. }
            | Coming::Report { .. }
            | Coming::Product
            | Coming::Operate
            | Coming::Restore { .. }
            | Coming::Trouble => return None,
        })
    }

    fn node(&self) -> usize {
        match self {
            Coming::Perform { node, .. }
            | Coming::Deliver { node, .. }
            | Coming::Wake { node, .. }
            | Coming::Look { node, .. }
            | Coming::ReadClock { node, .. }
            | Coming::Report { node, .. }
            | Coming::Pace { node, .. }
            | Coming::Outbox { node, .. }
            | Coming::Ask { node, .. }
            | Coming::Reconnect { node, .. }
            | Coming::Start { node } => *node,
            _ => usize::MAX,
        }
    }
}

/// An incarnation of a node, which keeps its name over its lives.
pub(super) fn name(node: usize, life: u64) -> Incarnation {
    Incarnation::new(&format!("host-{node}"), life as u32)
}

/// Takes the lines of a trace.
pub type Trace<'t> = &'t mut dyn FnMut(String);

pub(super) struct World<'t> {
    pub(super) plan: Plan,
    /// A host's default settings.
    pub(super) config: Config,
    pub(super) random: StdRng,
    /// The true time.
    pub(super) clock: Arc<AtomicI64>,
    /// The difference of the store's clock from the true time, in microseconds.
    store_offset: Arc<AtomicI64>,
    /// By its time, and in the order in which it was scheduled.
    coming: BTreeMap<(Time, u64), Coming>,
    next: u64,
    pub(super) root: MemoryStore,
    pub(super) lease: Arc<MemoryLease>,
    pub(super) luck: Arc<Luck>,
    pub(super) stage: Arc<Stage>,
    /// The version of the plugins that is deployed.
    pub(super) version: u32,
    pub(super) hosts: Vec<Option<Host>>,
    pub(super) lives: Vec<u64>,
    /// Which hosts die at a write. Those that die otherwise before are still doomed.
    pub(super) dooms: Vec<Option<Doom>>,
    /// The difference of each machine's clock from the true time, in microseconds.
    pub(super) skews: Vec<Arc<AtomicI64>>,
    /// By how many parts in a million each machine's clocks are too fast.
    pub(super) drifts: Vec<i64>,
    pub(super) made: Made,
    /// The number of things ever created: more than exist, if some were lost by restoring a backup.
    pub(super) named: usize,
    invariants: Vec<Box<dyn Invariant>>,
    digest: DefaultHasher,
    trace: Option<Trace<'t>>,
    pub(super) report: Report,
}

/// Runs one simulation to its end.
pub fn simulate(plan: Plan) -> Report {
    World::new(plan, None).run()
}

/// The same, and tells every step.
pub fn simulate_traced(plan: Plan, trace: Trace<'_>) -> Report {
    World::new(plan, Some(trace)).run()
}

impl<'t> World<'t> {
    fn new(plan: Plan, trace: Option<Trace<'t>>) -> World<'t> {
        let clock = Arc::new(AtomicI64::new(START.micros()));
        let store_offset = Arc::new(AtomicI64::new(0));
        let (of_store, offset) = (Arc::clone(&clock), Arc::clone(&store_offset));
        let store_time: besom_doubles::store::Clock = Arc::new(move || {
            Time(of_store.load(Ordering::Relaxed) + offset.load(Ordering::Relaxed))
        });
        let of_lease = Arc::clone(&clock);
        let lease_time = Arc::new(move || Time(of_lease.load(Ordering::Relaxed)));
        let (partitions, timeouts) = (PARTITIONS.get(), Timeouts::default());
        let root = match plan.broken {
            None => MemoryStore::new(partitions, timeouts, store_time),
            Some(broken) => MemoryStore::broken(broken, partitions, timeouts, store_time),
        };
        let collections = Arc::new(script::collections());
        root.set_collections(Arc::clone(&collections));
        root.set_strain(CALM);
        for collection in collections.values() {
            root.create_table(collection, &[]);
        }
        let written = RawConfig::parse("", Path::new("besom.toml"), &Overrides::default());
        let config = written.outline(&collections).finish().expect("an empty file is valid");
        World {
            plan,
            random: StdRng::seed_from_u64(plan.seed),
            clock,
            store_offset,
            coming: BTreeMap::new(),
            next: 0,
            root,
            lease: MemoryLease::new(config.lease.ttl, lease_time),
            luck: Arc::new(Luck::new(plan.seed, START + plan.troubled)),
            stage: Arc::default(),
            version: 1,
            config,
            hosts: (0..plan.nodes).map(|_| None).collect(),
            lives: vec![0; plan.nodes],
            dooms: vec![None; plan.nodes],
            skews: (0..plan.nodes).map(|_| Arc::default()).collect(),
            drifts: vec![0; plan.nodes],
            made: Made::default(),
            named: 0,
            invariants: invariants::all(),
            digest: DefaultHasher::new(),
            trace,
            report: Report::default(),
        }
    }

    fn run(mut self) -> Report {
        for node in 0..self.plan.nodes {
            self.drifts[node] = self.random.random_range(-DRIFT_PPM..=DRIFT_PPM);
            self.set_clock(node);
            let wait = self.random_millis(0, 2_000);
            self.schedule(wait, Coming::Start { node });
        }
        self.schedule(Duration::ZERO, Coming::Product);
        self.schedule(Duration::from_secs(5), Coming::Trouble);
        self.schedule(Duration::from_secs(10), Coming::Operate);
        let end = START + self.plan.troubled + self.plan.quiet;
        while let Some(((at, _), coming)) = self.coming.pop_first() {
            if at > end || !self.report.violations.is_empty() {
                break;
            }
            self.clock.store(at.micros().max(self.now().micros()), Ordering::Relaxed);
            self.report.events += 1;
            self.tell(&coming);
            self.happen(coming);
        }
        if self.report.violations.is_empty() {
            self.rest();
        }
        self.report.things = self.made.things.len();
        self.report.writes = self.luck.hits();
        self.report.digest = self.digest.finish();
        for row in now(self.root.commands(None, u32::MAX)).expect("no read fails") {
            if row.applied_at.is_some() && !row.refused {
                *self.report.commands.entry(row.command.verb()).or_default() += 1;
            }
        }
        self.report
    }

    fn tell(&mut self, coming: &Coming) {
        (self.now(), std::mem::discriminant(coming), coming.node()).hash(&mut self.digest);
        if let Coming::Perform { command, .. } = coming {
            std::mem::discriminant(command).hash(&mut self.digest);
        }
        if self.trace.is_some()
            && let Some(words) = coming.words()
        {
            let state = self.state_of_receiver(coming);
            self.note(|| format!("{words}{state}"));
        }
    }

    /// Why the event reaches nobody, or only later.
    fn state_of_receiver(&self, coming: &Coming) -> &'static str {
        let (Coming::Perform { node, life, .. } | Coming::Deliver { node, life, .. }) = coming
        else {
            return "";
        };
        let host = self.hosts[*node].as_ref().filter(|_| self.lives[*node] == *life);
        match host {
            None => " [the node is dead]",
            Some(host) if self.now() < host.paused_until => " [the node is paused]",
            Some(_) => "",
        }
    }

    /// A line of the trace.
    pub(super) fn note(&mut self, words: impl FnOnce() -> String) {
        let (step, since) = (self.report.events, self.now().since(START));
        if let Some(trace) = &mut self.trace {
            trace(format!("{step:>7} {:>10.6} {}", since.as_secs_f64(), words()));
        }
    }

    /// Counts and tells a fault.
    pub(super) fn note_trouble(&mut self, kind: &'static str, said: impl FnOnce() -> String) {
        *self.report.troubles.entry(kind).or_default() += 1;
        self.note(|| format!("fault: {kind}: {}", said()));
    }

    pub(super) fn now(&self) -> Time {
        Time(self.clock.load(Ordering::Relaxed))
    }

    pub(super) fn troubled(&self) -> bool {
        self.now() < START + self.plan.troubled
    }

    pub(super) fn random_millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.random.random_range(least * 1_000..=most * 1_000))
    }

    pub(super) fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    pub(super) fn jump_store_clock(&mut self, offset: i64) {
        self.store_offset.store(offset, Ordering::Relaxed);
        self.check(|invariant| invariant.step(&Step::ClockJumped));
    }

    pub(super) fn schedule(&mut self, wait: Duration, coming: Coming) {
        let at = self.now() + wait;
        self.coming.insert((at, self.next), coming);
        self.next += 1;
    }

    fn happen(&mut self, coming: Coming) {
        match coming {
            Coming::Start { node } => self.start(node),
            Coming::Wake { node, life } => {
                let now = self.now();
                if let Some(host) = self.alive(node, life)
                    // A wake-up that an earlier one has replaced is ignored.
                    && host.wake_at == Some(now)
                {
                    host.wake_at = None;
                    self.deliver(node, life, Event::Tick);
                }
            }
            Coming::Look { node, life } => self.look(node, life),
            Coming::ReadClock { node, life } => self.read_clock(node, life),
            Coming::Report { node, life } => self.report_node(node, life),
            Coming::Pace { node, life } => self.pace(node, life),
            Coming::Outbox { node, life, term, event } => self.step_outbox(node, life, term, event),
            Coming::Ask { node, life, fence, command } => self.ask(node, life, &fence, command),
            Coming::Reconnect { node, life } => {
                if let Some(host) = self.alive(node, life) {
                    host.store.set_away(false);
                }
            }
            Coming::Calm => self.root.set_strain(CALM),
            Coming::Deliver { node, life, event } => self.deliver(node, life, event),
            Coming::Perform { node, life, command, sent, stop } => {
                self.perform(node, life, command, sent, &stop);
            }
            Coming::Product => self.product(),
            Coming::PutOff { tenant, key, due } => self.put_off(&tenant, &key, due),
            Coming::Operate => self.operate(),
            Coming::Restore { backup, made } => {
                self.note_trouble("store restored", || {
                    format!("to a backup with {} things", made.things.len())
                });
                self.root.restore(backup);
                self.made = made;
                self.check(|invariant| invariant.step(&Step::Restored));
            }
            Coming::Trouble => self.trouble(),
        }
    }

    pub(super) fn alive(&mut self, node: usize, life: u64) -> Option<&mut Host> {
        if self.lives[node] == life { self.hosts[node].as_mut() } else { None }
    }

    // ---- invariants

    /// Asks every invariant, and keeps what is wrong.
    pub(super) fn check(&mut self, mut ask: impl FnMut(&mut dyn Invariant) -> Vec<String>) {
        let (seed, step) = (self.plan.seed, self.report.events);
        for invariant in &mut self.invariants {
            let name = invariant.name();
            let wrong = ask(invariant.as_mut()).into_iter();
            let violation = |said| Violation { invariant: name, seed, step, said };
            self.report.violations.extend(wrong.map(violation));
        }
    }

    fn rest(&mut self) {
        let nodes: Vec<NodeAtRest> = self
            .hosts
            .iter()
            .flatten()
            .map(|host| NodeAtRest {
                name: host.ports.node.clone(),
                leads: host.node.role() == Role::Leading,
                owned: host
                    .node
                    .holdings()
                    .map(|holdings| holdings.ownership().owned().clone())
                    .unwrap_or_default(),
            })
            .collect();
        let (root, made) = (self.root.handle(), std::mem::take(&mut self.made));
        root.set_collections(Arc::new(script::collections()));
        let cluster = self.plan.cluster;
        let lost = self.luck.lost_requests();
        let rest = Rest { store: &root, made: &made, nodes: &nodes, cluster, lost: &lost };
        self.check(|invariant| invariant.rest(&rest));
        self.made = made;
    }

    // ---- messages

    pub(super) fn deliver(&mut self, node: usize, life: u64, event: Event) {
        let now = self.now();
        let Some(host) = self.alive(node, life) else { return };
        let reading = host.ports.clock.now();
        if now < host.paused_until {
            // A resumed process receives everything at once.
            let wait = host.paused_until.since(now);
            self.schedule(wait, Coming::Deliver { node, life, event });
            return;
        }
        let mut commands = Vec::new();
        let held = host.node.lease_left(reading.mono);
        host.node.step(reading, event, &mut commands);
        let sleep = host.node.sleep(reading);
        let holds = host.node.lease_left(reading.mono);
        // What a node sends before it gives its lease up in the same step, it sends under that lease.
        let mut lease_left = holds.or(held);
        let name = host.ports.node.clone();
        let leading = host.node.role() == Role::Leading;
        let term = host.node.fence().map(|fence| fence.term).filter(|_| leading);
        let before = std::mem::replace(&mut host.leads, term);
        if before != term {
            self.begin_delivery(node, life);
        }
        if let Some(term) = term.filter(|_| before != term) {
            self.report.terms = self.report.terms.max(term.0);
            let step = Step::Leads { node: &name, term };
            self.check(|invariant| invariant.step(&step));
            self.note(|| format!("{name} leads under term {term}"));
        }
        for command in commands {
            let cluster = self.plan.cluster;
            let step = Step::Sent { node: &name, command: &command, lease_left, cluster };
            self.check(|invariant| invariant.step(&step));
            match command {
                Command::Finished => self.finish(node, life),
                Command::StopGuests { whose, reason } => {
                    lease_left = holds;
                    if let Some(host) = self.alive(node, life) {
                        let stop = &mut host.stops[usize::from(whose == Whose::Executor)];
                        stop.raise(reason);
                        *stop = StopFlag::default();
                    }
                }
                command => self.send(node, life, command),
            }
        }
        if let Some(sleep) = sleep {
            // A timer has a resolution of a millisecond.
            let ms = sleep.as_micros().div_ceil(1_000).max(1) as u64;
            let wait = Duration::from_millis(ms);
            let at = now + wait;
            let Some(host) = self.alive(node, life) else { return };
            if host.wake_at.is_none_or(|planned| at < planned) {
                host.wake_at = Some(at);
                self.schedule(wait, Coming::Wake { node, life });
            }
        }
    }

    /// A host has stopped: its row is removed, and it starts again after a while.
    fn finish(&mut self, node: usize, life: u64) {
        let Some(host) = self.alive(node, life) else { return };
        // A row that stays is removed by pruning.
        let _ = now(host.store.forget_node(&host.ports.node));
        self.crash(node);
    }

    /// A command is sent: usually it arrives soon, sometimes late, sometimes twice.
    fn send(&mut self, node: usize, life: u64, command: Command) {
        let Some(host) = self.alive(node, life) else { return };
        let sent = host.ports.clock.now().mono;
        let acts = matches!(command, Command::Executor(..));
        let stop = host.stops[usize::from(acts)].clone();
        if self.troubled() && self.chance(200) && repeatable(&command) {
            self.note_trouble("doubled message", || of(node, life, &command));
            let wait = self.latency_of(node, life, &command);
            let (command, stop) = (command.clone(), stop.clone());
            self.schedule(wait, Coming::Perform { node, life, command, sent, stop });
        }
        let wait = self.latency_of(node, life, &command);
        self.schedule(wait, Coming::Perform { node, life, command, sent, stop });
    }

    /// How long an answer, or a message of delivery, is under way.
    pub(super) fn latency(&mut self, said: impl FnOnce() -> String) -> Duration {
        let wait = self.usual_latency();
        wait.unwrap_or_else(|| self.late("late message", said))
    }

    /// How long a command is under way.
    fn latency_of(&mut self, node: usize, life: u64, command: &Command) -> Duration {
        let keeps =
            matches!(command, Command::Renew(_) | Command::Holdings(holdings::Command::Keep));
        let kind = if keeps { "slow keep-alive" } else { "late message" };
        let wait = self.usual_latency();
        wait.unwrap_or_else(|| self.late(kind, || of(node, life, command)))
    }

    /// `None`: the message is late.
    fn usual_latency(&mut self) -> Option<Duration> {
        let is_late = self.troubled() && self.chance(300);
        (!is_late).then(|| self.random_millis(0, 12))
    }

    fn late(&mut self, kind: &'static str, said: impl FnOnce() -> String) -> Duration {
        let wait = self.random_millis(1_000, 25_000);
        self.note_trouble(kind, || format!("{} takes {:.3} s", said(), wait.as_secs_f64()));
        wait
    }

    fn perform(&mut self, node: usize, life: u64, command: Command, sent: Mono, stop: &StopFlag) {
        let lost = self.troubled() && self.chance(400);
        // A message in transit survives its sender, or is lost with it.
        let orphaned = self.lives[node] != life || self.hosts[node].is_none();
        if orphaned && self.chance(2) {
            return;
        }
        let ports = match &self.hosts[node] {
            Some(host) if !orphaned => Arc::clone(&host.ports),
            _ => match self.ghost(node, life) {
                Some(ports) => ports,
                None => return,
            },
        };
        let write = write_of(&command).filter(|_| !orphaned);
        let (mut dies, mut freezes) = (None, false);
        if let (Some(host), Some(write)) = (&mut self.hosts[node], write) {
            dies = self.dooms[node].take_if(|doom| doom.at.is_none_or(|at| at == write));
            freezes = std::mem::take(&mut host.freezes);
        }
        let dies = dies.map(|doom| doom.dies);
        if let (Some(dies), Some(write)) = (dies, write) {
            self.note_death(node, life, dies, write);
        }
        if dies == Some(Dies::Before) {
            return self.crash(node);
        }
        if freezes {
            self.freeze(node, life, &command);
        }
        if !orphaned && self.loses_answer(&command) {
            self.note_trouble("lost answer of the lease service", || of(node, life, &command));
            let host = self.hosts[node].as_ref().expect("not orphaned");
            host.coordination.lose_next_answer();
        }
        self.stage.take_called();
        let answer = now(ports.perform(command.clone(), sent, stop));
        let called = self.stage.take_called();
        let root = self.root.handle();
        let (at, answer_seen) = (self.now(), answer.as_ref());
        let step = Step::Performed {
            command: &command,
            answer: answer_seen,
            at,
            store: &root,
            called: &called,
        };
        self.check(|invariant| invariant.step(&step));
        if answer.as_ref().is_some_and(is_disowned) {
            self.report.disowned += 1;
        }
        if dies == Some(Dies::After) {
            self.note_unheard(node, life, answer.as_ref());
            return self.crash(node);
        }
        if lost && let Some(again) = unanswered(&command) {
            // The answer is lost; the caller eventually learns it by its timeout.
            self.note_trouble("lost answer", || of(node, life, &command));
            self.note_unheard(node, life, answer.as_ref());
            let wait = self.random_millis(2_000, 4_000);
            self.schedule(wait, Coming::Deliver { node, life, event: again });
            return;
        }
        if let Some(event) = answer {
            let wait = self.latency(|| {
                let said = words::event(&event).unwrap_or_default();
                format!("the answer to {}, {said},", name(node, life))
            });
            self.schedule(wait, Coming::Deliver { node, life, event });
        }
    }

    /// Tells an answer that does not arrive.
    fn note_unheard(&mut self, node: usize, life: u64, answer: Option<&Event>) {
        if let Some(said) = answer.filter(|_| self.trace.is_some()).and_then(words::event) {
            self.note(|| format!("{} does not learn: {said}", name(node, life)));
        }
    }

    /// The connections of an incarnation that is gone.
    fn ghost(&mut self, node: usize, life: u64) -> Option<Arc<Ports>> {
        let host = self.hosts.iter().flatten().next()?;
        let name = name(node, life);
        let store = self.connect();
        let (coordination, cluster) = self.coordination(node, &name);
        let ports = Ports::clone(&host.ports);
        Some(Arc::new(Ports { store, coordination, cluster, node: name, ..ports }))
    }
}

/// A command of a node, in words.
fn of(node: usize, life: u64, command: &Command) -> String {
    let said =
        words::command(command).unwrap_or_else(|| "something without consequences".to_owned());
    format!("{} {said}", name(node, life))
}

/// Whether a batch has met a partition that its node does not own any more.
fn is_disowned(answer: &Event) -> bool {
    let Event::Executor(_, executor::Event::Committed(_, _, Ok(committed))) = answer else {
        return false;
    };
    committed.outcomes.contains(&Outcome::Left(LeftOut::NotOwner))
}
