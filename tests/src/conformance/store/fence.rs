//! A stale leader changes nothing.

use std::time::Duration;

use besom_core::ids::{FencingToken, Incarnation, OwnerEpoch, Partition, Term};
use besom_ports::store::{Command, CommandEffect, EndOfScan, Error, Retention, SlotDecision};

use crate::conformance::World;
use crate::conformance::world::{LETTERS, candidate, fence, new_run, page, task};

fn is_fenced<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Fenced)), "{result:?}");
}

/// Raising the fence takes all partitions and raises every epoch.
pub async fn a_raise_owns_all_partitions_under_new_epochs(world: &mut World) {
    let count = world.store().partitions();
    assert_eq!(world.epochs.len(), count as usize);
    let before = world.epochs.clone();
    world.lead(2, "node-2").await;
    for (partition, epoch) in &world.epochs {
        assert!(*epoch > before[partition], "partition {partition}");
    }
    let known = world.store().fence().await.unwrap().unwrap();
    assert_eq!((known.term, known.node.as_str()), (Term(2), "node-2"));
    assert_eq!(known.raised_at, world.now);
}

/// The same term, or a lower one, is refused.
pub async fn only_a_higher_term_raises_the_fence(world: &mut World) {
    world.lead(5, "node-5").await;
    for term in [4, 5] {
        let raised = world.store().raise_fence(&fence(term), &"late".into(), None).await;
        is_fenced(raised);
    }
    let known = world.store().fence().await.unwrap().unwrap();
    assert_eq!((known.term, known.node.as_str()), (Term(5), "node-5"));
}

/// With a list of partitions, the others keep their owners.
pub async fn a_raise_can_take_over_some_partitions_only(world: &mut World) {
    let taken = [Partition(1), Partition(3)];
    let raised = world.store().raise_fence(&fence(2), &"node-2".into(), Some(&taken)).await;
    let owned = raised.unwrap().owned;
    assert_eq!(owned.iter().map(|(p, _)| *p).collect::<Vec<_>>(), taken);
    let next = |p: &Partition| OwnerEpoch(world.epochs[p].0 + 1);
    assert!(owned.iter().all(|(p, epoch)| *epoch == next(p)), "{owned:?}");
}

/// Every write of a leader below the fence is refused and changes nothing.
pub async fn a_stale_leader_can_write_nothing(world: &mut World) {
    let run = world.run("task").await;
    let stale = world.fence.clone();
    let command = Command::Pause { task: task("task") };
    let id = world.store().submit(&command, "ann", "why").await.unwrap();
    world.lead(2, "node-2").await;

    let store = world.store();
    let decision = SlotDecision { runs: vec![new_run("task", world.now)], ..Default::default() };
    is_fenced(store.decide_slots(&stale, &decision).await);
    is_fenced(store.plan_page(&stale, &page("task", run, vec![candidate("k")])).await);
    is_fenced(store.end_scan(&stale, &EndOfScan::of(task("task"), run)).await);
    let effect = CommandEffect::Pause(task("task"));
    is_fenced(
        store.apply_command(&stale, &world.asked(id).await, &effect, "paused", LETTERS).await,
    );
    let keep =
        Retention { history: Duration::ZERO, undo: &[], nodes: Duration::ZERO, routed: None };
    is_fenced(store.prune(&stale, keep, 10).await);

    assert!(world.log("task").await.is_empty());
    let run = store.run(run).await.unwrap().unwrap();
    assert!(!run.scan_done && run.planned == 0, "{run:?}");
    assert_eq!(store.pending_commands(10).await.unwrap().len(), 1);
    assert!(store.task_states().await.unwrap().iter().all(|state| state.paused.is_none()));
}

/// Two leaders cannot share a term: their tokens differ.
pub async fn the_right_term_with_a_foreign_token_is_fenced(world: &mut World) {
    let impostor = FencingToken { token_hash: [0xee; 32], ..world.fence.clone() };
    let decision = SlotDecision { runs: vec![new_run("task", world.now)], ..Default::default() };
    is_fenced(world.store().decide_slots(&impostor, &decision).await);
}

/// A term that has not raised the fence cannot write, even if it is higher.
pub async fn a_leader_writes_only_after_its_raise(world: &mut World) {
    let decision = SlotDecision { runs: vec![new_run("task", world.now)], ..Default::default() };
    is_fenced(world.store().decide_slots(&fence(9), &decision).await);
}

/// The fence and the epochs survive a restart.
pub async fn the_fence_survives_a_restart(world: &mut World) {
    let stale = world.fence.clone();
    world.lead(2, "node-2").await;
    let epochs = world.epochs.clone();
    world.reopen().await;
    let decision = SlotDecision { runs: vec![new_run("task", world.now)], ..Default::default() };
    is_fenced(world.store().decide_slots(&stale, &decision).await);
    is_fenced(world.store().raise_fence(&stale, &Incarnation::from("late"), None).await);
    world.lead(3, "node-3").await;
    assert!(epochs.iter().all(|(partition, epoch)| world.epochs[partition] > *epoch));
}

/// Every leadership is recorded; a refused raise is not.
pub async fn every_raise_is_remembered_newest_first(world: &mut World) {
    let start = world.now;
    world.advance(Duration::from_secs(5));
    world.lead(4, "node-4").await;
    is_fenced(world.store().raise_fence(&fence(3), &"late".into(), None).await);
    world.reopen().await;
    let terms = world.store().terms(10).await.unwrap();
    let seen: Vec<_> = terms.iter().map(|t| (t.term.0, t.node.as_str(), t.raised_at)).collect();
    assert_eq!(seen, [(4, "node-4", world.now), (1, "node-1", start)]);
    assert_eq!(world.store().terms(1).await.unwrap(), terms[..1]);
}
