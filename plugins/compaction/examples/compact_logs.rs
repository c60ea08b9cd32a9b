//! Compacts update logs natively and says what became of each:
//! `cargo run -p besom-compaction --example compact_logs -- FILE.log...`
//!
//! Beside each log the one update is written as `NAME.compacted.log`. For comparison the
//! time is given in which yrs alone rebuilds the document.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::path::Path;
use std::time::Instant;

use besom_compaction::outcome::Job;
use besom_compaction::yjs;
use yrs::updates::decoder::Decode;
use yrs::{Doc, ReadTxn, StateVector, Transact, Update};

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let bytes = std::fs::read(path)?;
        let updates = updates(&bytes).ok_or_else(|| std::io::Error::other("no update log"))?;
        let started = Instant::now();
        let outcome = yjs::compact(&Job::merge(&updates));
        let took = started.elapsed().as_secs_f64() * 1e3;
        let name = path.display();
        match outcome {
            Ok(c) => {
                let (before, after) = (c.bytes_before, c.update.len());
                let count = updates.len();
                let alone = rebuild_ms(&updates);
                println!(
                    "{name}: {count} updates, {before} -> {after} bytes in {took:.1} ms \
                     (yrs alone: {alone:.1} ms)"
                );
                let mut log = 1u32.to_le_bytes().to_vec();
                log.extend((after as u32).to_le_bytes());
                log.extend(c.update);
                std::fs::write(path.with_extension("compacted.log"), log)?;
            }
            Err(left) => println!("{name}: left alone: {left}"),
        }
    }
    Ok(())
}

fn rebuild_ms(updates: &[&[u8]]) -> f64 {
    let started = Instant::now();
    let doc = Doc::new();
    for update in updates {
        if let Ok(update) = Update::decode_v1(update) {
            // What yrs refuses is of no interest for its time.
            let _ = doc.transact_mut().apply_update(update);
        }
    }
    doc.transact().encode_state_as_update_v1(&StateVector::default());
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
