//! Guards: each comparison, null, rows that exist or are absent, and activity.

use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard};
use besom_core::time::Time;
use besom_core::value::Value;
use besom_ports::store::{Batch, Outcome};

use crate::conformance::World;
use crate::conformance::tables::{fields, full_thing, text, thing};
use crate::conformance::world::{apply, candidate, tenant};

use Comparison::{AtLeast, AtMost, Equal, NotEqual};

/// Commits one item under a guard; returns whether the guard held.
async fn holds(world: &World, guard: Guard) -> bool {
    let committed = world.settle(candidate("k"), apply(vec![guard.clone()], vec![])).await;
    match &committed.outcomes[0] {
        Outcome::Committed => true,
        Outcome::Skipped(reason) if reason == "guard" => false,
        other => panic!("{guard:?} is neither true nor false: {other:?}"),
    }
}

fn columns(id: &str, conditions: Vec<Condition>) -> Guard {
    Guard::Columns { collection: "things".into(), key: vec![text(id)], conditions }
}

fn condition(column: &str, comparison: Comparison, value: Value) -> Condition {
    Condition { column: column.into(), comparison, value }
}

fn filter(conditions: Vec<Condition>) -> Filter {
    Filter { collection: "things".into(), conditions }
}

/// Values below, equal to and above what `full_thing` has.
fn around(column: &str) -> Option<(Value, Value, Value)> {
    Some(match column {
        "n" => (Value::Integer(4), Value::Integer(5), Value::Integer(6)),
        "ratio" => (Value::Float(0.05), Value::Float(0.1), Value::Float(0.2)),
        "data" => {
            let bytes = |last| Value::Bytes(vec![0, 255, 10, last]);
            (Value::Bytes(vec![0, 255, 10]), bytes(0), bytes(1))
        }
        "at" => {
            let at = |micros: i64| Value::Timestamp(Time(1_700_000_000_123_456 + micros));
            (at(-1), at(0), at(1))
        }
        "title" => (text("Thing"), text("Thing\u{e9} \u{1f9f9}"), text("Thing\u{e9} \u{1f9fa}")),
        _ => return None,
    })
}

/// Every comparison, on every kind that has an order.
pub async fn comparisons_mean_what_they_say_for_every_ordered_kind(world: &mut World) {
    let row = Change::Insert { collection: "things".into(), fields: full_thing("t", 5) };
    world.write(vec![row]).await;
    for column in ["n", "ratio", "data", "at", "title"] {
        let (below, same, above) = around(column).expect("an ordered column");
        for (comparison, with_below, with_same, with_above) in [
            (Equal, false, true, false),
            (NotEqual, true, false, true),
            (AtLeast, true, true, false),
            (AtMost, false, true, true),
        ] {
            for (value, expected) in
                [(&below, with_below), (&same, with_same), (&above, with_above)]
            {
                let guard = columns("t", vec![condition(column, comparison, value.clone())]);
                assert_eq!(holds(world, guard.clone()).await, expected, "{guard:?}");
            }
        }
    }
}

/// Kinds without a useful order compare as equal or not.
pub async fn every_kind_can_be_compared_for_equality(world: &mut World) {
    let row = Change::Insert { collection: "things".into(), fields: full_thing("t", 5) };
    world.write(vec![row]).await;
    for (column, same, other) in [
        ("flag", Value::Bool(false), Value::Bool(true)),
        ("doc", Value::Json("{\"a\":[1, 2]}".into()), Value::Json("{}".into())),
        ("reference", Value::Uuid([7; 16]), Value::Uuid([8; 16])),
        ("price", Value::Decimal("12.50".into()), Value::Decimal("12.51".into())),
    ] {
        for (comparison, with_same) in [(Equal, true), (NotEqual, false)] {
            let guard = columns("t", vec![condition(column, comparison, same.clone())]);
            assert_eq!(holds(world, guard.clone()).await, with_same, "{guard:?}");
            let guard = columns("t", vec![condition(column, comparison, other.clone())]);
            assert_eq!(holds(world, guard.clone()).await, !with_same, "{guard:?}");
        }
    }
}

/// NULL equals NULL and nothing else, and is neither above nor below anything.
pub async fn null_equals_null_and_has_no_order(world: &mut World) {
    let nothing = fields([("id", text("none")), ("title", text("x")), ("n", Value::Null)]);
    let row = Change::Insert { collection: "things".into(), fields: nothing };
    world.write(vec![row, thing("one", 1)]).await;
    let one = || Value::Integer(1);
    for (id, comparison, value, expected) in [
        ("none", Equal, Value::Null, true),
        ("none", NotEqual, Value::Null, false),
        ("none", AtLeast, Value::Null, false),
        ("none", AtMost, Value::Null, false),
        ("none", Equal, one(), false),
        ("none", NotEqual, one(), true),
        ("none", AtLeast, one(), false),
        ("none", AtMost, one(), false),
        ("one", Equal, Value::Null, false),
        ("one", NotEqual, Value::Null, true),
        ("one", AtLeast, Value::Null, false),
        ("one", AtMost, Value::Null, false),
    ] {
        let guard = columns("none", vec![]);
        assert!(holds(world, guard).await);
        let guard = columns(id, vec![condition("n", comparison, value)]);
        assert_eq!(holds(world, guard.clone()).await, expected, "{guard:?}");
    }
}

