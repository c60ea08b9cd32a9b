//! Reads for inspection: depths, history, before-images, nodes.

use besom_core::ids::{CommitId, Incarnation, RunId, TaskName};
use besom_core::item::{End, Identity};
use besom_core::time::Time;
use rusqlite::{Connection, Row, params};

use super::audit::count;
use super::error::{Failure, Job};
use super::items::{BLOCK_IDS, key_hash};
use super::statements::Statements;
use super::values::{DueCell, TenantCell, of_kept, tenant_cell};
use super::waiting::{task_id, tasks};
use super::writer::Tx;
use besom_ports::store::{BeforeImage, Depth, HistoryQuery, HistoryRow, NodeRow, Role};
use besom_record as record;
use besom_record::images::unpack;

/// The waiting items per task. The numbers come from the counters, not from counting rows.
pub(super) fn depths(conn: &Connection, now: Time) -> Job<Vec<Depth>> {
    let mut depths = Vec::new();
    for (id, task) in tasks(conn)? {
        let (planned, log, timers, retries, dead, rows) = conn.one(
            "SELECT coalesce(sum(planned), 0), coalesce(sum(log), 0), coalesce(sum(timers), 0),
               coalesce(sum(retries), 0), coalesce(sum(dead - resolved), 0),
               coalesce(sum(rows), 0)
             FROM besom_counter WHERE task = ?1",
            [id],
            |r| {
                let of = |at| count(r, at);
                Ok::<_, Failure>((of(0)?, of(1)?, of(2)?, of(3)?, of(4)?, of(5)?))
            },
        )?;
        let next_due: Option<i64> =
            conn.one("SELECT min(due) FROM besom_timer WHERE task = ?1", [id], |r| r.get(0))?;
        // The first entry of each stream is its oldest.
        let oldest: Option<i64> = conn.one(
            "SELECT min(l.at) FROM besom_stream s
             JOIN besom_log l ON l.task = s.task AND l.part = s.part AND l.seq = s.acked + 1
             WHERE s.task = ?1",
            [id],
            |r| r.get(0),
        )?;
        let undo_bytes =
            conn.one("SELECT undo_bytes FROM besom_task WHERE id = ?1", [id], |r| r.get(0))?;
        let overdue = next_due.filter(|due| *due <= now.0);
        depths.push(Depth {
            task: Some(task),
            planned,
            log,
            timers,
            retries,
            dead,
            next_due: next_due.map(Time),
            oldest: oldest.into_iter().chain(overdue).min().map(Time),
            undo_bytes,
            rows,
        });
    }
    Ok(depths)
}

const HISTORY: &str = "SELECT h.id, t.name, h.tenant, h.key, h.due, h.run, c.at, h.outcome,
    h.settled, h.reason, h.notes, c.node, c.id, h.undo_bytes, h.rows FROM ";

const JOINED: &str =
    "besom_history h JOIN besom_task t ON t.id = h.task JOIN besom_commit c ON c.no = h.commit_no";

/// History rows, newest first, by the narrowest index that the query allows.
pub(super) fn history(conn: &Connection, query: &HistoryQuery) -> Job<Vec<HistoryRow>> {
    let task = match &query.task {
        Some(task) => match task_id(conn, task)? {
            Some(id) => Some(id),
            None => return Ok(Vec::new()),
        },
        None => None,
    };
    let mut sql = match query.key {
        None => format!("{HISTORY}{JOINED} WHERE h.id < ?1"),
        // The index by key has blocks. (CROSS JOIN keeps the order of the loops.)
        Some(_) => format!(
            "WITH RECURSIVE ends AS (
               SELECT (SELECT min(id) FROM besom_history) / {BLOCK_IDS} AS first,
                 (SELECT max(id) FROM besom_history) / {BLOCK_IDS} AS last),
             block(n) AS (SELECT last FROM ends UNION ALL
               SELECT n - 1 FROM block WHERE n > (SELECT first FROM ends))
             {HISTORY}block CROSS JOIN {JOINED}
             WHERE h.id < ?1 AND h.key_place = (block.n << 32) | ?2 AND h.key = ?3"
        ),
    };
    if query.run.is_some() {
        sql.push_str(" AND h.run = ?4");
    }
    if task.is_some() {
        sql.push_str(" AND h.task = ?5");
    }
    if query.tenant.is_some() {
        sql.push_str(" AND h.tenant = ?6");
    }
    sql.push_str(" ORDER BY h.id DESC LIMIT ?7");
    let before = query.before.map_or(i64::MAX, |b| i64::try_from(b).unwrap_or(i64::MAX));
    let tenant = tenant_cell(query.tenant.as_ref());
    let limit = i64::from(query.limit);
    let hash = query.key.as_deref().map(key_hash);
    let run = query.run.map(|r| r.0);
    // A statement has as many parameters as its highest number: always seven.
    conn.all(&sql, params![before, hash, query.key, run, task, tenant, limit], read)
}

