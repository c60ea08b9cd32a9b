//! A batch with every decision: each entry ends as its decision says.

use besom_core::proposal::Settle;
use besom_core::value::{Field, Value};
use besom_ports::store::{Decision, LeftOut, Outcome};

use crate::conformance::World;
use crate::conformance::tables::{text, thing};
use crate::conformance::world::{
    apply, candidate, dead, due, in_one_stream, n_is, proposal, retry, set_n, skip,
};

/// An item of the log, a timer and a retry, of two tasks, in one commit.
pub async fn one_batch_mixes_tasks_streams_timers_and_retries(world: &mut World) {
    world.write(vec![thing("t", 1), thing("u", 1)]).await;
    world.settle(candidate("again"), retry(world.now, 1, "failed")).await;
    let again = world.retries().await.remove(0);
    let one = world.planned("one", in_one_stream(&["a", "b", "c"])).await;
    world.planned("two", vec![candidate("x"), due("now", world.now)]).await;
    let log = world.log("one").await;
    let other = world.only("two").await;
    let timer = world.timers().await.remove(0);
    let later = world.now + std::time::Duration::from_secs(5);
    let committed = world
        .commit(vec![
            (&log[0], apply(vec![n_is("t", 1)], vec![set_n("t", 2)])),
            (&other, skip("nothing to do")),
            (&log[1], retry(later, 1, "later")),
            (&timer, dead("never")),
            (&again, apply(vec![n_is("u", 9)], vec![set_n("u", 2)])),
            (&log[2], dead("broken")),
        ])
        .await;
    let expected = [
        Outcome::Committed,
        Outcome::Skipped("nothing to do".into()),
        Outcome::Retried(later),
        Outcome::Dead("never".into()),
        Outcome::Skipped("guard".into()),
        Outcome::Dead("broken".into()),
    ];
    assert_eq!(committed.outcomes, expected);
    assert_eq!(committed.at, world.now);
    assert!(committed.runs_ended.contains(&one));
    let audit = world.balanced().await;
    let pending: u64 = audit.rows.iter().map(|row| row.counted.pending).sum();
    assert_eq!(pending, 1);
}

/// A failed guard can retry the item, with its counters.
pub async fn a_failed_guard_goes_on_as_its_decision_says(world: &mut World) {
    let run_at = world.now + std::time::Duration::from_secs(1);
    let again = Settle::Retry { run_at, attempts: 0, guard_retries: 3, reason: "changed".into() };
    let decision = Decision::Apply {
        proposal: proposal(vec![n_is("missing", 1)], vec![]),
        on_guard_failed: again,
        on_violation: Settle::Dead { attempts: 1, reason: "violation".into() },
        undo: true,
    };
    let committed = world.settle(candidate("k"), decision).await;
    assert_eq!(committed.outcomes, [Outcome::Retried(run_at)]);
    let retry = world.retries().await.remove(0);
    assert_eq!((retry.item.attempts, retry.item.guard_retries), (0, 3));
    assert_eq!(retry.item.errors, ["changed"]);
    world.balanced().await;
}

/// A violation can be retried as well; the reason has the database's message.
pub async fn a_violation_goes_on_as_its_decision_says(world: &mut World) {
    let again =
        Settle::Retry { run_at: world.now, attempts: 1, guard_retries: 0, reason: "bad".into() };
    let decision = Decision::Apply {
        proposal: proposal(vec![], vec![set_n("missing", 1)]),
        on_guard_failed: Settle::Dead { attempts: 1, reason: "guard".into() },
        on_violation: again,
        undo: true,
    };
    let committed = world.settle(candidate("k"), decision).await;
    assert_eq!(committed.outcomes, [Outcome::Retried(world.now)]);
    let error = world.retries().await.remove(0).item.errors.remove(0);
    assert!(error.starts_with("bad: ") && error.len() > 5, "{error}");
}

/// The history row of an item has the plugin's notes.
pub async fn notes_are_kept_with_the_history_of_a_commit(world: &mut World) {
    let notes = vec![
        Field::new("bytes", Value::Integer(12)),
        Field::new("digest", Value::Bytes(vec![1, 2])),
        Field::new("ratio", Value::Float(0.5)),
        Field::new("none", Value::Null),
        Field::new("text", text("\u{1f9f9}")),
    ];
    let mut noted = proposal(vec![], vec![]);
    noted.notes = notes.clone();
    let decision = Decision::Apply {
        proposal: noted,
        on_guard_failed: Settle::Dead { attempts: 1, reason: "guard".into() },
        on_violation: Settle::Dead { attempts: 1, reason: "violation".into() },
        undo: true,
    };
    world.settle(candidate("k"), decision).await;
    let row = world.history().await.remove(0);
    assert_eq!((row.outcome.as_str(), row.notes), ("committed", notes));
}

/// An empty batch, or one whose entries are all left out, is still a commit.
pub async fn an_empty_batch_commits_nothing(world: &mut World) {
    let nothing = world.batch(vec![]);
    assert!(world.store().commit(&nothing).await.unwrap().outcomes.is_empty());
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    world.commit(vec![(&item, skip("done"))]).await;
    let gone = world.commit(vec![(&item, apply(vec![], vec![thing("t", 1)]))]).await;
    assert_eq!(gone.outcomes, [Outcome::Left(LeftOut::NotThere)]);
    assert!(world.rows("things", &["id"]).await.is_empty());
}

/// A commit of many due items.
pub async fn a_batch_may_hold_a_thousand_items(world: &mut World) {
    let keys: Vec<String> = (0..1_000).map(|n| format!("share-{n:04}")).collect();
    world.write(keys.iter().map(|key| thing(key, 0)).collect()).await;
    world.planned("task", keys.iter().map(|key| due(key, world.now)).collect()).await;
    let timers = world.timers().await;
    assert_eq!(timers.len(), 1_000);
    let decide = |key: &str| apply(vec![n_is(key, 0)], vec![set_n(key, 1)]);
    let decisions = timers.iter().map(|t| (t, decide(&t.item.identity.key))).collect();
    let committed = world.commit(decisions).await;
    assert!(committed.outcomes.iter().all(|outcome| *outcome == Outcome::Committed));
    let rows = world.rows("things", &["n"]).await;
    assert!(rows.iter().all(|row| row[0] == Value::Integer(1)));
    world.balanced().await;
}
