//! What stops a task: brakes, pauses and windows, as an operator meets them.

use std::time::Duration;

use besom_core::time::Time;
use serde_json::Value;

use crate::load::{SECOND_US, now_us};
use crate::site::{Site, hostile, wait_for};

pub(crate) const OLD: u32 = 1_000;
pub(crate) const ALL: u32 = 2_000;

/// A retention task with these keys, over sessions of which half are old: 10 items of 100 rows.
pub(crate) fn old_sessions(keys: &str) -> String {
    format!(
        "[collections.sessions]\nkey = [\"id\"]\nindexes = {{ by_at = [\"at\"] }}\n\
         columns = {{ id = \"integer\", at = {{ type = \"timestamp\", encoding = \"seconds\" }} }}\n\
         [tasks.old]\nplugin = \"retention\"\nschedule = \"@every 1s\"\n\
         collections = {{ rows = \"sessions\" }}\n\
         settings = {{ by = \"at\", older_than = \"1d\", chunk = 100 }}\n{keys}\n"
    )
}

pub(crate) fn site(keys: &str) -> Site {
    let site = Site::new(&old_sessions(keys));
    let db = site.database();
    db.execute_batch(&format!(
        "CREATE TABLE sessions (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);
         CREATE INDEX by_at ON sessions (at);
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {ALL})
         INSERT INTO sessions SELECT i, CASE WHEN i <= {OLD} THEN i ELSE unixepoch() END FROM n;"
    ))
    .expect("a table");
    drop(db);
    let (code, said) = site.said(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    // Creates Besom's tables.
    let (code, said) = site.said(&["run", "--dry-run"]);
    assert_eq!(code, 0, "{said}");
    site
}

pub(crate) fn sessions(site: &Site) -> u32 {
    let count = "SELECT count(*) FROM sessions";
    site.database().query_row(count, [], |row| row.get(0)).expect("a number")
}

/// Runs a verb that the leader applies, and returns its result.
#[track_caller]
pub(crate) fn applied(site: &Site, verb: &[&str]) -> String {
    let (code, said) = site.json(verb);
    assert_eq!((code, &said["applied"]), (0, &Value::Bool(true)), "{verb:?}: {said:#}");
    said["result"].as_str().unwrap_or_default().to_owned()
}

/// Runs a verb that the leader refuses, and returns the reason.
#[track_caller]
pub(crate) fn refused(site: &Site, verb: &[&str]) -> String {
    let (code, said) = site.json(verb);
    assert_eq!((code, &said["refused"]), (1, &Value::Bool(true)), "{verb:?}: {said:#}");
    said["result"].as_str().unwrap_or_default().to_owned()
}

/// What a verb prints for a person.
fn printed(site: &Site, verb: &[&str]) -> String {
    String::from_utf8(site.besom(verb).stdout).expect("a text")
}

/// The status as a person reads it.
pub(crate) fn status(site: &Site) -> String {
    printed(site, &["status"])
}

#[track_caller]
pub(crate) fn braked(site: &Site) -> String {
    let reason = wait_for("the brake", || {
        let task = site.task("old");
        let is_braked = task["paused"]["by"] == "brake";
        is_braked.then(|| task["paused"]["reason"].as_str().unwrap_or_default().to_owned())
    });
    let status = status(site);
    // A cell of the table is cut.
    let shown: String = reason.chars().take(100).collect();
    assert!(status.contains(&format!("stopped by a brake: {shown}")), "{status}");
    reason
}

