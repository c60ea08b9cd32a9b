//! The rows of the queues, by task or by node: how much is waiting, how fast it arrives and leaves,
//! and when the queue will be empty.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{NodeState, RATE_SAMPLE_S};

use super::By;
use crate::dash::context::Context;
use crate::dash::table::{Cell, Column, Emphasis, SortKey, Width, plain};
use crate::dash::text;
use crate::dash::trends::SAMPLE_S;
use crate::dash::widgets::spark::spark;

/// Samples used to estimate the growth: one minute.
const GROWTH_SAMPLES: usize = 4;
/// Samples of the depth that are drawn.
const SAMPLES: usize = 15;
/// An item that has waited longer is highlighted.
const OLDEST_MAX_S: u64 = 60;

/// The waiting items of a task or a node; none: unknown.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Row<'a> {
    pub by: By,
    pub name: &'a str,
    pub ready: Option<u64>,
    pub timers: Option<u64>,
    pub retries: Option<u64>,
    pub running: Option<u64>,
    pub dead: Option<u64>,
    pub arriving: Option<f64>,
    pub leaving: Option<f64>,
    /// Since when the oldest item has been waiting.
    pub oldest: Option<Time>,
}

/// When a queue will be empty.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(super) enum Drain {
    /// It is empty.
    Empty,
    /// After this time, at the current rate.
    After(Duration),
    /// Items arrive as fast as they leave, or faster.
    Never,
    /// Too little is known.
    Unknown,
}

impl Row<'_> {
    /// When the items waiting for their turn will be done; retries wait for their time.
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
}

/// A count, and the number it sorts by.
fn count(n: Option<u64>) -> Cell {
    plain(n.map_or_else(|| "?".to_owned(), text::count))
}

fn number(n: Option<u64>) -> SortKey<'static> {
    SortKey::number(n.map(|n| n as f64))
}

type Col<'a> = Column<Row<'a>>;

impl<'a> Row<'a> {
    /// The columns of the queues.
    pub(super) const COLUMNS: [Column<Row<'a>>; 11] = [
        Col::left("NAME", Width::Fill(12), 0, |row, _| plain(row.name))
            .by(|row, _| SortKey::Text(row.name)),
        Col::right("READY", Width::Fixed(6), 0, |row, _| count(row.ready))
            .by(|row, _| number(row.ready)),
        Col::right("TIMERS", Width::Fixed(6), 7, |row, _| count(row.timers))
            .by(|row, _| number(row.timers)),
        Col::right("RETRY", Width::Fixed(5), 4, |row, _| count(row.retries))
            .by(|row, _| number(row.retries)),
        Col::right("RUN", Width::Fixed(4), 5, |row, _| count(row.running))
            .by(|row, _| number(row.running)),
        Col::right("DEAD", Width::Fixed(5), 2, |row, _| {
            let some = row.dead.is_some_and(|n| n > 0);
            (count(row.dead).0, if some { Emphasis::Warn } else { Emphasis::Text })
        })
        .by(|row, _| number(row.dead)),
        Col::right("IN/s", Width::Fixed(5), 6, |row, _| plain(text::rate(row.arriving)))
            .by(|row, _| SortKey::number(row.arriving)),
        Col::right("OUT/s", Width::Fixed(5), 6, |row, _| plain(text::rate(row.leaving)))
            .by(|row, _| SortKey::number(row.leaving)),
        Col::right("DRAIN", Width::Fixed(6), 1, |row, _| match row.drain() {
            Drain::Empty => ("-".to_owned(), Emphasis::Dim),
            Drain::After(span) => plain(text::short(span)),
            Drain::Never => ("NEVER".to_owned(), Emphasis::Bad),
            Drain::Unknown => plain("?"),
        })
        .by(|row, _| match row.drain() {
            Drain::Empty => SortKey::Number(0.0),
            Drain::After(span) => SortKey::Number(span.as_secs_f64()),
            Drain::Never => SortKey::Number(f64::INFINITY),
            Drain::Unknown => SortKey::Unknown,
        }),
        // The item that has waited longest is the oldest, and sorts as the largest.
        Col::right("OLDEST", Width::Fixed(6), 3, Row::waits)
            .by(|row, _| SortKey::number(row.oldest.map(|at| -(at.0 as f64)))),
        Col::left("DEPTH 15m", Width::Fixed(SAMPLES as u16), 8, |row, cx| {
            let depths = match row.by {
                By::Task => cx.trends.task(row.name, cx.now, SAMPLES * 4),
                By::Node => cx.trends.node(row.name, cx.now, SAMPLES * 4),
            };
            (spark(&minutes(&depths), SAMPLES), Emphasis::Spark)
        }),
    ];

    /// The column that the table is sorted by at first.
    pub(super) const READY: usize = 1;

    fn waits(&self, cx: &Context<'_>) -> Cell {
        match (self.oldest, self.ready) {
            (Some(at), _) => {
                let waits = cx.now.since(at);
                let late = waits.as_secs() > OLDEST_MAX_S;
                (text::short(waits), if late { Emphasis::Warn } else { Emphasis::Text })
            }
            (None, Some(0)) => ("-".to_owned(), Emphasis::Dim),
            (None, _) => plain("?"),
        }
    }
}

/// Converts samples of a quarter of a minute to minutes: the maximum of each.
fn minutes(depths: &[Option<u64>]) -> Vec<Option<u64>> {
    depths.rchunks(4).rev().map(|four| four.iter().flatten().copied().max()).collect()
}

/// One row per task.
pub(super) fn by_task<'a>(cx: &Context<'a>) -> Vec<Row<'a>> {
    // Nodes report their running items per run; the runs name the task.
    let task_of: BTreeMap<u64, &str> =
        cx.snap.runs.iter().map(|run| (run.id, run.task.as_str())).collect();
    let mut running: BTreeMap<&str, u64> = BTreeMap::new();
    let reports = cx.snap.nodes.iter().filter_map(|node| node.report.as_ref());
    for at_node in reports.flat_map(|report| &report.runs) {
        if let Some(task) = task_of.get(&at_node.run) {
            *running.entry(task).or_default() += u64::from(at_node.running);
        }
    }
    let row = |task: &'a std::sync::Arc<besom_snapshot::Task>| Row {
        by: By::Task,
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

/// One row per node. Arrivals at a node are not counted: they are computed from departures and
/// growth.
pub(super) fn by_node<'a>(cx: &Context<'a>) -> Vec<Row<'a>> {
    let row = |node: &'a std::sync::Arc<besom_snapshot::Node>| {
        let lost = node.state == NodeState::Lost;
        let report = node.report.as_ref().filter(|_| !lost);
        // The last sample is incomplete.
        let rates = report.map(|report| &report.rates);
        let last = rates.and_then(|rates| rates.iter().rev().nth(1));
        let leaving = last.map(|n| f64::from(*n) / RATE_SAMPLE_S as f64);
        let growth = growth(&cx.trends.node(&node.name, cx.now, GROWTH_SAMPLES));
        let arriving = leaving.zip(growth).map(|(leaving, growth)| (leaving + growth).max(0.0));
        Row {
            by: By::Node,
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

/// A depth's growth per second; none: too little is known.
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
