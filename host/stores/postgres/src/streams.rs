//! Streams that have lost items: their state, and their repair.

use std::collections::BTreeSet;

use besom_core::books::{Counts, RunItems, Tally, WaitingCounts, write_off, write_off_run};
use besom_core::ids::{Partition, RunId, Seq, TaskName};
use tokio_postgres::Row;

use super::arrivals;
use super::error::Job;
use super::prune::Baseline;
use super::session::{Pipeline, Session, Tx, cell, params};
use super::tally::{Counters, end_runs, write_runs};
use super::text::NO_DUE;
use besom_ports::store::{Repaired, Stream, StreamRow};

/// Streams with unacknowledged items, and the number of items that exist.
pub(super) async fn rows(session: &Session, task: Option<&TaskName>) -> Job<Vec<StreamRow>> {
    let sql = "SELECT t.name, s.part, h.acked, s.tail,
          (SELECT count(*) FROM @.item i
           WHERE i.task = s.task AND i.part = s.part AND i.place = 0 AND i.no > h.acked)
        FROM @.stream_tail s JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
        JOIN @.task t ON t.id = s.task
        WHERE s.tail > h.acked AND ($1::text IS NULL OR t.name = $1)
        ORDER BY t.name, s.part";
    let stream = |r: &Row| -> Job<StreamRow> {
        let stream = Stream {
            task: r.try_get::<_, String>(0)?.into(),
            partition: Partition(r.try_get::<_, i32>(1)? as u32),
            acked: Seq(r.try_get::<_, i64>(2)? as u64),
            tail: Seq(r.try_get::<_, i64>(3)? as u64),
        };
        Ok(StreamRow { stream, items: r.try_get::<_, i64>(4)? as u64 })
    };
    session.all(sql, params![task.map(|task| task.as_str().to_owned())], stream).await
}

/// The streams of a task, locked: neither planning nor a commit moves them.
const HOLD: &str = "SELECT s.part FROM @.stream_tail s
  JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
  WHERE s.task = $1 ORDER BY s.part FOR UPDATE";

/// Restores the heads and tails of streams that have lost one or both although items are in their
/// logs.
const RESTORE: &str = "WITH lost AS (
    SELECT p.part, s.tail, h.acked, i.first, i.last FROM (
      SELECT part FROM @.stream_tail WHERE task = $1
      UNION SELECT part FROM @.stream_head WHERE task = $1
      UNION SELECT part FROM @.item WHERE task = $1 AND place = 0) p
    LEFT JOIN @.stream_tail s ON s.task = $1 AND s.part = p.part
    LEFT JOIN @.stream_head h ON h.task = $1 AND h.part = p.part
    LEFT JOIN (SELECT part, min(no) AS first, max(no) AS last FROM @.item
               WHERE task = $1 AND place = 0 GROUP BY part) i ON i.part = p.part
    WHERE s.tail IS NULL OR h.acked IS NULL),
  tails AS (
    INSERT INTO @.stream_tail (task, part, tail)
    SELECT $1, part, greatest(acked, last) FROM lost WHERE tail IS NULL ON CONFLICT DO NOTHING),
  heads AS (
    INSERT INTO @.stream_head (task, part, acked)
    SELECT $1, part, coalesce(first - 1, tail) FROM lost WHERE acked IS NULL
    ON CONFLICT DO NOTHING)
  SELECT part FROM lost";

/// Restores the streams without a row if more items went through them than there are positions. The
/// new positions are above all that are known to have been used.
const RESTORE_ENDED: &str = "WITH history AS (
    SELECT count(*) AS ended FROM @.history
    WHERE task = $1 AND due = $2 AND run <> 0 AND outcome IN (1, 2)),
  tails AS (
    INSERT INTO @.stream_tail (task, part, tail)
    SELECT $1, p.id, h.ended FROM @.partition p, history h
    WHERE h.ended > (SELECT coalesce(sum(tail), 0) FROM @.stream_tail WHERE task = $1)
    ON CONFLICT DO NOTHING RETURNING part, tail)
  INSERT INTO @.stream_head (task, part, acked) SELECT $1, part, tail FROM tails
  ON CONFLICT DO NOTHING RETURNING part";

