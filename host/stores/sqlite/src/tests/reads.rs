//! Range reads: pages, NULL, all tenants, refused scans, snapshots.

use std::time::{Duration, Instant};

use besom_core::proposal::{Change, Comparison, Condition};
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_snapshot::Cause;

use super::fixture::{Fixture, document, text, update};
use besom_ports::store::{Error, Range, Store};

const LONG: Duration = Duration::from_secs(30);

fn share(key: &str, unshared: Option<i64>, start: i64) -> Change {
    Change::Insert {
        collection: "shares".into(),
        fields: vec![
            Field::new("share_id", text(key)),
            Field::new("file_id", text("f")),
            Field::new("start_date", Value::Timestamp(Time::from_secs(start))),
            Field::new(
                "unshared_at",
                unshared.map_or(Value::Null, |t| Value::Timestamp(Time::from_secs(t))),
            ),
        ],
    }
}

fn shares(descending: bool, limit: u32) -> Range {
    Range {
        collection: "shares".into(),
        index: Some("by_unshared_start".into()),
        columns: vec!["share_id".into()],
        descending,
        limit,
        bytes_max: usize::MAX,
        ..Range::default()
    }
}

/// Every row of the range, read in pages.
async fn pages(f: &Fixture, tenant: bool, mut range: Range) -> Vec<String> {
    let view = f.store.snapshot(LONG).await.unwrap();
    let tenant = tenant.then_some(&f.tenant);
    let mut all = Vec::new();
    loop {
        let page = view.read_range(tenant, &range).await.unwrap();
        assert!(page.rows.len() <= range.limit as usize);
        for row in page.rows {
            let Value::Text(key) = &row[0] else { panic!("{row:?}") };
            all.push(key.clone());
        }
        match page.next {
            Some(next) => range.after = Some(next),
            None => return all,
        }
    }
}

#[tokio::test]
async fn pages_of_any_size_return_every_row_once_in_order_with_null_first() {
    let f = Fixture::new().await;
    f.write(vec![
        share("a", None, 5),
        share("b", None, 5),
        share("c", None, 1),
        share("d", Some(9), 1),
        share("e", Some(3), 2),
        share("f", Some(9), 1),
        share("g", Some(3), 1),
    ])
    .await;
    let ascending = ["c", "a", "b", "g", "e", "d", "f"];
    let descending: Vec<_> = ascending.iter().rev().copied().collect();
    for limit in 1..=8 {
        assert_eq!(pages(&f, true, shares(false, limit)).await, ascending, "limit {limit}");
        assert_eq!(pages(&f, true, shares(true, limit)).await, descending, "limit {limit}");
    }
    let open = Range { prefix: vec![Value::Null], ..shares(false, 2) };
    assert_eq!(pages(&f, true, open).await, ["c", "a", "b"]);
    let upper = Range { upper: Some(Value::Timestamp(Time::from_secs(3))), ..shares(false, 2) };
    assert_eq!(pages(&f, true, upper).await, ["g", "e"]);
}

#[tokio::test]
async fn a_read_over_all_tenants_goes_tenant_by_tenant_and_a_skip_scan_finds_those_that_match() {
    let f = Fixture::new().await;
    let mut changes = Vec::new();
    for (tenant, key, start) in [("b", "b1", 1), ("a", "a1", 9), ("c", "c1", 2), ("a", "a2", 3)] {
        changes.push((Some(tenant.into()), share(key, None, start)));
    }
    f.write_as(&changes).await;
    for limit in 1..=5 {
        assert_eq!(pages(&f, false, shares(false, limit)).await, ["a2", "a1", "b1", "c1"]);
    }
    let view = f.store.snapshot(LONG).await.unwrap();
    let due = Range {
        prefix: vec![Value::Null],
        upper: Some(Value::Timestamp(Time::from_secs(2))),
        ..shares(false, 10)
    };
    let found = view.tenants(&due, None, 10).await.unwrap();
    assert_eq!(found, ["b".into(), "c".into()]);
    assert_eq!(view.tenants(&due, Some(&"b".into()), 10).await.unwrap(), ["c".into()]);
    assert_eq!(view.tenants(&due, None, 1).await.unwrap(), ["b".into()]);
}

