//! Passes the log lines of guests to the store.
//!
//! A guest never waits for its log: a line is added to a bounded buffer, limited by the rate of its
//! task, or is dropped and counted. The buffer is written to the store once a second. If the store
//! is unavailable, the lines are dropped; nothing depends on them. The host's own log contains the
//! lines within the rate as well.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use besom_core::budget::{self, Allowance};
use besom_core::ids::{RunId, TaskName};
use besom_core::time::Time;
use tokio::sync::{Notify, watch};

use super::clock;
use besom_ports::lines::{LINES_MAX_DEFAULT, LineSink, RunLine};
use besom_ports::store::Store;

/// Default for the log lines of one task that a node passes on per second.
pub const LINES_PER_S_DEFAULT: NonZeroU32 = NonZeroU32::new(200).expect("not zero");
/// A longer line counts as several, in bytes.
const LINE_BYTES: u64 = 256;
/// Maximum number of lines that wait for the store.
const WAITING_MAX: usize = 4_096;
/// Maximum number of runs whose losses are remembered until they are written.
const LOSSES_MAX: usize = 1_024;
/// Minimum interval between writes.
const WRITE_EVERY: Duration = Duration::from_secs(1);

/// The lines that wait for the store.
#[derive(Debug)]
pub struct Lines {
    node: String,
    per_s: NonZeroU32,
    kept: u32,
    waiting: Mutex<Waiting>,
    some: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<RunLine>,
    lost: BTreeMap<RunId, Lost>,
    /// The rates of tasks that have logged of late.
    rates: BTreeMap<TaskName, Rate>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    /// When the next line is within the rate ([`budget`]).
    free_at: Option<Time>,
    /// Lines beyond the rate since the last one within it.
    missing: u64,
}

/// Lost lines of a run that no later line has reported yet.
#[derive(Debug, Clone, Copy, Default)]
struct Lost {
    count: u64,
    /// Whether a write has passed without a later line. The losses are then reported without one.
    told: bool,
}

