//! The pace of a task that yields to the product: how many rows per second it may change, by how late
//! the other users of the database are served.
//!
//! The pace rises by steps while they are served in time, and is halved for each interval in which they
//! are not. It stays between a floor, so that the task always ends, and a ceiling. It begins at the floor
//! and doubles until the first pressure, so that a run does not begin with its heaviest load.
//!
//! This module decides from one measurement per interval. It decides neither how it is measured nor who
//! waits: the pace is the rate of a [`crate::budget`].

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The length of one interval, after which the pace may change.
pub const INTERVAL: Duration = Duration::from_secs(1);
/// How often the strain is measured in an interval; the worst counts. So a pace settles where about one request in
/// as many is late.
pub const SAMPLES: u32 = 20;
/// The most rows per second of a pace without a ceiling.
const ROWS_MAX: u32 = 1_000_000_000;
/// In how many steps a pace rises to where it has been.
const STEPS: u32 = 8;

/// When a task yields, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Yielding {
    /// How late the database may answer, and how long others may wait for locks of Besom.
    pub latency: Duration,
    /// How far replicas may be behind; zero: they are not looked at.
    pub lag: Duration,
    /// The rows per second that are always allowed.
    pub floor: NonZeroU32,
}

/// What the users of the database feel. `None`: it was not measured, or cannot be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Strain {
    /// How late the database answers a small request.
    pub latency: Option<Duration>,
    /// How long others have to wait for locks of Besom.
    pub lock_wait: Option<Duration>,
    /// How far the furthest replica is behind.
    pub lag: Option<Duration>,
}

impl Strain {
    /// The worse of both, of each kind.
    #[must_use]
    pub fn worst(self, other: Strain) -> Strain {
        Strain {
            latency: self.latency.max(other.latency),
            lock_wait: self.lock_wait.max(other.lock_wait),
            lag: self.lag.max(other.lag),
        }
    }

    fn is_measured(&self) -> bool {
        *self != Strain::default()
    }
}

/// What is beyond its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    /// The database answers late.
    Latency,
    /// Others wait for locks of Besom.
    LockWaits,
    /// Replicas are behind.
    Lag,
    /// Of a later version.
    #[serde(other)]
    Unknown,
}

impl Sign {
    /// The word for it in JSON and as a label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Sign::Latency => "latency",
            Sign::LockWaits => "lock_waits",
            Sign::Lag => "lag",
            Sign::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sign::Latency => "latency",
            Sign::LockWaits => "lock waits",
            Sign::Lag => "replication lag",
            Sign::Unknown => "unknown",
        })
    }
}

impl Yielding {
    /// What is beyond its target; of several, what is the furthest beyond.
    pub fn sign(&self, strain: &Strain) -> Option<Sign> {
        let part = |felt: Option<Duration>, target: Duration| match felt {
            Some(felt) if !target.is_zero() => felt.as_secs_f64() / target.as_secs_f64(),
            _ => 0.0,
        };
        let parts = [
            (Sign::Latency, part(strain.latency, self.latency)),
            (Sign::LockWaits, part(strain.lock_wait, self.latency)),
            (Sign::Lag, part(strain.lag, self.lag)),
        ];
        let worst = parts.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        worst.filter(|(_, part)| *part > 1.0).map(|(sign, _)| sign)
    }
}

/// How many rows per second a task may change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pace {
    yielding: Yielding,
    ceiling: Option<NonZeroU32>,
    allowed: u32,
    /// Where it has been without pressure, roughly: what it returns to in [`STEPS`] steps.
    reach: u32,
    /// There was no pressure yet.
    is_starting: bool,
    /// Why it has fallen or does not rise, and from where; none: it has returned there.
    fallen: Option<(Sign, u32)>,
}

impl Pace {
    /// A pace that begins at the floor. A floor above the ceiling is the ceiling.
    pub fn new(yielding: Yielding, ceiling: Option<NonZeroU32>) -> Pace {
        let mut pace =
            Pace { yielding, ceiling, allowed: 0, reach: 0, is_starting: true, fallen: None };
        pace.set(yielding, ceiling);
        pace
    }

    /// Changes the targets and bounds.
    pub fn set(&mut self, yielding: Yielding, ceiling: Option<NonZeroU32>) {
        (self.yielding, self.ceiling) = (yielding, ceiling);
        self.allowed = self.allowed.clamp(self.floor(), self.most());
        self.reach = self.reach.clamp(self.floor(), self.most());
    }

