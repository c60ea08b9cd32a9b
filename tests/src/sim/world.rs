//! The simulated world: its clock, its event queue, its nodes and its faults.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use besom_config::{Config, Overrides, RawConfig};
use besom_core::activity::Timeouts;
use besom_core::clock::{Skew, SkewBounds};
use besom_core::cron::Schedule;
use besom_core::ids::{Incarnation, Tenant, Term};
use besom_core::time::{Mono, Time};
use besom_doubles::activity::MemoryActivity;
use besom_doubles::coordination::{MemoryCoordination, MemoryLease};
use besom_doubles::store::{Backup, Fault, MemoryStore, On};
use besom_engine::host::clock::StoreTime;
use besom_engine::host::perform::{Cluster, Ports};
use besom_engine::host::setup;
use besom_node::planner::Scheduled;
use besom_node::{Bar, Command, Event, Node, Role, Whose, Work, executor, holdings};
use besom_ports::coordination::Coordination as _;
use besom_ports::guests::StopFlag;
use besom_ports::members::{Announcement, MemberState, Members as _};
use besom_ports::store::Store;
use futures::FutureExt;
use rand::rngs::StdRng;
use rand::{Rng, RngCore, SeedableRng};

use super::judge::{self, Violation};
use super::script;

/// The parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Determines all random choices.
    pub seed: u64,
    /// Hosts.
    pub nodes: usize,
    /// How long faults are injected.
    pub troubled: Duration,
    /// How long the world may take to come to rest afterwards.
    pub quiet: Duration,
    /// Whether the store checks fence and owner epochs. The checks have to detect a store that does
    /// not.
    pub fenced: bool,
    /// Whether the nodes share the partitions by the ring; otherwise the leader owns all of them.
    pub cluster: bool,
}

impl Plan {
    /// Three nodes, three minutes of faults.
    pub fn of(seed: u64) -> Plan {
        Plan {
            seed,
            nodes: 3,
            troubled: Duration::from_secs(180),
            quiet: Duration::from_secs(240),
            fenced: true,
            cluster: false,
        }
    }

    /// The same as a cluster.
    pub fn of_cluster(seed: u64) -> Plan {
        Plan { cluster: true, ..Plan::of(seed) }
    }
}

/// The result of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The violations.
    pub violations: Vec<Violation>,
    /// The number of things that the product has created.
    pub things: usize,
    /// The number of leaderships.
    pub terms: u64,
    /// Crashes, pauses, lost and doubled messages, faults of the store.
    pub troubles: u64,
    /// Events handled.
    pub events: u64,
}

const START: Time = Time::from_secs(1_800_000_000);
/// The maximum drift of a machine's clock, in parts per million.
const DRIFT_PPM: i64 = 200;
const READ_CLOCK_EVERY: Duration = Duration::from_secs(10);
const PARTITIONS: NonZeroU32 = NonZeroU32::new(8).unwrap();
const TENANTS: [&str; 4] = ["acme", "globex", "initech", "umbrella"];

/// A future event.
#[derive(Debug)]
enum Coming {
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
    /// A host starts (again).
    Start { node: usize },
    /// The product creates things.
    Product,
    /// The product postpones the due time of a thing, if it is still open.
    PutOff { tenant: Tenant, key: String, due: Time },
    /// The store is restored from a backup, taken when these things existed.
    Restore { backup: Backup, things: Vec<(Tenant, String)> },
    /// A fault.
    Trouble,
}

struct Host {
    node: Node,
    ports: Ports,
    store: Arc<MemoryStore>,
    coordination: Arc<MemoryCoordination>,
    /// For the guests that scan, and for those that act.
    stops: [StopFlag; 2],
    paused_until: Time,
    /// The latest term that its watcher has seen.
    term: Term,
    /// The wake-up that is planned: earlier ones than this are not repeated.
    wake_at: Option<Time>,
}

struct World {
    plan: Plan,
    /// A host's default settings.
    config: Config,
    random: StdRng,
    clock: Arc<AtomicI64>,
    coming: BinaryHeap<Reverse<(Time, u64)>>,
    what: BTreeMap<u64, Coming>,
    next: u64,
    root: MemoryStore,
    lease: Arc<MemoryLease>,
    hosts: Vec<Option<Host>>,
    lives: Vec<u64>,
    /// The difference of each machine's clock from the store's, in microseconds.
    skews: Vec<Arc<AtomicI64>>,
    /// By how many parts in a million each machine's clocks are too fast.
    drifts: Vec<i64>,
    things: Vec<(Tenant, String)>,
    /// The number of things ever created: more than exist, if some were lost by restoring a backup.
    made: usize,
    report: Report,
}

