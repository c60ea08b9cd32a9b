//! Changes: each kind, every kind of value, within the item's tenant.

use besom_core::item::Candidate;
use besom_core::proposal::Change;
use besom_core::value::{Field, Value};
use besom_ports::store::Outcome;

use crate::conformance::World;
use crate::conformance::tables::{fields, full_thing, text, thing};
use crate::conformance::world::{apply, candidate, range, set_n, tenant};

async fn change(world: &World, changes: Vec<Change>) -> Outcome {
    world.settle(candidate("k"), apply(vec![], changes)).await.outcomes.remove(0)
}

async fn things(world: &World) -> Vec<(Value, Value, Value)> {
    let rows = world.rows("things", &["id", "title", "n"]).await;
    rows.into_iter().map(|row| <[Value; 3]>::try_from(row).expect("three columns").into()).collect()
}

fn row(id: &str, title: &str, n: i64) -> (Value, Value, Value) {
    (text(id), text(title), Value::Integer(n))
}

fn insert(fields: Vec<Field>) -> Change {
    Change::Insert { collection: "things".into(), fields }
}

fn upsert(fields: Vec<Field>) -> Change {
    Change::Upsert { collection: "things".into(), fields }
}

fn increment(id: &str, by: i64) -> Change {
    let fields = fields([("n", Value::Integer(by))]);
    Change::Increment { collection: "things".into(), key: vec![text(id)], fields }
}

/// Inserted values are read back unchanged.
pub async fn every_kind_of_value_comes_back_as_it_was(world: &mut World) {
    let full = full_thing("full", 5);
    let mut empty: Vec<Field> =
        full.iter().map(|f| Field::new(f.name.clone(), Value::Null)).collect();
    empty[0].value = text("null");
    empty[1].value = text("");
    let mut extreme = full_thing("odd", i64::MIN);
    for field in &mut extreme {
        match field.name.as_str() {
            "ratio" => field.value = Value::Float(-1.5e300),
            "data" => field.value = Value::Bytes(vec![]),
            "at" => field.value = Value::Timestamp(besom_core::time::Time(-1)),
            "price" => field.value = Value::Decimal("-0.000000000000000000001".into()),
            "reference" => field.value = Value::Uuid([0xff; 16]),
            _ => {}
        }
    }
    let all = [full, empty, extreme];
    let inserts = all.iter().cloned().map(insert).collect();
    assert_eq!(change(world, inserts).await, Outcome::Committed);
    let names: Vec<&str> = all[0].iter().map(|f| f.name.as_str()).collect();
    let rows = world.rows("things", &names).await;
    let values = |fields: &Vec<Field>| fields.iter().map(|f| f.value.clone()).collect::<Vec<_>>();
    assert_eq!(rows, [values(&all[0]), values(&all[1]), values(&all[2])]);
}

/// A column without a value is null, unless the database has a default.
pub async fn a_column_that_is_not_given_is_null(world: &mut World) {
    let bare = fields([("id", text("t")), ("title", text("x"))]);
    assert_eq!(change(world, vec![insert(bare)]).await, Outcome::Committed);
    assert_eq!(things(world).await, [(text("t"), text("x"), Value::Null)]);
}

/// An upsert inserts, or sets the named columns only.
pub async fn an_upsert_keeps_the_columns_it_does_not_name(world: &mut World) {
    let first = fields([("id", text("t")), ("title", text("x")), ("n", Value::Integer(1))]);
    assert_eq!(change(world, vec![upsert(first)]).await, Outcome::Committed);
    let second = fields([("id", text("t")), ("title", text("y"))]);
    assert_eq!(change(world, vec![upsert(second)]).await, Outcome::Committed);
    assert_eq!(things(world).await, [row("t", "y", 1)]);
}

/// An update sets the named columns of one row.
pub async fn an_update_touches_one_row_and_the_named_columns(world: &mut World) {
    world.write(vec![thing("t", 1), thing("u", 1)]).await;
    assert_eq!(change(world, vec![set_n("t", 2)]).await, Outcome::Committed);
    assert_eq!(things(world).await, [row("t", "t", 2), row("u", "u", 1)]);
}

