//! A row that violates a constraint or a type fails its own item only.

use besom_core::item::Candidate;
use besom_core::proposal::{Change, Condition, Guard};
use besom_core::value::{Field, Value};
use besom_ports::store::Outcome;

use crate::conformance::World;
use crate::conformance::tables::{fields, text, thing};
use crate::conformance::world::{apply, candidate, in_one_stream, set_n};

fn insert(fields: Vec<Field>) -> Change {
    Change::Insert { collection: "things".into(), fields }
}

fn update(field: &str, value: Value) -> Change {
    let fields = fields([(field, value)]);
    Change::Update { collection: "things".into(), key: vec![text("t")], fields }
}

fn increment(by: Value) -> Change {
    let fields = fields([("n", by)]);
    Change::Increment { collection: "things".into(), key: vec![text("t")], fields }
}

/// Changes that a database or a mapping refuses.
fn refused() -> Vec<(&'static str, Change)> {
    let settings = |key| Change::Delete { collection: "settings".into(), key };
    vec![
        ("a key that exists", thing("t", 1)),
        ("a key that is missing", insert(fields([("title", text("x"))]))),
        ("a column that may not be null", insert(fields([("id", text("u"))]))),
        ("the same by an update", update("title", Value::Null)),
        ("a row that is not there", set_n("missing", 1)),
        ("another kind", update("n", text("five"))),
        ("text for bytes", update("data", text("x"))),
        ("an integer for a timestamp", update("at", Value::Integer(5))),
        ("text for JSON", update("doc", text("{}"))),
        ("no number as a decimal", update("price", Value::Decimal("a lot".into()))),
        ("not a number", update("ratio", Value::Float(f64::NAN))),
        ("an unmapped column", update("colour", text("red"))),
        ("the tenant column", update("tenant_id", text("b"))),
        ("an unmapped collection", Change::Delete { collection: "gone".into(), key: vec![] }),
        ("a key with too few values", settings(vec![])),
        ("a key with too many values", settings(vec![text("a"), text("b")])),
        ("an increment beyond 64 bits", increment(Value::Integer(i64::MAX))),
        ("an increment by no integer", increment(Value::Float(1.0))),
        (
            "an update without columns",
            Change::Update { collection: "things".into(), key: vec![text("t")], fields: vec![] },
        ),
    ]
}

/// Earlier changes of the item are undone, and the reason names the violation.
pub async fn a_violation_fails_the_item_and_takes_its_changes_back(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    for (what, change) in refused() {
        let before = world.rows("things", &["id", "title", "n", "at"]).await;
        let decision = apply(vec![], vec![thing("first", 1), set_n("t", 9), change]);
        let committed = world.settle(candidate(what), decision).await;
        match &committed.outcomes[0] {
            Outcome::Dead(reason) => {
                let said = reason.strip_prefix("violation: ");
                assert!(said.is_some_and(|said| !said.is_empty()), "{what}: {reason}");
            }
            other => panic!("{what}: {other:?}"),
        }
        let after = world.rows("things", &["id", "title", "n", "at"]).await;
        assert_eq!(after, before, "{what}");
    }
    world.balanced().await;
}

/// An increment of NULL is a violation, because the result would silently be NULL.
pub async fn null_cannot_be_incremented(world: &mut World) {
    world.write(vec![thing("t", 1), update("n", Value::Null)]).await;
    let decision = apply(vec![], vec![increment(Value::Integer(1))]);
    let committed = world.settle(candidate("k"), decision).await;
    assert!(matches!(&committed.outcomes[0], Outcome::Dead(_)), "{committed:?}");
}

/// A guard that cannot be evaluated is a violation.
pub async fn a_guard_on_what_is_not_mapped_is_a_violation(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let on = |collection: &str, column: &str, value| Guard::Columns {
        collection: collection.into(),
        key: vec![text("t")],
        conditions: vec![Condition::equal(column, value)],
    };
    for guard in [
        on("gone", "n", Value::Integer(1)),
        on("things", "colour", text("red")),
        on("things", "n", text("one")),
    ] {
        let decision = apply(vec![guard.clone()], vec![set_n("t", 2)]);
        let committed = world.settle(candidate(&format!("{guard:?}")), decision).await;
        assert!(matches!(&committed.outcomes[0], Outcome::Dead(_)), "{guard:?} {committed:?}");
    }
    assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(1)]]);
}

/// An item without a tenant cannot change a collection with a tenant column.
pub async fn an_item_without_a_tenant_reaches_no_row_that_has_one(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let guard =
        Guard::Columns { collection: "things".into(), key: vec![text("t")], conditions: vec![] };
    for (key, decision) in [
        ("a", apply(vec![], vec![thing("u", 1)])),
        ("b", apply(vec![], vec![set_n("t", 2)])),
        ("c", apply(vec![guard], vec![])),
    ] {
        let found = Candidate { tenant: None, ..candidate(key) };
        let committed = world.settle(found, decision).await;
        assert!(matches!(&committed.outcomes[0], Outcome::Dead(_)), "{key}: {committed:?}");
    }
    assert_eq!(world.rows("things", &["n"]).await, [[Value::Integer(1)]]);
}

/// The other items of the stream and the batch are committed.
pub async fn a_violation_leaves_its_neighbours_alone(world: &mut World) {
    world.write(vec![thing("t", 1), thing("u", 1), thing("w", 1)]).await;
    world.planned("task", in_one_stream(&["a", "b", "c", "d"])).await;
    let items = world.log("task").await;
    let committed = world
        .commit(vec![
            (&items[0], apply(vec![], vec![set_n("t", 2)])),
            (&items[1], apply(vec![], vec![set_n("u", 2), update("n", text("five"))])),
            (&items[2], apply(vec![], vec![thing("w", 2)])),
            (&items[3], apply(vec![], vec![set_n("w", 2)])),
        ])
        .await;
    let kinds: Vec<bool> =
        committed.outcomes.iter().map(|outcome| *outcome == Outcome::Committed).collect();
    assert_eq!(kinds, [true, false, false, true], "{committed:?}");
    let n: Vec<Value> = world.rows("things", &["n"]).await.into_iter().flatten().collect();
    assert_eq!(n, [Value::Integer(2), Value::Integer(1), Value::Integer(2)]);
    assert!(world.log("task").await.is_empty(), "the cursor has passed them all");
    let counted = world.balanced().await.rows.remove(0).counted;
    assert_eq!((counted.committed, counted.dead), (2, 2));
}
