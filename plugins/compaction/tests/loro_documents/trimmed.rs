//! Trimming: how far, for whom, and what still merges afterwards.

use besom_compaction::outcome::{Mode, Said, Wish};
use loro::{
    ExpandType, ExportMode, LoroDoc, LoroError, StyleConfig, StyleConfigMap, VersionVector,
};

use crate::support::{assert_alike, author, built, merge, replica, row, sync, trim};

/// One author who writes, deletes and writes again: much history, little to see.
fn log() -> Vec<Vec<u8>> {
    let doc = author(1);
    (0..60)
        .map(|nth| {
            row(&doc, |doc| {
                let text = doc.get_text("text");
                text.insert(text.len_unicode() / 2, &format!("edit {nth} ")).unwrap();
                if nth % 3 == 2 {
                    text.delete(0, text.len_unicode() - 3).unwrap();
                    text.mark(0..2, "bold", nth as i64).unwrap();
                }
                doc.get_map("map").insert("key", nth as i64).unwrap();
                let movable = doc.get_movable_list("movable");
                movable.insert(0, nth as i64).unwrap();
                movable.mov(0, movable.len() / 2).unwrap();
                if movable.len() > 4 {
                    movable.delete(4, 1).unwrap();
                }
                doc.get_counter("counter").increment(0.5).unwrap();
            })
        })
        .collect()
}

fn version(rows: &[Vec<u8>]) -> VersionVector {
    built(rows).oplog_vv()
}

#[test]
fn history_goes_as_far_as_everybody_has_come() {
    let rows = log();
    let at = |count: usize| version(&rows[..count]);
    let merged = merge(&rows).unwrap();
    let mut bytes = Vec::new();
    for clients in
        [vec![], vec![at(60)], vec![at(60), at(50)], vec![at(30), at(60), at(40)], vec![at(10)]]
    {
        let trimmed = trim(&rows, &clients).unwrap();
        assert_eq!(trimmed.mode, Mode::Trim, "{:?}", trimmed.merged_because);
        assert_eq!(trimmed.digests.before, trimmed.digests.after);
        assert!(trimmed.update.len() < merged.update.len());
        bytes.push(trimmed.update.len());
        let doc = built(&[trimmed.update]);
        let whole = built(&rows);
        assert_alike(&doc, &whole);
        let start = doc.shallow_since_vv().to_vv();
        assert!(clients.iter().all(|client| client.includes_vv(&start)));
    }
    // Everybody's being there is as good as nobody's.
    assert!(bytes[0].abs_diff(bytes[1]) < 16, "{bytes:?}");
    assert!(bytes[1] < bytes[2] && bytes[2] < bytes[3] && bytes[3] < bytes[4], "{bytes:?}");
}

#[test]
fn what_holds_the_start_back_is_said() {
    let rows = log();
    let all = version(&rows);
    let unknown: VersionVector = [(5, 7)].into_iter().collect();
    let mut ahead = all.clone();
    ahead.insert(6, 3);
    let encoded = all.encode();
    let cut = &encoded[..encoded.len() - 1];
    let cases: &[(&str, &[&[u8]], &str)] = &[
        ("a client that has nothing", &[&encoded, &VersionVector::default().encode()], "held-back"),
        ("a client of another document", &[&encoded, &unknown.encode()], "held-back"),
        ("a change that only a client has", &[&ahead.encode()], "held-back"),
        ("a vector that was cut", &[&encoded, cut], "undecodable-vector"),
        ("an empty vector", &[&[]], "undecodable-vector"),
    ];
    let merged = merge(&rows).unwrap();
    let updates: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    for (what, vectors, expected) in cases {
        let settings = Default::default();
        let wish = Wish::Trim(vectors);
        let job = besom_compaction::outcome::Job { updates: &updates, wish, settings: &settings };
        let compacted = besom_compaction::loro::compact(&job).unwrap();
        assert_eq!((compacted.mode, &compacted.digests), (Mode::Merge, &merged.digests), "{what}");
        let because = compacted.merged_because.expect(what);
        assert!(because.starts_with(&format!("{expected}: ")), "{what}: {because}");
    }
}

