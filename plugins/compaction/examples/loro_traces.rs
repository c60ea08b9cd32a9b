//! Compacts public editing traces as Loro documents, and worst cases for memory:
//! `cargo run --release -p besom-compaction --example loro_traces -- [NAME...]`
//!
//! For each: updates, bytes of the log, merged, trimmed; how long Loro alone takes to rebuild
//! it, the whole compaction and a verification; the most memory at once, and the estimate.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use besom_compaction::loro as format;
use besom_compaction::outcome::{Compacted, Job, Mode, Settings, Wish};
use besom_oracle::trace::{NAMES, Trace};
use loro::{ExportMode, ID, LoroDoc};

/// Counts what is allocated at once.
struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
/// Of that size is the room that is asked for and given back: it is not used.
static ROOM: AtomicUsize = AtomicUsize::new(usize::MAX);

fn grown(by: usize) {
    let now = NOW.fetch_add(by, Ordering::Relaxed) + by;
    PEAK.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: every call goes to the system's allocator as it is; only numbers are kept beside.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() != ROOM.load(Ordering::Relaxed) {
            grown(layout.size());
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        if layout.size() != ROOM.load(Ordering::Relaxed) {
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
            Some(trace) => tell(name, &replayed(&trace)),
            None => println!("{name}: not here"),
        }
    }
    for (name, log) in WORST.iter().filter(|(name, _)| is_wanted(name)) {
        tell(name, &log());
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
    let estimate = format::needed(&updates).unwrap();
    ROOM.store(estimate, Ordering::Relaxed);
    let base = NOW.load(Ordering::Relaxed);
    PEAK.store(base, Ordering::Relaxed);
    let peak = || (PEAK.swap(NOW.load(Ordering::Relaxed), Ordering::Relaxed) - base) >> 10;
    let (merged, merge_ms) = timed(|| format::compact(&job(Wish::Merge)).unwrap());
    let merge_peak = peak();
    let (trimmed, trim_ms) = timed(|| format::compact(&job(Wish::Trim(&[]))).unwrap());
    let trim_peak = peak();
    let (_, verify_ms) = timed(|| format::verify(&updates, &merged.update, Mode::Merge).unwrap());
    println!(
        "{name}: {} updates, {} bytes; merged {} (Loro alone {alone}), trimmed {}; Loro alone \
         {alone_ms:.0} ms, merge {merge_ms:.0} ms, trim {trim_ms:.0} ms, verify {verify_ms:.0} \
         ms; peak KiB: merge {merge_peak}, trim {trim_peak}, estimate {}",
        updates.len(),
        merged.bytes_before,
        merged.update.len(),
        bytes_of(&trimmed),
        estimate >> 10,
    );
    ROOM.store(usize::MAX, Ordering::Relaxed);
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

/// One update for each transaction, as clients send them.
fn replayed(trace: &Trace) -> Vec<Vec<u8>> {
    let mut log = Vec::with_capacity(trace.transactions.len());
    // One replica for each agent; each transaction is made at the version of its parents.
    let replicas: Vec<LoroDoc> = (0..trace.agents).map(|agent| author(agent as u64 + 1)).collect();
    let mut heads: Vec<ID> = Vec::with_capacity(trace.transactions.len());
    for transaction in &trace.transactions {
        let doc = &replicas[transaction.agent];
        let parents: Vec<ID> = transaction.parents.iter().map(|it| heads[*it]).collect();
        let known = doc.oplog_vv();
        for parent in parents.iter().filter(|parent| !known.includes_id(**parent)) {
            let from = &replicas[(parent.peer - 1) as usize];
            let at = from.frontiers_to_vv(&(*parent).into()).unwrap();
            let spans = at
                .sub_vec(&doc.oplog_vv())
                .into_iter()
                .map(|(peer, span)| loro::IdSpan::new(peer, span.start, span.end));
            let news = from.export(ExportMode::updates_in_range(spans.collect::<Vec<_>>()));
            doc.import(&news.unwrap()).unwrap();
        }
        let before = doc.oplog_vv();
        let text = doc.get_text("text");
        for patch in &transaction.patches {
            text.delete(patch.position, patch.deleted).unwrap();
            text.insert(patch.position, &patch.inserted).unwrap();
        }
        doc.commit();
        let end = doc.oplog_vv().get(&doc.peer_id()).copied().unwrap_or(0);
        heads.push(ID::new(doc.peer_id(), end - 1));
        log.push(doc.export(ExportMode::updates(&before)).unwrap());
    }
    let doc = LoroDoc::new();
    doc.import_batch(&log).unwrap();
    assert_eq!(doc.get_text("text").to_string(), trace.end, "the trace ends otherwise");
    log
}

fn author(peer: u64) -> LoroDoc {
    let doc = LoroDoc::new();
    doc.set_peer_id(peer).unwrap();
    doc
}

/// Makes a log.
type MakeLog = fn() -> Vec<Vec<u8>>;

/// Logs of which a few bytes need much memory.
const WORST: &[(&str, MakeLog)] = &[
    ("one-key", || {
        edits(50_000, |doc, nth| {
            doc.get_map("map").insert("key", nth as i64).unwrap();
        })
    }),
    ("many-keys", || {
        edits(20_000, |doc, nth| {
            doc.get_map("map").insert(&format!("key {nth}"), nth as i64).unwrap();
        })
    }),
    ("containers", || {
        edits(10_000, |doc, nth| {
            let map = loro::LoroMap::new();
            doc.get_list("list").insert_container(nth, map).unwrap();
        })
    }),
    ("tree", || {
        edits(5_000, |doc, _| {
            doc.get_tree("tree").create(None).unwrap();
        })
    }),
    ("movable", || {
        edits(10_000, |doc, nth| {
            let list = doc.get_movable_list("movable");
            list.insert(nth / 2, nth as i64).unwrap();
            list.mov(nth / 3, 0).unwrap();
        })
    }),
    ("marks", || {
        edits(10_000, |doc, nth| {
            let text = doc.get_text("text");
            text.insert(nth, "x").unwrap();
            text.mark(nth / 2..nth + 1, "bold", nth as i64).unwrap();
        })
    }),
    ("one-snapshot", || {
        let log = edits(200_000, |doc, nth| {
            doc.get_text("text").insert(nth / 2, "x").unwrap();
        });
        vec![snapshot(&log)]
    }),
    ("zeroes", || {
        let doc = author(1);
        doc.get_text("text").insert(0, &"0".repeat(4_000_000)).unwrap();
        doc.commit();
        vec![doc.export(ExportMode::Snapshot).unwrap()]
    }),
    ("one-key-snapshot", || {
        let log = edits(200_000, |doc, nth| {
            doc.get_map("map").insert("key", nth as i64 % 2).unwrap();
        });
        vec![snapshot(&log)]
    }),
    ("peers", || {
        (0..5_000)
            .map(|peer| {
                let doc = author(peer + 1);
                doc.get_list("list").insert(0, peer as i64).unwrap();
                doc.commit();
                doc.export(ExportMode::all_updates()).unwrap()
            })
            .collect()
    }),
];

fn edits(count: usize, edit: impl Fn(&LoroDoc, usize)) -> Vec<Vec<u8>> {
    let doc = author(1);
    (0..count)
        .map(|nth| {
            let before = doc.oplog_vv();
            edit(&doc, nth);
            doc.commit();
            doc.export(ExportMode::updates(&before)).unwrap()
        })
        .collect()
}

fn snapshot(log: &[Vec<u8>]) -> Vec<u8> {
    let doc = LoroDoc::new();
    doc.import_batch(log).unwrap();
    doc.export(ExportMode::Snapshot).unwrap()
}
