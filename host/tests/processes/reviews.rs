//! What verbs say about reviews, and about decisions that cannot be made.

use std::time::Duration;

use serde_json::Value;

use crate::brakes::{OLD, sessions, site};
use crate::site::{Site, wait_for};

/// A site whose plan waits, and the number of its run.
fn waiting(keys: &str) -> (Site, String) {
    let site = site(&format!("mode = \"approve\"\n{keys}"));
    let (code, said) = site.json(&["run"]);
    assert_eq!(code, 0, "{said:#}");
    let run = said[0]["review"]["run"].as_u64().expect("a review").to_string();
    (site, run)
}

fn text(site: &Site, verb: &[&str]) -> String {
    String::from_utf8(site.besom(verb).stdout).expect("a text")
}

/// The name of a task would be a decision about something that nobody has looked at.
#[test]
fn a_decision_by_the_name_of_a_task_is_told_its_number() {
    let (site, run) = waiting("");
    for verb in ["approve", "reject"] {
        let (code, said) = site.said(&["review", verb, "old", "--reason", "r"]);
        let fix = format!("besom review {verb} {run}");
        assert!(code == 2 && said.contains("is a task") && said.contains(&fix), "{said}");
        let (code, said) = site.said(&["review", verb, "nothing", "--reason", "r"]);
        assert!(code == 2 && said.contains("besom review ls --waiting"), "{said}");
    }
}

/// Nobody leads, so nothing is applied yet: the second decision is refused all the same.
#[test]
fn a_decision_that_is_recorded_is_the_one_that_counts() {
    let (site, run) = waiting("");
    let decide =
        |verb: &str, why: &str| site.said(&["review", verb, &run, "--reason", why, "--wait", "0s"]);
    assert_eq!(decide("reject", "no").0, 0);
    for (verb, why) in [("approve", "yes"), ("reject", "never")] {
        let (code, said) = decide(verb, why);
        let first = format!("run {run} is decided already: ");
        let words = said.contains(&first) && said.contains("has asked to reject it at");
        assert!(code == 1 && words && said.contains(": no. The first decision counts"), "{said}");
    }
    assert_eq!(decide("reject", "no").0, 0, "the same once more is no second decision");
    let shown = text(&site, &["review", "show", &run]);
    let rule = site.json(&["review", "show", &run]).1["rule"].to_string();
    assert!(rule.starts_with("\"rows of sessions with at before 20"), "{rule}");
    assert!(shown.contains("rows of sessions with at before 20"), "{shown}");
    assert!(
        shown.contains("has asked to reject it") && shown.contains("not applied yet"),
        "{shown}"
    );
    assert!(!shown.contains("besom review approve"), "{shown}");
    let (_, json) = site.json(&["review", "ls"]);
    let decision = &json[0]["decision"];
    assert_eq!((&decision["what"], &decision["reason"]), (&"reject".into(), &"no".into()));
    let commands = site.json(&["commands", "ls"]).1;
    assert_eq!(commands.as_array().map(Vec::len), Some(1), "{commands:#}");
    let sql = "UPDATE sessions SET at = unixepoch()";
    site.database().execute(sql, []).expect("nothing is old any more");
    site.json(&["run"]);
    let (_, json) = site.json(&["review", "show", &run]);
    assert_eq!((&json["state"], &json["decision"]), (&"rejected".into(), &Value::Null));
    for verb in [&["runs", "ls"][..], &["runs", "show", &run], &["task", "show", "old"]] {
        assert!(text(&site, verb).contains("rejected"), "{verb:?}");
    }
}

#[test]
fn a_run_that_waits_is_told_from_one_that_scans() {
    let (site, run) = waiting("");
    for verb in [&["runs", "ls"][..], &["runs", "show", &run], &["task", "show", "old"]] {
        let said = text(&site, verb);
        assert!(said.contains("waiting") && !said.contains("scanning"), "{said}");
    }
    let (_, runs) = site.json(&["runs", "ls"]);
    assert_eq!((&runs[0]["waiting"], &runs[0]["state"]), (&true.into(), &"scanning".into()));
    let (code, _) = site.json(&["runs", "cancel", &run, "--wait", "0s"]);
    assert_eq!(code, 0);
    site.json(&["run"]);
    let (_, cancelled) = site.json(&["review", "show", &run]);
    let of = (&cancelled["state"], &cancelled["reason"]);
    assert_eq!(of, (&"rejected".into(), &"the run was cancelled".into()));
    let (_, runs) = site.json(&["runs", "ls"]);
    assert_eq!(
        runs.as_array().and_then(|all| all.last()).map(|run| &run["waiting"]),
        Some(&false.into())
    );
}