/// A guard on a row requires that the row exists in the item's tenant.
pub async fn a_guard_on_columns_needs_the_row_in_its_tenant(world: &mut World) {
    world.write_as(&[(Some(tenant("b")), thing("t", 1))]).await;
    assert!(!holds(world, columns("t", vec![])).await);
    world.write(vec![thing("t", 1)]).await;
    assert!(holds(world, columns("t", vec![])).await);
    assert!(!holds(world, columns("u", vec![])).await);
    let two = vec![Condition::equal("n", Value::Integer(1)), Condition::equal("title", text("x"))];
    assert!(!holds(world, columns("t", two)).await, "all conditions hold, or the guard does not");
}

/// Rows of other tenants do not count.
pub async fn rows_exist_in_the_tenant_of_the_item(world: &mut World) {
    world.write_as(&[(Some(tenant("b")), thing("t", 1))]).await;
    let guard = || Guard::Exists(filter(vec![condition("n", AtLeast, Value::Integer(1))]));
    assert!(!holds(world, guard()).await);
    world.write(vec![thing("t", 1)]).await;
    assert!(holds(world, guard()).await);
    assert!(holds(world, Guard::Exists(filter(vec![]))).await);
    let none = vec![condition("n", AtLeast, Value::Integer(2))];
    assert!(!holds(world, Guard::Exists(filter(none))).await);
}

/// If one guard fails, no change of the item is applied.
pub async fn all_guards_hold_or_nothing_is_changed(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let guards = vec![columns("t", vec![]), columns("u", vec![]), columns("t", vec![])];
    let delete = Change::Delete { collection: "things".into(), key: vec![text("t")] };
    let committed = world.settle(candidate("k"), apply(guards, vec![delete])).await;
    assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())]);
    assert_eq!(world.rows("things", &["id"]).await.len(), 1);
    let row = world.history().await.remove(0);
    assert_eq!((row.outcome.as_str(), row.reason.as_deref()), ("skipped", Some("guard")));
    world.balanced().await;
}

/// The commit sees what was written after the item was read.
pub async fn a_guard_sees_what_was_written_before_the_commit(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    let decision = apply(
        vec![columns("t", vec![Condition::equal("n", Value::Integer(1))])],
        vec![crate::conformance::world::set_n("t", 9)],
    );
    world.write(vec![crate::conformance::world::set_n("t", 2)]).await;
    let committed = world.commit(vec![(&item, decision)]).await;
    assert_eq!(committed.outcomes, [Outcome::Skipped("guard".into())]);
    assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(2)]]);
}

async fn idle_batch(world: &World, key: &str) -> Batch {
    world.planned("task", vec![candidate("k")]).await;
    let item = world.only("task").await;
    world.batch(vec![world.entry(&item, apply(vec![Guard::Idle(key.into())], vec![]))])
}

/// Activity outside the store is read by the caller just before the commit.
pub async fn an_idle_guard_holds_for_what_the_caller_has_seen_idle(world: &mut World) {
    for (idle, expected) in [
        (vec![(0, "ws-1".to_owned())], Outcome::Committed),
        (vec![(1, "ws-1".to_owned())], Outcome::Skipped("guard".into())),
        (vec![(0, "ws-2".to_owned())], Outcome::Skipped("guard".into())),
        (vec![], Outcome::Skipped("guard".into())),
    ] {
        let batch = Batch { idle: idle.clone(), ..idle_batch(world, "ws-1").await };
        let committed = world.store().commit(&batch).await.unwrap();
        assert_eq!(committed.outcomes, [expected], "{idle:?}");
    }
}

/// Activity that is kept in the store is read again in the transaction.
pub async fn an_idle_guard_reads_the_activity_of_its_own_store(world: &mut World) {
    let seen = vec![(0, "ws-1".to_owned())];
    let minutes = |n: u64| std::time::Duration::from_secs(60 * n);
    let batch = idle_batch(world, "ws-1").await;
    let batch = Batch { activity_in_store: true, idle: seen.clone(), ..batch };
    let unknown = world.store().commit(&batch).await.unwrap();
    assert_eq!(unknown.outcomes, [Outcome::Skipped("guard".into())], "unknown is not idle");

    world.advance(minutes(10));
    let batch = Batch { activity_in_store: true, ..idle_batch(world, "ws-1").await };
    world.fixture.activity().connect("ws-1", "c").await.unwrap();
    let batch = Batch { idle: seen, ..batch };
    let active = world.store().commit(&batch).await.unwrap();
    assert_eq!(active.outcomes, [Outcome::Skipped("guard".into())]);

    world.fixture.activity().disconnect("ws-1", "c").await.unwrap();
    world.advance(minutes(10));
    let batch = Batch { activity_in_store: true, ..idle_batch(world, "ws-1").await };
    let idle = world.store().commit(&batch).await.unwrap();
    assert_eq!(idle.outcomes, [Outcome::Committed]);
}
