//! A document built from its rows.
//!
//! Decides: that nothing is missing. What waits for something that no row holds is named.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loro::{LoroDoc, PeerID, VersionVector};

use super::reused;
use super::rows::{self, Facts};
use crate::outcome::{Code, LeftAlone};

/// The identity of documents that are only read. They make no change of their own, so it
/// stands in none.
const READER: u64 = 1;

/// Runs what asks Loro, which is given nothing but well-formed rows but may panic all the
/// same: natively that is a reason here; within a guest a panic ends the batch.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, LeftAlone>) -> Result<T, LeftAlone> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(LeftAlone::new(Code::Unsupported, "Loro panicked")))
}

/// The document of rows that were checked.
pub fn build(updates: &[&[u8]], facts: &Facts) -> Result<LoroDoc, LeftAlone> {
    let doc = ordered(updates, facts)?;
    reused::check(&doc, updates, facts)?;
    Ok(doc)
}

fn ordered(updates: &[&[u8]], facts: &Facts) -> Result<LoroDoc, LeftAlone> {
    let mut is_snapshot = vec![false; updates.len()];
    for row in &facts.snapshots {
        is_snapshot[*row] = true;
    }
    let others = (0..updates.len()).filter(|row| !is_snapshot[*row]);
    if facts.reaches_behind {
        // A shallow snapshot in an empty document would cut off what the others still hold;
        // among them it is but changes. Where they do not hold everything, it has to be first.
        let last = others.clone().chain(facts.snapshots.iter().copied());
        if let Ok(doc) = import(updates, last) {
            return Ok(doc);
        }
    }
    import(updates, facts.snapshots.iter().copied().chain(others))
}

/// The document of the rows in that order.
///
/// The first goes into an empty document, which takes the state of a snapshot as it stands.
/// The others are collected without being applied, and applied at once: that is what
/// `import_batch` does as well, which would decode every row twice and ask for copies.
fn import(updates: &[&[u8]], order: impl Iterator<Item = usize>) -> Result<LoroDoc, LeftAlone> {
    let doc = empty()?;
    for row in order {
        doc.import(updates[row]).map_err(|error| rows::refused(&error).at(row))?;
        doc.detach();
    }
    doc.checkout_to_latest();
    if doc.state_frontiers() != doc.oplog_frontiers() {
        let words = "Loro has not applied everything that it took";
        return Err(LeftAlone::new(Code::Unsupported, words));
    }
    match doc.export_pending_updates() {
        Ok(None) => Ok(doc),
        Ok(Some(_)) => Err(missing(&doc.oplog_vv(), updates)),
        Err(error) => Err(LeftAlone::new(Code::Unsupported, error.to_string())),
    }
}

/// The document that one payload builds, as whoever loads it has it.
pub fn loaded(payload: &[u8]) -> Result<LoroDoc, LeftAlone> {
    let doc = empty()?;
    let changed = |words: String| LeftAlone::new(Code::Changed, words);
    rows::meta(payload).map_err(|left| changed(left.words))?;
    let status = doc.import(payload).map_err(|error| changed(rows::refused(&error).words))?;
    if status.pending.is_some() {
        return Err(changed("something is missing in what was written".into()));
    }
    Ok(doc)
}

fn empty() -> Result<LoroDoc, LeftAlone> {
    let doc = LoroDoc::new();
    doc.set_peer_id(READER).map_err(|error| rows::refused(&error))?;
    Ok(doc)
}

/// Names the first row that waits, and what for.
fn missing(have: &VersionVector, updates: &[&[u8]]) -> LeftAlone {
    let has = |peer: &PeerID| have.get(peer).copied().unwrap_or(0);
    for (row, update) in updates.iter().enumerate() {
        let Ok(meta) = rows::meta(update) else { continue };
        let starts = meta.partial_start_vv.iter().filter(|(_, start)| **start > 0);
        let before = starts.map(|(peer, start)| (*peer, *start - 1));
        let deps = meta.start_frontiers.iter().map(|id| (id.peer, id.counter));
        let lacking = before.chain(deps).filter(|(peer, counter)| has(peer) <= *counter).min();
        // A hole within the row, or behind another row that waits.
        let ends = meta.partial_end_vv.iter().filter(|(peer, end)| has(peer) < **end);
        let lacking = lacking.or_else(|| ends.map(|(peer, _)| (*peer, has(peer))).min());
        if let Some((peer, counter)) = lacking {
            let words = format!(
                "update {row} depends on peer {peer}, counter {counter}, which is missing: \
                 of that peer there are {} operations",
                has(&peer)
            );
            return LeftAlone::new(Code::MissingDependency, words).at(row);
        }
    }
    LeftAlone::new(Code::MissingDependency, "something waits for a change that is missing")
}
