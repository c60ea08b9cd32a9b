//! What it costs to keep removed rows, how large they are, and how fast they come back, on both
//! stores: `besom run` without and with `keep_removed`, then `besom undo`, each as a process of its
//! own. Afterwards every value has to be what it was.

use std::hash::{DefaultHasher, Hasher as _};
use std::pin::pin;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use besom_tests::servers::postgres::{Database, Disk, Server, Setup};
use futures::TryStreamExt as _;
use rusqlite::Connection;
use rusqlite::types::ValueRef;
use serde_json::Value;

use super::report::Figures;

/// What is removed.
pub struct Case {
    pub name: &'static str,
    pub rows: u32,
    pub config: &'static str,
    pub table: &'static str,
    pub sqlite: &'static str,
    pub postgres: &'static str,
}

const RETENTION: &str = r#"
[collections.things]
key = ["id"]
columns = { id = "integer", at = "timestamp" }
indexes = { by_at = ["at"] }
[tasks.old-things]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "things"
settings = { by = "at", older_than = "14d" }
"#;

/// Tables to which `{rows}` rows are added.
pub const CASES: [Case; 3] = [
    Case {
        name: "chunks, rows of 190 bytes",
        rows: 1_000_000,
        config: RETENTION,
        table: "things",
        sqlite: "
CREATE TABLE things (id INTEGER PRIMARY KEY, at INTEGER, token TEXT, data TEXT, note BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO things
SELECT i, i, printf('%040d', i), printf('%0100d', i * 7919), randomblob(8) FROM n;
CREATE INDEX by_at ON things (at);",
        postgres: "
CREATE TABLE things (id bigint PRIMARY KEY, at timestamptz, token text, data text, note bytea);
INSERT INTO things
SELECT i, to_timestamp(i), lpad(i::text, 40, '0'), lpad((i * 7919)::text, 100, '0'),
  int8send(i * 7919)
FROM generate_series(1::bigint, {rows}) i;
CREATE INDEX by_at ON things (at);
VACUUM ANALYZE things;",
    },
    Case {
        name: "chunks, every type",
        rows: 1_000_000,
        config: RETENTION,
        table: "things",
        sqlite: "
CREATE TABLE things (id INTEGER PRIMARY KEY, at INTEGER, token TEXT UNIQUE, price REAL,
  amount NUMERIC, data BLOB, anything, flag BOOLEAN, day DATE, absent TEXT,
  twice INTEGER GENERATED ALWAYS AS (id * 2) VIRTUAL,
  thrice INTEGER GENERATED ALWAYS AS (id * 3) STORED);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO things
SELECT i, i, 'token ' || i, i / 7.0, i / 4.0, randomblob(i % 40),
  CASE i % 5 WHEN 0 THEN i WHEN 1 THEN i / 3.0 WHEN 2 THEN 'text ' || i WHEN 3 THEN x'00ff' END,
  i % 2, date(i, 'unixepoch'), NULL
FROM n;
CREATE INDEX by_at ON things (at);",
        postgres: "
CREATE TYPE mood AS ENUM ('well', 'it''s so');
CREATE TYPE pair AS (a int, b text);
CREATE DOMAIN positive AS int CHECK (value > 0);
CREATE TABLE things (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, at timestamptz,
  small smallint, price double precision, single real, amount numeric, flag boolean,
  token varchar(40), code char(8), data bytea, numbers int[], texts text[], mood mood,
  pair pair, number positive, span tstzrange, spans int4multirange, doc json, docb jsonb,
  who uuid, day date, clock time, zoned timetz, lasts interval, host inet, net cidr,
  card macaddr, bits bit(3), more varbit(9), money money, place point, words tsvector,
  twice bigint GENERATED ALWAYS AS (id * 2) STORED);
INSERT INTO things OVERRIDING SYSTEM VALUE
SELECT i, to_timestamp(i), i % 1000, i / 7.0, i / 3.0,
  CASE i % 3 WHEN 0 THEN 'NaN' WHEN 1 THEN 'Infinity' ELSE i / 11.0 END, i % 2 = 0,
  'token ' || i, 'c' || i % 1000, int8send(i), ARRAY[i, NULL, 3], ARRAY['a', 'b,\"c', NULL],
  CASE i % 2 WHEN 0 THEN 'well' ELSE 'it''s so' END::mood, ROW(i, 'x, ' || i)::pair, i,
  tstzrange(to_timestamp(i), NULL), '{[1,3), [7,9)}', ('{\"b\" : 1, \"a\": ' || i || '}')::json,
  ('{\"b\" : 1, \"a\": ' || i || '}')::jsonb, md5(i::text)::uuid,
  CASE i % 2 WHEN 0 THEN 'infinity' ELSE date '2000-01-01' + i % 9999 END, '12:34:56.789',
  '12:34:56+02', make_interval(months => i % 30, secs => i), '10.0.0.1/24', '10.0.0.0/8',
  '08:00:2b:01:02:03', B'101', B'10101', 12.34, point(i, -i), to_tsvector('simple', 'w' || i)
FROM generate_series(1, {rows}) i;
CREATE INDEX by_at ON things (at);
VACUUM ANALYZE things;",
    },
    Case {
        name: "rows one by one, set",
        rows: 100_000,
        config: "
[tasks.share-expiry]
plugin = \"share-expiry\"
schedule = \"@every 30d\"
",
        table: "shares",
        sqlite: "
CREATE TABLE projects (project_id TEXT PRIMARY KEY) STRICT;
INSERT INTO projects VALUES ('bench');
CREATE TABLE shares (project_id TEXT NOT NULL, share_id TEXT NOT NULL, file_id TEXT NOT NULL,
  start_date INTEGER NOT NULL, limit_seconds INTEGER, unshared_at INTEGER,
  PRIMARY KEY (project_id, share_id)) STRICT, WITHOUT ROWID;
CREATE INDEX shares_by_unshared_start ON shares (project_id, unshared_at, start_date);
CREATE INDEX shares_by_unshared_limit
  ON shares (project_id, unshared_at, limit_seconds, start_date);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
INSERT INTO shares SELECT 'bench', printf('share-%07d', i), 'file', i, NULL, NULL FROM n;",
        postgres: "
CREATE TABLE projects (project_id text PRIMARY KEY);
INSERT INTO projects VALUES ('bench');
CREATE TABLE shares (project_id text NOT NULL, share_id text NOT NULL, file_id text NOT NULL,
  start_date timestamptz NOT NULL, limit_seconds bigint, unshared_at timestamptz,
  PRIMARY KEY (project_id, share_id));
CREATE INDEX shares_by_unshared_start
  ON shares (project_id, unshared_at, start_date, share_id);
CREATE INDEX shares_by_unshared_limit
  ON shares (project_id, unshared_at, limit_seconds, start_date, share_id);
INSERT INTO shares
SELECT 'bench', 'share-' || lpad(i::text, 7, '0'), 'file', to_timestamp(i), NULL, NULL
FROM generate_series(1, {rows}) i;
VACUUM ANALYZE shares;",
    },
];

/// A server of PostgreSQL that writes to the disk as one in production does.
pub fn server() -> &'static Server {
    let settings = vec!["shared_buffers=1GB".to_owned(), "max_wal_size=8GB".to_owned()];
    let setup = Setup { settings, tcp: true, ..Setup::new(Disk::Synced) };
    Box::leak(Box::new(Server::with(&setup)))
}

