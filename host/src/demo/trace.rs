//! Public editing traces: recorded typing, replayed through the real library.
//!
//! This module holds a trace and what can be wrong with one. [`read`] parses the file,
//! [`replay`] turns it into a Yjs update log and checks that the text comes out as the
//! trace says. Nothing here knows a store.
//!
//! Two kinds of traces exist. In a *sequential* one every transaction follows the one before.
//! In a *concurrent* one a transaction names its parents; the text before it is the merge of
//! theirs. Positions and lengths count Unicode characters in both.

mod position;
mod read;
mod replay;
mod replicas;
#[cfg(test)]
mod tests;
mod units;

use std::path::{Path, PathBuf};

use super::log::UpdateLog;

/// A trace file is refused when it holds more than this once it is unpacked, in bytes.
pub const TRACE_BYTES_MAX: u64 = 1 << 30;

/// An editing trace that is well formed: positions are not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Where it was read from, for messages.
    pub path: PathBuf,
    /// The text before the first transaction.
    pub start: String,
    /// The text that every replica has to end with.
    pub end: String,
    /// How the transactions follow each other.
    pub kind: Kind,
    /// The transactions; in a concurrent trace each after its parents.
    pub transactions: Vec<Transaction>,
}

/// How the transactions of a trace follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One after the other, by one author.
    Sequential,
    /// By that many agents, each transaction after its parents.
    Concurrent {
        /// How many agents take part.
        agents: u32,
    },
}

/// What one transaction changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The transactions it has seen last; empty in a sequential trace.
    pub parents: Vec<u32>,
    /// Who made it; 0 in a sequential trace.
    pub agent: u32,
    /// Applied in this order, each to the text the one before has left.
    pub patches: Vec<Patch>,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Where, in characters from the beginning.
    pub position: u32,
    /// How many characters are removed there.
    pub deleted: u32,
    /// What is inserted in their place.
    pub inserted: String,
}

/// A trace cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The gzip stream is damaged or ends too early.
    #[error("{}: the gzip stream is damaged or truncated ({source}); fetch the file again", path.display())]
    Gzip {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        source: std::io::Error,
    },
    /// The file holds too much.
    #[error("{}: more than {limit} bytes once unpacked; no trace is that large", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The bound, in bytes.
        limit: u64,
    },
    /// Not JSON, or not the shape of a trace.
    #[error("{}: no editing trace: {message}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column or the missing key.
        message: String,
    },
    /// A transaction that cannot be carried out.
    #[error("{}: transaction {number}: {message}", path.display())]
    Transaction {
        /// The file.
        path: PathBuf,
        /// Which one, counted from 0 as the parents are.
        number: usize,
        /// What is wrong.
        message: String,
    },
    /// The replayed text is not the one that the trace promises.
    #[error(
        "{}: the replayed text differs from endContent at character {at} \
         ({replayed} characters replayed, {expected} expected)",
        path.display()
    )]
    EndContent {
        /// The file.
        path: PathBuf,
        /// The first character that differs.
        at: usize,
        /// The length of the replayed text, in characters.
        replayed: usize,
        /// The length of `endContent`, in characters.
        expected: usize,
    },
}

/// Reads a trace, gzipped or not.
pub fn load(path: &Path) -> Result<Trace, Error> {
    read::load(path)
}

impl Trace {
    /// Replays the trace through yrs: one update per transaction that changes something.
    /// `progress` is told from time to time how many transactions are done, of how many.
    pub fn replay(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<UpdateLog, Error> {
        replay::replay(self, progress)
    }

    /// The file's name without `.json` and `.gz`: the name of the document.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        name.strip_suffix(".json").unwrap_or(name).to_owned()
    }

    fn refuse(&self, number: usize, message: impl Into<String>) -> Error {
        Error::Transaction { path: self.path.clone(), number, message: message.into() }
    }
}
