//! The environment of a guest: empty, and identical in a replay.
//!
//! There are no environment variables, arguments, files or sockets. The clocks show the time of the
//! call, and all randomness, including the kind called secure, comes from the call's seed:
//! toolchains seed their hash maps from it, and a replay needs the same order. A task has no use
//! for secrets.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use besom_core::time::Time;
use rand_core::TryRng;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx};

use super::capture::Capture;

/// Maximum amount of randomness per request, in bytes.
const RANDOM_BYTES_MAX: u64 = 64 * 1024;

/// Each reading of the monotonic clock is later than the previous one by this amount, so that a
/// guest sees time pass, and sees the same in a replay.
const READING_NANOS: u64 = 1_000;

/// The WASI context of one call.
pub(super) fn context(now: Time, seed: u64, capture: &Capture) -> WasiCtx {
    WasiCtx::builder()
        .stdout(capture.clone())
        .stderr(capture.clone())
        .wall_clock(Standing(now))
        .monotonic_clock(Counting(AtomicU64::new(0)))
        .secure_random(SplitMix(seed))
        .insecure_random(SplitMix(!seed))
        .insecure_random_seed(u128::from(seed) << 64 | u128::from(seed))
        .max_random_size(RANDOM_BYTES_MAX)
        .allow_tcp(false)
        .allow_udp(false)
        .build()
}

struct Standing(Time);

impl HostWallClock for Standing {
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn now(&self) -> Duration {
        // WASI cannot represent times before the epoch.
        self.0.since(Time::EPOCH)
    }
}

struct Counting(AtomicU64);

impl HostMonotonicClock for Counting {
    fn resolution(&self) -> u64 {
        READING_NANOS
    }

    fn now(&self) -> u64 {
        self.0.fetch_add(READING_NANOS, Ordering::Relaxed)
    }
}

/// SplitMix64 (Steele, Lea and Flood 2014): one addition and a mix per word, so that a call that
/// needs no randomness has no cost.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

impl TryRng for SplitMix {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok((self.next() >> 32) as u32)
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(self.next())
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The reference output for seed 1234567 of the authors' C program.
        let mut generator = SplitMix(1_234_567);
        assert_eq!(generator.next(), 6_457_827_717_110_365_317);
        assert_eq!(generator.next(), 3_203_168_211_198_807_973);
    }
}
