//! Documents that need much memory relative to their size, in every format.
//!
//! Decides nothing: tests and examples measure what a compaction needs for them, and compare it
//! with the estimate.

pub mod automerge;
pub mod loro;
pub mod yjs;

/// A kind of document.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Its name.
    pub name: &'static str,
    /// The number of its repeated parts.
    pub count: usize,
    /// The rows of a document with this number of parts.
    pub rows: fn(usize) -> Vec<Vec<u8>>,
}

impl Shape {
    /// The rows of a document of full size.
    pub fn log(&self) -> Vec<Vec<u8>> {
        (self.rows)(self.count)
    }
}
