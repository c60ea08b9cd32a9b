//! Instants and durations.
//!
//! A clock reading is passed in as a [`Time`]; nothing in this crate reads a clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// An instant: microseconds since 1970-01-01T00:00:00Z (negative before). Serialised as that number,
/// in a newtype whose name lets a serializer print it differently.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub i64);

/// A duration in microseconds; at most `i64::MAX`.
pub fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl Time {
    /// The Unix epoch.
    pub const EPOCH: Time = Time(0);
    /// Later than any instant that the calendar can represent.
    pub const MAX: Time = Time(i64::MAX);

    /// From whole milliseconds since the epoch.
    pub const fn from_millis(ms: i64) -> Time {
        Time(ms.saturating_mul(1_000))
    }

    /// From whole seconds since the epoch.
    pub const fn from_secs(s: i64) -> Time {
        Time(s.saturating_mul(1_000_000))
    }

    /// Microseconds since the epoch.
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// Milliseconds since the epoch, rounded down.
    pub const fn millis(self) -> i64 {
        self.0.div_euclid(1_000)
    }

    /// The duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Time) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The calendar instant, clamped to what the calendar library can represent.
    pub fn to_jiff(self) -> jiff::Timestamp {
        jiff::Timestamp::from_microsecond(self.0).unwrap_or(if self.0 < 0 {
            jiff::Timestamp::MIN
        } else {
            jiff::Timestamp::MAX
        })
    }

    /// Converts a calendar instant, rounded down to microseconds.
    pub fn from_jiff(t: jiff::Timestamp) -> Time {
        Time(t.as_microsecond())
    }
}

impl fmt::Display for Time {
    /// RFC 3339 in UTC, with as many decimals as needed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_jiff().fmt(f)
    }
}

impl Add<Duration> for Time {
    type Output = Time;
    fn add(self, d: Duration) -> Time {
        Time(self.0.saturating_add(micros(d)))
    }
}

impl Sub<Duration> for Time {
    type Output = Time;
    fn sub(self, d: Duration) -> Time {
        Time(self.0.saturating_sub(micros(d)))
    }
}

/// The day that is this many days after 1970-01-01.
const EPOCH_DAY: jiff::civil::Date = jiff::civil::date(1970, 1, 1);

/// A day, in days since 1970-01-01, as `2026-01-31`; `i32::MIN` and `i32::MAX` are the infinities of a
/// database.
pub fn date_text(days: i32) -> String {
    match days {
        i32::MIN => "-infinity".to_owned(),
        i32::MAX => "infinity".to_owned(),
        days => {
            match EPOCH_DAY.checked_add(jiff::Span::new().days(days.clamp(-DAYS_MAX, DAYS_MAX))) {
                Ok(date) if days.abs() <= DAYS_MAX => date.to_string(),
                _ => format!("{days} days after 1970-01-01"),
            }
        }
    }
}

/// The days from 1970-01-01 to a day that is written as `2026-01-31`; `None` if the text is no such day.
pub fn date_of(text: &str) -> Option<i32> {
    let date: jiff::civil::Date = text.parse().ok()?;
    let days = EPOCH_DAY.until(date).ok()?.get_days();
    (date.to_string() == text).then_some(days)
}

/// More days than the calendar library can represent, and fewer than its spans can hold.
const DAYS_MAX: i32 = 7_000_000;

/// A reading of a clock that only moves forward and runs while the machine sleeps
/// (CLOCK_BOOTTIME): microseconds since an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The arbitrary start.
    pub const START: Mono = Mono(0);

    /// The duration since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, d: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_written_as_it_is_read() {
        for (days, text) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (20_484, "2026-01-31"),
            (11_016, "2000-02-29"),
            (-719_528, "0000-01-01"),
        ] {
            assert_eq!(date_text(days), text);
            assert_eq!(date_of(text), Some(days));
        }
        assert_eq!(date_text(i32::MAX), "infinity");
        assert_eq!(date_text(i32::MIN), "-infinity");
        assert_eq!(date_text(2_145_031_948), "2145031948 days after 1970-01-01");
        for text in ["2026-02-30", "2026-1-31", "2026-01-31 00:00", "20260131", "infinity", ""] {
            assert_eq!(date_of(text), None, "{text}");
        }
    }
}
