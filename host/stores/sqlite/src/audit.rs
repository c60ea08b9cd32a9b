//! The audit: recounts the books in one snapshot, and finds violations that counts do not show.

use std::collections::BTreeMap;

use rusqlite::{Connection, Row};

use super::error::Job;
use super::values::TenantCell;
use super::waiting::tasks;
use besom_ports::store::{Audit, AuditRow, Counts};

/// The maximum number of violations listed per kind.
const LISTED_MAX: usize = 100;

/// Performs the audit. The caller holds the connection in one read transaction.
pub(super) fn audit(conn: &Connection) -> Job<Audit> {
    let names: BTreeMap<_, _> = tasks(conn)?.into_iter().collect();
    let mut books: BTreeMap<(i64, TenantCell), (Counts, Counts)> = BTreeMap::new();
    let mut counters = conn.prepare(
        "SELECT task, tenant, planned, committed, skipped, dead, discarded, log + timers + retries,
           resolved
         FROM besom_counter",
    )?;
    let mut rows = counters.query([])?;
    while let Some(r) = rows.next()? {
        let counted = Counts {
            planned: count(r, 2)?,
            committed: count(r, 3)?,
            skipped: count(r, 4)?,
            dead: count(r, 5)?,
            discarded: count(r, 6)?,
            pending: count(r, 7)?,
            resolved: count(r, 8)?,
        };
        books.entry((r.get(0)?, r.get(1)?)).or_default().0 = counted;
    }
    let mut recount = |sql: &str, add: &dyn Fn(&mut Counts, u64)| -> Job<()> {
        let mut statement = conn.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(r) = rows.next()? {
            add(&mut books.entry((r.get(0)?, r.get(1)?)).or_default().1, count(r, 2)?);
        }
        Ok(())
    };
    for (outcome, add) in [
        (1, (|c, n| c.committed += n) as fn(&mut Counts, u64)),
        (2, |c, n| c.skipped += n),
        (4, |c, n| c.discarded += n),
    ] {
        let sql = format!(
            "SELECT task, tenant, count(*) FROM besom_history WHERE outcome = {outcome} GROUP BY 1, 2"
        );
        recount(&sql, &add)?;
    }
    for (column, add) in [
        ("committed", (|c, n| c.committed += n) as fn(&mut Counts, u64)),
        ("skipped", |c, n| c.skipped += n),
        ("discarded", |c, n| c.discarded += n),
        ("dead", |c, n| {
            c.dead += n;
            c.resolved += n;
        }),
    ] {
        recount(&format!("SELECT task, tenant, {column} FROM besom_baseline"), &add)?;
    }
    for (table, add) in [
        ("besom_dead", (|c, n| c.dead += n) as fn(&mut Counts, u64)),
        ("besom_log", |c, n| c.pending += n),
        ("besom_timer", |c, n| c.pending += n),
        ("besom_retry", |c, n| c.pending += n),
    ] {
        recount(&format!("SELECT task, tenant, count(*) FROM {table} GROUP BY 1, 2"), &add)?;
    }
    recount(
        "SELECT task, tenant, count(*) FROM besom_dead WHERE resolved_at IS NOT NULL GROUP BY 1, 2",
        &|c, n| c.resolved += n,
    )?;
    let rows = books
        .into_iter()
        .filter_map(|((task, tenant), (counted, mut recounted))| {
            let c = &mut recounted;
            c.planned = c.committed + c.skipped + c.dead + c.discarded + c.pending;
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
    "SELECT 'run ' || r.id || ': ' || r.open || ' items open, ' || count(l.seq) || ' in the log'
     FROM besom_run r LEFT JOIN (SELECT run, seq FROM besom_log) l ON l.run = r.id
    "SELECT 'run ' || r.id || ': ' || r.items || ' items are its own, ' || coalesce(h.there, 0)
       || ' are there'
     FROM besom_run r LEFT JOIN (SELECT run, count(*) AS there
       FROM (SELECT run FROM besom_log UNION ALL SELECT run FROM besom_timer
             UNION ALL SELECT run FROM besom_retry
             UNION ALL SELECT run FROM besom_dead WHERE resolved_at IS NULL)
       GROUP BY run) h ON h.run = r.id
     WHERE r.items <> coalesce(h.there, 0)",
     WHERE r.open <> 0 OR r.ended_at IS NULL OR l.seq IS NOT NULL
     GROUP BY r.id HAVING count(l.seq) <> r.open",
    "SELECT 'run ' || id || ': ended with its scan or ' || open || ' items open'
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
