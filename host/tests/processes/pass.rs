//! `besom run`: one pass without a host.

use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::Value;

use crate::load::{add_share, append, now_us};
use crate::reload::SWEEP;
use crate::site::{Site, hostile, row_of, wait_for};

const CONFIG: &str = r#"
[tasks.compaction]
plugin = "compaction"
schedule = "@every 1h"
[tasks.compaction.settings]
min_changes = 3
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1h"
"#;

/// Back-off between the attempts would take longer than this; a pass does not back off.
const WITHOUT_BACKOFF_MAX: Duration = Duration::from_secs(30);

/// An update of client `client`, one map entry at clock 0: written by hand, so that every byte
/// is known.
pub fn entry(client: u8) -> [u8; 14] {
    [1, 1, client, 0, 40, 1, 1, b'm', 1, b'k', 1, 125, 5, 0]
}

fn share(db: &Connection, name: &str, ends_in: Duration, over: bool) {
    let micros = i64::try_from(ends_in.as_micros()).expect("short");
    let ends = if over { now_us() - micros } else { now_us() + micros };
    add_share(db, name, ends);
}

/// A document with four changes.
pub fn document(db: &mut Connection, name: &str) {
    let sql = "INSERT INTO documents (project_id, doc_id, created_at, updated_at)
               VALUES ('first', ?1, 0, 0)";
    db.execute(sql, [name]).expect("a document");
    let name = ("first".to_owned(), name.to_owned());
    for client in 1..=4 {
        append(db, &name, "author", "edit", &entry(client));
    }
}

/// Fills a gap in the log of a document.
fn append_at(db: &Connection, name: &str, seq: i64) {
    let sql = "INSERT INTO changes (project_id, doc_id, server_seq, actor_id, client_seq, lamport, payload)
               VALUES ('first', ?1, ?2, 'author', ?2, ?2, ?3)";
    db.execute(sql, rusqlite::params![name, seq, entry(2)]).expect("a change");
}

/// A document to compact, one with a gap, an expired share and one that ends later.
fn site() -> Site {
    let site = Site::new(CONFIG);
    site.create_tables();
    let mut db = site.database();
    document(&mut db, "sound");
    document(&mut db, "gap");
    db.execute("DELETE FROM changes WHERE doc_id = 'gap' AND server_seq = 2", []).expect("a gap");
    share(&db, "over", Duration::from_secs(60), true);
    share(&db, "later", Duration::from_secs(3_600), false);
    site
}

fn of<'v>(passed: &'v Value, task: &str) -> &'v Value {
    let rows = passed.as_array().expect("a list");
    rows.iter().find(|row| row["task"] == task).expect("the task")
}

#[test]
fn a_pass_retries_without_waiting_and_leaves_future_timers_pending() {
    let site = site();
    let begun = Instant::now();
    let (code, passed) = site.json(&["run"]);
    let took = begun.elapsed();
    assert_eq!(code, 1, "a new dead letter: not everything was done: {passed:#}");
    assert!(took < WITHOUT_BACKOFF_MAX, "{took:?}");
    for (task, counts) in [
        ("compaction", [("planned", 2), ("committed", 1), ("dead", 1), ("pending", 0)]),
        ("share-expiry", [("planned", 2), ("committed", 1), ("dead", 0), ("pending", 1)]),
    ] {
        for (what, expected) in counts {
            assert_eq!(of(&passed, task)[what], expected, "{task} {what}: {passed:#}");
        }
    }
    let audit = site.balanced();
    assert_eq!(row_of(&audit["tasks"], "share-expiry")["pending"], 1);
    let (_, dead) = site.json(&["dead", "ls"]);
    assert_eq!((&dead[0]["key"], dead.as_array().map(Vec::len)), (&"gap".into(), Some(1)));
    let error = dead[0]["error"].as_str().expect("why").to_owned();
    assert!(error.contains('2'), "the missing number is named: {error}");
    let (code, shown) = site.json(&["doc", "show", "first/gap"]);
    assert_eq!((code, &shown["rows"]), (0, &Value::from(3)), "its log is untouched: {shown:#}");

    // Nothing new: a second pass plans nothing, and its code says nothing of the letter that is known.
    let (code, passed) = site.json(&["run"]);
    assert_eq!(code, 0, "{passed:#}");
    for task in ["compaction", "share-expiry"] {
        assert_eq!(of(&passed, task)["planned"], 0, "{passed:#}");
    }
    let (_, status) = site.json(&["status"]);
    assert_eq!(status["leader"], Value::Null, "a pass gives the lease up");
    assert!(status["term"].as_u64().is_some_and(|term| term >= 2), "each pass has its term");
}

