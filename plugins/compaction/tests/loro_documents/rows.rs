//! Rows that were repeated, reordered, cut, flipped, lost, or compacted before.

use besom_compaction::outcome::Code;
use loro::{ExportMode, LoroDoc};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::support::{assert_alike, author, both, built, merge, replica, row, sync};

/// Two authors, who hear of each other every third row.
fn log() -> Vec<Vec<u8>> {
    let authors = [author(40), author(7)];
    let mut rows = Vec::new();
    for round in 0..6usize {
        for (number, doc) in authors.iter().enumerate() {
            for step in 0..3 {
                rows.push(row(doc, |doc| {
                    let text = doc.get_text("text");
                    text.insert(text.len_unicode() / 2, "wé😀").unwrap();
                    if round % 2 == 0 {
                        text.delete(0, 1).unwrap();
                        text.mark(0..2, "bold", step as i64).unwrap();
                    }
                    doc.get_map("map").insert(&format!("k{step}"), number as i64).unwrap();
                    doc.get_list("list").insert(0, round as f64 + 0.5).unwrap();
                }));
            }
        }
        sync(&authors[0], &authors[1]);
    }
    rows
}

#[test]
fn rows_that_say_nothing_new_change_nothing() {
    let rows = log();
    let expected = merge(&rows).unwrap().digests;
    let doc = built(&rows);
    let half = doc.export(ExportMode::snapshot_at(&rows_frontier(&rows[..18]))).unwrap();
    let with = |more: &[&Vec<u8>]| -> Vec<Vec<u8>> {
        rows.iter().chain(more.iter().copied()).cloned().collect()
    };
    let nothing = doc.export(ExportMode::updates(&doc.oplog_vv())).unwrap();
    let all = doc.export(ExportMode::all_updates()).unwrap();
    let snapshot = doc.export(ExportMode::Snapshot).unwrap();
    let shallow = doc.export(ExportMode::shallow_snapshot(&doc.oplog_frontiers())).unwrap();
    let reversed: Vec<_> = rows.iter().rev().cloned().collect();
    for (what, rows) in [
        ("twice", [rows.clone(), rows.clone()].concat()),
        ("backwards", reversed),
        ("one row again", with(&[&rows[3]])),
        ("a row without operations", with(&[&nothing])),
        ("all at once as well", with(&[&all])),
        ("a snapshot as well", with(&[&snapshot])),
        ("a snapshot of a former time as well", with(&[&half])),
        ("both snapshots first", [vec![half.clone(), snapshot.clone()], rows.clone()].concat()),
        ("a shallow snapshot as well", with(&[&shallow])),
        ("a shallow snapshot first", [vec![shallow], rows.clone()].concat()),
        ("a snapshot alone", vec![snapshot.clone()]),
        ("all in one update", vec![all]),
        ("a snapshot and what follows", [vec![half], rows[15..].to_vec()].concat()),
    ] {
        let merged = merge(&rows).unwrap_or_else(|left| panic!("{what}: {left}"));
        assert_eq!(merged.digests, expected, "{what}");
        assert_alike(&built(&[merged.update]), &doc);
    }
}

/// A snapshot whose history begins with the very first operation has lost nothing, and is shallow
/// all the same: whoever has nothing could not merge with it any more.
#[test]
fn a_shallow_snapshot_of_the_first_operation_makes_no_whole_history_shallow() {
    for first in 1..4usize {
        let doc = author(1);
        let write = |doc: &LoroDoc| row(doc, |doc| doc.get_text("text").insert(0, "a").unwrap());
        let mut rows: Vec<_> = (0..first).map(|_| write(&doc)).collect();
        let shallow = doc.export(ExportMode::shallow_snapshot(&doc.oplog_frontiers())).unwrap();
        rows.extend([write(&doc), write(&doc)]);
        let offline = author(2);
        let change = write(&offline);
        let whole = merge(&rows).unwrap().digests;
        for at in [first, rows.len()] {
            let mut rows = rows.clone();
            rows.insert(at, shallow.clone());
            let merged = merge(&rows).unwrap();
            assert_eq!(merged.digests, whole, "{first} at {at}");
            let compacted = built(&[merged.update]);
            assert!(!compacted.is_shallow(), "{first} at {at}");
            let status = compacted.import(&change).expect("somebody who was offline");
            assert_eq!(status.pending, None);
        }
    }
}

fn rows_frontier(rows: &[Vec<u8>]) -> loro::Frontiers {
    built(rows).oplog_frontiers()
}

#[test]
fn rows_that_are_broken_leave_the_document_alone() {
    let rows = log();
    let broken = |row: usize, change: &dyn Fn(&mut Vec<u8>)| {
        let mut rows = rows.clone();
        change(&mut rows[row]);
        rows
    };
    for (what, rows, code, at) in [
        ("an empty row", broken(5, &Vec::clear), Code::Undecodable, Some(5)),
        ("a byte less", broken(5, &|row| row.truncate(row.len() - 1)), Code::Undecodable, Some(5)),
        ("a header alone", broken(0, &|row| row.truncate(20)), Code::Undecodable, Some(0)),
        ("a byte more", broken(5, &|row| row.push(0)), Code::Undecodable, Some(5)),
        ("two in one", broken(5, &|row| row.extend(row.clone())), Code::Undecodable, Some(5)),
        ("another magic", broken(5, &|row| row[0] = b'L'), Code::Undecodable, Some(5)),
        ("an unused byte", broken(5, &|row| row[7] = 1), Code::Undecodable, Some(5)),
        ("another checksum", broken(5, &|row| row[16] ^= 1), Code::Undecodable, Some(5)),
        ("a mode of the future", broken(5, &|row| row[21] = 99), Code::Unsupported, Some(5)),
        ("an update of Yjs", broken(5, &|row| *row = vec![0, 0]), Code::Undecodable, Some(5)),
    ] {
        let left = merge(&rows).expect_err(what);
        assert_eq!((left.code, left.update), (code, at), "{what}: {left}");
    }
}

