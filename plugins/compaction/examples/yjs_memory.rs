//! Compacts Yjs documents that need much memory, natively, and reports the memory:
//! `cargo run -p besom-compaction --example yjs_memory -- [NAME...]`
//!
//! Memory is the peak allocation beyond the rows, measured by a counting allocator, compared with
//! the estimate.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use besom_compaction::outcome::{Job, Mode, Settings, Wish};
use besom_compaction::yjs;
use besom_oracle::shapes::yjs::SHAPES;
use besom_oracle::slices;
use besom_oracle::trace::{NAMES, Trace};
use yrs::{Doc, GetString, OffsetKind, Options, Text, Transact};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// What is asked for only to see whether it could be had: for a merge, and for a reset after it.
static ASKED: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX)];

fn is_asked(size: usize) -> bool {
    ASKED.iter().any(|asked| asked.load(Relaxed) == size)
}

// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_asked(layout.size()) {
            let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
            PEAK.fetch_max(now, Relaxed);
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !is_asked(layout.size()) {
            NOW.fetch_sub(layout.size(), Relaxed);
        }
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|it| it == name);
    println!("| document | rows | bytes | merge MB | said MB | reset MB | said MB |");
    println!("|---|---|---|---|---|---|---|");
    for name in NAMES.into_iter().filter(|name| is_wanted(name)) {
        match Trace::named(name) {
            Some(trace) if trace.is_sequential() => report(name, &typed(&trace)),
            Some(_) => println!("| {name} | by several |"),
            None => println!("| {name} | not here |"),
        }
    }
    for shape in SHAPES.iter().filter(|shape| is_wanted(shape.name)) {
        report(shape.name, &shape.log());
    }
}

fn report(name: &str, rows: &[Vec<u8>]) {
    let updates = slices(rows);
    let settings = Settings { bytes_max: usize::MAX, ..Settings::default() };
    let mut cells = String::new();
    let said = [Mode::Merge, Mode::Reset].map(|mode| yjs::needed(&updates, mode).unwrap_or(0));
    ASKED[0].store(said[0], Relaxed);
    ASKED[1].store(said[1] - said[0], Relaxed);
    for (wish, said) in [Wish::Merge, Wish::Reset].into_iter().zip(said) {
        let before = NOW.load(Relaxed);
        PEAK.store(before, Relaxed);
        let outcome = yjs::compact(&Job { updates: &updates, wish, settings: &settings });
        let peak = PEAK.load(Relaxed) - before;
        let mb = |bytes: usize| bytes as f64 / 1e6;
        let what = match outcome {
            Ok(compacted) if compacted.mode == wish.mode() => String::new(),
            Ok(compacted) => format!(" ({})", compacted.merged_because.unwrap_or_default()),
            Err(left) => format!(" ({left})"),
        };
        cells += &format!(" {:.1}{what} | {:.1} |", mb(peak), mb(said));
    }
    let bytes: usize = rows.iter().map(Vec::len).sum();
    println!("| {name} | {} | {bytes} |{cells}", rows.len());
}

/// A row for each transaction of a trace that one author has written.
fn typed(trace: &Trace) -> Vec<Vec<u8>> {
    let doc = Doc::with_options(Options { offset_kind: OffsetKind::Utf16, ..Options::default() });
    let text = doc.get_or_insert_text("text");
    let mut rows = Vec::with_capacity(trace.transactions.len());
    for transaction in &trace.transactions {
        let mut txn = doc.transact_mut();
        for patch in &transaction.patches {
            text.remove_range(&mut txn, patch.position as u32, patch.deleted as u32);
            text.insert(&mut txn, patch.position as u32, &patch.inserted);
        }
        rows.push(txn.encode_update_v1());
    }
    assert_eq!(text.get_string(&doc.transact()), trace.end, "the trace ends otherwise");
    rows
}