/// Without a host, nobody ends what has lapsed.
#[test]
fn a_plan_whose_time_is_over_does_not_seem_to_wait() {
    let (site, run) = waiting("approve_within = \"1s\"");
    std::thread::sleep(Duration::from_millis(1_100));
    let list = text(&site, &["review", "ls"]);
    assert!(list.contains("expired") && !list.contains("waiting"), "{list}");
    let shown = text(&site, &["review", "show", &run]);
    assert!(shown.contains("It cannot be approved any more"), "{shown}");
    assert!(!shown.contains("besom review approve"), "{shown}");
    let (code, said) = site.said(&["review", "approve", &run]);
    assert!(code == 1 && said.contains("can no longer be approved: its plan expired at"), "{said}");
    let (_, commands) = site.json(&["commands", "ls"]);
    assert_eq!(commands.as_array().map(Vec::len), Some(0), "{commands:#}");
}

/// One row in front of them moves the bounds of all ranges, so that they are items which nobody has undone.
#[test]
fn an_undo_pauses_a_task_that_would_take_the_rows_again() {
    let site = site("mode = \"live\"");
    site.json(&["run"]);
    let latest = || site.json(&["quarantine", "ls"]).1[0]["run"].to_string();
    let run = latest();
    let undone = || {
        let (code, said) = site.json(&["undo", &run, "--reason", "the rule is wrong"]);
        assert_eq!(code, 0, "{said:#}");
        [said["rows"].clone(), said["pauses"].clone()]
    };
    let rehearsal = site.json(&["undo", &run, "--dry-run"]).1;
    assert_eq!((&rehearsal["pauses"], &site.task("old")["paused"]), (&"old".into(), &Value::Null));
    assert_eq!(undone(), [Value::from(OLD), Value::from("old")]);
    let paused = site.task("old")["paused"].to_string();
    assert!(paused.contains(&format!("undo of {run}: the rule is wrong")), "{paused}");
    let all = sessions(&site);
    site.database().execute("INSERT INTO sessions VALUES (-1, 0)", []).expect("a row in front");
    site.said(&["run"]);
    assert_eq!(sessions(&site), all + 1);
    // Nothing is left to undo, so nothing would be taken again.
    assert_eq!(site.said(&["task", "resume", "old", "--wait", "0s"]).0, 0);
    assert_eq!(undone(), [Value::from(0), Value::Null]);
    site.json(&["run"]);
    assert_eq!(sessions(&site), all - OLD);
    let again = latest();
    let (_, said) = site.json(&["undo", &again, "--no-pause"]);
    let warned = said["warning"].as_str().is_some_and(|words| words.contains("old is live"));
    assert!(warned && said["pauses"] == Value::Null, "{said:#}");
    // The undo of the undo removes the rows, and that of the latter puts them back.
    let (_, gone) = site.json(&["undo", &said["run"].to_string()]);
    assert_eq!((&gone["pauses"], &gone["warning"]), (&Value::Null, &Value::Null));
    // A pause that is recorded, and not applied yet, is none of the undo's.
    let mine = ["task", "pause", "old", "--reason", "mine", "--wait", "0s"];
    assert_eq!(site.said(&mine).0, 0);
    let back = gone["run"].to_string();
    assert_eq!(site.json(&["undo", &back, "--dry-run"]).1["pauses"], Value::Null);
    site.said(&["run"]);
    assert_eq!(site.said(&["task", "resume", "old", "--wait", "0s"]).0, 0);
    site.said(&["run"]);
    assert_eq!(site.json(&["undo", &back, "--dry-run"]).1["pauses"], "old");
    // A pause of all tasks ends without a look at this one.
    assert_eq!(site.said(&["pause", "--all", "--reason", "stop", "--wait", "0s"]).0, 0);
    site.said(&["run"]);
    assert_eq!(site.json(&["undo", &back, "--dry-run"]).1["pauses"], "old");
}

