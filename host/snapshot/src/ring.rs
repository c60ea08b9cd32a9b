//! The owner of each partition, and how many items are waiting there.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use besom_core::ids::Partition;
use besom_core::ring::{Assignment, NodeName, RingMember};

/// The ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ring {
    /// The number of partitions.
    pub partitions: u32,
    /// Points of a node of weight 1 on the circle; 0: there is no ring, the leader owns everything.
    pub virtual_nodes: u32,
    /// The nodes that own a partition or have a share in the ring.
    pub owners: Vec<Owner>,
    /// By partition: the index of its owner in [`Ring::owners`]; none: it has never had an owner.
    pub owner: Vec<Option<u16>>,
    /// By partition: items waiting in its log. Empty if nothing is waiting.
    pub queued: Vec<u64>,
    /// Partitions whose owner differs from the ring's: they are moving.
    pub moving: u32,
    /// The revision of the membership that the ring was computed from.
    pub revision: u64,
}

/// An owner of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// The node's name, the same after a restart.
    pub name: String,
    /// Its weight relative to the others'; 0: the ring gives it nothing (it is draining or gone).
    pub weight: u32,
    /// Partitions it owns.
    pub owned: u32,
    /// Items waiting in them.
    pub queued: u64,
}

impl Ring {
    /// The nodes with a share in the ring.
    pub fn members(&self) -> Vec<RingMember> {
        let member = |owner: &Owner| {
            let weight = NonZeroU32::new(owner.weight)?;
            Some(RingMember { name: NodeName::from(owner.name.clone()), weight })
        };
        self.owners.iter().filter_map(member).collect()
    }

    /// The assignment for these members; none: there is no ring.
    pub fn assignment(&self, members: &[RingMember]) -> Option<Assignment> {
        let partitions = NonZeroU32::new(self.partitions)?;
        let virtual_nodes = NonZeroU32::new(self.virtual_nodes)?;
        Some(Assignment::with_virtual_nodes(members, partitions, virtual_nodes))
    }

    /// The owner of a partition.
    pub fn owner_of(&self, partition: Partition) -> Option<&Owner> {
        let place = self.owner.get(partition.0 as usize).copied().flatten()?;
        self.owners.get(usize::from(place))
    }
}
