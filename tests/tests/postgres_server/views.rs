//! One snapshot is one view, whatever happens to one of its reads.

use std::time::Duration;

use besom::ports::store::Error;
use besom_core::proposal::Condition;
use besom_core::value::Value;
use besom_tests::adapters::postgres::Postgres;
use besom_tests::conformance::tables::{parent, text, thing};
use besom_tests::conformance::{World, block_on};

/// A read that the database refuses leaves the others what they saw.
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

        product.batch_execute("UPDATE things SET n = 2; DROP TABLE children").await.unwrap();
        for _ in 0..2 {
            let condition = Condition::equal("parent", text("p"));
            let failed = snapshot.exists(Some(&tenant), "children", &[condition]).await;
            assert!(matches!(failed, Err(Error::Invalid(_))), "{failed:?}");
            assert_eq!(n().await.unwrap(), [Some(vec![Value::Integer(1)])], "as it was");
        }
    });
}
