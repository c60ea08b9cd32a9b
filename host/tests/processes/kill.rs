//! kill -9 at any moment: nothing lost, nothing twice.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rusqlite::Connection;
use serde_json::Value;

use crate::load::{Product, Written, now_us};
use crate::replay;
use crate::site::{Site, wait_at_most};

/// Hosts that are killed.
const KILLS: u32 = 50;
/// The longest life of a host that leads, in milliseconds.
const LIFE_MAX_MS: u64 = 700;
/// One of this many hosts is killed while it starts.
const YOUNG_ONE_IN: u32 = 5;
/// How long the last host may take for the remaining work.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// The actor of a compaction's row.
const ZERO_ACTOR: &str = "000000000000000000000000";
/// Set this to repeat a run.
const SEED: &str = "BESOM_SEED";

const CONFIG: &str = r#"
[lease]
ttl = "3s"
renew = "1s"
[activity]
# A product that reports its connections again after a death would wake what was put to sleep, and
# it would be put to sleep twice.
wake = "never"
idle_timeout = "500ms"
heartbeat_timeout = "2s"
[tasks.compaction]
plugin = "compaction"
schedule = "@every 1s"
[tasks.compaction.settings]
min_changes = 5
[tasks.client-deactivation]
plugin = "client-deactivation"
schedule = "@every 1s"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
[tasks.ttl-transitions]
plugin = "ttl-transitions"
schedule = "@every 1s"
"#;

#[test]
fn a_host_killed_fifty_times_loses_nothing_and_does_nothing_twice() {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => now_us().cast_unsigned(),
    };
    eprintln!("{SEED}={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let site = Site::new(CONFIG);
    site.create_tables();
    let product = Product::new(&site, seed);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let product = std::thread::spawn(move || product.work(&stopped));

    for kill in 0..KILLS {
        let mut host = site.serve();
        if kill % YOUNG_ONE_IN != 0 {
            host.leads();
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(0..LIFE_MAX_MS)));
        host.kill();
    }
    stop.store(true, Ordering::Relaxed);
    let written = product.join().expect("the product goes on");
    let db = site.database();
    let before = done_before_the_end(&db);
    assert!(before.iter().all(|(_, n)| *n > 0), "under the kills every task works: {before:?}");

    let mut host = site.serve();
    host.leads();
    wait_at_most(DRAIN_MAX, "everything to be swept", || {
        if count(&db, &format!("SELECT count(*) FROM {OPEN_LETTERS}")) > 0 {
            retry_what_hosts_died_of(&site);
        }
        drained(&db, &written).then_some(())
    });
    host.stop();

    let audit = site.balanced();
    let tasks = audit["tasks"].as_array().expect("tasks");
    let dead: u64 = tasks.iter().filter_map(|task| task["dead"].as_u64()).sum();
    let resolved = count(&db, "SELECT count(*) FROM besom_dead WHERE resolved_at IS NOT NULL");
    assert_eq!(dead, resolved, "{audit:#}");
    effects_happened_once(&db, &written);
    history_says_the_same(&db);
    for ((tenant, doc), edits) in &written.edits {
        let name = format!("{tenant}/{doc}");
        let out = site.besom(&["doc", "export", &name]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let exported = replay::updates(&out.stdout);
        let behind = count(
            &db,
            &format!(
                "SELECT count(*) FROM documents d JOIN changes c USING (project_id, doc_id)
                 WHERE (project_id, doc_id) = ('{tenant}', '{doc}') AND kind = 'edit'
                 AND c.server_seq > compacted_seq"
            ),
        );
        let at_most = 1 + behind as usize;
        assert!(exported.len() <= at_most, "{name} has {} edits", exported.len());
        replay::same_document(&name, edits, &exported);
    }
}

/// Open dead letters.
const OPEN_LETTERS: &str = "besom_dead WHERE resolved_at IS NULL";

/// An item whose host died three times is set aside. With this many kills some are, and no others.
fn retry_what_hosts_died_of(site: &Site) {
    let (code, dead) = site.json(&["dead", "ls", "--limit", "1000"]);
    let dead = dead.as_array().expect("a list");
    assert_eq!(code, 0);
    for letter in dead {
        let error = letter["error"].as_str().expect("why");
        assert!(error.contains("died"), "{letter:#}");
    }
    if !dead.is_empty() {
        let (code, asked) = site.json(&["dead", "retry", "--all", "--wait", "60s"]);
        assert_eq!((code, &asked["applied"]), (0, &Value::Bool(true)), "{asked}");
    }
}

fn count(db: &Connection, sql: &str) -> u64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// How much of each kind the killed hosts have executed.
fn done_before_the_end(db: &Connection) -> Vec<(&'static str, u64)> {
    let compactions = format!("SELECT count(*) FROM seen_change WHERE actor = '{ZERO_ACTOR}'");
    vec![
        ("compactions", count(db, &compactions)),
        ("detached", count(db, "SELECT count(*) FROM seen_detached")),
        ("unshared", count(db, "SELECT count(*) FROM seen_unshared")),
        ("transitions", count(db, "SELECT count(*) FROM seen_wanted")),
    ]
}

