//! Items that the mapping rules out, and the example task on tables with tenants.

use rusqlite::Connection;

use crate::site::{Site, hostile, row_of};

/// The example task on a table of sessions; `keys` are further keys of the collection.
fn sweep(settings: &str, keys: &str) -> String {
    format!(
        "[tasks.sweep]\nplugin = \"sweep.wasm\"\nschedule = \"@every 1h\"\n\
         [tasks.sweep.settings]\n{settings}\n\
         [tasks.sweep.grants]\nsessions = [\"read\", \"delete\"]\n\
         [collections.sessions]\n{keys}\n\
         indexes = {{ by_expiry = [\"expires_at\"] }}\n"
    )
}

const EXPIRES: &str = "expires_at = { type = \"timestamp\", encoding = \"seconds\" }";

/// A site with the example, and a table of sessions of two organisations.
fn site(config: &str) -> (Site, Connection) {
    let site = Site::new("");
    site.create_tables();
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    site.configure(config);
    let db = site.database();
    db.execute_batch(
        "CREATE TABLE sessions (org TEXT, session_id TEXT, expires_at INTEGER,
           PRIMARY KEY (org, session_id));
         CREATE INDEX by_org ON sessions (org, expires_at, session_id);
         CREATE INDEX by_expiry ON sessions (expires_at, org, session_id);
         INSERT INTO sessions VALUES ('a', 's1', 1), ('b', 's1', 4000000000), ('a', 's2', 2),
           ('b', 's2', 3), ('b', 's3', NULL);",
    )
    .expect("a table");
    (site, db)
}

fn left(db: &Connection) -> Vec<String> {
    let mut rows =
        db.prepare("SELECT org || '/' || session_id FROM sessions ORDER BY 1").expect("a question");
    let rows = rows.query_map([], |row| row.get(0)).expect("rows");
    rows.map(Result::unwrap).collect()
}

#[test]
fn the_example_sweeps_each_tenant_and_keys_of_several_columns() {
    let of_tenants = format!(
        "tenant = \"org\"\nkey = [\"session_id\"]\ncolumns = {{ session_id = \"text\", {EXPIRES} }}"
    );
    let of_keys = format!(
        "key = [\"org\", \"session_id\"]\n\
         columns = {{ org = \"text\", session_id = \"text\", {EXPIRES} }}"
    );
    for config in [sweep("", &of_tenants), sweep("key = \"org, session_id\"", &of_keys)] {
        let (site, db) = site(&config);
        let (code, said) = site.said(&["check", "--store"]);
        assert_eq!((code, said.as_str()), (0, ""), "{config}");
        let (code, items) = site.json(&["run", "--dry-run"]);
        assert_eq!((code, items.as_array().map(Vec::len)), (0, Some(3)), "{items:#}");
        let (code, passed) = site.json(&["run"]);
        let row = row_of(&passed, "sweep");
        assert_eq!((code, &row["committed"], &row["dead"]), (0, &3.into(), &0.into()), "{row:#}");
        assert_eq!(left(&db), ["b/s1", "b/s3"]);
        site.balanced();
    }
}

#[test]
fn a_key_that_is_not_unique_is_an_error_with_the_missing_index_and_deletes_nothing() {
    let keys = format!("key = [\"session_id\"]\ncolumns = {{ session_id = \"text\", {EXPIRES} }}");
    let (site, db) = site(&sweep("", &keys));
    for args in [&["check", "--store"][..], &["run"]] {
        let (code, said) = site.said(args);
        assert_eq!(code, 78, "{said}");
        assert!(
            said.contains("CREATE UNIQUE INDEX sessions_key ON sessions (session_id)"),
            "{said}"
        );
    }
    assert_eq!(left(&db).len(), 5);
}

/// A cursor is one of an earlier index or of an earlier version of the plugin: the scan begins again, and
/// the task is not stopped for good.
#[test]
fn a_cursor_that_the_scan_cannot_use_any_more_is_given_up() {
    let keys = format!(
        "key = [\"org\", \"session_id\"]\n\
         columns = {{ org = \"text\", session_id = \"text\", {EXPIRES} }}"
    );
    let config = sweep("key = \"org, session_id\"", &keys);
    let (site, db) = site(&config);
    // Besom's own tables, and the task's number.
    assert_eq!(site.said(&["run"]).0, 0);
    db.execute_batch(
        "INSERT INTO sessions VALUES ('a', 's3', 4);
         INSERT INTO besom_cursor (task, tenant, cursor, moved_at)
           SELECT id, 0, x'ff', 1000000 * unixepoch() FROM besom_task WHERE name = 'sweep';",
    )
    .expect("a cursor of nobody's");
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("it begins again"), "{said}");
    assert_eq!(left(&db), ["b/s1", "b/s3"]);
    let cursors = "SELECT count(*) FROM besom_cursor WHERE cursor = x'ff'";
    assert_eq!(db.query_row(cursors, [], |row| row.get::<_, u64>(0)).expect("read"), 0);
    site.balanced();
}

