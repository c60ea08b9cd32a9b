//! A scan finds its candidates by an index: among a hundred times as many documents it reads
//! about as many rows, and as many bytes of the file.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use besom_core::time::Time;
use besom_engine::host::perform::call_of;
use besom_ports::guests::StopFlag;
use rusqlite::{StatementStatus, params};

use super::place;
use super::report::{Figures, median, ms};

const SIZES: [u32; 2] = [10_000, 1_000_000];
const CANDIDATES: u32 = 10;
const REPEATS: u32 = 20;

/// Both sizes.
pub async fn run() -> Result<()> {
    for documents in SIZES {
        one(documents).await?;
    }
    Ok(())
}

async fn one(documents: u32) -> Result<()> {
    let place = place::Place::new(&place::shipped()).await?;
    let conn = place.sql()?;
    conn.execute_batch("PRAGMA cache_size = -262144; BEGIN IMMEDIATE")?;
    {
        let mut insert = conn.prepare(
            "INSERT INTO documents (project_id, doc_id, server_seq, created_at, updated_at)
             VALUES (?1, ?2, ?3, 0, 0)",
        )?;
        for number in 0..documents {
            let candidate = number % (documents / CANDIDATES) == 7;
            let pending = if candidate { 5_000 } else { number % 900 };
            insert.execute(params![place::TENANT, super::tasks::document(number), pending])?;
        }
    }
    conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    let assembly = place.assembly(&["compaction"]).await?;
    let definition = assembly.config.tasks.values().next().expect("the task that was named");
    let tenant = place::TENANT.into();
    let (mut spans, mut scanned, mut bytes) = (Vec::new(), 0, Vec::new());
    for round in 0..REPEATS {
        let view = assembly.ports.store.snapshot(Duration::from_secs(10)).await?;
        let call = call_of(definition, Time(1), u64::from(round), &StopFlag::default());
        let activity = Arc::clone(&assembly.ports.activity);
        let (before, began) = (bytes_read()?, Instant::now());
        let page =
            assembly.ports.guests.scan(&call, view, activity, Some(&tenant), None, 500).await?;
        spans.push(ms(began.elapsed()));
        bytes.push((bytes_read()? - before) as f64);
        anyhow::ensure!(page.candidates.len() == CANDIDATES as usize && page.next.is_none());
        scanned = page.scanned;
    }
    // What SQLite counts for the same range.
    let mut range = conn.prepare(
        "SELECT doc_id FROM documents WHERE project_id = ?1 AND pending >= 1000
         ORDER BY pending, doc_id LIMIT 501",
    )?;
    let found = range.query_map([place::TENANT], |_| Ok(()))?.count();
    anyhow::ensure!(found == CANDIDATES as usize);
    Figures::of("scan", format!("{CANDIDATES} candidates among {documents}"))
        .with("rows", scanned as f64)
        .with("sqlite_steps", f64::from(range.get_status(StatementStatus::VmStep)))
        .with("sqlite_full_scan_steps", f64::from(range.get_status(StatementStatus::FullscanStep)))
        .with("file_bytes_first", bytes[0])
        .with("file_bytes_p50", median(bytes))
        .with("first_ms", spans[0])
        .with("p50_ms", median(spans))
        .show();
    Ok(())
}

/// Bytes that this process has read from files.
fn bytes_read() -> Result<u64> {
    let io = std::fs::read_to_string("/proc/self/io")?;
    let line = io.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(line.unwrap_or_default().parse()?)
}
