//! Loro documents: many updates and snapshots become one equivalent snapshot.
//!
//! Decides whether a document can be compacted without changing a bit of its content, how much of
//! its history has to stay, and if it cannot, why it is left alone. Knows no rows, tenants or
//! stores.
//!
//! Loro writes the same document in different bytes each time, so the content is compared
//! ([`digest`]), not the bytes. JSON is not used, because it has no -0 and no NaN.

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

/// The library that compacts, recorded in the history of every compaction.
pub const LIBRARY: &str = "loro 1.17.1";

/// The modes of Loro documents.
pub const MODES: &[Mode] = &[Mode::Merge, Mode::Trim];

/// Compacts the updates of a document, in any order, into one equivalent snapshot. Its history
/// stays whole ([`Mode::Merge`]) or begins at a version that every attached client has
/// ([`Mode::Trim`]).
///
/// # Errors
/// The reason why the document has to be left unchanged.
pub fn compact(job: &Job<'_>) -> Result<Compacted, LeftAlone> {
    match job.wish {
        Wish::Merge => merge::merge(job.updates),
        Wish::Trim(vectors) => trim::trim(job.updates, vectors),
        Wish::Reset => Err(LeftAlone::unknown_mode("Loro", Mode::Reset)),
    }
}

/// Checks that `after` is equivalent to its source updates, by rebuilding both from
/// nothing.
///
/// # Errors
/// The difference, or the reason why one of them cannot be read.
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
/// The reason why the updates are not a document.
pub fn needed(updates: &[&[u8]]) -> Result<[usize; 2], LeftAlone> {
    let facts = rows::check(updates)?;
    let history = rebuild::history(updates, &facts)?;
    let census = census::Census::of(&history);
    Ok([memory::of_history(&facts), memory::of_state(&facts, &census)])
}
