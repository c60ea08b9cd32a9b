//! Rows that were flipped, cut, repeated, reordered or lost: compaction never panics and
//! never changes a document silently.

use besom_compaction::outcome::{Code, Compacted, Job, LeftAlone, Said};
use besom_compaction::yjs::compare::{Same, compare};
use besom_compaction::yjs::names::Names;
use besom_compaction::yjs::{self, union, writer};
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
    yjs::compact(&Job::merge(&rows.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

/// A small generator of numbers, seeded: xorshift.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }
}

#[test]
fn order_and_repetition_of_rows_change_nothing() {
    let rows = log();
    let expected = compact(&rows).unwrap();
    let mut random = Random(9);
    for round in 0..40 {
        let mut shuffled = rows.clone();
        for _ in 0..round {
            let (a, b) = (random.below(rows.len()), random.below(rows.len()));
            shuffled.swap(a, b);
            shuffled.insert(random.below(rows.len()), rows[a].clone());
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
fn a_flipped_row_is_refused_or_compacted_as_it_is() {
    let rows = log();
    let mut random = Random(5);
    let (mut refused, mut compacted) = (0, 0);
    for _ in 0..600 {
        let mut flipped = rows.clone();
        let row = random.below(rows.len());
        let byte = random.below(rows[row].len());
        flipped[row][byte] ^= 1 << random.below(8);
        let Ok(outcome) = compact(&flipped) else {
            refused += 1;
            continue;
        };
        compacted += 1;
        let names = &mut Names::default();
        let old = union::read(names, flipped.iter().map(Vec::as_slice)).unwrap();
        let new = union::read(names, [outcome.update.as_slice()]).unwrap();
        assert_eq!(
            compare(names, &old, &new, outcome.remark("kept_deleted") == Some(&Said::Flag(true))),
            Ok(Same { drift: None })
        );
    }
    assert!(refused > 50 && compacted > 50, "{refused} refused, {compacted} compacted");
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
