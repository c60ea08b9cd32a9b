//! Verifies compacted documents with Yjs itself, in every mode.
//!
//! `generate.mjs` writes update logs with Yjs, the test compacts them natively, and Yjs checks
//! that the document is the same: after a merge the content, the state vector and the
//! deletions bit by bit, and that replicas with the old log still merge with the new one; after a
//! reset the content, and that editing continues from it. Requires Node.js 18 with npm
//! (Debian: `nodejs npm`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use besom_compaction::outcome::{
    Code, Compacted, Job, KeepDeleted, LeftAlone, Mode, Said, Settings, Wish,
};
use besom_compaction::yjs;
use besom_oracle::{Oracle, names_in, read_log, run, shared_data, slices, trace, write_log};

/// Of the generated cases, those that are left alone, and why. All others are compacted:
/// a case that moves between the two fails the test, in either direction.
const LEFT_ALONE: &[(&str, Code)] = &[
    ("client_reused", Code::Conflict),
    ("embed_no_json", Code::Undecodable),
    ("hole_delete_only", Code::MissingDependency),
    ("hole_dependent", Code::Hole),
    ("hole_independent", Code::Hole),
    ("mark_no_json", Code::Undecodable),
    ("missing_author", Code::MissingDependency),
    ("subdocument_no_options", Code::Undecodable),
    ("truncated", Code::Undecodable),
    ("unknown_content", Code::Undecodable),
    ("version_2_row", Code::Undecodable),
];

/// The same for the cases in the shared data.
const SHARED_LEFT_ALONE: &[(&str, Code)] =
    &[("clientdup", Code::Conflict), ("hole_dep", Code::Hole), ("hole_indep", Code::Hole)];

/// Of the generated cases, those that are merged though a reset was wanted, and the first word
/// of the reason.
const NOT_RESET: &[(&str, &str)] = &[("gc_off_full_state", "kept-deleted")];

/// The same for the cases in the shared data: none. (`nogc` is `gc: false` too, but no row of
/// it carries content together with its deletion, so nothing in the log shows that.)
const SHARED_NOT_RESET: &[(&str, &str)] = &[];

/// Of the generated cases, those whose contents yrs was not given, because it cannot read
/// them or would cut what cannot be cut.
const STOOD_IN: &[&str] = &["json_content", "json_content_deleted", "xml_hook", "xml_hook_deleted"];

#[test]
fn what_yjs_has_written_is_the_same_after_compaction_or_left_alone() {
    let directory = scratch("generated");
    run(script("generate.mjs").arg(&directory));
    let names = names_in(&directory);
    assert!(names.len() > 75, "{} cases", names.len());
    compact_and_judge(&directory, &names, LEFT_ALONE, &[]);
    reset_and_judge(&directory, &names, LEFT_ALONE, NOT_RESET, &[]);

    let compacted =
        |name: &str| compact(&read_log(&directory.join(format!("{name}.log"))), Wish::Merge);
    let kept = compacted("gc_off_full_state").unwrap();
    assert!(
        kept.remark("kept_deleted") == Some(&Said::Flag(true)),
        "deleted content was collected from a gc: false document"
    );
    for name in STOOD_IN {
        assert!(compacted(name).unwrap().remark("stood_in").is_some(), "{name}");
    }
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
    reset_and_judge(&directory, &names, SHARED_LEFT_ALONE, SHARED_NOT_RESET, &[]);
}

#[test]
fn public_editing_traces_are_the_same_after_compaction() {
    let Some(shared) = shared_data("editing-traces") else { return };
    let directory = scratch("traces");
    let names = trace::NAMES.map(str::to_owned);
    let files = trace::NAMES.map(|name| shared.join(format!("{name}.json.gz")));
    run(script("yjs-trace.mjs").arg(&directory).args(files));
    compact_and_judge(&directory, &names, &[], &["--brief"]);
    reset_and_judge(&directory, &names, &[], &[], &["--brief"]);
}

#[test]
fn a_document_that_keeps_what_is_deleted_is_reset_where_that_is_permitted() {
    let directory = scratch("kept");
    run(script("generate.mjs").arg(&directory));
    let names: Vec<String> = NOT_RESET.iter().map(|(name, _)| (*name).to_owned()).collect();
    for name in &names {
        let log = read_log(&directory.join(format!("{name}.log")));
        let settings = Settings { keep_deleted: KeepDeleted::Never, ..Settings::default() };
        let job = Job { updates: &slices(&log), wish: Wish::Reset, settings: &settings };
        let reset = yjs::compact(&job).unwrap();
        assert_eq!((reset.mode, reset.merged_because), (Mode::Reset, None), "{name}");
        write_log(&directory.join(format!("{name}.reset.log")), &[&reset.update]);
    }
    run(script("judge-reset.mjs").arg(&directory).args(&names));
}

