//! Streams that have lost items or contain unreadable rows: their state, and their repair.

use std::collections::{BTreeSet, HashSet};

use besom_core::books::{RunItems, WaitingCounts, write_off, write_off_run};
use besom_core::ids::{Partition, RunId, Seq, TaskName};
use besom_core::item::Identity;
use rusqlite::{Connection, Row, params};

use super::error::Job;
use super::items;
use super::statements::Statements;
use super::tally::{self, end_if_done};
use super::values::TenantCell;
use super::waiting::task_id;
use super::writer::Tx;
use besom_ports::store::{Repaired, Stream, StreamRow};

/// Streams with unacknowledged items, and the number of items that exist.
pub(super) fn rows(conn: &Connection, task: Option<&TaskName>) -> Job<Vec<StreamRow>> {
    conn.all(
        "SELECT t.name, s.part, s.acked, s.tail,
           (SELECT count(*) FROM besom_log l
            WHERE l.task = s.task AND l.part = s.part AND l.seq > s.acked)
         FROM besom_stream s JOIN besom_task t ON t.id = s.task
         WHERE s.tail > s.acked AND (?1 IS NULL OR t.name = ?1) ORDER BY t.name, s.part",
        [task.map(TaskName::as_str)],
        |r| {
            let task = TaskName::from(r.get::<_, String>(0)?);
            let (partition, acked, tail) = (Partition(r.get(1)?), Seq(r.get(2)?), Seq(r.get(3)?));
            Ok(StreamRow { stream: Stream { task, partition, acked, tail }, items: r.get(4)? })
        },
    )
}

/// Restores and renumbers the broken streams of a task, and writes off what they have lost.
pub(super) fn repair(tx: &mut Tx<'_>, task: &TaskName) -> Job<Repaired> {
    let Some(id) = task_id(tx.conn, task)? else { return Ok(Repaired::default()) };
    let restored = restore(tx, id)?;
    let mut repaired = Repaired { streams: restored.len() as u64, ..Repaired::default() };
    let mut seen = HashSet::new();
    for (part, acked, tail) in all(tx, id)? {
        let stream = rows_of(tx, task, id, part, acked, &mut seen)?;
        if stream.unreadable.is_empty() && stream.is_whole(acked, tail) {
            continue;
        }
        let remove = "DELETE FROM besom_log WHERE task = ?1 AND part = ?2 AND seq = ?3";
        for seq in &stream.unreadable {
            tx.conn.run(remove, params![id, part, seq])?;
        }
        // Numbers above all that were ever used cannot collide with existing ones.
        let last = stream.readable.last().max(stream.unreadable.last());
        let base = last.map_or(tail, |last| tail.max(*last));
        let mut next = base;
        let number = "UPDATE besom_log SET seq = ?4 WHERE task = ?1 AND part = ?2 AND seq = ?3";
        for seq in &stream.readable {
            next += 1;
            tx.conn.run(number, params![id, part, seq, next])?;
        }
        let moved = "UPDATE besom_stream SET acked = ?3, tail = ?4 WHERE task = ?1 AND part = ?2";
        tx.conn.run(moved, params![id, part, base, next])?;
        repaired.streams += u64::from(!restored.contains(&part));
    }
    repaired.lost = write_off_items(tx, id)?;
    write_off_runs(tx, id)?;
    Ok(repaired)
}

/// Restores the rows of streams that have none although items are in their logs, or went through
/// them. Returns their partitions. The positions are above all that are known to have been used.
fn restore(tx: &Tx<'_>, task: i64) -> Job<BTreeSet<i64>> {
    let mut restored = BTreeSet::new();
    for sql in [
        "INSERT INTO besom_stream (task, part, tail, acked)
         SELECT task, part, max(seq), min(seq) - 1 FROM besom_log l WHERE task = ?1
           AND NOT EXISTS (SELECT 1 FROM besom_stream s WHERE s.task = l.task AND s.part = l.part)
         GROUP BY task, part RETURNING part",
        "INSERT INTO besom_stream (task, part, tail, acked)
         SELECT ?1, p.id, h.ended, h.ended FROM besom_partition p,
           (SELECT count(*) AS ended FROM besom_history
            WHERE task = ?1 AND due = '' AND run <> 0 AND outcome IN (1, 2)) h
         WHERE h.ended > (SELECT coalesce(sum(tail), 0) FROM besom_stream WHERE task = ?1)
           AND NOT EXISTS (SELECT 1 FROM besom_stream s WHERE s.task = ?1 AND s.part = p.id)
         RETURNING part",
        // Every stream has a row again, with too low positions: an empty one can be moved.
        "UPDATE besom_stream SET tail = tail + h.missing, acked = acked + h.missing FROM (
           SELECT (SELECT count(*) FROM besom_history
                   WHERE task = ?1 AND due = '' AND run <> 0 AND outcome IN (1, 2))
             - (SELECT coalesce(sum(tail), 0) FROM besom_stream WHERE task = ?1) AS missing) h
         WHERE h.missing > 0 AND task = ?1
           AND part = (SELECT min(part) FROM besom_stream WHERE task = ?1 AND acked = tail)
         RETURNING part",
    ] {
        restored.extend(tx.conn.all(sql, [task], |r| r.get::<_, i64>(0))?);
    }
    Ok(restored)
}

fn all(tx: &Tx<'_>, task: i64) -> Job<Vec<(i64, i64, i64)>> {
    let sql = "SELECT part, acked, tail FROM besom_stream WHERE task = ?1 ORDER BY part";
    Ok(tx.conn.all(sql, [task], |r| r.try_into())?)
}

