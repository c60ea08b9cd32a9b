//! How an item ends, and what its history row says of it.

use besom_core::value::Field;

/// How a history row's outcome is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With effects.
    Committed = 1,
    /// Without.
    Skipped = 2,
    /// Set aside.
    Dead = 3,
    /// Given up by somebody.
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

/// What a history row says beside the item.
#[derive(Default)]
pub struct Remarks<'a> {
    /// Whether a skip was settled.
    pub settled: bool,
    /// Why, for the outcomes without effects.
    pub reason: Option<&'a str>,
    /// The plugin's notes.
    pub notes: &'a [Field],
    /// The rows as they were before, packed.
    pub undo: Option<Vec<u8>>,
}
