//! Pruning: removes rows older than their retention; the baseline keeps the history's counts.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::books::Counts;
use besom_core::ids::{FencingToken, TaskName};
use besom_core::item::End;
use besom_core::time::Time;
use besom_core::undo;
use rusqlite::{OptionalExtension, params};

use super::error::Job;
use super::leadership::check_fence;
use super::outbox;
use super::statements::Statements;
use super::tally::add_undo;
use super::values::TenantCell;
use super::writer::Tx;
use besom_ports::store::{Pruned, Retention, TERMS_KEPT};

/// How many history rows are examined per row with expired images.
const LOOK_FACTOR: u32 = 16;

/// Prunes at most `limit` rows of each kind. `silent` is the age at which an activity report no
/// longer matters.
pub(super) fn prune(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    keep: Retention<'_>,
    silent: Duration,
    limit: u32,
) -> Job<Pruned> {
    check_fence(tx, fence)?;
    let mut held: BTreeMap<i64, i64> = BTreeMap::new();
    let mut pruned = Pruned::default();
    let cutoff = tx.now - keep.history;
    prune_history(tx, cutoff, limit, &mut held, &mut pruned)?;
    for (task, retention) in keep.undo {
        let cutoff = tx.now - *retention;
        pruned.undo += prune_undo(tx, task, cutoff, limit, &mut held)?;
    }
    add_undo(tx, &held)?;
    outbox::mend(tx, limit)?;
    pruned.other = prune_resolved(tx, cutoff, limit)?
        + prune_other(tx, cutoff, limit)?
        + prune_unrouted(tx, cutoff, keep.routed, limit)?
        + prune_nodes(tx, tx.now - keep.nodes, limit)?
        + prune_activity(tx, tx.now - silent, limit)?;
    Ok(pruned)
}

fn prune_history(
    tx: &Tx<'_>,
    cutoff: Time,
    limit: u32,
    held: &mut BTreeMap<i64, i64>,
    pruned: &mut Pruned,
) -> Job<()> {
    let mut gone: BTreeMap<(i64, TenantCell), Counts> = BTreeMap::new();
    let mut last = None;
    {
        let mut statement = tx.conn.prepare_cached(
            "SELECT h.id, h.task, h.tenant, h.outcome, h.undo_bytes, c.at, h.undo IS NOT NULL,
               h.rows
             FROM besom_history h JOIN besom_commit c ON c.no = h.commit_no
             ORDER BY h.id LIMIT ?1",
        )?;
        let mut rows = statement.query([limit])?;
        while let Some(r) = rows.next()? {
            if r.get::<_, i64>(5)? >= cutoff.0 {
                break;
            }
            let (task, outcome, undo): (i64, i64, i64) = (r.get(1)?, r.get(3)?, r.get(4)?);
            let counts = gone.entry((task, r.get(2)?)).or_default();
            counts.count_ended(End::of(outcome), 1);
            counts.rows += r.get::<_, u64>(7)?;
            *held.entry(task).or_default() -= undo;
            pruned.undo += u64::from(r.get::<_, bool>(6)?);
            last = Some(r.get::<_, i64>(0)?);
            pruned.history += 1;
        }
    }
    let Some(last) = last else { return Ok(()) };
    for ((task, tenant), Counts { committed, skipped, discarded, rows, .. }) in gone {
        tx.conn.run(
            "INSERT INTO besom_baseline (task, tenant, committed, skipped, discarded, rows)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (task, tenant) DO UPDATE SET committed = committed + excluded.committed,
               skipped = skipped + excluded.skipped, discarded = discarded + excluded.discarded,
               rows = rows + excluded.rows",
            params![task, tenant, committed, skipped, discarded, rows],
        )?;
    }
    tx.conn.run("DELETE FROM besom_history WHERE id <= ?1", [last])?;
    Ok(())
}

/// Removes dead letters that were resolved long ago; the baseline still counts them.
fn prune_resolved(tx: &Tx<'_>, cutoff: Time, limit: u32) -> Job<u64> {
    let letters: Vec<(i64, i64, TenantCell)> = tx.conn.all(
        "SELECT id, task, tenant FROM besom_dead
         WHERE resolved_at IS NOT NULL AND resolved_at < ?1 ORDER BY resolved_at LIMIT ?2",
        params![cutoff.0, limit],
        |r| r.try_into(),
    )?;
    for (id, task, tenant) in &letters {
        tx.conn.run(
            "INSERT INTO besom_baseline (task, tenant, committed, skipped, discarded, dead)
             VALUES (?1, ?2, 0, 0, 0, 1)
             ON CONFLICT (task, tenant) DO UPDATE SET dead = dead + 1",
            params![task, tenant],
        )?;
        tx.conn.run("DELETE FROM besom_dead WHERE id = ?1", [id])?;
    }
    Ok(letters.len() as u64)
}

