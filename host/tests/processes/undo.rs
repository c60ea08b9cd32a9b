//! `besom undo` and `besom quarantine`: alone, beside a host, and killed in the middle.

use std::time::Instant;

use rusqlite::Connection;
use serde_json::Value;

use crate::site::{Site, hostile, wait_for};

/// A task that deletes old sessions.
pub const OLD_SESSIONS: &str = r#"
[collections.sessions]
key = ["id"]
columns = { id = "integer", expire_date = { type = "timestamp", encoding = "seconds" } }
indexes = { by_expire = ["expire_date"] }
[tasks.old-sessions]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "sessions"
settings = { by = "expire_date", older_than = "14d", chunk = 1000 }
"#;

/// Old sessions.
const ROWS: u32 = 5_000;

/// A site with the task, and rows that it deletes.
pub fn site() -> (Site, Connection) {
    let site = Site::new(OLD_SESSIONS);
    let db = site.database();
    db.execute_batch(&format!(
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, expire_date INTEGER, token TEXT UNIQUE, data);
         CREATE INDEX sessions_by_expire ON sessions (expire_date);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO sessions SELECT i, i, 't' || i, CASE i % 3 WHEN 0 THEN x'00' WHEN 1 THEN i / 7.0 END FROM n;"
    ))
    .expect("the product's table");
    (site, db)
}

fn dump(db: &Connection) -> Vec<String> {
    let sql = "SELECT id || '|' || expire_date || token || typeof(data) || coalesce(hex(data), '')
               FROM sessions ORDER BY id";
    let mut statement = db.prepare(sql).expect("a query");
    let rows = statement.query_map([], |row| row.get(0)).expect("rows");
    rows.map(|row| row.expect("a row")).collect()
}

/// Deletes the old sessions, and returns the run that did.
pub fn removed(site: &Site, db: &Connection) -> String {
    let (code, _) = site.json(&["run"]);
    assert_eq!((code, dump(db).len()), (0, 0));
    let (_, kept) = site.json(&["quarantine", "ls"]);
    assert_eq!((&kept[0]["rows"], &kept[0]["plugin"]), (&ROWS.into(), &"retention".into()));
    kept[0]["run"].to_string()
}

#[test]
fn a_run_is_undone_without_a_host_and_what_has_changed_since_stays() {
    let (site, db) = site();
    let before = dump(&db);
    let run = removed(&site, &db);
    for item in ["#999999", "nokey"] {
        let (code, said) = site.said(&["undo", &format!("{run}/{item}"), "--reason", "a typo"]);
        assert!(code == 2 && said.contains("has no such item"), "{code}: {said}");
    }
    let (code, rehearsal) = site.json(&["undo", &run, "--dry-run"]);
    assert_eq!((code, &rehearsal["rows"], dump(&db).len()), (0, &ROWS.into(), 0));
    assert_eq!(
        (&rehearsal["pauses"], &rehearsal["warning"]),
        (&"old-sessions".into(), &Value::Null)
    );
    let theirs = "INSERT INTO sessions VALUES (1, 9e9, 'theirs', 0), (99999, 9e9, 't2', 0)";
    db.execute(theirs, []).expect("the product's rows");
    let (code, undone) = site.json(&["undo", &run, "--reason", "wrong rule"]);
    assert_eq!((code, &undone["rows"]), (1, &(ROWS - 2).into()));
    let mut stay: Vec<(&Value, bool)> = undone["stay"]
        .as_array()
        .expect("rows")
        .iter()
        .map(|s| (&s["row"], s["now"].is_null()))
        .collect();
    stay.sort_by_key(|(row, _)| row.to_string());
    assert_eq!(stay, [(&"sessions (1)".into(), false), (&"sessions (2)".into(), true)]);
    assert!(dump(&db)[1..ROWS as usize - 1] == before[2..], "all others are as they were");
    // A file that names another row is refused with its line; one of them is forced.
    std::fs::write(site.path("keys"), "# chosen\nsessions (3)\n").expect("a file");
    let keys = site.path("keys").display().to_string();
    let (code, said) = site.said(&["undo", &run, "--force-keys", &keys]);
    assert!(code == 2 && said.contains("keys:2") && said.contains("sessions (3)"), "{said}");
    std::fs::write(site.path("keys"), "sessions (1)\n").expect("a file");
    let (code, forced) = site.json(&["undo", &run, "--force-keys", &keys]);
    assert_eq!((code, &forced["rows"], &forced["staying"]), (1, &1.into(), &1.into()));
    assert_eq!(dump(&db)[0], before[0]);
    let (_, commands) = site.json(&["commands", "ls"]);
    assert_eq!(commands[1]["reason"], "wrong rule");
    let (code, found) = site.json(&["quarantine", "find", "4000"]);
    assert_eq!((code, &found[0]["row"]), (0, &"sessions (4000)".into()));
    let (code, said) = site.said(&["undo", "4711"]);
    assert!(code == 2 && said.contains("there is no run 4711"), "{said}");
    site.balanced();
}

