//! A host's reports and its guests' log lines, as others read them from the store.

use rusqlite::{Connection, OptionalExtension};
use serde_json::Value;

use crate::site::{Site, hostile, wait_for};

/// A task that floods its log, once in each run.
fn flood() -> String {
    let keys = "schedule = \"@every 1s\"\nlimits.wall = \"60s\"";
    let host = format!("[host]\nlog_lines_per_s = 50\nlog_lines_max = {KEPT}\n");
    host + &hostile("hostile", "keys:flood-log", keys)
}

/// Lines that the guest logs in one call.
const LINES: u64 = 900;
/// Lines that are kept of them.
const KEPT: usize = 20;

fn flooded() -> Site {
    let site = Site::new(&flood());
    site.add_hostile();
    site
}

/// The report of the site's only host.
fn report(db: &Connection) -> Option<Value> {
    let text: Option<String> = db
        .query_row("SELECT report FROM besom_node", [], |row| row.get(0))
        .optional()
        .expect("the node's row is read");
    text.map(|text| serde_json::from_str(&text).expect("a report"))
}

#[test]
fn what_a_guest_logs_is_kept_with_its_run_and_the_rest_is_counted() {
    let site = flooded();
    let mut host = site.serve();
    host.leads();
    let db = site.database();
    let run: u64 = wait_for("a run to end", || {
        let ended = "SELECT min(run) FROM besom_history WHERE run > 0";
        let run: Option<u64> =
            db.query_row(ended, [], |row| row.get(0)).expect("the history is read");
        run
    });
    // Waits until the last line of an ended run is written.
    let out = site.besom(&["runs", "logs", &run.to_string(), "--follow", "--output", "json"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let text = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert!(lines.len() >= KEPT, "{text}");
    for line in &lines {
        assert_eq!((&line["run"], &line["level"]), (&run.into(), &"info".into()));
        assert!(line["text"].as_str().is_some_and(|text| text.starts_with("line ")), "{line}");
    }
    let numbers: Vec<u64> = lines.iter().map(|line| line["no"].as_u64().expect("no")).collect();
    assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]), "{numbers:?}");
    // The last lost lines are counted a moment after the last line.
    wait_for("every line to be kept or counted", || {
        let all = "SELECT last + dropped FROM besom_run_log WHERE run = ?1";
        let all: u64 = db.query_row(all, [run], |row| row.get(0)).expect("the run's log");
        assert!(all <= LINES, "{all}");
        (all == LINES).then_some(())
    });

    let out = site.besom(&["runs", "logs", &run.to_string()]);
    let text = String::from_utf8_lossy(&out.stdout);
    let shown = text.lines().filter(|line| line.contains("  info   line ")).count();
    assert_eq!(shown, KEPT, "{text}");
    assert!(text.contains("lines were dropped"), "{text}");
    let (code, said) = site.said(&["runs", "logs", "999999"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("there is no run 999999"), "{said}");
    host.stop();
    site.balanced();
}

#[test]
fn a_node_says_what_it_does_with_each_sign_of_life() {
    let site = flooded();
    let mut host = site.serve();
    host.leads();
    let db = site.database();
    let said = wait_for("a report with work in it", || {
        let finished = |report: &Value| report["finished"]["hostile"].as_u64() > Some(0);
        report(&db).filter(finished)
    });
    assert_eq!(said["version"], env!("CARGO_PKG_VERSION"));
    let sum = |list: &Value| -> u64 {
        list.as_array().expect("a list").iter().filter_map(Value::as_u64).sum()
    };
    let finished = said["finished"]["hostile"].as_u64().expect("a number");
    assert_eq!((sum(&said["rates"]), sum(&said["latency"])), (finished, finished), "{said:#}");
    assert_eq!((&said["hot"][0]["key"], &said["hot_of"]), (&"flood-log".into(), &finished.into()));
    let run = &said["runs"][0];
    assert!(run["fuel"].as_u64() > Some(0) && run["memory_most"].as_u64() > Some(0), "{run:#}");
    assert!(run["host_calls"].as_u64() >= Some(LINES), "each line was a call: {run:#}");
    assert_eq!(said["config_fault"], Value::Null);

    site.configure("[tasks.hostile]\nno_such_key = 1\n");
    let fault = wait_for("the refused file to be told", || {
        report(&db)?["config_fault"].as_str().map(str::to_owned)
    });
    assert!(fault.contains("no_such_key"), "{fault}");
    site.configure(&flood());
    wait_for("the fault to be gone", || {
        report(&db).filter(|report| report["config_fault"].is_null()).map(drop)
    });
    host.stop();
}
