//! The brakes of runs ([`besom_core::brake`]), and the estimates that they are set by.

use besom_core::brake::{Brake, Used};
use besom_core::ids::{FencingToken, RunId, TaskName};
use rusqlite::{Connection, params};

use super::error::Job;
use super::leadership::check_fence;
use super::lookup::invalid;
use super::mapping::Mapping;
use super::statements::Statements;
use super::writer::Tx;
use besom_ports::store::{BRAKES_RESUMED, Brakes};

/// The number of rows of a collection: what ANALYZE has found, or counted up to `count_max`.
pub(super) fn estimate(
    conn: &Connection,
    mapping: &Mapping,
    collection: &str,
    count_max: u64,
) -> Job<u64> {
    let table = mapping.table(collection).map_err(invalid)?;
    let analyzed = "SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'";
    if conn.exists(analyzed, [])? {
        // The first number is that of the rows; an index of a part of them has fewer.
        let most =
            "SELECT max(CAST(stat AS INTEGER)) FROM sqlite_stat1 WHERE tbl = ?1 COLLATE NOCASE";
        let found: Option<i64> = conn.query_row(most, [&*table.collection.table], |r| r.get(0))?;
        if let Some(rows) = found.and_then(|rows| u64::try_from(rows).ok()).filter(|n| *n > 0) {
            return Ok(rows);
        }
    }
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT ?1)", table.name);
    let count_max = i64::try_from(count_max).unwrap_or(i64::MAX);
    Ok(conn.query_row(&sql, [count_max], |r| r.get(0))?)
}

/// Sets brakes that are not set yet.
pub(super) fn set(tx: &mut Tx<'_>, fence: &FencingToken, brakes: &[Brake]) -> Job<()> {
    check_fence(tx, fence)?;
    for brake in brakes {
        tx.conn.run(
            "INSERT INTO besom_brake VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING",
            params![brake.run.0, brake.what, brake.used, brake.allowed, brake.estimate],
        )?;
    }
    Ok(())
}

/// The brakes of a task's runs, newest first.
pub(super) fn of_task(conn: &Connection, task: &TaskName, limit: u32) -> Job<Vec<Brake>> {
    conn.all(
        "SELECT b.run, b.what, b.used, b.allowed, b.estimate FROM besom_task t
         JOIN besom_run r ON r.task = t.id JOIN besom_brake b ON b.run = r.id
         WHERE t.name = ?1 ORDER BY r.id DESC, b.what LIMIT ?2",
        params![task.as_str(), limit],
        read,
    )
}

/// Adds what a commit uses. Returns whether all of it is allowed; otherwise the transaction must not be
/// committed.
pub(super) fn add(tx: &Tx<'_>, used: &Used) -> Job<bool> {
    for ((run, what), more) in used {
        let after: Option<(u64, Option<u64>)> = tx.conn.first(
            "UPDATE besom_brake SET used = used + ?3 WHERE run = ?1 AND what = ?2
             RETURNING used, allowed",
            params![run.0, what, more],
            |r| r.try_into(),
        )?;
        if after.is_some_and(|(used, allowed)| Brake::forbids(used, allowed)) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sets the brakes of a task's newest unfinished runs anew.
pub(super) fn resume(tx: &Tx<'_>, task: &TaskName, brakes: &Brakes) -> Job<()> {
    let found = tx.conn.all(
        "SELECT b.run, b.what, b.used, b.allowed, b.estimate FROM besom_task t
         JOIN besom_run r ON r.task = t.id JOIN besom_brake b ON b.run = r.id
         WHERE t.name = ?1 AND (r.ended_at IS NULL OR r.items > 0)
         ORDER BY r.id DESC, b.what LIMIT ?2",
        params![task.as_str(), BRAKES_RESUMED],
        read,
    )?;
    renew(tx, found, brakes)
}

/// Sets the brakes of a run anew.
pub(super) fn approve(tx: &Tx<'_>, run: RunId, brakes: &Brakes) -> Job<()> {
    let of_run = "SELECT run, what, used, allowed, estimate FROM besom_brake WHERE run = ?1";
    renew(tx, tx.conn.all(of_run, [run.0], read)?, brakes)
}

fn read(row: &rusqlite::Row<'_>) -> Job<Brake> {
    let (run, what) = (RunId(row.get(0)?), row.get(1)?);
    Ok(Brake { run, what, used: row.get(2)?, allowed: row.get(3)?, estimate: row.get(4)? })
}

fn renew(tx: &Tx<'_>, found: Vec<Brake>, brakes: &Brakes) -> Job<()> {
    for brake in found {
        let resumed = brake.clone().resumed(brakes);
        if resumed == brake {
            continue;
        }
        let Brake { run, what, used, allowed, .. } = resumed;
        tx.conn.run(
            "UPDATE besom_brake SET used = ?3, allowed = ?4 WHERE run = ?1 AND what = ?2",
            params![run.0, what, used, allowed],
        )?;
    }
    Ok(())
}
