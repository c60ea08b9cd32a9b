//! The mapping compared with the database.

use besom_core::collection::{Anchor, Collection, Collections};

use super::fixture::Fixture;
use crate::model::default_collections;
use crate::ports::store::Store;

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
