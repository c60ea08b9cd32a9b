//! Yjs documents: many V1 updates become one equivalent update.
//!
//! Decides whether a document can be compacted without changing a bit of its content, and if not,
//! why it is left alone. Knows no rows, tenants or stores.

pub mod compare;
pub mod content;
pub mod digest;
pub mod fragment;
pub mod home;
pub mod integration;
pub mod json;
pub mod layout;
mod library;
mod memory;
mod merge;
pub mod model;
pub mod names;
pub mod outline;
pub mod ranges;
pub mod reader;
mod reset;
mod splice;
mod stand_in;
mod tally;
pub mod union;
pub mod wire;
pub mod writer;

use crate::outcome::{Compacted, Digests, Job, LeftAlone, Mode, Wish};

/// The library that compacts, recorded in the history of every compaction.
pub const LIBRARY: &str = "yrs 0.28.1";

/// The modes of Yjs documents. A trim is not possible.
pub const MODES: &[Mode] = &[Mode::Merge, Mode::Reset];

/// Compacts the updates of a document, in the order of their rows, into one equivalent update,
/// verified by a reader that is independent of yrs.
///
/// # Errors
/// The reason why the document has to be left unchanged.
pub fn compact(job: &Job<'_>) -> Result<Compacted, LeftAlone> {
    let merged = merge::merge(job)?;
    Ok(match job.wish {
        Wish::Merge => merged.compacted(None),
        Wish::Reset => match reset::reset(&merged) {
            Ok(reset) => reset,
            Err(unfit) => merged.compacted(Some(unfit.to_string())),
        },
        Wish::Trim(_) => merged.compacted(Some("no-trim: Yjs documents cannot be trimmed".into())),
    })
}

/// Checks that `after` is equivalent to its source updates, with the same independent reader.
///
/// # Errors
/// The difference, or the reason why one of them cannot be read.
pub fn verify(updates: &[&[u8]], after: &[u8], mode: Mode) -> Result<Digests, LeftAlone> {
    match mode {
        Mode::Merge => merge::verify(updates, after),
        Mode::Reset => reset::verify(updates, after),
        Mode::Trim => Err(LeftAlone::unknown_mode("Yjs", mode)),
    }
}

/// The bytes of memory that these updates need at most in that mode.
///
/// # Errors
/// An update that is not well formed.
pub fn needed(updates: &[&[u8]], mode: Mode) -> Result<usize, LeftAlone> {
    let facts = tally::tally(updates)?;
    Ok(match mode {
        Mode::Merge | Mode::Trim => memory::needed(&facts),
        Mode::Reset => memory::needed(&facts).saturating_add(memory::needed_for_reset(&facts)),
    })
}
