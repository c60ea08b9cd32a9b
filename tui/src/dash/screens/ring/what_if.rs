//! What adding or removing one node would change, computed by the function that decides the real
//! assignment, so that the figures are exact.
//!
//! It compares the ring of the current members with the changed ring, not with current ownership:
//! otherwise moving partitions would count twice.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use besom_core::ring::{Assignment, NodeName, RingMember};
use besom_snapshot::Ring;

/// The name of the added node.
const NEWCOMER: &str = "one more";
/// The maximum number of nodes named.
const NAMED_MAX: usize = 3;

/// A change of the membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A node joins, with the most common weight.
    Join,
    /// A node leaves.
    Leave(String),
}

/// The effect of a change.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The change.
    pub change: Change,
    /// Partitions that would move.
    pub moved: usize,
    /// The number of all partitions.
    pub partitions: u32,
    /// The maximum of ownership divided by ideal, before and after.
    pub peak: (f64, f64),
    /// The nodes that gain the most partitions (if one leaves) or lose the most (if one joins).
    pub most: Vec<(String, usize)>,
}

impl Outcome {
    /// The fraction (0 to 1) of the partitions that would move.
    pub fn part(&self) -> f64 {
        self.moved as f64 / f64::from(self.partitions.max(1))
    }
}

/// The effects of adding a node and of removing one.
#[derive(Debug, Clone, PartialEq)]
pub struct WhatIf {
    /// The effect of adding a node.
    pub join: Outcome,
    /// The effect of removing the node; none: it has no share, or it is the last.
    pub leave: Option<Outcome>,
    /// The node that would leave.
    pub node: Option<String>,
    /// The revision of the membership that it was computed for.
    pub revision: u64,
}

impl WhatIf {
    /// Computes both effects; `node` is the one to remove. None: there is no ring.
    pub fn of(ring: &Ring, node: Option<&str>) -> Option<WhatIf> {
        let members = ring.members();
        let now = ring.assignment(&members)?;
        if members.is_empty() {
            return None;
        }
        let mut more = members.clone();
        more.push(RingMember { name: newcomer(&members), weight: usual_weight(&members) });
        let join = outcome(ring, Change::Join, &now, &more)?;
        let leave = node.and_then(|node| {
            let left: Vec<RingMember> =
                members.iter().filter(|member| member.name.as_str() != node).cloned().collect();
            if left.is_empty() || left.len() == members.len() {
                return None;
            }
            outcome(ring, Change::Leave(node.to_owned()), &now, &left)
        });
        let node = node.map(str::to_owned);
        Some(WhatIf { join, leave, node, revision: ring.revision })
    }
}

fn outcome(
    ring: &Ring,
    change: Change,
    now: &Assignment,
    members: &[RingMember],
) -> Option<Outcome> {
    let then = ring.assignment(members)?;
    let moves = Assignment::moves(now, &then);
    let mut most: BTreeMap<&str, usize> = BTreeMap::new();
    for (from, to) in moves.partitions.values() {
        let other = if change == Change::Join { from } else { to };
        if let Some(other) = other {
            *most.entry(other.as_str()).or_default() += 1;
        }
    }
    let mut most: Vec<(String, usize)> =
        most.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
    most.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    most.truncate(NAMED_MAX);
    let (moved, partitions) = (moves.count(), ring.partitions);
    Some(Outcome { change, moved, partitions, peak: (peak(now), peak(&then)), most })
}

/// The maximum of a member's ownership divided by its ideal.
fn peak(table: &Assignment) -> f64 {
    let weights: u64 = table.members().iter().map(|member| u64::from(member.weight.get())).sum();
    let all = f64::from(table.partitions().get());
    let of = |(member, load, _): (&RingMember, u64, u64)| {
        load as f64 * weights as f64 / (f64::from(member.weight.get()) * all)
    };
    table.loads().into_iter().map(of).fold(0.0, f64::max)
}

/// The most common weight of the members; the smallest of equally common ones.
fn usual_weight(members: &[RingMember]) -> NonZeroU32 {
    let mut counts: BTreeMap<NonZeroU32, usize> = BTreeMap::new();
    for member in members {
        *counts.entry(member.weight).or_default() += 1;
    }
    let most = counts.into_iter().rev().max_by_key(|(_, count)| *count);
    most.map_or(NonZeroU32::MIN, |(weight, _)| weight)
}

/// An unused name.
fn newcomer(members: &[RingMember]) -> NodeName {
    let mut name = NEWCOMER.to_owned();
    while members.iter().any(|member| member.name.as_str() == name) {
        name.push('\'');
    }
    NodeName::from(name)
}

#[cfg(test)]
mod tests {
    use besom_snapshot::Owner;

    use super::*;

    fn ring(weights: &[(&str, u32)]) -> Ring {
        let owner = |(name, weight): &(&str, u32)| Owner {
            name: (*name).into(),
            weight: *weight,
            ..Owner::default()
        };
        Ring {
            partitions: 256,
            virtual_nodes: 128,
            owners: weights.iter().map(owner).collect(),
            revision: 7,
            ..Ring::default()
        }
    }

    #[test]
    fn figures_are_those_of_the_real_assignment() {
        let ring = ring(&[("a", 1), ("b", 1), ("c", 1), ("d", 1)]);
        let what = WhatIf::of(&ring, Some("b")).unwrap();
        let now = ring.assignment(&ring.members()).unwrap();
        let left: Vec<_> =
            ring.members().into_iter().filter(|member| member.name.as_str() != "b").collect();
        let then = ring.assignment(&left).unwrap();
        let leave = what.leave.unwrap();
        assert_eq!(leave.moved, Assignment::moves(&now, &then).count());
        assert!(leave.moved as u64 >= now.loads()[1].1, "at least all of b move");
        assert!(what.join.moved > 256 / 5 / 2 && what.join.moved < 256 / 2, "{}", what.join.moved);
        assert!(what.join.peak.1 >= 1.0 && what.join.peak.1 < 1.2, "{:?}", what.join.peak);
        assert_eq!(what.revision, 7);
        let named: usize = leave.most.iter().map(|(_, count)| count).sum();
        assert_eq!(named, leave.moved, "three are left, and all three are named");
    }

    #[test]
    fn the_peak_is_measured_beside_the_weight() {
        let ring = ring(&[("a", 1), ("b", 3)]);
        let what = WhatIf::of(&ring, None).unwrap();
        assert!(what.join.peak.0 < 1.1, "three quarters are b's by right: {:?}", what.join.peak);
        assert_eq!(what.leave, None);
        assert_eq!(usual_weight(&ring.members()).get(), 1);
    }

    #[test]
    fn nobody_leaves_who_is_not_there_or_is_the_last() {
        let two = ring(&[("a", 1), ("gone", 0)]);
        assert_eq!(WhatIf::of(&two, Some("a")).unwrap().leave, None);
        assert_eq!(WhatIf::of(&two, Some("gone")).unwrap().leave, None);
        let alone = Ring { virtual_nodes: 0, ..two.clone() };
        assert_eq!(WhatIf::of(&alone, Some("a")), None);
        assert_eq!(WhatIf::of(&ring(&[]), None), None);
    }
}
