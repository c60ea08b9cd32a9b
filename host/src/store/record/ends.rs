//! The content of a history row besides the item.

pub use besom_core::item::End;
use besom_core::value::Field;

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
