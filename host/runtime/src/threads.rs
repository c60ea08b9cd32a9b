//! The guests' own threads, and which of the two pools a call runs on.
//!
//! A call begins on the normal threads and continues with low priority once it has used its time
//! slice. The next call of the same export of its task begins with low priority, until such a call
//! ends within a slice. So a guest that computes for long delays a short one by one slice at most,
//! whatever it did before. Exports are told apart, because a task whose `act` computes for long
//! also has short `scan`s.
//!
//! A pool of one priority was rejected: interrupted guests take turns, so a short call would wait
//! for a tick of every computing guest.
//!
//! A guest that reads from SQLite keeps its thread until the read ends, which may take as long as its
//! call may. Each pool therefore has at least as many threads as calls are usually under way.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use besom_core::ids::TaskName;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// The nice value of low priority: a guest that computes for seconds on every processor must not
/// delay a due guest that needs microseconds. It is not higher because, beside other busy programs,
/// each step adds a quarter to the waiting time, which counts towards the duration of a call.
const LOW_NICE: i32 = 5;

/// The least number of threads of a pool: the default batches of all lanes, and scans.
const THREADS_MIN: usize = 8;

/// The export of a task that a call enters.
pub(super) type Export = (TaskName, &'static str);

/// Two pools, each with the configured number of threads or [`THREADS_MIN`]: a call of low priority
/// never occupies a thread that a short call needs.
pub(super) struct Threads {
    normal: Pool,
    low: Pool,
    /// Processor time of a call on the normal threads.
    slice: Duration,
    /// The exports whose last call used up its slice.
    long: Mutex<HashSet<Export>>,
}

impl Threads {
    /// Starts `count` normal threads, or [`THREADS_MIN`], and as many of low priority.
    pub(super) fn start(count: usize, slice: Duration) -> std::io::Result<Threads> {
        let count = count.max(THREADS_MIN);
        Ok(Threads {
            normal: Pool::start("besom-guest", count, 0)?,
            low: Pool::start("besom-low", count, LOW_NICE)?,
            slice,
            long: Mutex::default(),
        })
    }

    /// The low-priority threads, which also compile.
    pub(super) fn low(&self) -> &Handle {
        self.low.handle()
    }

    /// Runs a call; one of the heavy lane has low priority from its beginning. If the future is
    /// dropped, the call ends at its next interruption.
    ///
    /// # Errors
    /// The call has panicked.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        export: Export,
        is_heavy: bool,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, JoinError> {
        let mut sliced =
            Sliced { call: Some(Box::pin(call)), used: Duration::ZERO, max: self.slice };
        if !is_heavy && !self.is_long(&export) {
            match spawn(self.normal.handle(), sliced).await? {
                Turn::Ended(result, _) => return Ok(result),
                Turn::Over(call) => {
                    sliced = call;
                    self.note(&export, true);
                }
            }
        }
        sliced.max = Duration::MAX;
        match spawn(self.low.handle(), sliced).await? {
            Turn::Ended(result, used) => {
                self.note(&export, used >= self.slice);
                Ok(result)
            }
            Turn::Over(_) => unreachable!("a call cannot compute for ever"),
        }
    }

    fn is_long(&self, export: &Export) -> bool {
        self.long.lock().unwrap_or_else(PoisonError::into_inner).contains(export)
    }

    fn note(&self, export: &Export, is_long: bool) {
        let mut long = self.long.lock().unwrap_or_else(PoisonError::into_inner);
        if is_long {
            long.insert(export.clone());
        } else {
            long.remove(export);
        }
    }
}

async fn spawn<T: Send + 'static>(threads: &Handle, call: Sliced<T>) -> Result<Turn<T>, JoinError> {
    (&mut Wait(threads.spawn(call)).0).await
}

/// Aborts the call when the wait is dropped.
struct Wait<T>(JoinHandle<T>);

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What became of a call on one pool.
enum Turn<T> {
    /// Its result, and the processor time that it has used on both.
    Ended(T, Duration),
    /// It has used its slice and goes on elsewhere.
    Over(Sliced<T>),
}

/// A call that leaves its pool at the first interruption after its slice.
struct Sliced<T> {
    /// `None`: it is over.
    call: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    used: Duration,
    max: Duration,
}

impl<T> Future for Sliced<T> {
    type Output = Turn<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Turn<T>> {
        let mut call = self.call.take().expect("polled after its end");
        let before = processor_time();
        let polled = call.as_mut().poll(context);
        self.used += processor_time().saturating_sub(before);
        match polled {
            Poll::Ready(result) => Poll::Ready(Turn::Ended(result, self.used)),
            Poll::Pending if self.used >= self.max => {
                Poll::Ready(Turn::Over(Sliced { call: Some(call), ..*self }))
            }
            Poll::Pending => {
                self.call = Some(call);
                Poll::Pending
            }
        }
    }
}

