//! A failing task does not affect the others.

use std::time::Duration;

use rusqlite::{Connection, params};
use serde_json::Value;
use yrs::{Doc, Text as _, Transact as _};

use crate::dwarf;
use crate::load::{SECOND_US, SHARE_LIMIT_US, add_share, now_us};
use crate::site::{Site, another_hostile, hostile, row_of, wait_at_most, wait_for};

const SHARES: &str = r#"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1s"
"#;

/// A task that commits the misdeeds that its keys name, once each.
fn misdeeds(keys: &str, wall: &str) -> String {
    hostile("hostile", &format!("keys:{keys}"), &once(wall))
}

/// One attempt for each item within that time.
fn once(wall: &str) -> String {
    format!(
        "schedule = \"@every 1s\"\nretry.attempts_max = 1\n\
         limits = {{ wall = \"{wall}\", memory_bytes = \"32MiB\" }}"
    )
}

/// Shares that fall due one after the other.
const SHARE_COUNT: i64 = 60;
/// The time between two of them.
const SHARE_EVERY_US: i64 = SECOND_US / 20;
/// Keystrokes in the document whose compaction takes long.
const KEYSTROKES: u32 = 40_000;
/// The number of shares that have to end while that compaction runs; otherwise the test proves
/// nothing.
const MEANWHILE_MIN: u64 = 3;
/// How long the compaction may take on a busy machine.
const COMPACTION_MAX: Duration = Duration::from_secs(120);

fn add_shares(db: &mut Connection, from_us: i64, count: i64, every_us: i64) {
    let txn = db.transaction().expect("a transaction");
    for number in 0..count {
        add_share(&txn, &format!("share-{number}"), from_us + number * every_us);
    }
    txn.commit().expect("committed");
}

fn count(db: &Connection, sql: &str) -> u64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

#[test]
fn a_trap_a_loop_and_a_memory_bomb_are_named_and_hurt_nobody_else() {
    // The slots are so far apart that a disk that stalls for a second makes none of them overlap;
    // only the hostile task could.
    let shares = SHARES.replace("@every 1s", "@every 3s");
    let loops = misdeeds("spin,panic,k1,k2", "500ms");
    // A busy machine may need more than the deadline of the loop to fill the memory.
    let greedy = another_hostile("greedy", "keys:remember", &once("30s"));
    let site = Site::new(&format!("{shares}{greedy}{loops}"));
    site.add_hostile();
    let mut db = site.database();
    add_shares(&mut db, now_us() + SECOND_US, SHARE_COUNT, SHARE_EVERY_US);
    let mut host = site.serve();
    host.leads();
    wait_for("the shares to end", || {
        (count(&db, "SELECT count(*) FROM shares WHERE unshared_at IS NULL") == 0).then_some(())
    });
    let letters = wait_for("every misdeed to be set aside", || {
        let (_, dead) = site.json(&["dead", "ls"]);
        let dead = dead.as_array().expect("a list").clone();
        let named = |key: &str| dead.iter().any(|letter| letter["key"] == key);
        ["spin", "remember", "panic"].iter().all(|key| named(key)).then_some(dead)
    });
    for letter in &letters {
        let (key, error) = (letter["key"].as_str(), letter["error"].as_str());
        let (key, error) = (key.expect("a key"), error.expect("an error"));
        let words = match key {
            "spin" => ["fuel", "deadline"].as_slice(),
            "remember" => &["memory"],
            "panic" => &["the poison panic"],
            other => panic!("{other} is no misdeed: {error}"),
        };
        assert!(words.iter().any(|word| error.contains(word)), "{key}: {error}");
    }
    let well = "SELECT count(*) FROM besom_history h JOIN besom_task t ON t.id = h.task
                WHERE t.name = 'hostile' AND h.key IN ('k1', 'k2') AND h.outcome = 2";
    wait_for("the neighbours in the same batch", || (count(&db, well) >= 2).then_some(()));
    host.stop();
    let audit = site.balanced();
    let shares = row_of(&audit["tasks"], "share-expiry");
    assert_eq!((&shares["committed"], &shares["dead"]), (&SHARE_COUNT.into(), &0.into()));
    let (_, shown) = site.json(&["task", "show", "share-expiry"]);
    let slots = shown["slots"].as_array().expect("slots");
    assert!(!slots.is_empty(), "{shown}");
    let held_up: Vec<&Value> = slots.iter().filter(|slot| slot["outcome"] != "ran").collect();
    assert!(held_up.is_empty(), "every slot of the other task has run, but for {held_up:#?}");
}

/// The log says once that source lines are not resolved; failed items are still named and set
/// aside.
#[test]
fn a_plugin_whose_dwarf_is_a_bomb_costs_the_lines_of_its_faults_and_no_more() {
    let misdeeds = misdeeds("panic,k1", "10s");
    let site = Site::new(&format!("[plugins]\ncompile_memory = \"512MiB\"\n{misdeeds}"));
    site.add_hostile();
    let file = site.path("plugins.d/hostile.wasm");
    let bomb = dwarf::bomb(&std::fs::read(&file).expect("the plugin"));
    std::fs::write(&file, bomb).expect("written");
    let mut host = site.serve();
    host.leads();
    let letters = wait_for("several faults at one place", || {
        let (_, dead) = site.json(&["dead", "ls", "--task", "hostile"]);
        let dead = dead.as_array().expect("a list").clone();
        (dead.len() >= 3).then_some(dead)
    });
    for letter in letters {
        let error = letter["error"].as_str().expect("an error");
        assert!(letter["key"] == "panic" && error.contains("the poison panic"), "{letter:#}");
        assert!(error.contains("\n  at besom_hostile::misdeed"), "{error}");
    }
    let given_up = host.lines(&["the source lines of a plugin's faults cannot be resolved"]);
    let [line] = &given_up[..] else { panic!("once: {given_up:#?}") };
    assert!(line.contains("it takes more than 512 MiB of memory"), "{line}");
    host.stop();
    site.balanced();
}

