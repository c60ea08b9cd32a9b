//! Whether numbers are instants in another unit than the mapping says (see [`besom_tables::units`]).

use besom_core::collection::Column;
use besom_core::value::{Kind, Value};
use besom_ports::store::{Error, UNTIL_MATCHED};
use besom_snapshot::Cause;
use besom_tables::units::{READ, Units, is_in_another_unit};

use super::error::Job;
use super::mapping::{Table, quote};
use super::session::{Session, cell, params};
use super::values::{Form, Wire};

/// Number of rows looked at.
const ROWS: u32 = 400;

/// Whether a column holds instants as numbers.
pub(super) fn is_number(form: &Form) -> bool {
    form.kind == Kind::Timestamp && form.wire == Wire::Integer
}

/// The first of these columns that has an instant of another unit in a row.
pub(super) fn suspect(forms: &[Form], row: &[Value]) -> Option<usize> {
    let column = |form: &Form| Column { kind: form.kind, encoding: form.encoding };
    forms
        .iter()
        .zip(row)
        .position(|(form, value)| is_number(form) && is_in_another_unit(column(form), value))
}

/// Refuses a read that has found such an instant, if most rows have one: then the mapping is wrong.
pub(super) async fn refuse(session: &Session, table: &Table, name: &str) -> Job<()> {
    if table.has_known_units() {
        return Ok(());
    }
    match fault(session, table, name).await? {
        Some(message) => {
            let collection = &table.collection.name;
            let why = format!(
                "{collection}.{name}: {READ}; collection `{collection}`, columns.{name}: \
                 {message}{UNTIL_MATCHED}"
            );
            Err(Error::Refused(Cause::Schema, why).into())
        }
        None => {
            table.note_units();
            Ok(())
        }
    }
}

/// The fault in the unit of a column of numbers, judged by some rows.
pub(super) async fn fault(session: &Session, table: &Table, name: &str) -> Job<Option<String>> {
    let Some(column) = table.collection.columns.get(name) else { return Ok(None) };
    let sql = format!(
        "SELECT array_agg(s.v) FROM (SELECT t.{}::int8 AS v FROM {} t LIMIT {ROWS}) s
         WHERE s.v IS NOT NULL",
        quote(name),
        table.name
    );
    let numbers: Option<Vec<i64>> = session.maybe(&sql, params![], cell).await?.flatten();
    let (mut units, numbers) = (Units::default(), numbers.unwrap_or_default());
    for number in &numbers {
        units.add(*number, column.encoding);
    }
    Ok(units.fault(*column, numbers.len() as u64))
}
