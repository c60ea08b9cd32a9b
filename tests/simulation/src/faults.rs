//! What goes wrong, and how often.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::ids::Term;
use besom_core::pace::{INTERVAL, Strain};
use besom_core::time::{Mono, Time};
use besom_doubles::store::{Fault, READ};
use besom_node::{Bar, Command, Event, Now, Role, executor, holdings};
use besom_ports::store::{Error, Store as _};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::invariants::{self, now};
use super::world::{Coming, World};

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
pub const WRITES: [&str; 19] = [
    "abandon",
    "apply_command",
    "begin",
    "bury",
    "claim_messages",
    "claim_partitions",
    "commit",
    "decide_slots",
    "end_attempts",
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
pub const TROUBLES: [&str; 22] = [
    "backup",
    "bad plugin",
    "clock set",
    "connected",
    "crash",
    "cut off",
    "cut off from the store",
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
        match self.random.random_range(0..28) {
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
            20..=21 => {
                self.note_trouble("cut off from the store", node);
                let (life, wait) = (self.lives[node], self.random_millis(500, 30_000));
                if let Some(host) = &self.hosts[node] {
                    host.store.set_away(true);
                }
                self.schedule(wait, Coming::Reconnect { node, life });
            }
            22..=23 => {
                self.note_trouble("strain", node);
                self.strain();
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
            host.store.set_away(false);
            host.dies = None;
        }
        self.root.set_strain(CALM);
        self.jump_store_clock(0);
        self.set_bad(false);
    }

    /// The product feels the load of the database for a while.
    fn strain(&mut self) {
        let late = self.random_millis(0, 1_000);
        let strain = match self.random.random_range(0..3) {
            0 => Strain { latency: Some(late), ..CALM },
            1 => Strain { lock_wait: Some(late), ..CALM },
            _ => Strain { lag: Some(late * 60), ..CALM },
        };
        self.root.set_strain(strain);
        let wait = self.random_millis(1_000, 40_000);
        self.schedule(wait, Coming::Calm);
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
