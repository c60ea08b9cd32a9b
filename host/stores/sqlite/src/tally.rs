//! Writes a transaction's sums ([`besom_core::books::Tally`]): one statement per counter and run.

use std::collections::BTreeMap;

use besom_core::books::{Delta, RunFacts, Tally};
use besom_core::ids::{RunId, Tenant};
use rusqlite::{Row, params};

use super::error::Job;
use super::statements::Statements;
use super::values::tenant_cell;
use super::writer::Tx;

/// Writes the sums; returns the runs that ended with them.
pub(super) fn write(tx: &mut Tx<'_>, tally: &Tally<'_>) -> Job<Vec<RunId>> {
    let mut undo: BTreeMap<i64, i64> = BTreeMap::new();
    for ((task, tenant), delta) in &tally.counters {
        let task = tx.task(task)?;
        add(tx, task, *tenant, delta)?;
        *undo.entry(task).or_default() += delta.undo_bytes;
    }
    add_undo(tx, &undo)?;
    let mut ended = Vec::new();
    for (run, leaving) in &tally.runs {
        let facts = tx.conn.first(
            "UPDATE besom_run SET open = open - ?2, items = items - ?3 WHERE id = ?1
             RETURNING id, scan_done, open, ended_at IS NOT NULL",
            params![run.0, leaving.log, leaving.ended],
            read_facts,
        )?;
        if leaving.log > 0 && facts.is_some_and(|facts| facts.ends()) {
            end(tx, *run)?;
            ended.push(*run);
        }
    }
    Ok(ended)
}

/// Adds to the counters of a task and tenant.
pub(super) fn add(tx: &Tx<'_>, task: i64, tenant: Option<&Tenant>, d: &Delta) -> Job<()> {
    tx.conn.run(
        "INSERT INTO besom_counter (task, tenant, planned, committed, skipped, dead, discarded,
           log, timers, retries, resolved, rows)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)
         ON CONFLICT (task, tenant) DO UPDATE SET
           planned = planned + excluded.planned, committed = committed + excluded.committed,
           skipped = skipped + excluded.skipped, dead = dead + excluded.dead,
           discarded = discarded + excluded.discarded, log = log + excluded.log,
           timers = timers + excluded.timers, retries = retries + excluded.retries,
           resolved = resolved + excluded.resolved, rows = rows + excluded.rows",
        params![
            task,
            tenant_cell(tenant),
            d.planned,
            d.committed,
            d.skipped,
            d.dead,
            d.discarded,
            d.log,
            d.timers,
            d.retries,
            d.resolved,
            d.rows
        ],
    )?;
    Ok(())
}

/// Adds bytes of before-images that were written or, if negative, removed, by task.
pub(super) fn add_undo(tx: &Tx<'_>, undo: &BTreeMap<i64, i64>) -> Job<()> {
    for (task, bytes) in undo.iter().filter(|(_, bytes)| **bytes != 0) {
        tx.conn.run(
            "UPDATE besom_task SET undo_bytes = undo_bytes + ?2 WHERE id = ?1",
            [task, bytes],
        )?;
    }
    Ok(())
}

/// Ends a run if it is at its end.
pub(super) fn end_if_done(tx: &Tx<'_>, run: RunId) -> Job<()> {
    let facts = tx.conn.first(
        "SELECT id, scan_done, open, ended_at IS NOT NULL FROM besom_run WHERE id = ?1",
        [run.0],
        read_facts,
    )?;
    if facts.is_some_and(|facts| facts.ends()) {
        end(tx, run)?;
    }
    Ok(())
}

fn read_facts(r: &Row<'_>) -> rusqlite::Result<RunFacts> {
    let (run, scan_done) = (RunId(r.get(0)?), r.get(1)?);
    Ok(RunFacts { run, scan_done, open: r.get(2)?, ended: r.get(3)? })
}

fn end(tx: &Tx<'_>, run: RunId) -> Job<()> {
    tx.conn.run("UPDATE besom_run SET ended_at = ?2 WHERE id = ?1", params![run.0, tx.now.0])?;
    Ok(())
}
