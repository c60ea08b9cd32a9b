//! When a share ends, and what is to become of it then. Pure: instants are microseconds,
//! limits are milliseconds or, as in the table, seconds.

/// Below a limit of one day the window is a part of the limit, from there on a day.
const DAY_MS: u64 = 86_400_000;

/// How many windows a limit below one day is divided into.
const WINDOWS_PER_LIMIT: u64 = 10;

/// The limits, as the settings give them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of a share without a limit of its own.
    pub limit_ms: u64,
    /// The shortest limit that a share may have of its own; 0: it may have any.
    pub limit_min_ms: u64,
    /// What lowers the window further.
    pub window_max_ms: u64,
}

impl Limits {
    /// The shortest limit that is known of, for the window. A share with an even shorter one of
    /// its own is found all the same, by the next scan.
    pub fn shortest_ms(&self) -> u64 {
        if self.limit_min_ms == 0 { self.limit_ms } else { self.limit_min_ms.min(self.limit_ms) }
    }

    /// How far ahead shares are planned: one day, or a tenth of a shortest limit below one
    /// day. A share that starts right after a scan is seen by the next one, long before it
    /// ends.
    pub fn window_ms(&self) -> u64 {
        let shortest = self.shortest_ms();
        let window = if shortest >= DAY_MS { DAY_MS } else { shortest / WINDOWS_PER_LIMIT };
        window.min(self.window_max_ms)
    }

    /// The end of what is planned now. The host may call less often than the window would
    /// have it; then its horizon counts, or shares would be late.
    pub fn planned_until_us(&self, now_us: i64, horizon_ms: u64) -> i64 {
        now_us.saturating_add(micros(self.window_ms().max(horizon_ms)))
    }

    /// The latest start of a share without a limit of its own that ends by `until_us`,
    /// inclusive.
    pub fn latest_start_us(&self, until_us: i64) -> i64 {
        until_us.saturating_sub(micros(self.limit_ms))
    }

    /// The starts of the shares that began later than that and end by `until_us` all the same,
    /// if their own limit is short enough: both bounds are inclusive. None: no share may have a
    /// limit below `limit_ms`.
    pub fn shorter_starts_us(&self, until_us: i64) -> Option<(i64, i64)> {
        let from = self.latest_start_us(until_us).saturating_add(1);
        let to = until_us.saturating_sub(micros(self.limit_min_ms));
        (from <= to).then_some((from, to))
    }

    /// The longest limit in seconds by which such a share can end in time.
    pub fn shorter_limit_s(&self) -> i64 {
        i64::try_from(self.limit_ms / 1_000).unwrap_or(i64::MAX)
    }

    /// When a share ends. A limit of its own that is negative ends it at its start.
    pub fn due_us(&self, start_us: i64, own_limit_s: Option<i64>) -> i64 {
        let limit_us = match own_limit_s {
            Some(seconds) => seconds.max(0).saturating_mul(1_000_000),
            None => micros(self.limit_ms),
        };
        start_us.saturating_add(limit_us)
    }
}

/// A share as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// When it began.
    pub start_us: i64,
    /// Its own limit in seconds; none: the task's.
    pub limit_s: Option<i64>,
    /// When it was ended.
    pub unshared_us: Option<i64>,
}

/// What is to become of a share whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It ends now; its time came at `due_us`.
    Unshare {
        /// When its time came.
        due_us: i64,
    },
    /// Somebody was faster.
    AlreadyUnshared,
    /// Its time has been put off: the item of its new due time will end it.
    Extended {
        /// When its time comes.
        due_us: i64,
    },
    /// Its row is gone.
    Gone,
}

