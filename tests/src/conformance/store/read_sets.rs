//! Read sets: exactly the rows that were read, guarded and deleted.

use std::sync::Arc;

use besom_core::proposal::{Change, Guard, ReadSet};
use besom_core::value::Value;
use besom_ports::store::Outcome;

use crate::conformance::World;
use crate::conformance::tables::{child, parent, text};
use crate::conformance::world::{apply, candidate, range, tenant};

/// Children of the parent `p`, as a read set.
pub fn set(seqs: &[i64]) -> Arc<ReadSet> {
    let rest = seqs.iter().map(|&seq| vec![Value::Integer(seq)]).collect();
    Arc::new(ReadSet { collection: "children".into(), prefix: vec![text("p")], rest })
}

async fn family(world: &World) {
    world.write(vec![parent("p")]).await;
    world.write((1..=5).map(|seq| child("p", seq, "x")).collect()).await;
    let other = [(Some(tenant("b")), parent("p")), (Some(tenant("b")), child("p", 1, "x"))];
    world.write_as(&other).await;
}

async fn seqs(world: &World) -> Vec<i64> {
    let integer = |row: &Vec<Value>| match row[0] {
        Value::Integer(n) => n,
        ref other => panic!("an integer: {other:?}"),
    };
    world.rows("children", &["seq"]).await.iter().map(integer).collect()
}

/// A guard on completeness fails if a row that was read no longer exists.
pub async fn a_read_set_is_complete_while_every_row_is_there(world: &mut World) {
    family(world).await;
    for (rows, expected) in [
        (set(&[1, 2, 5]), Outcome::Committed),
        (set(&[]), Outcome::Committed),
        (set(&[1, 6]), Outcome::Skipped("guard".into())),
    ] {
        let committed =
            world.settle(candidate("k"), apply(vec![Guard::Complete(rows.clone())], vec![])).await;
        assert_eq!(committed.outcomes, [expected], "{rows:?}");
    }
    let gone =
        Change::Delete { collection: "children".into(), key: vec![text("p"), Value::Integer(2)] };
    world.write(vec![gone]).await;
    let committed =
        world.settle(candidate("k"), apply(vec![Guard::Complete(set(&[1, 2]))], vec![])).await;
    assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())]);
}

/// A row that arrived after the read stays, and so do those of other tenants.
pub async fn exactly_the_rows_that_were_read_are_deleted(world: &mut World) {
    family(world).await;
    let delete = vec![Change::DeleteReadSet(set(&[1, 2, 4]))];
    let guards = vec![Guard::Complete(set(&[1, 2, 4]))];
    let committed = world.settle(candidate("k"), apply(guards, delete)).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(seqs(world).await, [3, 5]);
    assert_eq!(world.latest_images().await.len(), 3);
    let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
    let other = view.read_range(Some(&tenant("b")), &range("children", None, &["seq"])).await;
    assert_eq!(other.unwrap().rows.len(), 1);
}

/// Without the guard, missing rows are no error.
pub async fn deleting_a_read_set_tolerates_rows_that_are_gone(world: &mut World) {
    family(world).await;
    let delete = vec![Change::DeleteReadSet(set(&[5, 6, 7]))];
    let committed = world.settle(candidate("k"), apply(vec![], delete)).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(seqs(world).await, [1, 2, 3, 4]);
    assert_eq!(world.latest_images().await.len(), 1);
}

/// A read set with more rows than a statement can have parameters.
pub async fn a_read_set_may_be_large(world: &mut World) {
    world.write(vec![parent("p")]).await;
    world.write((1..=3_000).map(|seq| child("p", seq, "x")).collect()).await;
    let all: Vec<i64> = (1..=3_000).filter(|seq| *seq != 1_500).collect();
    let guards = vec![Guard::Complete(set(&all))];
    let delete = vec![Change::DeleteReadSet(set(&all))];
    let committed = world.settle(candidate("k"), apply(guards, delete)).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(seqs(world).await, [1_500]);
    assert_eq!(world.latest_images().await.len(), 2_999);
}
