//! What waits to be executed: streams, timers, retries; and what is being executed.

use besom_core::ids::{CommitId, NodeName, Partition, Seq, TaskName};
use besom_core::item::{Identity, Item, Source};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::error::{Job, invalid};
use super::items::{self, Identities, place};
use super::session::{Session, Tx, params};
use super::tasks::Tasks;
use super::values::Cell;
use crate::ports::store::{Stream, Waiting};

/// The most items that one statement reads of a stream: those behind the bound of bytes would
/// have been read for nothing.
const READ_MAX: u32 = 1_024;

fn listed(partitions: Option<&[Partition]>) -> Option<Vec<i32>> {
    partitions.map(|all| all.iter().map(|p| p.0 as i32).collect())
}

/// Streams with items that are not acknowledged.
pub(super) async fn backlog(
    session: &Session,
    partitions: Option<&[Partition]>,
) -> Job<Vec<Stream>> {
    let rows = session
        .query(
            "SELECT t.name, s.part, h.acked, s.tail FROM @.stream_tail s
             JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
             JOIN @.task t ON t.id = s.task
             WHERE s.tail > h.acked AND ($1::int4[] IS NULL OR s.part = ANY($1))
             ORDER BY t.name, s.part",
            params![listed(partitions)],
        )
        .await?;
    let stream = |r: &Row| -> Job<Stream> {
        Ok(Stream {
            task: r.try_get::<_, String>(0)?.into(),
            partition: Partition(r.try_get::<_, i32>(1)? as u32),
            acked: Seq(r.try_get::<_, i64>(2)? as u64),
            tail: Seq(r.try_get::<_, i64>(3)? as u64),
        })
    };
    rows.iter().map(stream).collect()
}

/// The items of a stream after `acked`, in order and without a gap.
pub(super) async fn read_log(
    session: &Session,
    tasks: &Tasks,
    task: &TaskName,
    partition: Partition,
    acked: Seq,
    limit: u32,
    bytes_max: usize,
) -> Job<Vec<Waiting>> {
    let Some(id) = tasks.find(session, task).await? else { return Ok(Vec::new()) };
    let (mut items, mut bytes, mut expected) = (Vec::new(), 0, acked.0 + 1);
    loop {
        let room = limit.saturating_sub(items.len() as u32).min(READ_MAX);
        if room == 0 {
            return Ok(items);
        }
        let rows = session
            .query(
                &format!(
                    "SELECT no, {} FROM @.item
                     WHERE task = $1 AND part = $2 AND no > $3 AND place = 0 ORDER BY no LIMIT $4",
                    items::COLUMNS
                ),
                params![id, partition.0 as i32, expected as i64 - 1, i64::from(room)],
            )
            .await?;
        let last = rows.len() < room as usize;
        for row in &rows {
            let seq = row.try_get::<_, i64>(0)? as u64;
            if seq != expected {
                return Err(invalid(format!(
                    "the stream of {task} in partition {partition} has a gap: {expected} is missing"
                )));
            }
            let item = items::read(task, row, 1)?;
            bytes += item.payload.len() + item.identity.key.len();
            if bytes > bytes_max && !items.is_empty() {
                return Ok(items);
            }
            items.push(Waiting { source: Source::Log(Seq(seq)), item, run_at: Time::EPOCH });
            expected += 1;
        }
        if last {
            return Ok(items);
        }
    }
}

/// Timers by due time, then number.
pub(super) async fn read_timers(
    session: &Session,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    by_time(session, 1, partitions, after, limit).await
}

/// Retries by time, then number.
pub(super) async fn read_retries(
    session: &Session,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    by_time(session, 2, partitions, after, limit).await
}