#[test]
fn what_a_scan_would_meet_is_no_concern_of_an_undo() {
    // A key that may be NULL, and with which no index continues.
    let by_token = OLD_SESSIONS
        .replace("key = [\"id\"]", "key = [\"token\"]")
        .replace("id = \"integer\"", "token = \"text\"");
    let (site, db) = site();
    site.configure(&by_token);
    let warned = |verb: &[&str]| site.said(verb).1.contains("warning: collection `sessions`");
    assert!(warned(&["check", "--store"]) && warned(&["run"]));
    assert_eq!(dump(&db).len(), 0);
    for verb in [&["undo", "1", "--dry-run"][..], &["undo", "1", "--reason", "x"], &["status"]] {
        assert!(!warned(verb), "{verb:?}");
    }
    assert_eq!(dump(&db).len(), ROWS as usize);
    // What keeps its rows away is told.
    db.execute_batch("ALTER TABLE sessions RENAME COLUMN token TO word").expect("renamed");
    assert!(warned(&["undo", "1", "--dry-run"]));
}

#[test]
fn a_host_undoes_what_is_asked_for_beside_it_and_does_not_plan_it_again() {
    let (site, db) = site();
    let before = dump(&db);
    let run = removed(&site, &db);
    let mut host = site.serve();
    host.leads();
    // A stop of everything does not stop what is taken back.
    let (code, _) = site.json(&["pause", "--all", "--reason", "a wrong rule", "--wait", "60s"]);
    assert_eq!(code, 0);
    let (code, undone) = site.json(&["undo", &run, "--wait", "60s"]);
    assert_eq!((code, &undone["rows"], &undone["ended"]), (0, &ROWS.into(), &true.into()));
    assert_eq!((&undone["warning"], &undone["pauses"]), (&Value::Null, &"old-sessions".into()));
    assert_eq!(site.json(&["resume", "--all", "--wait", "60s"]).0, 0);
    assert!(dump(&db) == before, "every row is as it was");
    let (code, again) = site.json(&["undo", &run, "--wait", "60s"]);
    assert_eq!((code, &again["rows"]), (0, &0.into()));
    // The pause of all tasks is over, and that of the undo is not.
    let trigger = ["task", "trigger", "old-sessions", "--wait", "60s"];
    assert_eq!(site.json(&trigger).0, 1);
    assert_eq!(site.json(&["task", "resume", "old-sessions", "--wait", "60s"]).0, 0);
    assert_eq!(site.json(&trigger).0, 0);
    wait_for("the triggered run ends", || {
        let (_, runs) = site.json(&["runs", "ls", "--task", "old-sessions"]);
        (runs[0]["state"] == "ok" && runs[0]["blocked"] == 5).then_some(())
    });
    // The task is not healthy: it takes nothing.
    let held_back = &site.task("old-sessions")["held_back"];
    assert_eq!((&held_back["candidates"], &held_back["undone"]), (&5.into(), &run.as_str().into()));
    let words = format!(
        "5 candidates are held back, because they were undone: `besom undo {run} --plan-again`"
    );
    for verb in [&["status"][..], &["task", "show", "old-sessions"]] {
        let out = site.besom(verb);
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(text.contains(&words), "{text}");
    }
    assert!(dump(&db) == before, "every row is as it was");
    // Undo of the undo.
    let (code, _) = site.json(&["undo", &undone["run"].to_string(), "--wait", "60s"]);
    assert_eq!((code, dump(&db).len()), (0, 0));
    host.stop();
    site.balanced();
}

