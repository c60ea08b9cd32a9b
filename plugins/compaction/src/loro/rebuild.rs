//! Builds a document from its rows.
//!
//! Decides that no change is missing, and names a row that depends on a missing one.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loro::{LoroDoc, PeerID, VersionVector};

use super::memory;
use super::reused;
use super::rows::{self, Facts};
use crate::outcome::{Code, LeftAlone};

/// The identity of documents that are only read. They make no change, so no change contains it.
const READER: u64 = 1;

/// Runs a call of Loro, which receives only well-formed rows but may still panic. Natively the
/// panic becomes a reason here; in a guest it ends the batch.
pub fn guarded<T>(work: impl FnOnce() -> Result<T, LeftAlone>) -> Result<T, LeftAlone> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(LeftAlone::new(Code::Unsupported, "Loro panicked")))
}

/// Builds the document of rows that were checked.
pub fn build(updates: &[&[u8]], facts: &Facts) -> Result<LoroDoc, LeftAlone> {
    let doc = ordered(updates, facts)?;
    reused::check(&doc, updates, facts)?;
    Ok(doc)
}

fn ordered(updates: &[&[u8]], facts: &Facts) -> Result<LoroDoc, LeftAlone> {
    let snapshots = facts.snapshots.iter().copied();
    let whole = |order: &mut dyn Iterator<Item = usize>| {
        let doc = import(updates, facts, order)?;
        memory::room_for_state(&doc, facts)?;
        applied(doc, updates)
    };
    if facts.reaches_behind {
        // A shallow snapshot in an empty document would cut off what the others still hold;
        // among them it is but changes. Where they do not hold everything, it has to be first.
        if let Ok(doc) = whole(&mut facts.others().chain(snapshots.clone())) {
            return Ok(doc);
        }
    }
    whole(&mut snapshots.chain(facts.others()))
}

/// The history of the rows in that order.
///
/// The first goes into an empty document, which takes the state of a snapshot as it stands, and
/// applies changes more cheaply than later. The others are collected without being applied:
/// that is what `import_batch` does as well, which would decode every row twice and ask for
/// copies.
fn import(
    updates: &[&[u8]],
    facts: &Facts,
    order: &mut dyn Iterator<Item = usize>,
) -> Result<LoroDoc, LeftAlone> {
    let doc = empty()?;
    for (nth, row) in order.enumerate() {
        if nth == 0 && !facts.is_snapshot(row) {
            let first = rows::check(&updates[row..=row])?;
            if !memory::is_small(&first) {
                memory::room_for_state(&history(&updates[row..=row], &first)?, &first)?;
            }
        }
        doc.import(updates[row]).map_err(|error| rows::refused(&error).at(row))?;
        doc.detach();
    }
    Ok(doc)
}

/// A document with the history of the rows, whose state is not to be looked at.
pub fn history(updates: &[&[u8]], facts: &Facts) -> Result<LoroDoc, LeftAlone> {
    let doc = empty()?;
    for row in facts.snapshots.iter().copied().chain(facts.others()) {
        if !facts.is_snapshot(row) {
            doc.detach();
        }
        doc.import(updates[row]).map_err(|error| rows::refused(&error).at(row))?;
    }
    Ok(doc)
}

/// The document, everything applied at once, nothing missing.
fn applied(doc: LoroDoc, updates: &[&[u8]]) -> Result<LoroDoc, LeftAlone> {
    doc.checkout_to_latest();
    if doc.state_frontiers() != doc.oplog_frontiers() {
        let words = "Loro has not applied all changes that it imported";
        return Err(LeftAlone::new(Code::Unsupported, words));
    }
    match doc.export_pending_updates() {
        Ok(None) => Ok(doc),
        Ok(Some(_)) => Err(missing(&doc.oplog_vv(), updates)),
        Err(error) => Err(LeftAlone::new(Code::Unsupported, error.to_string())),
    }
}

/// The document that a client builds when it loads this one payload.
pub fn loaded(payload: &[u8]) -> Result<LoroDoc, LeftAlone> {
    let doc = empty()?;
    let changed = |words: String| LeftAlone::new(Code::Changed, words);
    rows::meta(payload).map_err(|left| changed(left.words))?;
    let status = doc.import(payload).map_err(|error| changed(rows::refused(&error).words))?;
    if status.pending.is_some() {
        return Err(changed("the compacted update lacks a change".into()));
    }
    Ok(doc)
}

fn empty() -> Result<LoroDoc, LeftAlone> {
    let doc = LoroDoc::new();
    doc.set_peer_id(READER).map_err(|error| rows::refused(&error))?;
    Ok(doc)
}

/// Names the first row that depends on a missing change, and that change.
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
    LeftAlone::new(Code::MissingDependency, "a change depends on a missing one")
}
