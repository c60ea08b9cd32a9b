//! The audit: recounts the books in one snapshot, and finds violations that counts do not show.

use std::collections::BTreeMap;

use besom_core::item::End;
use rusqlite::{Connection, Row};

use super::error::Job;
use super::statements::Statements;
use super::values::TenantCell;
use super::waiting::tasks;
use besom_ports::store::{Audit, AuditRow, Counts};

/// The maximum number of violations listed per kind.
const LISTED_MAX: usize = 100;

/// Performs the audit. The caller holds the connection in one read transaction.
pub(super) fn audit(conn: &Connection) -> Job<Audit> {
    let names: BTreeMap<_, _> = tasks(conn)?.into_iter().collect();
    let mut books: BTreeMap<(i64, TenantCell), (Counts, Counts)> = BTreeMap::new();
    conn.each(
        "SELECT task, tenant, planned, committed, skipped, dead, discarded, log + timers + retries,
           resolved, rows
         FROM besom_counter",
        [],
        |r| -> Job<()> {
            let counted = Counts {
                planned: count(r, 2)?,
                committed: count(r, 3)?,
                skipped: count(r, 4)?,
                dead: count(r, 5)?,
                discarded: count(r, 6)?,
                pending: count(r, 7)?,
                resolved: count(r, 8)?,
                rows: count(r, 9)?,
            };
            books.entry((r.get(0)?, r.get(1)?)).or_default().0 = counted;
            Ok(())
        },
    )?;
    let mut recount = |sql: &str, add: &dyn Fn(&mut Counts, &Row<'_>) -> Job<()>| -> Job<()> {
        conn.each(sql, [], |r| add(&mut books.entry((r.get(0)?, r.get(1)?)).or_default().1, r))
    };
    recount(
        "SELECT task, tenant, outcome, count(*), sum(rows) FROM besom_history GROUP BY 1, 2, 3",
        &|counts, r| {
            counts.count_ended(End::of(r.get(2)?), count(r, 3)?);
            counts.rows += count(r, 4)?;
            Ok(())
        },
    )?;
    recount(
        "SELECT task, tenant, committed, skipped, discarded, dead, rows FROM besom_baseline",
        &|counts, r| {
            for (at, end) in [(2, End::Committed), (3, End::Skipped), (4, End::Discarded)] {
                counts.count_ended(end, count(r, at)?);
            }
            let pruned = count(r, 5)?;
            counts.count_letters(pruned, pruned);
            counts.rows += count(r, 6)?;
            Ok(())
        },
    )?;
    recount(
        "SELECT task, tenant, count(*), count(resolved_at) FROM besom_dead GROUP BY 1, 2",
        &|counts, r| {
            counts.count_letters(count(r, 2)?, count(r, 3)?);
            Ok(())
        },
    )?;
    for table in ["besom_log", "besom_timer", "besom_retry"] {
        let waiting = format!("SELECT task, tenant, count(*) FROM {table} GROUP BY 1, 2");
        recount(&waiting, &|counts, r| {
            counts.pending += count(r, 2)?;
            Ok(())
        })?;
    }
    let rows = books
        .into_iter()
        .filter_map(|((task, tenant), (counted, recounted))| {
            let recounted = recounted.recounted();
            let task = names.get(&task)?.clone();
            Some(AuditRow { task, tenant: tenant.0, counted, recounted })
        })
        .collect();
    Ok(Audit { rows, violations: violations(conn)? })
}

