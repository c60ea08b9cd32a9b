//! Images of rows as the database stores them, on stores whose tables have columns that are not mapped.

use std::sync::Arc;

use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard, ReadSet, RowRange};
use besom_core::value::{Field, Value};
use besom_ports::store::Outcome;

use crate::conformance::World;
use crate::conformance::tables::{fields, text};
use crate::conformance::world::{apply, candidate};
use crate::undone_rows::{latest, undo};

/// Guards and changes of the thing `t`, one item each.
fn ways() -> Vec<(&'static str, Vec<Guard>, Vec<Change>)> {
    let things = || "things".to_owned();
    let key = || vec![text("t")];
    let one = || fields([("n", Value::Integer(2))]);
    let update = || Change::Update { collection: things(), key: key(), fields: one() };
    let delete = || Change::Delete { collection: things(), key: key() };
    let n = |comparison| Condition::of("n", comparison, Value::Integer(1));
    let seen = || Guard::Columns {
        collection: things(),
        key: key(),
        conditions: vec![n(Comparison::Equal)],
    };
    let exists =
        || Guard::Exists(Filter { collection: things(), conditions: vec![n(Comparison::AtLeast)] });
    let range = || {
        Arc::new(RowRange {
            collection: things(),
            index: Some("by_n".into()),
            rows: 10,
            ..RowRange::default()
        })
    };
    let set = Arc::new(ReadSet { collection: things(), prefix: Vec::new(), rest: vec![key()] });
    let upsert = fields([("id", text("t")), ("title", text("new"))]);
    vec![
        ("update", vec![], vec![update()]),
        ("guarded update", vec![seen()], vec![update()]),
        ("update beside another guard", vec![seen(), exists()], vec![update()]),
        (
            "increment",
            vec![],
            vec![Change::Increment { collection: things(), key: key(), fields: one() }],
        ),
        ("upsert", vec![], vec![Change::Upsert { collection: things(), fields: upsert }]),
        ("delete", vec![], vec![delete()]),
        ("guarded delete", vec![seen()], vec![delete()]),
        ("read set", vec![Guard::Complete(Arc::clone(&set))], vec![Change::DeleteReadSet(set)]),
        ("delete of a range", vec![], vec![Change::DeleteRange(range())]),
        (
            "update of a range",
            vec![],
            vec![Change::UpdateRange { range: range(), fields: one(), increments: vec![] }],
        ),
        ("guarded range", vec![exists()], vec![Change::DeleteRange(range())]),
    ]
}

/// Every way to change a row keeps it with all its columns, as they are stored. `product` runs a statement as the
/// product: `row` inserts the thing `t` of tenant `a` with 1 as its `n`.
pub async fn every_change_keeps_the_row_as_it_is_stored(
    world: &World,
    product: impl AsyncFn(&str),
    row: &str,
    stored: &[(&str, Value)],
) {
    for (way, guards, changes) in ways() {
        product(row).await;
        let committed = world.settle(candidate(way), apply(guards, changes)).await;
        assert_eq!(committed.outcomes, [Outcome::Committed], "{way}");
        let [image] = world.latest_images().await.try_into().expect("one image");
        let expected: Vec<Field> =
            stored.iter().map(|(n, value)| Field::new(*n, value.clone())).collect();
        assert_eq!(image.stored, expected, "{way}");
        // What is mapped is read as a task reads it.
        assert_eq!(image.key, [text("t")], "{way}");
        let row = image.row.expect("a row");
        let n = row.iter().find(|field| field.name == "n").map(|field| &field.value);
        assert_eq!(n, Some(&Value::Integer(1)), "{way}");
        // It comes back as it was, column by column.
        let undone = undo(world, latest(world).await, &[]).await;
        assert_eq!((undone.rows, undone.reason), (1, None), "{way}");
        let delete = Change::Delete { collection: "things".into(), key: vec![text("t")] };
        world.settle(candidate("again"), apply(vec![], vec![delete])).await;
        let [image] = world.latest_images().await.try_into().expect("one image");
        assert_eq!(image.stored, expected, "{way}, undone");
    }
}
