//! The clocks of the machine.

use std::time::{SystemTime, UNIX_EPOCH};

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

/// CLOCK_BOOTTIME: runs while the machine sleeps, and is never set.
pub fn mono() -> Mono {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
    Mono(u64::try_from(micros).unwrap_or(0))
}
