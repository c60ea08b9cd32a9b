//! The real binary: the names, exit codes and JSON shapes that scripts rely on.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

struct Site(tempfile::TempDir);

impl Site {
    fn new(config: &str) -> Site {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("besom.toml"), config).expect("written");
        Site(dir)
    }

    fn dir(&self) -> &Path {
        self.0.path()
    }

    fn besom(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the binary runs")
    }

    /// A verb, ready to be started.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_besom"));
        command.args(args).current_dir(self.dir()).env_remove("BESOM_CONFIG");
        command.env("BESOM_HOST_DEFAULT_MODE", "live");
        command
    }

    /// The exit code and stdout as JSON.
    #[track_caller]
    fn json(&self, args: &[&str]) -> (i32, Value) {
        let out = self.besom(&[args, &["--output", "json"]].concat());
        let text = String::from_utf8(out.stdout).expect("UTF-8");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let json = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{said}"));
        (out.status.code().expect("not killed"), json)
    }

    /// The exit code and stderr.
    fn fails(&self, args: &[&str]) -> (i32, String) {
        let out = self.besom(args);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        (out.status.code().expect("not killed"), said)
    }

    fn log(&self, name: &str, updates: &[&[u8]]) {
        let mut bytes = u32::try_from(updates.len()).expect("small").to_le_bytes().to_vec();
        for update in updates {
            bytes.extend(u32::try_from(update.len()).expect("small").to_le_bytes());
            bytes.extend(*update);
        }
        std::fs::write(self.dir().join(name), bytes).expect("written");
    }
}

#[test]
fn a_document_goes_in_and_comes_out_as_it_was() {
    let site = Site::new("");
    site.log("note.log", &[&[1, 1, 5, 0], &[1, 1, 6, 0]]);
    let (code, rows) = site.json(&["doc", "import", "note.log", "--tenant", "a"]);
    assert_eq!((code, &rows[0]["document"]), (0, &Value::from("note")));
    let out = site.besom(&["doc", "export", "note"]);
    assert_eq!(out.stdout, std::fs::read(site.dir().join("note.log")).expect("there"));

    // The document exists; once another tenant has one with the same name, the name is ambiguous.
    assert_eq!(site.fails(&["doc", "import", "note.log", "--tenant", "a"]).0, 1);
    assert_eq!(site.json(&["doc", "import", "note.log", "--tenant", "b"]).0, 0);
    assert_eq!(site.fails(&["doc", "export", "note"]).0, 2);
    let (code, shown) = site.json(&["doc", "show", "b/note"]);
    assert_eq!(code, 0);
    for (key, value) in [("server_seq", 2), ("epoch", 0), ("rows", 2), ("bytes", 8)] {
        assert_eq!(shown[key], value, "{shown}");
    }
    assert_eq!(shown["last_compaction"], Value::Null);

    // Another format changes only the format column; its bytes are imported and exported unchanged.
    site.log("other.log", &[b"loro", b"s own"]);
    assert_eq!(site.json(&["doc", "import", "other.log", "--format", "loro"]).0, 0);
    assert_eq!(site.json(&["doc", "show", "other"]).1["format"], "loro");
    for (limit, is_cut) in [("1", true), ("1000", false)] {
        let out = site.besom(&["commands", "ls", "--limit", limit]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(said.contains("cut at --limit"), is_cut, "{limit}: {said}");
    }
    let out = site.besom(&["doc", "export", "other"]);
    assert_eq!(out.stdout, std::fs::read(site.dir().join("other.log")).expect("there"));
    assert_eq!(site.fails(&["doc", "import", "other.log", "--format", "word"]).0, 2);

    std::fs::write(site.dir().join("cut.log"), [2, 0, 0, 0, 1, 0, 0, 0, 7, 9]).expect("written");
    let (code, said) = site.fails(&["doc", "import", "cut.log"]);
    assert_eq!(code, 1);
    assert!(said.contains("cut.log: byte 0: the file announces 2 updates"), "{said}");
    assert_eq!(site.fails(&["doc", "show", "cut"]).0, 1);
}

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
fn a_wrong_configuration_is_refused_with_places_and_code_78() {
    let site = Site::new("[stor]\n[tasks.a]\nplugin = \"compactoin\"\nschedule = \"0 0 30 2 *\"\n");
    let (code, said) = site.fails(&["check"]);
    assert_eq!(code, 78, "{said}");
    for line in
        ["besom.toml:1:2: error: unknown key `stor`", "besom.toml:3:10:", "besom.toml:4:17:"]
    {
        assert!(said.contains(line), "{line} is not in {said}");
    }
    assert!(said.contains("did you mean `compaction`?"), "{said}");
    let (code, said) = site.fails(&["--config", "nowhere.toml", "status"]);
    assert_eq!(code, 78);
    assert!(said.starts_with("nowhere.toml: error: the file does not exist"), "{said}");
    assert_eq!(site.fails(&["statsu"]).0, 2);
}

#[test]
fn a_topic_that_nobody_takes_is_warned_of() {
    let task = "[tasks.quiet]\nplugin = \"client-deactivation\"\nschedule = \"@every 30s\"\n";
    let (code, said) = Site::new(task).json(&["check"]);
    assert_eq!((code, &said["warnings"]), (0, &1.into()), "{said}");
    let text = said["diagnostics"][0]["text"].as_str().expect("text");
    for words in ["has no route: messages that `quiet` emits", "removed after", "add [topics."] {
        assert!(text.contains(words), "{text}");
    }
    let topic = text.split('`').nth(1).expect("the topic is named");
    let route = format!(
        "[delivery]\nhosts = [\"localhost:1\"]\n[topics.\"{topic}\"]\nurl = \"http://localhost:1/\"\n"
    );
    let (code, said) = Site::new(&format!("{task}{route}")).json(&["check"]);
    assert_eq!((code, &said["warnings"]), (0, &0.into()), "{said}");
}

#[test]
fn workspaces_without_a_column_for_the_users_choice_are_usable_with_a_warning() {
    let task = "[tasks.ttl]\nplugin = \"ttl-transitions\"\nschedule = \"@every 1m\"\n";
    let with = |columns: &str| {
        format!(
            "{task}[collections.workspaces]\nkey = [\"workspace_id\"]\ncolumns = {{ workspace_id = \
             \"text\", status = \"text\", operation = \"text\", desired_state = \"text\", \
             standby_ttl_seconds = \"integer\", archive_ttl_seconds = \"integer\", \
             last_access_at = \"timestamp\"{columns} }}\n\
             indexes = {{ by_status_operation = [\"status\", \"operation\", \"last_access_at\"] }}\n"
        )
    };
    for (columns, warnings) in [
        ("", 1),
        (", version = \"integer\"", 0),
        (", last_manual_change_at = \"timestamp\"", 0),
        (", version = \"integer\", last_manual_change_at = \"timestamp\"", 0),
    ] {
        let site = Site::new(&with(columns));
        let (code, said) = site.json(&["check"]);
        assert_eq!((code, &said["warnings"]), (0, &warnings.into()), "{columns}: {said}");
        if warnings > 0 {
            let text = said["diagnostics"][0]["text"].as_str().expect("text");
            for words in [
                "besom.toml:4:14: warning: neither `version` nor `last_manual_change_at`",
                "map a column that changes whenever a user chooses a state",
            ] {
                assert!(text.contains(words), "{text}");
            }
        }
    }
    // The task works: the mapped columns are read and guarded.
    let site = Site::new(&with(""));
    let db = rusqlite::Connection::open(site.dir().join("besom.db")).expect("opened");
    db.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE workspaces (workspace_id TEXT NOT NULL PRIMARY KEY,
             status TEXT NOT NULL, operation TEXT NOT NULL, desired_state TEXT NOT NULL,
             standby_ttl_seconds INTEGER, archive_ttl_seconds INTEGER, last_access_at INTEGER);
         CREATE INDEX by_status ON workspaces (status, operation, last_access_at);
         INSERT INTO workspaces VALUES ('w', 'STANDBY', 'NONE', 'STANDBY', NULL, 60, 0);",
    )
    .expect("a table");
    let (code, ran) = site.json(&["run", "ttl"]);
    assert_eq!((code, &ran[0]["committed"]), (0, &1.into()), "{ran}");
    let wanted: String = db
        .query_row("SELECT desired_state FROM workspaces", [], |row| row.get(0))
        .expect("a workspace");
    assert_eq!(wanted, "PENDING");

    // Any other column is required.
    let site = Site::new(&with("").replace("operation = \"text\", ", ""));
    let (code, said) = site.fails(&["check"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("requests the column `workspaces.operation`, which is not"), "{said}");
}

#[test]
fn the_url_of_the_store_is_checked_without_connecting() {
    let site = Site::new("");
    let check = |url: &str| site.fails(&["check", "--set", &format!("store.url={url}")]);
    let (code, said) = check("postgres://u@192.0.2.1/d?sslmode=maybe");
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("maybe") && said.contains("correct the URL"), "{said}");
    assert!(said.starts_with("flags: error: unknown sslmode"), "{said}");
    let (code, said) = check("postgres://u@192.0.2.1/d?sslmode=require");
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("the identity of the server is not verified"), "{said}");
}

