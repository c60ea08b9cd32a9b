//! Retention by number: of each group the newest rows stay, also beside a product that deletes some of them.

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use besom_tests::conformance::block_on;
use besom_tests::servers::postgres::{Database, Server};
use serde_json::Value;

/// Versions of documents, many of the same second, some without a document or a time, or with one that is infinite.
const VERSIONS: &str = "
CREATE TABLE versions (tenant text NOT NULL, id bigint, document uuid, state text, at timestamptz, note text,
  PRIMARY KEY (tenant, id));
CREATE INDEX ON versions (tenant, document, at);
INSERT INTO versions SELECT CASE n % 3 WHEN 0 THEN 'acme' ELSE 'zeta' END, n,
  CASE n * 7919 % 31 WHEN 0 THEN NULL ELSE md5((n * 7919 % 31)::text)::uuid END,
  CASE n * 31 % 5 WHEN 0 THEN 'open' ELSE 'done' END,
  CASE n % 45 WHEN 0 THEN NULL WHEN 9 THEN 'infinity' WHEN 18 THEN '-infinity'
    ELSE timestamptz '2020-01-01 00:00Z' + n * 6151 % 97 * interval '0.5 s' END, md5(n::text)
FROM generate_series(1, 2000) n;
CREATE TABLE was AS SELECT * FROM versions;
CREATE TABLE archive (LIKE versions INCLUDING ALL)";

/// A pass of a task with these settings.
fn pass(database: &Database, directory: &Path, settings: &str, collections: &str) -> Command {
    let cache = Path::new(env!("CARGO_TARGET_TMPDIR")).join("plugin-cache");
    let (url, cache) = (database.url(), cache.display().to_string());
    let mapping = |name: &str| {
        format!(
            "[collections.{name}]\ntenant = \"tenant\"\nkey = [\"id\"]\n\
             columns = {{ id = \"integer\", document = \"uuid\", state = \"text\", at = \"timestamp\" }}\n\
             indexes = {{ by_document = [\"document\", \"at\"] }}\n"
        )
    };
    let config = format!(
        "[store]\nurl = {url:?}\n[runtime]\ncache = {cache:?}\n{}{}\
         [tasks.old]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
         collections = {collections}\nsettings = {{ by = \"at\", per = \"document\", {settings} }}\n",
        mapping("versions"),
        mapping("archive"),
    );
    std::fs::write(directory.join("besom.toml"), config).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_besom-under-test"));
    command.args(["run", "--output", "json"]).current_dir(directory).env_remove("BESOM_CONFIG");
    command
}

fn counts(ran: &Output) -> [Option<i64>; 4] {
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let passed: Value = serde_json::from_slice(&ran.stdout).expect("JSON");
    ["rows", "skipped", "dead", "pending"].map(|key| passed[0][key].as_i64())
}

#[test]
fn the_newest_rows_of_each_group_stay() {
    for (settings, collections, keep, meant) in [
        ("keep = 3, older_than = \"30d\"", "{ rows = \"versions\" }", 3, "true"),
        (
            "keep = 2, chunk = 3, action = \"archive\", where = \"state = 'done'\"",
            "{ rows = \"versions\", into = \"archive\" }",
            2,
            "state = 'done'",
        ),
        (
            "keep = 5, action = \"set\", set = \"state = 'old'\", where = \"state != 'old'\"",
            "{ rows = \"versions\" }",
            5,
            "true",
        ),
    ] {
        let database = Server::shared().empty();
        database.sql(VERSIONS);
        let directory = tempfile::tempdir().expect("a directory");
        let ran = pass(&database, directory.path(), settings, collections).output();
        let counts = counts(&ran.expect("the binary runs"));
        block_on(async {
            let product = database.connect().await;
            let sql = format!(
                "WITH beyond AS (SELECT tenant, id FROM (SELECT *, rank() OVER (PARTITION BY tenant, document ORDER BY at DESC)
                   FROM was WHERE at IS NOT NULL AND document IS NOT NULL AND {meant}) _
                   WHERE rank > {keep}),
                 taken AS (SELECT tenant, id FROM was w WHERE NOT EXISTS (SELECT FROM versions v
                   WHERE (v.tenant, v.id, v.state) = (w.tenant, w.id, w.state)))
                 SELECT (SELECT count(*) FROM beyond), (SELECT count(*) FROM taken),
                   (SELECT count(*) FROM (SELECT * FROM beyond INTERSECT SELECT * FROM taken) _),
                   (SELECT count(*) FROM (SELECT * FROM was INTERSECT SELECT * FROM archive) _)"
            );
            let row = product.query_one(&sql, &[]).await.expect("counted");
            let [beyond, taken, both, archived] = [0, 1, 2, 3].map(|at| row.get::<_, i64>(at));
            assert!(
                beyond > 100 && [taken, both] == [beyond; 2],
                "{settings}: {beyond} {taken} {both}"
            );
            assert_eq!(archived, if settings.contains("archive") { beyond } else { 0 });
            assert_eq!(counts, [beyond, 0, 0, 0].map(Some), "{settings}");
        });
    }
}

/// The commit counts the newer rows again: two of them are deleted after they were read, and the rows that are the
/// newest then stay.
#[test]
fn rows_that_become_the_newest_before_the_commit_stay() {
    let database = Server::shared().empty();
    database.sql(
        "CREATE TABLE versions (tenant text, id bigint, document uuid, state text, at timestamptz, PRIMARY KEY (tenant, id));
         CREATE INDEX ON versions (tenant, document, at); CREATE TABLE archive (LIKE versions INCLUDING ALL);
         INSERT INTO versions SELECT 'acme', n, '00000000-0000-0000-0000-000000000007', 'done',
           timestamptz '2020-01-01 00:00Z' + n * interval '1 s' FROM generate_series(1, 10) n",
    );
    let directory = tempfile::tempdir().expect("a directory");
    block_on(async {
        let product = database.connect().await;
        // Besom has read all ten rows when it waits for these two.
        product
            .batch_execute("BEGIN; DELETE FROM versions WHERE id IN (9, 10)")
            .await
            .expect("deleted");
        let pass = pass(&database, directory.path(), "keep = 3", "{ rows = \"versions\" }")
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let watch = database.connect().await;
        let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%versions%'";
        for tries in 0.. {
            assert!(tries < 600, "the commit does not wait");
            if watch.query_one(waits, &[]).await.expect("asked").get::<_, i64>(0) > 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        product.batch_execute("COMMIT").await.expect("committed");
        let counts = counts(&pass.wait_with_output().expect("it ends"));
        let left = "SELECT array_agg(id ORDER BY id) FROM versions";
        let left: Vec<i64> = product.query_one(left, &[]).await.expect("rows").get(0);
        assert_eq!((left, counts[0]), (vec![6, 7, 8], Some(5)));
    });
}
