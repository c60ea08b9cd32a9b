//! Rows of a range that the database refuses to change, on stores whose tables have foreign keys.

use std::sync::Arc;

use besom_core::proposal::{Change, Guard, RowRange};
use besom_core::value::{Row, Value};
use besom_ports::store::Outcome;
use besom_record::NAMED_MAX;

use crate::conformance::World;
use crate::conformance::tables::{child, collections, dependent, fields, parent, text};
use crate::conformance::world::{apply, candidate};
use crate::undone_rows::{latest, undo};

const PARENTS: u64 = 60;

fn name(number: u64) -> String {
    format!("p{number:02}")
}

fn all() -> Arc<RowRange> {
    Arc::new(RowRange { collection: "parents".into(), rows: 1_000, ..RowRange::default() })
}

/// Parents, some of which are kept by a child.
async fn write(world: &World, kept: &[u64]) {
    world.write((0..PARENTS).map(|number| parent(&name(number))).collect()).await;
    world.write(kept.iter().map(|number| child(&name(*number), 1, "x")).collect()).await;
}

/// Whatever the number of rows that the database refuses, all others are changed, and each is counted and kept.
pub async fn refused_rows_of_a_range_stay_alone(world: &World) {
    let every: Vec<u64> = (0..PARENTS).collect();
    for (round, kept) in [&[7][..], &[0, 31, 59], &[], &every].into_iter().enumerate() {
        write(world, kept).await;
        let delete = apply(vec![], vec![Change::DeleteRange(all())]);
        let committed = world.settle(candidate(&format!("k{round}")), delete).await;
        match &committed.outcomes[..] {
            [Outcome::Committed] => assert!(kept.len() < every.len()),
            [Outcome::Kept] => assert_eq!(kept.len(), every.len(), "no row could be deleted"),
            other => panic!("{kept:?}: {other:?}"),
        }
        let left = world.rows("parents", &["id"]).await;
        let expected: Vec<Row> = kept.iter().map(|number| vec![text(&name(*number))]).collect();
        assert_eq!(left, expected);
        let row = world.history().await.pop().unwrap();
        assert_eq!(row.rows, PARENTS - kept.len() as u64);
        if row.rows > 0 {
            assert_eq!(world.latest_images().await.len() as u64, row.rows);
        }
        match (kept.len(), row.reason) {
            (0, reason) => assert_eq!(reason, None),
            (count, Some(said)) => {
                let rows = if count == 1 { "1 row".to_owned() } else { format!("{count} rows") };
                assert!(said.starts_with(&format!("{rows} could not be changed")), "{said}");
                // Each is named, up to a bound.
                let is_named = |number: &&u64| said.contains(&format!("({:?})", name(**number)));
                let named = kept.iter().filter(is_named).count();
                assert_eq!(named, count.min(NAMED_MAX as usize), "{said}");
                let more = format!("; and {} more", count - named);
                assert_eq!(said.ends_with(&more), count > named, "{said}");
                assert!(said.to_lowercase().contains("foreign key"), "{said}");
                // The rows that a key keeps are found at once, with the table that refers to them.
                assert!(said.contains("\"children\""), "{said}");
            }
            (count, None) => panic!("{count} rows without a reason"),
        }
        clear(world, kept).await;
    }
    world.balanced().await;
}

/// Beside another change or a guard, a row that the database refuses fails the item, which changes nothing.
pub async fn what_depends_on_all_rows_fails_with_one(world: &World) {
    write(world, &[7]).await;
    let exists = Guard::Columns {
        collection: "parents".into(),
        key: vec![text(&name(7))],
        conditions: vec![],
    };
    let range = || Change::DeleteRange(all());
    for (at, (guards, changes)) in
        [(vec![exists], vec![range()]), (vec![], vec![range(), parent("new")])]
            .into_iter()
            .enumerate()
    {
        let committed = world.settle(candidate(&format!("k{at}")), apply(guards, changes)).await;
        let [Outcome::Dead(said)] = &committed.outcomes[..] else { panic!("{committed:?}") };
        assert!(format!("{said:?}").to_lowercase().contains("foreign key"), "{said:?}");
        assert_eq!(world.rows("parents", &["id"]).await.len() as u64, PARENTS);
    }
    world.balanced().await;
}

