//! Documents that need much memory for their bytes, in every format.
//!
//! Decides nothing: what a compaction takes for them, and whether it knew beforehand, tests
//! and examples ask.

pub mod automerge;
pub mod loro;
pub mod yjs;

/// A kind of document.
#[derive(Clone, Copy)]
pub struct Shape {
    /// What it is called.
    pub name: &'static str,
    /// How many of whatever it has many of.
    pub count: usize,
    /// The rows of a document with that many.
    pub rows: fn(usize) -> Vec<Vec<u8>>,
}

impl Shape {
    /// The rows of one with as many as it is meant to have.
    pub fn log(&self) -> Vec<Vec<u8>> {
        (self.rows)(self.count)
    }
}