/// As a run would not plan it.
#[test]
fn a_preview_does_not_count_what_was_undone() {
    let site = site("mode = \"live\"");
    let (code, said) = site.json(&["run"]);
    assert_eq!((code, &said[0]["rows"]), (0, &OLD.into()), "{said:#}");
    let run = site.json(&["quarantine", "ls"]).1[0]["run"].to_string();
    assert_eq!(site.said(&["undo", &run, "--reason", "the rule is wrong", "--no-pause"]).0, 0);
    let previewed = || {
        let (code, said) = site.json(&["run"]);
        assert_eq!(code, 0, "{said:#}");
        let review = site.json(&["review", "show", "old"]).1;
        let [items, rows, others] =
            ["items", "rows", "others"].map(|of| review["plan"][of].clone());
        (items, rows[0]["rows"].clone(), others)
    };
    let edit = ["task", "edit", "old", "--mode", "preview", "--reason", "look first"];
    let (code, said) = site.said(&edit);
    assert_eq!(code, 0, "{said}");
    let (items, rows, others) = previewed();
    assert_eq!((items, rows), (0.into(), Value::Null));
    assert_eq!(others[0]["verdict"], "not_planned");
    let held_back = others[0]["count"].clone();
    assert_eq!(site.said(&["undo", &run, "--plan-again", "--reason", "it is right"]).0, 0);
    let (items, rows, others) = previewed();
    assert_eq!((items, rows, others), (held_back, OLD.into(), serde_json::json!([])));
}

#[test]
fn a_plan_beyond_the_brake_of_its_task_says_so() {
    for (max, trips) in [(150, true), (OLD, false)] {
        let (site, run) = waiting(&format!("max_delete = {max}"));
        let shown = text(&site, &["review", "show", &run]);
        let words = "max_delete would stop it and pause the task: it wants at least 1000 rows of sessions; allowed: 150";
        assert_eq!(shown.contains(words), trips, "{shown}");
        let (_, json) = site.json(&["review", "show", &run]);
        assert_eq!(json["plan"]["brake"].is_string(), trips, "{json:#}");
        let said = text(&site, &["review", "approve", &run, "--wait", "0s"]);
        assert_eq!(said.contains(words), trips, "{said}");
    }
}

/// Rows that go with others come before them, and would be all that is shown.
#[test]
fn examples_have_rows_of_each_table() {
    let site = Site::new(
        "[collections.users]\nkey = [\"id\"]\nindexes = { by_at = [\"at\"] }\ndependants = [\"notes\"]\n\
         columns = { id = \"integer\", at = { type = \"timestamp\", encoding = \"seconds\" } }\n\
         [collections.notes]\nkey = [\"id\"]\nindexes = { by_user = [\"user_id\"] }\n\
         columns = { id = \"integer\", user_id = \"integer\" }\n\
         anchor = { collection = \"users\", columns = [\"user_id\"] }\n\
         [tasks.old]\nplugin = \"retention\"\nmode = \"preview\"\ncollections = { rows = \"users\" }\n\
         settings = { by = \"at\", older_than = \"1d\" }\n",
    );
    site.database()
        .execute_batch(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, at INTEGER NOT NULL);
             CREATE INDEX by_at ON users (at, id);
             CREATE TABLE notes (id INTEGER PRIMARY KEY, user_id INTEGER NOT NULL REFERENCES users (id));
             CREATE INDEX by_user ON notes (user_id, id);
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20)
             INSERT INTO users SELECT i, i FROM n;
             INSERT INTO notes SELECT id, id FROM users;",
        )
        .expect("tables");
    assert_eq!(site.json(&["run"]).0, 0);
    let (_, json) = site.json(&["review", "show", "old"]);
    let changes = json["plan"]["samples"][0]["changes"].as_array().expect("rows");
    let collections: Vec<_> = changes.iter().map(|row| row["collection"].as_str()).collect();
    let (users, notes) = (Some("users"), Some("notes"));
    assert_eq!(collections, [users, users, users, notes, notes], "{json:#}");
    // Without the line, the database refuses all of them, and `besom run` says so.
    let file = std::fs::read_to_string(site.path("besom.toml")).expect("a file");
    site.configure(&file.split("[runtime]").next().expect("a part").replace("dependants", "# "));
    let ran = site.besom(&["run"]);
    let (code, said) = (ran.status.code().unwrap_or(-1), String::from_utf8_lossy(&ran.stdout));
    assert!(code == 0 && said.contains("the database refuses 1 item"), "{said}");
    assert!(said.contains("FOREIGN KEY") && !said.contains("executes it"), "{said}");
    let (code, said) = site.said(&["check", "--store"]);
    let line = "stays if rows of notes (user_id) refer to it (a foreign key). To delete those as well, write \
                dependants = [\"notes\"] in [collections.users]";
    assert!(code == 0 && said.contains(line), "{said}");
}

