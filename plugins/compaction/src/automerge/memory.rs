//! What a compaction will need in memory, known before anything is built.
//!
//! Decides: whether it is tried. The library keeps a parsed change in about a kilobyte
//! however short it is, and loading a document parses all of them at once; the figures below
//! are measured with a counting allocator and rounded up (`examples/automerge_traces.rs`).

use super::history::Facts;
use crate::outcome::{Code, LeftAlone, Mode};
use crate::room::has_room;

/// Bytes for each change.
const PER_CHANGE: u64 = 900;

/// Bytes for each operation.
const PER_OPERATION: u64 = 500;

/// Bytes for each operation that a reset reads by itself and may write anew.
const PER_OPERATION_OF_A_RESET: u64 = 450;

/// Bytes for each row of any column.
const PER_CELL: u64 = 10;

/// Bytes for each byte of inflated columns.
const PER_COLUMN_BYTE: u64 = 8;

/// What is needed whatever the document holds.
const BASE: u64 = 12 << 20;

/// What a compaction will need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// Bytes beside the updates themselves: at most.
    pub bytes: u64,
}

/// What the rows will need.
pub fn need_of(facts: &Facts, mode: Mode) -> Need {
    let operations = facts.operations;
    let bytes = [
        facts.changes.saturating_mul(PER_CHANGE),
        operations.rows.saturating_mul(PER_OPERATION),
        operations.cells.saturating_mul(PER_CELL),
        operations.bytes.saturating_mul(PER_COLUMN_BYTE),
        facts.largest.saturating_mul(2),
    ];
    let bytes = bytes.into_iter().fold(BASE, u64::saturating_add);
    let anew = match mode {
        // Values are there once more while they are written.
        Mode::Reset => operations
            .rows
            .saturating_mul(PER_OPERATION_OF_A_RESET)
            .saturating_add(operations.bytes.saturating_mul(PER_COLUMN_BYTE / 2)),
        Mode::Merge | Mode::Trim => 0,
    };
    Need { bytes: bytes.saturating_add(anew) }
}

/// What these updates will need in that mode.
///
/// # Errors
/// Where they are no well-formed updates.
pub fn need(updates: &[&[u8]], mode: Mode) -> Result<Need, LeftAlone> {
    super::history::read(updates).map(|log| need_of(&log.facts, mode))
}

/// Fails where there is not enough.
pub fn require(facts: &Facts, mode: Mode) -> Result<(), LeftAlone> {
    let Need { bytes } = need_of(facts, mode);
    if usize::try_from(bytes).is_ok_and(has_room) {
        return Ok(());
    }
    let words = format!(
        "{} changes with {} operations need up to {} MiB of memory, more than there is",
        facts.changes,
        facts.operations.rows,
        bytes.div_ceil(1 << 20),
    );
    Err(LeftAlone::new(Code::TooLarge, words))
}
