//! Who owns which partition, and how much waits there.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::ids::Partition;
use crate::ring::{Assignment, RingMember, ServerName};

/// The ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ring {
    /// How many partitions there are.
    pub partitions: u32,
    /// Points of a node of weight 1 on the circle; 0: no ring decides, the leader owns everything.
    pub virtual_nodes: u32,
    /// Who owns something, or has a share in the ring.
    pub owners: Vec<Owner>,
    /// By partition: the place of its owner in [`Ring::owners`]; none: nobody has owned it yet.
    pub owner: Vec<Option<u16>>,
    /// By partition: items in its log that wait for their turn. Empty: nowhere anything.
    pub queued: Vec<u64>,
    /// Partitions that are another's than the ring says: they are being moved.
    pub moving: u32,
    /// The revision of the members that the ring was computed from.
    pub revision: u64,
}

/// An owner of partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    /// The node's lasting name.
    pub name: String,
    /// Its share beside the others'; 0: the ring gives it nothing (it drains, or is gone).
    pub weight: u32,
    /// Partitions it owns.
    pub owned: u32,
    /// Items that wait in them.
    pub queued: u64,
}

impl Ring {
    /// Who has a share in the ring.
    pub fn members(&self) -> Vec<RingMember> {
        let member = |owner: &Owner| {
            let weight = NonZeroU32::new(owner.weight)?;
            Some(RingMember { name: ServerName::from(owner.name.clone()), weight })
        };
        self.owners.iter().filter_map(member).collect()
    }

    /// Who would own what if these were the members; none: no ring decides here.
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
