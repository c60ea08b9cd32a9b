//! Pruning: removes rows older than their retention; the baseline keeps the history's counts.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::books::{Counts, Delta};
use besom_core::ids::FencingToken;
use besom_core::item::End;
use besom_core::time::Time;
use besom_core::undo;

use super::clock::Clock;
use super::error::Job;
use super::outbox;
use super::session::{Pipeline, Session, Tx, cell, params};
use super::tally::{Counters, fold};
use super::tasks::Tasks;
use super::text::plain;
use besom_ports::store::{Pruned, Result, Retention, TERMS_KEPT};

/// How many history rows are examined per row with expired images.
const LOOK_FACTOR: i64 = 16;

/// Connections and idle timers that no query needs any more: a killed host closes none of its own.
const ACTIVITY: [&str; 2] = [
    "DELETE FROM @.activity WHERE (key, connection) IN
       (SELECT key, connection FROM @.activity WHERE seen_at < $1 LIMIT $2)",
    "DELETE FROM @.idle WHERE key IN (SELECT key FROM @.idle WHERE closed_at < $1 LIMIT $2)",
];

/// Prunes at most `limit` rows of each kind. `silent` is the age at which an activity report no
/// longer matters.
pub(super) async fn prune(
    session: Session,
    clock: &Clock,
    tasks: &Tasks,
    fence: &FencingToken,
    keep: Retention<'_>,
    silent: Duration,
    limit: u32,
) -> Result<Pruned> {
    let mut known = Vec::with_capacity(keep.undo.len());
    for (task, retention) in keep.undo {
        if let Some(task) = tasks.find(&session, task).await? {
            known.push((task, *retention));
        }
    }
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = pruned(&tx, keep, silent, &known, i64::from(limit)).await;
    tx.finish(done).await
}

async fn pruned(
    tx: &Tx,
    keep: Retention<'_>,
    silent: Duration,
    undo: &[(i32, Duration)],
    limit: i64,
) -> Job<Pruned> {
    let mut pruned = Pruned::default();
    let cutoff = tx.now - keep.history;
    prune_history(tx, cutoff, limit, &mut pruned).await?;
    for (task, retention) in undo {
        pruned.undo += prune_undo(tx, *task, tx.now - *retention, limit).await?;
    }
    pruned.other = tx.execute(RESOLVED, params![cutoff.0, limit]).await?
        + prune_other(tx, cutoff, limit).await?
        + prune_unrouted(tx, cutoff, keep.routed, limit).await?
        + tx.execute(NODES, params![(tx.now - keep.nodes).0, limit]).await?;
    for sql in ACTIVITY {
        pruned.other += tx.execute(sql, params![(tx.now - silent).0, limit]).await?;
    }
    fold(&tx.session).await?;
    outbox::mend(tx, limit).await?;
    Ok(pruned)
}

/// The oldest rows that have expired, from the first on: numbers grow with time.
const HISTORY: &str = "WITH oldest AS (
    SELECT h.id, c.at FROM @.history h JOIN @.commit c ON c.no = h.commit_no
    ORDER BY h.id LIMIT $2),
  gone AS (DELETE FROM @.history h USING oldest o
    WHERE h.id = o.id AND o.at < $1 AND h.id < coalesce(
      (SELECT min(id) FROM oldest WHERE at >= $1), 9223372036854775807)
    RETURNING h.task, h.tenant, h.outcome, h.rows, h.undo_bytes, h.undo IS NOT NULL AS held)
  SELECT task, tenant, outcome, count(*), count(*) FILTER (WHERE held), sum(undo_bytes)::int8,
    sum(rows)::int8
  FROM gone GROUP BY task, tenant, outcome";

