//! Rows that a foreign key would delete with those of a task: refused, kept, or accepted as lost.

use rusqlite::Connection;
use serde_json::Value;

use crate::reload::shares_every;
use crate::site::Site;

fn config(collection: &str, settings: &str) -> String {
    format!(
        r#"
[collections.t]
key = ["id"]
columns = {{ id = "integer", at = {{ type = "timestamp", encoding = "seconds" }} }}
indexes = {{ by_at = ["at"] }}
{collection}
[tasks.old]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "t"
settings = {{ by = "at", older_than = "14d"{settings} }}
"#
    )
}

const CHILDREN: &str = r#"
[collections.children]
key = ["id"]
columns = { id = "integer", parent = "integer" }
indexes = { by_parent = ["parent"] }
anchor = { collection = "t", columns = ["parent"] }
"#;

/// Rows 1 to 3 are old; 2 refers to 1, 3 to 2, and 5, which is not old, to itself.
fn create(db: &Connection) {
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER, p INTEGER REFERENCES t (id) ON DELETE CASCADE);
         CREATE INDEX t_at ON t (at, id);
         INSERT INTO t VALUES (1, 10, NULL), (2, 20, 1), (3, 30, 2), (4, 9000000000, NULL), (5, 9000000000, 5);",
    )
    .expect("a table");
}

/// A table and another one whose rows go with its rows.
fn create_pair(db: &Connection) {
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER);
         CREATE INDEX t_at ON t (at, id);
         CREATE TABLE children (id INTEGER PRIMARY KEY, parent INTEGER REFERENCES t (id) ON DELETE CASCADE);
         CREATE INDEX children_parent ON children (parent, id);
         INSERT INTO t VALUES (1, 10), (2, 9000000000);
         INSERT INTO children VALUES (11, 1), (12, 1), (13, 2);",
    )
    .expect("two tables");
}

fn ids(db: &Connection, table: &str) -> String {
    let sql = format!(
        "SELECT coalesce(group_concat(id, ' '), '') FROM (SELECT id FROM {table} ORDER BY id)"
    );
    db.query_row(&sql, [], |row| row.get(0)).expect("an answer")
}

#[test]
fn a_run_that_would_lose_rows_by_a_foreign_key_is_refused() {
    let site = Site::new(&config("", ""));
    let db = site.database();
    create_pair(&db);
    for args in [&["run"][..], &["run", "--dry-run"], &["check", "--store"], &["serve"]] {
        let (code, said) = site.said(args);
        assert_eq!(code, 78, "{args:?}\n{said}");
        assert!(said.contains("a foreign key also deletes rows of children"), "{said}");
        assert!(said.contains("accept_cascades = true"), "{said}");
    }
    assert_eq!((ids(&db, "t"), ids(&db, "children")), ("1 2".into(), "11 12 13".into()));

    site.configure(&config(&format!("dependants = [\"children\"]\n{CHILDREN}"), ""));
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!((ids(&db, "t"), ids(&db, "children")), ("2".into(), "13".into()));
    let (code, undone) = site.json(&["undo", "1"]);
    assert_eq!(code, 0, "{undone:#}");
    assert_eq!((ids(&db, "t"), ids(&db, "children")), ("1 2".into(), "11 12 13".into()));
    site.balanced();
}

#[test]
fn a_host_refuses_a_changed_file_by_which_it_would_lose_rows() {
    let site = Site::new(&shares_every("@every 1h"));
    site.create_tables();
    let db = site.database();
    create_pair(&db);
    let mut host = site.serve();
    host.leads();
    site.configure(&(shares_every("@every 2h") + &config("", "")));
    host.says("the changed configuration was refused");
    host.says("a foreign key also deletes rows of children");
    assert_eq!(host.lines(&[" reloaded"]), [""; 0]);
    site.configure(&(shares_every("@every 2h") + &config("accept_cascades = true", "")));
    host.says(" reloaded");
    host.stop();
}

