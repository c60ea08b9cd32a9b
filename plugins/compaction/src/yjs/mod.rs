//! Yjs documents: many V1 updates become one that says the same.
//!
//! Decides: whether a document can be compacted without changing one bit, and if not, why
//! it is left alone. Knows nothing of rows, tenants or stores.

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

/// What compacts: kept with the history of every compaction.
pub const LIBRARY: &str = "yrs 0.28.1";

/// The modes that exist for Yjs documents.
pub const MODES: &[Mode] = &[Mode::Merge, Mode::Reset];

/// Compacts the updates of a document, in the order of their rows, into one that says the
/// same, verified by a reader that is independent of yrs.
///
/// # Errors
/// The document is to be left as it is, with the reason.
pub fn compact(job: &Job<'_>) -> Result<Compacted, LeftAlone> {
    let merged = merge::merge(job)?;
    Ok(match job.wish {
        Wish::Merge => merged.compacted(None),
        Wish::Reset => match reset::reset(&merged) {
            Ok(reset) => reset,
            Err(unfit) => merged.compacted(Some(unfit.to_string())),
        },
        Wish::Trim(_) => {
            merged.compacted(Some("no-trim: the history of Yjs documents has no past".into()))
        }
    })
}

/// Whether `after` says the same as the updates that it was made of, read by the same
/// independent reader.
///
/// # Errors
/// Where they differ, or why one of them cannot be read.
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
