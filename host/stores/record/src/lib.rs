//! The recorded forms of rows, batches and reports, which the store adapters share. This crate
//! depends on no database.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use besom_core::brake::Dependants;
use besom_core::command::counted;
use besom_core::proposal::{DEPENDANT_ROWS, PLANNED_ROWS, rows_noted};
use besom_core::value::{Field, Value};

pub mod activity;
pub mod begun;
pub mod courtesy;
pub mod images;
pub mod nodes;
pub mod restore;
pub mod text;

/// What a commit adds to the history row of an item whose changes it has applied.
#[derive(Debug, Default)]
pub struct Changed {
    /// The before-images, packed; none: they are not kept.
    pub undo: Option<Vec<u8>>,
    /// The number of the product's rows that were changed.
    pub rows: u64,
    /// Those of them that were deleted as dependants of others.
    pub dependants: Dependants,
    /// Why rows of a range were left as they were.
    pub said: Option<String>,
}

impl Changed {
    /// The notes of the history row. If they say how many rows were planned, one is added for the rows that were changed
    /// besides.
    pub fn noted<'a>(&self, notes: &'a [Field]) -> Cow<'a, [Field]> {
        if self.dependants.is_empty() || rows_noted(notes, PLANNED_ROWS).is_none() {
            return Cow::Borrowed(notes);
        }
        let rows = self.dependants.values().sum::<u64>();
        let rows = Value::Integer(i64::try_from(rows).unwrap_or(i64::MAX));
        let mut notes = notes.to_vec();
        notes.push(Field::new(DEPENDANT_ROWS, rows));
        Cow::Owned(notes)
    }
}

/// The rows of a range that were left as they were, by what the database said of them.
#[derive(Debug, Default)]
pub struct Refused {
    /// When the first row was tried alone, or with fewer others.
    since: Option<Instant>,
    /// The number of rows.
    rows: u64,
    /// Those of them that were not tried, because a foreign key keeps them.
    kept: u64,
    /// The words of the database, each with the keys of rows that it refused in them.
    said: Vec<(String, Vec<String>)>,
    /// The number of keys in `said`.
    named: u64,
    /// The size of what is in `said`, in bytes.
    bytes: usize,
    /// Whether others were not tried, because they took too long.
    stopped: bool,
}

/// How long the rows of a range are tried in parts, after all of them together were refused. The others are
/// left to the next run.
pub const PARTS_MAX: Duration = Duration::from_secs(3);

/// Maximum number of refused rows of an item that are named by their keys; the others are counted.
pub const NAMED_MAX: u64 = 20;

/// Maximum size of the keys and words, in bytes, before a further row is only counted. One row is always named.
const NAMED_BYTES_MAX: usize = 4_096;

impl Refused {
    /// Whether there is time to try further rows.
    pub fn goes_on(&mut self) -> bool {
        self.stopped |= self.since.get_or_insert_with(Instant::now).elapsed() > PARTS_MAX;
        !self.stopped
    }

    /// Adds a row.
    pub fn push(&mut self, key: &[Value], said: String) {
        self.rows += 1;
        if self.named == NAMED_MAX {
            return;
        }
        let values: Vec<String> = key.iter().map(Value::shown).collect();
        let key = format!("({})", values.join(", "));
        let place = self.said.iter().position(|(known, _)| *known == said);
        let bytes = self.bytes + key.len() + place.map_or(said.len(), |_| 0);
        if self.named > 0 && bytes > NAMED_BYTES_MAX {
            return;
        }
        (self.named, self.bytes) = (self.named + 1, bytes);
        match place {
            Some(at) => self.said[at].1.push(key),
            None => self.said.push((said, vec![key])),
        }
    }

    /// Adds a row that a foreign key keeps.
    pub fn push_kept(&mut self, key: &[Value], said: String) {
        self.kept += 1;
        self.push(key, said);
    }

    /// Whether foreign keys keep all of these rows, so that another attempt is of no use while they are referred to.
    pub fn is_kept(&self) -> bool {
        self.kept > 0 && self.kept == self.rows && !self.stopped
    }

