//! Compacts real editing traces in the Automerge format, natively, and says what it costs:
//! `cargo run --release -p besom-compaction --example automerge_traces -- [NAME...]`
//!
//! Memory is what was allocated beyond the updates at the worst moment, by a counting
//! allocator, beside what was said to be needed beforehand. Without names: every trace, and
//! documents made to need much.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use automerge::transaction::Transactable;
use automerge::{ActorId, Automerge, Change, ObjType, ROOT, TextEncoding};
use besom_compaction::automerge as format;
use besom_compaction::outcome::{Job, Mode, Settings, Wish};
use besom_oracle::trace::{NAMES, Trace};

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
            Some(trace) => report(name, &replayed(&trace), Some(&trace.end)),
            None => println!("| {name} | not here |"),
        }
    }
    if names.is_empty() || names.iter().any(|name| name == "made") {
        for (name, updates) in made() {
            report(name, &updates, None);
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

/// A change for each transaction of a trace, by replicas that know what their author knew.
fn replayed(trace: &Trace) -> Vec<Vec<u8>> {
    let actor = |agent: usize| ActorId::from([agent as u8 + 1; 16]);
    let new = |agent| {
        Automerge::new_with_encoding(TextEncoding::UnicodeCodePoint).with_actor(actor(agent))
    };
    let mut first = new(255 - 1);
    let mut transaction = first.transaction();
    let text = transaction.put_object(ROOT, "text", ObjType::Text).expect("a text");
    transaction.splice_text(&text, 0, 0, &trace.start).expect("a start");
    transaction.commit();
    let start = first.get_last_local_change().expect("a change");
    let mut replicas: Vec<(Automerge, Vec<bool>)> = (0..trace.agents)
        .map(|agent| {
            let mut doc = new(agent);
            doc.apply_changes([start.clone()]).expect("the start");
            (doc, vec![false; trace.transactions.len()])
        })
        .collect();
    let mut changes: Vec<Option<Change>> = Vec::new();
    for (index, transaction) in trace.transactions.iter().enumerate() {
        let (doc, knows) = &mut replicas[transaction.agent];
        let mut unknown = Vec::new();
        let mut waiting = transaction.parents.clone();
        while let Some(parent) = waiting.pop() {
            if !std::mem::replace(&mut knows[parent], true) {
                unknown.push(parent);
                waiting.extend(&trace.transactions[parent].parents);
            }
        }
        unknown.sort_unstable();
        if !unknown.is_empty() {
            let news: Vec<Change> =
                unknown.into_iter().filter_map(|parent| changes[parent].clone()).collect();
            doc.apply_changes(news).expect("what was written");
        }
        let mut editing = doc.transaction();
        for patch in &transaction.patches {
            editing
                .splice_text(&text, patch.position, patch.deleted as isize, &patch.inserted)
                .expect("a place in the text");
        }
        let (hash, _) = editing.commit();
        knows[index] = true;
        changes.push(hash.and_then(|_| doc.get_last_local_change()));
    }
    let written = changes.into_iter().flatten();
    std::iter::once(start).chain(written).map(|change| change.raw_bytes().to_vec()).collect()
}

/// Documents that need much memory for their bytes.
fn made() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let written = |write: &mut dyn FnMut(usize, &mut automerge::transaction::Transaction<'_>),
                   count: usize| {
        let mut doc = Automerge::new().with_actor(ActorId::from([1u8; 16]));
        (0..count)
            .map(|index| {
                let mut transaction = doc.transaction();
                write(index, &mut transaction);
                transaction.commit();
                doc.get_last_local_change().expect("a change").raw_bytes().to_vec()
            })
            .collect::<Vec<Vec<u8>>>()
    };
    vec![
        (
            "one change, a million equal characters",
            written(
                &mut |_, tx| {
                    let text = tx.put_object(ROOT, "text", ObjType::Text).expect("a text");
                    tx.splice_text(&text, 0, 0, &"a".repeat(1_000_000)).expect("a place");
                },
                1,
            ),
        ),
        (
            "200 changes, a thousand keys each",
            written(
                &mut |index, tx| {
                    for key in 0..1_000 {
                        tx.put(ROOT, format!("{index}-{key}"), key as i64).expect("a key");
                    }
                },
                200,
            ),
        ),
        (
            "50,000 changes of one key",
            written(&mut |index, tx| tx.put(ROOT, "key", index as i64).expect("a key"), 50_000),
        ),
        (
            "20,000 nested maps",
            written(
                &mut |_, tx| {
                    let mut id = ROOT;
                    for _ in 0..20_000 {
                        id = tx.put_object(&id, "in", ObjType::Map).expect("a key");
                    }
                },
                1,
            ),
        ),
        (
            "20,000 marks over one text",
            written(
                &mut |_, tx| {
                    use automerge::marks::{ExpandMark, Mark};
                    let text = tx.put_object(ROOT, "text", ObjType::Text).expect("a text");
                    tx.splice_text(&text, 0, 0, &"words ".repeat(4_000)).expect("a place");
                    for at in 0..20_000 {
                        let mark = Mark::new(format!("m{}", at % 7), at as i64, at, at + 9);
                        tx.mark(&text, mark, ExpandMark::Both).expect("a place");
                    }
                },
                1,
            ),
        ),
        (
            "4 MB of bytes in 40 changes",
            written(
                &mut |index, tx| {
                    let mut seed = index as u32 + 1;
                    let bytes: Vec<u8> = (0..100_000)
                        .map(|_| {
                            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                            (seed >> 24) as u8
                        })
                        .collect();
                    tx.put(ROOT, format!("blob {index}"), bytes).expect("a key");
                },
                40,
            ),
        ),
    ]
}
