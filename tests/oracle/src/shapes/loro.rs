//! Loro documents that need much memory.

use loro::{
    ExpandType, ExportMode, LoroDoc, LoroMap, LoroMovableList, LoroText, LoroValue, StyleConfig,
};

use super::Shape;

/// Every shape.
pub const SHAPES: &[Shape] = &[
    Shape { name: "one key again and again", count: 50_000, rows: one_key },
    Shape { name: "keys", count: 20_000, rows: many_keys },
    Shape { name: "maps in a list", count: 10_000, rows: containers },
    Shape { name: "tree nodes", count: 5_000, rows: tree },
    Shape { name: "movable items", count: 10_000, rows: movable },
    Shape { name: "marks over marks", count: 1_000, rows: marks },
    Shape { name: "a snapshot of letters", count: 200_000, rows: one_snapshot },
    Shape { name: "a snapshot of zeroes", count: 4_000_000, rows: zeroes },
    Shape { name: "a snapshot of one key", count: 200_000, rows: one_key_snapshot },
    Shape { name: "tree nodes at once", count: 50_000, rows: tree_at_once },
    Shape { name: "tree nodes in each other", count: 5_000, rows: tree_deep_at_once },
    Shape { name: "tree nodes with a key", count: 20_000, rows: tree_meta_at_once },
    Shape { name: "moves in a tree", count: 50_000, rows: tree_moves_at_once },
    Shape { name: "maps at once", count: 50_000, rows: containers_at_once },
    Shape { name: "texts at once", count: 20_000, rows: texts_at_once },
    Shape { name: "movable lists at once", count: 20_000, rows: movables_at_once },
    Shape { name: "keys at once", count: 50_000, rows: keys_at_once },
    Shape { name: "values at once", count: 100_000, rows: list_at_once },
    Shape { name: "movable items at once", count: 50_000, rows: movable_at_once },
    Shape { name: "moves at once", count: 50_000, rows: movable_moves_at_once },
    Shape { name: "marks at once", count: 10_000, rows: marks_at_once },
    Shape { name: "peers in turn", count: 10_000, rows: peers_in_turn },
    Shape { name: "peers one after the other", count: 5_000, rows: peers_anew },
    Shape { name: "peers together", count: 800, rows: peers_together },
    Shape { name: "letters twice", count: 20_000, rows: twice },
    Shape { name: "marks of many names", count: 300, rows: mark_names },
    Shape { name: "values in a value", count: 100_000, rows: value },
    Shape { name: "one long text", count: 1_000_000, rows: text },
    Shape { name: "a long text pasted", count: 100_000, rows: pasted },
    Shape { name: "peers", count: 5_000, rows: peers },
    Shape { name: "peers and one who hears them", count: 5_000, rows: peers_heard },
];

fn one_key(count: usize) -> Vec<Vec<u8>> {
    edits(count, |doc, nth| {
        doc.get_map("map").insert("key", nth as i64).unwrap();
    })
}

fn many_keys(count: usize) -> Vec<Vec<u8>> {
    edits(count, |doc, nth| {
        doc.get_map("map").insert(&format!("key {nth}"), nth as i64).unwrap();
    })
}

fn containers(count: usize) -> Vec<Vec<u8>> {
    edits(count, |doc, nth| {
        let map = LoroMap::new();
        doc.get_list("list").insert_container(nth, map).unwrap();
    })
}

fn tree(count: usize) -> Vec<Vec<u8>> {
    edits(count, |doc, _| {
        doc.get_tree("tree").create(None).unwrap();
    })
}

fn movable(count: usize) -> Vec<Vec<u8>> {
    edits(count, |doc, nth| {
        let list = doc.get_movable_list("movable");
        list.insert(nth / 2, nth as i64).unwrap();
        list.mov(nth / 3, 0).unwrap();
    })
}

fn marks(count: usize) -> Vec<Vec<u8>> {
    edits(count, |doc, nth| {
        let text = doc.get_text("text");
        text.insert(nth, "x").unwrap();
        text.mark(nth / 2..nth + 1, "bold", nth as i64).unwrap();
    })
}