/// The processor time of this thread.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    // Neither is negative.
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// An async runtime of its own. It is shut down without waiting, because it may be dropped inside
/// another runtime; guests end at their next interruption.
struct Pool(Option<tokio::runtime::Runtime>);

impl Pool {
    fn start(name: &str, count: usize, nice: i32) -> std::io::Result<Pool> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(count)
            .thread_name(name)
            .on_thread_start(move || {
                // On Linux this applies to the thread only. If it fails, all guests share the
                // processors equally.
                if nice > 0 && rustix::process::nice(nice).is_err() {
                    tracing::debug!("the priority of a thread for guests cannot be lowered");
                }
            })
            .enable_all()
            .build()?;
        Ok(Pool(Some(runtime)))
    }

    fn handle(&self) -> &Handle {
        self.0.as_ref().expect("taken only by drop").handle()
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLICE: Duration = Duration::from_millis(20);

    fn export(word: &'static str) -> Export {
        (TaskName::from("one"), word)
    }

    fn thread() -> String {
        std::thread::current().name().unwrap_or_default().to_owned()
    }

    /// Computes for that long, with interruptions, and returns the threads of its beginning and end.
    async fn compute(time: Duration) -> [String; 2] {
        let (first, mut used) = (thread(), Duration::ZERO);
        while used < time {
            let before = processor_time();
            while processor_time() - before < Duration::from_millis(1) {}
            used += Duration::from_millis(1);
            tokio::task::yield_now().await;
        }
        [first, thread()]
    }

    #[tokio::test]
    async fn a_call_goes_on_with_low_priority_after_its_slice_and_the_next_one_begins_there() {
        let threads = Threads::start(1, SLICE).expect("threads");
        let run = async |word, time| {
            threads.run(export(word), false, compute(time)).await.expect("it does not panic")
        };
        let (short, long) = (Duration::ZERO, SLICE * 3);
        assert_eq!(run("act", short).await, ["besom-guest", "besom-guest"]);
        assert_eq!(run("act", long).await, ["besom-guest", "besom-low"]);
        assert_eq!(run("scan", short).await, ["besom-guest", "besom-guest"], "another export");
        assert_eq!(run("act", long).await, ["besom-low", "besom-low"]);
        assert_eq!(run("act", short).await, ["besom-low", "besom-low"], "not known beforehand");
        assert_eq!(run("act", short).await, ["besom-guest", "besom-guest"]);
    }

    #[tokio::test]
    async fn waiting_uses_no_slice_and_heavy_calls_have_low_priority() {
        let threads = Threads::start(1, SLICE).expect("threads");
        let wait = async || {
            tokio::time::sleep(SLICE * 2).await;
            thread()
        };
        let waited = threads.run(export("act"), false, wait()).await.expect("no panic");
        assert_eq!(waited, "besom-guest");
        let heavy = threads.run(export("act"), true, async { thread() }).await.expect("no panic");
        assert_eq!(heavy, "besom-low");
    }

    #[tokio::test]
    async fn calls_that_keep_their_threads_delay_no_call_that_computes() {
        for (is_heavy, pool) in [(false, "besom-guest"), (true, "besom-low")] {
            let threads = Threads::start(1, SLICE).expect("threads");
            let (ended, wait) = std::sync::mpsc::channel::<()>();
            let wait = std::sync::Arc::new(Mutex::new(wait));
            let keep = || {
                let wait = std::sync::Arc::clone(&wait);
                async move { drop(wait.lock().map(|wait| wait.recv())) }
            };
            let kept = futures::future::join_all(
                (1..THREADS_MIN).map(|_| threads.run(export("act"), is_heavy, keep())),
            );
            let other = async {
                let time = if is_heavy { SLICE * 3 } else { Duration::ZERO };
                let done = threads.run(export("scan"), false, compute(time)).await;
                drop(ended);
                done.expect("no panic")
            };
            let (kept, [_, last]) = futures::join!(kept, other);
            assert_eq!((kept.len(), last.as_str()), (THREADS_MIN - 1, pool));
        }
    }

    #[tokio::test]
    async fn a_call_that_nobody_waits_for_ends_on_either_pool() {
        let threads = Threads::start(1, SLICE).expect("threads");
        // The first call is known to compute for long, so the second one begins with low priority.
        for word in ["act", "act"] {
            let held = std::sync::Arc::new(());
            let call = {
                let held = std::sync::Arc::clone(&held);
                async move {
                    compute(Duration::from_secs(60)).await;
                    drop(held);
                }
            };
            let run = threads.run(export(word), false, call);
            assert!(tokio::time::timeout(SLICE * 3, run).await.is_err(), "it goes on");
            while std::sync::Arc::strong_count(&held) > 1 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}
