//! Timers and retries: executed in place, never before their time.

use std::time::Duration;

use crate::conformance::World;
use besom_core::ids::TaskName;
use besom_core::item::Source;
use besom_core::time::Time;
use besom_core::value::Value;
use besom_ports::store::{Batch, LeftOut, Outcome, Waiting};

use crate::conformance::tables::thing;
use crate::conformance::world::{ALL, apply, candidate, due, retry, set_n, skip, task};

const SECOND: Duration = Duration::from_secs(1);

/// The store's clock decides what is due, to the microsecond.
pub async fn a_timer_is_never_committed_before_it_is_due(world: &mut World) {
    world.planned("task", vec![due("k", world.now + SECOND)]).await;
    let timer = world.timers().await.remove(0);
    world.advance(SECOND - Duration::from_micros(1));
    let early = world.commit(vec![(&timer, skip("early"))]).await;
    assert_eq!(early.outcomes, [Outcome::Left(LeftOut::NotDue)]);
    assert_eq!(world.timers().await, std::slice::from_ref(&timer));
    world.advance(Duration::from_micros(1));
    let in_time = world.commit(vec![(&timer, skip("due"))]).await;
    assert_eq!(in_time.outcomes, [Outcome::Skipped("due".into())]);
    assert!(world.timers().await.is_empty());
    world.balanced().await;
}

/// A decision as of an instant is not committed before that instant by the store's clock; a
/// rejected commit does not use up its mark.
pub async fn what_was_decided_for_later_is_not_committed_before(world: &mut World) {
    world.write(vec![thing("t", 1), thing("u", 1)]).await;
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let ahead = world.now + SECOND;
    let entry = world.entry(&item, apply(Vec::new(), vec![set_n("t", 2)]));
    let batch = Batch { as_of: ahead, ..world.batch(vec![entry]) };
    let early = world.store().commit(&batch).await.unwrap();
    assert_eq!(early.outcomes, [Outcome::Left(LeftOut::NotDue)]);
    assert_eq!(world.only("task").await, item);
    world.advance(SECOND - Duration::from_micros(1));
    let early = world.store().commit(&batch).await.unwrap();
    assert_eq!(early.outcomes, [Outcome::Left(LeftOut::NotDue)]);
    let n = world.rows("things", &["n"]).await;
    assert_eq!(n, [[Value::Integer(1)], [Value::Integer(1)]]);
    world.advance(Duration::from_micros(1));
    let in_time = world.store().commit(&batch).await.unwrap();
    assert_eq!(in_time.outcomes, [Outcome::Committed]);
    let n = world.rows("things", &["n"]).await;
    assert_eq!(n, [[Value::Integer(2)], [Value::Integer(1)]]);
    world.balanced().await;
}

/// A timer fires once.
pub async fn a_timer_is_acknowledged_once(world: &mut World) {
    world.planned("task", vec![due("k", world.now)]).await;
    let timer = world.timers().await.remove(0);
    let twice = world.commit(vec![(&timer, skip("a")), (&timer, skip("b"))]).await;
    assert_eq!(twice.outcomes, [Outcome::Skipped("a".into()), Outcome::Left(LeftOut::NotThere)]);
    let late = world.commit(vec![(&timer, skip("c"))]).await;
    assert_eq!(late.outcomes, [Outcome::Left(LeftOut::NotThere)]);
    world.balanced().await;
}

/// Timers are read by due time, in pages.
pub async fn timers_are_read_in_the_order_of_their_due_times(world: &mut World) {
    let at = |seconds| world.now + SECOND * seconds;
    let found = vec![due("c", at(3)), due("a", at(1)), due("b2", at(2)), due("b1", at(2))];
    world.planned("task", found).await;
    let all = world.timers().await;
    let keys: Vec<_> = all.iter().map(|t| t.item.identity.key.as_str()).collect();
    assert_eq!(keys, ["a", "b2", "b1", "c"]);
    let (mut paged, mut after) = (Vec::new(), None);
    loop {
        let page = world.store().read_timers(None, None, after, 1).await.unwrap();
        let Some(timer) = page.last() else { break };
        let Source::Timer(id) = timer.source else { panic!("a timer: {timer:?}") };
        after = Some((timer.run_at, id));
        paged.extend(page);
    }
    assert_eq!(paged, all);
    let wanted = [all[0].item.partition];
    let some = world.store().read_timers(None, Some(&wanted), None, ALL).await.unwrap();
    assert!(some.contains(&all[0]));
    assert!(some.iter().all(|timer| timer.item.partition == wanted[0]));
}

