//! What scripts rely on: names, shapes and exit codes, with a running host and in case of errors.

use rusqlite::params;
use rustix::process::{Pid, Resource, Rlimit, prlimit};
use serde_json::{Value, json};

use crate::host::Host;
use crate::load::{SECOND_US, add_share, append, now_us};
use crate::site::{Site, wait_for};

const CONFIG: &str = r#"
[tasks.compaction]
plugin = "compaction"
schedule = "@every 1s"
[tasks.compaction.settings]
min_changes = 3
[tasks.compaction.retry]
attempts_max = 1
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
"#;

/// Many errors in one file, each with its expected place and fix.
const WRONG: &str = r#"[stor]
path = "x"
[lease]
ttl = 15
[tasks.never]
plugin = "compaction"
schedule = "0 0 30 2 *"
[tasks.gone]
plugin = "gone.wasm"
schedule = "@every 1m"
[tasks.text]
plugin = "text.wasm"
schedule = "@every 1m"
[tasks.sweep]
plugin = "sweep.wasm"
schedule = "@every 1m"
[tasks.sweep.grants]
sessions = ["read", "delete"]
elsewhere = ["read"]
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1m"
overlap = "skp"
[collections.shares]
table = "shares"
tenant = "project_id"
key = ["share_id"]
columns = { share_id = "text", start_date = "timestamp", limit_seconds = "integer", unshared_at = "timestamp", colour = "text" }
indexes = { by_unshared_start = ["unshared_at", "start_date"] }
[collections.sessions]
table = "no_such_table"
key = ["session_id"]
columns = { session_id = "text", expires_at = "timestamp" }
indexes = { by_expiry = ["expires_at"] }
"#;

const SAID: [&str; 9] = [
    "besom.toml:1:2: error: unknown key `stor`",
    "besom.toml:4:7:",
    "besom.toml:7:17: error: this never runs",
    "besom.toml:9:10:",
    "besom.toml:12:10:",
    "besom.toml:19:1:",
    "did you mean \"skip\"?",
    "colour",
    "no_such_table",
];