const BASELINE: &str =
    "INSERT INTO @.baseline AS b (task, tenant, committed, skipped, discarded, rows, dead)
  SELECT u.*, 0
  FROM unnest($1::int4[], $2::text[], $3::int8[], $4::int8[], $5::int8[], $6::int8[]) u
  ON CONFLICT (task, tenant) DO UPDATE SET committed = b.committed + excluded.committed,
    skipped = b.skipped + excluded.skipped, discarded = b.discarded + excluded.discarded,
    rows = b.rows + excluded.rows";

/// Additions to the baseline, in columns: ends of items that no history row tells any more.
#[derive(Default)]
pub(super) struct Baseline {
    tasks: Vec<i32>,
    tenants: Vec<String>,
    committed: Vec<i64>,
    skipped: Vec<i64>,
    discarded: Vec<i64>,
    rows: Vec<i64>,
}

impl Baseline {
    /// Adds ends of items of a task and tenant.
    pub(super) fn push(&mut self, task: i32, tenant: String, ended: &Counts) {
        self.tasks.push(task);
        self.tenants.push(tenant);
        self.committed.push(ended.committed as i64);
        self.skipped.push(ended.skipped as i64);
        self.discarded.push(ended.discarded as i64);
        self.rows.push(ended.rows as i64);
    }

    /// Writes them.
    pub(super) fn write(self, pipeline: &mut Pipeline<'_>) {
        if !self.tasks.is_empty() {
            let Baseline { tasks, tenants, committed, skipped, discarded, rows } = self;
            pipeline.push(BASELINE, params![tasks, tenants, committed, skipped, discarded, rows]);
        }
    }
}

async fn prune_history(tx: &Tx, cutoff: Time, limit: i64, pruned: &mut Pruned) -> Job<()> {
    let mut counters = Counters::default();
    let mut gone: BTreeMap<(i32, String), Counts> = BTreeMap::new();
    for row in tx.query(HISTORY, params![cutoff.0, limit]).await? {
        let (task, tenant): (i32, String) = (row.try_get(0)?, row.try_get(1)?);
        let (rows, images, bytes): (i64, i64, i64) =
            (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?);
        pruned.history += rows as u64;
        pruned.undo += images as u64;
        let end = End::of(i64::from(row.try_get::<_, i16>(2)?));
        let counts = gone.entry((task, tenant.clone())).or_default();
        counts.count_ended(end, rows as u64);
        counts.rows += row.try_get::<_, i64>(6)? as u64;
        if bytes > 0 {
            let delta = Delta { undo_bytes: -bytes, ..Delta::default() };
            counters.push(task, tenant.into(), &delta);
        }
    }
    let mut baseline = Baseline::default();
    for ((task, tenant), counts) in gone {
        baseline.push(task, tenant, &counts);
    }
    let mut pipeline = Pipeline::default();
    baseline.write(&mut pipeline);
    counters.write(&mut pipeline);
    tx.session.run(pipeline).await?;
    Ok(())
}

async fn write(tx: &Tx, counters: Counters<'_>) -> Job<()> {
    let mut pipeline = Pipeline::default();
    counters.write(&mut pipeline);
    tx.session.run(pipeline).await?;
    Ok(())
}

/// Expired rows from the end of the previous pass, up to the last of `limit` rows that hold images
/// of the task, or of what has undone, in however many steps, an item of it.
const UNDO: &str = "WITH seen AS (
    SELECT h.id, c.at, h.undo IS NOT NULL AND coalesce(h.task = $1 OR h.task = u.id AND $1 = (
      WITH RECURSIVE undone(task, key) AS (
        SELECT h.task, h.key
        UNION ALL
        SELECT p.task, p.key FROM undone JOIN @.history p
          ON undone.task = u.id AND p.id = substring(undone.key FROM '#([0-9]{1,18})$')::int8)
      SELECT task FROM undone WHERE task <> u.id), false) AS holds
    FROM @.history h JOIN @.commit c ON c.no = h.commit_no
    LEFT JOIN @.task u ON u.name = $5
    WHERE h.id > (SELECT undo_pruned FROM @.task WHERE id = $1) ORDER BY h.id LIMIT $3),
  old AS (
    SELECT id, holds, count(*) FILTER (WHERE holds) OVER (ORDER BY id) AS held FROM seen
    WHERE id < coalesce((SELECT min(id) FROM seen WHERE at >= $2), 9223372036854775807)),
  expired AS (SELECT id, holds FROM old WHERE held <= $4 AND (holds OR held < $4)),
  emptied AS (UPDATE @.history h SET undo = NULL, undo_bytes = 0
    FROM (SELECT w.id, w.undo_bytes FROM @.history w JOIN expired e ON e.id = w.id AND e.holds) o
    WHERE h.id = o.id RETURNING h.task, h.tenant, o.undo_bytes),
  marked AS (UPDATE @.task SET undo_pruned = m.last
    FROM (SELECT max(id) AS last FROM expired) m WHERE @.task.id = $1 AND m.last IS NOT NULL)
  SELECT tenant, count(*), sum(undo_bytes)::int8, task FROM emptied GROUP BY task, tenant";