#[test]
fn a_run_that_wants_too_much_of_a_collection_is_stopped_before_it_deletes_more() {
    let brake = "max_delete = \"5%\"\nmax_delete_floor = 150";
    let site = site(brake);
    let mut host = site.serve();
    host.leads();
    let reason = braked(&site);
    assert!(reason.contains("wanted to delete at least 500 rows of sessions"), "{reason}");
    assert!(reason.contains("allowed: 150 (of about 2000); usual: unknown"), "{reason}");
    assert_eq!(sessions(&site), ALL, "nothing is gone");
    assert_eq!(site.task("old")["waiting"], 10, "what was planned is kept");
    let (_, said) = site.json(&["commands", "ls"]);
    let brakes = said.as_array().expect("a list").iter().filter(|row| row["by"] == "brake");
    assert_eq!(brakes.count(), 1, "{said:#}");
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("paused by brake"), "{why}");
    let (_, runs) = site.json(&["runs", "ls"]);
    assert_eq!((&runs[0]["state"], &runs[0]["stands"]), (&"executing".into(), &"braked".into()));
    assert_eq!(runs[0]["stands_because"], format!("stopped by a brake: {reason}"), "{runs:#}");
    let run = printed(&site, &["runs", "show", &runs[0]["run"].to_string()]);
    assert!(run.contains(&reason) && !run.contains("executing"), "{run}");

    // The brake stays as it is, and whoever resumes the task is told.
    let (code, said) = site.json(&["task", "resume", "old"]);
    assert_eq!((code, &said["applied"]), (0, &Value::Bool(true)), "{said:#}");
    let warning = said["warning"].as_str().expect("a warning");
    let beyond = "is still beyond max_delete: it wants at least 500 rows of sessions; allowed: 150";
    assert!(warning.contains(beyond) && warning.contains("--release"), "{warning}");
    braked(&site);
    assert_eq!(sessions(&site), ALL);

    let said = applied(&site, &["task", "discard", "old", "--reason", "a wrong rule"]);
    assert_eq!(said, "discarded: 10 items");
    assert_eq!(site.task("old")["waiting"], 0);
    let audit = site.balanced();
    assert_eq!(audit["tasks"][0]["discarded"], 10, "{audit:#}");
    // A person takes the pause over.
    let said = applied(&site, &["task", "pause", "old", "--reason", "INC-8"]);
    assert!(said.contains("in place of the brake: run "), "{said}");
    let task = site.task("old");
    assert_eq!(task["paused"]["reason"], "INC-8", "{task:#}");
    assert_ne!(task["paused"]["by"], "brake", "{task:#}");
    let since = task["paused"]["since"].as_str().expect("an instant as the others are");
    assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    let why = refused(&site, &["task", "pause", "old", "--reason", "x"]);
    assert!(why.contains("already paused by") && why.contains("INC-8"), "{why}");

    // The next run plans the same rows again, and is stopped again; a person lets it go on.
    let (_, said) = site.json(&["task", "resume", "old"]);
    assert_eq!(said["warning"], Value::Null, "nothing is planned: {said:#}");
    braked(&site);
    assert_eq!(site.task("old")["last_result"], "braked");
    let release = ["task", "resume", "old", "--release", "--reason", "it is right after all"];
    let (_, said) = site.json(&release);
    assert_eq!((&said["applied"], &said["warning"]), (&Value::Bool(true), &Value::Null));
    wait_for("the rows to go", || (sessions(&site) == ALL - OLD).then_some(()));
    // What a person has let go is not usual.
    site.database()
        .execute("UPDATE sessions SET at = 1 WHERE id > ?1", [ALL - 200])
        .expect("more old rows");
    let reason = braked(&site);
    assert!(reason.contains("; usual: unknown"), "{reason}");
    // A later resumption does not make it usual.
    applied(&site, &["task", "discard", "old", "--reason", "a wrong rule"]);
    applied(&site, &["task", "resume", "old"]);
    let reason = braked(&site);
    assert!(reason.contains("; usual: unknown"), "{reason}");
    host.stop();
    site.balanced();
}

