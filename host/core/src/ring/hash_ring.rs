//! A ring of servers and the keys stored on them.
//!
//! The ring is a model of the servers: it knows where each key is stored and which keys a change of
//! servers moves. The owner of real servers has to perform the moves. A key is stored on at most
//! one server. After a change without rehash, it may be stored on a server that no longer owns it:
//! looking it up is then a miss, until it is added again or a rehash moves it.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::circle::{Circle, POINTS_MAX};
use super::hash::Hasher;
use super::server::NodeName;

/// How a hash maps to a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// The first point at or after the hash, wrapping around. A server has `virtual nodes x weight`
    /// points; the position of point `j` is the hash of its name followed by `j`.
    #[default]
    Consistent,
    /// The remainder of the hash by the number of servers (each counted `weight` times), in the
    /// order of their names.
    Modulo,
}

/// A change of servers that is not possible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A server with this name already exists.
    #[error("server `{0}` already exists")]
    Exists(NodeName),
    /// No server has this name.
    #[error("no server is called `{0}`")]
    Unknown(NodeName),
    /// The change would exceed [`POINTS_MAX`].
    #[error("{points} points are too many: a ring has at most {POINTS_MAX}")]
    TooMany {
        /// The number of points that there would be.
        points: u64,
    },
}

/// The effect of a change of servers on the stored keys.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Keys whose owner was computed again: in a consistent ring those of the servers that lose a
    /// part of the circle, with modulo all of them.
    pub rehashed: u64,
    /// Of these, keys that moved to another server.
    pub moved: u64,
    /// Keys that were lost with the removed server.
    pub lost: u64,
}

/// A key's owner, and whether the key is stored there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lookup<'a> {
    /// Its owner.
    pub owner: &'a NodeName,
    /// Whether it is stored there.
    pub stored: bool,
}

#[derive(Debug, Clone)]
struct Server {
    weight: NonZeroU32,
    keys: BTreeSet<Arc<str>>,
}

/// A ring of servers, and the keys stored on them.
#[derive(Debug, Clone)]
pub struct HashRing<H> {
    hasher: H,
    placement: Placement,
    virtual_nodes: NonZeroU32,
    servers: BTreeMap<NodeName, Server>,
    /// The names by rank; with modulo, each as often as its weight.
    ranks: Vec<NodeName>,
    /// Empty with modulo.
    circle: Circle,
    /// Whether every stored key is on its owner.
    settled: bool,
}

impl<H: Hasher> HashRing<H> {
    /// An empty ring, with that many points for a server of weight 1.
    pub fn new(hasher: H, placement: Placement, virtual_nodes: NonZeroU32) -> HashRing<H> {
        HashRing {
            hasher,
            placement,
            virtual_nodes,
            servers: BTreeMap::new(),
            ranks: Vec::new(),
            circle: Circle::default(),
            settled: true,
        }
    }

    /// Adds a server. With `rehash`, the keys that it now owns are moved to it.
    ///
    /// # Errors
    /// [`Error::Exists`] if the name is taken, [`Error::TooMany`] if there would be too many
    /// points.
    pub fn add_server(
        &mut self,
        name: impl Into<NodeName>,
        weight: NonZeroU32,
        rehash: bool,
    ) -> Result<Change, Error> {
        let name = name.into();
        if self.servers.contains_key(&name) {
            return Err(Error::Exists(name));
        }
        let weights = self.servers.values().map(|server| u64::from(server.weight.get()));
        let points =
            (weights.sum::<u64>() + u64::from(weight.get())) * u64::from(self.virtual_nodes.get());
        if points > POINTS_MAX as u64 {
            return Err(Error::TooMany { points });
        }
        let (old_circle, old_ranks) = (std::mem::take(&mut self.circle), self.ranks.clone());
        self.servers.insert(name.clone(), Server { weight, keys: BTreeSet::new() });
        self.arrange();
        if !rehash {
            self.settled &= self.is_without_keys();
            return Ok(Change::default());
        }
        if !self.settled || self.placement == Placement::Modulo {
            return Ok(self.rehash(self.servers.keys().cloned().collect()));
        }
        // The owner of a position that becomes a point of the new server loses keys.
        let donors = self
            .circle
            .points()
            .filter(|(at, rank)| {
                self.ranks[*rank as usize] == name && self.circle.owner(*at) == Some(*rank)
            })
            .filter_map(|(at, _)| old_circle.owner(at))
            .map(|rank| old_ranks[rank as usize].clone())
            .collect();
        Ok(self.rehash(donors))
    }

    /// Removes a server. With `rehash`, its keys move to their next owners; without it, or if it
    /// was the last server, they are lost.
    ///
    /// # Errors
    /// [`Error::Unknown`] if no server has this name.
    pub fn remove_server(
        &mut self,
        name: impl Into<NodeName>,
        rehash: bool,
    ) -> Result<Change, Error> {
        let name = name.into();
        let Some(gone) = self.servers.remove(&name) else { return Err(Error::Unknown(name)) };
        self.arrange();
        let count = gone.keys.len() as u64;
        if !rehash || self.servers.is_empty() {
            // With modulo, the other servers' keys change owners as well; on the circle they do
            // not.
            let stays = self.placement == Placement::Consistent;
            self.settled = (self.settled && stays) || self.is_without_keys();
            return Ok(Change { lost: count, ..Change::default() });
        }
        let mut change = Change { rehashed: count, moved: count, lost: 0 };
        if !self.settled || self.placement == Placement::Modulo {
            let others = self.rehash(self.servers.keys().cloned().collect());
            change.rehashed += others.rehashed;
            change.moved += others.moved;
        }
        for key in gone.keys {
            self.place(key);
        }
        Ok(change)
    }

