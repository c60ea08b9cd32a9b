//! Long documents: a quarter of a million changes within the default limits, in one commit.
//!
//! Yjs documents have all of them. An unoptimised build of the other libraries writes them slowly:
//! their documents have the first few thousand by default, or as many as `BESOM_LONG_CHANGES` says.

use std::time::Instant;

use besom_compaction::outcome::{Job, Mode};
use besom_compaction::{automerge, loro, yjs};
use besom_config::limits::default_limits;
use besom_oracle::trace::Trace;
use besom_oracle::{replay, shared_data};
use besom_ports::guests::Lane;
use besom_ports::store::{HistoryQuery, Outcome};

use besom_tests::site::{Decided, Site};

/// Changes of a Loro document by default.
const LORO_CHANGES: usize = 25_000;
/// Changes of an Automerge document by default.
const AUTOMERGE_CHANGES: usize = 5_000;

/// The longest of the public editing traces, if it is present.
const TRACE: &str = "automerge-paper";

/// The requested number of changes of the trace; none if it is not present.
fn beginning(default: usize) -> Option<Trace> {
    let mut trace = Trace::named(TRACE)?;
    let wanted = std::env::var("BESOM_LONG_CHANGES")
        .map_or(default, |changes| changes.parse().expect("a number"));
    trace.transactions.truncate(wanted);
    Some(trace)
}

/// Compacts the only document of a site, and checks what that has used.
async fn compacted(site: &Site, rows: &[Vec<u8>]) -> Decided {
    let count = rows.len() as u64;
    let started = Instant::now();
    let decided = site.decide_one_counted().await;
    let inside = started.elapsed();
    let started = Instant::now();
    assert_eq!(site.commit(&decided).await, Outcome::Committed);
    let committing = started.elapsed();
    assert_eq!(site.changes("d"), [(count as i64, "edit".to_owned())]);

    let (used, limits) = (decided.usage, site.limits());
    assert!(used.memory_bytes <= limits.memory_bytes, "{used:?}");
    // Half of every other bound is left.
    let fuel_max = default_limits(Lane::Heavy).fuel;
    assert!(used.fuel > 0 && used.fuel * 2 <= fuel_max, "{used:?}");
    assert!(used.rows_read >= count && used.rows_read * 2 <= limits.rows_read, "{used:?}");
    assert!(count * 2 <= limits.deletes);

    // The before-images are no larger than the rows.
    let query = HistoryQuery { limit: 1, ..HistoryQuery::default() };
    let row = &site.store().history(&query).await.unwrap()[0];
    let bytes: usize = rows.iter().map(Vec::len).sum();
    assert!(row.undo_bytes > 0 && row.undo_bytes < 2 * bytes as u64, "{}", row.undo_bytes);
    let before = site.store().before_images(row.id).await.unwrap().unwrap();
    assert_eq!(before.iter().filter(|image| image.row.is_some()).count() as u64, count + 1);
    #[expect(clippy::print_stdout, reason = "shown with --nocapture: its measures")]
    {
        println!(
            "{count} changes, {bytes} bytes: read and compacted by the component in {inside:.1?}, \
             {} MiB, {} G fuel; committed in {committing:.1?}, {} bytes for undo",
            used.memory_bytes >> 20,
            used.fuel / 1_000_000_000,
            row.undo_bytes
        );
    }
    decided
}

#[tokio::test]
async fn a_quarter_of_a_million_yjs_changes_stay_within_the_default_limits() {
    let Some(traces) = shared_data("editing-traces") else { return };
    let path = traces.join(format!("{TRACE}.json.gz"));
    let trace = besom_demo::trace::load(&path).unwrap();
    let log = trace.replay(&mut |_, _| {}).unwrap();
    let updates: Vec<Vec<u8>> = log.edits.into_iter().map(|edit| edit.payload).collect();
    assert!(updates.len() > 250_000, "{}", updates.len());
    let site = Site::new().await;
    site.document("d", &updates);

    let slices: Vec<&[u8]> = updates.iter().map(Vec::as_slice).collect();
    let native = yjs::compact(&Job::merge(&slices)).unwrap();
    let decided = compacted(&site, &updates).await;
    assert!(decided.usage.memory_bytes * 2 <= site.limits().memory_bytes, "{:?}", decided.usage);
    assert_eq!(site.edits("d").await, [native.update]);
    assert_eq!(site.text("d").await, trace.end);
}

#[tokio::test]
async fn a_long_loro_document_stays_within_the_default_limits() {
    let Some(trace) = beginning(LORO_CHANGES) else { return };
    let rows = replay::loro(&trace);
    let site = Site::new().await;
    site.document_of("loro", "d", &rows);
    compacted(&site, &rows).await;
    let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let [row] = &site.edits("d").await[..] else { panic!("not one row") };
    loro::verify(&slices, row, Mode::Merge).unwrap();
}

#[tokio::test]
async fn a_long_automerge_document_stays_within_the_default_limits() {
    let Some(trace) = beginning(AUTOMERGE_CHANGES) else { return };
    let rows = replay::automerge(&trace);
    let site = Site::new().await;
    site.document_of("automerge", "d", &rows);
    compacted(&site, &rows).await;
    let slices: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
    let [row] = &site.edits("d").await[..] else { panic!("not one row") };
    automerge::verify(&slices, row, Mode::Merge).unwrap();
}
