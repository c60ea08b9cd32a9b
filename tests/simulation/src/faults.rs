//! What goes wrong, and how often.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::ids::Term;
use besom_core::pace::{INTERVAL, Strain};
use besom_core::time::{Mono, Time};
use besom_doubles::store::{Fault, On, READ};
use besom_node::{Bar, Command, Event, Now, Role, executor, holdings};
use besom_ports::store::{Error, Store as _};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::invariants::{self, now};
use super::words;
use super::world::{Coming, World, name};

/// One in this many of the usual writes fails.
const USUAL_ONE_IN: u32 = 120;
/// One in this many of the rare writes fails, so that a few hundred worlds hit each.
const RARE_ONE_IN: u32 = 4;
/// One in this many reads fails.
const READ_ONE_IN: u32 = 400;
/// The writes that a world has few of.
const RARE: [&str; 11] = [
    "abandon",
    "apply_command",
    "bury",
    "claim_partitions",
    "find_commit",
    "forget_node",
    "prune",
    "raise_fence",
    "set_brakes",
    "submit",
    "take_rows",
];

/// The writes of the store's port that a world carries out. The others belong to reviews, to brokers and to messages
/// of the product, which have their own tests.
pub const WRITES: [&str; 18] = [
    "abandon",
    "apply_command",
    "begin",
    "bury",
    "claim_messages",
    "claim_partitions",
    "commit",
    "decide_slots",
    "end_scan",
    "find_commit",
    "forget_node",
    "plan_page",
    "prune",
    "raise_fence",
    "report_node",
    "set_brakes",
    "submit",
    "take_rows",
];

/// The kinds of faults beside those of writes and reads.
pub const TROUBLES: [&str; 24] = [
    "backup",
    "bad plugin",
    "clock set",
    "connected",
    "crash",
    "cut off",
    "cut off from the store",
    "disk full",
    "doubled message",
    "frozen in a transaction",
    "good plugin",
    "killed at a write",
    "late message",
    "lease expired",
    "lease service restored",
    "lost answer",
    "lost answer of the lease service",
    "pause",
    "plugins changed",
    "shutdown",
    "slow keep-alive",
    "store restored",
    "store's clock jumps",
    "strain",
];

/// The strain of a database without load.
pub(super) const CALM: Strain = Strain {
    latency: Some(Duration::from_millis(1)),
    lock_wait: Some(Duration::ZERO),
    lag: Some(Duration::ZERO),
};

/// How often a write failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hits {
    /// With an unknown result, although it was applied.
    pub applied: u64,
    /// With an unknown result, and it was not applied.
    pub not_applied: u64,
    /// With an error that says that it was not applied.
    pub refused: u64,
}

/// Decides which writes fail.
#[derive(Debug)]
pub(super) struct Luck(Mutex<Chances>);

#[derive(Debug)]
struct Chances {
    random: StdRng,
    ends: Time,
    full_until: Time,
    locked_until: Time,
    hits: BTreeMap<&'static str, Hits>,
    lost_requests: Vec<Time>,
}

/// The name of the write that submits a command.
const SUBMIT: &str = "submit";

impl Luck {
    /// Until `ends`.
    pub(super) fn new(seed: u64, ends: Time) -> Luck {
        let random = StdRng::seed_from_u64(seed ^ 0x6c75_636b);
        let (full_until, locked_until) = (Time(i64::MIN), Time(i64::MIN));
        let (hits, lost_requests) = (BTreeMap::new(), Vec::new());
        Luck(Mutex::new(Chances { random, ends, full_until, locked_until, hits, lost_requests }))
    }

    fn chances(&self) -> MutexGuard<'_, Chances> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of a write or a read of a host.
    pub(super) fn of_host(&self, write: &'static str, now: Time) -> Option<Fault> {
        let fault = self.of(write, now)?;
        if write == SUBMIT && fault != Fault::UnknownApplied {
            self.chances().lost_requests.push(now);
        }
        Some(fault)
    }

