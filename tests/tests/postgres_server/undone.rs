//! What only this server may refuse when rows are put back.

use std::sync::Arc;

use besom_core::proposal::{Change, RowRange};
use besom_core::value::Row;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::tables::{parent, text, thing};
use besom_tests::conformance::world::{apply, candidate, set_n};
use besom_tests::conformance::{World, block_on};
use besom_tests::undone_rows::{latest, undo};

fn delete(collection: &str, id: &str) -> Change {
    Change::Delete { collection: collection.into(), key: vec![text(id)] }
}

async fn ids(world: &World, collection: &str) -> Vec<Row> {
    world.rows(collection, &["id"]).await
}

/// No statement can pass over a row that has such a key: each is inserted, and the one that meets it stays.
#[test]
fn rows_of_a_table_with_a_deferrable_key_come_back() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let constraint =
            "ALTER TABLE things ADD CONSTRAINT one_n UNIQUE (n) DEFERRABLE INITIALLY DEFERRED";
        product.batch_execute(constraint).await.expect("added");
        world.write((0..5).map(|n| thing(&format!("t{n}"), n)).collect()).await;
        let all = (0..5).map(|n| delete("things", &format!("t{n}"))).collect();
        world.settle(candidate("k"), apply(vec![], all)).await;
        let item = latest(&world).await;
        world.write(vec![thing("theirs", 3)]).await;
        let undone = undo(&world, item, &[]).await;
        let reason = undone.reason.expect("a row stays");
        assert!(reason.contains("(\"t3\")") && reason.contains("one_n"), "{reason}");
        assert_eq!(undone.rows, 4);
        world.write(vec![set_n("theirs", 9)]).await;
        assert_eq!(undo(&world, item, &[]).await.rows, 1);
        assert_eq!(ids(&world, "things").await.len(), 6);
        world.balanced().await;
    });
}

/// A missing privilege keeps the rows of that table away, and no others.
#[test]
fn rows_that_the_role_may_not_insert_stay_and_hold_up_no_others() {
    block_on(async {
        let fixture = Postgres::open_as_granted().await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        world.write(vec![thing("a", 1), parent("p")]).await;
        world.settle(candidate("k"), apply(vec![], vec![delete("things", "a")])).await;
        let of_things = latest(&world).await;
        world.settle(candidate("l"), apply(vec![], vec![delete("parents", "p")])).await;
        let of_parents = latest(&world).await;
        product.batch_execute("REVOKE INSERT ON things FROM granted").await.expect("revoked");
        let refused = undo(&world, of_things, &[]).await;
        let reason = refused.reason.expect("it stays");
        assert!(
            reason.contains("permission denied") && reason.contains("besom grants"),
            "{reason}"
        );
        assert_eq!((refused.rows, undo(&world, of_parents, &[]).await.rows), (0, 1));
        product.batch_execute("GRANT INSERT ON things TO granted").await.expect("granted");
        assert_eq!(undo(&world, of_things, &[]).await.rows, 1);
        assert_eq!(ids(&world, "things").await, [[text("a")]]);
        world.balanced().await;
    });
}

/// Rows that no partition takes are found by one statement, however many they are and wherever they stand.
#[test]
fn many_rows_without_a_partition_stay_and_keep_no_others_away() {
    block_on(async {
        let fixture = Postgres::open_with(patient()).await;
        let product = fixture.database().connect().await;
        let world = World::new(Box::new(fixture)).await;
        let run = async |sql: &str| product.batch_execute(sql).await.expect("it runs");
        // The odd ones of each list are in a partition that will be gone; `i` and `v0` are names of columns.
        run("DROP TABLE counters;
             CREATE TABLE counters (id bigint, n bigint, v0 int, i text, PRIMARY KEY (id, v0))
               PARTITION BY LIST (v0);
             CREATE TABLE even PARTITION OF counters FOR VALUES IN (0) PARTITION BY RANGE (id);
             CREATE TABLE even_low PARTITION OF even FOR VALUES FROM (0) TO (2000);
             CREATE TABLE even_high PARTITION OF even FOR VALUES FROM (2000) TO (9000);
             CREATE TABLE odd PARTITION OF counters FOR VALUES IN (1);
             INSERT INTO counters SELECT i, i, i % 2, 'x' FROM generate_series(1, 4000) i")
        .await;
        let range = RowRange { collection: "counters".into(), rows: 9_000, ..RowRange::default() };
        let all = apply(vec![], vec![Change::DeleteRange(Arc::new(range))]);
        world.settle(candidate("k"), all).await;
        let item = latest(&world).await;
        run("DROP TABLE odd; DROP TABLE even_high").await;
        let undone = undo(&world, item, &[]).await;
        assert_eq!(undone.rows, 999);
        let reason = undone.reason.expect("rows stay");
        assert!(reason.contains("rows that stay as they are: 3001"), "{reason}");
        assert!(reason.contains("no partition of \"counters\" takes it"), "{reason}");
        run("CREATE TABLE rest PARTITION OF counters DEFAULT;
             CREATE TABLE even_rest PARTITION OF even DEFAULT")
        .await;
        let undone = undo(&world, item, &[]).await;
        assert_eq!((undone.rows, undone.reason), (3_001, None));
        world.balanced().await;
    });
}
