//! The warnings of `besom check`, and a plugin that serves two tables.

use serde_json::Value;

use crate::site::{Site, row_of, wait_for};

/// The texts of the diagnostics.
#[track_caller]
fn remarks(site: &Site, args: &[&str]) -> Vec<String> {
    let (_, said) = site.json(args);
    let all = said["diagnostics"].as_array().expect("diagnostics");
    all.iter().map(|one| one["text"].as_str().expect("text").to_owned()).collect()
}

/// Two tasks with one plugin, each on its own table with its own column names.
#[test]
fn one_plugin_sweeps_two_tables() {
    let site = Site::new("");
    site.drop_in("session_sweep.wasm", "session_sweep.wasm");
    let task = |name: &str, table: &str, key: &str| {
        format!(
            "[tasks.{name}]\nplugin = \"session_sweep.wasm\"\nschedule = \"@every 5m\"\n\
             [tasks.{name}.settings]\nkey = \"{key}\"\n\
             [tasks.{name}.collections]\nsessions = \"{table}\"\n\
             [tasks.{name}.grants]\n{table} = [\"read\", \"delete\"]\n\
             [collections.{table}]\nkey = [\"{key}\"]\n\
             columns = {{ {key} = \"text\", expires_at = {{ type = \"timestamp\", encoding = \"seconds\" }} }}\n\
             indexes = {{ by_expiry = [\"expires_at\"] }}\n"
        )
    };
    site.configure(
        &[task("logins", "login_sessions", "session_id"), task("resets", "tokens", "token")]
            .concat(),
    );
    let db = site.database();
    db.execute_batch(
        "PRAGMA journal_mode = WAL;
         CREATE TABLE login_sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
         CREATE INDEX by_expiry ON login_sessions (expires_at, session_id);
         CREATE TABLE tokens (token TEXT PRIMARY KEY, expires_at INTEGER);
         CREATE INDEX tokens_by_expiry ON tokens (expires_at, token);
         INSERT INTO login_sessions VALUES ('over', 1), ('lasts', 4000000000);
         INSERT INTO tokens VALUES ('one', 1), ('two', 2), ('lasts', 4000000000), ('never', NULL);",
    )
    .expect("two tables");
    assert_eq!(remarks(&site, &["check", "--store"]), Vec::<String>::new());
    let (code, passed) = site.json(&["run"]);
    assert_eq!(code, 0, "{passed:#}");
    let committed = |task: &str| {
        let all = passed.as_array().expect("tasks");
        all.iter().find(|one| one["task"] == task).expect("the task")["committed"].clone()
    };
    assert_eq!((committed("logins"), committed("resets")), (1.into(), 2.into()), "{passed:#}");
    let left = |sql: &str| {
        let mut rows = db.prepare(sql).expect("a question");
        let rows = rows.query_map([], |row| row.get::<_, String>(0)).expect("rows");
        rows.map(Result::unwrap).collect::<Vec<_>>()
    };
    assert_eq!(left("SELECT session_id FROM login_sessions"), ["lasts"]);
    assert_eq!(left("SELECT token FROM tokens ORDER BY token"), ["lasts", "never"]);
    site.balanced();
}

