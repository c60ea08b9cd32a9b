//! The nodes of a cluster at rest agree who owns which partition. Each partition has an owner, and each node
//! owns a partition.

use besom_ports::store::Store as _;

use super::{Invariant, Rest, now};

pub(super) struct Rings;

impl Invariant for Rings {
    fn name(&self) -> &'static str {
        "rings"
    }

    fn rest(&mut self, rest: &Rest<'_>) -> Vec<String> {
        if !rest.cluster {
            return Vec::new();
        }
        let mut wrong = Vec::new();
        for row in now(rest.store.partition_table()).expect("the table") {
            let claims = |epoch| {
                let nodes = rest.nodes.iter();
                let of = nodes.filter(|n| n.owned.get(&row.partition) == Some(&epoch));
                of.map(|node| &node.name).collect::<Vec<_>>()
            };
            let owner: Vec<_> = row.owner.iter().collect();
            if claims(row.epoch) != owner || owner.is_empty() {
                let (partition, claims) = (row.partition, claims(row.epoch));
                wrong.push(format!("partition {partition}: of {owner:?}, and {claims:?} own it"));
            }
        }
        let idle = rest.nodes.iter().filter(|node| node.owned.is_empty());
        wrong.extend(idle.map(|node| format!("{} owns no partition", node.name)));
        wrong
    }
}