#[test]
fn rows_that_go_with_others_and_those_of_a_small_table_are_limited() {
    let config = format!(
        "{}[collections.events]\nkey = [\"id\"]\nindexes = {{ by_session = [\"session\"] }}\n\
         columns = {{ id = \"integer\", session = \"integer\" }}\n\
         anchor = {{ collection = \"sessions\", columns = [\"session\"] }}\n",
        old_sessions("max_delete = \"60%\"")
            .replace("[tasks.old]", "dependants = [\"events\"]\n[tasks.old]")
            .replace("chunk = 100", "chunk = 500"),
    );
    let site = Site::new(&config);
    // Half of the sessions are old, but they have most of the events.
    site.database()
        .execute_batch(
            "CREATE TABLE sessions (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);
             CREATE INDEX by_at ON sessions (at);
             CREATE TABLE events (id INTEGER PRIMARY KEY, session INTEGER NOT NULL REFERENCES sessions);
             CREATE INDEX by_session ON events (session);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
             INSERT INTO sessions SELECT i, CASE WHEN i <= 100 THEN i ELSE unixepoch() END FROM n;
             INSERT INTO events (session) SELECT id FROM sessions WHERE id > 170;
             INSERT INTO events (session) SELECT id FROM sessions WHERE id <= 100;
             INSERT INTO events (session) SELECT id FROM sessions WHERE id <= 100;",
        )
        .expect("tables");
    site.configure(&config.replace("max_delete", "mode = \"preview\"\nmax_delete"));
    let (_, row) = passed(&site, &["run"]);
    let wanted = "wants at least 200 rows of events; allowed: 138 (of about 230)";
    let brake = row["review"]["brake"].as_str().unwrap_or_default();
    assert!(brake.contains(wanted), "{row:#}");
    site.configure(&config);
    let (code, row) = passed(&site, &["run"]);
    let reason = row["braked"].as_str().unwrap_or_default();
    let wanted = "wanted to delete at least 200 rows of events; allowed: 138 (of about 230)";
    assert!(code == 1 && reason.contains(wanted), "{row:#}");
    assert_eq!(sessions(&site), 200);
    // Without its events, the table is as good as emptied by a rule that takes all of it.
    site.configure(&old_sessions("max_delete = \"60%\"").replace("1d", "0s"));
    site.database().execute_batch("DROP TABLE events; ANALYZE").expect("a table");
    let resumed = ["task", "resume", "old", "--wait", "0s"];
    assert_eq!(site.said(&["task", "discard", "old", "--reason", "x", "--wait", "0s"]).0, 0);
    assert_eq!(site.said(&resumed).0, 0);
    let (code, row) = passed(&site, &["run"]);
    let reason = row["braked"].as_str().unwrap_or_default();
    assert!(code == 1 && reason.contains("allowed: 120 (of about 200)"), "{row:#}");
    site.balanced();
}

#[test]
fn a_release_leaves_what_earlier_runs_tell_of_the_usual() {
    let site = site("max_delete = 50");
    let age = |rows: u32| {
        let sql = "UPDATE sessions SET at = CASE WHEN id > ?1 THEN 1 ELSE unixepoch() END";
        site.database().execute(sql, [ALL - rows]).expect("old rows");
    };
    let pass = || {
        let (_, row) = passed(&site, &["run", "old", "--even-paused"]);
        row["braked"].as_str().unwrap_or_default().to_owned()
    };
    age(5);
    assert_eq!(pass(), "");
    age(200);
    let reason = pass();
    assert!(reason.contains("; usual: 5"), "{reason}");
    let release = ["task", "resume", "old", "--release", "--reason", "it is right"];
    assert_eq!(site.said(&[release.as_slice(), &["--wait", "0s"]].concat()).0, 0);
    assert_eq!(pass(), "");
    assert_eq!(sessions(&site), ALL - 200);
    age(400);
    let reason = pass();
    assert!(reason.contains("; usual: 5"), "{reason}");
    site.balanced();
}

/// The row of the task in the JSON of a pass, and the exit code.
#[track_caller]
fn passed(site: &Site, verb: &[&str]) -> (i32, Value) {
    let begun = std::time::Instant::now();
    let (code, passed) = site.json(verb);
    assert!(begun.elapsed() < Duration::from_secs(60), "{verb:?}: {:?}", begun.elapsed());
    let row = passed.as_array().and_then(|rows| rows.iter().find(|row| row["task"] == "old"));
    (code, row.unwrap_or_else(|| panic!("{verb:?}: {passed:#}")).clone())
}