#[test]
fn the_judges_notice_a_document_that_is_not_the_same() {
    let directory = scratch("different");
    run(script("generate.mjs").arg(&directory));
    let is_refused = |name: &str| {
        for judge in ["judge.mjs", "judge-reset.mjs"] {
            let output = script(judge).arg(&directory).arg(name).output().unwrap();
            assert_eq!(output.status.code(), Some(1), "{judge} has let {name} pass");
        }
    };
    let pairs = [("integers", "floats"), ("map_churn", "map_losers"), ("undo", "rows_empty")];
    for (name, other) in pairs {
        let log = read_log(&directory.join(format!("{other}.log")));
        for (wish, mode) in [(Wish::Merge, "compacted"), (Wish::Reset, "reset")] {
            let update = compact(&log, wish).unwrap().update;
            write_log(&directory.join(format!("{name}.{mode}.log")), &[&update]);
        }
        is_refused(name);
    }
    // One flipped sign of a zero.
    let log = read_log(&directory.join("zero.log"));
    for (wish, mode) in [(Wish::Merge, "compacted"), (Wish::Reset, "reset")] {
        let mut update = compact(&log, wish).unwrap().update;
        let minus_zero = [125, 0x40];
        let at = update.windows(2).position(|window| window == minus_zero);
        update[at.expect("a -0 is in it") + 1] = 0;
        write_log(&directory.join(format!("zero.{mode}.log")), &[&update]);
    }
    is_refused("zero");
}

/// Merges every case, compares what is left alone with what is expected, and lets Yjs judge
/// the rest.
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
        match compact(&log, Wish::Merge) {
            Ok(outcome) => {
                write_log(&directory.join(format!("{name}.compacted.log")), &[&outcome.update]);
                compacted.push(name);
                // Compacting it again changes nothing.
                let again = compact(std::slice::from_ref(&outcome.update), Wish::Merge).unwrap();
                assert_eq!(again.update, outcome.update, "{name}: a second time");
                assert_eq!(again.digests, outcome.digests, "{name}: a second time");
                let verified = yjs::verify(&slices(&log), &outcome.update, Mode::Merge);
                assert_eq!(verified, Ok(outcome.digests), "{name}: verified from the rows");
            }
            Err(left) => {
                left_alone.insert(name.as_str(), left.code);
            }
        }
    }
    assert_eq!(left_alone, expected.iter().copied().collect::<BTreeMap<_, _>>());
    run(script("judge.mjs").args(options).arg(directory).args(compacted));
}

/// The same for a reset.
fn reset_and_judge(
    directory: &Path,
    names: &[String],
    left_alone: &[(&str, Code)],
    expected: &[(&str, &str)],
    options: &[&str],
) {
    let mut merged = BTreeMap::new();
    let mut judged = Vec::new();
    for name in names {
        let log = read_log(&directory.join(format!("{name}.log")));
        let outcome = match compact(&log, Wish::Reset) {
            Ok(outcome) => outcome,
            Err(left) => {
                assert!(left_alone.contains(&(name.as_str(), left.code)), "{name}: {left}");
                continue;
            }
        };
        let verified = yjs::verify(&slices(&log), &outcome.update, outcome.mode);
        assert_eq!(verified.as_ref(), Ok(&outcome.digests), "{name}: verified from the rows");
        assert_eq!(outcome.digests.before, outcome.digests.after, "{name}");
        if let Some(because) = outcome.merged_because {
            assert_eq!(outcome.mode, Mode::Merge, "{name}");
            merged.insert(name.as_str(), because.split(':').next().unwrap().to_owned());
            continue;
        }
        assert_eq!(outcome.mode, Mode::Reset, "{name}");
        let once = slices(std::slice::from_ref(&outcome.update));
        let again = compact(std::slice::from_ref(&outcome.update), Wish::Reset).unwrap();
        assert_eq!(again.update, outcome.update, "{name}: a second time");
        assert_eq!(again.digests, outcome.digests, "{name}: a second time");
        assert_eq!(yjs::verify(&once, &again.update, Mode::Reset), Ok(again.digests), "{name}");
        write_log(&directory.join(format!("{name}.reset.log")), &once);
        judged.push(name);
    }
    let expected = expected.iter().map(|&(name, because)| (name, because.to_owned()));
    assert_eq!(merged, expected.collect::<BTreeMap<_, _>>());
    run(script("judge-reset.mjs").args(options).arg(directory).args(judged));
}

fn compact(log: &[Vec<u8>], wish: Wish<'_>) -> Result<Compacted, LeftAlone> {
    let settings = Settings { keep_deleted: KeepDeleted::Detect, ..Settings::default() };
    yjs::compact(&Job { updates: &slices(log), wish, settings: &settings })
}

fn oracle() -> &'static Oracle {
    static ORACLE: OnceLock<Oracle> = OnceLock::new();
    ORACLE.get_or_init(|| Oracle::under(env!("CARGO_TARGET_TMPDIR")))
}

/// `node SCRIPT`.
fn script(name: &str) -> Command {
    oracle().script(name)
}

/// An empty directory.
fn scratch(name: &str) -> PathBuf {
    oracle().scratch(name)
}
