//! Each owner's share of the ring and of the load. Ownership depends on the ring (its points and
//! weights); load depends on the keys.
//!
//! A node's *ideal* is its fraction of all weights. Without a ring there is no ideal: the leader
//! owns everything.

use std::collections::HashMap;

use besom_snapshot::{Node, NodeState, Snapshot, Thresholds};

/// An owner's fraction of the partitions and of the waiting items.
#[derive(Debug, Clone, PartialEq)]
pub struct Share<'a> {
    /// The node's name, the same after a restart.
    pub name: &'a str,
    /// Its index among the ring's owners, by which partitions refer to it.
    pub place: usize,
    /// The node's state; none: no such node is known any more.
    pub state: Option<NodeState>,
    /// Partitions it owns.
    pub owned: u32,
    /// Its fraction (0 to 1) of all partitions.
    pub own: f64,
    /// The fraction it should have by its weight; none: there is no ring, or it has no weight.
    pub ideal: Option<f64>,
    /// Items waiting in its partitions.
    pub queued: u64,
    /// Its fraction (0 to 1) of the waiting items; none: nothing is waiting.
    pub load: Option<f64>,
    /// Whether its load is significantly more than its ownership.
    pub hot: bool,
    /// Whether the node leads.
    pub leads: bool,
    /// The number of owners.
    pub owners: usize,
}

impl Share<'_> {
    /// Its fraction of the load divided by its fraction of the partitions; none: it owns nothing,
    /// or nothing is waiting.
    pub fn load_over_own(&self) -> Option<f64> {
        self.load.filter(|_| self.own > 0.0).map(|load| load / self.own)
    }

    /// Its fraction of the partitions divided by its ideal.
    pub fn own_over_ideal(&self) -> Option<f64> {
        self.ideal.filter(|ideal| *ideal > 0.0).map(|ideal| self.own / ideal)
    }

    /// Whether it is alive and takes part in the ring.
    pub fn is_there(&self) -> bool {
        matches!(self.state, Some(NodeState::Active | NodeState::Joining | NodeState::Draining))
    }
}

/// The shares of all owners.
#[derive(Debug, Clone, PartialEq)]
pub struct Loads<'a> {
    /// The shares, in the order of the ring's owners.
    pub shares: Vec<Share<'a>>,
    /// Items waiting in all partitions.
    pub waits: u64,
}

impl<'a> Loads<'a> {
    /// The shares of a snapshot.
    pub fn of(snapshot: &'a Snapshot) -> Loads<'a> {
        let ring = &snapshot.ring;
        let limits = Thresholds::default();
        let nodes: HashMap<&str, &Node> =
            snapshot.nodes.iter().map(|node| (node.name.as_str(), node.as_ref())).collect();
        let waits = ring.owners.iter().fold(0, |sum: u64, o| sum.saturating_add(o.queued));
        let weights: u64 = ring.owners.iter().map(|owner| u64::from(owner.weight)).sum();
        let leader = snapshot.leadership.leader.as_ref();
        let part = |n: f64, of: f64| if of > 0.0 { n / of } else { 0.0 };
        let share = |(place, owner): (usize, &'a besom_snapshot::Owner)| {
            let decided = ring.virtual_nodes > 0 && owner.weight > 0;
            let mut share = Share {
                name: &owner.name,
                place,
                state: nodes.get(owner.name.as_str()).map(|node| node.state),
                owned: owner.owned,
                own: part(f64::from(owner.owned), f64::from(ring.partitions)),
                ideal: decided.then(|| part(f64::from(owner.weight), weights as f64)),
                queued: owner.queued,
                load: (waits > 0).then(|| part(owner.queued as f64, waits as f64)),
                hot: false,
                leads: leader.is_some_and(|leader| leader.node == owner.name),
                owners: ring.owners.len(),
            };
            share.hot = owner.queued >= limits.hot_queue_min
                && share.load_over_own().is_some_and(|ratio| ratio > limits.load_max);
            share
        };
        Loads { shares: ring.owners.iter().enumerate().map(share).collect(), waits }
    }

    /// The maximum over all nodes of ownership divided by ideal.
    pub fn peak_own(&self) -> Option<f64> {
        self.shares.iter().filter_map(Share::own_over_ideal).max_by(f64::total_cmp)
    }

    /// The maximum over all nodes of load divided by ideal.
    pub fn peak_load(&self) -> Option<f64> {
        let of = |share: &Share<'_>| {
            let ideal = share.ideal.filter(|ideal| *ideal > 0.0)?;
            Some(share.load? / ideal)
        };
        self.shares.iter().filter_map(of).max_by(f64::total_cmp)
    }

    /// The hot node whose load most exceeds its ownership.
    pub fn hottest(&self) -> Option<&Share<'a>> {
        let hot = self.shares.iter().filter(|share| share.hot);
        hot.max_by(|a, b| {
            a.load_over_own().unwrap_or(0.0).total_cmp(&b.load_over_own().unwrap_or(0.0))
        })
    }
}
