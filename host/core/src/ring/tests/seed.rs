//! The experiments: 1,000,000 keys on 4 servers with MD5. An independent program in another
//! language computed the exact figures; comments give the rounded figures of the original
//! description.

use std::sync::OnceLock;

use super::count;
use crate::ring::simulate::{Event, Mode, Outcome, key_hashes, server_name, simulate};
use crate::ring::{Circle, HashRing, Hasher, Md5, Placement};

const KEYS: u64 = 1_000_000;

/// The keys' hashes, computed once for all experiments.
fn md5_hashes() -> impl Iterator<Item = u64> {
    static HASHES: OnceLock<Vec<u64>> = OnceLock::new();
    HASHES.get_or_init(|| key_hashes(Mode::Md5, KEYS).collect()).iter().copied()
}

fn run(mode: Mode, virtual_nodes: u32, event: Option<Event>) -> Outcome {
    simulate(mode, 4, count(virtual_nodes), md5_hashes(), event).expect("it is possible")
}

fn ring(servers: u32, virtual_nodes: u32) -> HashRing<Md5> {
    let mut ring = HashRing::new(Md5, Placement::Consistent, count(virtual_nodes));
    for number in 0..servers {
        ring.add_server(server_name(number), count(1), false).expect("it is new");
    }
    ring
}

#[test]
fn texts_are_hashed_to_the_first_four_bytes_of_md5() {
    for (text, hash) in [("server_00", 3_208_578_106), ("server_10", 3_172_837_842)] {
        assert_eq!(Md5.hash(text.as_bytes()), hash);
    }
}

#[test]
fn without_a_change_there_is_nothing_to_compare() {
    let outcome = run(Mode::Md5, 1, None);
    assert_eq!(outcome.owned, [8_186, 211_706, 305_978, 474_130]);
    assert_eq!((&outcome.after, outcome.kept, outcome.moved), (&None, None, None));
    assert_eq!(outcome.rehashed, 0);
}

#[test]
fn the_first_server_has_the_arc_that_its_neighbour_leaves_it() {
    // (3,172,837,843 to 3,208,578,106), 35,740,264 positions, about 0.83 %.
    let ring = ring(4, 1);
    let zero = server_name(0);
    for (hash, owned) in [
        (3_172_837_842, false),
        (3_172_837_843, true),
        (3_208_578_106, true),
        (3_208_578_107, false),
    ] {
        assert_eq!(ring.owner_of_hash(hash) == Some(&zero), owned, "{hash}");
    }
}

#[test]
fn when_a_server_is_lost_the_others_keep_what_they_had() {
    for (virtual_nodes, lost, before, after) in [
        // Everything of server 3 goes to server 2; servers 0 and 1 keep 100 %. Server 0 has
        // about 0.83 %.
        (1, 3, [8_186, 211_706, 305_978, 474_130], [8_186, 211_706, 780_108, 0]),
        (4, 0, [178_941, 291_061, 308_515, 221_483], [0, 458_716, 316_701, 224_583]),
        (10, 0, [258_047, 295_891, 235_406, 210_656], [0, 298_875, 362_371, 338_754]),
        (100, 0, [264_256, 251_947, 268_778, 215_019], [0, 353_138, 326_998, 319_864]),
    ] {
        let outcome = run(Mode::Md5, virtual_nodes, Some(Event::Remove(lost)));
        let kept = KEYS - before[lost as usize];
        assert_eq!(outcome.owned, before, "{virtual_nodes}");
        assert_eq!(outcome.after.as_deref(), Some(&after[..]), "{virtual_nodes}");
        assert_eq!(outcome.kept, Some(kept), "{virtual_nodes}");
        assert_eq!(outcome.moved, Some(KEYS - kept), "{virtual_nodes}");
        // Hits are the keys that were there before, and only the lost server's are hashed again.
        let mut others = outcome.owned.clone();
        let gone = std::mem::take(&mut others[lost as usize]);
        assert_eq!(outcome.kept_by, others, "{virtual_nodes}");
        assert_eq!(outcome.rehashed, gone, "{virtual_nodes}");
    }
    for (lost, kept) in [(0, 250_340), (3, 250_121)] {
        let outcome = run(Mode::Modulo, 1, Some(Event::Remove(lost)));
        // "About 250,000 keys each".
        assert_eq!(outcome.owned, [249_453, 250_589, 249_900, 250_058]);
        assert_eq!((outcome.kept, outcome.rehashed), (Some(kept), KEYS), "everything is hashed");
    }
}