#[test]
fn a_first_configuration_is_never_written_over_another() {
    let site = Site::new("");
    assert_eq!(site.fails(&["config", "init"]).0, 1);
    let (code, _) = site.json(&["config", "init", "--config", "new.toml"]);
    assert_eq!(code, 0);
    let checked = site.besom(&["check", "--config", "new.toml"]);
    assert_eq!(String::from_utf8_lossy(&checked.stdout), "new.toml: valid, 0 tasks\n");
    let out = site.besom(&["config", "schema"]);
    let schema: Value = serde_json::from_slice(&out.stdout).expect("JSON");
    assert_eq!(schema["title"], "besom.toml");
}

const EDITABLE: &str = "\
[tasks.sweep] # mine
plugin = \"share-expiry\"
schedule = \"0 2 * * *\" # at night
";

fn text_of(site: &Site) -> String {
    std::fs::read_to_string(site.dir().join("besom.toml")).expect("the file")
}

#[test]
fn a_task_is_edited_in_its_file_without_a_host_and_without_a_store() {
    let site = Site::new(EDITABLE);
    let berlin = ["task", "edit", "sweep", "--timezone", "Europe/Berlin", "--dry-run"];
    let (code, dry) = site.json(&berlin);
    assert_eq!(
        (code, &dry["saved"], &dry["changed"]),
        (0, &Value::Bool(false), &Value::Bool(true))
    );
    assert_eq!(text_of(&site), EDITABLE);
    let added =
        dry["diff"][0]["lines"].as_array().expect("lines").iter().find(|l| l["fate"] == "added");
    assert_eq!(added.expect("a line")["text"], "timezone = \"Europe/Berlin\"");
    assert_eq!(dry["after"]["upcoming"].as_array().map(Vec::len), Some(5));

    let out =
        site.besom(&["task", "edit", "sweep", "--schedule", "30 3 * * *", "--unset", "jitter"]);
    let said = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert_eq!(text_of(&site), EDITABLE.replace("0 2", "30 3"));
    for words in [
        "@@ -1,3 +1,3 @@",
        "-schedule = \"0 2 * * *\" # at night",
        "+schedule = \"30 3 * * *\"",
        "next runs after",
        "\nSaved ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let (code, same) = site.json(&["task", "edit", "sweep", "--schedule", "30 3 * * *"]);
    assert_eq!(
        (code, &same["changed"], &same["saved"]),
        (0, &Value::Bool(false), &Value::Bool(false))
    );
    // Slots outside the windows do not run, so they are no next runs.
    let hourly = ["task", "edit", "sweep", "--schedule", "@hourly", "--windows", "03:00-04:00"];
    let verb: Vec<_> = hourly.into_iter().chain(["--dry-run"]).collect();
    let (_, dry) = site.json(&verb);
    assert_eq!(dry["after"]["windows"], serde_json::json!(["03:00-04:00 UTC"]), "{dry:#}");
    let next = dry["after"]["upcoming"].as_array().expect("slots");
    let at_three = |slot: &Value| slot["utc"].as_str().is_some_and(|at| at.contains("T03:00"));
    assert!(next.len() == 5 && next.iter().all(at_three), "{dry:#}");
    let out = site.besom(&verb);
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("next runs before\n"), "{said}");
    assert!(said.contains("next runs after, within its windows\n"), "{said}");
    assert!(!site.dir().join("besom.db").exists());
}

/// A task that is to be stopped goes on while the host refuses the file for another reason.
#[test]
fn an_edit_names_the_errors_for_which_a_host_refuses_the_file() {
    let site = Site::new(EDITABLE);
    let edit = ["task", "edit", "sweep", "--mode", "preview", "--dry-run"];
    let (code, dry) = site.json(&edit);
    assert_eq!((code, &dry["errors"]), (0, &serde_json::json!([])), "{dry:#}");
    for (added, words) in [
        ("plugin = \"share-expiri\"\nschedule = \"@daily\"", "did you mean `share-expiry`?"),
        ("plugin = \"share-expiry\"\nschedule = \"0 0 99 * *\"", "`99` is out of bounds"),
        ("plugin = \"share-expiry\"\nsettings = { colour = 1 }", "unknown key `colour`"),
        ("plugin = \"share-expiry\"\ngrants.nowhere = [\"read\"]", "nowhere"),
        ("plugin = \"share-expiry\"\n[bogus]\na = 1", "unknown key `bogus`"),
    ] {
        let faulty = format!("{EDITABLE}\n[tasks.bad]\n{added}\n");
        std::fs::write(site.dir().join("besom.toml"), &faulty).expect("written");
        let (code, json) = site.json(&edit);
        let errors = json["errors"].as_array().cloned().unwrap_or_default();
        assert_eq!(code, 0, "{json:#}");
        let named = errors.iter().filter_map(Value::as_str).any(|error| error.contains(words));
        assert!(named, "{words}: {errors:#?}");
        let out = site.besom(&edit[..5]);
        let text = [&out.stdout[..], &out.stderr].map(String::from_utf8_lossy);
        assert_eq!(out.status.code(), Some(0), "{text:?}");
        assert!(text[1].contains(words), "{words}: {}", text[1]);
        assert!(text[0].contains("A running host refuses it, and goes on with what it runs"));
        assert!(!text[0].contains("reloads it"), "{}", text[0]);
    }
}

