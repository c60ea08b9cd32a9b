//! A page of candidates, its cursor and its quota, in one transaction.

use std::time::Duration;

use besom_core::ids::partition_of;
use besom_core::item::{Candidate, Source};
use besom_ports::store::{PlanPage, Planned};

use crate::conformance::World;
use crate::conformance::world::{candidate, due, page, task, tenant};

/// Items have the data of their candidates.
pub async fn an_item_is_what_its_candidate_was(world: &mut World) {
    let found = Candidate {
        route: "elsewhere".into(),
        payload: vec![0, 1, 255],
        version: "v\u{e9}".into(),
        ..candidate("k\u{e9}y")
    };
    let run = world.planned("task", vec![found.clone()]).await;
    let waiting = world.only("task").await;
    let item = &waiting.item;
    assert_eq!(item.identity.task, task("task"));
    assert_eq!((&item.identity.tenant, &item.identity.key), (&found.tenant, &found.key));
    assert_eq!((item.identity.due, &item.route), (None, &found.route));
    assert_eq!((&item.version, &item.payload), (&found.version, &found.payload));
    assert_eq!((item.run, item.planned_at), (run, world.now));
    assert_eq!((item.attempts, item.guard_retries, item.deaths), (0, 0, 0));
    assert!(item.errors.is_empty());
    let partitions = world.store().partitions();
    assert_eq!(item.partition, partition_of(Some("a"), "elsewhere", partitions));
}

/// A candidate without a tenant stays without one.
pub async fn an_item_may_have_no_tenant(world: &mut World) {
    world.planned("task", vec![Candidate { tenant: None, ..candidate("k") }]).await;
    assert_eq!(world.only("task").await.item.identity.tenant, None);
    let audit = world.balanced().await;
    assert_eq!(audit.rows[0].tenant, None);
}

/// The due time decides where an item waits, even if it has passed.
pub async fn a_due_time_makes_a_timer_even_if_it_has_passed(world: &mut World) {
    let (past, future) = (world.now - Duration::from_secs(9), world.now + Duration::from_secs(9));
    let run = world.run("task").await;
    let found = vec![candidate("now"), due("late", past), due("soon", future)];
    let planned = world.plan("task", run, found).await;
    assert_eq!((planned.planned, planned.earliest_due), (3, Some(past)));
    let item = world.only("task").await;
    assert_eq!(planned.partitions, [item.item.partition]);
    let timers = world.timers().await;
    assert_eq!(timers.iter().map(|t| t.run_at).collect::<Vec<_>>(), [past, future]);
    assert!(timers.iter().all(|t| matches!(t.source, Source::Timer(_))));
}

/// The quota counts planned items; the rest of the page is not planned and the cursor stays.
pub async fn a_quota_leaves_the_rest_and_the_cursor(world: &mut World) {
    let run = world.run("task").await;
    world.plan("task", run, vec![candidate("waits")]).await;
    let keys = ["waits", "a", "b", "c"];
    let first = PlanPage {
        cursor: Some(vec![1]),
        quota: 2,
        ..page("task", run, keys.iter().map(|k| candidate(k)).collect())
    };
    let planned = world.store().plan_page(&world.fence, &first).await.unwrap();
    assert_eq!((planned.planned, planned.deduplicated, planned.left), (2, 1, 1));
    assert_eq!(world.store().cursor(&task("task"), None).await.unwrap(), None);
    assert_eq!(world.log("task").await.len(), 3);

    let again = PlanPage { quota: 1, ..first };
    let planned = world.store().plan_page(&world.fence, &again).await.unwrap();
    assert_eq!((planned.planned, planned.deduplicated, planned.left), (1, 3, 0));
    assert_eq!(world.store().cursor(&task("task"), None).await.unwrap(), Some(vec![1]));
}

/// A quota that ends with the last candidate leaves nothing.
pub async fn a_quota_that_is_just_enough_moves_the_cursor(world: &mut World) {
    let run = world.run("task").await;
    let exact =
        PlanPage { cursor: Some(vec![7]), quota: 1, ..page("task", run, vec![candidate("a")]) };
    let planned = world.store().plan_page(&world.fence, &exact).await.unwrap();
    assert_eq!((planned.planned, planned.left), (1, 0));
    assert_eq!(world.store().cursor(&task("task"), None).await.unwrap(), Some(vec![7]));
}

/// Each task and tenant has its own cursor, which survives a restart.
pub async fn cursors_belong_to_a_task_and_a_tenant(world: &mut World) {
    let run = world.run("task").await;
    for (name, cursor) in [(None, 1), (Some("a"), 2), (Some("b"), 3)] {
        let (tenant, cursor) = (name.map(tenant), Some(vec![cursor]));
        let page = PlanPage { tenant, cursor, ..page("task", run, vec![]) };
        world.store().plan_page(&world.fence, &page).await.unwrap();
    }
    let anew = PlanPage { tenant: Some(tenant("a")), ..page("task", run, vec![]) };
    world.store().plan_page(&world.fence, &anew).await.unwrap();
    world.reopen().await;
    let store = world.store();
    for (name, expected) in [(None, Some(vec![1])), (Some("a"), None), (Some("b"), Some(vec![3]))] {
        let cursor = store.cursor(&task("task"), name.map(tenant).as_ref()).await.unwrap();
        assert_eq!(cursor, expected, "{name:?}");
    }
    assert_eq!(store.cursor(&task("other"), None).await.unwrap(), None);
}

/// The run shows what its scan has found.
pub async fn a_run_counts_what_its_pages_found(world: &mut World) {
    let run = world.run("task").await;
    let first = PlanPage { scanned: 10, ..page("task", run, vec![candidate("a"), candidate("b")]) };
    let second =
        PlanPage { scanned: 5, ..page("task", run, vec![candidate("b"), due("d", world.now)]) };
    for page in [first, second] {
        world.store().plan_page(&world.fence, &page).await.unwrap();
    }
    let run = world.store().run(run).await.unwrap().unwrap();
    assert_eq!((run.planned, run.deduplicated, run.blocked), (3, 1, 0));
    assert_eq!((run.scanned, run.open), (15, 2));
}

/// An empty page plans nothing and adds nothing to the books.
pub async fn an_empty_page_plans_nothing(world: &mut World) {
    let run = world.run("task").await;
    assert_eq!(world.plan("task", run, vec![]).await, Planned::default());
    assert!(world.balanced().await.rows.is_empty());
}
