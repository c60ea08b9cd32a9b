//! Simulates how a ring distributes many keys, and what happens to them when a server is lost or
//! added. It only counts; the caller measures time.
//!
//! The servers are `server_0`, `server_1` ...; the keys are the decimal numbers from `0` on.

use std::num::NonZeroU32;

use serde::Serialize;

use super::assignment::{Assignment, RingMember};
use super::hash::{Hasher, Md5, Xxh3};
use super::hash_ring::{Error, HashRing, Placement};
use super::server::NodeName;
use crate::ids::Partition;

/// The number of partitions in [`Mode::Xxh3`]: a cluster's default.
pub const PARTITIONS: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

/// How keys are assigned to servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// As in a cluster of Besom: XXH3, fixed partitions, bounded load.
    Xxh3,
    /// By the key's MD5, directly on the circle.
    Md5,
    /// By the remainder of the key's MD5; virtual nodes have no effect.
    Modulo,
}

/// A change of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The server with this number is lost.
    Remove(u32),
    /// A server with the next number is added.
    Add,
}

/// The result of a simulation, with servers by number.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The number of keys of each server.
    pub owned: Vec<u64>,
    /// The number of keys of each server after the change; a lost server has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Vec<u64>>,
    /// Keys that keep their owner: a cache would still hit them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept: Option<u64>,
    /// Keys whose owner changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved: Option<u64>,
    /// Keys whose owner must be computed again so that all are stored in the right place. With
    /// modulo these are all keys. On the circle they are the keys of the lost server, or of the
    /// servers that lose a part of the circle to the new one. With partitions no key is hashed
    /// again: they are the keys of the partitions that change owners.
    pub rehashed: u64,
    /// `kept`, by server; not part of the machine-readable output.
    #[serde(skip)]
    pub kept_by: Vec<u64>,
}

/// The name of a server of a simulation.
pub fn server_name(number: u32) -> NodeName {
    NodeName::from(format!("server_{number}"))
}

/// The hashes of the keys `0` to `keys - 1`.
pub fn key_hashes(mode: Mode, keys: u64) -> impl Iterator<Item = u64> {
    let mut text = String::new();
    (0..keys).map(move |key| {
        use std::fmt::Write as _;
        text.clear();
        // Writing to a string does not fail.
        let _ = write!(text, "{key}");
        match mode {
            Mode::Xxh3 => Xxh3.hash(text.as_bytes()),
            Mode::Md5 | Mode::Modulo => Md5.hash(text.as_bytes()),
        }
    })
}

/// Servers that own hashes, by number.
enum Servers {
    Ring(HashRing<Md5>),
    Partitions(Assignment),
}

impl Servers {
    fn new(mode: Mode, numbers: &[u32], virtual_nodes: NonZeroU32) -> Result<Servers, Error> {
        let placement = match mode {
            Mode::Xxh3 => {
                let members: Vec<_> = numbers.iter().map(|number| member(*number)).collect();
                let table = Assignment::with_virtual_nodes(&members, PARTITIONS, virtual_nodes);
                return Ok(Servers::Partitions(table));
            }
            Mode::Md5 => Placement::Consistent,
            Mode::Modulo => Placement::Modulo,
        };
        let mut ring = HashRing::new(Md5, placement, virtual_nodes);
        for number in numbers {
            ring.add_server(server_name(*number), NonZeroU32::MIN, false)?;
        }
        Ok(Servers::Ring(ring))
    }

    /// The index of a hash's owner among the servers in their order; none: there are none.
    fn owner(&self, hash: u64) -> Option<usize> {
        match self {
            Servers::Ring(ring) => ring.rank_of_hash(hash),
            Servers::Partitions(table) => {
                let partition = Partition((hash % u64::from(PARTITIONS.get())) as u32);
                table.rank(partition)
            }
        }
    }

    /// Whether the change requires a key with that previous owner to be examined.
    fn donors(&self, after: &Servers, event: Event) -> Vec<bool> {
        match (self, after) {
            (Servers::Ring(before), Servers::Ring(after)) => {
                let count = before.servers().count();
                if before.placement() == Placement::Modulo {
                    return vec![true; count];
                }
                let mut donors = vec![false; count];
                match event {
                    Event::Remove(number) => donors[number as usize] = true,
                    Event::Add => {
                        let new = count as u32;
                        for (at, rank) in after.circle().points() {
                            if rank == new
                                && after.circle().owner(at) == Some(rank)
                                && let Some(donor) = before.circle().owner(at)
                            {
                                donors[donor as usize] = true;
                            }
                        }
                    }
                }
                donors
            }
            _ => Vec::new(),
        }
    }
}

fn member(number: u32) -> RingMember {
    RingMember { name: server_name(number), weight: NonZeroU32::MIN }
}

/// Distributes the keys over servers `0` to `servers - 1` and, if a change is given, over the
/// servers that remain after it.
///
/// # Errors
/// [`Error::TooMany`] for too many points, [`Error::Unknown`] for a lost server that does not
/// exist.
pub fn simulate(
    mode: Mode,
    servers: u32,
    virtual_nodes: NonZeroU32,
    hashes: impl IntoIterator<Item = u64>,
    event: Option<Event>,
) -> Result<Outcome, Error> {
    let numbers: Vec<u32> = (0..servers).collect();
    let before = Servers::new(mode, &numbers, virtual_nodes)?;
    let mut outcome = Outcome { owned: vec![0; servers as usize], ..Outcome::default() };
    let Some(event) = event else {
        for hash in hashes {
            if let Some(owner) = before.owner(hash) {
                outcome.owned[owner] += 1;
            }
        }
        return Ok(outcome);
    };
    let left: Vec<u32> = match event {
        Event::Remove(gone) if gone >= servers => return Err(Error::Unknown(server_name(gone))),
        Event::Remove(gone) => numbers.into_iter().filter(|number| *number != gone).collect(),
        Event::Add => (0..=servers).collect(),
    };
    let after = Servers::new(mode, &left, virtual_nodes)?;
    let donors = before.donors(&after, event);
    let room = servers as usize + usize::from(event == Event::Add);
    let (mut owned_after, mut kept, mut moved) = (vec![0; room], 0, 0);
    outcome.kept_by = vec![0; room];
    for hash in hashes {
        let was = before.owner(hash);
        let is = after.owner(hash).map(|rank| left[rank] as usize);
        if let Some(was) = was {
            outcome.owned[was] += 1;
            // Partitions have no donors: the rehashed keys are the moved ones.
            outcome.rehashed += u64::from(donors.get(was).copied().unwrap_or(is != Some(was)));
        }
        if let Some(is) = is {
            owned_after[is] += 1;
            if was == Some(is) {
                kept += 1;
                outcome.kept_by[is] += 1;
            } else {
                moved += 1;
            }
        }
    }
    outcome.after = Some(owned_after);
    (outcome.kept, outcome.moved) = (Some(kept), Some(moved));
    Ok(outcome)
}
