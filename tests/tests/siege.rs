//! All misdeeds at once, each by its own task, on both databases: each is stopped and named, the
//! host keeps its term and its bounds of memory and disk, the database is not overloaded, and the
//! other tasks continue. Their lateness is printed and not judged, because the machines are noisy.

#[path = "siege/site.rs"]
mod site;

use besom_tests::conformance::block_on;
use besom_tests::site::Place;
use serde_json::Value;

use site::{Late, Site, wait_for};

/// A misdeed of the hostile plugin, and the expected words of its error: any of these. Each item ends
/// as a dead letter; only what waits for delivery holds its task instead.
const MISDEEDS: [(&str, &[&str]); 9] = [
    ("spin", &["fuel", "reached its deadline"]),
    ("sleep", &["reached its deadline"]),
    ("remember", &["memory"]),
    ("recurse", &["stack"]),
    ("panic", &["the poison panic"]),
    ("exit", &["called exit"]),
    ("call-home", &["calls to imports", "reached its deadline", "too slowly"]),
    ("read-slow", &["rows", "calls to imports", "reached its deadline", "too slowly"]),
    ("emit-flood", &["waiting to be delivered"]),
];

/// The misdeed that holds its task.
const HELD: &str = "emit-flood";

const VICTIMS: &str = r#"
[delivery]
hosts = ["127.0.0.1:9"]
pending_bytes_max = "16MiB"
[topics.cleaned]
url = "http://127.0.0.1:9/nobody-listens"
attempts_max = 1000
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
[tasks.neighbour]
plugin = "hostile.wasm"
schedule = "@every 1s"
settings.scan = "keys:k1,k2,k3"
"#;

/// The grants that the hostile plugin requests.
const GRANTS: &str = r#"
things = ["read", "update", "delete"]
secrets = ["read"]
topics = ["cleaned"]
"#;

const COLLECTIONS: &str = r#"
[collections.things]
tenant = "tenant"
key = ["id"]
columns = { id = "integer", name = "text", data = "bytes", state = "integer" }
[collections.secrets]
key = ["id"]
columns = { id = "integer" }
"#;

/// The number of rows that a slow read examines.
const ROWS: u32 = 200_000;
/// The memory that a host may use beyond its idle value.
const MEMORY_KIB_MAX: u64 = 512 << 10;
/// The maximum size of the outbox: the quota, and one batch in flight.
const OUTBOX_BYTES_MAX: i64 = (16 << 20) + (32 << 20);

fn quiet() -> String {
    format!("{VICTIMS}[tasks.neighbour.grants]{GRANTS}{COLLECTIONS}")
}

fn besieged() -> String {
    let mut config = format!("{VICTIMS}[tasks.neighbour.grants]{GRANTS}");
    for (key, _) in MISDEEDS {
        config += &format!(
            "[tasks.{key}]\nplugin = \"hostile.wasm\"\nschedule = \"@every 1s\"\n\
             settings.scan = \"keys:{key}\"\nretry.attempts_max = 1\nqueue_max = 1000\n\
             limits = {{ wall = \"1s\", memory_bytes = \"64MiB\" }}\n[tasks.{key}.grants]{GRANTS}"
        );
    }
    config + COLLECTIONS
}

#[test]
fn every_misdeed_at_once_is_stopped_by_name_and_hurts_nobody_else() {
    for place in Place::ALL {
        block_on(besiege(place));
    }
}

async fn besiege(place: Place) {
    let site = Site::new(place, &quiet()).await;
    site.add_things(ROWS).await;
    site.note_ends().await;
    let mut host = site.serve().await;
    let before = site.observe("quiet").await;
    let (led, resident) = (site.term().await, host.memory_kib_max());
    site.configure(&besieged());
    host.says("reloaded").await;
    let during = site.observe("siege").await;
    let peak = host.memory_kib_max();
    for (part, late) in [("quiet", &before), ("besieged", &during)] {
        let Late { shares, runs } = late;
        eprintln!(
            "{place:?}, {part}: shares late by {shares:?} ms, runs of {runs:?} ms (p50, p99, most)"
        );
    }
    eprintln!("memory: {} MiB, besieged at most {} MiB", resident >> 10, peak >> 10);
    for (task, words) in MISDEEDS {
        wait_for(&format!("`{task}` to be named"), async || {
            let letters = site.json(&["dead", "ls", "--task", task]);
            let status = site.json(&["status"]);
            let tasks = status["tasks"].as_array().expect("tasks");
            let held = &tasks.iter().find(|row| row["task"] == task).expect("the task")["held"];
            let errors = letters.as_array().expect("a list").iter().map(|l| &l["error"]);
            let holds = held.as_array().expect("a list").iter().map(|h| &h["why"]);
            let mut told = errors.chain(holds.filter(|_| task == HELD));
            let is_named = |text: &Value| {
                let text = text.as_str().unwrap_or_default();
                words.iter().any(|word| text.contains(word))
            };
            told.any(is_named).then_some(())
        })
        .await;
    }
    assert_eq!(site.term().await, led, "the leader has kept its lease");
    assert!(
        peak.saturating_sub(resident) < MEMORY_KIB_MAX,
        "{resident} KiB before, {peak} at most"
    );
    let outbox = site.outbox_bytes().await;
    assert!(outbox < OUTBOX_BYTES_MAX, "{outbox} bytes in the outbox");
    host.stop().await;
    site.leaves_the_database_alone().await;
    let audit = site.json(&["audit"]);
    assert_eq!(audit["balanced"], true, "{audit}");
    let tasks = audit["tasks"].as_array().expect("tasks");
    for victim in ["share-expiry", "neighbour"] {
        let books = tasks.iter().find(|row| row["task"] == victim).expect("the task");
        assert_eq!(books["dead"], 0, "{books}");
    }
}
