//! Conditions on columns as SQL over the alias `t`. A condition is true or false, never unknown.

use besom_core::proposal::{Comparison, Condition};
use besom_core::value::Value;

use super::mapping::{Refusal, Table, quote};
use super::values::{Cell, Form, Wire};
use besom_record::encoding::Round;

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
    /// The conditions of a filter on a table.
    pub(super) fn of(table: &Table, conditions: &[Condition]) -> Result<Conditions, Refusal> {
        let mut all = Conditions::default();
        for condition in conditions {
            let column = format!("t.{}", quote(&condition.column));
            let form = table.form(&condition.column)?;
            if condition.value == Value::Null {
                all.parts.push(Part::Fixed(match condition.comparison {
                    Comparison::Equal => format!("{column} IS NULL"),
                    Comparison::NotEqual => format!("{column} IS NOT NULL"),
                    Comparison::AtLeast | Comparison::AtMost => "false".to_owned(),
                }));
                continue;
            }
            all.cells.extend(cell(table, condition)?);
            all.wires.push(form.wire);
            all.parts.push(Part::Open(column, condition.comparison, form.clone()));
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
}

/// The value that a condition compares with, as its column stores it; none for NULL, which has no
/// value.
pub(super) fn cell(table: &Table, condition: &Condition) -> Result<Option<Cell>, Refusal> {
    if condition.value == Value::Null {
        return Ok(None);
    }
    let round = match condition.comparison {
        Comparison::AtLeast => Round::Up,
        Comparison::Equal | Comparison::NotEqual | Comparison::AtMost => Round::Down,
    };
    table.cell(&condition.column, &condition.value, round).map(Some)
}

fn compared(column: &str, comparison: Comparison, form: &Form, value: &str) -> String {
    match comparison {
        Comparison::Equal => form.equals(column, value),
        Comparison::NotEqual if form.comparable => {
            format!("{column} IS DISTINCT FROM {}", form.meets(value))
        }
        Comparison::NotEqual => format!("{column}::text IS DISTINCT FROM {value}"),
        Comparison::AtLeast => format!("{column} >= {}", form.meets(value)),
        Comparison::AtMost => format!("{column} <= {}", form.meets(value)),
    }
}
