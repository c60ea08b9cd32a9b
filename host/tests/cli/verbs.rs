//! Verbs of operators: what they answer, ask for and refuse.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::site::Site;

#[test]
fn a_store_without_a_host_answers() {
    let site =
        Site::new("[tasks.compaction]\nplugin = \"compaction\"\nschedule = \"@every 30s\"\n");
    assert_eq!(site.fails(&["audit"]).0, 69);
    site.log("note.log", &[&[1, 1, 5, 0]]);
    assert_eq!(site.json(&["doc", "import", "note.log"]).0, 0);

    let (code, audit) = site.json(&["audit"]);
    assert_eq!(code, 0);
    let import = serde_json::json!({
        "task": "doc:import", "planned": 1, "committed": 1, "skipped": 0, "dead": 0,
        "discarded": 0, "pending": 0, "rows": 3
    });
    assert_eq!(audit, serde_json::json!({ "balanced": true, "tasks": [import], "violations": [] }));

    let (code, status) = site.json(&["status"]);
    assert_eq!(
        (code, &status["leader"], &status["nodes"]),
        (0, &Value::Null, &Value::from(Vec::<i64>::new()))
    );
    let task = &status["tasks"][0];
    assert_eq!(
        (&task["task"], &task["last"], &task["waiting"]),
        (&"compaction".into(), &Value::Null, &0.into())
    );
    assert!(task["next"].as_str().is_some_and(|t| t.ends_with("Z")), "{task}");

    let (code, asked) =
        site.json(&["task", "pause", "compaction", "--reason", "a restore", "--wait", "0s"]);
    assert_eq!((code, &asked["applied"]), (0, &Value::Bool(false)));
    // The pause waits for a leader; the record of the import does not.
    assert_eq!(site.json(&["status"]).1["commands_waiting"], 1);
    assert_eq!(site.fails(&["task", "pause", "compactoin", "--reason", "x"]).0, 2);
    let (code, told) = site.json(&["task", "explain", "compaction@2020-01-01T00:00:30Z"]);
    assert_eq!((code, &told["outcome"]), (0, &"undecided".into()));
    let (_, told) = site.json(&["task", "explain", "compaction@2020-01-01T00:00:31Z"]);
    assert_eq!(told["outcome"], "no_slot");
    for args in
        [&["task", "ls"][..], &["dead", "ls"], &["runs", "ls"], &["task", "show", "compaction"]]
    {
        assert_eq!(site.json(args).0, 0, "{args:?}");
    }
    assert_eq!(site.fails(&["dead", "retry"]).0, 2);
    assert_eq!(site.fails(&["runs", "show", "7"]).0, 2);
}

