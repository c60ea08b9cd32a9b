//! A transaction's additions to counters and runs, summed up and written once.
//!
//! No commit waits for another over a counter: sums are added as rows of a tally, and items that
//! leave a run are counted in one of several shares, chosen by connection.

use std::collections::BTreeMap;

use besom_core::ids::{RunId, Tenant};
use tokio_postgres::Row;

use super::error::Job;
use super::session::{Pipeline, Session, params};
use super::text::tenant_text;

/// The number of shares. A share is locked until its commit is on disk; with this many, few
/// connections use the same one.
const SHARES: i32 = 256;

/// Additions to the counters of one task and tenant.
#[derive(Clone, Copy, Default)]
pub(super) struct Delta {
    pub(super) planned: i64,
    pub(super) committed: i64,
    pub(super) skipped: i64,
    pub(super) dead: i64,
    pub(super) discarded: i64,
    pub(super) log: i64,
    pub(super) timers: i64,
    pub(super) retries: i64,
    /// Of the dead letters: those resolved by a later commit.
    pub(super) resolved: i64,
    pub(super) undo_bytes: i64,
}

/// The sums of one transaction.
#[derive(Default)]
pub(super) struct Tally {
    counters: BTreeMap<(i32, Option<Tenant>), Delta>,
    /// Items that left the log, and items that ended, by run.
    runs: BTreeMap<u64, (i64, i64)>,
}

impl Tally {
    /// The additions for a task and tenant.
    pub(super) fn of(&mut self, task: i32, tenant: Option<&Tenant>) -> &mut Delta {
        self.counters.entry((task, tenant.cloned())).or_default()
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

    /// The runs whose items left the log.
    pub(super) fn runs_left(&self) -> Vec<i64> {
        self.runs.iter().filter(|(_, (left, _))| *left > 0).map(|(run, _)| *run as i64).collect()
    }

    /// Adds the sums to the counters.
    pub(super) fn write_counters(&self, pipeline: &mut Pipeline<'_>) {
        if self.counters.is_empty() {
            return;
        }
        let (mut tasks, mut tenants) = (Vec::new(), Vec::new());
        let mut sums: [Vec<i64>; 10] = Default::default();
        for ((task, tenant), d) in &self.counters {
            tasks.push(*task);
            tenants.push(tenant_text(tenant.as_ref()));
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
            for (sum, value) in sums.iter_mut().zip(all) {
                sum.push(value);
            }
        }
        let mut params = params![tasks, tenants];
        for sum in sums {
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

    /// Writes the items that left the runs.
    pub(super) fn write_runs(&self, pipeline: &mut Pipeline<'_>) {
        if self.runs.is_empty() {
            return;
        }
        let (mut runs, mut left, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for (run, (from_log, at_end)) in &self.runs {
            runs.push(*run as i64);
            left.push(*from_log);
            ended.push(*at_end);
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
