use std::collections::BTreeMap;

use proptest::prelude::*;

use super::count;
use crate::ring::{Change, Error, HashRing, Hasher, Md5, NodeName, Placement, Xxh3};

const PLACEMENTS: [Placement; 2] = [Placement::Consistent, Placement::Modulo];

fn ring<H: Hasher>(hasher: H, placement: Placement, names: &[&str]) -> HashRing<H> {
    let mut ring = HashRing::new(hasher, placement, count(16));
    for name in names {
        ring.add_server(*name, count(1), false).expect("a new server");
    }
    ring
}

/// The server of every key.
fn places<H: Hasher>(ring: &HashRing<H>) -> BTreeMap<String, NodeName> {
    let names: Vec<NodeName> = ring.servers().map(|(name, ..)| name.clone()).collect();
    let keys = names.iter().flat_map(|name| {
        let keys = ring.keys(name).expect("it is there");
        keys.map(|key| (key.to_owned(), name.clone())).collect::<Vec<_>>()
    });
    keys.collect()
}

#[test]
fn an_empty_ring_has_no_owner_and_stores_nothing() {
    for placement in PLACEMENTS {
        let mut ring = ring(Md5, placement, &[]);
        assert_eq!(ring.owner("a"), None);
        assert_eq!(ring.get_key("a"), None);
        assert_eq!(ring.add_key("a"), None);
        assert!(!ring.remove_key("a"));
        ring.add_server("s", count(1), true).expect("the first");
        assert!(!ring.get_key("a").expect("an owner").stored, "it was not kept for later");
    }
}

#[test]
fn a_server_is_there_once_and_a_missing_one_cannot_be_removed() {
    let mut ring = ring(Md5, Placement::Consistent, &["s"]);
    assert_eq!(ring.add_server("s", count(2), true), Err(Error::Exists("s".into())));
    assert_eq!(ring.remove_server("t", true), Err(Error::Unknown("t".into())));
    let too_many = ring.add_server("t", count(u32::MAX), true);
    assert!(matches!(too_many, Err(Error::TooMany { .. })), "{too_many:?}");
    assert_eq!(ring.servers().count(), 1);
}

#[test]
fn a_key_is_found_until_it_is_removed() {
    for placement in PLACEMENTS {
        let mut ring = ring(Xxh3, placement, &["a", "b", "c"]);
        let owner = ring.add_key("k").expect("an owner").clone();
        assert_eq!(ring.add_key("k"), Some(&owner), "twice is once");
        let found = ring.get_key("k").expect("an owner");
        assert_eq!((found.owner, found.stored), (&owner, true));
        assert_eq!(ring.keys(&owner).expect("there").collect::<Vec<_>>(), ["k"]);
        assert!(ring.remove_key("k"));
        assert!(!ring.remove_key("k"));
        assert!(!ring.get_key("k").expect("an owner").stored);
    }
}

#[test]
fn without_rehash_a_moved_key_is_a_miss_until_it_is_added_again() {
    let mut ring = ring(Md5, Placement::Modulo, &["s0", "s1"]);
    let keys: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    for key in &keys {
        ring.add_key(key);
    }
    assert_eq!(ring.add_server("s2", count(1), false), Ok(Change::default()));
    let missed =
        |ring: &HashRing<Md5>| keys.iter().filter(|key| !ring.get_key(key).unwrap().stored).count();
    assert!(missed(&ring) > 30, "{}", missed(&ring));
    for key in &keys {
        ring.add_key(key);
    }
    assert_eq!((missed(&ring), places(&ring).len()), (0, 100));
    assert_eq!(ring.servers().map(|(_, _, keys)| keys).sum::<usize>(), 100, "each lies once");
}

#[test]
fn a_later_rehash_finds_what_an_earlier_change_left_behind() {
    for placement in PLACEMENTS {
        let mut ring = ring(Xxh3, placement, &["a", "b"]);
        for n in 0..1_000 {
            ring.add_key(&n.to_string());
        }
        ring.add_server("c", count(1), false).expect("it is new");
        ring.add_server("d", count(1), true).expect("it is new");
        for (key, place) in places(&ring) {
            assert_eq!(ring.owner(&key), Some(&place), "{key}");
        }
    }
}

#[test]
fn keys_of_a_removed_server_move_or_are_lost() {
    for placement in PLACEMENTS {
        let mut moving = ring(Md5, placement, &["a", "b"]);
        for n in 0..1_000 {
            moving.add_key(&n.to_string());
        }
        let mut losing = moving.clone();
        let held = moving.keys(&"a".into()).expect("there").count() as u64;
        assert!(held > 0);
        let change = moving.remove_server("a", true).expect("there");
        assert_eq!((change.moved, change.lost), (held, 0), "{placement:?}");
        assert_eq!(places(&moving).len(), 1_000);
        let change = losing.remove_server("a", false).expect("there");
        assert_eq!((change.moved, change.lost), (0, held), "{placement:?}");
        assert_eq!(places(&losing).len() as u64, 1_000 - held);
        let last = moving.remove_server("b", true).expect("there");
        assert_eq!(last, Change { rehashed: 0, moved: 0, lost: 1_000 }, "there is nowhere to go");
    }
}

