//! The audit: recounts the books in one snapshot, and finds violations that counts do not show.

use std::collections::BTreeMap;

use besom_core::ids::Tenant;
use besom_core::item::End;
use tokio_postgres::Row;

use super::error::Job;
use super::session::{Pipeline, Session, params};
use super::tasks::names;
use super::text::tenant_of;
use besom_ports::store::{Audit, AuditRow, Counts};

/// The maximum number of violations listed per kind.
const LISTED_MAX: usize = 100;

/// The time limit of each statement of an audit of a large store.
const STATEMENT_MAX: &str = "SET LOCAL statement_timeout = '15min'";

/// Performs the audit.
pub(super) async fn audit(session: &mut Session) -> Job<Audit> {
    let mut first = Pipeline::default();
    first.simple("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ");
    first.simple(STATEMENT_MAX);
    session.begin(first).await?;
    let audit = recounted(session).await;
    session.rollback().await;
    audit
}

async fn recounted(session: &Session) -> Job<Audit> {
    let names: BTreeMap<_, _> = names(session).await?.into_iter().collect();
    let mut books: BTreeMap<(i32, Option<Tenant>), (Counts, Counts)> = BTreeMap::new();
    let counted = "SELECT task, tenant, planned, committed, skipped, dead, discarded,
        log + timers + retries, resolved, rows FROM @.books";
    for row in session.query(counted, params![]).await? {
        let counts = Counts {
            planned: count(&row, 2)?,
            committed: count(&row, 3)?,
            skipped: count(&row, 4)?,
            dead: count(&row, 5)?,
            discarded: count(&row, 6)?,
            pending: count(&row, 7)?,
            resolved: count(&row, 8)?,
            rows: count(&row, 9)?,
        };
        books.entry((row.try_get(0)?, tenant_of(row.try_get(1)?))).or_default().0 = counts;
    }
    for (sql, add) in RECOUNTS {
        for row in session.query(sql, params![]).await? {
            let place = (row.try_get(0)?, tenant_of(row.try_get(1)?));
            add(&mut books.entry(place).or_default().1, &row)?;
        }
    }
    let rows = books
        .into_iter()
        .filter_map(|((task, tenant), (counted, recounted))| {
            let recounted = recounted.recounted();
            let task = names.get(&task)?.clone();
            // A counter that is back at zero needs no row.
            let nothing = counted == Counts::default() && recounted == Counts::default();
            (!nothing).then_some(AuditRow { task, tenant, counted, recounted })
        })
        .collect();
    Ok(Audit { rows, violations: violations(session).await? })
}

type Add = fn(&mut Counts, &Row) -> Job<()>;

const RECOUNTS: [(&str, Add); 4] = [
    (
        "SELECT task, tenant, outcome, count(*), sum(rows)::int8 FROM @.history GROUP BY 1, 2, 3",
        |counts, row| {
            let end = End::of(i64::from(row.try_get::<_, i16>(2)?));
            counts.count_ended(end, count(row, 3)?);
            counts.rows += count(row, 4)?;
            Ok(())
        },
    ),
    (
        "SELECT task, tenant, committed, skipped, discarded, dead, rows FROM @.baseline",
        |counts, row| {
            for (at, end) in [(2, End::Committed), (3, End::Skipped), (4, End::Discarded)] {
                counts.count_ended(end, count(row, at)?);
            }
            let pruned = count(row, 5)?;
            counts.count_letters(pruned, pruned);
            counts.rows += count(row, 6)?;
            Ok(())
        },
    ),
    (
        "SELECT task, tenant, count(*), count(resolved_at) FROM @.dead GROUP BY 1, 2",
        |counts, row| {
            counts.count_letters(count(row, 2)?, count(row, 3)?);
            Ok(())
        },
    ),
    ("SELECT task, tenant, count(*) FROM @.item GROUP BY 1, 2", |counts, row| {
        counts.pending += count(row, 2)?;
        Ok(())
    }),
];

/// A number of the books. A negative one counts as zero, and so differs from its recount.
fn count(row: &Row, at: usize) -> Job<u64> {
    Ok(u64::try_from(row.try_get::<_, i64>(at)?).unwrap_or(0))
}

