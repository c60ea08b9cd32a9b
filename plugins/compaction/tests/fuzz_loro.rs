//! Compacts random histories of several authors, written with Loro's own package, in every mode, and
//! verifies the results with that package.
//!
//! `BESOM_FUZZ_DOCUMENTS` sets their number, `BESOM_SEED` the first seed; a failure names the
//! seed of its document.

use besom_compaction::loro;
use besom_compaction::outcome::{Compacted, Job, Mode, Settings, Wish};
use besom_oracle::loro::{Document, documents, seen_vectors, write_results};
use besom_oracle::{Oracle, run, slices};

/// Documents by default.
const DOCUMENTS: u64 = 50;
/// Documents for which one process of Node is started.
const BATCH: u64 = 250;
/// Documents live outside of Node's own heap, which makes it collect far too often unless it
/// begins with a large one.
const HEAP: &str = "--initial-old-space-size=1024";

/// Documents that have shown something: a mark without text that sends insertions elsewhere (merged
/// since), an item that is deleted and moved at the same time.
const TELLING: [u64; 2] = [80_000_029, 82_000_718];

#[test]
fn what_several_people_wrote_by_chance_is_the_same_after_compaction() {
    let number =
        |name, default| std::env::var(name).map_or(default, |it| it.parse().expect("a number"));
    let (count, first) = (number("BESOM_FUZZ_DOCUMENTS", DOCUMENTS), number("BESOM_SEED", 1));
    let trimmed = compared(first, count);
    assert!(trimmed * 5 > count, "only {trimmed} of {count} were trimmed");
}

#[test]
fn documents_that_once_differed_do_not() {
    assert_eq!(TELLING.map(|seed| compared(seed, 1)), [0, 1]);
}

/// Compacts and judges so many documents; returns how many were trimmed.
fn compared(first: u64, count: u64) -> u64 {
    let oracle = Oracle::under(env!("CARGO_TARGET_TMPDIR"));
    let mut trimmed = 0;
    for seed in (first..first + count).step_by(BATCH as usize) {
        let batch = BATCH.min(first + count - seed);
        let directory = oracle.scratch(&format!("fuzz_loro_{first}"));
        let [seed_word, batch_word] = [seed, batch].map(|number| number.to_string());
        run(oracle.script("loro-fuzz.mjs").args([seed_word, batch_word]).arg(&directory));
        let documents = documents(&directory);
        assert_eq!(documents.len() as u64, batch);
        let mut results = Vec::new();
        for (nth, document) in documents.iter().enumerate() {
            let seed = seed + nth as u64;
            let (merged, trim) = compacted(document, seed);
            trimmed += u64::from(trim.is_some());
            results.push([Some(merged), trim]);
        }
        write_results(&directory, &results);
        run(oracle.script(HEAP).args(["loro-judge.mjs", "--brief"]).arg(&directory));
    }
    trimmed
}

/// Merged, and trimmed where there was something to trim.
fn compacted(document: &Document, seed: u64) -> (Vec<u8>, Option<Vec<u8>>) {
    let rows = slices(&document.rows);
    let vectors = seen_vectors(document, |rows| version(rows, seed));
    let vectors = slices(&vectors);
    let settings = Settings::default();
    let compact = |updates: &[&[u8]], wish| -> Compacted {
        loro::compact(&Job { updates, wish, settings: &settings })
            .unwrap_or_else(|left| panic!("seed {seed}, {wish:?}: {left}"))
    };

    let merged = compact(&rows, Wish::Merge);
    assert_eq!(merged.digests.before, merged.digests.after, "seed {seed}");
    // Again from nothing, and again from the result.
    let verified = loro::verify(&rows, &merged.update, Mode::Merge);
    assert_eq!(verified.as_ref(), Ok(&merged.digests), "seed {seed}");
    let again = compact(&[&merged.update], Wish::Merge);
    assert_eq!(again.digests, merged.digests, "seed {seed}");

    let wish = Wish::Trim(&vectors);
    let trim = compact(&rows, wish);
    if trim.mode == Mode::Merge {
        assert_eq!(trim.digests, merged.digests, "seed {seed}");
        assert!(trim.merged_because.is_some(), "seed {seed}");
        return (merged.update, None);
    }
    let verified = loro::verify(&rows, &trim.update, Mode::Trim);
    assert_eq!(verified.as_ref(), Ok(&trim.digests), "seed {seed}");
    // The same from the merged row, and from what is trimmed already nothing more.
    let later = compact(&[&merged.update], wish);
    assert_eq!((later.mode, &later.digests), (Mode::Trim, &trim.digests), "seed {seed}");
    let again = compact(&[&trim.update], wish);
    assert_eq!(again.mode, Mode::Merge, "seed {seed}: {:?}", again.remarks);
    (merged.update, Some(trim.update))
}

/// The version vector of a client that has those rows, as it reports it.
fn version(rows: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let doc = ::loro::LoroDoc::new();
    let status = doc.import_batch(rows).unwrap();
    assert_eq!(status.pending, None, "seed {seed}: a client lacks something");
    doc.oplog_vv().encode()
}
