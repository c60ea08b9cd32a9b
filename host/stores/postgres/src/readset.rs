//! Read sets as SQL.

use besom_core::ids::Tenant;
use besom_core::proposal::ReadSet;

use super::guards::matched;
use super::mapping::{Refusal, Table, quote};
use super::session::Param;
use super::set::Set;
use super::values::Cell;
use besom_tables::encoding::Round;
use besom_tables::readset::{Shape, shape};

/// A statement that counts rows.
pub(super) struct Counting {
    pub(super) sql: String,
    pub(super) params: Vec<Param<'static>>,
}

/// The rows of a set: the text after FROM or USING, the condition that joins `t` with it, and the
/// parameters of both.
pub(super) struct Rows {
    pub(super) from: String,
    pub(super) on: String,
    pub(super) params: Vec<Param<'static>>,
    /// The number of rows in the set.
    pub(super) count: i64,
}

/// The rows of a set in a table.
pub(super) fn rows(table: &Table, tenant: Option<&Tenant>, set: &ReadSet) -> Result<Rows, Refusal> {
    match shape(&table.collection, set) {
        Shape::Runs(runs) => {
            let (mut on, mut params) = (Vec::new(), Vec::<Param<'static>>::new());
            let mut and = |name: &str, form: &super::values::Form, cell: Cell| {
                params.push(Box::new(cell));
                let value = format!("${}::{}", params.len(), form.wire.sql());
                on.push(form.equals(&format!("t.{name}"), &value));
            };
            if let (Some(cell), Some((name, form))) = (table.tenant_cell(tenant)?, &table.tenant) {
                and(name, form, cell);
            }
            for (name, value) in table.collection.key.iter().zip(&set.prefix) {
                and(&quote(name), table.form(name)?, table.cell(name, value, Round::Down)?);
            }
            let last = quote(table.collection.key.last().map_or("", String::as_str));
            on.push(format!("t.{last} BETWEEN r.a AND r.b"));
            let count = runs.iter().map(|(a, b)| b - a + 1).sum();
            let (from, to): (Vec<i64>, Vec<i64>) = runs.into_iter().unzip();
            let at = params.len();
            params.push(Box::new(from));
            params.push(Box::new(to));
            let from = format!("unnest(${}::int8[], ${}::int8[]) AS r(a, b)", at + 1, at + 2);
            Ok(Rows { from, on: on.join(" AND "), params, count })
        }
        Shape::Keys => {
            let key = table.key_columns()?;
            let mut all = Set::new(key.iter().map(|(_, form)| form.wire).collect());
            for (at, row) in set.keys().enumerate() {
                all.push(at, table.key_cells(tenant, &row)?);
            }
            let count = all.len() as i64;
            Ok(Rows { from: all.sql(1), on: matched(&key), params: all.params(), count })
        }
    }
}

/// Counts the existing rows of a set, and the expected number. With `hold`, none of them can be
/// deleted before the transaction ends.
pub(super) fn count(
    table: &Table,
    tenant: Option<&Tenant>,
    set: &ReadSet,
    hold: bool,
) -> Result<(Counting, i64), Refusal> {
    let Rows { from, on, params, count } = rows(table, tenant, set)?;
    let held = if hold { " FOR KEY SHARE OF t" } else { "" };
    let sql = format!(
        "SELECT count(*) FROM (SELECT 1 FROM {from} JOIN {} t ON {on}{held}) AS found",
        table.name
    );
    Ok((Counting { sql, params }, count))
}
