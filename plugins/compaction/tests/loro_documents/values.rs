//! Values down to their bits, marks, and everything that a container can hold.

use loro::{
    ExpandType, LoroCounter, LoroDoc, LoroList, LoroMap, LoroMovableList, LoroText, LoroTree,
    LoroValue, StyleConfig, StyleConfigMap,
};

use crate::support::{author, both, built, merge, row};

const FLOATS: &[u64] = &[
    0x0000_0000_0000_0000, // 0
    0x8000_0000_0000_0000, // -0
    0x7ff8_0000_0000_0000, // NaN
    0x7ff8_0000_dead_beef, // NaN with a payload
    0xfff8_0000_0000_0001, // -NaN with a payload
    0x7ff0_0000_0000_0000, // infinity
    0xfff0_0000_0000_0000, // -infinity
    0x3ff0_0000_0000_0000, // 1.0
    0x0000_0000_0000_0001, // the smallest
    0x7fef_ffff_ffff_ffff, // the largest
];

const INTEGERS: &[i64] = &[
    0,
    1,
    -1,
    i32::MAX as i64,
    i32::MAX as i64 + 1,
    i32::MIN as i64,
    i32::MIN as i64 - 1,
    (1 << 53) - 1,
    1 << 53,
    (1 << 53) + 1,
    -(1 << 53) - 1,
    i64::MAX,
    i64::MIN,
];

fn map(entries: &[(&str, LoroValue)]) -> LoroValue {
    let entries: Vec<_> = entries.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect();
    LoroValue::Map(entries.into())
}

fn values() -> Vec<LoroValue> {
    let mut values: Vec<LoroValue> = Vec::new();
    values.extend(FLOATS.iter().map(|bits| LoroValue::Double(f64::from_bits(*bits))));
    values.extend(INTEGERS.iter().map(|number| LoroValue::I64(*number)));
    values.extend(["", "\0", "é😀", "a\u{301}"].map(|text| LoroValue::String(text.into())));
    values.extend([vec![], vec![0u8, 255]].map(|bytes| LoroValue::Binary(bytes.into())));
    values.extend([LoroValue::Null, LoroValue::Bool(false), LoroValue::Bool(true)]);
    let nested = map(&[("z", LoroValue::Double(-0.0)), ("", LoroValue::Null), ("a", 1.into())]);
    values.push(LoroValue::List(vec![nested.clone(), LoroValue::List(vec![].into())].into()));
    values.extend([nested, map(&[])]);
    values
}

/// Equal down to the bits of every float: written out, as Loro's `==` has -0 equal to 0.
#[track_caller]
fn assert_same_bits(a: &LoroValue, b: &LoroValue) {
    match (a, b) {
        (LoroValue::Double(a), LoroValue::Double(b)) => assert_eq!(a.to_bits(), b.to_bits()),
        (LoroValue::List(a), LoroValue::List(b)) => {
            assert_eq!(a.len(), b.len());
            a.iter().zip(b.iter()).for_each(|(a, b)| assert_same_bits(a, b));
        }
        (LoroValue::Map(a), LoroValue::Map(b)) => {
            assert_eq!(a.len(), b.len());
            a.iter().for_each(|(key, value)| assert_same_bits(value, &b[key]));
        }
        _ => assert_eq!(a, b),
    }
}

