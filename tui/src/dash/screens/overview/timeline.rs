//! The leaders as a timeline: `▏a t41───▏b t42──────`.

use std::collections::BTreeSet;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::TermRow;

/// How far back the timeline reaches.
pub(super) const REACH: Duration = Duration::from_secs(3_600);

/// The timeline in this many columns, and the number of changes in it, without the terms of passes.
pub(super) fn leaders(
    terms: &[TermRow],
    passes: &BTreeSet<u64>,
    now: Time,
    columns: usize,
) -> (String, usize) {
    let start = now - REACH;
    let changes = terms.iter().filter(|term| term.since > start && term.since <= now);
    let changes = changes.filter(|term| !passes.contains(&term.term)).count();
    let column = |at: Time| {
        let into = at.since(start).as_micros() * columns as u128 / REACH.as_micros();
        (into as usize).min(columns)
    };
    let mut line = vec![' '; columns];
    // Newest first: an earlier term never overwrites a later one.
    let mut end = columns;
    for term in terms.iter().filter(|term| term.since <= now) {
        let from = column(term.since);
        if from < end {
            let label = format!("▏{} t{}", term.node, term.term);
            let short = format!("▏t{}", term.term);
            let room = end - from;
            let label = [label, short].into_iter().find(|label| label.chars().count() < room);
            let label = label.unwrap_or_else(|| "▏".to_owned());
            let drawn = label.chars().chain(std::iter::repeat('─'));
            for (cell, sign) in line[from..end].iter_mut().zip(drawn) {
                *cell = sign;
            }
        }
        // If two changes share a column, the newer one is shown.
        end = from.min(end);
        if term.since <= start {
            break;
        }
    }
    (line.into_iter().collect(), changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leadership_is_as_long_as_it_lasted_and_what_is_not_known_is_blank() {
        let now = Time::from_secs(10_000);
        let term = |term, node: &str, ago: i64| TermRow {
            term,
            node: node.into(),
            since: Time::from_secs(10_000 - ago),
        };
        for (terms, expected, changes) in [
            (vec![], "                        ", 0),
            (vec![term(4, "b", 1_800)], "            ▏b t4───────", 1),
            (vec![term(4, "b", 1_800), term(3, "a", 9_000)], "▏a t3───────▏b t4───────", 1),
            (
                vec![term(4, "node-with-a-name", 600), term(3, "a", 9_000)],
                "▏a t3───────────────▏t4─",
                1,
            ),
            (
                vec![term(4, "b", 100), term(3, "a", 120), term(2, "c", 3_700)],
                "▏c t2──────────────────▏",
                2,
            ),
        ] {
            let drawn = leaders(&terms, &BTreeSet::new(), now, 24);
            assert_eq!(drawn, (expected.to_owned(), changes), "{terms:?}");
        }
        assert_eq!(leaders(&[term(1, "a", 1)], &BTreeSet::new(), now, 0), (String::new(), 1));
        assert_eq!(leaders(&[term(1, "a", 1)], &BTreeSet::from([1]), now, 0), (String::new(), 0));
    }
}
