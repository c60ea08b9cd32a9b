//! The epoch: what makes a guest look up from its work.
//!
//! A dedicated OS thread advances the engines' epochs while guests run, and sleeps without
//! a timer while none does, so that an idle host stays idle. It is no task of an async
//! runtime, because a guest that spins on every worker would keep such a task from
//! running, and nothing would ever interrupt the guest. What a guest has to hear when it
//! looks up is decided in `call`, not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

use wasmtime::{Engine, EngineWeak};

/// Beats that may be missed before the ticker counts as stalled.
const STALLED_TICKS: u32 = 100;

/// The thread. Ends when dropped.
pub(super) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    handle: Thread,
}

struct Shared {
    tick: Duration,
    started: Instant,
    /// Guests that run.
    running: AtomicUsize,
    ended: AtomicBool,
    /// The heartbeat: microseconds after `started`.
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

    /// How long the epoch has stood still while guests run; none: it advances.
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
            // It can only have panicked, and then it has ended as well.
            let _ = thread.join();
        }
    }
}

/// A guest runs.
pub(super) struct Running(Arc<Ticker>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.shared.running.fetch_sub(1, Ordering::AcqRel);
    }
}
