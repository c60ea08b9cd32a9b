//! Tests truncated, repeated, reordered or lost rows, and flipped results: compaction never panics,
//! and does not change a document that it accepts. Flipped rows are tested against Yjs with the
//! fuzzer.

use besom_compaction::outcome::{
    BYTES_MAX_DEFAULT, Code, Compacted, Job, KeepDeleted, LeftAlone, Mode, Settings, Wish,
};
use besom_compaction::yjs::compare::{Same, compare};
use besom_compaction::yjs::names::Names;
use besom_compaction::yjs::{self, union, writer};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use yrs::updates::decoder::Decode;
use yrs::{
    Any, Array, Doc, Map, MapPrelim, OffsetKind, Options, ReadTxn, StateVector, Text, Transact,
    Update,
};

/// The updates of two authors, each of whom is offline for three edits at a time.
fn log() -> Vec<Vec<u8>> {
    let author = |client| {
        let mut options = Options::with_client_id(yrs::ClientID::new(client));
        options.offset_kind = OffsetKind::Utf16;
        Doc::with_options(options)
    };
    let authors = [author(40), author(7)];
    let mut rows: Vec<Vec<u8>> = Vec::new();
    for round in 0..12u32 {
        let seen: Vec<StateVector> =
            authors.iter().map(|doc| doc.transact().state_vector()).collect();
        for (number, doc) in authors.iter().enumerate() {
            let (text, map) = (doc.get_or_insert_text("t"), doc.get_or_insert_map("m"));
            let list = doc.get_or_insert_array("l");
            for step in 0..3 {
                let mut txn = doc.transact_mut();
                let end = text.len(&txn);
                text.insert(&mut txn, (round * 5 + step) % (end + 1), "wé");
                if end > 6 {
                    text.remove_range(&mut txn, end / 2, 2);
                }
                map.insert(&mut txn, format!("k{}", step % 2), i64::from(round));
                list.push_back(&mut txn, Any::from(f64::from(step) + 0.5));
                if round % 4 == 0 {
                    map.insert(&mut txn, "n", MapPrelim::from([("x", number as i64)]));
                }
                txn.commit();
                rows.push(txn.encode_update_v1());
            }
        }
        for (from, to) in [(0, 1), (1, 0)] {
            let news = authors[from].transact().encode_state_as_update_v1(&seen[to]);
            authors[to].transact_mut().apply_update(Update::decode_v1(&news).unwrap()).unwrap();
        }
    }
    rows
}

fn compact(rows: &[Vec<u8>]) -> Result<Compacted, LeftAlone> {
    compact_as(rows, Wish::Merge)
}

fn reset(rows: &[Vec<u8>]) -> Result<Compacted, LeftAlone> {
    compact_as(rows, Wish::Reset)
}

/// These writers collect their garbage.
const SETTINGS: Settings =
    Settings { keep_deleted: KeepDeleted::Detect, bytes_max: BYTES_MAX_DEFAULT };

fn compact_as(rows: &[Vec<u8>], wish: Wish<'_>) -> Result<Compacted, LeftAlone> {
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    yjs::compact(&Job { updates: &updates, wish, settings: &SETTINGS })
}

#[test]
fn order_and_repetition_of_rows_change_nothing() {
    let rows = log();
    let expected = compact(&rows).unwrap();
    let mut random = SmallRng::seed_from_u64(9);
    for round in 0..40 {
        let mut shuffled = rows.clone();
        for _ in 0..round {
            let (a, b) = (random.random_range(..rows.len()), random.random_range(..rows.len()));
            shuffled.swap(a, b);
            shuffled.insert(random.random_range(..rows.len()), rows[a].clone());
        }
        let outcome = compact(&shuffled).unwrap();
        assert_eq!(outcome.digests, expected.digests, "round {round}");
        assert_eq!(outcome.update, expected.update, "round {round}");
    }
}

#[test]
fn a_cut_row_is_undecodable_and_a_lost_one_is_missed() {
    let rows = log();
    let expected = compact(&rows).unwrap();
    for index in 0..rows.len() {
        let mut cut = rows.clone();
        cut[index].pop();
        let left = compact(&cut).unwrap_err();
        assert_eq!((left.code, left.update), (Code::Undecodable, Some(index)), "{left}");

        let mut lost = rows.clone();
        lost.remove(index);
        match compact(&lost) {
            // Nothing follows an author's last row that would need it.
            Ok(outcome) => assert_ne!(outcome.digests, expected.digests, "row {index}"),
            Err(left) => assert!(left.code.is_broken_log(), "row {index}: {left}"),
        }
    }
}

