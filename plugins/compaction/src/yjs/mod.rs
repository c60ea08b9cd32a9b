//! Yjs documents: many V1 updates become one that says the same.
//!
//! Decides: whether a document can be compacted without changing one bit, and if not, why
//! it is left alone. Knows nothing of rows, tenants or stores.

pub mod compare;
pub mod content;
pub mod digest;
pub mod home;
mod merge;
pub mod model;
pub mod names;
pub mod ranges;
pub mod reader;
mod splice;
pub mod union;
pub mod wire;
pub mod writer;

use std::fmt;

/// What compacts: kept with the history of every compaction.
pub const LIBRARY: &str = "yrs 0.28.1";

/// The most bytes of updates taken on by default.
///
/// Beside the rows themselves a compaction holds what does not join into runs, in three
/// models and in yrs. Typing joins: 260,000 updates of 6.3 MB peak at 13 MB with the log.
/// At worst nothing joins, and an update of 20 bytes costs about 500: this many bytes of
/// such updates fit into the 512 MiB that a guest has by default.
pub const BYTES_MAX_DEFAULT: usize = 16 * 1024 * 1024;

/// What becomes of deleted content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepDeleted {
    /// It is kept where the updates show that their writer keeps it: an update that
    /// carries content together with its deletion. A writer that collects garbage sends
    /// no content that it has deleted in the same transaction.
    #[default]
    Detect,
    /// It is kept (documents with `gc: false`: version history by snapshots).
    Always,
    /// It is collected.
    Never,
}

/// How to compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What becomes of deleted content.
    pub keep_deleted: KeepDeleted,
    /// The most bytes of updates.
    pub bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keep_deleted: KeepDeleted::Detect, bytes_max: BYTES_MAX_DEFAULT }
    }
}

/// A verified compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The one update, V1.
    pub update: Vec<u8>,
    /// SHA-256 of the document, equal before and after ([`digest::digest`]).
    pub digest: String,
    /// Bytes of the updates before.
    pub bytes_before: usize,
    /// Whether yrs alone would have changed the bytes of a value.
    pub spliced: bool,
    /// Whether deleted content was kept.
    pub keep_deleted: bool,
}

/// Why a document is left alone; the words are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A row is no well-formed V1 update.
    Undecodable,
    /// A client's clocks have a hole.
    Hole,
    /// A change depends on one that is not there.
    MissingDependency,
    /// A client id was used for two different changes.
    Conflict,
    /// Half of a surrogate pair was deleted or moved.
    SplitPair,
    /// yrs cannot read or apply what Yjs wrote.
    Unsupported,
    /// The compacted document would differ.
    Changed,
    /// More bytes than the limit.
    TooLarge,
}

impl Code {
    /// Every code.
    pub const ALL: [Code; 8] = [
        Code::Undecodable,
        Code::Hole,
        Code::MissingDependency,
        Code::Conflict,
        Code::SplitPair,
        Code::Unsupported,
        Code::Changed,
        Code::TooLarge,
    ];

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Code::Undecodable => "undecodable",
            Code::Hole => "hole",
            Code::MissingDependency => "missing-dependency",
            Code::Conflict => "conflict",
            Code::SplitPair => "split-pair",
            Code::Unsupported => "unsupported",
            Code::Changed => "changed",
            Code::TooLarge => "too-large",
        }
    }

    /// Whether the log itself is broken, so that somebody should look at it. The others
    /// are whole documents that compaction does not dare to touch.
    pub fn is_broken_log(self) -> bool {
        match self {
            Code::Undecodable | Code::Hole | Code::MissingDependency => true,
            Code::Conflict
            | Code::SplitPair
            | Code::Unsupported
            | Code::Changed
            | Code::TooLarge => false,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A document that is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// Why, as a stable word.
    pub code: Code,
    /// Why, for a person, with the place.
    pub words: String,
    /// The index of the update at fault, where one alone is.
    pub update: Option<usize>,
}

impl LeftAlone {
    fn new(code: Code, words: impl Into<String>) -> Self {
        Self { code, words: words.into(), update: None }
    }
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.words)
    }
}

impl std::error::Error for LeftAlone {}

/// Compacts the updates of a document, in the order of their rows, into one that says the
/// same, verified by a reader that is independent of yrs.
///
/// # Errors
/// The document is to be left as it is, with the reason.
pub fn compact(updates: &[&[u8]]) -> Result<Compacted, LeftAlone> {
    merge::merge(updates, &Settings::default())
}

/// [`compact`] with other than the default settings.
///
/// # Errors
/// The document is to be left as it is, with the reason.
pub fn compact_with(updates: &[&[u8]], settings: &Settings) -> Result<Compacted, LeftAlone> {
    merge::merge(updates, settings)
}
