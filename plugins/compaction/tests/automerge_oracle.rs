//! Automerge's own JavaScript package verifies compacted documents that it wrote, and documents that
//! only the Rust library can write.

use std::path::Path;

use automerge::legacy::{Key, ObjectId, Op, OpType, SortedVec};
use automerge::{ActorId, Change, ExpandedChange, ScalarValue};
use besom_compaction::automerge as format;
use besom_compaction::outcome::{Compacted, Job, LeftAlone, Mode, Settings, Wish};
use besom_oracle::{Oracle, names_in, read_log, run, slices, write_log};

fn oracle() -> Oracle {
    Oracle::under(env!("CARGO_TARGET_TMPDIR"))
}

fn compact(updates: &[Vec<u8>], wish: Wish<'_>) -> Result<Compacted, LeftAlone> {
    let settings = Settings::default();
    format::compact(&Job { updates: &slices(updates), wish, settings: &settings })
}

/// Compacts every log of a directory in every mode, beside it, and says which were reset.
fn compact_all(directory: &Path, names: &[String]) -> Vec<(String, Option<String>)> {
    names
        .iter()
        .map(|name| {
            let updates = read_log(&directory.join(format!("{name}.log")));
            let merged = compact(&updates, Wish::Merge)
                .unwrap_or_else(|left| panic!("{name} is left alone: {left}"));
            write_log(&directory.join(format!("{name}.compacted.log")), &[&merged.update]);
            let reset = compact(&updates, Wish::Reset).unwrap();
            if reset.mode == Mode::Reset {
                write_log(&directory.join(format!("{name}.reset.log")), &[&reset.update]);
            } else {
                assert_eq!((reset.mode, &reset.update), (Mode::Merge, &merged.update), "{name}");
            }
            for compacted in [merged, reset.clone()] {
                let digests =
                    format::verify(&slices(&updates), &compacted.update, compacted.mode).unwrap();
                assert_eq!(digests, compacted.digests, "{name}");
            }
            (name.clone(), reset.merged_because)
        })
        .collect()
}

#[test]
fn what_automerge_wrote_is_compacted_so_that_it_finds_no_difference() {
    let oracle = oracle();
    let directory = oracle.scratch("automerge-written");
    run(oracle.script("automerge-generate.mjs").arg(&directory));
    let names = names_in(&directory);
    assert!(names.len() >= 42, "{}", names.len());
    for (name, because) in compact_all(&directory, &names) {
        // Only what is in conflict keeps its history.
        let expected = match name.as_str() {
            "conflict_in_map" | "conflict_in_list" | "counters_in_conflict" => Some("conflicts"),
            _ => None,
        };
        let word = because.as_deref().and_then(|words| words.split(':').next());
        assert_eq!(word, expected, "{name}: {because:?}");
    }
    run(oracle.script("automerge-judge.mjs").arg(&directory).args(&names));
}

/// Values that JavaScript cannot write.
fn rust_values() -> Vec<(&'static str, Vec<ScalarValue>)> {
    let f64s = [0.0, -0.0, 1.0, f64::INFINITY, f64::from_bits(1), f64::MAX];
    let nans = [0x7ff8_0000_0000_0000, 0x7ff8_0000_0000_0001, 0xfff0_0000_dead_beef];
    vec![
        ("rust_floats", f64s.map(ScalarValue::F64).to_vec()),
        ("rust_nans", nans.map(|bits| ScalarValue::F64(f64::from_bits(bits))).to_vec()),
        ("rust_ints", [0, 1, -1, i64::MIN, i64::MAX, 1 << 53].map(ScalarValue::Int).to_vec()),
        ("rust_uints", [0, 1, u64::MAX, (1 << 53) + 1].map(ScalarValue::Uint).to_vec()),
        ("rust_counters", [0, i64::MIN, i64::MAX].map(ScalarValue::counter).to_vec()),
        ("rust_times", [0, -1, 8_640_000_000_000_000].map(ScalarValue::Timestamp).to_vec()),
        (
            "rust_unknown",
            vec![ScalarValue::Unknown { type_code: 12, bytes: vec![1, 2, 3] }, ScalarValue::Null],
        ),
    ]
}

fn change_of(operations: Vec<Op>) -> Vec<u8> {
    let change = Change::from(ExpandedChange {
        operations,
        actor_id: ActorId::from([7u8; 16]),
        hash: None,
        seq: 1,
        start_op: std::num::NonZeroU64::MIN,
        time: 9,
        message: Some("written by hand".into()),
        deps: Vec::new(),
        extra_bytes: vec![200, 1, 2],
        author: None,
    });
    change.raw_bytes().to_vec()
}