#[test]
fn an_edit_that_cannot_be_leaves_the_file_and_says_where_and_why() {
    let site = Site::new(EDITABLE);
    let (code, said) = site.fails(&["task", "edit", "sweep", "--schedule", "0 22-2 * * *"]);
    assert_eq!(code, 78, "{said}");
    let out = site.besom(&["task", "edit", "sweep", "--schedule", "0 22-2 * * *"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "", "the error only");
    let (code, json) = site.json(&["task", "edit", "sweep", "--schedule", "0 22-2 * * *"]);
    assert_eq!((code, &json["saved"]), (78, &Value::Bool(false)), "{json:#}");
    let caret = "  3 | schedule = \"0 22-2 * * *\" # at night\n    |               ^^^^ write `22-23,0-2` to wrap around";
    assert!(said.contains("besom.toml:3:15") && said.contains(caret), "{said}");
    for (args, exit, words) in [
        (&["sweep"][..], 2, "no changes given"),
        (&["swep", "--jitter", "1s"], 2, "did you mean `sweep`?"),
        (&["sweep", "--jitter", "1s", "--unset", "jitter"], 2, "do only one of them"),
        (&["sweep", "--unset", "plugin"], 2, "choose one of schedule"),
        (
            &["sweep", "--unset", "max_delete_floor"],
            2,
            "remove any other key from the file by hand",
        ),
        (&["sweep", "--overlap", "skpi"], 78, "did you mean \"skip\"?"),
        (&["sweep", "--wall", "9h"], 78, "besom.toml:4:15"),
    ] {
        let (code, said) = site.fails(&[&["task", "edit"], args].concat());
        assert_eq!(code, exit, "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
    assert_eq!(text_of(&site), EDITABLE);

    // A file without a write bit is not replaced by root either.
    use std::os::unix::fs::PermissionsExt as _;
    let file = site.dir().join("besom.toml");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o444)).expect("set");
    let (code, said) = site.fails(&["task", "edit", "sweep", "--jitter", "1s"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("read-only"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    let (code, said) = site.fails(&["task", "edit", "sweep", "--jitter", "1s"]);
    assert_eq!(code, 78, "{said}");
    assert!(!file.exists());
}

/// As in the README: with a relative directory, and running until it is stopped.
#[test]
fn a_demo_in_a_relative_directory_goes_on_and_is_taken_up_again() {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::process::ExitStatusExt as _;

    let parent = tempfile::tempdir().expect("a directory");
    for turn in ["first", "again"] {
        let mut demo = Command::new(env!("CARGO_BIN_EXE_besom"))
            .args(["demo", "--dir", "shown/here", "--plain"])
            .current_dir(parent.path())
            .env_remove("BESOM_CONFIG")
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .expect("the binary runs");
        let (lines, heard) = std::sync::mpsc::channel();
        let stderr = BufReader::new(demo.stderr.take().expect("piped"));
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).try_for_each(|line| lines.send(line))
        });
        let mut said: Vec<String> = Vec::new();
        // It has ended when its output ends.
        // Without a line, a plugin is being compiled, on machines that do much else at the same time.
        while let Ok(line) = heard.recv_timeout(std::time::Duration::from_secs(300)) {
            said.push(line);
            if said.last().is_some_and(|line| line.contains("term=")) {
                break;
            }
        }
        let pid = rustix::process::Pid::from_child(&demo);
        // If it has already ended, the exit code shows why.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let status = demo.wait().expect("it ends");
        // The signal may arrive before the host handles it.
        let asked = status.success() || status.signal() == Some(15);
        let led = said.last().is_some_and(|line| line.contains("term="));
        assert!(asked && led, "{turn}: {status}: {}", said.join("\n"));
        assert!(said.len() > 3 && said[0].contains("shown/here"), "{turn}: {}", said.join("\n"));
    }
    let check = |expected: i32| {
        let out = Command::new(env!("CARGO_BIN_EXE_besom"))
            .args(["--config", "shown/here/besom.toml", "check"])
            .current_dir(parent.path())
            .output()
            .expect("the binary runs");
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(expected), "{said}");
        said
    };
    check(0);
    // The check finds everything that prevents a host from starting.
    std::fs::remove_file(parent.path().join("shown/here/orchestrator.token")).expect("removed");
    let said = check(78);
    assert!(said.contains("orchestrator.token: No such file"), "{said}");
    assert!(said.contains("token_file"), "{said}");
}

