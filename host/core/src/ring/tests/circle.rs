use proptest::prelude::*;

use crate::ring::Circle;

/// The owner by definition: every point is examined.
fn oracle(points: &[(u64, u32)], hash: u64) -> Option<u32> {
    let after = points.iter().filter(|(at, _)| *at >= hash).min();
    after.or_else(|| points.iter().min()).map(|(_, owner)| *owner)
}

#[test]
fn a_hash_belongs_to_the_first_point_at_or_after_it_wrapping_round() {
    let circle = Circle::new(32, vec![(300, 3), (100, 1), (u64::from(u32::MAX), 9), (200, 2)]);
    for (hash, owner) in [
        (0, 1),
        (100, 1),
        (101, 2),
        (200, 2),
        (201, 3),
        (301, 9),
        (u64::from(u32::MAX), 9),
        (1 << 40, 1),
    ] {
        assert_eq!(circle.owner(hash), Some(owner), "{hash}");
        assert_eq!(circle.owner_by_search(hash), Some(owner), "{hash}");
    }
    let without_last = Circle::new(32, vec![(300, 3), (100, 1)]);
    assert_eq!(without_last.owner(301), Some(1), "the circle is round");
}

#[test]
fn an_empty_circle_has_no_owner() {
    for circle in [Circle::default(), Circle::new(1, vec![]), Circle::new(64, vec![])] {
        for hash in [0, 1, u64::MAX] {
            assert_eq!(circle.owner(hash), None);
            assert_eq!(circle.owner_by_search(hash), None);
            assert_eq!(circle.walk(hash).next(), None);
        }
    }
}

#[test]
fn of_two_points_at_one_position_the_lower_ranks_is_found() {
    let circle = Circle::new(64, vec![(7, 5), (7, 2), (9, 1)]);
    assert_eq!(circle.owner(7), Some(2));
    assert_eq!(circle.owner(8), Some(1));
    assert_eq!(circle.collisions(), 1);
    assert_eq!(circle.walk(8).collect::<Vec<_>>(), [1, 2, 5]);
}

proptest! {
    #[test]
    fn the_index_finds_what_looking_at_every_point_finds(
        bits in 1_u32..=64,
        raw in prop::collection::vec((any::<u64>(), 0_u32..9), 0..300),
        clump in any::<bool>(),
        hashes in prop::collection::vec(any::<u64>(), 50),
    ) {
        // A clump puts all points into one bucket of the index.
        let fit = |raw: u64| raw >> (64 - bits) >> if clump { bits / 2 } else { 0 };
        let points: Vec<_> = raw.iter().map(|(at, owner)| (fit(*at), *owner)).collect();
        let circle = Circle::new(bits, points.clone());
        let near = points.iter().flat_map(|(at, _)| [*at, at.wrapping_sub(1), at.wrapping_add(1)]);
        for hash in hashes.iter().map(|hash| fit(*hash)).chain(near) {
            prop_assert_eq!(circle.owner(hash), oracle(&points, hash), "{}", hash);
            prop_assert_eq!(circle.owner_by_search(hash), oracle(&points, hash), "{}", hash);
            prop_assert_eq!(circle.walk(hash).next(), oracle(&points, hash));
            prop_assert_eq!(circle.walk(hash).count(), points.len());
        }
    }
}
