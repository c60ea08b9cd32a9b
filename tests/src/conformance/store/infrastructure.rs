//! Failures of the infrastructure consume no attempt, and unknown results are looked up.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use besom_core::value::Value;
use besom_ports::store::{Error, Outcome};

use crate::conformance::tables::thing;
use crate::conformance::world::{apply, candidate, set_n, skip};
use crate::conformance::{Fault, World};

/// The result of a commit can be looked up by its mark, also after a restart.
pub async fn a_commit_is_found_by_its_mark(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let batch = world.batch(vec![world.entry(&item, skip("no"))]);
    let committed = world.store().commit(&batch).await.unwrap();
    assert_eq!(world.store().find_commit(batch.id).await.unwrap(), Some(committed.clone()));
    world.reopen().await;
    assert_eq!(world.store().find_commit(batch.id).await.unwrap(), Some(committed));
    assert_eq!(world.store().find_commit(world.mark()).await.unwrap(), None);
}

/// A mark that was not found is abandoned: a late copy of the batch is refused.
pub async fn a_mark_that_was_not_found_is_given_up(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let batch = world.batch(vec![world.entry(&item, skip("no"))]);
    assert_eq!(world.store().find_commit(batch.id).await.unwrap(), None);
    let late = world.store().commit(&batch).await;
    assert!(matches!(late, Err(Error::Invalid(_))), "{late:?}");
    assert_eq!(world.only("task").await, item);
    assert_eq!(world.store().find_commit(batch.id).await.unwrap(), None);
}

/// A batch that is sent twice is applied once.
pub async fn a_known_mark_is_not_applied_again(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let batch = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
    let first = world.store().commit(&batch).await.unwrap();
    assert_eq!(first.outcomes, [Outcome::Committed]);
    world.write(vec![set_n("t", 5)]).await;
    assert_eq!(world.store().commit(&batch).await.unwrap(), first);
    assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(5)]]);
    assert_eq!(world.history().await.len(), 1);
    world.balanced().await;
}

/// After an unknown result the lookup returns whether the batch was committed.
pub async fn an_unknown_result_is_found_out(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    for (fault, n) in [(Fault::UnknownNotApplied, 1), (Fault::UnknownApplied, 2)] {
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let batch = world.batch(vec![world.entry(&item, apply(vec![], vec![set_n("t", 2)]))]);
        world.fixture.fail_next_commit(fault);
        let unknown = world.store().commit(&batch).await;
        assert!(matches!(unknown, Err(Error::Unknown(_))), "{unknown:?}");
        let found = world.store().find_commit(batch.id).await.unwrap();
        assert_eq!(found.is_some(), fault == Fault::UnknownApplied, "{fault:?}");
        assert_eq!(world.log("task").await.is_empty(), found.is_some());
        assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(n)]]);
        world.balanced().await;
    }
}

/// The result of a future that is polled so often at most; none: it was dropped before.
async fn polled<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// Wherever a commit is left, the lookup returns whether it was committed, and nothing is applied
/// later.
pub async fn a_commit_that_nobody_waits_for_is_looked_up(world: &mut World) {
    world.write(vec![thing("t", 0)]).await;
    for n in 1..=24 {
        world.planned("task", vec![candidate("k")]).await;
        let item = world.only("task").await;
        let entry = || world.entry(&item, apply(vec![], vec![set_n("t", n)]));
        let batch = world.batch(vec![entry()]);
        let done = polled(n as usize, world.store().commit(&batch)).await;
        let found = world.store().find_commit(batch.id).await.unwrap();
        if let Some(done) = done {
            assert_eq!(found, Some(done.unwrap()), "{n}");
        }
        let expected = if found.is_some() { n } else { n - 1 };
        assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(expected)]], "{n}");
        assert_eq!(world.log("task").await.is_empty(), found.is_some(), "{n}");
        if found.is_none() {
            let again = world.store().commit(&world.batch(vec![entry()])).await.unwrap();
            assert_eq!(again.outcomes, [Outcome::Committed], "{n}");
        }
        world.balanced().await;
    }
}

/// Nothing is changed, no attempt is counted, and the next commit succeeds.
pub async fn a_store_that_is_busy_or_away_costs_no_attempt(world: &mut World) {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    for fault in [Fault::Busy, Fault::Unavailable] {
        world.fixture.fail_next_commit(fault);
        let batch = world.batch(vec![world.entry(&item, skip("no"))]);
        let failed = world.store().commit(&batch).await;
        match fault {
            Fault::Busy => assert!(matches!(failed, Err(Error::Busy(_))), "{failed:?}"),
            _ => assert!(matches!(failed, Err(Error::Unavailable(_))), "{failed:?}"),
        }
        assert_eq!(world.only("task").await, item);
    }
    world.commit(vec![(&item, skip("no"))]).await;
    world.balanced().await;
}

/// Everything that was acknowledged survives a restart.
pub async fn everything_survives_a_restart(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.planned("task", vec![candidate("a"), candidate("b")]).await;
    let items = world.log("task").await;
    world.commit(vec![(&items[0], apply(vec![], vec![set_n("t", 2)]))]).await;
    let (history, audit) = (world.history().await, world.balanced().await);
    world.reopen().await;
    assert_eq!(world.history().await, history);
    assert_eq!(world.balanced().await, audit);
    assert_eq!(world.only("task").await, items[1]);
    assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(2)]]);
}