    /// The fault of a write or a read.
    pub(super) fn of(&self, write: &'static str, now: Time) -> Option<Fault> {
        let mut chances = self.chances();
        if now >= chances.ends {
            return None;
        }
        let is_read = write == READ;
        let one_in = match is_read {
            true => READ_ONE_IN,
            false if RARE.contains(&write) => RARE_ONE_IN,
            false => USUAL_ONE_IN,
        };
        let fault = if now < chances.full_until && !is_read {
            Fault::Unavailable
        } else if now < chances.locked_until && LOCKED.contains(&write) {
            Fault::Busy
        } else if !chances.random.random_ratio(1, one_in) {
            return None;
        } else {
            match chances.random.random_range(0..8) {
                0 => Fault::Busy,
                1 => Fault::Unavailable,
                // A read has no result that could be unknown.
                _ if is_read => Fault::Unavailable,
                2..=4 => Fault::UnknownNotApplied,
                _ => Fault::UnknownApplied,
            }
        };
        let hits = chances.hits.entry(write).or_default();
        match fault {
            Fault::UnknownApplied => hits.applied += 1,
            Fault::UnknownNotApplied => hits.not_applied += 1,
            Fault::Busy | Fault::Unavailable => hits.refused += 1,
        }
        Some(fault)
    }

    /// The store's disk is full until then: every write fails.
    fn fill_disk(&self, until: Time) {
        self.chances().full_until = until;
    }

    /// A transaction holds its locks until then.
    fn lock(&self, until: Time) {
        self.chances().locked_until = until;
    }

    /// When a host submitted a command that did not arrive.
    pub(super) fn lost_requests(&self) -> Vec<Time> {
        self.chances().lost_requests.clone()
    }

    pub(super) fn hits(&self) -> BTreeMap<&'static str, Hits> {
        self.chances().hits.clone()
    }
}

/// A host that is about to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Doom {
    pub(super) dies: Dies,
    /// The kind of write at which it dies, one of [`DEATHS`]; `None`: the next one.
    pub(super) at: Option<&'static str>,
}

/// When a host dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dies {
    /// Before a write is carried out.
    Before,
    /// After it, so that nobody receives the answer.
    After,
}

/// How often a host died at a kind of write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Deaths {
    /// Just before it.
    pub before: u64,
    /// Just after it.
    pub after: u64,
}

/// The kinds of writes of a node at which its host dies.
pub const DEATHS: [&str; 14] = [
    "abandon",
    "act",
    "apply",
    "bury",
    "claim",
    "commit",
    "decide",
    "end-scan",
    "find-commit",
    "load",
    "prune",
    "raise",
    "scan",
    "take-rows",
];

/// The kind of write that a command is; `None`: it writes nothing to the store.
pub(super) fn write_of(command: &Command) -> Option<&'static str> {
    use besom_node::planner;
    Some(match command {
        Command::Executor(_, command) => match command {
            executor::Command::Act { .. } => "act",
            executor::Command::Commit(..) => "commit",
            executor::Command::Abandon(_) => "abandon",
            executor::Command::FindCommit(..) => "find-commit",
            executor::Command::TakeRows { .. } => "take-rows",
            _ => return None,
        },
        Command::Planner(_, command) => match command {
            planner::Command::Decide(..) => "decide",
            planner::Command::Scan(_) => "scan",
            planner::Command::EndScan { .. } => "end-scan",
            planner::Command::Apply(..) => "apply",
            _ => return None,
        },
        Command::Holdings(holdings::Command::Claim(..)) => "claim",
        Command::Raise(_) => "raise",
        Command::Load(_) => "load",
        Command::Bury(..) => "bury",
        Command::Prune(_) => "prune",
        _ => return None,
    })
}

/// The writes that wait for a lock of a transaction that was left open.
const LOCKED: [&str; 3] = ["claim_partitions", "commit", "raise_fence"];
/// After which time the store ends a transaction that was left open, as the connections of the host ask it to.
const IDLE_IN_TRANSACTION_MAX: Duration = Duration::from_secs(2);