#[test]
fn an_undo_of_what_is_kept_no_longer_changes_nothing() {
    let (site, db) = site();
    let run = removed(&site, &db);
    db.execute_batch(
        "UPDATE besom_history SET undo = NULL, undo_bytes = 0; UPDATE besom_task SET undo_bytes = 0",
    )
    .expect("as keep_removed has it");
    for more in [&[][..], &["--dry-run"]] {
        let (code, said) = site.said(&[&["undo", &run], more].concat());
        assert!(code == 1 && said.contains("nothing can be put back"), "{code}: {said}");
        assert!(said.contains("keep_removed"), "{said}");
    }
    let (_, commands) = site.json(&["commands", "ls"]);
    assert_eq!(commands, serde_json::json!([]));
    assert_eq!(site.task("old-sessions")["paused"], Value::Null);
    site.balanced();
}

/// Single rows of an item come back, and with the next undo the others.
#[test]
fn chosen_rows_of_an_item_come_back_alone() {
    let (site, db) = site();
    let before = dump(&db);
    let run = removed(&site, &db);
    let undone = || {
        let (_, kept) = site.json(&["quarantine", "ls", "--task", "old-sessions"]);
        let (_, items) = site.json(&["quarantine", "show", &run]);
        let items = items.as_array().expect("items").iter();
        let partly = items.filter(|item| item["undone"] == "partly").count();
        (kept[0]["undone"].as_str().expect("a word").to_owned(), partly)
    };
    for (key, code, why) in [
        ("999999", 1, "look for it with `besom quarantine find 999999`"),
        ("accounts (7)", 1, "`accounts (7)` names no row that is kept"),
        ("", 2, "must not be empty"),
    ] {
        let (found, said) = site.said(&["undo", &run, "--key", "7", "--key", key]);
        assert!(found == code && said.contains(why), "{found}: {said}");
    }
    let two = ["undo", &run, "--key", "+7", "--key", "sessions (1200)"];
    let (code, dry) = site.json(&[&two[..], &["--dry-run"]].concat());
    assert_eq!((code, &dry["rows"], &dry["items"]), (0, &2.into(), &2.into()), "{dry:#}");
    assert_eq!((&dry["pauses"], dump(&db).len()), (&"old-sessions".into(), 0));
    assert_eq!(undone(), ("no".to_owned(), 0));
    let (code, some) = site.json(&[&two[..], &["--reason", "asked for"]].concat());
    assert_eq!((code, &some["rows"], &some["staying"]), (0, &2.into(), &0.into()), "{some:#}");
    assert_eq!((&some["pauses"], &some["notes"]), (&"old-sessions".into(), &serde_json::json!({})));
    let chosen = [before[6].clone(), before[1_199].clone()];
    assert_eq!((undone(), dump(&db)), (("partly".to_owned(), 2), chosen.to_vec()));
    let (_, commands) = site.json(&["commands", "ls"]);
    assert_eq!(commands[0]["what"], format!("undo {run} --key KEY"), "{commands:#}");
    assert_eq!(site.json(&["quarantine", "find", "8"]).0, 0, "the others are kept");
    // Once more: nothing is left to do, and nothing is paused for the others.
    site.json(&["task", "resume", "old-sessions"]);
    for (more, again) in [(&[][..], 0), (&["--plan-again"], 2)] {
        let (code, once_more) = site.json(&[&two[..], more].concat());
        assert_eq!((code, &once_more["rows"]), (0, &0.into()), "{once_more:#}");
        assert_eq!((&once_more["pauses"], &once_more["plan_again"]), (&Value::Null, &again.into()));
    }
    let (code, taken) = site.json(&["undo", &some["run"].to_string()]);
    assert_eq!((code, &taken["rows"], dump(&db).len()), (0, &2.into(), 0));
    assert_eq!(undone(), ("no".to_owned(), 0));
    std::fs::write(site.path("keys"), "# two people\n 7\nsessions (8)\n").expect("a file");
    let keys = site.path("keys").display().to_string();
    let (code, some) = site.json(&["undo", &run, "--keys", &keys, "--no-pause"]);
    assert_eq!((code, &some["rows"], &some["items"]), (0, &2.into(), &1.into()), "{some:#}");
    assert_eq!((undone(), dump(&db)), (("partly".to_owned(), 1), before[6..8].to_vec()));
    // A chosen row that somebody has changed stays, and can be forced.
    db.execute("INSERT INTO sessions VALUES (9, 9e9, 'theirs', 0)", []).expect("another row");
    let nine = ["undo", &run, "--key", "9", "--no-pause"];
    let (code, stays) = site.json(&nine);
    assert_eq!((code, &stays["stay"][0]["row"]), (1, &"sessions (9)".into()), "{stays:#}");
    std::fs::write(site.path("keys"), "sessions (9)\n").expect("a file");
    let (code, forced) = site.json(&[&nine[..], &["--force-keys", &keys]].concat());
    assert_eq!((code, &forced["rows"], dump(&db)), (0, &1.into(), before[6..9].to_vec()));
    let (code, rest) = site.json(&["undo", &run, "--no-pause"]);
    assert_eq!((code, &rest["rows"], &rest["staying"]), (0, &(ROWS - 3).into(), &0.into()));
    assert!(dump(&db) == before, "every row is as it was");
    assert_eq!(undone(), ("yes".to_owned(), 0));
    site.balanced();
}

