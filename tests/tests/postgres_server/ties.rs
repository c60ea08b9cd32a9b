//! Retention by an index of one column: the key gives equal values their order, and no index has it.

use std::path::Path;
use std::process::Command;

use besom_tests::conformance::block_on;
use besom_tests::servers::postgres::{Disk, Server};
use serde_json::Value;

/// The plan of each statement is logged.
const SETTINGS: [&str; 4] = [
    "session_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "auto_explain.log_analyze=on",
    "jit=off",
];

/// Sessions of which 20,500 are old: 7,000 with each of two times, 6,000 with a third, and 500 with times of their own
/// between them. As many are not. What is deleted is recorded.
const SESSIONS: &str = "
CREATE TABLE sessions (id bigint PRIMARY KEY, seen timestamptz NOT NULL);
CREATE INDEX sessions_by_seen ON sessions (seen);
INSERT INTO sessions SELECT i * 7919 % 41011,
  CASE WHEN i <= 7000 THEN timestamptz '2020-01-01 08:00Z' WHEN i <= 14000 THEN '2020-01-02 08:00Z'
    WHEN i <= 20000 THEN '2020-01-03 08:00Z' WHEN i <= 20500 THEN timestamptz '2020-01-02 09:00Z' + i * interval '1 s'
    ELSE '2999-01-01 00:00Z' END
  FROM generate_series(1, 41000) i;
CREATE TABLE gone (id bigint, seen timestamptz);
CREATE FUNCTION gone() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN INSERT INTO gone VALUES (old.id, old.seen); RETURN NULL; END $$;
CREATE TRIGGER gone AFTER DELETE ON sessions FOR EACH ROW EXECUTE FUNCTION gone();
";

const OLD: i64 = 20_500;
const CHUNK: i64 = 1_000;

/// Every border of a chunk is among rows with the same value.
#[test]
fn rows_with_equal_values_are_swept_once_by_an_index_of_one_column() {
    let server: &'static Server = Box::leak(Box::new(Server::start(Disk::Ignored, &SETTINGS)));
    let database = server.empty();
    database.sql(SESSIONS);
    database.sql("VACUUM ANALYZE sessions");
    let directory = tempfile::tempdir().expect("a directory");
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
    let (url, cache) = (database.url(), cache.display().to_string());
    let config = format!(
        "[store]\nurl = {url:?}\n[runtime]\ncache = {cache:?}\n\
         [collections.sessions]\nkey = [\"id\"]\nindexes = {{ by_seen = [\"seen\"] }}\n\
         columns = {{ id = \"integer\", seen = \"timestamp\" }}\n\
         [tasks.old]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
         collections.rows = \"sessions\"\n\
         settings = {{ by = \"seen\", older_than = \"30d\", chunk = {CHUNK} }}\n"
    );
    std::fs::write(directory.path().join("besom.toml"), config).expect("written");
    let before = server.log().len();
    let out = Command::new(env!("CARGO_BIN_EXE_besom-under-test"))
        .args(["run", "--output", "json"])
        .current_dir(directory.path())
        .env_remove("BESOM_CONFIG")
        .output()
        .expect("the binary runs");
    let log = server.log().split_off(before);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let passed: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    let counts =
        ["rows", "committed", "skipped", "dead", "pending"].map(|key| passed[0][key].as_i64());
    let items = OLD / CHUNK + 1;
    assert_eq!(counts, [OLD, items, 0, 0, 0].map(Some), "{passed:#}");
    block_on(async {
        let product = database.connect().await;
        let sql = "SELECT count(*), count(DISTINCT id), count(DISTINCT seen), max(seen) < '2999-01-01' FROM gone";
        let gone = product.query_one(sql, &[]).await.expect("counted");
        let numbers = [gone.get::<_, i64>(0), gone.get(1), gone.get(2)];
        assert_eq!((numbers, gone.get::<_, bool>(3)), ([OLD, OLD, 503], true), "each old row once");
        let left = product
            .query_one("SELECT count(*), min(seen) = '2999-01-01 00:00Z' FROM sessions", &[]);
        let left = left.await.expect("counted");
        assert_eq!((left.get::<_, i64>(0), left.get::<_, bool>(1)), (OLD, true));
    });

    let (mut reads, mut faults) = (0, Vec::new());
    for explained in log.split("Query Text: ").skip(1) {
        if !explained.contains(" on sessions") {
            continue;
        }
        reads += u32::from(explained.contains("using sessions_by_seen on sessions"));
        // Rows with the same value are sorted by their keys. Of others no more than those of a chunk: the planner may
        // sort what is left at the end of the range.
        let sorts = explained.replace("Incremental Sort", "").contains("Sort  (cost=");
        let is_of_equal = explained
            .lines()
            .any(|line| line.contains("Index Cond: (") && line.contains("seen = "));
        let is_of_many = explained.lines().filter_map(actual_rows).any(|rows| rows > CHUNK);
        if (sorts && !is_of_equal && is_of_many) || explained.contains("Seq Scan on sessions") {
            faults.push(explained);
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(reads > 0, "no read by the index:\n{log}");
}

/// How many rows a step of a plan has returned.
fn actual_rows(line: &str) -> Option<i64> {
    let (_, actual) = line.split_once("(actual ")?;
    let (_, rows) = actual.split_once("rows=")?;
    rows.split([' ', '.']).next()?.parse().ok()
}