#[test]
fn every_value_stays_bit_for_bit_wherever_it_stands() {
    let doc = author(1);
    doc.config_default_text_style(Some(StyleConfig { expand: ExpandType::After }));
    let text = doc.get_text("text");
    let mut rows = vec![row(&doc, |_| text.insert(0, &"x".repeat(values().len())).unwrap())];
    for (nth, value) in values().into_iter().enumerate() {
        rows.push(row(&doc, |doc| {
            doc.get_map("map").insert(&format!("{nth}"), value.clone()).unwrap();
            doc.get_list("list").push(value.clone()).unwrap();
            doc.get_movable_list("movable").push(value.clone()).unwrap();
            let tree = doc.get_tree("tree");
            let node = tree.create(None).unwrap();
            tree.get_meta(node).unwrap().insert("", value.clone()).unwrap();
            // No mark means the same as one of null.
            if !value.is_null() {
                text.mark(nth..nth + 1, "note", value).unwrap();
            }
        }));
    }
    for (_, compacted) in both(&rows) {
        assert_same_bits(&compacted.get_deep_value(), &doc.get_deep_value());
        let marks = |doc: &LoroDoc| doc.get_text("text").get_richtext_value();
        assert_same_bits(&marks(&compacted), &marks(&doc));
        let list = compacted.get_list("list").to_vec();
        for (found, expected) in list.iter().zip(values()) {
            assert_same_bits(found, &expected);
        }
    }
}

#[test]
fn what_differs_in_a_bit_has_another_digest() {
    let digest = |edit: &dyn Fn(&LoroDoc)| {
        let doc = author(1);
        merge(&[row(&doc, edit)]).unwrap().digests.before
    };
    let put =
        |value: LoroValue| digest(&|doc| doc.get_map("m").insert("k", value.clone()).unwrap());
    let counted = |by: f64| digest(&|doc| doc.get_counter("c").increment(by).unwrap());
    let marked = |value: LoroValue, expand: ExpandType| {
        digest(&|doc| {
            let mut styles = StyleConfigMap::new();
            styles.insert("bold".into(), StyleConfig { expand });
            doc.config_text_style(styles);
            doc.get_text("t").insert(0, "abc").unwrap();
            doc.get_text("t").mark(0..2, "bold", value.clone()).unwrap();
        })
    };
    let said = |message: &str| {
        digest(&|doc| {
            doc.get_text("t").insert(0, "a").unwrap();
            doc.set_next_commit_message(message);
        })
    };
    let at = |time: i64| {
        digest(&|doc| {
            doc.get_text("t").insert(0, "a").unwrap();
            doc.set_next_commit_timestamp(time);
        })
    };
    let typed = |text: &str| digest(&|doc| doc.get_text("t").insert(0, text).unwrap());
    // The same in the end, another history.
    let emptied = |text: &str| {
        digest(&|doc| {
            doc.get_text("t").insert(0, text).unwrap();
            doc.get_text("t").delete(0, 2).unwrap();
        })
    };
    let (after, none) = (ExpandType::After, ExpandType::None);
    for (what, a, b) in [
        ("the sign of 0", put((0.0).into()), put((-0.0).into())),
        ("1 and 1.0", put(1.into()), put((1.0).into())),
        ("null and nothing", put(LoroValue::Null), digest(&|_| ())),
        ("a counter's steps", counted(0.5), counted(0.25)),
        ("a mark's value", marked(true.into(), after), marked(1.into(), after)),
        ("a mark's growth", marked(true.into(), after), marked(true.into(), none)),
        ("a message", said("one"), said("two")),
        ("a message and none", said("one"), typed("a")),
        ("a time", at(1_000), at(2_000)),
        ("a letter", typed("ab"), typed("ac")),
        ("deleted content", emptied("ab"), emptied("ac")),
    ] {
        assert_ne!(a, b, "{what}");
    }
    assert_eq!(typed("ab"), typed("ab"));
}

#[test]
fn all_containers_stay_within_each_other() {
    let doc = author(1);
    let mut rows = Vec::new();
    for nth in 0..6i64 {
        rows.push(row(&doc, |doc| {
            let map = doc.get_list("list").insert_container(0, LoroMap::new()).unwrap();
            let text = map.insert_container("", LoroText::new()).unwrap();
            text.insert(0, "nested").unwrap();
            let movable = map.insert_container("m", LoroMovableList::new()).unwrap();
            for value in 0..4 {
                movable.push(value).unwrap();
            }
            movable.mov(0, 3).unwrap();
            movable.set(1, nth).unwrap();
            let inner = movable.insert_container(0, LoroList::new()).unwrap();
            inner.insert_container(0, LoroCounter::new()).unwrap().increment(0.5).unwrap();
            let tree = map.insert_container("t", LoroTree::new()).unwrap();
            let root = tree.create(None).unwrap();
            let child = tree.create(root).unwrap();
            tree.create_at(root, 0).unwrap();
            tree.mov(child, None).unwrap();
            tree.get_meta(child).unwrap().insert_container("x", LoroText::new()).unwrap();
            if nth % 2 == 0 {
                tree.delete(root).unwrap();
            }
        }));
    }
    for (_, compacted) in both(&rows) {
        crate::support::assert_alike(&compacted, &doc);
        assert_same_bits(&compacted.get_deep_value_with_id(), &doc.get_deep_value_with_id());
    }
}