    /// In words, with the keys of the rows; none: every row could be changed.
    pub fn said(self) -> Option<String> {
        if self.rows == 0 {
            let late = "the database refuses some rows, and finding them takes too long";
            return self.stopped.then(|| late.to_owned());
        }
        let mut hint = Some(
            " (it goes once nothing refers to it; `dependants` of the collection would delete what refers to it as \
             well)",
        );
        let mut parts: Vec<String> = Vec::with_capacity(self.said.len() + 1);
        for (said, keys) in &self.said {
            let is_foreign = said.to_lowercase().contains("foreign key");
            let hint = hint.take_if(|_| is_foreign).unwrap_or_default();
            parts.push(format!("{}: {said}{hint}", keys.join(", ")));
        }
        if self.rows > self.named {
            parts.push(format!("and {} more", self.rows - self.named));
        }
        let others = if self.stopped { ", and others were not tried" } else { "" };
        let rows = counted(self.rows, "row");
        Some(format!("{rows} could not be changed{others}: {}", parts.join("; ")))
    }
}

/// Which rows stay if some do: those to which one refers that stays, too. `above` has the rows to which each refers.
pub fn closed(kept: Vec<usize>, above: &[Vec<usize>]) -> Vec<bool> {
    let mut stay = vec![false; above.len()];
    let mut open = kept;
    while let Some(no) = open.pop() {
        if !std::mem::replace(&mut stay[no], true) {
            open.extend(&above[no]);
        }
    }
    stay
}

/// The columns of an increment as they are afterwards, from the row as it is stored.
pub fn increased(by: &[Field], names: &[impl AsRef<str>], row: &[Value]) -> Vec<Field> {
    let sum = |field: &Field| {
        let at = names.iter().position(|name| name.as_ref() == field.name)?;
        let before = match row.get(at)? {
            Value::Integer(before) => *before,
            Value::Text(text) => text.parse().ok()?,
            _ => return None,
        };
        let Value::Integer(by) = field.value else { return None };
        Some(Field::new(field.name.clone(), Value::Integer(before.checked_add(by)?)))
    };
    by.iter().filter_map(sum).collect()
}

/// The reason of a row of a range to which nothing can be added.
pub fn no_sum(collection: &str) -> String {
    format!("a column of {collection:?} is null or would overflow 64 bits: nothing is added to it")
}

/// The reason of an item whose row a guard has seen but the database did not delete.
pub fn kept(collection: &str) -> String {
    format!(
        "the database did not delete a row of {collection:?}: a trigger, a rule or a policy \
         prevents it"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(rows: &[(i64, &str)]) -> Option<String> {
        let mut refused = Refused::default();
        for (key, why) in rows {
            refused.push(&[Value::Integer(*key)], (*why).to_owned());
        }
        refused.said()
    }

    #[test]
    fn each_refused_row_is_named_with_the_words_of_the_database() {
        let check = |rows: &[(i64, &str)], expected: &str| {
            assert_eq!(said(rows).as_deref(), Some(expected));
        };
        assert_eq!(said(&[]), None);
        check(&[(1, "no")], "1 row could not be changed: (1): no");
        check(
            &[(3, "no"), (5, "never"), (7, "no"), (9, "no")],
            "4 rows could not be changed: (3), (7), (9): no; (5): never",
        );
        let kept = "FOREIGN KEY constraint failed";
        check(
            &[(1, "no"), (2, kept), (3, "another foreign key")],
            "3 rows could not be changed: (1): no; (2): FOREIGN KEY constraint failed (it goes once nothing refers to \
             it; `dependants` of the collection would delete what refers to it as well); (3): another foreign key",
        );
    }

    #[test]
    fn rows_beyond_the_bound_are_counted() {
        let rows: Vec<(i64, &str)> = (1..=22).map(|key| (key, "no")).collect();
        let all = said(&rows).expect("refused rows");
        assert!(all.starts_with("22 rows could not be changed: (1), (2), (3), "), "{all}");
        assert!(all.ends_with(", (19), (20): no; and 2 more"), "{all}");
        let at_the_bound = said(&rows[..20]).expect("refused rows");
        assert!(at_the_bound.ends_with(", (20): no"), "{at_the_bound}");
        // Long words are told once, and the next ones not at all.
        let long = ["a", "b"].map(|one| one.repeat(NAMED_BYTES_MAX));
        let both = said(&[(1, &long[0]), (2, &long[1]), (3, "c")]).expect("refused rows");
        assert!(both.ends_with("a; and 2 more"), "{both}");
    }
}
