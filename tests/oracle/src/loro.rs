//! Loro documents as the scripts exchange them: many in one file.
//!
//! `documents.pack` is an update log whose entries are pairs: the log of a document, and a log of
//! logs, one for each attached client with what it has seen. `compacted.pack` holds the results, in
//! pairs as well: a merge and a trim, empty if there is none.

use std::path::Path;

use crate::{parse_log, read_log, write_log};

/// A document.
pub struct Document {
    /// Its rows.
    pub rows: Vec<Vec<u8>>,
    /// The rows that each attached client has.
    pub seen: Vec<Vec<Vec<u8>>>,
}

/// The documents in a directory.
///
/// # Panics
/// If there are none.
pub fn documents(directory: &Path) -> Vec<Document> {
    read_log(&directory.join("documents.pack"))
        .chunks_exact(2)
        .map(|pair| Document {
            rows: parse_log(&pair[0]),
            seen: parse_log(&pair[1]).iter().map(|rows| parse_log(rows)).collect(),
        })
        .collect()
}

/// The version vector of each attached client, computed from its rows by `version`.
pub fn seen_vectors(document: &Document, version: impl Fn(&[Vec<u8>]) -> Vec<u8>) -> Vec<Vec<u8>> {
    document.seen.iter().map(|rows| version(rows)).collect()
}

/// Writes the results of the documents, each merged and trimmed.
pub fn write_results(directory: &Path, results: &[[Option<Vec<u8>>; 2]]) {
    let entries: Vec<&[u8]> =
        results.iter().flatten().map(|it| it.as_deref().unwrap_or_default()).collect();
    write_log(&directory.join("compacted.pack"), &entries);
}