/// Each case on each store.
pub async fn run() -> Result<()> {
    let server = server();
    for case in &CASES {
        one(case, None).await?;
        one(case, Some(server)).await?;
    }
    Ok(())
}

async fn one(case: &Case, server: Option<&'static Server>) -> Result<()> {
    let unkept = Site::new(case, server, "0s").await?;
    let unkept = unkept.besom(&["run"])?;
    let site = Site::new(case, server, "7d").await?;
    let (before, bytes) = (site.dump(case.table).await?, site.bytes(case.table).await?);
    let removed = site.besom(&["run"])?;
    ensure!(site.dump(case.table).await? != before, "{}: nothing was removed", case.name);
    let (_, status) = site.said(&["status", "--output", "json"])?;
    let status: Value = serde_json::from_slice(&status).context("besom status")?;
    let kept = status["tasks"][0]["undo_bytes"].as_f64().context("the bytes that are kept")?;
    let undone = site.besom(&["undo", "1", "--reason", "benchmark"])?;
    ensure!(site.dump(case.table).await? == before, "{}: the rows differ", case.name);
    let rows = f64::from(case.rows);
    let store = if server.is_some() { "PostgreSQL" } else { "SQLite" };
    Figures::of("undo", format!("{store}, {}", case.name))
        .with("removed_rows_per_s", rows / removed)
        .with("not_kept_rows_per_s", rows / unkept)
        .with("keeping_us_per_row", (removed - unkept) * 1e6 / rows)
        .with("undone_rows_per_s", rows / undone)
        .with("ratio", removed / undone)
        .with("kept_bytes_per_row", kept / rows)
        .with("kept_bytes_per_byte", kept / bytes)
        .show();
    Ok(())
}