#[test]
fn an_added_server_takes_only_what_becomes_its_own() {
    for (virtual_nodes, after, moved, rehashed) in [
        // With one point only server 3 gives anything.
        (1, [8_186, 211_706, 305_978, 189_695, 284_435], 284_435, 474_130),
        (4, [150_417, 227_383, 230_985, 151_619, 239_596], 239_596, KEYS),
        (10, [238_110, 278_316, 232_999, 168_351, 82_224], 82_224, KEYS),
        (100, [223_564, 205_168, 233_947, 179_332, 157_989], 157_989, KEYS),
    ] {
        let outcome = run(Mode::Md5, virtual_nodes, Some(Event::Add));
        assert_eq!(outcome.after.as_deref(), Some(&after[..]), "{virtual_nodes}");
        assert_eq!((outcome.moved, outcome.rehashed), (Some(moved), rehashed), "{virtual_nodes}");
        assert_eq!(outcome.kept, Some(KEYS - moved));
    }
    let modulo = run(Mode::Modulo, 1, Some(Event::Add));
    assert_eq!((modulo.moved, modulo.rehashed), (Some(799_849), KEYS));
}

/// The ring that stores keys and the simulation that only counts have the same results.
#[test]
fn a_ring_of_stored_keys_moves_what_the_simulation_counts() {
    const FEW: u64 = 20_000;
    for (mode, placement) in [(Mode::Md5, Placement::Consistent), (Mode::Modulo, Placement::Modulo)]
    {
        for virtual_nodes in [1, 4, 10] {
            let mut ring = HashRing::new(Md5, placement, count(virtual_nodes));
            for number in 0..4 {
                ring.add_server(server_name(number), count(1), false).expect("it is new");
            }
            for key in 0..FEW {
                ring.add_key(&key.to_string());
            }
            let counted = |servers, event| {
                let hashes = key_hashes(mode, FEW);
                simulate(mode, servers, count(virtual_nodes), hashes, Some(event))
                    .expect("possible")
            };
            let expected = counted(4, Event::Add);
            let added = ring.add_server(server_name(4), count(1), true).expect("it is new");
            assert_eq!(
                (Some(added.moved), added.rehashed),
                (expected.moved, expected.rehashed),
                "{mode:?} {virtual_nodes}"
            );
            let expected = counted(5, Event::Remove(4));
            let removed = ring.remove_server(server_name(4), true).expect("it is there");
            assert_eq!(
                (Some(removed.moved), removed.rehashed),
                (expected.moved, expected.rehashed),
                "{mode:?} {virtual_nodes}"
            );
        }
    }
}

#[test]
fn texts_collide_from_eleven_servers_on_and_the_lower_number_keeps_the_point() {
    assert_eq!(ring(10, 100).circle().collisions(), 0);
    let mut twelve = ring(12, 100);
    assert_eq!(twelve.circle().collisions(), 10);
    // `server_1` + `10` is `server_11` + `0`.
    let shared = Md5.hash(b"server_110");
    assert_eq!(twelve.owner_of_hash(shared), Some(&server_name(1)));
    twelve.remove_server(server_name(11), false).expect("it is there");
    assert_eq!(twelve.owner_of_hash(shared), Some(&server_name(1)), "its point has stayed");
    twelve.add_server(server_name(11), count(1), false).expect("it is new");
    twelve.remove_server(server_name(1), false).expect("it is there");
    assert_eq!(twelve.owner_of_hash(shared), Some(&server_name(11)), "so has the other's");
}

#[test]
fn partitions_are_bounded_and_move_whole() {
    let hashes = key_hashes(Mode::Xxh3, KEYS);
    let outcome =
        simulate(Mode::Xxh3, 4, count(1_024), hashes, Some(Event::Add)).expect("it is possible");
    let most = *outcome.owned.iter().max().expect("servers") as f64;
    assert!(most < 0.25 * 1.05 * KEYS as f64 * 1.02, "{:?}", outcome.owned);
    let new = outcome.after.as_ref().expect("after")[4];
    let moved = outcome.moved.expect("moved");
    assert!(moved >= new && moved < new + KEYS / 20, "{outcome:?}");
    assert_eq!(outcome.rehashed, moved, "no key is hashed again");
    assert_eq!(outcome.kept.expect("kept") + moved, KEYS);
}

#[test]
fn every_key_is_somewhere_with_few_servers_and_nowhere_without() {
    for mode in [Mode::Xxh3, Mode::Md5, Mode::Modulo] {
        let one = simulate(mode, 1, count(3), key_hashes(mode, 100), Some(Event::Remove(0)));
        let one = one.expect("it is there");
        assert_eq!((one.owned, one.after), (vec![100], Some(vec![0])), "{mode:?}");
        assert_eq!((one.kept, one.moved), (Some(0), Some(0)), "{mode:?}");
        let none = simulate(mode, 0, count(3), key_hashes(mode, 100), Some(Event::Add));
        assert_eq!(none.expect("possible").after, Some(vec![100]), "{mode:?}");
        let missing = simulate(mode, 2, count(3), key_hashes(mode, 1), Some(Event::Remove(2)));
        assert!(missing.is_err(), "{mode:?}");
    }
}

#[test]
fn the_index_agrees_with_a_search_on_the_real_circle() {
    let ring = ring(100, 100);
    let circle: &Circle = ring.circle();
    for hash in key_hashes(Mode::Md5, 10_000) {
        assert_eq!(circle.owner(hash), circle.owner_by_search(hash));
    }
}