#[test]
fn marks_that_overlap_end_in_nothing_or_lost_their_text_stay() {
    let doc = author(1);
    doc.config_default_text_style(Some(StyleConfig { expand: ExpandType::After }));
    let text = doc.get_text("text");
    let edits: &[&dyn Fn()] = &[
        &|| text.insert(0, "Hello wide world").unwrap(),
        &|| text.mark(0..9, "bold", true).unwrap(),
        &|| text.mark(3..12, "link", "a").unwrap(),
        &|| text.mark(5..7, "bold", false).unwrap(),
        &|| text.unmark(2..4, "bold").unwrap(),
        &|| text.mark(0..16, "note", LoroValue::Null).unwrap(),
        &|| text.delete(3, 9).unwrap(),
        &|| text.insert(3, "é😀").unwrap(),
        &|| text.delete(0, text.len_unicode()).unwrap(),
        &|| text.insert(0, "retyped").unwrap(),
        &|| text.mark(6..7, "link", "").unwrap(),
        &|| text.insert(7, "!").unwrap(),
    ];
    let mut rows = Vec::new();
    for edit in edits {
        rows.push(row(&doc, |_| edit()));
        for (_, compacted) in both(&rows) {
            let delta = compacted.get_text("text").get_richtext_value();
            assert_same_bits(&delta, &text.get_richtext_value());
        }
    }
}

#[test]
fn roots_of_one_name_and_several_types_do_not_hide_each_other() {
    let doc = author(1);
    let rows = [row(&doc, |doc| {
        doc.get_text("x").insert(0, "text").unwrap();
        doc.get_map("x").insert("k", -0.0).unwrap();
        doc.get_list("x").push(1).unwrap();
        doc.get_counter("x").increment(2.0).unwrap();
    })];
    for (_, compacted) in both(&rows) {
        assert_eq!(compacted.get_text("x").to_string(), "text");
        assert_same_bits(&compacted.get_map("x").get_value(), &map(&[("k", (-0.0).into())]));
        assert_eq!(compacted.get_list("x").to_vec(), [LoroValue::I64(1)]);
        assert_eq!(compacted.get_counter("x").get(), 2.0);
    }
    assert_ne!(merge(&rows).unwrap().digests.before, {
        let doc = author(1);
        let other = [row(&doc, |doc| {
            doc.get_text("x").insert(0, "text").unwrap();
            doc.get_map("x").insert("k", 0.0).unwrap();
            doc.get_list("x").push(1).unwrap();
            doc.get_counter("x").increment(2.0).unwrap();
        })];
        merge(&other).unwrap().digests.before
    });
}

#[test]
fn a_key_that_is_written_over_two_hundred_times_costs_little() {
    let doc = author(1);
    let rows: Vec<_> = (0..200)
        .map(|nth| row(&doc, |doc| doc.get_map("map").insert("key", nth).unwrap()))
        .collect();
    let compacted = both(&rows);
    for (compacted, doc) in &compacted {
        assert_eq!(doc.get_map("map").get_value(), map(&[("key", 199.into())]));
        assert!(compacted.update.len() * 4 < compacted.bytes_before, "{compacted:?}");
    }
    assert!(compacted[1].0.update.len() < compacted[0].0.update.len());
    assert_eq!(built(&rows).len_ops(), 200);
}