/// Whether a history row is of the task `?1`, or has undone, in however many steps, an item of it.
const IS_OF: &str = "(h.task = ?1 OR h.task = u.id AND ?1 = (
    WITH RECURSIVE undone(task, key) AS (
      SELECT h.task, h.key
      UNION ALL
      SELECT p.task, p.key FROM undone JOIN besom_history p
        ON undone.task = u.id AND p.id = CAST(substr(undone.key, instr(undone.key, '#') + 1) AS INTEGER))
    SELECT task FROM undone WHERE task <> u.id))";

/// Removes expired images of one task, from the end of the previous pass.
fn prune_undo(
    tx: &mut Tx<'_>,
    task: &TaskName,
    cutoff: Time,
    limit: u32,
    held: &mut BTreeMap<i64, i64>,
) -> Job<u64> {
    let task = tx.task(task)?;
    let (mut removed, mut mark) = (0, None);
    let mut statement = tx.conn.prepare_cached(&format!(
        "SELECT h.id, h.task, h.undo IS NOT NULL AND {IS_OF}, h.undo_bytes, c.at
         FROM besom_history h JOIN besom_commit c ON c.no = h.commit_no
         LEFT JOIN besom_task u ON u.name = '{}'
         WHERE h.id > (SELECT undo_pruned FROM besom_task WHERE id = ?1) ORDER BY h.id LIMIT ?2",
        undo::TASK
    ))?;
    let mut rows = statement.query(params![task, limit.saturating_mul(LOOK_FACTOR)])?;
    let mut expired = Vec::new();
    while let Some(r) = rows.next()? {
        if r.get::<_, i64>(4)? >= cutoff.0 || removed >= u64::from(limit) {
            break;
        }
        let id: i64 = r.get(0)?;
        mark = Some(id);
        if r.get::<_, Option<bool>>(2)?.unwrap_or_default() {
            *held.entry(r.get(1)?).or_default() -= r.get::<_, i64>(3)?;
            expired.push(id);
            removed += 1;
        }
    }
    for id in expired {
        tx.conn.run("UPDATE besom_history SET undo = NULL, undo_bytes = 0 WHERE id = ?1", [id])?;
    }
    if let Some(mark) = mark {
        tx.conn.run("UPDATE besom_task SET undo_pruned = ?2 WHERE id = ?1", params![task, mark])?;
    }
    Ok(removed)
}

/// Each statement removes at most `?2` rows that are older than `?1`.
const OTHER: &[&str] = &[
    // History rows still refer to node and time of their commits.
    "DELETE FROM besom_commit WHERE no IN (SELECT no FROM besom_commit
       WHERE at < ?1 AND no < coalesce((SELECT commit_no FROM besom_history ORDER BY id LIMIT 1),
                                       9223372036854775807)
       ORDER BY no LIMIT ?2)",
    "DELETE FROM besom_slot WHERE id IN (SELECT s.id FROM besom_slot s
       WHERE s.to_slot < ?1 AND s.to_slot < (SELECT max(to_slot) FROM besom_slot WHERE task = s.task)
       ORDER BY s.id LIMIT ?2)",
    "DELETE FROM besom_run WHERE id IN (SELECT r.id FROM besom_run r
       WHERE r.ended_at < ?1 AND r.items = 0 ORDER BY r.id LIMIT ?2)",
    "DELETE FROM besom_command WHERE id IN (SELECT id FROM besom_command
       WHERE applied_at < ?1 ORDER BY id LIMIT ?2)",
    "DELETE FROM besom_outbox WHERE id IN (SELECT id FROM besom_outbox
       WHERE (delivered_at IS NOT NULL OR given_up_at IS NOT NULL)
         AND coalesce(delivered_at, given_up_at) < ?1
       ORDER BY coalesce(delivered_at, given_up_at) LIMIT ?2)",
    "DELETE FROM besom_cursor WHERE (task, tenant) IN
       (SELECT task, tenant FROM besom_cursor WHERE moved_at < ?1 LIMIT ?2)",
    // A document that was left alone may be planned again once per retention; one that an operator
    // discarded may not.
    "DELETE FROM besom_settled WHERE (task, tenant, key, due, version) IN
       (SELECT task, tenant, key, due, version FROM besom_settled
        WHERE at < ?1 AND given_up = 0 LIMIT ?2)",
];

