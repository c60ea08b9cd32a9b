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

/// The status as a person reads it.
pub(crate) fn status(site: &Site) -> String {
    String::from_utf8(site.besom(&["status"]).stdout).expect("a text")
}

#[track_caller]
pub(crate) fn braked(site: &Site) -> String {
    let reason = wait_for("the brake", || {
        let task = site.task("old");
        let is_braked = task["paused"]["by"] == "brake";
        is_braked.then(|| task["paused"]["reason"].as_str().unwrap_or_default().to_owned())
    });
    let status = status(site);
    assert!(status.contains(&format!("stopped by a brake: {reason}")), "{status}");
    reason
}

#[test]
fn a_run_that_wants_too_much_of_a_collection_is_stopped_before_it_deletes_more() {
    let brake = "max_delete = \"5%\"\nmax_delete_floor = 150";
    let site = site(brake);
    let mut host = site.serve();
    host.leads();
    let reason = braked(&site);
    assert!(reason.contains("wanted to delete at least 1000 rows of sessions"), "{reason}");
    assert!(reason.contains("allowed: 150 (of about 2000); usual: unknown"), "{reason}");
    assert_eq!(sessions(&site), ALL, "nothing is gone");
    assert_eq!(site.task("old")["waiting"], 10, "what was planned is kept");
    let (_, said) = site.json(&["commands", "ls"]);
    let brakes = said.as_array().expect("a list").iter().filter(|row| row["by"] == "brake");
    assert_eq!(brakes.count(), 1, "{said:#}");
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("paused by brake"), "{why}");

    // The brake stays as it is.
    applied(&site, &["task", "resume", "old"]);
    braked(&site);
    assert_eq!(sessions(&site), ALL);

    let said = applied(&site, &["task", "discard", "old", "--reason", "a wrong rule"]);
    assert_eq!(said, "discarded: 10 items");
    assert_eq!(site.task("old")["waiting"], 0);
    let audit = site.balanced();
    assert_eq!(audit["tasks"][0]["discarded"], 10, "{audit:#}");
    let why = refused(&site, &["task", "pause", "old", "--reason", "x"]);
    assert!(why.contains("already paused by brake"), "{why}");

    // The next run plans the same rows again, and is stopped again; a person lets it go on.
    applied(&site, &["task", "resume", "old"]);
    braked(&site);
    applied(&site, &["task", "resume", "old", "--release", "--reason", "it is right after all"]);
    wait_for("the rows to go", || (sessions(&site) == ALL - OLD).then_some(()));
    host.stop();
    site.balanced();
}

#[test]
fn a_brake_that_is_raised_in_the_file_lets_the_planned_run_go_on() {
    let site = site("max_delete = 300");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("old was paused during the pass by brake"), "{said}");
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
fn too_many_items_that_are_set_aside_pause_the_task() {
    let keys = "schedule = \"@every 1s\"\nretry.attempts_max = 1\nmax_dead_letters = 1";
    let site = Site::new(&hostile("old", "keys:panic", keys));
    site.add_hostile();
    let mut host = site.serve();
    host.leads();
    let reason = braked(&site);
    assert!(reason.contains("of run 1 were set aside; allowed: 1"), "{reason}");
    applied(&site, &["task", "resume", "old"]);
    host.stop();
    site.balanced();
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
    assert_eq!(site.task("old")["overdue_seconds"], 0.0);
    let why = refused(&site, &["task", "trigger", "old"]);
    assert!(why.contains("INC-7"), "{why}");
    let (code, said) = site.said(&["task", "discard", "other", "--reason", "x"]);
    assert_eq!(code, 2, "{said}");
    // Another host finds it paused as well.
    host.stop();
    let mut host = site.serve();
    host.leads();
    stands_still(&site);
    applied(&site, &["task", "resume", "old"]);
    wait_for("further rows to go", || (sessions(&site) < left).then_some(()));
    let why = refused(&site, &["task", "discard", "old", "--reason", "x"]);
    assert!(why.contains("pause it first with `besom task pause old`"), "{why}");
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
    let (_, said) = site.said(&["run"]);
    assert!(said.contains("old is paused with all tasks by"), "{said}");
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
