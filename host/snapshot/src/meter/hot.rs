//! The keys with the most work, found in one pass with fixed memory: Space-Saving (Metwally,
//! Agrawal, El Abbadi 2005).
//!
//! A key without a counter takes over the smallest counter and continues from its count. A count is
//! therefore never too low, and too high by at most its error, which is at most the number of items
//! divided by the number of counters; a key with more items than that is never missed.

use std::collections::BTreeMap;

use crate::HotKey;
use besom_core::ids::{Partition, TaskName, Tenant};
use besom_core::item::Item;

/// Counters of a sketch.
pub(super) const COUNTERS: usize = 64;
/// Keys that are reported at most.
pub(super) const TOLD_MAX: usize = 8;
/// A key is reported only if at most 1/`DOUBT_MAX_DIVISOR` of its count is uncertain: when work is
/// spread evenly, every counter is uncertain, and no key is hot.
const DOUBT_MAX_DIVISOR: u64 = 4;

/// The text that decides an item's partition, with the item's task.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    task: TaskName,
    tenant: Option<Tenant>,
    route: String,
    partition: Partition,
}

impl Key {
    fn of(item: &Item) -> Key {
        Key {
            task: item.identity.task.clone(),
            tenant: item.identity.tenant.clone(),
            route: item.route.clone(),
            partition: item.partition,
        }
    }

    fn is_of(&self, item: &Item) -> bool {
        self.route == item.route
            && self.tenant == item.identity.tenant
            && self.task == item.identity.task
    }
}

#[derive(Debug)]
struct Counter {
    /// The key's hash: distinguishes most keys without comparing them.
    hash: u64,
    key: Key,
    count: u64,
    error: u64,
}

/// Counts of the keys with the most items.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    counters: Vec<Counter>,
    total: u64,
}

fn hash(item: &Item) -> u64 {
    use xxhash_rust::xxh3::xxh3_64_with_seed;
    let tenant = item
        .identity
        .tenant
        .as_ref()
        .map_or(0, |tenant| xxh3_64_with_seed(tenant.as_str().as_bytes(), 1));
    xxh3_64_with_seed(item.route.as_bytes(), tenant)
}

impl Sketch {
    /// Counts an item.
    pub(super) fn add(&mut self, item: &Item) {
        self.total += 1;
        let hash = hash(item);
        let known = self.counters.iter_mut().find(|c| c.hash == hash && c.key.is_of(item));
        if let Some(counter) = known {
            counter.count += 1;
        } else if self.counters.len() < COUNTERS {
            self.counters.push(Counter { hash, key: Key::of(item), count: 1, error: 0 });
        } else if let Some(least) = self.counters.iter_mut().min_by_key(|c| c.count) {
            let error = least.count;
            *least = Counter { hash, key: Key::of(item), count: error + 1, error };
        }
    }

    /// An upper bound of how often a key without a counter has occurred.
    fn floor(&self) -> u64 {
        if self.counters.len() < COUNTERS {
            return 0;
        }
        self.counters.iter().map(|c| c.count).min().unwrap_or(0)
    }
}

/// The hottest keys of several sketches, most items first, and the total number of items.
pub(super) fn hottest(sketches: &[&Sketch]) -> (Vec<HotKey>, u64) {
    let floors: u64 = sketches.iter().map(|sketch| sketch.floor()).sum();
    // By key: its count and its error, as if no sketch had a counter for it.
    let mut keys: BTreeMap<&Key, (u64, u64)> = BTreeMap::new();
    for sketch in sketches {
        let floor = sketch.floor();
        for counter in &sketch.counters {
            let (count, error) = keys.entry(&counter.key).or_insert((floors, floors));
            *count = *count - floor + counter.count;
            *error = *error - floor + counter.error;
        }
    }
    let mut hot: Vec<(&Key, u64)> = keys
        .into_iter()
        .filter(|(_, (count, error))| error.saturating_mul(DOUBT_MAX_DIVISOR) <= *count)
        .map(|(key, (count, _))| (key, count))
        .collect();
    hot.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    let told = hot.into_iter().take(TOLD_MAX).map(|(key, count)| HotKey {
        task: key.task.to_string(),
        tenant: key.tenant.as_ref().map(ToString::to_string),
        key: key.route.clone(),
        partition: key.partition.0,
        count,
    });
    (told.collect(), sketches.iter().map(|sketch| sketch.total).sum())
}
