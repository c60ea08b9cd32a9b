//! Assigns partitions to nodes, with a bound on every node's load.
//!
//! Every partition has a place on the circle. It goes to the first node from there on that has not
//! reached its bound: `ceil(1.05 x partitions x weight / all weights)`. Partitions choose in their
//! order, so the table is a function of the member set alone, not of its history.
//!
//! A change of members moves the partitions whose first choice changed, and at most those that
//! could not have their first choice before or after. The latter are the cost of the bound: a few
//! in a hundred.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::circle::{Circle, POINTS_MAX};
use super::server::NodeName;
use crate::ids::{Partition, partition_of};

/// Points on the circle per unit of weight. With 100 nodes, the loads of the bare circle have a
/// standard deviation of 3 %.
pub const VIRTUAL_NODES: u32 = 1_024;

/// The maximum load of a node, in per cent of its share by weight.
pub const LOAD_PERCENT_MAX: u64 = 105;

/// Keeps the places of partitions distinct from the places of nodes.
const PARTITION_SEED: u64 = 0x6265_736f_6d00_0001;

/// A node on the ring.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct RingMember {
    /// The node's name: it must survive a restart, or all its partitions would move.
    pub name: NodeName,
    /// Its weight relative to the others'.
    pub weight: NonZeroU32,
}

/// The owner of each partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assignment {
    /// By rank: the members in the order of their names.
    members: Vec<RingMember>,
    /// The owner's rank, by partition; empty without members.
    owners: Vec<u32>,
    partitions: NonZeroU32,
    overflowed: u32,
}

/// The difference between two assignments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moves {
    /// Every partition whose owner differs: old and new owner. None: no owner.
    pub partitions: BTreeMap<Partition, (Option<NodeName>, Option<NodeName>)>,
}

impl Moves {
    /// How many partitions move.
    pub fn count(&self) -> usize {
        self.partitions.len()
    }

    /// How many partitions leave a node and how many reach it.
    pub fn of(&self, node: &str) -> (usize, usize) {
        let is = |name: &Option<NodeName>| name.as_ref().map(NodeName::as_str) == Some(node);
        let leaving = self.partitions.values().filter(|(from, _)| is(from)).count();
        let arriving = self.partitions.values().filter(|(_, to)| is(to)).count();
        (leaving, arriving)
    }
}

impl Assignment {
    /// Assigns that many partitions to these members, given in any order. Of two members with the
    /// same name, the heavier counts.
    pub fn of(members: &[RingMember], partitions: NonZeroU32) -> Assignment {
        const POINTS: NonZeroU32 = NonZeroU32::new(VIRTUAL_NODES).unwrap();
        Assignment::with_virtual_nodes(members, partitions, POINTS)
    }

    /// Like [`Assignment::of`], with another number of points per unit of weight. Nodes have to
    /// agree on it to agree on the assignment.
    pub fn with_virtual_nodes(
        members: &[RingMember],
        partitions: NonZeroU32,
        virtual_nodes: NonZeroU32,
    ) -> Assignment {
        let mut members = members.to_vec();
        members.sort_unstable_by(|a, b| a.name.cmp(&b.name).then(b.weight.cmp(&a.weight)));
        members.dedup_by(|later, first| later.name == first.name);
        let mut table = Assignment { members, owners: Vec::new(), partitions, overflowed: 0 };
        if !table.members.is_empty() {
            table.assign(&circle(&table.members, virtual_nodes));
        }
        table
    }

    fn assign(&mut self, circle: &Circle) {
        let shares = shares(&self.members, self.partitions);
        let mut loads = vec![0_u64; self.members.len()];
        let mut owners = Vec::with_capacity(self.partitions.get() as usize);
        for partition in 0..self.partitions.get() {
            let mut choices = circle.walk(place(Partition(partition)));
            let first = choices.next().unwrap_or(0);
            let free = |rank: &u32| loads[*rank as usize] < shares[*rank as usize];
            // The shares add up to at least all partitions, so one member always has room.
            let owner = if free(&first) { first } else { choices.find(free).unwrap_or(first) };
            self.overflowed += u32::from(owner != first);
            loads[owner as usize] += 1;
            owners.push(owner);
        }
        self.owners = owners;
    }

