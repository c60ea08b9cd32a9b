//! `besom plugin`, and a plugin file that is replaced while a host uses it.

use serde_json::Value;

use crate::load::{SECOND_US, now_us};
use crate::reload::{SWEEP, runs, shares_every};
use crate::site::{Site, wait_for};

const FILE: &str = "plugins.d/sweep.wasm";

fn site() -> Site {
    let site = Site::new(SWEEP);
    site.create_tables();
    site.database()
        .execute_batch(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX sessions_by_expiry ON sessions (expires_at, session_id);",
        )
        .expect("a table");
    site.drop_in("session_sweep.wasm", "sweep.wasm");
    site
}

/// Replaces the plugin's file by one with the same code and an additional section.
fn replace(site: &Site) {
    let mut bytes = std::fs::read(site.path(FILE)).expect("the plugin");
    // A custom section: its size, and a name of four letters.
    bytes.extend([0, 6, 4, b'n', b'o', b't', b'e', 1]);
    // It is renamed into place, as deployments do, so that a host never reads a partial file.
    std::fs::write(site.path("new.wasm"), bytes).expect("written");
    std::fs::rename(site.path("new.wasm"), site.path(FILE)).expect("renamed");
}

/// The only plugin that `plugin ls` knows.
#[track_caller]
fn listed(site: &Site) -> Value {
    let (code, rows) = site.json(&["plugin", "ls"]);
    assert_eq!((code, rows.as_array().map(Vec::len)), (0, Some(1)), "{rows:#}");
    rows[0].clone()
}

#[test]
fn a_pin_is_written_kept_and_compared_with_the_file_that_is_there() {
    let site = site();
    let before = listed(&site);
    assert_eq!(
        (&before["plugin"], &before["pin"], &before["fault"]),
        (&"sweep.wasm".into(), &"not pinned".into(), &Value::Null)
    );
    let (code, pinned) = site.json(&["plugin", "pin", "sweep", "--reason", "reviewed"]);
    assert_eq!((code, &pinned[0]["written"]), (0, &Value::Bool(true)), "{pinned:#}");
    assert_eq!(pinned[0]["digest"], before["digest"]);
    let asks = pinned[0]["asks"].as_array().expect("what it asks for");
    assert!(asks.contains(&"delete sessions".into()), "{asks:?}");
    let digest = before["digest"].as_str().expect("a digest");
    let text = std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    assert!(text.contains(&format!("sha256 = \"{digest}\"")), "{text}");
    assert_eq!(listed(&site)["pin"], "pinned");
    let (_, kept) = site.json(&["commands", "ls"]);
    let row = &kept[0];
    assert!(row["what"].as_str().is_some_and(|what| what.contains(digest)), "{row:#}");
    assert_eq!(row["reason"], "reviewed");
    // The second time, nothing is written and nothing is recorded.
    let (_, again) = site.json(&["plugin", "pin", "--all"]);
    assert_eq!(again[0]["written"], false, "{again:#}");
    assert_eq!(site.json(&["commands", "ls"]).1, kept);

    // A pass loads the file; then it is replaced.
    assert_eq!(site.json(&["run"]).0, 0);
    replace(&site);
    let now = listed(&site);
    assert_eq!(now["pin"], "differs");
    assert_ne!(now["digest"], before["digest"]);
    let (code, diff) = site.json(&["plugin", "diff", "sweep"]);
    assert_eq!(code, 0, "{diff:#}");
    assert_eq!(
        (&diff["before"], &diff["pinned"], &diff["now"]),
        (&before["digest"], &before["digest"], &now["digest"])
    );
    assert_eq!((&diff["added"], &diff["removed"]), (&Value::Array(vec![]), &Value::Array(vec![])));
    // The new file is not run.
    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 78, "{said}");
    assert!(said.contains("sweep.wasm"), "{said}");
    assert_eq!(site.said(&["plugin", "pin", "nobody"]).0, 2);
}