/// How often an undo is killed before its end.
const KILLS: u32 = 50;

#[test]
fn an_undo_that_is_killed_goes_on_when_it_is_repeated() {
    let (site, db) = site();
    let before = dump(&db);
    let run = removed(&site, &db);
    let begun = Instant::now();
    let (_, undone) = site.json(&["undo", &run]);
    let mut whole = begun.elapsed();
    assert!(dump(&db) == before);
    assert_eq!(site.json(&["undo", &undone["run"].to_string()]).0, 0);
    let (mut killed, mut moments) = (0, 0);
    while killed < KILLS {
        moments += 1;
        assert!(moments < 10 * KILLS, "{killed} of {moments} were killed before their end");
        let mut undoing = site.command(&["undo", &run]).spawn().expect("it starts");
        // Spread evenly over the time that one takes.
        std::thread::sleep(whole.mul_f64(f64::from(moments) * 0.618_034 % 1.0));
        let had_ended = undoing.try_wait().expect("a state").is_some();
        undoing.kill().expect("killed");
        undoing.wait().expect("it ends");
        if had_ended {
            // The first one had a colder or busier machine.
            whole = whole.mul_f64(0.9);
        } else {
            killed += 1;
        }
        let back = dump(&db).len();
        site.balanced();
        // The next one begins anew.
        if back == ROWS as usize {
            let (_, kept) = site.json(&["quarantine", "ls", "--task", "undo"]);
            let of_it = kept[0]["run"].to_string();
            let (mut code, mut said) = site.said(&["undo", &of_it]);
            // Every row is back, but the run was killed before its end.
            if said.contains(&format!("no host runs, so end it with `besom undo {run}`")) {
                assert_eq!(site.json(&["undo", &run]).0, 0);
                (code, said) = site.said(&["undo", &of_it]);
            }
            assert_eq!(code, 0, "{said}");
        }
    }
    let (mut code, mut undone) = site.json(&["undo", &run]);
    // An item during which three of them were killed is set aside by the next one.
    if code != 0 {
        let (_, letters) = site.json(&["dead", "ls"]);
        let letters = letters.as_array().expect("dead letters");
        let deadly =
            |letter: &Value| letter["reason"] == "its host died 3 times while executing it";
        assert!(!letters.is_empty() && letters.iter().all(deadly), "{undone:#} {letters:#?}");
        (code, undone) = site.json(&["undo", &run]);
    }
    assert!(code == 0 && dump(&db) == before, "{code}: {undone:#}");
    site.balanced();
}

