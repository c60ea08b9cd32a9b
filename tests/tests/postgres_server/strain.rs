//! What the users of a server feel is measured.

use std::time::Duration;

use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::thing;
use besom_tests::conformance::world::{apply, in_one_stream};
use besom_tests::conformance::{Fixture as _, World, block_on};

/// Commits after which it has been looked more often than is needed.
const COMMITS_MAX: usize = 10_000;

/// Only who waits for Besom counts, and not who waits for another session of the product.
#[test]
fn a_wait_for_a_lock_of_besom_is_felt() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let store = fixture.store();
        let (product, besom) =
            (fixture.database().connect().await, fixture.database().connect_as_store().await);
        let waiters = [fixture.database().connect().await, fixture.database().connect().await];
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1), thing("b", 1)]).await;
        let measured = || async { store.strain(&["things".to_owned()]).await.expect("measured") };
        let calm = measured().await;
        assert!(calm.latency.is_some_and(|latency| latency < Duration::from_secs(1)));
        assert_eq!((calm.lock_wait, calm.lag), (Some(Duration::ZERO), None));

        besom.batch_execute("SET application_name = 'besom'").await.expect("set");
        for ((holder, is_felt), waiter) in
            [(&product, false), (&besom, true)].into_iter().zip(waiters)
        {
            holder.batch_execute("BEGIN; UPDATE things SET n = 2 WHERE id = 'a'").await.unwrap();
            let waits = tokio::spawn(async move {
                waiter.batch_execute("UPDATE things SET n = 3 WHERE id = 'a'").await
            });
            tokio::time::sleep(Duration::from_millis(150)).await;
            let wait = measured().await.lock_wait.expect("measured");
            assert_eq!(wait > Duration::from_millis(50), is_felt, "{wait:?}");
            holder.batch_execute("COMMIT").await.unwrap();
            waits.await.expect("it ends").expect("changed");
        }
        assert_eq!(measured().await.lock_wait, Some(Duration::ZERO));
    });
}

/// A table that nobody can read is late, and the measurement ends.
#[test]
fn a_locked_table_is_late() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let (store, product) = (fixture.store(), fixture.database().connect().await);
        let _world = World::new(Box::new(fixture)).await;
        let strain = || async {
            store.strain(&["things".to_owned(), "unknown".to_owned()]).await.expect("measured")
        };
        product.batch_execute("BEGIN; LOCK TABLE things IN ACCESS EXCLUSIVE MODE").await.unwrap();
        let latency = strain().await.latency.expect("measured");
        assert!(latency >= Duration::from_millis(900), "{latency:?}");
        product.batch_execute("ROLLBACK").await.unwrap();
        let latency = strain().await.latency.expect("measured");
        assert!(latency < Duration::from_millis(900), "{latency:?}");
    });
}

/// Reads, and Besom's own commits, are no writes of others.
#[test]
fn a_session_that_writes_is_noticed_by_the_commits_of_tasks() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let store = fixture.inner();
        let (reader, writer) =
            (fixture.database().connect().await, fixture.database().connect().await);
        let mut world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1)]).await;
        reader.batch_execute("BEGIN; SELECT * FROM things").await.unwrap();
        for round in 0..20 {
            commit_one(&mut world, round).await;
        }
        assert!(!store.others_write());
        writer.batch_execute("BEGIN; UPDATE things SET n = 2 WHERE id = 'a'").await.unwrap();
        for round in 20..COMMITS_MAX {
            commit_one(&mut world, round).await;
            if store.others_write() {
                return;
            }
        }
        panic!("nothing was noticed");
    });
}

async fn commit_one(world: &mut World, round: usize) {
    let key = format!("k{round}");
    world.planned("task", in_one_stream(&[key.as_str()])).await;
    let items = world.log("task").await;
    let entry = world.entry(items.last().expect("the planned item"), apply(vec![], vec![]));
    let batch = world.batch(vec![entry]);
    world.store().commit(&batch).await.expect("committed");
}