#[test]
fn what_is_missing_is_named_and_waited_for() {
    let rows = log();
    for lost in [0, 3, 17, 20] {
        let mut fewer = rows.clone();
        fewer.remove(lost);
        let left = merge(&fewer).unwrap_err();
        assert_eq!(left.code, Code::MissingDependency, "{left}");
        let peer = if (lost / 3) % 2 == 0 { 40 } else { 7 };
        assert!(left.words.contains(&format!("peer {peer}, counter ")), "{left}");
        // Filled later, at the end.
        fewer.push(rows[lost].clone());
        assert_eq!(merge(&fewer).unwrap().digests, merge(&rows).unwrap().digests);
    }
    // An author who depends on nobody.
    let alone = author(3);
    let lost = row(&alone, |doc| doc.get_text("text").insert(0, "first").unwrap());
    let kept = row(&alone, |doc| doc.get_text("text").insert(0, "second").unwrap());
    let mut more = rows.clone();
    more.push(kept);
    let left = merge(&more).unwrap_err();
    assert_eq!(left.code, Code::MissingDependency);
    assert!(left.words.contains("peer 3, counter 4"), "{left}");
    assert_eq!(left.update, Some(rows.len()));
    more.push(lost);
    merge(&more).unwrap();
}

#[test]
fn a_peer_that_was_used_twice_leaves_the_document_alone() {
    let said = |text: &str| row(&author(5), |doc| doc.get_text("text").insert(0, text).unwrap());
    let whole = |text: &str| {
        let doc = author(5);
        doc.get_text("text").insert(0, text).unwrap();
        doc.commit();
        doc.export(ExportMode::Snapshot).unwrap()
    };
    let conflict = |rows: &[Vec<u8>], at| {
        let left = merge(rows).unwrap_err();
        assert_eq!((left.code, left.update), (Code::Conflict, Some(at)), "{left}");
    };
    conflict(&[said("one"), said("two")], 1);
    conflict(&[said("one"), said("more")], 1);
    conflict(&[said("one"), said("two"), said("one")], 1);
    // A snapshot is taken first, wherever it stands.
    conflict(&[said("one"), whole("two")], 0);
    conflict(&[whole("one"), whole("two")], 1);
    // Within the history of others.
    let mut rows = log();
    let other = replica(&built(&rows[..3]), 40);
    rows.push(row(&other, |doc| doc.get_text("text").insert(1, "again").unwrap()));
    conflict(&rows, rows.len() - 1);
    merge(&[said("one"), said("one"), whole("one")]).unwrap();
}

#[test]
fn a_document_of_nothing_stays_one_of_nothing() {
    let empty = author(1).export(ExportMode::Snapshot).unwrap();
    let update = author(1).export(ExportMode::all_updates()).unwrap();
    for rows in [vec![], vec![empty.clone()], vec![update.clone()], vec![empty, update]] {
        let merged = merge(&rows).unwrap();
        let doc = built(&[merged.update]);
        assert!(doc.oplog_vv().is_empty() && !doc.is_shallow());
    }
}

#[test]
fn ten_thousand_flipped_bits_change_nothing_silently() {
    let rows = log();
    let doc = built(&rows);
    let mut later: Vec<Vec<u8>> = vec![doc.export(ExportMode::Snapshot).unwrap()];
    later.push(row(&replica(&doc, 3), |doc| doc.get_text("text").insert(0, "later").unwrap()));
    let mut random = SmallRng::seed_from_u64(1);
    let mut accepted = 0;
    for trial in 0..10_000 {
        let mut flipped = if trial % 2 == 0 { rows.clone() } else { later.clone() };
        let at = random.random_range(0..flipped.len());
        let bit = random.random_range(0..flipped[at].len() * 8);
        flipped[at][bit / 8] ^= 1 << (bit % 8);
        match merge(&flipped) {
            Ok(_) => accepted += 1,
            Err(left) => assert!(
                left.update == Some(at) && left.code != Code::Changed,
                "row {at}, bit {bit}: {left}"
            ),
        }
    }
    assert_eq!(accepted, 0, "of 10,000 flipped bits");
}

#[test]
fn compacting_what_is_compacted_says_the_same() {
    let rows = log();
    for (first, _) in both(&rows) {
        let again = merge(std::slice::from_ref(&first.update)).unwrap();
        let third = merge(std::slice::from_ref(&again.update)).unwrap();
        assert_eq!(third.digests, again.digests, "{}", first.mode);
        assert_alike(&built(&[again.update]), &built(&[first.update]));
    }
}

#[test]
fn rows_after_a_compaction_compact_with_it() {
    let rows = log();
    for split in [6, 12, 18, 30] {
        let mut later = vec![merge(&rows[..split]).unwrap().update];
        later.extend_from_slice(&rows[split..]);
        let merged = merge(&later).unwrap();
        assert_eq!(merged.digests, merge(&rows).unwrap().digests, "{split}");
    }
}

#[test]
fn an_author_who_was_offline_returns() {
    let rows = log();
    let offline = replica(&built(&rows[..6]), 77);
    let news = row(&offline, |doc: &LoroDoc| {
        doc.get_text("text").insert(1, "offline").unwrap();
        doc.get_list("list").delete(0, 1).unwrap();
    });
    let compacted = built(&[merge(&rows).unwrap().update]);
    sync(&offline, &compacted);
    let mut all = rows;
    all.push(news);
    assert_alike(&compacted, &built(&all));
    assert_alike(&offline, &compacted);
}
