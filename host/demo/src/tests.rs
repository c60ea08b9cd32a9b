//! Tests of the demo's data, on a store in a file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use besom_core::ids::Tenant;
use besom_core::value::Value;

use super::*;
use crate::import::Replayed;
use crate::log::{Edit, UpdateLog};
use besom_ports::store::Range;
use besom_product::model::default_collections;
use besom_sqlite::{Options, SqliteStore};

const NOW: Time = Time(1_700_000_000_000_000);

/// A store in a file beside the directory of the demo.
fn store(dir: &tempfile::TempDir) -> Arc<SqliteStore> {
    let options = Options { time: Arc::new(|| NOW), ..Options::default() };
    let store = SqliteStore::open(dir.path().with_extension("db"), options).unwrap();
    store.set_collections(Arc::new(default_collections()));
    store
}

async fn rows(store: &dyn Store, tenant: &str, table: &str, columns: &[&str]) -> Vec<Vec<Value>> {
    let view = store.snapshot(std::time::Duration::from_secs(60)).await.unwrap();
    let range = Range {
        collection: table.into(),
        columns: columns.iter().map(|column| (*column).into()).collect(),
        limit: 100_000,
        bytes_max: usize::MAX,
        ..Range::default()
    };
    let page = view.read_range(Some(&Tenant::from(tenant)), &range).await.unwrap();
    assert!(page.next.is_none());
    page.rows
}

#[tokio::test]
async fn a_demo_has_something_for_every_task_and_its_numbers_agree() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::claim(dir.path()).unwrap();
    let store = store(&dir);
    let prepared = prepare(&place, &*store, store.clone(), &[], NOW, &mut |_| ()).await.unwrap();
    std::fs::write(place.database(), "").unwrap();
    let seeded = prepared.seeded.unwrap();
    assert_eq!(seeded.tenants.len(), 5);
    assert_eq!(seeded.hostile.len(), 6);

    let measured = measure(&*store).await.unwrap();
    assert_eq!((measured.documents, measured.compacted), (seeded.documents, 0));
    assert_eq!(measured.changes.rows, seeded.changes);
    assert_eq!(measured.clients.values().sum::<u64>(), seeded.clients);
    assert_eq!(measured.shares_open + measured.shares_ended, seeded.shares);
    assert_eq!(measured.workspaces.values().sum::<u64>(), seeded.workspaces);
    assert_eq!(measured.transitions, 0);
    assert!(measured.snapshots.rows > 0 && measured.presences > 0 && measured.deactivated() > 0);

    // Every log is gapless and agrees with its document, except for the one with a gap.
    for tenant in &seeded.tenants {
        let changes = rows(&*store, tenant, "changes", &["doc_id", "server_seq"]).await;
        let mut logs: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for row in changes {
            let [Value::Text(id), Value::Integer(seq)] = &row[..] else { panic!("{row:?}") };
            logs.entry(id.clone()).or_default().push(*seq);
        }
        for row in rows(&*store, tenant, "documents", &["doc_id", "server_seq"]).await {
            let [Value::Text(id), Value::Integer(last)] = &row[..] else { panic!("{row:?}") };
            let gapless = logs[id].iter().copied().eq(1..=*last);
            assert_eq!(gapless, id != "hostile-gap", "{tenant}/{id}");
        }
    }
    // A second preparation finds a demo and leaves it unchanged.
    let again = Place::claim(dir.path()).unwrap();
    let prepared = prepare(&again, &*store, store.clone(), &[], NOW, &mut |_| ()).await.unwrap();
    assert_eq!(prepared, Prepared::default());
    assert_eq!(measure(&*store).await.unwrap(), measured);
}

#[tokio::test]
async fn an_interrupted_preparation_is_repeated_without_a_duplicate() {
    let dir = tempfile::tempdir().unwrap();
    let place = Place::claim(dir.path()).unwrap();
    let store = store(&dir);
    let seeded = seed::fill(store.clone(), NOW, &mut |_| ()).await.unwrap();
    let measured = measure(&*store).await.unwrap();
    let later = NOW + std::time::Duration::from_secs(5);
    let prepared = prepare(&place, &*store, store.clone(), &[], later, &mut |_| ()).await.unwrap();
    assert!(prepared.seeded.unwrap() == seeded);
    assert_eq!(measure(&*store).await.unwrap(), measured);
}

#[tokio::test]
async fn a_trace_becomes_a_document_once() {
    let dir = tempfile::tempdir().unwrap();
    let store = store(&dir);
    besom_product::model::product::create_tables(&*store).await.unwrap();
    let edit = Edit { author: 0, payload: vec![1, 1, 77, 0, 4, 1, 1, b't', 1, b'a', 0] };
    let log = UpdateLog { authors: vec![77], edits: vec![edit] };
    let trace = Replayed { document: "typed".into(), log };
    for existed in [false, true] {
        let traces = std::slice::from_ref(&trace);
        let imported =
            import::write(&*store, store.clone(), traces, NOW, &mut |_| ()).await.unwrap();
        assert_eq!((imported[0].updates, imported[0].existed), (1, existed));
    }
    let columns = ["actor_id", "client_seq", "kind", "checksum"];
    let changes = rows(&*store, import::TENANT, "changes", &columns).await;
    let text = |text: &str| Value::Text(text.into());
    let crc = Value::Integer(i64::from({
        let mut crc = flate2::Crc::new();
        crc.update(&trace.log.edits[0].payload);
        crc.sum()
    }));
    assert_eq!(changes, [[text("typed-author-0"), Value::Integer(1), text("edit"), crc]]);
    let vectors = rows(&*store, import::TENANT, "version_vectors", &["vector"]).await;
    assert_eq!(vectors, [[Value::Bytes(vec![1, 77, 1])]]);
}

#[test]
fn traces_of_one_name_are_refused_before_anything_is_written() {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data");
    let trace = data.join("sequential.json");
    let refused = import::replay(&[trace.clone(), trace], &mut |_| ()).unwrap_err();
    assert!(refused.to_string().contains("`sequential`"), "{refused}");
}
