//! Compaction of the demo's documents: every candidate ends as the demo expects, decided natively
//! on the rows of a store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use besom_compaction::checksum::crc32;
use besom_compaction::decide::{Decision, Document, Kind, Rest, Row, Snapshot, decide};
use besom_compaction::format::Format;
use besom_compaction::outcome::{Job, Mode};
use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use besom_demo::seed::{self, Fate};
use besom_ports::store::{Range, Store};
use besom_product::model::default_collections;
use besom_sqlite::{Options, SqliteStore};

const NOW: Time = Time(1_700_000_000_000_000);

/// Changes that make one of the demo's documents a candidate.
const MIN_CHANGES: i64 = 10;

#[tokio::test]
async fn every_document_of_the_demo_ends_as_the_demo_says() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { time: Arc::new(|| NOW), ..Options::default() };
    let store = SqliteStore::open(directory.path().join("besom.db"), options).unwrap();
    store.set_collections(Arc::new(default_collections()));
    let seeded = seed::fill(store.clone(), NOW, &mut |_| ()).await.unwrap();
    let (mut hostile, mut sound) = (0, 0);
    for tenant in &seeded.tenants {
        for (id, log) in logs(&*store, tenant).await {
            if log.document.server_seq < MIN_CHANGES {
                continue;
            }
            let said = seeded.hostile.iter().find(|h| h.tenant == *tenant && h.document == id);
            let expected = said.map_or(Fate::CarriedOver, |h| h.fate);
            let (fate, why) = fate(&log);
            assert_eq!(fate, expected, "{tenant}/{id}: {why}");
            match said {
                Some(_) => hostile += 1,
                None => sound += 1,
            }
        }
    }
    assert_eq!(hostile, seeded.hostile.len());
    assert!(sound > 150, "{sound}");
}

struct Log {
    format: Format,
    document: Document,
    snapshot: Option<Snapshot>,
    rows: Vec<Row>,
    damaged: bool,
}

fn fate(log: &Log) -> (Fate, String) {
    if log.damaged {
        return (Fate::Dead, "checksum".into());
    }
    let passed = log.document.server_seq;
    match decide(&log.document, log.snapshot.as_ref(), &log.rows, passed, Mode::Merge) {
        Decision::Compact(plan) => match log.format.compact(&Job::merge(&plan.feed)) {
            Ok(_) => (Fate::CarriedOver, String::new()),
            Err(left) if left.code.is_broken_log() => (Fate::Dead, left.to_string()),
            Err(left) => (Fate::LeftAlone, left.to_string()),
        },
        Decision::Rest(Rest::Gap { missing }) => {
            (Fate::Dead, format!("change {missing} is missing"))
        }
        other => (Fate::LeftAlone, format!("{other:?}")),
    }
}

/// The documents of a tenant, as they stand in the store.
async fn logs(store: &dyn Store, tenant: &str) -> BTreeMap<String, Log> {
    let mut logs = BTreeMap::new();
    for row in rows(store, tenant, "documents", &["doc_id", "server_seq", "format"]).await {
        let [Value::Text(id), Value::Integer(server_seq), Value::Text(format)] = row.as_slice()
        else {
            panic!("{row:?}")
        };
        let format = Format::parse(format).unwrap();
        let document = Document { epoch: 0, compacted_seq: 0, server_seq: *server_seq };
        let log = Log { format, document, snapshot: None, rows: Vec::new(), damaged: false };
        logs.insert(id.clone(), log);
    }
    let columns = ["doc_id", "server_seq", "payload", "checksum", "kind", "lamport"];
    for row in rows(store, tenant, "changes", &columns).await {
        let (id, server_seq, payload, sound) = stored(&row);
        let [.., Value::Text(kind), Value::Integer(lamport)] = row.as_slice() else {
            panic!("{row:?}")
        };
        let kind = if kind == "edit" { Kind::Edit } else { Kind::Presence };
        let log = logs.get_mut(&id).unwrap();
        log.damaged |= !sound;
        log.rows.push(Row { server_seq, kind, lamport: *lamport, payload: payload.into() });
    }
    for row in rows(store, tenant, "snapshots", &columns[..4]).await {
        let (id, server_seq, payload, sound) = stored(&row);
        assert!(sound, "{id}");
        logs.get_mut(&id).unwrap().snapshot =
            Some(Snapshot { server_seq, payload: payload.into() });
    }
    logs
}

/// Name, number, payload, and whether the checksum is right.
fn stored(row: &[Value]) -> (String, i64, Vec<u8>, bool) {
    let [Value::Text(id), Value::Integer(seq), Value::Bytes(payload), Value::Integer(sum), ..] =
        row
    else {
        panic!("{row:?}")
    };
    (id.clone(), *seq, payload.clone(), i64::from(crc32(payload)) == *sum)
}

async fn rows(store: &dyn Store, tenant: &str, table: &str, columns: &[&str]) -> Vec<Vec<Value>> {
    let view = store.snapshot(Duration::from_secs(60)).await.unwrap();
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
