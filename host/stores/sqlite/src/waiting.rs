//! Items that wait to be executed (streams, timers, retries), and batches being executed.

use besom_core::ids::{CommitId, FencingToken, Incarnation, Partition, Seq, TaskName};
use besom_core::item::{Identity, Source};
use besom_core::time::Time;
use rusqlite::{Connection, params};

use super::error::Job;
use super::items::{self, Progress};
use super::leadership::check_fence;
use super::statements::Statements;
use super::values::tenant_cell;
use super::writer::Tx;
use besom_ports::store::{Error, Stream, Waiting, gap};
use besom_record::begun;

/// Partitions as a JSON list for `json_each`; none: all.
fn listed(partitions: Option<&[Partition]>) -> Option<String> {
    partitions.map(|p| serde_json::to_string(p).unwrap_or_default())
}

/// Streams with unacknowledged items.
pub(super) fn backlog(conn: &Connection, partitions: Option<&[Partition]>) -> Job<Vec<Stream>> {
    conn.all(
        "SELECT t.name, s.part, s.acked, s.tail FROM besom_stream s
         JOIN besom_task t ON t.id = s.task
         WHERE s.tail > s.acked
           AND (?1 IS NULL OR s.part IN (SELECT value FROM json_each(?1)))
         ORDER BY t.name, s.part",
        [listed(partitions)],
        |r| {
            Ok(Stream {
                task: r.get::<_, String>(0)?.into(),
                partition: Partition(r.get(1)?),
                acked: Seq(r.get(2)?),
                tail: Seq(r.get(3)?),
            })
        },
    )
}

/// The items of a stream after `acked`, in order and without gaps.
pub(super) fn read_log(
    conn: &Connection,
    task: &TaskName,
    partition: Partition,
    acked: Seq,
    limit: u32,
    bytes_max: usize,
) -> Job<Vec<Waiting>> {
    let Some(id) = task_id(conn, task)? else { return Ok(Vec::new()) };
    let mut statement = conn.prepare_cached(&format!(
        "SELECT seq, {} FROM besom_log WHERE task = ?1 AND part = ?2 AND seq > ?3
         ORDER BY seq LIMIT ?4",
        items::columns("''")
    ))?;
    let mut rows = statement.query(params![id, partition.0, acked.0, limit])?;
    let (mut items, mut bytes, mut expected) = (Vec::new(), 0, acked.0 + 1);
    while let Some(r) = rows.next()? {
        let seq: u64 = r.get(0)?;
        if seq != expected {
            return Err(gap(task, partition, expected).into());
        }
        let item = items::read(task, r, 1).map_err(|e| {
            let why = Error::from(e);
            Error::Invalid(format!("{seq} of the stream of {task} in partition {partition}: {why}"))
        })?;
        bytes += item.payload.len() + item.identity.key.len();
        if bytes > bytes_max && !items.is_empty() {
            break;
        }
        items.push(Waiting { source: Source::Log(Seq(seq)), item, run_at: Time::EPOCH });
        expected += 1;
    }
    if items.is_empty() {
        let ends_short = conn.exists(
            "SELECT 1 FROM besom_stream WHERE task = ?1 AND part = ?2 AND acked = ?3 AND tail > ?3",
            params![id, partition.0, acked.0],
        )?;
        if ends_short {
            return Err(gap(task, partition, expected).into());
        }
    }
    Ok(items)
}

/// Timers by due time, then number.
pub(super) fn read_timers(
    conn: &Connection,
    tasks: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    by_time(conn, ("besom_timer", "due", Source::Timer), tasks, partitions, after, limit)
}

/// Retries by time, then number.
pub(super) fn read_retries(
    conn: &Connection,
    tasks: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    by_time(conn, ("besom_retry", "run_at", Source::Retry), tasks, partitions, after, limit)
}

/// The tables are ordered by time within each task; the tasks, which are few, are merged here.
fn by_time(
    conn: &Connection,
    (table, time, source): (&str, &str, fn(u64) -> Source),
    wanted: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    let partitions = listed(partitions);
    let (from, id) = after.map_or((i64::MIN, -1), |(t, id)| (t.0, id as i64));
    let mut statement = conn.prepare_cached(&format!(
        "SELECT id, {time}, {} FROM {table}
         WHERE task = ?1 AND ({time}, id) > (?2, ?3)
           AND (?4 IS NULL OR part IN (SELECT value FROM json_each(?4)))
         ORDER BY {time}, id LIMIT ?5",
        items::columns("due")
    ))?;
    let mut all = Vec::new();
    for (task, name) in tasks(conn)? {
        if wanted.is_some_and(|wanted| !wanted.contains(&name)) {
            continue;
        }
        let mut rows = statement.query(params![task, from, id, partitions, limit])?;
        while let Some(r) = rows.next()? {
            let number: u64 = r.get(0)?;
            // The row stays where it is; other due items are returned.
            match items::read(&name, r, 2) {
                Ok(item) => all.push((Time(r.get(1)?), number, item)),
                Err(error) => tracing::warn!(
                    task = %name, table, number, error = %Error::from(error),
                    "a waiting row cannot be read and is left out"
                ),
            }
        }
    }
    all.sort_by_key(|(run_at, number, _)| (*run_at, *number));
    all.truncate(limit as usize);
    let waiting = |(run_at, number, item)| Waiting { source: source(number), item, run_at };
    Ok(all.into_iter().map(waiting).collect())
}