fn read(r: &Row<'_>) -> Job<HistoryRow> {
    let notes: Option<Vec<u8>> = r.get(10)?;
    let commit: Option<[u8; 16]> = r.get(12)?;
    Ok(HistoryRow {
        id: r.get(0)?,
        identity: Identity {
            task: TaskName::from(r.get::<_, String>(1)?),
            tenant: r.get::<_, TenantCell>(2)?.0,
            key: r.get(3)?,
            due: r.get::<_, DueCell>(4)?.0,
        },
        run: RunId(r.get(5)?),
        at: Time(r.get(6)?),
        outcome: End::of(r.get(7)?),
        settled: r.get(8)?,
        reason: r.get(9)?,
        notes: notes.as_deref().map(postcard::from_bytes).transpose()?.unwrap_or_default(),
        node: r.get::<_, String>(11)?.into(),
        commit: CommitId(commit.map_or(0, u128::from_be_bytes)),
        undo_bytes: r.get(13)?,
        rows: r.get(14)?,
    })
}

/// The before-images of a history row.
pub(super) fn before_images(conn: &Connection, history: u64) -> Job<Option<Vec<BeforeImage>>> {
    let packed: Option<Option<Vec<u8>>> =
        conn.first("SELECT undo FROM besom_history WHERE id = ?1", [history], |r| r.get(0))?;
    Ok(packed.flatten().as_deref().map(|packed| unpack(packed, of_kept)).transpose()?)
}

/// Writes a node's row; returns when the previous one was written.
pub(super) fn report_node(tx: &mut Tx<'_>, node: &NodeRow) -> Job<Option<Time>> {
    let before: Option<i64> = tx.conn.first(
        "SELECT seen_at FROM besom_node WHERE node = ?1",
        [node.node.as_str()],
        |r| r.get(0),
    )?;
    tx.conn.run(
        "INSERT INTO besom_node (node, state, seen_at, config_digest, missing, hostname, address,
           weight, report)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
         ON CONFLICT (node) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at,
           config_digest = excluded.config_digest, missing = excluded.missing,
           hostname = excluded.hostname, address = excluded.address,
           weight = excluded.weight, report = excluded.report",
        params![
            node.node.as_str(),
            node.state.as_str(),
            node.seen_at.0,
            node.config_digest,
            record::nodes::pack(&node.missing),
            node.hostname,
            node.address,
            node.weight,
            record::nodes::pack_report(node.report.as_ref())
        ],
    )?;
    Ok(before.map(Time))
}

/// Removes a node's row.
pub(super) fn forget_node(tx: &mut Tx<'_>, node: &Incarnation) -> Job<()> {
    tx.conn.run("DELETE FROM besom_node WHERE node = ?1", [node.as_str()])?;
    Ok(())
}

/// All known nodes, by name.
pub(super) fn nodes(conn: &Connection) -> Job<Vec<NodeRow>> {
    conn.all(
        "SELECT node, state, seen_at, config_digest, missing, hostname, address, weight, report
         FROM besom_node ORDER BY node",
        [],
        |r| {
            Ok(NodeRow {
                node: r.get::<_, String>(0)?.into(),
                state: Role::of(&r.get::<_, String>(1)?),
                seen_at: Time(r.get(2)?),
                config_digest: r.get(3)?,
                missing: record::nodes::unpack(&r.get::<_, String>(4)?),
                hostname: r.get(5)?,
                address: r.get(6)?,
                weight: r.get(7)?,
                report: record::nodes::unpack_report(&r.get::<_, String>(8)?),
            })
        },
    )
}