#[test]
fn a_pass_ends_with_the_brake_of_a_task_that_is_paused_already() {
    let site = site("max_delete = 300");
    let braked_again = |verb: &[&str]| {
        let (code, row) = passed(&site, verb);
        let reason = row["braked"].as_str().unwrap_or_default();
        assert!(reason.contains("allowed: 300"), "{verb:?}: {row:#}");
        assert_eq!((code, &row["error"]), (1, &Value::Null), "{verb:?}: {row:#}");
        assert_eq!(sessions(&site), ALL, "{verb:?}");
    };
    braked_again(&["run"]);
    assert_eq!(site.task("old")["paused"]["by"], "brake");
    let planned = site.task("old")["waiting"].clone();
    // Nothing of it is done, and nobody takes that for a success.
    braked_again(&["run"]);
    let (code, row) = passed(&site, &["run"]);
    assert_eq!((code, &row["planned"], &row["pending"]), (1, &Value::from(0), &planned));
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    for words in [
        "old is stopped by a brake: run ",
        "`besom task discard old --reason ...`",
        "raise the limit",
        "`besom task resume old`",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    braked_again(&["run", "--even-paused"]);
    assert_eq!(site.task("old")["paused"]["by"], "brake");
    // The pause of a person stays that person's.
    let paused = ["task", "pause", "old", "--reason", "INC-3", "--wait", "0s"];
    assert_eq!(site.said(&paused).0, 0);
    let shown = status(&site);
    assert!(shown.contains("has asked to pause it (command "), "{shown}");
    assert!(shown.contains("; stopped by a brake: run "), "{shown}");
    assert_eq!(site.said(&["run"]).0, 0, "somebody has taken it over");
    assert_eq!(site.task("old")["paused"]["reason"], "INC-3");
    braked_again(&["run", "--even-paused"]);
    assert_eq!(site.task("old")["paused"]["reason"], "INC-3");
    site.balanced();
}

#[test]
fn any_pass_applies_pauses_resumptions_and_discards() {
    let other = "[tasks.other]\nplugin = \"retention\"\ncollections = { rows = \"sessions\" }\n\
                 settings = { by = \"at\", older_than = \"36500d\" }\n";
    let configured = |keys: &str| format!("{}{other}", old_sessions(keys));
    let site = site("max_delete = 300");
    site.configure(&configured("max_delete = 300"));
    assert_eq!(passed(&site, &["run"]).0, 1);
    let asked = |verb: &[&str]| {
        let (code, said) = site.json(&[verb, &["--wait", "0s"]].concat());
        assert_eq!((code, &said["applied"]), (0, &Value::Bool(false)), "{said:#}");
    };
    let passes = |code: i32| {
        let (exit, said) = site.said(&["run", "other"]);
        assert_eq!(exit, code, "{said}");
        assert!(!said.contains("commands waiting"), "{said}");
        assert_eq!(sessions(&site), ALL);
        site.task("old")
    };
    asked(&["task", "pause", "old", "--reason", "INC-4"]);
    assert_eq!(passes(0)["paused"]["reason"], "INC-4");
    asked(&["task", "discard", "old", "--reason", "a wrong rule"]);
    assert_eq!(passes(0)["waiting"], 0);
    asked(&["task", "resume", "old"]);
    assert_eq!(passes(0)["paused"], Value::Null);
    // What is planned now is judged by the limit that the file has when the task is resumed.
    assert_eq!(passed(&site, &["run", "old"]).0, 1);
    let resumed = || site.json(&["task", "resume", "old", "--wait", "0s"]).1["warning"].clone();
    assert!(resumed().as_str().is_some_and(|words| words.contains("stopped again")));
    assert_eq!(passed(&site, &["run", "old"]).0, 1);
    // What waits to be discarded does not stop it again.
    asked(&["task", "discard", "old", "--reason", "a wrong rule"]);
    assert_eq!(resumed(), Value::Null);
    site.configure(&configured("max_delete = 1000"));
    asked(&["task", "resume", "old"]);
    passes(0);
    assert_eq!(passed(&site, &["run", "old"]).0, 0);
    assert_eq!(sessions(&site), ALL - OLD);
    site.balanced();
}

#[test]
fn a_verb_that_is_repeated_while_nobody_leads_asks_for_one_thing() {
    let site = site("");
    assert_eq!(site.said(&["run"]).0, 0);
    let pause = ["task", "pause", "old", "--reason", "INC-5", "--wait", "0s"];
    let resume = ["task", "resume", "old", "--wait", "0s"];
    let number = |verb: &[&str]| {
        let (code, said) = site.json(verb);
        assert_eq!(code, 0, "{said:#}");
        (said["command"].as_u64().expect("a number"), said["repeated"] == true)
    };
    let (first, _) = number(&pause);
    assert_eq!(number(&pause), (first, true));
    let said = printed(&site, &pause);
    assert!(said.contains("already: you have asked for the same before"), "{said}");
    let other = ["task", "pause", "old", "--reason", "another", "--wait", "0s"];
    assert_eq!(number(&other), (first + 1, false), "the reason is recorded");
    let (resumed, repeated) = number(&resume);
    assert!(!repeated);
    assert_eq!(number(&resume), (resumed, true));
    assert_eq!(number(&pause), (resumed + 1, false), "after the resumption it is another pause");
}

#[test]
fn a_run_that_plans_many_times_the_usual_is_named_without_a_limit() {
    let site = Site::new(&old_sessions("").replace("chunk = 100", "chunk = 0"));
    site.database()
        .execute_batch(
            "CREATE TABLE sessions (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);
         CREATE INDEX by_at ON sessions (at);",
        )
        .expect("a table");
    let pass = |rows: u32| {
        let sql = format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
             INSERT INTO sessions (at) SELECT i FROM n"
        );
        site.database().execute_batch(&sql).expect("old rows");
        let (code, row) = passed(&site, &["run"]);
        assert_eq!((code, &row["planned"]), (0, &Value::from(rows)), "{row:#}");
        site.task("old")["unusual"].clone()
    };
    for _ in 0..5 {
        assert_eq!(pass(3), Value::Null);
    }
    let unusual = pass(101);
    assert_eq!((&unusual["planned"], &unusual["usual"]), (&Value::from(101), &Value::from(3)));
    let said = status(&site);
    assert!(said.contains("has planned 101 items, more than 10 times the usual 3"), "{said}");
    assert_eq!(pass(3), Value::Null, "the last run is usual");
}

