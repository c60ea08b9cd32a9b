//! What goes wrong, and how often.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::ids::Term;
use besom_core::time::{Mono, Time};
use besom_doubles::store::Fault;
use besom_node::{Bar, Command, Event, Role, executor, holdings};
use besom_ports::store::Error;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::world::{Coming, World};

/// One in this many of the usual writes fails.
const USUAL_ONE_IN: u32 = 120;
/// One in this many of the rare writes fails, so that a few hundred worlds hit each.
const RARE_ONE_IN: u32 = 4;
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

/// The writes of the store's port that a world carries out. The others belong to the delivery of messages, which
/// has its own tests.
pub const WRITES: [&str; 17] = [
    "abandon",
    "apply_command",
    "begin",
    "bury",
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

/// The kinds of faults beside those of writes.
pub const TROUBLES: [&str; 20] = [
    "backup",
    "bad plugin",
    "clock set",
    "connected",
    "crash",
    "cut off",
    "disk full",
    "doubled message",
    "good plugin",
    "killed at a command",
    "late message",
    "lease expired",
    "lease service restored",
    "lost answer",
    "lost answer of the lease service",
    "pause",
    "plugins changed",
    "shutdown",
    "store restored",
    "store's clock jumps",
];

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
    hits: BTreeMap<&'static str, Hits>,
}

impl Luck {
    /// Until `ends`.
    pub(super) fn new(seed: u64, ends: Time) -> Luck {
        let random = StdRng::seed_from_u64(seed ^ 0x6c75_636b);
        let full_until = Time(i64::MIN);
        Luck(Mutex::new(Chances { random, ends, full_until, hits: BTreeMap::new() }))
    }

    fn chances(&self) -> MutexGuard<'_, Chances> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault of a write.
    pub(super) fn of(&self, write: &'static str, now: Time) -> Option<Fault> {
        let mut chances = self.chances();
        if now >= chances.ends {
            return None;
        }
        let one_in = if RARE.contains(&write) { RARE_ONE_IN } else { USUAL_ONE_IN };
        let fault = if now < chances.full_until {
            Fault::Unavailable
        } else if !chances.random.random_ratio(1, one_in) {
            return None;
        } else {
            match chances.random.random_range(0..8) {
                0 => Fault::Busy,
                1 => Fault::Unavailable,
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

    pub(super) fn hits(&self) -> BTreeMap<&'static str, Hits> {
        self.chances().hits.clone()
    }
}

/// A host that is about to die.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dies {
    /// Before its next command is carried out.
    Before,
    /// After it, so that nobody receives the answer.
    After,
}

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
        match self.random.random_range(0..24) {
            0..=2 => {
                self.note_trouble("crash", node);
                self.crash(node);
            }
            3..=6 => {
                self.note_trouble("pause", node);
                let until = self.now() + self.random_millis(500, 40_000);
                if let Some(host) = &mut self.hosts[node] {
                    host.paused_until = until;
                }
            }
            7..=8 => {
                let away = self.chance(2);
                self.note_trouble(if away { "cut off" } else { "connected" }, node);
                if let Some(host) = &self.hosts[node] {
                    host.coordination.set_away(away);
                }
            }
            9 => {
                self.note_trouble("lease expired", node);
                self.lease.expire();
            }
            10..=11 => {
                self.note_trouble("clock set", node);
                self.set_clock(node);
            }
            12..=13 => {
                self.note_trouble("backup", node);
                let (backup, made) = (self.root.back_up(), self.made.clone());
                let wait = self.random_millis(10, 60_000);
                self.schedule(wait, Coming::Restore { backup, made });
            }
            14 => {
                self.note_trouble("lease service restored", node);
                let newest = self.report.terms.max(1);
                let term = Term(self.random.random_range(0..=newest));
                self.lease.restore(term);
            }
            15 => {
                self.note_trouble("disk full", node);
                let until = self.now() + self.random_millis(100, 8_000);
                self.luck.fill_disk(until);
            }
            16 => {
                self.note_trouble("store's clock jumps", node);
                let most = STORE_CLOCK_MOST.as_micros() as i64;
                let offset = self.random.random_range(-most..=most);
                self.jump_store_clock(offset);
            }
            17 => {
                self.note_trouble("plugins changed", node);
                self.deploy();
            }
            18 => {
                let is_bad = self.chance(2);
                self.note_trouble(if is_bad { "bad plugin" } else { "good plugin" }, node);
                self.set_bad(is_bad);
            }
            19 => {
                self.note_trouble("shutdown", node);
                let life = self.lives[node];
                self.deliver(node, life, Event::Shutdown);
            }
            _ => {
                self.note_trouble("killed at a command", node);
                let dies = if self.chance(2) { Dies::Before } else { Dies::After };
                if let Some(host) = &mut self.hosts[node] {
                    host.dies = Some(dies);
                }
            }
        }
        let wait = self.random_millis(500, 10_000);
        self.schedule(wait, Coming::Trouble);
    }

    /// Everything that is cut off is connected again, clocks are right, and the good plugin is deployed. Crashed
    /// hosts are being restarted.
    fn end_trouble(&mut self) {
        for host in self.hosts.iter_mut().flatten() {
            host.coordination.set_away(false);
            host.dies = None;
        }
        self.jump_store_clock(0);
        self.set_bad(false);
    }

    /// The host dies, and starts again after a while.
    pub(super) fn crash(&mut self, node: usize) {
        self.hosts[node] = None;
        let wait = self.random_millis(100, 20_000);
        self.schedule(wait, Coming::Start { node });
    }

    /// The clock of a machine is set, to the right time or to a wrong one. One machine's clock is
    /// never so wrong that it does not lead, wherever the store's clock is.
    pub(super) fn set_clock(&mut self, node: usize) {
        let most: i64 = match self.random.random_range(0..4) {
            0 => 0,
            1 => 900_000,
            _ if node == 0 => 4_500_000,
            2 => 60_000_000,
            _ => 7_200_000_000,
        };
        let skew = self.random.random_range(-most..=most);
        self.skews[node].store(skew, std::sync::atomic::Ordering::Relaxed);
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
            let read = super::invariants::now(host.ports.clock.read(host.store.as_ref()));
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
