//! Every misdeed at once, by tasks of their own: each is stopped and named, the host keeps its term,
//! its memory and its disk, and the neighbours go on. How late these are is printed, not judged.

use rusqlite::Connection;
use serde_json::Value;

use crate::load::{SECOND_US, SHARE_LIMIT_US, add_share, now_us};
use crate::site::{GRANTED, Site, wait_for};

/// A misdeed of the hostile plugin, and what its task is to be told for.
const MISDEEDS: [(&str, &[&str]); 9] = [
    ("spin", &["fuel", "time of the call is up"]),
    ("sleep", &["time of the call is up"]),
    ("remember", &["memory"]),
    ("recurse", &["stack"]),
    ("panic", &["the poison panic"]),
    ("exit", &["called exit"]),
    ("call-home", &["calls of imports", "time of the call is up", "too slowly"]),
    ("read-slow", &["calls of imports", "time of the call is up", "too slowly"]),
    ("emit-flood", &["wait to be delivered"]),
];

const VICTIMS: &str = r#"
[delivery]
pending_bytes_max = "16MiB"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
[tasks.neighbour]
plugin = "hostile.wasm"
schedule = "@every 1s"
settings.scan = "keys:k1,k2,k3"
"#;

/// Rows that a slow read goes through.
const ROWS: u32 = 200_000;
/// Shares of each part of the test, and the time between two of them.
const SHARES: i64 = 80;
const SHARE_EVERY_US: i64 = SECOND_US / 10;
/// What a host may take beyond its quiet value.
const MEMORY_KIB_MAX: u64 = 512 << 10;
/// What may lie in the outbox: the quota, and one batch that was under way.
const OUTBOX_BYTES_MAX: u64 = (16 << 20) + (32 << 20);

fn grants(task: &str) -> String {
    let (grants, _) = GRANTED.split_once("[collections").expect("the grants");
    format!("[tasks.{task}.grants]{grants}")
}

fn besieged() -> String {
    let (_, collections) = GRANTED.split_once("[collections").expect("the collections");
    let mut config = format!("{VICTIMS}{}", grants("neighbour"));
    for (key, _) in MISDEEDS {
        config += &format!(
            "[tasks.{key}]\nplugin = \"hostile.wasm\"\nschedule = \"@every 1s\"\n\
             settings.scan = \"keys:{key}\"\nretry.attempts_max = 1\nqueue_max = 1000\n\
             limits = {{ wall = \"1s\", memory_bytes = \"64MiB\" }}\n{}",
            grants(key)
        );
    }
    format!("{config}[collections{collections}")
}

fn quiet() -> String {
    let (_, collections) = GRANTED.split_once("[collections").expect("the collections");
    format!("{VICTIMS}{}[collections{collections}", grants("neighbour"))
}

/// How late shares ended, and how long the neighbour's runs took, in milliseconds: the median, the
/// 99th percentile and the latest.
struct Late {
    shares: [i64; 3],
    runs: [i64; 3],
}

fn quantiles(db: &Connection, sql: &str) -> [i64; 3] {
    let mut found = db.prepare(sql).expect(sql);
    let rows = found.query_map([], |row| row.get(0)).expect(sql);
    let mut all: Vec<i64> = rows.map(|row| row.expect("a number")).collect();
    all.sort_unstable();
    assert!(!all.is_empty(), "nothing was measured: {sql}");
    [50, 99, 100].map(|percent| all[(all.len() * percent).div_ceil(100) - 1] / 1_000)
}

/// Lets shares fall due one after the other, and waits until the last one has ended.
fn observe(site: &Site, part: &str) -> Late {
    let mut db = site.database();
    let begin = now_us();
    let txn = db.transaction().expect("a transaction");
    for number in 0..SHARES {
        let due = begin + 2 * SECOND_US + number * SHARE_EVERY_US;
        add_share(&txn, &format!("{part}-{number}"), due);
    }
    txn.commit().expect("committed");
    let open = format!(
        "SELECT count(*) FROM shares WHERE share_id LIKE '{part}-%' AND unshared_at IS NULL"
    );
    wait_for("the shares to end", || (count(&db, &open) == 0).then_some(()));
    let shares = format!(
        "SELECT unshared_at - start_date - {SHARE_LIMIT_US} FROM shares WHERE share_id LIKE '{part}-%'"
    );
    let runs = format!(
        "SELECT r.ended_at - r.started_at FROM besom_run r JOIN besom_task t ON t.id = r.task
         WHERE t.name = 'neighbour' AND r.started_at > {begin} AND r.ended_at IS NOT NULL"
    );
    Late { shares: quantiles(&db, &shares), runs: quantiles(&db, &runs) }
}

fn count(db: &Connection, sql: &str) -> u64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// A figure of a process, in KiB.
fn memory(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with(name)).expect(name);
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

#[test]
fn every_misdeed_at_once_is_stopped_by_name_and_hurts_nobody_else() {
    let site = Site::new(&quiet());
    site.add_hostile();
    let db = site.database();
    let fill = format!(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < {ROWS})
         INSERT INTO things SELECT 'first', i, 'name', NULL, 0 FROM n"
    );
    db.execute_batch(&fill).expect("rows");
    let mut host = site.serve();
    host.leads();
    let before = observe(&site, "quiet");
    let (term, resident) = ("SELECT term FROM besom_fence", memory(host.id(), "VmHWM"));
    let led = count(&db, term);
    site.configure(&besieged());
    host.says("reloaded");
    let during = observe(&site, "siege");
    let peak = memory(host.id(), "VmHWM");
    for (part, late) in [("quiet", &before), ("besieged", &during)] {
        let Late { shares, runs } = late;
        eprintln!("{part}: shares late by {shares:?} ms, runs of {runs:?} ms (p50, p99, most)");
    }
    eprintln!("memory: {} MiB, besieged at most {} MiB", resident >> 10, peak >> 10);
    for (task, words) in MISDEEDS {
        let told = wait_for(&format!("`{task}` to be named"), || {
            let (_, dead) = site.json(&["dead", "ls", "--task", task]);
            let held = site.task(task)["held"].as_array().expect("a list").clone();
            let letters = dead.as_array().expect("a list").iter();
            let mut told = letters.map(|l| &l["error"]).chain(held.iter().map(|held| &held["why"]));
            let named =
                |text: &&Value| words.iter().any(|w| text.as_str().unwrap_or("").contains(w));
            told.find(named).cloned()
        });
        assert!(told.is_string(), "{told}");
    }
    assert_eq!(count(&db, term), led, "the leader has kept its lease");
    assert!(
        peak.saturating_sub(resident) < MEMORY_KIB_MAX,
        "{resident} KiB before, {peak} at most"
    );
    let outbox = count(&db, "SELECT coalesce(sum(octet_length(payload)), 0) FROM besom_outbox");
    assert!(outbox < OUTBOX_BYTES_MAX, "{outbox} bytes in the outbox");
    host.stop();
    let audit = site.balanced();
    let tasks = audit["tasks"].as_array().expect("tasks");
    for victim in ["share-expiry", "neighbour"] {
        let books = tasks.iter().find(|row| row["task"] == victim).expect("the task");
        assert_eq!(books["dead"], 0, "{books}");
    }
}
