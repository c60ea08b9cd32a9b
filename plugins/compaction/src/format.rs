//! The formats of documents, and who compacts each.
//!
//! A format is one module with a `compact`; this is the one place that lists them.

use crate::yjs;

/// A format whose documents can be compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Yjs V1 updates.
    Yjs,
}

impl Format {
    /// Every format that can be compacted.
    pub const ALL: [Format; 1] = [Format::Yjs];

    /// The word in `documents.format`.
    pub fn as_str(self) -> &'static str {
        match self {
            Format::Yjs => "yjs",
        }
    }

    /// The format of that word; none for one that is not compacted.
    pub fn parse(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// The library that decides what is collected, with its version.
    pub fn library(self) -> &'static str {
        match self {
            Format::Yjs => yjs::LIBRARY,
        }
    }

    /// Compacts the payloads of a document's edits, in their order.
    ///
    /// # Errors
    /// The document is to be left as it is, with the reason.
    pub fn compact(
        self,
        payloads: &[&[u8]],
        settings: &yjs::Settings,
    ) -> Result<yjs::Compacted, yjs::LeftAlone> {
        match self {
            Format::Yjs => yjs::compact_with(payloads, settings),
        }
    }
}
