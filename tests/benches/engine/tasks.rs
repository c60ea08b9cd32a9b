//! Documents compacted and clients deactivated per second, durable, from the first scan to the
//! last commit: the real plugins in the real host, a pass over a prepared database.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use besom::cli::run::pass;
use besom_compaction::outcome::Job;
use besom_compaction::yjs;
use besom_demo::authors::{self, Session};
use rusqlite::{Connection, params};

use super::report::{Figures, cpu};
use super::{bare, place};

const DOCUMENTS: u32 = 1_000;
const EDITS: u32 = 100;
const CLIENTS: u32 = 5_000;
const ATTACHED: u32 = 3;
/// Clients that share three documents: one of them at a time can leave a document.
const CROWD: u32 = 200;
/// Batches of documents that are compacted at once, with a thread each.
const WORKERS: [u32; 2] = [1, 2];

/// A document's id.
pub fn document(number: u32) -> String {
    format!("doc-{number:06}")
}

/// Both tasks.
pub async fn run() -> Result<()> {
    for workers in WORKERS {
        compaction(workers).await?;
    }
    deactivation(CLIENTS, CLIENTS * ATTACHED, "documents of their own").await?;
    deactivation(CLIENTS, CLIENTS, "three to a document").await?;
    deactivation(CROWD, ATTACHED, "all on the same three documents").await
}

async fn compaction(workers: u32) -> Result<()> {
    let mut logs = Vec::new();
    for seed in 0..u64::from(DOCUMENTS) {
        // A transaction that changes nothing sends nothing: some more, cut to as many edits.
        let session = Session { seed, authors: 2, transactions: 2 * EDITS };
        let mut log = authors::write(&session)?;
        log.edits.truncate(EDITS as usize);
        ensure!(log.edits.len() == EDITS as usize, "seed {seed} gives {}", log.edits.len());
        logs.push(log);
    }
    let settings = place::shipped()
        .setting("compaction", "min_changes", EDITS.to_string())
        .setting("compaction", "candidates_per_project", DOCUMENTS.to_string());
    let place = place::Place::new(&settings).await?;
    let write = |conn: &Connection| -> Result<()> {
        conn.execute_batch("BEGIN IMMEDIATE")?;
        for (number, log) in (0..).zip(&logs) {
            conn.prepare_cached(
                "INSERT INTO documents (project_id, doc_id, server_seq, created_at, updated_at)
                 VALUES (?1, ?2, ?3, 0, 0)",
            )?
            .execute(params![place::TENANT, document(number), log.edits.len()])?;
            for (seq, edit) in (1_u32..).zip(&log.edits) {
                conn.prepare_cached(
                    "INSERT INTO changes VALUES (?1, ?2, ?3, ?4, ?3, ?3, 'edit', ?5, NULL)",
                )?
                .execute(params![
                    place::TENANT,
                    document(number),
                    seq,
                    format!("author-{}", edit.author),
                    edit.payload
                ])?;
            }
        }
        conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(())
    };
    let conn = place.sql()?;
    write(&conn)?;
    let set = ["guest_threads", "heavy_batches"].map(|name| format!("host.{name}={workers}"));
    let (took, used, commits) =
        timed_pass(&place, "compaction", &set, &conn, u64::from(DOCUMENTS)).await?;

    let other = place::Place::new(&settings).await?;
    let mut plain = bare::open(&other.file("besom.db"))?;
    write(&plain)?;
    let per_commit = DOCUMENTS.div_ceil(u32::try_from(commits)?.max(1));
    let limit = bare::compactions(&mut plain, DOCUMENTS, per_commit)?;
    let native = Instant::now();
    for log in &logs {
        let updates: Vec<&[u8]> = log.edits.iter().map(|edit| edit.payload.as_slice()).collect();
        yjs::compact(&Job::merge(&updates)).map_err(|why| anyhow!("{why:?}"))?;
    }
    let native = native.elapsed();
    let rate = |span: Duration| f64::from(DOCUMENTS) / span.as_secs_f64();
    let workers = format!("{workers} worker{}", if workers == 1 { "" } else { "s" });
    Figures::of("tasks", format!("compact {DOCUMENTS} documents of {EDITS} edits, {workers}"))
        .with("documents_per_s", rate(took))
        .with("native_one_thread_per_s", rate(native))
        .with("bare_sqlite_per_s", rate(limit))
        .with("cpu_us_per_document", used.as_secs_f64() * 1e6 / f64::from(DOCUMENTS))
        .with("commits", commits as f64)
        .show();
    Ok(())
}

