//! The nodes' work for a run, from their reports.

use besom_core::time::Time;
use besom_snapshot::{NodeState, RunAtNode, Snapshot};

/// One node's work for a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AtNode<'a> {
    /// The node.
    pub node: &'a str,
    /// When the node reported it.
    pub seen_at: Time,
    /// Whether the node has been lost since.
    pub lost: bool,
    /// The reported work.
    pub work: &'a RunAtNode,
}

/// The work of all nodes for a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work<'a> {
    /// The nodes, in the order of their names.
    pub nodes: Vec<AtNode<'a>>,
}

impl<'a> Work<'a> {
    /// The work for a run.
    pub fn of(snapshot: &'a Snapshot, run: u64) -> Work<'a> {
        let nodes = snapshot.nodes.iter().filter_map(|node| {
            let work = node.report.as_ref()?.runs.iter().find(|work| work.run == run)?;
            let lost = node.state == NodeState::Lost;
            Some(AtNode { node: &node.name, seen_at: node.seen_at, lost, work })
        });
        Work { nodes: nodes.collect() }
    }

    /// The sum over all nodes; none: no node reports on the run.
    pub fn total(&self) -> Option<RunAtNode> {
        let mut all = self.nodes.iter().map(|at| at.work);
        let mut total = all.next()?.clone();
        for work in all {
            total.running = total.running.saturating_add(work.running);
            total.fuel_most = total.fuel_most.max(work.fuel_most);
            total.memory_most = total.memory_most.max(work.memory_most);
            for (sum, more) in [
                (&mut total.committed, work.committed),
                (&mut total.skipped, work.skipped),
                (&mut total.retried, work.retried),
                (&mut total.dead, work.dead),
                (&mut total.fuel, work.fuel),
                (&mut total.host_calls, work.host_calls),
                (&mut total.rows_read, work.rows_read),
                (&mut total.instances, work.instances),
            ] {
                *sum = sum.saturating_add(more);
            }
        }
        Some(total)
    }
}

/// A resource's use and its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Use {
    /// The maximum that one call used.
    pub most: u64,
    /// The limit of a call; none: unknown.
    pub limit: Option<u64>,
}

impl Use {
    /// A use with a limit, where a limit of 0 means unknown.
    pub fn of(most: u64, limit: u64) -> Use {
        Use { most, limit: (limit > 0).then_some(limit) }
    }

    /// The fraction (0 to 1) of the limit.
    pub fn part(self) -> Option<f64> {
        self.limit.map(|limit| (self.most as f64 / limit as f64).clamp(0.0, 1.0))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_snapshot::{Node, Report};

    use super::*;

    #[test]
    fn nodes_add_up_and_the_most_is_the_most_of_any() {
        let node = |name: &str, state, fuel_most, committed| {
            let work = RunAtNode { run: 7, fuel_most, committed, fuel: 10, ..RunAtNode::default() };
            let other = RunAtNode { run: 8, committed: 999, ..RunAtNode::default() };
            let report = Some(Report { runs: vec![other, work], ..Report::default() });
            Arc::new(Node { name: name.into(), state, report, ..Node::default() })
        };
        let silent = Arc::new(Node { name: "c".into(), ..Node::default() });
        let snapshot = Snapshot {
            nodes: vec![
                node("a", NodeState::Active, 5, 3),
                node("b", NodeState::Lost, 9, u64::MAX),
                silent,
            ],
            ..Snapshot::default()
        };
        let work = Work::of(&snapshot, 7);
        let names: Vec<_> = work.nodes.iter().map(|at| (at.node, at.lost)).collect();
        assert_eq!(names, [("a", false), ("b", true)]);
        let total = work.total().unwrap();
        assert_eq!((total.fuel_most, total.fuel, total.committed), (9, 20, u64::MAX));
        assert_eq!(Work::of(&snapshot, 9).total(), None);
    }

    #[test]
    fn a_limit_that_is_not_known_makes_no_part() {
        assert_eq!(Use::of(5, 10).part(), Some(0.5));
        assert_eq!(Use::of(50, 10).part(), Some(1.0));
        assert_eq!(Use::of(5, 0).part(), None);
    }
}
