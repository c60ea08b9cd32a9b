//! The ends of items, and the content of their history rows.

use besom_core::value::Field;

/// A history row's outcome as stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Committed with effects.
    Committed = 1,
    /// Ended without effects.
    Skipped = 2,
    /// Set aside as a dead letter.
    Dead = 3,
    /// Discarded by an operator.
    Discarded = 4,
}

impl End {
    /// The word for it.
    pub fn word(number: i64) -> &'static str {
        match number {
            1 => "committed",
            2 => "skipped",
            3 => "dead",
            _ => "discarded",
        }
    }
}

/// The content of a history row besides the item.
#[derive(Default)]
pub struct Remarks<'a> {
    /// Whether a skip was settled.
    pub settled: bool,
    /// The reason of an outcome without effects.
    pub reason: Option<&'a str>,
    /// The plugin's notes.
    pub notes: &'a [Field],
    /// The packed before-images.
    pub undo: Option<Vec<u8>>,
}