#[test]
fn only_the_named_tasks_run_and_a_misspelt_one_is_a_slip() {
    let site = site();
    let (code, passed) = site.json(&["run", "share-expiry"]);
    assert_eq!((code, passed.as_array().map(Vec::len)), (0, Some(1)), "{passed:#}");
    let (_, shown) = site.json(&["doc", "show", "first/sound"]);
    assert_eq!(shown["rows"], 4, "{shown:#}");
    let (code, said) = site.said(&["run", "share-expiri"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("did you mean `share-expiry`?"), "{said}");
}

#[test]
fn a_rehearsal_prints_the_changes_and_changes_nothing() {
    let site = site();
    // The engine's own bookkeeping of definitions exists before and after.
    assert_eq!(site.json(&["run", "share-expiry"]).0, 0);
    let db = site.database();
    share(&db, "over-too", Duration::from_secs(5), true);
    let before = everything(&db);
    let (code, items) = site.json(&["run", "--dry-run"]);
    assert_eq!(code, 0, "{items:#}");
    let text = items.to_string();
    for part in ["over-too", "sound", "unshared_at", "compacted_seq"] {
        assert!(text.contains(part), "{part} is not in {items:#}");
    }
    assert_eq!(everything(&db), before);
    // Each is judged as of its own time.
    let shown = |key: &str| {
        let all = items.as_array().expect("items").iter();
        all.filter(|item| item["key"] == key).collect::<Vec<_>>()[0].clone()
    };
    let (over, later) = (shown("over-too"), shown("later"));
    let due = later["due"].as_str().unwrap_or_else(|| panic!("{later:#}"));
    assert_eq!(over["due"], Value::Null, "{over:#}");
    assert!(later["changes"].to_string().contains(due), "{later:#}");
    assert!(!over["changes"].to_string().contains(due), "{over:#}");
}

/// Every row of every table, except those of nodes.
fn everything(db: &Connection) -> Vec<String> {
    let mut select = db
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'besom_node' ORDER BY 1")
        .expect("tables");
    let tables = select.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    let tables: Vec<String> = tables.map(|name| name.expect("a name")).collect();
    let mut rows = Vec::new();
    for table in tables {
        let mut select = db.prepare(&format!("SELECT * FROM \"{table}\"")).expect("a table");
        let columns = select.column_count();
        let mut found = select.query([]).expect("rows");
        while let Some(row) = found.next().expect("a row") {
            let values: Vec<_> =
                (0..columns).map(|at| row.get::<_, rusqlite::types::Value>(at)).collect();
            rows.push(format!("{table} {values:?}"));
        }
    }
    rows.sort();
    rows
}

#[test]
fn a_pass_beside_a_leader_is_refused() {
    let site = site();
    let mut host = site.serve();
    host.leads();
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("leads (term"), "{said}");
    host.stop();
    let (_, passed) = site.json(&["run"]);
    assert_eq!(of(&passed, "share-expiry")["error"], Value::Null, "{passed:#}");
}

