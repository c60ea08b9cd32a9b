//! Writes a transaction's sums ([`besom_core::books::Tally`]).
//!
//! No commit waits for another over a counter: sums are added as rows of a tally, and items that
//! leave a run are counted in one of several shares, chosen by connection.

use std::borrow::Cow;

use besom_core::books::{Delta, Tally};
use besom_core::ids::{RunId, TaskName};
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
    sums: [Vec<i64>; 10],
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
               timers, retries, resolved, undo_bytes)
             SELECT * FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::int8[],
               $6::int8[], $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[],
               $12::int8[])",
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

/// Ends those of the runs `$1` whose scan has ended and whose items have left the log, at `$2`
/// (none: by the server's clock), and returns them.
///
/// Two commits that take the last items at the same time do not see each other, so a commit asks
/// again after committing, and the later of the two ends the run.
pub(super) const END_RUNS: &str = "UPDATE @.run r
  SET ended_at = coalesce($2::int8, (extract(epoch FROM clock_timestamp()) * 1000000)::int8)
  WHERE r.id = ANY($1::int8[]) AND r.scan_done AND r.ended_at IS NULL
    AND r.logged = coalesce((SELECT sum(s.unlogged) FROM @.run_share s WHERE s.run = r.id), 0)
  RETURNING r.id";

/// The answer to [`END_RUNS`], in order.
pub(super) fn ended_runs(rows: &[Row]) -> Job<Vec<RunId>> {
    let mut runs = Vec::with_capacity(rows.len());
    for row in rows {
        runs.push(RunId(row.try_get::<_, i64>(0)? as u64));
    }
    runs.sort_unstable();
    Ok(runs)
}

/// Adds the tally to the counters. Only a leader does this, under its fence.
pub(super) async fn fold(session: &Session) -> Job<()> {
    session
        .execute(
            "WITH gone AS (DELETE FROM @.tally RETURNING *)
             INSERT INTO @.counter AS c
             SELECT task, tenant, sum(planned), sum(committed), sum(skipped), sum(dead),
               sum(discarded), sum(log), sum(timers), sum(retries), sum(resolved),
               sum(undo_bytes)
             FROM gone GROUP BY task, tenant
             ON CONFLICT (task, tenant) DO UPDATE SET
               planned = c.planned + excluded.planned,
               committed = c.committed + excluded.committed,
               skipped = c.skipped + excluded.skipped, dead = c.dead + excluded.dead,
               discarded = c.discarded + excluded.discarded, log = c.log + excluded.log,
               timers = c.timers + excluded.timers, retries = c.retries + excluded.retries,
               resolved = c.resolved + excluded.resolved,
               undo_bytes = c.undo_bytes + excluded.undo_bytes",
            params![],
        )
        .await?;
    Ok(())
}