#[test]
fn a_reset_depends_on_the_content_alone() {
    let rows = log();
    let expected = reset(&rows).unwrap();
    assert_eq!((expected.mode, &expected.merged_because), (Mode::Reset, &None));
    let mut reversed = rows.clone();
    reversed.reverse();
    assert_eq!(reset(&reversed).unwrap().update, expected.update);
    // From a merge, from itself, and from itself twice.
    let merged = compact(&rows).unwrap().update;
    assert_eq!(reset(&[merged]).unwrap().update, expected.update);
    let again = expected.update.clone();
    assert_eq!(reset(std::slice::from_ref(&again)).unwrap().update, expected.update);
    assert_eq!(reset(&[again.clone(), again]).unwrap().update, expected.update);
}

#[test]
fn the_same_content_after_more_edits_gets_another_client_id() {
    let first = reset(&log()).unwrap().update;
    let doc = Doc::with_options(Options::with_client_id(yrs::ClientID::new(3)));
    doc.transact_mut().apply_update(Update::decode_v1(&first).unwrap()).unwrap();
    let text = doc.get_or_insert_text("t");
    let mut rows = vec![first.clone()];
    text.insert(&mut doc.transact_mut(), 0, "x");
    text.remove_range(&mut doc.transact_mut(), 0, 1);
    rows.push(doc.transact().encode_state_as_update_v1(&StateVector::default()));
    let second = reset(&rows).unwrap();
    assert_eq!(second.mode, Mode::Reset);
    assert_ne!(second.update, first, "a client id has come back with the same clocks");
    assert_eq!(second.digests.before, reset(&[first]).unwrap().digests.before);
}

#[test]
fn verification_of_a_reset_notices_every_other_document() {
    let rows = log();
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let good = reset(&rows).unwrap();
    let verify = |after: &[u8]| yjs::verify(&updates, after, Mode::Reset);
    assert_eq!(verify(&good.update), Ok(good.digests.clone()));
    // A merge is no initial change; nor is an empty document this one.
    let merged = compact(&rows).unwrap().update;
    assert_eq!(verify(&merged).unwrap_err().code, Code::Changed);
    assert_eq!(verify(&[0, 0]).unwrap_err().code, Code::Changed);
    for bit in 0..good.update.len() * 8 {
        let mut bad = good.update.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(digests) = verify(&bad) {
            // The client's id says nothing, and some flags mean nothing beside an origin.
            assert_eq!(digests, good.digests, "bit {bit}");
            let names = &mut Names::default();
            let read = union::read(names, [bad.as_slice()]).unwrap();
            let client = names.client_id(0);
            let names = &mut Names::default();
            let expected = union::read(names, [good.update.as_slice()]).unwrap();
            assert!(
                client != names.client_id(0)
                    || compare(names, &expected, &read, false) == Ok(Same { drift: None }),
                "bit {bit}"
            );
        }
    }
}

#[test]
fn every_flipped_bit_of_the_compacted_update_is_noticed() {
    let rows = log();
    let good = compact(&rows).unwrap().update;
    let names = &mut Names::default();
    let old = union::read(names, rows.iter().map(Vec::as_slice)).unwrap();
    let mut unnoticed = 0;
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let Ok(new) = union::read(names, [bad.as_slice()]) else { continue };
        if compare(names, &old, &new, false) == Ok(Same { drift: None }) {
            // Some bits mean nothing, such as the key's flag beside an origin: then it
            // has to be the same update but for them.
            assert_eq!(writer::write(names, &new), good, "bit {bit}");
            unnoticed += 1;
        }
    }
    assert!(unnoticed * 10 < good.len() * 8, "{unnoticed} of {} bits", good.len() * 8);
}

/// Yjs loads values that are nested far deeper than the stack of a guest lets yrs go.
#[test]
fn values_nested_a_thousand_deep_are_carried_as_they_are() {
    let row = |client: u8, clock: u8, depth: usize| {
        // One client with one item: an element behind the other of the root list `l`.
        let mut row = vec![1, 1, client, clock];
        match clock {
            0 => row.extend([8, 1, 1, b'l']),
            clock => row.extend([0x88, client, clock - 1]),
        }
        row.push(1);
        row.extend([117, 1].repeat(depth));
        // null, and nothing deleted.
        row.extend([126, 0]);
        row
    };
    let rows = [row(7, 0, 1000), row(7, 1, 3)];
    let outcome = compact(&rows).unwrap();
    assert!(outcome.update.windows(2000).any(|bytes| bytes == [117, 1].repeat(1000)));
    assert!(outcome.remarks.iter().any(|remark| remark.name == "stood_in"), "{outcome:?}");
    let again = compact(std::slice::from_ref(&outcome.update)).unwrap();
    assert_eq!(again.update, outcome.update);
    let refused = compact(&[row(7, 0, 1001)]).unwrap_err();
    assert_eq!(refused.code, Code::Undecodable);
    assert!(reset(&rows).is_ok());
}