/// The same when columns are set: here by a trigger that refuses one row.
pub async fn a_row_that_cannot_be_set_stays_alone(world: &World) {
    write(world, &[]).await;
    let fields = fields([("title", text("new")), ("total", Value::Integer(1))]);
    let update = Change::UpdateRange { range: all(), fields, increments: vec![] };
    let committed = world.settle(candidate("set"), apply(vec![], vec![update])).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    let rows = world.rows("parents", &["id", "total"]).await;
    let old: Vec<&Row> = rows.iter().filter(|row| row[1] == Value::Integer(0)).collect();
    assert_eq!(old, [&vec![text("p13"), Value::Integer(0)]]);
    let row = world.history().await.pop().unwrap();
    assert_eq!((row.rows, world.latest_images().await.len()), (PARENTS - 1, 59));
    assert!(row.reason.as_deref().unwrap_or_default().contains("p13 stays"), "{row:?}");
    world.balanced().await;
}

/// The same where nothing can be added: to null, and beyond 64 bits.
pub async fn a_row_that_cannot_be_added_to_stays_alone(world: &World) {
    write(world, &[]).await;
    let total = |number, total| Change::Update {
        collection: "parents".into(),
        key: vec![text(&name(number))],
        fields: fields([("total", total)]),
    };
    let full = Value::Integer(i64::MAX - 1);
    world
        .write(vec![total(3, Value::Null), total(20, full.clone()), total(21, full.clone())])
        .await;
    let before = world.rows("parents", &["id", "title", "total"]).await;
    let update = Change::UpdateRange {
        range: all(),
        fields: fields([("title", text("new"))]),
        increments: fields([("total", Value::Integer(2))]),
    };
    let committed = world.settle(candidate("added"), apply(vec![], vec![update])).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    let rows = world.rows("parents", &["id", "title", "total"]).await;
    let (stayed, added): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row[2] != Value::Integer(2));
    assert_eq!(stayed, [&before[3], &before[20], &before[21]]);
    assert!(added.iter().all(|row| row[1] == text("new")), "{added:?}");
    let row = world.history().await.pop().unwrap();
    assert_eq!((row.rows, world.latest_images().await.len()), (PARENTS - 3, 57));
    let reason = row.reason.unwrap_or_default();
    assert!(reason.starts_with("3 rows could not be changed: "), "{reason}");
    let undone = undo(world, latest(world).await, &[]).await;
    assert_eq!((undone.rows, undone.reason), (PARENTS - 3, None));
    assert_eq!(world.rows("parents", &["id", "title", "total"]).await, before);
    world.balanced().await;
}

/// Rows that a trigger refuses (`p05` and `p40` in the same words, `p13` in others) are named with these, whether others
/// of their item are changed or none.
pub async fn refused_rows_are_named_with_the_words_of_the_database(world: &World) {
    write(world, &[]).await;
    let range = || apply(vec![], vec![Change::DeleteRange(all())]);
    let committed = world.settle(candidate("some"), range()).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    let reason = world.history().await.pop().unwrap().reason.unwrap_or_default();
    let dead = world.settle(candidate("none"), range()).await;
    let [Outcome::Dead(error)] = &dead.outcomes[..] else { panic!("{dead:?}") };
    for said in [&reason, error] {
        assert!(said.contains("3 rows could not be changed: (\"p05\"), (\"p40\"): "), "{said}");
        let (same, other) = said.split_once("; (\"p13\"): ").expect("other words");
        assert!(same.contains("never") && other.contains("not yet"), "{said}");
    }
    assert_eq!(world.rows("parents", &["id"]).await.len(), 3);
    world.balanced().await;
}

async fn clear(world: &World, kept: &[u64]) {
    let children = kept.iter().map(|number| Change::Delete {
        collection: "children".into(),
        key: vec![text(&name(*number)), Value::Integer(1)],
    });
    let parents = kept.iter().map(|number| Change::Delete {
        collection: "parents".into(),
        key: vec![text(&name(*number))],
    });
    world.write(children.chain(parents).collect()).await;
}

