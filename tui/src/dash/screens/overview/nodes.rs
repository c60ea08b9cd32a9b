//! The rows of the nodes: their columns and their order.

use std::time::Duration;

use besom_snapshot::{Node, NodeState, SILENT_MAX_DEFAULT, Thresholds};

use super::OverviewScreen;
use crate::dash::context::Context;
use crate::dash::table::{Cell, Column, Emphasis, SortKey, Width, plain};
use crate::dash::text;
use crate::dash::widgets::spark::spark;

/// Samples of a node's curve.
const SAMPLES: usize = 60;

/// A row: a node, as far as it is judged beside the others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub node: &'a Node,
    pub health: Health,
    /// Its percentage of the partitions; none: unknown.
    pub own: Option<f64>,
}

type Col<'a> = Column<Row<'a>>;

impl<'a> Row<'a> {
    /// The columns.
    pub(super) const COLUMNS: [Column<Row<'a>>; 9] = [
        Col::left("NODE", Width::Fill(12), 0, |row, _| match row.node.leads {
            true => (format!("{} ★", row.node.name), Emphasis::Accent),
            false => plain(&row.node.name),
        })
        .by(|row, _| SortKey::Text(&row.node.name)),
        Col::left("STATE", Width::Fixed(8), 0, |row, _| {
            (row.health.word().to_owned(), row.health.emphasis())
        })
        .by(|row, _| SortKey::Number(f64::from(row.health as u8))),
        Col::right("HEARTBEAT", Width::Fixed(10), 5, Row::heartbeat)
            .by(|row, cx| SortKey::Number(silent(row.node, cx).as_secs_f64())),
        Col::right("OWN%", Width::Fixed(5), 4, |row, _| {
            plain(row.own.map_or_else(|| "?".to_owned(), |own| format!("{own:.1}")))
        })
        .by(|row, _| SortKey::Number(f64::from(row.node.owned))),
        // The items of a lost node wait for the next owner, and no node counts them.
        Col::right("QUEUED", Width::Fixed(7), 1, |row, _| {
            let hot = row.health == Health::Hot;
            match row.queued() {
                None => plain("?"),
                Some(n) => (text::count(n), if hot { Emphasis::Warn } else { Emphasis::Text }),
            }
        })
        .by(|row, _| SortKey::number(row.queued().map(|n| n as f64))),
        Col::right("RUN", Width::Fixed(4), 3, |row, _| {
            plain(row.running().map_or_else(|| "?".to_owned(), |n| n.to_string()))
        })
        .by(|row, _| SortKey::number(row.running().map(f64::from))),
        Col::right("p50", Width::Fixed(6), 7, |row, _| row.took(0.5))
            .by(|row, _| SortKey::number(quantile(row.node, 0.5).map(|us| us as f64))),
        Col::right("p99", Width::Fixed(6), 2, |row, _| row.took(0.99))
            .by(|row, _| SortKey::number(quantile(row.node, 0.99).map(|us| us as f64))),
        Col::left("ITEMS 15m", Width::Fixed(12), 6, Row::rates).by(|row, _| {
            // The last sample is incomplete.
            let report = row.node.report.as_ref();
            let last = report.and_then(|report| report.rates.iter().rev().nth(1));
            SortKey::number(last.map(|n| f64::from(*n)))
        }),
    ];

    fn heartbeat(&self, cx: &Context<'_>) -> Cell {
        let silent = silent(self.node, cx);
        let words = match silent.as_secs() {
            ..60 => format!("{:.1}s", silent.as_secs_f64()),
            60.. => text::span(silent),
        };
        let late = matches!(self.health, Health::Lost | Health::Silent);
        (words, if late { Emphasis::Bad } else { Emphasis::Text })
    }

    fn queued(&self) -> Option<u64> {
        (self.node.state != NodeState::Lost).then_some(self.node.queued)
    }

    fn running(&self) -> Option<u32> {
        self.node.report.as_ref().map(|report| report.running)
    }

    fn took(&self, part: f64) -> Cell {
        plain(quantile(self.node, part).map_or_else(|| "?".to_owned(), text::took))
    }

