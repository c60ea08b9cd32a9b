//! The store's clock: the machine's wall clock, never going backwards within the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use besom_core::time::Time;

/// Where the time comes from.
pub type TimeSource = Arc<dyn Fn() -> Time + Send + Sync>;

/// The machine's wall clock.
pub fn wall_clock() -> TimeSource {
    Arc::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    })
}

/// A time source made monotonic.
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
        Time(self.latest.fetch_max(read, Ordering::AcqRel).max(read))
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
}
