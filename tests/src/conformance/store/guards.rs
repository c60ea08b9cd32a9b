//! Guards: each comparison, null, rows that exist or are absent, and activity.

use std::time::Duration;

use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard, Test};
use besom_core::time::Time;
use besom_core::value::Value;
use besom_ports::store::{Batch, Error, Outcome, Range};

use crate::conformance::World;
use crate::conformance::tables::{fields, full_thing, text, thing};
use crate::conformance::world::{apply, candidate, range, tenant};

use Comparison::{Above, AtLeast, AtMost, Below, Equal, NotEqual};

const OPEN: Duration = Duration::from_secs(30);

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
    Condition::of(column, comparison, value)
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
        "born" => (Value::Date(-2), Value::Date(-1), Value::Date(0)),
        "reference" => {
            let uuid =
                |first| Value::Uuid([&[first][..], &[7; 15]].concat().try_into().expect("16"));
            (uuid(6), uuid(7), uuid(0xf0))
        }
        "price" => {
            let price = |price: &str| Value::Decimal(price.into());
            (price("12.49"), price("12.50"), price("12.51"))
        }
        "title" => (text("Thing"), text("Thing\u{e9} \u{1f9f9}"), text("Thing\u{e9} \u{1f9fa}")),
        _ => return None,
    })
}

/// Every comparison, on every kind that has an order.
pub async fn comparisons_mean_what_they_say_for_every_ordered_kind(world: &mut World) {
    let row = Change::Insert { collection: "things".into(), fields: full_thing("t", 5) };
    world.write(vec![row]).await;
    for column in ["n", "ratio", "data", "at", "born", "title", "reference", "price"] {
        let (below, same, above) = around(column).expect("an ordered column");
        for (comparison, with_below, with_same, with_above) in [
            (Equal, false, true, false),
            (NotEqual, true, false, true),
            (AtLeast, true, true, false),
            (AtMost, false, true, true),
            (Below, false, false, true),
            (Above, true, false, false),
        ] {
            for (value, expected) in
                [(&below, with_below), (&same, with_same), (&above, with_above)]
            {
                let condition = condition(column, comparison, value.clone());
                let guard = columns("t", vec![condition.clone()]);
                assert_eq!(holds(world, guard.clone()).await, expected, "{guard:?}");
                let conditions = vec![condition];
                let range = Range { conditions, ..range("things", None, &["id"]) };
                let found = world.read(&range).await.expect("read").rows.len();
                assert_eq!(found, usize::from(expected), "{range:?}");
            }
        }
    }
    // False is below true, in an index as well.
    for (comparison, value, expected) in
        [(Below, true, true), (Below, false, false), (AtLeast, true, false), (AtMost, false, true)]
    {
        let guard = columns("t", vec![condition("flag", comparison, Value::Bool(value))]);
        assert_eq!(holds(world, guard.clone()).await, expected, "{guard:?}");
    }
    let read =
        Range { lower: Some(Value::Bool(true)), ..range("things", Some("by_flag"), &["id"]) };
    assert_eq!(world.read(&read).await.expect("read").rows.len(), 0);
    let read = Range { upper: Some(Value::Bool(false)), lower: None, ..read };
    assert_eq!(world.read(&read).await.expect("read").rows.len(), 1);
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
        ("none", Below, one(), false),
        ("none", Above, one(), false),
        ("one", Equal, Value::Null, false),
        ("one", NotEqual, Value::Null, true),
        ("one", AtLeast, Value::Null, false),
        ("one", AtMost, Value::Null, false),
        ("one", Below, Value::Null, false),
        ("one", Above, Value::Null, false),
    ] {
        let guard = columns("none", vec![]);
        assert!(holds(world, guard).await);
        let guard = columns(id, vec![condition("n", comparison, value)]);
        assert_eq!(holds(world, guard.clone()).await, expected, "{guard:?}");
    }
}