/// Compactions can be compared again any number of times; a row that has changed since has its own
/// exit code.
#[test]
fn a_compaction_is_verified_again_until_its_row_says_something_else() {
    let site = site();
    let (_, found) = site.json(&["doc", "verify", "first/sound"]);
    assert_eq!(found["compactions"].as_array().map(Vec::len), Some(0), "{found:#}");
    site.json(&["run", "compaction"]);

    let (code, found) = site.json(&["doc", "verify", "first/sound"]);
    assert_eq!(
        (code, &found["verified"], &found["differs"]),
        (0, &1.into(), &0.into()),
        "{found:#}"
    );
    let compaction = &found["compactions"][0];
    assert_eq!(compaction["recorded"], compaction["rebuilt"], "{compaction:#}");
    // A document that exceeds the limits is not verified and affects nothing else.
    let (code, found) = site.json(&["doc", "verify", "first/sound", "--memory", "1MiB"]);
    let why = found["compactions"][0]["why"].as_str().expect("a reason");
    assert!(code == 1 && why.contains("memory"), "{found:#}");
    assert_eq!(found["compactions"][0]["verdict"], "unverified", "{found:#}");
    let (code, shown) = site.json(&["doc", "show", "first/sound"]);
    let notes = &shown["last_compaction"]["notes"];
    assert_eq!((code, &notes["mode"]), (0, &"merge".into()), "{shown:#}");
    for cost in ["act_ms", "act_memory_bytes", "act_items"] {
        assert!(notes[cost].as_u64().is_some(), "{cost}: {notes:#}");
    }
    assert_eq!(shown["attached"], serde_json::json!([]), "{shown:#}");

    let (code, left) = site.json(&["doc", "left-alone"]);
    assert_eq!((code, &left["reasons"]["gap"]), (0, &1.into()), "{left:#}");
    assert_eq!(left["documents"][0]["document"], "gap", "{left:#}");

    // One bit of the written row is flipped.
    let db = site.database();
    let sql = "SELECT payload FROM changes WHERE doc_id = 'sound' AND kind = 'edit'";
    let mut row: Vec<u8> = db.query_row(sql, [], |row| row.get(0)).expect("the row");
    let at = row.windows(2).position(|pair| pair == [125, 5]).expect("a value");
    row[at + 1] ^= 1;
    db.execute("UPDATE changes SET payload = ?1 WHERE doc_id = 'sound'", [&row]).expect("flipped");
    let (code, found) = site.json(&["doc", "verify", "first/sound"]);
    assert_eq!((code, &found["differs"]), (65, &1.into()), "{found:#}");
}

/// A scan that cannot end, because of one row, and can for the next pass.
#[test]
fn a_pass_whose_scan_has_failed_says_so_and_ends_with_1() {
    let site = Site::new("");
    site.create_tables();
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    site.configure(&format!("{SWEEP}\n[tasks.sweep.limits]\nread_bytes = \"64KiB\"\n"));
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
         CREATE INDEX sessions_by_expiry ON sessions (expires_at);",
    )
    .expect("a table");
    let add = |name: &str| {
        let sql = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
                   INSERT INTO sessions SELECT ?1 || i, i FROM n";
        db.execute(sql, [name]).expect("sessions that are over");
    };
    let left = || {
        let sql = "SELECT count(*) FROM sessions";
        db.query_row(sql, [], |row| row.get::<_, i64>(0)).expect("a number")
    };
    // The last row is larger than a read may be. Each round begins again with the first page, so that all
    // others are reached; that the scans have failed is not hidden by it.
    db.execute_batch("INSERT INTO sessions VALUES (hex(zeroblob(50000)), 5000)").expect("a row");
    add("first-");
    let (code, passed) = site.json(&["run"]);
    assert_eq!(code, 1, "{passed:#}");
    assert_eq!(left(), 1);
    add("second-");
    let error = of(&passed, "sweep")["error"].as_str().expect("why");
    assert!(error.contains("read_bytes"), "{error}");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("failed") && !said.contains("done"), "{said}");
    assert!(said.contains("it begins again"), "{said}");

    add("third-");
    db.execute_batch("DELETE FROM sessions WHERE expires_at = 5000").expect("removed");
    let (code, passed) = site.json(&["run"]);
    assert_eq!((code, &of(&passed, "sweep")["error"]), (0, &Value::Null), "{passed:#}");
    assert_eq!(left(), 0);
}

