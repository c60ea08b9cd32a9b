//! Reads for inspection: depths, history, before-images, nodes.

use besom_core::ids::{CommitId, Incarnation, RunId, TaskName};
use besom_core::item::{End, Identity};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::clock::{Clock, NOW};
use super::error::Job;
use super::session::{Session, cell, params};
use super::text::{due_of, escaped, plain, tenant_of, tenant_text};
use super::values::Cell;
use super::whole::of_kept;
use besom_ports::store::{BeforeImage, Depth, HistoryQuery, HistoryRow, NodeRow, Role};
use besom_record as record;
use besom_record::images::unpack;

/// The waiting items per task. The numbers come from the counters, not from counting rows; the
/// first entry of each stream is its oldest.
pub(super) async fn depths(session: &Session, clock: &Clock) -> Job<Vec<Depth>> {
    let sql = format!(
        "SELECT t.name, coalesce(b.log, 0), coalesce(b.timers, 0), coalesce(b.retries, 0),
           coalesce(b.dead - b.resolved, 0), coalesce(b.undo_bytes, 0),
           (SELECT min(i.run_at) FROM @.item i WHERE i.task = t.id AND i.place = 1),
           (SELECT min(i.run_at) FROM @.stream_head h
            JOIN @.stream_tail s ON s.task = h.task AND s.part = h.part AND s.tail > h.acked
            JOIN @.item i ON i.task = h.task AND i.part = h.part AND i.no = h.acked + 1
              AND i.place = 0
            WHERE h.task = t.id),
           {NOW}, coalesce(b.planned, 0), coalesce(b.rows, 0)
         FROM @.task t LEFT JOIN (
           SELECT task, sum(planned)::int8 AS planned, sum(log)::int8 AS log,
             sum(timers)::int8 AS timers, sum(retries)::int8 AS retries, sum(dead)::int8 AS dead,
             sum(resolved)::int8 AS resolved,
             sum(undo_bytes)::int8 AS undo_bytes, sum(rows)::int8 AS rows
           FROM @.books GROUP BY task) b ON b.task = t.id
         ORDER BY t.name"
    );
    session.all(&sql, params![clock.given()], depth).await
}

fn depth(r: &Row) -> Job<Depth> {
    let count =
        |at: usize| -> Job<u64> { Ok(u64::try_from(r.try_get::<_, i64>(at)?).unwrap_or(0)) };
    let (next_due, oldest): (Option<i64>, Option<i64>) = (r.try_get(6)?, r.try_get(7)?);
    let now: i64 = r.try_get(8)?;
    let overdue = next_due.filter(|due| *due <= now);
    Ok(Depth {
        task: Some(TaskName::from(r.try_get::<_, String>(0)?)),
        planned: count(9)?,
        log: count(1)?,
        timers: count(2)?,
        retries: count(3)?,
        dead: count(4)?,
        undo_bytes: count(5)?,
        rows: count(10)?,
        next_due: next_due.map(Time),
        oldest: oldest.into_iter().chain(overdue).min().map(Time),
    })
}

/// History rows, newest first.
pub(super) async fn history(session: &Session, query: &HistoryQuery) -> Job<Vec<HistoryRow>> {
    let mut sql = "SELECT h.id, t.name, h.tenant, h.key, h.due, h.run, c.at, h.outcome, h.settled,
          h.reason, h.notes, c.node, c.id, h.undo_bytes, h.rows
        FROM @.history h JOIN @.task t ON t.id = h.task JOIN @.commit c ON c.no = h.commit_no
        WHERE h.id < $1"
        .to_owned();
    let before = query.before.map_or(i64::MAX, |b| i64::try_from(b).unwrap_or(i64::MAX));
    let mut params = params![before];
    if let Some(key) = &query.key {
        sql.push_str(&format!(" AND h.key = ${}", params.len() + 1));
        params.extend(params![escaped(key).into_owned()]);
    }
    if let Some(run) = query.run {
        sql.push_str(&format!(" AND h.run = ${}", params.len() + 1));
        params.extend(params![run.0 as i64]);
    }
    if let Some(task) = &query.task {
        sql.push_str(&format!(" AND t.name = ${}", params.len() + 1));
        params.extend(params![task.as_str().to_owned()]);
    }
    if let Some(tenant) = &query.tenant {
        sql.push_str(&format!(" AND h.tenant = ${}", params.len() + 1));
        params.extend(params![tenant_text(Some(tenant))]);
    }
    sql.push_str(&format!(" ORDER BY h.id DESC LIMIT ${}", params.len() + 1));
    params.extend(params![i64::from(query.limit)]);
    session.all(&sql, params, read).await
}