#[tokio::test]
async fn what_the_conditions_leave_out_is_counted_as_scanned() {
    let f = Fixture::new().await;
    f.write((0..20).map(|i| document(&format!("d{i:02}"))).collect()).await;
    f.write(vec![update("d13", "server_seq", Value::Integer(9))]).await;
    let view = f.store.snapshot(LONG).await.unwrap();
    let range = Range {
        collection: "documents".into(),
        columns: vec!["doc_id".into()],
        conditions: vec![Condition::of("server_seq", Comparison::AtLeast, Value::Integer(1))],
        limit: 5,
        bytes_max: usize::MAX,
        keys: true,
        ..Range::default()
    };
    let page = view.read_range(Some(&f.tenant), &range).await.unwrap();
    assert_eq!((page.rows.len(), page.scanned), (1, 20));
    assert_eq!(page.keys, [vec![text("d13")]]);
    // With the index on pending rows, only the matching row is examined.
    let pending = Range {
        index: Some("by_pending".into()),
        lower: Some(Value::Integer(1)),
        conditions: vec![],
        ..range
    };
    let page = view.read_range(Some(&f.tenant), &pending).await.unwrap();
    assert_eq!((page.rows.len(), page.scanned), (1, 1));
}

#[tokio::test]
async fn a_read_that_would_scan_or_sort_the_table_is_refused_and_says_what_is_missing() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let other = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    other.execute_batch("DROP INDEX documents_by_pending").unwrap();
    let view = f.store.snapshot(LONG).await.unwrap();
    let range = Range {
        collection: "documents".into(),
        index: Some("by_pending".into()),
        columns: vec!["doc_id".into()],
        limit: 5,
        bytes_max: usize::MAX,
        ..Range::default()
    };
    let said = view.read_range(Some(&f.tenant), &range).await.unwrap_err();
    assert!(matches!(said, Error::Invalid(_)));
    assert!(said.to_string().contains("create the index"), "{said}");
}

#[tokio::test]
async fn a_snapshot_sees_one_moment_and_ends_at_its_time() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let read = async |view: &dyn besom_ports::store::ReadView| {
        view.get_many(Some(&f.tenant), "documents", &[vec![text("a")]], &["epoch".into()]).await
    };
    let view = f.store.snapshot(LONG).await.unwrap();
    let before = read(view.as_ref()).await.unwrap();
    f.write(vec![update("a", "epoch", Value::Integer(4))]).await;
    assert_eq!(read(view.as_ref()).await.unwrap(), before);
    let later = f.store.snapshot(LONG).await.unwrap();
    assert_eq!(read(later.as_ref()).await.unwrap(), [Some(vec![Value::Integer(4)])]);
    let short = f.store.snapshot(Duration::ZERO).await.unwrap();
    // The closer runs as soon as this task yields; a read that comes first may still succeed.
    let mut ended = read(short.as_ref()).await;
    while ended.is_ok() {
        tokio::task::yield_now().await;
        ended = read(short.as_ref()).await;
    }
    assert!(matches!(ended, Err(Error::Refused(Cause::Slow, _))));
}

/// The deadline of a call ends its reads: each read checks the clock while it runs.
#[tokio::test]
async fn a_read_ends_with_the_time_of_its_call() {
    let f = Fixture::new().await;
    f.write((0..2_000).map(|i| document(&format!("d{i:04}"))).collect()).await;
    let view = f.store.snapshot(LONG).await.unwrap();
    let nobody = [Condition::equal("epoch", Value::Integer(77))];
    let range = Range {
        collection: "documents".into(),
        columns: vec!["doc_id".into()],
        conditions: nobody.to_vec(),
        limit: 10,
        bytes_max: usize::MAX,
        ..Range::default()
    };
    let tenant = Some(&f.tenant);
    assert!(view.read_range(tenant, &range).await.unwrap().rows.is_empty());
    view.read_by(Instant::now());
    let late = view.read_range(tenant, &range).await;
    assert!(matches!(late, Err(Error::Refused(Cause::Slow, _))), "{late:?}");
    let late = view.count(tenant, "documents", &nobody, 1).await;
    assert!(matches!(late, Err(Error::Refused(Cause::Slow, _))), "{late:?}");
    // A read with more time continues.
    view.read_by(Instant::now() + LONG);
    assert_eq!(view.count(tenant, "documents", &nobody, 1).await.unwrap(), 0);
}

#[tokio::test]
async fn a_question_counts_about_the_rows_that_it_has_looked_at() {
    let f = Fixture::new().await;
    f.write((0..2_000).map(|i| document(&format!("d{i:04}"))).collect()).await;
    let view = f.store.snapshot(LONG).await.unwrap();
    let tenant = Some(&f.tenant);
    let by_key = [Condition::equal("doc_id", text("d1000"))];
    for _ in 0..3_000 {
        assert_eq!(view.count(tenant, "documents", &by_key, 1).await.unwrap(), 1);
    }
    let seeks = view.looked_at();
    assert!(seeks <= 3_000, "{seeks} rows were looked at to find 3,000");
    let nobody = [Condition::equal("epoch", Value::Integer(77))];
    assert_eq!(view.count(tenant, "documents", &nobody, 1).await.unwrap(), 0);
    let looked = view.looked_at() - seeks;
    assert!((500..=4_000).contains(&looked), "{looked} of 2,000 rows");
}