/// The examination of a preview is its scan: what it has not read is not "nothing".
#[test]
fn a_preview_whose_scan_has_failed_says_so_and_ends_with_1() {
    let site = Site::new("");
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    let config = format!(
        "{}\n[tasks.sweep.limits]\nread_bytes = \"64KiB\"\n",
        SWEEP.replace("[tasks.sweep]", "[tasks.sweep]\nmode = \"preview\"")
    );
    assert!(config.contains("preview"), "{config}");
    site.configure(&config);
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
         CREATE INDEX sessions_by_expiry ON sessions (expires_at);
         INSERT INTO sessions VALUES (hex(zeroblob(50000)), 5000);",
    )
    .expect("a row that is larger than a read may be");
    let says_so = |words: &str| {
        assert!(words.contains("read_bytes"), "{words}");
        assert!(!words.to_lowercase().contains("nothing would be changed"), "{words}");
    };
    let (code, passed) = site.json(&["run"]);
    let passed = of(&passed, "sweep");
    assert_eq!(code, 1, "{passed:#}");
    says_so(passed["error"].as_str().expect("why"));
    let summary = "no change was found, but the plan is incomplete";
    assert_eq!(passed["review"]["summary"], summary, "{passed:#}");
    let out = site.besom(&["run"]);
    let said = [out.stdout, out.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(out.status.code(), Some(1), "{said}");
    says_so(&said);
    assert!(said.contains("sweep: the scan failed: "), "{said}");
    assert!(said.contains("failed") && !said.contains("done"), "{said}");
    assert!(!said.contains("executes it"), "{said}");

    // Whoever looks later is told as well.
    let (_, runs) = site.json(&["runs", "ls"]);
    assert_eq!(runs[0]["state"], "failed", "{runs:#}");
    says_so(runs[0]["error"].as_str().expect("why"));
    says_so(site.task("sweep")["last_result"].as_str().expect("the error"));
    for verb in [["runs", "ls"].as_slice(), &["status"], &["review", "show", "sweep"]] {
        says_so(&String::from_utf8(site.besom(verb).stdout).expect("a text"));
    }
    let (_, shown) = site.json(&["review", "show", "sweep"]);
    let partial = shown["plan"]["partial"].as_str().expect("why");
    assert!(partial.starts_with("the examination failed: "), "{shown:#}");

    // What is found before it is shown, as far as it is known.
    let add = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
               INSERT INTO sessions SELECT 's' || i, i FROM n";
    db.execute(add, []).expect("sessions that are over");
    let (code, passed) = site.json(&["run"]);
    let summary = of(&passed, "sweep")["review"]["summary"].as_str().expect("a summary");
    assert_eq!((code, summary.starts_with("at least ")), (1, true), "{passed:#}");

    // The same by the schedule of a host, until its cause is gone.
    let newest = || site.json(&["runs", "ls", "--limit", "1"]).1[0].clone();
    let last = newest()["run"].as_u64();
    let begun = |state: &str| {
        let run = newest();
        (run["run"].as_u64() > last && run["state"] == state).then_some(run)
    };
    let mut host = site.serve();
    host.leads();
    let failed = wait_for("a preview of the host", || begun("failed"));
    says_so(failed["error"].as_str().expect("why"));
    // Between two runs: while one goes on, the status says that.
    wait_for("its error in the status", || {
        let task = site.task("sweep");
        task["last_result"].as_str().filter(|result| result.contains("read_bytes")).map(drop)
    });
    db.execute_batch("DELETE FROM sessions WHERE expires_at = 5000").expect("removed");
    let ended = wait_for("a preview without the row", || begun("ok"));
    assert_eq!(ended["error"], Value::Null, "{ended:#}");
    host.stop();
    let (code, passed) = site.json(&["run"]);
    assert_eq!((code, &of(&passed, "sweep")["error"]), (0, &Value::Null), "{passed:#}");
    site.balanced();
}