/// Removes expired images of one task, from the end of the previous pass.
async fn prune_undo(tx: &Tx, task: i32, cutoff: Time, limit: i64) -> Job<u64> {
    let looked = limit.saturating_mul(LOOK_FACTOR);
    let (mut removed, mut counters) = (0, Counters::default());
    for row in tx.query(UNDO, params![task, cutoff.0, looked, limit, undo::TASK]).await? {
        removed += row.try_get::<_, i64>(1)? as u64;
        let bytes: i64 = row.try_get(2)?;
        let delta = Delta { undo_bytes: -bytes, ..Delta::default() };
        counters.push(row.try_get(3)?, row.try_get::<_, String>(0)?.into(), &delta);
    }
    write(tx, counters).await?;
    Ok(removed)
}

/// Each statement removes at most `$2` rows that are older than `$1`.
const OTHER: &[&str] = &[
    // History rows still refer to node and time of their commits: all rows of a commit have numbers
    // up to its last.
    "DELETE FROM @.commit WHERE no IN (SELECT c.no FROM @.commit c
       WHERE c.at < $1 AND c.last < coalesce((SELECT id FROM @.history ORDER BY id LIMIT 1),
                                        9223372036854775807)
       ORDER BY c.no LIMIT $2)",
    "DELETE FROM @.slot WHERE id IN (SELECT s.id FROM @.slot s
       WHERE s.to_slot < $1 AND s.to_slot < (SELECT max(to_slot) FROM @.slot WHERE task = s.task)
       ORDER BY s.id LIMIT $2)",
    "WITH gone AS (DELETE FROM @.run WHERE id IN (SELECT r.id FROM @.run r
         WHERE r.ended_at < $1 AND r.planned =
           coalesce((SELECT sum(s.ended) FROM @.run_share s WHERE s.run = r.id), 0)
         ORDER BY r.id LIMIT $2) RETURNING id),
       shares AS (DELETE FROM @.run_share s USING gone WHERE s.run = gone.id),
       brakes AS (DELETE FROM @.brake b USING gone WHERE b.run = gone.id),
       reviews AS (DELETE FROM @.review v USING gone WHERE v.run = gone.id)
     SELECT id FROM gone",
    "DELETE FROM @.command WHERE id IN (SELECT id FROM @.command
       WHERE applied_at < $1 ORDER BY id LIMIT $2)",
    "DELETE FROM @.outbox WHERE id IN (SELECT id FROM @.outbox
       WHERE (delivered_at IS NOT NULL OR given_up_at IS NOT NULL)
         AND coalesce(delivered_at, given_up_at) < $1
       ORDER BY coalesce(delivered_at, given_up_at) LIMIT $2)",
    "DELETE FROM @.cursor WHERE (task, tenant) IN
       (SELECT task, tenant FROM @.cursor WHERE moved_at < $1 LIMIT $2)",
    // A document that was left alone may be planned again once per retention; one that an operator
    // discarded may not.
    "DELETE FROM @.settled WHERE ctid = ANY(ARRAY(SELECT ctid FROM @.settled
       WHERE at < $1 AND NOT given_up ORDER BY at LIMIT $2))",
];

