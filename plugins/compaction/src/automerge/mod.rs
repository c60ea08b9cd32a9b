//! Automerge documents: many changes become one equivalent chunk.
//!
//! Decides whether a document can be compacted without losing anything, and if not, why it is
//! left alone. Knows no rows, tenants or stores.
//!
//! ```text
//! rows ──chunk──> heads of chunks ──history──> order, heads, hashes ──memory──> room?
//!                                                    └──replay (automerge)──> document ──content──> digest
//! merge: document ──save──> chunk ──load──> document again ──content──> the same digest?
//! reset: document ──live──> living operations ──rebuild──> one change ──content──> the same?
//! ```

mod chunk;
mod columns;
mod content;
mod history;
mod live;
mod memory;
mod merge;
mod probe;
mod rebuild;
mod replay;
mod reset;
mod sequence;
mod wire;

pub use memory::{Need, need};

use crate::outcome::{Compacted, Digests, Job, LeftAlone, Mode, Wish};

/// The library that compacts, recorded in the history of every compaction.
pub const LIBRARY: &str = "automerge 0.12.0";

/// The modes of Automerge documents. A trim is not possible.
pub const MODES: &[Mode] = &[Mode::Merge, Mode::Reset];

/// Compacts the updates of a document, in the order of their rows, into one equivalent update.
///
/// An update is one or more chunks: changes, deflated or not, and documents of former
/// compactions. A reset falls back to a merge if it would lose anything but history.
///
/// # Errors
/// The reason why the document has to be left unchanged.
pub fn compact(job: &Job<'_>) -> Result<Compacted, LeftAlone> {
    match job.wish {
        Wish::Merge => merge::merge(job.updates),
        Wish::Reset => reset::reset(job.updates),
        Wish::Trim(_) => Err(LeftAlone::unknown_mode("Automerge", Mode::Trim)),
    }
}

/// Checks that `after` is equivalent to its source updates, by rebuilding both.
///
/// # Errors
/// The difference, or the reason why one of them cannot be read.
pub fn verify(updates: &[&[u8]], after: &[u8], mode: Mode) -> Result<Digests, LeftAlone> {
    match mode {
        Mode::Merge => merge::verify(updates, after),
        Mode::Reset => reset::verify(updates, after),
        Mode::Trim => Err(LeftAlone::unknown_mode("Automerge", mode)),
    }
}
