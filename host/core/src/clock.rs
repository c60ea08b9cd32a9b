//! Estimates the store's clock between two readings.
//!
//! The store's clock decides what is due. All nodes share it, while the clocks of their machines
//! may differ. A node reads it periodically and extrapolates with its own monotonic clock, so that
//! it does not have to ask for every event.

use std::time::Duration;

use crate::time::{self, Mono, Time};

/// One reading of the store's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// When the request was sent.
    pub sent: Mono,
    /// The store's answer: its clock at some instant between `sent` and `answered`.
    pub store: Time,
    /// When the answer came.
    pub answered: Mono,
}

impl Reading {
    fn took(&self) -> Duration {
        self.answered.since(self.sent)
    }
}

/// An estimate of the store's clock. It is never ahead of the clock that was read, and behind it by
/// at most its error plus the drift between the two clocks since then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreClock {
    /// Microseconds to add to [`Mono`].
    offset: i64,
    error: Duration,
}

impl StoreClock {
    /// Takes the best of several readings: the one with the shortest round trip is the most
    /// precise. None without a reading.
    pub fn from_readings(readings: &[Reading]) -> Option<StoreClock> {
        let best = readings.iter().min_by_key(|reading| reading.took())?;
        // The store has read its clock before its answer came.
        let offset = best.store.0.saturating_sub(micros(best.answered));
        Some(StoreClock { offset, error: best.took() })
    }

    /// A lower bound of the store's clock at `now`.
    pub fn at(&self, now: Mono) -> Time {
        Time(self.offset.saturating_add(micros(now)))
    }

    /// The difference between a machine's wall clock and the store's clock, in microseconds;
    /// positive when the wall clock is ahead. Zero when the difference is within the error of the
    /// estimate.
    pub fn skew(&self, wall: Time, now: Mono) -> i64 {
        let ahead = wall.0.saturating_sub(self.at(now).0);
        let error = time::micros(self.error);
        // The estimate is behind by 0 to `error`.
        ahead.min(0) + ahead.saturating_sub(error).max(0)
    }
}

fn micros(at: Mono) -> i64 {
    i64::try_from(at.0).unwrap_or(i64::MAX)
}

/// Bounds of the difference between a node's clock and the store's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SkewBounds {
    /// From this difference on, the node warns.
    pub warn: Duration,
    /// From this difference on, the node does not lead.
    pub max: Duration,
}

impl SkewBounds {
    /// The bounds that hold when the configuration sets none.
    pub const DEFAULT: SkewBounds =
        SkewBounds { warn: Duration::from_secs(1), max: Duration::from_secs(10) };

    /// Classifies a skew in microseconds.
    pub fn judge(&self, skew: i64) -> Skew {
        let skew = Duration::from_micros(skew.unsigned_abs());
        if skew >= self.max {
            Skew::TooLarge
        } else if skew >= self.warn {
            Skew::Noticed
        } else {
            Skew::Small
        }
    }

    /// Like [`SkewBounds::judge`], with hysteresis: a skew class ends only once the skew is clearly
    /// below its bound, so that a skew near a bound does not flap with each reading.
    pub fn judge_after(&self, before: Skew, skew: i64) -> Skew {
        let larger = skew.saturating_add(skew / 4);
        self.judge(skew).max(before.min(self.judge(larger)))
    }
}

/// The consequence of a skew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Skew {
    /// The skew has no consequence.
    Small,
    /// The node warns.
    Noticed,
    /// The node does not lead.
    TooLarge,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(sent: u64, store: i64, answered: u64) -> Reading {
        Reading { sent: Mono(sent), store: Time(store), answered: Mono(answered) }
    }

    #[test]
    fn the_estimate_is_never_ahead_and_behind_by_the_round_trip_at_most() {
        // The store's clock is 5,000 ahead of the monotonic one, and was read at `read`.
        for (sent, read, answered) in [(0, 0, 40), (0, 40, 40), (100, 117, 160)] {
            let one = reading(sent, 5_000 + read, answered);
            let clock = StoreClock::from_readings(&[one]).expect("a reading");
            for now in [answered, answered + 1_000_000] {
                let (real, estimate) = (5_000 + now as i64, clock.at(Mono(now)).0);
                let error = clock.error.as_micros() as i64;
                assert!((real - error..=real).contains(&estimate), "{estimate} of {real}");
            }
        }
    }

    #[test]
    fn the_fastest_answer_counts() {
        let readings =
            [reading(0, 1_000, 900), reading(900, 2_000, 910), reading(910, 2_500, 1_500)];
        let clock = StoreClock::from_readings(&readings).expect("readings");
        assert_eq!(clock.at(Mono(910)), Time(2_000));
        assert_eq!(clock.error, Duration::from_micros(10));
        assert_eq!(StoreClock::from_readings(&[]), None);
    }

    #[test]
    fn a_skew_within_the_error_of_the_estimate_is_none() {
        let clock = StoreClock::from_readings(&[reading(0, 1_000, 100)]).expect("a reading");
        assert_eq!(clock.skew(Time(1_000), Mono(100)), 0);
        assert_eq!(clock.skew(Time(1_100), Mono(100)), 0);
        assert_eq!(clock.skew(Time(1_101), Mono(100)), 1);
        assert_eq!(clock.skew(Time(999), Mono(100)), -1);
    }

    #[test]
    fn a_skew_at_a_bound_does_not_come_and_go() {
        let bounds = SkewBounds::DEFAULT;
        let mut known = Skew::Small;
        let mut seen = Vec::new();
        for ms in [999, 1_001, 999, 1_001, 801, 799, 999, 10_001, 9_999, 8_001, 7_999, 0] {
            known = bounds.judge_after(known, -ms * 1_000);
            seen.push(known);
        }
        use Skew::{Noticed, Small, TooLarge};
        let expected = [
            Small, Noticed, Noticed, Noticed, Noticed, Small, Small, TooLarge, TooLarge, TooLarge,
            Noticed, Small,
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn skews_are_judged_by_size_in_both_directions() {
        let bounds = SkewBounds::DEFAULT;
        for sign in [1, -1] {
            assert_eq!(bounds.judge(sign * 999_999), Skew::Small);
            assert_eq!(bounds.judge(sign * 1_000_000), Skew::Noticed);
            assert_eq!(bounds.judge(sign * 10_000_000), Skew::TooLarge);
        }
    }
}