/// If every stream has a row again, with too low positions: moves an empty one.
const MOVE_EMPTY: &str = "WITH missing AS (
    SELECT (SELECT count(*) FROM @.history
            WHERE task = $1 AND due = $2 AND run <> 0 AND outcome IN (1, 2))
      - (SELECT coalesce(sum(tail), 0)::int8 FROM @.stream_tail WHERE task = $1) AS n),
  place AS (
    SELECT min(s.part) AS part FROM @.stream_tail s
    JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
    WHERE s.task = $1 AND s.tail = h.acked),
  tails AS (
    UPDATE @.stream_tail s SET tail = s.tail + m.n FROM missing m, place p
    WHERE m.n > 0 AND s.task = $1 AND s.part = p.part RETURNING s.part, m.n)
  UPDATE @.stream_head h SET acked = h.acked + t.n FROM tails t
  WHERE h.task = $1 AND h.part = t.part RETURNING h.part";

/// Those whose rows differ from the positions between head and tail, with a number above all that
/// were ever used.
const BROKEN: &str = "SELECT s.part, greatest(s.tail, max(i.no)) AS base
  FROM @.stream_tail s JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
  LEFT JOIN @.item i
    ON i.task = s.task AND i.part = s.part AND i.place = 0 AND i.no > h.acked
  WHERE s.task = $1 GROUP BY s.part, s.tail, h.acked
  HAVING count(i.no) <> s.tail - h.acked OR max(i.no) > s.tail";

const NUMBER_ANEW: &str = "WITH broken AS (
    SELECT * FROM unnest($2::int4[], $3::int8[]) b(part, base)),
  numbered AS (
    SELECT i.task, i.tenant, i.key, i.due,
      b.base + row_number() OVER (PARTITION BY i.part ORDER BY i.no) AS no
    FROM @.item i JOIN broken b ON b.part = i.part
    JOIN @.stream_head h ON h.task = i.task AND h.part = i.part
    WHERE i.task = $1 AND i.place = 0 AND i.no > h.acked)
  UPDATE @.item i SET no = n.no FROM numbered n
  WHERE i.task = n.task AND i.tenant = n.tenant AND i.key = n.key AND i.due = n.due";

const MOVE_HEADS: &str = "UPDATE @.stream_head h SET acked = b.base
  FROM unnest($2::int4[], $3::int8[]) b(part, base) WHERE h.task = $1 AND h.part = b.part";

const MOVE_TAILS: &str = "UPDATE @.stream_tail s SET tail = b.base + (
    SELECT count(*) FROM @.item i
    WHERE i.task = $1 AND i.part = b.part AND i.place = 0 AND i.no > b.base)
  FROM unnest($2::int4[], $3::int8[]) b(part, base) WHERE s.task = $1 AND s.part = b.part";

/// Items in the counters and items that exist, in one view of both.
const ITEMS: &str = "SELECT b.tenant, b.log, b.timers, b.retries, coalesce(i.log, 0),
    coalesce(i.timers, 0), coalesce(i.retries, 0)
  FROM @.books b LEFT JOIN (
    SELECT tenant, count(*) FILTER (WHERE place = 0) AS log,
      count(*) FILTER (WHERE place = 1) AS timers, count(*) FILTER (WHERE place = 2) AS retries
    FROM @.item WHERE task = $1 GROUP BY tenant) i ON i.tenant = b.tenant
  WHERE b.task = $1";

/// The same for the runs that planned them: items in the log, and all that refer to a run.
const ITEMS_OF_RUNS: &str = "SELECT * FROM (
    SELECT r.id,
      r.logged - coalesce((SELECT sum(s.unlogged)::int8 FROM @.run_share s WHERE s.run = r.id), 0)
        AS open,
      r.planned - coalesce((SELECT sum(s.ended)::int8 FROM @.run_share s WHERE s.run = r.id), 0)
        AS held,
      coalesce(w.logged, 0) AS logged,
      coalesce(w.there, 0) + coalesce(d.there, 0) AS there
    FROM @.run r
    LEFT JOIN (SELECT run, count(*) AS there, count(*) FILTER (WHERE place = 0) AS logged
               FROM @.item WHERE task = $1 GROUP BY run) w ON w.run = r.id
    LEFT JOIN (SELECT run, count(*) AS there FROM @.dead
               WHERE task = $1 AND resolved_at IS NULL GROUP BY run) d ON d.run = r.id
    WHERE r.task = $1) r
  WHERE open <> logged OR held <> there";

