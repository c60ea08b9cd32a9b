//! The jobs that wait for the writer, by priority.
//!
//! A job of a higher priority goes first. So that nothing starves, the lowest priority with a waiting
//! job is served after [`PASSED_OVER_MAX`] jobs have overtaken it.
//!
//! Other work often takes several jobs, each of which follows from the one before. A heavy job therefore does not
//! begin immediately after another job, but after a fraction of the time that the last heavy job took:
//! otherwise each of them would wait for a heavy one.
//!
//! While bulk work rests for the sake of other processes, the jobs that are no bulk work go on.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use besom_record::courtesy::{BULK_KINDS, Bulk};

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

impl Priority {
    /// The turn of bulk work of this priority.
    pub(super) fn bulk(self, bulk: Bulk) -> Turn {
        Turn { priority: self, bulk: Some(bulk) }
    }
}

/// When a job has its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) priority: Priority,
    /// Whether it rests between its transactions while other processes write.
    bulk: Option<Bulk>,
}

impl From<Priority> for Turn {
    fn from(priority: Priority) -> Turn {
        Turn { priority, bulk: None }
    }
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
    jobs: [VecDeque<(Option<Bulk>, J)>; PRIORITIES.len()],
    passed_over: u32,
    closed: bool,
    /// The job that was handed out last, and when.
    running: Option<(Turn, Instant)>,
    /// By kind: no such bulk work begins before this time.
    bulk_at: [Option<Instant>; BULK_KINDS],
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
            bulk_at: [None; BULK_KINDS],
            heavy_took: Duration::ZERO,
            heavy_at: None,
        });
        Queue { state, filled: Condvar::new() }
    }

    /// Adds a job; returns it if the queue is closed.
    pub(super) fn push(&self, turn: Turn, job: J) -> Result<(), J> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if state.closed {
            return Err(job);
        }
        state.jobs[turn.priority as usize].push_back((turn.bulk, job));
        self.filled.notify_one();
        Ok(())
    }

    /// If the job that was handed out last was bulk work, work of its kind rests for this long.
    pub(super) fn rest(&self, now: Instant, for_bulk: impl FnOnce(Bulk) -> Duration) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((Turn { bulk: Some(bulk), .. }, _)) = state.running {
            state.bulk_at[bulk as usize] = Some(now + for_bulk(bulk));
        }
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
            Some((Turn { priority: Priority::Heavy, .. }, since)) => {
                self.heavy_took = now.duration_since(since);
            }
            Some(_) => {
                let pause = (self.heavy_took / FOLLOWED_FRACTION).min(FOLLOWED_MAX);
                self.heavy_at = Some(now + pause);
            }
            None => {}
        }
    }

    fn next(&mut self, now: Instant) -> Next<J> {
        let rests_until = |bulk: &Option<Bulk>| {
            let at = self.bulk_at[(*bulk)? as usize];
            at.filter(|at| *at > now && !self.closed)
        };
        // The first of each priority that may begin.
        let first = |of: &Priority| {
            let mut jobs = self.jobs[*of as usize].iter();
            jobs.position(|(bulk, _)| rests_until(bulk).is_none())
        };
        let mut waiting = PRIORITIES.into_iter().filter_map(|of| Some((of, first(&of)?)));
        let Some(highest) = waiting.next() else {
            let rests = self.jobs.iter().flatten().filter_map(|(bulk, _)| rests_until(bulk));
            return rests.min().map_or(Next::None, Next::At);
        };
        let lowest = waiting.next_back().unwrap_or(highest);
        let is_passed_over = self.passed_over >= PASSED_OVER_MAX;
        let (priority, place) = if is_passed_over { lowest } else { highest };
        if priority == Priority::Heavy
            && !is_passed_over
            && !self.closed
            && let Some(at) = self.heavy_at.filter(|at| *at > now)
        {
            return Next::At(at);
        }
        let Some((bulk, job)) = self.jobs[priority as usize].remove(place) else {
            return Next::None;
        };
        self.passed_over = if priority == lowest.0 { 0 } else { self.passed_over + 1 };
        self.running = Some((Turn { priority, bulk }, now));
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
            queue.push(priority.into(), job).unwrap();
        }
        queue.close();
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_lower_priority_has_its_turn_in_the_end() {
        let queue = Queue::new();
        queue.push(Priority::Heavy.into(), 0).unwrap();
        for job in 1..=100 {
            queue.push(Priority::Due.into(), job).unwrap();
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
            state.jobs[priority as usize].push_back((None, 0));
            assert!(matches!(state.next(start), Next::Job(0)));
            state.ended(start + Duration::from_secs(seconds));
        };
        handed_out(Priority::Heavy, 10, &mut state);
        handed_out(Priority::Normal, 20, &mut state);
        state.jobs[Priority::Heavy as usize].push_back((None, 1));
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
    fn bulk_work_rests_while_other_jobs_go_on() {
        let queue = Queue::new();
        let bulk = Priority::Normal.bulk(Bulk::Ranges);
        for (turn, job) in [(bulk, 1), (bulk, 2), (Priority::Normal.into(), 3), (bulk, 4)] {
            queue.push(turn, job).unwrap();
        }
        assert_eq!(queue.pop(), Some(1));
        let (now, hour) = (Instant::now(), Duration::from_secs(3_600));
        let until = now + hour;
        queue.rest(now, |_| hour);
        assert_eq!(queue.pop(), Some(3));
        queue.rest(now, |_| 2 * hour);
        let mut state = queue.state.lock().unwrap();
        let Next::At(at) = state.next(Instant::now()) else { panic!("it rests") };
        assert_eq!(at, until, "only bulk work prolongs its rest");
        state.jobs[Priority::Normal as usize].push_back((Some(Bulk::Items), 5));
        assert!(matches!(state.next(Instant::now()), Next::Job(5)), "the other kind goes on");
        assert!(matches!(state.next(until), Next::Job(2)));
        drop(state);
        queue.close();
        assert_eq!((queue.pop(), queue.pop()), (Some(4), None), "nothing rests at the end");
    }

    #[test]
    fn a_closed_queue_takes_no_job() {
        let queue = Queue::new();
        queue.close();
        assert_eq!(queue.push(Priority::Normal.into(), 7), Err(7));
    }
}