/// Of what an undo has put back, some rows were taken back by an undo of it: these can be put back again.
#[test]
fn what_was_taken_back_in_part_is_put_back_again() {
    let (site, db) = site();
    let before = dump(&db);
    let run = removed(&site, &db);
    let (_, undone) = site.json(&["undo", &run]);
    db.execute("UPDATE sessions SET token = 'theirs' WHERE id = 7", []).expect("changed");
    let now = dump(&db);
    let (code, taken) = site.json(&["undo", &undone["run"].to_string()]);
    assert_eq!((code, &taken["rows"]), (1, &(ROWS - 1).into()));
    assert_eq!(dump(&db), [now[6].clone()]);
    let (_, items) = site.json(&["quarantine", "show", &run]);
    let of =
        |how: &str| items.as_array().expect("items").iter().filter(|i| i["undone"] == how).count();
    assert_eq!((of("partly"), of("no")), (1, 4));
    let (code, again) = site.json(&["undo", &run]);
    assert_eq!((code, &again["rows"], &again["already"]), (0, &(ROWS - 1).into(), &0.into()));
    assert!(dump(&db) == now);
    let (_, once_more) = site.json(&["undo", &run]);
    let already = serde_json::json!({ (format!("already undone by run {}", again["run"])): 5 });
    assert_eq!(once_more["skipped"], already);
    assert_ne!(now, before);
    site.balanced();
}

/// Who was told of a deletion is told that it was undone, once, and only if it was.
#[test]
fn the_receivers_of_messages_are_told_what_was_undone() {
    let topics = "[delivery]\nhosts = [\"localhost:1\"]\n\
                  [topics.cleaned]\nurl = \"http://localhost:1/\"\n\
                  [topics.\"cleaned.undone\"]\nurl = \"http://localhost:1/\"\n";
    let config = hostile("cleaner", "keys:sweep-and-tell", "schedule = \"@every 1h\"");
    let site = Site::new(&format!("{topics}{config}"));
    site.add_hostile();
    let db = site.database();
    let things = || db.query_row("SELECT count(*) FROM things", [], |r| r.get(0));
    assert_eq!((site.json(&["run"]).0, things()), (0, Ok(0)));
    let (_, kept) = site.json(&["quarantine", "ls"]);
    let run = kept[0]["run"].to_string();
    let told = |words: &[&str]| site.json(&[&["undo", &run][..], words].concat()).1["told"].clone();
    let once = serde_json::json!({ "cleaned.undone": 1 });
    assert_eq!((told(&["--dry-run"]), things()), (once.clone(), Ok(0)));
    // Nothing comes back, and nobody is told so.
    db.execute("INSERT INTO things VALUES ('first', 1, 'theirs', x'02', 0)", []).expect("a row");
    assert_eq!(told(&["--dry-run"]), serde_json::json!({}));
    assert_eq!(told(&[]), serde_json::json!({}));
    db.execute("DELETE FROM things", []).expect("deleted");
    assert_eq!((told(&[]), things()), (once, Ok(1)));
    assert_eq!(told(&[]), serde_json::json!({}));
    let (_, sent) = site.json(&["outbox", "ls", "--topic", "cleaned.undone"]);
    assert_eq!((sent.as_array().map(Vec::len), &sent[0]["key"]), (Some(1), &"k".into()));
    let sql = "SELECT json(CAST(u.payload AS TEXT)), c.id FROM besom_outbox u JOIN besom_outbox c
               ON c.topic = 'cleaned' WHERE u.topic = 'cleaned.undone'";
    let (payload, cleaned): (String, u64) =
        db.query_row(sql, [], |r| Ok((r.get(0)?, r.get(1)?))).expect("a message");
    let payload: Value = serde_json::from_str(&payload).expect("JSON");
    let expected = serde_json::json!({
        "message": cleaned, "task": "cleaner", "run": kept[0]["run"], "item": "sweep-and-tell"
    });
    assert_eq!(payload, expected);
    site.balanced();
}

