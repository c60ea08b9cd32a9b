//! The brakes of runs, and the discard of what is planned.

use std::num::NonZeroU32;
use std::sync::Arc;

use besom_core::brake::{Brake, Brakes, DeletesMax, LETTERS};
use besom_core::ids::RunId;
use besom_core::proposal::{Change, RowRange};
use besom_ports::store::{
    Applied, Batch, Command, CommandEffect, Committed, Decision, End, Error, LeftOut, Outcome,
    Retention, Waiting,
};

use crate::conformance::World;
use crate::conformance::tables::{child, dependent, leaf, parent, thing};
use crate::conformance::world::{
    apply, candidate, dead, due, fence, in_one_stream, page, retry, task,
};

fn brake(run: RunId, what: &str, allowed: u64) -> Brake {
    Brake { run, what: what.into(), used: 0, allowed: Some(allowed), estimate: Some(9) }
}

async fn set(world: &World, brakes: &[Brake]) {
    world.store().set_brakes(&world.fence, brakes).await.unwrap();
}

/// What the brakes of the task's runs have counted, newest first.
async fn used(world: &World) -> Vec<u64> {
    let brakes = world.store().brakes(&task("task"), 100).await.unwrap();
    brakes.iter().map(|brake| brake.used).collect()
}

/// Deletes the first things, at most so many.
fn delete(rows: u32) -> Decision {
    let range = RowRange { collection: "things".into(), rows, ..RowRange::default() };
    apply(vec![], vec![Change::DeleteRange(Arc::new(range))])
}

async fn commit(world: &World, entries: Vec<(&Waiting, Decision)>) -> Committed {
    let entries = entries.into_iter().map(|(waiting, d)| world.entry(waiting, d)).collect();
    let batch = Batch { braked: true, ..world.batch(entries) };
    world.store().commit(&batch).await.unwrap()
}

async fn things(world: &World) -> usize {
    world.rows("things", &["id"]).await.len()
}

async fn write_things(world: &World) {
    world.write(["a", "b", "c", "d", "e"].map(|id| thing(id, 1)).to_vec()).await;
}

/// The limit is exact, in rows and not in items; what is left out has changed nothing and waits.
pub async fn a_commit_beyond_the_brake_of_its_run_changes_nothing(world: &mut World) {
    write_things(world).await;
    let run = world.planned("task", in_one_stream(&["k1", "k2", "k3"])).await;
    set(world, &[brake(run, "things", 4)]).await;
    let log = world.log("task").await;
    assert_eq!(commit(world, vec![(&log[0], delete(3))]).await.outcomes, [Outcome::Committed]);
    let both = commit(world, vec![(&log[1], delete(1)), (&log[2], delete(1))]).await;
    assert_eq!(both.outcomes, [Outcome::Left(LeftOut::Braked), Outcome::Left(LeftOut::Braked)]);
    assert_eq!((things(world).await, used(world).await), (2, vec![3]));
    assert_eq!(world.log("task").await.len(), 2, "both wait");
    assert_eq!(world.history().await.len(), 1);
    world.balanced().await;
    // One of them is allowed.
    assert_eq!(commit(world, vec![(&log[1], delete(1))]).await.outcomes, [Outcome::Committed]);
    assert_eq!((things(world).await, used(world).await), (1, vec![4]));
    // A range names the most rows that it may have; those that it has are counted.
    let none = commit(world, vec![(&log[2], apply(vec![], vec![]))]).await;
    assert_eq!(none.outcomes, [Outcome::Committed]);
    world.balanced().await;
}

/// A range that finds fewer rows than it may take uses as many as it finds.
pub async fn only_rows_that_were_deleted_are_counted(world: &mut World) {
    write_things(world).await;
    let run = world.planned("task", vec![candidate("k")]).await;
    set(world, &[brake(run, "things", 5)]).await;
    let item = world.only("task").await;
    assert_eq!(commit(world, vec![(&item, delete(100))]).await.outcomes, [Outcome::Committed]);
    assert_eq!((things(world).await, used(world).await), (0, vec![5]));
}

