//! Items that wait to be executed (streams, timers, retries), and batches being executed.

use besom_core::ids::{CommitId, FencingToken, Incarnation, Partition, Seq, TaskName};
use besom_core::item::{Identity, Item, Source};
use besom_core::time::Time;
use tokio_postgres::Row;

use super::clock::Clock;
use super::error::Job;
use super::items::{self, Identities, place};
use super::session::{Session, Tx, params};
use super::tasks::Tasks;
use super::values::Cell;
use besom_ports::store::{LogRead, LogRoom, Result, Stream, Waiting, gap};
use besom_record::begun::{self, Begun};

fn listed(partitions: Option<&[Partition]>) -> Option<Vec<i32>> {
    partitions.map(|all| all.iter().map(|p| p.0 as i32).collect())
}

/// Streams with unacknowledged items.
pub(super) async fn backlog(
    session: &Session,
    partitions: Option<&[Partition]>,
) -> Job<Vec<Stream>> {
    let sql = "SELECT t.name, s.part, h.acked, s.tail FROM @.stream_tail s
        JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
        JOIN @.task t ON t.id = s.task
        WHERE s.tail > h.acked AND ($1::int4[] IS NULL OR s.part = ANY($1))
        ORDER BY t.name, s.part";
    let stream = |r: &Row| -> Job<Stream> {
        Ok(Stream {
            task: r.try_get::<_, String>(0)?.into(),
            partition: Partition(r.try_get::<_, i32>(1)? as u32),
            acked: Seq(r.try_get::<_, i64>(2)? as u64),
            tail: Seq(r.try_get::<_, i64>(3)? as u64),
        })
    };
    session.all(sql, params![listed(partitions)], stream).await
}

/// From the streams `$2` after the positions `$3`: at most `$4` items each and `$5` in all. (The
/// limit in bytes is applied here: a sum over the rows costs more than reading a few unneeded ones,
/// and items are small.)
const LOGS: &str = "SELECT s.at, i.* FROM unnest($2::int4[], $3::int8[])
    WITH ORDINALITY s(part, acked, at)
  CROSS JOIN LATERAL (
    SELECT w.no, {columns} FROM @.item w
    WHERE w.task = $1 AND w.part = s.part AND w.no > s.acked AND w.place = 0
    ORDER BY w.no LIMIT $4) i
  ORDER BY s.at, i.no LIMIT $5";

/// The items of several streams after their positions, in order and without gaps; one statement,
/// and so one view.
pub(super) async fn read_logs(
    session: &Session,
    tasks: &Tasks,
    task: &TaskName,
    streams: &[(Partition, Seq)],
    mut room: LogRoom,
) -> Job<LogRead> {
    let Some(id) = tasks.find(session, task).await? else { return Ok(LogRead::default()) };
    let parts: Vec<i32> = streams.iter().map(|(partition, _)| partition.0 as i32).collect();
    let acked: Vec<i64> = streams.iter().map(|(_, acked)| acked.0 as i64).collect();
    let Some((each, _)) = room.left() else { return Ok(room.read) };
    let limits = (i64::from(each), i64::from(room.limit()));
    let rows = session
        .query(
            &LOGS.replace("{columns}", items::COLUMNS),
            params![id, parts.clone(), acked, limits.0, limits.1],
        )
        .await?;
    let short = match rows.len() < parts.len() {
        true => ending_short(session, id, &parts).await?,
        false => Vec::new(),
    };
    let mut rows = rows.iter().peekable();
    for (at, (partition, acked)) in streams.iter().enumerate() {
        let Some((limit, bytes_max)) = room.left() else { break };
        let mut stream = Reading { next: acked.0 + 1, items: Vec::new(), bytes: 0 };
        let mut read = Ok(());
        while let Some(row) = rows.peek() {
            if row.try_get::<_, i64>(0)? as usize != at + 1 {
                break;
            }
            if read.is_ok() && stream.has_room(limit, bytes_max) {
                read = stream.take(task, *partition, row, bytes_max);
            }
            rows.next();
        }
        if stream.items.is_empty() && short.contains(&(*partition, *acked)) {
            read = read.and(Err(gap(task, *partition, acked.0 + 1).into()));
        }
        if !room.take(*partition, read.map(|()| stream.items))? {
            break;
        }
    }
    Ok(room.read)
}

/// The streams whose next item is missing, with their last acknowledged positions.
async fn ending_short(session: &Session, task: i32, parts: &[i32]) -> Job<Vec<(Partition, Seq)>> {
    let sql = "SELECT s.part, h.acked FROM @.stream_tail s
        JOIN @.stream_head h ON h.task = s.task AND h.part = s.part
        WHERE s.task = $1 AND s.part = ANY($2) AND s.tail > h.acked AND NOT EXISTS (
          SELECT 1 FROM @.item i WHERE i.task = s.task AND i.part = s.part AND i.place = 0
            AND i.no = h.acked + 1)";
    let short = |row: &Row| -> Job<(Partition, Seq)> {
        Ok((Partition(row.try_get::<_, i32>(0)? as u32), Seq(row.try_get::<_, i64>(1)? as u64)))
    };
    session.all(sql, params![task, parts.to_vec()], short).await
}

/// The state of one stream while its rows are read.
struct Reading {
    next: u64,
    items: Vec<Waiting>,
    bytes: usize,
}

impl Reading {
    fn has_room(&self, limit: u32, bytes_max: usize) -> bool {
        self.items.len() < limit as usize && (self.bytes <= bytes_max || self.items.is_empty())
    }

