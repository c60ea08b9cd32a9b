//! Public editing traces: recorded typing, replayed through the real library.
//!
//! This module defines a trace and its possible errors. [`read`] parses the file; [`replay`] turns
//! it into a Yjs update log and checks that the resulting text is that of the trace. Nothing here
//! uses a store.
//!
//! There are two kinds of traces. In a *sequential* trace, every transaction follows the previous
//! one. In a *concurrent* trace, a transaction names its parents, and the text before it is the
//! merge of theirs. Positions and lengths count Unicode characters in both.

mod position;
mod read;
mod replay;
mod replicas;
#[cfg(test)]
mod tests;
mod units;

use std::path::{Path, PathBuf};

use super::log::UpdateLog;

/// Maximum size of a trace file after unpacking, in bytes.
pub const TRACE_BYTES_MAX: u64 = 1 << 30;

/// A well-formed editing trace. Its positions are not checked yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The path that it was read from, for messages.
    pub path: PathBuf,
    /// The text before the first transaction.
    pub start: String,
    /// The text with which every replica has to end.
    pub end: String,
    /// How the transactions follow each other.
    pub kind: Kind,
    /// The transactions; in a concurrent trace, each after its parents.
    pub transactions: Vec<Transaction>,
}

/// How the transactions of a trace follow each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One after the other, by one author.
    Sequential,
    /// By several agents, each transaction after its parents.
    Concurrent {
        /// Number of agents.
        agents: u32,
    },
}

/// The changes of one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transaction {
    /// The latest transactions that it has seen; empty in a sequential trace.
    pub parents: Vec<u32>,
    /// The agent that made it; 0 in a sequential trace.
    pub agent: u32,
    /// The replacements, in order; each applies to the text that the previous one has left.
    pub patches: Vec<Patch>,
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The position, in characters from the beginning.
    pub position: u32,
    /// Number of characters removed there.
    pub deleted: u32,
    /// The text inserted in their place.
    pub inserted: String,
}

/// Why a trace cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// The file concerned.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The gzip stream is damaged or truncated.
    #[error("{}: the gzip stream is damaged or truncated ({source}); fetch the file again", path.display())]
    Gzip {
        /// The file concerned.
        path: PathBuf,
        /// The error of the decoder.
        source: std::io::Error,
    },
    /// The file is too large.
    #[error("{}: unpacks to more than {limit} bytes, the maximum size of a trace", path.display())]
    TooLarge {
        /// The file concerned.
        path: PathBuf,
        /// The maximum size, in bytes.
        limit: u64,
    },
    /// Not JSON, or not the structure of a trace.
    #[error("{}: not a valid editing trace: {message}", path.display())]
    Format {
        /// The file concerned.
        path: PathBuf,
        /// What is wrong, with line and column or the missing key.
        message: String,
    },
    /// A transaction cannot be applied.
    #[error("{}: transaction {number}: {message}", path.display())]
    Transaction {
        /// The file concerned.
        path: PathBuf,
        /// The index of the transaction, counted from 0 like the parents.
        number: usize,
        /// What is wrong.
        message: String,
    },
    /// The replayed text differs from the expected one.
    #[error(
        "{}: the replayed text differs from endContent at character {at} \
         ({replayed} characters replayed, {expected} expected)",
        path.display()
    )]
    EndContent {
        /// The file concerned.
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
    /// Replays the trace through yrs, with one update per transaction that changes something.
    /// `progress` is called periodically with the number of transactions done and the total.
    pub fn replay(&self, progress: &mut dyn FnMut(usize, usize)) -> Result<UpdateLog, Error> {
        replay::replay(self, progress)
    }

    /// The name of the file without `.json` and `.gz`, which becomes the key of the document.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        name.strip_suffix(".json").unwrap_or(name).to_owned()
    }

    fn refuse(&self, number: usize, message: impl Into<String>) -> Error {
        Error::Transaction { path: self.path.clone(), number, message: message.into() }
    }
}
