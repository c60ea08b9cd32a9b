//! A long document: a quarter of a million changes within the default limits, in one commit.

use std::path::{Path, PathBuf};
use std::time::Instant;

use besom::ports::store::{HistoryQuery, Outcome};
use besom_compaction::outcome::Job;
use besom_compaction::yjs;

use besom_tests::site::Site;

/// The longest of the public editing traces, where it is present.
fn trace() -> Option<PathBuf> {
    let shared = std::env::var_os("BESOM_SHARED_DATA").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data"),
        PathBuf::from,
    );
    Some(shared.join("editing-traces/automerge-paper.json.gz")).filter(|path| path.is_file())
}

#[tokio::test]
async fn a_quarter_of_a_million_changes_stay_within_the_default_limits() {
    let Some(path) = trace() else { return };
    let trace = besom::demo::trace::load(&path).unwrap();
    let log = trace.replay(&mut |_, _| {}).unwrap();
    let updates: Vec<Vec<u8>> = log.edits.into_iter().map(|edit| edit.payload).collect();
    let count = updates.len() as u64;
    assert!(count > 250_000, "{count}");
    let site = Site::new().await;
    site.document("d", &updates);

    let slices: Vec<&[u8]> = updates.iter().map(Vec::as_slice).collect();
    let started = Instant::now();
    let native = yjs::compact(&Job::merge(&slices)).unwrap();
    let natively = started.elapsed();
    let started = Instant::now();
    let decided = site.decide_one().await;
    let inside = started.elapsed();
    let started = Instant::now();
    let outcome = site.commit(&decided).await;
    let committing = started.elapsed();
    assert_eq!(outcome, Outcome::Committed);
    assert_eq!(site.changes("d"), [(count as i64, "edit".to_owned())]);
    assert_eq!(site.text("d").await, trace.end);

    // Half of every bound is left.
    let (used, limits) = (decided.usage, site.limits());
    assert!(used.memory_bytes * 2 <= limits.memory_bytes, "{used:?}");
    assert!(used.fuel * 2 <= limits.fuel, "{used:?}");
    assert!(used.rows_read >= count && used.rows_read * 2 <= limits.rows_read, "{used:?}");
    assert!(count * 2 <= limits.deletes);

    // What is kept for undo is no more than what was there.
    let query = HistoryQuery { limit: 1, ..HistoryQuery::default() };
    let row = &site.store().history(&query).await.unwrap()[0];
    let bytes = native.bytes_before as u64;
    assert!(row.undo_bytes > 0 && row.undo_bytes < 2 * bytes, "{} of {bytes}", row.undo_bytes);
    let before = site.store().before_images(row.id).await.unwrap().unwrap();
    assert_eq!(before.iter().filter(|image| image.row.is_some()).count() as u64, count + 1);
    #[expect(clippy::print_stdout, reason = "shown with --nocapture: its measures")]
    {
        println!(
            "{count} changes, {bytes} bytes: read and compacted by the component in {inside:.1?} \
         (the library alone natively {natively:.1?}), {} MiB, {} G fuel; committed in \
         {committing:.1?}, {} bytes for undo",
            used.memory_bytes >> 20,
            used.fuel / 1_000_000_000,
            row.undo_bytes
        );
    }
}
