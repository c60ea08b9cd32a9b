//! Removing chosen rows from what is kept for undo: which rows, without naming them.
//!
//! A command is listed, logged and stored for as long as the history. So it names places, and neither the key by
//! which an operator has found the rows nor a value of theirs.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::command::counted;

/// Maximum number of places of one command.
pub const PLACES_MAX: usize = 1_000;
/// Maximum number of stretches of rows of one command, over all its places.
pub const STRETCHES_MAX: usize = 10_000;
/// Size of the packed rows that one transaction takes, in bytes; it takes at least one place.
pub const STEP_BYTES: u64 = 8 << 20;

/// Rows to be removed from what is kept.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Purge {
    /// Where they are, each history row once.
    pub places: Vec<Place>,
}

/// Kept rows of one item. What is kept of an item changes only by losing rows, so their number, together with the
/// size, says whether it is as it was when the place was determined.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Place {
    /// The number of its history row.
    pub history: u64,
    /// Size of what is kept of it, in bytes.
    pub bytes: u64,
    /// Number of rows that are kept of it.
    pub of: u64,
    /// Positions of rows, from 0, in the order in which they are kept: each stretch from its first to its last
    /// row, ascending. Empty: all that is kept of the item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<(u64, u64)>,
}

impl Place {
    /// Whether the row at a position is removed.
    pub fn has(&self, at: u64) -> bool {
        let before = self.rows.partition_point(|(_, last)| *last < at);
        self.rows.is_empty() || self.rows.get(before).is_some_and(|(first, _)| *first <= at)
    }

    /// Adds the row at a position after all others.
    pub fn add(&mut self, at: u64) {
        match self.rows.last_mut() {
            Some((_, last)) if *last + 1 == at => *last = at,
            _ => self.rows.push((at, at)),
        }
    }
}

impl Purge {
    /// Splits places into commands of bounded size.
    pub fn of(places: Vec<Place>) -> Vec<Purge> {
        let (mut all, mut stretches) = (Vec::<Purge>::new(), 0);
        for mut place in places {
            // The rest is looked for again: what is kept has changed by then.
            place.rows.truncate(STRETCHES_MAX);
            let is_full = |purge: &Purge| {
                purge.places.len() >= PLACES_MAX || stretches + place.rows.len() > STRETCHES_MAX
            };
            if all.last().is_none_or(is_full) {
                all.push(Purge::default());
                stretches = 0;
            }
            stretches += place.rows.len();
            if let Some(last) = all.last_mut() {
                last.places.push(place);
            }
        }
        all
    }
}

impl fmt::Display for Purge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kept rows of {}", counted(self.places.len() as u64, "item"))
    }
}

/// How far a purge has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Purged {
    /// Number of places that were looked at.
    pub places: u64,
    /// Number of items of which something was removed.
    pub items: u64,
    /// Number of rows that were removed.
    pub rows: u64,
    /// Number of places of which something else is kept now; nothing was removed there.
    pub changed: u64,
}

impl Purged {
    /// The outcome of a purge that has ended, as a result of a command: whether it is refused, and in words.
    pub fn outcome(&self, words: &str) -> (bool, String) {
        let Purged { items, rows, changed, .. } = *self;
        let again = "look for the rows again";
        match (items, changed) {
            (0, 0) => (false, format!("{words}: none, because nothing is kept of them any more")),
            (0, changed) => {
                let of = counted(changed, "item");
                (true, format!("what is kept of {of} has changed since it was read: {again}"))
            }
            (items, changed) => {
                let of = counted(items, "item");
                let mut said = format!("{words}: {} of {of}", counted(rows, "row"));
                if changed > 0 {
                    let left = counted(changed, "item");
                    said.push_str(&format!(
                        "; what is kept of {left} has changed since it was read: {again}"
                    ));
                }
                (false, said)
            }
        }
    }
}

/// How the note of an undone item ends of which rows were purged.
pub const NOTE: &str = "purged, and not kept any longer";

/// What an undo says of the rows of an item that were purged; `None`: none were.
pub fn note(rows: u64) -> Option<String> {
    let were = if rows == 1 { "was" } else { "were" };
    (rows > 0).then(|| format!("{} {were} {NOTE}", counted(rows, "row")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(rows: &[u64]) -> Place {
        let mut place = Place { history: 7, bytes: 9, of: 100, rows: Vec::new() };
        rows.iter().for_each(|at| place.add(*at));
        place
    }

    #[test]
    fn rows_that_follow_each_other_are_one_stretch() {
        let some = place(&[0, 1, 2, 5, 9, 10]);
        assert_eq!(some.rows, [(0, 2), (5, 5), (9, 10)]);
        let has: Vec<u64> = (0..12).filter(|at| some.has(*at)).collect();
        assert_eq!(has, [0, 1, 2, 5, 9, 10]);
        assert!((0..12).all(|at| place(&[]).has(at)), "no position: all of them");
    }

    #[test]
    fn a_command_has_a_bounded_size() {
        let odd: Vec<u64> = (0..STRETCHES_MAX as u64 + 10).map(|at| 2 * at).collect();
        let of = Purge::of(vec![place(&[1]), place(&odd), place(&[1])]);
        let sizes: Vec<Vec<usize>> = of
            .iter()
            .map(|purge| purge.places.iter().map(|place| place.rows.len()).collect())
            .collect();
        assert_eq!(sizes, [vec![1], vec![STRETCHES_MAX], vec![1]]);
        let many = Purge::of(vec![place(&[]); PLACES_MAX + 1]);
        let sizes: Vec<usize> = many.iter().map(|purge| purge.places.len()).collect();
        assert_eq!(sizes, [PLACES_MAX, 1]);
        assert_eq!(Purge::of(Vec::new()), []);
    }

    #[test]
    fn places_are_written_as_numbers_alone() {
        let written = serde_json::to_string(&place(&[3, 4])).unwrap();
        assert_eq!(written, r#"{"history":7,"bytes":9,"of":100,"rows":[[3,4]]}"#);
        let read: Place = serde_json::from_str(r#"{"history":7,"bytes":9,"of":100}"#).unwrap();
        assert_eq!(read, place(&[]));
    }

    #[test]
    fn the_outcome_says_what_was_not_removed() {
        let said =
            |items, rows, changed| Purged { places: 9, items, rows, changed }.outcome("purged");
        assert_eq!(said(2, 3, 0), (false, "purged: 3 rows of 2 items".into()));
        let (refused, words) = said(1, 1, 1);
        assert!(!refused && words.starts_with("purged: 1 row of 1 item; "), "{words}");
        let (refused, words) = said(0, 0, 2);
        assert!(refused && words.contains("2 items has changed since it was read"), "{words}");
        let (refused, words) = said(0, 0, 0);
        assert!(!refused && words.contains("nothing is kept"), "{words}");
        assert_eq!((note(0), note(1).unwrap()), (None, format!("1 row was {NOTE}")));
    }
}