    /// How many partitions there are.
    pub fn partitions(&self) -> NonZeroU32 {
        self.partitions
    }

    /// The members, in the order of their names.
    pub fn members(&self) -> &[RingMember] {
        &self.members
    }

    /// The owner of a partition; none: there are no members, or no such partition.
    pub fn owner(&self, partition: Partition) -> Option<&NodeName> {
        self.members.get(self.rank(partition)?).map(|member| &member.name)
    }

    /// The place of a partition's owner among the members, in the order of their names.
    pub fn rank(&self, partition: Partition) -> Option<usize> {
        self.owners.get(partition.0 as usize).map(|rank| *rank as usize)
    }

    /// The partition of an item, and its owner.
    pub fn owner_of(&self, tenant: Option<&str>, route: &str) -> (Partition, Option<&NodeName>) {
        let partition = partition_of(tenant, route, self.partitions.get());
        (partition, self.owner(partition))
    }

    /// The partitions of a node, ascending.
    pub fn owned_by<'a>(&'a self, node: &'a str) -> impl Iterator<Item = Partition> + 'a {
        let rank = self.members.iter().position(|member| member.name.as_str() == node);
        (0_u32..)
            .zip(&self.owners)
            .filter(move |(_, owner)| rank == Some(**owner as usize))
            .map(|(partition, _)| Partition(partition))
    }

    /// Each member's number of partitions and the maximum it may have, in the order of the names.
    pub fn loads(&self) -> Vec<(&RingMember, u64, u64)> {
        let shares = shares(&self.members, self.partitions);
        let mut loads = vec![0; self.members.len()];
        for owner in &self.owners {
            loads[*owner as usize] += 1;
        }
        let both = loads.into_iter().zip(shares);
        self.members.iter().zip(both).map(|(member, (load, share))| (member, load, share)).collect()
    }

    /// How many partitions did not get their first choice because it had reached its bound.
    pub fn overflowed(&self) -> u32 {
        self.overflowed
    }

    /// The moves from one assignment to another.
    ///
    /// # Panics
    /// Panics if they have different numbers of partitions; a store's number never changes.
    pub fn moves(from: &Assignment, to: &Assignment) -> Moves {
        assert_eq!(from.partitions, to.partitions, "a store's partitions are fixed");
        let all = (0..from.partitions.get()).map(Partition);
        let partitions = all
            .filter_map(|partition| {
                let (old, new) = (from.owner(partition), to.owner(partition));
                (old != new).then(|| (partition, (old.cloned(), new.cloned())))
            })
            .collect();
        Moves { partitions }
    }
}

/// Where a partition lies on the circle.
fn place(partition: Partition) -> u64 {
    xxh3_64_with_seed(&partition.0.to_le_bytes(), PARTITION_SEED)
}

/// The circle of the members, by rank. A point's hash separates node and number, so that no two
/// names collide (`a1` and 0, `a` and 10).
pub(super) fn circle(members: &[RingMember], virtual_nodes: NonZeroU32) -> Circle {
    let all: u64 = members.iter().map(|member| u64::from(member.weight.get())).sum();
    // Fewer points per unit if the weights are extremely large, rather than a panic.
    let budget = (u64::from(virtual_nodes.get()) * all).min(POINTS_MAX as u64 / 2);
    let mut points = Vec::new();
    for (rank, member) in (0_u32..).zip(members) {
        let count = (u64::from(member.weight.get()) * budget / all).max(1);
        points.extend(
            (0..count).map(|n| (xxh3_64_with_seed(member.name.as_str().as_bytes(), n), rank)),
        );
    }
    Circle::new(u64::BITS, points)
}

/// The most partitions each member may have.
fn shares(members: &[RingMember], partitions: NonZeroU32) -> Vec<u64> {
    let all: u64 = members.iter().map(|member| u64::from(member.weight.get())).sum();
    let of = |member: &RingMember| {
        let part = LOAD_PERCENT_MAX * u64::from(partitions.get()) * u64::from(member.weight.get());
        part.div_ceil(100 * all)
    };
    members.iter().map(of).collect()
}