/// Rows that go with others count towards the limit of their own collection, and are told apart from those that
/// take them along; a commit beyond it tells what it would have used.
pub async fn rows_of_dependants_are_counted_by_their_collection(world: &mut World) {
    world.store().set_collections(dependent());
    let family = |id: &'static str| {
        let of = [parent(id), child(id, 1, "x"), child(id, 2, "y"), leaf(id, id, 1)];
        of.to_vec()
    };
    world.write(["p", "q", "r"].into_iter().flat_map(family).collect()).await;
    let delete = |rows: u32| {
        let range = RowRange { collection: "parents".into(), rows, ..RowRange::default() };
        apply(vec![], vec![Change::DeleteRange(Arc::new(range))])
    };
    let run = world.planned("task", in_one_stream(&["k1", "k2"])).await;
    set(world, &[brake(run, "children", 3), brake(run, "leaves", 9), brake(run, "parents", 9)])
        .await;
    let log = world.log("task").await;
    let first = commit(world, vec![(&log[0], delete(1))]).await;
    assert_eq!((first.outcomes, first.braked.len()), (vec![Outcome::Committed], 0));
    assert_eq!(used(world).await, [2, 1, 1]);
    // The range names more parents than there are.
    let beyond = commit(world, vec![(&log[1], delete(5))]).await;
    assert_eq!(beyond.outcomes, [Outcome::Left(LeftOut::Braked)]);
    let wanted: Vec<_> = beyond.braked.iter().map(|((_, what), rows)| (&**what, *rows)).collect();
    assert_eq!(wanted, [("children", 4), ("leaves", 2), ("parents", 2)]);
    assert_eq!((used(world).await, world.rows("parents", &["id"]).await.len()), (vec![2, 1, 1], 2));
    world.balanced().await;
}

/// A commit whose run has no brake, and one of another collection, is not held.
pub async fn a_run_without_a_brake_is_not_held(world: &mut World) {
    write_things(world).await;
    let run = world.planned("task", vec![candidate("k1")]).await;
    set(world, &[brake(run, "parents", 0)]).await;
    let item = world.only("task").await;
    assert_eq!(commit(world, vec![(&item, delete(3))]).await.outcomes, [Outcome::Committed]);
    world.planned("task", vec![candidate("k2")]).await;
    let item = world.only("task").await;
    assert_eq!(commit(world, vec![(&item, delete(3))]).await.outcomes, [Outcome::Committed]);
    assert_eq!((things(world).await, used(world).await), (0, vec![0]));
}

/// Whoever sets the brakes of a run second changes nothing, and a stale leader sets none.
pub async fn a_brake_is_set_once_and_under_the_fence(world: &mut World) {
    let run = world.planned("task", vec![candidate("k")]).await;
    set(world, &[brake(run, "things", 4)]).await;
    set(world, &[brake(run, "things", 7), brake(run, LETTERS, 2)]).await;
    let brakes = world.store().brakes(&task("task"), 100).await.unwrap();
    assert_eq!(brakes, [brake(run, LETTERS, 2), brake(run, "things", 4)]);
    assert_eq!(world.store().brakes(&task("task"), 1).await.unwrap().len(), 1);
    assert_eq!(world.store().brakes(&task("other"), 100).await.unwrap(), []);
    let stale = fence(1);
    world.lead(2, "node-2").await;
    let said = world.store().set_brakes(&stale, &[brake(run, "parents", 1)]).await;
    assert!(matches!(said, Err(Error::Fenced)), "{said:?}");
}

/// Items that are set aside count, and a commit that would set aside more than the run may changes nothing,
/// not even for the items that it would have committed.
pub async fn a_commit_that_would_set_aside_too_many_items_changes_nothing(world: &mut World) {
    write_things(world).await;
    let run = world.planned("task", in_one_stream(&["k1", "k2", "k3"])).await;
    set(world, &[brake(run, LETTERS, 1)]).await;
    let log = world.log("task").await;
    let all =
        commit(world, vec![(&log[0], delete(1)), (&log[1], dead("no")), (&log[2], dead("no"))]);
    let braked = Outcome::Left(LeftOut::Braked);
    assert_eq!(all.await.outcomes, [braked.clone(), braked.clone(), braked.clone()]);
    assert_eq!((things(world).await, used(world).await), (5, vec![0]));
    let two = commit(world, vec![(&log[0], delete(1)), (&log[1], dead("no"))]).await;
    assert_eq!(two.outcomes, [Outcome::Committed, Outcome::Dead("no".into())]);
    assert_eq!(commit(world, vec![(&log[2], dead("no"))]).await.outcomes, [braked]);
    assert_eq!((things(world).await, used(world).await), (4, vec![1]));
    assert_eq!(world.log("task").await.len(), 1, "it waits");
    world.balanced().await;
}