/// Decides about a share at `now_us`. A share that was shortened after it was planned is due
/// all the same, whichever item brings it here.
pub fn decide(share: Option<Share>, limits: &Limits, now_us: i64) -> Decision {
    let Some(share) = share else { return Decision::Gone };
    if share.unshared_us.is_some() {
        return Decision::AlreadyUnshared;
    }
    let due_us = limits.due_us(share.start_us, share.limit_s);
    if due_us <= now_us { Decision::Unshare { due_us } } else { Decision::Extended { due_us } }
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MS: u64 = 3_600_000;
    const NOW: i64 = 1_750_000_000_000_000;

    fn limits(limit_ms: u64) -> Limits {
        Limits { limit_ms, limit_min_ms: 0, window_max_ms: DAY_MS }
    }

    #[test]
    fn the_window_is_a_day_or_a_tenth_of_a_shorter_limit() {
        for (limits, expected) in [
            (limits(7 * DAY_MS), DAY_MS),
            (limits(DAY_MS), DAY_MS),
            (limits(DAY_MS - 1), 8_639_999),
            (limits(10 * HOUR_MS), HOUR_MS),
            (limits(10), 1),
            (Limits { limit_min_ms: 10 * HOUR_MS, ..limits(7 * DAY_MS) }, HOUR_MS),
            (Limits { limit_min_ms: 9 * DAY_MS, ..limits(10 * HOUR_MS) }, HOUR_MS),
            (Limits { window_max_ms: 60_000, ..limits(7 * DAY_MS) }, 60_000),
            (Limits { window_max_ms: 9 * DAY_MS, ..limits(7 * DAY_MS) }, DAY_MS),
        ] {
            assert_eq!(limits.window_ms(), expected, "{limits:?}");
        }
    }

    #[test]
    fn what_starts_by_now_plus_window_minus_limit_is_planned() {
        let week = limits(7 * DAY_MS);
        let until = week.planned_until_us(NOW, 0);
        assert_eq!(until, NOW + 86_400_000_000);
        let latest = week.latest_start_us(until);
        assert_eq!(latest, NOW - 6 * 86_400_000_000);
        // The bound is inclusive: a share that starts there ends exactly at the window's end.
        assert_eq!(week.due_us(latest, None), until);
    }

    #[test]
    fn a_host_that_calls_less_often_than_the_window_gets_a_longer_plan() {
        let week = limits(7 * DAY_MS);
        assert_eq!(week.planned_until_us(NOW, 2 * DAY_MS), NOW + 2 * 86_400_000_000);
        assert_eq!(week.planned_until_us(NOW, HOUR_MS), NOW + 86_400_000_000);
    }

    #[test]
    fn a_share_of_the_shortest_limit_is_never_beyond_the_scan() {
        let mixed = Limits { limit_min_ms: HOUR_MS, ..limits(7 * DAY_MS) };
        let until = mixed.planned_until_us(NOW, 0);
        let (from, to) = mixed.shorter_starts_us(until).unwrap();
        assert_eq!(mixed.due_us(to, Some(3_600)), until);
        assert!(mixed.due_us(to, None) > until);
        // The two ranges meet.
        assert_eq!(mixed.latest_start_us(until), from - 1);
        // Without a shortest limit, whatever began is looked at.
        assert_eq!(limits(7 * DAY_MS).shorter_starts_us(until), Some((from, until)));
        // Where no share may have a shorter one, there is nothing more to look at.
        let none = Limits { limit_min_ms: 7 * DAY_MS, ..limits(7 * DAY_MS) };
        assert_eq!(none.shorter_starts_us(until), None);
    }

    #[test]
    fn a_share_is_ended_when_its_time_has_come_and_not_before() {
        let week = limits(7 * DAY_MS);
        let end = NOW + 7 * 86_400_000_000;
        let share = Share { start_us: NOW, limit_s: None, unshared_us: None };
        for (share, now, expected) in [
            (Some(share), end - 1, Decision::Extended { due_us: end }),
            (Some(share), end, Decision::Unshare { due_us: end }),
            (Some(share), end + 1, Decision::Unshare { due_us: end }),
            (Some(Share { unshared_us: Some(1), ..share }), end, Decision::AlreadyUnshared),
            (Some(Share { unshared_us: Some(1), ..share }), NOW, Decision::AlreadyUnshared),
            (None, end, Decision::Gone),
            // Extended after it was planned, by its start or by its limit.
            (
                Some(Share { start_us: NOW + 1, ..share }),
                end,
                Decision::Extended { due_us: end + 1 },
            ),
            (
                Some(Share { limit_s: Some(8 * 86_400), ..share }),
                end,
                Decision::Extended { due_us: end + 86_400_000_000 },
            ),
            // Shortened after it was planned.
            (
                Some(Share { limit_s: Some(3_600), ..share }),
                end,
                Decision::Unshare { due_us: NOW + 3_600_000_000 },
            ),
            (Some(Share { limit_s: Some(0), ..share }), NOW, Decision::Unshare { due_us: NOW }),
            (Some(Share { limit_s: Some(-5), ..share }), NOW, Decision::Unshare { due_us: NOW }),
            (
                Some(Share { limit_s: Some(i64::MAX), ..share }),
                end,
                Decision::Extended { due_us: i64::MAX },
            ),
        ] {
            assert_eq!(decide(share, &week, now), expected, "{share:?} at {now}");
        }
    }
}
