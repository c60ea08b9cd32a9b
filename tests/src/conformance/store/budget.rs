//! All takers share a task's budget of rows per second.

use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::budget::Allowance;
use besom_core::time::Time;

use crate::conformance::World;
use crate::conformance::tables::{text, thing};
use crate::conformance::world::{START, candidate};

async fn take(world: &World, task: &str, rows: u64, per_second: u32) -> Allowance {
    let per_second = NonZeroU32::new(per_second).expect("a rate");
    world.store().take_rows(&task.into(), rows, per_second).await.unwrap()
}

/// The budget starts with one second's rows, then grows at its rate.
pub async fn rows_are_granted_at_their_rate(world: &mut World) {
    assert_eq!(take(world, "task", 100, 100).await, Allowance::Now);
    assert_eq!(take(world, "task", 50, 100).await, Allowance::Now);
    let paid_off = START + Duration::from_millis(500);
    assert_eq!(take(world, "task", 1, 100).await, Allowance::NotBefore(paid_off));
    world.advance(Duration::from_millis(499));
    assert_eq!(take(world, "task", 1, 100).await, Allowance::NotBefore(paid_off));
    world.advance(Duration::from_millis(1));
    assert_eq!(take(world, "task", 1, 100).await, Allowance::Now);
}

/// More than one second's rows are granted at once and paid off afterwards, because a commit cannot
/// be split.
pub async fn a_large_batch_is_granted_and_paid_off(world: &mut World) {
    assert_eq!(take(world, "task", 5_000, 1_000).await, Allowance::Now);
    let paid_off = START + Duration::from_secs(4);
    assert_eq!(take(world, "task", 1, 1_000).await, Allowance::NotBefore(paid_off));
}

/// At most one second of unused budget is kept.
pub async fn an_idle_budget_keeps_one_second(world: &mut World) {
    assert_eq!(take(world, "task", 1, 10).await, Allowance::Now);
    world.advance(Duration::from_secs(3_600));
    assert_eq!(take(world, "task", 20, 10).await, Allowance::Now);
    let paid_off = Time(world.now.0 + 1_000_000);
    assert_eq!(take(world, "task", 1, 10).await, Allowance::NotBefore(paid_off));
}

/// A task without budget left does not delay others; taking no rows always succeeds.
pub async fn a_budget_is_one_tasks(world: &mut World) {
    assert_eq!(take(world, "task", 1_000, 10).await, Allowance::Now);
    assert!(matches!(take(world, "task", 1, 10).await, Allowance::NotBefore(_)));
    assert_eq!(take(world, "other", 1, 10).await, Allowance::Now);
    assert_eq!(take(world, "task", 0, 10).await, Allowance::Now);
}

/// The debt survives a restart of the store.
pub async fn a_budget_outlives_the_process(world: &mut World) {
    assert_eq!(take(world, "task", 1_000, 10).await, Allowance::Now);
    world.reopen().await;
    assert!(matches!(take(world, "task", 1, 10).await, Allowance::NotBefore(_)));
}

/// What others feel is measured or not, whatever is mapped, and nothing is changed by it.
pub async fn strain_is_measured_beside_the_work(world: &mut World) {
    world.write(vec![thing("a", 1)]).await;
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    for of in [&[][..], &["things".to_owned(), "unknown".to_owned()]] {
        let strain = world.store().strain(of).await.expect("an answer");
        let is_short =
            |felt: Option<Duration>| felt.is_none_or(|felt| felt < Duration::from_secs(60));
        assert!([strain.latency, strain.lock_wait, strain.lag].into_iter().all(is_short));
    }
    assert_eq!(world.only("task").await, item);
    assert_eq!(world.rows("things", &["id"]).await, [[text("a")]]);
}
