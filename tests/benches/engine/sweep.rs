//! One million old rows deleted, archived and changed by `retention`, and 200,000 deleted one by one by the example
//! `session-sweep`: `besom run` as a process, start and stop within, beside plain SQL that does the same work in
//! the same run.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use besom_tests::servers::postgres::Server;
use rusqlite::Connection;

use super::plain::{self, Fate};
use super::report::Figures;
use super::undo::{self, CASES, Case, Site};

/// Rows that are deleted one by one.
const SINGLE: u32 = 200_000;

/// Each on each store.
pub async fn run() -> Result<()> {
    let server = undo::server();
    for server in [None, Some(server)] {
        for fate in [Fate::Delete, Fate::Archive, Fate::Set] {
            retention(fate, server).await?;
        }
        single(server).await?;
    }
    Ok(())
}

async fn retention(fate: Fate, server: Option<&'static Server>) -> Result<()> {
    let (name, settings) = match fate {
        Fate::Delete => ("delete", ""),
        Fate::Archive => ("archive", ", action = \"archive\""),
        Fate::Set => {
            ("set", ", action = \"set\", set = \"note = null\", where = \"note is not null\"")
        }
    };
    let columns = "id = \"integer\", at = \"timestamp\", note = \"bytes\"";
    let mut config = CASES[0]
        .config
        .replace("older_than = \"14d\"", &format!("older_than = \"14d\"{settings}"))
        .replace("id = \"integer\", at = \"timestamp\"", columns);
    let (mut sqlite, mut postgres) = (CASES[0].sqlite.to_owned(), CASES[0].postgres.to_owned());
    if fate == Fate::Archive {
        config = config
            .replace(
                "collections.rows = \"things\"",
                "collections = { rows = \"things\", into = \"archive\" }",
            )
            .replace(
                "[tasks.",
                &format!(
                    "[collections.archive]\nkey = [\"id\"]\ncolumns = {{ {columns} }}\n[tasks."
                ),
            );
        sqlite.push_str(
            "\nCREATE TABLE archive (id INTEGER PRIMARY KEY, at INTEGER, token TEXT, data TEXT, note BLOB);",
        );
        postgres.push_str("\nCREATE TABLE archive (LIKE things INCLUDING ALL);");
    }
    let case = Case {
        config: config.leak(),
        sqlite: sqlite.leak(),
        postgres: postgres.leak(),
        ..CASES[0]
    };
    let plain_site = Site::new(&case, server, "7d").await?;
    let began = Instant::now();
    let plain = plain::run(&plain_site, fate).await?;
    let limit = began.elapsed().as_secs_f64();
    let site = Site::new(&case, server, "7d").await?;
    let took = site.besom(&["run"])?;
    let rows = f64::from(case.rows);
    for site in [&plain_site, &site] {
        let left = number(site, "SELECT count(*) FROM things WHERE note IS NOT NULL").await?;
        ensure!(left == 0, "{name}: {left} rows were not changed");
    }
    ensure!(plain == u64::from(case.rows), "{name}: {plain} rows in plain SQL");
    let store = if server.is_some() { "PostgreSQL" } else { "SQLite" };
    Figures::of("sweep", format!("{store}, retention, {name}"))
        .with("rows_per_s", rows / took)
        .with("plain_rows_per_s", rows / limit)
        .with("ratio", limit / took)
        .show();
    Ok(())
}

/// An item for each row.
async fn single(server: Option<&'static Server>) -> Result<()> {
    let case = Case {
        name: "single",
        rows: SINGLE,
        config: SESSIONS,
        table: "sessions",
        sqlite: "
CREATE TABLE sessions (session_id TEXT PRIMARY KEY, user_id INTEGER, expires_at INTEGER, data TEXT);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO sessions SELECT lower(hex(randomblob(16))), i, i, printf('%0100d', i) FROM n;
CREATE INDEX by_expiry ON sessions (expires_at, session_id);",
        postgres: "
CREATE TABLE sessions (session_id text PRIMARY KEY, user_id bigint, expires_at timestamptz, data text);
INSERT INTO sessions SELECT md5(i::text), i, to_timestamp(i), lpad(i::text, 100, '0')
FROM generate_series(1, {rows}) i;
CREATE INDEX by_expiry ON sessions (expires_at, session_id);
VACUUM ANALYZE sessions;",
    };
    let site = Site::new(&case, server, "7d").await?;
    let plugin = super::idle::binary()?
        .ancestors()
        .nth(2)
        .context("no target directory")?
        .join("wasm32-wasip2/plugin/session_sweep.wasm");
    let into = site.dir.path().join("plugins.d");
    std::fs::create_dir(&into)?;
    std::fs::copy(&plugin, into.join("session_sweep.wasm"))
        .with_context(|| format!("{}: run `cargo plugins`", plugin.display()))?;
    let took = site.besom(&["run"])?;
    let left = number(&site, "SELECT count(*) FROM sessions").await?;
    ensure!(left == 0, "{left} sessions are left");
    let store = if server.is_some() { "PostgreSQL" } else { "SQLite" };
    Figures::of("sweep", format!("{store}, session-sweep, row by row"))
        .with("rows_per_s", f64::from(SINGLE) / took)
        .show();
    Ok(())
}

const SESSIONS: &str = r#"
[collections.sessions]
key = ["session_id"]
columns = { session_id = "text", expires_at = "timestamp" }
indexes = { by_expiry = ["expires_at"] }
[tasks.session-sweep]
plugin = "session_sweep.wasm"
schedule = "@every 30d"
grants.sessions = ["read", "delete"]
"#;

async fn number(site: &Site, sql: &str) -> Result<i64> {
    match &site.database {
        None => {
            let conn = Connection::open(site.dir.path().join("besom.db"))?;
            Ok(conn.query_row(sql, [], |row| row.get(0))?)
        }
        Some(database) => Ok(database.connect().await.query_one(sql, &[]).await?.get(0)),
    }
}
