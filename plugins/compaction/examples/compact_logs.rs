//! Compacts update logs natively and says what became of each:
//! `cargo run -p besom-compaction --example compact_logs -- FILE.log...`
//!
//! Beside each log the one update is written as `NAME.compacted.log`.
#![allow(clippy::print_stdout)] // Its results are its output.

use std::path::Path;
use std::time::Instant;

use besom_compaction::yjs;

fn main() -> std::io::Result<()> {
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let bytes = std::fs::read(path)?;
        let updates = updates(&bytes).ok_or_else(|| std::io::Error::other("no update log"))?;
        let started = Instant::now();
        let outcome = yjs::compact(&updates);
        let took = started.elapsed().as_secs_f64() * 1e3;
        let name = path.display();
        match outcome {
            Ok(c) => {
                let (before, after) = (c.bytes_before, c.update.len());
                let count = updates.len();
                println!("{name}: {count} updates, {before} -> {after} bytes in {took:.1} ms");
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
