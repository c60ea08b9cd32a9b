//! The clocks of the machine.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use besom_core::time::{Mono, Time};

use crate::node::Now;

/// Both readings, for one event.
pub fn now() -> Now {
    Now { wall: wall(), mono: mono() }
}

/// The calendar's time.
pub fn wall() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Time(i64::try_from(since.as_micros()).unwrap_or(i64::MAX)),
        Err(before) => Time(-i64::try_from(before.duration().as_micros()).unwrap_or(i64::MAX)),
    }
}

/// The time since the machine was started, in microseconds.
pub fn mono() -> Mono {
    Mono(u64::try_from(since_boot().as_micros()).unwrap_or(u64::MAX))
}

/// CLOCK_BOOTTIME: runs while the machine sleeps, and is never set.
pub fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (s, ns) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(s.unwrap_or(0), ns.unwrap_or(0))
}