#[test]
fn a_brake_that_is_raised_in_the_file_lets_the_planned_run_go_on() {
    let site = site("max_delete = 300");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("old was stopped during the pass by a brake: run "), "{said}");
    assert_eq!(sessions(&site), ALL);
    site.configure(&old_sessions("max_delete = 1000"));
    let mut host = site.serve();
    host.leads();
    applied(&site, &["task", "resume", "old"]);
    wait_for("the rows to go", || (sessions(&site) == ALL - OLD).then_some(()));
    host.stop();
    site.balanced();
}

#[test]
fn a_plan_that_is_approved_is_judged_by_the_limit_of_the_file() {
    let site = site("mode = \"approve\"\nmax_delete = 300");
    let (code, said) = site.json(&["run"]);
    assert_eq!(code, 0, "{said:#}");
    let run = said[0]["review"]["run"].as_u64().expect("a review").to_string();
    site.configure(&old_sessions("mode = \"approve\"\nmax_delete = 1000"));
    assert_eq!(site.json(&["review", "approve", &run, "--wait", "0s"]).0, 0);
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert_eq!(sessions(&site), ALL - OLD);
    site.balanced();
}

#[test]
fn too_many_items_that_are_set_aside_pause_the_task() {
    let site = poisoned("max_dead_letters = 2");
    let mut host = site.serve();
    host.leads();
    let reason = braked(&site);
    assert!(reason.contains("run 1 wanted to set aside at least "), "{reason}");
    assert!(reason.contains("allowed: 2; usual: unknown"), "{reason}");
    let dead = site.task("old")["dead"].as_u64().expect("a number");
    assert!(dead <= 2, "{dead}");
    applied(&site, &["task", "resume", "old", "--release", "--reason", "they are all broken"]);
    wait_for("the others", || site.task("old")["dead"].as_u64().filter(|n| *n > 2));
    host.stop();
    site.balanced();
}