/// A pass leads: it applies what was asked for while nobody led, before it plans anything.
#[test]
fn a_pass_applies_the_waiting_commands_before_its_tasks_run() {
    let site = site();
    let (code, said) = site.said(&["run", "compaction"]);
    assert_eq!(code, 1, "{said}");
    let words = "1 new dead letter of compaction (see `besom dead ls --task compaction`; correct the cause, then \
                 `besom dead retry --task compaction` and `besom run compaction`)";
    assert!(said.contains(words), "{said}");

    // The gap is filled, and the document retried.
    let db = site.database();
    append_at(&db, "gap", 2);
    let asked = site.besom(&["dead", "retry", "--all", "--wait", "0s"]);
    let said = String::from_utf8_lossy(&asked.stdout);
    assert!(asked.status.success(), "{asked:?}");
    assert!(said.contains("the next `besom serve` or `besom run` applies it"), "{said}");
    // It concerns a task that is not in this pass, so it stays for a host.
    let (code, trigger) = site.json(&["task", "trigger", "share-expiry", "--wait", "0s"]);
    assert_eq!(code, 0, "{trigger:#}");
    let (code, said) = site.said(&["run", "compaction"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("commands waiting for a host: 1"), "{said}");
    assert!(!said.contains("new dead letter"), "{said}");
    let (_, shown) = site.json(&["doc", "show", "first/gap"]);
    assert_eq!(shown["rows"], 1, "it is compacted: {shown:#}");
    assert_eq!(site.json(&["dead", "ls"]).1, serde_json::json!([]));
    let trigger = trigger["command"].to_string();
    let result = || site.json(&["commands", "show", &trigger]).1["result"].clone();
    assert_eq!(result(), Value::Null);

    // The task of the trigger is in this pass.
    assert_eq!(site.said(&["run", "share-expiry"]).0, 0);
    assert_eq!(result(), "started");
    site.balanced();
}

/// Discarding needs no task at all.
#[test]
fn a_pass_discards_dead_letters_of_tasks_that_it_does_not_run() {
    let site = site();
    assert_eq!(site.said(&["run", "compaction"]).0, 1);
    let discard = ["dead", "discard", "--all", "--reason", "known", "--wait", "0s"];
    assert_eq!(site.said(&discard).0, 0);
    let (code, passed) = site.json(&["run", "share-expiry"]);
    assert_eq!((code, &of(&passed, "share-expiry")["dead"]), (0, &0.into()), "{passed:#}");
    assert_eq!(site.json(&["dead", "ls"]).1, serde_json::json!([]));
    let audit = site.balanced();
    assert_eq!(row_of(&audit["tasks"], "compaction")["discarded"], 1, "{audit:#}");
}

/// A pass does not run a paused task, whether or not a host has applied the pause yet.
#[test]
fn a_paused_task_is_left_out_of_a_pass() {
    let site = site();
    let pause = ["task", "pause", "share-expiry", "--reason", "incident", "--wait", "0s"];
    assert_eq!(site.said(&pause).0, 0);
    let (code, said) = site.said(&["run", "share-expiry"]);
    assert!(code == 1 && said.contains("Waiting commands were applied"), "{said}");
    assert_eq!(site.json(&["commands", "ls"]).1[0]["applied_at"].is_null(), false);
    let (code, said) = site.said(&["run", "share-expiry"]);
    assert!(code == 1 && !said.contains("were applied"), "{said}");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "the other task has a new dead letter: {said}");
    assert!(said.contains("share-expiry is paused by") && said.contains("incident"), "{said}");
    assert!(!said.contains("commands waiting for a host"), "the pass has applied it: {said}");
    let open = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
    let count = || site.database().query_row(open, [], |r| r.get::<_, i64>(0)).expect("a number");
    assert_eq!(count(), 2);
    let (code, said) = site.said(&["run", "share-expiry"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("besom task resume share-expiry"), "{said}");
    assert_eq!(count(), 2);
    assert_eq!(site.said(&["run", "share-expiry", "--even-paused"]).0, 0);
    assert_eq!(count(), 1);
}

/// A plugin that plans the same item under a new version at every scan.
#[test]
fn a_pass_that_plans_without_end_is_ended_and_says_by_whom() {
    let site = Site::new(&format!(
        "[host]\npass_rounds_max = 5\n{}",
        hostile("endless", "keys:k1", "schedule = \"@hourly\"")
    ));
    site.add_hostile();
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("endless still plans items after 5 rounds (host.pass_rounds_max)"),
        "{said}"
    );
    let audit = site.balanced();
    let books = row_of(&audit["tasks"], "endless");
    assert_eq!((&books["planned"], &books["pending"]), (&5.into(), &0.into()), "{audit:#}");
}

