//! compaction.
