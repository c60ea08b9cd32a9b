//! Rows that are deleted with the row that they refer to.

use std::sync::Arc;

use besom_core::proposal::{Change, Comparison, Condition, Guard, ReadSet, RowRange};
use besom_core::value::{Row, Value};
use besom_ports::store::{BeforeImage, Outcome};

use crate::conformance::World;
use crate::conformance::tables::{child, dependent, fields, leaf, parent, text};
use crate::conformance::world::{apply, apply_to, candidate, tenant};

fn n(n: i64) -> Value {
    Value::Integer(n)
}

fn delete(id: &str) -> Change {
    Change::Delete { collection: "parents".into(), key: vec![text(id)] }
}

/// Three parents with two children each, one of them with two leaves; the same in another tenant.
async fn write(world: &World) {
    let mut changes = Vec::new();
    for id in ["p", "q", "r"] {
        changes.extend([parent(id), child(id, 1, "x"), child(id, 2, "y")]);
        changes.extend([leaf(&format!("{id}1"), id, 1), leaf(&format!("{id}2"), id, 1)]);
    }
    let theirs = changes.iter().map(|change| (Some(tenant("b")), change.clone()));
    world.write_as(&theirs.collect::<Vec<_>>()).await;
    world.write(changes).await;
}

/// The number of parents, children and leaves.
async fn left(world: &World) -> [usize; 3] {
    [
        world.rows("parents", &["id"]).await.len(),
        world.rows("children", &["seq"]).await.len(),
        world.rows("leaves", &["leaf"]).await.len(),
    ]
}

async fn clear(world: &World) {
    for tenant_of in ["a", "b"] {
        let of = tenant(tenant_of);
        for (table, key) in
            [("leaves", &["leaf"][..]), ("children", &["parent", "seq"]), ("parents", &["id"])]
        {
            let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
            let all = crate::conformance::world::range(table, None, key);
            let rows = view.read_range(Some(&of), &all).await.unwrap().rows;
            let gone = |key: Row| Change::Delete { collection: table.into(), key };
            let gone: Vec<_> = rows.into_iter().map(|row| (Some(of.clone()), gone(row))).collect();
            world.write_as(&gone).await;
        }
    }
}

fn names(images: &[BeforeImage]) -> Vec<&str> {
    images.iter().map(|image| image.collection.as_str()).collect()
}

/// However a row is deleted, what refers to it goes first, at every depth; each row is counted, and kept so that
/// rows come back in the reverse order.
pub async fn rows_go_with_the_row_that_they_refer_to(world: &mut World) {
    world.store().set_collections(dependent());
    let of = |id: &str| vec![text(id)];
    let set = |rest| Arc::new(ReadSet { collection: "parents".into(), prefix: vec![], rest });
    let range = |upper: &str, rows| {
        Change::DeleteRange(Arc::new(RowRange {
            collection: "parents".into(),
            upper: Some(text(upper)),
            rows,
            ..RowRange::default()
        }))
    };
    let seen = Guard::Columns {
        collection: "parents".into(),
        key: of("p"),
        conditions: vec![Condition::of("total", Comparison::Equal, n(0))],
    };
    let child_alone = Change::Delete { collection: "children".into(), key: vec![text("p"), n(1)] };
    let all = set(vec![of("p"), of("q"), of("r")]);
    for (way, guards, changes, expected) in [
        ("a row", vec![], vec![delete("p")], [2, 4, 4]),
        ("a row that a guard has seen", vec![seen], vec![delete("p")], [2, 4, 4]),
        ("a read set", vec![], vec![Change::DeleteReadSet(set(vec![of("p"), of("r")]))], [1, 2, 2]),
        (
            "a complete read set",
            vec![Guard::Complete(Arc::clone(&all))],
            vec![Change::DeleteReadSet(all)],
            [0, 0, 0],
        ),
        ("a range", vec![], vec![range("q", 100)], [1, 2, 2]),
        ("part of a range", vec![], vec![range("r", 1)], [2, 4, 4]),
        ("two changes", vec![], vec![delete("p"), range("q", 100)], [1, 2, 2]),
        ("a row with dependants of its own", vec![], vec![child_alone], [3, 5, 4]),
    ] {
        write(world).await;
        let before = left(world).await;
        let committed = world.settle(candidate(way), apply(guards, changes)).await;
        assert_eq!(committed.outcomes, [Outcome::Committed], "{way}");
        assert_eq!(left(world).await, expected, "{way}");
        let gone: Vec<usize> = before.iter().zip(expected).map(|(had, has)| had - has).collect();
        let rows: usize = gone.iter().sum();
        assert_eq!(world.history().await.last().unwrap().rows, rows as u64, "{way}");
        let images = world.latest_images().await;
        assert!(images.iter().all(|image| image.tenant == Some(tenant("a"))), "{way}");
        let names = names(&images);
        for (name, gone) in ["parents", "children", "leaves"].into_iter().zip(gone) {
            let kept = names.iter().filter(|found| **found == name).count();
            assert_eq!(kept, gone, "{way}: {name}");
        }
        // The last image comes back first, so what a row refers to is behind it.
        for (at, image) in images.iter().enumerate() {
            let row = image.row.as_ref().expect("a row");
            let parent = row.iter().find(|field| field.name == "parent").map(|field| &field.value);
            let is_parent = |other: &BeforeImage| {
                other.collection == "parents" && Some(&other.key[0]) == parent
            };
            if let Some(place) = images.iter().position(is_parent) {
                assert!(place > at, "{way}: {names:?}");
            }
        }
        let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
        let theirs = crate::conformance::world::range("leaves", None, &["leaf"]);
        let theirs = view.read_range(Some(&tenant("b")), &theirs).await.unwrap();
        assert_eq!(theirs.rows.len(), 6, "{way}");
        drop(view);
        clear(world).await;
    }
    world.balanced().await;
}