/// Each query lists violations, one per row, as text. An item cannot wait twice, or wait and be
/// plannable: it is one row, keyed by its identity.
const VIOLATIONS: [&str; 9] = [
    "SELECT 'stream ' || t.name || '/' || s.part || ': ' || count(i.no) || ' of '
       || (s.tail - h.acked) || ' items between ' || h.acked || ' and ' || s.tail || ' are there'
     FROM @.stream_tail s JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
     JOIN @.task t ON t.id = s.task
     LEFT JOIN @.item i ON i.task = s.task AND i.part = s.part AND i.place = 0 AND i.no > h.acked
       AND i.no <= s.tail
     GROUP BY t.name, s.task, s.part, s.tail, h.acked HAVING count(i.no) <> s.tail - h.acked",
    "SELECT 'stream ' || s.task || '/' || s.part || ': has no head' FROM @.stream_tail s
     WHERE NOT EXISTS (SELECT 1 FROM @.stream_head h WHERE h.task = s.task AND h.part = s.part)",
    "SELECT 'stream ' || h.task || '/' || h.part || ': has no tail' FROM @.stream_head h
     WHERE NOT EXISTS (SELECT 1 FROM @.stream_tail s WHERE s.task = h.task AND s.part = h.part)",
    // An item ends at most once by a commit or a skip, so the positions are at least as many. The
    // due time is that of an item without one.
    "SELECT 'streams of ' || t.name || ': items that have ended: ' || h.ended || ', positions: '
       || coalesce(s.positions, 0)
     FROM @.task t
     JOIN (SELECT task, count(*) AS ended FROM @.history
           WHERE due = -9223372036854775808 AND run <> 0 AND outcome IN (1, 2) GROUP BY task) h
       ON h.task = t.id
     LEFT JOIN (SELECT task, sum(tail) AS positions FROM @.stream_tail GROUP BY task) s
       ON s.task = t.id
     WHERE h.ended > coalesce(s.positions, 0)",
    "SELECT 'log ' || i.task || '/' || i.part || '/' || i.no
       || ': acknowledged or beyond its stream'
     FROM @.item i LEFT JOIN @.stream_tail s ON s.task = i.task AND s.part = i.part
     LEFT JOIN @.stream_head h ON h.task = i.task AND h.part = i.part
     WHERE i.place = 0 AND (h.acked IS NULL OR s.tail IS NULL OR i.no <= h.acked OR i.no > s.tail)",
    "SELECT 'run ' || r.id || ': items open: ' || r.open || ', in the log: ' || r.there
     FROM (SELECT r.id, r.logged - coalesce((SELECT sum(s.unlogged) FROM @.run_share s
                                             WHERE s.run = r.id), 0) AS open,
             coalesce(l.there, 0) AS there
           FROM @.run r LEFT JOIN (SELECT run, count(*) AS there FROM @.item WHERE place = 0
                                   GROUP BY run) l ON l.run = r.id) r
     WHERE r.open <> r.there",
    "SELECT 'run ' || r.id || ': items of its own: ' || r.held || ', found: ' || r.there
     FROM (SELECT r.id, r.planned - coalesce((SELECT sum(s.ended) FROM @.run_share s
                                              WHERE s.run = r.id), 0) AS held,
             coalesce(w.there, 0) AS there
           FROM @.run r LEFT JOIN (SELECT run, count(*) AS there
                                   FROM (SELECT run FROM @.item UNION ALL SELECT run FROM @.dead
                                         WHERE resolved_at IS NULL) x
                                   GROUP BY run) w ON w.run = r.id) r
     WHERE r.held <> r.there",
    "SELECT 'run ' || r.id || ': ended before its scan' FROM @.run r
     WHERE r.ended_at IS NOT NULL AND NOT r.scan_done",
    "SELECT 'task ' || t.name || ': ' || coalesce(b.counted, 0)
       || ' bytes of before-images counted, ' || coalesce(h.held, 0) || ' held'
     FROM @.task t
     LEFT JOIN (SELECT task, sum(undo_bytes) AS counted FROM @.books GROUP BY task) b
       ON b.task = t.id
     LEFT JOIN (SELECT task, sum(undo_bytes) AS held FROM @.history GROUP BY task) h
       ON h.task = t.id
     WHERE coalesce(b.counted, 0) <> coalesce(h.held, 0)",
];

async fn violations(session: &Session) -> Job<Vec<String>> {
    let mut all = Vec::new();
    for sql in VIOLATIONS {
        for row in session.query(sql, params![]).await?.iter().take(LISTED_MAX) {
            all.push(row.try_get(0)?);
        }
    }
    Ok(all)
}