/// Removes old pending messages of topics without a route. Only the first messages of a topic are
/// examined, which have waited longest: a topic with recent messages costs little.
fn prune_unrouted(tx: &Tx<'_>, cutoff: Time, routed: Option<&[String]>, limit: u32) -> Job<u64> {
    let Some(routed) = routed else { return Ok(0) };
    let mut next = tx.conn.prepare_cached(
        "SELECT topic FROM besom_outbox
         WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic > ?1 ORDER BY topic LIMIT 1",
    )?;
    let mut remove = tx.conn.prepare_cached(
        "DELETE FROM besom_outbox WHERE id IN (SELECT id FROM (
           SELECT id, at FROM besom_outbox
           WHERE delivered_at IS NULL AND given_up_at IS NULL AND topic = ?1
           ORDER BY id LIMIT ?3) WHERE at < ?2)",
    )?;
    let (mut removed, mut last) = (0, String::new());
    while let Some(topic) = next.query_row([&last], |r| r.get::<_, String>(0)).optional()? {
        if !routed.contains(&topic) {
            removed += remove.execute(params![topic, cutoff.0, limit])?;
        }
        last = topic;
    }
    Ok(removed as u64)
}

/// Lines of removed runs, then heads without lines; their brakes and reviews.
const LINES: &[&str] = &[
    "DELETE FROM besom_run_line WHERE (run, no) IN (SELECT l.run, l.no
       FROM besom_run_log h JOIN besom_run_line l ON l.run = h.run
       WHERE NOT EXISTS (SELECT 1 FROM besom_run r WHERE r.id = h.run) LIMIT ?1)",
    "DELETE FROM besom_run_log WHERE run IN (SELECT h.run FROM besom_run_log h
       WHERE NOT EXISTS (SELECT 1 FROM besom_run r WHERE r.id = h.run)
         AND NOT EXISTS (SELECT 1 FROM besom_run_line l WHERE l.run = h.run) LIMIT ?1)",
    "DELETE FROM besom_brake WHERE (run, what) IN (SELECT b.run, b.what FROM besom_brake b
       WHERE NOT EXISTS (SELECT 1 FROM besom_run r WHERE r.id = b.run) LIMIT ?1)",
    "DELETE FROM besom_review WHERE run IN (SELECT v.run FROM besom_review v
       WHERE NOT EXISTS (SELECT 1 FROM besom_run r WHERE r.id = v.run) LIMIT ?1)",
];

/// The newest are kept, however old.
const TERMS: &str = "DELETE FROM besom_term WHERE term IN (SELECT term FROM besom_term
   WHERE raised_at < ?1
     AND term < (SELECT term FROM besom_term ORDER BY term DESC LIMIT 1 OFFSET ?3)
   ORDER BY term LIMIT ?2)";

fn prune_nodes(tx: &Tx<'_>, cutoff: Time, limit: u32) -> Job<u64> {
    let removed = tx.conn.run(
        "DELETE FROM besom_node
         WHERE node IN (SELECT node FROM besom_node WHERE seen_at < ?1 LIMIT ?2)",
        params![cutoff.0, limit],
    )?;
    Ok(removed as u64)
}

/// Connections and idle timers that no query needs any more: a killed host closes none of its own.
const ACTIVITY: [&str; 2] = [
    "DELETE FROM besom_activity WHERE (key, connection) IN
       (SELECT key, connection FROM besom_activity WHERE seen_at < ?1 LIMIT ?2)",
    "DELETE FROM besom_idle WHERE key IN
       (SELECT key FROM besom_idle WHERE closed_at < ?1 LIMIT ?2)",
];

fn prune_activity(tx: &Tx<'_>, cutoff: Time, limit: u32) -> Job<u64> {
    let mut removed = 0;
    for sql in ACTIVITY {
        removed += tx.conn.run(sql, params![cutoff.0, limit])?;
    }
    Ok(removed as u64)
}

fn prune_other(tx: &Tx<'_>, cutoff: Time, limit: u32) -> Job<u64> {
    let mut removed = 0;
    for sql in OTHER {
        removed += tx.conn.run(sql, params![cutoff.0, limit])?;
    }
    for sql in LINES {
        removed += tx.conn.run(sql, [limit])?;
    }
    removed += tx.conn.run(TERMS, params![cutoff.0, limit, TERMS_KEPT - 1])?;
    tx.conn.execute(
        "DELETE FROM besom_definition WHERE id NOT IN (SELECT definition FROM besom_run)",
        [],
    )?;
    Ok(removed as u64)
}
