//! The number of waiting items over the last 15 minutes, which a single snapshot does not contain.
//!
//! A sample is the maximum depth within its [`SAMPLE_S`] seconds, so that a short peak is visible.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use besom_core::time::Time;
use besom_snapshot::{DepthSample, Snapshot};

/// The length of a sample, in seconds.
pub const SAMPLE_S: i64 = 15;
/// Samples kept: those of 15 minutes.
pub const SAMPLES: usize = 60;

/// The samples of one row; the last one belongs to the newest snapshot.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Series {
    /// The number of the last sample since the epoch.
    last: i64,
    samples: VecDeque<Option<u64>>,
}

impl Series {
    fn add(&mut self, slot: i64, value: u64) {
        if self.samples.is_empty() {
            self.last = slot;
            self.samples.push_back(None);
        }
        // The depth during a gap (a lost connection) is unknown, not zero.
        for _ in 0..slot.saturating_sub(self.last).clamp(0, SAMPLES as i64) {
            self.samples.push_back(None);
        }
        self.last = self.last.max(slot);
        while self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        if let Some(sample) = self.samples.back_mut() {
            *sample = Some(sample.map_or(value, |known| known.max(value)));
        }
    }

    /// Adds samples from before its first one.
    fn seed(&mut self, earlier: impl Iterator<Item = (i64, u64)>) {
        let known = std::mem::take(self);
        let first = known.last - known.samples.len() as i64 + 1;
        for (slot, value) in earlier.filter(|(slot, _)| known.samples.is_empty() || *slot < first) {
            self.add(slot, value);
        }
        for (slot, value) in (first..).zip(known.samples) {
            if let Some(value) = value {
                self.add(slot, value);
            }
        }
    }

    /// The samples up to one, oldest first.
    fn until(&self, slot: i64, n: usize) -> Vec<Option<u64>> {
        let later = self.last.saturating_sub(slot).clamp(0, self.samples.len() as i64) as usize;
        let end = self.samples.len() - later;
        self.samples.range(end.saturating_sub(n)..end).copied().collect()
    }
}

/// The depths of nodes, of tasks, and in total.
#[derive(Debug, Clone, Default)]
pub struct Trends {
    nodes: BTreeMap<String, Series>,
    tasks: BTreeMap<String, Series>,
    all: Series,
}

fn slot(time: Time) -> i64 {
    time.0.div_euclid(SAMPLE_S * 1_000_000)
}

fn add<'a>(
    series: &mut BTreeMap<String, Series>,
    slot: i64,
    rows: impl Iterator<Item = (&'a str, u64)>,
) {
    for (name, value) in rows {
        match series.get_mut(name) {
            Some(known) => known.add(slot, value),
            None => series.entry(name.to_owned()).or_default().add(slot, value),
        }
    }
    // A removed node or task is dropped once its last sample would be.
    series.retain(|_, known| slot - known.last < SAMPLES as i64);
}

impl Trends {
    /// Adds a snapshot.
    pub(super) fn add(&mut self, snap: &Snapshot) {
        let slot = slot(snap.at);
        let nodes = snap.nodes.iter().map(|node| (node.name.as_str(), node.queued));
        add(&mut self.nodes, slot, nodes);
        let waits = |depth: &besom_snapshot::Depth| depth.log + depth.retries;
        let tasks = snap.tasks.iter().map(|task| (task.name.as_str(), waits(&task.depth)));
        add(&mut self.tasks, slot, tasks);
        self.all.add(slot, snap.queued());
    }

    /// Adds the depths that the host recorded before this dashboard connected, oldest first.
    pub(super) fn seed(&mut self, samples: &[DepthSample]) {
        let tasks: BTreeSet<&String> =
            samples.iter().flat_map(|sample| sample.tasks.keys()).collect();
        for task in tasks {
            let of_task = |sample: &DepthSample| Some((slot(sample.at), *sample.tasks.get(task)?));
            let series = self.tasks.entry(task.clone()).or_default();
            series.seed(samples.iter().filter_map(of_task));
        }
        let all = |sample: &DepthSample| (slot(sample.at), sample.tasks.values().sum());
        self.all.seed(samples.iter().map(all));
    }

    /// The last `n` depths of a node up to a time, oldest first; none: unknown.
    pub fn node(&self, name: &str, until: Time, n: usize) -> Vec<Option<u64>> {
        self.nodes.get(name).map(|s| s.until(slot(until), n)).unwrap_or_default()
    }

    /// The last `n` depths of a task.
    pub fn task(&self, name: &str, until: Time, n: usize) -> Vec<Option<u64>> {
        self.tasks.get(name).map(|s| s.until(slot(until), n)).unwrap_or_default()
    }

    /// The last `n` total depths.
    pub fn all(&self, until: Time, n: usize) -> Vec<Option<u64>> {
        self.all.until(slot(until), n)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_snapshot::Node;

    use super::*;

    fn at(seconds: i64, queued: u64) -> Snapshot {
        let node = Node { name: "a".into(), queued, ..Node::default() };
        let at = Time::from_secs(seconds);
        Snapshot { at, nodes: vec![Arc::new(node)], ..Snapshot::default() }
    }

    #[test]
    fn a_sample_is_the_largest_of_its_time_and_a_gap_is_unknown() {
        let mut trends = Trends::default();
        for (seconds, queued) in [(0, 5), (7, 9), (14, 2), (15, 3), (60, 4)] {
            trends.add(&at(seconds, queued));
        }
        let until = |seconds, n| trends.node("a", Time::from_secs(seconds), n);
        assert_eq!(until(60, 9), [Some(9), Some(3), None, None, Some(4)]);
        assert_eq!(until(60, 1), [Some(4)]);
        assert_eq!(until(29, 9), [Some(9), Some(3)], "the past does not know what came after");
        assert_eq!(until(-900, 9), []);
        assert_eq!(trends.node("b", Time::from_secs(60), 9), []);
    }

    #[test]
    fn what_the_host_has_counted_before_stands_before_what_was_seen() {
        let mut trends = Trends::default();
        trends.add(&at(600, 5));
        let sample = |seconds, n| DepthSample {
            at: Time::from_secs(seconds),
            tasks: [("sweep".to_owned(), n)].into(),
        };
        trends.seed(&[sample(555, 1), sample(570, 2), sample(600, 99)]);
        let now = Time::from_secs(600);
        assert_eq!(trends.task("sweep", now, 9), [Some(1), Some(2), None, Some(99)]);
        let all = trends.all(now, 9);
        assert_eq!(all, [Some(1), Some(2), None, Some(0)], "what was seen here stays");
    }

    #[test]
    fn what_is_gone_is_forgotten_and_what_is_kept_is_bounded() {
        let mut trends = Trends::default();
        trends.add(&at(0, 5));
        for sample in 1..200 {
            trends.add(&Snapshot { at: Time::from_secs(sample * SAMPLE_S), ..Snapshot::default() });
        }
        assert_eq!(trends.nodes.len(), 0);
        assert_eq!(trends.all(Time::from_secs(200 * SAMPLE_S), 500).len(), SAMPLES);
        trends.add(&Snapshot { at: Time::MAX, ..Snapshot::default() });
        assert_eq!(trends.all(Time::MAX, 500).len(), SAMPLES);
    }
}
