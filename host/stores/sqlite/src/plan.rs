//! Checks the database's own plan of a query: a full scan of the user's table is refused, and so is
//! a sort of a whole range. An accepted query is remembered by its text.

use std::sync::LazyLock;

use rusqlite::{Connection, params_from_iter};

use super::error::Job;
use super::mapping::{Params, Table};
use besom_ports::store::Error;
use besom_tables::plan::{Good, refusal};

/// By database file and query text, because two stores may have different indexes.
static GOOD: LazyLock<Good> = LazyLock::new(Good::default);

/// Refuses the query if its plan reads the whole table, or sorts. `of_equals`: it reads rows with equal
/// values of the index, which may be sorted by the key.
pub(super) fn refuse_full_scan(
    conn: &Connection,
    table: &Table,
    sql: &str,
    params: &Params<'_>,
    of_equals: bool,
) -> Job<()> {
    let mark = format!("{}\0{sql}", conn.path().unwrap_or_default());
    if GOOD.knows(&mark) {
        return Ok(());
    }
    if let Some((fault, step)) = fault(conn, sql, params, of_equals)? {
        let fault = format!("{fault} (SQLite's plan: {step})");
        return Err(Error::Invalid(refusal(&table.collection.name, &fault)).into());
    }
    GOOD.learn(&mark);
    Ok(())
}

/// The fault in the plan of a query, with the step of the plan that shows it.
pub(super) fn fault(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
    of_equals: bool,
) -> Job<Option<(&'static str, String)>> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let mut rows = statement.query(params_from_iter(params.iter()))?;
    while let Some(row) = rows.next()? {
        let step: String = row.get(3)?;
        if step.starts_with("SCAN") && !step.starts_with("SCAN CONSTANT") {
            return Ok(Some(("reads the whole table", step)));
        }
        if step == "USE TEMP B-TREE FOR ORDER BY" && !of_equals {
            return Ok(Some(("sorts the whole range", step)));
        }
    }
    Ok(None)
}