/// Writes off items that are in the counters but exist nowhere. Commits in between change neither
/// what is lost nor how it is subtracted.
async fn write_off_items(tx: &Tx, task: i32) -> Job<i64> {
    let waiting = |row: &Row, at: usize| -> Job<WaitingCounts> {
        let (log, timers) = (row.try_get(at)?, row.try_get(at + 1)?);
        Ok(WaitingCounts { log, timers, retries: row.try_get(at + 2)? })
    };
    let (mut counters, mut baseline, mut sum) = (Counters::default(), Baseline::default(), 0);
    for row in tx.query(ITEMS, params![task]).await? {
        let Some(delta) = write_off(waiting(&row, 1)?, waiting(&row, 4)?) else { continue };
        let tenant: String = row.try_get(0)?;
        let discarded = delta.discarded.unsigned_abs();
        baseline.push(task, tenant.clone(), &Counts { discarded, ..Counts::default() });
        counters.push(task, tenant.into(), &delta);
        sum += delta.discarded;
    }
    let mut pipeline = Pipeline::default();
    counters.write(&mut pipeline);
    baseline.write(&mut pipeline);
    tx.session.run(pipeline).await?;
    Ok(sum)
}

/// The same for the runs; ends those that wait for nothing else.
async fn write_off_runs(tx: &Tx, task: i32) -> Job<()> {
    let mut tally = Tally::default();
    for row in tx.query(ITEMS_OF_RUNS, params![task]).await? {
        let counted = RunItems { log: row.try_get(1)?, all: row.try_get(2)? };
        let there = RunItems { log: row.try_get(3)?, all: row.try_get(4)? };
        if let Some(leaving) = write_off_run(counted, there) {
            tally.runs.insert(RunId(row.try_get::<_, i64>(0)? as u64), leaving);
        }
    }
    let mut pipeline = Pipeline::default();
    write_runs(&tally, &mut pipeline);
    tx.session.run(pipeline).await?;
    let runs = tally.runs.keys().map(|run| run.0 as i64).collect();
    end_runs(&tx.session, runs, Some(tx.now)).await?;
    Ok(())
}

/// Restores and renumbers the broken streams of a task, and writes off what they have lost.
pub(super) async fn repair(tx: &Tx, task: i32) -> Job<Repaired> {
    let mut streams = BTreeSet::new();
    streams.extend(tx.all::<i32>(RESTORE, params![task], cell).await?);
    streams.extend(tx.all::<i32>(RESTORE_ENDED, params![task, NO_DUE], cell).await?);
    tx.query(HOLD, params![task]).await?;
    streams.extend(tx.all::<i32>(MOVE_EMPTY, params![task, NO_DUE], cell).await?);
    let (mut parts, mut bases) = (Vec::new(), Vec::new());
    for row in tx.query(BROKEN, params![task]).await? {
        parts.push(row.try_get::<_, i32>(0)?);
        bases.push(row.try_get::<_, i64>(1)?);
    }
    for sql in [NUMBER_ANEW, MOVE_HEADS, MOVE_TAILS] {
        tx.execute(sql, params![task, parts.clone(), bases.clone()]).await?;
    }
    let lost = write_off_items(tx, task).await?;
    write_off_runs(tx, task).await?;
    let mut pipeline = Pipeline::default();
    streams.extend(parts);
    arrivals::note(&mut pipeline, !streams.is_empty(), None, None);
    tx.session.run(pipeline).await?;
    Ok(Repaired { streams: streams.len() as u64, lost: u64::try_from(lost).unwrap_or(0) })
}