#[test]
fn what_was_undone_is_told_and_is_planned_again_only_if_that_is_asked_for() {
    let (site, db) = site();
    let before = dump(&db);
    let run = removed(&site, &db);
    let undone = |run: &Value| {
        let (_, kept) = site.json(&["quarantine", "ls"]);
        let found = kept.as_array().expect("runs").iter().find(|kept| kept["run"] == *run);
        found.expect("it is kept")["undone"].as_str().expect("a word").to_owned()
    };
    let first: Value = run.parse::<u64>().expect("a number").into();
    assert_eq!(undone(&first), "no");
    let (code, by) = site.json(&["undo", &run, "--no-pause"]);
    assert_eq!((code, undone(&first), undone(&by["run"])), (0, "yes".into(), "no".into()));
    let (_, items) = site.json(&["quarantine", "show", &run]);
    assert_eq!(items[0]["undone"], "yes");
    let rehearsed = || {
        let out = site.besom(&["run", "--dry-run"]);
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        // The first line names the instant before which rows go.
        said.split_once('\n').expect("several lines").1.to_owned()
    };
    let said = rehearsed();
    let left_out =
        "old-sessions: 5 candidates left out, because a run does not plan them again: undone";
    assert!(said.contains(left_out) && said.contains("0 items"), "{said}");
    let (code, rehearsal) = site.json(&["undo", &run, "--plan-again", "--dry-run"]);
    assert_eq!((code, &rehearsal["plan_again"], &rehearsal["rows"]), (0, &5.into(), &0.into()));
    assert_eq!(rehearsed(), said);
    let (code, lifted) =
        site.json(&["undo", &run, "--plan-again", "--reason", "the rule is right"]);
    assert_eq!((code, &lifted["plan_again"], &lifted["items"]), (0, &5.into(), &0.into()));
    assert!(dump(&db) == before, "nothing else has changed");
    assert_eq!(site.task("old-sessions")["held_back"], Value::Null);
    let said = rehearsed();
    assert!(!said.contains("left out") && said.contains("5 items would change"), "{said}");
    // It is still undone, until that is undone.
    let (_, again) = site.json(&["undo", &run]);
    assert_eq!((&again["rows"], &again["items"]), (&0.into(), &0.into()));
    assert_eq!(undone(&first), "yes");
    let (code, _) = site.json(&["run"]);
    assert_eq!((code, dump(&db).len()), (0, 0));
    site.balanced();
}

/// The tables of the engine in which a text is found, except where the history has the key of an item.
fn found_in(db: &Connection, text: &str) -> Vec<String> {
    let sql = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c
               WHERE m.type = 'table' AND m.name LIKE 'besom\\_%' ESCAPE '\\'";
    let mut statement = db.prepare(sql).expect("a query");
    let columns = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("columns");
    let columns: Vec<(String, String)> = columns.map(|column| column.expect("one")).collect();
    assert!(columns.iter().any(|(table, column)| table == "besom_history" && column == "undo"));
    let found = |(table, column): &(String, String)| {
        let sql =
            format!("SELECT count(*) FROM {table} WHERE instr(CAST({column} AS BLOB), ?1) > 0");
        let rows: u32 = db.query_row(&sql, [text.as_bytes()], |row| row.get(0)).expect("a count");
        (rows > 0).then(|| format!("{table}.{column}"))
    };
    columns.iter().filter_map(found).collect()
}

const PEOPLE: &str = r#"
[collections.sessions]
key = ["id"]
columns = { id = "text", expire_date = { type = "timestamp", encoding = "seconds" } }
indexes = { by_expire = ["expire_date"] }
[tasks.old-sessions]
plugin = "retention"
schedule = "@every 30d"
collections.rows = "sessions"
settings = { by = "expire_date", older_than = "14d", chunk = 1000 }
"#;

/// The key of the person whose rows are purged.
const ERASED: &str = "wilhelmina@zxq.example";