    /// Stores a key on its owner and returns the owner; none: the ring is empty, and nothing is
    /// stored.
    pub fn add_key(&mut self, key: &str) -> Option<&NodeName> {
        let owner = self.owner(key)?.clone();
        if !self.settled {
            for (_, other) in self.servers.iter_mut().filter(|(name, _)| **name != owner) {
                other.keys.remove(key);
            }
        }
        self.servers.get_mut(&owner)?.keys.insert(key.into());
        self.servers.get_key_value(&owner).map(|(name, _)| name)
    }

    /// Removes a key; returns whether it was stored.
    pub fn remove_key(&mut self, key: &str) -> bool {
        if self.settled {
            let Some(owner) = self.owner(key).cloned() else { return false };
            return self.servers.get_mut(&owner).is_some_and(|server| server.keys.remove(key));
        }
        self.servers.values_mut().any(|server| server.keys.remove(key))
    }

    /// The owner of a key, and whether the key is stored there; none: the ring is empty.
    pub fn get_key(&self, key: &str) -> Option<Lookup<'_>> {
        let owner = self.owner(key)?;
        let stored = self.servers.get(owner).is_some_and(|server| server.keys.contains(key));
        Some(Lookup { owner, stored })
    }

    /// The owner of a key, stored or not; none: the ring is empty.
    pub fn owner(&self, key: &str) -> Option<&NodeName> {
        self.owner_of_hash(self.hasher.hash(key.as_bytes()))
    }

    /// The owner of a hash; none: the ring is empty.
    pub fn owner_of_hash(&self, hash: u64) -> Option<&NodeName> {
        self.ranks.get(self.rank_of_hash(hash)?)
    }

    /// The index of a hash's owner among the servers in their order (with modulo, each counted as
    /// often as its weight); none: the ring is empty.
    pub fn rank_of_hash(&self, hash: u64) -> Option<usize> {
        match self.placement {
            Placement::Consistent => self.circle.owner(hash).map(|rank| rank as usize),
            Placement::Modulo => {
                let rank = hash.checked_rem(self.ranks.len() as u64)?;
                usize::try_from(rank).ok()
            }
        }
    }

    /// The servers in their order: name, weight, and number of stored keys.
    pub fn servers(&self) -> impl Iterator<Item = (&NodeName, NonZeroU32, usize)> {
        self.servers.iter().map(|(name, server)| (name, server.weight, server.keys.len()))
    }

    /// The keys stored on a server, in their order; none: no such server.
    pub fn keys(&self, name: &NodeName) -> Option<impl Iterator<Item = &str>> {
        self.servers.get(name).map(|server| server.keys.iter().map(|key| &**key))
    }

    /// The circle; empty with modulo.
    pub fn circle(&self) -> &Circle {
        &self.circle
    }

    /// How this ring maps a hash to a server.
    pub fn placement(&self) -> Placement {
        self.placement
    }

    /// The hash function.
    pub fn hasher(&self) -> &H {
        &self.hasher
    }

    fn is_without_keys(&self) -> bool {
        self.servers.values().all(|server| server.keys.is_empty())
    }

    /// Computes ranks and circle from the set of servers alone, independent of its history.
    fn arrange(&mut self) {
        if self.placement == Placement::Modulo {
            let times = |(name, server): (&NodeName, &Server)| {
                std::iter::repeat_n(name.clone(), server.weight.get() as usize)
            };
            self.ranks = self.servers.iter().flat_map(times).collect();
            return;
        }
        let mut points = Vec::new();
        let mut text = String::new();
        for (rank, (name, server)) in (0_u32..).zip(&self.servers) {
            let count = u64::from(self.virtual_nodes.get()) * u64::from(server.weight.get());
            for virtual_node in 0..count {
                text.clear();
                text.push_str(name.as_str());
                text.push_str(&virtual_node.to_string());
                points.push((self.hasher.hash(text.as_bytes()), rank));
            }
        }
        self.ranks = self.servers.keys().cloned().collect();
        self.circle = Circle::new(self.hasher.bits(), points);
    }

    /// Computes the owners of all keys on these servers again and moves the keys whose owner
    /// differs.
    fn rehash(&mut self, donors: BTreeSet<NodeName>) -> Change {
        let mut change = Change::default();
        let mut moving = Vec::new();
        for name in &donors {
            let Some(server) = self.servers.get_mut(name) else { continue };
            let keys = std::mem::take(&mut server.keys);
            change.rehashed += keys.len() as u64;
            let stays = |key: &Arc<str>| self.owner(key) == Some(name);
            let (stay, leave): (BTreeSet<_>, Vec<_>) = partition(keys, stays);
            if let Some(server) = self.servers.get_mut(name) {
                server.keys = stay;
            }
            moving.extend(leave);
        }
        change.moved = moving.len() as u64;
        for key in moving {
            self.place(key);
        }
        self.settled = true;
        change
    }

    /// Stores a key that is not stored yet on its owner.
    fn place(&mut self, key: Arc<str>) {
        let owner = self.owner(&key).cloned();
        if let Some(server) = owner.and_then(|owner| self.servers.get_mut(&owner)) {
            server.keys.insert(key);
        }
    }
}

fn partition(
    keys: BTreeSet<Arc<str>>,
    stays: impl Fn(&Arc<str>) -> bool,
) -> (BTreeSet<Arc<str>>, Vec<Arc<str>>) {
    let (mut stay, mut leave) = (Vec::with_capacity(keys.len()), Vec::new());
    for key in keys {
        if stays(&key) { stay.push(key) } else { leave.push(key) }
    }
    // The keys are in order already, so the set is built in one step.
    (stay.into_iter().collect(), leave)
}
