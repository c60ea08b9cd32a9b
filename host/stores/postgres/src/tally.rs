//! Writes a transaction's sums ([`besom_core::books::Tally`]).
//!
//! No commit waits for another over a counter: sums are added as rows of a tally, and items that
//! leave a run are counted in one of several shares, chosen by connection.

use std::borrow::Cow;

use besom_core::books::{Delta, RunFacts, Tally};
use besom_core::ids::{RunId, TaskName};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::error::Job;
use super::session::{Pipeline, Session, params};
use super::text::tenant_text;

/// The number of shares. A share is locked until its commit is on disk; with this many, few
/// connections use the same one.
const SHARES: i32 = 256;

/// Additions to counters in columns, for `unnest`.
#[derive(Default)]
pub(super) struct Counters<'a> {
    tasks: Vec<i32>,
    tenants: Vec<Cow<'a, str>>,
    sums: [Vec<i64>; 11],
}

impl<'a> Counters<'a> {
    /// Those of a transaction; `number` returns the number of a task.
    pub(super) fn of(tally: &Tally<'a>, number: impl Fn(&TaskName) -> i32) -> Counters<'a> {
        let mut counters = Counters::default();
        for ((task, tenant), delta) in &tally.counters {
            counters.push(number(task), tenant_text(*tenant), delta);
        }
        counters
    }

    /// Adds to the counters of a task and tenant.
    pub(super) fn push(&mut self, task: i32, tenant: Cow<'a, str>, d: &Delta) {
        self.tasks.push(task);
        self.tenants.push(tenant);
        let all = [
            d.planned,
            d.committed,
            d.skipped,
            d.dead,
            d.discarded,
            d.log,
            d.timers,
            d.retries,
            d.resolved,
            d.undo_bytes,
            d.rows,
        ];
        for (sum, value) in self.sums.iter_mut().zip(all) {
            sum.push(value);
        }
    }

    /// Writes them.
    pub(super) fn write(self, pipeline: &mut Pipeline<'a>) {
        if self.tasks.is_empty() {
            return;
        }
        let mut params = params![self.tasks, self.tenants];
        for sum in self.sums {
            params.push(Box::new(sum));
        }
        pipeline.push(
            "INSERT INTO @.tally (task, tenant, planned, committed, skipped, dead, discarded, log,
               timers, retries, resolved, undo_bytes, rows)
             SELECT * FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::int8[],
               $6::int8[], $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[],
               $12::int8[], $13::int8[])",
            params,
        );
    }
}

/// The runs whose items left the log.
pub(super) fn runs_left(tally: &Tally<'_>) -> Vec<i64> {
    tally.runs_left().map(|run| run.0 as i64).collect()
}

/// Writes the items that left the runs.
pub(super) fn write_runs(tally: &Tally<'_>, pipeline: &mut Pipeline<'_>) {
    if tally.runs.is_empty() {
        return;
    }
    let (mut runs, mut left, mut ended) = (Vec::new(), Vec::new(), Vec::new());
    for (run, leaving) in &tally.runs {
        runs.push(run.0 as i64);
        left.push(leaving.log);
        ended.push(leaving.ended);
    }
    pipeline.push(
        format!(
            "INSERT INTO @.run_share AS s (run, share, unlogged, ended)
             SELECT u.run, pg_backend_pid() % {SHARES}, u.unlogged, u.ended
             FROM unnest($1::int8[], $2::int8[], $3::int8[]) u(run, unlogged, ended)
             ON CONFLICT (run, share) DO UPDATE SET unlogged = s.unlogged + excluded.unlogged,
               ended = s.ended + excluded.ended"
        ),
        params![runs, left, ended],
    );
}

/// What there is of the runs `$1`, for [`ending`].
///
/// Two commits that take the last items at the same time do not see each other, so a commit asks
/// again after committing, and the later of the two ends the run.
pub(super) const RUN_FACTS: &str = "SELECT r.id, r.scan_done,
    r.logged - coalesce((SELECT sum(s.unlogged)::int8 FROM @.run_share s WHERE s.run = r.id), 0),
    r.ended_at IS NOT NULL
  FROM @.run r WHERE r.id = ANY($1::int8[]) ORDER BY r.id";

/// The runs that end, according to the answer to [`RUN_FACTS`].
pub(super) fn ending(rows: &[Row]) -> Job<Vec<i64>> {
    let mut ending = Vec::new();
    for row in rows {
        let id: i64 = row.try_get(0)?;
        let (run, scan_done) = (RunId(id as u64), row.try_get(1)?);
        let facts = RunFacts { run, scan_done, open: row.try_get(2)?, ended: row.try_get(3)? };
        if facts.ends() {
            ending.push(id);
        }
    }
    Ok(ending)
}

/// Ends the runs `$1` at `$2` (none: by the server's clock). Whoever comes second to an end changes
/// nothing.
pub(super) const END_RUNS: &str = "UPDATE @.run r
  SET ended_at = coalesce($2::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)
  WHERE r.id = ANY($1::int8[]) AND r.ended_at IS NULL RETURNING r.id";

/// Ends those of the runs that are at their end; returns them.
pub(super) async fn end_runs(
    session: &Session,
    runs: Vec<i64>,
    at: Option<Time>,
) -> Job<Vec<RunId>> {
    let ending = ending(&session.query(RUN_FACTS, params![runs]).await?)?;
    end(session, ending, at).await
}

/// Ends these runs; returns those that had not ended before.
pub(super) async fn end(session: &Session, runs: Vec<i64>, at: Option<Time>) -> Job<Vec<RunId>> {
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let rows = session.query(END_RUNS, params![runs, at.map(|at| at.0)]).await?;
    let id = |row: &Row| Ok(RunId(row.try_get::<_, i64>(0)? as u64));
    let mut ended = rows.iter().map(id).collect::<Job<Vec<_>>>()?;
    ended.sort_unstable();
    Ok(ended)
}

/// Adds the tally to the counters. Only a leader does this, under its fence.
pub(super) async fn fold(session: &Session) -> Job<()> {
    session
        .execute(
            "WITH gone AS (DELETE FROM @.tally RETURNING *)
             INSERT INTO @.counter AS c
             SELECT task, tenant, sum(planned), sum(committed), sum(skipped), sum(dead),
               sum(discarded), sum(log), sum(timers), sum(retries), sum(resolved),
               sum(undo_bytes), sum(rows)
             FROM gone GROUP BY task, tenant
             ON CONFLICT (task, tenant) DO UPDATE SET
               planned = c.planned + excluded.planned,
               committed = c.committed + excluded.committed,
               skipped = c.skipped + excluded.skipped, dead = c.dead + excluded.dead,
               discarded = c.discarded + excluded.discarded, log = c.log + excluded.log,
               timers = c.timers + excluded.timers, retries = c.retries + excluded.retries,
               resolved = c.resolved + excluded.resolved,
               undo_bytes = c.undo_bytes + excluded.undo_bytes,
               rows = c.rows + excluded.rows",
            params![],
        )
        .await?;
    Ok(())
}