/// One map entry of client `client`.
fn entry(client: u8) -> [u8; 14] {
    [1, 1, client, 0, 40, 1, 1, b'm', 1, b'k', 1, 125, 5, 0]
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[track_caller]
fn has_keys(value: &Value, wanted: &[&str]) {
    let there = keys(value);
    for key in wanted {
        assert!(there.contains(key), "`{key}` is not in {value:#}");
    }
}

/// A site with a document that has a gap at 2.
fn with_a_gap(config: &str) -> Site {
    let site = Site::new(config);
    site.create_tables();
    let mut db = site.database();
    for doc in ["gap", "lost"] {
        let sql = "INSERT INTO documents (project_id, doc_id, created_at, updated_at)
                   VALUES ('first', ?1, 0, 0)";
        db.execute(sql, [doc]).expect("a document");
        for client in 1..=4 {
            append(&mut db, &("first".into(), doc.into()), "author", "edit", &entry(client));
        }
    }
    db.execute("DELETE FROM changes WHERE server_seq = 2", []).expect("a gap");
    site
}

fn applied(site: &Site, args: &[&str]) -> Value {
    let (code, asked) = site.json(args);
    assert_eq!((code, &asked["applied"]), (0, &Value::Bool(true)), "{args:?}: {asked}");
    has_keys(&asked, &["command", "applied", "result", "refused"]);
    asked
}

#[test]
fn every_verb_answers_beside_a_host_in_its_shape() {
    let site = with_a_gap(CONFIG);
    let mut host = site.serve();
    host.leads();
    let letters = wait_for("the dead letters", || {
        let (_, dead) = site.json(&["dead", "ls"]);
        dead.as_array().filter(|dead| dead.len() == 2).cloned()
    });

    let (code, status) = site.json(&["status"]);
    assert_eq!(code, 0);
    has_keys(&status, &["leader", "term", "nodes", "tasks"]);
    has_keys(&status["nodes"][0], &["node", "state"]);
    assert_eq!(status["leader"], status["nodes"][0]["node"], "{status:#}");
    for task in status["tasks"].as_array().expect("tasks") {
        has_keys(task, &["task", "next", "last", "waiting"]);
    }
    let (code, audit) = site.json(&["audit"]);
    assert_eq!((code, keys(&audit)), (0, vec!["balanced", "tasks", "violations"]));
    assert_eq!(
        keys(&audit["tasks"][0]),
        ["task", "planned", "committed", "skipped", "dead", "discarded", "pending", "rows"]
    );
    let (code, runs) = site.json(&["runs", "ls"]);
    assert_eq!(code, 0);
    has_keys(&runs[0], &["run", "task", "slot", "trigger", "term", "state", "planned"]);
    let number = runs[0]["run"].to_string();
    assert_eq!(site.json(&["runs", "show", &number]).0, 0);
    let (code, shown) = site.json(&["doc", "show", "first/gap"]);
    assert_eq!(code, 0);
    has_keys(&shown, &["server_seq", "epoch", "rows", "bytes", "last_compaction", "left_alone"]);
    assert!(shown["left_alone"].is_string(), "{shown:#}");
    assert_eq!(site.json(&["check", "--store"]).0, 0);

    // One letter is repaired and retried, the other is discarded.
    let id = |key: &str| {
        let letter = letters.iter().find(|letter| letter["key"] == key).expect("the letter");
        letter["id"].to_string()
    };
    let (code, shown) = site.json(&["dead", "show", &id("gap")]);
    assert_eq!(code, 0);
    has_keys(&shown, &["id", "task", "key", "attempts", "error"]);
    let sql = "INSERT INTO changes VALUES ('first', 'gap', 2, 'author', 2, 2, 'edit', ?1, NULL)";
    site.database().execute(sql, params![entry(2)]).expect("repaired");
    applied(&site, &["dead", "retry", &id("gap"), "--reason", "repaired"]);
    wait_for("the repaired document", || {
        let (_, shown) = site.json(&["doc", "show", "first/gap"]);
        (shown["rows"] == 1).then_some(())
    });
    // The task is paused first, so that no later scan changes the counts.
    applied(&site, &["task", "pause", "compaction", "--reason", "the other is beyond repair"]);
    applied(&site, &["dead", "discard", &id("lost"), "--reason", "nobody wants it"]);
    let (code, none) = site.json(&["dead", "ls"]);
    assert_eq!((code, none), (0, json!([])));
    host.stop();
    let audit = site.balanced();
    let tasks = audit["tasks"].as_array().expect("tasks");
    let compaction = tasks.iter().find(|t| t["task"] == "compaction").expect("the task");
    for (what, expected) in [("committed", 1), ("dead", 0), ("discarded", 1), ("pending", 0)] {
        assert_eq!(compaction[what], expected, "{what}: {audit:#}");
    }
}

/// Whether a slot is explained.
fn decided(told: &Value) -> bool {
    !["to_come", "undecided"].iter().any(|open| told["outcome"] == *open)
}

#[test]
fn a_task_is_triggered_paused_with_a_reason_explained_and_resumed() {
    let site = Site::new(
        "[tasks.share-expiry]\nplugin = \"share-expiry\"\nschedule = \"@every 1s\"\n\
         [tasks.compaction]\nplugin = \"compaction\"\n",
    );
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    assert_eq!(site.task("compaction")["next"], Value::Null, "it runs only by trigger");
    applied(&site, &["task", "trigger", "compaction", "--reason", "by hand"]);
    let run = wait_for("the run", || {
        let (_, runs) = site.json(&["runs", "ls", "--task", "compaction"]);
        runs.as_array().and_then(|runs| runs.first()).cloned()
    });
    assert_eq!((&run["trigger"], &run["reason"]), (&"manual".into(), &"by hand".into()), "{run}");
    assert!(run["by"].as_str().is_some_and(|by| by.contains("uid")), "{run}");

    applied(&site, &["task", "pause", "share-expiry", "--reason", "a restore"]);
    let task = site.task("share-expiry");
    assert_eq!(task["next"], Value::Null, "{task:#}");
    assert_eq!(task["paused"]["reason"], "a restore", "{task:#}");
    let (code, again) = site.json(&["task", "pause", "share-expiry", "--reason", "me too"]);
    assert_eq!((code, &again["refused"]), (1, &Value::Bool(true)), "{again:#}");
    assert!(again["result"].as_str().is_some_and(|why| why.contains("a restore")), "{again:#}");
    assert_eq!(site.task("share-expiry")["paused"]["reason"], "a restore");
    // The next whole second is a slot that the pause skips.
    let slot = now_us() / SECOND_US + 1;
    let at = |second: i64| {
        let db = site.database();
        let sql = "SELECT strftime('%Y-%m-%dT%H:%M:%SZ', ?1, 'unixepoch')";
        db.query_row(sql, [second], |row| row.get::<_, String>(0)).expect("a time")
    };
    let explained = wait_for("the slot to be decided", || {
        let (code, told) = site.json(&["task", "explain", &format!("share-expiry@{}", at(slot))]);
        assert_eq!(code, 0, "{told}");
        decided(&told).then_some(told)
    });
    assert_eq!(explained["outcome"], "paused", "{explained:#}");
    assert!(explained.to_string().contains("a restore"), "{explained:#}");
    applied(&site, &["task", "resume", "share-expiry"]);
    let task = site.task("share-expiry");
    assert!(task["next"].is_string() && task["paused"].is_null(), "{task:#}");
    let resumed = now_us() / SECOND_US + 1;
    let explained = wait_for("a slot after that", || {
        let (_, told) = site.json(&["task", "explain", &format!("share-expiry@{}", at(resumed))]);
        decided(&told).then_some(told)
    });
    assert_eq!(explained["outcome"], "ran", "{explained:#}");
    // Who writes the database cannot change the log of the host.
    let log = host.log();
    let paused =
        log.lines().find(|line| line.contains("verb=\"pause\"") && line.contains("applied"));
    let paused = paused.unwrap_or_else(|| panic!("{log}"));
    assert!(paused.contains("(uid ") && paused.contains("reason=\"a restore\""), "{paused}");
    host.stop();
}

#[test]
fn everything_wrong_is_reported_at_once_and_nothing_is_started() {
    let site = Site::new("");
    site.create_tables();
    site.configure(WRONG);
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    std::fs::write(site.path("plugins.d/text.wasm"), "no component\n").expect("written");
    for verb in [&["serve"][..], &["run"], &["check", "--store"]] {
        let (code, said) = site.said(verb);
        assert_eq!(code, 78, "{verb:?}: {said}");
        for words in SAID {
            assert!(said.contains(words), "{verb:?}: `{words}` is not in:\n{said}");
        }
    }
    let db = site.database();
    for table in ["besom_run", "besom_node", "besom_fence"] {
        let rows: u64 = db
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| row.get(0))
            .expect("the table");
        assert_eq!(rows, 0, "{table}");
    }
    assert!(!site.path("besom-activity.sock").exists());

    let nothing = Site::new(WRONG);
    assert_eq!(nothing.said(&["serve"]).0, 78);
    assert!(!nothing.path("besom.db").exists(), "a wrong file creates no database");
}