/// Rows that are set, and that a trigger of the product sets back.
#[test]
fn a_pass_ends_that_finds_what_it_has_changed_as_it_was() {
    let site = Site::new(
        "[host]\npass_idle_rounds_max = 3\n[tasks.locks]\nplugin = \"retention\"\nschedule = \"@hourly\"\n\
         collections.rows = \"jobs\"\nsettings = { by = \"at\", older_than = \"1h\", where = \"state = 'held'\", \
         action = \"set\", set = \"state = 'free'\" }\n[collections.jobs]\nkey = [\"id\"]\nindexes.by_at = [\"at\"]\n\
         columns = { id = \"integer\", state = \"text\", at = { type = \"timestamp\", encoding = \"seconds\" } }\n",
    );
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT, at INTEGER);
         CREATE INDEX jobs_by_at ON jobs (at, id);
         CREATE TRIGGER held_again AFTER UPDATE ON jobs WHEN new.id < 3 BEGIN
           UPDATE jobs SET state = 'held' WHERE id = new.id; END;
         INSERT INTO jobs VALUES (1, 'held', 1), (2, 'held', 1), (3, 'held', 1);",
    )
    .expect("created");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    let words =
        "locks changed the same items in 3 rounds in a row, and found them again as they were";
    assert!(said.contains(words), "{said}");
    let audit = site.balanced();
    assert_eq!(row_of(&audit["tasks"], "locks")["rows"], 3 + 4 * 2, "{audit:#}");
}

/// Passes leave no state of the schedule, but their runs show when the tables were scanned last.
#[test]
fn a_task_that_only_passes_scan_is_overdue_once_a_slot_has_passed() {
    let site = Site::new(&CONFIG.replace("@every 1h", "@every 1s"));
    site.create_tables();
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    let overdue = || site.task("share-expiry")["overdue_seconds"].as_f64().expect("a number");
    assert!(overdue() < 1.0, "{}", overdue());
    crate::site::wait_for("the task to be overdue", || (overdue() > 5.0).then_some(()));
}

/// Without a host, nobody applies it before the next pass does.
#[test]
fn a_pause_that_is_only_recorded_is_shown() {
    let site = crate::brakes::site("mode = \"live\"");
    let note = || String::from_utf8(site.besom(&["status"]).stdout).expect("a text");
    assert!(!note().contains("has asked to"), "{}", note());
    let (code, said) = site.said(&["task", "pause", "old", "--reason", "wait", "--wait", "0s"]);
    assert_eq!(code, 0, "{said}");
    assert!(note().contains("has asked to pause it (command 1), not applied yet"), "{}", note());
    assert_eq!(site.task("old")["recorded"]["what"], "pause");
    site.said(&["run"]);
    assert!(note().contains("paused by"), "{}", note());
    let (code, said) = site.said(&["task", "resume", "old", "--wait", "0s"]);
    assert_eq!(code, 0, "{said}");
    assert!(note().contains("has asked to resume it"), "{}", note());
}
