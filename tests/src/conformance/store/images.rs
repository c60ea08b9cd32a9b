//! Before-images: what a commit changed can be put back.

use std::collections::BTreeMap;

use besom_core::proposal::{Change, Settle};
use besom_core::queue::ROW_CHANGES_MAX;
use besom_core::value::{Field, Value};
use besom_ports::store::{BeforeImage, Decision};

use crate::conformance::World;
use crate::conformance::tables::{fields, full_thing, text, thing};
use crate::conformance::world::{apply, candidate, proposal, set_n, skip, tenant};

/// Every column of a thing.
pub(super) const COLUMNS: [&str; 12] = [
    "id",
    "title",
    "n",
    "ratio",
    "data",
    "at",
    "flag",
    "doc",
    "reference",
    "price",
    "born",
    "most",
];

/// All things by id, each as names and values.
async fn things(world: &World) -> BTreeMap<String, Vec<(String, Value)>> {
    let rows = world.rows("things", &COLUMNS).await;
    rows.into_iter()
        .map(|row| {
            let mut columns: Vec<_> = COLUMNS.iter().map(|c| (*c).to_owned()).zip(row).collect();
            let id = format!("{:?}", columns[0].1);
            columns.sort_by(|a, b| a.0.cmp(&b.0));
            (id, columns)
        })
        .collect()
}

/// Restores images, the latest first.
fn restore(rows: &mut BTreeMap<String, Vec<(String, Value)>>, images: &[BeforeImage]) {
    for image in images.iter().rev() {
        let id = format!("{:?}", image.key[0]);
        match &image.row {
            None => rows.remove(&id),
            Some(fields) => {
                let mut columns: Vec<_> =
                    fields.iter().map(|f: &Field| (f.name.to_string(), f.value.clone())).collect();
                columns.sort_by(|a, b| a.0.cmp(&b.0));
                rows.insert(id, columns)
            }
        };
    }
}

pub(super) fn full(id: &str, n: i64) -> Change {
    Change::Insert { collection: "things".into(), fields: full_thing(id, n) }
}

pub(super) fn delete(id: &str) -> Change {
    Change::Delete { collection: "things".into(), key: vec![text(id)] }
}

/// Things that [`changes`] change.
pub(super) fn changed() -> Vec<Change> {
    vec![full("a", 1), full("b", 2), full("c", 3), thing("d", 4)]
}

/// Every kind of change to single rows, some of the same row.
pub(super) fn changes() -> Vec<Change> {
    let upsert = |id| {
        let fields = fields([("id", text(id)), ("title", text("new")), ("n", Value::Null)]);
        Change::Upsert { collection: "things".into(), fields }
    };
    let increment = Change::Increment {
        collection: "things".into(),
        key: vec![text("d")],
        fields: fields([("n", Value::Integer(3))]),
    };
    vec![
        set_n("a", 10),
        set_n("a", 11),
        delete("b"),
        upsert("c"),
        upsert("e"),
        thing("f", 6),
        increment,
        delete("a"),
        delete("missing"),
        full("b", 20),
    ]
}

/// The images undo every change of an item, for every kind of column.
pub async fn images_restore_everything_an_item_changed(world: &mut World) {
    world.write(changed()).await;
    let before = things(world).await;
    world.settle(candidate("k"), apply(vec![], changes())).await;
    let mut rows = things(world).await;
    assert_ne!(rows, before);
    let images = world.latest_images().await;
    assert!(images.iter().all(|i| i.collection == "things" && i.tenant == Some(tenant("a"))));
    restore(&mut rows, &images);
    assert_eq!(rows, before);
}

/// The images of one row are as many as its changes, also if the item has inserted it.
pub async fn an_item_changes_one_row_as_often_as_it_may(world: &mut World) {
    world.write(vec![thing("old", 1)]).await;
    let before = things(world).await;
    let upsert = |id, n: usize| {
        let fields =
            fields([("id", text(id)), ("title", text("new")), ("n", Value::Integer(n as i64))]);
        Change::Upsert { collection: "things".into(), fields }
    };
    let changes = (0..ROW_CHANGES_MAX).flat_map(|n| [upsert("old", n), upsert("new", n)]);
    world.settle(candidate("k"), apply(vec![], changes.collect())).await;
    let mut rows = things(world).await;
    assert_eq!(rows.len(), 2);
    let images = world.latest_images().await;
    assert_eq!(images.len(), 2 * ROW_CHANGES_MAX);
    restore(&mut rows, &images);
    assert_eq!(rows, before);
}

/// The size of the images is recorded, and only if images are kept.
pub async fn images_are_kept_only_where_they_are_asked_for(world: &mut World) {
    world.write(vec![thing("t", 1)]).await;
    world.settle(candidate("kept"), apply(vec![], vec![set_n("t", 2)])).await;
    let without = Decision::Apply {
        proposal: proposal(vec![], vec![set_n("t", 3)]),
        on_guard_failed: Settle::Dead { attempts: 1, reason: "guard".into() },
        on_violation: Settle::Dead { attempts: 1, reason: "violation".into() },
        undo: false,
    };
    world.settle(candidate("not kept"), without).await;
    world.settle(candidate("skipped"), skip("no")).await;
    let store = world.store();
    let mut kept = Vec::new();
    for row in world.history().await {
        let images = store.before_images(row.id).await.unwrap().unwrap_or_default();
        kept.push((row.undo_bytes > 0, images.len()));
    }
    assert_eq!(kept, [(true, 1), (false, 0), (false, 0)]);
    assert_eq!(store.before_images(9_999).await.unwrap(), None);
    let depth = store.depths().await.unwrap().remove(0);
    assert_eq!(depth.undo_bytes, world.history().await[0].undo_bytes);
}