#[test]
fn a_host_that_drains_does_not_wait_for_a_guest_that_never_ends() {
    let misdeeds = misdeeds("sleep", "1h");
    let site = Site::new(&format!("[host]\ndrain_max = \"500ms\"\n{misdeeds}"));
    site.add_hostile();
    let db = site.database();
    let mut host = site.serve();
    host.leads();
    wait_for("the guest to sleep", || {
        (count(&db, "SELECT count(*) FROM besom_inflight") == 1).then_some(())
    });
    host.stop();
    let audit = site.balanced();
    assert_eq!(row_of(&audit["tasks"], "hostile")["pending"], 1, "{audit}");
    // The host stopped, so the item uses no attempt.
    let blamed = "SELECT count(*) FROM besom_log WHERE progress IS NOT NULL";
    assert_eq!(count(&db, blamed), 0);
}

#[test]
fn a_long_compaction_does_not_delay_a_share_that_is_due() {
    let config = format!(
        "{SHARES}[tasks.compaction]\nplugin = \"compaction\"\n\
         [tasks.compaction.settings]\nmin_changes = 100\n\
         [host]\nheavy_wait_max = \"0s\"\n"
    );
    let site = Site::new(&config);
    site.create_tables();
    let mut db = site.database();
    type_a_document(&mut db);
    let mut host = site.serve();
    host.leads();
    // Shares fall due before, during and after the compaction.
    add_shares(&mut db, now_us(), 100 * SHARE_COUNT, SHARE_EVERY_US / 5);
    wait_for("shares to end", || {
        (count(&db, "SELECT count(*) FROM shares WHERE unshared_at IS NOT NULL") > 0).then_some(())
    });
    let (code, asked) = site.json(&["task", "trigger", "compaction"]);
    assert_eq!((code, &asked["applied"]), (0, &Value::Bool(true)), "{asked}");
    wait_at_most(COMPACTION_MAX, "the compaction", || {
        (count(&db, "SELECT compacted_seq FROM documents WHERE doc_id = 'long'") > 0).then_some(())
    });
    host.stop();
    let task = "JOIN besom_task t ON t.id = x.task WHERE t.name";
    let begun =
        count(&db, &format!("SELECT max(started_at) FROM besom_run x {task} = 'compaction'"));
    let done = count(
        &db,
        &format!(
            "SELECT c.at FROM besom_history x JOIN besom_commit c ON c.no = x.commit_no {task} = 'compaction'"
        ),
    );
    let ended = format!(
        "SELECT s.start_date + {SHARE_LIMIT_US} AS due, c.at AS at FROM besom_history x
         JOIN besom_commit c ON c.no = x.commit_no
         JOIN shares s ON x.key LIKE '%' || s.share_id || '%' AND x.due = s.start_date + {SHARE_LIMIT_US}
         {task} = 'share-expiry' AND x.outcome = 1"
    );
    let between = format!("FROM ({ended}) WHERE due > {begun} AND at < {done}");
    let meanwhile = count(&db, &format!("SELECT count(*) {between}"));
    let late = count(&db, &format!("SELECT coalesce(max(at - due), 0) {between}"));
    let took = done - begun;
    eprintln!("{meanwhile} shares ended within {took} us of compaction, the latest {late} us late");
    assert!(meanwhile >= MEANWHILE_MIN, "{meanwhile} in {took} us");
    assert!(late < took / 2, "{late} us late in {took} us");
    site.balanced();
}

/// A document typed one key at a time, here and there.
fn type_a_document(db: &mut Connection) {
    let doc = Doc::with_client_id(7);
    let text = doc.get_or_insert_text("text");
    let txn = db.transaction().expect("a transaction");
    let sql = "INSERT INTO documents (project_id, doc_id, server_seq, created_at, updated_at)
               VALUES ('first', 'long', ?1, 0, 0)";
    txn.execute(sql, [KEYSTROKES]).expect("a document");
    for number in 0..KEYSTROKES {
        let mut typing = doc.transact_mut();
        let length = text.len(&typing);
        // Every key is typed elsewhere, so that nothing merges: the most work for a compaction.
        let at = if length == 0 { 0 } else { number.wrapping_mul(2_654_435_761) % length };
        text.insert(&mut typing, at, "x");
        let payload = typing.encode_update_v1();
        drop(typing);
        let sql = "INSERT INTO changes (project_id, doc_id, server_seq, actor_id, client_seq,
                       lamport, kind, payload) VALUES ('first', 'long', ?1, 'a', ?1, ?1, 'edit', ?2)";
        txn.execute(sql, params![number + 1, payload]).expect("a change");
    }
    txn.commit().expect("committed");
}