    /// The rows per second that are allowed now.
    pub fn allowed(&self) -> NonZeroU32 {
        NonZeroU32::new(self.allowed).unwrap_or(NonZeroU32::MIN)
    }

    /// When the task yields.
    pub fn yielding(&self) -> Yielding {
        self.yielding
    }

    /// The most rows per second; none: what it reaches by itself.
    pub fn ceiling(&self) -> Option<NonZeroU32> {
        self.ceiling
    }

    /// The rows per second that are always allowed.
    pub fn floor(&self) -> u32 {
        self.yielding.floor.get().min(self.most())
    }

    fn most(&self) -> u32 {
        self.ceiling.map_or(ROWS_MAX, NonZeroU32::get)
    }

    /// Why it is below where it was, or still at the floor; none: it is not.
    pub fn fallen(&self) -> Option<Sign> {
        self.fallen.map(|(sign, _)| sign)
    }

    /// Ends an interval with the worst strain that was measured in it. Nothing measured changes nothing.
    /// `was_limit`: work has waited for the pace; without a ceiling, a pace that nobody uses does not rise.
    pub fn step(&mut self, strain: &Strain, was_limit: bool) {
        if !strain.is_measured() {
            return;
        }
        if let Some(sign) = self.yielding.sign(strain) {
            let before = self.fallen.map_or(self.allowed, |(_, before)| before.max(self.allowed));
            self.reach = self.reach.midpoint(self.allowed);
            self.allowed = (self.allowed / 2).max(self.floor());
            self.is_starting = false;
            self.fallen = (self.floor() < self.most()).then_some((sign, before));
        } else if was_limit || self.ceiling.is_some() {
            let more = if self.is_starting { self.allowed } else { (self.reach / STEPS).max(1) };
            self.allowed = self.allowed.saturating_add(more).min(self.most());
            self.reach = self.reach.max(self.allowed);
            self.fallen = self.fallen.filter(|(_, before)| self.allowed < *before);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TARGET: Duration = Duration::from_millis(20);

    fn yielding(floor: u32) -> Yielding {
        let floor = NonZeroU32::new(floor).expect("a floor");
        Yielding { latency: TARGET, lag: Duration::from_secs(10), floor }
    }

    fn pace(floor: u32, ceiling: u32) -> Pace {
        Pace::new(yielding(floor), NonZeroU32::new(ceiling))
    }

    fn latency(millis: u64) -> Strain {
        Strain { latency: Some(Duration::from_millis(millis)), ..Strain::default() }
    }

    fn allowed_after(pace: &mut Pace, strain: Strain, intervals: usize) -> u32 {
        (0..intervals).for_each(|_| pace.step(&strain, true));
        pace.allowed().get()
    }

    #[test]
    fn it_doubles_from_the_floor_to_the_ceiling_while_nobody_is_late() {
        let mut pace = pace(500, 6_000);
        assert_eq!(pace.allowed().get(), 500);
        assert_eq!(allowed_after(&mut pace, latency(5), 3), 4_000);
        assert_eq!(allowed_after(&mut pace, latency(5), 1), 6_000);
        assert_eq!(allowed_after(&mut pace, latency(20), 9), 6_000, "the target itself is in time");
    }

    #[test]
    fn it_is_halved_under_pressure_and_rises_by_steps_afterwards() {
        let mut pace = pace(500, 8_000);
        allowed_after(&mut pace, latency(5), 4);
        assert_eq!(allowed_after(&mut pace, latency(21), 1), 4_000);
        assert_eq!(pace.fallen(), Some(Sign::Latency));
        assert_eq!(allowed_after(&mut pace, latency(5), 1), 5_000);
        assert_eq!(allowed_after(&mut pace, latency(5), 3), 8_000);
        assert_eq!(pace.fallen(), None, "it is where it was");
    }

    #[test]
    fn a_pace_that_cannot_rise_from_the_floor_says_why() {
        let mut pace = pace(500, 8_000);
        assert_eq!(allowed_after(&mut pace, latency(21), 3), 500);
        assert_eq!(pace.fallen(), Some(Sign::Latency));
        assert_eq!(allowed_after(&mut pace, latency(5), 1), 562);
        assert_eq!(pace.fallen(), None);
    }

    #[test]
    fn what_is_not_measured_changes_nothing() {
        let mut pace = pace(500, 8_000);
        allowed_after(&mut pace, latency(5), 2);
        assert_eq!(allowed_after(&mut pace, Strain::default(), 60), 2_000);
    }

    #[test]
    fn without_a_ceiling_only_a_pace_that_is_used_rises() {
        let mut pace = Pace::new(yielding(500), None);
        (0..60).for_each(|_| pace.step(&latency(5), false));
        assert_eq!(pace.allowed().get(), 500);
        assert_eq!(allowed_after(&mut pace, latency(5), 60), ROWS_MAX);
    }

    /// Pressure at the same place again and again: the pace stays near it.
    #[test]
    fn it_stays_near_the_pace_that_others_bear() {
        for (ceiling, bearable) in [(None, 20_000), (NonZeroU32::new(1_000_000), 3_000)] {
            let mut pace = Pace::new(yielding(500), ceiling);
            let mut seen = Vec::new();
            for _ in 0..200 {
                let allowed = pace.allowed().get();
                seen.push(allowed);
                pace.step(&latency(if allowed > bearable { 50 } else { 5 }), true);
            }
            let steady = &seen[50..];
            assert!(steady.iter().all(|n| *n <= bearable * 5 / 4), "{steady:?}");
            let mean = steady.iter().sum::<u32>() / 150;
            assert!(mean >= bearable * 6 / 10, "{mean}: {steady:?}");
        }
    }

    #[test]
    fn the_sign_that_is_the_furthest_beyond_its_target_is_named() {
        let of = |latency, lock_wait, lag| {
            let millis = |n: u64| Some(Duration::from_millis(n));
            let strain =
                Strain { latency: millis(latency), lock_wait: millis(lock_wait), lag: millis(lag) };
            yielding(1).sign(&strain)
        };
        assert_eq!(of(20, 20, 10_000), None);
        assert_eq!(of(40, 0, 10_001), Some(Sign::Latency));
        assert_eq!(of(21, 60, 0), Some(Sign::LockWaits));
        assert_eq!(of(25, 0, 60_000), Some(Sign::Lag));
        let blind = Yielding { lag: Duration::ZERO, ..yielding(1) };
        let behind = Strain { lag: Some(Duration::from_secs(600)), ..Strain::default() };
        assert_eq!(blind.sign(&behind), None, "replicas are not looked at");
    }

    #[test]
    fn other_bounds_apply_at_once() {
        let mut pace = pace(500, 8_000);
        allowed_after(&mut pace, latency(5), 4);
        pace.set(yielding(100), NonZeroU32::new(2_000));
        assert_eq!(pace.allowed().get(), 2_000);
        pace.set(yielding(100), NonZeroU32::new(50));
        assert_eq!((pace.allowed().get(), pace.floor()), (50, 50), "a floor above the ceiling");
    }

    /// How often one number has to be halved to be no larger than the other.
    fn halvings(from: u32, to: u32) -> usize {
        (0..).find(|n| from >> n <= to).expect("a number") as usize
    }

    proptest! {
        #[test]
        fn it_stays_within_its_bounds_falls_and_returns(
            floor in 1_u32..5_000,
            above in 0_u32..1_000_000,
            strains in proptest::collection::vec((0_u64..60, any::<bool>(), any::<bool>()), 0..80),
        ) {
            let ceiling = floor + above;
            let mut pace = pace(floor, ceiling);
            for (millis, measured, was_limit) in strains {
                let before = pace.allowed().get();
                let strain = if measured { latency(millis) } else { Strain::default() };
                pace.step(&strain, was_limit);
                let after = pace.allowed().get();
                prop_assert!((floor..=ceiling).contains(&after), "{after}");
                match (measured, Duration::from_millis(millis) > TARGET) {
                    (false, _) => prop_assert_eq!(after, before),
                    (true, true) => prop_assert!(after <= (before / 2).max(floor)),
                    (true, false) => prop_assert!(after > before || after == ceiling),
                }
            }
            let falls = halvings(pace.allowed().get(), floor);
            prop_assert_eq!(allowed_after(&mut pace, latency(99), falls), floor);
            let rises = 16 * (halvings(ceiling, floor) + 1) + 8;
            prop_assert_eq!(allowed_after(&mut pace, latency(0), rises), ceiling);
            prop_assert_eq!(pace.fallen(), None);
        }
    }
}
