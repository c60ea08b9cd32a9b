//! Deaths of the host during an item are counted.

use besom_core::ids::Incarnation;
use besom_core::item::{Identity, Item, Source};
use besom_ports::guests::Lane;
use besom_ports::store::{DeadSelector, Letters, Waiting};

use crate::conformance::World;
use crate::conformance::world::{ALL, candidate, dead, due, retry, skip};

/// Waiting items: one in the log, a timer and a retry.
async fn three(world: &World) -> Vec<(Source, Item)> {
    world.settle(candidate("retry"), retry(world.now, 1, "failed")).await;
    world.planned("task", vec![candidate("log"), due("timer", world.now)]).await;
    all(world).await
}

async fn all(world: &World) -> Vec<(Source, Item)> {
    let mut waiting = world.log("task").await;
    waiting.extend(world.timers().await);
    waiting.extend(world.retries().await);
    waiting.into_iter().map(|waiting| (waiting.source, waiting.item)).collect()
}

async fn begin(world: &World, node: &str, items: &[(Source, Item)]) -> besom_core::ids::CommitId {
    let (id, node) = (world.mark(), Incarnation::from(node));
    let items: Vec<_> = items.iter().map(|(source, item)| (*source, item)).collect();
    world.store().begin(id, &node, Lane::Normal, &items).await.unwrap();
    id
}

async fn bury(world: &World, alive: &[&str]) -> Vec<String> {
    let mut dead = world.store().begun_by().await.unwrap();
    dead.retain(|node| !alive.contains(&node.as_str()));
    let counted: Vec<Identity> = world.store().bury(&world.fence, &dead).await.unwrap();
    let mut keys: Vec<String> = counted.into_iter().map(|identity| identity.key).collect();
    keys.sort();
    keys
}

async fn deaths(world: &World) -> Vec<u32> {
    all(world).await.iter().map(|(_, item)| item.deaths).collect()
}

/// Each item in flight gets one death, wherever it waits, and only once.
pub async fn the_items_of_a_dead_node_have_one_death_more(world: &mut World) {
    let items = three(world).await;
    begin(world, "dead", &items).await;
    world.reopen().await;
    assert_eq!(deaths(world).await, [0, 0, 0], "the node might be alive");
    assert_eq!(bury(world, &["alive"]).await, ["log", "retry", "timer"]);
    assert_eq!(deaths(world).await, [1, 1, 1]);
    assert!(bury(world, &["alive"]).await.is_empty());
    begin(world, "dead-2", &items).await;
    assert_eq!(bury(world, &["alive"]).await.len(), 3);
    assert_eq!(deaths(world).await, [2, 2, 2]);
}

/// Batches of a living node count no deaths.
pub async fn the_batches_of_the_living_are_left_alone(world: &mut World) {
    let items = three(world).await;
    begin(world, "alive", &items).await;
    assert!(bury(world, &["other", "alive"]).await.is_empty());
    assert_eq!(deaths(world).await, [0, 0, 0]);
    assert_eq!(bury(world, &["other"]).await.len(), 3);
}

/// Only the leader can count deaths.
pub async fn a_stale_leader_counts_no_death(world: &mut World) {
    let items = three(world).await;
    begin(world, "alive", &items).await;
    let (stale, dead) = (world.fence.clone(), [Incarnation::from("alive")]);
    world.lead(2, "next").await;
    let refused = world.store().bury(&stale, &dead).await;
    assert!(matches!(refused, Err(besom_ports::store::Error::Fenced)), "{refused:?}");
    assert_eq!(deaths(world).await, [0, 0, 0]);
    assert_eq!(world.store().begun_by().await.unwrap(), dead);
}

/// A batch whose record was removed counts no death.
pub async fn an_abandoned_batch_counts_no_death(world: &mut World) {
    let items = three(world).await;
    let id = begin(world, "dead", &items).await;
    world.store().abandon(id).await.unwrap();
    assert!(bury(world, &[]).await.is_empty());
}

/// The commit removes the record of its batch.
pub async fn a_committed_batch_counts_no_death(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let batch = world.batch(vec![world.entry(&item, retry(world.now, 1, "again"))]);
    let begun = [(item.source, &item.item)];
    world.store().begin(batch.id, &world.node, Lane::Normal, &begun).await.unwrap();
    world.store().commit(&batch).await.unwrap();
    assert!(bury(world, &[]).await.is_empty());
    assert_eq!(deaths(world).await, [0]);
}

/// An item that another owner has finished gets no death.
pub async fn an_item_that_is_done_has_no_death(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    begin(world, "dead", &[(item.source, item.item.clone())]).await;
    world.commit(vec![(&item, skip("done by another"))]).await;
    assert!(bury(world, &[]).await.is_empty());
}

/// An item keeps its deaths when it moves to the retries.
pub async fn deaths_follow_an_item_into_the_retries(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    begin(world, "dead", &[(item.source, item.item.clone())]).await;
    bury(world, &[]).await;
    let item = world.only("task").await;
    world.commit(vec![(&item, retry(world.now, 1, "again"))]).await;
    assert_eq!(deaths(world).await, [1]);
}

/// A death that was counted after the item was read stays with it as well.
pub async fn a_death_that_was_counted_meanwhile_is_kept(world: &mut World) {
    world.planned("task", vec![candidate("log"), due("timer", world.now)]).await;
    world.planned("dies", vec![candidate("log"), due("timer", world.now)]).await;
    let mut read_before = world.log("task").await;
    read_before.extend(world.log("dies").await);
    read_before.extend(world.timers().await);
    assert_eq!(read_before.len(), 4);
    let items: Vec<_> =
        read_before.iter().map(|waiting| (waiting.source, waiting.item.clone())).collect();
    begin(world, "dead", &items).await;
    assert_eq!(bury(world, &[]).await.len(), 4);
    let end = |waiting: &Waiting| match waiting.item.identity.task.as_str() {
        "task" => retry(world.now, 1, "again"),
        _ => dead("aside"),
    };
    world.commit(read_before.iter().map(|waiting| (waiting, end(waiting))).collect()).await;
    let retries = world.retries().await;
    let (store, all) = (world.store(), DeadSelector::default());
    let letters = store.dead_letters(&all, Letters::Open, None, ALL).await.unwrap();
    let mut counted: Vec<u32> = retries.iter().map(|waiting| waiting.item.deaths).collect();
    counted.extend(letters.iter().map(|letter| letter.item.deaths));
    assert_eq!(counted, [1; 4]);
}
