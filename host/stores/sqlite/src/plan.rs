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

/// What is wrong with the plan of a query.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It reads the whole table.
    Scans,
    /// It sorts all that it reads.
    Sorts,
}

impl Fault {
    /// What the query does, in words.
    pub(super) fn words(self) -> &'static str {
        match self {
            Fault::Scans => "reads the whole table",
            Fault::Sorts => "sorts the whole range",
        }
    }
}

/// Refuses the query if its plan reads the whole table, or sorts.
pub(super) fn refuse_full_scan(
    conn: &Connection,
    table: &Table,
    sql: &str,
    params: &Params<'_>,
) -> Job<()> {
    refuse(conn, table, sql, params, false)
}

/// Refuses the query for a fault in its plan; not if it only sorts, and may.
pub(super) fn refuse(
    conn: &Connection,
    table: &Table,
    sql: &str,
    params: &Params<'_>,
    may_sort: bool,
) -> Job<()> {
    let mark = format!("{}\0{}\0{sql}", conn.path().unwrap_or_default(), table.schema);
    if GOOD.knows(&mark) {
        return Ok(());
    }
    let found = fault(conn, sql, params)?;
    if let Some((fault, step)) = found.filter(|(fault, _)| !may_sort || *fault != Fault::Sorts) {
        let fault = format!("{} (SQLite's plan: {step})", fault.words());
        return Err(Error::Invalid(refusal(&table.collection.name, &fault)).into());
    }
    GOOD.learn(&mark);
    Ok(())
}

/// The fault in the plan of a query, with the step of the plan that shows it. One that scans is one that
/// scans, also if it sorts.
pub(super) fn fault(
    conn: &Connection,
    sql: &str,
    params: &Params<'_>,
) -> Job<Option<(Fault, String)>> {
    let mut statement = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    let mut rows = statement.query(params_from_iter(params.iter()))?;
    let mut sorts = None;
    while let Some(row) = rows.next()? {
        let step: String = row.get(3)?;
        if step.starts_with("SCAN") && !step.starts_with("SCAN CONSTANT") {
            return Ok(Some((Fault::Scans, step)));
        }
        if step == "USE TEMP B-TREE FOR ORDER BY" {
            sorts = Some((Fault::Sorts, step));
        }
    }
    Ok(sorts)
}
