//! The simulation: several nodes over adapters in memory, with injected faults.
//!
//! The nodes are the real ones: only the shell is replaced. Time is a number, a message is an entry in a
//! queue, and one seed determines what goes wrong: nodes that crash or are paused for longer than the lease,
//! answers that are lost or repeated, clocks that jump, writes with an unknown result, and databases that are
//! restored ([`faults`]). Meanwhile the product writes ([`product`]) and operators ask for pauses, undos and
//! more ([`operator`]), and messages are delivered ([`delivery`]). After a while the faults stop and the world comes to rest. The [`invariants`] are
//! checked at each step and at the end.

mod delivery;
mod faults;
mod host;
pub mod invariants;
mod operator;
mod product;
pub mod script;
mod sum;
mod words;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

pub use besom_doubles::store::{Broken, READ};
pub use faults::{DEATHS, Deaths, Hits, TROUBLES, WRITES};
pub use invariants::Violation;
pub use sum::Sum;
pub use world::{simulate, simulate_traced};

/// The parameters of a simulation.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Determines all random choices.
    pub seed: u64,
    /// Hosts.
    pub nodes: usize,
    /// How long faults are injected.
    pub troubled: Duration,
    /// How long the world may take to come to rest afterwards.
    pub quiet: Duration,
    /// A defect of the store, which the invariants have to detect.
    pub broken: Option<Broken>,
    /// Whether the nodes share the partitions by the ring; otherwise the leader owns all of them.
    pub cluster: bool,
}

impl Plan {
    /// Three nodes, three minutes of faults.
    pub fn of(seed: u64) -> Plan {
        Plan {
            seed,
            nodes: 3,
            troubled: Duration::from_secs(180),
            quiet: Duration::from_secs(240),
            broken: None,
            cluster: false,
        }
    }

    /// The same as a cluster.
    pub fn of_cluster(seed: u64) -> Plan {
        Plan { cluster: true, ..Plan::of(seed) }
    }

    /// The command that runs this world alone and prints every step.
    pub fn replay(&self) -> String {
        let cluster = if self.cluster { " --cluster" } else { "" };
        let broken = self.broken.map_or(String::new(), |b| format!(" --broken {}", b.name()));
        let seed = self.seed;
        format!("cargo run -p besom-simulation -- --seed {seed}{cluster}{broken} --steps")
    }
}

/// The result of a simulation.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// The violations. The world ends at a step that violates an invariant.
    pub violations: Vec<Violation>,
    /// The number of things that the product has created and no restored backup has lost.
    pub things: usize,
    /// The number of leaderships.
    pub terms: u64,
    /// The number of faults by their kind.
    pub troubles: BTreeMap<&'static str, u64>,
    /// The faults of writes, by the operation of the store.
    pub writes: BTreeMap<&'static str, Hits>,
    /// The deaths of hosts at a write, by the kind of write.
    pub deaths: BTreeMap<&'static str, Deaths>,
    /// Batches that met a partition that their node did not own any more.
    pub disowned: u64,
    /// What operators asked for and a leader did, by verb.
    pub commands: BTreeMap<&'static str, u64>,
    /// Events handled.
    pub events: u64,
    /// A digest of all events in their order: equal for equal plans.
    pub digest: u64,
}