fn one_snapshot(count: usize) -> Vec<Vec<u8>> {
    let log = edits(count, |doc, nth| {
        doc.get_text("text").insert(nth / 2, "x").unwrap();
    });
    vec![snapshot(&log)]
}

fn zeroes(count: usize) -> Vec<Vec<u8>> {
    let doc = author(1);
    doc.get_text("text").insert(0, &"0".repeat(count)).unwrap();
    doc.commit();
    vec![doc.export(ExportMode::Snapshot).unwrap()]
}

fn one_key_snapshot(count: usize) -> Vec<Vec<u8>> {
    let log = edits(count, |doc, nth| {
        doc.get_map("map").insert("key", nth as i64 % 2).unwrap();
    });
    vec![snapshot(&log)]
}

fn tree_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let tree = doc.get_tree("tree");
        for _ in 0..count {
            tree.create(None).unwrap();
        }
    })
}

fn tree_deep_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let tree = doc.get_tree("tree");
        let mut parent = None;
        for _ in 0..count {
            parent = Some(tree.create(parent).unwrap());
        }
    })
}

fn tree_meta_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let tree = doc.get_tree("tree");
        for _ in 0..count {
            let node = tree.create(None).unwrap();
            tree.get_meta(node).unwrap().insert("k", 1).unwrap();
        }
    })
}

fn tree_moves_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let tree = doc.get_tree("tree");
        let nodes: Vec<_> = (0..1_000).map(|_| tree.create(None).unwrap()).collect();
        for nth in 0..count {
            tree.mov_to(nodes[nth % 999 + 1], None, nth % 700).unwrap();
        }
    })
}

fn containers_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let list = doc.get_list("list");
        for nth in 0..count {
            list.insert_container(nth, LoroMap::new()).unwrap();
        }
    })
}

fn texts_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let list = doc.get_list("list");
        for nth in 0..count {
            let text = list.insert_container(nth, LoroText::new()).unwrap();
            text.insert(0, "x").unwrap();
        }
    })
}

fn movables_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let list = doc.get_list("list");
        for nth in 0..count {
            let inner = list.insert_container(nth, LoroMovableList::new()).unwrap();
            inner.insert(0, 1).unwrap();
        }
    })
}

fn keys_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let map = doc.get_map("map");
        for nth in 0..count {
            map.insert(&format!("{nth}"), 1).unwrap();
        }
    })
}

fn list_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let list = doc.get_list("list");
        for nth in 0..count {
            list.insert(nth / 2, 1).unwrap();
        }
    })
}

fn movable_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let list = doc.get_movable_list("list");
        for nth in 0..count {
            list.insert(nth / 2, 1).unwrap();
        }
    })
}

fn movable_moves_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let list = doc.get_movable_list("list");
        for nth in 0..1_000 {
            list.insert(nth, 1).unwrap();
        }
        for nth in 0..count {
            list.mov(nth % 1_000, nth % 700).unwrap();
        }
    })
}

fn marks_at_once(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let text = doc.get_text("text");
        text.insert(0, &"x".repeat(2 * count)).unwrap();
        for nth in 0..count {
            text.mark(nth..nth + 2, "bold", nth as i64).unwrap();
        }
    })
}

fn twice(count: usize) -> Vec<Vec<u8>> {
    let mut log = edits(count, |doc, nth| {
        doc.get_text("text").insert(nth / 2, "x").unwrap();
    });
    log.extend_from_within(..);
    log
}

/// Every one of them over the middle of the text.
fn mark_names(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let text = doc.get_text("text");
        text.insert(0, &"x".repeat(2 * count)).unwrap();
        for nth in 0..count {
            doc.config_default_text_style(Some(StyleConfig { expand: ExpandType::None }));
            text.mark(nth..2 * count - nth, &format!("mark {nth}"), true).unwrap();
        }
    })
}

fn value(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        let values: Vec<LoroValue> = (0..count)
            .map(|_| LoroValue::Map(vec![(String::new(), LoroValue::Null)].into()))
            .collect();
        doc.get_list("list").insert(0, LoroValue::List(values.into())).unwrap();
    })
}