impl World<'_> {
    /// One fault, and when the next one comes.
    pub(super) fn trouble(&mut self) {
        if !self.troubled() {
            self.end_trouble();
            return;
        }
        let node = self.random.random_range(0..self.plan.nodes);
        // The leader is the preferred victim.
        let leader = self
            .hosts
            .iter()
            .position(|host| host.as_ref().is_some_and(|host| host.node.role() == Role::Leading));
        let node = if self.chance(2) { leader.unwrap_or(node) } else { node };
        match self.random.random_range(0..31) {
            0..=2 => {
                self.note_trouble("crash", || format!("host-{node}"));
                self.crash(node);
            }
            3..=6 => {
                let until = self.now() + self.random_millis(500, 40_000);
                self.note_trouble("pause", || format!("host-{node} until {}", words::time(until)));
                if let Some(host) = &mut self.hosts[node] {
                    host.paused_until = until;
                }
            }
            7..=8 => {
                let away = self.chance(2);
                let kind = if away { "cut off" } else { "connected" };
                self.note_trouble(kind, || format!("host-{node} and the lease service"));
                if let Some(host) = &self.hosts[node] {
                    host.coordination.set_away(away);
                }
            }
            9 => {
                self.note_trouble("lease expired", || "the leader's".to_owned());
                self.lease.expire();
            }
            10..=11 => {
                let skew = self.set_clock(node);
                self.note_trouble("clock set", || {
                    format!("host-{node} by {:.3} s", skew as f64 / 1e6)
                });
            }
            12..=13 => {
                let (backup, made) = (self.root.back_up(), self.made.clone());
                let wait = self.random_millis(10, 60_000);
                self.note_trouble("backup", || {
                    let (things, s) = (made.things.len(), wait.as_secs_f64());
                    format!("with {things} things, restored in {s:.3} s")
                });
                self.schedule(wait, Coming::Restore { backup, made });
            }
            14 => {
                let newest = self.report.terms.max(1);
                let term = Term(self.random.random_range(0..=newest));
                self.note_trouble("lease service restored", || format!("to term {term}"));
                self.lease.restore(term);
            }
            15 => {
                let until = self.now() + self.random_millis(100, 8_000);
                self.note_trouble("disk full", || format!("until {}", words::time(until)));
                self.luck.fill_disk(until);
            }
            16 => {
                let most = STORE_CLOCK_MOST.as_micros() as i64;
                let offset = self.random.random_range(-most..=most);
                self.note_trouble("store's clock jumps", || {
                    format!("{:.3} s from the true time", offset as f64 / 1e6)
                });
                self.jump_store_clock(offset);
            }
            17 => {
                self.note_trouble("plugins changed", || "on all hosts".to_owned());
                self.deploy();
            }
            18 => {
                let is_bad = self.chance(2);
                let kind = if is_bad { "bad plugin" } else { "good plugin" };
                self.note_trouble(kind, || "grind".to_owned());
                self.set_bad(is_bad);
            }
            19 => {
                self.note_trouble("shutdown", || format!("host-{node}"));
                let life = self.lives[node];
                self.deliver(node, life, Event::Shutdown);
            }
            20..=21 => {
                let (life, wait) = (self.lives[node], self.random_millis(500, 30_000));
                self.note_trouble("cut off from the store", || {
                    format!("host-{node} for {:.3} s", wait.as_secs_f64())
                });
                if let Some(host) = &self.hosts[node] {
                    host.store.set_away(true);
                }
                self.schedule(wait, Coming::Reconnect { node, life });
            }
            22..=23 => {
                let strain = self.strain();
                self.note_trouble("strain", || format!("{strain:?}"));
            }
            24..=28 => {
                let dies = if self.chance(2) { Dies::Before } else { Dies::After };
                let at = DEATHS[self.random.random_range(0..DEATHS.len())];
                let doom = Doom { dies, at: self.chance(2).then_some(at) };
                self.dooms[node] = Some(doom);
            }
            _ => {
                if let Some(host) = &mut self.hosts[node] {
                    host.freezes = true;
                }
            }
        }
        let wait = self.random_millis(500, 10_000);
        self.schedule(wait, Coming::Trouble);
    }

    /// Everything that is cut off is connected again, clocks are right, and the good plugin is deployed. Crashed
    /// hosts are being restarted.
    fn end_trouble(&mut self) {
        self.note(|| "the faults have ended".to_owned());
        for host in self.hosts.iter_mut().flatten() {
            host.coordination.set_away(false);
            host.store.set_away(false);
            host.freezes = false;
        }
        self.dooms.fill(None);
        self.root.set_strain(CALM);
        self.jump_store_clock(0);
        self.set_bad(false);
    }

    /// The product feels the load of the database for a while.
    fn strain(&mut self) -> Strain {
        let late = self.random_millis(0, 1_000);
        let strain = match self.random.random_range(0..3) {
            0 => Strain { latency: Some(late), ..CALM },
            1 => Strain { lock_wait: Some(late), ..CALM },
            _ => Strain { lag: Some(late * 60), ..CALM },
        };
        self.root.set_strain(strain);
        let wait = self.random_millis(1_000, 40_000);
        self.schedule(wait, Coming::Calm);
        strain
    }

    /// A host measures the strain, as its pacing does.
    pub(super) fn pace(&mut self, node: usize, life: u64) {
        let now_at = self.now();
        let Some(host) = self.alive(node, life) else { return };
        let wait = host.paused_until.since(now_at);
        if wait.is_zero() {
            let Now { wall, mono } = host.ports.clock.now();
            if let Some(collections) = host.ports.pacing.worked_on(mono) {
                // What cannot be measured strains nobody.
                let strain = now(host.store.strain(&collections)).unwrap_or_default();
                host.ports.pacing.step(&strain, (wall, mono));
            }
        }
        self.schedule(wait + INTERVAL, Coming::Pace { node, life });
    }

    /// A host dies at a write.
    pub(super) fn note_death(&mut self, node: usize, life: u64, dies: Dies, write: &'static str) {
        let deaths = self.report.deaths.entry(write).or_default();
        let when = match dies {
            Dies::Before => {
                deaths.before += 1;
                "before"
            }
            Dies::After => {
                deaths.after += 1;
                "after"
            }
        };
        self.note_trouble("killed at a write", || format!("{} {when} {write}", name(node, life)));
    }

    /// A node freezes in the transaction of a write, which holds its locks until the store ends it.
    pub(super) fn freeze(&mut self, node: usize, life: u64, command: &Command) {
        let ends = self.now() + IDLE_IN_TRANSACTION_MAX;
        let until = ends + self.random_millis(0, 40_000);
        self.note_trouble("frozen in a transaction", || {
            format!("{} until {}", name(node, life), words::time(until))
        });
        self.luck.lock(ends);
        let is_commit = matches!(command, Command::Executor(_, executor::Command::Commit(..)));
        if let Some(host) = self.alive(node, life) {
            host.paused_until = until;
            host.store.fail_next(
                if is_commit { On::Commit } else { On::Write },
                Fault::UnknownNotApplied,
            );
        }
    }

    /// The host dies, and starts again after a while.
    pub(super) fn crash(&mut self, node: usize) {
        self.hosts[node] = None;
        let wait = self.random_millis(100, 20_000);
        self.schedule(wait, Coming::Start { node });
    }

    /// The clock of a machine is set, to the right time or to a wrong one. One machine's clock is
    /// never so wrong that it does not lead, wherever the store's clock is. Returns the difference, in
    /// microseconds.
    pub(super) fn set_clock(&mut self, node: usize) -> i64 {
        let most: i64 = match self.random.random_range(0..4) {
            0 => 0,
            1 => 900_000,
            _ if node == 0 => 4_500_000,
            2 => 60_000_000,
            _ => 7_200_000_000,
        };
        let skew = self.random.random_range(-most..=most);
        self.skews[node].store(skew, std::sync::atomic::Ordering::Relaxed);
        skew
    }

    /// Whether the coordination service loses its answer to this command.
    pub(super) fn loses_answer(&mut self, command: &Command) -> bool {
        let asks = matches!(
            command,
            Command::Campaign { .. }
                | Command::Renew(_)
                | Command::TellOfStore(_)
                | Command::Holdings(holdings::Command::Join | holdings::Command::Keep)
        );
        asks && self.troubled() && self.chance(150)
    }

    pub(super) fn read_clock(&mut self, node: usize, life: u64) {
        use besom_core::clock::Skew;
        let now = self.now();
        let Some(host) = self.alive(node, life) else { return };
        let wait = host.paused_until.since(now);
        if wait.is_zero() {
            let read = invariants::now(host.ports.clock.read(host.store.as_ref()));
            if let Ok(skew) = read {
                let event = Event::Barred(Bar::Clock, skew == Skew::TooLarge);
                self.deliver(node, life, event);
            }
        }
        self.schedule(wait + super::host::READ_CLOCK_EVERY, Coming::ReadClock { node, life });
    }
}

/// How far the store's clock may be from the true time.
pub(super) const STORE_CLOCK_MOST: Duration = Duration::from_secs(5);

/// Whether a message may arrive twice. A begun batch is recorded by the connection that executes
/// it, in order; everything else has to tolerate repetition.
pub(super) fn repeatable(command: &Command) -> bool {
    !matches!(
        command,
        Command::Executor(_, executor::Command::Act { .. } | executor::Command::Report(_))
    )
}

/// How a caller treats a missing answer.
pub(super) fn unanswered(command: &Command) -> Option<Event> {
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
