//! The place of a key: its partition, its owner, and the next owners.
//!
//! The partition is computed by the function that the hosts use, so it is the partition of an item
//! with that key.

use besom_core::ids::{Partition, partition_of};
use besom_core::ring::RingMember;
use besom_snapshot::Ring;

/// The maximum number of next owners shown.
const NEXT_MAX: usize = 2;
/// With more members only one next owner is computed, and none while the key is being typed: each
/// requires a ring without the previous ones.
const MEMBERS_FOR_ALL: usize = 64;
/// Separates a key from its tenant, as on the command line.
const TENANT: &str = " --tenant ";

/// A key to locate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sought {
    /// The text that an item is routed by.
    pub key: String,
    /// The tenant of the item.
    pub tenant: Option<String>,
}

impl Sought {
    /// Parses `KEY` or `KEY --tenant TENANT`; none: there is no key.
    pub fn parse(text: &str) -> Option<Sought> {
        let (key, tenant) = match text.rsplit_once(TENANT) {
            Some((key, tenant)) => (key, Some(tenant.trim()).filter(|tenant| !tenant.is_empty())),
            None => (text, None),
        };
        let key = key.trim();
        (!key.is_empty()).then(|| Sought { key: key.to_owned(), tenant: tenant.map(str::to_owned) })
    }
}

/// The place of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The located key.
    pub sought: Sought,
    /// Its partition.
    pub partition: u32,
    /// The owner if the current one left, then the owner if that one left too; empty: there is no
    /// ring; none: not computed yet.
    pub next: Option<Vec<String>>,
    /// The revision of the membership that `next` was computed from.
    pub revision: u64,
}

impl Place {
    /// Locates a key; none: no partition is known. In a large ring the next owners are left to
    /// [`Place::complete`].
    pub fn of(ring: &Ring, sought: Sought) -> Option<Place> {
        if ring.partitions == 0 {
            return None;
        }
        let partition = partition_of(sought.tenant.as_deref(), &sought.key, ring.partitions);
        let small = ring.owners.len() <= MEMBERS_FOR_ALL;
        let next = small.then(|| next(ring, partition));
        Some(Place { sought, partition: partition.0, next, revision: ring.revision })
    }

    /// Computes the next owners if that was left out.
    pub fn complete(&mut self, ring: &Ring) {
        if self.next.is_none() {
            self.next = Some(next(ring, Partition(self.partition)));
        }
    }

    /// The owner according to the store; none: it has never had one.
    pub fn owner<'a>(&self, ring: &'a Ring) -> Option<&'a str> {
        ring.owner_of(Partition(self.partition)).map(|owner| owner.name.as_str())
    }
}

/// The next owners of a partition, in order.
fn next(ring: &Ring, partition: Partition) -> Vec<String> {
    let mut members: Vec<RingMember> = ring.members();
    let wanted = if members.len() > MEMBERS_FOR_ALL { 1 } else { NEXT_MAX };
    let mut gone = ring.owner_of(partition).map(|owner| owner.name.clone());
    let mut next = Vec::new();
    while next.len() < wanted {
        members.retain(|member| gone.as_deref() != Some(member.name.as_str()));
        let Some(table) = ring.assignment(&members) else { break };
        let Some(owner) = table.owner(partition) else { break };
        next.push(owner.as_str().to_owned());
        gone = Some(owner.as_str().to_owned());
    }
    next
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use besom_core::ring::{Assignment, NodeName};
    use besom_snapshot::Owner;

    use super::*;

    fn ring(names: &[&str]) -> Ring {
        let owner = |name: &&str| Owner { name: (*name).into(), weight: 1, ..Owner::default() };
        let mut ring = Ring {
            partitions: 64,
            virtual_nodes: 128,
            owners: names.iter().map(owner).collect(),
            ..Ring::default()
        };
        let table = ring.assignment(&ring.members()).unwrap();
        ring.owner = (0..64).map(|p| table.rank(Partition(p)).map(|rank| rank as u16)).collect();
        ring
    }

    #[test]
    fn a_key_and_its_tenant_are_read_as_on_the_command_line() {
        let sought = |key: &str, tenant: Option<&str>| {
            Some(Sought { key: key.into(), tenant: tenant.map(Into::into) })
        };
        for (text, read) in [
            ("doc:7", sought("doc:7", None)),
            ("  doc:7 ", sought("doc:7", None)),
            ("a key", sought("a key", None)),
            ("doc:7 --tenant acme", sought("doc:7", Some("acme"))),
            ("doc:7 --tenant  ", sought("doc:7", None)), // the tenant is about to be typed
            ("--tenant x", sought("--tenant x", None)),
            ("", None),
            ("   ", None),
        ] {
            assert_eq!(Sought::parse(text), read, "{text:?}");
        }
    }

    #[test]
    fn the_owner_is_the_hosts_own_answer_and_the_next_ones_that_of_smaller_rings() {
        let ring = ring(&["node-a", "node-b", "node-c"]);
        let sought = Sought::parse("doc:77fe --tenant acme").unwrap();
        let place = Place::of(&ring, sought).unwrap();
        let members = ring.members();
        let points = NonZeroU32::new(128).unwrap();
        let of = |members: &[RingMember]| {
            let count = NonZeroU32::new(64).unwrap();
            let table = Assignment::with_virtual_nodes(members, count, points);
            table.owner_of(Some("acme"), "doc:77fe").1.cloned()
        };
        let owner = of(&members).unwrap();
        assert_eq!(place.owner(&ring), Some(owner.as_str()));
        let without = |gone: &[&NodeName]| {
            let left = members.iter().filter(|member| !gone.contains(&&member.name));
            left.cloned().collect::<Vec<_>>()
        };
        let second = of(&without(&[&owner])).unwrap();
        let third = of(&without(&[&owner, &second])).unwrap();
        assert_eq!(place.next.unwrap(), [second.as_str(), third.as_str()]);
    }

    #[test]
    fn in_a_large_ring_the_next_one_is_computed_when_the_key_is_typed() {
        let names: Vec<String> = (0..=MEMBERS_FOR_ALL).map(|n| format!("node-{n}")).collect();
        let ring = ring(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut place = Place::of(&ring, Sought::parse("k").unwrap()).unwrap();
        assert_eq!(place.next, None);
        place.complete(&ring);
        let next = place.next.clone().unwrap();
        assert_eq!(next.len(), 1);
        assert_ne!(place.owner(&ring), Some(next[0].as_str()));
    }

    #[test]
    fn without_a_ring_nobody_is_next() {
        let mut ring = ring(&["node-a"]);
        ring.virtual_nodes = 0;
        let place = Place::of(&ring, Sought::parse("k").unwrap()).unwrap();
        assert_eq!((place.owner(&ring), place.next.as_deref()), (Some("node-a"), Some(&[][..])));
        assert_eq!(Place::of(&Ring::default(), Sought::parse("k").unwrap()), None);
    }
}
