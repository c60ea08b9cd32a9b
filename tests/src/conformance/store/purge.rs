//! Chosen rows are removed from what is kept of items, and the others stay.

use std::num::NonZeroU32;
use std::sync::Arc;

use besom_core::proposal::{Change, RowRange};
use besom_core::purge::NOTE;
use besom_core::undo::is_whole;
use besom_core::value::Value;
use besom_ports::store::{Applied, Command, CommandEffect, Place, Purge};

use super::images::{delete, full};
use crate::conformance::World;
use crate::conformance::tables::{child, dependent, parent, text, thing};
use crate::conformance::world::{LETTERS, apply, candidate};
use crate::undone_rows::{latest, rehearsed, undo};

/// Deletes these things as one item, and returns its number in the history.
async fn deleted(world: &World, key: &str, things: &[&str]) -> u64 {
    world.settle(candidate(key), apply(vec![], things.iter().map(|id| delete(id)).collect())).await;
    latest(world).await
}

/// The place of the rows with these ids; none: all rows.
async fn place(world: &World, history: u64, ids: &[&str]) -> Place {
    let images = world.store().before_images(history).await.unwrap().expect("they are kept");
    let row = world.history().await.into_iter().find(|row| row.id == history).expect("a row");
    let of = images.len() as u64;
    let mut place = Place { history, bytes: row.undo_bytes, of, ..Place::default() };
    for (at, image) in (0..).zip(&images) {
        if ids.iter().any(|id| image.key == [text(id)]) {
            place.add(at);
        }
    }
    place
}

async fn submitted(world: &World, places: Vec<Place>) -> (u64, CommandEffect) {
    let purge = Purge { places };
    let command = Command::Purge(purge.clone());
    let id = world.store().submit(&command, "ann", "erased on request").await.unwrap();
    let row = world.store().command(id).await.unwrap().unwrap();
    assert_eq!(row.command, command, "it is stored as it was asked");
    (id, CommandEffect::Purge(purge))
}

async fn step(world: &World, (id, effect): &(u64, CommandEffect), limit: NonZeroU32) -> Applied {
    let store = world.store();
    store
        .apply_command(&world.fence, &world.asked(*id).await, effect, "purged", limit)
        .await
        .unwrap()
}

async fn purged(world: &World, places: Vec<Place>) -> (Applied, String) {
    let asked = submitted(world, places).await;
    let applied = step(world, &asked, LETTERS).await;
    let row = world.store().command(asked.0).await.unwrap().unwrap();
    assert_eq!(row.applied_at, Some(world.now));
    (applied, row.result.expect("a result"))
}

async fn ids(world: &World, history: u64) -> Vec<Value> {
    let images = world.store().before_images(history).await.unwrap();
    images.into_iter().flatten().map(|image| image.key[0].clone()).collect()
}

/// The bytes that are counted, and those that the history tells.
async fn bytes(world: &World) -> (u64, u64) {
    let depths = world.store().depths().await.unwrap();
    let held = world.history().await.iter().map(|row| row.undo_bytes).sum();
    (depths.iter().map(|depth| depth.undo_bytes).sum(), held)
}

/// A purged row does not come back, the others do, and the undo says so; what the item was given goes with it.
pub async fn purged_rows_do_not_come_back_and_the_others_do(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2), full("c", 3)]).await;
    let item = deleted(world, "k", &["a", "b", "c"]).await;
    let given = world.store().kept(item).await.unwrap().expect("it is kept").given;
    assert!(given.is_some());
    let before = bytes(world).await;
    let (applied, result) = purged(world, vec![place(world, item, &["b"]).await]).await;
    assert_eq!((applied.purged.rows, &*result), (1, "purged: 1 row of 1 item"));
    assert_eq!(ids(world, item).await, [text("a"), text("c")]);
    let kept = world.store().kept(item).await.unwrap().expect("two rows are kept");
    assert_eq!((kept.rows, kept.purged, kept.given), (2, 1, None));
    let after = bytes(world).await;
    assert!(after.0 < before.0 && after.0 == after.1, "{before:?} {after:?}");
    world.balanced().await;
    let said = format!("1 row was {NOTE}");
    assert_eq!(rehearsed(world, item).await.notes, [&*said]);
    let undone = undo(world, item, &[]).await;
    assert_eq!((undone.rows, is_whole(undone.reason.as_deref())), (2, true));
    assert_eq!(undone.reason.as_deref(), Some(&*said));
    let rows = world.rows("things", &["id"]).await;
    assert_eq!(rows, [[text("a")], [text("c")]]);
    world.balanced().await;
}

/// A row that has referred to a purged one would belong to whoever has its key now. Rows of a collection of which none
/// was purged come back, whatever they refer to.
pub async fn what_belonged_to_a_purged_row_stays_away(world: &mut World) {
    world.store().set_collections(dependent());
    let family = |id: &str| [parent(id), child(id, 1, "x")];
    world.write(["p", "q"].iter().flat_map(|id| family(id)).collect()).await;
    let gone = |id: &str| Change::Delete { collection: "parents".into(), key: vec![text(id)] };
    world.settle(candidate("k"), apply(vec![], vec![gone("p"), gone("q")])).await;
    let item = latest(world).await;
    purged(world, vec![place(world, item, &["p"]).await]).await;
    // Somebody else has the key.
    world.write(vec![parent("p")]).await;
    let found = rehearsed(world, item).await;
    assert_eq!((found.rows, found.stay.len()), (2, 1));
    let why = "it belongs to a row of parents that is not part of this undo";
    assert!(found.stay[0].why.starts_with(why), "{:?}", found.stay);
    assert_eq!(undo(world, item, &[]).await.rows, 2);
    let children = world.rows("children", &["parent"]).await;
    assert_eq!(children, [[text("q")]]);
    world.balanced().await;
}