/// Runs one simulation to its end.
pub fn simulate(plan: Plan) -> Report {
    let clock = Arc::new(AtomicI64::new(START.micros()));
    let time = {
        let clock = Arc::clone(&clock);
        Arc::new(move || Time(clock.load(Ordering::Relaxed))) as Arc<dyn Fn() -> Time + Send + Sync>
    };
    let timeouts = Timeouts::default();
    let root = if plan.fenced {
        MemoryStore::new(PARTITIONS.get(), timeouts, Arc::clone(&time))
    } else {
        MemoryStore::broken_without_fence(PARTITIONS.get(), timeouts, Arc::clone(&time))
    };
    let collections = Arc::new(script::collections());
    root.set_collections(Arc::clone(&collections));
    for collection in collections.values() {
        root.create_table(collection, &[]);
    }
    let written = RawConfig::parse("", Path::new("besom.toml"), &Overrides::default());
    let config = written.outline(&collections).finish().expect("an empty file is valid");
    let mut world = World {
        plan,
        random: StdRng::seed_from_u64(plan.seed),
        clock,
        coming: BinaryHeap::new(),
        what: BTreeMap::new(),
        next: 0,
        root,
        lease: MemoryLease::new(config.lease.ttl, time),
        config,
        hosts: (0..plan.nodes).map(|_| None).collect(),
        lives: vec![0; plan.nodes],
        skews: (0..plan.nodes).map(|_| Arc::default()).collect(),
        drifts: vec![0; plan.nodes],
        things: Vec::new(),
        made: 0,
        report: Report::default(),
    };
    for node in 0..plan.nodes {
        world.drifts[node] = world.random.random_range(-DRIFT_PPM..=DRIFT_PPM);
        world.set_clock(node);
        let wait = world.random_millis(0, 2_000);
        world.schedule(wait, Coming::Start { node });
    }
    world.schedule(Duration::ZERO, Coming::Product);
    world.schedule(Duration::from_secs(5), Coming::Trouble);
    world.run();
    let leaders =
        world.hosts.iter().flatten().filter(|host| host.node.role() == Role::Leading).count();
    let mut report = world.report;
    report.things = world.things.len();
    if leaders != 1 {
        report.violations.push(Violation::Leaders(leaders));
    }
    judge::judge(&world.root, &world.things, &mut report);
    report
}

impl World {
    fn now(&self) -> Time {
        Time(self.clock.load(Ordering::Relaxed))
    }

    fn troubled(&self) -> bool {
        self.now() < START + self.plan.troubled
    }

    fn random_millis(&mut self, least: u64, most: u64) -> Duration {
        Duration::from_micros(self.random.random_range(least * 1_000..=most * 1_000))
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_ratio(1, one_in)
    }

    fn schedule(&mut self, wait: Duration, coming: Coming) {
        let at = self.now() + wait;
        self.coming.push(Reverse((at, self.next)));
        self.what.insert(self.next, coming);
        self.next += 1;
    }

