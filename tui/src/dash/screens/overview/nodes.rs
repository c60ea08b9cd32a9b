//! The rows of the nodes: their columns and their order.

use std::time::Duration;

use besom_core::snapshot::{Node, NodeState, SILENT_MAX_DEFAULT, Thresholds};

use super::OverviewScreen;
use crate::dash::context::Context;
use crate::dash::table::{Column, SortKey, Width};

pub(super) const NODE: usize = 0;
pub(super) const STATE: usize = 1;
pub(super) const HEARTBEAT: usize = 2;
pub(super) const OWN: usize = 3;
pub(super) const QUEUED: usize = 4;
pub(super) const RUNNING: usize = 5;
pub(super) const P50: usize = 6;
pub(super) const P99: usize = 7;
pub(super) const RATE: usize = 8;

/// The columns.
pub(super) const COLUMNS: [Column; 9] = [
    Column::left("NODE", Width::Fill(12), 0),
    Column::left("STATE", Width::Fixed(8), 0),
    Column::right("HEARTBEAT", Width::Fixed(10), 5),
    Column::right("OWN%", Width::Fixed(5), 4),
    Column::right("QUEUED", Width::Fixed(7), 1),
    Column::right("RUN", Width::Fixed(4), 3),
    Column::right("p50", Width::Fixed(6), 7),
    Column::right("p99", Width::Fixed(6), 2),
    Column::left("ITEMS 15m", Width::Fixed(12), 6),
];

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
}

/// The totals of waiting items and owned partitions, for each node's share.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub queued: u64,
    pub owned: u64,
}

impl Totals {
    pub(super) fn of(cx: &Context<'_>) -> Totals {
        cx.snap.nodes.iter().fold(Totals::default(), |sum, node| Totals {
            queued: sum.queued + node.queued,
            owned: sum.owned + u64::from(node.owned),
        })
    }

    /// A node's fraction of the waiting items, divided by its fraction of the owned partitions.
    fn load(self, node: &Node) -> f64 {
        if self.queued == 0 || self.owned == 0 || node.owned == 0 {
            return 0.0;
        }
        let load = node.queued as f64 / self.queued as f64;
        load / (f64::from(node.owned) / self.owned as f64)
    }

    /// A node's percentage of the partitions.
    pub(super) fn own(self, node: &Node) -> Option<f64> {
        (self.owned > 0).then(|| f64::from(node.owned) * 100.0 / self.owned as f64)
    }
}

/// How long a node had been silent at the time of the snapshot.
pub(super) fn silent(node: &Node, cx: &Context<'_>) -> Duration {
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
            let hot = totals.load(node) > limits.load_max && node.queued >= limits.hot_queue_min;
            if hot { Health::Hot } else { Health::Ok }
        }
    }
}

/// The health of each node, in the order of the snapshot.
pub fn health(cx: &Context<'_>) -> Vec<Health> {
    let totals = Totals::of(cx);
    cx.snap.nodes.iter().map(|node| judged(node, cx, totals)).collect()
}

/// A quantile of the latency of a node's items, in microseconds; none: unknown.
pub(super) fn quantile(node: &Node, part: f64) -> Option<u64> {
    node.report.as_ref()?.latency.quantile(part)
}

/// The order of the nodes that match the filter.
pub(super) fn order(screen: &OverviewScreen, cx: &Context<'_>) -> Vec<usize> {
    let nodes = &cx.snap.nodes;
    let wanted = screen.filter.to_lowercase();
    let passes = |at: &usize| wanted.is_empty() || nodes[*at].name.to_lowercase().contains(&wanted);
    let rows = (0..nodes.len()).filter(passes).collect();
    let health = if screen.nodes.sort == Some(STATE) { health(cx) } else { Vec::new() };
    let number = |n: Option<f64>| n.map_or(SortKey::Unknown, SortKey::Number);
    screen.nodes.order(rows, |at, column| {
        let node = &nodes[at];
        let report = node.report.as_ref();
        let lost = node.state == NodeState::Lost;
        match column {
            STATE => SortKey::Number(f64::from(health[at] as u8)),
            HEARTBEAT => SortKey::Number(silent(node, cx).as_secs_f64()),
            OWN => SortKey::Number(f64::from(node.owned)),
            QUEUED => number((!lost).then_some(node.queued as f64)),
            RUNNING => number(report.map(|report| f64::from(report.running))),
            P50 => number(quantile(node, 0.5).map(|us| us as f64)),
            P99 => number(quantile(node, 0.99).map(|us| us as f64)),
            RATE => number(report.and_then(|r| r.rates.iter().rev().nth(1)).map(|n| f64::from(*n))),
            _ => SortKey::Text(&node.name),
        }
    })
}

/// The names of the nodes in this order.
pub(super) fn ids(cx: &Context<'_>, order: &[usize]) -> Vec<String> {
    order.iter().map(|at| cx.snap.nodes[*at].name.clone()).collect()
}