async fn command(world: &World, effect: &CommandEffect, limit: u32) -> Applied {
    let command = Command::Pause { task: task("task") };
    let id = world.store().submit(&command, "ann", "because").await.unwrap();
    let limit = NonZeroU32::new(limit).expect("a limit");
    let mut applied = None;
    for _ in 0..100 {
        let fence = &world.fence;
        let step = world
            .store()
            .apply_command(fence, &world.asked(id).await, effect, "done", limit)
            .await
            .unwrap();
        let over = step.progress.is_none();
        applied = Some(step);
        if over {
            break;
        }
    }
    applied.expect("a result")
}

/// A resumption judges by the present limits what has been deleted, and forgets what was set aside.
pub async fn a_resumption_sets_the_brakes_anew(world: &mut World) {
    write_things(world).await;
    let run = world.planned("task", in_one_stream(&["k1", "k2", "k3"])).await;
    set(world, &[brake(run, "things", 2), brake(run, LETTERS, 3)]).await;
    let log = world.log("task").await;
    commit(world, vec![(&log[0], delete(2))]).await;
    commit(world, vec![(&log[1], dead("no"))]).await;
    let share = DeletesMax::Share { millionths: 500_000, floor: 1 };
    let brakes = Brakes { deletes: Some(share), letters: NonZeroU32::new(4), failures: None };
    command(world, &CommandEffect::Resume(task("task"), brakes), 10).await;
    let found = world.store().brakes(&task("task"), 100).await.unwrap();
    let found: Vec<_> = found.into_iter().map(|b| (b.what, b.used, b.allowed)).collect();
    assert_eq!(found, [(LETTERS.to_owned(), 0, Some(4)), ("things".to_owned(), 2, Some(4))]);
    let left = commit(world, vec![(&log[2], delete(3))]).await;
    assert_eq!(left.outcomes, [Outcome::Left(LeftOut::Braked)]);
    command(world, &CommandEffect::Resume(task("task"), Brakes::default()), 10).await;
    let released = commit(world, vec![(&log[2], delete(3))]).await;
    assert_eq!(released.outcomes, [Outcome::Committed]);
    assert_eq!(things(world).await, 0);
    world.balanced().await;
}

/// The brakes of runs that are over stay as they are, with their counts.
pub async fn a_resumption_leaves_the_brakes_of_runs_that_are_over(world: &mut World) {
    write_things(world).await;
    let over = world.planned("task", vec![candidate("k1")]).await;
    set(world, &[brake(over, "things", 3), brake(over, LETTERS, 3)]).await;
    let item = world.only("task").await;
    commit(world, vec![(&item, delete(2))]).await;
    let open = world.planned("task", vec![candidate("k2")]).await;
    set(world, &[brake(open, "things", 3)]).await;
    let item = world.only("task").await;
    let later = world.now + std::time::Duration::from_secs(60);
    commit(world, vec![(&item, retry(later, 1, "again"))]).await;
    let ended = world.store().run(open).await.unwrap().expect("a run").ended_at;
    assert!(ended.is_some(), "only its retry is left");
    let brakes = async || {
        let found = world.store().brakes(&task("task"), 100).await.unwrap();
        found.into_iter().map(|b| (b.run, b.used, b.allowed)).collect::<Vec<_>>()
    };
    let of_over = [(over, 0, Some(3)), (over, 2, Some(3))];
    command(world, &CommandEffect::Resume(task("task"), Brakes::default()), 10).await;
    assert_eq!(brakes().await, [[(open, 0, None)].as_slice(), &of_over].concat(), "released");
    let deletes = Some(DeletesMax::Rows(1));
    let lower = Brakes { deletes, letters: NonZeroU32::new(1), failures: None };
    command(world, &CommandEffect::Resume(task("task"), lower), 10).await;
    assert_eq!(brakes().await, [[(open, 0, Some(1))].as_slice(), &of_over].concat());
}

/// A collection has about as many rows as it has; counting ends at the bound.
pub async fn a_collection_is_estimated(world: &mut World) {
    let rows = async |max| world.store().estimate("things", max).await.unwrap();
    assert_eq!(rows(100).await, 0);
    write_things(world).await;
    assert_eq!((rows(100).await, rows(2).await), (5, 2));
    let said = world.store().estimate("nothing", 100).await;
    assert!(matches!(said, Err(Error::Invalid(_))), "{said:?}");
}

