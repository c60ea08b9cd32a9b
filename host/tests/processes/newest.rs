//! Retention by number: of each group the newest rows stay, as `rank()` of the database numbers them.

use crate::site::Site;

/// Versions of documents, many of the same second. Every ninth has no time, a text or a fraction in its place, or no
/// document; one document's name is empty. `was` has all rows as they were.
const VERSIONS: &str = "
CREATE TABLE versions (tenant TEXT, id INTEGER, document TEXT, state TEXT, at, note TEXT, PRIMARY KEY (tenant, id));
CREATE INDEX versions_by_document ON versions (tenant, document, at);
CREATE INDEX versions_by_state ON versions (tenant, state, document, at);
CREATE INDEX versions_by_time ON versions (tenant, at);
CREATE TABLE numbers (n INTEGER PRIMARY KEY);
WITH RECURSIVE c (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 2000) INSERT INTO numbers SELECT n FROM c;
INSERT INTO versions SELECT CASE n % 3 WHEN 0 THEN 'acme' ELSE 'zeta' END, n,
  CASE n * 7919 % 31 WHEN 0 THEN NULL WHEN 1 THEN '' WHEN 2 THEN 'a/b' ELSE 'd' || (n * 7919 % 31) END,
  CASE n * 31 % 5 WHEN 0 THEN 'open' ELSE 'done' END,
  CASE n % 45 WHEN 0 THEN NULL WHEN 9 THEN 'text' WHEN 18 THEN 1.5 WHEN 27 THEN x'00'
    ELSE 1700000000 + n * 6151 % 97 END, hex(n)
  FROM numbers;
CREATE TABLE was AS SELECT * FROM versions";

const CONFIG: &str = r#"
[collections.versions]
tenant = "tenant"
key = ["id"]
columns = { id = "integer", document = "text", state = "text", at = { type = "timestamp", encoding = "seconds" } }
indexes = { by_document = ["document", "at"], by_state = ["state", "document", "at"], by_time = ["at"] }
[tasks.old]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "versions"
settings = { by = "at", SETTINGS }
"#;

#[test]
fn the_newest_rows_of_each_group_stay() {
    const EACH: &str = "tenant, document";
    for (settings, group, meant) in [
        ("keep = 3, per = \"document\"", EACH, "document IS NOT NULL"),
        ("keep = 1, per = \"document\", chunk = 2", EACH, "document IS NOT NULL"),
        ("keep = 200, per = \"document\"", EACH, "false"),
        ("keep = 40", "tenant", "true"),
        ("keep = 40, chunk = 7, index = \"by_time\"", "tenant", "true"),
        (
            "keep = 2, per = \"document\", where = \"state = 'done'\"",
            EACH,
            "document IS NOT NULL AND state = 'done'",
        ),
        (
            "keep = 2, per = \"document\", where = \"state in ('done', 'open') and id > 100\"",
            EACH,
            "document IS NOT NULL AND id > 100",
        ),
    ] {
        let site = Site::new(&CONFIG.replace("SETTINGS", settings));
        let db = site.database();
        db.execute_batch(VERSIONS).expect("versions");
        let keep: i64 =
            settings.split([' ', ',']).nth(2).and_then(|n| n.parse().ok()).expect("a number");
        let beyond = format!(
            "SELECT tenant, id FROM (SELECT tenant, id, rank() OVER (PARTITION BY {group} ORDER BY at DESC) AS place
               FROM was WHERE typeof(at) = 'integer' AND {meant}) WHERE place > {keep}"
        );
        let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("counted");
        let expected = count(&format!("SELECT count(*) FROM ({beyond})"));
        let (code, ran) = site.json(&["run"]);
        assert_eq!((code, ran[0]["rows"].as_i64()), (0, Some(expected)), "{settings}: {ran:#}");
        assert_eq!(
            (ran[0]["dead"].as_i64(), ran[0]["skipped"].as_i64()),
            (Some(0), Some(0)),
            "{ran:#}"
        );
        let gone = "SELECT tenant, id FROM was EXCEPT SELECT tenant, id FROM versions";
        let differ = format!(
            "SELECT count(*) FROM (SELECT * FROM ({gone}) EXCEPT {beyond}
               UNION ALL SELECT * FROM ({beyond}) EXCEPT {gone})"
        );
        assert_eq!(count(&differ), 0, "{settings}");
        site.balanced();
        let (code, again) = site.json(&["run"]);
        assert_eq!((code, again[0]["planned"].as_i64()), (0, Some(0)), "{settings}: {again:#}");
        if expected > 0 {
            assert_eq!(site.said(&["undo", "1"]).0, 0);
            let back = "SELECT count(*) FROM (SELECT * FROM was EXCEPT SELECT * FROM versions)";
            assert_eq!(
                (count(back), count("SELECT count(*) FROM versions")),
                (0, 2_000),
                "{settings}"
            );
        }
    }
}

/// More groups than a page has candidates have a value that is too long for a cursor. They stay and are counted, and the
/// others are swept.
#[test]
fn groups_with_long_values_do_not_hold_up_the_others() {
    let site = Site::new(&CONFIG.replace("SETTINGS", "keep = 1, per = \"document\""));
    let db = site.database();
    db.execute_batch(VERSIONS).expect("versions");
    db.execute_batch(
        "DELETE FROM versions;
         INSERT INTO versions SELECT 'acme', n, 'a' || (n / 2) || hex(zeroblob(600)), 'done', n, '' FROM numbers
           UNION ALL SELECT 'acme', 4000 + n, 'z' || (n % 20), 'done', n, '' FROM numbers WHERE n <= 60;
         INSERT INTO versions SELECT 'acme', 6000 + n, 'b' || n || hex(zeroblob(600)), 'done', n, '' FROM numbers
           WHERE n <= 500",
    )
    .expect("long values");
    let (code, ran) = site.json(&["run"]);
    assert_eq!((code, ran[0]["rows"].as_i64()), (0, Some(40)), "{ran:#}");
    let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("counted");
    assert_eq!(count("SELECT count(*) FROM versions WHERE length(document) > 1000"), 2_500);
    assert_eq!(count("SELECT count(*) FROM versions WHERE document LIKE 'z%'"), 20);
    assert_eq!(count("SELECT min(at) FROM versions WHERE document LIKE 'z%'"), 41);
    let (_, said) = site.said(&["run"]);
    assert!(said.contains("a value of `document` is too long or of another kind"), "{said}");
}
