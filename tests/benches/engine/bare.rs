//! The limits: what SQLite itself does under the store's settings, on the same disk.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::{Connection, params};

use super::report::cpu;

/// A connection with the settings of the store's writer.
pub fn open(path: &Path) -> Result<Connection> {
    let conn = Connection::open(path)?;
    conn.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON;
         PRAGMA temp_store = MEMORY; PRAGMA cache_size = -65536;
         PRAGMA journal_size_limit = 67108864",
    )?;
    conn.set_prepared_statement_cache_capacity(64);
    Ok(conn)
}

/// A log with a cursor and one UPDATE as the effect of each item: per batch one transaction
/// that enqueues and one that applies and acknowledges. Time on the wall, and of processors.
pub fn log_and_cursor(path: &Path, size: u32, rounds: u32) -> Result<(Duration, Duration)> {
    let conn = open(path)?;
    conn.execute_batch(
        "CREATE TABLE log (seq INTEGER PRIMARY KEY, key TEXT NOT NULL, item BLOB NOT NULL);
         CREATE TABLE stream (singleton INTEGER PRIMARY KEY, tail INTEGER, acked INTEGER);
         INSERT INTO stream VALUES (1, 0, 0);
         CREATE TABLE shares (project_id TEXT NOT NULL, share_id TEXT NOT NULL,
           file_id TEXT NOT NULL, start_date INTEGER NOT NULL, limit_seconds INTEGER,
           unshared_at INTEGER, PRIMARY KEY (project_id, share_id)) STRICT, WITHOUT ROWID;
         CREATE INDEX shares_by ON shares (project_id, unshared_at, start_date)",
    )?;
    super::queue::fill(&conn, size * rounds)?;
    let (began, used) = (Instant::now(), cpu());
    for round in 0..rounds {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        let tail: u32 = conn
            .prepare_cached("UPDATE stream SET tail = tail + ?1 RETURNING tail")?
            .query_row([size], |r| r.get(0))?;
        for i in 0..size {
            conn.prepare_cached("INSERT INTO log VALUES (?1, ?2, ?3)")?.execute(params![
                tail - size + i + 1,
                super::queue::key(round * size + i),
                [0_u8; 16]
            ])?;
        }
        conn.execute_batch("COMMIT")?;
        let mut read = conn.prepare_cached(
            "SELECT seq, key, item FROM log WHERE seq > ?1 ORDER BY seq LIMIT ?2",
        )?;
        let keys = read
            .query_map([tail - size, size], |r| r.get::<_, String>(1))?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for key in keys {
            conn.prepare_cached(
                "UPDATE shares SET unshared_at = ?3 WHERE project_id = ?1 AND share_id = ?2",
            )?
            .execute(params![super::place::TENANT, key, i64::from(round)])?;
        }
        conn.prepare_cached("UPDATE stream SET acked = ?2 WHERE acked = ?1")?
            .execute([tail - size, tail])?;
        conn.execute_batch("COMMIT")?;
    }
    Ok((began.elapsed(), cpu() - used))
}

/// So many commits of one small row each, one after the other, in milliseconds, sorted.
pub fn commits(path: &Path, count: u32) -> Result<Vec<f64>> {
    let conn = open(path)?;
    conn.execute_batch("CREATE TABLE IF NOT EXISTS one (id INTEGER PRIMARY KEY, n INTEGER)")?;
    let mut spans = Vec::with_capacity(count as usize);
    for n in 0..count {
        let began = Instant::now();
        conn.prepare_cached("INSERT INTO one (n) VALUES (?1)")?.execute([n])?;
        spans.push(super::report::ms(began.elapsed()));
    }
    spans.sort_by(f64::total_cmp);
    Ok(spans)
}

/// Replaces the changes of each document by one row, in transactions of so many documents.
pub fn compactions(conn: &mut Connection, documents: u32, per_commit: u32) -> Result<Duration> {
    let mut payload = vec![0_u8; 2_000];
    payload[0] = 1;
    let began = Instant::now();
    let ids: Vec<u32> = (0..documents).collect();
    for some in ids.chunks(per_commit.max(1) as usize) {
        let tx = conn.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
        for n in some {
            let id = super::tasks::document(*n);
            let key = params![super::place::TENANT, id];
            tx.prepare_cached("DELETE FROM changes WHERE project_id = ?1 AND doc_id = ?2")?
                .execute(key)?;
            tx.prepare_cached(
                "INSERT INTO changes VALUES (?1, ?2, 100, '0', 0, 100, 'edit', ?3, NULL)",
            )?
            .execute(params![super::place::TENANT, id, payload])?;
            tx.prepare_cached(
                "UPDATE documents SET compacted_seq = server_seq
                 WHERE project_id = ?1 AND doc_id = ?2",
            )?
            .execute(key)?;
        }
        tx.commit()?;
    }
    Ok(began.elapsed())
}
