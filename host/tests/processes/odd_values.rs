//! SQLite enforces no types: a value that is none of its column's kind is taken by no condition.

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