#[test]
fn what_is_trimmed_already_is_trimmed_further_once_more_is_passed() {
    let rows = log();
    let first = trim(&rows[..40], &[version(&rows[..20])]).unwrap();
    assert_eq!(first.mode, Mode::Trim);
    let mut later = vec![first.update.clone()];
    later.extend_from_slice(&rows[40..]);

    let held = trim(&later, &[version(&rows[..20])]).unwrap();
    assert_eq!(held.mode, Mode::Merge);
    assert!(held.merged_because.unwrap().starts_with("held-back: "));
    let behind = trim(&later, &[version(&rows[..10])]).unwrap();
    assert!(behind.merged_because.unwrap().starts_with("held-back: client 1 lacks"));

    let second = trim(&later, &[version(&rows[..50])]).unwrap();
    assert_eq!(second.mode, Mode::Trim);
    let start = |row: &Vec<u8>| built(std::slice::from_ref(row)).shallow_since_vv().to_vv();
    assert!(start(&second.update).includes_vv(&start(&first.update)));
    assert_ne!(start(&second.update), start(&first.update));
    assert_alike(&built(std::slice::from_ref(&second.update)), &built(&rows));

    // And nothing is left to be done the second time.
    let again = trim(&[second.update], &[version(&rows[..50])]).unwrap();
    assert_eq!(again.mode, Mode::Merge);
    let last = trim(&rows, &[]).unwrap();
    let because = trim(&[last.update], &[]).unwrap().merged_because.unwrap();
    assert!(because.starts_with("held-back: ") || because.starts_with("nothing-to-trim: "));
}

#[test]
fn rows_from_before_the_start_are_known_or_missing() {
    let rows = log();
    let trimmed = trim(&rows, &[]).unwrap();
    // A row that was deleted with the others, pushed once more.
    let late = [trimmed.update.clone(), rows[7].clone()];
    let merged = merge(&late).unwrap();
    assert_alike(&built(&[merged.update]), &built(&rows));
    // All of them: more history than the snapshot has, and it is kept.
    let mut all = vec![trimmed.update.clone()];
    all.extend(rows.iter().cloned());
    assert_eq!(merge(&all).unwrap().digests, merge(&rows).unwrap().digests);
    // A change that depends on what is gone.
    let old = replica(&built(&rows[..10]), 4);
    let change = row(&old, |doc| doc.get_text("text").insert(0, "old").unwrap());
    let left = merge(&[trimmed.update, change]).unwrap_err();
    assert_eq!(left.code, besom_compaction::outcome::Code::MissingDependency, "{left}");
    assert_eq!(left.update, Some(1));
}

#[test]
fn a_client_below_the_start_can_be_told_apart_as_it_can_never_come_back() {
    let rows = log();
    let trimmed = built(&[trim(&rows, &[version(&rows[..30])]).unwrap().update]);
    let start = trimmed.shallow_since_vv().to_vv();
    for (count, may_go_on) in [(60, true), (30, true), (10, false), (1, false)] {
        let client = replica(&built(&rows[..count]), 8);
        assert_eq!(client.oplog_vv().includes_vv(&start), may_go_on, "{count}");
        let news = row(&client, |doc| doc.get_text("text").insert(0, "client").unwrap());
        match trimmed.fork().import(&news) {
            Ok(status) => assert!(may_go_on && status.pending.is_none(), "{count}"),
            Err(error) => {
                assert!(!may_go_on, "{count}: {error}");
                assert_eq!(error, LoroError::ImportUpdatesThatDependsOnOutdatedVersion);
            }
        }
        if may_go_on {
            let (copy, whole) = (trimmed.fork(), built(&rows));
            copy.set_peer_id(12).unwrap();
            sync(&client, &copy);
            whole.import(&news).unwrap();
            assert_alike(&client, &copy);
            assert_alike(&whole, &copy);
        }
    }
}

#[test]
fn a_change_that_waits_at_its_author_keeps_what_it_builds_upon() {
    let rows = log();
    // Made at row 20, not sent before its author pulled everything.
    let offline = replica(&built(&rows[..20]), 4);
    let change = row(&offline, |doc| doc.get_text("text").insert(1, "offline").unwrap());
    for update in &rows {
        offline.import(update).unwrap();
    }
    let held = trim(&rows, &[offline.oplog_vv()]).unwrap();
    let because = held.merged_because.expect("the change could not be taken any more");
    assert!(because.contains("peer 4"), "{because}");
    let mut all = rows.clone();
    all.push(change);
    assert_alike(&built(&all), &offline);
    // Once it is sent, the history begins before it.
    let trimmed = trim(&all, &[offline.oplog_vv()]).unwrap();
    assert_alike(&built(&[trimmed.update]), &offline);
    // What goes on from what stays does no harm.
    let author = author(1);
    author.import_batch(&rows).unwrap();
    author.get_text("text").insert(0, "unsent").unwrap();
    author.commit();
    assert_eq!(trim(&rows, &[author.oplog_vv()]).unwrap().mode, Mode::Trim);
}

