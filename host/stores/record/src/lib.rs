//! The recorded forms of rows, batches and reports, which the store adapters share. This crate
//! depends on no database.

use std::time::{Duration, Instant};

use besom_core::command::counted;
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
    /// Why rows of a range were left as they were.
    pub said: Option<String>,
}

/// The rows of a range that were left as they were, the first of them in the database's words.
#[derive(Debug, Default)]
pub struct Refused {
    /// When the first row was tried alone, or with fewer others.
    since: Option<Instant>,
    /// The number of rows.
    pub rows: u64,
    /// Those of them that were not tried, because a foreign key keeps them.
    kept: u64,
    /// The key of the first of them, and why.
    pub first: Option<(String, String)>,
    /// Whether others were not tried, because they took too long.
    stopped: bool,
}

/// How long the rows of a range are tried in parts, after all of them together were refused. The others are
/// left to the next run.
pub const PARTS_MAX: Duration = Duration::from_secs(3);

impl Refused {
    /// Whether there is time to try further rows.
    pub fn goes_on(&mut self) -> bool {
        self.stopped |= self.since.get_or_insert_with(Instant::now).elapsed() > PARTS_MAX;
        !self.stopped
    }

    /// Adds a row.
    pub fn push(&mut self, key: &[Value], said: String) {
        self.rows += 1;
        if self.first.is_none() {
            let values: Vec<String> = key.iter().map(Value::shown).collect();
            self.first = Some((values.join(", "), said));
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

    /// In words; none: every row could be changed.
    pub fn said(self) -> Option<String> {
        let late = "the database refuses some rows, and finding them takes too long";
        let Some((key, why)) = self.first else { return self.stopped.then(|| late.to_owned()) };
        let others = if self.stopped { ", and others were not tried" } else { "" };
        let rows = counted(self.rows, "row");
        let hint = match why.to_lowercase().contains("foreign key") {
            true => {
                " (it goes once nothing refers to it; `dependants` of the collection would delete what refers to it \
                 as well)"
            }
            false => "",
        };
        Some(format!("{rows} could not be changed{others}; the first is ({key}): {why}{hint}"))
    }
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

/// The reason of an item whose row a guard has seen but the database did not delete.
pub fn kept(collection: &str) -> String {
    format!(
        "the database did not delete a row of {collection:?}: a trigger, a rule or a policy \
         prevents it"
    )
}