/// A task of which each of four items fails for good.
fn poisoned(keys: &str) -> Site {
    let keys = format!("schedule = \"@every 1s\"\nretry.attempts_max = 1\n{keys}");
    let site = Site::new(&hostile("old", "keys:panic,divide,recurse,unknown-read-set", &keys));
    site.add_hostile();
    site
}

#[test]
fn a_pass_sets_aside_no_more_items_than_it_may() {
    let site = poisoned("max_dead_letters = 2");
    let (code, row) = passed(&site, &["run"]);
    assert_eq!(code, 1, "{row:#}");
    let reason = row["braked"].as_str().unwrap_or_default();
    assert!(reason.contains("wanted to set aside at least "), "{row:#}");
    let (dead, pending) = (row["dead"].as_u64(), row["pending"].as_u64());
    assert!(dead <= Some(2) && dead.zip(pending).map(|(a, b)| a + b) == Some(4), "{row:#}");
    site.balanced();
    // Whoever raises the limit before the resumption is not warned.
    site.configure(&hostile(
        "old",
        "keys:panic,divide,recurse,unknown-read-set",
        "schedule = \"@every 1s\"\nretry.attempts_max = 1\nmax_dead_letters = 9",
    ));
    let (_, said) = site.json(&["task", "resume", "old", "--wait", "0s"]);
    assert_eq!(said["warning"], Value::Null, "{said:#}");
}

#[test]
fn a_pass_whose_runs_fail_is_told_of_the_brake() {
    let site = Site::new(&hostile("old", "fat", "max_failed_runs = 1"));
    site.add_hostile();
    let (code, row) = passed(&site, &["run"]);
    assert_eq!(code, 1, "{row:#}");
    let reason = row["braked"].as_str().unwrap_or_default();
    assert!(reason.starts_with("1 run in a row failed"), "{row:#}");
    let task = site.task("old");
    assert_eq!(task["paused"]["by"], "brake", "the pass has applied it: {task:#}");
    let (_, status) = site.json(&["status"]);
    assert_eq!(status["commands_waiting"], 0);
}

#[test]
fn runs_that_fail_one_after_the_other_pause_the_task() {
    let keys = "schedule = \"@every 1s\"\nmax_failed_runs = 2";
    let site = Site::new(&hostile("old", "fat", keys));
    site.add_hostile();
    let mut host = site.serve();
    host.leads();
    let reason = braked(&site);
    assert!(reason.starts_with("2 runs in a row failed"), "{reason}");
    let (_, runs) = site.json(&["runs", "ls", "--task", "old"]);
    assert!(runs.as_array().expect("runs").len() <= 3, "{runs:#}");
    host.stop();
}

/// The number of sessions does not change for so long.
#[track_caller]
fn stands_still(site: &Site) -> u32 {
    let before = sessions(site);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(sessions(site), before);
    before
}

#[test]
fn what_is_planned_of_a_paused_task_waits_until_it_is_resumed() {
    let site = site("rows_per_second = 100\nlimits.batch_items = 1");
    let mut host = site.serve();
    host.leads();
    wait_for("the first rows to go", || (sessions(&site) < ALL).then_some(()));
    applied(&site, &["task", "pause", "old", "--reason", "INC-7"]);
    let left = stands_still(&site);
    assert!(left > ALL - OLD, "{left}");
    assert!(site.task("old")["waiting"].as_u64() > Some(0));
    let task = site.task("old");
    assert_eq!((&task["overdue_seconds"], &task["last_result"]), (&0.0.into(), &"paused".into()));
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("INC-7"), "{why}");
    let (code, said) = site.said(&["task", "discard", "other", "--reason", "x"]);
    assert_eq!(code, 2, "{said}");
    // Another host finds it paused as well.
    host.stop();
    let mut host = site.serve();
    host.leads();
    stands_still(&site);
    let resumed = std::time::Instant::now();
    applied(&site, &["task", "resume", "old"]);
    let overdue = site.task("old")["overdue_seconds"].as_f64().expect("a number");
    let since = resumed.elapsed().as_secs_f64();
    assert!(overdue <= since, "the pause does not count: {overdue} of {since}");
    assert_eq!(site.task("old")["last_result"], "running");
    wait_for("further rows to go", || (sessions(&site) < left).then_some(()));
    let why = refused(&site, &["task", "discard", "old", "--reason", "x"]);
    assert!(why.contains("pause it first with `besom task pause old --reason TEXT`"), "{why}");
    host.stop();
    site.balanced();
}

