//! SQLite enforces no types: a value that is none of its column's kind is taken by no condition, and a row with an odd
//! key keeps no others.

use crate::site::Site;

/// `at` and `n` of rows that are old by what they are compared with, whatever that is.
const VALUES: [&str; 22] = [
    "''",
    "'-'",
    "'0'",
    "0",
    "1.5",
    "x'00'",
    "' 2020-01-01 00:00:00'",
    "'2020-13-41 00:00:00'",
    "'0000-00-00 00:00:00'",
    "'2020-01-01T00:00:00Z'",
    "'2020-01-01'",
    "NULL",
    "'abc'",
    "5",
    "15",
    "10.5",
    "x'3135'",
    "'15'",
    "'2020-01-01 00:00:00'",
    "'2020-01-01 00:00:00.5'",
    "'2020-01-01 00:00:00.500000'",
    "'2099-01-01 00:00:00'",
];

fn config(settings: &str) -> String {
    format!(
        r#"
[collections.t]
key = ["id"]
columns = {{ id = "integer", at = {{ type = "timestamp", encoding = "datetime" }}, n = "integer" }}
indexes = {{ by_at = ["at"] }}
[tasks.old]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "t"
settings = {{ by = "at", older_than = "14d", {settings} }}
"#
    )
}

/// The places of the values in [`VALUES`] whose rows a run has deleted, each value once as `at` and once as `n`.
fn deleted(settings: &str) -> [Vec<usize>; 2] {
    let site = Site::new(&config(settings));
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, at, n); CREATE INDEX t_at ON t (at, id)",
    )
    .expect("a table");
    for (at, value) in VALUES.iter().enumerate() {
        let sql = format!(
            "INSERT INTO t VALUES ({at}, {value}, 15), (1000 + {at}, '2020-01-01 00:00:00', {value})"
        );
        db.execute_batch(&sql).expect("rows");
    }
    let (code, ran) = site.json(&["run"]);
    assert_eq!(code, 0, "{ran:#}");
    site.balanced();
    let is_gone = |id: usize| {
        let sql = "SELECT NOT EXISTS (SELECT 1 FROM t WHERE id = ?1)";
        db.query_row(sql, [id], |row| row.get::<_, bool>(0)).expect("an answer")
    };
    [0, 1_000].map(|from| (0..VALUES.len()).filter(|at| is_gone(from + at)).collect())
}

#[test]
fn a_value_of_another_kind_is_taken_by_no_condition() {
    let instants = vec![18, 20];
    for (condition, integers) in
        [("n > 10", vec![14]), ("n != 7", vec![3, 13, 14]), ("n not in (0, 5)", vec![14])]
    {
        for chunk in [1_000, 3, 0] {
            let [by_at, by_n] = deleted(&format!("where = \"{condition}\", chunk = {chunk}"));
            assert_eq!((by_at, by_n), (instants.clone(), integers.clone()), "{condition}, {chunk}");
        }
    }
}

/// Keys of a column of texts. Only of the first one a row by itself can be an item.
const KEYS: [&str; 8] = [
    "CAST(x'610062' AS TEXT)",
    "NULL",
    "NULL",
    "'k' || printf('%.1100c', 'x')",
    "'k' || printf('%.6000c', 'x')",
    "CAST(x'ff' AS TEXT)",
    "CAST(x'80ff' AS TEXT)",
    "x'00'",
];

const KEYED: &str = r#"
[collections.t]
key = ["token"]
columns = { token = "text", at = { type = "timestamp", encoding = "seconds" } }
indexes = { by_at = ["at"] }
[tasks.old]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "t"
settings = { by = "at", older_than = "14d", chunk = CHUNK }
"#;

/// Each odd row is at the end of a part: the others go with it, or without it, and come back.
#[test]
fn a_row_with_an_odd_key_keeps_no_others() {
    for (chunk, left, said) in
        [(2, 0, ""), (3, 0, ""), (1, 0, ""), (0, 7, "its key is empty: `token` holds NULL")]
    {
        let site = Site::new(&KEYED.replace("CHUNK", &chunk.to_string()));
        let db = site.database();
        db.execute_batch(
            "CREATE TABLE t (token TEXT PRIMARY KEY, at INTEGER); CREATE INDEX t_at ON t (at, token)",
        )
        .expect("a table");
        for (at, key) in KEYS.iter().enumerate() {
            let sql =
                format!("INSERT INTO t VALUES ('a{at}', {at}), ({key}, {at}), ({at}, 9000000000)");
            db.execute_batch(&sql).expect("rows");
        }
        let count = || -> i64 {
            let sql = "SELECT count(*) FROM t WHERE at < 100";
            db.query_row(sql, [], |row| row.get(0)).expect("an answer")
        };
        let (code, passed) = site.json(&["run"]);
        assert_eq!((code, &passed[0]["dead"]), (0, &0.into()), "{chunk}: {passed:#}");
        assert_eq!(
            (count(), &passed[0]["rows"]),
            (left, &(16 - left).into()),
            "{chunk}: {passed:#}"
        );
        let left_out = &passed[0]["left_out"];
        assert_eq!(left_out["rows"].as_i64().unwrap_or_default(), left, "{chunk}: {passed:#}");
        assert!(left_out["why"].as_str().unwrap_or_default().contains(said), "{passed:#}");
        // No item of one row can end at a text of 6,000 characters: the second run has those behind it.
        let runs: &[&str] = if chunk == 1 { &["2", "1"] } else { &["1"] };
        for run in runs {
            let (code, undone) = site.json(&["undo", run]);
            assert_eq!(code, 0, "{chunk}: {undone:#}");
        }
        assert_eq!(count(), 16, "{chunk}");
        site.balanced();
    }
}
