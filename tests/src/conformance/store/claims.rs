//! Partitions change their owner by compare-and-set, and owners learn of arrivals.

use std::time::Duration;

use besom_core::ids::{Incarnation, OwnerEpoch, Partition, Term};
use besom_core::ownership::RingPosition;
use besom_core::time::Time;
use besom_ports::store::{Claim, Command, CommandEffect, DeadSelector, LeftOut, Outcome};

use crate::conformance::World;
use crate::conformance::world::{LETTERS, apply, candidate, dead, due};

fn ring(term: u64, revision: u64) -> RingPosition {
    RingPosition { term: Term(term), revision }
}

fn claim(partition: u32, seen: OwnerEpoch) -> Claim {
    Claim { partition: Partition(partition), seen }
}

/// The table has owner, epoch and ring of every partition, in order.
pub async fn the_table_says_who_owns_every_partition(world: &mut World) {
    let rows = world.store().partition_table().await.unwrap();
    assert_eq!(rows.len(), world.store().partitions() as usize);
    for (index, row) in rows.iter().enumerate() {
        assert_eq!(row.partition.0 as usize, index);
        assert_eq!(row.owner.as_ref(), Some(&world.node));
        assert_eq!(row.epoch, world.epochs[&row.partition]);
        assert_eq!(row.at, RingPosition::default(), "a raise goes by no ring");
    }
}

/// A claim takes over the partitions that nobody has claimed since they were read, and no others.
pub async fn a_claim_needs_the_epoch_that_was_seen(world: &mut World) {
    let seen = |p: u32| world.epochs[&Partition(p)];
    let stale = OwnerEpoch(seen(1).0 - 1);
    let other = Incarnation::from("node-2");
    let claims = [claim(0, seen(0)), claim(1, stale), claim(2, seen(2))];
    let taken = world.store().claim_partitions(&other, ring(1, 5), &claims).await.unwrap();
    let next = |p: u32| (Partition(p), OwnerEpoch(seen(p).0 + 1));
    assert_eq!(taken, [next(0), next(2)]);
    let rows = world.store().partition_table().await.unwrap();
    assert_eq!((rows[0].owner.as_ref(), rows[0].at), (Some(&other), ring(1, 5)));
    assert_eq!((rows[1].owner.as_ref(), rows[1].epoch), (Some(&world.node), seen(1)));
    let again = world.store().claim_partitions(&other, ring(1, 6), &claims).await.unwrap();
    assert_eq!(again, [], "the epochs seen have passed");
}

/// A node with an older view of the ring takes nothing from one with a newer view; a view of an
/// earlier term is older than any of a later one.
pub async fn an_older_ring_takes_nothing(world: &mut World) {
    let (old, new) = (Incarnation::from("old"), Incarnation::from("new"));
    let store = world.store();
    let mut seen = world.epochs[&Partition(0)];
    let cases = [
        (&new, ring(2, 5), true),
        (&old, ring(2, 5), false),
        (&old, ring(2, 4), false),
        (&old, ring(1, 9), false),
        (&old, ring(3, 1), true),
    ];
    for (node, at, won) in cases {
        let taken = store.claim_partitions(node, at, &[claim(0, seen)]).await.unwrap();
        assert_eq!(!taken.is_empty(), won, "{at:?}");
        seen = taken.first().map_or(seen, |(_, epoch)| *epoch);
    }
}

/// After a claim the former owner's commits are left out, and the new owner's count.
pub async fn a_claimed_partition_is_executed_by_its_new_owner_only(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let partition = item.item.partition;
    let seen = world.epochs[&partition];
    let former = world.node.clone();
    let heir = Incarnation::from("node-2");
    let claims = [Claim { partition, seen }];
    let taken = world.store().claim_partitions(&heir, ring(1, 1), &claims).await.unwrap();

    let late = world.commit(vec![(&item, apply(vec![], vec![]))]).await;
    assert_eq!(late.outcomes, [Outcome::Left(LeftOut::NotOwner)]);

    world.node = heir;
    let late = world.commit(vec![(&item, apply(vec![], vec![]))]).await;
    assert_eq!(late.outcomes, [Outcome::Left(LeftOut::NotOwner)], "the epoch has to be right too");
    world.epochs.extend(taken);
    let done = world.commit(vec![(&item, apply(vec![], vec![]))]).await;
    assert_eq!(done.outcomes, [Outcome::Committed]);
    assert_ne!(world.node, former);
}

/// Everything that a leader adds to the queues after a mark is reported.
pub async fn arrivals_tell_what_was_planned_or_revived_since(world: &mut World) {
    let store = world.store();
    let start = store.arrivals(0).await.unwrap().mark;
    world.planned("task", vec![candidate("k")]).await;
    let log = store.arrivals(start).await.unwrap();
    assert!(log.log, "{log:?}");

    let at = world.now + Duration::from_secs(60);
    world.planned("timed", vec![due("t", at)]).await;
    let timer = store.arrivals(log.mark).await.unwrap();
    assert!(timer.timer.is_some_and(|earliest| earliest <= at), "{timer:?}");

    let item = world.only("task").await;
    world.commit(vec![(&item, dead("broken"))]).await;
    let before = store.arrivals(timer.mark).await.unwrap().mark;
    let selector = DeadSelector::default();
    let command = Command::RetryDead(selector.clone());
    let id = store.submit(&command, "ann", "mended").await.unwrap();
    let effect = CommandEffect::RetryDead(selector);
    store
        .apply_command(&world.fence, &world.asked(id).await, &effect, "tried again", LETTERS)
        .await
        .unwrap();
    let retry = store.arrivals(before).await.unwrap();
    assert!(retry.retry.is_some_and(|earliest| earliest <= world.now), "{retry:?}");
}

/// A reader whose mark is ahead of the store's reads everything: the store was restored and
/// continues from its earlier mark.
pub async fn a_mark_that_the_store_does_not_know_means_that_anything_may_have_come(
    world: &mut World,
) {
    world.planned("task", vec![candidate("k")]).await;
    let store = world.store();
    let known = store.arrivals(0).await.unwrap().mark;
    let lost = store.arrivals(known + 7).await.unwrap();
    let any = |at: Option<Time>| at.is_some_and(|earliest| earliest <= world.now);
    assert!(lost.log && any(lost.timer) && any(lost.retry), "{lost:?}");
    let next = store.arrivals(lost.mark).await.unwrap().mark;
    world.planned("other", vec![candidate("k")]).await;
    assert!(store.arrivals(next).await.unwrap().log);
}
