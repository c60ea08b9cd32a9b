//! Conditions on columns as SQL over the alias `t`. A condition is true or false, never unknown.

use besom_core::proposal::Comparison;
use besom_core::value::{Kind, Value};

use super::mapping::{Refusal, Table, quote};
use super::session::Param;
use super::values::{Cell, Form, Wire};
use besom_tables::conditions::{Term, Tested, round};

/// Conditions with separate values: the SQL is the same for every item whose conditions differ only
/// in their values.
#[derive(Default)]
pub(super) struct Conditions {
    /// The text of each condition, with its values left open, or complete.
    parts: Vec<Part>,
    /// The values, in order.
    pub(super) cells: Vec<Cell>,
    /// Their forms on the way.
    pub(super) wires: Vec<Wire>,
}

enum Part {
    Fixed(String),
    Open(String, Comparison, Form),
    StartsWith(String),
    /// One of them, or all.
    Several(Vec<Part>, &'static str),
}

impl Conditions {
    /// Comparisons with columns of a table.
    pub(super) fn of<'v>(
        table: &Table,
        terms: impl IntoIterator<Item = impl Into<Term<'v>>>,
    ) -> Result<Conditions, Refusal> {
        let mut all = Conditions::default();
        for term in terms {
            let part = all.part(table, term.into())?;
            all.parts.push(part);
        }
        Ok(all)
    }

    fn part(
        &mut self,
        table: &Table,
        Term { column: name, tested }: Term<'_>,
    ) -> Result<Part, Refusal> {
        let (column, form) = (format!("t.{}", quote(name)), table.form(name)?);
        Ok(match tested {
            Tested::Value(comparison, value) => {
                form.column().has_order(name, comparison)?;
                self.compared(table, name, (&column, form), comparison, value)?
            }
            Tested::Column(comparison, other) => {
                let with = table.form(other)?;
                form.column().comparable(name, with.column(), other)?;
                form.column().has_order(name, comparison)?;
                let other = format!("t.{}", quote(other));
                Part::Fixed(columns(&column, form, &other, with, comparison))
            }
            Tested::Listed { values, inside } => {
                let (comparison, between) = match inside {
                    true => (Comparison::Equal, " OR "),
                    false => (Comparison::NotEqual, " AND "),
                };
                let mut parts = Vec::with_capacity(values.len());
                for value in values {
                    parts.push(self.compared(table, name, (&column, form), comparison, value)?);
                }
                match parts.is_empty() {
                    true => Part::Fixed((!inside).to_string()),
                    false => Part::Several(parts, between),
                }
            }
            Tested::StartsWith(text) => {
                form.column().has_prefixes(name)?;
                self.cells.push(Cell::Text(text.to_owned()));
                self.wires.push(Wire::Text);
                Part::StartsWith(column)
            }
        })
    }

    fn compared(
        &mut self,
        table: &Table,
        name: &str,
        (column, form): (&str, &Form),
        comparison: Comparison,
        value: &Value,
    ) -> Result<Part, Refusal> {
        let Some(cell) = cell(table, name, comparison, value)? else {
            return Ok(Part::Fixed(match comparison {
                Comparison::Equal => format!("{column} IS NULL"),
                Comparison::NotEqual => format!("{column} IS NOT NULL"),
                Comparison::Below
                | Comparison::AtMost
                | Comparison::AtLeast
                | Comparison::Above => "false".to_owned(),
            }));
        };
        self.cells.push(cell);
        self.wires.push(form.wire);
        Ok(Part::Open(column.to_owned(), comparison, form.clone()))
    }

    /// ` AND condition` for each condition; `value(place)` names its value.
    pub(super) fn sql(&self, value: impl Fn(usize) -> String) -> String {
        let (mut sql, mut place) = (String::new(), 0);
        let mut next = || {
            place += 1;
            value(place - 1)
        };
        for part in &self.parts {
            sql.push_str(" AND ");
            part.push(&mut sql, &mut next);
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

impl Part {
    fn push(&self, sql: &mut String, next: &mut impl FnMut() -> String) {
        match self {
            Part::Fixed(text) => sql.push_str(text),
            Part::Open(column, comparison, form) => {
                sql.push_str(&compared(column, *comparison, form, &next()));
            }
            // A collation may call texts equal that are not, so it is not asked.
            Part::StartsWith(column) => {
                sql.push_str(&format!("starts_with({column}::text, {})", next()));
            }
            Part::Several(parts, between) => {
                for (at, part) in parts.iter().enumerate() {
                    sql.push_str(if at == 0 { "((" } else { between });
                    if at > 0 {
                        sql.push('(');
                    }
                    part.push(sql, next);
                    sql.push(')');
                }
                sql.push(')');
            }
        }
    }
}

/// The value that a column is compared with, as the column stores it; `None` for NULL, which has no
/// value.
pub(super) fn cell(
    table: &Table,
    column: &str,
    comparison: Comparison,
    value: &Value,
) -> Result<Option<Cell>, Refusal> {
    match value {
        Value::Null => Ok(None),
        value => table.cell(column, value, round(comparison)).map(Some),
    }
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
        ordered => format!("{column} {} {}", operator(ordered), form.meets(value)),
    }
}

fn operator(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Equal => "IS NOT DISTINCT FROM",
        Comparison::NotEqual => "IS DISTINCT FROM",
        Comparison::Below => "<",
        Comparison::AtMost => "<=",
        Comparison::AtLeast => ">=",
        Comparison::Above => ">",
    }
}

/// A column compared with another one that holds the same kind in the same encoding; their types may differ.
fn columns(a: &str, form: &Form, b: &str, with: &Form, comparison: Comparison) -> String {
    let read = |column: &str, form: &Form| match (form.kind, form.wire) {
        (Kind::Decimal, _) => format!("{column}::numeric"),
        (_, Wire::Text) => format!("{column}::text COLLATE \"C\""),
        _ => form.read(column),
    };
    format!("{} {} {}", read(a, form), operator(comparison), read(b, with))
}