/// If all rows of an item go, nothing of it is kept; by their positions, or without any.
pub async fn nothing_is_kept_of_an_item_whose_rows_are_all_purged(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2), full("c", 3)]).await;
    let items = [deleted(world, "k", &["a", "b"]).await, deleted(world, "l", &["c"]).await];
    let places = vec![place(world, items[0], &["a", "b"]).await, place(world, items[1], &[]).await];
    let (applied, result) = purged(world, places).await;
    assert_eq!((applied.purged.items, &*result), (2, "purged: 3 rows of 2 items"));
    for item in items {
        assert_eq!(world.store().before_images(item).await.unwrap(), None);
        assert_eq!(world.store().kept(item).await.unwrap(), None);
    }
    assert_eq!(bytes(world).await, (0, 0));
    world.balanced().await;
}

/// A place of which something else is kept by now is left as it is, and the result says so.
pub async fn a_place_that_has_changed_since_is_left_as_it_is(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2), full("c", 3)]).await;
    let item = deleted(world, "k", &["a", "b", "c"]).await;
    let (first, last) = (place(world, item, &["a"]).await, place(world, item, &["c"]).await);
    purged(world, vec![first.clone()]).await;
    let asked = submitted(world, vec![last.clone()]).await;
    let applied = step(world, &asked, LETTERS).await;
    let row = world.store().command(asked.0).await.unwrap().unwrap();
    assert_eq!((applied.purged.changed, applied.purged.rows, row.refused), (1, 0, true));
    let said = row.result.expect("a result");
    assert!(said.contains("1 item has changed since it was read"), "{said}");
    assert_eq!(ids(world, item).await, [text("b"), text("c")], "no other row in its place");
    // The size alone would not tell it.
    let now = place(world, item, &["c"]).await;
    purged(world, vec![Place { bytes: now.bytes, ..last }]).await;
    assert_eq!(ids(world, item).await, [text("b"), text("c")]);
    // One that is kept no longer is no refusal: there is nothing left to remove.
    purged(world, vec![place(world, item, &[]).await]).await;
    let (applied, result) = purged(world, vec![first]).await;
    assert_eq!((applied.purged.changed, applied.purged.items), (0, 0));
    assert!(result.contains("nothing is kept of them any more"), "{result}");
    world.balanced().await;
}

/// A purge of more places than one transaction takes stays pending with its progress, and goes on.
pub async fn a_purge_of_many_places_takes_several_transactions(world: &mut World) {
    let (mut items, names) = (Vec::new(), ["a", "b", "c", "d", "e"]);
    for name in names {
        world.write(vec![full(name, 1), full("z", 2)]).await;
        items.push(deleted(world, name, &[name, "z"]).await);
    }
    let mut places = Vec::new();
    for (item, name) in items.iter().zip(names) {
        places.push(place(world, *item, &[name]).await);
    }
    let asked = submitted(world, places).await;
    let two = NonZeroU32::new(2).unwrap();
    let mut results = Vec::new();
    while results.len() < 9 {
        let applied = step(world, &asked, two).await;
        let row = world.store().command(asked.0).await.unwrap().unwrap();
        assert_eq!(row.applied_at.is_none(), applied.progress.is_some());
        results.push(row.result.expect("a result"));
        world.balanced().await;
        if applied.progress.is_none() {
            break;
        }
    }
    let expected =
        ["in progress: 2 of 5 items", "in progress: 4 of 5 items", "purged: 5 rows of 5 items"];
    assert_eq!(results, expected);
    for item in items {
        assert_eq!(ids(world, item).await, [text("z")]);
    }
    let again = step(world, &asked, two).await;
    assert_eq!((again.purged.rows, again.progress), (5, None), "it is applied once");
}

/// Rows of every kind of change: those that stay are read, and undone, as before.
pub async fn rows_beside_purged_ones_are_undone_whatever_was_done_to_them(world: &mut World) {
    world.write((0..6).map(|n| full(&format!("t{n}"), n)).collect()).await;
    let before = world.rows("things", &super::images::COLUMNS).await;
    let whole = RowRange { collection: "things".into(), rows: 100, ..RowRange::default() };
    let whole = Arc::new(whole);
    let moved = Change::MoveRange { range: Arc::clone(&whole), into: "archived".into() };
    for change in [moved, Change::DeleteRange(whole)] {
        let mut changes = vec![thing("new", 1)];
        changes.push(change);
        world.settle(candidate("k"), apply(vec![], changes)).await;
        let item = latest(world).await;
        let images = world.store().before_images(item).await.unwrap().expect("they are kept");
        purged(world, vec![place(world, item, &["t2", "t4", "new"]).await]).await;
        let stay = images
            .into_iter()
            .filter(|image| !["t2", "t4", "new"].iter().any(|id| image.key == [text(id)]));
        let now = world.store().before_images(item).await.unwrap().expect("some are kept");
        assert_eq!(now, stay.collect::<Vec<_>>());
        let undone = undo(world, item, &[]).await;
        assert!(is_whole(undone.reason.as_deref()), "{:?}", undone.reason);
        let rows = world.rows("things", &super::images::COLUMNS).await;
        let expected = [0, 1, 3, 5].map(|at| before[at].clone());
        assert_eq!(rows, expected);
        world.write(vec![full("t2", 2), full("t4", 4)]).await;
        world.balanced().await;
    }
}
