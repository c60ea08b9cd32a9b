//! Compacts real editing traces in the Automerge format, natively, and reports the cost:
//! `cargo run --release -p besom-compaction --example automerge_traces -- [NAME...]`
//!
//! Memory is the peak allocation beyond the updates, measured by a counting allocator, compared
//! with the estimate. Without names: every trace, and documents constructed to need much memory.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use automerge::{Automerge, Change, ROOT};
use besom_compaction::automerge as format;
use besom_compaction::outcome::{Job, Mode, Settings, Wish};
use besom_oracle::shapes::automerge::SHAPES;
use besom_oracle::{
    replay,
    trace::{NAMES, Trace},
};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// What is asked for only to see whether it could be had.
static ASKED: AtomicUsize = AtomicUsize::new(usize::MAX);

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        if layout.size() != ASKED.load(Relaxed) {
            PEAK.fetch_max(now, Relaxed);
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs it: milliseconds, and bytes at the worst moment beyond those before.
fn measured<T>(run: impl FnOnce() -> T) -> (T, f64, usize) {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    let started = Instant::now();
    let result = run();
    (result, started.elapsed().as_secs_f64() * 1e3, PEAK.load(Relaxed) - before)
}

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    println!(
        "| document | updates | log bytes | merged | reset | rebuild ms | merge ms | verify ms | \
         reset ms | rebuild MB | merge MB | said MB | reset MB | said MB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|---|---|---|");
    for name in NAMES {
        if !names.is_empty() && !names.iter().any(|it| it == name) {
            continue;
        }
        match Trace::named(name) {
            Some(trace) => report(name, &replay::automerge(&trace), Some(&trace.end)),
            None => println!("| {name} | not here |"),
        }
    }
    for shape in SHAPES {
        if names.is_empty() || names.iter().any(|it| it == shape.name) {
            report(shape.name, &shape.log(), None);
        }
    }
}

fn report(name: &str, updates: &[Vec<u8>], text: Option<&str>) {
    let updates: Vec<&[u8]> = updates.iter().map(Vec::as_slice).collect();
    let settings = Settings { bytes_max: usize::MAX, ..Settings::default() };
    let mb = |bytes: usize| bytes as f64 / 1e6;
    let said = |mode| format::need(&updates, mode).map_or(0, |need| need.bytes as usize);
    let (doc, rebuild_ms, rebuild_peak) = measured(|| rebuilt(&updates));
    drop(doc);
    let mut results = Vec::new();
    for wish in [Wish::Merge, Wish::Reset] {
        let job = Job { updates: &updates, wish, settings: &settings };
        ASKED.store(said(wish.mode()), Relaxed);
        let (outcome, ms, peak) = measured(|| format::compact(&job));
        match outcome {
            Ok(compacted) => {
                if compacted.mode != wish.mode() {
                    println!("{name}: {:?}", compacted.merged_because);
                }
                results.push((compacted, ms, peak));
            }
            Err(left) => return println!("| {name} | {left} |"),
        }
    }
    let [(merged, merge_ms, merge_peak), (reset, reset_ms, reset_peak)] = &results[..] else {
        return;
    };
    let (verified, verify_ms, _) =
        measured(|| format::verify(&updates, &merged.update, Mode::Merge));
    assert_eq!(verified.as_ref().map(|digests| &digests.after), Ok(&merged.digests.after));
    if let Some(text) = text {
        for update in [&merged.update, &reset.update] {
            assert_eq!(shown(update), text, "{name}");
        }
    }
    println!(
        "| {name} | {} | {} | {} | {} | {rebuild_ms:.0} | {merge_ms:.0} | {verify_ms:.0} | \
         {reset_ms:.0} | {:.1} | {:.1} | {:.1} | {:.1} | {:.1} |",
        updates.len(),
        merged.bytes_before,
        merged.update.len(),
        reset.update.len(),
        mb(rebuild_peak),
        mb(*merge_peak),
        mb(said(Mode::Merge)),
        mb(*reset_peak),
        mb(said(Mode::Reset)),
    );
}

/// What the library alone does: apply every update, save.
fn rebuilt(updates: &[&[u8]]) -> Vec<u8> {
    let mut doc = Automerge::new();
    let changes: Vec<Change> =
        updates.iter().filter_map(|update| Change::try_from(*update).ok()).collect();
    doc.apply_changes(changes).expect("the updates are whole");
    doc.save()
}

fn shown(update: &[u8]) -> String {
    use automerge::ReadDoc;
    let doc = Automerge::load(update).expect("a document");
    let (_, text) = doc.get(ROOT, "text").expect("a key").expect("a text");
    doc.text(&text).expect("a text")
}
