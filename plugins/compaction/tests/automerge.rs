//! Tests Automerge logs with flipped, truncated, repeated, reordered or lost rows, and the
//! guarantees of merge and reset for intact logs.

use automerge::marks::{ExpandMark, Mark};
use automerge::transaction::{CommitOptions, Transactable, Transaction};
use automerge::{ActorId, AutoCommit, Automerge, ObjType, ROOT, ReadDoc, ScalarValue};
use besom_compaction::automerge as format;
use besom_compaction::outcome::{Code, Compacted, Job, LeftAlone, Mode, Settings, Wish};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

fn compact(rows: &[Vec<u8>], wish: Wish<'_>) -> Result<Compacted, LeftAlone> {
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    format::compact(&Job { updates: &updates, wish, settings: &Settings::default() })
}

fn merge(rows: &[Vec<u8>]) -> Result<Compacted, LeftAlone> {
    compact(rows, Wish::Merge)
}

fn reset(rows: &[Vec<u8>]) -> Compacted {
    compact(rows, Wish::Reset).unwrap()
}

/// An author whose changes are kept as rows.
struct Author {
    doc: Automerge,
    rows: Vec<Vec<u8>>,
}

impl Author {
    fn new(number: u8) -> Author {
        let doc = Automerge::new().with_actor(ActorId::from([number; 16]));
        Author { doc, rows: Vec::new() }
    }

