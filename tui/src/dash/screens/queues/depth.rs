//! The rows of the queues, by task or by node: what waits, how fast it comes and goes, and when
//! there will be nothing left.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::snapshot::{NodeState, RATE_SAMPLE_S};
use besom_core::time::Time;

use crate::dash::context::Context;
use crate::dash::table::SortKey;
use crate::dash::trends::SAMPLE_S;

/// Samples of the depth that tell how fast it grows: a minute.
const GROWTH_SAMPLES: usize = 4;

/// What waits in one place. What is not known is none.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Row<'a> {
    pub name: &'a str,
    pub ready: Option<u64>,
    pub timers: Option<u64>,
    pub retries: Option<u64>,
    pub running: Option<u64>,
    pub dead: Option<u64>,
    pub arriving: Option<f64>,
    pub leaving: Option<f64>,
    /// Since when the oldest waits.
    pub oldest: Option<Time>,
}

/// When there will be nothing left.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum Drain {
    /// Nothing waits.
    Empty,
    /// After so long, if everything goes on as it does.
    After(Duration),
    /// As much comes as goes, or more.
    Never,
    /// It cannot be told.
    Unknown,
}

impl Row<'_> {
    /// When there will be nothing left that waits for its turn; retries wait for their time.
    pub(super) fn drain(&self) -> Drain {
        match (self.ready, self.arriving, self.leaving) {
            (Some(0), _, _) => Drain::Empty,
            (Some(waiting), Some(arriving), Some(leaving)) => {
                let shrinks = leaving - arriving;
                if shrinks <= 0.001 {
                    return Drain::Never;
                }
                Drain::After(Duration::from_secs_f64((waiting as f64 / shrinks).min(1e9)))
            }
            _ => Drain::Unknown,
        }
    }

    /// What a column is sorted by.
    pub(super) fn key(&self, column: usize) -> SortKey<'_> {
        let count = |n: Option<u64>| n.map_or(SortKey::Unknown, |n| SortKey::Number(n as f64));
        let rate = |n: Option<f64>| n.map_or(SortKey::Unknown, SortKey::Number);
        match column {
            1 => count(self.ready),
            2 => count(self.timers),
            3 => count(self.retries),
            4 => count(self.running),
            5 => count(self.dead),
            6 => rate(self.arriving),
            7 => rate(self.leaving),
            8 => match self.drain() {
                Drain::Empty => SortKey::Number(0.0),
                Drain::After(span) => SortKey::Number(span.as_secs_f64()),
                Drain::Never => SortKey::Number(f64::INFINITY),
                Drain::Unknown => SortKey::Unknown,
            },
            // The one that has waited longest is the oldest, and the most.
            9 => self.oldest.map_or(SortKey::Unknown, |at| SortKey::Number(-(at.0 as f64))),
            _ => SortKey::Text(self.name),
        }
    }
}

/// A row for each task.
pub(super) fn by_task<'a>(cx: &Context<'a>) -> Vec<Row<'a>> {
    // What a node runs it tells by run; which task that is, the runs tell.
    let task_of: BTreeMap<u64, &str> =
        cx.snap.runs.iter().map(|run| (run.id, run.task.as_str())).collect();
    let mut running: BTreeMap<&str, u64> = BTreeMap::new();
    let reports = cx.snap.nodes.iter().filter_map(|node| node.report.as_ref());
    for at_node in reports.flat_map(|report| &report.runs) {
        if let Some(task) = task_of.get(&at_node.run) {
            *running.entry(task).or_default() += u64::from(at_node.running);
        }
    }
    let row = |task: &'a std::sync::Arc<besom_core::snapshot::Task>| Row {
        name: &task.name,
        ready: Some(task.depth.log),
        timers: Some(task.depth.timers),
        retries: Some(task.depth.retries),
        running: Some(running.get(task.name.as_str()).copied().unwrap_or(0)),
        dead: Some(task.depth.dead),
        arriving: task.in_per_s,
        leaving: task.out_per_s,
        oldest: task.depth.oldest,
    };
    cx.snap.tasks.iter().map(row).collect()
}

/// A row for each node. What comes to a node nobody counts: it is what goes, and what the depth
/// has grown by.
pub(super) fn by_node<'a>(cx: &Context<'a>) -> Vec<Row<'a>> {
    let row = |node: &'a std::sync::Arc<besom_core::snapshot::Node>| {
        let lost = node.state == NodeState::Lost;
        let report = node.report.as_ref().filter(|_| !lost);
        // The last sample is not complete.
        let rates = report.map(|report| &report.rates);
        let last = rates.and_then(|rates| rates.iter().rev().nth(1));
        let leaving = last.map(|n| f64::from(*n) / RATE_SAMPLE_S as f64);
        let growth = growth(&cx.trends.node(&node.name, cx.now, GROWTH_SAMPLES));
        let arriving = leaving.zip(growth).map(|(leaving, growth)| (leaving + growth).max(0.0));
        Row {
            name: &node.name,
            ready: (!lost).then_some(node.queued),
            running: report.map(|report| u64::from(report.running)),
            dead: report.map(|report| report.died),
            arriving,
            leaving,
            ..Row::default()
        }
    };
    cx.snap.nodes.iter().map(row).collect()
}

/// By how many a depth grows in each second; none: too little is known.
fn growth(depths: &[Option<u64>]) -> Option<f64> {
    let first = depths.iter().position(Option::is_some)?;
    let last = depths.iter().rposition(Option::is_some)?;
    let (from, to) = (depths[first]?, depths[last]?);
    let seconds = (last - first) as f64 * SAMPLE_S as f64;
    (seconds > 0.0).then(|| (to as f64 - from as f64) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_never_drains_and_what_is_not_known_is_not_told() {
        let row = |ready, arriving, leaving| Row { ready, arriving, leaving, ..Row::default() };
        for (row, expected) in [
            (row(Some(0), None, None), Drain::Empty),
            (row(Some(60), Some(1.0), Some(3.0)), Drain::After(Duration::from_secs(30))),
            (row(Some(60), Some(3.0), Some(3.0)), Drain::Never),
            (row(Some(60), Some(9.0), Some(3.0)), Drain::Never),
            (row(Some(60), None, Some(3.0)), Drain::Unknown),
            (row(None, Some(1.0), Some(3.0)), Drain::Unknown),
        ] {
            assert_eq!(row.drain(), expected, "{row:?}");
        }
    }

    #[test]
    fn growth_is_told_by_the_first_and_the_last_known_depth() {
        for (depths, expected) in [
            (vec![], None),
            (vec![Some(5)], None),
            (vec![None, Some(10), Some(40)], Some(2.0)),
            (vec![Some(100), None, Some(40)], Some(-2.0)),
        ] {
            assert_eq!(growth(&depths), expected, "{depths:?}");
        }
    }
}