#[test]
fn a_pinned_file_that_is_replaced_is_refused_and_the_code_that_runs_stays() {
    let site = site();
    assert_eq!(site.json(&["plugin", "pin", "sweep"]).0, 0);
    let db = site.database();
    let sweeps = |name: &str| {
        let row = rusqlite::params![name, now_us() / SECOND_US - 60];
        db.execute("INSERT INTO sessions VALUES (?1, ?2)", row).expect("a session");
        wait_for("the session to be swept", || {
            let sql = "SELECT count(*) FROM sessions";
            db.query_row(sql, [], |row| row.get::<_, u64>(0)).ok().filter(|left| *left == 0)
        });
    };
    let mut host = site.serve();
    host.leads();
    sweeps("before");
    let loads = |site: &Site| -> Vec<String> {
        let (_, kept) = site.json(&["commands", "ls"]);
        let kept = kept.as_array().expect("commands").clone();
        let what = kept.iter().filter_map(|row| row["what"].as_str());
        what.filter(|what| what.starts_with("load ")).map(str::to_owned).collect()
    };
    let before = loads(&site);
    assert_eq!(before.len(), 1, "{before:?}");

    replace(&site);
    host.says("refused");
    let fault = wait_for("the refusal in the status", || {
        let (_, status) = site.json(&["status"]);
        status["nodes"][0]["config_fault"].as_str().map(str::to_owned)
    });
    assert!(fault.contains("sweep.wasm") && fault.contains("sha256"), "{fault}");
    sweeps("afterwards");
    assert_eq!(loads(&site), before, "nothing else was taken up");

    // The operator pins the new file: it is loaded, and the load is recorded.
    assert_eq!(site.json(&["plugin", "pin", "sweep", "--reason", "the new one"]).0, 0);
    host.says(" reloaded");
    sweeps("by the new one");
    wait_for("the load to be kept", || (loads(&site).len() == 2).then_some(()));
    let (_, kept) = site.json(&["commands", "ls"]);
    let reload = kept
        .as_array()
        .expect("commands")
        .iter()
        .find_map(|row| row["what"].as_str().filter(|what| what.starts_with("reload ")));
    let reload = reload.unwrap_or_else(|| panic!("{kept:#}"));
    assert!(reload.contains("changed sweep: plugin sweep.wasm "), "{reload}");
    host.stop();
    site.balanced();
}

/// The emergency stop of a task is its removal from the file, whatever has become of other files.
#[test]
fn a_task_is_removed_although_the_file_of_another_was_replaced() {
    let site = site();
    assert_eq!(site.json(&["plugin", "pin", "sweep"]).0, 0);
    let pinned = std::fs::read_to_string(site.path("besom.toml")).expect("the file");
    let rewrite = |text: String| {
        std::fs::write(site.path("besom.toml.new"), text).expect("written");
        std::fs::rename(site.path("besom.toml.new"), site.path("besom.toml")).expect("renamed");
    };
    rewrite(format!("{pinned}\n{}", shares_every("@every 1s")));
    let mut host = site.serve();
    host.leads();
    let names = || -> Vec<String> {
        let (_, status) = site.json(&["status"]);
        let tasks = status["tasks"].as_array().expect("tasks").clone();
        tasks.iter().filter_map(|task| task["task"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(names(), ["share-expiry", "sweep"]);
    replace(&site);
    host.says("refused");
    rewrite(pinned);
    host.says("reloaded");
    host.says("keep the code that they run with");
    let db = site.database();
    let before = runs(&db, "share-expiry");
    let row = rusqlite::params!["afterwards", now_us() / SECOND_US - 60];
    db.execute("INSERT INTO sessions VALUES (?1, ?2)", row).expect("a session");
    wait_for("the other task to work on", || {
        let sql = "SELECT count(*) FROM sessions";
        db.query_row(sql, [], |row| row.get::<_, u64>(0)).ok().filter(|left| *left == 0)
    });
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(runs(&db, "share-expiry"), before, "the removed task runs no more");
    let (_, status) = site.json(&["status"]);
    let fault = status["nodes"][0]["config_fault"].as_str().expect("the fault");
    assert!(fault.contains("sweep.wasm"), "{fault}");
    host.stop();
    site.balanced();
}