/// A list, a beginning and another column: in guards, in reads, and as the rows of a range.
pub async fn a_column_is_tested_by_lists_beginnings_and_other_columns(world: &mut World) {
    let row = Change::Insert { collection: "things".into(), fields: full_thing("t", 5) };
    let nothing = fields([("id", text("none")), ("title", text("")), ("n", Value::Null)]);
    let nothing = Change::Insert { collection: "things".into(), fields: nothing };
    world.write(vec![row, nothing]).await;
    let (n, null) = (Value::Integer, || Value::Null);
    let one_of = |values: &[Value]| Test::OneOf(values.to_vec());
    let none_of = |values: &[Value]| Test::NoneOf(values.to_vec());
    let begins = |text: &str| Test::StartsWith(text.to_owned());
    let than = |comparison, column: &str| Test::Column(comparison, column.to_owned());
    // Whether it holds for the row with values, and for the one without.
    for (column, test, expected) in [
        ("n", one_of(&[n(4), n(5)]), (true, false)),
        ("n", one_of(&[n(4), null()]), (false, true)),
        ("n", one_of(&[]), (false, false)),
        ("n", none_of(&[n(4), n(5)]), (false, true)),
        ("n", none_of(&[n(4), null()]), (true, false)),
        ("n", none_of(&[]), (true, true)),
        ("title", one_of(&[text("x"), text("Thing\u{e9} \u{1f9f9}")]), (true, false)),
        ("title", none_of(&[text("thing\u{e9} \u{1f9f9}")]), (true, true)),
        ("at", one_of(&[Value::Timestamp(Time(1_700_000_000_123_456))]), (true, false)),
        ("born", one_of(&[Value::Date(-1), Value::Date(3)]), (true, false)),
        ("reference", none_of(&[Value::Uuid([7; 16])]), (false, true)),
        ("title", begins("Thing"), (true, false)),
        ("title", begins("Thing\u{e9} \u{1f9f9}"), (true, false)),
        ("title", begins("Thing\u{e9} \u{1f9f9}."), (false, false)),
        ("title", begins("thing"), (false, false)),
        ("title", begins("hing"), (false, false)),
        ("title", begins("%"), (false, false)),
        ("title", begins(""), (true, true)),
        ("n", than(Below, "most"), (true, false)),
        ("n", than(AtMost, "most"), (true, false)),
        ("n", than(Equal, "most"), (false, true)),
        ("n", than(NotEqual, "most"), (true, false)),
        ("n", than(AtLeast, "most"), (false, false)),
        ("most", than(Above, "n"), (true, false)),
        ("title", than(NotEqual, "id"), (true, true)),
        ("title", than(Above, "id"), (false, false)),
        ("price", than(Equal, "price"), (true, true)),
    ] {
        let condition = Condition { column: column.to_owned(), test };
        for (id, expected) in [("t", expected.0), ("none", expected.1)] {
            let guard = columns(id, vec![condition.clone()]);
            assert_eq!(holds(world, guard).await, expected, "{id}: {condition:?}");
            let conditions = vec![Condition::equal("id", text(id)), condition.clone()];
            let guard = Guard::Exists(filter(conditions.clone()));
            assert_eq!(holds(world, guard).await, expected, "a row like {id}: {condition:?}");
            let view = world.store().snapshot(OPEN).await.expect("a snapshot");
            let count = view.count(Some(&tenant("a")), "things", &conditions, 9).await;
            assert_eq!(count.expect("counted"), u32::from(expected), "{id}: {condition:?}");
        }
        let range = Range { conditions: vec![condition.clone()], ..range("things", None, &["id"]) };
        let found = world.read(&range).await.expect("read").rows.len();
        let expected = usize::from(expected.0) + usize::from(expected.1);
        assert_eq!(found, expected, "{condition:?}");
    }
}

