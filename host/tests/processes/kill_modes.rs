//! kill -9 at any moment of a host that resets and trims: every document is compacted once, with
//! the same content.

use std::time::{Duration, Instant};

use automerge::transaction::Transactable as _;
use automerge::{AutoCommit, ROOT};
use besom_compaction::format::Format;
use besom_compaction::outcome::Mode;
use besom_product::doc::write_log;
use loro::{ExportMode, LoroDoc};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rusqlite::Connection;
use yrs::{Doc, Text as _, Transact as _};

use crate::load::now_us;
use crate::replay;
use crate::site::{Site, wait_at_most};

/// Documents of each format.
const DOCUMENTS: u64 = 40;
/// Updates of each document.
const UPDATES: u64 = 24;
/// The maximum number of killed hosts; fewer if no work is left.
const KILLS_MAX: u32 = 24;
/// The longest life of a host after its first document; of every fourth host, after its start.
const LIFE_MAX: Duration = Duration::from_millis(20);
/// How long a host may take for the next document, and the last one for all that remain.
const DRAIN_MAX: Duration = Duration::from_secs(120);
/// Set this to repeat a run.
const SEED: &str = "BESOM_SEED";

/// Few items in a commit, so that there are many moments to kill a host.
const CONFIG: &str = r#"
[lease]
ttl = "3s"
renew = "1s"
[host]
batch_items = 2
[tasks.compaction]
plugin = "compaction"
schedule = "@every 1s"
[tasks.compaction.limits]
batch_items = 2
[tasks.compaction.settings]
min_changes = 2
mode_yjs = "reset"
deleted_content = "collect"
mode_loro = "trim"
mode_automerge = "reset"
"#;

/// The formats, each with its mode and the resulting epoch.
const WANTED: [(Format, Mode, u64); 3] = [
    (Format::Yjs, Mode::Reset, 1),
    (Format::Loro, Mode::Trim, 0),
    (Format::Automerge, Mode::Reset, 1),
];