#[test]
fn a_database_that_cannot_be_used_is_named_and_69_says_so() {
    let site = Site::new(CONFIG);
    for verb in ["status", "audit"] {
        let (code, said) = site.said(&[verb]);
        assert_eq!(code, 69, "{said}");
        assert!(
            said.contains("the database ") && said.contains("besom.db does not exist"),
            "{said}"
        );
    }
    std::fs::write(site.path("besom.db"), "this is a letter, and no database at all")
        .expect("written");
    for verb in ["serve", "status", "run"] {
        let (code, said) = site.said(&[verb]);
        assert_eq!(code, 69, "{verb}: {said}");
        assert!(said.contains("not a database") && said.contains("besom.db"), "{verb}: {said}");
    }
    // Without Besom's tables there is nothing to put back, and the file stays as it is.
    std::fs::remove_file(site.path("besom.db")).expect("removed");
    site.database().execute_batch("CREATE TABLE mine (id INTEGER PRIMARY KEY)").expect("a table");
    let before = std::fs::read(site.path("besom.db")).expect("the file");
    for args in [
        &["undo", "1", "--dry-run"][..],
        &["undo", "1", "--reason", "wrong"],
        &["quarantine", "purge", "--key", "ann", "--dry-run"],
    ] {
        let (code, said) = site.said(args);
        assert_eq!(code, 69, "{args:?}: {said}");
        assert!(said.contains("has no tables of Besom; `besom serve` and `besom run`"), "{said}");
        assert!(std::fs::read(site.path("besom.db")).expect("the file") == before, "{args:?}");
    }
    let (code, said) = site.said(&["serve", "--set", "store.path=besom.toml/besom.db"]);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("besom.toml/besom.db"), "{said}");
}

