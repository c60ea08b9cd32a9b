use besom_core::activity::Timeouts;
use besom_core::collection::{Column, Encoding};
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::{Field, Kind};
use besom_doubles::store::MemoryStore;
use besom_ports::store::{Left, Store};

use std::time::Duration;

use super::*;

const ROWS: i64 = 24;

fn collections() -> Arc<Collections> {
    let column = |kind| Column { kind, encoding: Encoding::Native };
    let columns = [("id", Kind::Integer), ("n", Kind::Integer), ("title", Kind::Text)];
    let things = Collection {
        name: "things".into(),
        table: "things".into(),
        tenant: Some("tenant".into()),
        key: vec!["id".into()],
        columns: columns.map(|(name, kind)| (name.to_owned(), column(kind))).into(),
        indexes: [("by_n".to_owned(), vec!["n".to_owned()])].into(),
        anchors: Vec::new(),
        dependants: Vec::new(),
        not_null: Default::default(),
        accept_cascades: false,
    };
    Arc::new([("things".to_owned(), things)].into())
}

/// Several rows have the same `n`, and some have none.
fn row(id: i64) -> Vec<Field> {
    let n = match id % 5 {
        0 => Value::Null,
        rest => Value::Integer(rest),
    };
    let title = Value::Text(format!("title {}", id % 3));
    vec![Field::new("id", Value::Integer(id)), Field::new("n", n), Field::new("title", title)]
}

/// What an item has done to its rows: every third is deleted, every fourth of the others changed, and two are new.
struct Committed {
    before: Arc<dyn ReadView>,
    after: AsItWas,
}

async fn committed() -> Committed {
    let store = MemoryStore::new(1, Timeouts::default(), Arc::new(|| Time::EPOCH));
    let (collections, tenant) = (collections(), Some(Tenant::from("t")));
    store.set_collections(Arc::clone(&collections));
    store.create_table(&collections["things"], &[]);
    let insert = |id| Change::Insert { collection: "things".into(), fields: row(id) };
    let of_tenant = |change: Change| (tenant.clone(), change);
    let rows: Vec<_> = (0..ROWS).map(insert).map(of_tenant).collect();
    store.write(&rows).expect("rows");
    // Another tenant has rows with the same keys.
    let others = (0..ROWS).map(|id| (Some(Tenant::from("u")), insert(id)));
    store.write(&others.collect::<Vec<_>>()).expect("rows of another tenant");
    let before = store.snapshot(Duration::from_secs(60)).await.expect("a snapshot");
    let (mut changes, mut images) = (Vec::new(), Vec::new());
    let mut image = |id: i64, row: Option<Vec<Field>>| {
        let stored = row.clone().unwrap_or_default();
        let (collection, key) = ("things".to_owned(), vec![Value::Integer(id)]);
        let (tenant, left) = (tenant.clone(), Left::Gone);
        images.push(BeforeImage { collection, tenant, key, row, stored, left });
    };
    for id in 0..ROWS {
        let (collection, key) = ("things".to_owned(), vec![Value::Integer(id)]);
        if id % 3 == 0 {
            changes.push(Change::Delete { collection, key });
            image(id, Some(row(id)));
        } else if id % 4 == 0 {
            let fields = vec![Field::new("n", Value::Integer(3)), Field::new("title", Value::Null)];
            changes.push(Change::Update { collection, key, fields });
            image(id, Some(row(id)));
            // A later image of the same row is not how the item has found it.
            image(id, None);
        }
    }
    for id in [ROWS + 1, -1] {
        changes.push(insert(id));
        image(id, None);
    }
    store.write(&changes.into_iter().map(of_tenant).collect::<Vec<_>>()).expect("the changes");
    let live: Arc<dyn ReadView> =
        store.snapshot(Duration::from_secs(60)).await.expect("a snapshot");
    Committed { before, after: AsItWas::new(live, collections, images) }
}

