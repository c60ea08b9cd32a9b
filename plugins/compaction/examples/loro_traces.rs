//! Compacts public editing traces as Loro documents, and worst cases for memory:
//! `cargo run --release -p besom-compaction --example loro_traces -- [NAME...]`
//!
//! Reports for each: updates; bytes of the log, merged and trimmed; the times of a rebuild with Loro
//! alone, of the compaction and of a verification; the peak memory and the estimate.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use besom_compaction::loro as format;
use besom_compaction::outcome::{Compacted, Job, Mode, Settings, Wish};
use besom_oracle::shapes::loro::SHAPES;
use besom_oracle::{
    replay,
    trace::{NAMES, Trace},
};
use loro::{ExportMode, LoroDoc};

/// Counts what is allocated at once.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Of these sizes is the room that is asked for and given back: it is not used.
static ROOM: [AtomicUsize; 2] = [AtomicUsize::new(usize::MAX), AtomicUsize::new(usize::MAX)];

fn is_room(size: usize) -> bool {
    ROOM.iter().any(|room| room.load(Ordering::Relaxed) == size)
}

fn grown(by: usize) {
    let now = NOW.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is; only numbers are kept beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !is_room(layout.size()) {
            grown(layout.size());
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if !is_room(layout.size()) {
            NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Old and new exist at once while it is moved.
        grown(size);
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|it| it == name);
    for name in NAMES.into_iter().filter(|name| is_wanted(name)) {
        match Trace::named(name) {
            Some(trace) => tell(name, &replay::loro(&trace)),
            None => println!("{name}: not here"),
        }
    }
    for shape in SHAPES.iter().filter(|shape| is_wanted(shape.name)) {
        tell(shape.name, &shape.log());
    }
    // NAME=COUNT: as many of whatever the shape has many of.
    for (name, count) in wanted.iter().filter_map(|it| it.split_once('=')) {
        let count = count.parse().expect("a number");
        for shape in SHAPES.iter().filter(|shape| shape.name == name) {
            tell(name, &(shape.rows)(count));
        }
    }
}

fn tell(name: &str, log: &[Vec<u8>]) {
    let updates: Vec<&[u8]> = log.iter().map(Vec::as_slice).collect();
    let (alone, alone_ms) = timed(|| {
        let doc = LoroDoc::new();
        doc.import_batch(log).unwrap();
        doc.export(ExportMode::Snapshot).unwrap().len()
    });
    let settings = Settings { bytes_max: usize::MAX, ..Settings::default() };
    let job = |wish| Job { updates: &updates, wish, settings: &settings };
    let base = NOW.load(Ordering::Relaxed);
    PEAK.store(base, Ordering::Relaxed);
    let [history, estimate] = format::needed(&updates).unwrap();
    let history_peak = (PEAK.load(Ordering::Relaxed) - base) >> 10;
    for (room, bytes) in ROOM.iter().zip([history, estimate]) {
        room.store(bytes, Ordering::Relaxed);
    }
    PEAK.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
    let peak = || (PEAK.swap(NOW.load(Ordering::Relaxed), Ordering::Relaxed) - base) >> 10;
    let (merged, merge_ms) = timed(|| format::compact(&job(Wish::Merge)).unwrap());
    let merge_peak = peak();
    let (trimmed, trim_ms) = timed(|| format::compact(&job(Wish::Trim(&[]))).unwrap());
    let trim_peak = peak();
    let (_, verify_ms) = timed(|| format::verify(&updates, &merged.update, Mode::Merge).unwrap());
    println!(
        "{name}: {} updates, {} bytes; merged {} (Loro alone {alone}), trimmed {}; Loro alone \
         {alone_ms:.0} ms, merge {merge_ms:.0} ms, trim {trim_ms:.0} ms, verify {verify_ms:.0} \
         ms; peak KiB: history {history_peak} (estimate {}), merge {merge_peak}, trim {trim_peak} \
         (estimate {})",
        updates.len(),
        merged.bytes_before,
        merged.update.len(),
        bytes_of(&trimmed),
        history >> 10,
        estimate >> 10,
    );
    ROOM.iter().for_each(|room| room.store(usize::MAX, Ordering::Relaxed));
}

fn bytes_of(trimmed: &Compacted) -> String {
    match &trimmed.merged_because {
        None => trimmed.update.len().to_string(),
        Some(because) => format!("not ({because})"),
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let started = Instant::now();
    let done = work();
    (done, started.elapsed().as_secs_f64() * 1e3)
}