/// SQLite counts and returns no row that a foreign key deletes before its turn.
#[test]
fn rows_that_refer_to_each_other_are_counted_and_kept() {
    for settings in ["", ", chunk = 2", ", chunk = 0"] {
        let site = Site::new(&config("", settings));
        let db = site.database();
        create(&db);
        let (code, said) = site.said(&["run"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains("rows of t:") && said.contains("its own dependant"), "{said}");
        site.configure(&config("accept_cascades = true", settings));
        let (code, said) = site.said(&["run"]);
        assert_eq!(code, 0, "{said}");
        assert_eq!(ids(&db, "t"), "4 5");
        let (_, kept) = site.json(&["quarantine", "ls"]);
        let rows = kept.as_array().expect("runs").iter().map(|run| run["rows"].as_u64());
        let kept: u64 = rows.map(|rows| rows.expect("a number")).sum();
        // With smaller items, the first one takes rows of a later one with it, which is what was accepted.
        let most: u64 = if settings.is_empty() { 3 } else { 1 };
        assert!((most..=3).contains(&kept), "{settings}: {kept}");
        let (code, undone) = site.json(&["undo", "1"]);
        assert_eq!(code, 0, "{undone:#}");
        let back = ids(&db, "t").split(' ').count() as u64;
        assert_eq!(back, kept + 2, "{settings}: {}", ids(&db, "t"));
        site.balanced();
    }
}

/// Each run tries them again, because what refers to them may be gone.
#[test]
fn rows_that_a_foreign_key_keeps_are_no_dead_letters_and_go_once_nothing_refers_to_them() {
    let site = Site::new(&config("", ""));
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER);
         CREATE INDEX t_at ON t (at, id);
         CREATE TABLE uses (id INTEGER PRIMARY KEY, t INTEGER REFERENCES t (id));
         CREATE INDEX uses_t ON uses (t);
         INSERT INTO t VALUES (1, 10), (2, 20), (3, 30);
         INSERT INTO uses VALUES (1, 1), (2, 2);",
    )
    .expect("two tables");
    for (planned, rows, left) in [(2, 1, "1 2"), (1, 0, "1 2")] {
        let (code, passed) = site.json(&["run"]);
        assert_eq!(code, 0, "{passed:#}");
        let counts = ["planned", "committed", "dead", "rows"].map(|key| passed[0][key].as_u64());
        assert_eq!(counts, [planned, planned, 0, rows].map(Some), "{passed:#}");
        let why = passed[0]["refusal"].as_str().expect("why");
        assert!(why.starts_with("2 rows could not be changed"), "{why}");
        assert!(why.to_lowercase().contains("foreign key"), "{why}");
        assert_eq!(ids(&db, "t"), left);
    }
    let (_, kept) = site.json(&["quarantine", "ls"]);
    assert_eq!(kept[0]["rows"], 1, "nothing is kept of an item that has changed nothing: {kept:#}");
    db.execute_batch("DELETE FROM uses WHERE t = 1").expect("a deletion");
    let (code, passed) = site.json(&["run"]);
    assert_eq!((code, &passed[0]["rows"]), (0, &Value::from(1)), "{passed:#}");
    assert_eq!(ids(&db, "t"), "2");
    assert_eq!(site.json(&["dead", "ls"]).1, serde_json::json!([]));
    site.balanced();
}

/// So are those to which rows of their own table refer: a tree goes once nothing young is below it.
#[test]
fn rows_that_younger_rows_of_their_table_refer_to_wait_for_them() {
    for (rule, chunk) in [("", 500), ("ON DELETE RESTRICT", 2), ("", 1)] {
        let site = Site::new(&config("", &format!(", chunk = {chunk}")));
        let db = site.database();
        db.execute_batch(&format!(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER, p INTEGER REFERENCES t (id) {rule});
             CREATE INDEX t_at ON t (at, id);
             INSERT INTO t VALUES (1, 10, NULL), (2, 20, 1), (3, 9000000000, 2), (4, 30, 1), (5, 40, 5), (6, 50, NULL);"
        ))
        .expect("a table");
        for left in ["1 2 3", "1 2 3"] {
            let (code, passed) = site.json(&["run"]);
            assert_eq!((code, &passed[0]["dead"]), (0, &0.into()), "{rule} {chunk}: {passed:#}");
            let why = passed[0]["refusal"].as_str().expect("why").to_lowercase();
            assert!(why.contains("foreign key"), "{why}");
            assert_eq!(ids(&db, "t"), left, "{rule} {chunk}");
        }
        db.execute_batch("DELETE FROM t WHERE id = 3").expect("a deletion");
        // The rows above are tried before those below them, if they are in items of their own.
        for _ in 0..2 {
            let (code, passed) = site.json(&["run"]);
            assert_eq!((code, &passed[0]["dead"]), (0, &0.into()), "{rule} {chunk}: {passed:#}");
        }
        assert_eq!(ids(&db, "t"), "", "{rule} {chunk}");
        assert_eq!(site.json(&["dead", "ls"]).1, serde_json::json!([]));
        site.balanced();
    }
}

