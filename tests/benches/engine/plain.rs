//! What a task does with old rows, in plain SQL: chunks of 1,000, each copied into a table that keeps them, changed, and
//! recorded as one row of history, in one transaction.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use besom_tests::servers::postgres::Database;
use rusqlite::{Connection, OptionalExtension as _, params};

use super::undo::Site;

/// Rows of a transaction.
const CHUNK: u32 = 1_000;
/// How long the loop waits for the write lock of SQLite.
const BUSY: Duration = Duration::from_secs(30);
/// Rows of `things` are older than this: seconds since 1970 on PostgreSQL, microseconds on SQLite.
const OLD: i64 = 2_000_000_000;

/// What becomes of the old rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Delete,
    /// Moved into the table `archive`.
    Archive,
    /// `note` becomes null.
    Set,
}

/// Changes all old rows of `things`; returns their number.
pub async fn run(site: &Site, fate: Fate) -> Result<u64> {
    match &site.database {
        None => {
            let path = site.dir.path().join("besom.db");
            tokio::task::spawn_blocking(move || on_sqlite(&path, fate)).await?
        }
        Some(database) => on_postgres(database, fate).await,
    }
}

fn on_sqlite(path: &Path, fate: Fate) -> Result<u64> {
    let sql = Connection::open(path)?;
    sql.busy_timeout(BUSY)?;
    sql.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA cache_size = -65536;
         CREATE TABLE kept AS SELECT * FROM things LIMIT 0;
         CREATE TABLE history (at INTEGER, rows INTEGER);",
    )?;
    let span = "at > ?1 AND at <= ?2";
    let change = match fate {
        Fate::Delete => vec![format!("DELETE FROM things WHERE {span}")],
        Fate::Archive => vec![
            format!("INSERT INTO archive SELECT * FROM things WHERE {span}"),
            format!("DELETE FROM things WHERE {span}"),
        ],
        Fate::Set => vec![format!("UPDATE things SET note = NULL WHERE {span}")],
    };
    let mut last = sql.prepare(&format!(
        "SELECT max(at) FROM
           (SELECT at FROM things WHERE at > ?1 AND at < {OLD} ORDER BY at LIMIT {CHUNK})"
    ))?;
    let mut keep = sql.prepare(&format!("INSERT INTO kept SELECT * FROM things WHERE {span}"))?;
    let mut change =
        change.iter().map(|text| sql.prepare(text)).collect::<rusqlite::Result<Vec<_>>>()?;
    let mut note = sql.prepare("INSERT INTO history VALUES (unixepoch(), ?1)")?;
    let (mut done, mut after) = (0, i64::MIN);
    loop {
        sql.execute_batch("BEGIN IMMEDIATE")?;
        let upto: Option<i64> = last.query_row([after], |row| row.get(0)).optional()?.flatten();
        let Some(upto) = upto else {
            sql.execute_batch("COMMIT")?;
            return Ok(done);
        };
        let rows = keep.execute([after, upto])?;
        for statement in &mut change {
            statement.execute([after, upto])?;
        }
        note.execute(params![rows])?;
        sql.execute_batch("COMMIT")?;
        done += rows as u64;
        after = upto;
    }
}

async fn on_postgres(database: &Database, fate: Fate) -> Result<u64> {
    let client = database.connect().await;
    client
        .batch_execute(
            "CREATE TABLE kept AS SELECT * FROM things LIMIT 0;
             CREATE TABLE history (at timestamptz, rows bigint);",
        )
        .await?;
    let span = "at > to_timestamp($1::float8) AND at <= to_timestamp($2::float8)";
    let gone = format!("old AS (DELETE FROM things WHERE {span} RETURNING *)");
    let change = match fate {
        Fate::Delete => gone,
        Fate::Archive => format!("{gone}, moved AS (INSERT INTO archive SELECT * FROM old)"),
        Fate::Set => format!(
            "old AS (SELECT * FROM things WHERE {span} FOR UPDATE),
             done AS (UPDATE things SET note = NULL WHERE {span})"
        ),
    };
    let change = client
        .prepare(&format!(
            "WITH {change}, kept AS (INSERT INTO kept SELECT * FROM old RETURNING 1)
             INSERT INTO history SELECT now(), count(*) FROM kept RETURNING rows"
        ))
        .await?;
    let last = client
        .prepare(&format!(
            "SELECT extract(epoch FROM max(at))::float8 FROM
               (SELECT at FROM things
                WHERE at > to_timestamp($1::float8) AND at < to_timestamp({OLD})
                ORDER BY at LIMIT {CHUNK}) chunk"
        ))
        .await?;
    let (mut done, mut after) = (0, 0.0);
    loop {
        let upto: Option<f64> = client.query_one(&last, &[&after]).await?.get(0);
        let Some(upto) = upto else { return Ok(done) };
        let rows: i64 = client.query_one(&change, &[&after, &upto]).await?.get(0);
        done += u64::try_from(rows).context("a count")?;
        after = upto;
    }
}