/// An index without the key leaves the order of equal rows to a sort.
#[test]
fn an_index_that_ends_before_the_key_is_warned_of_before_anything_runs() {
    let site = Site::new("");
    site.drop_in("session_sweep.wasm", "session_sweep.wasm");
    site.configure(
        "[tasks.sweep]\nplugin = \"session_sweep.wasm\"\nschedule = \"@every 5m\"\n\
         [tasks.sweep.grants]\nsessions = [\"read\", \"delete\"]\n\
         [collections.sessions]\nkey = [\"session_id\"]\n\
         columns = { session_id = \"text\", expires_at = \"timestamp\" }\n\
         indexes = { by_expiry = [\"expires_at\"] }\n",
    );
    site.database()
        .execute_batch(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX by_expiry ON sessions (expires_at);",
        )
        .expect("a table");
    let (code, said) = site.said(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    for words in [
        "besom.toml:9:",
        "collection `sessions`, indexes.by_expiry: a read sorts the equal rows at the end of a page",
        "CREATE INDEX sessions_by_expiry_key ON sessions (expires_at, session_id)",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
}

/// Existing shares that can begin and end between two scans are named.
#[test]
fn shares_that_are_shorter_than_the_schedule_are_warned_of() {
    let config = |schedule: &str, settings: &str| {
        format!(
            "[tasks.share-expiry]\nplugin = \"share-expiry\"\nschedule = \"{schedule}\"\n\
             [tasks.share-expiry.settings]\n{settings}\n"
        )
    };
    let site = Site::new("");
    site.create_tables();
    site.database()
        .execute_batch(
            "INSERT INTO shares VALUES
               ('first', 'short', 'f', 0, 600, NULL),
               ('first', 'shorter but over', 'f', 0, 60, 5),
               ('second', 'long', 'f', 0, 86400, NULL),
               ('second', 'as the task says', 'f', 0, NULL, NULL);",
        )
        .expect("shares");
    site.configure(&config("@hourly", ""));
    let said = remarks(&site, &["check", "--store"]);
    let [late] = said.as_slice() else { panic!("{said:?}") };
    for words in [
        "besom.toml:3:",
        "there are shares with limit_seconds = 600, and up to 1h may pass between two scans",
        "ends up to 50m late",
        "write schedule = \"",
    ] {
        assert!(late.contains(words), "{words} is not in {late}");
    }
    // Without `--store` the check does not know.
    assert_eq!(remarks(&site, &["check"]), Vec::<String>::new());

    site.configure(&config("@every 1m", ""));
    assert_eq!(remarks(&site, &["check", "--store"]), Vec::<String>::new());

    site.configure(&config("@every 1m", "limit_min = \"20m\""));
    let said = remarks(&site, &["check", "--store"]);
    let [open] = said.as_slice() else { panic!("{said:?}") };
    assert!(open.contains("limit_seconds = 600, which is below limit_min (20m)"), "{open}");
    assert!(open.contains("lower limit_min in [tasks.share-expiry.settings]"), "{open}");

    // A table of the product's own, without tenants.
    site.database()
        .execute_batch(
            "CREATE TABLE own (share_id TEXT PRIMARY KEY, start_date INTEGER, limit_seconds INTEGER,
               unshared_at INTEGER);
             CREATE INDEX own_open ON own (unshared_at, start_date, share_id);
             INSERT INTO own VALUES ('short', 1764000000, 600, NULL), ('over', 1764000000, 60, 1764000060)",
        )
        .expect("a table");
    let own = "[collections.shares]\ntable = \"own\"\nkey = [\"share_id\"]\n\
               columns = { share_id = \"text\", limit_seconds = \"integer\", \
               start_date = { type = \"timestamp\", encoding = \"seconds\" }, \
               unshared_at = { type = \"timestamp\", encoding = \"seconds\" } }\n\
               indexes = { by_unshared_start = [\"unshared_at\", \"start_date\"] }\n";
    site.configure(&(config("@hourly", "") + own));
    let said = remarks(&site, &["check", "--store"]);
    let [late] = said.as_slice() else { panic!("{said:?}") };
    assert!(late.contains("there are shares with limit_seconds = 600,"), "{late}");
}

/// Not every log shows whether a document keeps deleted content.
#[test]
fn compaction_is_asked_what_becomes_of_deleted_content() {
    for (settings, place, words) in [
        ("", "", ""),
        ("deleted_content = \"collect\"\nmode_yjs = \"reset\"", "", ""),
        (
            "mode_yjs = \"reset\"",
            "besom.toml:1:",
            "a document that contains deletions is merged instead of reset",
        ),
        (
            "deleted_content = \"detect\"",
            "besom.toml:5:",
            "only if one of its rows is a complete state",
        ),
    ] {
        let site = Site::new(&format!(
            "[tasks.compaction]\nplugin = \"compaction\"\nschedule = \"@every 30s\"\n\
             [tasks.compaction.settings]\n{settings}\n"
        ));
        let said = remarks(&site, &["check"]);
        let expected = usize::from(!words.is_empty());
        assert_eq!(said.len(), expected, "{settings}: {said:?}");
        for text in said {
            assert!(text.contains(place) && text.contains(words), "{settings}: {text}");
            assert!(text.contains("if no client has `gc: false`"), "{text}");
        }
        let (code, said) = site.json(&["check"]);
        assert_eq!((code, &said["ok"]), (0, &Value::Bool(true)), "{said:#}");
    }
}

/// A product may have created the file for every user of the machine.
#[test]
fn a_database_that_everybody_can_read_is_warned_of() {
    let site = Site::new("");
    site.create_tables();
    assert_eq!(remarks(&site, &["check"]), Vec::<String>::new());
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(site.path("besom.db"), everybody).expect("set");
    let said = remarks(&site, &["check"]);
    let [one] = said.as_slice() else { panic!("{said:?}") };
    assert!(
        one.contains("every user of this machine can access") && one.contains("(mode 644)"),
        "{one}"
    );
}

/// A product under another user reads the file through its group; a host warns about it at its
/// start too.
#[test]
fn every_file_of_the_database_that_a_group_can_read_is_warned_of() {
    let site = Site::new("");
    site.create_tables();
    // SQLite's files beside the database exist while a connection is open.
    let db = site.database();
    let sql = "PRAGMA journal_mode = WAL; CREATE TABLE beside (id INTEGER)";
    db.execute_batch(sql).expect("written");
    let group = || std::os::unix::fs::PermissionsExt::from_mode(0o640);
    for name in ["besom.db-wal", "besom.db-shm"] {
        std::fs::set_permissions(site.path(name), group()).expect("set");
    }
    let said = remarks(&site, &["check"]);
    let [wal, shm] = said.as_slice() else { panic!("{said:?}") };
    for (text, name) in [(wal, "besom.db-wal (mode 640)"), (shm, "besom.db-shm (mode 640)")] {
        assert!(text.contains(name) && text.contains("every member of the group"), "{text}");
    }
    std::fs::set_permissions(site.path("besom.db"), group()).expect("set");
    assert_eq!(remarks(&site, &["check"]).len(), 3);
    let mut host = site.serve();
    host.says("besom.db (mode 640)");
    host.leads();
    host.stop();
}

/// A mapping of Besom's own tables is rejected, because a task could change its own books.
#[test]
fn besoms_own_tables_and_the_catalog_cannot_be_mapped() {
    let site = Site::new("");
    site.create_tables();
    site.drop_in("session_sweep.wasm", "session_sweep.wasm");
    for table in ["besom_run", "BESOM_RUN", "sqlite_schema", "sqlite_master"] {
        site.configure(&format!(
            "[tasks.sweep]\nplugin = \"session_sweep.wasm\"\nschedule = \"@every 5m\"\n\
             [tasks.sweep.grants]\nsessions = [\"read\", \"delete\"]\n\
             [collections.sessions]\ntable = \"{table}\"\nkey = [\"session_id\"]\n\
             columns = {{ session_id = \"text\", expires_at = \"timestamp\" }}\n\
             indexes = {{ by_expiry = [\"expires_at\"] }}\n",
        ));
        let (code, said) = site.said(&["check", "--store"]);
        assert_eq!(code, 78, "{table}: {said}");
        assert!(said.contains(table), "{said}");
    }
}

/// A task on the table `sessions`, with this type of its key and these settings and indexes.
fn sweep(key: &str, settings: &str, indexes: &str) -> String {
    format!(
        "[tasks.sweep]\nplugin = \"session_sweep.wasm\"\nschedule = \"@every 1s\"\n\
         [tasks.sweep.settings]\n{settings}\n\
         [tasks.sweep.grants]\nsessions = [\"read\", \"delete\"]\n\
         [collections.sessions]\nkey = [\"session_id\"]\n\
         columns = {{ session_id = \"{key}\", expires_at = {{ type = \"timestamp\", encoding = \"seconds\" }} }}\n\
         {indexes}\n"
    )
}

const SESSIONS: &str = "PRAGMA journal_mode = WAL;
    CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
    CREATE INDEX by_expiry ON sessions (expires_at, session_id);";
const INDEXES: &str = "indexes = { by_expiry = [\"expires_at\"] }";

/// The manifest does not name the indexes that a plugin reads by; its first page shows them.
#[test]
fn a_read_of_a_scan_that_the_store_refuses_is_named_before_anything_runs() {
    let site = Site::new("");
    site.drop_in("session_sweep.wasm", "session_sweep.wasm");
    site.database().execute_batch(SESSIONS).expect("a table");
    for (settings, indexes, words) in [
        ("", INDEXES, None),
        ("", "", Some("has no index \"by_expiry\"")),
        ("index = \"by_end\"", INDEXES, Some("has no index \"by_end\"; it has: by_expiry")),
    ] {
        site.configure(&sweep("text", settings, indexes));
        let (code, said) = site.said(&["check", "--store"]);
        let Some(words) = words else {
            assert_eq!(code, 0, "{said}");
            continue;
        };
        assert_eq!(code, 78, "{said}");
        for words in [words, "besom.toml:3:", "the scan of `sweep` fails", "create the index"] {
            assert!(said.contains(words), "{words} is not in {said}");
        }
        // The check without the store does not know.
        assert_eq!(site.said(&["check"]).0, 0);
    }
}

/// A setting of a type that the plugin does not declare is refused without the store.
#[test]
fn a_setting_of_another_type_than_the_plugin_declares_is_refused() {
    let site = Site::new("");
    site.drop_in("session_sweep.wasm", "session_sweep.wasm");
    for (settings, words) in [
        ("keep = true", "`keep` must be a duration"),
        ("index = 7", "`index` must be a string"),
        ("kep = \"1h\"", "did you mean `keep`?"),
    ] {
        site.configure(&sweep("text", settings, INDEXES));
        let (code, said) = site.said(&["check"]);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains(words), "{words} is not in {said}");
    }
}

