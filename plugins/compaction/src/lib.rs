//! Compaction: the log of a document becomes one change that says the same.

pub mod yjs;