fn people() -> (Site, Connection) {
    let site = Site::new(PEOPLE);
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (id TEXT PRIMARY KEY, expire_date INTEGER, address TEXT);
         CREATE INDEX sessions_by_expire ON sessions (expire_date);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
         INSERT INTO sessions SELECT 'person-' || i || '-x', i, 'street-' || i || '-x' FROM n;
         -- Nothing like it is in the other rows, so it is not abbreviated where it is packed.
         UPDATE sessions SET id = 'wilhelmina@zxq.example', address = 'Kumquat Mews 88' WHERE expire_date = 7;",
    )
    .expect("the product's table");
    let (code, _) = site.json(&["run"]);
    assert_eq!(code, 0);
    (site, db)
}

fn kept_bytes(site: &Site) -> u64 {
    let (_, status) = site.json(&["status"]);
    status["kept_bytes"]["old-sessions"].as_u64().expect("a number")
}

/// Alone: what is kept of one person goes, the others come back, and nothing says who it was.
#[test]
fn rows_of_a_person_are_purged_and_the_others_come_back() {
    let (site, db) = people();
    let (key, address) = (ERASED, "Kumquat Mews 88");
    assert!(found_in(&db, address).contains(&"besom_history.undo".to_owned()));
    let purge = ["quarantine", "purge", "--key", key];
    for (more, why) in [
        (&[][..], "purge requires a reason"),
        (&["--reason", "erase wilhelmina@zxq.example"][..], "--reason has the key in it"),
    ] {
        let (code, said) = site.said(&[&purge, more].concat());
        assert!(code == 2 && said.contains(why), "{code}: {said}");
    }
    let (code, dry) = site.json(&[&purge[..], &["--dry-run"]].concat());
    assert_eq!((code, &dry["rows"], &dry["left"]), (0, &1.into(), &1.into()));
    assert_eq!(dry["collections"]["sessions"], 1, "{dry:#}");
    // A row can be named with its collection, as `--force-keys` names it.
    for (table, code, rows) in [("sessions", 0, 1), ("accounts", 1, 0)] {
        let row = format!("{table} ({key:?})");
        let dry = site.json(&["quarantine", "purge", "--key", &row, "--dry-run"]);
        assert_eq!((dry.0, &dry.1["rows"]), (code, &rows.into()), "{row}: {:#}", dry.1);
    }
    for verb in [&["ls"][..], &["find", key], &["purge", "--dry-run", "--key", key]] {
        let (code, said) = site.said(&[&["quarantine"], verb, &["--task", "nosuchtask"]].concat());
        assert!(code == 2 && said.contains("there is no task `nosuchtask`"), "{verb:?}: {said}");
    }
    let before = kept_bytes(&site);
    let (code, done) = site.json(&[&purge[..], &["--reason", "ticket 12"]].concat());
    assert_eq!((code, &done["rows"], &done["left"]), (0, &1.into(), &0.into()), "{done:#}");
    assert!(kept_bytes(&site) < before);
    site.balanced();
    let (code, found) = site.json(&["quarantine", "find", key]);
    assert_eq!((code, found.as_array().map(Vec::len)), (1, Some(0)));
    let (code, _) = site.json(&[&purge[..], &["--reason", "ticket 12"]].concat());
    assert_eq!(code, 1, "there are none any more");
    let (_, commands) = site.json(&["commands", "ls"]);
    let of = &commands[0];
    assert_eq!(
        (&of["reason"], &of["what"]),
        (&"ticket 12".into(), &"purge kept rows of 1 item".into())
    );
    assert_eq!(of["result"], "purged: 1 row of 1 item");
    assert!(!commands.to_string().contains(key), "{commands:#}");
    assert_eq!((found_in(&db, key), found_in(&db, address)), (vec![], vec![]));
    // The bytes of the file, without what the product has removed itself.
    db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)").expect("vacuumed");
    for file in ["besom.db", "besom.db-wal"] {
        let bytes = std::fs::read(site.path(file)).unwrap_or_default();
        let has = |text: &str| bytes.windows(text.len()).any(|some| some == text.as_bytes());
        assert!(!has(key) && !has(address), "{file}");
    }
    let said = String::from_utf8(site.besom(&["quarantine", "find", key]).stdout).expect("a text");
    assert!(said.contains("Only keys are searched"), "{said}");
    let (_, kept) = site.json(&["quarantine", "ls"]);
    assert_eq!((&kept[0]["rows"], &kept[0]["purged"]), (&39.into(), &1.into()), "{kept:#}");
    let run = kept[0]["run"].to_string();
    let words = "1 row was purged, and not kept any longer";
    for (rows, more) in [(39, &[][..]), (0, &[]), (0, &["--dry-run"])] {
        let (code, undone) = site.json(&[&["undo", &run], more].concat());
        assert_eq!((code, &undone["rows"]), (1, &rows.into()), "{undone:#}");
        assert!(undone["notes"].to_string().contains(words), "{undone:#}");
    }
    let back: u32 =
        db.query_row("SELECT count(*) FROM sessions WHERE id <> ?1", [key], |r| r.get(0)).unwrap();
    assert_eq!(back, 39);
    site.balanced();
}