/// Each of its items would become a dead letter.
#[test]
fn a_task_that_changes_a_view_is_an_error_of_its_own() {
    let site = crate::brakes::site("mode = \"live\"");
    let view = "CREATE VIEW old_ones AS SELECT * FROM sessions WHERE at < 100";
    site.database().execute_batch(view).expect("a view");
    let mapped = crate::brakes::old_sessions("").replace("key =", "table = \"old_ones\"\nkey =");
    site.configure(&mapped);
    let (code, said) = site.said(&["check", "--store"]);
    let words =
        "`old` changes rows of \"old_ones\" by ranges, and that is a view: every item would fail";
    assert!(code == 78 && said.contains(words), "{said}");
    site.configure(&mapped.replace("chunk = 100", "chunk = 0"));
    let (code, said) = site.said(&["check", "--store"]);
    let words = "`old` changes rows of \"old_ones\", and that is a view: every item would fail";
    assert!(code == 78 && said.contains(words), "{said}");
}

/// The rows show that a column is mapped as another kind than it holds.
#[test]
fn a_column_of_another_kind_is_an_error_of_the_mapping_and_no_dead_letter() {
    let site = Site::new("");
    site.drop_in("session_sweep.wasm", "session_sweep.wasm");
    site.configure(&sweep("integer", "", INDEXES));
    let db = site.database();
    db.execute_batch(SESSIONS).expect("a table");
    // An empty table shows nothing but its declaration, and a host starts.
    let (code, said) = site.said(&["check", "--store"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("is declared TEXT but mapped as integer (native)"), "{said}");
    let mut host = site.serve();
    host.leads();
    db.execute_batch("INSERT INTO sessions VALUES ('over', 1), ('gone', 2)").expect("sessions");
    host.says("sweep is held");
    host.says("all 2 values looked at are stored as text");
    let (code, said) = site.said(&["check", "--store"]);
    assert_eq!(code, 78, "{said}");
    for words in [
        "collection `sessions`, columns.session_id: the column is declared TEXT and mapped as integer \
         (native), but all 2 values looked at are stored as text: map it as text",
        "besom.toml:10:",
    ] {
        assert!(said.contains(words), "{words} is not in {said}");
    }
    // A reload compares the mapping as a start does, and the task continues once it is correct.
    site.configure(&sweep("integer", "keep = \"1s\"", INDEXES));
    host.says("the mapping differs from the database");
    site.configure(&sweep("text", "", INDEXES));
    let left = || db.query_row("SELECT count(*) FROM sessions", [], |r| r.get::<_, i64>(0));
    wait_for("the sessions to be swept", || left().ok().filter(|left| *left == 0));
    host.stop();
    let audit = site.balanced();
    assert_eq!(row_of(&audit["tasks"], "sweep")["dead"], 0, "{audit:#}");
}