/// All task names with their numbers.
pub(super) fn tasks(conn: &Connection) -> Job<Vec<(i64, TaskName)>> {
    conn.all("SELECT id, name FROM besom_task ORDER BY name", [], |r| {
        Ok((r.get(0)?, r.get::<_, String>(1)?.into()))
    })
}

/// The number of a task's name, if it has one.
pub(super) fn task_id(conn: &Connection, task: &TaskName) -> Job<Option<i64>> {
    Ok(conn.first("SELECT id FROM besom_task WHERE name = ?1", [task.as_str()], |r| r.get(0))?)
}

// ---------------------------------------------------------------------------- in flight

/// Records a batch as begun; `begun` is its packed record.
pub(super) fn begin(tx: &mut Tx<'_>, id: CommitId, node: &Incarnation, begun: &[u8]) -> Job<()> {
    tx.conn.run(
        "INSERT INTO besom_inflight VALUES (?1, ?2, ?3)
         ON CONFLICT (commit_id) DO UPDATE SET node = excluded.node, items = excluded.items",
        params![id.0.to_be_bytes(), node.as_str(), begun],
    )?;
    Ok(())
}

/// Removes the record of a begun batch.
pub(super) fn abandon(tx: &mut Tx<'_>, id: CommitId) -> Job<()> {
    tx.conn.run("DELETE FROM besom_inflight WHERE commit_id = ?1", [id.0.to_be_bytes()])?;
    Ok(())
}

/// The nodes with begun batches.
pub(super) fn begun_by(conn: &Connection) -> Job<Vec<Incarnation>> {
    conn.all("SELECT DISTINCT node FROM besom_inflight", [], |r| {
        Ok(Incarnation::from(r.get::<_, String>(0)?))
    })
}

/// Counts a death for every item that a dead incarnation had begun and that is still waiting in its
/// place.
pub(super) fn bury(
    tx: &mut Tx<'_>,
    fence: &FencingToken,
    gone: &[Incarnation],
) -> Job<Vec<Identity>> {
    check_fence(tx, fence)?;
    let mut dead: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    tx.conn.each("SELECT commit_id, node, items FROM besom_inflight", [], |r| -> Job<()> {
        let node: String = r.get(1)?;
        if gone.iter().any(|n| n.as_str() == node) {
            dead.push((r.get(0)?, r.get(2)?));
        }
        Ok(())
    })?;
    let mut counted = Vec::new();
    for (id, items) in dead {
        // An unreadable record counts no death.
        for (source, partition, identity) in begun::unpack(&items).unwrap_or_default() {
            if count_death(tx, source, partition, &identity)? {
                counted.push(identity);
            }
        }
        tx.conn.execute("DELETE FROM besom_inflight WHERE commit_id = ?1", [id])?;
    }
    Ok(counted)
}

fn count_death(
    tx: &mut Tx<'_>,
    source: Source,
    partition: Partition,
    identity: &Identity,
) -> Job<bool> {
    let task = tx.task(&identity.task)?;
    let due = identity.due.map(|t| t.0);
    let (table, place, numbers) = match source {
        Source::Log(seq) => (
            "besom_log",
            "task = ?1 AND part = ?2 AND seq = ?3",
            [Some(i64::from(partition.0)), Some(seq.0 as i64)],
        ),
        Source::Timer(id) => {
            ("besom_timer", "task = ?1 AND due = ?2 AND id = ?3", [due, Some(id as i64)])
        }
        Source::Retry(id) => (
            "besom_retry",
            "task = ?1 AND part = ?2 AND id = ?3",
            [Some(i64::from(partition.0)), Some(id as i64)],
        ),
        Source::Unqueued(_) => return Ok(false),
    };
    let tenant = tenant_cell(identity.tenant.as_ref());
    let packed: Option<Option<Vec<u8>>> = tx.conn.first(
        &format!("SELECT progress FROM {table} WHERE {place} AND tenant = ?4 AND key = ?5"),
        params![task, numbers[0], numbers[1], tenant, identity.key],
        |r| r.get(0),
    )?;
    let Some(packed) = packed else { return Ok(false) };
    let mut progress = Progress::unpack(packed.as_deref());
    progress.deaths += 1;
    tx.conn.run(
        &format!("UPDATE {table} SET progress = ?4 WHERE {place}"),
        params![task, numbers[0], numbers[1], progress.pack()?],
    )?;
    Ok(true)
}
