//! Converts wall times to instants: daylight saving.
//!
//! Between two changes of a zone's offset, wall clock and universal time differ by a constant, so
//! the search proceeds from change to change:
//!
//! ```text
//!   forward  ──period, offset a──┤S├──period, offset b > a──   wall times [S+a, S+b) do not exist
//!   back     ──period, offset a──┤S├──period, offset b < a──   wall times [S+b, S+a) come twice
//! ```
//!
//! Fixed times of day: a time inside the gap runs once, at S; the second occurrence is left out.
//! Stars, ranges and steps follow the wall clock: they skip the gap and run in both occurrences.
//! (croner does the same for a single fixed time whose jump stays within the day. It treats a list
//! of fixed times as a step, drops a run whose jump crosses midnight into a day that does not
//! match, and walks through a gap second by second.)

use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::wall::Pattern;

/// A stretch of time with one offset. Everything in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Period {
    /// The change that began it; none: it has no beginning.
    pub start: Option<i64>,
    /// The offset before that change.
    pub before: i64,
    /// The offset during the period.
    pub offset: i64,
    /// The change that ends it.
    pub end: i64,
}

impl Period {
    /// The period that contains `instant`.
    pub fn at(zone: &TimeZone, instant: i64) -> Period {
        if let Ok(offset) = zone.to_fixed_offset() {
            let offset = i64::from(offset.seconds());
            return Period { start: None, before: offset, offset, end: i64::MAX };
        }
        let at = timestamp(instant);
        let offset = i64::from(zone.to_offset(at).seconds());
        let start = zone.preceding(timestamp(instant + 1)).next().map(|t| t.timestamp());
        let before = match start {
            Some(start) => i64::from(zone.to_offset(timestamp(start.as_second() - 1)).seconds()),
            None => offset,
        };
        let end = zone.following(at).next().map_or(i64::MAX, |t| t.timestamp().as_second());
        Period { start: start.map(Timestamp::as_second), before, offset, end }
    }

    /// The wall times that its beginning skips, as [from, to).
    pub fn hole(&self) -> Option<(i64, i64)> {
        let start = self.start.filter(|_| self.offset > self.before)?;
        Some((start + self.before, start + self.offset))
    }

    /// The wall times that occur for the second time, as [from, to).
    pub fn second_pass(&self) -> Option<(i64, i64)> {
        let start = self.start.filter(|_| self.offset < self.before)?;
        Some((start + self.offset, start + self.before))
    }
}

/// The calendar's reading of seconds since the epoch, clamped to what it can represent.
pub(super) fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(if seconds < 0 {
        Timestamp::MIN
    } else {
        Timestamp::MAX
    })
}

/// The first slot after `after`.
pub(super) fn next_after(pattern: &Pattern, zone: &TimeZone, after: i64) -> Option<i64> {
    let mut from = after.saturating_add(1);
    loop {
        let period = Period::at(zone, from);
        if pattern.fixed && period.start == Some(from) && falls_into(pattern, period.hole()) {
            return Some(from);
        }
        let wall = pattern.next(first_wall(pattern, &period, from))?;
        let instant = wall - period.offset;
        if instant < period.end {
            return Some(instant);
        }
        // The next period may repeat wall times that have matched, long before the next match.
        from = period.end;
    }
}

/// The number of slots in (after, until].
pub(super) fn count(pattern: &Pattern, zone: &TimeZone, after: i64, until: i64) -> u64 {
    let (mut from, to) = (after.saturating_add(1), until.saturating_add(1));
    let mut count = 0;
    while from < to {
        let period = Period::at(zone, from);
        let end = period.end.min(to);
        if pattern.fixed
            && period.start == Some(from)
            && falls_into(pattern, period.hole())
            && pattern.next(from + period.offset) != Some(from + period.offset)
        {
            count += 1;
        }
        count += pattern.count(first_wall(pattern, &period, from), end + period.offset);
        from = end;
    }
    count
}

/// The wall time from which `from` and later may match.
fn first_wall(pattern: &Pattern, period: &Period, from: i64) -> i64 {
    let wall = from + period.offset;
    match period.second_pass() {
        Some((_, end)) if pattern.fixed => wall.max(end),
        _ => wall,
    }
}

fn falls_into(pattern: &Pattern, hole: Option<(i64, i64)>) -> bool {
    hole.is_some_and(|(from, to)| pattern.next(from).is_some_and(|wall| wall < to))
}
