//! The jobs that wait for the writer, by priority.
//!
//! A job of a higher priority goes first. So that nothing starves, the lowest priority with a waiting
//! job is served after [`PASSED_OVER_MAX`] jobs have overtaken it.
//!
//! Other work often takes several jobs, each of which follows from the one before. A heavy job therefore does not
//! begin immediately after another job, but after a fraction of the time that the last heavy job took:
//! otherwise each of them would wait for a heavy one.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The priorities, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// The lease and the fence.
    Lease,
    /// Commits with due items.
    Due,
    /// All other jobs.
    Normal,
    /// Commits that delete read sets, imports, pruning.
    Heavy,
}

const PRIORITIES: [Priority; 4] =
    [Priority::Lease, Priority::Due, Priority::Normal, Priority::Heavy];

/// How many jobs may overtake a waiting one of a lower priority.
const PASSED_OVER_MAX: u32 = 16;
/// How long a heavy job waits for what follows from another job: this fraction of the time that the last
/// heavy job took, and at most [`FOLLOWED_MAX`].
const FOLLOWED_FRACTION: u32 = 20;
const FOLLOWED_MAX: Duration = Duration::from_millis(50);

/// A priority queue; it is closed when its owner ends.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    filled: Condvar,
}

struct State<J> {
    jobs: [VecDeque<J>; PRIORITIES.len()],
    passed_over: u32,
    closed: bool,
    /// The job that was handed out last, and when.
    running: Option<(Priority, Instant)>,
    /// The time that the last heavy job took.
    heavy_took: Duration,
    /// No heavy job begins before this time, unless it has been passed over often enough.
    heavy_at: Option<Instant>,
}

impl<J> Queue<J> {
    pub(super) fn new() -> Queue<J> {
        let jobs = std::array::from_fn(|_| VecDeque::new());
        let state = Mutex::new(State {
            jobs,
            passed_over: 0,
            closed: false,
            running: None,
            heavy_took: Duration::ZERO,
            heavy_at: None,
        });
        Queue { state, filled: Condvar::new() }
    }

    /// Adds a job; returns it if the queue is closed.
    pub(super) fn push(&self, priority: Priority, job: J) -> Result<(), J> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if state.closed {
            return Err(job);
        }
        state.jobs[priority as usize].push_back(job);
        self.filled.notify_one();
        Ok(())
    }

    /// Waits for the next job; none once the queue is closed and empty. The one before has ended.
    pub(super) fn pop(&self) -> Option<J> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.ended(Instant::now());
        loop {
            let now = Instant::now();
            state = match state.next(now) {
                Next::Job(job) => return Some(job),
                Next::None if state.closed => return None,
                Next::None => self.filled.wait(state).unwrap_or_else(PoisonError::into_inner),
                Next::At(at) => {
                    let waited = self.filled.wait_timeout(state, at.duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Accepts no more jobs; waiting ones are still done.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(|e| e.into_inner()).closed = true;
        self.filled.notify_all();
    }
}

/// What is handed out next.
enum Next<J> {
    Job(J),
    /// A heavy job, at this time.
    At(Instant),
    None,
}

impl<J> State<J> {
    /// The job that was handed out last has ended.
    fn ended(&mut self, now: Instant) {
        match self.running.take() {
            Some((Priority::Heavy, since)) => self.heavy_took = now.duration_since(since),
            Some(_) => {
                let pause = (self.heavy_took / FOLLOWED_FRACTION).min(FOLLOWED_MAX);
                self.heavy_at = Some(now + pause);
            }
            None => {}
        }
    }

    fn next(&mut self, now: Instant) -> Next<J> {
        let mut waiting = PRIORITIES.into_iter().filter(|of| !self.jobs[*of as usize].is_empty());
        let Some(highest) = waiting.next() else { return Next::None };
        let lowest = waiting.next_back().unwrap_or(highest);
        let is_passed_over = self.passed_over >= PASSED_OVER_MAX;
        let turn = if is_passed_over { lowest } else { highest };
        if turn == Priority::Heavy
            && !is_passed_over
            && !self.closed
            && let Some(at) = self.heavy_at.filter(|at| *at > now)
        {
            return Next::At(at);
        }
        let Some(job) = self.jobs[turn as usize].pop_front() else { return Next::None };
        self.passed_over = if turn == lowest { 0 } else { self.passed_over + 1 };
        self.running = Some((turn, now));
        Next::Job(job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_priority_goes_first() {
        let queue = Queue::new();
        for (priority, job) in
            [(Priority::Heavy, 4), (Priority::Normal, 3), (Priority::Due, 2), (Priority::Lease, 1)]
        {
            queue.push(priority, job).unwrap();
        }
        queue.close();
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_lower_priority_has_its_turn_in_the_end() {
        let queue = Queue::new();
        queue.push(Priority::Heavy, 0).unwrap();
        for job in 1..=100 {
            queue.push(Priority::Due, job).unwrap();
        }
        queue.close();
        let order: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        let place = order.iter().position(|job| *job == 0).unwrap();
        assert_eq!(place, PASSED_OVER_MAX as usize);
    }

    /// A heavy job of ten seconds, then another job, and what is handed out `after` that.
    fn next_after(after: Duration, passed_over: u32) -> Option<i32> {
        let queue = Queue::new();
        let mut state = queue.state.lock().unwrap();
        let start = Instant::now();
        let handed_out = |priority: Priority, seconds: u64, state: &mut State<i32>| {
            state.jobs[priority as usize].push_back(0);
            assert!(matches!(state.next(start), Next::Job(0)));
            state.ended(start + Duration::from_secs(seconds));
        };
        handed_out(Priority::Heavy, 10, &mut state);
        handed_out(Priority::Normal, 20, &mut state);
        state.jobs[Priority::Heavy as usize].push_back(1);
        state.passed_over = passed_over;
        match state.next(start + Duration::from_secs(20) + after) {
            Next::Job(job) => Some(job),
            Next::At(at) => {
                assert_eq!(at, start + Duration::from_secs(20) + FOLLOWED_MAX);
                None
            }
            Next::None => panic!("a job is waiting"),
        }
    }

    #[test]
    fn a_heavy_job_waits_for_what_follows_from_another_but_not_for_ever() {
        assert_eq!(next_after(Duration::ZERO, 0), None);
        assert_eq!(next_after(FOLLOWED_MAX, 0), Some(1));
        assert_eq!(next_after(Duration::ZERO, PASSED_OVER_MAX), Some(1));
    }

    #[test]
    fn a_closed_queue_takes_no_job() {
        let queue = Queue::new();
        queue.close();
        assert_eq!(queue.push(Priority::Normal, 7), Err(7));
    }
}
