//! What a document's past is still good for after a compaction: undo, cursors, deleted
//! containers, and edits by those who kept the former rows.

use besom_compaction::outcome::Mode;
use loro::cursor::Side;
use loro::{LoroDoc, LoroMap, LoroText, UndoManager};

use crate::support::{assert_alike, author, both, built, replica, row, sync};

/// Text, list and map by two authors at once, and in the end by both of them together.
fn log() -> Vec<Vec<u8>> {
    let (a, b) = (author(1), author(2));
    let mut rows = Vec::new();
    for round in 0..8usize {
        for doc in [&a, &b] {
            rows.push(row(doc, |doc| {
                let text = doc.get_text("text");
                text.insert(text.len_unicode() / 3, "words ").unwrap();
                doc.get_list("list").insert(0, round as i64).unwrap();
                let movable = doc.get_movable_list("movable");
                movable.insert(0, round as i64).unwrap();
                movable.mov(movable.len() - 1, 0).unwrap();
                if round % 2 == 1 {
                    text.delete(1, 4).unwrap();
                }
            }));
        }
        sync(&a, &b);
    }
    rows.push(row(&a, |doc| doc.get_text("text").insert(0, "end ").unwrap()));
    rows
}

#[test]
fn replicas_with_the_old_rows_and_with_the_new_one_go_on_alike() {
    let rows = log();
    for (compacted, fresh) in both(&rows) {
        fresh.set_peer_id(22).unwrap();
        let kept = replica(&built(&rows), 21);
        let edit = |doc: &LoroDoc, nth: i64| {
            let text = doc.get_text("text");
            text.insert(3, &format!("edit {nth}")).unwrap();
            text.delete(0, 2).unwrap();
            text.mark(1..6, "bold", nth).unwrap();
            let movable = doc.get_movable_list("movable");
            movable.mov(0, 5).unwrap();
            movable.set(2, nth).unwrap();
            movable.delete(3, 1).unwrap();
            doc.get_list("list").delete(2, 3).unwrap();
            doc.commit();
        };
        for round in 0..3 {
            edit(&kept, round);
            edit(&fresh, 10 + round);
            sync(&kept, &fresh);
            assert_alike(&kept, &fresh);
        }
        assert_eq!(fresh.is_shallow(), compacted.mode == Mode::Trim);
    }
}

#[test]
fn undo_goes_on_after_a_compaction() {
    let rows = log();
    for (_, fresh) in both(&rows) {
        fresh.set_peer_id(22).unwrap();
        let kept = replica(&built(&rows), 22);
        let before = fresh.get_deep_value();
        for doc in [&kept, &fresh] {
            let mut undo = UndoManager::new(doc);
            undo.set_merge_interval(0);
            doc.get_text("text").delete(0, 10).unwrap();
            doc.commit();
            doc.get_list("list").clear().unwrap();
            doc.commit();
            while undo.undo().unwrap() {}
            assert_eq!(doc.get_deep_value(), before);
            undo.redo().unwrap();
        }
        assert_eq!(kept.get_deep_value(), fresh.get_deep_value());
    }
}

#[test]
fn cursors_stay_where_they_were() {
    let rows = log();
    let kept = built(&rows);
    for (_, fresh) in both(&rows) {
        let text = kept.get_text("text");
        let list = kept.get_list("list");
        let movable = kept.get_movable_list("movable");
        for side in [Side::Left, Side::Middle, Side::Right] {
            let cursors = (0..=text.len_unicode())
                .filter_map(|at| text.get_cursor(at, side))
                .chain((0..=list.len()).filter_map(|at| list.get_cursor(at, side)))
                .chain((0..=movable.len()).filter_map(|at| movable.get_cursor(at, side)));
            for cursor in cursors {
                let (was, is) = (kept.get_cursor_pos(&cursor), fresh.get_cursor_pos(&cursor));
                assert_eq!(was.unwrap().current.pos, is.unwrap().current.pos, "{cursor:?}");
            }
        }
    }
}

#[test]
fn containers_that_were_deleted_stay_deleted_and_take_late_edits() {
    let (a, b) = (author(1), author(2));
    let mut rows = vec![row(&a, |doc| {
        let map = doc.get_map("map").insert_container("child", LoroMap::new()).unwrap();
        map.insert_container("text", LoroText::new()).unwrap().insert(0, "deep").unwrap();
        doc.get_list("list").insert_container(0, LoroText::new()).unwrap();
    })];
    sync(&a, &b);
    // Deleted by one, edited by the other, neither knowing of it.
    rows.push(row(&a, |doc| {
        doc.get_map("map").delete("child").unwrap();
        doc.get_list("list").delete(0, 1).unwrap();
    }));
    let late = row(&b, |doc| {
        let child = doc.get_map("map").get("child").unwrap().into_container().unwrap();
        let text = child.into_map().unwrap().get("text").unwrap().into_container().unwrap();
        text.into_text().unwrap().insert(0, "late ").unwrap();
    });
    for with_late in [false, true] {
        let mut rows = rows.clone();
        if with_late {
            rows.push(late.clone());
        }
        for (compacted, fresh) in both(&rows) {
            assert_alike(&fresh, &built(&rows));
            assert!(fresh.get_map("map").is_empty() && fresh.get_list("list").is_empty());
            if compacted.mode == Mode::Merge {
                // The editor goes on, and so does everybody.
                sync(&fresh, &b);
                assert_alike(&fresh, &b);
            }
        }
        sync(&author(9), &b);
    }
    sync(&a, &b);
    assert_alike(&a, &b);
}
