//! The demo's simulated product writes to a database that `besom run` then sweeps.

use std::sync::{Arc, Mutex};

use besom_core::time::Time;
use besom_demo::life::{DAMAGED_MAX, Life, World};
use besom_ports::store::Store;
use besom_product::model::default_collections;
use besom_product::model::product::Product;
use besom_services::activity::store::StoreActivity;
use besom_sqlite::{Options, SqliteStore};
use rusqlite::Connection;

use crate::load::now_us;
use crate::site::Site;

const CONFIG: &str = r#"
[tasks.compaction]
plugin = "compaction"
schedule = "@every 1h"
[tasks.compaction.settings]
min_changes = 10
[tasks.client-deactivation]
plugin = "client-deactivation"
schedule = "@every 1h"
[tasks.share-expiry]
plugin = "share-expiry"
schedule = "@every 1h"
[tasks.share-expiry.settings]
limit_min = "20s"
"#;

/// The number of beats: enough for the shared document to have been restarted, for several waves,
/// and for every damaged document.
const BEATS: i64 = 1_300;

/// The longest duration of a share of the demo, and of a visitor's silence, in beats.
const LAST_BEATS: i64 = 100;

fn count(db: &Connection, sql: &str) -> usize {
    db.query_row(sql, [], |row| row.get(0)).expect(sql)
}

/// Lets the product work for this many seconds up to now; returns the connections.
async fn live(site: &Site, seed: u64) -> Vec<String> {
    let store = SqliteStore::open(site.path("besom.db"), Options::default()).expect("opens");
    store.set_collections(Arc::new(default_collections()));
    let connections = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&connections);
    let world = World {
        store: Arc::clone(&store) as Arc<dyn Store>,
        product: Product::new(store.clone(), Arc::new(default_collections())),
        activity: Arc::new(StoreActivity::listening(store.clone())),
        connected: Box::new(move |workspace| told.lock().unwrap().push(workspace.to_owned())),
    };
    let mut life = Life::new(world, seed);
    let now = now_us();
    for beat in 0..BEATS {
        life.beat(Time(now - (BEATS - beat) * 1_000_000)).await;
    }
    let connections = connections.lock().unwrap();
    connections.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demos_life_gives_every_task_something_and_stays_within_its_bounds() {
    let site = Site::new(CONFIG);
    site.create_tables();
    let rows = |table: &str| count(&site.database(), &format!("SELECT count(*) FROM {table}"));
    let before = ["documents", "clients", "shares", "workspaces", "attachments"].map(rows);
    let connections = live(&site, 7).await;
    let db = site.database();

    // The rows that it may have written.
    for ((table, bound), before) in [
        ("documents", 230 + DAMAGED_MAX),
        ("clients", 80),
        ("shares", 300),
        ("workspaces", 15),
        ("attachments", 80 * 30),
    ]
    .into_iter()
    .zip(before)
    {
        let rows = rows(table) - before;
        assert!(rows > 0 && rows <= bound, "{table}: {rows}, at most {bound}");
    }
    assert_eq!(
        count(&db, "SELECT count(*) FROM documents WHERE doc_id LIKE 'damaged-%'"),
        DAMAGED_MAX
    );
    assert_eq!(count(&db, "SELECT count(*) FROM documents WHERE doc_id LIKE 'wave-%'"), 200);
    // Nothing is compacted here, so the log of the shared document would be the longest by far.
    let longest = "SELECT max(n) FROM (SELECT count(*) AS n FROM changes GROUP BY doc_id)";
    assert!(count(&db, longest) <= 3_100);
    let hot = "SELECT server_seq FROM documents WHERE doc_id = 'draft-001'";
    assert!(count(&db, hot) > 5_000);
    assert_eq!(count(&db, "SELECT epoch FROM documents WHERE doc_id = 'draft-001'"), 2);
    // Some connections are open, and every one was reported.
    assert!(connections.len() > 100, "{}", connections.len());
    assert!(connections.iter().all(|workspace| workspace.contains("-room-")), "{connections:?}");

    let (code, said) = site.said(&["run"]);
    assert_eq!(code, 1, "damaged documents are set aside: {said}");
    let db = site.database();
    let over = now_us() - LAST_BEATS * 1_000_000;
    let open =
        format!("SELECT count(*) FROM shares WHERE unshared_at IS NULL AND start_date < {over}");
    assert_eq!(count(&db, &open), 0);
    let stale = format!(
        "SELECT count(*) FROM clients WHERE status = 'activated'
         AND updated_at < {} - 86400000000",
        now_us() - LAST_BEATS * 1_000_000
    );
    assert_eq!(count(&db, &stale), 0);
    let uncompacted = "SELECT count(*) FROM documents
        WHERE pending >= 10 AND doc_id NOT LIKE 'damaged-%'";
    assert_eq!(count(&db, uncompacted), 0, "what the authors wrote can be compacted");
    let (code, dead) = site.json(&["dead", "ls"]);
    assert_eq!(code, 0);
    assert_eq!(dead.as_array().map(Vec::len), Some(DAMAGED_MAX), "{dead}");
    let (code, audit) = site.json(&["audit"]);
    assert_eq!((code, &audit["balanced"]), (0, &true.into()), "{audit}");

    // Other authors continue from the existing state.
    drop(db);
    live(&site, 8).await;
    let (code, passed) = site.json(&["run"]);
    let tasks = passed.as_array().expect("tasks");
    let dead: u64 = tasks.iter().filter_map(|task| task["dead"].as_u64()).sum();
    assert_eq!(code, i32::from(dead > 0), "{passed:#}");
    let db = site.database();
    assert_eq!(count(&db, uncompacted), 0, "what the authors wrote can be compacted");
    assert_eq!(count(&db, "SELECT count(*) FROM documents"), before[0] + 230 + DAMAGED_MAX);
    let (code, audit) = site.json(&["audit"]);
    assert_eq!((code, &audit["balanced"]), (0, &true.into()), "{audit}");
}