#[test]
fn a_row_with_many_columns_is_shortened_for_people_and_typed_for_programs() {
    let site = site("mode = \"preview\"");
    for at in 0..20 {
        let column = format!("ALTER TABLE sessions ADD COLUMN c{at}");
        site.database().execute(&column, []).expect("a column");
    }
    site.database().execute("UPDATE sessions SET c0 = x'00ff', c1 = 't'", []).expect("values");
    assert_eq!(site.json(&["run"]).0, 0);
    let shown = text(&site, &["review", "show", "old"]);
    assert!(shown.contains("c5 null, and 14 columns more (--full)"), "{shown}");
    let full = text(&site, &["review", "show", "old", "--full"]);
    assert!(full.contains("c19 null") && !full.contains("more (--full)"), "{full}");
    let (_, json) = site.json(&["review", "show", "old"]);
    let row = &json["plan"]["samples"][0]["changes"][0];
    assert!(row["key_values"][0].is_i64(), "{row:#}");
    let value = |name: &str| {
        let columns = row["columns"].as_array().expect("columns");
        columns
            .iter()
            .find(|column| column["name"] == name)
            .expect("it")
            .get("before_value")
            .cloned()
    };
    assert_eq!(value("c0"), Some("00ff".into()));
    assert_eq!((value("c1"), value("c2")), (Some("t".into()), Some(Value::Null)));
    assert!(value("id").is_some_and(|id| id.is_i64()), "{row:#}");
}

/// A key that no item can have is nobody's fault, and its row would stay for ever without a word.
#[test]
fn rows_whose_keys_are_too_long_are_counted_and_named() {
    let long = "k".repeat(1_025);
    let rule = |mode: &str| {
        format!(
            "[collections.files]\nkey = [\"name\"]\nindexes = {{ by_at = [\"at\"] }}\n\
             columns = {{ name = \"text\", at = {{ type = \"timestamp\", encoding = \"seconds\" }} }}\n\
             [tasks.old]\nplugin = \"retention\"\nschedule = \"@every 1s\"\nmode = \"{mode}\"\n\
             collections = {{ rows = \"files\" }}\n\
             settings = {{ by = \"at\", older_than = \"1d\", chunk = 0 }}\n"
        )
    };
    let site = Site::new(&rule("preview"));
    let table = "CREATE TABLE files (name TEXT PRIMARY KEY NOT NULL, at INTEGER NOT NULL);
         CREATE INDEX by_at ON files (at); INSERT INTO files VALUES ('a', 1), ('', 2)";
    site.database().execute_batch(table).expect("a table");
    site.database().execute("INSERT INTO files VALUES (?1, 3)", [&long]).expect("a row");
    let (code, said) = site.json(&["run"]);
    assert_eq!((code, &said[0]["left_out"]["rows"]), (0, &2.into()), "{said:#}");
    let (_, shown) = site.json(&["review", "show", "old"]);
    let others = shown["plan"]["others"].as_array().expect("others");
    let left = others.iter().find(|other| other["verdict"] == "left_out").expect("it is told");
    assert_eq!(left["count"], 2, "{shown:#}");
    let words = left["reason"].as_str().expect("words");
    assert!(
        words.starts_with("2 rows were left out, because no item can have their key"),
        "{words}"
    );
    site.configure(&rule("live"));
    let mut host = site.serve();
    host.leads();
    let task = wait_for("the row to go and the others to be told", || {
        let task = site.task("old");
        (task["left_out"]["rows"] == 2).then_some(task)
    });
    assert!(task["left_out"]["first"].is_string() && task["left_out"]["why"].is_string());
    let status = text(&site, &["status"]);
    assert!(status.contains("warning: old: 2 rows were left out"), "{status}");
    host.stop();
    site.balanced();
}

/// Without a leader, nobody else would say that there is nothing to retry.
#[test]
fn numbers_that_do_not_exist_are_refused_without_a_host() {
    let site = site("");
    assert_eq!(site.json(&["run"]).0, 0);
    for (verb, words) in [
        (&["dead", "retry", "99"][..], "there is no dead letter 99"),
        (&["dead", "discard", "98", "99", "--reason", "r"], "dead letters"),
        (&["outbox", "retry", "9"], "no message matches"),
        (&["outbox", "discard", "9", "--reason", "r"], "no message matches"),
    ] {
        let (code, said) = site.said(&[verb, &["--wait", "0s"]].concat());
        assert!(code == 1 && said.contains(words), "{verb:?}: {code}: {said}");
    }
    let (_, commands) = site.json(&["commands", "ls"]);
    assert_eq!(commands.as_array().map(Vec::len), Some(0), "{commands:#}");
}