/// Each query lists violations, one per row, as text.
const VIOLATIONS: &[&str] = &[
    "SELECT 'stream ' || t.name || '/' || s.part || ': ' || count(l.seq) || ' of '
       || (s.tail - s.acked) || ' items between ' || s.acked || ' and ' || s.tail || ' are there'
     FROM besom_stream s JOIN besom_task t ON t.id = s.task
     LEFT JOIN besom_log l
       ON l.task = s.task AND l.part = s.part AND l.seq > s.acked AND l.seq <= s.tail
     GROUP BY s.task, s.part HAVING count(l.seq) <> s.tail - s.acked",
    // An item ends at most once by a commit or a skip, so the positions are at least as many.
    "SELECT 'streams of ' || t.name || ': items that have ended: ' || h.ended || ', positions: '
       || coalesce(s.positions, 0)
     FROM besom_task t
     JOIN (SELECT task, count(*) AS ended FROM besom_history
           WHERE due = '' AND run <> 0 AND outcome IN (1, 2) GROUP BY task) h ON h.task = t.id
     LEFT JOIN (SELECT task, sum(tail) AS positions FROM besom_stream GROUP BY task) s
       ON s.task = t.id
     WHERE h.ended > coalesce(s.positions, 0)",
    "SELECT 'log ' || l.task || '/' || l.part || '/' || l.seq || ': acknowledged or beyond its stream'
     FROM besom_log l LEFT JOIN besom_stream s ON s.task = l.task AND s.part = l.part
     WHERE s.acked IS NULL OR l.seq <= s.acked OR l.seq > s.tail",
    "SELECT 'item ' || key || ' of ' || t.name || ': waits ' || count(*) || ' times'
     FROM (SELECT task, tenant, key, '' AS due FROM besom_log
           UNION ALL SELECT task, tenant, key, due FROM besom_timer
           UNION ALL SELECT task, tenant, key, due FROM besom_retry) i
     JOIN besom_task t ON t.id = i.task
     GROUP BY i.task, tenant, key, due HAVING count(*) > 1",
    "SELECT 'item ' || key || ' of task ' || task || ': counted as waiting and is nowhere'
     FROM (SELECT task, tenant, key, due FROM besom_waiting
           EXCEPT SELECT * FROM (SELECT task, tenant, key, '' AS due FROM besom_log
             UNION ALL SELECT task, tenant, key, due FROM besom_timer
             UNION ALL SELECT task, tenant, key, due FROM besom_retry))",
    "SELECT 'item ' || key || ' of task ' || task || ': waits and could be planned again'
     FROM (SELECT * FROM (SELECT task, tenant, key, '' AS due FROM besom_log
             UNION ALL SELECT task, tenant, key, due FROM besom_timer
             UNION ALL SELECT task, tenant, key, due FROM besom_retry)
           EXCEPT SELECT task, tenant, key, due FROM besom_waiting)",
    "SELECT 'run ' || r.id || ': items open: ' || r.open || ', in the log: ' || count(l.seq)
     FROM besom_run r LEFT JOIN (SELECT run, seq FROM besom_log) l ON l.run = r.id
     WHERE r.open <> 0 OR r.ended_at IS NULL OR l.seq IS NOT NULL
     GROUP BY r.id HAVING count(l.seq) <> r.open",
    "SELECT 'run ' || r.id || ': items of its own: ' || r.items || ', found: '
       || coalesce(h.there, 0)
     FROM besom_run r LEFT JOIN (SELECT run, count(*) AS there
       FROM (SELECT run FROM besom_log UNION ALL SELECT run FROM besom_timer
             UNION ALL SELECT run FROM besom_retry
             UNION ALL SELECT run FROM besom_dead WHERE resolved_at IS NULL)
       GROUP BY run) h ON h.run = r.id
     WHERE r.items <> coalesce(h.there, 0)",
    "SELECT 'run ' || id || ': ended before its scan, or with open items: ' || open
     FROM besom_run WHERE ended_at IS NOT NULL AND (open <> 0 OR scan_done = 0)",
    "SELECT 'task ' || t.name || ': ' || t.undo_bytes || ' bytes of before-images counted, '
       || coalesce(h.bytes, 0) || ' held'
     FROM besom_task t
     LEFT JOIN (SELECT task, sum(undo_bytes) AS bytes FROM besom_history GROUP BY task) h
       ON h.task = t.id
     WHERE t.undo_bytes <> coalesce(h.bytes, 0)",
];

/// A number of the books. A negative one counts as zero, and so differs from its recount.
pub(super) fn count(row: &Row<'_>, at: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(at)?).unwrap_or(0))
}

fn violations(conn: &Connection) -> Job<Vec<String>> {
    let mut all = Vec::new();
    for sql in VIOLATIONS {
        let mut statement = conn.prepare(sql)?;
        let found = statement.query_map([], |r| {
            Ok(String::from_utf8_lossy(r.get_ref(0)?.as_bytes().unwrap_or_default()).into_owned())
        })?;
        for violation in found.take(LISTED_MAX) {
            all.push(violation?);
        }
    }
    Ok(all)
}
