//! Estimates the memory that a document needs, before it is built.
//!
//! Decides whether memory suffices, in two steps. The headers of the rows contain the numbers of
//! changes and operations, which suffices for small documents, and for reading the history of
//! large ones. The operations of the history ([`super::census`]) then determine the size of the
//! state. The prices are above the measured values (example `loro_traces`).

use loro::LoroDoc;

use super::census::Census;
use super::rows::Facts;
use crate::outcome::{Code, LeftAlone};
use crate::room::has_room;

/// Bytes for any document.
const BASE: usize = 2 << 20;
/// Documents that need at most this in the worst case are not counted first.
const SMALL: usize = 32 << 20;

/// A row has no fewer bytes than this, whatever it holds. What is above may be content, of which
/// four bytes make a map.
const ROW_BYTES: usize = 80;

/// Prices of reading the history, in bytes.
mod reading {
    pub const BYTE: usize = 4;
    pub const CONTENT_BYTE: usize = 80;
    pub const ROW: usize = 64;
    pub const CHANGE: usize = 512;
    pub const OP: usize = 512;
}

/// Worst-case prices, independent of the kind of operations.
mod worst {
    pub const BYTE: usize = 320;
    pub const CHANGE: usize = 3_072;
    pub const OP: usize = 6_144;
}

/// Prices of the whole, by what the operations do.
mod state {
    pub const BYTE: usize = 6;
    pub const ROW: usize = 64;
    pub const CHANGE: usize = 400;
    pub const TURN: usize = 5_120;
    pub const OP: usize = 640;
    pub const LETTER: usize = 448;
    pub const MARK: usize = 3_072;
    pub const MARKED: usize = 192;
    pub const MARKED_BY_NAMES: usize = 320;
    pub const MOVABLE: usize = 384;
    pub const NODE: usize = 3_584;
    pub const MAP: usize = 960;
    pub const CONTAINER: usize = 7_168;
    pub const VALUE: usize = 640;
    pub const VALUE_BYTE: usize = 16;
}

/// Checks that memory suffices for reading the rows.
pub fn room_for_rows(updates: &[&[u8]]) -> Result<(), LeftAlone> {
    let longest = updates.iter().map(|update| update.len()).max().unwrap_or(0);
    room(BASE.saturating_add(longest.saturating_mul(reading::BYTE)))
}

/// Checks that memory suffices for the history of the rows.
pub fn room_for_history(facts: &Facts) -> Result<(), LeftAlone> {
    room(at_most(facts).unwrap_or_else(|| of_history(facts)))
}

/// Checks that memory suffices for the state of a document with the history of the rows.
pub fn room_for_state(doc: &LoroDoc, facts: &Facts) -> Result<(), LeftAlone> {
    match at_most(facts) {
        Some(_) => Ok(()),
        None => room(of_state(facts, &Census::of(doc))),
    }
}

/// Whether a document of the rows is small in the worst case.
pub fn is_small(facts: &Facts) -> bool {
    at_most(facts).is_some()
}

/// The bytes that a small document of the rows needs in the worst case.
fn at_most(facts: &Facts) -> Option<usize> {
    let worst =
        sum(&[(facts.bytes, worst::BYTE), (facts.changes, worst::CHANGE), (facts.ops, worst::OP)]);
    (worst <= SMALL).then_some(worst)
}

/// The bytes that the history of the rows needs at most.
pub fn of_history(facts: &Facts) -> usize {
    sum(&[
        (facts.bytes, reading::BYTE),
        (facts.bytes.saturating_sub(facts.rows * ROW_BYTES), reading::CONTENT_BYTE),
        (facts.rows, reading::ROW),
        (facts.changes, reading::CHANGE),
        (facts.ops, reading::OP),
    ])
}

/// The bytes that a document with this history needs at most.
pub fn of_state(facts: &Facts, census: &Census) -> usize {
    sum(&[
        (facts.bytes, state::BYTE),
        (facts.rows, state::ROW),
        (census.changes, state::CHANGE),
        (census.turns, state::TURN),
        (census.ops, state::OP),
        (census.letters, state::LETTER),
        (census.marks, state::MARK),
        (census.marked, state::MARKED),
        (if census.mark_names > 1 { census.marked } else { 0 }, state::MARKED_BY_NAMES),
        (census.movable, state::MOVABLE),
        (census.nodes, state::NODE),
        (census.maps, state::MAP),
        (census.containers, state::CONTAINER),
        (census.values, state::VALUE),
        (census.value_bytes, state::VALUE_BYTE),
    ])
}

