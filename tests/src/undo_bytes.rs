//! The bound of before-images, for stores that are opened with a small one.

use std::sync::Arc;

use besom_core::proposal::{Change, Guard, ReadSet};
use besom_core::value::Value;
use besom_ports::store::{Committed, Decision, Error, Outcome};

use crate::conformance::World;
use crate::conformance::tables::{counter, fields, text};
use crate::conformance::world::{apply, candidate, in_one_stream, n_is, set_n};

/// The bound of the stores, in bytes.
pub const MAX: u64 = 1 << 20;

/// The size of a row: there is room for one, and not for two.
const ROW: usize = 700_000;

/// Guards and changes for some rows.
type Way = fn(&[i64]) -> (Vec<Guard>, Vec<Change>);

const WAYS: [(&str, Way); 6] = [
    ("updates", |rows| (Vec::new(), each(rows, |row| set_n(&id(row), 1)))),
    ("guarded updates", |rows| {
        let guards = rows.iter().map(|row| n_is(&id(*row), 0)).collect();
        (guards, each(rows, |row| set_n(&id(row), 1)))
    }),
    ("updates and inserts", |rows| {
        let mut changes = each(rows, |row| set_n(&id(row), 1));
        changes.extend(each(rows, |row| counter(row, 0)));
        (Vec::new(), changes)
    }),
    ("upserts", |rows| (Vec::new(), each(rows, shrink))),
    ("deletes", |rows| (Vec::new(), each(rows, |row| delete("things", text(&id(row)))))),
    ("a read set", |rows| {
        let rest = rows.iter().map(|row| vec![text(&id(*row))]).collect();
        let set = ReadSet { collection: "things".into(), prefix: Vec::new(), rest };
        let set = Arc::new(set);
        (vec![Guard::Complete(Arc::clone(&set))], vec![Change::DeleteReadSet(set)])
    }),
];

fn id(row: i64) -> String {
    format!("row{row}")
}

fn each(rows: &[i64], change: fn(i64) -> Change) -> Vec<Change> {
    rows.iter().copied().map(change).collect()
}

fn shrink(row: i64) -> Change {
    let fields = fields([("id", text(&id(row))), ("title", text("")), ("n", Value::Integer(1))]);
    Change::Upsert { collection: "things".into(), fields }
}

fn delete(collection: &str, key: Value) -> Change {
    Change::Delete { collection: collection.into(), key: vec![key] }
}

/// Writes the large rows 1 and 2 instead of what is there.
async fn renew(world: &World) {
    let large = "x".repeat(ROW);
    let mut changes = Vec::new();
    for row in [1, 2] {
        changes.push(delete("things", text(&id(row))));
        changes.push(delete("counters", Value::Integer(row)));
        let (key, title) = (("id", text(&id(row))), ("title", text(&large)));
        let fields = fields([key, title, ("n", Value::Integer(0))]);
        changes.push(Change::Insert { collection: "things".into(), fields });
    }
    world.write(changes).await;
}

/// Only the rows that are changed count, not all that guards look at, however often.
pub async fn rows_of_guards_are_not_kept(world: &World) {
    renew(world).await;
    let changes = vec![set_n(&id(1), 1)];
    let guards = [1, 2, 1, 2, 1].map(|row| n_is(&id(row), 0)).into();
    let done = world.settle(candidate("key"), apply(guards, changes)).await;
    assert_eq!(done.outcomes, [Outcome::Committed]);
    let [image] = &world.latest_images().await[..] else { panic!("one image") };
    assert_eq!(image.key, [text(&id(1))]);
    world.balanced().await;
}

/// A batch with larger before-images is refused and changes nothing; its items alone are committed.
/// An item that is too large alone is refused as well, unless its images are not kept.
pub async fn the_images_of_a_commit_are_bounded(world: &World) {
    for (name, way) in WAYS {
        let decision = |rows: &[i64], kept: bool| {
            let (guards, changes) = way(rows);
            match apply(guards, changes) {
                Decision::Apply { proposal, on_guard_failed, on_violation, .. } => {
                    Decision::Apply { proposal, on_guard_failed, on_violation, undo: kept }
                }
                settled => settled,
            }
        };
        let refused = |done: Result<Committed, Error>| match done {
            Err(Error::TooLarge(words)) => assert!(words.contains("store.undo_bytes"), "{words}"),
            other => panic!("{name}: {other:?}"),
        };
        world.planned("task", in_one_stream(&["first", "second", "both"])).await;
        let [first, second, both] = world.log("task").await.try_into().expect("three items");
        renew(world).await;
        let pair = [(&first, [1]), (&second, [2])];
        let entries = pair.map(|(item, rows)| world.entry(item, decision(&rows, true)));
        refused(world.store().commit(&world.batch(entries.into())).await);
        for (item, rows) in pair {
            let done = world.commit(vec![(item, decision(&rows, true))]).await;
            assert_eq!(done.outcomes, [Outcome::Committed], "{name}");
            let [image, ..] = &world.latest_images().await[..] else { panic!("{name}: no image") };
            assert!(image.row.is_some(), "{name}");
        }
        renew(world).await;
        let entry = world.entry(&both, decision(&[1, 2], true));
        refused(world.store().commit(&world.batch(vec![entry])).await);
        let done = world.commit(vec![(&both, decision(&[1, 2], false))]).await;
        assert_eq!(done.outcomes, [Outcome::Committed], "{name}");
        world.balanced().await;
    }
}
