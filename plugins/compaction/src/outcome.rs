//! What a format is asked for, and what it answers: the same words for every format.
//!
//! Decides nothing. Knows nothing of rows, tenants or stores: a document is its updates, in
//! the order of their rows.

use std::fmt;

/// How much of a document's history stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Identities stay: attached clients go on, and offline edits still merge.
    Merge,
    /// The history becomes one initial change under fresh identities: whoever still has the
    /// former ones has to be refused by the document's epoch.
    Reset,
    /// The history that every attached client has seen goes; identities behind it stay.
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

/// What is wanted of a compaction. A merge is always allowed: it is what a format falls back
/// to, with a reason ([`Compacted::merged_because`]), where the document does not permit more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish<'a> {
    /// [`Mode::Merge`].
    Merge,
    /// [`Mode::Reset`]: nobody is attached, and the epoch will be a new one.
    Reset,
    /// [`Mode::Trim`], not beyond what each of these version vectors includes, in the encoding
    /// of the format's own library. Empty: nobody is attached.
    Trim(&'a [&'a [u8]]),
}

impl Wish<'_> {
    /// The mode that is wanted.
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
    /// Its updates.
    pub updates: &'a [&'a [u8]],
    /// What is wanted.
    pub wish: Wish<'a>,
    /// How.
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

/// The most bytes of updates taken on by default: twice those of the longest public editing
/// trace in the most verbose format. Every format refuses by the memory that it will need as
/// well.
pub const BYTES_MAX_DEFAULT: usize = 64 * 1024 * 1024;

/// What becomes of deleted content in a Yjs document. The other formats keep their history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeepDeleted {
    /// It is kept where the updates show that their writer keeps it: an update that
    /// carries content together with its deletion. A writer that collects garbage sends
    /// no content that it has deleted in the same transaction.
    Detect,
    /// It is kept (documents with `gc: false`: version history by snapshots).
    #[default]
    Always,
    /// It is collected.
    Never,
}

/// How to compact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// What becomes of deleted content of Yjs documents.
    pub keep_deleted: KeepDeleted,
    /// The most bytes of updates.
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
    /// The one update that says the same.
    pub update: Vec<u8>,
    /// What was done.
    pub mode: Mode,
    /// Why it is a merge although another mode was wanted.
    pub merged_because: Option<String>,
    /// Of the document before and after.
    pub digests: Digests,
    /// Bytes of the updates before.
    pub bytes_before: usize,
    /// What else the history keeps of it.
    pub remarks: Vec<Remark>,
}

impl Compacted {
    /// The remark of that name.
    pub fn remark(&self, name: &str) -> Option<&Said> {
        self.remarks.iter().find(|remark| remark.name == name).map(|remark| &remark.said)
    }
}

/// SHA-256 of what a document says, in hexadecimal. Each format and mode has its own
/// definition of what is covered; the two are equal, or the document was left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digests {
    /// Before.
    pub before: String,
    /// After.
    pub after: String,
}

/// Something to be kept with the history of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remark {
    /// Under which name.
    pub name: &'static str,
    /// What.
    pub said: Said,
}

/// What a remark says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Yes or no.
    Flag(bool),
    /// A number of something.
    Count(u64),
    /// Words.
    Words(String),
}

/// Why a document is left alone; the words are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// A row is no well-formed update.
    Undecodable,
    /// A client's clocks have a hole.
    Hole,
    /// A change depends on one that is not there.
    MissingDependency,
    /// A client id was used for two different changes.
    Conflict,
    /// Half of a surrogate pair was deleted or moved.
    SplitPair,
    /// The library cannot read or apply what was written.
    Unsupported,
    /// The compacted document would differ.
    Changed,
    /// More bytes than the limit, or more memory than there is.
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
    /// For that reason.
    pub fn new(code: Code, words: impl Into<String>) -> Self {
        Self { code, words: words.into(), update: None }
    }

    /// A mode that does not exist for the format.
    pub fn unknown_mode(format: &str, mode: Mode) -> Self {
        Self::new(Code::Unsupported, format!("{format} documents have no mode {mode}"))
    }

    /// Because of that update.
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