impl Lines {
    /// Creates a buffer for the node with that permanent name. It accepts `per_s` lines per second
    /// of each task and keeps `kept` lines of each run.
    pub fn new(node: &str, per_s: NonZeroU32, kept: u32) -> Lines {
        let node = node.to_owned();
        Lines { node, per_s, kept, waiting: Mutex::default(), some: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(
        &self,
        now: Time,
        task: &TaskName,
        run: RunId,
        level: &'static str,
        text: &str,
    ) -> Option<u64> {
        let mut waiting = self.waiting();
        if !waiting.rates.contains_key(task) {
            waiting.rates.insert(task.clone(), Rate::default());
        }
        let rate = waiting.rates.get_mut(task)?;
        let cost = (text.len() as u64).div_ceil(LINE_BYTES).max(1);
        let (grant, free_at) = budget::take(rate.free_at, now, cost, self.per_s);
        rate.free_at = free_at;
        if grant != Allowance::Now {
            rate.missing += 1;
            waiting.lose(run, 1);
            return None;
        }
        let missing = std::mem::take(&mut rate.missing);
        if waiting.lines.len() >= WAITING_MAX {
            waiting.lose(run, 1);
            return Some(missing);
        }
        let dropped = waiting.lost.remove(&run).map_or(0, |lost| lost.count);
        let (node, text) = (self.node.clone(), text.to_owned());
        waiting.lines.push(RunLine { run, at: now, node, level, text, dropped });
        Some(missing)
    }

    /// The lines to write now, and the losses that no line reports.
    fn take(&self) -> (Vec<RunLine>, Vec<(RunId, u64)>) {
        let mut waiting = self.waiting();
        let mut lost = Vec::new();
        waiting.lost.retain(|run, loss| {
            if loss.told {
                lost.push((*run, loss.count));
            }
            !std::mem::replace(&mut loss.told, true)
        });
        // A task that has logged nothing for a second regains its full rate.
        let now = clock::wall();
        let is_used = |at: Time| now.since(at) < WRITE_EVERY;
        waiting.rates.retain(|_, rate| rate.missing > 0 || rate.free_at.is_some_and(is_used));
        if !waiting.lost.is_empty() {
            self.some.notify_one();
        }
        (std::mem::take(&mut waiting.lines), lost)
    }

    /// Writes the waiting lines. Lines that the store does not accept are lost.
    async fn write(&self, store: &dyn Store) {
        let (lines, lost) = self.take();
        if lines.is_empty() && lost.is_empty() {
            return;
        }
        if let Err(error) = store.write_lines(&lines, &lost, self.kept).await {
            tracing::debug!(%error, lines = lines.len(), "log lines of guests are lost");
            let mut waiting = self.waiting();
            for line in &lines {
                waiting.lose(line.run, 1 + line.dropped);
            }
            for (run, count) in lost {
                waiting.lose(run, count);
            }
            self.some.notify_one();
        }
    }

    /// Writes lines until all other ends of `open` are dropped, and then the rest.
    pub async fn write_all(self: Arc<Self>, store: Arc<dyn Store>, mut open: watch::Receiver<()>) {
        loop {
            tokio::select! {
                () = self.some.notified() => {}
                _ = open.changed() => break,
            }
            self.write(store.as_ref()).await;
            tokio::select! {
                () = tokio::time::sleep(WRITE_EVERY) => {}
                _ = open.changed() => break,
            }
        }
        // Losses are reported in the second write only.
        self.write(store.as_ref()).await;
        self.write(store.as_ref()).await;
    }
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::new("", LINES_PER_S_DEFAULT, LINES_MAX_DEFAULT)
    }
}

impl Waiting {
    fn lose(&mut self, run: RunId, count: u64) {
        if !self.lost.contains_key(&run) && self.lost.len() >= LOSSES_MAX {
            self.lost.pop_first();
        }
        let lost = self.lost.entry(run).or_default();
        lost.count += count;
        lost.told = false;
    }
}

impl LineSink for Lines {
    fn line(&self, task: &TaskName, run: RunId, level: &'static str, text: &str) -> Option<u64> {
        let missing = self.add(clock::wall(), task, run, level, text);
        self.some.notify_one();
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: RunId = RunId(3);

    fn lines(per_s: u32) -> Lines {
        Lines::new("n1", NonZeroU32::new(per_s).expect("a rate"), 10)
    }

    fn seconds(s: i64) -> Time {
        Time::from_secs(1_000 + s)
    }

    fn log(lines: &Lines, at: Time, task: &str, run: RunId, text: &str) -> Option<u64> {
        lines.add(at, &task.into(), run, "info", text)
    }

    fn texts(taken: &[RunLine]) -> Vec<(&str, u64)> {
        taken.iter().map(|line| (line.text.as_str(), line.dropped)).collect()
    }

    #[test]
    fn a_flood_is_cut_to_its_rate_and_counted_with_the_next_line() {
        let lines = lines(2);
        for n in 0..9 {
            log(&lines, seconds(0), "loud", RUN, &n.to_string());
        }
        log(&lines, seconds(0), "quiet", RunId(4), "heard");
        log(&lines, seconds(1), "loud", RUN, "after");
        let (taken, lost) = lines.take();
        let mut expected: Vec<(String, u64)> =
            (0..taken.len() - 2).map(|n| (n.to_string(), 0)).collect();
        let dropped = 9 - expected.len() as u64;
        assert!((2..=3).contains(&expected.len()), "about a second's worth: {taken:?}");
        expected.extend([("heard".to_owned(), 0), ("after".to_owned(), dropped)]);
        let expected: Vec<_> = expected.iter().map(|(text, n)| (text.as_str(), *n)).collect();
        assert_eq!((texts(&taken), lost), (expected, Vec::new()));
        assert!(taken.iter().all(|line| line.node == "n1" && line.level == "info"));
    }

    #[test]
    fn losses_that_no_line_follows_are_told_a_write_later() {
        let lines = lines(1);
        for n in 0..10 {
            log(&lines, seconds(0), "loud", RUN, &n.to_string());
        }
        let (first, lost) = lines.take();
        assert!(lost.is_empty());
        let left = 10 - first.len() as u64;
        assert_eq!(lines.take(), (Vec::new(), vec![(RUN, left)]));
        assert_eq!(lines.take(), (Vec::new(), Vec::new()));
    }

    #[test]
    fn a_line_beyond_the_rate_is_for_no_log_and_is_counted_with_the_next() {
        let lines = lines(2);
        let told: Vec<_> = (0..6).map(|_| log(&lines, seconds(0), "loud", RUN, "x")).collect();
        let within = told.iter().flatten().count() as u64;
        assert_eq!(told[..within as usize], vec![Some(0); within as usize]);
        assert!((2..=3).contains(&within), "{told:?}");
        assert_eq!(log(&lines, seconds(1), "loud", RUN, "x"), Some(6 - within));
        // A line of 4 KiB counts as sixteen: it takes the next eight seconds.
        assert_eq!(log(&lines, seconds(2), "loud", RUN, &"x".repeat(4_096)), Some(0));
        assert_eq!(log(&lines, seconds(8), "loud", RUN, "x"), None);
        assert_eq!(log(&lines, seconds(12), "loud", RUN, "x"), Some(1));
    }

    #[test]
    fn the_room_is_bounded() {
        let lines = lines(u32::MAX);
        let more = 5;
        for n in 0..WAITING_MAX + more {
            log(&lines, seconds(n as i64), "loud", RUN, "x");
        }
        assert_eq!(lines.take().0.len(), WAITING_MAX);
        assert_eq!(lines.take().1, [(RUN, more as u64)]);
    }

    #[test]
    fn losses_are_remembered_of_so_many_runs() {
        let lines = lines(1);
        for run in 0..LOSSES_MAX as u64 + 50 {
            log(&lines, seconds(0), "loud", RunId(run), "x");
        }
        assert!(lines.waiting().lost.len() <= LOSSES_MAX);
    }
}