/// The numbers of a stream's rows, in order.
#[derive(Default)]
struct Rows {
    readable: Vec<i64>,
    unreadable: Vec<i64>,
}

impl Rows {
    /// Whether every number up to the tail exists, and none beyond it.
    fn is_whole(&self, acked: i64, tail: i64) -> bool {
        self.readable.len() as i64 == tail - acked
            && self.readable.last().is_none_or(|last| *last == tail)
    }
}

/// An item that another row already contains (`seen`) is useless: it counts as unreadable.
fn rows_of(
    tx: &Tx<'_>,
    task: &TaskName,
    id: i64,
    part: i64,
    acked: i64,
    seen: &mut HashSet<Identity>,
) -> Job<Rows> {
    let sql = format!(
        "SELECT seq, {} FROM besom_log WHERE task = ?1 AND part = ?2 AND seq > ?3 ORDER BY seq",
        items::columns("''")
    );
    let mut found = Rows::default();
    tx.conn.each(&sql, params![id, part, acked], |row| -> Job<()> {
        let seq = row.get(0)?;
        match items::read(task, row, 1) {
            Ok(item) if seen.insert(item.identity.clone()) => found.readable.push(seq),
            Ok(_) | Err(_) => found.unreadable.push(seq),
        }
        Ok(())
    })?;
    Ok(found)
}

/// Writes off items that are in the counters but exist nowhere. They may be planned again.
fn write_off_items(tx: &mut Tx<'_>, task: i64) -> Job<u64> {
    tx.conn.execute(
        "DELETE FROM besom_waiting WHERE (task, tenant, key, due) IN (
           SELECT task, tenant, key, due FROM besom_waiting WHERE task = ?1
           EXCEPT SELECT * FROM (SELECT task, tenant, key, '' AS due FROM besom_log
             UNION ALL SELECT task, tenant, key, due FROM besom_timer
             UNION ALL SELECT task, tenant, key, due FROM besom_retry))",
        [task],
    )?;
    let there = |table: &str| {
        format!("(SELECT tenant, count(*) AS n FROM {table} WHERE task = ?1 GROUP BY tenant)")
    };
    let sql = format!(
        "SELECT c.tenant, c.log, c.timers, c.retries, coalesce(l.n, 0), coalesce(t.n, 0),
           coalesce(r.n, 0)
         FROM besom_counter c LEFT JOIN {} l ON l.tenant = c.tenant
         LEFT JOIN {} t ON t.tenant = c.tenant LEFT JOIN {} r ON r.tenant = c.tenant
         WHERE c.task = ?1",
        there("besom_log"),
        there("besom_timer"),
        there("besom_retry")
    );
    let waiting = |r: &Row<'_>, at: usize| -> rusqlite::Result<WaitingCounts> {
        Ok(WaitingCounts { log: r.get(at)?, timers: r.get(at + 1)?, retries: r.get(at + 2)? })
    };
    let facts: Vec<(TenantCell, WaitingCounts, WaitingCounts)> =
        tx.conn.all(&sql, [task], |r| {
            waiting(r, 1).and_then(|counted| Ok((r.get(0)?, counted, waiting(r, 4)?)))
        })?;
    let mut sum = 0;
    for (tenant, counted, there) in facts {
        let Some(delta) = write_off(counted, there) else { continue };
        tally::add(tx, task, tenant.0.as_ref(), &delta)?;
        sum += delta.discarded;
        tx.conn.execute(
            "INSERT INTO besom_baseline (task, tenant, committed, skipped, discarded)
             VALUES (?1, ?2, 0, 0, ?3)
             ON CONFLICT (task, tenant) DO UPDATE SET
               discarded = discarded + excluded.discarded",
            params![task, tenant, delta.discarded],
        )?;
    }
    Ok(u64::try_from(sum).unwrap_or(0))
}

/// Subtracts lost items from the runs that planned them, and ends runs that wait for nothing else.
fn write_off_runs(tx: &mut Tx<'_>, task: i64) -> Job<()> {
    let facts: Vec<(u64, RunItems, RunItems)> = tx.conn.all(
        "SELECT r.id, r.open, r.items, coalesce(l.there, 0), coalesce(h.there, 0)
         FROM besom_run r
         LEFT JOIN (SELECT run, count(*) AS there FROM besom_log WHERE task = ?1 GROUP BY run) l
           ON l.run = r.id
         LEFT JOIN (SELECT run, count(*) AS there FROM (
             SELECT run FROM besom_log WHERE task = ?1
             UNION ALL SELECT run FROM besom_timer WHERE task = ?1
             UNION ALL SELECT run FROM besom_retry WHERE task = ?1
             UNION ALL SELECT run FROM besom_dead WHERE task = ?1 AND resolved_at IS NULL)
           GROUP BY run) h ON h.run = r.id
         WHERE r.task = ?1
           AND (r.open <> coalesce(l.there, 0) OR r.items <> coalesce(h.there, 0))",
        [task],
        |r| -> rusqlite::Result<_> {
            let counted = RunItems { log: r.get(1)?, all: r.get(2)? };
            Ok((r.get(0)?, counted, RunItems { log: r.get(3)?, all: r.get(4)? }))
        },
    )?;
    for (run, counted, there) in facts {
        let Some(leaving) = write_off_run(counted, there) else { continue };
        tx.conn.execute(
            "UPDATE besom_run SET open = open - ?2, items = items - ?3 WHERE id = ?1",
            params![run, leaving.log, leaving.ended],
        )?;
        end_if_done(tx, RunId(run))?;
    }
    Ok(())
}