/// Timers of selected tasks are read without those of others, however many and early these are.
pub async fn what_waits_is_read_by_task(world: &mut World) {
    let at = |seconds| world.now + SECOND * seconds;
    let many = (0..5).map(|n| due(&format!("early {n}"), at(n))).collect();
    world.planned("another", many).await;
    world.planned("task", vec![due("late", at(60))]).await;
    let keys = |waiting: Vec<Waiting>| -> Vec<String> {
        waiting.into_iter().map(|waiting| waiting.item.identity.key).collect()
    };
    let (one, none) = ([task("task")], [task("nobody's")]);
    let timers = async |tasks: &[TaskName]| {
        keys(world.store().read_timers(Some(tasks), None, None, 2).await.unwrap())
    };
    assert_eq!(timers(&one).await, ["late"]);
    assert_eq!(timers(&[task("another"), task("task")]).await, ["early 0", "early 1"]);
    assert!(timers(&none).await.is_empty() && timers(&[]).await.is_empty());
    world.settle(candidate("again"), retry(at(1), 1, "later")).await;
    let retries = async |tasks: &[TaskName]| {
        keys(world.store().read_retries(Some(tasks), None, None, 2).await.unwrap())
    };
    assert_eq!(retries(&one).await, ["again"]);
    assert!(retries(&none).await.is_empty());
}

/// Due times before 1970 are valid.
pub async fn a_timer_may_be_due_before_the_epoch(world: &mut World) {
    world.planned("task", vec![due("k", Time(-1)), due("l", Time::EPOCH)]).await;
    let all = world.timers().await;
    assert_eq!(all.iter().map(|t| t.run_at).collect::<Vec<_>>(), [Time(-1), Time::EPOCH]);
    let item = &all[0];
    world.commit(vec![(item, skip("due long ago"))]).await;
    assert_eq!(world.timers().await.len(), 1);
}

/// An item that failed waits with its counters and errors until its time.
pub async fn a_retry_keeps_counters_and_errors(world: &mut World) {
    let run_at = world.now + SECOND * 10;
    let outcome = world.settle(candidate("k"), retry(run_at, 1, "first")).await;
    assert_eq!(outcome.outcomes, [Outcome::Retried(run_at)]);
    let first = world.retries().await.remove(0);
    assert_eq!((first.run_at, first.item.attempts), (run_at, 1));
    assert_eq!(first.item.errors, ["first"]);

    // The host decides about back-off: the store commits a retry before its time.
    let again = world.now + SECOND;
    world.commit(vec![(&first, retry(again, 2, "second"))]).await;
    let second = world.retries().await.remove(0);
    assert_eq!((second.run_at, second.item.attempts), (again, 2));
    assert_eq!(second.item.errors, ["first", "second"]);
    assert_eq!(second.item.run, first.item.run);
    assert_eq!(second.item.payload, first.item.payload);
    assert!(world.history().await.is_empty(), "a retry is no end");
    let audit = world.balanced().await;
    assert_eq!((audit.rows[0].counted.planned, audit.rows[0].counted.pending), (1, 1));
}

/// An acknowledgement of an earlier attempt cannot hit a later one.
pub async fn a_retry_of_a_retry_has_another_id(world: &mut World) {
    world.settle(candidate("k"), retry(world.now, 1, "first")).await;
    let first = world.retries().await.remove(0);
    world.commit(vec![(&first, retry(world.now, 2, "second"))]).await;
    let stale = world.commit(vec![(&first, skip("stale"))]).await;
    assert_eq!(stale.outcomes, [Outcome::Left(LeftOut::NotThere)]);
    assert_eq!(world.retries().await.len(), 1);
}

/// A timer that failed goes to the retries and keeps its due time.
pub async fn a_timer_that_fails_becomes_a_retry_of_the_same_identity(world: &mut World) {
    world.planned("task", vec![due("k", world.now)]).await;
    let timer = world.timers().await.remove(0);
    world.commit(vec![(&timer, retry(world.now, 1, "failed"))]).await;
    let retry = world.retries().await.remove(0);
    assert_eq!(retry.item.identity, timer.item.identity);
    let run = world.run("task").await;
    let again = world.plan("task", run, vec![due("k", world.now)]).await;
    assert_eq!(again.deduplicated, 1);
}

/// Retries are read by time, in whatever order they were written.
pub async fn retries_are_read_in_the_order_of_their_times(world: &mut World) {
    for (key, seconds) in [("c", 3), ("a", 1), ("b", 2)] {
        world.settle(candidate(key), retry(world.now + SECOND * seconds, 1, "later")).await;
    }
    let all = world.retries().await;
    let keys: Vec<_> = all.iter().map(|t| t.item.identity.key.as_str()).collect();
    assert_eq!(keys, ["a", "b", "c"]);
    let Source::Retry(id) = all[0].source else { panic!("a retry: {:?}", all[0]) };
    let rest =
        world.store().read_retries(None, None, Some((all[0].run_at, id)), ALL).await.unwrap();
    assert_eq!(rest, all[1..]);
    let none = world.store().read_retries(None, Some(&[]), None, ALL).await.unwrap();
    assert!(none.is_empty());
}
