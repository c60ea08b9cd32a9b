//! The request to a format and its result, with the same terms for all formats.
//!
//! Decides nothing and knows no rows, tenants or stores: a document is its updates, in
//! the order of their rows.

use std::fmt;

/// How much of a document's history a compaction keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Keeps identities: attached clients continue, and offline edits still merge.
    Merge,
    /// Turns the history into one initial change with new identities. The product has to reject
    /// clients with the former ones by the document's epoch.
    Reset,
    /// Removes history that every attached client has seen; keeps later identities.
    Trim,
}

impl Mode {
    /// The word in settings and in the history.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Merge => "merge",
            Mode::Reset => "reset",
            Mode::Trim => "trim",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The requested mode with its input. A format falls back to a merge, with a reason
/// ([`Compacted::merged_because`]), if the document does not permit the requested mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// [`Mode::Merge`].
    Merge,
    /// [`Mode::Reset`]: no client is attached, and the commit increments the epoch.
    Reset,
    /// [`Mode::Trim`] of history that each of these version vectors includes, in the encoding
    /// of the format's own library. Empty: no client is attached.
    Trim(&'a [&'a [u8]]),
}

impl Wish<'_> {
    /// The requested mode.
    pub fn mode(self) -> Mode {
        match self {
            Wish::Merge => Mode::Merge,
            Wish::Reset => Mode::Reset,
            Wish::Trim(_) => Mode::Trim,
        }
    }
}

/// A document to be compacted.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The updates of the document, in the order of their rows.
    pub updates: &'a [&'a [u8]],
    /// The requested mode.
    pub wish: Wish<'a>,
    /// The settings of the task.
    pub settings: &'a Settings,
}

impl<'a> Job<'a> {
    /// A merge of these updates, with the default settings.
    pub fn merge(updates: &'a [&'a [u8]]) -> Job<'a> {
        const DEFAULTS: Settings =
            Settings { keep_deleted: KeepDeleted::Always, bytes_max: BYTES_MAX_DEFAULT };
        Job { updates, wish: Wish::Merge, settings: &DEFAULTS }
    }

    /// The bytes of all updates.
    pub fn bytes(&self) -> usize {
        self.updates.iter().map(|update| update.len()).sum()
    }
}

/// The default limit on bytes of updates: twice those of the longest public editing trace in the
/// most verbose format. Every format also rejects a document by its estimated memory.
pub const BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// The treatment of deleted content in Yjs documents. The other formats keep their history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepDeleted {
    /// Keep it if an update carries content together with its deletion, which shows that the
    /// writer keeps it: a writer that collects garbage does not send content that it deleted
    /// in the same transaction.
    Detect,
    /// Keep it (documents with `gc: false`: version history by snapshots).
    #[default]
    Always,
    /// Collect it.
    Never,
}

/// The settings of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The treatment of deleted content of Yjs documents.
    pub keep_deleted: KeepDeleted,
    /// The limit on bytes of updates.
    pub bytes_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self { keep_deleted: KeepDeleted::default(), bytes_max: BYTES_MAX_DEFAULT }
    }
}

/// A verified compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compacted {
    /// The one equivalent update.
    pub update: Vec<u8>,
    /// The mode that was applied.
    pub mode: Mode,
    /// Why the document was merged although another mode was requested.
    pub merged_because: Option<String>,
    /// The digests of the document before and after.
    pub digests: Digests,
    /// The bytes of the source updates.
    pub bytes_before: usize,
    /// Further notes for the history.
    pub remarks: Vec<Remark>,
}

impl Compacted {
    /// The value of the remark with this name.
    pub fn remark(&self, name: &str) -> Option<&Said> {
        self.remarks.iter().find(|remark| remark.name == name).map(|remark| &remark.said)
    }
}

/// The SHA-256 of a document's content before and after, in hexadecimal. Each format and mode
/// defines what it covers. Both are equal, or the document was left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// The digest of the source updates.
    pub before: String,
    /// The digest of the compacted update.
    pub after: String,
}

/// A note for the history of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// The name of the note.
    pub name: &'static str,
    /// The value of the note.
    pub said: Said,
}

/// The value of a remark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// A Boolean.
    Flag(bool),
    /// A count or a number of bytes.
    Count(u64),
    /// Text for operators.
    Words(String),
}

/// Why a document is left alone. The words of [`Code::as_str`] are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A row is not a well-formed update.
    Undecodable,
    /// A client's clocks have a hole.
    Hole,
    /// A change depends on one that is missing.
    MissingDependency,
    /// A client id was used for two different changes.
    Conflict,
    /// Half of a surrogate pair would have to be written.
    SplitPair,
    /// The library cannot read or apply the updates.
    Unsupported,
    /// The compacted document would differ.
    Changed,
    /// The document exceeds the limit on bytes, or needs more memory than is available.
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

    /// Whether the log itself is broken and needs a person. With any other code, the document is
    /// intact and compaction cannot rewrite it safely.
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

/// The reason why a document is left unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftAlone {
    /// The reason as a stable word.
    pub code: Code,
    /// The reason for operators, with the place.
    pub words: String,
    /// The index of the update that causes it, if it is a single one.
    pub update: Option<usize>,
}

impl LeftAlone {
    /// A reason without an update.
    pub fn new(code: Code, words: impl Into<String>) -> Self {
        Self { code, words: words.into(), update: None }
    }

    /// The reason for a mode that the format does not have.
    pub fn unknown_mode(format: &str, mode: Mode) -> Self {
        Self::new(Code::Unsupported, format!("{format} documents have no mode {mode}"))
    }

    /// Adds the index of the update that causes it.
    pub fn at(self, update: usize) -> Self {
        Self { update: Some(update), ..self }
    }
}

impl fmt::Display for LeftAlone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.words)
    }
}

impl std::error::Error for LeftAlone {}
