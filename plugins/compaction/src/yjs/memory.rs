//! Estimates the memory that a document needs, before it is built.
//!
//! Decides whether memory suffices, by counts ([`super::tally`]). The prices are above the values
//! measured natively (example `yjs_memory`), where pointers are twice as long as in the sandbox.

use super::tally::Facts;
use crate::outcome::{Code, LeftAlone};
use crate::room::has_room;

/// Bytes for any document.
const BASE: usize = 1 << 20;
/// Bytes for each byte of updates.
const PER_BYTE: usize = 10;
/// Further bytes for each byte of values: yrs stores even the shortest objects as hash maps.
const PER_VALUE_BYTE: usize = 96;
/// Bytes for each struct of one row, or of all rows if some have to wait.
const PER_STRUCT_AT_ONCE: usize = 320;
/// Bytes for each run and for each piece of a cut run.
const PER_PIECE: usize = 560;
/// Further bytes for each shared type.
const PER_TYPE: usize = 400;
/// Bytes for each client.
const PER_CLIENT: usize = 1_024;

/// Bytes for each piece that a reset lays out.
const PER_PIECE_OF_A_RESET: usize = 560;
/// Bytes for each unit that a reset gives a number.
const PER_UNIT_OF_A_RESET: usize = 64;

/// The bytes that a merge needs at most.
pub fn needed(facts: &Facts) -> usize {
    sum(&[
        (1, BASE),
        (facts.bytes, PER_BYTE),
        (facts.value_bytes, PER_VALUE_BYTE),
        (facts.at_once, PER_STRUCT_AT_ONCE),
        (facts.runs, PER_PIECE),
        (facts.cuts, PER_PIECE),
        (facts.types, PER_TYPE),
        (facts.clients, PER_CLIENT),
    ])
}

/// The bytes that a reset needs at most, in addition to the result of the merge.
pub fn needed_for_reset(facts: &Facts) -> usize {
    sum(&[
        (1, BASE),
        (facts.runs, PER_PIECE_OF_A_RESET),
        (facts.cuts, PER_PIECE_OF_A_RESET),
        (facts.units, PER_UNIT_OF_A_RESET),
    ])
}

fn sum(parts: &[(usize, usize)]) -> usize {
    parts
        .iter()
        .fold(0, |sum: usize, (count, bytes)| sum.saturating_add(count.saturating_mul(*bytes)))
}

/// Fails if memory does not suffice for a merge.
pub fn require(facts: &Facts) -> Result<(), LeftAlone> {
    let bytes = needed(facts);
    if has_room(bytes) {
        return Ok(());
    }
    let words = format!(
        "{} structs in {} rows need up to {bytes} bytes of memory, more than available",
        facts.structs, facts.rows
    );
    Err(LeftAlone::new(Code::TooLarge, words))
}

/// Whether there is room for a reset once it is merged.
pub fn has_room_for_reset(facts: &Facts) -> bool {
    has_room(needed_for_reset(facts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_refused_with_the_bytes_that_it_needs() {
        let facts = Facts { runs: usize::MAX / 2, ..Facts::default() };
        let left = require(&facts).unwrap_err();
        assert_eq!(left.code, Code::TooLarge);
        assert!(left.words.contains(&usize::MAX.to_string()), "{left}");
        require(&Facts { runs: 1_000, ..Facts::default() }).unwrap();
        assert!(!has_room_for_reset(&facts));
    }

    #[test]
    fn the_estimate_is_above_what_was_measured() {
        let at_once = |runs, cuts| Facts {
            structs: runs,
            at_once: runs,
            runs,
            cuts,
            units: runs,
            clients: 1,
            ..Facts::default()
        };
        for (what, facts, merge_kb, reset_kb) in [
            ("letters in front, one row", at_once(50_000, 49_999), 23_000, 33_600),
            ("every other letter deleted", at_once(1, 100_000), 43_400, 57_700),
            ("types in a list", Facts { types: 50_000, ..at_once(50_000, 49_999) }, 33_300, 54_000),
            ("keys", Facts { bytes: 588_901, ..at_once(50_000, 0) }, 35_400, 61_600),
            (
                "objects",
                Facts { bytes: 400_016, value_bytes: 400_000, units: 100_000, ..at_once(1, 0) },
                32_800,
                34_800,
            ),
            (
                "one long text",
                Facts { bytes: 4_000_017, units: 4_000_000, ..at_once(1, 0) },
                36_000,
                215_100,
            ),
        ] {
            let merge = needed(&facts);
            assert!(merge > merge_kb * 1_000, "{what}: {merge}");
            let reset = merge + needed_for_reset(&facts);
            assert!(reset > reset_kb * 1_000, "{what}: {reset}");
        }
    }
}