    fn take(
        &mut self,
        task: &TaskName,
        partition: Partition,
        row: &Row,
        bytes_max: usize,
    ) -> Job<()> {
        let (seq, expected) = (row.try_get::<_, i64>(1)? as u64, self.next);
        if seq != expected {
            return Err(gap(task, partition, expected).into());
        }
        let item = items::read(task, row, 2)?;
        self.bytes += item.payload.len() + item.identity.key.len();
        if self.bytes <= bytes_max || self.items.is_empty() {
            self.items.push(Waiting { source: Source::Log(Seq(seq)), item, run_at: Time::EPOCH });
            self.next += 1;
        }
        Ok(())
    }
}

/// Timers by due time, then number.
pub(super) async fn read_timers(
    session: &Session,
    tasks: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    by_time(session, 1, tasks, partitions, after, limit).await
}

/// Retries by time, then number.
pub(super) async fn read_retries(
    session: &Session,
    tasks: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    by_time(session, 2, tasks, partitions, after, limit).await
}

/// The index is ordered by time within each task; the tasks, which are few, are merged.
async fn by_time(
    session: &Session,
    place: i16,
    tasks: Option<&[TaskName]>,
    partitions: Option<&[Partition]>,
    after: Option<(Time, u64)>,
    limit: u32,
) -> Job<Vec<Waiting>> {
    let (from, no) = after.map_or((i64::MIN, -1), |(t, id)| (t.0, id as i64));
    let tasks: Option<Vec<String>> =
        tasks.map(|tasks| tasks.iter().map(|task| task.as_str().to_owned()).collect());
    let sql = format!(
        "SELECT t.name, i.no, i.run_at, {} FROM @.task t CROSS JOIN LATERAL (
           SELECT * FROM @.item w
           WHERE w.task = t.id AND w.place = {place} AND (w.run_at, w.no) > ($1, $2)
             AND ($3::int4[] IS NULL OR w.part = ANY($3))
           ORDER BY w.run_at, w.no LIMIT $4) i
         WHERE $5::text[] IS NULL OR t.name = ANY($5)
         ORDER BY i.run_at, i.no LIMIT $4",
        items::COLUMNS
    );
    let waiting = |row: &Row| -> Job<Waiting> {
        let task = TaskName::from(row.try_get::<_, String>(0)?);
        Ok(Waiting {
            source: items::source(place, row.try_get(1)?)?,
            run_at: Time(row.try_get(2)?),
            item: items::read(&task, row, 3)?,
        })
    };
    session.all(&sql, params![from, no, listed(partitions), i64::from(limit), tasks], waiting).await
}

// ---------------------------------------------------------------------------- in flight

/// A mark as a column of type `uuid` holds it.
pub(super) fn mark(id: CommitId) -> Cell {
    Cell::Uuid(id.0.to_be_bytes())
}

/// Records a batch as begun. The record need not survive a crash of the machine, so it waits for no
/// disk write.
pub(super) async fn begin(
    session: &Session,
    id: CommitId,
    node: &Incarnation,
    items: &[(Source, &Item)],
) -> Job<()> {
    session
        .execute(
            "INSERT INTO @.inflight (commit_id, node, items) VALUES ($1, $2, $3)
             ON CONFLICT (commit_id) DO UPDATE SET node = excluded.node, items = excluded.items",
            params![mark(id), node.as_str().to_owned(), begun::pack(items)?],
        )
        .await?;
    Ok(())
}

/// Removes the record of a begun batch.
pub(super) async fn abandon(session: &Session, id: CommitId) -> Job<()> {
    session.execute("DELETE FROM @.inflight WHERE commit_id = $1", params![mark(id)]).await?;
    Ok(())
}

/// The nodes with begun batches.
pub(super) async fn begun_by(session: &Session) -> Job<Vec<Incarnation>> {
    session
        .all("SELECT DISTINCT node FROM @.inflight", params![], |row| {
            Ok(row.try_get::<_, String>(0)?.into())
        })
        .await
}

/// Counts a death for every item that a dead incarnation had begun and that is still waiting in its
/// place; under the fence.
pub(super) async fn bury(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    dead: &[Incarnation],
) -> Result<Vec<Identity>> {
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = count_all(&tx, dead).await;
    tx.finish(done).await
}

async fn count_all(tx: &Tx, dead: &[Incarnation]) -> Job<Vec<Identity>> {
    let dead: Vec<String> = dead.iter().map(|node| node.as_str().to_owned()).collect();
    let rows = tx
        .query("DELETE FROM @.inflight WHERE node = ANY($1::text[]) RETURNING items", params![dead])
        .await?;
    let mut counted = Vec::new();
    for row in rows {
        let begun = begun::unpack(row.try_get(0)?).unwrap_or_default();
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
    let sql = "UPDATE @.item i SET deaths = i.deaths + 1
        FROM unnest($1::int4[], $2::text[], $3::text[], $4::int8[], $5::int2[], $6::int8[],
          $7::int4[]) WITH ORDINALITY u(task, tenant, key, due, place, no, part, at)
        WHERE i.task = u.task AND i.tenant = u.tenant AND i.key = u.key AND i.due = u.due
          AND i.place = u.place AND i.no = u.no AND i.part = u.part
        RETURNING u.at";
    let identity = |row: &Row| -> Job<Identity> {
        let at = row.try_get::<_, i64>(0)? as usize - 1;
        Ok(begun[at].2.clone())
    };
    tx.all(sql, params![tasks, tenants, keys, dues, places, numbers, parts], identity).await
}
