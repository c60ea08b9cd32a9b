//! Waits for conditions, with a bound.

use std::time::{Duration, Instant};

/// How long a condition may take to become true: long enough for slow and shared machines.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How often a condition is checked.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Waits until `look` finds something.
///
/// # Panics
/// If the time is over; the message names the condition.
#[track_caller]
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    wait_at_most(PATIENCE, what, look)
}

/// The same with another bound.
#[track_caller]
pub fn wait_at_most<T>(bound: Duration, what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < bound, "after {bound:?} still waiting for: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}
