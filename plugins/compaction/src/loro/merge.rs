//! Compaction in merge mode: all rows become one snapshot with the whole history.
//!
//! Decides the order of the steps, and verifies every result.
//!
//! ```text
//! rows ──checksums──> facts ──room?──> document ──digest───────────────┐
//!                                        └──> snapshot ──> document ──digest──> the same?
//! ```

use loro::{ExportMode, LoroDoc};

use super::digest::{self, Start};
use super::rebuild::{self, guarded};
use super::rows::Facts;
use super::{memory, rows};
use crate::outcome::{Code, Compacted, Digests, LeftAlone, Mode, Remark, Said};

/// The subject of most comparisons, for reasons.
pub const DOCUMENT: &str = "the document";

/// Compacts a document. See [`super::compact`].
pub fn merge(updates: &[&[u8]]) -> Result<Compacted, LeftAlone> {
    guarded(|| {
        let facts = facts(updates)?;
        merged(&rebuild::build(updates, &facts)?, &facts)
    })
}

/// The facts of the rows, after checking that memory suffices.
pub fn facts(updates: &[&[u8]]) -> Result<Facts, LeftAlone> {
    memory::room_for_rows(updates)?;
    let facts = rows::check(updates)?;
    memory::room_for_history(&facts)?;
    Ok(facts)
}

/// The snapshot of a document that was built from its rows, verified.
pub fn merged(doc: &LoroDoc, facts: &Facts) -> Result<Compacted, LeftAlone> {
    let start = Start::of(doc);
    let before = digest::digest(doc, &start)?;
    let update = export(doc, ExportMode::Snapshot)?;
    let after = rebuild::loaded(&update)?;
    if Start::of(&after) != start {
        return Err(LeftAlone::new(Code::Changed, "the history would begin at another version"));
    }
    let after = digest::digest(&after, &start)?;
    let digests = same(DOCUMENT, before, after)?;
    Ok(Compacted {
        update,
        mode: Mode::Merge,
        merged_because: None,
        digests,
        bytes_before: facts.bytes,
        remarks: remarks(doc, &start),
    })
}

/// Checks that `after` is equivalent to the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    guarded(|| {
        let before = rebuild::build(updates, &facts(updates)?)?;
        let after = rebuild::loaded(after)?;
        let start = Start::of(&before);
        if Start::of(&after) != start {
            return Err(LeftAlone::new(Code::Changed, "the history begins at another version"));
        }
        same(DOCUMENT, digest::digest(&before, &start)?, digest::digest(&after, &start)?)
    })
}

/// Exports the document.
pub fn export(doc: &LoroDoc, mode: ExportMode<'_>) -> Result<Vec<u8>, LeftAlone> {
    doc.export(mode).map_err(|error| {
        LeftAlone::new(Code::Unsupported, format!("Loro cannot write the document: {error}"))
    })
}

/// Checks that the digests of `what` are equal.
pub fn same(what: &str, before: String, after: String) -> Result<Digests, LeftAlone> {
    if before == after {
        return Ok(Digests { before, after });
    }
    let words = format!("the digests of {what} differ: {before} and {after}");
    Err(LeftAlone::new(Code::Changed, words))
}

/// The notes for the history about a document whose history begins at `start`.
pub fn remarks(doc: &LoroDoc, start: &Start) -> Vec<Remark> {
    let count = |name, count: usize| Remark { name, said: Said::Count(count as u64) };
    let mut remarks = vec![
        count("peers", doc.oplog_vv().len()),
        count("changes", doc.len_changes()),
        count("ops", doc.len_ops()),
    ];
    if !start.is_whole() {
        let words = Said::Words(digest::start_words(start));
        remarks.push(Remark { name: "shallow_start", said: words });
    }
    remarks
}
