//! Pruning: removed history is added to a baseline, and the books still balance.

use std::time::Duration;

use besom_core::ids::TaskName;
use besom_ports::activity::State;
use besom_ports::store::{End, Letters, PlanPage, Pruned, Retention, TERMS_KEPT};

use crate::conformance::World;
use crate::conformance::tables::thing;
use crate::conformance::world::{
    apply, candidate, dead, due, page, set_n, settled, skip, task, tenant,
};
use crate::undone_rows::{latest, undo};

const DAY: Duration = Duration::from_secs(86_400);

fn keep(history: Duration, undo: &[(TaskName, Duration)]) -> Retention<'_> {
    Retention { history, undo, nodes: DAY, routed: None }
}

async fn prune(world: &World, history: Duration, undo: Duration, limit: u32) -> Pruned {
    let undo = [(task("task"), undo)];
    world.store().prune(&world.fence, keep(history, &undo), limit).await.unwrap()
}

/// One item committed, one skipped, one dead, on each of this number of days.
async fn days(world: &mut World, count: u64) {
    world.write(vec![thing("t", 0)]).await;
    for day in 0..count {
        let key = |what: &str| format!("{what}-{day}");
        world.settle(candidate(&key("c")), apply(vec![], vec![set_n("t", day as i64)])).await;
        world.settle(candidate(&key("s")), skip("no")).await;
        world.settle(candidate(&key("d")), dead("broken")).await;
        world.advance(DAY);
    }
}

/// Pruning changes no counter: the baseline counts the removed rows.
pub async fn the_audit_balances_after_pruning(world: &mut World) {
    days(world, 4).await;
    let before = world.balanced().await;
    let pruned = prune(world, DAY * 2, DAY, 100).await;
    assert_eq!((pruned.history, pruned.undo), (6, 3));
    assert_eq!(world.history().await.len(), 6);
    assert_eq!(world.balanced().await, before);
    world.reopen().await;
    let pruned = prune(world, Duration::ZERO, Duration::ZERO, 100).await;
    assert_eq!((pruned.history, pruned.undo), (6, 1));
    assert!(world.history().await.is_empty());
    assert_eq!(world.balanced().await, before);
    assert_eq!(before.rows[0].counted.dead, 4);
    assert_eq!(
        world
            .store()
            .dead_letters(&Default::default(), Letters::Open, None, 100)
            .await
            .unwrap()
            .len(),
        4
    );
}

/// A killed host closes no connection: its reports are removed once they mean the same as their
/// absence, and idle keys stay idle.
pub async fn connections_that_have_long_ended_are_forgotten(world: &mut World) {
    let activity = world.fixture.activity();
    let keys = ["killed".to_owned(), "closed".to_owned(), "open".to_owned()];
    for key in &keys {
        activity.connect(key, "tab").await.unwrap();
    }
    activity.disconnect("closed", "tab").await.unwrap();
    world.advance(DAY);
    activity.connect("open", "tab").await.unwrap();
    let before = activity.states(&keys).await.unwrap();
    let gone = prune(world, DAY * 9, DAY * 9, 100).await.other;
    assert!(gone >= 2, "{gone}");
    assert_eq!(world.fixture.activity().states(&keys).await.unwrap(), before);
    assert_eq!(before, [State::Idle, State::Idle, State::Active]);
    assert_eq!(prune(world, DAY * 9, DAY * 9, 100).await.other, 0);
}

/// Images are removed before their history, and their bytes no longer count.
pub async fn images_are_pruned_by_their_tasks_retention(world: &mut World) {
    days(world, 2).await;
    world.planned("other", vec![candidate("k")]).await;
    let item = world.only("other").await;
    world.commit(vec![(&item, apply(vec![], vec![set_n("t", 9)]))]).await;
    world.advance(DAY * 10);
    assert_eq!(prune(world, DAY * 100, DAY * 11, 100).await.undo, 1, "one is twelve days old");
    assert_eq!(prune(world, DAY * 100, DAY * 5, 100).await.undo, 1);
    let mut held = Vec::new();
    for row in world.history().await.into_iter().filter(|row| row.outcome == End::Committed) {
        let images = world.store().before_images(row.id).await.unwrap();
        held.push((row.identity.task.to_string(), images.is_some(), row.undo_bytes > 0));
    }
    let gone = ("task".to_owned(), false, false);
    assert_eq!(held, [gone.clone(), gone, ("other".into(), true, true)]);
    let depths = world.store().depths().await.unwrap();
    let bytes = |name: &str| {
        let of = depths.iter().find(|depth| depth.task == Some(task(name)));
        of.map_or(0, |depth| depth.undo_bytes)
    };
    assert_eq!(bytes("task"), 0);
    assert!(bytes("other") > 0);
}