/// Every item has the fault of the configuration: none becomes a dead letter.
#[test]
fn items_that_the_configuration_rules_out_hold_their_task_and_stay() {
    // The key of the mapping has two columns, that of the items one.
    let keys = format!(
        "key = [\"org\", \"session_id\"]\n\
         columns = {{ org = \"text\", session_id = \"text\", {EXPIRES} }}"
    );
    let (site, db) = site(&(sweep("", &keys) + "[host]\nrefused_items_max = 3\n"));
    let reason = "the key of \"sessions\" has 2 columns (org, session_id), but 1 value was given";
    let out = site.besom(&["run", "--dry-run"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("would be refused: {reason}")), "{text}");

    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("sweep is held (commit)") && said.contains(reason), "{said}");
    assert_eq!(site.json(&["dead", "ls"]).1, serde_json::json!([]));
    let audit = site.balanced();
    assert!(row_of(&audit["tasks"], "sweep")["pending"].as_u64() >= Some(2), "{audit:#}");

    site.configure(&sweep("key = \"org, session_id\"", &keys));
    // The items that were planned before have keys of one column for ever.
    let (code, passed) = site.json(&["run"]);
    assert_eq!(code, 1, "{passed:#}");
    assert!(passed[0]["dead"].as_u64() >= Some(2), "{passed:#}");
    assert_eq!(left(&db), ["b/s1", "b/s3"]);
    site.balanced();
}

/// A proposal that the commit would refuse is refused by the dry run, with the count of each reason.
#[test]
fn a_dry_run_refuses_what_a_commit_refuses_and_prints_a_bounded_number_of_items() {
    let keys: Vec<String> = (0..60).map(|n| format!("two-values-{n}")).collect();
    let config = hostile("wrong", &format!("keys:{}", keys.join(",")), "schedule = \"@hourly\"");
    let site = Site::new(&(config + "[host]\nrefused_items_max = 10\n"));
    site.add_hostile();
    let out = site.besom(&["run", "--dry-run"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert_eq!(out.status.code(), Some(1), "{text}");
    let reason = "the key of \"things\" has 1 column (id), but 2 values were given";
    assert!(text.contains(&format!("wrong: 60 items would be refused: {reason}")), "{text}");
    assert!(text.contains("60 items (60 refused); nothing was committed."), "{text}");
    assert!(text.contains("... and 10 more (--all prints them)"), "{text}");
    let all = site.besom(&["run", "--dry-run", "--all"]);
    let all = String::from_utf8_lossy(&all.stdout);
    assert!(keys.iter().all(|key| all.contains(&format!("/{key}: refused"))), "{all}");
    let (code, items) = site.json(&["run", "--dry-run"]);
    assert_eq!((code, items.as_array().map(Vec::len)), (1, Some(60)));
    assert_eq!((&items[0]["verdict"], &items[0]["reason"]), (&"refused".into(), &reason.into()));

    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("wrong is held (commit)") && said.contains(reason), "{said}");
    assert_eq!(site.json(&["dead", "ls"]).1, serde_json::json!([]));
    site.balanced();
}

/// What is skipped without being settled is found again by every scan.
#[test]
fn a_pass_that_only_skips_ends_after_a_few_rounds() {
    let config = hostile("skipping", "keys:skipped", "schedule = \"@hourly\"");
    let site = Site::new(&(config + "[host]\npass_idle_rounds_max = 3\n"));
    site.add_hostile();
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("skipping planned items in 3 rounds in a row"), "{said}");
    let audit = site.balanced();
    let books = row_of(&audit["tasks"], "skipping");
    assert_eq!((&books["planned"], &books["skipped"]), (&3.into(), &3.into()), "{audit:#}");
}

/// An item that fails again and again is visible before it is set aside.
#[test]
fn an_item_that_is_retried_after_errors_is_a_note_of_its_task() {
    let config = hostile(
        "failing",
        "keys:panic",
        "schedule = \"@hourly\"\n[tasks.failing.retry]\nattempts_max = 5\nbackoff = \"1h\"\nbackoff_max = \"1h\"",
    );
    let site = Site::new(&config);
    site.add_hostile();
    let mut host = site.serve();
    host.leads();
    assert_eq!(site.json(&["task", "trigger", "failing"]).0, 0);
    let task = crate::site::wait_for("a failed attempt", || {
        Some(site.task("failing")).filter(|task| task["failing"] == 1)
    });
    let error = task["failing_error"].as_str().expect("an error");
    assert!(error.contains("panicked"), "{error}");
    let out = site.besom(&["status"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("1 retried after errors: besom task show failing"), "{text}");
    let (_, shown) = site.json(&["task", "show", "failing"]);
    assert_eq!(
        (&shown["retries"][0]["key"], &shown["retries"][0]["attempts"]),
        (&"panic".into(), &1.into())
    );
    host.stop();
}

#[test]
fn a_name_that_nobody_knows_and_a_store_that_is_no_file_are_errors() {
    let (site, _) = site("");
    for args in [
        &["dead", "ls", "--task", "nope"][..],
        &["runs", "ls", "--task", "nope"],
        &["stream", "ls", "nope"],
        &["stream", "repair", "nope", "--reason", "x"],
    ] {
        let (code, said) = site.said(args);
        assert_eq!(code, 2, "{args:?}: {said}");
        assert!(said.contains("neither in the configuration nor in the store"), "{said}");
    }
    for args in [&["check"][..], &["status"]] {
        let (code, said) = site.said(&[&["--set", "store.path=/dev/zero"], args].concat());
        assert!([69, 78].contains(&code), "{args:?}: {said}");
        assert!(said.contains("/dev/zero, which is not a regular file"), "{args:?}: {said}");
    }
}
