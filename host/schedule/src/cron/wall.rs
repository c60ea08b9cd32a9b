//! The times of an expression on a wall clock that is never adjusted: no zone, no daylight saving.
//! A wall time is the number of seconds since 1970-01-01T00:00:00 as the clock shows it.
//!
//! croner has parsed the expression and decides which days match. The time of day is three bit sets
//! here, so that slots can be found and counted without stepping through them.

use croner::{CronPattern, Weekday};

pub(super) const DAY_S: i64 = 86_400;
/// The last year with slots; the calendar library's range ends shortly after it.
const YEAR_MAX: i32 = 9_998;
/// The Gregorian calendar, including weekdays, repeats after 400 years. A day that does not occur
/// within one cycle never occurs.
const CYCLE_DAYS: i64 = 146_097;

/// An expression prepared for the search.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    days: CronPattern,
    months: u64,
    hours: u64,
    minutes: u64,
    seconds: u64,
    /// Whether the times of day are single values or lists of them; each is then handled separately
    /// at a clock change.
    pub fixed: bool,
}

/// A day of the calendar.
#[derive(Debug, Clone, Copy)]
struct Day {
    /// Days since 1970-01-01.
    number: i64,
    year: i32,
    month: u32,
    day: u32,
    length: u32,
}

impl Day {
    fn new(number: i64) -> Option<Day> {
        let start = jiff::Timestamp::from_second(number.checked_mul(DAY_S)?).ok()?;
        let date = jiff::tz::Offset::UTC.to_datetime(start).date();
        Some(Day {
            number,
            year: i32::from(date.year()),
            month: date.month() as u32,
            day: date.day() as u32,
            length: date.days_in_month() as u32,
        })
    }

    fn next(mut self) -> Day {
        self.number += 1;
        self.day += 1;
        if self.day > self.length { self.turn_month() } else { self }
    }

    fn next_month(mut self) -> Day {
        self.number += i64::from(self.length - self.day + 1);
        self.turn_month()
    }

    fn turn_month(mut self) -> Day {
        self.day = 1;
        self.month += 1;
        if self.month > 12 {
            self.month = 1;
            self.year += 1;
        }
        self.length = match self.month {
            2 if self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0) => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        };
        self
    }
}

fn bits(values: Vec<u16>) -> u64 {
    values.into_iter().fold(0, |set, value| set | 1 << value)
}

/// The lowest member at or above `from`.
fn at_or_above(set: u64, from: i64) -> Option<i64> {
    let rest = if from < 64 { set >> from << from } else { 0 };
    (rest != 0).then(|| i64::from(rest.trailing_zeros()))
}

fn has(set: u64, value: i64) -> bool {
    set >> value & 1 == 1
}

fn members_below(set: u64, value: i64) -> u64 {
    u64::from((set & ((1 << value) - 1)).count_ones())
}

impl Pattern {
    pub fn new(pattern: CronPattern, fixed: bool) -> Pattern {
        Pattern {
            months: bits(pattern.months.values()),
            hours: bits(pattern.hours.values()),
            minutes: bits(pattern.minutes.values()),
            seconds: bits(pattern.seconds.values()),
            days: pattern,
            fixed,
        }
    }

    /// The first match at or after `wall`; none before the end of the calendar.
    pub fn next(&self, wall: i64) -> Option<i64> {
        let (number, time) = (wall.div_euclid(DAY_S), wall.rem_euclid(DAY_S));
        let day = Day::new(number)?;
        if self.matches_day(day)
            && let Some(time) = self.time_at_or_after(time)
        {
            return Some(number * DAY_S + time);
        }
        Some(self.day_from(day.next())?.number * DAY_S + self.first_time())
    }

    /// The number of matches in [from, to).
    pub fn count(&self, from: i64, to: i64) -> u64 {
        if from >= to {
            return 0;
        }
        let (first, last) = (from.div_euclid(DAY_S), to.div_euclid(DAY_S));
        let mut count = 0;
        let mut next = Day::new(first).and_then(|day| self.day_from(day));
        while let Some(day) = next.filter(|day| day.number <= last) {
            let low = if day.number == first { self.rank(from.rem_euclid(DAY_S)) } else { 0 };
            let high =
                if day.number == last { self.rank(to.rem_euclid(DAY_S)) } else { self.per_day() };
            count += high - low;
            next = self.day_from(day.next());
        }
        count
    }

    /// The times of a day that matches, as seconds since midnight, in order.
    pub fn times(&self) -> impl Iterator<Item = i64> + '_ {
        std::iter::successors(Some(self.first_time()), |time| self.time_at_or_after(time + 1))
    }

    /// Whether any day matches, ever.
    pub fn has_days(&self) -> bool {
        Day::new(0).and_then(|day| self.day_from(day)).is_some()
    }

    /// How many matches each matching day has.
    pub fn per_day(&self) -> u64 {
        [self.hours, self.minutes, self.seconds]
            .map(|set| u64::from(set.count_ones()))
            .iter()
            .product()
    }

    fn first_time(&self) -> i64 {
        let first = |set: u64| i64::from(set.trailing_zeros());
        first(self.hours) * 3_600 + first(self.minutes) * 60 + first(self.seconds)
    }

    fn time_at_or_after(&self, time: i64) -> Option<i64> {
        let (mut hour, mut minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = at_or_above(self.seconds, second)
            {
                return Some(hour * 3_600 + minute * 60 + second);
            }
            minute += 1;
            if let Some(minute) = at_or_above(self.minutes, minute) {
                return Some(hour * 3_600 + minute * 60 + i64::from(self.seconds.trailing_zeros()));
            }
        }
        hour = at_or_above(self.hours, hour + 1)?;
        Some(hour * 3_600 + self.first_time() % 3_600)
    }

    /// How many of the times of day are before `time`.
    fn rank(&self, time: i64) -> u64 {
        let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
        let per_minute = u64::from(self.seconds.count_ones());
        let per_hour = u64::from(self.minutes.count_ones()) * per_minute;
        let mut rank = members_below(self.hours, hour) * per_hour;
        if has(self.hours, hour) {
            rank += members_below(self.minutes, minute) * per_minute;
            if has(self.minutes, minute) {
                rank += members_below(self.seconds, second);
            }
        }
        rank
    }

    fn matches_day(&self, day: Day) -> bool {
        // 1970-01-01 was a Thursday.
        let weekday = Weekday::from_days_from_sunday((day.number + 4).rem_euclid(7) as u32);
        has(self.months, i64::from(day.month))
            && self.days.day_match(day.year, day.month, day.day, weekday).unwrap_or(false)
    }

    /// The first matching day at or after `day`.
    fn day_from(&self, mut day: Day) -> Option<Day> {
        let end = day.number + CYCLE_DAYS;
        while day.number <= end && day.year <= YEAR_MAX {
            if !has(self.months, i64::from(day.month)) {
                day = day.next_month();
            } else if self.matches_day(day) {
                return Some(day);
            } else {
                day = day.next();
            }
        }
        None
    }
}
