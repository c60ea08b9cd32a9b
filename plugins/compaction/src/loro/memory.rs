//! How much memory a document will need, before it is built.
//!
//! Decides: whether there is room. The estimate is an upper bound by cheap facts.

use super::rows::Facts;
use crate::outcome::{Code, LeftAlone};
use crate::room::has_room;

/// Bytes that anything needs.
const BASE: usize = 1 << 20;
/// Bytes for each byte of updates.
const PER_BYTE: usize = 8;
/// Bytes for each row.
const PER_ROW: usize = 64;
/// Bytes for each change.
const PER_CHANGE: usize = 512;
/// Bytes for each operation.
const PER_OP: usize = 160;

/// Whether there is room for looking at the rows.
pub fn room_for_rows(updates: &[&[u8]]) -> Result<(), LeftAlone> {
    let longest = updates.iter().map(|update| update.len()).max().unwrap_or(0);
    room(BASE.saturating_add(longest.saturating_mul(PER_BYTE)))
}

/// Whether there is room for the document.
pub fn room_for(facts: &Facts) -> Result<(), LeftAlone> {
    room(needed(facts))
}

/// The bytes that a document of those facts needs at most.
pub fn needed(facts: &Facts) -> usize {
    [
        (facts.bytes, PER_BYTE),
        (facts.rows, PER_ROW),
        (facts.changes, PER_CHANGE),
        (facts.ops, PER_OP),
    ]
    .iter()
    .fold(BASE, |sum, (count, bytes)| sum.saturating_add(count.saturating_mul(*bytes)))
}

fn room(bytes: usize) -> Result<(), LeftAlone> {
    if has_room(bytes) {
        return Ok(());
    }
    let words = format!("it needs up to {bytes} bytes of memory, which there are not");
    Err(LeftAlone::new(Code::TooLarge, words))
}
