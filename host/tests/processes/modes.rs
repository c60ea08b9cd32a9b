//! Modes: a run is previewed, waits for an approval, or is live, as an operator meets it.

use serde_json::Value;

use crate::brakes::{ALL, OLD, applied, braked, old_sessions, sessions, site, status};
use crate::site::{Site, wait_for};

/// The newest review of the task, once it has that state.
#[track_caller]
fn review(site: &Site, state: &str) -> Value {
    wait_for("a review", || {
        let (_, said) = site.json(&["review", "ls", "--task", "old"]);
        let newest = said.as_array().and_then(|all| all.first()).cloned()?;
        (newest["state"] == state).then_some(newest)
    })
}

/// The run of a review, as an argument.
fn run_of(review: &Value) -> String {
    review["run"].as_u64().expect("a number").to_string()
}

fn in_mode(mode: &str) -> String {
    format!("mode = \"{mode}\"")
}

#[test]
fn a_preview_shows_what_would_go_and_changes_nothing() {
    let site = site(&in_mode("preview"));
    let (code, said) = site.json(&["run"]);
    assert_eq!(
        (code, &said[0]["planned"], &said[0]["rows"]),
        (0, &0.into(), &0.into()),
        "{said:#}"
    );
    let shown = review(&site, "shown");
    assert_eq!(shown["summary"], "1000 rows of sessions deleted (50 % of about 2000)", "{shown:#}");
    let text = site.besom(&["review", "show", "old"]);
    let text = String::from_utf8(text.stdout).expect("a text");
    for part in [
        "1000 rows of sessions deleted (50 % of about 2000)",
        "10, 10 would change something",
        "delete sessions (1): id 1, at 1",
        "... and 95 rows more",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (_, whole) = site.json(&["review", "show", &run_of(&shown)]);
    assert_eq!(whole["plan"]["rows"][0]["operation"], "delete", "{whole:#}");
    assert!(whole["plan"]["bytes"].as_u64() > Some(0), "{whole:#}");
    assert_eq!(whole["plan"]["samples"].as_array().map(Vec::len), Some(10));
    assert!(text.contains("kept for undo") && !text.contains("cannot be undone"), "{text}");
    assert_eq!(sessions(&site), ALL);
    site.balanced();
    let forever = crate::brakes::site("mode = \"preview\"\nkeep_removed = \"0s\"");
    assert_eq!(forever.json(&["run"]).0, 0);
    let (_, whole) = forever.json(&["review", "show", "old"]);
    assert_eq!(whole["plan"]["bytes"], 0, "{whole:#}");
    let text = forever.besom(&["review", "show", "old"]).stdout;
    let text = String::from_utf8(text).expect("a text");
    assert!(text.contains("nothing (keep_removed = \"0s\"): this cannot be undone"), "{text}");
    let (code, said) = site.said(&["review", "approve", &run_of(&shown)]);
    assert!(code == 1 && said.contains("nothing to decide"), "{said}");
    let (code, said) = site.said(&["review", "show", "987"]);
    assert!(code == 2 && said.contains("besom review ls"), "{said}");

    // Beside a host, by its schedule; what a run shows is what the table holds at that time.
    let mut host = site.serve();
    host.leads();
    site.database().execute("DELETE FROM sessions WHERE id <= 900", []).expect("deleted");
    wait_for("a preview of the rest", || {
        let (_, said) = site.json(&["review", "ls", "--limit", "1"]);
        let summary = said[0]["summary"].as_str().unwrap_or_default();
        summary.starts_with("100 rows of sessions deleted (").then_some(())
    });
    assert!(status(&site).contains("previews only: besom review show old"), "{}", status(&site));
    let unseen = crate::brakes::site("mode = \"preview\"");
    let said = status(&unseen);
    assert!(said.contains("previews only: besom run old"), "{said}");
    assert_eq!(sessions(&site), ALL - 900);
    host.stop();
    site.balanced();
}

/// A task that names no mode is new to whoever reads the file: it shows what it would do.
#[test]
fn a_task_without_a_mode_is_previewed() {
    let site = site("");
    let mut command = site.command(&["run"]);
    let done = command.env_remove("BESOM_HOST_DEFAULT_MODE").output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!((sessions(&site), &review(&site, "shown")["by"]), (ALL, &"".into()));
    let (code, said) = site.json(&["run"]);
    assert_eq!((code, sessions(&site)), (0, ALL - OLD), "the default of these tests: {said:#}");
}

#[test]
fn a_plan_waits_for_its_approval_and_nothing_else_is_executed() {
    let site = site(&in_mode("approve"));
    let mut host = site.serve();
    host.leads();
    let run = run_of(&review(&site, "waiting"));
    assert_eq!(sessions(&site), ALL);
    let task = site.task("old");
    assert_eq!(
        (&task["waiting"], &task["review"]["run"]),
        (&10.into(), &Value::from(run.parse::<u64>().unwrap()))
    );
    assert!(
        status(&site).contains(&format!("run {run} waits for an approval")),
        "{}",
        status(&site)
    );
    // A host that is killed in between changes nothing about it.
    host.kill();
    let mut host = site.serve();
    host.leads();
    assert_eq!(run_of(&review(&site, "waiting")), run);
    assert_eq!(sessions(&site), ALL);
    // What appears after the plan is not part of it.
    site.database().execute("INSERT INTO sessions VALUES (9999, 5)", []).expect("inserted");
    let said = applied(&site, &["review", "approve", &run, "--reason", "looks right"]);
    assert_eq!(said, "approved");
    wait_for("its rows to go", || (sessions(&site) <= ALL - OLD + 1).then_some(()));
    let next = wait_for("the next plan", || {
        let newest = review(&site, "waiting");
        (run_of(&newest) != run).then_some(newest)
    });
    assert_eq!(sessions(&site), ALL - OLD + 1, "the new row waits");
    assert_eq!(next["summary"], "1 row of sessions deleted (less than 0.1 % of about 1001)");
    let (code, said) = site.said(&["review", "reject", &run_of(&next)]);
    assert!(code == 2 && said.contains("requires a reason"), "{said}");
    let (_, all) = site.json(&["review", "ls"]);
    let first = all.as_array().expect("a list").iter().find(|row| run_of(row) == run);
    assert_eq!(
        first.map(|row| (&row["state"], &row["reason"])),
        Some((&"approved".into(), &"looks right".into()))
    );
    let rejected = applied(&site, &["review", "reject", &run_of(&next), "--reason", "keep it"]);
    assert_eq!(rejected, "rejected, and what was planned discarded: 1 item");
    assert_eq!(sessions(&site), ALL - OLD + 1);
    host.stop();
    let audit = site.balanced();
    assert_eq!(
        (&audit["tasks"][0]["committed"], &audit["tasks"][0]["discarded"]),
        (&10.into(), &1.into()),
        "{audit:#}"
    );
}

/// Two people decide at once: the first decision counts.
#[test]
fn the_first_of_two_decisions_counts() {
    let site = site(&in_mode("approve"));
    let (code, said) = site.json(&["run"]);
    assert_eq!(code, 0, "{said:#}");
    let run = run_of(&review(&site, "waiting"));
    // Nobody leads: the first is recorded, and the other as well if neither verb has seen the other.
    let (code, said) = site.json(&["review", "reject", &run, "--reason", "no", "--wait", "0s"]);
    assert_eq!((code, &said["applied"]), (0, &Value::Bool(false)), "{said:#}");
    let both = "INSERT INTO besom_command (command, by, reason, at)
         SELECT replace(command, 'reject', 'approve'), by, 'yes', at FROM besom_command";
    assert_eq!(site.database().execute(both, []).expect("a command"), 1);
    let (code, said) = site.json(&["run"]);
    assert_eq!(code, 0, "{said:#}");
    let (_, commands) = site.json(&["commands", "ls"]);
    let of = |verb: &str| {
        let rows = commands.as_array().expect("a list").iter();
        rows.clone()
            .find(|row| row["what"].as_str().is_some_and(|what| what.starts_with(verb)))
            .cloned()
            .expect("it is there")
    };
    assert_eq!(of("reject")["refused"], false, "{commands:#}");
    assert_eq!(of("approve")["refused"], true, "{commands:#}");
    let words = of("approve")["result"].as_str().expect("a result").to_owned();
    assert!(words.contains("is rejected already, by ") && words.ends_with(": no"), "{words}");
    assert_eq!(sessions(&site), ALL);
    let (code, said) = site.said(&["review", "approve", &run]);
    assert!(code == 1 && said.contains("rejected already, by") && said.contains(": no"), "{said}");
    site.balanced();
}

/// Rows that the database refuses to delete would otherwise stop the task until somebody decides about nothing.
#[test]
fn a_plan_that_would_change_nothing_does_not_wait() {
    let site = site(&in_mode("approve"));
    let refuse =
        "CREATE TRIGGER holy BEFORE DELETE ON sessions BEGIN SELECT raise(ABORT, 'is holy'); END";
    site.database().execute_batch(refuse).expect("a trigger");
    let (code, said) = site.json(&["run"]);
    assert_eq!((code, &said[0]["review"]["state"]), (0, &"done".into()), "{said:#}");
    let done = review(&site, "done");
    assert_eq!((&done["by"], &done["plan"]["nothing"]), (&"besom".into(), &true.into()));
    for words in [&done["reason"], &said[0]["review"]["summary"]] {
        let words = words.as_str().expect("a reason");
        assert!(words.starts_with("nothing would be changed; the database refuses 10 items"));
        assert!(words.contains("is holy"), "{words}");
    }
    let (_, run) = site.json(&["runs", "show", &run_of(&done)]);
    assert_eq!((&run["run"]["state"], &run["run"]["open"]), (&"ok".into(), &0.into()), "{run:#}");
    let warned = status(&site);
    let warning = format!("warning: old: run {} would change nothing", run_of(&done));
    assert!(warned.contains(&warning) && warned.contains("is holy"), "{warned}");
    assert_eq!(site.task("old")["refused"]["items"], 10);
    let (code, said) = site.said(&["review", "approve", &run_of(&done)]);
    assert!(code == 1 && said.contains("is done already, by besom at "), "{said}");

    // The next run finds them again, and can delete them.
    site.database().execute_batch("DROP TRIGGER holy").expect("dropped");
    let (code, _) = site.json(&["run"]);
    let next = review(&site, "waiting");
    assert_eq!((code, sessions(&site)), (0, ALL));
    assert_eq!(next["summary"], "1000 rows of sessions deleted (50 % of about 2000)");
    let (code, _) = site.json(&["review", "approve", &run_of(&next), "--wait", "0s"]);
    assert_eq!(code, 0);
    let (code, said) = site.json(&["run"]);
    assert_eq!((code, sessions(&site)), (0, ALL - OLD), "{said:#}");
    assert!(!status(&site).contains("warning"), "{}", status(&site));
    site.balanced();
}

/// Fills the table so that 31,000 rows are old, the last of them with this key.
fn fill(site: &Site) -> i64 {
    let fill =
        "INSERT INTO sessions WITH RECURSIVE c(i) AS (SELECT 10000 UNION ALL SELECT i + 1 FROM c
         WHERE i < 39999) SELECT i, i FROM c";
    site.database().execute(fill, []).expect("rows");
    39_999
}

