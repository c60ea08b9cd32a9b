//! `besom runs replay`: the plugin of a run decides again, with what it was given.

use serde_json::Value;

use crate::load::{SECOND_US, now_us};
use crate::reload::SWEEP;
use crate::site::Site;

const FILE: &str = "plugins.d/sweep.wasm";

/// A site in which a run has swept three sessions, and left one; the run.
fn swept() -> (Site, String) {
    let site = Site::new(SWEEP);
    site.create_tables();
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
         CREATE INDEX sessions_by_expiry ON sessions (expires_at, session_id);",
    )
    .expect("a table");
    let now = now_us() / SECOND_US;
    for (name, at) in [("a", now - 60), ("b", now - 50), ("c", now - 40), ("later", now + 9_000)] {
        db.execute("INSERT INTO sessions VALUES (?1, ?2)", rusqlite::params![name, at])
            .expect("a row");
    }
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    assert_eq!(site.json(&["run"]).0, 0);
    let left: u64 =
        db.query_row("SELECT count(*) FROM sessions", [], |row| row.get(0)).expect("a count");
    assert_eq!(left, 1);
    let (_, kept) = site.json(&["quarantine", "ls"]);
    (site, kept[0]["run"].to_string())
}

fn replay(site: &Site, args: &[&str]) -> (i32, Value) {
    let mut all = vec!["runs", "replay"];
    all.extend(args);
    site.json(&all)
}

#[test]
fn a_run_is_replayed_with_the_rows_that_it_has_found_and_commits_nothing() {
    let (site, run) = swept();
    let db = site.database();
    let counts = || -> (u64, u64) {
        let count = |sql| db.query_row(sql, [], |row| row.get(0)).expect("a count");
        (count("SELECT count(*) FROM besom_history"), count("SELECT count(*) FROM sessions"))
    };
    // The product has used a key again: the item is judged by the row that it has found.
    db.execute("INSERT INTO sessions VALUES ('b', 9e9)", []).expect("a row");
    let before = counts();
    let (code, report) = replay(&site, &[&run]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(
        (&report["same"], &report["different"], &report["not_replayed"]),
        (&3.into(), &0.into(), &0.into()),
        "{report:#}"
    );
    for item in report["items"].as_array().expect("items") {
        assert_eq!((&item["result"], &item["rows_kept"]), (&"same".into(), &1.into()), "{item:#}");
        let change = item["recorded"]["changes"][0].as_str().expect("a change");
        assert!(change.starts_with("delete sessions ("), "{item:#}");
    }
    assert_eq!(counts(), before, "nothing is committed");
    let (code, report) = replay(&site, &[&run, "b"]);
    assert_eq!((code, &report["same"]), (0, &1.into()), "{report:#}");
    let number = report["items"][0]["item"].as_str().and_then(|item| item.split_once('/'));
    let number = number.expect("RUN/#NUMBER").1.to_owned();
    let (code, report) = replay(&site, &[&run, &number]);
    assert_eq!((code, &report["items"][0]["key"]), (0, &"b".into()), "{report:#}");

    for (args, words) in
        [(["999", "b"], "there is no run 999"), ([&run, "none"], "has no such item")]
    {
        let (code, said) = site.said(&["runs", "replay", args[0], args[1]]);
        assert!(code == 2 && said.contains(words), "{code}: {said}");
    }
}

#[test]
fn another_decision_is_shown_beside_what_was_committed() {
    let (site, run) = swept();
    // As if the settings of the run had been others.
    let sql = "UPDATE besom_definition SET definition = replace(definition,
                 '{\"name\":\"keep\",\"value\":{\"Integer\":0}}',
                 '{\"name\":\"keep\",\"value\":{\"Integer\":45000}}')";
    assert_eq!(site.database().execute(sql, []).expect("changed"), 1);
    let (code, report) = replay(&site, &[&run]);
    assert_eq!(
        (code, &report["same"], &report["different"]),
        (1, &2.into(), &1.into()),
        "{report:#}"
    );
    let items = report["items"].as_array().expect("items");
    let item = items.iter().find(|item| item["result"] == "different").expect("one of them");
    assert_eq!(
        (&item["key"], &item["recorded"]["verdict"], &item["replayed"]["verdict"]),
        (&"c".into(), &"committed".into(), &"skip".into()),
        "{item:#}"
    );
    let out = site.besom(&["runs", "replay", &run, "c"]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{said}");
    for words in ["/c: different", "- committed", "- delete sessions (", "+ skip: "] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_run_of_another_file_and_what_is_kept_no_longer_are_not_replayed() {
    let (site, run) = swept();
    let whole = std::fs::read(site.path(FILE)).expect("the plugin");
    let mut other = whole.clone();
    // A custom section: its size, and a name of four letters.
    other.extend([0, 6, 4, b'n', b'o', b't', b'e', 1]);
    std::fs::write(site.path(FILE), other).expect("written");
    let (code, said) = site.said(&["runs", "replay", &run]);
    assert!(code == 1 && said.contains("was executed with another `sweep.wasm`"), "{code}: {said}");
    assert!(said.contains("to replay the run"), "{said}");
    std::fs::write(site.path(FILE), whole).expect("written");
    assert_eq!(replay(&site, &[&run]).0, 0);

    let db = site.database();
    let sql = "UPDATE besom_history SET undo = NULL";
    // With what other runs of the pass have kept.
    assert!(db.execute(sql, []).expect("forgotten") >= 3);
    let (code, report) = replay(&site, &[&run]);
    assert_eq!((code, &report["not_replayed"]), (1, &3.into()), "{report:#}");
    let why = report["items"][0]["why"].as_str().expect("why");
    assert!(why.contains("undo_retention"), "{why}");
}
