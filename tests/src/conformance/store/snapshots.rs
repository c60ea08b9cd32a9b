//! Snapshots: one consistent view for all reads of an act.

use std::time::Duration;

use besom_core::proposal::{Change, Condition};
use besom_core::value::Value;
use besom_ports::store::{Error, Range};

use crate::conformance::World;
use crate::conformance::tables::{fields, full_thing, text, thing};
use crate::conformance::world::{apply, candidate, range, set_n, tenant};

const OPEN: Duration = Duration::from_secs(60);

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// An open view shows neither a later commit nor an operator's write.
pub async fn a_snapshot_does_not_see_later_commits(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    let (a, n) = (tenant("a"), names(&["n"]));
    let view = world.store().snapshot(OPEN).await.unwrap();
    // A database may fix its view at the first read only.
    let first = view.get_many(Some(&a), "things", &[vec![text("t")]], &n).await.unwrap();
    world.settle(candidate("k"), apply(vec![], vec![set_n("t", 2)])).await;
    world.write(vec![thing("u", 1)]).await;
    let again = view.get_many(Some(&a), "things", &[vec![text("t")]], &n).await.unwrap();
    assert_eq!((&first, &again), (&vec![Some(vec![Value::Integer(1)])], &first));
    let page = view.read_range(Some(&a), &range("things", None, &["id"])).await.unwrap();
    assert_eq!(page.rows, [[text("t")]]);
    let u = [Condition::equal("id", text("u"))];
    assert_eq!(view.count(Some(&a), "things", &u, 9).await.unwrap(), 0);
    drop(view);
    assert_eq!(world.rows("things", &["n"]).await.len(), 2);
}

/// Rows are in the order of the keys, and columns in the requested order.
pub async fn rows_are_read_by_key_in_the_order_asked_for(world: &mut World) {
    let full = Change::Insert { collection: "things".into(), fields: full_thing("full", 5) };
    world.write(vec![thing("t", 1), full]).await;
    let view = world.store().snapshot(OPEN).await.unwrap();
    let keys = [vec![text("full")], vec![text("missing")], vec![text("t")], vec![text("full")]];
    let columns = names(&["n", "id", "flag", "n"]);
    let rows = view.get_many(Some(&tenant("a")), "things", &keys, &columns).await.unwrap();
    let n = Value::Integer;
    let full = || Some(vec![n(5), text("full"), Value::Bool(false), n(5)]);
    let bare = Some(vec![n(1), text("t"), Value::Null, n(1)]);
    assert_eq!(rows, [full(), None, bare, full()]);
    let none = view.get_many(Some(&tenant("a")), "things", &[], &columns).await.unwrap();
    assert!(none.is_empty());
}

/// Reads return rows of their tenant only.
pub async fn a_read_sees_the_rows_of_its_tenant_only(world: &mut World) {
    world.write_as(&[(Some(tenant("b")), thing("t", 1))]).await;
    let view = world.store().snapshot(OPEN).await.unwrap();
    let (a, b) = (tenant("a"), tenant("b"));
    let key = [vec![text("t")]];
    let id = names(&["id"]);
    for (tenant, found) in [(&a, false), (&b, true)] {
        let rows = view.get_many(Some(tenant), "things", &key, &id).await.unwrap();
        assert_eq!(rows[0].is_some(), found, "{tenant}");
        let count = view.count(Some(tenant), "things", &[], 9).await.unwrap();
        assert_eq!(count, u32::from(found), "{tenant}");
        let page = view.read_range(Some(tenant), &range("things", None, &["id"])).await.unwrap();
        assert_eq!(page.rows.len(), usize::from(found), "{tenant}");
    }
    assert_eq!(view.count(None, "things", &[], 9).await.unwrap(), 1, "none means all tenants");
}

/// Rows that conditions exclude count as examined: a page ends at the limit, and the next one
/// continues after them.
pub async fn a_page_ends_where_so_many_rows_were_looked_at(world: &mut World) {
    let things = (0..10).map(|n| thing(&format!("t{n}"), n)).collect();
    world.write(things).await;
    let view = world.store().snapshot(OPEN).await.unwrap();
    let mut rare = range("things", None, &["id"]);
    rare.conditions = vec![Condition::equal("n", Value::Integer(9))];
    rare.scan_max = 4;
    let (mut looked, mut found) = (Vec::new(), Vec::new());
    loop {
        let page = view.read_range(Some(&tenant("a")), &rare).await.unwrap();
        looked.push(page.scanned);
        found.extend(page.rows);
        match page.next {
            Some(next) => rare.after = Some(next),
            None => break,
        }
    }
    assert_eq!((looked, found), (vec![4, 4, 2], vec![vec![text("t9")]]));
}