/// So many clients with three documents each, out of so many documents.
async fn deactivation(clients: u32, documents: u32, case: &str) -> Result<()> {
    let settings =
        place::shipped().setting("client-deactivation", "candidates_per_project", "10000");
    let place = place::Place::new(&settings).await?;
    let conn = place.sql()?;
    conn.execute_batch("BEGIN IMMEDIATE")?;
    for number in 0..documents {
        conn.prepare_cached(
            "INSERT INTO documents (project_id, doc_id, server_seq, created_at, updated_at)
             VALUES (?1, ?2, 1, 0, 0)",
        )?
        .execute(params![place::TENANT, document(number)])?;
        conn.prepare_cached(
            "INSERT INTO changes VALUES (?1, ?2, 1, 'a', 1, 1, 'edit', x'00', NULL)",
        )?
        .execute(params![place::TENANT, document(number)])?;
    }
    for number in 0..clients {
        let client = format!("client-{number:06}");
        conn.prepare_cached("INSERT INTO clients VALUES (?1, ?2, 'activated', ?3)")?
            .execute(params![place::TENANT, client, number])?;
        for other in 0..ATTACHED {
            let shared = documents <= clients;
            let number = if shared { number + other * 7 } else { number * ATTACHED + other };
            let document = document(number % documents);
            let key = params![place::TENANT, document, client];
            conn.prepare_cached("INSERT INTO attachments VALUES (?1, ?2, ?3, 'attached', 1, 1)")?
                .execute(key)?;
            conn.prepare_cached("INSERT INTO version_vectors VALUES (?1, ?2, ?3, x'00', 1)")?
                .execute(key)?;
            conn.prepare_cached("INSERT INTO presences VALUES (?1, ?2, ?3, '{}', 0)")?
                .execute(key)?;
        }
    }
    conn.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")?;
    let items = u64::from(clients * (ATTACHED + 1));
    let (took, used, commits) =
        timed_pass(&place, "client-deactivation", &[], &conn, items).await?;
    let per_s = f64::from(clients) / took.as_secs_f64();
    Figures::of("tasks", format!("deactivate {clients} clients, {case}"))
        .with("clients_per_s", per_s)
        .with("items_per_s", items as f64 / took.as_secs_f64())
        .with("cpu_us_per_client", used.as_secs_f64() * 1e6 / f64::from(clients))
        .with("commits", commits as f64)
        .show();
    Ok(())
}

/// Runs a pass of one task, which has to commit so many items; its time on the wall, its
/// processor time and its commits.
async fn timed_pass(
    place: &place::Place,
    task: &str,
    set: &[String],
    conn: &Connection,
    items: u64,
) -> Result<(Duration, Duration, i64)> {
    let assembly = Arc::new(place.assembly_with(&[task], set).await?);
    let (began, used) = (Instant::now(), cpu());
    let passed = pass(&assembly).await.map_err(|e| anyhow!("{e}"))?;
    let (took, used) = (began.elapsed(), cpu() - used);
    ensure!(passed[0].committed == items, "{passed:?} instead of {items}");
    let commits = conn.query_row("SELECT COUNT(*) FROM besom_commit", [], |r| r.get(0))?;
    Ok((took, used, commits))
}
