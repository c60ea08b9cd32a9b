//! What a product feels while rows of its table are deleted: 500 rows a second written by four
//! connections, each row in a transaction of its own, alone, beside a loop of plain SQL that keeps what it
//! deletes, and beside `besom run` with a task `retention`.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use besom_tests::servers::postgres::Server;
use rusqlite::{Connection, params};
use tokio::task::JoinSet;

use super::plain::{self, Fate};
use super::report::{Figures, percentile};
use super::undo::{self, CASES, Site};

/// The product's connections, and the rows that each of them writes per second.
const WRITERS: u64 = 4;
const EACH_PER_S: u32 = 125;
/// How long the product is alone.
const ALONE: Duration = Duration::from_secs(20);
/// How long a connection of the product waits for the write lock of SQLite.
const BUSY: Duration = Duration::from_secs(30);

/// What deletes the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Loop,
    Besom,
}

/// Each on each store.
pub async fn run() -> Result<()> {
    let server = undo::server();
    for server in [None, Some(server)] {
        let mut alone = f64::NAN;
        for beside in [Beside::Nothing, Beside::Loop, Beside::Besom] {
            let p99 = one(server, beside, alone).await?;
            if beside == Beside::Nothing {
                alone = p99;
            }
        }
    }
    Ok(())
}

/// Returns the product's 99 % in milliseconds.
async fn one(server: Option<&'static Server>, beside: Beside, alone: f64) -> Result<f64> {
    let case = &CASES[0];
    let site = Site::new(case, server, "7d").await?;
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let done = Arc::clone(&done);
        match &site.database {
            None => {
                let path = site.dir.path().join("besom.db");
                writers.spawn_blocking(move || on_sqlite(&path, writer, &done));
            }
            Some(database) => {
                let client = database.connect().await;
                writers.spawn(async move { on_postgres(client, writer, &done).await });
            }
        }
    }
    let began = Instant::now();
    let deleted = match beside {
        Beside::Nothing => {
            tokio::time::sleep(ALONE).await;
            0
        }
        Beside::Loop => plain::run(&site, Fate::Delete).await?,
        Beside::Besom => {
            let mut child = besom(&site)?;
            loop {
                if let Some(status) = child.try_wait()? {
                    ensure!(status.success(), "besom run: {status}");
                    break u64::from(case.rows);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    };
    let took = began.elapsed();
    done.store(true, Ordering::Relaxed);
    let mut felt = Vec::new();
    while let Some(ended) = writers.join_next().await {
        felt.extend(ended??);
    }
    felt.sort_by(f64::total_cmp);
    let p99 = percentile(&felt, 99.0);
    let store = if server.is_some() { "PostgreSQL" } else { "SQLite" };
    let name = match beside {
        Beside::Nothing => "alone",
        Beside::Loop => "beside a loop",
        Beside::Besom => "beside besom run",
    };
    Figures::of("beside", format!("{store}, the product {name}"))
        .with("deleted_rows_per_s", deleted as f64 / took.as_secs_f64())
        .with("written_rows_per_s", felt.len() as f64 / took.as_secs_f64())
        .with("p50_ms", percentile(&felt, 50.0))
        .with("p90_ms", percentile(&felt, 90.0))
        .with("p99_ms", p99)
        .with("p999_ms", percentile(&felt, 99.9))
        .with("max_ms", percentile(&felt, 100.0))
        .with("p99_to_alone", p99 / alone)
        .show();
    Ok(p99)
}

fn besom(site: &Site) -> Result<Child> {
    Ok(Command::new(super::idle::binary()?)
        .args(["run", "--config"])
        .arg(site.config())
        .env("XDG_CACHE_HOME", site.dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?)
}

/// The key of a row that a writer of the product adds.
fn id(writer: u64, number: u32) -> i64 {
    1_000_000_000 * (1 + writer as i64) + i64::from(number)
}

/// When the next row of a writer is due, from the start.
fn due(number: u32) -> Duration {
    Duration::from_secs(1) / EACH_PER_S * number
}

/// Writes rows until `done`; how late each was written, from when it was due, in milliseconds.
fn on_sqlite(path: &std::path::Path, writer: u64, done: &AtomicBool) -> Result<Vec<f64>> {
    let sql = Connection::open(path)?;
    sql.busy_timeout(BUSY)?;
    sql.pragma_update(None, "synchronous", "FULL")?;
    let mut insert =
        sql.prepare("INSERT INTO things VALUES (?1, 4102444800000000, 'new', ?2, NULL)")?;
    let (mut felt, began) = (Vec::new(), Instant::now());
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(due(number).saturating_sub(began.elapsed()));
        insert.execute(params![id(writer, number), "x".repeat(100)])?;
        felt.push((began.elapsed().saturating_sub(due(number))).as_secs_f64() * 1e3);
    }
    Ok(felt)
}

async fn on_postgres(
    client: tokio_postgres::Client,
    writer: u64,
    done: &AtomicBool,
) -> Result<Vec<f64>> {
    let sql = "INSERT INTO things VALUES ($1, '2100-01-01', 'new', repeat('x', 100), NULL)";
    let insert = client.prepare(sql).await?;
    let (mut felt, began) = (Vec::new(), Instant::now());
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        tokio::time::sleep(due(number).saturating_sub(began.elapsed())).await;
        client.execute(&insert, &[&id(writer, number)]).await?;
        felt.push((began.elapsed().saturating_sub(due(number))).as_secs_f64() * 1e3);
    }
    Ok(felt)
}