fn text(count: usize) -> Vec<Vec<u8>> {
    edits(1, |doc, _| {
        doc.get_text("text").insert(0, &"x".repeat(count)).unwrap();
    })
}

/// Pasted into a document that is there already.
fn pasted(count: usize) -> Vec<Vec<u8>> {
    edits(2, |doc, nth| {
        doc.get_text("text").insert(nth, &"x".repeat(1 + nth * count)).unwrap();
    })
}

fn peers_in_turn(count: usize) -> Vec<Vec<u8>> {
    let doc = LoroDoc::new();
    (0..count)
        .map(|nth| {
            doc.set_peer_id(nth as u64 % 1_000 + 1).unwrap();
            let before = doc.oplog_vv();
            doc.get_list("list").insert(0, nth as i64).unwrap();
            doc.commit();
            doc.export(ExportMode::updates(&before)).unwrap()
        })
        .collect()
}

fn peers_anew(count: usize) -> Vec<Vec<u8>> {
    let doc = LoroDoc::new();
    (0..count)
        .map(|nth| {
            doc.set_peer_id(nth as u64 + 1).unwrap();
            let before = doc.oplog_vv();
            doc.get_list("list").insert(0, nth as i64).unwrap();
            doc.commit();
            doc.export(ExportMode::updates(&before)).unwrap()
        })
        .collect()
}

fn peers_together(count: usize) -> Vec<Vec<u8>> {
    let docs: Vec<LoroDoc> = (0..50).map(|peer| author(peer + 1)).collect();
    let mut log = Vec::new();
    for nth in 0..count / 50 {
        let news: Vec<Vec<u8>> = docs
            .iter()
            .map(|doc| {
                let before = doc.oplog_vv();
                doc.get_text("text").insert(nth / 2, "x").unwrap();
                doc.commit();
                doc.export(ExportMode::updates(&before)).unwrap()
            })
            .collect();
        docs.iter().for_each(|doc| {
            doc.import_batch(&news).unwrap();
        });
        log.extend(news);
    }
    log
}

fn peers(count: usize) -> Vec<Vec<u8>> {
    (0..count)
        .map(|peer| {
            let doc = author(peer as u64 + 1);
            doc.get_list("list").insert(0, peer as i64).unwrap();
            doc.commit();
            doc.export(ExportMode::all_updates()).unwrap()
        })
        .collect()
}

/// Of every fifty one hears, and of those another one.
fn peers_heard(count: usize) -> Vec<Vec<u8>> {
    let mut log = peers(count);
    let last = author(u64::MAX - 1);
    let hear = |doc: &LoroDoc, rows: &[Vec<u8>]| {
        doc.import_batch(rows).unwrap();
        let before = doc.oplog_vv();
        doc.get_map("map").insert("heard", rows.len() as i64).unwrap();
        doc.commit();
        doc.export(ExportMode::updates(&before)).unwrap()
    };
    for (nth, first) in (0..count).step_by(50).enumerate() {
        let row = hear(&author((count + 1 + nth) as u64), &log[first..count.min(first + 50)]);
        log.push(row);
    }
    let row = hear(&last, &log);
    log.push(row);
    log.push(hear(&last, &[]));
    log
}

fn author(peer: u64) -> LoroDoc {
    let doc = LoroDoc::new();
    doc.set_peer_id(peer).unwrap();
    doc
}

fn edits(count: usize, edit: impl Fn(&LoroDoc, usize)) -> Vec<Vec<u8>> {
    let doc = author(1);
    (0..count)
        .map(|nth| {
            let before = doc.oplog_vv();
            edit(&doc, nth);
            doc.commit();
            doc.export(ExportMode::updates(&before)).unwrap()
        })
        .collect()
}

fn snapshot(log: &[Vec<u8>]) -> Vec<u8> {
    let doc = LoroDoc::new();
    doc.import_batch(log).unwrap();
    doc.export(ExportMode::Snapshot).unwrap()
}