/// The next topic with pending messages.
const NEXT_TOPIC: &str = "SELECT topic FROM @.outbox
   WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic > $1 ORDER BY topic LIMIT 1";

/// Only the first messages of a topic are examined, which have waited longest: a topic with recent
/// messages costs little.
const UNROUTED: &str = "DELETE FROM @.outbox WHERE id IN (SELECT id FROM (
     SELECT id, at FROM @.outbox
     WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = $1
     ORDER BY id LIMIT $3) first WHERE at < $2)";

/// Removes old pending messages of topics without a route.
async fn prune_unrouted(tx: &Tx, cutoff: Time, routed: Option<&[String]>, limit: i64) -> Job<u64> {
    let Some(routed) = routed else { return Ok(0) };
    let (mut removed, mut last) = (0, String::new());
    while let Some(topic) = tx.maybe::<String>(NEXT_TOPIC, params![last.clone()], cell).await? {
        if !routed.contains(&plain(topic.clone())) {
            removed += tx.execute(UNROUTED, params![topic.clone(), cutoff.0, limit]).await?;
        }
        last = topic;
    }
    Ok(removed)
}

/// Lines of removed runs, then heads without lines.
const LINES: &[&str] = &[
    "DELETE FROM @.run_line WHERE (run, no) IN (SELECT l.run, l.no
       FROM @.run_log h JOIN @.run_line l ON l.run = h.run
       WHERE NOT EXISTS (SELECT 1 FROM @.run r WHERE r.id = h.run) LIMIT $1)",
    "DELETE FROM @.run_log h WHERE h.run IN (SELECT h.run FROM @.run_log h
       WHERE NOT EXISTS (SELECT 1 FROM @.run r WHERE r.id = h.run)
         AND NOT EXISTS (SELECT 1 FROM @.run_line l WHERE l.run = h.run) LIMIT $1)",
];

/// The newest are kept, however old.
const TERMS: &str = "DELETE FROM @.term WHERE term IN (SELECT term FROM @.term
   WHERE raised_at < $1 AND term < (SELECT term FROM @.term ORDER BY term DESC OFFSET $3 LIMIT 1)
   ORDER BY term LIMIT $2)";

/// Dead letters that were resolved long ago; the baseline still counts them.
const RESOLVED: &str = "WITH gone AS (DELETE FROM @.dead WHERE id IN (SELECT id FROM @.dead
      WHERE resolved_at IS NOT NULL AND resolved_at < $1 ORDER BY resolved_at LIMIT $2)
    RETURNING id, task, tenant),
  based AS (INSERT INTO @.baseline AS b (task, tenant, committed, skipped, discarded, dead)
    SELECT task, tenant, 0, 0, 0, count(*) FROM gone GROUP BY task, tenant
    ON CONFLICT (task, tenant) DO UPDATE SET dead = b.dead + excluded.dead)
  SELECT id FROM gone";

const NODES: &str =
    "DELETE FROM @.node WHERE node IN (SELECT node FROM @.node WHERE seen_at < $1 LIMIT $2)";

async fn prune_other(tx: &Tx, cutoff: Time, limit: i64) -> Job<u64> {
    let mut removed = 0;
    for sql in OTHER {
        removed += tx.execute(sql, params![cutoff.0, limit]).await?;
    }
    for sql in LINES {
        removed += tx.execute(sql, params![limit]).await?;
    }
    let kept = i64::from(TERMS_KEPT) - 1;
    removed += tx.execute(TERMS, params![cutoff.0, limit, kept]).await?;
    tx.execute(
        "DELETE FROM @.definition d WHERE NOT EXISTS (SELECT 1 FROM @.run WHERE definition = d.id)",
        params![],
    )
    .await?;
    Ok(removed)
}