    fn run(&mut self) {
        let end = START + self.plan.troubled + self.plan.quiet;
        while let Some(Reverse((at, number))) = self.coming.pop() {
            if at > end {
                return;
            }
            let Some(coming) = self.what.remove(&number) else { continue };
            self.clock.store(at.micros().max(self.now().micros()), Ordering::Relaxed);
            self.report.events += 1;
            self.happen(coming);
        }
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
            Coming::Deliver { node, life, event } => self.deliver(node, life, event),
            Coming::Perform { node, life, command, sent, stop } => {
                self.perform(node, life, command, sent, &stop);
            }
            Coming::Product => self.product(),
            Coming::PutOff { tenant, key, due } => self.put_off(&tenant, &key, due),
            Coming::Restore { backup, things } => {
                self.root.restore(backup);
                self.things = things;
            }
            Coming::Trouble => self.trouble(),
        }
    }

    fn alive(&mut self, node: usize, life: u64) -> Option<&mut Host> {
        if self.lives[node] == life { self.hosts[node].as_mut() } else { None }
    }

    fn start(&mut self, node: usize) {
        if self.hosts[node].is_some() {
            return;
        }
        self.lives[node] += 1;
        let life = self.lives[node];
        let name = Incarnation::from(format!("node-{node}-{life}"));
        let store = Arc::new(self.root.handle());
        let collections = Arc::new(script::collections());
        store.set_collections(Arc::clone(&collections));
        let hostname = format!("host-{node}");
        // A dead incarnation keeps the name of its member until its lease ends.
        let coordination = Arc::new(if self.plan.cluster {
            self.lease.handle_named(hostname.as_str().into(), name.clone(), &hostname)
        } else {
            self.lease.handle(name.clone(), &hostname)
        });
        let clock = Arc::clone(&self.clock);
        let time = Arc::new(move || Time(clock.load(Ordering::Relaxed)));
        let ports = Ports {
            coordination: coordination.clone(),
            cluster: self.plan.cluster.then(|| Cluster {
                members: coordination.clone(),
                announcement: Announcement {
                    addr: String::new(),
                    weight: NonZeroU32::MIN,
                    state: MemberState::Active,
                },
            }),
            store: store.clone(),
            clock: self.clock_of(node),
            clock_read_every: READ_CLOCK_EVERY,
            activity: Arc::new(MemoryActivity::new(Timeouts::default(), time)),
            guests: Arc::new(script::Script),
            health: Arc::default(),
            node: name.clone(),
            snapshot_max: self.config.host.act_snapshot_max,
            history_retention: Duration::from_secs(3_600),
            node_retention: Duration::from_secs(600),
            undo_retention: Vec::new(),
            recorder: Arc::default(),
            lines: Arc::default(),
            quota: Arc::default(),
            braking: Arc::default(),
            routed: Arc::default(),
            delivery: None,
        };
        let partitions = self.plan.cluster.then_some(PARTITIONS);
        let mut settings = setup::settings(&self.config, name, partitions, false);
        // Small limits, so that a few minutes with few items fill a window and a page and prune the
        // history.
        settings.executor.window = 32;
        settings.planner.page = 5;
        settings.prune_every = Duration::from_secs(45);
        let tasks = script::TASKS
            .iter()
            .map(|task| {
                let definition = script::definition(task);
                let expression = definition.schedule.clone().unwrap_or_default();
                let schedule = Schedule::parse(&expression, "UTC").expect("a schedule");
                let scheduled =
                    Scheduled { definition: Arc::new(definition), schedule: Some(schedule) };
                ((*task).into(), scheduled)
            })
            .collect();
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        // A host that cannot read the store's clock does not start.
        let skew = ports.clock.read(store.as_ref()).now_or_never().expect("never suspends");
        let barred = skew.expect("no fault is due") == Skew::TooLarge;
        let now = ports.clock.now();
        let node_machine =
            Node::new(settings, Work { tasks, collections, ..Work::default() }, seed, now);
        self.hosts[node] = Some(Host {
            node: node_machine,
            ports,
            store,
            coordination,
            stops: [StopFlag::default(), StopFlag::default()],
            paused_until: Time(i64::MIN),
            term: Term(0),
            wake_at: None,
        });
        let first = if barred { Event::Barred(Bar::Clock, true) } else { Event::Tick };
        self.deliver(node, life, first);
        self.schedule(READ_CLOCK_EVERY, Coming::ReadClock { node, life });
        if self.plan.cluster {
            self.look(node, life);
        }
    }

    /// What the watcher of a node reads: the members, eventually.
    fn look(&mut self, node: usize, life: u64) {
        let Some(host) = self.alive(node, life) else { return };
        let coordination = Arc::clone(&host.coordination);
        let seen = coordination.members().now_or_never().expect("never suspends");
        let leader = coordination.leader().now_or_never().expect("never suspends");
        if let Ok(members) = seen {
            let term = leader.ok().flatten().map_or(host.term, |leader| leader.term);
            host.term = host.term.max(term);
            let event = Event::Holdings(holdings::Event::Members(host.term, members));
            let wait = self.latency();
            self.schedule(wait, Coming::Deliver { node, life, event });
        }
        let wait = self.random_millis(100, 5_000);
        self.schedule(wait, Coming::Look { node, life });
    }

    /// The clocks of a machine: the monotonic clock drifts, and the wall clock differs from the
    /// store's.
    fn clock_of(&self, node: usize) -> Arc<StoreTime> {
        let (clock, drift) = (Arc::clone(&self.clock), self.drifts[node]);
        let mono = move || {
            let since = Time(clock.load(Ordering::Relaxed)).since(START).as_micros() as i64;
            Mono((1_000_000_000 + since + since * drift / 1_000_000).unsigned_abs())
        };
        let (clock, skew) = (Arc::clone(&self.clock), Arc::clone(&self.skews[node]));
        let wall = move || Time(clock.load(Ordering::Relaxed) + skew.load(Ordering::Relaxed));
        Arc::new(StoreTime::by(SkewBounds::DEFAULT, mono, wall))
    }

    /// The clock of a machine is set, to the right time or to a wrong one. One machine's clock is
    /// never so wrong that it does not lead.
    fn set_clock(&mut self, node: usize) {
        let most: i64 = match self.random.random_range(0..4) {
            0 => 0,
            1 => 900_000,
            _ if node == 0 => 9_000_000,
            2 => 60_000_000,
            _ => 7_200_000_000,
        };
        let skew = self.random.random_range(-most..=most);
        self.skews[node].store(skew, Ordering::Relaxed);
    }

    fn read_clock(&mut self, node: usize, life: u64) {
        let now = self.now();
        let Some(host) = self.alive(node, life) else { return };
        let wait = host.paused_until.since(now);
        if wait.is_zero() {
            let read = host.ports.clock.read(host.store.as_ref());
            let read = read.now_or_never().expect("adapters in memory never suspend");
            if let Ok(skew) = read {
                let event = Event::Barred(Bar::Clock, skew == Skew::TooLarge);
                self.deliver(node, life, event);
            }
        }
        self.schedule(wait + READ_CLOCK_EVERY, Coming::ReadClock { node, life });
    }

    fn deliver(&mut self, node: usize, life: u64, event: Event) {
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
        host.node.step(reading, event, &mut commands);
        let sleep = host.node.sleep(reading);
        for command in commands {
            match command {
                Command::Finished => {}
                Command::StopGuests { whose, reason } => {
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

    /// A command is sent: usually it arrives soon, sometimes late, sometimes twice.
    fn send(&mut self, node: usize, life: u64, command: Command) {
        let Some(host) = self.alive(node, life) else { return };
        let sent = host.ports.clock.now().mono;
        let acts = matches!(command, Command::Executor(..));
        let stop = host.stops[usize::from(acts)].clone();
        let troubled = self.troubled();
        if troubled && self.chance(200) && repeatable(&command) {
            self.report.troubles += 1;
            let wait = self.latency();
            let (command, stop) = (command.clone(), stop.clone());
            self.schedule(wait, Coming::Perform { node, life, command, sent, stop });
        }
        let wait = self.latency();
        self.schedule(wait, Coming::Perform { node, life, command, sent, stop });
    }

    fn latency(&mut self) -> Duration {
        if self.troubled() && self.chance(300) {
            self.report.troubles += 1;
            self.random_millis(1_000, 25_000)
        } else {
            self.random_millis(0, 12)
        }
    }

    fn perform(&mut self, node: usize, life: u64, command: Command, sent: Mono, stop: &StopFlag) {
        let troubled = self.troubled();
        let unlucky = troubled && self.chance(150);
        let lost = troubled && self.chance(400);
        // A message in transit survives its sender, or is lost with it.
        let orphaned = self.lives[node] != life || self.hosts[node].is_none();
        if orphaned && self.chance(2) {
            return;
        }
        let ports = match &self.hosts[node] {
            Some(host) if !orphaned => host.ports.clone(),
            _ => match self.ghost(node, life) {
                Some(ports) => ports,
                None => return,
            },
        };
        if unlucky && !orphaned {
            self.report.troubles += 1;
            let fault = match self.random.random_range(0..4) {
                0 => Fault::Busy,
                1 => Fault::Unavailable,
                2 => Fault::UnknownNotApplied,
                _ => Fault::UnknownApplied,
            };
            let host = self.hosts[node].as_ref().expect("not orphaned");
            match &command {
                Command::Executor(_, executor::Command::Commit(..)) => {
                    host.store.fail_next(On::Commit, fault);
                }
                Command::Campaign { .. }
                | Command::Renew(_)
                | Command::Holdings(holdings::Command::Join | holdings::Command::Keep) => {
                    host.coordination.lose_next_answer();
                }
                Command::TellOfStore(_) => host.coordination.lose_next_answer(),
                Command::Resign(_)
                | Command::Probe(..)
                | Command::StoreWentBack { .. }
                | Command::LookForBegun(_)
                | Command::StopGuests { .. }
                | Command::Finished => {}
                // Slots, pages, commands, the end of a scan, the fence, claims, records of begun
                // and abandoned batches, pruning: the first write of the command.
                Command::Executor(..)
                | Command::Planner(..)
                | Command::Raise(_)
                | Command::Load(_)
                | Command::Prune(_)
                | Command::Bury(..)
                | Command::Holdings(_) => host.store.fail_next(On::Write, fault),
            }
        }
        let answer = ports
            .perform(command.clone(), sent, stop)
            .now_or_never()
            .expect("adapters in memory never suspend");
        if lost && let Some(again) = unanswered(&command) {
            // The answer is lost; the caller eventually learns it by its timeout.
            self.report.troubles += 1;
            let wait = self.random_millis(2_000, 4_000);
            self.schedule(wait, Coming::Deliver { node, life, event: again });
            return;
        }
        if let Some(event) = answer {
            let wait = self.latency();
            self.schedule(wait, Coming::Deliver { node, life, event });
        }
    }

    /// The connections of an incarnation that is gone.
    fn ghost(&mut self, node: usize, life: u64) -> Option<Ports> {
        let host = self.hosts.iter().flatten().next()?;
        let name = Incarnation::from(format!("node-{node}-{life}"));
        let store = Arc::new(self.root.handle());
        store.set_collections(Arc::new(script::collections()));
        let coordination = Arc::new(self.lease.handle(name.clone(), "gone"));
        Some(Ports { store, coordination, node: name, ..host.ports.clone() })
    }

    fn product(&mut self) {
        if !self.troubled() {
            return;
        }
        for _ in 0..self.random.random_range(1..6) {
            let tenant = Tenant::from(TENANTS[self.random.random_range(0..TENANTS.len())]);
            let task = script::TASKS[self.random.random_range(0..script::TASKS.len())];
            let key = format!("{task}-{}", self.made);
            self.made += 1;
            let due = (task == "expire").then(|| {
                let wait = self.random_millis(0, 20_000);
                self.now() + wait
            });
            let changes: Vec<_> = script::thing(task, &key, due)
                .into_iter()
                .map(|change| (Some(tenant.clone()), change))
                .collect();
            self.root.write(&changes).expect("the product writes");
            if let Some(due) = due
                && self.chance(3)
            {
                // Usually at the last moment.
                let wait = due.since(self.now() + self.random_millis(0, 400));
                let due = due + self.random_millis(1_000, 15_000);
                let (tenant, key) = (tenant.clone(), key.clone());
                self.schedule(wait, Coming::PutOff { tenant, key, due });
            }
            self.things.push((tenant, key));
        }
        let wait = self.random_millis(200, 2_000);
        self.schedule(wait, Coming::Product);
    }

    fn put_off(&mut self, tenant: &Tenant, key: &str, due: Time) {
        if judge::is_open(&self.root, tenant, key) {
            let change = (Some(tenant.clone()), script::put_off(key, due));
            self.root.write(&[change]).expect("the product writes");
        }
    }

    fn trouble(&mut self) {
        if !self.troubled() {
            // Everything that is cut off is connected again; crashed hosts are being restarted.
            for host in self.hosts.iter().flatten() {
                host.coordination.set_away(false);
            }
            return;
        }
        self.report.troubles += 1;
        let node = self.random.random_range(0..self.plan.nodes);
        // The leader is the preferred victim.
        let leader = self
            .hosts
            .iter()
            .position(|host| host.as_ref().is_some_and(|host| host.node.role() == Role::Leading));
        let node = if self.chance(2) { leader.unwrap_or(node) } else { node };
        match self.random.random_range(0..13) {
            12 => {
                let (backup, things) = (self.root.back_up(), self.things.clone());
                let wait = self.random_millis(10, 60_000);
                self.schedule(wait, Coming::Restore { backup, things });
            }
            10..=11 => self.set_clock(node),
            0..=2 => {
                self.hosts[node] = None;
                let wait = self.random_millis(100, 20_000);
                self.schedule(wait, Coming::Start { node });
            }
            3..=6 => {
                let until = self.now() + self.random_millis(500, 40_000);
                if let Some(host) = &mut self.hosts[node] {
                    host.paused_until = until;
                }
            }
            7..=8 => {
                let away = self.chance(2);
                if let Some(host) = &self.hosts[node] {
                    host.coordination.set_away(away);
                }
            }
            _ => self.lease.expire(),
        }
        let wait = self.random_millis(500, 12_000);
        self.schedule(wait, Coming::Trouble);
    }
}

/// Whether a message may arrive twice. A begun batch is recorded by the connection that executes
/// it, in order; everything else has to tolerate repetition.
fn repeatable(command: &Command) -> bool {
    !matches!(
        command,
        Command::Executor(_, executor::Command::Act { .. } | executor::Command::Report(_))
    )
}

/// How a caller treats a missing answer.
fn unanswered(command: &Command) -> Option<Event> {
    use besom_ports::store::Error;
    Some(match command {
        Command::Renew(_) => Event::Renewed(Mono::START, None),
        Command::Holdings(holdings::Command::Keep) => {
            Event::Holdings(holdings::Event::Kept(Mono::START, None))
        }
        Command::Executor(tenure, executor::Command::Commit(ticket, batch)) => Event::Executor(
            *tenure,
            executor::Event::Committed(*ticket, batch.id, Err(Error::Unknown("no answer".into()))),
        ),
        _ => return None,
    })
}