/// A configuration, and the database with the rows.
pub struct Site {
    pub dir: tempfile::TempDir,
    pub database: Option<Database>,
}

impl Site {
    pub async fn new(case: &Case, server: Option<&'static Server>, keep: &str) -> Result<Site> {
        let site = Site { dir: tempfile::tempdir()?, database: server.map(Server::empty) };
        let mut config = "[host]\ndefault_mode = \"live\"\n".to_owned();
        let script = match &site.database {
            None => case.sqlite,
            Some(database) => {
                let url = database.url_of("postgres");
                config.push_str(&format!("[store]\nurl = \"{url}\"\n"));
                case.postgres
            }
        };
        config.push_str(&format!("{}keep_removed = \"{keep}\"\n", case.config));
        std::fs::write(site.config(), config)?;
        let script = script.replace("{rows}", &case.rows.to_string());
        match &site.database {
            None => {
                let sql = Connection::open(site.dir.path().join("besom.db"))?;
                sql.pragma_update(None, "journal_mode", "WAL")?;
                sql.execute_batch(&script)?;
            }
            // Each by itself, because VACUUM is refused in a transaction.
            Some(database) => {
                let client = database.connect().await;
                for statement in script.split_inclusive(";\n") {
                    client.batch_execute(statement).await.with_context(|| statement.to_owned())?;
                }
            }
        }
        Ok(site)
    }

    pub fn config(&self) -> std::path::PathBuf {
        self.dir.path().join("besom.toml")
    }

    /// Seconds that a verb takes, from start to exit.
    pub fn besom(&self, words: &[&str]) -> Result<f64> {
        Ok(self.said(words)?.0)
    }

    /// The same, and what it says on standard output.
    fn said(&self, words: &[&str]) -> Result<(f64, Vec<u8>)> {
        let began = Instant::now();
        let output = Command::new(super::idle::binary()?)
            .args(words)
            .arg("--config")
            .arg(self.config())
            .env("XDG_CACHE_HOME", self.dir.path())
            .output()?;
        let took = began.elapsed().as_secs_f64();
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "besom {words:?}: {}\n{said}", output.status);
        Ok((took, output.stdout))
    }

    /// A digest of every value of a table, in the order of its key.
    async fn dump(&self, table: &str) -> Result<u64> {
        let mut digest = DefaultHasher::new();
        let Some(database) = &self.database else {
            let sql = Connection::open(self.dir.path().join("besom.db"))?;
            let mut all = sql.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))?;
            let columns = all.column_count();
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                for column in 0..columns {
                    hash(&mut digest, row.get_ref(column)?);
                }
            }
            return Ok(digest.finish());
        };
        let client = database.connect().await;
        let copy = format!("COPY (SELECT * FROM {table} ORDER BY 1, 2) TO STDOUT");
        let mut lines = pin!(client.copy_out(&copy).await?);
        while let Some(bytes) = lines.try_next().await? {
            digest.write(&bytes);
        }
        Ok(digest.finish())
    }

    /// The bytes of the rows of a table as the database stores them, without indexes.
    async fn bytes(&self, table: &str) -> Result<f64> {
        let Some(database) = &self.database else {
            let sql = Connection::open(self.dir.path().join("besom.db"))?;
            let payload = "SELECT sum(payload) FROM dbstat WHERE name = ?1 AND pagetype = 'leaf'";
            return Ok(sql.query_row(payload, [table], |row| row.get::<_, i64>(0))? as f64);
        };
        let sum = format!("SELECT sum(pg_column_size(t.*))::int8 FROM {table} t");
        Ok(database.connect().await.query_one(&sum, &[]).await?.get::<_, i64>(0) as f64)
    }
}

fn hash(digest: &mut DefaultHasher, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => digest.write_u8(0),
        ValueRef::Integer(number) => {
            digest.write_u8(1);
            digest.write_i64(number);
        }
        ValueRef::Real(number) => {
            digest.write_u8(2);
            digest.write_u64(number.to_bits());
        }
        ValueRef::Text(bytes) => {
            digest.write_u8(3);
            digest.write(bytes);
        }
        ValueRef::Blob(bytes) => {
            digest.write_u8(4);
            digest.write(bytes);
        }
    }
}