/// Nobody waits for a preview of a large table: its changes are tried for a part of it, from the first to the last
/// item, and it states the sum of all.
#[test]
fn a_preview_of_a_large_table_states_its_sum_and_shows_its_end() {
    let site = site(&in_mode("preview"));
    site.configure(&old_sessions(&in_mode("preview")).replace("chunk = 100", "chunk = 700"));
    let last = fill(&site);
    assert_eq!(site.json(&["run"]).0, 0);
    let shown = review(&site, "shown");
    let sum = "at most 31000 rows of sessions deleted (96 % of about 32000), in 45 items";
    assert_eq!(shown["summary"], sum, "{shown:#}");
    let plan = &shown["plan"];
    assert_eq!((&plan["rows"][0]["rows"], &plan["examined"]), (&9_300.into(), &14.into()));
    let whole = &plan["whole"];
    assert_eq!((&whole["items"], &whole["rows"][0]["rows"]), (&45.into(), &31_000.into()));
    let text = text_of_review(&site);
    for part in [
        sum,
        "45, 14 of them examined",
        "only 14 of 45 items were examined, spread from the first to the last: a review tries at most 10000 rows",
        "9300 rows of sessions deleted",
        "bytes of the examined rows",
        "item 45, ",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // The rehearsal has the same sum.
    let rehearsed = site.besom(&["run", "--dry-run"]).stdout;
    let rehearsed = String::from_utf8(rehearsed).expect("a text");
    assert!(
        rehearsed
            .contains("45 items would change at most 31000 rows (96 % of about 32000 of sessions)"),
        "{rehearsed}"
    );
    let (_, whole) = site.json(&["review", "show", "old"]);
    let samples = whole["plan"]["samples"].as_array().expect("examples");
    let places: Vec<u64> = samples.iter().filter_map(|one| one["place"].as_u64()).collect();
    assert!(places.len() == 10 && places.is_sorted(), "{places:?}");
    assert_eq!((places.first(), places.last()), (Some(&1), Some(&45)));
    let oldest = &samples[0]["changes"][0]["key_values"][0];
    let of_the_last: Vec<i64> = samples[9]["changes"]
        .as_array()
        .expect("rows")
        .iter()
        .filter_map(|row| row["key_values"][0].as_i64())
        .collect();
    assert_eq!(oldest, 1);
    assert!(of_the_last.iter().all(|id| *id > last - 200), "{of_the_last:?}");
}

fn text_of_review(site: &Site) -> String {
    String::from_utf8(site.besom(&["review", "show", "old"]).stdout).expect("a text")
}

/// What a person approves is stated, and the brake speaks before the approval and not only after it.
#[test]
fn a_large_plan_is_approved_by_its_sum() {
    let keys = format!("{}\nmax_delete = 12000", in_mode("approve"));
    let site = site(&keys);
    let last = fill(&site);
    // What the verb was asked for is on stdout.
    let ran = site.besom(&["run"]);
    let (code, said) = (ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&ran.stdout));
    let sum = "at most 31000 rows of sessions deleted (96 % of about 32000), in 310 items";
    let brake = "max_delete would stop it and pause the task: it wants at most 31000 rows of sessions; allowed: 12000";
    assert!(code == 0 && said.contains(sum) && said.contains(brake), "{said}");
    let waiting = review(&site, "waiting");
    assert_eq!((&waiting["summary"], &waiting["plan"]["items"]), (&sum.into(), &310.into()));
    let said_of_brake = waiting["plan"]["brake"].as_str().unwrap_or_default();
    assert!(said_of_brake.starts_with(brake), "{waiting:#}");
    let text = text_of_review(&site);
    assert!(text.contains(sum) && text.contains(brake), "{text}");
    let (_, whole) = site.json(&["review", "show", "old"]);
    let samples = whole["plan"]["samples"].as_array().expect("examples");
    let of_last = samples[9]["changes"][0]["key_values"][0].as_i64();
    assert_eq!((&samples[0]["place"], &samples[9]["place"]), (&1.into(), &310.into()));
    assert!(of_last > Some(last - 100), "{samples:#?}");
    let run = run_of(&waiting);
    let approved = site.besom(&["review", "approve", &run, "--wait", "0s"]);
    let said = String::from_utf8_lossy(&approved.stderr);
    assert!(said.contains(&format!("run {run} of old: {sum}")), "{said}");
    let said = String::from_utf8_lossy(&approved.stdout);
    assert!(said.contains("warning") && said.contains(brake), "{said}");
    // It has said the truth.
    let (code, said) = site.json(&["run"]);
    assert_eq!(code, 1, "{said:#}");
    let reason = said[0]["braked"].as_str().unwrap_or_default();
    assert!(reason.contains("allowed: 12000"), "{said:#}");
    assert_eq!(sessions(&site), ALL + 30_000 - 12_000);
}

