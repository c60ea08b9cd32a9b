//! A node's work for each run, while the run is of interest.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::RunAtNode;
use besom_core::ids::RunId;
use besom_core::time::Mono;

/// Runs that are counted; beyond that, the one touched longest ago is discarded.
pub(super) const RUNS_MAX: usize = 32;
/// How long a run is reported after its end, so that a periodic reader sees short runs, too.
pub(super) const TOLD_AFTER_END: Duration = Duration::from_secs(60);
/// How long a run is reported while this node does nothing for it.
const TOLD_IDLE: Duration = Duration::from_secs(900);

/// The runs that were touched last.
#[derive(Debug, Default)]
pub(super) struct Runs(BTreeMap<RunId, Counted>);

#[derive(Debug)]
struct Counted {
    numbers: RunAtNode,
    touched: Mono,
    ended: bool,
}

impl Runs {
    /// The counters of a run that this node works on now.
    pub(super) fn of(&mut self, now: Mono, run: RunId) -> &mut RunAtNode {
        if !self.0.contains_key(&run) && self.0.len() >= RUNS_MAX {
            let idle = self.0.iter().min_by_key(|(_, counted)| counted.touched);
            if let Some(run) = idle.map(|(run, _)| *run) {
                self.0.remove(&run);
            }
        }
        let counted = self.0.entry(run).or_insert_with(|| Counted {
            numbers: RunAtNode { run: run.0, ..RunAtNode::default() },
            touched: now,
            ended: false,
        });
        counted.touched = now;
        &mut counted.numbers
    }

    /// Runs have ended.
    pub(super) fn ended(&mut self, runs: &[RunId]) {
        for run in runs {
            if let Some(counted) = self.0.get_mut(run) {
                counted.ended = true;
            }
        }
    }

    /// The runs to report, with the number of items of each under way.
    pub(super) fn report<'a>(
        &mut self,
        now: Mono,
        under_way: impl Iterator<Item = &'a (RunId, u32)>,
    ) -> Vec<RunAtNode> {
        self.0.retain(|_, counted| {
            let told = if counted.ended { TOLD_AFTER_END } else { TOLD_IDLE };
            now.since(counted.touched) <= told
        });
        for counted in self.0.values_mut() {
            counted.numbers.running = 0;
        }
        for (run, count) in under_way {
            self.of(now, *run).running += count;
        }
        self.0.values().map(|counted| counted.numbers.clone()).collect()
    }
}
