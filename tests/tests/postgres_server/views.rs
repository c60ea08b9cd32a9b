//! One snapshot is one view, whatever happens to one of its reads.

use std::sync::Arc;
use std::time::Duration;

use besom_core::proposal::Condition;
use besom_core::time::Time;
use besom_core::value::Value;
use besom_ports::store::{Error, Range};
use besom_product::model::default_collections;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::tables::{parent, text, thing};
use besom_tests::conformance::{World, block_on};

/// A refused read does not change what the other reads see.
#[test]
fn a_failed_read_leaves_the_view_of_its_snapshot() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![parent("p"), thing("t", 1)]).await;
        let snapshot = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let tenant = "a".into();
        let (keys, columns) = ([vec![text("t")]], ["n".to_owned()]);
        let n = || snapshot.get_many(Some(&tenant), "things", &keys, &columns);
        assert_eq!(n().await.unwrap(), [Some(vec![Value::Integer(1)])]);

        product
            .batch_execute("UPDATE things SET n = 2; DROP TABLE leaves, children")
            .await
            .unwrap();
        for _ in 0..2 {
            let condition = Condition::equal("parent", text("p"));
            let failed = snapshot.count(Some(&tenant), "children", &[condition], 1).await;
            assert!(matches!(failed, Err(Error::Refused(..))), "{failed:?}");
            assert_eq!(n().await.unwrap(), [Some(vec![Value::Integer(1)])], "as it was");
        }
    });
}

/// For a small table with statistics the planner may hash the whole table, by the smaller index,
/// because updates have made the other one grow. That is no reason to refuse a read by an existing
/// index.
#[test]
fn a_small_table_whose_statistics_are_known_is_read() {
    block_on(async {
        let fixture = Postgres::open().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.fixture.create_model().await;
        world.store().set_collections(Arc::new(default_collections()));
        product
            .batch_execute(
                "INSERT INTO projects SELECT 'p' || n FROM generate_series(1, 5) n;
                 INSERT INTO clients
                   SELECT 'p' || n % 5 + 1, 'c' || n, 'activated', now() - n * interval '1 hour'
                   FROM generate_series(1, 60) n;
                 UPDATE clients SET updated_at = updated_at + interval '1 second';
                 UPDATE clients SET updated_at = updated_at + interval '1 second';
                 UPDATE clients SET updated_at = updated_at + interval '1 second';
                 UPDATE clients SET status = 'deactivated' WHERE substr(client_id, 2)::int % 3 = 0;
                 ANALYZE clients",
            )
            .await
            .unwrap();
        let range = Range {
            collection: "clients".into(),
            index: Some("by_status_updated".into()),
            prefix: vec![text("activated")],
            upper: Some(Value::Timestamp(Time(4_000_000_000_000_000))),
            columns: vec!["client_id".into()],
            limit: 100,
            bytes_max: 1 << 20,
            ..Range::default()
        };
        let snapshot = world.store().snapshot(Duration::from_secs(60)).await.unwrap();
        let after = "p1".into();
        let tenants = snapshot.tenants(&range, Some(&after), 10).await.unwrap();
        assert_eq!(tenants, ["p2", "p3", "p4", "p5"].map(Into::into));
        assert_eq!(snapshot.read_range(Some(&after), &range).await.unwrap().rows.len(), 8);
        assert_eq!(snapshot.read_range(None, &range).await.unwrap().rows.len(), 40);
    });
}
