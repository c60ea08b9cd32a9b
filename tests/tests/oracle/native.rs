//! The library itself: every case compacted natively and judged, and the judge tried.

use std::collections::BTreeMap;
use std::path::Path;

use besom_compaction::outcome::{Code, Job, Said};
use besom_compaction::yjs;
use besom_oracle::{names_in, read_log, run, shared_data, slices, write_log};

use super::node::{scratch, script};

/// Of the generated cases, those that are left alone, and why. All others are compacted:
/// a case that moves between the two fails the test, in either direction.
const LEFT_ALONE: &[(&str, Code)] = &[
    ("client_reused", Code::Conflict),
    ("hole_delete_only", Code::MissingDependency),
    ("hole_dependent", Code::Hole),
    ("hole_independent", Code::Hole),
    ("json_content", Code::Unsupported),
    ("missing_author", Code::MissingDependency),
    ("pair_half_deleted", Code::SplitPair),
    ("truncated", Code::Undecodable),
    ("unknown_content", Code::Undecodable),
    ("version_2_row", Code::Undecodable),
    ("xml_hook", Code::Unsupported),
];

/// The same for the cases in the shared data.
const SHARED_LEFT_ALONE: &[(&str, Code)] = &[
    ("clientdup", Code::Conflict),
    ("hole_dep", Code::Hole),
    ("hole_indep", Code::Hole),
    ("surrogate", Code::SplitPair),
    ("xml_hook", Code::Unsupported),
];

#[test]
fn what_yjs_has_written_is_the_same_after_compaction_or_left_alone() {
    let directory = scratch("generated");
    run(script("generate.mjs").arg(&directory));
    let names = names_in(&directory);
    assert!(names.len() > 60, "{} cases", names.len());
    compact_and_judge(&directory, &names, LEFT_ALONE, &[]);

    let kept =
        yjs::compact(&Job::merge(&slices(&read_log(&directory.join("gc_off_full_state.log")))));
    assert!(
        kept.unwrap().remark("kept_deleted") == Some(&Said::Flag(true)),
        "deleted content was collected from a gc: false document"
    );
}

#[test]
fn the_shared_cases_are_the_same_after_compaction_or_left_alone() {
    let Some(shared) = shared_data("yjs-cases") else { return };
    let directory = scratch("shared");
    let names = names_in(&shared);
    for name in &names {
        let file = format!("{name}.log");
        std::fs::copy(shared.join(&file), directory.join(&file)).unwrap();
    }
    compact_and_judge(&directory, &names, SHARED_LEFT_ALONE, &[]);
}

#[test]
fn public_editing_traces_are_the_same_after_compaction() {
    let Some(shared) = shared_data("editing-traces") else { return };
    let directory = scratch("traces");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(shared).unwrap() {
        let trace = besom::demo::trace::load(&entry.unwrap().path()).unwrap();
        let log = trace.replay(&mut |_, _| {}).unwrap();
        let updates: Vec<&[u8]> = log.edits.iter().map(|edit| edit.payload.as_slice()).collect();
        write_log(&directory.join(format!("{}.log", trace.name())), &updates);
        names.push(trace.name());
    }
    compact_and_judge(&directory, &names, &[], &["--brief"]);
}

#[test]
fn the_judge_notices_a_document_that_is_not_the_same() {
    let directory = scratch("different");
    run(script("generate.mjs").arg(&directory));
    let pairs = [("integers", "floats"), ("map_churn", "map_losers"), ("undo", "rows_empty")];
    for (name, other) in pairs {
        let updates = read_log(&directory.join(format!("{other}.log")));
        let compacted = yjs::compact(&Job::merge(&slices(&updates))).unwrap().update;
        write_log(&directory.join(format!("{name}.compacted.log")), &[&compacted]);
        let output = script("judge.mjs").arg(&directory).arg(name).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{name} passed as {other}");
    }
    // One flipped sign of a zero.
    let log = read_log(&directory.join("zero.log"));
    let mut update = yjs::compact(&Job::merge(&slices(&log))).unwrap().update;
    let minus_zero = [125, 0x40];
    let at = update.windows(2).position(|window| window == minus_zero).expect("a -0 is in it");
    update[at + 1] = 0;
    write_log(&directory.join("zero.compacted.log"), &[&update]);
    let output = script("judge.mjs").arg(&directory).arg("zero").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "-0 passed as 0");
}

/// Compacts every case, compares what is left alone with what is expected, and lets Yjs
/// judge the rest.
fn compact_and_judge(
    directory: &Path,
    names: &[String],
    expected: &[(&str, Code)],
    options: &[&str],
) {
    let mut left_alone = BTreeMap::new();
    let mut compacted = Vec::new();
    for name in names {
        let log = read_log(&directory.join(format!("{name}.log")));
        match yjs::compact(&Job::merge(&slices(&log))) {
            Ok(outcome) => {
                write_log(&directory.join(format!("{name}.compacted.log")), &[&outcome.update]);
                compacted.push(name);
                // Compacting it again changes nothing.
                let again = yjs::compact(&Job::merge(&[&outcome.update])).unwrap();
                assert_eq!(again.update, outcome.update, "{name}: a second time");
                assert_eq!(again.digests, outcome.digests, "{name}: a second time");
            }
            Err(left) => {
                left_alone.insert(name.as_str(), left.code);
            }
        }
    }
    assert_eq!(left_alone, expected.iter().copied().collect::<BTreeMap<_, _>>());
    run(script("judge.mjs").args(options).arg(directory).args(compacted));
}
