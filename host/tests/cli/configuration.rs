//! Files, flags and variables that are checked, and the first configuration.

use serde_json::Value;

use crate::site::Site;

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
