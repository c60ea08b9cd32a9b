//! How much memory a document will need, before it is built.
//!
//! Decides: whether there is room, by cheap facts. The factors are above what was measured
//! (example `loro_traces`): a snapshot of 200,000 insertions took 84 MiB, 5,000 tree nodes in a
//! row each 16 MiB. What the facts do not tell is the kind of an operation: thousands of tree
//! nodes within one change may need more than this says.

use super::rows::Facts;
use crate::outcome::{Code, LeftAlone};
use crate::room::has_room;

/// Bytes that anything needs.
const BASE: usize = 1 << 20;
/// Bytes for each byte of updates.
const PER_BYTE: usize = 4;
/// Bytes for each row.
const PER_ROW: usize = 64;
/// Bytes for each change.
const PER_CHANGE: usize = 2_304;
/// Bytes for each operation.
const PER_OP: usize = 448;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_refused_with_the_bytes_that_it_needs() {
        let facts = Facts { ops: usize::MAX / 2, ..Facts::default() };
        let left = room_for(&facts).unwrap_err();
        assert_eq!(left.code, Code::TooLarge);
        assert!(left.words.contains(&usize::MAX.to_string()), "{left}");
        room_for(&Facts { ops: 1_000, ..Facts::default() }).unwrap();
    }

    #[test]
    fn the_estimate_is_above_what_was_measured() {
        let rows = |rows, bytes, ops| Facts { rows, bytes, ops, changes: rows, ..Facts::default() };
        for (facts, measured_kib) in [
            (rows(5_000, 595_515, 5_000), 16_515),
            (rows(10_000, 1_024_094, 20_000), 18_724),
            (rows(10_000, 901_487, 10_000), 14_201),
            (rows(20_000, 1_947_609, 20_000), 19_192),
            (rows(50_000, 4_658_719, 50_000), 10_548),
            (rows(1, 9_234, 200_000), 84_136),
        ] {
            assert!(needed(&facts) >> 10 > measured_kib, "{facts:?}: {}", needed(&facts) >> 10);
        }
    }
}
