//! Items that were never queued: planned and ended by one commit, under a term instead of an owner.

use besom_core::ids::{Incarnation, RunId, Term};
use besom_core::item::{End, Identity};
use besom_core::proposal::{Guard, Settle};
use besom_core::value::{Row, Value};
use besom_ports::store::{Batch, Decision, Entry, Error, HistoryRow, Outcome};

use crate::conformance::World;
use crate::conformance::tables::thing;
use crate::conformance::world::{candidate, n_is, proposal, set_n, tenant};

/// An item of the task `aside` that sets `n` of a thing to 2 under a guard.
fn entry(world: &World, term: u64, guard: Guard) -> Entry {
    let (task, tenant) = ("aside".into(), Some(tenant("a")));
    let identity = Identity { task, tenant, key: "t".into(), due: None };
    let proposal = proposal(vec![guard], vec![set_n("t", 2)]);
    Entry::unqueued(Term(term), identity, world.now, proposal, "violation", true)
}

/// A batch of a node that owns nothing.
fn batch(world: &World, entry: Entry) -> Batch {
    Batch { node: Incarnation::from("elsewhere"), ..world.batch(vec![entry]) }
}

async fn outcome(world: &World, entry: Entry) -> Outcome {
    let committed = world.store().commit(&batch(world, entry)).await;
    committed.expect("the batch is committed").outcomes.remove(0)
}

async fn things(world: &World) -> Vec<Row> {
    world.rows("things", &["n"]).await
}

async fn aside(world: &World) -> Vec<HistoryRow> {
    let rows = world.history().await.into_iter();
    rows.filter(|row| row.identity.task.as_str() == "aside").collect()
}

/// Any node can commit it; it has history, before-images and counters.
pub async fn an_item_that_was_never_queued_is_planned_and_ended_by_its_commit(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let committed = outcome(world, entry(world, 1, n_is("t", 1))).await;
    assert_eq!(committed, Outcome::Committed);
    assert_eq!(things(world).await, [[Value::Integer(2)]]);
    let history = aside(world).await;
    assert_eq!(history.len(), 1, "{history:?}");
    assert_eq!((history[0].run, history[0].outcome), (RunId::NONE, End::Committed));
    assert_eq!(history[0].node.as_str(), "elsewhere");
    let images = world.latest_images().await;
    let before = images[0].row.as_ref().and_then(|row| row.iter().find(|field| field.name == "n"));
    assert_eq!(before.map(|field| &field.value), Some(&Value::Integer(1)));
    let audit = world.balanced().await;
    let counts = audit.rows.iter().find(|row| row.task.as_str() == "aside").expect("counters");
    assert_eq!((counts.counted.planned, counts.counted.committed), (1, 1));
}

/// An item whose guard fails is recorded as skipped.
pub async fn one_whose_guard_fails_changes_nothing(world: &mut World) {
    world.write(vec![thing("t", 5)]).await;
    let skipped = outcome(world, entry(world, 1, n_is("t", 1))).await;
    assert_eq!(skipped, Outcome::Skipped("guard".into()));
    let missing = outcome(world, entry(world, 1, n_is("gone", 1))).await;
    assert_eq!(missing, Outcome::Skipped("guard".into()));
    assert_eq!(things(world).await, [[Value::Integer(5)]]);
    assert!(aside(world).await.iter().all(|row| row.outcome == End::Skipped));
    world.balanced().await;
}

/// Nothing is recorded, and the same node may commit once it follows the new term.
pub async fn one_below_the_fence_is_refused(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.lead(2, "node-2").await;
    let stale = batch(world, entry(world, 1, n_is("t", 1)));
    let refused = world.store().commit(&stale).await;
    assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
    assert_eq!(things(world).await, [[Value::Integer(1)]]);
    assert_eq!(aside(world).await, []);
    let committed = outcome(world, entry(world, 2, n_is("t", 1))).await;
    assert_eq!(committed, Outcome::Committed);
    world.balanced().await;
}

/// A queued item of the same identity keeps waiting, and its run stays complete.
pub async fn what_waits_under_the_same_identity_is_left_alone(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.planned("aside", vec![candidate("t")]).await;
    let committed = outcome(world, entry(world, 1, n_is("t", 1))).await;
    assert_eq!(committed, Outcome::Committed);
    world.balanced().await;
    let queued = world.only("aside").await;
    let done = world.commit(vec![(&queued, crate::conformance::world::skip("seen"))]).await;
    assert_eq!(done.runs_ended.len(), 1);
    world.balanced().await;
}

/// An item that could be retried or set aside is rejected: it could not wait anywhere.
pub async fn one_that_does_not_end_is_invalid(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let dead = Settle::Dead { attempts: 1, reason: "dead".into() };
    let entry = Entry { decision: Decision::Settle(dead), ..entry(world, 1, n_is("t", 1)) };
    let refused = world.store().commit(&batch(world, entry)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    world.balanced().await;
}
