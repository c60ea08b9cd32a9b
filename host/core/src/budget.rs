//! A budget of rows per second, shared by several takers.
//!
//! Its only state is one instant: when the next rows are free. Taking rows advances it by the time
//! that they are worth; while it lies in the future, no rows are granted. A taker may therefore
//! take more than a second's worth at once (a commit cannot be split), and every taker waits until
//! that is paid off. At most one second of unused budget is kept.
//!
//! This module decides when rows may be taken. It decides neither where the instant is stored nor
//! which taker waits.

use std::num::NonZeroU32;

use crate::time::Time;

/// How much unused budget is kept, in microseconds.
pub const KEPT_MICROS: i64 = 1_000_000;

/// The answer to a request for rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowance {
    /// The rows are taken.
    Now,
    /// Nothing was taken, and nothing is granted before this time.
    NotBefore(Time),
}

/// The time that rows are worth, in microseconds; at least 1.
pub fn worth_micros(rows: u64, per_second: NonZeroU32) -> i64 {
    let micros = (u128::from(rows) * 1_000_000).div_ceil(u128::from(per_second.get()));
    i64::try_from(micros).unwrap_or(i64::MAX / 2).min(i64::MAX / 2)
}

/// Takes rows at `now`. `free_at` is the budget's state; none before its first use. Returns the
/// grant and the new state.
pub fn take(
    free_at: Option<Time>,
    now: Time,
    rows: u64,
    per_second: NonZeroU32,
) -> (Allowance, Option<Time>) {
    match free_at {
        Some(at) if rows > 0 && at > now => (Allowance::NotBefore(at), free_at),
        _ if rows == 0 => (Allowance::Now, free_at),
        _ => {
            let kept = Time(now.0.saturating_sub(KEPT_MICROS));
            let from = free_at.map_or(kept, |at| at.max(kept));
            (Allowance::Now, Some(Time(from.0.saturating_add(worth_micros(rows, per_second)))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: u32) -> NonZeroU32 {
        NonZeroU32::new(per_second).expect("a rate")
    }

    /// How many rows batches of one size get in a span, when somebody always wants more.
    fn taken(batch: u64, per_second: u32, seconds: i64) -> u64 {
        let (mut now, mut state, mut rows) = (Time::EPOCH, None, 0);
        while now < Time::from_secs(seconds) {
            let (grant, next) = take(state, now, batch, rate(per_second));
            state = next;
            match grant {
                Allowance::Now => rows += batch,
                Allowance::NotBefore(at) => now = at,
            }
        }
        rows
    }

    #[test]
    fn the_rate_holds_whatever_the_batches() {
        // A second's worth beside it, and the batch that goes over.
        for (batch, per_second) in [(1, 10), (7, 10), (100, 10), (1, 1_000), (333, 1_000)] {
            let most = u64::from(per_second) * 61 + batch;
            let least = u64::from(per_second) * 60;
            let found = taken(batch, per_second, 60);
            assert!((least..=most).contains(&found), "{batch} of {per_second}: {found}");
        }
    }

    #[test]
    fn a_large_batch_is_paid_off_before_the_next() {
        let now = Time::from_secs(100);
        let (grant, state) = take(None, now, 260_000, rate(1_000));
        assert_eq!(grant, Allowance::Now);
        let (grant, after) = take(state, now, 1, rate(1_000));
        assert_eq!(grant, Allowance::NotBefore(Time::from_secs(100 - 1 + 260)));
        assert_eq!(after, state, "a refusal takes nothing");
    }

    #[test]
    fn an_idle_budget_keeps_one_second() {
        let (_, state) = take(None, Time::EPOCH, 1, rate(10));
        let hour = Time::from_secs(3_600);
        let (_, state) = take(state, hour, 10, rate(10));
        assert_eq!(state, Some(hour));
    }

    #[test]
    fn nothing_costs_nothing() {
        let state = Some(Time::from_secs(9));
        assert_eq!(take(state, Time::EPOCH, 0, rate(1)), (Allowance::Now, state));
    }

    #[test]
    fn no_number_of_rows_overflows() {
        assert_eq!(worth_micros(u64::MAX, rate(1)), i64::MAX / 2);
        let (_, state) = take(None, Time(i64::MAX - 5), u64::MAX, rate(1));
        assert_eq!(state, Some(Time::MAX));
    }
}