/// Without a tenant, a key that rows of several tenants have identifies none of them.
pub async fn a_key_of_several_tenants_is_not_read_without_a_tenant(world: &mut World) {
    for name in ["a", "b"] {
        world.write_as(&[(Some(tenant(name)), thing("t", 1))]).await;
    }
    let view = world.store().snapshot(OPEN).await.unwrap();
    let (key, id) = ([vec![text("t")]], names(&["id"]));
    let found = view.get_many(None, "things", &key, &id).await;
    assert!(matches!(found, Err(Error::Invalid(_))), "{found:?}");
    let of_one = view.get_many(Some(&tenant("a")), "things", &key, &id).await.unwrap();
    assert_eq!(of_one, [Some(vec![text("t")])]);
}

/// A name that the mapping lacks is an invalid request.
pub async fn a_read_of_what_is_not_mapped_is_invalid(world: &mut World) {
    let view = world.store().snapshot(OPEN).await.unwrap();
    let a = tenant("a");
    let key = [vec![text("t")]];
    let id = names(&["id"]);
    let colour = names(&["colour"]);
    let invalid = |result: Result<(), Error>| {
        assert!(matches!(result, Err(Error::Invalid(_))), "{result:?}");
    };
    invalid(view.get_many(Some(&a), "gone", &key, &id).await.map(drop));
    invalid(view.get_many(Some(&a), "things", &key, &colour).await.map(drop));
    invalid(view.get_many(Some(&a), "things", &[vec![]], &id).await.map(drop));
    invalid(view.get_many(Some(&a), "things", &[vec![Value::Integer(1)]], &id).await.map(drop));
    invalid(view.read_range(Some(&a), &range("gone", None, &["id"])).await.map(drop));
    invalid(view.read_range(Some(&a), &range("things", Some("gone"), &["id"])).await.map(drop));
    invalid(view.read_range(Some(&a), &range("things", None, &["colour"])).await.map(drop));
    let condition = Condition::equal("n", text("one"));
    invalid(view.count(Some(&a), "things", &[condition], 9).await.map(drop));
    for (range, has_tenants) in
        [(range("things", Some("by_flag"), &[]), true), (range("settings", None, &[]), false)]
    {
        let column = if has_tenants { "flag" } else { "name" };
        assert_eq!(view.bounded(&range).unwrap(), (column.to_owned(), has_tenants));
    }
    invalid(view.bounded(&range("things", Some("gone"), &[])).map(drop));
    let whole = Range { prefix: vec![text("t")], ..range("things", None, &[]) };
    invalid(view.bounded(&whole).map(drop));
}

/// The size of a read's result is bounded, however few rows it names. The error is distinct from
/// all others, and the snapshot stays open.
pub async fn a_read_returns_so_many_bytes_and_no_more(world: &mut World) {
    const KIB: usize = 1 << 10;
    let large = |id: &str, bytes: usize| {
        let data = Value::Bytes(vec![7; bytes]);
        let fields = fields([("id", text(id)), ("title", text(id)), ("data", data)]);
        Change::Insert { collection: "things".into(), fields }
    };
    world.write((0..40).map(|at| large(&format!("m{at:02}"), 60 * KIB)).collect()).await;
    world.write(vec![large("x", 300 * KIB), thing("z", 1)]).await;
    let view = world.store().snapshot(OPEN).await.unwrap();
    view.read_at_most(200 * KIB as u64);
    let (a, columns) = (tenant("a"), names(&["data"]));
    let read = async |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|&key| vec![text(key)]).collect();
        view.get_many(Some(&a), "things", &keys, &columns).await
    };
    let refused = |answer: Error| match answer {
        Error::TooLarge(said) => assert!(said.contains("`read_bytes`"), "{said}"),
        other => panic!("{other:?}"),
    };
    assert_eq!(read(&["m00", "m01", "z"]).await.unwrap().len(), 3);
    // A row that is named several times counts each time, and a single row may exceed the limit.
    refused(read(&["m00"; 100]).await.unwrap_err());
    refused(read(&["x"]).await.unwrap_err());
    let every: Vec<String> = (0..40).map(|at| format!("m{at:02}")).collect();
    let every: Vec<&str> = every.iter().map(String::as_str).collect();
    refused(read(&every).await.unwrap_err());

    // A page of a range ends there.
    let whole = range("things", None, &["data"]);
    let (mut rows, mut after) = (0, None);
    let ended = loop {
        let range = Range { after: after.take(), ..whole.clone() };
        match view.read_range(Some(&a), &range).await {
            Ok(page) => {
                assert!(page.rows.len() <= 4, "{} rows of 60 KiB", page.rows.len());
                rows += page.rows.len();
                after = page.next;
                assert!(after.is_some(), "the largest row was passed over");
            }
            Err(error) => break error,
        }
    };
    refused(ended);
    assert!((37..=40).contains(&rows), "{rows} rows before the one that is too large");
    for limit in [1, 30, 100] {
        let count = view.count(Some(&a), "things", &[], limit).await.unwrap();
        assert_eq!(count, limit.min(42), "counted up to a limit");
    }
    view.read_at_most(u64::MAX);
    assert_eq!(read(&every).await.unwrap().len(), 40);
}
