//! The jobs that wait for the writer, in lanes.
//!
//! A job of a higher lane goes first. So that nothing starves, the lowest waiting lane is served
//! after [`PASSED_OVER_MAX`] jobs have overtaken it.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex};

/// The lanes, highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lane {
    /// The lease and the fence.
    Lease,
    /// Commits with due items.
    Due,
    /// All other jobs.
    Normal,
    /// Commits that delete read sets, imports, pruning.
    Heavy,
}

const LANES: usize = 4;

/// How many jobs may overtake a waiting one of a lower lane.
const PASSED_OVER_MAX: u32 = 16;

/// A priority queue with a few lanes; it is closed when its owner ends.
pub(super) struct Queue<J> {
    state: Mutex<State<J>>,
    filled: Condvar,
}

struct State<J> {
    lanes: [VecDeque<J>; LANES],
    passed_over: u32,
    closed: bool,
}

impl<J> Queue<J> {
    pub(super) fn new() -> Queue<J> {
        let lanes = std::array::from_fn(|_| VecDeque::new());
        let state = Mutex::new(State { lanes, passed_over: 0, closed: false });
        Queue { state, filled: Condvar::new() }
    }

    /// Adds a job; returns it if the queue is closed.
    pub(super) fn push(&self, lane: Lane, job: J) -> Result<(), J> {
        let mut state = self.state.lock().unwrap_or_else(|e| e.into_inner());
        if state.closed {
            return Err(job);
        }
        state.lanes[lane as usize].push_back(job);
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
        let highest = self.lanes.iter().position(|lane| !lane.is_empty())?;
        let lowest = self.lanes.iter().rposition(|lane| !lane.is_empty())?;
        let turn =
            if highest < lowest && self.passed_over >= PASSED_OVER_MAX { lowest } else { highest };
        self.passed_over = if turn == lowest { 0 } else { self.passed_over + 1 };
        self.lanes[turn].pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_higher_lane_goes_first() {
        let queue = Queue::new();
        for (lane, job) in [(Lane::Heavy, 4), (Lane::Normal, 3), (Lane::Due, 2), (Lane::Lease, 1)] {
            queue.push(lane, job).unwrap();
        }
        queue.close();
        assert_eq!(std::iter::from_fn(|| queue.pop()).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn a_lower_lane_has_its_turn_in_the_end() {
        let queue = Queue::new();
        queue.push(Lane::Heavy, 0).unwrap();
        for job in 1..=100 {
            queue.push(Lane::Due, job).unwrap();
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
        assert_eq!(queue.push(Lane::Normal, 7), Err(7));
    }
}