/// Rows that go with others are no rows of the range: they do not hide those that stay.
pub async fn rows_that_stay_are_counted_without_dependants(world: &mut World) {
    world.store().set_collections(dependent());
    write(world).await;
    let some = |upper: &str| {
        vec![Change::DeleteRange(Arc::new(RowRange {
            collection: "parents".into(),
            upper: Some(text(upper)),
            rows: 3,
            ..RowRange::default()
        }))]
    };
    world.settle(candidate("some"), apply_to(3, some("q"))).await;
    world.settle(candidate("all"), apply_to(1, some("r"))).await;
    let rows = world.history().await;
    let stayed: Vec<_> = rows.iter().map(|row| (row.rows, row.stayed())).collect();
    assert_eq!(stayed, [(10, Some(1)), (5, Some(0))]);
    world.balanced().await;
}

/// Items of one batch take effect one after the other, also where one deletes what another looks at.
pub async fn each_item_of_a_batch_takes_its_own_dependants(world: &mut World) {
    world.store().set_collections(dependent());
    write(world).await;
    let state = |id: &str, seq, state: &str| Change::Update {
        collection: "children".into(),
        key: vec![text(id), n(seq)],
        fields: fields([("state", text(state))]),
    };
    let exists =
        Guard::Columns { collection: "leaves".into(), key: vec![text("p1")], conditions: vec![] };
    let run = world.run("sweep").await;
    let all = ["set", "p", "q", "late"].map(candidate);
    world.plan("sweep", run, all.to_vec()).await;
    let waiting = world.log("sweep").await;
    let decisions = [
        apply(vec![], vec![state("p", 2, "set")]),
        apply(vec![exists.clone()], vec![delete("p")]),
        apply(vec![], vec![delete("q")]),
        apply(vec![exists], vec![state("r", 1, "late")]),
    ];
    let committed = world.commit(waiting.iter().zip(decisions).collect()).await;
    let [Outcome::Committed, Outcome::Committed, Outcome::Committed, Outcome::Skipped(_)] =
        &committed.outcomes[..]
    else {
        panic!("{committed:?}")
    };
    assert_eq!(left(world).await, [1, 2, 2]);
    let kept = world.history().await.into_iter().map(|row| row.rows).collect::<Vec<_>>();
    assert_eq!(kept, [1, 5, 5, 0]);
    world.balanced().await;
}

/// An item that fails leaves everything as it is, and other changes of a row do not touch what refers to it.
pub async fn what_goes_with_a_row_stays_with_it(world: &mut World) {
    world.store().set_collections(dependent());
    write(world).await;
    let missing = Guard::Columns {
        collection: "parents".into(),
        key: vec![text("gone")],
        conditions: vec![],
    };
    let skipped = world.settle(candidate("skipped"), apply(vec![missing], vec![delete("p")])).await;
    assert!(matches!(&skipped.outcomes[..], [Outcome::Skipped(_)]), "{skipped:?}");
    let title = fields([("title", text("new"))]);
    let update =
        Change::Update { collection: "parents".into(), key: vec![text("p")], fields: title };
    let dead =
        world.settle(candidate("dead"), apply(vec![], vec![delete("p"), update.clone()])).await;
    assert!(matches!(&dead.outcomes[..], [Outcome::Dead(_)]), "{dead:?}");
    let range = RowRange { collection: "parents".into(), rows: 10, ..RowRange::default() };
    let set = Change::UpdateRange {
        range: Arc::new(range),
        fields: fields([("total", n(7))]),
        increments: vec![],
    };
    let done = world.settle(candidate("set"), apply(vec![], vec![update, set])).await;
    assert_eq!(done.outcomes, [Outcome::Committed]);
    let none = world.settle(candidate("none"), apply(vec![], vec![delete("gone")])).await;
    assert_eq!(none.outcomes, [Outcome::Committed]);
    assert_eq!(left(world).await, [3, 6, 6]);
    world.balanced().await;
}
