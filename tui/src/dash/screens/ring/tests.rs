//! The verdict on the figures of a ring.

use std::sync::Arc;

use besom_snapshot::{HotKey, Leader, Node, NodeState, Owner, Report, Ring, Snapshot};

use super::load::Loads;
use super::verdict::{Mood, Verdict};

/// A ring of owners: name, weight, partitions owned, items queued.
fn snapshot(owners: &[(&str, u32, u32, u64)]) -> Snapshot {
    let owner = |(name, weight, owned, queued): &(&str, u32, u32, u64)| Owner {
        name: (*name).into(),
        weight: *weight,
        owned: *owned,
        queued: *queued,
    };
    let node = |(name, ..): &(&str, u32, u32, u64)| {
        let state = NodeState::Active;
        Arc::new(Node { name: (*name).into(), state, ..Node::default() })
    };
    let ring = Ring {
        partitions: owners.iter().map(|(_, _, owned, _)| owned).sum(),
        virtual_nodes: 64,
        owners: owners.iter().map(owner).collect(),
        ..Ring::default()
    };
    let nodes = owners.iter().map(node).collect();
    Snapshot { ring: Arc::new(ring), nodes, ..Snapshot::default() }
}

fn verdict(snapshot: &Snapshot) -> (Mood, String) {
    let verdict = Verdict::of(snapshot, &Loads::of(snapshot));
    (verdict.mood, verdict.text)
}

#[test]
fn a_verdict_tells_the_rings_fault_from_the_keys() {
    for (owners, mood, text) in [
        (&[][..], Mood::Change, "no partition is known yet"),
        (
            &[("a", 1, 10, 0), ("b", 1, 10, 0)],
            Mood::Good,
            "the ring is even, and nothing is waiting",
        ),
        (
            &[("a", 1, 10, 500), ("b", 1, 10, 400)],
            Mood::Good,
            "the ring is even, and so is the load",
        ),
        (
            &[("a", 1, 10, 99), ("b", 1, 10, 0)],
            Mood::Good,
            "the ring is even; too few items are waiting (99) to judge the load",
        ),
        (
            &[("a", 1, 10, 900), ("b", 1, 10, 100)],
            Mood::Uneven,
            "the ring is even, the keys are not: a has 90.0% of the waiting items, and no key \
             stands out",
        ),
        (
            &[("a", 1, 15, 0), ("b", 1, 5, 0)],
            Mood::Uneven,
            "the ring is uneven: a owns 1.50 times its share",
        ),
        // Its weight makes its share even.
        (
            &[("a", 3, 15, 0), ("b", 1, 5, 0)],
            Mood::Good,
            "the ring is even, and nothing is waiting",
        ),
        (&[("a", 0, 15, 0), ("b", 0, 5, 0)], Mood::Uneven, "no node has a share in the ring"),
    ] {
        assert_eq!(verdict(&snapshot(owners)), (mood, text.to_owned()), "{owners:?}");
    }
}

#[test]
fn hot_keys_are_named_with_their_part() {
    let mut snapshot = snapshot(&[("a", 1, 10, 900), ("b", 1, 10, 100)]);
    let hot = |key: &str, count| HotKey { key: key.into(), count, ..HotKey::default() };
    let report = Report {
        hot: vec![hot("share:9f31", 61), hot("doc:7", 3), hot("doc:8", 1)],
        hot_of: 100,
        ..Report::default()
    };
    Arc::make_mut(&mut snapshot.nodes[0]).report = Some(report);
    let (_, text) = verdict(&snapshot);
    let expected =
        "the ring is even, the keys are not: a (load 90.0%): share:9f31 61.0%, doc:7 3.0%";
    assert_eq!(text, expected, "one in a hundred is no cause");
}

#[test]
fn while_partitions_move_nothing_is_judged() {
    let mut snapshot = snapshot(&[("a", 1, 15, 900), ("b", 1, 5, 0)]);
    Arc::make_mut(&mut snapshot.ring).moving = 5;
    let (mood, text) = verdict(&snapshot);
    assert_eq!(mood, Mood::Change);
    assert!(text.starts_with("5 partitions (25.0%)"), "{text}");
}

#[test]
fn without_a_ring_the_leader_is_named() {
    let mut snapshot = snapshot(&[("a", 1, 15, 900)]);
    Arc::make_mut(&mut snapshot.ring).virtual_nodes = 0;
    assert_eq!(verdict(&snapshot).0, Mood::Uneven, "no leader");
    let leader = Leader { node: "a".into(), ..Leader::default() };
    Arc::make_mut(&mut snapshot.leadership).leader = Some(leader);
    assert_eq!(verdict(&snapshot).1, "no ring: the leader owns everything (a)");
}

#[test]
fn what_is_not_known_makes_no_figure() {
    let snapshot = snapshot(&[("a", 1, 10, 0), ("b", 0, 0, 0)]);
    let loads = Loads::of(&snapshot);
    let [a, b] = loads.shares.as_slice() else { panic!("{loads:?}") };
    assert_eq!((a.load, a.load_over_own(), a.own_over_ideal()), (None, None, Some(1.0)));
    assert_eq!((b.ideal, b.load_over_own()), (None, None));
    assert_eq!((loads.peak_own(), loads.peak_load()), (Some(1.0), None));
}
