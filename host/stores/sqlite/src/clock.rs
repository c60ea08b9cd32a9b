//! The store's clock: the machine's wall clock, monotonic within the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use besom_core::time::{Time, micros};

/// The source of the time.
pub type TimeSource = Arc<dyn Fn() -> Time + Send + Sync>;

/// The machine's wall clock.
pub fn wall_clock() -> TimeSource {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(micros(since))
    })
}

/// A smaller step back does not count as a clock that was set.
const SET_BACK_MIN: i64 = 1_000_000;

/// A time source made monotonic, except after a clock was set back.
#[derive(Clone)]
pub(super) struct Clock {
    source: TimeSource,
    latest: Arc<AtomicI64>,
}

impl Clock {
    pub(super) fn new(source: TimeSource) -> Clock {
        Clock { source, latest: Arc::new(AtomicI64::new(i64::MIN)) }
    }

    pub(super) fn now(&self) -> Time {
        let read = (self.source)().0;
        let known = self.latest.fetch_max(read, Ordering::AcqRel);
        if known.saturating_sub(read) < SET_BACK_MIN {
            return Time(known.max(read));
        }
        // The first caller sets it back for all; a reading from just before is still good.
        let _ = self.latest.compare_exchange(known, read, Ordering::AcqRel, Ordering::Acquire);
        Time(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_never_goes_backwards() {
        let hand = Arc::new(AtomicI64::new(10));
        let source = Arc::clone(&hand);
        let clock = Clock::new(Arc::new(move || Time(source.load(Ordering::Relaxed))));
        assert_eq!(clock.now(), Time(10));
        hand.store(5, Ordering::Relaxed);
        assert_eq!(clock.now(), Time(10));
        hand.store(11, Ordering::Relaxed);
        assert_eq!(clock.now(), Time(11));
    }

    /// Else nothing would be due until the right time has come to where the wrong one was.
    #[test]
    fn a_clock_that_was_set_back_counts_from_there() {
        let hour = 3_600_000_000;
        let hand = Arc::new(AtomicI64::new(hour));
        let source = Arc::clone(&hand);
        let clock = Clock::new(Arc::new(move || Time(source.load(Ordering::Relaxed))));
        assert_eq!(clock.now(), Time(hour));
        hand.store(10, Ordering::Relaxed);
        assert_eq!((clock.now(), clock.clone().now()), (Time(10), Time(10)));
        hand.store(9, Ordering::Relaxed);
        assert_eq!(clock.now(), Time(10));
        hand.store(12, Ordering::Relaxed);
        assert_eq!(clock.now(), Time(12));
    }
}
