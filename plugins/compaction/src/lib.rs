//! Compaction: the log of a document becomes one change that says the same.

pub mod checksum;
pub mod decide;
pub mod format;
pub mod yjs;
