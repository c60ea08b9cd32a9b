//! Conditions on columns as SQL over the alias `t`. A condition is true or false, never unknown.

use besom_core::proposal::Comparison;
use besom_core::value::Value;

use super::mapping::{Refusal, Table, quote};
use super::session::Param;
use super::values::{Cell, Form, Wire};
use besom_tables::conditions::Term;

/// Conditions with separate values: the SQL is the same for every item whose conditions differ only
/// in their values.
#[derive(Default)]
pub(super) struct Conditions {
    /// The text of each condition, with its value left open, or complete.
    parts: Vec<Part>,
    /// The values, in order.
    pub(super) cells: Vec<Cell>,
    /// Their forms on the way.
    pub(super) wires: Vec<Wire>,
}

enum Part {
    Fixed(String),
    Open(String, Comparison, Form),
}

impl Conditions {
    /// Comparisons with columns of a table.
    pub(super) fn of<'v>(
        table: &Table,
        terms: impl IntoIterator<Item = impl Into<Term<'v>>>,
    ) -> Result<Conditions, Refusal> {
        let mut all = Conditions::default();
        for term in terms {
            let term: Term<'v> = term.into();
            let column = format!("t.{}", quote(term.column));
            let form = table.form(term.column)?;
            all.parts.push(match cell(table, term)? {
                None => Part::Fixed(match term.comparison {
                    Comparison::Equal => format!("{column} IS NULL"),
                    Comparison::NotEqual => format!("{column} IS NOT NULL"),
                    Comparison::AtLeast | Comparison::AtMost => "false".to_owned(),
                }),
                Some(cell) => {
                    all.cells.push(cell);
                    all.wires.push(form.wire);
                    Part::Open(column, term.comparison, form.clone())
                }
            });
        }
        Ok(all)
    }

    /// ` AND condition` for each condition; `value(place)` names its value.
    pub(super) fn sql(&self, value: impl Fn(usize) -> String) -> String {
        let (mut sql, mut place) = (String::new(), 0);
        for part in &self.parts {
            sql.push_str(" AND ");
            match part {
                Part::Fixed(text) => sql.push_str(text),
                Part::Open(column, comparison, form) => {
                    sql.push_str(&compared(column, *comparison, form, &value(place)));
                    place += 1;
                }
            }
        }
        sql
    }

    /// Like [`Conditions::sql`], with its values as the next parameters.
    pub(super) fn numbered(self, params: &mut Vec<Param<'_>>) -> String {
        let next = params.len() + 1;
        let sql = self.sql(|place| format!("${}::{}", next + place, self.wires[place].sql()));
        params.extend(self.cells.into_iter().map(|cell| Box::new(cell) as Param<'_>));
        sql
    }
}

/// The value that a column is compared with, as the column stores it; none for NULL, which has no
/// value.
pub(super) fn cell<'v>(table: &Table, term: impl Into<Term<'v>>) -> Result<Option<Cell>, Refusal> {
    let term = term.into();
    if *term.value == Value::Null {
        return Ok(None);
    }
    table.cell(term.column, term.value, term.round()).map(Some)
}

fn compared(column: &str, comparison: Comparison, form: &Form, value: &str) -> String {
    match comparison {
        Comparison::Equal if form.by_bytes => {
            let equal = form.equals(column, value);
            format!("{equal} AND {column}::text COLLATE \"C\" = {value}")
        }
        Comparison::Equal => form.equals(column, value),
        Comparison::NotEqual if form.comparable => {
            format!("{column} IS DISTINCT FROM {}", form.meets(value))
        }
        Comparison::NotEqual => format!("{column}::text IS DISTINCT FROM {value}"),
        Comparison::AtLeast => format!("{column} >= {}", form.meets(value)),
        Comparison::AtMost => format!("{column} <= {}", form.meets(value)),
    }
}
