//! The audit recounts the books and finds their errors.

use crate::conformance::tables::thing;
use crate::conformance::world::{
    apply, candidate, dead, due, in_one_stream, retry, set_n, skip, task,
};
use crate::conformance::{Corruption, World};
use besom_core::ids::Seq;
use besom_core::item::{Candidate, Source};

/// Items in every state, of two tenants and two tasks.
async fn busy_books(world: &World) {
    world.write(vec![thing("t", 1)]).await;
    let other = Candidate { tenant: None, ..candidate("none") };
    let mut found = in_one_stream(&["a", "b", "c", "d", "e", "f"]);
    found.push(due("timer", world.now));
    world.planned("task", found).await;
    world.planned("other", vec![other]).await;
    let items = world.log("task").await;
    world
        .commit(vec![
            (&items[0], apply(vec![], vec![set_n("t", 2)])),
            (&items[1], skip("no")),
            (&items[2], retry(world.now, 1, "again")),
            (&items[3], dead("never")),
        ])
        .await;
}

async fn unbalanced(world: &World, corruption: Corruption) {
    world.balanced().await;
    world.fixture.corrupt(&corruption).await;
    let audit = world.store().audit().await.unwrap();
    assert!(!audit.balanced(), "{corruption:?} was not found: {audit:#?}");
}

/// Planned equals committed, skipped, set aside, discarded and waiting together.
pub async fn the_books_count_every_state_per_task_and_tenant(world: &mut World) {
    busy_books(world).await;
    let audit = world.balanced().await;
    let mut rows: Vec<_> = audit
        .rows
        .iter()
        .map(|row| {
            let c = &row.counted;
            let tenant = row.tenant.as_ref().map(ToString::to_string);
            let numbers = [c.planned, c.committed, c.skipped, c.dead, c.discarded, c.pending];
            (row.task.to_string(), tenant, numbers)
        })
        .collect();
    rows.sort();
    let a = Some("a".to_owned());
    let expected =
        [("other".into(), None, [1, 0, 0, 0, 0, 1]), ("task".into(), a, [7, 1, 1, 1, 0, 4])];
    assert_eq!(rows, expected);
}

/// A missing history row is a violation.
pub async fn an_audit_finds_a_lost_history_row(world: &mut World) {
    busy_books(world).await;
    let id = world.history().await[0].id;
    unbalanced(world, Corruption::LoseHistory(id)).await;
}

/// A gap is reported with the task of its stream.
pub async fn an_audit_finds_a_gap_in_a_stream(world: &mut World) {
    busy_books(world).await;
    let partition = world.log("task").await[0].item.partition;
    unbalanced(world, Corruption::LoseLog(task("task"), partition, Seq(5))).await;
    let violations = world.store().audit().await.unwrap().violations;
    assert!(violations.iter().any(|v| v.contains("task")), "{violations:?}");
}

/// A missing timer is a violation.
pub async fn an_audit_finds_a_lost_timer(world: &mut World) {
    busy_books(world).await;
    let Source::Timer(id) = world.timers().await[0].source else { panic!("a timer") };
    unbalanced(world, Corruption::LoseTimer(id)).await;
}

/// A run that counts other items than there are would be pruned too early, or never.
pub async fn an_audit_finds_a_run_that_counts_other_items(world: &mut World) {
    busy_books(world).await;
    let run = world.log("task").await[0].item.run;
    unbalanced(world, Corruption::MiscountRun(run)).await;
    let violations = world.store().audit().await.unwrap().violations;
    assert!(violations.iter().any(|v| v.contains(&format!("run {run}"))), "{violations:?}");
}

/// Wrong counters are a violation.
pub async fn an_audit_finds_a_wrong_counter(world: &mut World) {
    busy_books(world).await;
    unbalanced(world, Corruption::MiscountPlanned(task("task"))).await;
}

/// The rows that were changed are counted per item and per task, and one wrong number is a violation.
pub async fn an_audit_finds_a_wrong_number_of_changed_rows(world: &mut World) {
    busy_books(world).await;
    let audit = world.balanced().await;
    let rows = |of: &str| -> u64 {
        let of = audit.rows.iter().filter(|row| row.task.as_str() == of);
        of.map(|row| row.counted.rows).sum()
    };
    assert_eq!((rows("task"), rows("other")), (1, 0));
    unbalanced(world, Corruption::MiscountRows(task("task"))).await;
    let id = world.history().await.iter().find(|row| row.rows == 1).map(|row| row.id).unwrap();
    // As many in both: the books agree again.
    world.fixture.corrupt(&Corruption::MiscountRowsOfItem(id)).await;
    world.balanced().await;
    unbalanced(world, Corruption::MiscountRowsOfItem(id)).await;
}