/// What an undo has kept, and the undo of that, goes with what the task keeps: it is the same rows.
pub async fn images_of_undos_are_pruned_with_those_of_the_task(world: &mut World) {
    world.write(vec![thing("t", 0)]).await;
    world.settle(candidate("k"), apply(vec![], vec![set_n("t", 1)])).await;
    let mut undone = latest(world).await;
    for _ in 0..2 {
        undone = undo(world, undone, &[]).await.id;
    }
    world.planned("other", vec![candidate("k")]).await;
    let item = world.only("other").await;
    world.commit(vec![(&item, apply(vec![], vec![set_n("t", 9)]))]).await;
    let of_other = latest(world).await;
    undo(world, of_other, &[]).await;
    world.advance(DAY);
    assert_eq!(prune(world, DAY * 100, DAY * 2, 100).await.undo, 0);
    assert_eq!(prune(world, DAY * 100, Duration::ZERO, 100).await.undo, 3);
    let depths = world.store().depths().await.unwrap();
    let bytes = |name: &str| {
        let of = depths.iter().find(|depth| depth.task == Some(task(name)));
        of.map_or(0, |depth| depth.undo_bytes)
    };
    assert_eq!(bytes("task"), 0);
    let mut kept = 0;
    for row in world.history().await {
        kept += usize::from(world.store().before_images(row.id).await.unwrap().is_some());
    }
    assert!(kept == 2 && bytes("undo") > 0, "{kept}");
    world.balanced().await;
}

/// One call removes a limited number of rows, oldest first.
pub async fn pruning_is_bounded_and_goes_on(world: &mut World) {
    days(world, 2).await;
    let before = world.balanced().await;
    let newest = world.history().await.pop().unwrap();
    for expected in [4, 2, 0] {
        assert_eq!(prune(world, Duration::ZERO, DAY * 100, 4).await.history, expected);
        if expected == 4 {
            assert_eq!(world.history().await.pop().unwrap(), newest);
        }
        assert_eq!(world.balanced().await, before);
    }
}

/// A run is kept while an item of it waits.
pub async fn a_run_stays_while_something_refers_to_it(world: &mut World) {
    let far = world.now + DAY * 100;
    let waits = world.planned("task", vec![due("waits", far)]).await;
    world.settle(candidate("dead"), dead("broken")).await;
    let set_aside = world.history().await[0].run;
    world.settle(candidate("done"), skip("no")).await;
    let done = world.history().await[1].run;
    world.advance(DAY * 10);
    assert!(prune(world, DAY, DAY, 100).await.other > 0);
    let store = world.store();
    for (run, stays) in [(waits, true), (set_aside, true), (done, false)] {
        assert_eq!(store.run(run).await.unwrap().is_some(), stays, "run {run}");
    }
}

/// A settled skip blocks for one retention period.
pub async fn a_settled_skip_is_forgotten_with_the_history(world: &mut World) {
    world.settle(candidate("k"), settled("left alone")).await;
    world.advance(DAY * 2);
    world.settle(candidate("l"), settled("left alone")).await;
    prune(world, DAY, DAY, 100).await;
    let run = world.run("task").await;
    let planned = world.plan("task", run, vec![candidate("k"), candidate("l")]).await;
    assert_eq!((planned.planned, planned.blocked), (1, 1));
}

/// Images that are removed with their history are counted once, the others by task.
pub async fn the_bound_on_images_is_for_each_task(world: &mut World) {
    world.write(vec![thing("t", 0)]).await;
    for n in 0..4 {
        for name in ["task", "other"] {
            world.planned(name, vec![candidate("k")]).await;
            let item = world.only(name).await;
            world.commit(vec![(&item, apply(vec![], vec![set_n("t", n)]))]).await;
        }
        world.advance(DAY);
    }
    let undo = [(task("task"), DAY), (task("other"), DAY)];
    let pruned = world.store().prune(&world.fence, keep(DAY * 3, &undo), 1).await.unwrap();
    assert_eq!((pruned.history, pruned.undo), (1, 3), "one with its row, then one of each");
    let pruned = world.store().prune(&world.fence, keep(DAY * 10, &undo), 10).await.unwrap();
    assert_eq!((pruned.history, pruned.undo), (0, 3));
    world.balanced().await;
}

/// Old leaderships are removed, except for the newest.
pub async fn the_newest_terms_stay_however_old(world: &mut World) {
    let last = u64::from(TERMS_KEPT) + 3;
    for term in 2..=last {
        world.lead(term, "node").await;
    }
    assert_eq!(prune(world, DAY, DAY, 100).await.other, 0, "none is old");
    world.advance(DAY * 2);
    for expected in [2, 1, 0] {
        assert_eq!(prune(world, DAY, DAY, 2).await.other, expected);
    }
    let kept: Vec<u64> = world.store().terms(100).await.unwrap().iter().map(|t| t.term.0).collect();
    assert_eq!(kept, (4..=last).rev().collect::<Vec<_>>());
}

/// The cursor of a tenant that is no longer visited is removed; others are kept.
pub async fn the_cursor_of_a_tenant_is_forgotten_once_nobody_visits_it(world: &mut World) {
    let run = world.run("task").await;
    let visited = async |world: &World, name: &str| {
        let cursor = Some(vec![7]);
        let page = PlanPage { cursor, tenant: Some(tenant(name)), ..page("task", run, vec![]) };
        world.store().plan_page(&world.fence, &page).await.unwrap();
    };
    visited(world, "a").await;
    visited(world, "b").await;
    world.advance(DAY * 2);
    visited(world, "b").await;
    prune(world, DAY, DAY, 100).await;
    let cursor =
        async |name: &str| world.store().cursor(&task("task"), Some(&tenant(name))).await.unwrap();
    assert_eq!((cursor("a").await, cursor("b").await), (None, Some(vec![7])));
}
