//! Pauses between attempts that fail in a row: each is twice as long as the one before, up to a
//! bound. Randomness comes from the caller.

use std::time::Duration;

/// The pauses after failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The pause after the first failure.
    pub first: Duration,
    /// The upper bound of the pause, before the jitter.
    pub max: Duration,
    /// How far a pause may differ from this, so that what failed together is not repeated together.
    pub jitter: Jitter,
}

/// A random part of a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jitter {
    /// None: there is only one caller.
    None,
    /// The pause is up to a quarter longer.
    QuarterLonger,
    /// The pause is up to a half shorter.
    HalfShorter,
}

impl Backoff {
    /// Pauses without a random part.
    pub const fn new(first: Duration, max: Duration) -> Backoff {
        Backoff { first, max, jitter: Jitter::None }
    }

    /// The pause after one more failure, if there were `earlier` ones in a row. `random` is any
    /// uniformly distributed number; without a jitter it has no effect.
    pub fn pause(&self, earlier: u32, random: u64) -> Duration {
        let factor = 1_u32.checked_shl(earlier).unwrap_or(u32::MAX);
        let whole = self.first.saturating_mul(factor).min(self.max);
        let (least, spread) = match self.jitter {
            Jitter::None => return whole,
            Jitter::QuarterLonger => (whole, whole / 4),
            Jitter::HalfShorter => (whole / 2, whole / 2),
        };
        let micros = u64::try_from(spread.as_micros()).unwrap_or(u64::MAX);
        least + Duration::from_micros(random % micros.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_bound() {
        let pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
        let millis = [0, 1, 2, 6, 7, 31, 32, u32::MAX].map(|n| pauses.pause(n, 7).as_millis());
        assert_eq!(millis, [50, 100, 200, 3_200, 5_000, 5_000, 5_000, 5_000]);
        let none = Backoff::new(Duration::ZERO, Duration::ZERO);
        assert_eq!(none.pause(3, 7), Duration::ZERO);
        let endless = Backoff::new(Duration::MAX, Duration::MAX);
        assert_eq!(endless.pause(40, 7), Duration::MAX);
    }

    #[test]
    fn a_jitter_stays_within_its_part() {
        let (first, max) = (Duration::from_secs(1), Duration::from_secs(60));
        for earlier in [0, 1, 5, 6, 40] {
            let whole = Backoff::new(first, max).pause(earlier, 0);
            for random in [0, 1, 499_999, 999_999_999, u64::MAX] {
                let longer = Backoff { first, max, jitter: Jitter::QuarterLonger };
                let pause = longer.pause(earlier, random);
                assert!(pause >= whole && pause < whole + whole / 4, "{earlier}: {pause:?}");
                let shorter = Backoff { first, max, jitter: Jitter::HalfShorter };
                let pause = shorter.pause(earlier, random);
                assert!(pause >= whole / 2 && pause < whole, "{earlier}: {pause:?}");
            }
        }
    }
}
