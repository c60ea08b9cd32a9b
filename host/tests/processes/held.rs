//! A table that differs from its mapping when a host or a pass starts holds the tasks that use it, and no others.

use crate::site::{Site, wait_for};

/// Two tasks, each on a table of its own.
fn two(every: &str) -> String {
    let task = |name: &str| {
        format!(
            "[tasks.old-{name}]\nplugin = \"retention\"\nschedule = \"@every {every}\"\nmode = \"live\"\n\
             collections.rows = \"{name}\"\nsettings = {{ by = \"at\", older_than = \"14d\" }}\n\
             [collections.{name}]\nkey = [\"id\"]\n\
             columns = {{ id = \"integer\", at = {{ type = \"timestamp\", encoding = \"seconds\" }} }}\n\
             indexes = {{ by_at = [\"at\"] }}\n"
        )
    };
    task("a") + &task("b")
}

fn site() -> Site {
    let site = Site::new(&two("1s"));
    site.database()
        .execute_batch(
            "PRAGMA journal_mode = WAL;
             CREATE TABLE a (id INTEGER PRIMARY KEY, at INTEGER); CREATE INDEX a_at ON a (at, id);
             CREATE TABLE b (id INTEGER PRIMARY KEY, at INTEGER);
             INSERT INTO a VALUES (1, 10); INSERT INTO b VALUES (1, 10);",
        )
        .expect("two tables, one without its index");
    site
}

fn rows(site: &Site, table: &str) -> u64 {
    let sql = format!("SELECT count(*) FROM {table}");
    site.database().query_row(&sql, [], |row| row.get(0)).expect("a count")
}

const FIX: &str = "CREATE INDEX b_by_at ON b (at, id)";

#[test]
fn a_missing_index_keeps_a_pass_from_its_own_task_alone() {
    let site = site();
    for args in [&["run", "old-b"][..], &["check", "--store"]] {
        let (code, said) = site.said(args);
        assert_eq!(code, 78, "{args:?}: {said}");
        assert!(said.contains("besom.toml:") && said.contains(FIX), "{args:?}: {said}");
    }
    assert_eq!((rows(&site, "a"), rows(&site, "b")), (1, 1));
    let (code, said) = site.said(&["run", "old-a"]);
    assert_eq!(code, 0, "{said}");
    assert!(said.contains("old-b is held") && said.contains(FIX), "{said}");
    assert_eq!((rows(&site, "a"), rows(&site, "b")), (0, 1));

    for args in [&["run"][..], &["run", "old-b", "old-a"]] {
        site.database().execute_batch("INSERT INTO a VALUES (2, 10)").expect("a row");
        let (code, said) = site.said(args);
        assert_eq!(code, 78, "{args:?}: {said}");
        assert!(said.contains("old-b is held") && said.contains(FIX), "{args:?}: {said}");
        assert_eq!((rows(&site, "a"), rows(&site, "b")), (0, 1), "{args:?}");
    }

    // A fault of the file itself stays one for all.
    site.configure(&two("1s").replacen("14d", "14 dogs", 1));
    assert_eq!(site.said(&["run", "old-b"]).0, 78);
}

#[test]
fn a_host_holds_the_task_of_a_missing_index_until_there_is_one() {
    let site = site();
    let mut host = site.serve();
    host.says("old-b is held, because a table differs from its mapping");
    host.leads();
    wait_for("the other task", || (rows(&site, "a") == 0).then_some(()));
    let held = || {
        let (_, status) = site.json(&["status"]);
        let tasks = status["tasks"].as_array().expect("tasks").clone();
        let task = tasks.into_iter().find(|task| task["task"] == "old-b").expect("the task");
        task["held"].as_array().and_then(|held| held.first().cloned())
    };
    let found = wait_for("the reason in the status", &held);
    assert_eq!(found["cause"], "mapping", "{found:#}");
    assert!(found["why"].as_str().is_some_and(|why| why.contains(FIX)), "{found:#}");

    // A changed file does not release it.
    site.configure(&two("2s"));
    host.says(" reloaded");
    assert_eq!(rows(&site, "b"), 1);
    assert_eq!(host.lines(&["old-b is held"]).len(), 1, "it is said once\n{}", host.log());

    site.database().execute_batch(FIX).expect("an index");
    wait_for("the rows of the task", || (rows(&site, "b") == 0).then_some(()));
    host.says("old-b is no longer held");
    wait_for("the status without it", || held().is_none().then_some(()));
    host.stop();
    site.balanced();
}
