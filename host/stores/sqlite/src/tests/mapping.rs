//! The comparison of the mapping with the database.

use std::sync::Arc;
use std::time::Duration;

use besom_core::collection::{Anchor, Collection, Collections, Column, Encoding};
use besom_core::time::Time;
use besom_core::value::{Kind, Value};

use super::fixture::Fixture;
use besom_ports::store::{Range, Store};
use besom_product::model::default_collections;

#[tokio::test]
async fn the_entity_model_has_no_fault() {
    let f = Fixture::new().await;
    assert_eq!(f.store.check(&default_collections()).await.unwrap(), []);
}

#[tokio::test]
async fn every_fault_is_named_with_its_place_and_the_fix() {
    let f = Fixture::new().await;
    rusqlite::Connection::open(f.dir.path().join("besom.db"))
        .unwrap()
        .execute_batch(
            "CREATE TABLE loose (project_id TEXT, id TEXT, doc_id TEXT, at TEXT);
             CREATE VIEW seen AS SELECT project_id, doc_id, pending FROM documents;",
        )
        .unwrap();
    let model = default_collections();
    let of = |name: &str, table: &str, change: &dyn Fn(&mut Collection)| {
        let mut collection = model["documents"].clone();
        collection.name = name.into();
        collection.table = table.into();
        change(&mut collection);
        collection
    };
    let keep = |collection: &mut Collection, columns: &[&str]| {
        collection.columns.retain(|name, _| columns.contains(&name.as_str()));
    };
    let rename = |collection: &mut Collection, from: &str, to: &str| {
        let column = collection.columns.remove(from).unwrap();
        collection.columns.insert(to.into(), column);
    };
    let loose = |c: &mut Collection| {
        keep(c, &["doc_id", "created_at"]);
        rename(c, "created_at", "at");
        c.indexes.clear();
        let columns = vec!["doc_id".to_owned()];
        c.indexes.insert("by_doc".into(), columns.clone());
        c.anchors = vec![Anchor { collection: "documents".into(), columns }];
    };
    let view = |c: &mut Collection| keep(c, &["doc_id", "pending"]);
    let misspelt = |c: &mut Collection| rename(c, "server_seq", "sever_seq");
    let mut all: Collections = [
        of("documents", "documents", &|_| {}),
        of("gone", "document", &|_| {}),
        of("loose", "loose", &loose),
        of("misspelt", "documents", &misspelt),
        of("tenantless", "documents", &|c| c.tenant = Some("project".into())),
        of("view", "seen", &view),
    ]
    .into_iter()
    .map(|c| (c.name.clone(), c))
    .collect();
    let faults = f.store.check(&all).await.unwrap();
    let found: Vec<_> =
        faults.iter().map(|f| (f.collection.as_str(), f.place.as_str(), f.warning)).collect();
    assert_eq!(
        found,
        [
            ("gone", "table", false),
            ("loose", "columns.at", true),
            ("loose", "key", false),
            ("loose", "indexes.by_doc", false),
            ("loose", "anchor", true),
            ("misspelt", "columns.sever_seq", false),
            ("tenantless", "tenant", false),
            ("tenantless", "key", false),
            ("tenantless", "indexes.by_pending", false),
        ],
        "{faults:#?}"
    );
    let said =
        |collection: &str| &faults.iter().find(|f| f.collection == collection).unwrap().message;
    assert!(said("gone").contains("did you mean \"documents\"?"));
    assert!(said("misspelt").contains("did you mean \"server_seq\"?"));
    all.retain(|name, _| name == "documents");
    assert_eq!(f.store.check(&all).await.unwrap(), []);
}

/// The first page is in the order of the index; the next one begins among equal values.
#[tokio::test]
async fn an_index_that_does_not_go_on_with_the_key_is_warned_of() {
    let f = Fixture::new().await;
    let database = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    database
        .execute_batch(
            "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX by_expiry ON sessions (expires_at);
             CREATE TABLE counted (session_id INTEGER PRIMARY KEY, expires_at INTEGER);
             CREATE INDEX counted_by_expiry ON counted (expires_at);
             INSERT INTO sessions VALUES ('a', 1), ('b', 1), ('c', 1);",
        )
        .unwrap();
    let column = |kind| Column { kind, encoding: Encoding::Native };
    let sessions = Collection {
        name: "sessions".into(),
        table: "sessions".into(),
        tenant: None,
        key: vec!["session_id".into()],
        columns: [
            ("session_id".to_owned(), column(Kind::Text)),
            ("expires_at".to_owned(), column(Kind::Timestamp)),
        ]
        .into(),
        indexes: [("by_expiry".to_owned(), vec!["expires_at".to_owned()])].into(),
        anchors: Vec::new(),
    };
    // An index of SQLite ends with the rowid, which is this key.
    let mut counted = Collection { table: "counted".into(), ..sessions.clone() };
    counted.name = "counted".into();
    counted.columns.insert("session_id".into(), column(Kind::Integer));
    let all: Collections = [sessions, counted].map(|c| (c.name.clone(), c)).into();
    let faults = f.store.check(&all).await.unwrap();
    let [fault] = faults.as_slice() else { panic!("{faults:#?}") };
    assert_eq!((&*fault.collection, &*fault.place), ("sessions", "indexes.by_expiry"));
    assert!(fault.message.contains("sorts the whole range") && fault.warning, "{fault:?}");
    let (_, fix) = fault.message.split_once("the key: ").unwrap();
    assert_eq!(fix, "CREATE INDEX sessions_by_expiry_key ON sessions (expires_at, session_id)");

    // The suggested index is sufficient, with the other index still present.
    database.execute_batch(fix).unwrap();
    assert_eq!(f.store.check(&all).await.unwrap(), []);
    f.store.set_collections(Arc::new(all));
    let mut range = Range {
        collection: "sessions".into(),
        index: Some("by_expiry".into()),
        upper: Some(Value::Timestamp(Time(2))),
        columns: vec!["session_id".into()],
        limit: 2,
        bytes_max: 1 << 20,
        ..Range::default()
    };
    let view = f.store.snapshot(Duration::from_secs(60)).await.unwrap();
    let first = view.read_range(None, &range).await.unwrap();
    range.after = first.next;
    assert_eq!(view.read_range(None, &range).await.unwrap().rows, [[Value::Text("c".into())]]);
}
