//! How long the writer holds the database's write lock, and waits for it: what others feel of its writes.
//!
//! SQLite does not queue writers: one that waits tries again after a while. So transactions that follow one
//! another within [`GAP`] count as one hold.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use besom_ports::store::Strain;

/// A shorter time between two transactions is likely to be missed by a writer that waits.
const GAP: Duration = Duration::from_millis(5);

/// The holds and waits since they were last read.
#[derive(Default)]
pub(super) struct Holds(Mutex<State>);

#[derive(Default)]
struct State {
    /// Since when the writer waits for the lock.
    waiting: Option<Instant>,
    /// When the current hold has begun and, if it has, ended.
    hold: Option<(Instant, Option<Instant>)>,
    waited_most: Duration,
    held_most: Duration,
}

impl Holds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The writer requests the lock.
    pub(super) fn request(&self, at: Instant) {
        self.state().waiting = Some(at);
    }

    /// The writer has the lock, or has given up.
    pub(super) fn answered(&self, at: Instant, is_held: bool) {
        let mut state = self.state();
        let waited = state.waiting.take().map(|since| at.saturating_duration_since(since));
        state.waited_most = state.waited_most.max(waited.unwrap_or_default());
        if is_held {
            let goes_on = |ended: Option<Instant>| {
                ended.is_some_and(|ended| at.saturating_duration_since(ended) < GAP)
            };
            let begun = state.hold.filter(|(_, ended)| goes_on(*ended)).map_or(at, |hold| hold.0);
            state.hold = Some((begun, None));
        }
    }

    /// The writer has released the lock.
    pub(super) fn release(&self, at: Instant) {
        let mut state = self.state();
        if let Some((begun, ended)) = &mut state.hold {
            *ended = Some(at);
            let held = at.saturating_duration_since(*begun);
            state.held_most = state.held_most.max(held);
        }
    }

    /// The longest wait and the longest hold since the last call, with those that last until now.
    pub(super) fn take(&self, now: Instant) -> Strain {
        let mut state = self.state();
        let since = |at: Instant| now.saturating_duration_since(at);
        let waits = state.waiting.map(since).unwrap_or_default();
        let holds = match state.hold {
            Some((begun, None)) => since(begun),
            _ => Duration::ZERO,
        };
        let waited = std::mem::take(&mut state.waited_most).max(waits);
        let held = std::mem::take(&mut state.held_most).max(holds);
        Strain { latency: Some(waited), lock_wait: Some(held), lag: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(strain: Strain) -> (u128, u128) {
        let millis = |felt: Option<Duration>| felt.expect("measured").as_millis();
        (millis(strain.latency), millis(strain.lock_wait))
    }

    #[test]
    fn transactions_that_follow_one_another_are_one_hold_and_a_pause_ends_it() {
        let (holds, start) = (Holds::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        for begun in [0, 12, 60] {
            holds.request(at(begun));
            holds.answered(at(begun + 2), true);
            holds.release(at(begun + 10));
        }
        // From 2 to 22, and from 62 to 70.
        assert_eq!(millis(holds.take(at(80))), (2, 20));
        assert_eq!(millis(holds.take(at(80))), (0, 0), "what was told is not told again");
    }

    #[test]
    fn what_lasts_counts_until_now() {
        let (holds, start) = (Holds::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        holds.request(at(0));
        assert_eq!(millis(holds.take(at(30))), (30, 0));
        holds.answered(at(40), false);
        assert_eq!(millis(holds.take(at(50))), (40, 0), "it has given up");
        holds.request(at(50));
        holds.answered(at(50), true);
        assert_eq!(millis(holds.take(at(75))), (0, 25));
    }
}
