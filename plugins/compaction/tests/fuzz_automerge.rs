//! Compacts random documents, written by Automerge's own package, in every mode, and verifies the
//! results with that package.
//!
//! `BESOM_FUZZ_DOCUMENTS` sets their number (700 by default), `BESOM_SEED` the first seed.

use std::collections::BTreeMap;

use besom_compaction::automerge as format;
use besom_compaction::outcome::{Job, Mode, Settings, Wish};
use besom_oracle::{Oracle, names_in, read_log, run, slices, write_log};

/// Documents that one Node process makes or judges.
const BATCH: u64 = 350;

const DOCUMENTS_DEFAULT: u64 = 300;

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().map_or(default, |it| it.parse().expect("a number"))
}

#[test]
fn whatever_automerge_makes_up_it_finds_no_difference_afterwards() {
    let oracle = Oracle::under(env!("CARGO_TARGET_TMPDIR"));
    let count = number("BESOM_FUZZ_DOCUMENTS", DOCUMENTS_DEFAULT);
    let first = number("BESOM_SEED", 1);
    let settings = Settings::default();
    let (mut merged, mut reset) = (0u64, 0u64);
    let mut kept: BTreeMap<String, u64> = BTreeMap::new();
    let mut seed = first;
    while seed < first + count {
        let batch = BATCH.min(first + count - seed);
        let directory = oracle.scratch(&format!("automerge-fuzz-{first}"));
        run(oracle
            .script("automerge-fuzz.mjs")
            .args([seed.to_string(), batch.to_string()])
            .arg(&directory));
        let names = names_in(&directory);
        assert_eq!(names.len() as u64, batch);
        for name in &names {
            let rows = read_log(&directory.join(format!("{name}.log")));
            let updates = slices(&rows);
            for (wish, suffix) in [(Wish::Merge, "compacted"), (Wish::Reset, "reset")] {
                let job = Job { updates: &updates, wish, settings: &settings };
                let compacted = format::compact(&job)
                    .unwrap_or_else(|left| panic!("{name} is left alone: {left}"));
                let digests = format::verify(&updates, &compacted.update, compacted.mode);
                assert_eq!(digests.as_ref(), Ok(&compacted.digests), "{name} {suffix}");
                match (wish, compacted.mode) {
                    (Wish::Merge, Mode::Merge) => merged += 1,
                    (_, Mode::Reset) => reset += 1,
                    _ => {
                        let because = compacted.merged_because.unwrap_or_default();
                        let word = because.split(':').next().unwrap_or_default();
                        *kept.entry(word.to_owned()).or_default() += 1;
                        continue;
                    }
                }
                // What is compact stays as it is, in the same mode.
                let again = [&compacted.update[..]];
                let twice = format::compact(&Job { updates: &again, wish, settings: &settings });
                assert_eq!(twice.unwrap().update, compacted.update, "{name} {suffix}");
                let path = directory.join(format!("{name}.{suffix}.log"));
                write_log(&path, &[&compacted.update]);
            }
        }
        let list = directory.join("names.txt");
        std::fs::write(&list, names.join("\n")).unwrap();
        let mut judge = oracle.script("automerge-judge.mjs");
        let argument = format!("@{}", list.display());
        run(judge.arg("--brief").arg(&directory).arg(argument));
        seed += batch;
    }
    eprintln!("{merged} merged, {reset} reset as well, not reset because of {kept:?}");
    assert_eq!(merged, count);
    // Both kinds occur, or the documents are too plain.
    let conflicts = kept.remove("conflicts").unwrap_or_default();
    assert!(reset * 10 > count && conflicts * 20 > count, "{reset} reset, {conflicts} conflicts");
    assert!(kept.is_empty(), "{kept:?}");
}
