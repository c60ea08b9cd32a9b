//! A transaction's additions to counters, runs and streams, summed up and written once.

use std::collections::BTreeMap;

use besom_core::ids::{RunId, Tenant};
use rusqlite::params;

use super::error::Job;
use super::values::TenantCell;
use super::writer::Tx;

/// Additions to the counters of one task and tenant.
#[derive(Clone, Copy, Default)]
pub(super) struct Delta {
    pub(super) planned: i64,
    pub(super) committed: i64,
    pub(super) skipped: i64,
    pub(super) dead: i64,
    /// Of these, dead letters resolved by a later commit.
    pub(super) resolved: i64,
    pub(super) discarded: i64,
    pub(super) log: i64,
    pub(super) timers: i64,
    pub(super) retries: i64,
}

/// The sums of one transaction.
#[derive(Default)]
pub(super) struct Tally {
    counters: BTreeMap<(i64, TenantCell), Delta>,
    /// Items that left the log, and items that ended, by run.
    runs: BTreeMap<u64, (i64, i64)>,
    /// Bytes of before-images, by task.
    undo: BTreeMap<i64, i64>,
}

impl Tally {
    /// The additions for a task and tenant.
    pub(super) fn of(&mut self, task: i64, tenant: Option<&Tenant>) -> &mut Delta {
        self.counters.entry((task, TenantCell(tenant.cloned()))).or_default()
    }

    /// Records that an item of the run has left the log.
    pub(super) fn left_log(&mut self, run: RunId) {
        self.runs.entry(run.0).or_default().0 += 1;
    }

    /// Records that an item of the run has ended: it no longer refers to the run.
    pub(super) fn ended(&mut self, run: RunId) {
        if run != RunId::NONE {
            self.runs.entry(run.0).or_default().1 += 1;
        }
    }

    /// Records that before-images were written or, if negative, removed.
    pub(super) fn undo(&mut self, task: i64, bytes: i64) {
        *self.undo.entry(task).or_default() += bytes;
    }

    /// Writes the sums; returns the runs that ended with them.
    pub(super) fn write(self, tx: &mut Tx<'_>) -> Job<Vec<RunId>> {
        let mut upsert = tx.conn.prepare_cached(
            "INSERT INTO besom_counter (task, tenant, planned, committed, skipped, dead, discarded,
               log, timers, retries, resolved)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
             ON CONFLICT (task, tenant) DO UPDATE SET
               planned = planned + excluded.planned, committed = committed + excluded.committed,
               skipped = skipped + excluded.skipped, dead = dead + excluded.dead,
               discarded = discarded + excluded.discarded, log = log + excluded.log,
               timers = timers + excluded.timers, retries = retries + excluded.retries,
               resolved = resolved + excluded.resolved",
        )?;
        for ((task, tenant), d) in &self.counters {
            upsert.execute(params![
                task,
                tenant,
                d.planned,
                d.committed,
                d.skipped,
                d.dead,
                d.discarded,
                d.log,
                d.timers,
                d.retries,
                d.resolved
            ])?;
        }
        for (task, bytes) in &self.undo {
            tx.conn
                .prepare_cached("UPDATE besom_task SET undo_bytes = undo_bytes + ?2 WHERE id = ?1")?
                .execute([task, bytes])?;
        }
        let mut ended = Vec::new();
        for (run, (left, at_end)) in &self.runs {
            tx.conn
                .prepare_cached(
                    "UPDATE besom_run SET open = open - ?2, items = items - ?3 WHERE id = ?1",
                )?
                .execute(params![run, left, at_end])?;
            if *left > 0 && end_if_done(tx, RunId(*run))? {
                ended.push(RunId(*run));
            }
        }
        Ok(ended)
    }
}

/// Ends a run whose scan has ended and whose items have left the log. Returns whether it ended now.
pub(super) fn end_if_done(tx: &Tx<'_>, run: RunId) -> Job<bool> {
    let ended = tx
        .conn
        .prepare_cached(
            "UPDATE besom_run SET ended_at = ?2
             WHERE id = ?1 AND scan_done = 1 AND open = 0 AND ended_at IS NULL",
        )?
        .execute(params![run.0, tx.now.0])?;
    Ok(ended == 1)
}