/// All pages of a range, one after the other.
async fn pages(view: &dyn ReadView, range: &Range) -> Vec<(Row, RowKey)> {
    let (tenant, mut range, mut found) = (Tenant::from("t"), range.clone(), Vec::new());
    for _ in 0..200 {
        let page = view.read_range(Some(&tenant), &range).await.expect("a page");
        assert!(page.rows.len() <= range.limit as usize, "{} rows", page.rows.len());
        found.extend(page.rows.into_iter().zip(page.keys));
        match page.next {
            Some(next) => range.after = Some(next),
            None => return found,
        }
    }
    panic!("the pages do not end: {range:?}");
}

#[tokio::test]
async fn every_range_has_the_rows_that_it_had_before_the_commit_in_their_order() {
    let Committed { before, after } = committed().await;
    let at_least = |n| Some(Value::Integer(n));
    let title = Condition::equal("title", Value::Text("title 1".into()));
    let ranges = [
        Range::default(),
        Range { index: Some("by_n".into()), ..Range::default() },
        Range { index: Some("by_n".into()), prefix: vec![Value::Integer(3)], ..Range::default() },
        Range { index: Some("by_n".into()), prefix: vec![Value::Null], ..Range::default() },
        Range {
            index: Some("by_n".into()),
            lower: at_least(2),
            upper: at_least(3),
            ..Range::default()
        },
        Range { index: Some("by_n".into()), beyond: at_least(2), ..Range::default() },
        Range { lower: at_least(5), conditions: vec![title], ..Range::default() },
    ];
    let mut compared = 0;
    for range in ranges {
        for (limit, descending) in
            [1, 2, 3, 7, 100].into_iter().flat_map(|n| [(n, false), (n, true)])
        {
            let range = Range {
                collection: "things".into(),
                columns: vec!["title".into(), "n".into()],
                bytes_max: 1 << 20,
                keys: true,
                limit,
                descending,
                ..range.clone()
            };
            let expected = pages(&*before, &range).await;
            assert_eq!(pages(&after, &range).await, expected, "{range:?}");
            compared += expected.len();
        }
    }
    assert!(compared > 500, "{compared}");
    let (kept, now) = after.told();
    assert!(kept > 0 && now > 0, "{kept} {now}");
}

#[tokio::test]
async fn rows_by_key_and_counts_are_those_of_before_the_commit() {
    let Committed { before, after } = committed().await;
    let tenant = Tenant::from("t");
    let keys: Vec<RowKey> = (-2..ROWS + 3).map(|id| vec![Value::Integer(id)]).collect();
    let columns = ["title", "n"].map(str::to_owned);
    let expected = before.get_many(Some(&tenant), "things", &keys, &columns).await.expect("rows");
    let found = after.get_many(Some(&tenant), "things", &keys, &columns).await.expect("rows");
    assert_eq!(found, expected);
    // Of another tenant, nothing was kept.
    let other = Tenant::from("u");
    let expected = before.get_many(Some(&other), "things", &keys, &columns).await.expect("rows");
    let found = after.get_many(Some(&other), "things", &keys, &columns).await.expect("rows");
    assert_eq!(found, expected);
    for n in [Value::Null, Value::Integer(1), Value::Integer(3)] {
        for limit in [1, 3, 100] {
            let conditions = [Condition::equal("n", n.clone())];
            let expected = before.count(Some(&tenant), "things", &conditions, limit).await;
            let found = after.count(Some(&tenant), "things", &conditions, limit).await;
            assert_eq!(found.expect("a count"), expected.expect("a count"), "{n:?} {limit}");
        }
    }
}

/// A position of the scan belongs to another call: the rows behind it cannot be told from those before it.
#[tokio::test]
async fn a_read_that_goes_on_elsewhere_is_refused_where_rows_were_kept() {
    let Committed { before, after } = committed().await;
    let (tenant, columns) = (Tenant::from("t"), vec!["n".to_owned()]);
    let range = Range {
        collection: "things".into(),
        columns,
        limit: 2,
        bytes_max: 1 << 20,
        ..Range::default()
    };
    let page = before.read_range(Some(&tenant), &range).await.expect("a page");
    let range = Range { after: page.next, ..range };
    let error = after.read_range(Some(&tenant), &range).await.expect_err("refused");
    assert!(matches!(&error, Error::Invalid(words) if words.contains("things")), "{error}");
}