/// The index is ordered by time within each task; the tasks, of which there are few, are
/// merged.
async fn by_time(
    session: &Session,
    place: i16,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    let (from, no) = after.map_or((i64::MIN, -1), |(t, id)| (t.0, id as i64));
    let rows = session
        .query(
            &format!(
                "SELECT t.name, i.no, i.run_at, {} FROM @.task t CROSS JOIN LATERAL (
                   SELECT * FROM @.item w
                   WHERE w.task = t.id AND w.place = {place} AND (w.run_at, w.no) > ($1, $2)
                     AND ($3::int4[] IS NULL OR w.part = ANY($3))
                   ORDER BY w.run_at, w.no LIMIT $4) i
                 ORDER BY i.run_at, i.no LIMIT $4",
                items::COLUMNS
            ),
            params![from, no, listed(partitions), i64::from(limit)],
        )
        .await?;
    let waiting = |row: &Row| -> Job<Waiting> {
        let task = TaskName::from(row.try_get::<_, String>(0)?);
        Ok(Waiting {
            source: items::source(place, row.try_get(1)?)?,
            run_at: Time(row.try_get(2)?),
            item: items::read(&task, row, 3)?,
        })
    };
    rows.iter().map(waiting).collect()
}

// ---------------------------------------------------------------------------- in flight

/// Where an item waits and what it is: one of a begun batch.
pub(super) type Begun = (Source, Partition, Identity);

/// A mark as a column of type `uuid` holds it.
pub(super) fn mark(id: CommitId) -> Cell {
    Cell::Uuid(id.0.to_be_bytes())
}

/// Notes a batch as begun. It need not survive the machine, so it waits for no disk.
pub(super) async fn begin(
    session: &Session,
    id: CommitId,
    node: &NodeName,
    items: &[(Source, &Item)],
) -> Job<()> {
    let begun: Vec<Begun> =
        items.iter().map(|(s, item)| (*s, item.partition, item.identity.clone())).collect();
    session
        .execute(
            "INSERT INTO @.inflight (commit_id, node, items) VALUES ($1, $2, $3)
             ON CONFLICT (commit_id) DO UPDATE SET node = excluded.node, items = excluded.items",
            params![mark(id), node.as_str().to_owned(), postcard::to_stdvec(&begun)?],
        )
        .await?;
    Ok(())
}

/// Forgets a begun batch.
pub(super) async fn abandon(session: &Session, id: CommitId) -> Job<()> {
    session.execute("DELETE FROM @.inflight WHERE commit_id = $1", params![mark(id)]).await?;
    Ok(())
}

/// Counts a death for every item that a dead incarnation had begun and that still waits
/// where it was.
pub(super) async fn bury(tx: &Tx, alive: &[NodeName]) -> Job<Vec<Identity>> {
    let alive: Vec<String> = alive.iter().map(|node| node.as_str().to_owned()).collect();
    let rows = tx
        .query(
            "DELETE FROM @.inflight WHERE NOT node = ANY($1::text[]) RETURNING items",
            params![alive],
        )
        .await?;
    let mut counted = Vec::new();
    for row in rows {
        let begun: Vec<Begun> = postcard::from_bytes(&row.try_get::<_, Vec<u8>>(0)?)?;
        counted.extend(count_deaths(tx, &begun).await?);
    }
    Ok(counted)
}

async fn count_deaths(tx: &Tx, begun: &[Begun]) -> Job<Vec<Identity>> {
    let known: std::collections::HashMap<_, _> =
        super::tasks::names(&tx.session).await?.into_iter().map(|(id, name)| (name, id)).collect();
    let mut identities = Identities::default();
    let (mut places, mut numbers, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for (source, partition, identity) in begun {
        let (at, no) = place(*source);
        identities.push(known.get(&identity.task).copied().unwrap_or(0), identity);
        places.push(at);
        numbers.push(no);
        parts.push(partition.0 as i32);
    }
    let Identities { tasks, tenants, keys, dues } = identities;
    let rows = tx
        .query(
            "UPDATE @.item i SET deaths = i.deaths + 1
             FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int2[], $6::int8[],
               $7::int4[]) WITH ORDINALITY u(task, tenant, key, due, place, no, part, at)
             WHERE i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
               AND i.place = u.place AND i.no = u.no AND i.part = u.part
             RETURNING u.at",
            params![tasks, tenants, keys, dues, places, numbers, parts],
        )
        .await?;
    let identity = |row: &Row| -> Job<Identity> {
        let at = row.try_get::<_, i64>(0)? as usize - 1;
        Ok(begun[at].2.clone())
    };
    rows.iter().map(identity).collect()
}