/// An item that has more rows than are tried at all is shown by a part of them, and so is the last item.
#[test]
fn items_with_very_many_rows_are_examined_in_part() {
    let site = site(&in_mode("preview"));
    site.configure(&old_sessions(&in_mode("preview")).replace("chunk = 100", "chunk = 10000"));
    let last = fill(&site);
    assert_eq!(site.json(&["run"]).0, 0);
    let (_, shown) = site.json(&["review", "show", "old"]);
    let plan = &shown["plan"];
    let partial = plan["partial"].as_str().unwrap_or_default();
    assert!(partial.starts_with("4 items examined, but not all of their rows"), "{partial}");
    assert_eq!((&plan["items"], &plan["examined"]), (&4.into(), &4.into()));
    assert_eq!(plan["whole"]["rows"][0]["rows"], 31_000);
    let samples = plan["samples"].as_array().expect("examples");
    assert!(samples[3]["changes"][0]["key_values"][0].as_i64() > Some(last - 1_000));
}

/// A plan whose rule has changed since is discarded, and another one is made by the new rule.
#[test]
fn a_plan_lapses_when_its_rule_changes() {
    let site = site(&in_mode("approve"));
    let mut host = site.serve();
    host.leads();
    let first = run_of(&review(&site, "waiting"));
    site.configure(
        &old_sessions(&in_mode("approve")).replace("older_than = \"1d\"", "older_than = \"2d\""),
    );
    wait_for("the lapse", || {
        let (_, said) = site.json(&["review", "show", &first]);
        (said["state"] == "lapsed").then_some(())
    });
    let (_, said) = site.json(&["review", "show", &first]);
    assert_eq!(
        (&said["by"], &said["reason"]),
        (&"besom".into(), &"the settings of the task changed".into())
    );
    let next = review(&site, "waiting");
    assert_ne!(run_of(&next), first);
    assert_eq!(sessions(&site), ALL);
    let why = refused_or_failed(&site, &["review", "approve", &first]);
    assert!(why.contains("lapsed already"), "{why}");
    host.stop();
    site.balanced();
}

