//! The budgets of rows per second that all nodes share: one instant per task, as in
//! [`besom_core::budget`], advanced by one statement in its own transaction.
//!
//! The table is not logged: taking rows waits for no disk write, and a crash of the server resets
//! the budgets.

use std::num::NonZeroU32;

use besom_core::budget::{Allowance, KEPT_MICROS, worth_micros};
use besom_core::ids::TaskName;
use besom_core::time::Time;

use super::clock::{Clock, NOW};
use super::error::{Job, invalid};
use super::session::{Session, params};
use super::tasks::Tasks;

/// A statement that waited for the row's lock compares its own instant with the current row; the
/// row in `before` may be older, but a caller that was refused asks again in any case.
const TAKE: &str = "WITH asked AS (SELECT {now} AS now),
  taken AS (
    INSERT INTO @.row_budget AS b (task, free_at) SELECT $2::int4, now - $4::int8 + $3::int8 FROM asked
    ON CONFLICT (task) DO UPDATE
      SET free_at = greatest(b.free_at, excluded.free_at - $3::int8) + $3::int8
      WHERE b.free_at <= excluded.free_at - $3::int8 + $4::int8
    RETURNING 1)
  SELECT EXISTS (SELECT 1 FROM taken), asked.now, before.free_at
  FROM asked LEFT JOIN @.row_budget before ON before.task = $2::int4";

/// Takes rows if they are free.
pub(super) async fn take(
    session: &Session,
    clock: &Clock,
    tasks: &Tasks,
    task: &TaskName,
    rows: u64,
    per_second: NonZeroU32,
) -> Job<Allowance> {
    if rows == 0 {
        return Ok(Allowance::Now);
    }
    let task = tasks.number(session, task).await?;
    let worth = worth_micros(rows, per_second);
    let asked = params![clock.given(), task, worth, KEPT_MICROS];
    let row = session.row(&TAKE.replace("{now}", NOW), asked).await?;
    let row = row.ok_or_else(|| invalid("the database gave no answer"))?;
    if row.try_get(0)? {
        return Ok(Allowance::Now);
    }
    let (now, free_at): (i64, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
    Ok(Allowance::NotBefore(Time(free_at.unwrap_or(now).max(now))))
}
