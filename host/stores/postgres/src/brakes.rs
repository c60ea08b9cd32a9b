//! The brakes of runs ([`besom_core::brake`]), and the estimates that they are set by.

use besom_core::brake::{Brake, LETTERS, Used};
use besom_core::ids::{FencingToken, RunId, TaskName};
use tokio_postgres::Row;

use super::clock::Clock;
use super::error::{Job, invalid};
use super::mapping::Mapping;
use super::session::{Session, Tx, params};
use besom_ports::store::{BRAKES_RESUMED, Brakes, Result};

/// What the planner knows of the rows of a table, or of all its partitions. A table that was never
/// analysed has none or a negative number.
const ESTIMATE: &str = "SELECT coalesce(sum(greatest(c.reltuples, 0)), 0)::int8
  FROM pg_class o LEFT JOIN LATERAL pg_partition_tree(o.oid) p ON o.relkind = 'p'
  JOIN pg_class c ON c.oid = coalesce(p.relid::oid, o.oid)
  WHERE o.oid = to_regclass($1) AND c.relkind IN ('r', 'm', 'f')";

/// The number of rows of a collection: what the planner estimates, or counted up to `count_max`.
pub(super) async fn estimate(
    session: &Session,
    mapping: &Mapping,
    collection: &str,
    count_max: u64,
) -> Job<u64> {
    let table = mapping.table(collection).map_err(invalid)?;
    let known: i64 = session.one(ESTIMATE, params![table.name.clone()]).await?;
    if known > 0 {
        return Ok(known as u64);
    }
    let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {} LIMIT $1) found", table.name);
    let count_max = i64::try_from(count_max).unwrap_or(i64::MAX);
    Ok(session.one::<i64>(&sql, params![count_max]).await? as u64)
}

/// Sets brakes that are not set yet.
pub(super) async fn set(
    session: Session,
    clock: &Clock,
    fence: &FencingToken,
    brakes: &[Brake],
) -> Result<()> {
    let tx = Tx::fenced(session, clock, fence).await?;
    let done = insert(&tx, brakes).await;
    tx.finish(done).await
}

async fn insert(tx: &Tx, brakes: &[Brake]) -> Job<()> {
    let number = |number: Option<u64>| number.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
    for brake in brakes {
        tx.execute(
            "INSERT INTO @.brake VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING",
            params![
                brake.run.0 as i64,
                brake.what.clone(),
                brake.used as i64,
                number(brake.allowed),
                number(brake.estimate)
            ],
        )
        .await?;
    }
    Ok(())
}

/// The brakes of a task's runs, newest first.
pub(super) async fn of_task(session: &Session, task: &TaskName, limit: u32) -> Job<Vec<Brake>> {
    let sql = "SELECT b.run, b.what, b.used, b.allowed, b.estimate FROM @.task t
        JOIN @.run r ON r.task = t.id JOIN @.brake b ON b.run = r.id
        WHERE t.name = $1 ORDER BY r.id DESC, b.what LIMIT $2";
    session.all(sql, params![task.as_str().to_owned(), i64::from(limit)], read).await
}

fn read(row: &Row) -> Job<Brake> {
    let number =
        |at| -> Job<Option<u64>> { Ok(row.try_get::<_, Option<i64>>(at)?.map(|n| n as u64)) };
    Ok(Brake {
        run: RunId(row.try_get::<_, i64>(0)? as u64),
        what: row.try_get(1)?,
        used: row.try_get::<_, i64>(2)? as u64,
        allowed: number(3)?,
        estimate: number(4)?,
    })
}

/// Adds what a commit uses, in one order. Returns whether all of it is allowed; otherwise the
/// transaction must not be committed.
pub(super) async fn add(session: &Session, used: &Used) -> Job<bool> {
    let (mut runs, mut whats, mut more) = (Vec::new(), Vec::new(), Vec::new());
    for ((run, what), used) in used {
        runs.push(run.0 as i64);
        whats.push(what.clone());
        more.push(i64::try_from(*used).unwrap_or(i64::MAX));
    }
    let rows = session
        .query(
            "WITH u AS MATERIALIZED (
               SELECT b.run, b.what, u.more
               FROM unnest($1::int8[], $2::text[], $3::int8[]) u(run, what, more)
               JOIN @.brake b ON b.run = u.run AND b.what = u.what
               ORDER BY b.run, b.what FOR UPDATE OF b)
             UPDATE @.brake b SET used = b.used + u.more FROM u
             WHERE b.run = u.run AND b.what = u.what RETURNING b.used, b.allowed",
            params![runs, whats, more],
        )
        .await?;
    for row in &rows {
        let used: i64 = row.try_get(0)?;
        let allowed = row.try_get::<_, Option<i64>>(1)?.map(|n| n as u64);
        if Brake::forbids(used as u64, allowed) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sets the brakes of a task's newest unfinished runs anew.
pub(super) async fn resume(tx: &Tx, task: &TaskName, brakes: &Brakes) -> Job<()> {
    let sql = "SELECT b.run, b.what, b.used, b.allowed, b.estimate FROM @.task t
        JOIN @.run r ON r.task = t.id JOIN @.brake b ON b.run = r.id
        WHERE t.name = $1 AND (r.ended_at IS NULL OR r.planned >
          coalesce((SELECT sum(s.ended) FROM @.run_share s WHERE s.run = r.id), 0))
        ORDER BY r.id DESC, b.what LIMIT $2";
    let asked = params![task.as_str().to_owned(), i64::from(BRAKES_RESUMED)];
    renew(tx, tx.all(sql, asked, read).await?, brakes).await
}

/// Sets the brakes of a run anew.
pub(super) async fn approve(tx: &Tx, run: RunId, brakes: &Brakes) -> Job<()> {
    let of_run = "SELECT run, what, used, allowed, estimate FROM @.brake WHERE run = $1";
    renew(tx, tx.all(of_run, params![run.0 as i64], read).await?, brakes).await
}

async fn renew(tx: &Tx, found: Vec<Brake>, brakes: &Brakes) -> Job<()> {
    for brake in found {
        let resumed = brake.clone().resumed(brakes);
        if resumed == brake {
            continue;
        }
        let Brake { run, what, allowed, .. } = resumed;
        // A commit may add to the others meanwhile.
        let restarts = what == LETTERS;
        tx.execute(
            "UPDATE @.brake SET allowed = $3, used = CASE WHEN $4 THEN 0 ELSE used END
             WHERE run = $1 AND what = $2",
            params![run.0 as i64, what, allowed.map(|n| n as i64), restarts],
        )
        .await?;
    }
    Ok(())
}