fn sum(parts: &[(usize, usize)]) -> usize {
    parts.iter().fold(BASE, |sum, (count, bytes)| sum.saturating_add(count.saturating_mul(*bytes)))
}

fn room(bytes: usize) -> Result<(), LeftAlone> {
    if has_room(bytes) {
        return Ok(());
    }
    let words = format!("the document needs up to {bytes} bytes of memory, more than available");
    Err(LeftAlone::new(Code::TooLarge, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_no_room_for_is_refused_with_the_bytes_that_it_needs() {
        let facts = Facts { ops: usize::MAX / 2, ..Facts::default() };
        let left = room_for_history(&facts).unwrap_err();
        assert_eq!(left.code, Code::TooLarge);
        assert!(left.words.contains(&usize::MAX.to_string()), "{left}");
        room_for_history(&Facts { ops: 1_000, ..Facts::default() }).unwrap();
    }

    #[test]
    fn the_estimate_is_above_what_was_measured() {
        let rows =
            |rows, bytes| Facts { rows, bytes, ops: rows, changes: rows, ..Facts::default() };
        let one = |bytes| rows(1, bytes);
        let ops = |changes, ops| Census { changes, ops, ..Census::default() };
        for (what, facts, census, measured_kib) in [
            (
                "tree nodes",
                rows(5_000, 595_515),
                Census { nodes: 5_000, ..ops(5_000, 5_000) },
                16_524,
            ),
            (
                "tree nodes at once",
                one(499_878),
                Census { nodes: 50_000, ..ops(1, 50_000) },
                202_300,
            ),
            (
                "texts at once",
                one(478_079),
                Census { containers: 20_000, values: 20_000, letters: 20_000, ..ops(1, 40_000) },
                161_195,
            ),
            (
                "maps at once",
                one(100_096),
                Census { maps: 50_000, values: 50_000, ..ops(1, 1) },
                64_767,
            ),
            ("values at once", one(307_519), Census { values: 100_000, ..ops(1, 50_000) }, 79_443),
            ("values in a value", one(400_093), Census { values: 200_001, ..ops(1, 1) }, 121_592),
            (
                "movable items at once",
                one(153_746),
                Census { movable: 50_000, values: 50_000, ..ops(1, 25_000) },
                55_789,
            ),
            (
                "marks at once",
                one(158_522),
                Census { marks: 10_000, marked: 20_000, values: 10_000, ..ops(1, 20_001) },
                48_327,
            ),
            (
                "marks of many names",
                one(6_633),
                Census { marks: 300, mark_names: 300, marked: 90_300, ..ops(1, 601) },
                39_796,
            ),
            (
                "marks over marks",
                rows(2_500, 264_391),
                Census { marks: 2_500, marked: 1_563_750, ..ops(2_500, 7_500) },
                248_928,
            ),
            (
                "one key",
                rows(50_000, 4_658_719),
                Census { values: 50_000, ..ops(50_000, 50_000) },
                10_612,
            ),
            ("letters", one(9_234), Census { letters: 200_000, ..ops(1, 200_000) }, 84_136),
            (
                "peers",
                rows(5_000, 434_936),
                Census { turns: 5_000, values: 5_000, ..ops(5_000, 5_000) },
                20_459,
            ),
            (
                "peers one after the other",
                rows(10_000, 991_605),
                Census { turns: 10_000, values: 10_000, ..ops(10_000, 10_000) },
                51_326,
            ),
        ] {
            let kib = of_state(&facts, &census) >> 10;
            assert!(kib > measured_kib, "{what}: {kib}");
        }
    }

    #[test]
    fn a_history_takes_less_than_is_said() {
        let one = |bytes, ops| Facts { rows: 1, changes: 1, bytes, ops, ..Facts::default() };
        for (what, facts, measured_kib) in [
            ("tree nodes at once", one(499_878, 50_000), 23_640),
            ("values in a value", one(400_093, 1), 28_524),
            ("maps at once", one(100_096, 50_000), 6_589),
        ] {
            assert!(of_history(&facts) >> 10 > measured_kib, "{what}");
        }
    }
}
