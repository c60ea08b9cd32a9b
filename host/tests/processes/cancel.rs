//! What remains of a cancelled run.

use rusqlite::Connection;
use serde_json::Value;

use crate::site::{Site, hostile, wait_for};

/// A run's number, state and error, once it has that state.
#[track_caller]
fn run_that_is(site: &Site, state: &str) -> Value {
    wait_for(state, || {
        let (_, runs) = site.json(&["runs", "ls"]);
        runs.as_array()?.iter().find(|run| run["state"] == state).cloned()
    })
}

fn in_flight(db: &Connection) -> bool {
    let sql = "SELECT count(*) FROM besom_inflight";
    db.query_row(sql, [], |row| row.get::<_, u64>(0)).expect("what is in flight") == 1
}

#[test]
fn of_a_run_whose_scan_has_ended_nothing_is_left_to_cancel_and_that_is_what_is_said() {
    let sleeps = hostile("hostile", "keys:sleep", "limits.wall = \"1h\"");
    let site = Site::new(&format!("[host]\ndrain_max = \"500ms\"\n{sleeps}"));
    site.add_hostile();
    let db = site.database();
    let mut host = site.serve();
    host.leads();
    let (code, triggered) = site.json(&["task", "trigger", "hostile"]);
    assert_eq!((code, &triggered["result"]), (0, &"started".into()), "{triggered:#}");
    let run = run_that_is(&site, "executing");
    wait_for("its item to be executed", || in_flight(&db).then_some(()));

    let number = run["run"].to_string();
    let (code, asked) = site.json(&["runs", "cancel", &number, "--reason", "too long"]);
    assert_eq!((code, &asked["refused"]), (1, &true.into()), "{asked:#}");
    let result = asked["result"].as_str().expect("a result");
    assert!(result.starts_with(&format!("run {number} has nothing left to cancel")), "{asked:#}");
    // The run continues, and so does its item.
    assert_eq!(run_that_is(&site, "executing"), run);
    assert!(in_flight(&db));
    host.stop();
    site.balanced();
}
