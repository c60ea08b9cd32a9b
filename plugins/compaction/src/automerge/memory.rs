//! Estimates the memory that a compaction needs, before anything is built.
//!
//! Decides whether memory suffices. The library needs about a kilobyte for each parsed change,
//! however short it is, and loading a document parses all of them at once. The figures below
//! were measured with a counting allocator and rounded up (`examples/automerge_traces.rs`).

use super::history::Facts;
use crate::outcome::{Code, LeftAlone, Mode};
use crate::room::has_room;

/// Bytes for each change.
const PER_CHANGE: u64 = 900;

/// Bytes for each operation.
const PER_OPERATION: u64 = 500;

/// Bytes for each operation that a reset reads separately and may write again.
const PER_OPERATION_OF_A_RESET: u64 = 450;

/// Bytes for each row of any column.
const PER_CELL: u64 = 10;

/// Bytes for each byte of inflated columns.
const PER_COLUMN_BYTE: u64 = 8;

/// Bytes for any document.
const BASE: u64 = 12 << 20;

/// The estimate for a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// The bytes needed at most, in addition to the updates themselves.
    pub bytes: u64,
}

/// The estimate for the rows.
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
        // Values exist twice while they are written.
        Mode::Reset => operations
            .rows
            .saturating_mul(PER_OPERATION_OF_A_RESET)
            .saturating_add(operations.bytes.saturating_mul(PER_COLUMN_BYTE / 2)),
        Mode::Merge | Mode::Trim => 0,
    };
    Need { bytes: bytes.saturating_add(anew) }
}

/// The estimate for these updates in this mode.
///
/// # Errors
/// The first update that is not well formed.
pub fn need(updates: &[&[u8]], mode: Mode) -> Result<Need, LeftAlone> {
    super::history::read(updates).map(|log| need_of(&log.facts, mode))
}

/// Fails if memory does not suffice.
pub fn require(facts: &Facts, mode: Mode) -> Result<(), LeftAlone> {
    let Need { bytes } = need_of(facts, mode);
    if usize::try_from(bytes).is_ok_and(has_room) {
        return Ok(());
    }
    let words = format!(
        "{} changes with {} operations need up to {} MiB of memory, more than available",
        facts.changes,
        facts.operations.rows,
        bytes.div_ceil(1 << 20),
    );
    Err(LeftAlone::new(Code::TooLarge, words))
}