fn add_shares(site: &Site, name: &str) {
    let db = site.database();
    for number in 0..20 {
        add_share(&db, &format!("{name}-{number}"), now_us() + number * SECOND_US / 20);
    }
}

/// After the cause is removed, the earlier shares and further ones end, and none is a dead letter.
fn works_on_and_has_lost_nothing(site: &Site, host: Host) {
    add_shares(site, "after");
    let db = site.database();
    let sql = "SELECT count(*) FROM shares WHERE unshared_at IS NULL";
    wait_for("the shares to end", || {
        db.query_row(sql, [], |row| row.get::<_, u64>(0)).ok().filter(|open| *open == 0)
    });
    host.stop();
    let audit = site.balanced();
    let tasks = audit["tasks"].as_array().expect("tasks");
    let shares = tasks.iter().find(|task| task["task"] == "share-expiry").expect("the task");
    assert_eq!((&shares["committed"], &shares["dead"]), (&40.into(), &0.into()), "{audit:#}");
}

#[test]
fn a_locked_database_is_waited_for_and_nothing_is_lost() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    add_shares(&site, "before");
    let db = site.database();
    db.execute_batch("BEGIN IMMEDIATE").expect("the lock");
    let (code, said) = site.said(&["doc", "import", "first.log", "--tenant", "second"]);
    assert_eq!(code, 69, "{said}");
    assert!(said.contains("locked") || said.contains("busy"), "{said}");
    wait_for("the host to say what it waits for", || {
        let log = host.log();
        (log.contains("locked") || log.contains("busy")).then_some(())
    });
    db.execute_batch("ROLLBACK").expect("released");
    works_on_and_has_lost_nothing(&site, host);
}

/// A limit on the size of files simulates a full disk without privileges: writes beyond it fail.
#[test]
fn a_full_disk_is_waited_out_and_nothing_is_lost() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let mut host = Host::start_ignoring_file_size(&site);
    host.leads();
    let limit = |bytes| {
        let pid = Pid::from_raw(host.id().cast_signed());
        let old = prlimit(pid, Resource::Fsize, Rlimit { current: bytes, maximum: None });
        old.expect("the limit is set");
    };
    limit(Some(4096));
    add_shares(&site, "meanwhile");
    wait_for("the host to say what is wrong", || {
        (!host.lines(&["WARN", "disk"]).is_empty()).then_some(())
    });
    // The host cannot write its report, so `status` also asks the host itself.
    wait_for("the status to name the cause", || {
        let (code, status) = site.json(&["status"]);
        assert_eq!(code, 0, "the store can still be read");
        let nodes = status["nodes"].as_array()?;
        let missing = nodes.iter().filter_map(|node| node["missing"].as_array()).flatten();
        let says = |missing: &&serde_json::Value| {
            missing["why"].as_str().is_some_and(|why| why.contains("disk"))
        };
        missing.filter(says).map(drop).next()
    });
    limit(None);
    works_on_and_has_lost_nothing(&site, host);
}

/// Documents are named after their files; a second import is refused, and so is a key that several
/// tenants have.
#[test]
fn documents_are_found_by_name_beside_a_host() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let mut host = site.serve();
    host.leads();
    let (code, said) = site.said(&["doc", "import", "first.log", "--tenant", "first"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("already exists"), "{said}");
    assert_eq!(site.said(&["doc", "import", "first.log", "--tenant", "second"]).0, 0);
    let (code, said) = site.said(&["doc", "export", "first"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("first") && said.contains("second"), "{said}");
    let out = site.besom(&["doc", "export", "second/first"]);
    assert_eq!(out.stdout, std::fs::read(site.path("first.log")).expect("the log"));
    assert_eq!(site.said(&["doc", "export", "third/first"]).0, 1);
    host.stop();
}

/// A shell has a soft limit of 1,024 open files, and a host serves thousands of connections.
#[test]
fn a_host_raises_its_limit_of_open_files_to_the_hard_limit() {
    let site = Site::new("");
    let mut host = Host::start_with_few_files(&site, "-S", 64);
    host.leads();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", host.id())).expect("read");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let words: Vec<&str> = line.split_whitespace().collect();
    let (soft, hard) = (words[3], words[4]);
    assert_ne!(hard, "64", "the hard limit of this machine is as low");
    assert_eq!(soft, hard);
}