#[test]
fn a_weight_of_three_owns_three_times_as_much() {
    for placement in PLACEMENTS {
        let mut ring = HashRing::new(Xxh3, placement, count(1_024));
        ring.add_server("light", count(1), false).expect("new");
        ring.add_server("heavy", count(3), false).expect("new");
        let heavy = NodeName::from("heavy");
        let owned = (0..40_000).filter(|n| ring.owner(&n.to_string()) == Some(&heavy)).count();
        assert!((28_500..31_500).contains(&owned), "{placement:?}: {owned}");
    }
}

#[test]
fn servers_are_ordered_as_people_number_them() {
    let mut names: Vec<NodeName> =
        ["server_10", "server_2", "b", "server_02", "server_1", "a9", "a10"].map(Into::into).into();
    names.sort();
    let names: Vec<&str> = names.iter().map(NodeName::as_str).collect();
    assert_eq!(names, ["a9", "a10", "b", "server_1", "server_02", "server_2", "server_10"]);
}

/// A change of servers in a random history: an index of a name, added or removed.
fn history() -> impl Strategy<Value = Vec<(u8, u32, bool)>> {
    prop::collection::vec((0_u8..12, 1_u32..4, any::<bool>()), 1..30)
}

proptest! {
    // Each case is a whole history or two tables of 1,024 partitions.
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn moves_are_minimal_and_counted_and_no_key_gets_lost(changes in history()) {
        let mut ring = HashRing::new(Xxh3, Placement::Consistent, count(8));
        ring.add_server("s0", count(1), true).expect("the first");
        for n in 0..500 {
            ring.add_key(&n.to_string());
        }
        for (n, weight, _) in changes {
            let name = NodeName::from(format!("s{n}"));
            let before = places(&ring);
            let there = ring.servers().any(|(other, ..)| *other == name);
            if there && ring.servers().count() == 1 {
                continue;
            }
            let change = if there {
                ring.remove_server(name.clone(), true)
            } else {
                ring.add_server(name.clone(), count(weight), true)
            };
            let change = change.expect("it is possible");
            let after = places(&ring);
            let mut moved = 0;
            for (key, was) in &before {
                let is = &after[key];
                moved += u64::from(was != is);
                // To the new one only, or from the old one only.
                let allowed = if there { *was == name } else { *is == name };
                prop_assert!(was == is || allowed, "{} from {} to {}", key, was, is);
                prop_assert_eq!(ring.owner(key), Some(is));
            }
            prop_assert_eq!((change.moved, change.lost, after.len()), (moved, 0, 500));
            prop_assert!(change.rehashed >= change.moved && change.rehashed <= 500);
        }
    }

    #[test]
    fn a_ring_is_a_function_of_its_servers_not_of_their_history(changes in history()) {
        for placement in PLACEMENTS {
            let mut ring = HashRing::new(Md5, placement, count(5));
            for (n, weight, add) in &changes {
                let name = format!("server_{n}");
                // Adding an existing server or removing a missing one changes nothing.
                let _ = if *add {
                    ring.add_server(name, count(*weight), false)
                } else {
                    ring.remove_server(name, false)
                };
            }
            let mut members: Vec<_> = ring.servers().map(|(n, w, _)| (n.clone(), w)).collect();
            members.reverse();
            let mut fresh = HashRing::new(Md5, placement, count(5));
            for (name, weight) in members {
                fresh.add_server(name, weight, false).expect("it is new");
            }
            for n in 0..200 {
                let key = n.to_string();
                prop_assert_eq!(ring.owner(&key), fresh.owner(&key));
            }
        }
    }

    #[test]
    fn modulo_stores_every_key_on_its_owner_after_any_history(changes in history()) {
        let mut ring = HashRing::new(Md5, Placement::Modulo, count(1));
        ring.add_server("s0", count(1), true).expect("the first");
        for n in 0..100 {
            ring.add_key(&n.to_string());
        }
        for (n, weight, add) in changes.into_iter().filter(|(n, ..)| *n > 0) {
            let _ = if add {
                ring.add_server(format!("s{n}"), count(weight), true)
            } else {
                ring.remove_server(format!("s{n}"), true)
            };
        }
        let places = places(&ring);
        prop_assert_eq!(places.len(), 100);
        for (key, place) in places {
            prop_assert_eq!(ring.owner(&key), Some(&place));
        }
    }
}