/// A row that a trigger of the product keeps (`p13`) without an error is told, and not called held by others.
pub async fn a_row_that_is_kept_is_told(world: &World) {
    // Triggers are looked for with the mapping.
    world.store().set_collections(collections());
    write(world, &[]).await;
    let range = || apply(vec![], vec![Change::DeleteRange(all())]);
    let committed = world.settle(candidate("range"), range()).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(world.rows("parents", &["id"]).await, [[text("p13")]]);
    let row = world.history().await.pop().unwrap();
    let reason = row.reason.unwrap_or_default();
    assert_eq!((row.rows, world.latest_images().await.len()), (PARENTS - 1, 59));
    assert!(reason.contains("1 row could not") && reason.contains("a trigger"), "{reason}");
    let alone = world.settle(candidate("only"), range()).await;
    let [Outcome::Dead(said)] = &alone.outcomes[..] else { panic!("{alone:?}") };
    assert!(format!("{said:?}").contains("a trigger"), "{said:?}");
    world.balanced().await;
}

/// A row that a trigger of the product keeps (`p13`) stays with what refers to it; the others go with theirs.
pub async fn a_row_that_is_kept_stays_with_its_dependants(world: &World) {
    world.store().set_collections(dependent());
    write(world, &[7, 13, 31]).await;
    let delete = |id: u64| {
        let key = vec![text(&name(id))];
        vec![Change::Delete { collection: "parents".into(), key }]
    };
    let alone = world.settle(candidate("alone"), apply(vec![], delete(13))).await;
    assert!(matches!(&alone.outcomes[..], [Outcome::Dead(_)]), "{alone:?}");
    assert_eq!(world.rows("children", &["parent"]).await.len(), 3);
    let range = apply(vec![], vec![Change::DeleteRange(all())]);
    let committed = world.settle(candidate("range"), range).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    let left: Vec<Row> = vec![vec![text("p13")]];
    assert_eq!(world.rows("parents", &["id"]).await, left);
    assert_eq!(world.rows("children", &["parent"]).await, left);
    let row = world.history().await.pop().unwrap();
    assert_eq!(row.rows, PARENTS - 1 + 2);
    assert!(row.reason.is_some_and(|said| said.contains("1 row could not be changed")));
    assert_eq!(world.latest_images().await.len() as u64, row.rows);
    world.balanced().await;
}

/// A row that cannot be inserted into the other table stays, and the others are moved.
pub async fn a_row_that_cannot_be_moved_stays(world: &World) {
    let thing = |id: u64| crate::conformance::tables::thing(&name(id), 1);
    world.write((0..PARENTS).map(thing).collect()).await;
    let taken = fields([("id", text(&name(9))), ("title", text("taken"))]);
    world.write(vec![Change::Insert { collection: "archived".into(), fields: taken }]).await;
    let range = RowRange { collection: "things".into(), rows: 1_000, ..RowRange::default() };
    let moved = Change::MoveRange { range: Arc::new(range), into: "archived".into() };
    let committed = world.settle(candidate("move"), apply(vec![], vec![moved])).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(world.rows("things", &["id"]).await, [vec![text(&name(9))]]);
    assert_eq!(world.rows("archived", &["id"]).await.len() as u64, PARENTS);
    let row = world.history().await.pop().unwrap();
    assert_eq!(row.rows, PARENTS - 1);
    assert!(row.reason.is_some_and(|said| said.contains("1 row could not be changed")));
    assert_eq!(world.latest_images().await.len() as u64, 2 * (PARENTS - 1));
    world.balanced().await;
}

/// A table that lacks a column of the rows is no fault of an item: the commit is refused, with the fix. `product` runs
/// a statement as the product.
pub async fn rows_are_not_moved_without_a_column(world: &World, product: impl AsyncFn(&str)) {
    world.write(vec![crate::conformance::tables::thing("t", 1)]).await;
    product("ALTER TABLE things ADD more TEXT DEFAULT 'more'").await;
    let range = RowRange { collection: "things".into(), rows: 10, ..RowRange::default() };
    let moved = || Change::MoveRange { range: Arc::new(range.clone()), into: "archived".into() };
    let said = world.refusal(candidate("moved"), apply(vec![], vec![moved()])).await;
    assert!(said.contains("has no column \"more\": ALTER TABLE"), "{said}");
    assert_eq!(world.rows("things", &["id"]).await.len(), 1);
    product("ALTER TABLE archived ADD more TEXT").await;
    let item = world.only("task").await;
    let committed = world.commit(vec![(&item, apply(vec![], vec![moved()]))]).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(world.rows("things", &["id"]).await.len(), 0);
    let [image, absent] = world.latest_images().await.try_into().expect("two images");
    let more = image.stored.iter().find(|field| field.name == "more");
    assert_eq!(more.map(|field| &field.value), Some(&text("more")));
    assert_eq!(absent.key, image.key);
}