/// The environment's user name can be set by anyone and is not trusted.
#[test]
fn who_asks_is_the_user_that_the_system_knows() {
    let site =
        Site::new("[tasks.compaction]\nplugin = \"compaction\"\nschedule = \"@every 30s\"\n");
    site.log("note.log", &[&[1, 1, 5, 0]]);
    let forged = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom"));
        command.args(args).current_dir(site.dir()).env_remove("BESOM_CONFIG");
        for variable in ["USER", "LOGNAME", "USERNAME", "SUDO_USER"] {
            command.env(variable, "forged");
        }
        let out = command.output().expect("the binary runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    };
    forged(&["doc", "import", "note.log", "--reason", "from the old system"]);
    forged(&["task", "pause", "compaction", "--reason", "a restore", "--wait", "0s"]);
    let (_, kept) = site.json(&["commands", "ls"]);
    let [pause, import] = &kept.as_array().expect("commands")[..] else { panic!("{kept:#}") };
    let own = rustix_uid();
    for row in [pause, import] {
        let by = row["by"].as_str().expect("a name");
        assert!(!by.contains("forged") && by.contains(&own), "{by}");
    }
    assert_eq!(import["what"], "import into default: 1 document (note)");
    assert_eq!(import["reason"], "from the old system");
}

/// The uid of this process.
fn rustix_uid() -> String {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").expect("this process").uid().to_string()
}

#[test]
fn what_takes_something_away_is_refused_without_a_reason() {
    let site =
        Site::new("[tasks.compaction]\nplugin = \"compaction\"\nschedule = \"@every 30s\"\n");
    site.log("note.log", &[&[1, 1, 5, 0]]);
    assert_eq!(site.json(&["doc", "import", "note.log"]).0, 0);
    for args in [
        &["dead", "discard", "1"][..],
        &["dead", "discard", "--all"],
        &["dead", "discard", "--task", "compaction", "--reason", "  "],
        &["stream", "repair", "compaction"],
    ] {
        let (code, said) = site.fails(args);
        assert_eq!(code, 2, "{args:?}: {said}");
        assert!(
            said.contains("requires a reason") && said.contains("--reason"),
            "{args:?}: {said}"
        );
    }
    // The help says so where the verb itself requires one.
    for verb in [&["task", "discard"][..], &["task", "pause"], &["pause", "--all"]] {
        let said = site.besom(&[verb, &["--help"]].concat()).stdout;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("--reason <REASON>") && said.contains("(required)"), "{said}");
        assert!(!said.contains("[default: ]"), "{said}");
    }
    let (code, said) = site.fails(&["task", "discard", "compaction"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--reason <REASON>"), "{said}");
    // No command was recorded.
    let (_, kept) = site.json(&["commands", "ls"]);
    assert_eq!(kept.as_array().map(Vec::len), Some(1), "{kept:#}");
}

#[test]
fn the_next_times_are_exclusive_and_show_the_change_of_the_clocks() {
    let site = Site::new("");
    let (code, times) = site.json(&[
        "schedule",
        "next",
        "30 2 * * *",
        "--tz",
        "Europe/Berlin",
        "--from",
        "2026-03-28T01:30:00Z",
        "-n",
        "2",
    ]);
    assert_eq!(code, 0);
    assert_eq!(times[0]["utc"], "2026-03-29T01:00:00Z");
    assert!(times[0]["note"].is_string(), "{times}");
    assert_eq!(times[1]["local"], "2026-03-30T02:30:00+02:00");
    let (code, said) = site.fails(&["schedule", "next", "0 0 30 2 *"]);
    assert_eq!(code, 2);
    assert!(said.contains("30 2"), "{said}");
}

#[test]
fn a_retry_of_messages_that_matches_none_is_refused() {
    let site = Site::new("");
    site.log("note.log", &[&[1, 1, 5, 0]]);
    assert_eq!(site.json(&["doc", "import", "note.log"]).0, 0);
    let (code, said) = site.fails(&["outbox", "retry", "--wait", "0s", "987654"]);
    assert!(code == 1 && said.contains("message 987654: no message matches"), "{code}: {said}");
    let mut asked = Vec::new();
    for which in [&["--topic", "nope"][..], &["--all"]] {
        let (code, row) = site.json(&[&["outbox", "retry", "--wait", "0s"], which].concat());
        assert_eq!((code, &row["applied"]), (0, &Value::Bool(false)), "no leader has answered");
        asked.push(row["command"].to_string());
    }
    assert_eq!(site.fails(&["run"]).0, 0);
    for command in asked {
        let (_, row) = site.json(&["commands", "show", &command]);
        let said = row["result"].as_str().unwrap_or_default();
        assert!(row["refused"] == true && said.contains("no message matches"), "{row:#}");
    }
}

/// Whoever copies a command from a message or a page gets no answer about an option that it lacks.
#[test]
fn commands_that_require_a_reason_are_printed_with_one() {
    fn files(dir: &Path, all: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(dir).expect("a directory") {
            let path = entry.expect("an entry").path();
            let is_text = path.extension().is_some_and(|end| end == "rs" || end == "md");
            match path.is_dir() {
                true if !path.ends_with("tests") && !path.ends_with("target") => files(&path, all),
                false if is_text && !path.ends_with("tests.rs") => all.push(path),
                _ => {}
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut all = Vec::new();
    ["host", "tui/src", "docs"].iter().for_each(|dir| files(&root.join(dir), &mut all));
    let verbs = ["task pause ", "task discard ", "review reject ", "stream repair "];
    let (mut seen, mut faults) = (0, Vec::new());
    for path in all {
        let text = std::fs::read_to_string(&path).expect("a text");
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let words = lines.flat_map(|line| line.trim_end_matches('\\').split_whitespace());
        let text = words.collect::<Vec<_>>().join(" ");
        for printed in text.split("`besom ").skip(1).filter_map(|rest| rest.split('`').next()) {
            if verbs.iter().any(|verb| printed.starts_with(verb)) {
                seen += 1;
                if !printed.contains("--reason") {
                    faults.push(format!("{}: `besom {printed}`", path.display()));
                }
            }
        }
    }
    assert!(seen >= 10 && faults.is_empty(), "{seen} commands: {faults:#?}");
}
