//! The keys with the most work, found in one pass and a fixed room: Space-Saving (Metwally,
//! Agrawal, El Abbadi 2005).
//!
//! A key that has no counter takes over the smallest one and goes on from its count. So a
//! count is never too low, and too high by at most its error, which is at most the number of
//! items divided by that of the counters; and a key with more than that is never missed.

use std::collections::BTreeMap;

use crate::ids::{Partition, TaskName, Tenant};
use crate::item::Item;
use crate::snapshot::HotKey;

/// Counters of a sketch.
pub(super) const COUNTERS: usize = 64;
/// Keys that are told.
pub(super) const TOLD_MAX: usize = 8;
/// A key is told if at most this part of its count is doubtful: in work that is spread evenly,
/// every counter is full of doubt, and no key is hot.
const DOUBT_MAX_DIVISOR: u64 = 4;

/// What decides a partition, and of which task.
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
    /// Of the key, so that most others are told apart without looking at it.
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

    /// As often a key may have come that has no counter.
    fn floor(&self) -> u64 {
        if self.counters.len() < COUNTERS {
            return 0;
        }
        self.counters.iter().map(|c| c.count).min().unwrap_or(0)
    }
}

/// The hottest keys of several sketches, most first, and how many items all of them are of.
pub(super) fn hottest(sketches: &[&Sketch]) -> (Vec<HotKey>, u64) {
    let floors: u64 = sketches.iter().map(|sketch| sketch.floor()).sum();
    // By key: its count and its error, as if it had no counter anywhere.
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
