//! Decides when a share expires, how far ahead to plan, and what happens at the due time. Pure:
//! instants are in microseconds; limits are in milliseconds or, as in the table, in seconds.

/// The longest window, and the limit below which the window is a fraction of the limit.
const DAY_MS: u64 = 86_400_000;

/// The number of windows in a limit below one day.
const WINDOWS_PER_LIMIT: u64 = 10;

/// The limits of the task's settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The limit of a share that has none of its own.
    pub limit_ms: u64,
    /// The shortest limit that a share may have of its own; 0: no minimum.
    pub limit_min_ms: u64,
    /// An upper bound of the window.
    pub window_max_ms: u64,
}

impl Limits {
    /// The shortest known limit, from which the window is computed. The next scan also finds a
    /// share with an even shorter limit of its own.
    pub fn shortest_ms(&self) -> u64 {
        if self.limit_min_ms == 0 { self.limit_ms } else { self.limit_min_ms.min(self.limit_ms) }
    }

    /// How far ahead shares are planned: one day, or a tenth of the shortest limit if that is
    /// below one day. So the next scan finds a share that starts right after a scan long before
    /// it expires.
    pub fn window_ms(&self) -> u64 {
        let shortest = self.shortest_ms();
        let window = if shortest >= DAY_MS { DAY_MS } else { shortest / WINDOWS_PER_LIMIT };
        window.min(self.window_max_ms)
    }

    /// The end of the window: shares that expire until then are planned. If the host scans less
    /// often than the window requires, its longer horizon is used, so that shares are not late.
    pub fn planned_until_us(&self, now_us: i64, horizon_ms: u64) -> i64 {
        now_us.saturating_add(micros(self.window_ms().max(horizon_ms)))
    }

    /// The latest start, inclusive, of a share without a limit of its own that expires by
    /// `until_us`.
    pub fn latest_start_us(&self, until_us: i64) -> i64 {
        until_us.saturating_sub(micros(self.limit_ms))
    }

    /// The starts, both bounds inclusive, of shares after [`Limits::latest_start_us`] that still
    /// expire by `until_us` if their own limit is short enough. None: no share may have a limit
    /// below `limit_ms`.
    pub fn shorter_starts_us(&self, until_us: i64) -> Option<(i64, i64)> {
        let from = self.latest_start_us(until_us).saturating_add(1);
        let to = until_us.saturating_sub(micros(self.limit_min_ms));
        (from <= to).then_some((from, to))
    }

    /// The longest limit in seconds with which such a share can expire in time.
    pub fn shorter_limit_s(&self) -> i64 {
        i64::try_from(self.limit_ms / 1_000).unwrap_or(i64::MAX)
    }

    /// When a share expires; saturates. A negative limit of its own makes it expire at its start.
    pub fn due_us(&self, start_us: i64, own_limit_s: Option<i64>) -> i64 {
        let limit_us = match own_limit_s {
            Some(seconds) => seconds.max(0).saturating_mul(1_000_000),
            None => micros(self.limit_ms),
        };
        start_us.saturating_add(limit_us)
    }
}

/// A share as it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// The start of the share.
    pub start_us: i64,
    /// The share's own limit in seconds; none: the limit of the task.
    pub limit_s: Option<i64>,
    /// When the share was ended; none: it has not ended.
    pub unshared_us: Option<i64>,
}

/// The outcome for a share that was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The share has expired and ends now.
    Unshare {
        /// When the share expired.
        due_us: i64,
    },
    /// The share has already ended.
    AlreadyUnshared,
    /// The share was extended: the item of its new due time will end it.
    Extended {
        /// When the share expires now.
        due_us: i64,
    },
    /// The row of the share does not exist any more.
    Gone,
}

/// Decides on a share at `now_us`, from the row alone: a share that was shortened after it was
/// planned ends now, whichever item refers to it.
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
        // Without a shortest limit, every started share is read.
        assert_eq!(limits(7 * DAY_MS).shorter_starts_us(until), Some((from, until)));
        // If no share may have a shorter limit, there is no second range.
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