/// Columns of different kinds are not compared, and only a text begins with one.
pub async fn a_test_that_does_not_fit_its_column_is_refused(world: &mut World) {
    let view = world.store().snapshot(OPEN).await.expect("a snapshot");
    for (at, (column, test, words)) in [
        ("n", Test::Column(Below, "title".into()), "cannot be compared"),
        ("n", Test::Column(Below, "colour".into()), "colour"),
        ("n", Test::StartsWith("x".into()), "is no text"),
        ("doc", Test::Value(Below, Value::Json("{}".into())), "has no order"),
        ("doc", Test::Value(AtLeast, Value::Null), "has no order"),
        ("doc", Test::Column(Above, "doc".into()), "has no order"),
        ("n", Test::OneOf(vec![Value::Integer(1), text("x")]), "n"),
        ("colour", Test::NoneOf(vec![]), "colour"),
    ]
    .into_iter()
    .enumerate()
    {
        let condition = Condition { column: column.to_owned(), test };
        let conditions = std::slice::from_ref(&condition);
        match view.count(Some(&tenant("a")), "things", conditions, 1).await {
            Err(Error::Invalid(said)) => assert!(said.contains(words), "{condition:?}: {said}"),
            other => panic!("{condition:?}: {other:?}"),
        }
        let batch = apply(vec![columns("t", vec![condition.clone()])], vec![]);
        let committed = world.settle(candidate(&format!("k{at}")), batch).await;
        let outcome = &committed.outcomes[0];
        assert!(
            matches!(outcome, Outcome::Retried(_) | Outcome::Dead(_)),
            "{condition:?}: {outcome:?}"
        );
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

/// A guard on the number of rows, also after the items before it in the batch.
pub async fn at_least_so_many_rows_match(world: &mut World) {
    let many =
        |rows| Guard::AtLeast(filter(vec![condition("n", AtLeast, Value::Integer(2))]), rows);
    world.write_as(&[(Some(tenant("b")), thing("z", 9))]).await;
    assert!(holds(world, many(0)).await && !holds(world, many(1)).await);
    world.write(vec![thing("a", 1), thing("b", 2), thing("c", 3), thing("d", 4)]).await;
    for (rows, expected) in [(0, true), (1, true), (3, true), (4, false), (1_000, false)] {
        assert_eq!(holds(world, many(rows)).await, expected, "at least {rows}");
    }
    world.planned("task", ["sets", "two", "three"].map(candidate).to_vec()).await;
    let waiting = world.log("task").await;
    let set = |n| crate::conformance::world::set_n("a", n);
    let decisions = [
        apply(vec![], vec![crate::conformance::world::set_n("b", 1)]),
        apply(vec![many(2)], vec![set(0)]),
        apply(vec![many(3)], vec![set(-1)]),
    ];
    let committed = world.commit(waiting.iter().zip(decisions).collect()).await;
    let failed = Outcome::Skipped("guard".into());
    assert_eq!(committed.outcomes, [Outcome::Committed, Outcome::Committed, failed]);
    world.balanced().await;
}

/// A guard that no row has a key: in the item's tenant, and after the items before it in the batch.
pub async fn a_row_is_missing_in_the_tenant_of_the_item(world: &mut World) {
    let missing = |id: &str| Guard::Missing { collection: "things".into(), key: vec![text(id)] };
    world.write_as(&[(Some(tenant("b")), thing("t", 1))]).await;
    assert!(holds(world, missing("t")).await);
    world.write(vec![thing("t", 1), thing("u", 1)]).await;
    assert!(!holds(world, missing("t")).await);
    let all = ["deletes", "after a deletion", "inserts", "after an insertion"];
    world.planned("task", all.map(candidate).to_vec()).await;
    let waiting = world.log("task").await;
    let delete = Change::Delete { collection: "things".into(), key: vec![text("t")] };
    let decisions = [
        apply(vec![], vec![delete]),
        apply(vec![missing("t")], vec![crate::conformance::world::set_n("u", 2)]),
        apply(vec![], vec![thing("t", 3)]),
        apply(vec![missing("t")], vec![crate::conformance::world::set_n("u", 4)]),
    ];
    let committed = world.commit(waiting.iter().zip(decisions).collect()).await;
    let [Outcome::Committed, Outcome::Committed, Outcome::Committed, last] =
        &committed.outcomes[..]
    else {
        panic!("{committed:?}")
    };
    assert_eq!(last, &Outcome::Skipped("guard".into()));
    // A key of two columns, and one that has too few values.
    let child = |key| Guard::Missing { collection: "children".into(), key };
    assert!(holds(world, child(vec![text("p"), Value::Integer(1)])).await);
    let short = world.settle(candidate("short"), apply(vec![child(vec![text("p")])], vec![])).await;
    assert!(matches!(&short.outcomes[..], [Outcome::Dead(_)]), "{short:?}");
    world.balanced().await;
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
