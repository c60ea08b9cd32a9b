//! The clocks of the machine, and this host's estimate of the store's clock.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use besom_core::clock::{Reading, Skew, SkewBounds, StoreClock};
use besom_core::time::{Mono, Time, micros};
use besom_snapshot::ClockReport;
use tokio::sync::Notify;

use besom_node::Now;
use besom_ports::store::{self, Store};

/// The wall-clock time of the machine.
pub fn wall() -> Time {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => Time(micros(since)),
        Err(before) => Time(-micros(before.duration())),
    }
}

/// The time since the machine was started, in microseconds.
pub fn mono() -> Mono {
    Mono(u64::try_from(since_boot().as_micros()).unwrap_or(u64::MAX))
}

/// CLOCK_BOOTTIME: continues while the machine is suspended and is never set.
pub fn since_boot() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let (s, ns) = (u64::try_from(now.tv_sec), u32::try_from(now.tv_nsec));
    Duration::new(s.unwrap_or(0), ns.unwrap_or(0))
}

/// Number of queries per reading; the fastest answer counts.
const QUESTIONS: usize = 3;

/// This host's estimate of the store's clock, and the difference to the machine's clock. On every
/// node it determines what is due, which slots have come and what a guest sees as the present.
pub struct StoreTime {
    mono: Box<dyn Fn() -> Mono + Send + Sync>,
    wall: Box<dyn Fn() -> Time + Send + Sync>,
    bounds: SkewBounds,
    known: Mutex<Option<Known>>,
    asked: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    clock: StoreClock,
    skew: i64,
    judged: Skew,
}

impl fmt::Debug for StoreTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreTime").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl StoreTime {
    /// Uses the clocks of this machine. Until the store's clock is read for the first time, the
    /// machine's clock is used instead.
    pub fn of_machine(bounds: SkewBounds) -> Arc<StoreTime> {
        Arc::new(StoreTime::by(bounds, mono, wall))
    }

    /// Uses the given clocks.
    pub fn by(
        bounds: SkewBounds,
        mono: impl Fn() -> Mono + Send + Sync + 'static,
        wall: impl Fn() -> Time + Send + Sync + 'static,
    ) -> StoreTime {
        let (mono, wall) = (Box::new(mono), Box::new(wall));
        StoreTime { mono, wall, bounds, known: Mutex::new(None), asked: Notify::new() }
    }

    /// Both readings, for one event.
    pub fn now(&self) -> Now {
        let mono = (self.mono)();
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let wall = known.map_or_else(|| (self.wall)(), |known| known.clock.at(mono));
        Now { wall, mono }
    }

    /// A lower bound of the store's clock.
    pub fn store(&self) -> Time {
        self.now().wall
    }

    /// Reads the store's clock.
    ///
    /// # Errors
    /// Those of the store. The last reading remains in use.
    pub async fn read(&self, store: &dyn Store) -> store::Result<Skew> {
        let mut readings = Vec::with_capacity(QUESTIONS);
        for _ in 0..QUESTIONS {
            let sent = (self.mono)();
            let read = store.now().await?;
            readings.push(Reading { sent, store: read, answered: (self.mono)() });
        }
        let Some(clock) = StoreClock::from_readings(&readings) else { return Ok(Skew::Small) };
        let skew = clock.skew((self.wall)(), (self.mono)());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.map_or(Skew::Small, |known| known.judged);
        let judged = self.bounds.judge_after(before, skew);
        *known = Some(Known { clock, skew, judged });
        Ok(judged)
    }

    /// Requests a new reading, because the last one is in doubt.
    pub fn ask(&self) {
        self.asked.notify_one();
    }

    /// Returns when a new reading is requested.
    pub async fn doubted(&self) {
        self.asked.notified().await;
    }

    /// The difference between the machine's clock and the store's; `None`: not read yet.
    pub fn report(&self) -> Option<ClockReport> {
        let known = (*self.known.lock().unwrap_or_else(PoisonError::into_inner))?;
        Some(ClockReport {
            skew_us: known.skew,
            noticed: known.judged >= Skew::Noticed,
            leads_not: known.judged >= Skew::TooLarge,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use besom_core::activity::Timeouts;

    use super::*;
    use besom_doubles::store::MemoryStore;

    #[tokio::test]
    async fn the_present_is_the_stores_whatever_the_machine_shows() {
        let shown = Arc::new(AtomicI64::new(1_000_000_000));
        let source = Arc::clone(&shown);
        let of_store = Arc::new(move || Time(source.load(Ordering::Relaxed)));
        let store = MemoryStore::new(1, Timeouts::default(), of_store);
        let passed = Arc::new(AtomicI64::new(0));
        let mono = Arc::clone(&passed);
        let machine = || Time(1_030_000_000);
        let mono = move || Mono(mono.load(Ordering::Relaxed).unsigned_abs());
        let time = StoreTime::by(SkewBounds::DEFAULT, mono, machine);
        assert_eq!(time.store(), Time(1_030_000_000), "nothing else is known yet");
        assert_eq!(time.report(), None);
        assert_eq!(time.read(&store).await.unwrap(), Skew::TooLarge);
        assert_eq!(time.store(), Time(1_000_000_000));
        passed.store(5_000_000, Ordering::Relaxed);
        assert_eq!(time.store(), Time(1_005_000_000));
        let report = time.report().unwrap();
        assert_eq!((report.skew_us, report.noticed, report.leads_not), (30_000_000, true, true));
        shown.store(1_035_000_000, Ordering::Relaxed);
        assert_eq!(time.read(&store).await.unwrap(), Skew::Noticed);
    }
}