fn refused_or_failed(site: &Site, verb: &[&str]) -> String {
    let (code, said) = site.said(verb);
    assert_eq!(code, 1, "{said}");
    said
}

/// From a new rule to an approved one, a wrong one that a brake stops, its undo, and the rule mended.
#[test]
fn the_whole_path_of_a_rule() {
    let brake = "max_delete = 1100\n";
    let rule = |mode: &str, keys: &str, older: &str| {
        let text = old_sessions(&format!("{}\n{brake}{keys}", in_mode(mode)));
        text.replace("older_than = \"1d\"", &format!("older_than = \"{older}\""))
    };
    let site = site(&format!("{}\n{brake}", in_mode("preview")));
    let before = rows(&site);
    // It is new: it shows what it would do.
    let mut host = site.serve();
    host.leads();
    let shown = review(&site, "shown");
    assert_eq!(shown["summary"], "1000 rows of sessions deleted (50 % of about 2000)");
    assert_eq!(rows(&site), before);
    // A person wants to see each plan at first.
    let (code, said) = site.said(&[
        "task",
        "edit",
        "old",
        "--mode",
        "approve",
        "--reason",
        "the preview is right",
    ]);
    assert_eq!(code, 0, "{said}");
    let plan = review(&site, "waiting");
    assert_eq!(rows(&site), before);
    applied(&site, &["review", "approve", &run_of(&plan), "--reason", "all of them are old"]);
    wait_for("its rows to go", || (sessions(&site) == ALL - OLD).then_some(()));
    let good = run_of(&plan);
    // Then it is live, and somebody writes a wrong rule: everything is older than a millisecond.
    site.database()
        .execute_batch(
            "UPDATE sessions SET at = at - 10 WHERE at > 100000; \
             WITH RECURSIVE n(i) AS (SELECT 5001 UNION ALL SELECT i + 1 FROM n WHERE i < 6000) \
             INSERT INTO sessions SELECT i, unixepoch() - 10 FROM n;",
        )
        .expect("the product goes on");
    let before = rows(&site);
    site.configure(&rule("live", "", "1s"));
    let reason = braked(&site);
    assert!(
        reason.contains("wanted to delete at least") && reason.contains("allowed: 1100"),
        "{reason}"
    );
    let gone = before.len() - rows(&site).len();
    assert!(gone <= 1_100, "{gone} rows are gone");
    // What is planned is discarded, and what is gone comes back.
    applied(&site, &["task", "discard", "old", "--reason", "a wrong rule"]);
    let (_, runs) = site.json(&["runs", "ls", "--task", "old"]);
    let bad: Vec<String> = runs
        .as_array()
        .expect("a list")
        .iter()
        .map(|run| run["run"].as_u64().expect("a number").to_string())
        .take_while(|run| *run != good)
        .collect();
    for run in &bad {
        let (code, said) = site.json(&["undo", run, "--reason", "a wrong rule", "--wait", "60s"]);
        assert_eq!(code, 0, "{said:#}");
    }
    assert_eq!(rows(&site), before);
    // The rule is mended, and shows that nothing is left to do.
    site.configure(&rule("preview", "", "1d"));
    applied(&site, &["task", "resume", "old"]);
    wait_for("the next preview", || {
        let newest = review(&site, "shown");
        (newest["summary"] == "nothing would be changed").then_some(())
    });
    assert_eq!(rows(&site), before);
    host.stop();
    site.balanced();
}

fn rows(site: &Site) -> Vec<(i64, i64)> {
    let db = site.database();
    let mut all = db.prepare("SELECT id, at FROM sessions ORDER BY id").expect("a statement");
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("rows");
    rows.collect::<Result<_, _>>().expect("rows")
}
