//! Loro documents: many updates and snapshots become one snapshot that says the same.
//!
//! Decides: whether a document can be compacted without changing one bit, how much of its
//! history has to stay, and if it cannot, why it is left alone. Knows nothing of rows,
//! tenants or stores.
//!
//! Loro writes the same document in different bytes each time, so nothing here compares
//! bytes: what is compared is what a document says ([`digest`]). Nor does anything go through
//! JSON, which knows no -0 and no NaN.

mod canon;
mod census;
mod digest;
mod heads;
mod history;
mod memory;
mod merge;
mod places;
mod rebuild;
mod reused;
mod rows;
mod state;
mod trim;
mod vectors;

use crate::outcome::{Compacted, Digests, Job, LeftAlone, Mode, Wish};

/// What compacts: kept with the history of every compaction.
pub const LIBRARY: &str = "loro 1.17.1";

/// The modes that exist for Loro documents.
pub const MODES: &[Mode] = &[Mode::Merge, Mode::Trim];

/// Compacts the updates of a document, in any order, into one snapshot that says the same.
/// Its history stays whole ([`Mode::Merge`]) or begins where every attached client has
/// arrived ([`Mode::Trim`]).
///
/// # Errors
/// The document is to be left as it is, with the reason.
pub fn compact(job: &Job<'_>) -> Result<Compacted, LeftAlone> {
    match job.wish {
        Wish::Merge => merge::merge(job.updates),
        Wish::Trim(vectors) => trim::trim(job.updates, vectors),
        Wish::Reset => Err(LeftAlone::unknown_mode("Loro", Mode::Reset)),
    }
}

/// Whether `after` says the same as the updates that it was made of: both are rebuilt from
/// nothing.
///
/// # Errors
/// Where they differ, or why one of them cannot be read.
pub fn verify(updates: &[&[u8]], after: &[u8], mode: Mode) -> Result<Digests, LeftAlone> {
    match mode {
        Mode::Merge => merge::verify(updates, after),
        Mode::Trim => trim::verify(updates, after),
        Mode::Reset => Err(LeftAlone::unknown_mode("Loro", mode)),
    }
}

/// The bytes of memory that these updates need at most: for their history alone, and for the
/// whole document.
///
/// # Errors
/// Updates that make no document.
pub fn needed(updates: &[&[u8]]) -> Result<[usize; 2], LeftAlone> {
    let facts = rows::check(updates)?;
    let history = rebuild::history(updates, &facts)?;
    let census = census::Census::of(&history);
    Ok([memory::of_history(&facts), memory::of_state(&facts, &census)])
}
