//! The budgets of rows per second: one instant per task, as in [`besom_core::budget`].

use std::num::NonZeroU32;

use besom_core::budget::{self, Allowance};
use besom_core::ids::TaskName;
use besom_core::time::Time;
use rusqlite::params;

use super::error::Job;
use super::statements::Statements;
use super::writer::Tx;

/// Takes rows if they are free.
pub(super) fn take(
    tx: &mut Tx<'_>,
    task: &TaskName,
    rows: u64,
    per_second: NonZeroU32,
) -> Job<Allowance> {
    let task = tx.task(task)?;
    let known = "SELECT free_at FROM besom_row_budget WHERE task = ?1";
    let before = tx.conn.first(known, [task], |r| r.get(0).map(Time))?;
    let (grant, after) = budget::take(before, tx.now, rows, per_second);
    if after != before
        && let Some(after) = after
    {
        tx.conn.run(
            "INSERT INTO besom_row_budget VALUES (?1, ?2)
             ON CONFLICT (task) DO UPDATE SET free_at = excluded.free_at",
            params![task, after.0],
        )?;
    }
    Ok(grant)
}