#[test]
fn hosts_killed_while_they_reset_and_trim_do_each_document_once() {
    let seed = match std::env::var(SEED) {
        Ok(seed) => seed.parse().expect("a number"),
        Err(_) => now_us().cast_unsigned(),
    };
    eprintln!("{SEED}={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let site = Site::new(CONFIG);
    site.create_tables();
    for (format, ..) in WANTED {
        import(&site, format);
    }
    let db = site.database();
    let all = DOCUMENTS * WANTED.len() as u64;
    let mut interrupted = 0;
    for kill in 0..KILLS_MAX {
        let host = site.serve();
        let before = compacted(&db);
        // A kill matters only while there is work, and a fast machine does all of it at once.
        let started = Instant::now();
        while kill % 4 != 3 && compacted(&db) == before && started.elapsed() < DRAIN_MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(LIFE_MAX.mul_f64(rng.random_range(0.0..1.0)));
        host.kill();
        match compacted(&db) {
            done if done == all => break,
            done => interrupted += u32::from(done > 0),
        }
    }
    eprintln!("{} of {all} documents were done by {interrupted} hosts that died", compacted(&db));
    assert!(interrupted > 0, "hosts were killed between the first document and the last");

    let mut host = site.serve();
    host.leads();
    wait_at_most(DRAIN_MAX, "every document to be compacted", || {
        let open = "SELECT count(*) FROM besom_dead WHERE resolved_at IS NULL";
        if count(&db, open) > 0 {
            // An item whose host died three times is set aside.
            let (code, asked) = site.json(&["dead", "retry", "--all", "--wait", "60s"]);
            assert_eq!(code, 0, "{asked}");
        }
        (compacted(&db) == all).then_some(())
    });
    host.stop();
    site.balanced();
    for (format, mode, epoch) in WANTED {
        for number in 0..DOCUMENTS {
            same(&site, &db, format, number, mode, epoch);
        }
    }
}

/// The compactions in the history, without the imports.
const COMPACTED: &str = "FROM besom_history h JOIN besom_task t ON t.id = h.task
                         WHERE h.outcome = 1 AND t.name = 'compaction'";

fn compacted(db: &Connection) -> u64 {
    count(db, &format!("SELECT count(*) {COMPACTED}"))
}

fn count(db: &Connection, sql: &str) -> u64 {
    db.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn key(format: Format, number: u64) -> String {
    format!("{}-{number}", format.as_str())
}

fn import(site: &Site, format: Format) {
    let files = (0..DOCUMENTS).map(|number| {
        let path = site.path(&format!("{}.log", key(format, number)));
        std::fs::write(&path, write_log(&written(format, number))).expect("written");
        path.to_str().expect("a path").to_owned()
    });
    let files: Vec<String> = files.collect();
    let mut args = vec!["doc", "import", "--format", format.as_str()];
    args.extend(files.iter().map(String::as_str));
    let (code, imported) = site.json(&args);
    assert_eq!(code, 0, "{imported}");
}

/// The updates of an author who types and deletes some of it.
fn written(format: Format, number: u64) -> Vec<Vec<u8>> {
    let word = |n: u64| format!("{number}:{n} ");
    let removes = |n: u64| n % 5 == 4;
    match format {
        Format::Yjs => {
            let doc = Doc::with_client_id(number + 1);
            let text = doc.get_or_insert_text("text");
            let write = |n| {
                let mut txn = doc.transact_mut();
                // A change that carries content together with its deletion would mean that its
                // author keeps deleted content.
                if removes(n) {
                    text.remove_range(&mut txn, 2, 5);
                } else {
                    text.insert(&mut txn, 0, &word(n));
                }
                txn.encode_update_v1()
            };
            (0..UPDATES).map(write).collect()
        }
        Format::Loro => {
            let doc = LoroDoc::new();
            doc.set_peer_id(number + 1).expect("a fresh document");
            let text = doc.get_text("text");
            let write = |n| {
                let before = doc.oplog_vv();
                text.insert(0, &word(n)).expect("inserted");
                if removes(n) {
                    text.delete(2, 5).expect("deleted");
                }
                doc.commit();
                doc.export(ExportMode::updates(&before)).expect("exported")
            };
            (0..UPDATES).map(write).collect()
        }
        Format::Automerge => {
            let mut doc = AutoCommit::new();
            let text = doc.put_object(ROOT, "text", automerge::ObjType::Text).expect("a text");
            let write = |n| {
                doc.splice_text(&text, 0, 0, &word(n)).expect("inserted");
                if removes(n) {
                    doc.splice_text(&text, 2, 5, "").expect("deleted");
                }
                doc.save_incremental()
            };
            (0..UPDATES).map(write).collect()
        }
    }
}

/// One row is left with the content of all rows, and one commit wrote it.
#[track_caller]
fn same(site: &Site, db: &Connection, format: Format, number: u64, mode: Mode, epoch: u64) {
    let key = key(format, number);
    let log = std::fs::read(site.path(&format!("{key}.log"))).expect("what was imported");
    let before = replay::updates(&log);
    let exported = site.besom(&["doc", "export", &key]);
    assert!(exported.status.success(), "{}", String::from_utf8_lossy(&exported.stderr));
    let after = replay::updates(&exported.stdout);
    assert_eq!(after.len(), 1, "{key}");
    let before: Vec<&[u8]> = before.iter().map(Vec::as_slice).collect();
    if let Err(difference) = format.verify(&before, &after[0], mode) {
        panic!("{key}: {difference}");
    }
    let of = |sql: &str| count(db, &sql.replace("{key}", &key));
    assert_eq!(of("SELECT epoch FROM documents WHERE doc_id = '{key}'"), epoch, "{key}");
    assert_eq!(of("SELECT count(*) FROM changes WHERE doc_id = '{key}'"), 1, "{key}");
    let commits = format!("SELECT count(*) {COMPACTED} AND h.key = '{{key}}'");
    assert_eq!(of(&commits), 1, "{key}");
    let (code, verified) = site.json(&["doc", "verify", &key]);
    assert_eq!(code, 0, "{verified:#}");
    assert_eq!(verified["compactions"][0]["mode"], mode.as_str(), "{verified:#}");
}
