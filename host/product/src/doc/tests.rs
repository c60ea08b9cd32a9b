//! Tests of update logs, and of documents in a store.

use std::sync::Arc;

use besom_core::ids::TaskName;
use besom_core::proposal::Change;

use super::*;
use crate::model::default_collections;
use besom_doubles::store::MemoryStore;

fn log(count: u32, updates: &[&[u8]]) -> Vec<u8> {
    let mut bytes = count.to_le_bytes().to_vec();
    for update in updates {
        bytes.extend(u32::try_from(update.len()).expect("small").to_le_bytes());
        bytes.extend(*update);
    }
    bytes
}

#[test]
fn a_log_that_is_not_whole_is_refused_at_the_byte() {
    let cut = |n: usize| log(2, &[b"abc", b"de"])[..n].to_vec();
    for (bytes, offset, said) in [
        (vec![], 0, "within its update count"),
        (vec![1, 0, 0], 3, "within its update count"),
        (log(u32::MAX, &[b"abc"]), 0, "too short for them"),
        (cut(12), 11, "within the length of update 2 of 2"),
        (cut(16), 11, "has 2 bytes, but only 1 are left"),
        (log(1, &[b"abc", b"de"]), 11, "6 unexpected bytes follow"),
        (vec![1, 0, 0, 0, 255, 255, 255, 255], 4, "has 4294967295 bytes, but only 0 are left"),
    ] {
        let error = read_log(&bytes).expect_err("refused");
        assert_eq!(error.offset, offset, "{bytes:?}: {error}");
        assert!(error.message.contains(said), "{bytes:?}: {error}");
    }
    let whole = log(2, &[b"abc", b""]);
    let updates = read_log(&whole).expect("whole");
    assert_eq!(updates, [&b"abc"[..], b""]);
    assert_eq!(write_log(&[b"abc".to_vec(), vec![]]), whole);
    assert_eq!(read_log(&log(0, &[])), Ok(vec![]));
}

#[test]
fn the_first_client_of_an_update_is_its_actor() {
    for (update, client) in [
        (&[1, 1, 5, 0][..], Some(5)),
        (&[2, 3, 0x80 | 1, 1][..], Some(129)),
        (&[0, 0][..], None),
        (&[1][..], None),
        (&[1, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1][..], None),
    ] {
        assert_eq!(first_client(update), client, "{update:?}");
    }
}

fn store() -> Arc<MemoryStore> {
    let clock = Arc::new(|| Time::from_secs(1_000));
    let store = MemoryStore::new(64, Default::default(), clock);
    store.set_collections(Arc::new(default_collections()));
    for collection in default_collections().values() {
        store.create_table(collection, &[]);
    }
    Arc::new(store)
}

fn name(tenant: &str, key: &str) -> Name {
    Name { tenant: Tenant::from(tenant), key: key.into() }
}

const UPDATES: [&[u8]; 3] = [&[1, 1, 5, 0], &[1, 1, 6, 0], &[1, 1, 5, 1]];

#[tokio::test]
async fn what_is_imported_is_exported_byte_for_byte() {
    let store = store();
    let done = import(&*store, &name("t", "a"), Format::Yjs, &UPDATES).await.expect("imported");
    assert_eq!(done, Imported { updates: 3, bytes: 12 });
    assert_eq!(export(&*store, &name("t", "a")).await.expect("there"), UPDATES);

    let again = import(&*store, &name("t", "a"), Format::Yjs, &UPDATES).await;
    assert!(matches!(again, Err(Error::Exists(_))), "{again:?}");
    import(&*store, &name("t", "b"), Format::Yjs, &[])
        .await
        .expect("an empty document, the same project");

    let shown =
        show(&*store, &name("t", "a"), &[TaskName::from("compaction")]).await.expect("there");
    assert_eq!((shown.document.server_seq, shown.edits, shown.bytes), (3, 3, 12));
    assert_eq!((shown.last_compaction, shown.left_alone), (None, None));
}

#[tokio::test]
async fn a_key_without_its_tenant_has_to_be_unique() {
    let store = store();
    for place in [name("t", "a"), name("u", "a"), name("t", "only"), name("t", "x/y")] {
        import(&*store, &place, Format::Yjs, &UPDATES).await.expect("imported");
    }
    let found = async |text: &str| find(&*store, text).await;
    assert_eq!(found("only").await.expect("unique"), name("t", "only"));
    assert_eq!(found("u/a").await.expect("named"), name("u", "a"));
    assert_eq!(found("x/y").await.expect("a key with a slash"), name("t", "x/y"));
    assert!(
        matches!(found("a").await, Err(Error::Ambiguous(_, tenants)) if tenants == ["t/a", "u/a"] || tenants == ["t", "u"])
    );
    assert!(matches!(found("nobody").await, Err(Error::Missing(_))));
}

#[tokio::test]
async fn an_export_begins_at_the_base_and_leaves_presence_out() {
    let store = store();
    let place = name("t", "a");
    import(&*store, &place, Format::Yjs, &UPDATES).await.expect("imported");
    let change = |seq: i64, kind: &str, payload: &[u8]| {
        let fields = vec![
            Field::new("doc_id", text("a")),
            Field::new("server_seq", Value::Integer(seq)),
            Field::new("actor_id", text("z")),
            Field::new("client_seq", Value::Integer(0)),
            Field::new("lamport", Value::Integer(seq)),
            Field::new("kind", text(kind)),
            Field::new("payload", Value::Bytes(payload.to_vec())),
        ];
        (Some(place.tenant.clone()), Change::Insert { collection: "changes".into(), fields })
    };
    let set = |fields: Vec<Field>| {
        let update =
            Change::Update { collection: "documents".into(), key: vec![text("a")], fields };
        (Some(place.tenant.clone()), update)
    };
    let compacted = |seq| {
        set(vec![
            Field::new("compacted_seq", Value::Integer(seq)),
            Field::new("server_seq", Value::Integer(5)),
        ])
    };
    store
        .write(&[change(4, "presence", b"here"), change(5, "edit", b"new"), compacted(4)])
        .expect("written");
    // The base is the last edit at or below 4: number 3.
    assert_eq!(export(&*store, &place).await.expect("there"), [UPDATES[2], b"new"]);
    let snapshot = Change::Insert {
        collection: "snapshots".into(),
        fields: vec![
            Field::new("doc_id", text("a")),
            Field::new("server_seq", Value::Integer(4)),
            Field::new("payload", Value::Bytes(b"snap".to_vec())),
        ],
    };
    store.write(&[(Some(place.tenant.clone()), snapshot)]).expect("written");
    assert_eq!(export(&*store, &place).await.expect("there"), [&b"snap"[..], b"new"]);
    let shown = show(&*store, &place, &[]).await.expect("there");
    assert_eq!((shown.edits, shown.presences, shown.snapshots), (4, 1, 1));
}
