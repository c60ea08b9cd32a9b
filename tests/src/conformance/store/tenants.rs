//! Tenants by skip scan: each once, in order, and only those with a row in the range.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::proposal::{Comparison, Condition};
use besom_core::value::Value;
use besom_ports::store::{Error, Range, ReadView};

use crate::conformance::World;
use crate::conformance::tables::thing;
use crate::conformance::world::{range, tenant};

fn pending(at_least: i64) -> Range {
    let lower = Some(Value::Integer(at_least));
    Range { lower, ..range("things", Some("by_n"), &["id"]) }
}

async fn view(world: &World) -> std::sync::Arc<dyn ReadView> {
    let things = [("a", 1), ("a", 2), ("b", 9), ("c", 1), ("c", 2), ("c", 3), ("d", 9), ("e", 1)];
    let changes: Vec<_> = things
        .iter()
        .enumerate()
        .map(|(at, (name, n))| (Some(tenant(name)), thing(&format!("t{at}"), *n)))
        .collect();
    world.write_as(&changes).await;
    world.store().snapshot(Duration::from_secs(60)).await.unwrap()
}

fn names(tenants: Vec<Tenant>) -> Vec<String> {
    tenants.iter().map(Tenant::to_string).collect()
}

/// Tenants without candidates are not returned, and none is returned twice.
pub async fn tenants_come_once_in_order_if_they_have_a_row(world: &mut World) {
    let view = view(world).await;
    for (range, expected) in [
        (range("things", Some("by_n"), &["id"]), vec!["a", "b", "c", "d", "e"]),
        (pending(2), vec!["a", "b", "c", "d"]),
        (pending(9), vec!["b", "d"]),
        (pending(10), vec![]),
        (Range { prefix: vec![Value::Integer(1)], lower: None, ..pending(0) }, vec!["a", "c", "e"]),
        (Range { upper: Some(Value::Integer(2)), ..pending(2) }, vec!["a", "c"]),
    ] {
        let found = view.tenants(&range, None, 100).await.unwrap();
        assert_eq!(names(found), expected, "{range:?}");
    }
}

/// The cycle continues after a tenant, whether it still exists or not.
pub async fn tenants_are_paged_by_the_last_one(world: &mut World) {
    let view = view(world).await;
    for (after, limit, expected) in [
        (None, 2, vec!["a", "b"]),
        (Some("b"), 2, vec!["c", "d"]),
        (Some("bb"), 2, vec!["c", "d"]),
        (Some("d"), 2, vec![]),
        (Some("z"), 2, vec![]),
    ] {
        let after = after.map(tenant);
        let found = view.tenants(&pending(2), after.as_ref(), limit).await.unwrap();
        assert_eq!(names(found), expected, "after {after:?}");
    }
}

/// Conditions inside the range count as well.
pub async fn tenants_need_a_row_that_meets_the_conditions(world: &mut World) {
    let view = view(world).await;
    let conditions = vec![Condition::of("id", Comparison::AtMost, Value::Text("t3".into()))];
    let found = view.tenants(&Range { conditions, ..pending(2) }, None, 100).await.unwrap();
    assert_eq!(names(found), ["a", "b"]);
}

/// A collection without tenants has none to cycle.
pub async fn a_collection_without_tenants_has_no_cycle(world: &mut World) {
    let view = view(world).await;
    let none = view.tenants(&range("settings", None, &["name"]), None, 10).await;
    assert!(matches!(none, Err(Error::Invalid(_))), "{none:?}");
}
