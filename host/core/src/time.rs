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