    fn write(&mut self, write: impl FnOnce(&mut Transaction<'_>)) {
        let mut transaction = self.doc.transaction();
        write(&mut transaction);
        transaction.commit_with(CommitOptions::default().with_time(self.rows.len() as i64));
        let mut change = self.doc.get_last_local_change().unwrap();
        self.rows.push(change.bytes().into_owned());
    }

    fn hear(&mut self, row: &[u8]) {
        self.doc.load_incremental(row).unwrap();
    }
}

/// What one author wrote.
fn alone(writes: &[&dyn Fn(&mut Transaction<'_>)]) -> Vec<Vec<u8>> {
    let mut author = Author::new(1);
    writes.iter().for_each(|write| author.write(write));
    author.rows
}

fn text_of(transaction: &impl ReadDoc) -> automerge::ObjId {
    transaction.get(ROOT, "text").unwrap().unwrap().1
}

/// Two authors, each of whom is offline for three edits at a time: text, marks, a list, keys
/// that conflict, a counter. The last row is deflated.
fn log() -> Vec<Vec<u8>> {
    let mut authors = [Author::new(40), Author::new(7)];
    authors[0].write(|tx| {
        tx.put_object(ROOT, "text", ObjType::Text).unwrap();
        tx.put_object(ROOT, "list", ObjType::List).unwrap();
        tx.put(ROOT, "counter", ScalarValue::counter(3)).unwrap();
    });
    let mut rows = authors[0].rows.clone();
    authors[1].hear(&rows[0]);
    for round in 0..8usize {
        let from = authors.each_ref().map(|author| author.rows.len());
        for (number, author) in authors.iter_mut().enumerate() {
            for step in 0..3 {
                author.write(|tx| {
                    let text = text_of(tx);
                    let end = tx.length(&text);
                    tx.splice_text(&text, (round * 5 + step) % (end + 1), 0, "wé😀").unwrap();
                    if end > 6 {
                        tx.splice_text(&text, end / 2, 1, "").unwrap();
                        let name = ["bold", "link"][step % 2].to_owned();
                        let mark = Mark::new(name, round as i64, step, end / 2 + 2);
                        tx.mark(&text, mark, ExpandMark::After).unwrap();
                    }
                    tx.put(ROOT, format!("k{step}"), number as f64 - 0.5).unwrap();
                    let list = tx.get(ROOT, "list").unwrap().unwrap().1;
                    tx.insert(&list, 0, round as u64).unwrap();
                    tx.increment(ROOT, "counter", 2).unwrap();
                });
            }
        }
        for (to, of) in [(0, 1), (1, 0)] {
            let news = authors[of].rows[from[of]..].to_vec();
            rows.extend(news.iter().cloned());
            news.iter().for_each(|row| authors[to].hear(row));
        }
    }
    for author in &mut authors {
        let rows = author.rows.len() as u64;
        author.write(|tx| tx.put(ROOT, "conflict", rows).unwrap());
    }
    authors[0].write(|tx| tx.put(ROOT, "long", "words ".repeat(200)).unwrap());
    rows.push(authors[1].rows.last().unwrap().clone());
    rows.extend_from_slice(&authors[0].rows[authors[0].rows.len() - 2..]);
    rows
}

#[test]
fn order_repetition_and_concatenation_of_rows_change_nothing() {
    let rows = log();
    let expected = merge(&rows).unwrap();
    let mut random = SmallRng::seed_from_u64(9);
    for round in 0..12 {
        let mut shuffled = rows.clone();
        for _ in 0..round {
            let (a, b) = (random.random_range(..rows.len()), random.random_range(..rows.len()));
            shuffled.swap(a, b);
            shuffled.insert(random.random_range(..rows.len()), rows[a].clone());
            let last = shuffled.pop().unwrap();
            shuffled.last_mut().unwrap().extend(last);
        }
        assert_eq!(merge(&shuffled).unwrap().digests, expected.digests, "round {round}");
    }
    let mut reversed = rows;
    reversed.reverse();
    assert_eq!(merge(&reversed).unwrap().digests, expected.digests);
}

#[test]
fn documents_and_changes_mix_and_what_is_compact_stays_as_it_is() {
    let rows = log();
    let expected = merge(&rows).unwrap();
    let half = merge(&rows[..30]).unwrap().update;
    let other_half = merge(&[&rows[..28], &rows[32..34]].concat());
    assert_eq!(other_half.unwrap_err().code, Code::MissingDependency);
    for mixed in [
        [std::slice::from_ref(&half), &rows[30..]].concat(),
        [&rows[..], std::slice::from_ref(&half)].concat(),
        [&[half.clone(), half.clone()], &rows[20..]].concat(),
        vec![expected.update.clone(), half.clone()],
        vec![[half.clone(), rows[30..].concat()].concat()],
    ] {
        let outcome = merge(&mixed).unwrap();
        assert_eq!(outcome.digests, expected.digests);
    }
    let twice = merge(std::slice::from_ref(&expected.update)).unwrap();
    assert_eq!((twice.update, twice.digests), (expected.update, expected.digests));
}

#[test]
fn a_cut_row_is_undecodable_and_a_lost_one_is_missed() {
    let rows = log();
    let expected = merge(&rows).unwrap();
    for index in 0..rows.len() {
        let mut cut = rows.clone();
        cut[index].pop();
        let left = merge(&cut).unwrap_err();
        assert_eq!((left.code, left.update), (Code::Undecodable, Some(index)), "{left}");
        assert!(left.words.contains("byte"), "{left}");

        let mut lost = rows.clone();
        lost.remove(index);
        match merge(&lost) {
            // Nothing follows an author's last row that would need it.
            Ok(outcome) => assert_ne!(outcome.digests, expected.digests, "row {index}"),
            Err(left) => assert_eq!(left.code, Code::MissingDependency, "row {index}: {left}"),
        }
    }
}

#[test]
fn no_cut_of_a_concatenation_is_taken_for_a_shorter_document() {
    let rows = log()[..4].to_vec();
    let whole = rows.concat();
    let ends: Vec<usize> = rows
        .iter()
        .scan(0, |end, row| {
            *end += row.len();
            Some(*end)
        })
        .collect();
    for len in 0..whole.len() {
        let outcome = merge(&[whole[..len].to_vec()]);
        match outcome {
            // A whole chunk is missing, which no reader can know.
            Ok(_) => assert!(ends.contains(&len), "{len}"),
            Err(left) => assert_eq!(left.code, Code::Undecodable, "{len}: {left}"),
        }
    }
    // The library alone takes what was cut for nothing.
    let mut doc = Automerge::new();
    assert!(doc.load_incremental(&merge(&rows).unwrap().update).is_ok() && !doc.is_empty());
}

#[test]
fn no_flipped_bit_changes_a_document_silently() {
    const TRIALS: usize = 10_000;
    let mut rows = log();
    let document = merge(&rows[..12]).unwrap().update;
    rows.push(document);
    let expected = merge(&rows).unwrap();
    let bits: usize = rows.iter().map(|row| row.len() * 8).sum();
    let mut random = SmallRng::seed_from_u64(5);
    let (mut refused, mut same) = (0, 0);
    for _ in 0..TRIALS {
        let mut bit = random.random_range(..bits);
        let mut flipped = rows.clone();
        let row = flipped.iter_mut().find(|row| {
            let is_here = bit < row.len() * 8;
            bit -= if is_here { 0 } else { row.len() * 8 };
            is_here
        });
        row.unwrap()[bit / 8] ^= 1 << (bit % 8);
        match merge(&flipped) {
            Err(left) => {
                assert_eq!(left.code, Code::Undecodable, "{left}");
                refused += 1;
            }
            // Some bits of deflated data mean nothing.
            Ok(outcome) => {
                assert_eq!(outcome.digests, expected.digests);
                same += 1;
            }
        }
    }
    eprintln!("{TRIALS} flips: {refused} refused, {same} without effect, 0 silent changes");
    assert!(refused > TRIALS * 99 / 100, "{refused} refused");
}

#[test]
fn every_flipped_bit_of_the_compacted_update_is_noticed() {
    let rows = log();
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let good = merge(&rows[..10]).unwrap();
    for bit in 0..good.update.len() * 8 {
        let mut bad = good.update.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        if let Ok(digests) = format::verify(&updates[..10], &bad, Mode::Merge) {
            assert_eq!(digests, good.digests, "bit {bit}");
        }
    }
    for (after, what) in [
        (merge(&rows[..9]).unwrap().update, "the heads differ"),
        (rows[0].clone(), "not one document"),
        (Vec::new(), "is empty"),
        ([&good.update[..], &good.update[..]].concat(), "not one document"),
    ] {
        let left = format::verify(&updates[..10], &after, Mode::Merge).unwrap_err();
        assert!(left.code == Code::Changed && left.words.contains(what), "{left}");
    }
}

/// A chunk with a right checksum.
fn chunk(kind: u8, data: &[u8]) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let mut len = Vec::new();
    leb(&mut len, data.len() as u64);
    let hash = Sha256::new().chain_update([kind]).chain_update(&len).chain_update(data).finalize();
    [&[0x85, 0x6f, 0x4a, 0x83], &hash[..4], &[kind], &len, data].concat()
}

fn leb(to: &mut Vec<u8>, mut number: u64) {
    while number > 0x7f {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// A change whose columns say that many equal operations, in a few bytes.
fn runs(operations: u64, of_column: u64) -> Vec<u8> {
    let run = |count: u64, value: &[u8]| {
        let mut column = Vec::new();
        leb(&mut column, count);
        // A signed number's sign is its highest bit.
        if column.last().unwrap() & 0x40 != 0 {
            *column.last_mut().unwrap() |= 0x80;
            column.push(0);
        }
        column.extend_from_slice(value);
        column
    };
    let mut insert = Vec::new();
    leb(&mut insert, operations);
    let columns: [(u64, Vec<u8>); 5] = [
        (0x15, run(operations, &[1, b'k'])),
        (0x34, insert),
        (0x42, run(operations, &[1])),
        (0x56, run(operations, &[0])),
        (0x70, run(of_column, &[0])),
    ];
    // No dependencies; an actor of one byte; sequence 1, counter 1, time 0; no message; nobody else.
    let mut data = vec![0, 1, 9, 1, 1, 0, 0, 0, columns.len() as u8];
    for (spec, column) in &columns {
        leb(&mut data, *spec);
        leb(&mut data, column.len() as u64);
    }
    columns.iter().for_each(|(_, column)| data.extend_from_slice(column));
    chunk(1, &data)
}

#[test]
fn a_document_that_cannot_be_whole_says_why() {
    let rows = log();
    let second = |actor: u8, value: i64| {
        let mut author = Author::new(actor);
        author.write(|tx| tx.put(ROOT, "k", value).unwrap());
        author.write(|tx| tx.put(ROOT, "k", value + 1).unwrap());
        author.rows
    };
    let (one, two) = (second(3, 1), second(3, 5));
    let doc = |rows: &[Vec<u8>]| merge(rows).unwrap().update;
    let cases: Vec<(&str, Vec<Vec<u8>>, Code, &str)> = vec![
        (
            "nothing in a row",
            vec![rows[0].clone(), vec![]],
            Code::Undecodable,
            "byte 0: it is empty",
        ),
        ("no chunk", vec![vec![1, 2, 3, 4, 5]], Code::Undecodable, "byte 0: no chunk begins here"),
        (
            "something after a chunk",
            vec![[&rows[0][..], &[0x85]].concat()],
            Code::Undecodable,
            "the mark of a chunk has 4 bytes, but 1 are left",
        ),
        ("an unknown chunk", vec![chunk(4, b"x")], Code::Undecodable, "byte 8: chunks of type 4"),
        ("a bundle", vec![chunk(3, b"x")], Code::Unsupported, "bundle"),
        ("a change of nothing", vec![chunk(1, b"")], Code::Undecodable, "the dependencies"),
        ("a document of nothing", vec![chunk(0, b"")], Code::Undecodable, "the number of actors"),
        (
            "something after a document's end",
            vec![chunk(0, &[0, 0, 0, 0, 7])],
            Code::Undecodable,
            "byte 14: 1 bytes follow the document",
        ),
        (
            "a sequence number twice",
            vec![one[0].clone(), two[0].clone()],
            Code::Conflict,
            "actor 03030303030303030303030303030303: the sequence number 1 was used for two",
        ),
        (
            "a sequence number twice, one of them in a document",
            vec![doc(&one), two[0].clone()],
            Code::Conflict,
            "the sequence number 1 was used",
        ),
        (
            "a sequence number twice, in two documents",
            vec![doc(&one), doc(&two)],
            Code::Conflict,
            "cannot be added to another document",
        ),
        ("a lost change", vec![one[1].clone()], Code::MissingDependency, "which is missing"),
        (
            "a lost change that nothing depends on",
            vec![chunk(1, &[0, 1, 9, 2, 1, 0, 0, 0, 0])],
            Code::Hole,
            "actor 09: the change with sequence number 1 is missing",
        ),
        (
            "an operation twice",
            vec![runs(5, 5), chunk(1, &[0, 1, 9, 2, 3, 0, 0, 0, 0])],
            Code::Conflict,
            "actor 09: operation 3 was used in two changes",
        ),
        (
            "more than there is room for",
            vec![runs(1_000_000_000, 1 << 60)],
            Code::TooLarge,
            "1 changes with 1000000000 operations need up to",
        ),
        ("columns of unlike lengths", vec![runs(5, 3)], Code::Unsupported, "automerge cannot read"),
    ];
    for (what, rows, code, words) in cases {
        for wish in [Wish::Merge, Wish::Reset] {
            let left = compact(&rows, wish).unwrap_err();
            assert!(left.code == code && left.words.contains(words), "{what}: {left}");
        }
    }
    // The missing change is named.
    let (mut first, mut other) = (Author::new(1), Author::new(2));
    first.write(|tx| tx.put(ROOT, "k", 1).unwrap());
    other.hear(&first.rows[0]);
    other.write(|tx| tx.put(ROOT, "k", 2).unwrap());
    let left = merge(&other.rows).unwrap_err();
    let hash = first.doc.get_heads()[0].to_string();
    assert_eq!((left.code, left.update), (Code::MissingDependency, Some(0)));
    assert!(left.words.contains(&hash), "{left}");
    // What the columns say is what the library finds.
    assert_eq!(merge(&[runs(5, 5)]).unwrap().mode, Mode::Merge);
    assert!(compact(&rows, Wish::Trim(&[])).is_err_and(|left| left.code == Code::Unsupported));
}

#[test]
fn a_replica_with_the_old_log_and_one_with_the_new_go_on_alike() {
    let rows = log();
    let update = merge(&rows).unwrap().update;
    let mut kept = Author::new(100);
    rows.iter().for_each(|row| kept.hear(row));
    let mut pulled = Author::new(101);
    pulled.hear(&update);
    // Cursors, the counter and what is typed at marks mean the same.
    let text = text_of(&kept.doc);
    for at in 0..kept.doc.length(&text) {
        let cursor = kept.doc.get_cursor(&text, at, None).unwrap();
        assert_eq!(pulled.doc.get_cursor_position(&text, &cursor, None).unwrap(), at);
    }
    for author in [&mut kept, &mut pulled] {
        author.write(|tx| {
            let text = text_of(tx);
            tx.splice_text(&text, 4, 2, "new").unwrap();
            tx.increment(ROOT, "counter", 5).unwrap();
            tx.delete(ROOT, "k1").unwrap();
        });
    }
    let (of_kept, of_pulled) = (kept.rows[0].clone(), pulled.rows[0].clone());
    kept.hear(&of_pulled);
    pulled.hear(&of_kept);
    let all = [rows, vec![of_kept, of_pulled]].concat();
    let expected = merge(&all).unwrap().digests;
    for doc in [kept.doc, pulled.doc] {
        assert_eq!(merge(&[doc.save()]).unwrap().digests, expected);
    }
}

#[test]
fn a_reset_keeps_the_content_and_nothing_else() {
    let rows = alone(&[
        &|tx| {
            let text = tx.put_object(ROOT, "text", ObjType::Text).unwrap();
            tx.splice_text(&text, 0, 0, "hello wonderful world").unwrap();
            tx.put(ROOT, "counter", ScalarValue::counter(3)).unwrap();
            tx.put(ROOT, "gone", "x").unwrap();
        },
        &|tx| {
            let text = text_of(tx);
            tx.splice_text(&text, 5, 10, "").unwrap();
            tx.increment(ROOT, "counter", -1).unwrap();
            tx.delete(ROOT, "gone").unwrap();
            tx.put(ROOT, "time", ScalarValue::Timestamp(77)).unwrap();
            tx.put(ROOT, "zero", -0.0).unwrap();
            tx.put(ROOT, "nan", f64::from_bits(0x7ff8_0000_0000_0001)).unwrap();
            tx.put(ROOT, "uint", 1u64).unwrap();
            tx.put(ROOT, "int", 1i64).unwrap();
            tx.put(ROOT, "bytes", vec![0u8, 255]).unwrap();
        },
    ]);
    let compacted = reset(&rows);
    assert_eq!((compacted.mode, &compacted.merged_because), (Mode::Reset, &None));
    let doc = Automerge::load(&compacted.update).unwrap();
    assert_eq!(doc.get_changes(&[]).len(), 1);
    assert_eq!(doc.get_changes(&[])[0].timestamp(), 0);
    assert_eq!(doc.text(text_of(&doc)).unwrap(), "hello world");
    assert_eq!(
        doc.get(ROOT, "counter").unwrap().unwrap().0.into_scalar(),
        Ok(ScalarValue::counter(2))
    );
    assert_eq!(
        doc.get(ROOT, "time").unwrap().unwrap().0.into_scalar(),
        Ok(ScalarValue::Timestamp(77))
    );
    for (key, bits) in [("zero", (-0.0f64).to_bits()), ("nan", 0x7ff8_0000_0000_0001)] {
        let value = doc.get(ROOT, key).unwrap().unwrap().0;
        assert_eq!(value.as_f64().unwrap().to_bits(), bits, "{key}");
    }

    // The same content has the same identity, whatever its history was.
    let again = reset(std::slice::from_ref(&compacted.update));
    assert_eq!((&again.update, &again.digests), (&compacted.update, &compacted.digests));
    // But never one that the document knows.
    let mut author = Author::new(1);
    author.hear(&compacted.update);
    author.write(|tx| tx.put(ROOT, "more", 1).unwrap());
    author.write(|tx| tx.delete(ROOT, "more").unwrap());
    let later = reset(&[vec![compacted.update.clone()], author.rows].concat());
    assert_eq!(later.digests.after, compacted.digests.after);
    assert_ne!(later.remark("actor"), compacted.remark("actor"));
}

#[test]
fn without_an_epoch_an_old_client_would_show_everything_twice_after_a_reset() {
    let rows = alone(&[&|tx| {
        let list = tx.put_object(ROOT, "list", ObjType::List).unwrap();
        tx.insert(&list, 0, "abc").unwrap();
    }]);
    let mut old = Automerge::new();
    for row in &rows {
        old.load_incremental(row).unwrap();
    }
    let mut fresh = Automerge::load(&reset(&rows).update).unwrap();
    fresh.merge(&mut old).unwrap();
    // Two lists of that name, and whoever compacts it now cannot reset it.
    assert_eq!(fresh.get_all(ROOT, "list").unwrap().len(), 2);
    let because = reset(&[fresh.save()]).merged_because.unwrap();
    assert!(because.starts_with("conflicts: 2 values of "), "{because}");
}

#[test]
fn a_reset_falls_back_to_a_merge_where_something_would_be_lost() {
    let conflict = log();
    let outcome = reset(&conflict);
    assert_eq!((outcome.mode, &outcome.digests), (Mode::Merge, &merge(&conflict).unwrap().digests));
    assert!(outcome.merged_because.unwrap().starts_with("conflicts: "));
    let unknown = ScalarValue::Unknown { type_code: 13, bytes: vec![1] };
    let rows = alone(&[&|tx| tx.put(ROOT, "k", unknown.clone()).unwrap()]);
    assert_eq!(reset(&rows).merged_because.unwrap(), "unknown: a value of type 13");
    let rows = alone(&[&|tx| {
        tx.put_object(ROOT, "k", ObjType::Table).unwrap();
    }]);
    assert_eq!(reset(&rows).merged_because.unwrap(), "unknown: a table");
}

#[test]
fn marks_expand_after_a_reset_as_before() {
    let expansions = [ExpandMark::None, ExpandMark::Before, ExpandMark::After, ExpandMark::Both];
    for first in expansions {
        for second in expansions {
            let rows = alone(&[
                &|tx| {
                    let text = tx.put_object(ROOT, "text", ObjType::Text).unwrap();
                    tx.splice_text(&text, 0, 0, "0123456789").unwrap();
                    tx.mark(&text, Mark::new("a".into(), 1, 2, 6), first).unwrap();
                },
                &|tx| {
                    let text = text_of(tx);
                    tx.mark(&text, Mark::new("a".into(), 2, 4, 8), second).unwrap();
                    tx.mark(&text, Mark::new("b".into(), true, 4, 5), first).unwrap();
                    tx.splice_text(&text, 4, 1, "").unwrap();
                    tx.unmark(&text, "a", 5, 6, second).unwrap();
                    tx.splice_text(&text, 1, 1, "").unwrap();
                },
            ]);
            let compacted = reset(&rows);
            assert_eq!(compacted.merged_because, None, "{first:?} {second:?}");
            let typed = |rows: &[Vec<u8>]| {
                let mut doc = AutoCommit::new();
                for row in rows {
                    doc.load_incremental(row).unwrap();
                }
                let text = text_of(&doc);
                for at in (0..=doc.length(&text)).rev() {
                    doc.splice_text(&text, at, 0, "x").unwrap();
                }
                (doc.text(&text).unwrap(), doc.marks(&text).unwrap())
            };
            assert_eq!(typed(&rows), typed(&[compacted.update]), "{first:?} {second:?}");
        }
    }
}

#[test]
fn documents_at_their_smallest_are_compacted_in_both_modes() {
    let nothing =
        alone(&[&|tx| tx.put(ROOT, "k", 1).unwrap(), &|tx| tx.delete(ROOT, "k").unwrap()]);
    let objects = alone(&[&|tx| {
        for kind in [ObjType::Map, ObjType::List, ObjType::Text] {
            tx.put_object(ROOT, format!("{kind}"), kind).unwrap();
        }
    }]);
    let empty_change = {
        let mut doc = Automerge::new().with_actor(ActorId::from([5u8; 16]));
        doc.empty_commit(CommitOptions::default().with_message("nothing").with_time(9));
        vec![doc.get_changes(&[])[0].raw_bytes().to_vec()]
    };
    for (what, rows) in [("nothing", nothing), ("objects", objects), ("empty", empty_change)] {
        assert_eq!(merge(&rows).unwrap().mode, Mode::Merge, "{what}");
        let first = reset(&rows);
        assert_eq!((first.mode, &first.merged_because), (Mode::Reset, &None), "{what}");
        assert_eq!(reset(std::slice::from_ref(&first.update)).update, first.update, "{what}");
    }
}
