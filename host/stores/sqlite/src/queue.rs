//! The jobs that wait for the writer, by priority.
//!
//! A job of a higher priority goes first. So that nothing starves, the lowest priority with a waiting
//! job is served after [`PASSED_OVER_MAX`] jobs have overtaken it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

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

const PRIORITIES: usize = 4;

/// How many jobs may overtake a waiting one of a lower priority.
const PASSED_OVER_MAX: u32 = 16;

/// A priority queue; it is closed when its owner ends.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    filled: Condvar,
}

struct State<J> {
    jobs: [VecDeque<J>; PRIORITIES],
    passed_over: u32,
    closed: bool,
}

impl<J> Queue<J> {
    pub(super) fn new() -> Queue<J> {
        let jobs = std::array::from_fn(|_| VecDeque::new());
        let state = Mutex::new(State { jobs, passed_over: 0, closed: false });
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

    /// Waits for the next job; none once the queue is closed and empty.
    pub(super) fn pop(&self) -> Option<J> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        loop {
            if let Some(job) = state.next() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.filled.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Accepts no more jobs; waiting ones are still done.
    pub(super) fn close(&self) {
        self.state.lock().unwrap_or_else(|e| e.into_inner()).closed = true;
        self.filled.notify_all();
    }
}

impl<J> State<J> {
    fn next(&mut self) -> Option<J> {
        let highest = self.jobs.iter().position(|jobs| !jobs.is_empty())?;
        let lowest = self.jobs.iter().rposition(|jobs| !jobs.is_empty())?;
        let turn =
            if highest < lowest && self.passed_over >= PASSED_OVER_MAX { lowest } else { highest };
        self.passed_over = if turn == lowest { 0 } else { self.passed_over + 1 };
        self.jobs[turn].pop_front()
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

    #[test]
    fn a_closed_queue_takes_no_job() {
        let queue = Queue::new();
        queue.close();
        assert_eq!(queue.push(Priority::Normal, 7), Err(7));
    }
}
