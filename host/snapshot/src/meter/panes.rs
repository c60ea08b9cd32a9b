//! Recent measurements in panes of equal length; older ones are discarded.

use std::collections::VecDeque;
use std::time::Duration;

use besom_core::time::Mono;

/// The latest panes, each with its number since the start; empty panes are left out.
#[derive(Debug)]
pub(super) struct Panes<T> {
    start: Mono,
    span_us: u64,
    kept: usize,
    panes: VecDeque<(u64, T)>,
}

impl<T: Default> Panes<T> {
    /// Panes of length `span` from `start` on; this many are kept, including the current one.
    pub(super) fn new(start: Mono, span: Duration, kept: usize) -> Panes<T> {
        let span_us = u64::try_from(span.as_micros()).unwrap_or(u64::MAX).max(1);
        Panes { start, span_us, kept, panes: VecDeque::new() }
    }

    fn number(&self, now: Mono) -> u64 {
        now.0.saturating_sub(self.start.0) / self.span_us
    }

    fn forget(&mut self, number: u64) {
        while self.panes.front().is_some_and(|(old, _)| old + self.kept as u64 <= number) {
            self.panes.pop_front();
        }
    }

    /// The current pane.
    pub(super) fn at(&mut self, now: Mono) -> &mut T {
        let number = self.number(now);
        self.forget(number);
        if self.panes.back().is_none_or(|(last, _)| *last < number) {
            self.panes.push_back((number, T::default()));
        }
        let last = self.panes.len() - 1;
        &mut self.panes[last].1
    }

    /// The panes that are kept, oldest first.
    pub(super) fn recent(&mut self, now: Mono) -> impl Iterator<Item = (u64, &T)> {
        self.forget(self.number(now));
        self.panes.iter().map(|(number, pane)| (*number, pane))
    }
}

impl Panes<u32> {
    /// One number per pane, oldest first, including empty panes; none for the time before the
    /// start.
    pub(super) fn series(&mut self, now: Mono) -> Vec<u32> {
        let last = self.number(now);
        let first = (last + 1).saturating_sub(self.kept as u64);
        let mut series = vec![0; usize::try_from(last + 1 - first).unwrap_or(0)];
        for (number, count) in self.recent(now) {
            let place = number.checked_sub(first).and_then(|at| usize::try_from(at).ok());
            if let Some(slot) = place.and_then(|at| series.get_mut(at)) {
                *slot = *count;
            }
        }
        series
    }
}
