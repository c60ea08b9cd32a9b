//! Which parts are killed, and when.
//!
//! A kill has a moment of its own: a share of the lines is counted, and then a random pause has passed. So it
//! meets lines that are on their way, however fast the machine is. The product's parts, the brokers and the
//! servers of Redis are killed side by side, each of these groups one kill after the other.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use rand::Rng as _;
use rand::rngs::SmallRng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};

use super::kafka::Kafka;
use super::process::{Process, pause};
use super::redis::Redis;

/// Moments are in this share of the lines, in thousandths.
const SHARE_MAX: u64 = 900;
/// The longest pause after a share of the lines is counted, in milliseconds.
const PAUSE_MS_MAX: u64 = 1_500;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Besom,
    Counter,
    Aggregator,
    Clients,
    Broker,
    Primary,
}

impl Kind {
    /// The parts of the product.
    pub(super) const PRODUCT: [Kind; 4] =
        [Kind::Besom, Kind::Counter, Kind::Aggregator, Kind::Clients];

    /// How its parts' names begin.
    fn name(self) -> &'static str {
        match self {
            Kind::Besom => "besom",
            Kind::Counter => "counter",
            Kind::Aggregator => "aggregator",
            Kind::Clients => "clients",
            Kind::Broker => "broker",
            Kind::Primary => "redis",
        }
    }
}

/// One kill.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kill {
    kind: Kind,
    /// How many lines are counted before, in thousandths.
    share: u64,
    /// And how long it waits then.
    pause: Duration,
    /// Which one of its kind.
    which: usize,
}

/// So many kills in the order of their moments: one of each kind, if there are enough, and then any.
pub(super) fn plan(random: &mut SmallRng, kinds: &[Kind], kills: usize) -> Vec<Kill> {
    let mut first = kinds.to_vec();
    first.shuffle(random);
    let mut all = Vec::new();
    while all.len() < kills {
        let next = first.pop().or_else(|| kinds.choose(random).copied());
        let Some(kind) = next else { break };
        let pause = Duration::from_millis(random.random_range(0..PAUSE_MS_MAX));
        let (share, which) = (random.random_range(0..SHARE_MAX), random.random_range(0..1 << 16));
        all.push(Kill { kind, share, pause, which });
    }
    all.sort_by_key(|kill| kill.share);
    all
}

/// What is known of the experiment while it runs.
#[derive(Default)]
pub(super) struct Course {
    /// The lines that are counted.
    pub(super) counted: AtomicU64,
    /// How many lines there are.
    pub(super) sum: u64,
    /// Set when nothing more is to be killed.
    pub(super) over: AtomicBool,
    killed: Mutex<Killed>,
}

/// How often each part was killed, and how many of the kills came before all was counted.
#[derive(Debug, Default, Clone)]
pub(super) struct Killed {
    pub(super) parts: BTreeMap<String, usize>,
    pub(super) on_the_way: usize,
}

impl Course {
    /// Of so many lines.
    pub(super) fn new(sum: u64) -> Course {
        Course { sum, ..Course::default() }
    }

    /// Waits for the moment of a kill. False: the experiment is over.
    fn await_moment(&self, kill: &Kill) -> Result<bool> {
        while self.counted.load(Ordering::Relaxed) * 1_000 < kill.share * self.sum {
            if self.over.load(Ordering::Relaxed) {
                return Ok(false);
            }
            pause(Duration::from_millis(20))?;
        }
        pause(kill.pause)?;
        Ok(!self.over.load(Ordering::Relaxed))
    }

    fn note(&self, name: &str, counted: u64) {
        let mut killed = self.killed.lock().unwrap_or_else(PoisonError::into_inner);
        *killed.parts.entry(name.to_owned()).or_default() += 1;
        killed.on_the_way += usize::from(counted < self.sum);
    }

    pub(super) fn killed(&self) -> Killed {
        self.killed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Kills the parts of the product among these.
pub(super) fn kill_parts(course: &Course, plan: &[Kill], parts: &mut [Process]) -> Result<()> {
    for kill in plan.iter().filter(|kill| Kind::PRODUCT.contains(&kill.kind)) {
        if !course.await_moment(kill)? {
            break;
        }
        let named = parts.iter_mut().filter(|part| part.name.starts_with(kill.kind.name()));
        let mut named: Vec<&mut Process> = named.collect();
        let which = kill.which % named.len();
        let counted = course.counted.load(Ordering::Relaxed);
        named[which].kill();
        named[which].resume()?;
        course.note(&named[which].name, counted);
    }
    Ok(())
}

/// Kills brokers, the next one when the last one has caught up.
pub(super) fn kill_brokers(course: &Course, plan: &[Kill], kafka: &mut Kafka) -> Result<()> {
    for kill in plan.iter().filter(|kill| kill.kind == Kind::Broker) {
        if !course.await_moment(kill)? {
            break;
        }
        let which = kill.which % kafka.brokers.len();
        let counted = course.counted.load(Ordering::Relaxed);
        kafka.kill(which)?;
        course.note(&kafka.brokers[which].name, counted);
    }
    Ok(())
}

/// Kills primaries of Redis, the next one when the last one is a replica in sync.
pub(super) fn kill_primaries(course: &Course, plan: &[Kill], redis: &mut Redis) -> Result<()> {
    for kill in plan.iter().filter(|kill| kill.kind == Kind::Primary) {
        if !course.await_moment(kill)? {
            break;
        }
        redis.await_whole()?;
        let counted = course.counted.load(Ordering::Relaxed);
        let name = redis.kill_primary(kill.which)?;
        course.note(&name, counted);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;

    use super::*;

    const KINDS: [Kind; 6] =
        [Kind::Besom, Kind::Counter, Kind::Aggregator, Kind::Clients, Kind::Broker, Kind::Primary];

    #[test]
    fn each_kind_is_killed_if_there_are_enough_kills() {
        for seed in 0..200 {
            let kills = plan(&mut SmallRng::seed_from_u64(seed), &KINDS, KINDS.len());
            let mut kinds: Vec<Kind> = kills.iter().map(|kill| kill.kind).collect();
            kinds.sort();
            assert_eq!(kinds, KINDS);
            assert!(kills.is_sorted_by_key(|kill| kill.share));
        }
    }

    #[test]
    fn a_seed_has_one_plan() {
        let planned = |seed| plan(&mut SmallRng::seed_from_u64(seed), &KINDS, 20);
        assert_eq!(planned(7), planned(7));
        assert_eq!(planned(7).len(), 20);
        assert_ne!(planned(7), planned(8));
    }
}
