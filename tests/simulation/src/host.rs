//! A host of the world: its node, its ports, its clocks, and what it reports about itself.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use besom_core::activity::Timeouts;
use besom_core::clock::{Skew, SkewBounds};
use besom_core::cron::Schedule;
use besom_core::ids::{Incarnation, Term};
use besom_core::pace::INTERVAL;
use besom_core::time::{Mono, Time};
use besom_doubles::activity::MemoryActivity;
use besom_doubles::coordination::MemoryCoordination;
use besom_doubles::store::{Fault, MemoryStore};
use besom_engine::host::clock::StoreTime;
use besom_engine::host::health::Health;
use besom_engine::host::perform::{Cluster, Ports};
use besom_engine::host::{keep_removed, setup, undo};
use besom_node::planner::Scheduled;
use besom_node::{Bar, Event, Node, Work, holdings};
use besom_ports::coordination::Coordination as _;
use besom_ports::guests::StopFlag;
use besom_ports::members::{Announcement, MemberState, Members as _};
use besom_ports::store::{NodeRow, RunLine, Store as _};
use rand::RngCore as _;

use super::delivery::Outbox;
use super::faults::Luck;
use super::invariants::now;
use super::script;
use super::world::{Coming, PARTITIONS, START, World, name};

pub(super) const READ_CLOCK_EVERY: Duration = Duration::from_secs(10);
/// How often a host writes its row.
const REPORT_EVERY: Duration = Duration::from_secs(2);
/// How many rows without an answer a host remembers.
const UNANSWERED_MAX: usize = 16;

pub(super) struct Host {
    pub(super) node: Node,
    pub(super) ports: Arc<Ports>,
    pub(super) store: Arc<MemoryStore>,
    pub(super) coordination: Arc<MemoryCoordination>,
    /// For the guests that scan, and for those that act.
    pub(super) stops: [StopFlag; 2],
    pub(super) paused_until: Time,
    /// Whether it freezes in the transaction of its next write.
    pub(super) freezes: bool,
    /// The latest term that its watcher has seen.
    term: Term,
    /// The term that it leads under.
    pub(super) leads: Option<Term>,
    /// The delivery of messages while it leads.
    pub(super) outbox: Option<Outbox>,
    /// The wake-up that is planned: earlier ones than this are not repeated.
    pub(super) wake_at: Option<Time>,
    /// The rows that it has written since the last answer.
    rows: Vec<Time>,
    /// Whether the store has confirmed a row.
    is_confirmed: bool,
}

/// The tasks with a version of their plugins.
pub(super) fn work(version: u32) -> Work {
    let tasks = script::TASKS.iter().map(|task| {
        let definition = script::definition(task, version);
        let expression = definition.schedule.clone().unwrap_or_default();
        let schedule = Schedule::parse(&expression, "UTC").expect("a schedule");
        let scheduled = Scheduled { definition: Arc::new(definition), schedule: Some(schedule) };
        ((*task).into(), scheduled)
    });
    let collections = Arc::new(script::collections());
    let mut work = Work { tasks: tasks.collect(), collections, ..Work::default() };
    undo::add(&mut work);
    work
}