/// Beside a host: the leader applies it, and what an undo has kept of the row goes as well.
#[test]
fn a_host_purges_what_is_kept_of_a_row_and_of_its_undo() {
    let (site, db) = people();
    let mut host = site.serve();
    host.leads();
    let (_, kept) = site.json(&["quarantine", "ls"]);
    let (code, _) = site.json(&["undo", &kept[0]["run"].to_string(), "--wait", "60s"]);
    assert_eq!(code, 0);
    let key = ERASED;
    let (_, found) = site.json(&["quarantine", "find", key]);
    assert_eq!(found.as_array().map(Vec::len), Some(2), "the run, and its undo");
    let purge = ["quarantine", "purge", "--key", key, "--task", "old-sessions"];
    let asked = [&purge[..], &["--reason", "ticket 12", "--wait", "60s"]].concat();
    let (code, done) = site.json(&asked);
    assert_eq!((code, &done["rows"], &done["left"]), (0, &2.into(), &0.into()), "{done:#}");
    let (code, _) = site.json(&["quarantine", "find", key]);
    assert_eq!((code, found_in(&db, key)), (1, vec![]));
    host.stop();
    site.balanced();
}

/// A row comes back below the one that it has referred to, and below no other one that has its key now.
#[test]
fn a_row_of_a_tree_stays_away_with_the_one_above_it() {
    let tree = OLD_SESSIONS.replace("expire_date = ", "par = \"integer\", expire_date = ").replace(
        "key = [\"id\"]",
        "key = [\"id\"]\nanchor = { collection = \"sessions\", columns = [\"par\"] }",
    );
    let site = Site::new(&tree);
    let db = site.database();
    // The rows are deleted in the reverse order of their keys, and in that of their references.
    for expires in ["i", "100 - i"] {
        db.execute_batch(&format!(
            "DROP TABLE IF EXISTS sessions;
             CREATE TABLE sessions (id INTEGER PRIMARY KEY, expire_date INTEGER, par INTEGER REFERENCES sessions (id));
             CREATE INDEX sessions_by_expire ON sessions (expire_date);
             CREATE INDEX sessions_by_par ON sessions (par);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8)
             INSERT INTO sessions SELECT i, {expires}, nullif(i - 1, 0) FROM n;"
        ))
        .expect("the product's table");
        site.json(&["run"]);
        db.execute("INSERT INTO sessions VALUES (4, 9e9, NULL)", []).expect("another row");
        let run =
            site.json(&["quarantine", "ls", "--task", "old-sessions"]).1[0]["run"].to_string();
        let (code, undone) = site.json(&["undo", &run, "--no-pause"]);
        assert_eq!(
            (code, &undone["rows"], &undone["staying"]),
            (1, &3.into(), &5.into()),
            "{undone:#}"
        );
        let left: u32 =
            db.query_row("SELECT sum(id) FROM sessions", [], |r| r.get(0)).expect("a sum");
        assert_eq!(left, 1 + 2 + 3 + 4);
    }
}
