//! A stale owner changes nothing and delays no other item.

use besom_core::ids::{Incarnation, OwnerEpoch};
use besom_core::value::Value;
use besom_ports::store::{Entry, LeftOut, Outcome};

use crate::conformance::World;
use crate::conformance::tables::{text, thing};
use crate::conformance::world::{apply, candidate, due, set_n, skip};

/// A batch of the owner before the takeover has no effects.
pub async fn a_batch_under_an_old_epoch_is_left_out(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let stale = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
    world.lead(2, "node-2").await;

    let committed = world.store().commit(&stale).await.unwrap();
    assert_eq!(committed.outcomes, [Outcome::Left(LeftOut::NotOwner)]);
    assert_eq!(world.rows("things", &["n"]).await[0], [Value::Integer(1)]);
    assert_eq!(world.only("task").await, item);
    assert!(world.history().await.is_empty());
    world.balanced().await;
}

/// The epoch is valid only for its node.
pub async fn another_node_under_the_right_epoch_is_left_out(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let mut batch = world.batch(vec![world.entry(&item, skip("no"))]);
    batch.node = Incarnation::from("somebody-else");
    let committed = world.store().commit(&batch).await.unwrap();
    assert_eq!(committed.outcomes, [Outcome::Left(LeftOut::NotOwner)]);
}

/// Timers and retries are acknowledged under the epoch as well.
pub async fn a_timer_under_an_old_epoch_is_left_out(world: &mut World) {
    world.planned("task", vec![due("k", world.now)]).await;
    let timer = world.timers().await.remove(0);
    let stale = world.batch(vec![world.entry(&timer, skip("no"))]);
    world.lead(2, "node-2").await;
    let committed = world.store().commit(&stale).await.unwrap();
    assert_eq!(committed.outcomes, [Outcome::Left(LeftOut::NotOwner)]);
    assert_eq!(world.timers().await, [timer]);
}

/// Entries that are left out do not prevent the others from being committed.
pub async fn neighbours_of_a_stream_that_is_left_out_commit(world: &mut World) {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    world.write(keys.iter().map(|key| thing(key, 1)).collect()).await;
    world.planned("task", keys.iter().map(|k| candidate(k)).collect()).await;
    let items = world.log("task").await;
    let stale = items[0].item.partition;
    let entries: Vec<Entry> = items
        .iter()
        .map(|waiting| {
            let change = set_n(&waiting.item.identity.key, 2);
            let mut entry = world.entry(waiting, apply(vec![], vec![change]));
            if waiting.item.partition == stale {
                entry.epoch = OwnerEpoch(entry.epoch.0 + 1);
            }
            entry
        })
        .collect();
    let committed = world.store().commit(&world.batch(entries)).await.unwrap();
    let rows = world.rows("things", &["id", "n"]).await;
    for (waiting, outcome) in items.iter().zip(&committed.outcomes) {
        let (expected, n) = if waiting.item.partition == stale {
            (Outcome::Left(LeftOut::NotOwner), 1)
        } else {
            (Outcome::Committed, 2)
        };
        let key = &waiting.item.identity.key;
        assert_eq!(*outcome, expected, "{key}");
        assert!(rows.contains(&vec![text(key), Value::Integer(n)]), "{key}: {rows:?}");
    }
    let waiting = items.iter().filter(|w| w.item.partition == stale).count();
    assert_eq!(world.log("task").await.len(), waiting);
    world.balanced().await;
}
