//! Compacts random documents that Yjs writes and verifies: compaction changes none of them, nor any
//! variant with a flipped bit.
//!
//! `BESOM_FUZZ_DOCUMENTS` sets the number of documents (the default suits the gate), `BESOM_FLIPS`
//! the number of flips, `BESOM_SEED` the first seed. A failure names its seed and the
//! document's number in it; `node yjs-fuzz.mjs SEED COUNT DIRECTORY` writes the same documents
//! again.

use std::collections::BTreeMap;
use std::time::Instant;

use besom_compaction::outcome::{Job, KeepDeleted, Mode, Settings, Wish};
use besom_compaction::yjs;
use besom_oracle::{Oracle, encode_log, parse_log, read_log, run, slices, write_log};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Documents by default.
const DOCUMENTS: u64 = 1_650;

/// Documents of one seed: written, compacted and judged at once.
const BATCH: u64 = 350;

/// Flips by default.
const FLIPS: u64 = 700;

#[test]
fn random_documents_are_the_same_after_compaction() {
    let documents = number("BESOM_FUZZ_DOCUMENTS").unwrap_or(DOCUMENTS);
    let started = Instant::now();
    let tally = compact_and_judge("fuzz-yjs", documents, |_, log| Some(log));
    eprintln!("{documents} documents in {:.0?}: {tally:?}", started.elapsed());
    // What cannot be compacted has to stay the exception, or nothing is tested here.
    let left: u64 = tally.left_alone.values().sum();
    assert!(left * 50 <= documents, "{tally:?}");
    assert!(tally.reset * 3 > documents * 2, "{tally:?}");
    assert!(tally.stood_in * 50 > documents && tally.stood_in * 4 < documents, "{tally:?}");
}

/// Without a checksum a flipped bit may make another, equally well-formed document, and nobody
/// can tell. How often is reported; what is promised is that the row is refused, or that the
/// compacted document is the one that the flipped rows make, in both modes.
#[test]
fn a_flipped_row_is_refused_or_compacted_as_it_is() {
    let flips = number("BESOM_FLIPS").unwrap_or(FLIPS);
    let (mut same, mut another) = (0u64, 0u64);
    let tally = compact_and_judge("flips-yjs", flips, |number, mut log| {
        let digest = |log: &[Vec<u8>]| Some(yjs::compact(&Job::merge(&slices(log))).ok()?.digests);
        let good = digest(&log)?;
        let mut random = StdRng::seed_from_u64(number);
        let row = random.random_range(0..log.len());
        let byte = random.random_range(0..log[row].len());
        log[row][byte] ^= 1 << random.random_range(0..8);
        if let Some(flipped) = digest(&log) {
            *(if flipped == good { &mut same } else { &mut another }) += 1;
        }
        Some(log)
    });
    let refused: u64 = tally.left_alone.values().sum();
    eprintln!(
        "{flips} flips: {refused} refused, {same} without effect, {another} make another document \
         that nothing but a checksum could tell; {tally:?}"
    );
    assert!(refused * 12 > flips && another * 12 > flips, "{tally:?}");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Writes that many documents, changes each, compacts it in both modes, and lets Yjs judge.
fn compact_and_judge(
    name: &str,
    documents: u64,
    mut change: impl FnMut(u64, Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>>,
) -> Tally {
    let first = number("BESOM_SEED").unwrap_or(1);
    let oracle = Oracle::under(env!("CARGO_TARGET_TMPDIR"));
    let directory = oracle.scratch(&format!("{name}-{first}"));
    let mut tally = Tally::default();
    for seed in first..first + documents.div_ceil(BATCH) {
        let count = BATCH.min(documents - (seed - first) * BATCH).to_string();
        let seed_word = seed.to_string();
        run(oracle.script("yjs-fuzz.mjs").args([&seed_word, &count]).arg(&directory));
        let path = |what: &str| directory.join(format!("{seed}.{what}"));
        let (mut logs, mut merged, mut reset) = (Vec::new(), Vec::new(), Vec::new());
        for (number, log) in (0u64..).zip(read_log(&path("logs"))) {
            let Some(log) = change(seed * BATCH + number, parse_log(&log)) else { continue };
            logs.push(encode_log(&slices(&log)));
            let place = format!("seed {seed}, document {number}");
            tally.document(&place, number, &log, &mut merged, &mut reset);
        }
        write_log(&path("logs"), &slices(&logs));
        write_log(&path("merged"), &slices(&merged));
        write_log(&path("reset"), &slices(&reset));
        run(oracle.script("judge-fuzz.mjs").arg(&directory).arg(&seed_word));
        for what in ["logs", "merged", "reset"] {
            std::fs::remove_file(path(what)).unwrap();
        }
    }
    tally
}

/// What has become of the documents.
#[derive(Debug, Default)]
struct Tally {
    merged: u64,
    reset: u64,
    stood_in: u64,
    left_alone: BTreeMap<&'static str, u64>,
    merged_because: BTreeMap<String, u64>,
}

impl Tally {
    /// Compacts one document in both modes; no update stands for one that is left out. Every
    /// other one is reset whether or not it keeps what is deleted.
    fn document(
        &mut self,
        place: &str,
        number: u64,
        log: &[Vec<u8>],
        merged: &mut Vec<Vec<u8>>,
        reset: &mut Vec<Vec<u8>>,
    ) {
        let settings = Settings::default();
        let updates = slices(log);
        let outcome = match yjs::compact(&Job::merge(&updates)) {
            Ok(outcome) => outcome,
            Err(left) => {
                *self.left_alone.entry(left.code.as_str()).or_default() += 1;
                merged.push(encode_log(&[]));
                reset.push(encode_log(&[]));
                return;
            }
        };
        self.merged += 1;
        self.stood_in += u64::from(outcome.remark("stood_in").is_some());
        merged.push(encode_log(&[&outcome.update]));
        let again = yjs::compact(&Job::merge(&[&outcome.update])).unwrap();
        assert_eq!(again.update, outcome.update, "{place}: merged a second time");

        let keep_deleted =
            if number.is_multiple_of(2) { KeepDeleted::Never } else { KeepDeleted::Detect };
        let settings = Settings { keep_deleted, ..settings };
        let job = Job { updates: &updates, wish: Wish::Reset, settings: &settings };
        let outcome = yjs::compact(&job).unwrap();
        if let Some(because) = outcome.merged_because {
            let word = because.split(':').next().unwrap_or_default().to_owned();
            *self.merged_because.entry(word).or_default() += 1;
            reset.push(encode_log(&[]));
            return;
        }
        self.reset += 1;
        reset.push(encode_log(&[&outcome.update]));
        let once = [outcome.update.as_slice()];
        let again = yjs::compact(&Job { updates: &once, ..job }).unwrap();
        assert_eq!(again.update, outcome.update, "{place}: reset a second time");
        let verified = yjs::verify(&updates, &outcome.update, Mode::Reset);
        assert_eq!(verified, Ok(outcome.digests), "{place}: verified from the rows");
    }
}