/// Brakes are kept as long as their run.
pub async fn brakes_are_pruned_with_their_run(world: &mut World) {
    let run = world.planned("task", vec![]).await;
    set(world, &[brake(run, "things", 2)]).await;
    world.advance(std::time::Duration::from_secs(3_600));
    let keep = Retention {
        history: std::time::Duration::from_secs(60),
        undo: &[],
        nodes: std::time::Duration::from_secs(60),
        routed: None,
    };
    for _ in 0..3 {
        world.store().prune(&world.fence, keep, 100).await.unwrap();
    }
    assert_eq!(world.store().run(run).await.unwrap(), None, "the run is gone");
    assert_eq!(used(world).await, Vec::<u64>::new());
    // Nothing of it is left for a run that would get the same number after a restore.
    let runs = world.store().runs(None, 10).await.unwrap();
    assert_eq!(runs, []);
}

/// Items of the log, timers and retries are discarded with the reason, their runs end, and nothing
/// blocks planning them again.
pub async fn planned_items_are_discarded_and_may_be_planned_again(world: &mut World) {
    let later = world.now + std::time::Duration::from_secs(60);
    let all = || {
        let mut all = in_one_stream(&["k1", "k2", "k3"]);
        all.extend(["a", "b", "c", "d"].map(candidate));
        all.push(due("t", later));
        all
    };
    let run = world.planned("task", all()).await;
    world.planned("other", vec![candidate("x")]).await;
    let log = world.log("task").await;
    let first = log.iter().find(|waiting| waiting.item.identity.key == "a").expect("an item");
    world.commit(vec![(first, retry(later, 1, "again"))]).await;
    let open = world.run("task").await;
    world.plan("task", open, vec![candidate("e")]).await;
    for limit in [2, 100] {
        let words = "cancelled by ann: because".to_owned();
        let effect = CommandEffect::DiscardPlanned(task("task"), words.clone());
        let applied = command(world, &effect, limit).await;
        assert_eq!((applied.dead, applied.refused), (9, None), "{limit}");
        assert_eq!(world.log("task").await, []);
        assert_eq!((world.timers().await, world.retries().await), (vec![], vec![]));
        assert_eq!(world.log("other").await.len(), 1, "another task keeps its items");
        let rows = world.history().await;
        let discarded: Vec<_> = rows.iter().filter(|row| row.outcome == End::Discarded).collect();
        assert_eq!(discarded.len() % 9, 0, "{rows:#?}");
        assert!(discarded.iter().all(|row| row.reason.as_deref() == Some("ann: because")));
        let active = world.store().active_runs().await.unwrap();
        assert!(active.iter().all(|run| run.task.as_str() == "other"), "{active:#?}");
        world.balanced().await;
        if limit == 2 {
            let ended = world.store().run(open).await.unwrap().expect("a run");
            assert_eq!(ended.error, Some(words), "its scan was cut");
            assert_eq!(world.store().run(run).await.unwrap().expect("a run").error, None);
            let again = world.run("task").await;
            let mut all = all();
            all.push(candidate("e"));
            let planned = world.plan("task", again, all).await;
            assert_eq!((planned.planned, planned.blocked), (9, 0), "they are planned again");
        }
    }
    let effect = CommandEffect::DiscardPlanned(task("task"), String::new());
    assert_eq!(command(world, &effect, 10).await.dead, 0, "nothing is left");
    let effect = CommandEffect::DiscardPlanned(task("never-seen"), String::new());
    assert_eq!(command(world, &effect, 10).await.dead, 0);
}

/// A batch whose items were discarded while it was executed changes nothing.
pub async fn a_batch_is_left_out_whose_items_were_discarded(world: &mut World) {
    write_things(world).await;
    let run = world.run("task").await;
    let later = due("t", world.now);
    world
        .store()
        .plan_page(&world.fence, &page("task", run, vec![candidate("k"), later]))
        .await
        .unwrap();
    let (item, timer) = (world.only("task").await, world.timers().await.remove(0));
    let effect = CommandEffect::DiscardPlanned(task("task"), "cut".into());
    command(world, &effect, 100).await;
    let left = world.commit(vec![(&item, delete(1)), (&timer, delete(1))]).await;
    let gone = Outcome::Left(LeftOut::NotThere);
    assert_eq!(left.outcomes, [gone.clone(), gone]);
    assert_eq!(things(world).await, 5);
    world.balanced().await;
    let said =
        world.store().plan_page(&world.fence, &page("task", run, vec![candidate("z")])).await;
    assert!(matches!(said, Err(Error::Invalid(_))), "its scan has ended: {said:?}");
}