fn read(r: &Row) -> Job<HistoryRow> {
    let notes: Option<Vec<u8>> = r.try_get(10)?;
    let commit = match r.try_get(12)? {
        Cell::Uuid(mark) => u128::from_be_bytes(mark),
        _ => 0,
    };
    Ok(HistoryRow {
        id: r.try_get::<_, i64>(0)? as u64,
        identity: Identity {
            task: TaskName::from(r.try_get::<_, String>(1)?),
            tenant: tenant_of(r.try_get(2)?),
            key: plain(r.try_get(3)?),
            due: due_of(r.try_get(4)?),
        },
        run: RunId(r.try_get::<_, i64>(5)? as u64),
        at: Time(r.try_get(6)?),
        outcome: End::of(r.try_get::<_, i16>(7)?.into()),
        settled: r.try_get(8)?,
        reason: r.try_get::<_, Option<String>>(9)?.map(plain),
        notes: notes.as_deref().map(postcard::from_bytes).transpose()?.unwrap_or_default(),
        node: r.try_get::<_, String>(11)?.into(),
        commit: CommitId(commit),
        undo_bytes: r.try_get::<_, i64>(13)? as u64,
        rows: r.try_get::<_, i64>(14)? as u64,
    })
}

/// The before-images of a history row.
pub(super) async fn before_images(
    session: &Session,
    history: u64,
) -> Job<Option<Vec<BeforeImage>>> {
    let id = i64::try_from(history).unwrap_or(i64::MAX);
    let sql = "SELECT undo FROM @.history WHERE id = $1";
    let packed: Option<Vec<u8>> = session.maybe(sql, params![id], cell).await?.flatten();
    Ok(packed.as_deref().map(|packed| unpack(packed, of_kept)).transpose()?)
}

/// Writes a node's row; returns when the previous one was written.
pub(super) async fn report_node(session: &Session, node: &NodeRow) -> Job<Option<Time>> {
    let sql = "WITH before AS (SELECT seen_at FROM @.node WHERE node = $1), written AS (
        INSERT INTO @.node (node, state, seen_at, config_digest, missing, hostname, address,
          weight, report)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
        ON CONFLICT (node) DO UPDATE SET state = excluded.state, seen_at = excluded.seen_at,
          config_digest = excluded.config_digest, missing = excluded.missing,
          hostname = excluded.hostname, address = excluded.address,
          weight = excluded.weight, report = excluded.report)
        SELECT seen_at FROM before";
    let row = params![
        node.node.as_str().to_owned(),
        node.state.as_str().to_owned(),
        node.seen_at.0,
        node.config_digest.clone(),
        record::nodes::pack(&node.missing),
        node.hostname.clone(),
        node.address.clone(),
        i64::from(node.weight),
        record::nodes::pack_report(node.report.as_ref())
    ];
    Ok(session.maybe(sql, row, cell).await?.map(Time))
}

/// Removes a node's row.
pub(super) async fn forget_node(session: &Session, node: &Incarnation) -> Job<()> {
    let name = node.as_str().to_owned();
    session.execute("DELETE FROM @.node WHERE node = $1", params![name]).await?;
    Ok(())
}

/// All known nodes, by name.
pub(super) async fn nodes(session: &Session) -> Job<Vec<NodeRow>> {
    let sql =
        "SELECT node, state, seen_at, config_digest, missing, hostname, address, weight, report
        FROM @.node ORDER BY node COLLATE \"C\"";
    let node = |r: &Row| -> Job<NodeRow> {
        Ok(NodeRow {
            node: r.try_get::<_, String>(0)?.into(),
            state: Role::of(r.try_get(1)?),
            seen_at: Time(r.try_get(2)?),
            config_digest: r.try_get(3)?,
            missing: record::nodes::unpack(&r.try_get::<_, String>(4)?),
            hostname: r.try_get(5)?,
            address: r.try_get(6)?,
            weight: u32::try_from(r.try_get::<_, i64>(7)?).unwrap_or_default(),
            report: record::nodes::unpack_report(&r.try_get::<_, String>(8)?),
        })
    };
    session.all(sql, params![], node).await
}