/// Whether no work is left.
fn drained(db: &Connection, written: &Written) -> bool {
    let left: Vec<String> = [
        // The number of changes that makes a document a candidate: `min_changes`.
        "documents WHERE pending >= 5",
        "clients WHERE status = 'activated'",
        "workspaces WHERE desired_state = status",
        "besom_log",
        "besom_retry",
        OPEN_LETTERS,
    ]
    .into_iter()
    .map(|rows| (rows, count(db, &format!("SELECT count(*) FROM {rows}"))))
    .filter(|(_, left)| *left > 0)
    .map(|(rows, left)| format!("{left} {rows}"))
    .collect();
    let shares = count(db, "SELECT count(*) FROM shares WHERE unshared_at IS NULL");
    let extended = written.extended.len() as u64;
    if left.is_empty() && shares == extended {
        return true;
    }
    // Printed if the test fails: the work that did not end.
    eprintln!("left: {}; {shares} shares, {extended} of them extended", left.join(", "));
    false
}

/// Compares the triggers' ledger with the product's own records.
fn effects_happened_once(db: &Connection, written: &Written) {
    // Every sequence number of a document was assigned once, without a gap; a compaction's row has
    // the number of an existing edit.
    for ((tenant, doc), edits) in &written.edits {
        let sql = "SELECT server_seq FROM documents WHERE project_id = ?1 AND doc_id = ?2";
        let head: u64 = db.query_row(sql, [tenant, doc], |row| row.get(0)).expect("a document");
        let mut select = db
            .prepare("SELECT seq, kind FROM seen_change WHERE tenant = ?1 AND doc = ?2 AND actor <> ?3 ORDER BY rowid")
            .expect("prepared");
        let rows = select.query_map([tenant, doc, ZERO_ACTOR], |row| {
            Ok((row.get::<_, u64>(0)?, row.get::<_, String>(1)?))
        });
        let rows: Vec<_> = rows.expect("rows").map(|row| row.expect("a row")).collect();
        let numbers: Vec<u64> = rows.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=head).collect::<Vec<_>>(), "{tenant}/{doc}");
        let appended = rows.iter().filter(|(_, kind)| kind == "edit").count();
        assert_eq!(appended, edits.len(), "{tenant}/{doc}");
    }

    let set = |sql: &str| -> Vec<(String, String, String)> {
        let mut select = db.prepare(sql).expect("prepared");
        let rows = select.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.expect("rows").map(|row| row.expect("a row")).collect()
    };
    let stale: Vec<_> = written.stale.iter().cloned().collect();
    let detached = "SELECT tenant, doc, client FROM seen_detached ORDER BY 1, 2, 3";
    assert_eq!(set(detached), stale, "every attachment is detached once");
    let cleared = "SELECT tenant, doc, actor FROM seen_change WHERE actor LIKE 'client-%'
                   ORDER BY 1, 2, 3";
    assert_eq!(set(cleared), stale, "every detachment clears the presence once");
    let clients: BTreeSet<_> = stale.iter().map(|(t, _, c)| (t.clone(), c.clone())).collect();
    let deactivated = set("SELECT tenant, client, '' FROM seen_deactivated ORDER BY 1, 2");
    let deactivated: Vec<_> = deactivated.into_iter().map(|(t, c, _)| (t, c)).collect();
    assert_eq!(deactivated, clients.into_iter().collect::<Vec<_>>());
    for table in ["version_vectors", "presences"] {
        assert_eq!(count(db, &format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }

    let ended = set("SELECT tenant, share, '' FROM seen_unshared ORDER BY 1, 2");
    let ended: Vec<_> = ended.into_iter().map(|(t, s, _)| (t, s)).collect();
    let expected: Vec<_> = written.shares.difference(&written.extended).cloned().collect();
    assert_eq!(ended, expected, "every share ends once, and none that was extended");
    let early = "SELECT count(*) FROM seen_unshared WHERE unshared_at < due";
    assert_eq!(count(db, early), 0, "no share ends before its time");

    let moved = set("SELECT tenant, workspace, was || wanted FROM seen_wanted ORDER BY 1, 2");
    let moved: Vec<_> = moved.into_iter().map(|(t, w, _)| (t, w)).collect();
    assert_eq!(moved, written.workspaces.iter().cloned().collect::<Vec<_>>());
}

/// The history has one committed row for each effect, and no identity that can end only once is in
/// it twice.
fn history_says_the_same(db: &Connection) {
    let twice =
        "SELECT count(*) FROM (SELECT 1 FROM besom_history h JOIN besom_task t ON t.id = h.task
                 WHERE outcome = 1 AND t.name <> 'compaction'
                 GROUP BY h.task, h.tenant, h.key, h.due HAVING count(*) > 1)";
    assert_eq!(count(db, twice), 0, "an identity was committed twice");
    let committed = |task: &str| {
        count(
            db,
            &format!(
                "SELECT count(*) FROM besom_history h JOIN besom_task t ON t.id = h.task
                            WHERE outcome = 1 AND t.name = '{task}'"
            ),
        )
    };
    let seen = |table: &str| count(db, &format!("SELECT count(*) FROM {table}"));
    assert_eq!(committed("share-expiry"), seen("seen_unshared"));
    assert_eq!(committed("ttl-transitions"), seen("seen_wanted"));
    assert_eq!(committed("client-deactivation"), seen("seen_detached") + seen("seen_deactivated"));
    let rows = count(db, &format!("SELECT count(*) FROM seen_change WHERE actor = '{ZERO_ACTOR}'"));
    assert!(committed("compaction") >= rows, "a compaction without its history");
}
