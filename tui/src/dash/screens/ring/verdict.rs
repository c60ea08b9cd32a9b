//! Summarizes the ring's figures in a sentence: whether the ring is even, whether the load is, and
//! which keys are the cause if not.

use besom_core::ring::LOAD_PERCENT_MAX;
use besom_snapshot::{Snapshot, Thresholds};

use super::load::{Loads, Share};
use crate::dash::screens::figure::per_cent;

/// A ring is even if no node owns more than this many times its ideal: the bound on ownership, plus
/// the effect of whole partitions.
pub const FAIR_MAX: f64 = LOAD_PERCENT_MAX as f64 / 100.0 + 0.05;
/// The number of keys of a hot node that are named.
const KEYS_MAX: usize = 3;
/// A key with a smaller fraction of its node's work is not named as a cause.
const KEY_PART_MIN: f64 = 0.02;

/// The mood of a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mood {
    /// Ownership and load are even.
    Good,
    /// The ring is changing.
    Change,
    /// Something is uneven.
    Uneven,
}

/// A sentence about the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Decides the style of the sentence.
    pub mood: Mood,
    /// The sentence.
    pub text: String,
}

impl Verdict {
    /// The verdict on a snapshot and its shares.
    pub fn of(snapshot: &Snapshot, loads: &Loads<'_>) -> Verdict {
        let ring = &snapshot.ring;
        let verdict = |mood, text: String| Verdict { mood, text };
        if ring.partitions == 0 {
            return verdict(Mood::Change, "no partition is known yet".into());
        }
        if ring.virtual_nodes == 0 {
            let leader = snapshot.leadership.leader.as_ref().map(|leader| leader.node.as_str());
            let text = match leader {
                Some(node) => format!("no ring: the leader owns everything ({node})"),
                None => "no ring: the leader owns everything, but there is no leader".into(),
            };
            return verdict(if leader.is_some() { Mood::Good } else { Mood::Uneven }, text);
        }
        if ring.moving > 0 {
            let part = per_cent(f64::from(ring.moving) / f64::from(ring.partitions));
            let text = format!(
                "{} partitions ({part}%) have not reached their new owner yet: the ring is changing",
                ring.moving
            );
            return verdict(Mood::Change, text);
        }
        let ring_part = match loads.peak_own() {
            None => return verdict(Mood::Uneven, "no node has a share in the ring".into()),
            Some(peak) if peak > FAIR_MAX => {
                let most = loads.shares.iter().max_by(|a, b| {
                    a.own_over_ideal().unwrap_or(0.0).total_cmp(&b.own_over_ideal().unwrap_or(0.0))
                });
                let name = most.map_or("a node", |share| share.name);
                Some(format!("the ring is uneven: {name} owns {peak:.2} times its share"))
            }
            Some(_) => None,
        };
        match (ring_part, loads.hottest()) {
            (Some(uneven), Some(hot)) => {
                verdict(Mood::Uneven, format!("{uneven}; {}", causes(snapshot, hot)))
            }
            (Some(uneven), None) => verdict(Mood::Uneven, uneven),
            (None, Some(hot)) => {
                let text = format!("the ring is even, the keys are not: {}", causes(snapshot, hot));
                verdict(Mood::Uneven, text)
            }
            (None, None) if loads.waits == 0 => {
                verdict(Mood::Good, "the ring is even, and nothing is waiting".into())
            }
            // A few items do not show how a larger number would spread.
            (None, None) if loads.waits < Thresholds::default().hot_queue_min => {
                let text = format!(
                    "the ring is even; too few items are waiting ({}) to judge the load",
                    loads.waits
                );
                verdict(Mood::Good, text)
            }
            (None, None) => verdict(Mood::Good, "the ring is even, and so is the load".into()),
        }
    }
}

/// The keys that make a node hot, if the node names any.
fn causes(snapshot: &Snapshot, hot: &Share<'_>) -> String {
    let load = hot.load.map_or_else(|| "?".to_owned(), per_cent);
    let report = snapshot.node(hot.name).and_then(|node| node.report.as_ref());
    let keys = report.filter(|report| report.hot_of > 0).map(|report| {
        let part = |count: u64| count as f64 / report.hot_of as f64;
        let keys = report.hot.iter().filter(|key| part(key.count) >= KEY_PART_MIN);
        let key =
            |key: &besom_snapshot::HotKey| format!("{} {}%", key.key, per_cent(part(key.count)));
        keys.take(KEYS_MAX).map(key).collect::<Vec<_>>().join(", ")
    });
    match keys.filter(|keys| !keys.is_empty()) {
        Some(keys) => format!("{} (load {load}%): {keys}", hot.name),
        None => format!("{} has {load}% of the waiting items, and no key stands out", hot.name),
    }
}