impl World<'_> {
    /// A connection of a host to the store, whose writes may fail.
    pub(super) fn connect(&self) -> Arc<MemoryStore> {
        self.connect_by(Luck::of_host)
    }

    /// A connection to the store whose faults these are.
    pub(super) fn connect_by(
        &self,
        fault: fn(&Luck, &'static str, Time) -> Option<Fault>,
    ) -> Arc<MemoryStore> {
        let store = Arc::new(self.root.handle());
        store.set_collections(Arc::new(script::collections()));
        let (luck, clock) = (Arc::clone(&self.luck), Arc::clone(&self.clock));
        let time = move || Time(clock.load(Ordering::Relaxed));
        store.fail_by(Arc::new(move |write| fault(&luck, write, time())));
        store
    }

    /// An incarnation's handles of the lease service.
    pub(super) fn coordination(
        &self,
        node: usize,
        name: &Incarnation,
    ) -> (Arc<MemoryCoordination>, Option<Cluster>) {
        let hostname = format!("host-{node}");
        if !self.plan.cluster {
            return (Arc::new(self.lease.handle(name.clone(), &hostname)), None);
        }
        // A dead incarnation keeps the name of its member until its lease ends.
        let member = hostname.as_str().into();
        let coordination = Arc::new(self.lease.handle_named(member, name.clone(), &hostname));
        let announcement = Announcement {
            addr: String::new(),
            weight: NonZeroU32::MIN,
            state: MemberState::Active,
        };
        let cluster = Cluster { members: coordination.clone(), announcement };
        (coordination, Some(cluster))
    }

    pub(super) fn start(&mut self, node: usize) {
        if self.hosts[node].is_some() {
            return;
        }
        self.lives[node] += 1;
        let life = self.lives[node];
        let name = name(node, life);
        let store = self.connect();
        let work = work(self.version);
        let (coordination, cluster) = self.coordination(node, &name);
        let clock = Arc::clone(&self.clock);
        let time = Arc::new(move || Time(clock.load(Ordering::Relaxed)));
        let plugins = Arc::new(script::Script(Arc::clone(&self.stage)));
        let ports = Ports {
            coordination: coordination.clone(),
            cluster,
            store: store.clone(),
            clock: self.clock_of(node),
            clock_read_every: READ_CLOCK_EVERY,
            activity: Arc::new(MemoryActivity::new(Timeouts::default(), time)),
            guests: Arc::new(undo::Undoing::new(plugins, undo::Proposer::new(store.clone(), []))),
            health: Arc::new(self.health_of(node)),
            node: name.clone(),
            snapshot_max: self.config.host.act_snapshot_max,
            history_retention: Duration::from_secs(3_600),
            node_retention: Duration::from_secs(600),
            keep_removed: keep_removed(&work),
            recorder: Arc::default(),
            lines: Arc::default(),
            quota: Arc::default(),
            braking: Arc::default(),
            pacing: Arc::default(),
            trying: Arc::default(),
            routed: Arc::default(),
            delivery: None,
        };
        let partitions = self.plan.cluster.then_some(PARTITIONS);
        let mut settings = setup::settings(&self.config, name, partitions, false);
        // Small limits, so that a few minutes with few items fill a window and a page and prune.
        settings.executor.window = 32;
        settings.planner.page = 5;
        settings.prune_every = Duration::from_secs(45);
        let mut seed = [0; 32];
        self.random.fill_bytes(&mut seed);
        // A host that cannot read the store's clock does not start.
        let Ok(skew) = now(ports.clock.read(store.as_ref())) else { return self.crash(node) };
        let machine = Node::new(settings, work, seed, ports.clock.now());
        self.hosts[node] = Some(Host {
            node: machine,
            ports: Arc::new(ports),
            store,
            coordination,
            stops: [StopFlag::default(), StopFlag::default()],
            paused_until: Time(i64::MIN),
            freezes: false,
            term: Term(0),
            leads: None,
            outbox: None,
            wake_at: None,
            rows: Vec::new(),
            is_confirmed: false,
        });
        let barred = skew == Skew::TooLarge;
        let first = if barred { Event::Barred(Bar::Clock, true) } else { Event::Tick };
        self.deliver(node, life, first);
        self.schedule(READ_CLOCK_EVERY, Coming::ReadClock { node, life });
        self.schedule(REPORT_EVERY, Coming::Report { node, life });
        self.schedule(INTERVAL, Coming::Pace { node, life });
        if self.plan.cluster {
            self.look(node, life);
        }
    }

    /// What the watcher of a node reads: the members, eventually.
    pub(super) fn look(&mut self, node: usize, life: u64) {
        let Some(host) = self.alive(node, life) else { return };
        let coordination = Arc::clone(&host.coordination);
        let (seen, leader) = (now(coordination.members()), now(coordination.leader()));
        if let Ok(members) = seen {
            let term = leader.ok().flatten().map_or(host.term, |leader| leader.term);
            host.term = host.term.max(term);
            let event = Event::Holdings(holdings::Event::Members(host.term, members));
            let wait = self.latency(|| format!("the news of members to {}", name(node, life)));
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

    fn health_of(&self, node: usize) -> Health {
        let clock = self.clock_of(node);
        Health::by(move || {
            let now = clock.now();
            (now.wall, now.mono)
        })
    }

    /// A host writes its row, as [`besom_engine::host`] does, and learns by it that the store was restored. It
    /// also writes a line of a run's log.
    pub(super) fn report_node(&mut self, node: usize, life: u64) {
        let at = self.now();
        let Some(host) = self.alive(node, life) else { return };
        let wait = host.paused_until.since(at);
        if wait.is_zero() {
            let row = NodeRow {
                node: host.ports.node.clone(),
                state: host.node.role(),
                seen_at: host.ports.clock.store(),
                config_digest: String::new(),
                missing: Vec::new(),
                hostname: format!("host-{node}"),
                address: String::new(),
                weight: 1,
                report: None,
            };
            let mut went_back = false;
            if let Ok(before) = now(host.store.report_node(&row)) {
                let stands = before.is_some_and(|before| host.rows.contains(&before));
                went_back = !stands && host.is_confirmed;
                host.rows.clear();
                host.is_confirmed = true;
            }
            if host.rows.len() < UNANSWERED_MAX {
                host.rows.push(row.seen_at);
            }
            if let Some(run) = now(host.store.runs(None, 1)).unwrap_or_default().first() {
                let line = RunLine {
                    run: run.id,
                    at: row.seen_at,
                    node: format!("host-{node}"),
                    level: "info",
                    text: "it goes on".to_owned(),
                    dropped: 0,
                };
                // A line that is lost is lost.
                let _ = now(host.store.write_lines(&[line], &[], 10));
            }
            if went_back {
                self.deliver(node, life, Event::StoreWentBack);
            }
        }
        self.schedule(wait + REPORT_EVERY, Coming::Report { node, life });
    }
}