#[test]
fn one_stop_holds_all_tasks_until_they_are_resumed() {
    let site = site("");
    assert_eq!(site.said(&["pause", "--reason", "x"]).0, 2, "all or nothing");
    assert_eq!(site.said(&["pause", "--all", "--reason", " "]).0, 2);
    assert_eq!(site.said(&["pause", "--all", "--reason", "INC-9", "--wait", "0s"]).0, 0);
    let mut host = site.serve();
    host.leads();
    let status = wait_for("the pause", || {
        let (_, status) = site.json(&["status"]);
        (status["all_paused"]["reason"] == "INC-9").then_some(status)
    });
    assert_eq!(status["tasks"][0]["paused"]["reason"], "INC-9", "{status:#}");
    assert!(status["tasks"][0]["next"].is_null(), "{status:#}");
    let said = self::status(&site);
    assert!(said.contains("all tasks paused") && said.contains("INC-9"), "{said}");
    let before = stands_still(&site);
    let why = refused(&site, &["pause", "--all", "--reason", "again"]);
    assert!(why.contains("all tasks are already paused by") && why.contains("INC-9"), "{why}");
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("INC-9"), "{why}");
    let why = refused(&site, &["task", "resume", "old"]);
    assert!(why.contains("`besom resume --all`"), "{why}");
    host.stop();
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("old is paused with all tasks by"), "{said}");
    let said = printed(&site, &["run"]);
    assert!(said.contains("All tasks were skipped.") && !said.contains("No tasks"), "{said}");
    assert_eq!(sessions(&site), before);
    let mut host = site.serve();
    host.leads();
    assert_eq!(applied(&site, &["resume", "--all"]), "resumed");
    wait_for("the rows to go", || (sessions(&site) == ALL - OLD).then_some(()));
    assert!(site.json(&["status"]).1["all_paused"].is_null());
    let why = refused(&site, &["resume", "--all"]);
    assert!(why.contains("no pause of all tasks"), "{why}");
    host.stop();
    site.balanced();
}

/// The hours around an instant, as a window.
fn window(from_us: i64, to_us: i64) -> String {
    let clock = |at: i64| Time(at).to_jiff().strftime("%H:%M").to_string();
    format!("windows = [\"{}-{}\"]", clock(from_us), clock(to_us))
}

#[test]
fn outside_its_windows_a_task_neither_scans_nor_executes_and_says_when_it_opens() {
    let hour = 3_600 * SECOND_US;
    let closed = window(now_us() + 2 * hour, now_us() + 4 * hour);
    let site = site(&closed);
    let mut host = site.serve();
    host.leads();
    assert_eq!(stands_still(&site), ALL);
    let task = site.task("old");
    assert!(task["opens"].is_string() && task["next"].is_string(), "{task:#}");
    assert!(task["next"].as_str() >= task["opens"].as_str(), "{task:#}");
    let said = status(&site);
    assert!(said.contains("closed: opens in "), "{said}");
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("outside its windows: it opens at "), "{why}");
    let (_, said) = site.json(&["runs", "ls"]);
    assert_eq!(said, serde_json::json!([]));
    site.configure(&old_sessions(&window(now_us() - 2 * hour, now_us() + 2 * hour)));
    wait_for("the rows to go", || (sessions(&site) == ALL - OLD).then_some(()));
    assert!(site.task("old")["opens"].is_null());
    host.stop();
    site.configure(&old_sessions(&closed));
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("old is outside its windows: it opens at "), "{said}");
    site.balanced();
}