    fn rates(&self, _: &Context<'_>) -> Cell {
        let report = self.node.report.as_ref();
        let rates = report.map(|report| report.rates.as_slice()).unwrap_or_default();
        let shown = &rates[rates.len().saturating_sub(SAMPLES)..];
        // Five samples per column: fifteen minutes fit into twelve columns.
        let rates: Vec<_> = shown
            .rchunks(5)
            .rev()
            .map(|five| Some(five.iter().map(|n| u64::from(*n)).sum()))
            .collect();
        (spark(&rates, 12), Emphasis::Spark)
    }
}

/// A node's health in one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    /// The node is lost.
    Lost,
    /// It cannot reach a service.
    CutOff,
    /// It has been silent for too long.
    Silent,
    /// It has far more than its share of the waiting items.
    Hot,
    /// It is giving away its partitions.
    Draining,
    /// It owns nothing yet.
    Joining,
    /// Of a later version of the model.
    Unknown,
    /// There is nothing to report.
    Ok,
}

impl Health {
    /// The word.
    pub fn word(self) -> &'static str {
        match self {
            Health::Lost => "LOST",
            Health::CutOff => "CUT OFF",
            Health::Silent => "SILENT",
            Health::Hot => "HOT",
            Health::Draining => "draining",
            Health::Joining => "joining",
            Health::Unknown => "?",
            Health::Ok => "ok",
        }
    }

    /// How it is emphasised.
    fn emphasis(self) -> Emphasis {
        match self {
            Health::Lost | Health::CutOff => Emphasis::Bad,
            Health::Silent | Health::Hot => Emphasis::Warn,
            Health::Draining | Health::Joining | Health::Unknown => Emphasis::Dim,
            Health::Ok => Emphasis::Good,
        }
    }
}

/// The totals of waiting items and owned partitions, for each node's share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub queued: u64,
    pub owned: u32,
}

impl Totals {
    pub(super) fn of(cx: &Context<'_>) -> Totals {
        cx.snap.nodes.iter().fold(Totals::default(), |sum, node| Totals {
            queued: sum.queued + node.queued,
            owned: sum.owned + node.owned,
        })
    }

    /// A node's percentage of the partitions.
    fn own(self, node: &Node) -> Option<f64> {
        (self.owned > 0).then(|| f64::from(node.owned) * 100.0 / f64::from(self.owned))
    }
}

/// How long a node had been silent at the time of the snapshot.
fn silent(node: &Node, cx: &Context<'_>) -> Duration {
    cx.now.since(node.seen_at)
}

fn judged(node: &Node, cx: &Context<'_>, totals: Totals) -> Health {
    let limits = Thresholds::default();
    match node.state {
        NodeState::Lost => Health::Lost,
        _ if !node.missing.is_empty() => Health::CutOff,
        _ if silent(node, cx) > SILENT_MAX_DEFAULT => Health::Silent,
        NodeState::Draining => Health::Draining,
        NodeState::Joining => Health::Joining,
        NodeState::Unknown => Health::Unknown,
        NodeState::Active => {
            let load = node.load_over_share(totals.queued, totals.owned);
            let hot = load.is_some_and(|load| load > limits.load_max);
            if hot && node.queued >= limits.hot_queue_min { Health::Hot } else { Health::Ok }
        }
    }
}

/// The health of each node, in the order of the snapshot.
pub fn health(cx: &Context<'_>) -> Vec<Health> {
    let totals = Totals::of(cx);
    cx.snap.nodes.iter().map(|node| judged(node, cx, totals)).collect()
}

/// A quantile of the latency of a node's items, in microseconds; none: unknown.
fn quantile(node: &Node, part: f64) -> Option<u64> {
    node.report.as_ref()?.latency.quantile(part)
}

/// The nodes that match the filter, in the order of the table.
pub(super) fn rows<'a>(screen: &OverviewScreen, cx: &Context<'a>) -> Vec<Row<'a>> {
    let totals = Totals::of(cx);
    let passes = |node: &&Node| text::passes(&screen.filter, [&*node.name]);
    let row = |node| Row { node, health: judged(node, cx, totals), own: totals.own(node) };
    let rows = cx.snap.nodes.iter().map(|node| &**node).filter(passes).map(row).collect();
    screen.nodes.order.arrange(&Row::COLUMNS, rows, cx)
}

/// The names of nodes.
pub(super) fn ids(rows: &[Row<'_>]) -> Vec<String> {
    rows.iter().map(|row| row.node.name.clone()).collect()
}