/// A component with one function of this many bytes and local variables; compiling it takes time
/// quadratic in both.
fn bomb(bytes: usize, locals: usize) -> Vec<u8> {
    fn leb(out: &mut Vec<u8>, mut value: usize) {
        while value >= 0x80 {
            out.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
    }
    fn section(out: &mut Vec<u8>, id: u8, payload: &[u8]) {
        out.push(id);
        leb(out, payload.len());
        out.extend(payload);
    }
    let mut body = vec![1];
    leb(&mut body, locals);
    body.push(0x7f);
    let mut at = 1_usize;
    while body.len() < bytes {
        // c = a + b; if a { a = c }
        at = at.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let [a, b, c] = [at >> 33, at >> 40, at >> 47].map(|n| n % locals);
        for (code, local) in [(0x20, a), (0x20, b)] {
            body.push(code);
            leb(&mut body, local);
        }
        body.extend([0x6a, 0x21]);
        leb(&mut body, c);
        body.push(0x20);
        leb(&mut body, a);
        body.extend([0x04, 0x40, 0x20]);
        leb(&mut body, c);
        body.push(0x21);
        leb(&mut body, a);
        body.push(0x0b);
    }
    body.push(0x0b);
    let mut code = vec![1];
    leb(&mut code, body.len());
    code.extend(body);
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    section(&mut module, 1, &[1, 0x60, 0, 0]);
    section(&mut module, 3, &[1, 0]);
    section(&mut module, 10, &code);
    let mut component = b"\0asm\x0d\0\x01\0".to_vec();
    section(&mut component, 1, &module);
    component
}

#[test]
fn a_component_that_costs_too_much_to_compile_is_refused_by_its_name() {
    let site = Site::new("[plugins]\ncompile_time = \"1s\"\n[tasks.a]\nplugin = \"bomb.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("bomb.wasm");
    for (bytes, locals, words) in [
        // It is compiled, but it is not a task.
        (1_000, 10, "it is a component, but not a task"),
        (600_000, 100, "bytes in one function: at most 524288"),
        (100, 5_000, "5000 local variables in one function: at most 4000"),
        (400_000, 500, "it takes more than 1 s of CPU time"),
    ] {
        std::fs::write(&file, bomb(bytes, locals)).expect("written");
        let (code, said) = site.fails(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains(words) && said.contains("besom.toml:4:10"), "{words}: {said}");
    }
}

#[test]
fn a_component_that_takes_too_much_memory_to_compile_is_refused_by_its_name() {
    let limits = "compile_memory = \"256MiB\"\ncompile_time = \"10m\"";
    let site = Site::new(&format!("[plugins]\n{limits}\n[tasks.a]\nplugin = \"bomb.wasm\"\n"));
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    for (bytes, locals, words) in [
        (1_000, 10, "it is a component, but not a task"),
        (500_000, 3_000, "it takes more than 256 MiB of memory"),
    ] {
        std::fs::write(dir.join("bomb.wasm"), bomb(bytes, locals)).expect("written");
        let (code, said) = site.fails(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// Who owns a component, or the directory that it is in, decides what runs.
#[test]
fn a_component_of_another_user_is_refused_by_its_owner() {
    use std::os::unix::fs::chown;
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        // Only root can give a file away; every other user could only be given one.
        return;
    }
    let site = Site::new("[tasks.a]\nplugin = \"bomb.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("bomb.wasm");
    std::fs::write(&file, bomb(1_000, 10)).expect("written");
    for (given, kept) in [(&file, &dir), (&dir, &file)] {
        chown(given, Some(NOBODY), None).expect("given away");
        chown(kept, Some(0), None).expect("taken back");
        let (code, said) = site.fails(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains("it belongs to another user (uid 65534)"), "{said}");
        assert!(said.contains(given.file_name().unwrap().to_str().unwrap()), "{said}");
    }
}

/// As in many services and containers: no privileges, and a hard limit of 0 for core dumps.
#[test]
fn whoever_may_not_raise_a_limit_can_compile_all_the_same() {
    use std::os::unix::fs::chown;
    const NOBODY: u32 = 65_534;
    let site = Site::new("[tasks.a]\nplugin = \"bomb.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    std::fs::write(dir.join("bomb.wasm"), bomb(1_000, 10)).expect("written");
    // Standard input is the binary itself: this user need not be able to read the directory it is
    // in.
    let line = "ulimit -Hc 0; ulimit -Hf 1000000; ulimit -Ht 50; exec /proc/self/fd/0 check";
    let shell = ["bash", "-c", line];
    let user = NOBODY.to_string();
    let setpriv = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
    let words = match rustix::process::geteuid().is_root() {
        true => {
            chown(site.dir(), Some(NOBODY), Some(NOBODY)).expect("given away");
            [&setpriv[..], &shell].concat()
        }
        false => shell.to_vec(),
    };
    let program = std::fs::File::open(env!("CARGO_BIN_EXE_besom")).expect("the binary");
    let out = Command::new(words[0])
        .args(&words[1..])
        .current_dir(site.dir())
        .env_remove("BESOM_CONFIG")
        .env("BESOM_HOST_DEFAULT_MODE", "live")
        .env("HOME", site.dir())
        .env("XDG_CACHE_HOME", site.dir())
        .stdin(program)
        .output()
        .expect("the shell runs");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(78), "{said}");
    assert!(said.contains("it is a component, but not a task"), "{said}");
}

#[test]
fn a_plugin_is_a_regular_file_that_nobody_else_can_write() {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    let site = Site::new("[tasks.a]\nplugin = \"a.wasm\"\n");
    let dir = site.dir().join("plugins.d");
    std::fs::create_dir(&dir).expect("made");
    let file = dir.join("a.wasm");
    let made = Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
    assert!(made.success());
    let (code, said) = site.fails(&["check"]);
    assert!(code == 78 && said.contains("not a regular file"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    symlink("/dev/zero", &file).expect("linked");
    let (code, said) = site.fails(&["check"]);
    assert!(code == 78 && said.contains("not a regular file"), "{said}");
    std::fs::remove_file(&file).expect("removed");
    std::fs::write(&file, bomb(1_000, 10)).expect("written");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
    };
    for (path, open, closed) in [(&file, 0o646, 0o644), (&dir, 0o757, 0o755)] {
        mode(path, open);
        let (code, said) = site.fails(&["check"]);
        assert!(code == 78 && said.contains("other users can write to it"), "{said}");
        mode(path, closed);
    }
    let (_, said) = site.fails(&["check"]);
    assert!(said.contains("not a task"), "{said}");
}

/// The grants and the pins are in it.
#[test]
fn a_configuration_that_others_can_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::new("");
    let file = site.dir().join("besom.toml");
    for (mode, args) in [(0o666, ["check"]), (0o646, ["run"])] {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
        let (code, said) = site.fails(&args);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains(&format!("other users can write to it (mode {mode:o})")), "{said}");
        assert!(said.contains("chmod go-w"), "{said}");
    }
}

/// Besom's files are accessible only to its user, whatever the umask of the shell.
#[test]
fn a_database_of_besoms_is_readable_for_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let site = Site::new("");
    site.log("note.log", &[&[1, 1, 5, 0]]);
    let out = Command::new("sh")
        .args(["-c", "umask 000; \"$0\" doc import note.log --tenant a && exec \"$0\" run"])
        .arg(env!("CARGO_BIN_EXE_besom"))
        .current_dir(site.dir())
        .output()
        .expect("the shell runs");
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    for entry in std::fs::read_dir(site.dir()).expect("a directory") {
        let entry = entry.expect("an entry");
        let name = entry.file_name().into_string().expect("UTF-8");
        if name.starts_with("besom.db") {
            let mode = entry.metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name}");
        }
    }
    for name in ["besom.db", "besom.db-lease"] {
        assert!(site.dir().join(name).exists(), "{name}: {said}");
    }
}

#[test]
fn a_database_that_does_not_exist_is_named_and_not_created() {
    let site = Site::new("");
    let typo = ["--set", "store.path=typo.db"];
    for verb in [
        &["status"][..],
        &["audit"],
        &["check", "--store"],
        &["commands", "ls"],
        &["dead", "ls"],
        &["dead", "retry", "--all"],
        &["doc", "show", "note"],
        &["doc", "left-alone"],
        &["outbox", "ls"],
        &["run", "--dry-run"],
        &["runs", "ls"],
        &["stream", "ls"],
        &["task", "ls"],
        &["task", "trigger", "a"],
    ] {
        let (code, said) = site.fails(&[verb, &typo].concat());
        assert_eq!(code, 69, "{verb:?}: {said}");
        assert!(said.contains("typo.db does not exist"), "{verb:?}: {said}");
        assert!(said.contains("`besom serve`"), "{verb:?}: {said}");
        assert!(!site.dir().join("typo.db").exists(), "{verb:?}");
    }
    // A new file would not have the tables that tasks need either.
    std::fs::write(
        site.dir().join("besom.toml"),
        "[tasks.expire]\nplugin = \"share-expiry\"\nschedule = \"@hourly\"\n",
    )
    .expect("written");
    for verb in ["run", "serve"] {
        let (code, said) = site.fails(&[&[verb], &typo[..]].concat());
        assert_eq!(code, 69, "{verb}: {said}");
        assert!(said.contains("typo.db does not exist: correct store.path"), "{verb}: {said}");
        assert!(!site.dir().join("typo.db").exists(), "{verb}");
    }
    // An import may be the first that happens to a database, and says so.
    site.log("note.log", &[&[1, 1, 5, 0]]);
    let (code, said) =
        site.fails(&[&["doc", "import", "note.log", "--tenant", "a"], &typo[..]].concat());
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("created the database") && said.contains("typo.db"), "{said}");
}

#[test]
fn errors_of_flags_are_not_counted_as_errors_of_the_file() {
    let site = Site::new("");
    let summary = |more: &[&str]| {
        let out = site.besom(&[&["check"], more].concat());
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let said = summary(&["--set", "lease.ttl=soon"]);
    assert_eq!(said, "./besom.toml with --set: 1 error, 0 warnings\n");
    assert!(summary(&[]).starts_with("./besom.toml: valid"), "{}", summary(&[]));
    std::fs::write(site.dir().join("besom.toml"), "[lease]\nttl = 1\n").expect("written");
    assert!(summary(&[]).starts_with("./besom.toml: 1 error"), "{}", summary(&[]));
}

/// What others can read is no secret: each verb refuses it as invalid configuration, before it connects.
#[test]
fn a_password_file_that_others_can_read_is_an_invalid_configuration_for_every_verb() {
    use std::os::unix::fs::PermissionsExt as _;

    let site = Site::new(
        "[store]\nurl = \"postgres://besom@127.0.0.1:1/besom\"\npassword_file = \"secret\"\n\
         [tasks.share-expiry]\nplugin = \"share-expiry\"\nschedule = \"@hourly\"\n",
    );
    let file = site.dir().join("secret");
    std::fs::write(&file, "right\n").expect("written");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).expect("changed");
    for verb in [
        &["check"][..],
        &["serve"],
        &["run"],
        &["status"],
        &["audit"],
        &["dead", "ls"],
        &["outbox", "ls"],
        &["task", "trigger", "share-expiry"],
    ] {
        let (code, said) = site.fails(verb);
        assert_eq!(code, 78, "{verb:?}: {said}");
        assert!(said.contains("store.password_file") && said.contains("chmod 600"), "{said}");
    }
}

/// The commented examples of a new configuration, each from its `# [section]` to the next other line.
fn examples(template: &str) -> Vec<String> {
    let mut examples: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in template.lines() {
        let line = line.strip_prefix("# ").filter(|rest| !rest.starts_with(' ')).unwrap_or("");
        let is_header = line.starts_with('[') && line.ends_with(']');
        let is_part = examples.last().is_some_and(|last| {
            let section = last.lines().next().unwrap_or_default().trim_end_matches(']');
            is_open && line.starts_with(&format!("{section}."))
        });
        let is_key = line.split_once(" = ").is_some_and(|(key, _)| !key.contains(' '));
        is_open = is_header || is_open && is_key;
        match (is_header && !is_part, is_open) {
            (true, _) => examples.push(format!("{line}\n")),
            (false, true) => {
                let last = examples.last_mut().expect("an open one");
                last.push_str(&format!("{line}\n"));
            }
            (false, false) => {}
        }
    }
    examples
}

#[test]
fn every_commented_example_of_a_new_configuration_is_valid() {
    use std::os::unix::fs::PermissionsExt as _;

    let site = Site::new("");
    for secret in ["orchestrator.token", "redis.password", "kafka.password"] {
        let file = site.dir().join(secret);
        std::fs::write(&file, "0123456789abcdef0123456789abcdef\n").expect("written");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("changed");
    }
    let template = site.besom(&["config", "init", "--stdout"]).stdout;
    let template = String::from_utf8(template).expect("UTF-8");
    let examples = examples(&template);
    let heads: Vec<_> = examples.iter().filter_map(|example| example.lines().next()).collect();
    assert_eq!(
        heads,
        [
            "[topics.\"workspace.stop\"]",
            "[topics.\"documents.compacted\"]",
            "[topics.\"documents.expired\"]",
            "[tasks.reconciler]",
            "[tasks.ended-shares]",
            "[tasks.compaction]",
            "[tasks.client-deactivation]",
            "[tasks.share-expiry]",
            "[tasks.ttl-transitions]",
            "[collections.shares]"
        ]
    );
    for example in examples {
        std::fs::write(site.dir().join("besom.toml"), format!("{template}\n{example}"))
            .expect("written");
        let hosts =
            "delivery.hosts=orchestrator.internal:443,redis.internal:6379,kafka.internal:9092";
        let (code, said) = site.fails(&["check", "--set", hosts]);
        assert_eq!(code, 0, "{example}\n{said}");
    }
}

#[test]
fn a_trace_that_cannot_be_read_is_told_once() {
    let site = Site::new("");
    let (code, said) = site.fails(&["demo", "--dir", "d", "--exit", "--trace", "none.json"]);
    assert_eq!(code, 1, "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
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

/// The session tables of Django, Rails and Laravel, as their migrations create them on SQLite, each mapped
/// by one command and swept by six lines: 1,500 expired sessions, of which many expired at the same
/// moment, and some that have not. Laravel's has the prefix that its configuration may give to tables.
/// `tests/tests/postgres_server/shapes.rs` has the same on PostgreSQL.
#[test]
fn session_tables_of_frameworks_are_swept_without_code() {
    let site = Site::new("[store]\npath = \"app.db\"  # the product's\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    product
        .execute_batch(&format!(
            "CREATE TABLE \"django_session\" (\"session_key\" varchar(40) NOT NULL PRIMARY KEY,
               \"session_data\" text NOT NULL, \"expire_date\" datetime NOT NULL);
             CREATE INDEX \"django_session_expire_date_a5c62663\" ON \"django_session\" (\"expire_date\");
             CREATE TABLE \"sessions\" (\"id\" integer PRIMARY KEY AUTOINCREMENT NOT NULL,
               \"session_id\" varchar NOT NULL, \"data\" text, \"created_at\" datetime(6) NOT NULL,
               \"updated_at\" datetime(6) NOT NULL);
             CREATE UNIQUE INDEX \"index_sessions_on_session_id\" ON \"sessions\" (\"session_id\");
             CREATE INDEX \"index_sessions_on_updated_at\" ON \"sessions\" (\"updated_at\");
             CREATE TABLE \"laravel_sessions\" (\"id\" varchar not null, \"user_id\" integer,
               \"ip_address\" varchar, \"user_agent\" text, \"payload\" text not null,
               \"last_activity\" integer not null, primary key (\"id\"));
             CREATE INDEX \"laravel_sessions_user_id_index\" on \"laravel_sessions\" (\"user_id\");
             CREATE INDEX \"laravel_sessions_last_activity_index\" on \"laravel_sessions\" (\"last_activity\");
             CREATE TABLE node_sessions (sid TEXT PRIMARY KEY, expires_at TEXT NOT NULL, data BLOB);
             CREATE INDEX node_sessions_by_expiry ON node_sessions (expires_at);
             INSERT INTO node_sessions VALUES ('js', '2026-01-02T03:04:05.678Z', NULL);
             CREATE TABLE n (i INTEGER PRIMARY KEY, past);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 1510)
               INSERT INTO n SELECT i, i <= 1500 FROM c;
             INSERT INTO django_session SELECT hex(i), 'x',
               iif(past, '2026-01-0' || (1 + i % 2) || ' 08:00:00', '2999-01-01 00:00:00.250000') FROM n;
             INSERT INTO sessions (session_id, created_at, updated_at) SELECT hex(i), '2026-01-01 00:00:00.000000',
               iif(past, '2026-01-01 00:00:00.000000', '2999-01-01 00:00:00.000000') FROM n;
             INSERT INTO laravel_sessions
               SELECT hex(i), NULL, '::1', 'x', 'x', iif(past, 1764000000, {}) FROM n;
             INSERT INTO node_sessions
               SELECT hex(i), iif(past, '2026-01-02T03:04:05.670Z', '2999-01-01T00:00:00.000Z'), NULL FROM n;
             DROP TABLE n",
            now.as_secs()
        ))
        .expect("created");
    for (table, name) in [
        ("django_session", "django"),
        ("sessions", "rails"),
        ("laravel_sessions", "laravel"),
        ("node_sessions", "node"),
    ] {
        let out = site.besom(&["config", "map", table, "--name", name, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let is_as_it_was = || {
        let engines = "SELECT count(*) FROM sqlite_schema WHERE name LIKE 'besom%'";
        let engines: i64 = product.query_row(engines, [], |r| r.get(0)).expect("counted");
        let mode: String =
            product.query_row("PRAGMA journal_mode", [], |r| r.get(0)).expect("a mode");
        engines == 0 && mode == "delete"
    };
    assert!(is_as_it_was(), "the database is only read");
    // Long ago, and in other forms, which have no order with the others: they stay.
    product
        .execute_batch(
            "UPDATE node_sessions SET expires_at = '2020-01-01T00:00:00Z' WHERE sid = hex(1501);
             UPDATE node_sessions SET expires_at = '2020-01-01 00:00:00.000' WHERE sid = hex(1502)",
        )
        .expect("updated");
    let file = site.dir().join("besom.toml");
    let mut text = std::fs::read_to_string(&file).expect("read");
    assert!(text.starts_with("[store]\npath = \"app.db\"  # the product's\n"), "{text}");
    for (name, by, age) in [
        ("django", "expire_date", "0s"),
        ("rails", "updated_at", "30d"),
        ("laravel", "last_activity", "2h"),
        ("node", "expires_at", "0s"),
    ] {
        let task = format!(
            "[tasks.{name}]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
             collections.rows = \"{name}\"\nsettings = {{ by = \"{by}\", older_than = \"{age}\" }}\n"
        );
        assert_eq!(task.lines().count(), 6);
        text.push_str(&format!("\n{task}"));
    }
    std::fs::write(&file, &text).expect("written");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    assert!(is_as_it_was(), "a check changes nothing");
    let out = site.command(&["run"]).env_remove("BESOM_HOST_DEFAULT_MODE").output();
    let out = out.expect("the binary runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (code, said) = site.fails(&["review", "show", "django"]);
    assert!(code == 2 && said.contains("django, whose runs are executed at once"), "{said}");
    for table in ["django_session", "sessions", "laravel_sessions", "node_sessions"] {
        let left = format!("SELECT count(*) FROM {table}");
        let left: i64 = product.query_row(&left, [], |r| r.get(0)).expect("counted");
        assert_eq!(left, 10, "{table}");
    }
    assert_eq!(site.json(&["audit"]).0, 0);

    // A fault of a condition is shown under its characters.
    let wrong = text.replacen("older_than = \"0s\"", "where = \"session_dat = 'x'\"", 1);
    std::fs::write(&file, &wrong).expect("written");
    let (code, said) = site.fails(&["check"]);
    assert_eq!(code, 78, "{said}");
    let (_, said) = said.split_once("no column `session_dat`").expect("the fault");
    let at = said.find("session_dat = 'x'").expect("the line is shown");
    let column = at - said[..at].rfind('\n').expect("a line") - 1;
    let marks = said[at..].lines().nth(1).unwrap_or_default();
    assert_eq!(marks.find('^'), Some(column), "{said}");

    // Without an age, the column has to hold an expiry, by its name or by the rows.
    let ageless = text.replace(", older_than = \"0s\"", "").replace(", older_than = \"30d\"", "");
    std::fs::write(&file, &ageless).expect("written");
    product
        .execute_batch(
            "CREATE TABLE visits (id INTEGER PRIMARY KEY, at TEXT); CREATE INDEX visits_at ON visits (at);
             INSERT INTO visits (at) VALUES ('2020-01-01 00:00:00'), (NULL)",
        )
        .expect("created");
    assert!(site.besom(&["config", "map", "visits", "--write"]).status.success());
    let mut ageless = std::fs::read_to_string(&file).expect("read");
    ageless.push_str(
        "\n[tasks.visits]\nplugin = \"retention\"\ncollections.rows = \"visits\"\nsettings.by = \"at\"\n",
    );
    std::fs::write(&file, &ageless).expect("written");
    let updated = "without older_than, every row whose `updated_at` has passed is deleted, as if it were an expiry; \
                   by its name, `updated_at` is when something has happened";
    let at = "every row whose `at` has passed is deleted, as if it were an expiry; no row of `visits` has one that is \
              still to come";
    let (code, said) = site.fails(&["check"]);
    assert_eq!((code, said.matches("older_than, every row").count()), (0, 1), "{said}");
    assert!(said.contains(updated) && said.contains("such as older_than = \"30d\""), "{said}");
    assert!(said.contains("settings = { by = \"updated_at\" }"), "{said}");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!((code, said.matches("older_than, every row").count()), (0, 2), "{said}");
    assert!(said.contains(updated) && said.contains(at), "{said}");
    product
        .execute_batch("UPDATE visits SET at = '2999-01-01 00:00:00' WHERE at IS NULL")
        .expect("set");
    let (_, said) = site.fails(&["check", "--store"]);
    assert!(said.contains(updated) && !said.contains(at), "{said}");

    // A column by which no index reads is answered with the index.
    let unread = text.replacen("by = \"updated_at\"", "by = \"created_at\"", 1);
    std::fs::write(&file, &unread).expect("written");
    let (code, said) = site.fails(&["check"]);
    assert_eq!(code, 78, "{said}");
    let index = "CREATE INDEX \"sessions_by_created_at\" ON \"sessions\" (\"created_at\", \"id\")";
    assert!(said.contains("no mapped index begins with `created_at`"), "{said}");
    assert!(said.contains(&format!("If the table has none: {index}")), "{said}");
    let elsewhere =
        unread.replacen("path = \"app.db\"", "url = \"postgres://besom@127.0.0.1:1/app\"", 1);
    std::fs::write(&file, elsewhere).expect("written");
    let (_, said) = site.fails(&["check"]);
    assert!(said.contains("CREATE INDEX CONCURRENTLY \"sessions_by_created_at\" ON"), "{said}");
    product.execute_batch(index).expect("as it is printed");

    std::fs::write(&file, &text).expect("written");
    product.execute_batch("CREATE VIEW all_sessions AS SELECT * FROM sessions").expect("a view");
    let out = site.besom(&["config", "map", "all_sessions", "--key", "id"]);
    let section = String::from_utf8_lossy(&out.stdout);
    assert!(section.contains("# tasks can only read the rows of a view of SQLite"), "{section}");
    let (code, said) = site.fails(&["config", "map", "django_sesion"]);
    assert!(code == 1 && said.contains("did you mean `django_session`?"), "{said}");
    let (code, said) = site.fails(&["config", "map", "sessions", "--name", "rails", "--write"]);
    assert!(code == 1 && said.contains("has [collections.rails] already"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).expect("read"), text, "the file is as it was");

    // Two lines from a table to a preview.
    let mapped = ["config", "map", "laravel_sessions", "--name", "php sessions"];
    let printed = site.besom(&[&mapped[..], &["--older-than", "36h"]].concat());
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    let task = "[tasks.old-php-sessions]  # without a mode, it only shows what it would delete\n\
                plugin = \"retention\"\nschedule = \"@hourly\"\ncollections.rows = \"php sessions\"\n\
                settings = { by = \"last_activity\", older_than = \"36h\" }\n";
    assert!(printed.ends_with(&format!("\n\n{task}")), "{printed}");
    let (_, said) =
        site.fails(&[&mapped[..], &["--older-than", "36h", "--by", "last_actvity"]].concat());
    assert!(said.contains("did you mean `last_activity`?"), "{said}");
    let map = ["config", "map", "orders", "--older-than", "1d", "--write"];
    product
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, made DATE, due DATE);
             CREATE INDEX orders_by_time ON orders (made);
             CREATE INDEX orders_by_due ON orders (due);
             INSERT INTO orders VALUES (1, '2026-01-01', '2999-01-01');",
        )
        .expect("created");
    let (code, said) = site.fails(&map);
    assert!(code == 1 && said.contains("with --by: `due`, `made`"), "{said}");
    let out = site.besom(&[&map[..], &["--by", "made"]].concat());
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(said.contains("Then see what the task would delete: besom run old-orders"), "{said}");
    let (code, said) = site.fails(&[&map[..], &["--by", "made", "--name", "old.orders"]].concat());
    assert_eq!(code, 0, "{said}");
    let mut run = site.command(&["run", "old-orders"]);
    let out = run.env_remove("BESOM_HOST_DEFAULT_MODE").output().expect("the binary runs");
    let said = String::from_utf8_lossy(&out.stderr) + String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains('1'), "{said}");
    let kept: i64 =
        product.query_row("SELECT count(*) FROM orders", [], |r| r.get(0)).expect("counted");
    assert_eq!(kept, 1, "it only shows");
    // The names of tasks have fewer characters than those of collections.
    let (code, said) = site.fails(&[&map[..], &["--by", "made", "--name", "old/orders"]].concat());
    assert_eq!(code, 0, "{said}");
    let (code, said) = site.fails(&[&map[..], &["--by", "made", "--name", "old orders"]].concat());
    assert!(code == 1 && said.contains("has [tasks.old-old-orders] already"), "{said}");
}

/// Orders that are archived with columns that nobody mapped, and sessions that are deleted with the rows that refer to
/// them, as a person would set it up.
#[test]
fn rows_are_archived_and_rows_go_with_others() {
    let site = Site::new("[store]\npath = \"app.db\"\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY, closed_at TEXT, note BLOB);
             CREATE INDEX orders_by_close ON orders (closed_at);
             CREATE TABLE old_orders (id INTEGER PRIMARY KEY, closed_at TEXT, moved INTEGER DEFAULT 1);
             CREATE TABLE sessions (id TEXT PRIMARY KEY, seen TEXT NOT NULL);
             CREATE INDEX sessions_by_seen ON sessions (seen);
             CREATE TABLE events (id INTEGER PRIMARY KEY, session TEXT NOT NULL REFERENCES sessions);
             CREATE INDEX events_by_session ON events (session);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 2500)
               INSERT INTO orders SELECT i, iif(i > 2400, '2999-01-01', '2020-01-01') || ' 00:00:00', x'00ff' FROM c;
             INSERT INTO sessions SELECT 's' || id, closed_at FROM orders;
             INSERT INTO events (session) SELECT 's' || (1 + id % 2500) FROM orders;
             INSERT INTO events (session) SELECT session FROM events;",
        )
        .expect("created");
    for table in ["orders", "old_orders", "sessions", "events"] {
        let out = site.besom(&["config", "map", table, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let file = site.dir().join("besom.toml");
    let mapped = std::fs::read_to_string(&file).expect("read");
    let anchor = "\nanchor = { collection = \"sessions\", columns = [\"session\"] }\n";
    assert!(mapped.contains(anchor), "a foreign key to a mapped table: {mapped}");
    let head = "[collections.sessions]\n";
    let dependants = format!("{head}dependants = [\"events\"]\n");
    let mut text = mapped.replacen(head, &dependants, 1);
    text.push_str(
        "\n[tasks.orders]\nplugin = \"retention\"\nschedule = \"@hourly\"\n\
         collections = { rows = \"orders\", into = \"old_orders\" }\n\
         settings = { by = \"closed_at\", older_than = \"30d\", action = \"archive\" }\n\
         [tasks.sessions]\nplugin = \"retention\"\nschedule = \"@hourly\"\ncollections.rows = \"sessions\"\n\
         settings = { by = \"seen\", older_than = \"30d\" }\n",
    );
    // The mapping shows that the other table has no such column.
    std::fs::write(&file, &text).expect("written");
    let (code, said) = site.fails(&["check"]);
    assert!(code == 78 && said.contains("the rows have a column `note`"), "{code}: {said}");
    // Without it in the mapping, the database shows it, and nothing is moved.
    let unmapped = text.replacen("note = ", "# note = ", 1);
    std::fs::write(&file, &unmapped).expect("written");
    let (code, said) = site.fails(&["check", "--store"]);
    let add = "ALTER TABLE \"old_orders\" ADD COLUMN \"note\" BLOB";
    assert!(code == 78 && said.contains(add), "{code}: {said}");
    let (code, said) = site.fails(&["run", "orders"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("ALTER TABLE \"old_orders\" ADD COLUMN \"note\""), "{said}");
    let count = |table: &str| -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        product.query_row(&sql, [], |row| row.get(0)).expect("counted")
    };
    assert_eq!([count("orders"), count("old_orders")], [2_500, 0]);
    product.execute_batch("ALTER TABLE old_orders ADD COLUMN note BLOB").expect("added");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    let rehearsed = site.besom(&["run", "--dry-run"]).stdout;
    let rehearsed = String::from_utf8_lossy(&rehearsed);
    for line in [
        "orders: 5 items would change at most 2400 rows (96 % of about 2500 of orders)\n",
        "a range of at most 500 rows, and what refers to them in events\n",
        "sessions: 5 items would change at most 2400 rows (96 % of about 2500 of sessions)\n",
        "10 items (10 propose); nothing was committed.\n",
    ] {
        assert!(rehearsed.contains(line), "{rehearsed}");
    }
    let (code, runs) = site.json(&["run"]);
    assert_eq!(code, 0, "{runs:#}");
    let tables = ["orders", "old_orders", "sessions", "events"];
    assert_eq!(tables.map(count), [100, 2_400, 100, 200]);
    let intact = "SELECT count(*) FROM old_orders WHERE note = x'00ff' AND moved = 1";
    let intact: i64 = product.query_row(intact, [], |row| row.get(0)).expect("counted");
    assert_eq!(intact, 2_400);
    let rows = |task: &str| {
        let runs = runs.as_array().expect("runs");
        let run = runs.iter().find(|run| run["task"] == task).expect("a run");
        run["rows"].as_u64()
    };
    assert_eq!(rows("orders"), Some(2_400));
    assert_eq!(rows("sessions"), Some(2_400 + 4_800));
    assert_eq!(site.json(&["audit"]).0, 0);
    // A row whose key is taken there stays as a dead letter, and the pass says why.
    product
        .execute_batch(
            "INSERT INTO orders VALUES (1, '2020-01-01 00:00:00', NULL), (3000, '2020-01-01 00:00:00', NULL)",
        )
        .expect("inserted");
    let (code, runs) = site.json(&["run", "orders"]);
    assert_eq!(
        (code, &runs[0]["rows"], &runs[0]["refused"]),
        (1, &1.into(), &1.into()),
        "{runs:#}"
    );
    let why = runs[0]["refusal"].as_str().unwrap_or_default();
    assert!(why.starts_with("1 row could not be changed: (1): UNIQUE"), "{why}");
}

/// Jobs that are found by their state and end, and posts by an index without those that were never deleted.
/// `tests/tests/postgres_server/jobs.rs` has more of them on PostgreSQL.
#[test]
fn rows_are_found_by_the_indexes_that_a_product_has() {
    let site = Site::new("[store]\npath = \"app.db\"\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state TEXT NOT NULL, finished_at DATETIME,
               attempts INTEGER NOT NULL DEFAULT 2);
             CREATE INDEX jobs_by_state ON jobs (state, finished_at);
             CREATE TABLE posts (id INTEGER PRIMARY KEY, title TEXT, deleted_at DATETIME);
             CREATE INDEX posts_by_deletion ON posts (deleted_at) WHERE deleted_at IS NOT NULL;
             CREATE INDEX posts_by_title ON posts (title) WHERE title <> '';
             CREATE TABLE comments (id INTEGER PRIMARY KEY, post INTEGER NOT NULL REFERENCES posts);
             CREATE INDEX comments_by_post ON comments (post);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 6000)
               INSERT INTO jobs (id, state, finished_at) SELECT i, iif(i % 4 = 0, 'waiting', iif(i % 4 = 1, 'lost', iif(i % 4 = 2, 'done', 'failed'))),
                 iif(i % 4 = 0, NULL, iif(i > 4800, '2999-01-01', '2020-01-0' || (1 + i / 4 % 3)) || ' 08:00:00') FROM c;
             INSERT INTO posts SELECT id, 'x', iif(id % 5 = 0, iif(id > 5000, '2999-01-01', '2020-01-01') || ' 08:00:00', NULL)
               FROM jobs;
             INSERT INTO comments (post) SELECT id FROM posts;",
        )
        .expect("created");
    for table in ["jobs", "posts", "comments"] {
        let out = site.besom(&["config", "map", table, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let file = site.dir().join("besom.toml");
    let mapped = std::fs::read_to_string(&file).expect("read");
    let partial = "{ columns = [\"deleted_at\"], not_null = [\"deleted_at\"] }";
    for line in [
        "# no index begins with a timestamp or a date, as `retention` needs it unless its `where` fixes the columns \
         before it: CREATE INDEX \"jobs_by_finished_at\" ON \"jobs\" (\"finished_at\", \"id\")",
        "state_finished_at = [\"state\", \"finished_at\"]",
        "# the index posts_by_title covers only some of the rows, and is not used",
        &format!("deleted_at = {partial}"),
    ] {
        assert!(mapped.contains(&format!("\n{line}\n")), "{line}: {mapped}");
    }
    assert_eq!(mapped.matches("# no index begins").count(), 1, "comments tell no age: {mapped}");
    let head = "[collections.posts]\n";
    let mut text = mapped.replacen(head, &format!("{head}dependants = [\"comments\"]\n"), 1);
    for (task, rows, settings) in [
        (
            "ended",
            "jobs",
            "by = \"finished_at\", older_than = \"7d\", where = \"state in ('done', 'failed')\"",
        ),
        (
            "lost",
            "jobs",
            "by = \"finished_at\", older_than = \"7d\", where = \"state = 'lost'\", action = \"set\", \
             set = \"state = 'given up', attempts = attempts - 1\", chunk = 0",
        ),
        ("posts", "posts", "by = \"deleted_at\", older_than = \"7d\""),
    ] {
        text.push_str(&format!(
            "\n[tasks.{task}]\nplugin = \"retention\"\nschedule = \"@hourly\"\ncollections.rows = \"{rows}\"\n\
             settings = {{ {settings} }}\n"
        ));
    }
    // Where rows would be left out, or all of them read, nothing starts.
    for (from, to, code, words) in [
        (
            partial,
            "[\"deleted_at\"]",
            "78",
            "not_null = [\"deleted_at\"] }; otherwise: CREATE INDEX",
        ),
        (
            "state in ('done', 'failed')",
            "state != 'lost'",
            "78",
            "no mapped index begins with `finished_at`",
        ),
        (
            "not_null = [\"deleted_at\"]",
            "not_null = [\"deleted\"]",
            "78",
            "did you mean `deleted_at`?",
        ),
    ] {
        std::fs::write(&file, text.replacen(from, to, 1)).expect("written");
        let (found, said) = site.fails(&["check", "--store"]);
        assert!(found.to_string() == code && said.contains(words), "{from}: {found}: {said}");
    }
    std::fs::write(&file, &text).expect("written");
    let (code, said) = site.fails(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    let (code, runs) = site.json(&["run"]);
    assert_eq!(code, 0, "{runs:#}");
    let rows: Vec<_> = runs.as_array().expect("runs").iter().map(|run| &run["rows"]).collect();
    assert_eq!(rows, [2_400, 1_200, 2_000], "{runs:#}");
    for (sql, expected) in [
        ("SELECT count(*) FROM jobs WHERE state IN ('done', 'failed')", 600),
        (
            "SELECT count(*) FROM jobs WHERE state = 'given up' AND finished_at < '2999-01-01'",
            1_200,
        ),
        ("SELECT count(*) FROM jobs WHERE attempts = 1 AND state = 'given up'", 1_200),
        ("SELECT count(*) FROM jobs WHERE attempts = 2", 2_400),
        ("SELECT count(*) FROM jobs", 3_600),
        ("SELECT count(*) FROM posts", 5_000),
        ("SELECT count(*) FROM posts WHERE deleted_at < '2999-01-01'", 0),
        ("SELECT count(*) FROM comments", 5_000),
    ] {
        let found: i64 = product.query_row(sql, [], |row| row.get(0)).expect("counted");
        assert_eq!(found, expected, "{sql}");
    }
    assert_eq!(site.json(&["audit"]).0, 0);
}

/// Messages refer to users in two ways and go with either; posts lose an editor and stay. A dependant that lacks the
/// anchor of a foreign key is refused: the database would delete its rows, and nobody would keep them.
/// `tests/tests/postgres_server/jobs.rs` has the same on PostgreSQL.
#[test]
fn rows_go_by_each_of_their_foreign_keys_and_come_back() {
    let site = Site::new("[store]\npath = \"app.db\"\n");
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, deleted_at DATETIME);
             CREATE INDEX users_by_deletion ON users (deleted_at, id);
             CREATE TABLE messages (id INTEGER PRIMARY KEY,
               sender INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
               recipient INTEGER NOT NULL REFERENCES users ON DELETE CASCADE);
             CREATE INDEX messages_by_sender ON messages (sender);
             CREATE INDEX messages_by_recipient ON messages (recipient);
             CREATE TABLE posts (id INTEGER PRIMARY KEY,
               author INTEGER NOT NULL REFERENCES users ON DELETE CASCADE,
               editor INTEGER REFERENCES users ON DELETE SET NULL);
             CREATE INDEX posts_by_author ON posts (author);
             CREATE INDEX posts_by_editor ON posts (editor);
             INSERT INTO users VALUES (1, '2020-01-01 00:00:00'), (2, NULL), (3, NULL);
             INSERT INTO messages VALUES (10, 1, 2), (20, 2, 1), (30, 2, 3), (40, 1, 1);
             INSERT INTO posts VALUES (10, 1, 2), (20, 2, 1), (30, 2, 3);",
        )
        .expect("created");
    for table in ["users", "messages", "posts"] {
        let out = site.besom(&["config", "map", table, "--write"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let file = site.dir().join("besom.toml");
    let mapped = std::fs::read_to_string(&file).expect("read");
    let author = "\nanchor = { collection = \"users\", columns = [\"author\"] }\n";
    for line in [
        author,
        "\n# foreign key: editor refers to users; no anchor: the row stays, without the reference, when the other \
         one is deleted\n",
    ] {
        assert!(mapped.contains(line), "{line}: {mapped}");
    }
    let head = "[collections.users]\n";
    let with = format!("{head}dependants = [\"messages\", \"posts\"]\n");
    let text = mapped.replacen(head, &with, 1)
        + "\n[tasks.gone]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
           collections.rows = \"users\"\nsettings = { by = \"deleted_at\", older_than = \"30d\" }\n";
    let sender = "{ collection = \"users\", columns = [\"sender\"] }";
    for (from, to, code, words) in [
        (format!(", {sender}"), String::new(), 78, "deletes rows of messages (sender): those"),
        (
            author.to_owned(),
            author
                .replace("{ coll", "[{ coll")
                .replace(" }", " }, { collection = \"users\", columns = [\"editor\"] }]"),
            0,
            "rows of posts (editor) that refer to it are deleted as `dependants`",
        ),
        (
            "dependants = [\"messages\", \"posts\"]".to_owned(),
            "dependants = [\"messages\", \"posts\"]".to_owned(),
            0,
            "also changes rows of posts (editor)",
        ),
    ] {
        let changed = text.replacen(&from, &to, 1);
        assert_eq!(changed == text, from == to, "{from}: {text}");
        std::fs::write(&file, changed).expect("written");
        let (found, said) = site.fails(&["check", "--store"]);
        assert!(found == code && said.contains(words), "{from}: {found}: {said}");
    }
    let all = || -> String {
        let sql = "SELECT group_concat(r, ' ') FROM (
            SELECT 'u' || id AS r FROM users UNION ALL SELECT 'm' || id FROM messages
            UNION ALL SELECT 'p' || id || coalesce('e' || editor, '') FROM posts ORDER BY r)";
        product.query_row(sql, [], |row| row.get(0)).expect("read")
    };
    let (code, runs) = site.json(&["run"]);
    assert_eq!((code, &runs[0]["rows"]), (0, &Value::from(5)), "{runs:#}");
    assert_eq!(all(), "m30 p20 p30e3 u2 u3");
    assert_eq!(site.json(&["audit"]).0, 0);
    let (code, undone) = site.json(&["undo", "1", "--reason", "a test"]);
    assert_eq!((code, &undone["rows"]), (0, &Value::from(5)), "{undone:#}");
    assert_eq!(all(), "m10 m20 m30 m40 p10e2 p20 p30e3 u1 u2 u3");
}

/// A table without row ids whose key is compared otherwise by its column than by its index: a row that is named by
/// its key has to meet the bounds as well, with and without a trigger.
#[test]
fn a_row_with_a_key_that_a_collation_calls_equal_stays() {
    let site = Site::new(
        "[store]\npath = \"app.db\"\n[tasks.old]\nplugin = \"retention\"\nmode = \"live\"\nschedule = \"@hourly\"\n\
         collections.rows = \"t\"\nsettings = { by = \"at\", older_than = \"1d\" }\n\
         [collections.t]\nkey = [\"k\"]\n\
         columns = { k = \"text\", at = { type = \"timestamp\", encoding = \"seconds\" } }\n\
         indexes = { by_at = [\"at\"] }\n",
    );
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    let fill = "INSERT INTO t VALUES ('a', unixepoch() - 864000), ('A', unixepoch() + 864000)";
    product
        .execute_batch(&format!(
            "CREATE TABLE t (k TEXT COLLATE NOCASE, at INTEGER, PRIMARY KEY (k COLLATE BINARY)) WITHOUT ROWID;
             CREATE INDEX i ON t (at, k); {fill};"
        ))
        .expect("created");
    for trigger in ["", "CREATE TRIGGER g AFTER DELETE ON t BEGIN SELECT 1; END"] {
        product.execute_batch(trigger).expect("created");
        let (code, runs) = site.json(&["run", "old"]);
        assert_eq!((code, &runs[0]["rows"]), (0, &Value::from(1)), "{trigger}: {runs:#}");
        let left: String =
            product.query_row("SELECT group_concat(k) FROM t", [], |row| row.get(0)).expect("read");
        assert_eq!(left, "A", "{trigger}");
        product.execute_batch(&format!("DELETE FROM t; {fill}")).expect("filled");
    }
}

/// A scan may read `rows_read` rows in one call; rows that do not meet the condition count as well.
#[test]
fn a_condition_that_few_rows_meet_is_read_in_several_calls() {
    let site = Site::new(
        "[store]\npath = \"app.db\"\n[tasks.notes]\nplugin = \"retention\"\nschedule = \"@hourly\"\n\
         collections.rows = \"notes\"\n\
         settings = { by = \"at\", where = \"state = 'old'\", chunk = 100 }\n\
         [tasks.notes.limits]\nrows_read = 1000\n",
    );
    let product = rusqlite::Connection::open(site.dir().join("app.db")).expect("opened");
    product
        .execute_batch(
            "CREATE TABLE notes (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, state TEXT);
             CREATE INDEX notes_by_at ON notes (at);
             WITH RECURSIVE c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 12000)
               INSERT INTO notes SELECT i, 1700000000 + i, iif(i % 5000 < 30, 'old', 'new') FROM c;",
        )
        .expect("created");
    let out = site.besom(&["config", "map", "notes", "--write"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (code, runs) = site.json(&["run"]);
    assert_eq!((code, &runs[0]["rows"]), (0, &Value::from(89)), "{runs:#}");
    let left = || -> i64 {
        product.query_row("SELECT count(*) FROM notes", [], |row| row.get(0)).expect("counted")
    };
    assert_eq!(left(), 12_000 - 89);
    // Also if every row meets it: a call reads as many whole parts as it may.
    let file = site.dir().join("besom.toml");
    let text = std::fs::read_to_string(&file).expect("read");
    for (chunk, rows_left) in [("300", 5_000), ("1000", 2_000), ("2000", 0)] {
        let condition = format!("where = \"id > {rows_left}\", chunk = {chunk}");
        let text = text.replace("where = \"state = 'old'\", chunk = 100", &condition);
        std::fs::write(&file, text).expect("written");
        let (code, said) = site.fails(&["run"]);
        assert_eq!(code, 0, "{chunk}: {said}");
        let kept = (1..=rows_left).filter(|id| id % 5_000 >= 30).count() as i64;
        assert_eq!(left(), kept, "{chunk}");
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