#[test]
fn heads_that_nothing_joins_leave_nothing_to_trim() {
    // Three who never heard of each other.
    let rows: Vec<_> = (1..=3)
        .map(|peer| row(&author(peer), |doc| doc.get_text("text").insert(0, "alone").unwrap()))
        .collect();
    let compacted = trim(&rows, &[]).unwrap();
    assert_eq!(compacted.mode, Mode::Merge);
    assert!(compacted.merged_because.unwrap().starts_with("nothing-to-trim: "));
    // Two heads over a common past.
    let mut rows = log();
    let base = built(&rows);
    for peer in [5, 6] {
        let branch = replica(&base, peer);
        rows.push(row(&branch, |doc| doc.get_text("text").insert(0, "branch").unwrap()));
    }
    let compacted = trim(&rows, &[]).unwrap();
    assert_eq!(compacted.mode, Mode::Trim, "{:?}", compacted.merged_because);
    let doc = built(&[compacted.update]);
    assert_eq!(doc.oplog_frontiers().len(), 2);
    assert_alike(&doc, &built(&rows));
}

#[test]
fn the_history_of_a_compaction_says_where_the_document_begins() {
    let rows = log();
    let trimmed = trim(&rows, &[]).unwrap();
    let last = built(&rows).oplog_vv().get(&1).copied().unwrap() - 1;
    assert_eq!(
        trimmed.remark("shallow_start"),
        Some(&Said::Words(format!("1:{last}"))),
        "{:?}",
        trimmed.remarks
    );
    assert_eq!(trimmed.remark("peers"), Some(&Said::Count(1)));
    let merged = merge(&rows).unwrap();
    assert_eq!(merged.remark("shallow_start"), None);
    assert_eq!(merged.remark("ops"), Some(&Said::Count(last as u64 + 1)));
}

#[test]
fn half_a_mark_is_no_start() {
    // The minimum is in the middle of a mark: Loro would begin after it, which the client
    // that has but the first half lacks.
    let doc = author(1);
    let rows = [
        row(&doc, |doc| doc.get_text("text").insert(0, &"text ".repeat(50)).unwrap()),
        row(&doc, |doc| doc.get_text("text").delete(0, 200).unwrap()),
        row(&doc, |doc| doc.get_text("text").mark(0..5, "bold", true).unwrap()),
        row(&doc, |doc| doc.get_text("text").insert(0, "end").unwrap()),
    ];
    for end in 448..=455 {
        let client: VersionVector = [(1, end)].into_iter().collect();
        let compacted = trim(&rows, std::slice::from_ref(&client)).unwrap();
        let compacted_doc: LoroDoc = built(&[compacted.update]);
        let start = compacted_doc.shallow_since_vv().to_vv();
        assert!(client.includes_vv(&start), "{end}: {:?}", compacted.merged_because);
        for head in compacted_doc.shallow_since_frontiers().iter() {
            assert!(client.includes_id(head), "{end}");
        }
    }
    let snapshot = doc.export(ExportMode::Snapshot).unwrap();
    assert_eq!(merge(&[snapshot]).unwrap().mode, Mode::Merge);
}

#[test]
fn a_mark_without_text_still_says_where_an_insertion_goes() {
    let kinds = [
        ("none", ExpandType::None),
        ("after", ExpandType::After),
        ("before", ExpandType::Before),
        ("both", ExpandType::Both),
    ];
    for (name, expand) in kinds {
        for around in ["", "[", "long text in front of it "] {
            let doc = author(1);
            let mut styles = StyleConfigMap::new();
            styles.insert(name.into(), StyleConfig { expand });
            doc.config_text_style(styles);
            let at = around.len();
            let rows = [
                row(&doc, |doc| doc.get_text("text").insert(0, around).unwrap()),
                row(&doc, |doc| doc.get_text("text").insert(at, &"marked".repeat(20)).unwrap()),
                row(&doc, |doc| doc.get_text("text").mark(at..at + 120, name, true).unwrap()),
                row(&doc, |doc| doc.get_text("text").insert(at + 120, "] behind").unwrap()),
                row(&doc, |doc| doc.get_text("text").delete(at, 120).unwrap()),
            ];
            let compacted = trim(&rows, &[]).unwrap();
            // Loro forgets the value of such a mark, and takes it for one that was removed.
            let moves = expand == ExpandType::Before;
            let because = compacted.merged_because.unwrap_or_default();
            let words = format!("an insertion at {at} of text cid:root-text:Text");
            assert_eq!(because.contains(&words), moves, "{name} behind {around:?}: {because}");
            assert_eq!(compacted.mode == Mode::Merge, moves, "{name} behind {around:?}");

            // Two write there at the same time; one has the log, the other what it became.
            let old = replica(&built(&rows), 2);
            let written = |rows: &[Vec<u8>]| {
                let new = replica(&built(rows), 3);
                let old = replica(&old, 2);
                for (doc, text) in [(&old, "old"), (&new, "new")] {
                    doc.get_text("text").insert(at, text).unwrap();
                    doc.commit();
                }
                sync(&old, &new);
                assert_alike(&old, &new);
                new.get_text("text").to_string()
            };
            assert_eq!(written(&[compacted.update]), written(&rows), "{name} behind {around:?}");
        }
    }
}