fn put(key: &str, action: OpType) -> Op {
    let key = Key::Map(key.into());
    Op { action, obj: ObjectId::Root, key, pred: SortedVec::new(), insert: false }
}

#[test]
fn values_that_javascript_cannot_write_stay_to_the_bit() {
    let oracle = oracle();
    let directory = oracle.scratch("automerge-rust");
    for (name, values) in rust_values() {
        let puts = values.into_iter().enumerate();
        let operations: Vec<Op> =
            puts.map(|(at, value)| put(&format!("k{at}"), OpType::Put(value))).collect();
        let row = change_of(operations);
        write_log(&directory.join(format!("{name}.log")), &[&row]);
    }
    let names = names_in(&directory);
    for (name, because) in compact_all(&directory, &names) {
        let unknown = (name == "rust_unknown").then(|| "unknown: a value of type 12".to_owned());
        assert_eq!(because, unknown, "{name}");
    }
    // Bits that JavaScript does not tell apart are compared here.
    for name in &names {
        let rows = |suffix: &str| read_log(&directory.join(format!("{name}{suffix}.log")));
        let [before, after] = ["", ".compacted"].map(|suffix| operations(&rows(suffix)[0]));
        assert_eq!(before, after, "{name}");
    }
    run(oracle.script("automerge-judge.mjs").arg("--content").arg(&directory).args(&names));
}

/// Every operation, with floats by their bits.
fn operations(row: &[u8]) -> Vec<String> {
    let doc = automerge::Automerge::load(row).unwrap();
    let changes = doc.get_changes(&[]);
    changes
        .iter()
        .flat_map(|change| ExpandedChange::from(change).operations)
        .map(|op| match &op.action {
            OpType::Put(ScalarValue::F64(number)) => format!("{:?} {:x}", op.key, number.to_bits()),
            action => format!("{:?} {action:?}", op.key),
        })
        .collect()
}

/// A compacted log that is not the document's: the judge has to say so.
#[test]
fn the_judge_notices_what_was_altered() {
    let oracle = oracle();
    let written = oracle.scratch("automerge-to-alter");
    run(oracle.script("automerge-generate.mjs").arg(&written));
    let directory = oracle.scratch("automerge-altered");
    let of = |name: &str| read_log(&written.join(format!("{name}.log")));
    let merged = |rows: &[Vec<u8>]| compact(rows, Wish::Merge).unwrap().update;
    let reset = |rows: &[Vec<u8>]| compact(rows, Wish::Reset).unwrap().update;
    let without_last = |name: &str| merged(&of(name)[..of(name).len() - 1]);
    let alterations: Vec<(&str, &str, Vec<u8>)> = vec![
        // A change is lost: content, mark, conflict, increment, nothing but a message.
        ("overwritten", "compacted", without_last("overwritten")),
        ("marks_same_name", "compacted", without_last("marks_same_name")),
        ("conflict_in_map", "compacted", without_last("conflict_in_map")),
        ("counters", "compacted", without_last("counters")),
        ("empty_change", "compacted", without_last("empty_change")),
        // The content alone, under other identities.
        ("floats", "compacted", reset(&of("floats"))),
        // Another document.
        ("integers", "compacted", merged(&of("floats"))),
        ("nothing", "reset", reset(&of("times"))),
        ("marks_every_expansion", "reset", reset(&of("marks_every_expansion")[..4])),
        // Not reset at all.
        ("overwritten", "reset", merged(&of("overwritten"))),
    ];
    for (name, suffix, update) in alterations {
        let rows = of(name);
        write_log(&directory.join(format!("{name}.log")), &slices(&rows));
        let good = merged(&rows);
        write_log(&directory.join(format!("{name}.compacted.log")), &[&good]);
        let reset_path = directory.join(format!("{name}.reset.log"));
        if reset_path.exists() {
            std::fs::remove_file(&reset_path).unwrap();
        }
        write_log(&directory.join(format!("{name}.{suffix}.log")), &[&update]);
        let output =
            oracle.script("automerge-judge.mjs").arg(&directory).arg(name).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{name} {suffix}: {said}");
        assert!(said.contains(&format!("{name}: {suffix}: ")), "{name} {suffix}: {said}{failed}");
    }
}