#[test]
fn a_table_that_differs_from_its_mapping_keeps_no_other_rows_away() {
    let other =
        "[collections.other]\nkey = [\"id\"]\ncolumns = { id = \"integer\", gone = \"text\" }\n";
    let site = Site::new(&config(other, ""));
    let db = site.database();
    create_pair(&db);
    db.execute_batch("DROP TABLE children; CREATE TABLE other (id INTEGER PRIMARY KEY, gone TEXT)")
        .expect("other tables");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    db.execute_batch("ALTER TABLE other DROP COLUMN gone").expect("a migration");
    // No task uses it.
    let (code, said) = site.said(&["run"]);
    assert!(code == 0 && said.contains("has no column \"gone\""), "{code}: {said}");
    db.execute_batch("DROP INDEX t_at").expect("a migration");
    let (code, said) = site.said(&["run"]);
    assert!(code == 78 && said.contains("CREATE INDEX"), "{code}: {said}");
    let (code, undone) = site.json(&["undo", "1"]);
    assert_eq!((code, &undone["rows"]), (0, &Value::from(1)), "{undone:#}");
    assert_eq!(ids(&db, "t"), "1 2");
}

/// Rows that are changed between the plan and the commit stay, and are counted by run and by item.
#[test]
fn rows_that_stay_are_counted() {
    let plain = config("", ", chunk = 10")
        .replace("collections.rows", "mode = \"approve\"\ncollections.rows");
    let site = Site::new(&plain);
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER);
         CREATE INDEX t_at ON t (at, id);
         WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 25)
         INSERT INTO t SELECT id, id FROM n;",
    )
    .expect("a table");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    // Four of the first ten rows, and all of the last five.
    db.execute("UPDATE t SET at = 9000000000 WHERE id IN (2, 3, 5, 7) OR id > 20", [])
        .expect("set");
    assert_eq!(site.said(&["review", "approve", "1"]).0, 0);
    let passed = site.besom(&["run", "--output", "json"]);
    let said = String::from_utf8_lossy(&passed.stderr);
    let counted = "rows stayed, changed since, locked by others, outside the range by now, or kept by a trigger or a policy: \
                   9 of 25 planned rows in run 1 (`besom runs show 1`)";
    assert!(said.contains(counted), "{said}");
    let passed: Value = serde_json::from_slice(&passed.stdout).expect("JSON");
    let stayed = serde_json::json!([{ "run": 1, "planned_rows": 25, "stayed": 9 }]);
    assert_eq!((&passed[0]["stayed"], &passed[0]["rows"]), (&stayed, &16.into()), "{passed:#}");
    for limit in ["1", "50"] {
        let (_, shown) = site.json(&["runs", "show", "1", "--limit", limit]);
        let run = ["planned_rows", "stayed"].map(|key| shown["run"][key].as_u64());
        assert_eq!(run, [Some(25), Some(9)], "{shown:#}");
    }
    let (_, shown) = site.json(&["runs", "show", "1"]);
    let items = shown["items"].as_array().expect("items").iter();
    let mut items: Vec<_> = items
        .map(|item| ["rows", "stayed"].map(|key| item[key].as_u64().expect("a number")))
        .collect();
    items.sort_unstable();
    assert_eq!(items, [[0, 5], [6, 4], [10, 0]], "{shown:#}");
    let shown = site.besom(&["runs", "show", "1"]).stdout;
    let shown = String::from_utf8_lossy(&shown);
    let stayed = "9 of 25: changed since, locked by others, outside the range by now, or kept by a trigger or a policy";
    assert!(shown.contains(stayed) && shown.contains(" STAYED "), "{shown}");
    site.balanced();
}

/// Rows that a trigger refuses are named, in the history and in the dead letter, which later passes tell of.
#[test]
fn refused_rows_are_named_and_their_dead_letter_is_told() {
    let site = Site::new(&config("", ""));
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at INTEGER);
         CREATE INDEX t_at ON t (at, id);
         WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < 50)
         INSERT INTO t SELECT id, id FROM n;
         CREATE TRIGGER refuses BEFORE DELETE ON t BEGIN
           SELECT CASE WHEN old.id IN (3, 9) THEN raise(ABORT, 'under audit')
                       WHEN old.id = 7 THEN raise(ABORT, 'paid in parts') END;
         END;",
    )
    .expect("a table");
    let why = "3 rows could not be changed: (3), (9): under audit; (7): paid in parts";
    let (code, passed) = site.json(&["run"]);
    assert_eq!(
        (code, &passed[0]["rows"], &passed[0]["dead"]),
        (1, &47.into(), &1.into()),
        "{passed:#}"
    );
    assert_eq!(passed[0]["refusal"], why);
    assert_eq!(passed[0]["stayed"][0]["stayed"], 3);
    assert_eq!(ids(&db, "t"), "3 7 9");
    let (_, letters) = site.json(&["dead", "ls"]);
    let letter = letters[0]["id"].to_string();
    for args in [&["dead", "ls"][..], &["dead", "show", &letter]] {
        let out = site.besom(args).stdout;
        let out = String::from_utf8_lossy(&out);
        assert!(out.contains(why), "{args:?}: {out}");
    }
    // A later pass adds none.
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("1 candidate of old not planned: 1 open dead letter"), "{said}");
    site.balanced();
}
