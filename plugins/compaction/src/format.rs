//! The formats of documents. A format is one module with a `compact` and a `verify`; only this
//! file lists them.

use crate::outcome::{Code, Compacted, Digests, Job, LeftAlone, Mode};
use crate::{automerge, loro, yjs};

/// A format whose documents can be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Yjs V1 updates.
    Yjs,
    /// Loro updates and snapshots.
    Loro,
    /// Automerge chunks.
    Automerge,
}

impl Format {
    /// Every format that can be compacted.
    pub const ALL: [Format; 3] = [Format::Yjs, Format::Loro, Format::Automerge];

    /// The word in `documents.format`.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Yjs => "yjs",
            Format::Loro => "loro",
            Format::Automerge => "automerge",
        }
    }

    /// The format with this word; none if it cannot be compacted.
    pub fn parse(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// The library that decides what is collected, with its version.
    pub fn library(self) -> &'static str {
        match self {
            Format::Yjs => yjs::LIBRARY,
            Format::Loro => loro::LIBRARY,
            Format::Automerge => automerge::LIBRARY,
        }
    }

    /// The modes of the format.
    pub fn modes(self) -> &'static [Mode] {
        match self {
            Format::Yjs => yjs::MODES,
            Format::Loro => loro::MODES,
            Format::Automerge => automerge::MODES,
        }
    }

    /// Compacts a document and verifies the result.
    ///
    /// # Errors
    /// The reason why the document has to be left unchanged.
    pub fn compact(self, job: &Job<'_>) -> Result<Compacted, LeftAlone> {
        if job.bytes() > job.settings.bytes_max {
            let words = format!(
                "{} bytes of updates exceed the limit of {}",
                job.bytes(),
                job.settings.bytes_max
            );
            return Err(LeftAlone::new(Code::TooLarge, words));
        }
        match self {
            Format::Yjs => yjs::compact(job),
            Format::Loro => loro::compact(job),
            Format::Automerge => automerge::compact(job),
        }
    }

    /// Checks that `after`, written by a compaction in this mode, is equivalent to its source
    /// updates, by rebuilding both independently.
    ///
    /// # Errors
    /// The difference, or the reason why one of them cannot be read.
    pub fn verify(self, updates: &[&[u8]], after: &[u8], mode: Mode) -> Result<Digests, LeftAlone> {
        match self {
            Format::Yjs => yjs::verify(updates, after, mode),
            Format::Loro => loro::verify(updates, after, mode),
            Format::Automerge => automerge::verify(updates, after, mode),
        }
    }
}
