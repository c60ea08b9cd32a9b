//! Flips one bit of a stored row. A checksum always detects it; without one, detection depends on
//! the format, which cannot detect a changed letter.

use besom_compaction::Compaction;
use besom_compaction::checksum::crc32;
use besom_sdk::Change;
use besom_sdk::prelude::*;
use besom_sdk::testing::Fixture;
use yrs::updates::decoder::Decode;
use yrs::{Doc, GetString, Text, Transact, Update};

/// Bits that are flipped, each on its own.
const FLIPS: usize = 10_000;
/// Of those, one in so many is tried without a checksum as well: that one is compacted.
const UNCHECKED_ONE_IN: usize = 8;

/// Rows of one author who types: enough bytes for [`FLIPS`].
fn rows() -> Vec<Vec<u8>> {
    let doc = Doc::with_client_id(7);
    let text = doc.get_or_insert_text("text");
    let mut rows = Vec::new();
    while rows.iter().map(Vec::len).sum::<usize>() * 8 < FLIPS {
        let mut txn = doc.transact_mut();
        let end = text.len(&txn);
        text.insert(&mut txn, end, &format!("the word {} of a longer text; ", rows.len()));
        rows.push(txn.encode_update_v1());
    }
    rows
}

/// A document with these rows; `checksums` are those that the product has written.
fn site(rows: &[Vec<u8>], checksums: &[Value]) -> Fixture {
    let count = rows.len() as i64;
    let document = [
        ("doc_id", Value::from("d")),
        ("format", "yjs".into()),
        ("server_seq", count.into()),
        ("compacted_seq", 0i64.into()),
        ("pending", count.into()),
        ("epoch", 0i64.into()),
    ];
    let both = &["doc_id", "client_id"][..];
    let mut site = Fixture::new(Time(5))
        .setting("min_changes", 2i64)
        .table("documents", &["doc_id"], &[("by_pending", &["pending"])])
        .table("changes", &["doc_id", "server_seq"], &[])
        .table("snapshots", &["doc_id", "server_seq"], &[])
        .table("attachments", both, &[("by_document", both)])
        .row("documents", "t", document);
    for ((number, row), checksum) in (1i64..).zip(rows).zip(checksums) {
        let row = [
            ("doc_id", "d".into()),
            ("server_seq", number.into()),
            ("lamport", number.into()),
            ("kind", "edit".into()),
            ("payload", row.clone().into()),
            ("checksum", checksum.clone()),
        ];
        site = site.row("changes", "t", row);
    }
    site
}

fn verdict(rows: &[Vec<u8>], checksums: &[Value]) -> Verdict {
    let mut site = site(rows, checksums);
    let candidate: Candidate = site.scan::<Compaction>("t").unwrap().remove(0);
    site.act::<Compaction>(&[("t", candidate)]).unwrap().remove(0)
}

fn written(verdict: &Verdict) -> Option<Vec<u8>> {
    let Verdict::Propose(proposal) = verdict else { return None };
    proposal.changes.iter().find_map(|change| match change {
        Change::Insert(row) => row.fields.iter().find_map(|field| match &field.value {
            Value::Bytes(bytes) if field.name == "payload" => Some(bytes.clone()),
            _ => None,
        }),
        _ => None,
    })
}

/// The text of an update, as far as it can be read.
fn text(update: &[u8]) -> Option<String> {
    let doc = Doc::new();
    let text = doc.get_or_insert_text("text");
    doc.transact_mut().apply_update(Update::decode_v1(update).ok()?).ok()?;
    let txn = doc.transact();
    Some(text.get_string(&txn))
}

#[test]
fn no_flipped_bit_passes_a_checksum() {
    let rows = rows();
    let checksums: Vec<Value> = rows.iter().map(|row| i64::from(crc32(row)).into()).collect();
    let none = vec![Value::Null; rows.len()];
    let whole = written(&verdict(&rows, &checksums)).expect("it is compacted as it is");
    let places =
        (0..rows.len()).flat_map(|row| (0..rows[row].len() * 8).map(move |bit| (row, bit)));
    let (mut unchecked, mut noticed, mut same, mut silent) = (0, 0, 0, 0);
    for (flip, (row, bit)) in places.take(FLIPS).enumerate() {
        let mut flipped = rows.clone();
        flipped[row][bit / 8] ^= 1 << (bit % 8);
        match verdict(&flipped, &checksums) {
            Verdict::Dead(reason) if reason.starts_with("checksum: ") => {}
            other => panic!("bit {bit} of row {row}: {other:?}"),
        }
        if flip % UNCHECKED_ONE_IN == 0 {
            unchecked += 1;
            match written(&verdict(&flipped, &none)) {
                None => noticed += 1,
                Some(update) if text(&update) == text(&whole) => same += 1,
                Some(_) => silent += 1,
            }
        }
    }
    assert_eq!(unchecked, noticed + same + silent);
    assert!(noticed > 0 && silent > 0, "without a checksum: {noticed} noticed, {silent} silent");
    #[expect(clippy::print_stdout, reason = "shown with --nocapture: the rate without a checksum")]
    {
        println!(
            "{FLIPS} bits flipped beside a checksum: all noticed; {unchecked} without one: {noticed} \
             noticed, {same} without a visible change, {silent} changed the text silently"
        );
    }
}

/// A bit of the checksum itself is one that differs, too: nothing is written on the strength of
/// either.
#[test]
fn a_flipped_bit_of_the_checksum_leaves_the_document_as_it_is() {
    let rows = rows();
    for bit in 0..32 {
        let mut checksums: Vec<Value> =
            rows.iter().map(|row| i64::from(crc32(row)).into()).collect();
        checksums[3] = (i64::from(crc32(&rows[3])) ^ (1 << bit)).into();
        let verdict = verdict(&rows, &checksums);
        assert!(matches!(&verdict, Verdict::Dead(reason) if reason.starts_with("checksum: ")));
    }
}
