//! The epoch, which interrupts running guests.
//!
//! A dedicated OS thread advances the engines' epochs while guests run. It sleeps without a timer
//! while none does, so that an idle host stays idle. It is not a task of an async runtime, because
//! guests in endless loops could occupy all workers and keep it from running. What happens at an
//! interruption is decided in `call`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use wasmtime::{Engine, EngineWeak};

/// Number of missed ticks after which the ticker counts as stalled.
const STALLED_TICKS: u32 = 100;

/// The ticker thread. It ends when this is dropped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: Thread,
}

struct Shared {
    tick: Duration,
    started: Instant,
    /// Number of running guests.
    running: AtomicUsize,
    ended: AtomicBool,
    /// The last tick, in microseconds after `started`.
    beat: AtomicU64,
}

impl Shared {
    fn beat(&self) {
        let micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.beat.store(micros, Ordering::Relaxed);
    }

    fn run(&self, engines: &[EngineWeak]) {
        while !self.ended.load(Ordering::Acquire) {
            if self.running.load(Ordering::Acquire) == 0 {
                // `Ticker::enter` leaves a token, so a guest that enters here is not missed.
                std::thread::park();
                continue;
            }
            std::thread::sleep(self.tick);
            for engine in engines {
                match engine.upgrade() {
                    Some(engine) => engine.increment_epoch(),
                    None => return,
                }
            }
            self.beat();
        }
    }
}

impl Ticker {
    /// Starts the thread.
    pub(super) fn start<const N: usize>(
        engines: [&Engine; N],
        tick: Duration,
    ) -> std::io::Result<Ticker> {
        let shared = Arc::new(Shared {
            tick,
            started: Instant::now(),
            running: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            beat: AtomicU64::new(0),
        });
        let (of_thread, engines) = (Arc::clone(&shared), engines.map(Engine::weak));
        let thread = std::thread::Builder::new()
            .name("besom-epoch".into())
            .spawn(move || of_thread.run(&engines))?;
        let handle = thread.thread().clone();
        Ok(Ticker { shared, thread: Some(thread), handle })
    }

    /// Keeps the epoch advancing until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>) -> Running {
        if self.shared.running.fetch_add(1, Ordering::AcqRel) == 0 {
            self.shared.beat();
            self.handle.unpark();
        }
        Running(Arc::clone(self))
    }

    /// How long the epoch has not advanced while guests run; `None`: it advances.
    pub(super) fn stalled(&self) -> Option<Duration> {
        if self.shared.running.load(Ordering::Acquire) == 0 {
            return None;
        }
        let beat = Duration::from_micros(self.shared.beat.load(Ordering::Relaxed));
        let silence = self.shared.started.elapsed().saturating_sub(beat);
        (silence > self.shared.tick * STALLED_TICKS).then_some(silence)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.handle.unpark();
        if let Some(thread) = self.thread.take() {
            // The thread can only have panicked, in which case it has ended as well.
            let _ = thread.join();
        }
    }
}

/// Counts a running guest until it is dropped.
pub(super) struct Running(Arc<Ticker>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.shared.running.fetch_sub(1, Ordering::AcqRel);
    }
}
