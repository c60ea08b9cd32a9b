//! Measures a node's recent work: the numbers of its [`Report`].
//!
//! The meter records when a batch is handed to its guest, what the guest has used, and what a
//! commit did with the items. It keeps a bounded amount: a quarter of an hour in panes, the hottest
//! keys in a sketch, and the runs touched last. It makes no decisions about work and delays
//! nothing. It does not know why anything was slow.
//!
//! ```text
//!            rates    60 panes of 15 s    a count
//! batches ─> latency  15 panes of 1 min   a histogram
//!            hot       3 panes of 5 min   a sketch of 64 keys
//! ```

mod hot;
mod panes;
mod runs;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{LATENCY_BOUNDS_US, Latency, RATE_SAMPLE_S, RATE_SAMPLES, Report};
use besom_core::ids::{CommitId, RunId, TaskName};
use besom_core::item::Item;
use besom_core::time::Mono;
use hot::Sketch;
use panes::Panes;
use runs::Runs;

/// Batches that are timed at once; beyond that, the oldest are not timed.
const UNDER_WAY_MAX: usize = 4_096;
/// The length of one latency histogram; [`LATENCY_PANES`] of them make a quarter of an hour.
const LATENCY_PANE: Duration = Duration::from_secs(60);
const LATENCY_PANES: usize = 15;
/// The length of one sketch of hot keys; [`HOT_PANES`] of them make a quarter of an hour.
const HOT_PANE: Duration = Duration::from_secs(300);
const HOT_PANES: usize = 3;

/// How an item left a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Committed with effects.
    Committed,
    /// Ended without effects.
    Skipped,
    /// Moved to the retries: the item has not ended.
    Retried,
    /// Set aside as a dead letter.
    Dead,
}

/// The resources that calls of a guest have used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Fuel used.
    pub fuel: u64,
    /// The maximum linear memory, in bytes.
    pub memory_bytes: u64,
    /// Calls of imports.
    pub host_calls: u64,
    /// Rows read.
    pub rows_read: u64,
    /// Instances created.
    pub instances: u64,
}

/// The measurements of a node.
#[derive(Debug)]
pub struct Meter {
    under_way: BTreeMap<CommitId, Batch>,
    finished: BTreeMap<TaskName, u64>,
    died: u64,
    rates: Panes<u32>,
    latency: Panes<[u64; LATENCY_BOUNDS_US.len() + 1]>,
    hot: Panes<Sketch>,
    runs: Runs,
}

/// A batch that is being executed or committed.
#[derive(Debug)]
struct Batch {
    since: Mono,
    /// How many of its items each run has planned.
    runs: Vec<(RunId, u32)>,
}

impl Meter {
    /// A meter without work before `now`.
    pub fn new(now: Mono) -> Meter {
        Meter {
            under_way: BTreeMap::new(),
            finished: BTreeMap::new(),
            died: 0,
            rates: Panes::new(now, Duration::from_secs(RATE_SAMPLE_S), RATE_SAMPLES),
            latency: Panes::new(now, LATENCY_PANE, LATENCY_PANES),
            hot: Panes::new(now, HOT_PANE, HOT_PANES),
            runs: Runs::default(),
        }
    }

    /// A batch is handed to its guest.
    pub fn begin<'a>(
        &mut self,
        now: Mono,
        batch: CommitId,
        items: impl IntoIterator<Item = &'a Item>,
    ) {
        if self.under_way.len() >= UNDER_WAY_MAX {
            let oldest = self.under_way.iter().min_by_key(|(_, batch)| batch.since);
            if let Some(id) = oldest.map(|(id, _)| *id) {
                self.under_way.remove(&id);
            }
        }
        let mut runs: Vec<(RunId, u32)> = Vec::new();
        for item in items {
            match runs.iter_mut().find(|(run, _)| *run == item.run) {
                Some((_, count)) => *count += 1,
                None => runs.push((item.run, 1)),
            }
        }
        self.under_way.insert(batch, Batch { since: now, runs });
    }

    /// A batch will not be committed.
    pub fn abandon(&mut self, batch: CommitId) {
        self.under_way.remove(&batch);
    }

    /// No batch under way will be committed by this node: it has lost its partitions.
    pub fn abandon_all(&mut self) {
        self.under_way.clear();
    }

    /// Calls of a guest for a run have ended.
    pub fn used(&mut self, now: Mono, run: RunId, used: &Used) {
        let run = self.runs.of(now, run);
        run.fuel = run.fuel.saturating_add(used.fuel);
        run.fuel_most = run.fuel_most.max(used.fuel);
        run.memory_most = run.memory_most.max(used.memory_bytes);
        run.host_calls = run.host_calls.saturating_add(used.host_calls);
        run.rows_read = run.rows_read.saturating_add(used.rows_read);
        run.instances = run.instances.saturating_add(used.instances);
    }

    /// A commit has succeeded with these items of its batch; items that it left out are not among
    /// them.
    pub fn land<'a>(
        &mut self,
        now: Mono,
        batch: CommitId,
        ends: impl IntoIterator<Item = (&'a Item, End)>,
    ) {
        let mut ended = 0;
        let hot = self.hot.at(now);
        for (item, end) in ends {
            let run = self.runs.of(now, item.run);
            match end {
                End::Committed => run.committed += 1,
                End::Skipped => run.skipped += 1,
                End::Dead => {
                    run.dead += 1;
                    self.died += 1;
                }
                End::Retried => {
                    run.retried += 1;
                    continue;
                }
            }
            ended += 1;
            hot.add(item);
            match self.finished.get_mut(&item.identity.task) {
                Some(count) => *count += 1,
                None => {
                    self.finished.insert(item.identity.task.clone(), 1);
                }
            }
        }
        let rate = self.rates.at(now);
        *rate = rate.saturating_add(ended);
        if let Some(batch) = self.under_way.remove(&batch) {
            let us = now.0.saturating_sub(batch.since.0);
            let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < us);
            self.latency.at(now)[bucket] += u64::from(ended);
        }
    }

    /// Runs have ended; they are reported for a while longer.
    pub fn ended(&mut self, runs: &[RunId]) {
        self.runs.ended(runs);
    }

    /// Writes the measurements into a report.
    pub fn fill(&mut self, now: Mono, report: &mut Report) {
        let under_way = self.under_way.values().flat_map(|batch| &batch.runs);
        report.running = under_way.clone().map(|(_, count)| count).sum();
        report.finished =
            self.finished.iter().map(|(task, count)| (task.to_string(), *count)).collect();
        report.died = self.died;
        report.rates = self.rates.series(now);
        report.latency = Latency::default();
        for (_, pane) in self.latency.recent(now) {
            report.latency.merge(&Latency(pane.to_vec()));
        }
        let panes: Vec<&Sketch> = self.hot.recent(now).map(|(_, sketch)| sketch).collect();
        (report.hot, report.hot_of) = hot::hottest(&panes);
        report.runs = self.runs.report(now, under_way);
    }
}