/// Increments add positive and negative numbers.
pub async fn an_increment_adds(world: &mut World) {
    world.write(vec![thing("t", 40)]).await;
    assert_eq!(
        change(world, vec![increment("t", 5), increment("t", -3)]).await,
        Outcome::Committed
    );
    assert_eq!(things(world).await, [row("t", "t", 42)]);
}

/// Deleting a missing row is no error.
pub async fn a_delete_tolerates_a_row_that_is_gone(world: &mut World) {
    world.write(vec![thing("t", 1), thing("u", 1)]).await;
    let delete = || Change::Delete { collection: "things".into(), key: vec![text("t")] };
    assert_eq!(change(world, vec![delete(), delete()]).await, Outcome::Committed);
    assert_eq!(things(world).await, [row("u", "u", 1)]);
}

/// Changes take effect in their order.
pub async fn changes_take_effect_in_their_order(world: &mut World) {
    let delete = Change::Delete { collection: "things".into(), key: vec![text("t")] };
    let changes = vec![thing("t", 1), increment("t", 1), delete, thing("t", 7), set_n("t", 8)];
    assert_eq!(change(world, changes).await, Outcome::Committed);
    assert_eq!(things(world).await, [row("t", "t", 8)]);
}

/// An item of one tenant cannot reach another's rows.
pub async fn changes_stay_within_the_tenant_of_the_item(world: &mut World) {
    world.write_as(&[(Some(tenant("b")), thing("t", 1))]).await;
    world.write(vec![thing("t", 1)]).await;
    let delete = Change::Delete { collection: "things".into(), key: vec![text("t")] };
    assert_eq!(change(world, vec![set_n("t", 2), delete]).await, Outcome::Committed);
    let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
    let other = view.read_range(Some(&tenant("b")), &range("things", None, &["n"])).await.unwrap();
    assert_eq!(other.rows, [[Value::Integer(1)]]);
    assert!(things(world).await.is_empty());
}

/// Items of every tenant can change a collection without a tenant column.
pub async fn a_collection_without_tenants_is_shared(world: &mut World) {
    let set = |value| {
        let fields = fields([("name", text("x")), ("value", Value::Integer(value))]);
        Change::Upsert { collection: "settings".into(), fields }
    };
    assert_eq!(change(world, vec![set(1)]).await, Outcome::Committed);
    let of_b = Candidate { tenant: Some(tenant("b")), ..candidate("k") };
    world.settle(of_b, apply(vec![], vec![set(2)])).await;
    let of_none = Candidate { tenant: None, ..candidate("k") };
    assert_eq!(world.rows("settings", &["value"]).await, [[Value::Integer(2)]]);
    world.settle(of_none, apply(vec![], vec![set(3)])).await;
    assert_eq!(world.rows("settings", &["value"]).await, [[Value::Integer(3)]]);
}

/// Messages are written with the commit, in their order; without a commit, none is.
pub async fn messages_are_emitted_with_the_commit_only(world: &mut World) {
    let emit = |key: &str| Change::Emit {
        topic: "doc-changed".into(),
        key: key.into(),
        payload: vec![1, 0, 255],
    };
    let missing = set_n("missing", 1);
    assert!(matches!(change(world, vec![emit("no"), missing]).await, Outcome::Dead(_)));
    let guard = crate::conformance::world::n_is("missing", 1);
    world.settle(candidate("g"), apply(vec![guard], vec![emit("no")])).await;
    assert!(world.fixture.outbox().await.is_empty());
    world.settle(candidate("e"), apply(vec![], vec![emit("a"), emit("b")])).await;
    let message = |key: &str| ("doc-changed".to_owned(), key.to_owned(), vec![1, 0, 255]);
    assert_eq!(world.fixture.outbox().await, [message("a"), message("b")]);
}
