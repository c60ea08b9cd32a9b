//! Undo of compactions: the log of a document comes back as a whole or not at all.

use rusqlite::Connection;
use serde_json::Value;

use crate::load::append;
use crate::pass::{document, entry};
use crate::site::Site;

const CONFIG: &str = r#"
[tasks.compaction]
plugin = "compaction"
schedule = "@every 1h"
[tasks.compaction.settings]
min_changes = 3
"#;

const RESET: &str = r#"
mode_yjs = "reset"
deleted_content = "collect"
"#;

/// Two documents that were compacted, and how they were before.
fn compacted(settings: &str) -> (Site, Connection, [Vec<String>; 2]) {
    let site = Site::new(&format!("{CONFIG}{settings}"));
    site.create_tables();
    let mut db = site.database();
    document(&mut db, "one");
    document(&mut db, "two");
    let before = ["one", "two"].map(|name| log(&db, name));
    let (code, passed) = site.json(&["run"]);
    assert_eq!(code, 0, "{passed:#}");
    for name in ["one", "two"] {
        assert_eq!(log(&db, name).len(), 2, "a document and a change");
    }
    (site, db, before)
}

/// The document and its changes, each as a line.
fn log(db: &Connection, name: &str) -> Vec<String> {
    let sql = "SELECT 'document ' || epoch || ' ' || coalesce(compacted_seq, 'none') || ' ' ||
                      coalesce(compacted_at, 'never'), 0 AS seq
                 FROM documents WHERE doc_id = ?1
               UNION ALL
               SELECT server_seq || ' ' || actor_id || ' ' || client_seq || ' ' || lamport || ' ' ||
                      kind || ' ' || hex(payload), server_seq FROM changes WHERE doc_id = ?1
               ORDER BY seq";
    let mut statement = db.prepare(sql).expect("a query");
    let rows = statement.query_map([name], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

fn run_of(site: &Site) -> String {
    site.json(&["quarantine", "ls"]).1[0]["run"].to_string()
}

#[test]
fn a_log_comes_back_as_a_whole_below_what_was_appended_since() {
    let (site, mut db, [one, two]) = compacted("");
    append(&mut db, &("first".to_owned(), "one".to_owned()), "author", "edit", &entry(5));
    let appended = log(&db, "one").pop().expect("a change");
    let with_appended = [&one[..], &[appended.clone()]].concat();
    db.execute("UPDATE changes SET lamport = lamport + 1 WHERE doc_id = 'two'", [])
        .expect("the product has changed the row");
    let changed = log(&db, "two");
    let run = run_of(&site);

    // Rows of it are not forced either.
    let keys = site.path("keys");
    std::fs::write(&keys, "changes (\"two\", 4)\n").expect("a file");
    let keys = keys.to_str().expect("a path");
    for force in [&["--force-keys", keys][..], &[]] {
        let (code, undone) =
            site.json(&[&["undo", &run, "--reason", "a test"][..], force].concat());
        assert_eq!(code, 1, "{undone:#}");
        let stay = undone["stay"].as_array().expect("a list");
        let why =
            |row: &&Value| row["why"].as_str().is_some_and(|why| why.contains("changed since"));
        // Four changes, the one that replaced them, and the document.
        assert_eq!((stay.len(), stay.iter().filter(why).count()), (6, 1), "{undone:#}");
        assert_eq!((log(&db, "one"), log(&db, "two")), (with_appended.clone(), changed.clone()));
    }
    // Nor are they chosen.
    let (code, chosen) = site.json(&["undo", &run, "--key", "changes (\"two\", 4)"]);
    let why = "is undone as a whole or not at all: rows of it cannot be chosen";
    assert!(code == 1 && chosen["skipped"].to_string().contains(why), "{code}: {chosen:#}");
    assert_eq!((&chosen["rows"], log(&db, "two")), (&0.into(), changed));
    let (code, verified) = site.json(&["doc", "verify", "first/one"]);
    assert_eq!((code, &verified["gone"]), (0, &1.into()), "{verified:#}");
    assert!(verified.to_string().contains("it was undone"), "{verified:#}");
    let (_, shown) = site.json(&["doc", "show", "first/one"]);
    assert_eq!((&shown["state"], &shown["last_compaction"]), (&"untouched".into(), &Value::Null));

    // It is not compacted again while it is the same, and what an undo has done is undone as a whole.
    db.execute("UPDATE changes SET lamport = lamport - 1 WHERE doc_id = 'two'", []).expect("back");
    let (code, undone) = site.json(&["undo", &run, "--reason", "a test"]);
    assert_eq!((code, &undone["stay"]), (0, &serde_json::json!([])), "{undone:#}");
    assert_eq!((log(&db, "one"), log(&db, "two")), (with_appended, two.clone()));
    assert_eq!(site.json(&["run", "compaction"]).0, 0);
    assert_eq!(log(&db, "two"), two);
    let undo = run_of(&site);
    assert_eq!(site.json(&["undo", &undo, "--reason", "a test"]).0, 0);
    assert_eq!(log(&db, "two").len(), 2);
    let (code, verified) = site.json(&["doc", "verify", "first/two"]);
    assert_eq!((code, &verified["verified"]), (0, &1.into()), "{verified:#}");
    site.balanced();
}

#[test]
fn a_reset_is_not_undone() {
    let (site, db, _) = compacted(RESET);
    let now = ["one", "two"].map(|name| log(&db, name));
    assert!(now.iter().all(|log| log[0].starts_with("document 1 ")), "{now:#?}");
    let (code, undone) = site.json(&["undo", &run_of(&site), "--reason", "a test"]);
    assert_eq!(code, 1, "{undone:#}");
    assert!(undone.to_string().contains("a reset of a document is not undone"), "{undone:#}");
    assert_eq!(["one", "two"].map(|name| log(&db, name)), now);
    site.balanced();
}
