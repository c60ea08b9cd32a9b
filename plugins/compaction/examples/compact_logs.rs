//! Compacts Yjs update logs natively, in every mode, and reports the results:
//! `cargo run -p besom-compaction --example compact_logs -- FILE.log...`
//!
//! Writes the compacted update as `NAME.MODE.log` beside each log. For comparison, it reports the
//! time that yrs alone needs to rebuild the document.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::path::Path;
use std::time::Instant;

use besom_compaction::outcome::{Job, Settings, Wish};
use besom_compaction::yjs;
use yrs::updates::decoder::Decode;
use yrs::{Doc, ReadTxn, StateVector, Transact, Update};

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let bytes = std::fs::read(path)?;
        let updates = updates(&bytes).ok_or_else(|| std::io::Error::other("no update log"))?;
        let (name, count) = (path.display(), updates.len());
        println!("{name}: {count} updates; yrs alone: {:.1} ms", alone_ms(&updates));
        for wish in [Wish::Merge, Wish::Reset] {
            compact(path, &updates, wish)?;
        }
    }
    Ok(())
}

fn compact(path: &Path, updates: &[&[u8]], wish: Wish<'_>) -> std::io::Result<()> {
    let settings = Settings::default();
    let (wanted, started) = (wish.mode(), Instant::now());
    let outcome = yjs::compact(&Job { updates, wish, settings: &settings });
    let took = millis(started);
    let compacted = match outcome {
        Ok(compacted) => compacted,
        Err(left) => {
            println!("  {wanted}: left alone: {left}");
            return Ok(());
        }
    };
    if let Some(because) = compacted.merged_because {
        println!("  {wanted}: {}: {because}", compacted.mode);
        return Ok(());
    }
    let started = Instant::now();
    let verified = yjs::verify(updates, &compacted.update, compacted.mode);
    let verify = millis(started);
    let (before, after) = (compacted.bytes_before, compacted.update.len());
    println!(
        "  {wanted}: {before} -> {after} bytes in {took:.1} ms; verified again in {verify:.1} ms"
    );
    if verified.as_ref() != Ok(&compacted.digests) {
        return Err(std::io::Error::other(format!("{verified:?}")));
    }
    let mut log = 1u32.to_le_bytes().to_vec();
    log.extend((after as u32).to_le_bytes());
    log.extend(compacted.update);
    std::fs::write(path.with_extension(format!("{wanted}.log")), log)
}

fn alone_ms(updates: &[&[u8]]) -> f64 {
    let started = Instant::now();
    let doc = Doc::new();
    for update in updates {
        if let Ok(update) = Update::decode_v1(update) {
            // What yrs refuses is of no interest for its time.
            let _ = doc.transact_mut().apply_update(update);
        }
    }
    doc.transact().encode_state_as_update_v1(&StateVector::default());
    millis(started)
}

fn millis(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e3
}

/// The updates of a log: a count, then each after its length, all little-endian u32.
fn updates(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let word = |bytes: &[u8]| Some(u32::from_le_bytes(*bytes.first_chunk()?) as usize);
    let mut rest = &bytes[4.min(bytes.len())..];
    (0..word(bytes)?)
        .map(|_| {
            let len = word(rest)?;
            let update = rest.get(4..4 + len)?;
            rest = &rest[4 + len..];
            Some(update)
        })
        .collect()
}
