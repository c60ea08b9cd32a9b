use std::num::NonZeroU32;

use proptest::prelude::*;

use super::count;
use crate::ids::{Partition, partition_of};
use crate::ring::assignment::circle;
use crate::ring::{Assignment, Moves, RingMember, VIRTUAL_NODES};

const PARTITIONS: NonZeroU32 = NonZeroU32::new(1_024).unwrap();

fn member(name: &str, weight: u32) -> RingMember {
    RingMember { name: name.into(), weight: count(weight) }
}

fn members(n: u32) -> Vec<RingMember> {
    (0..n).map(|i| member(&format!("node-{i}"), 1)).collect()
}

#[test]
fn without_members_nobody_owns_anything() {
    let table = Assignment::of(&[], PARTITIONS);
    assert_eq!(table.owner(Partition(0)), None);
    assert_eq!(table.owner_of(Some("t"), "k"), (partition_of(Some("t"), "k", 1_024), None));
    assert_eq!(table.loads(), []);
    let first = Assignment::of(&members(1), PARTITIONS);
    assert_eq!(Assignment::moves(&table, &first).count(), 1_024);
    assert_eq!(first.owned_by("node-0").count(), 1_024);
    assert_eq!(first.owner(Partition(1_024)), None, "there is no such partition");
}

#[test]
fn a_key_goes_through_its_partition() {
    let table = Assignment::of(&members(3), PARTITIONS);
    for n in 0..100 {
        let (tenant, key) = (format!("t{}", n % 3), n.to_string());
        let partition = partition_of(Some(&tenant), &key, 1_024);
        assert_eq!(table.owner_of(Some(&tenant), &key), (partition, table.owner(partition)));
    }
}

#[test]
fn nobody_has_more_than_the_bound_by_weight() {
    for weights in [vec![1, 1], vec![1, 2, 3], vec![5; 7], vec![1, 100], vec![1; 100]] {
        let members: Vec<_> =
            (0..).zip(&weights).map(|(i, weight)| member(&format!("n{i}"), *weight)).collect();
        for partitions in [1, 2, 64, 1_024, 5_000] {
            let table = Assignment::of(&members, count(partitions));
            let all: u32 = weights.iter().sum();
            let mut sum = 0;
            for (member, load, most) in table.loads() {
                let share = f64::from(partitions) * f64::from(member.weight.get()) / f64::from(all);
                assert!(most as f64 >= share && most as f64 <= 1.05 * share + 1.0, "{member:?}");
                assert!(load <= most, "{partitions} over {weights:?}: {member:?} has {load}");
                sum += load;
            }
            assert_eq!(sum, u64::from(partitions));
        }
    }
}

#[test]
fn the_bare_circle_is_as_even_as_its_virtual_nodes_promise() {
    // Shares of the circle, not of keys: N = 100, 1,024 points each.
    let circle = circle(&members(100), count(VIRTUAL_NODES));
    let mut shares = vec![0_f64; 100];
    let mut last = circle.points().last().map(|(at, _)| at).expect("points");
    for (at, owner) in circle.points() {
        shares[owner as usize] += at.wrapping_sub(last) as f64 / 2_f64.powi(64) * 100.0;
        last = at;
    }
    let deviation = (shares.iter().map(|share| (share - 1.0).powi(2)).sum::<f64>() / 100.0).sqrt();
    let peak = shares.iter().copied().fold(0.0, f64::max);
    assert!((0.025..0.040).contains(&deviation), "{deviation}");
    assert!(peak < 1.13, "{peak}");
}

#[test]
fn moves_are_counted_by_node() {
    let (two, three) =
        (Assignment::of(&members(2), PARTITIONS), Assignment::of(&members(3), PARTITIONS));
    let moves = Assignment::moves(&two, &three);
    let arriving = moves.of("node-2");
    assert_eq!(arriving.0, 0);
    assert_eq!(arriving.1, three.owned_by("node-2").count());
    let all: usize = ["node-0", "node-1", "node-2"].map(|node| moves.of(node).0).iter().sum();
    assert_eq!(all, moves.count());
    assert_eq!(Assignment::moves(&three, &three), Moves::default());
}

fn member_set() -> impl Strategy<Value = Vec<RingMember>> {
    prop::collection::btree_map(0_u32..40, 1_u32..4, 1..20).prop_map(|set| {
        set.into_iter().map(|(i, weight)| member(&format!("node-{i}"), weight)).collect()
    })
}

proptest! {
    // Each case is a whole history or two tables of 1,024 partitions.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_table_is_a_function_of_the_set(
        set in member_set(),
        seed in any::<u64>(),
    ) {
        let table = Assignment::of(&set, PARTITIONS);
        let mut shuffled = set.clone();
        shuffled.sort_by_key(|m| {
            xxhash_rust::xxh3::xxh3_64_with_seed(m.name.as_str().as_bytes(), seed)
        });
        prop_assert_eq!(Assignment::of(&shuffled, PARTITIONS), table);
    }

    /// Without the bound only a joining node gets and only a leaving one gives. The bound may
    /// add at most the partitions that it keeps from their first choice, before or after.
    #[test]
    fn a_join_or_leave_moves_as_little_as_the_bound_allows(set in member_set()) {
        let joined = member("node-99", 1);
        let mut larger = set.clone();
        larger.push(joined.clone());
        let (small, large) =
            (Assignment::of(&set, PARTITIONS), Assignment::of(&larger, PARTITIONS));
        let moves = Assignment::moves(&small, &large);
        let besides = moves
            .partitions
            .values()
            .filter(|(_, to)| to.as_ref() != Some(&joined.name))
            .count();
        let kept_out = (small.overflowed() + large.overflowed()) as usize;
        prop_assert!(besides <= kept_out, "{} besides, {} kept out", besides, kept_out);
        // In all: its own share, and what the bound costs.
        let (_, load, most) = large.loads().into_iter().find(|(m, ..)| m.name == joined.name)
            .expect("it has joined");
        prop_assert!(load <= most);
        prop_assert!(moves.count() as u64 <= load + kept_out as u64);
        // Leaving again is the same way back.
        prop_assert_eq!(Assignment::moves(&large, &small).count(), moves.count());
    }
}

#[test]
fn the_price_of_the_bound_is_a_few_partitions_in_a_hundred() {
    let mut worst = 0;
    for n in 2..=30 {
        let (small, large) =
            (Assignment::of(&members(n), PARTITIONS), Assignment::of(&members(n + 1), PARTITIONS));
        let moves = Assignment::moves(&small, &large).count();
        let own = large.owned_by(&format!("node-{n}")).count();
        worst = worst.max(moves - own);
    }
    assert!(worst * 100 <= 1_024 * 8, "{worst} of 1,024 moved besides the joining node's");
}
