//! Sample deployments for tests, benches and pictures of the screens.
//!
//! They are generated deterministically, so that the same screen is drawn every time.

mod large;
mod small;

use std::sync::Arc;

use besom_core::time::Time;
use besom_snapshot::{Latency, Node, Owner, Ring};

pub use large::{LARGE_NODES, LARGE_TASKS, large, large_at, stirred};
pub use small::small;

/// The time of the samples: 2026-10-24T14:03:27Z, the day before the clocks go back in Europe.
pub const NOW: Time = Time::from_secs(1_792_850_607);

/// So many milliseconds before [`NOW`].
pub const fn ago_ms(ms: i64) -> Time {
    Time(NOW.0 - ms * 1_000)
}

/// So many seconds before [`NOW`].
pub const fn ago(seconds: i64) -> Time {
    ago_ms(seconds * 1_000)
}

/// A pseudo-random number, the same for the same input.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (n ^ (n >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 16
}

fn latency(samples: &[(u64, u64)]) -> Latency {
    let mut latency = Latency::default();
    for (us, count) in samples {
        latency.add(*us);
        let bucket = besom_snapshot::LATENCY_BOUNDS_US.partition_point(|bound| bound < us);
        latency.0[bucket] += count - 1;
    }
    latency
}

/// The ring of these nodes, with their queued items spread over their partitions.
fn ring(nodes: &[Node], partitions: u32, hot: Option<(u32, u64)>) -> Ring {
    let owners: Vec<Owner> = nodes
        .iter()
        .map(|node| Owner {
            name: node.name.clone(),
            weight: node.weight,
            owned: 0,
            queued: node.queued,
        })
        .collect();
    let mut ring = Ring { partitions, virtual_nodes: 64, owners, revision: 118, ..Ring::default() };
    let members = ring.members();
    let Some(assignment) = ring.assignment(&members) else { return ring };
    let place = |p| {
        let owner = assignment.owner(besom_core::ids::Partition(p))?.as_str();
        ring.owners.iter().position(|known| known.name == owner).map(|at| at as u16)
    };
    ring.owner = (0..partitions).map(place).collect();
    for owner in ring.owner.iter().flatten() {
        ring.owners[usize::from(*owner)].owned += 1;
    }
    let share = |owner: &Owner| owner.queued / u64::from(owner.owned.max(1));
    ring.queued = (0..partitions)
        .map(|p| {
            let owner = ring.owner[p as usize].map(|at| &ring.owners[usize::from(at)]);
            let even = owner.map_or(0, share);
            match hot {
                Some((partition, queued)) if partition == p => queued,
                _ => even + mixed(u64::from(p)) % (even / 2 + 1),
            }
        })
        .collect();
    ring
}

fn arcs<T>(rows: Vec<T>) -> Vec<Arc<T>> {
    rows.into_iter().map(Arc::new).collect()
}
