//! Undo: what a commit has done to rows is taken back, as far as nobody has changed them since.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::item::Candidate;
use besom_core::proposal::{Again, Change, Restore, RowRange};
use besom_core::undo::{STAY, UNCHOSEN, is_whole};
use besom_core::value::{Row, Value};
use besom_ports::store::{Decision, Left, MessageQuery, Outcome};

use super::images::{COLUMNS, changed, changes, delete, full};
use crate::conformance::World;
use crate::conformance::tables::{
    child, collections, dependent, fields, leaf, parent, text, thing,
};
use crate::conformance::world::{apply, candidate, range, set_n, tenant};
use crate::undone_rows::{latest, rehearsed, restore_of, undo, undo_as};

async fn things(world: &World) -> Vec<Row> {
    world.rows("things", &COLUMNS).await
}

fn title(id: &str, title: &str) -> Change {
    let fields = fields([("title", text(title))]);
    Change::Update { collection: "things".into(), key: vec![text(id)], fields }
}

fn all() -> Arc<RowRange> {
    Arc::new(RowRange { collection: "things".into(), rows: 100, ..RowRange::default() })
}

/// Everything that an item has done is taken back, for every kind of column; and that can be undone as well.
pub async fn whatever_an_item_has_done_is_taken_back_and_can_be_undone(world: &mut World) {
    world.write(changed()).await;
    let before = things(world).await;
    world.settle(candidate("k"), apply(vec![], changes())).await;
    let (after, item) = (things(world).await, latest(world).await);
    let expected = rehearsed(world, item).await;
    assert_eq!((expected.rows, &expected.stay), (9, &vec![]));
    assert_eq!(things(world).await, after, "a rehearsal changes nothing");
    let undone = undo(world, item, &[]).await;
    assert_eq!((undone.rows, undone.reason), (9, None));
    assert_eq!(things(world).await, before);
    // Undo of the undo, and undo of that.
    let again = undo(world, undone.id, &[]).await;
    assert_eq!(again.reason, None);
    assert_eq!(things(world).await, after);
    undo(world, again.id, &[]).await;
    assert_eq!(things(world).await, before);
    world.balanced().await;
}

/// Rows of ranges come back by one item, deleted, set or moved; their archived copies are removed.
pub async fn ranges_that_were_deleted_set_or_moved_are_taken_back(world: &mut World) {
    // A row that was archived before: the copies have other places than the rows.
    world.write(vec![full("t99", 99)]).await;
    let moved = Change::MoveRange { range: all(), into: "archived".into() };
    world.settle(candidate("k"), apply(vec![], vec![moved])).await;
    let rows = (0..20).map(|n| full(&format!("t{n:02}"), n)).collect();
    world.write(rows).await;
    let before = things(world).await;
    let set = Change::UpdateRange {
        range: all(),
        fields: fields([("title", text("set"))]),
        increments: vec![],
    };
    let moved = Change::MoveRange { range: all(), into: "archived".into() };
    let added = Change::UpdateRange {
        range: all(),
        fields: fields([("title", text("added"))]),
        increments: fields([("n", Value::Integer(100)), ("most", Value::Integer(-9))]),
    };
    for change in [Change::DeleteRange(all()), set, added, moved] {
        world.settle(candidate("k"), apply(vec![], vec![change])).await;
        let item = latest(world).await;
        let after = things(world).await;
        assert_ne!(after, before);
        let undone = undo(world, item, &[]).await;
        assert_eq!((undone.rows, undone.reason), (20, None));
        assert_eq!(things(world).await, before);
        assert_eq!(world.rows("archived", &["id"]).await, [[text("t99")]]);
        let again = undo(world, undone.id, &[]).await;
        assert_eq!((things(world).await, again.reason), (after, None));
        assert_eq!(undo(world, again.id, &[]).await.reason, None);
        assert_eq!(things(world).await, before);
    }
}

/// A row that has its key again, one that was set again and one that is gone stay as they are, and are named with
/// both versions; the others come back. Forced, they do as well.
pub async fn what_somebody_has_changed_since_stays_unless_it_is_forced(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2), full("c", 3), full("d", 4)]).await;
    let before = things(world).await;
    let changes = vec![delete("a"), title("b", "x"), title("c", "x"), delete("d")];
    world.settle(candidate("k"), apply(vec![], changes)).await;
    let item = latest(world).await;
    world.write(vec![thing("a", 9), title("b", "theirs"), delete("c")]).await;
    let found = rehearsed(world, item).await;
    let mut stay: Vec<_> =
        found.stay.iter().map(|stay| (stay.key[0].shown(), &*stay.why)).collect();
    stay.sort_unstable();
    let why = ["its key is taken by another row", "it was changed since", "the row is gone"];
    let expected: Vec<_> =
        ["\"a\"", "\"b\"", "\"c\""].map(str::to_owned).into_iter().zip(why).collect();
    assert_eq!((found.rows, stay), (1, expected));
    for stay in &found.stay {
        assert_eq!(stay.now.is_none(), stay.key == [text("c")], "{stay:?}");
        assert!(!stay.kept.is_empty(), "{stay:?}");
    }
    let now = things(world).await;
    let undone = undo(world, item, &[]).await;
    let reason = undone.reason.expect("rows stay");
    assert!(
        reason.starts_with(STAY)
            && !is_whole(Some(&reason))
            && reason.contains("3, the first of them"),
        "{reason}"
    );
    let mut expected = now.clone();
    expected.push(before[3].clone());
    assert_eq!((undone.rows, things(world).await), (1, expected));
    let forced = undo(world, item, &["things (\"a\")", "things (\"c\")"]).await;
    assert_eq!(forced.rows, 2);
    let rows: BTreeMap<String, Row> =
        things(world).await.into_iter().map(|row| (row[0].shown(), row)).collect();
    assert_eq!((&rows["\"a\""], &rows["\"c\""]), (&before[0], &before[2]));
    assert_eq!(rows["\"b\""][1], text("theirs"));
}

/// A row that an item has inserted is removed unless somebody has changed what was inserted.
pub async fn an_inserted_row_is_removed_unless_it_was_changed(world: &mut World) {
    world.settle(candidate("k"), apply(vec![], vec![thing("a", 1), thing("b", 1)])).await;
    let item = latest(world).await;
    world.write(vec![set_n("b", 2)]).await;
    let undone = undo(world, item, &[]).await;
    assert_eq!(undone.rows, 1);
    assert!(undone.reason.is_some_and(|why| why.contains("changed since it was inserted")));
    assert_eq!(world.rows("things", &["id"]).await, [[text("b")]]);
}

/// A second undo finds everything as it was and changes nothing; what an earlier attempt has put back is not put
/// back again.
pub async fn undo_twice_changes_nothing(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2)]).await;
    let before = things(world).await;
    world.settle(candidate("k"), apply(vec![], vec![Change::DeleteRange(all())])).await;
    let item = latest(world).await;
    let first = undo(world, item, &[]).await;
    let second = undo(world, item, &[]).await;
    assert_eq!((first.rows, second.rows, second.reason), (2, 0, None));
    assert_eq!(things(world).await, before);
    // The product has deleted a row that is back.
    world.write(vec![delete("a")]).await;
    let known = Restore { earlier: vec![first.id], ..restore_of(world, item, &[]).await };
    assert_eq!(undo_as(world, known).await.rows, 0);
    assert_eq!(things(world).await, before[1..]);
}

/// What an undo of the earlier attempt has taken back is put back again, and nothing else.
pub async fn what_was_taken_back_is_put_back_again(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2), full("c", 3)]).await;
    let before = things(world).await;
    world.settle(candidate("k"), apply(vec![], vec![Change::DeleteRange(all())])).await;
    let item = latest(world).await;
    let first = undo(world, item, &[]).await;
    world.write(vec![set_n("b", 20)]).await;
    let taken = undo(world, first.id, &[]).await;
    assert_eq!((first.rows, taken.rows, things(world).await.len()), (3, 2, 1));
    // The product has deleted the row that is its own now: it stays away.
    world.write(vec![delete("b")]).await;
    let (earlier, reverted) = (vec![first.id], vec![taken.id]);
    let again = Restore { earlier, reverted, ..restore_of(world, item, &[]).await };
    let again = undo_as(world, again).await;
    assert_eq!((again.rows, again.reason), (2, None));
    assert_eq!(things(world).await, [before[0].clone(), before[2].clone()]);
    world.balanced().await;
}

/// Puts back only the rows with these names of a history row.
async fn only(world: &World, item: u64, names: &[&str]) -> Restore {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    Restore { only: Some(Arc::new(names)), ..restore_of(world, item, &[]).await }
}

/// The others stay away and kept until an undo of all; an undo of the undo takes back only what was chosen.
pub async fn chosen_rows_come_back_alone_and_the_others_later(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2), full("c", 3), full("d", 4)]).await;
    let before = things(world).await;
    world.settle(candidate("k"), apply(vec![], vec![Change::DeleteRange(all())])).await;
    let item = latest(world).await;
    let b = only(world, item, &["things (\"b\")"]).await;
    let expected = world.store().rehearse(Some(&tenant("a")), &b).await.unwrap();
    assert_eq!((expected.rows, &expected.stay), (1, &vec![]));
    let first = undo_as(world, b.clone()).await;
    let three = Some(format!("{UNCHOSEN}3"));
    assert_eq!((first.rows, &first.reason), (1, &three));
    assert_eq!(things(world).await, before[1..2]);
    let again = undo_as(world, Restore { earlier: vec![first.id], ..b.clone() }).await;
    assert_eq!((again.rows, again.reason), (0, three.clone()));
    let taken = undo(world, first.id, &[]).await;
    assert_eq!((taken.rows, taken.reason, things(world).await), (1, None, vec![]));
    let (earlier, reverted) = (vec![first.id], vec![taken.id]);
    let back = undo_as(world, Restore { earlier, reverted, ..b }).await;
    assert_eq!((back.rows, back.reason), (1, three));
    // All of it is kept as it was, and the rest comes back.
    assert_eq!(world.store().kept(item).await.unwrap().map(|kept| kept.rows), Some(4));
    let earlier = vec![first.id, back.id];
    let rest = Restore { earlier, reverted: vec![taken.id], ..restore_of(world, item, &[]).await };
    let rest = undo_as(world, rest).await;
    assert_eq!((rest.rows, rest.reason, things(world).await), (3, None, before.clone()));
    // Rows that were moved, and a name of none that is kept.
    let moved = Change::MoveRange { range: all(), into: "archived".into() };
    world.settle(candidate("k"), apply(vec![], vec![moved])).await;
    let item = latest(world).await;
    let unknown = ["things (\"c\")", "things (\"e\")"];
    let undone = undo_as(world, only(world, item, &unknown).await).await;
    let said = format!("{UNCHOSEN}3; {}", besom_core::purge::note(1).unwrap());
    assert_eq!((undone.rows, undone.reason), (1, Some(said)));
    assert_eq!(things(world).await, before[2..3]);
    assert_eq!(world.rows("archived", &["id"]).await.len(), 3);
    world.balanced().await;
}

/// A message that says that rows are back is sent only if one is.
pub async fn nothing_is_told_of_an_undo_that_changes_nothing(world: &mut World) {
    world.write(vec![full("a", 1)]).await;
    world.settle(candidate("k"), apply(vec![], vec![delete("a")])).await;
    let item = latest(world).await;
    let tell = Change::Emit { topic: "t".into(), key: "k".into(), payload: vec![1] };
    for (expected, theirs) in [(0, Some(full("a", 9))), (1, None)] {
        world.write(vec![theirs.unwrap_or_else(|| delete("a"))]).await;
        let restore = Change::Restore(Arc::new(restore_of(world, item, &[]).await));
        let version = format!("request {expected}");
        world.planned("undo", vec![Candidate { version, ..candidate("u") }]).await;
        let waiting = world.only("undo").await;
        let both = apply(vec![], vec![restore, tell.clone()]);
        let committed = world.commit(vec![(&waiting, both)]).await;
        assert_eq!(committed.outcomes, [Outcome::Committed]);
        assert_eq!(world.fixture.outbox().await.len(), expected);
        let sent =
            MessageQuery { history: Some(latest(world).await), limit: 9, ..Default::default() };
        assert_eq!(world.store().messages(&sent).await.unwrap().len(), expected);
    }
    let of_others = MessageQuery { history: Some(item), limit: 9, ..Default::default() };
    assert_eq!(world.store().messages(&of_others).await.unwrap(), []);
    world.balanced().await;
}

/// One row that somebody has changed keeps all others away, and none is forced.
pub async fn an_item_comes_back_as_a_whole_or_not_at_all(world: &mut World) {
    world.write(vec![full("a", 1), full("b", 2)]).await;
    let before = things(world).await;
    let changes = vec![delete("a"), set_n("b", 3), thing("c", 1)];
    world.settle(candidate("k"), apply(vec![], changes)).await;
    let item = latest(world).await;
    world.write(vec![set_n("b", 4)]).await;
    let now = things(world).await;
    let whole =
        async |forced: &[&str]| Restore { whole: true, ..restore_of(world, item, forced).await };
    for forced in [&[][..], &["things (\"b\")"]] {
        let undone = undo_as(world, whole(forced).await).await;
        let reason = undone.reason.expect("rows stay");
        assert!(reason.starts_with(STAY) && reason.contains("3, the first of them"), "{reason}");
        assert_eq!((undone.rows, things(world).await), (0, now.clone()));
    }
    world.write(vec![set_n("b", 3)]).await;
    let undone = undo_as(world, whole(&[]).await).await;
    assert_eq!((undone.rows, undone.reason, things(world).await), (3, None, before));
    world.balanced().await;
}

/// Rows that went with their parents come back after them.
pub async fn rows_that_went_with_others_come_back_after_them(world: &mut World) {
    world.store().set_collections(dependent());
    let mut changes = Vec::new();
    for id in ["p", "q"] {
        changes.extend([parent(id), child(id, 1, "x"), child(id, 2, "y"), leaf(id, id, 1)]);
    }
    world.write(changes).await;
    async fn tables(world: &World) -> [Vec<Row>; 3] {
        [
            world.rows("parents", &["id", "total"]).await,
            world.rows("children", &["parent", "seq", "state"]).await,
            world.rows("leaves", &["leaf", "parent", "seq"]).await,
        ]
    }
    let before = tables(world).await;
    let whole = RowRange { rows: 10, ..RowRange::default() };
    let parents = Arc::new(RowRange { collection: "parents".into(), ..whole });
    world.settle(candidate("k"), apply(vec![], vec![Change::DeleteRange(parents)])).await;
    let none: [Vec<Row>; 3] = Default::default();
    assert_eq!(tables(world).await, none);
    let undone = undo(world, latest(world).await, &[]).await;
    assert_eq!((undone.rows, undone.reason), (8, None));
    assert_eq!(tables(world).await, before);
    let again = undo(world, undone.id, &[]).await;
    assert_eq!((tables(world).await, again.reason), (none, None));
}

/// Two parents, each with two children and a leaf of the first one.
async fn two_families(world: &World) {
    world.store().set_collections(dependent());
    let mut changes = Vec::new();
    for id in ["p", "q"] {
        changes.extend([parent(id), child(id, 1, "x"), child(id, 2, "y"), leaf(id, id, 1)]);
    }
    world.write(changes).await;
}

/// Deletes all parents with what belongs to them, and returns the number of the history row.
async fn without_parents(world: &World) -> u64 {
    let whole = RowRange { rows: 10, ..RowRange::default() };
    let parents = Arc::new(RowRange { collection: "parents".into(), ..whole });
    world.settle(candidate("k"), apply(vec![], vec![Change::DeleteRange(parents)])).await;
    latest(world).await
}

/// The keys of the rows of both families, each with its collection.
async fn families(world: &World) -> Vec<String> {
    let mut all = Vec::new();
    for (name, columns) in
        [("parents", &["id"][..]), ("children", &["parent", "seq"]), ("leaves", &["leaf"])]
    {
        let rows = world.rows(name, columns).await;
        all.extend(rows.iter().map(|row| besom_core::undo::row_name(name, row)));
    }
    all
}

const OF_P: [&str; 4] =
    ["parents (\"p\")", "children (\"p\", 1)", "children (\"p\", 2)", "leaves (\"p\")"];
const OF_Q: [&str; 4] =
    ["parents (\"q\")", "children (\"q\", 1)", "children (\"q\", 2)", "leaves (\"q\")"];

/// An undo of an undo removes a family as a whole. If a row of it was changed since, it stays as a whole.
pub async fn families_are_removed_as_a_whole_or_stay(world: &mut World) {
    two_families(world).await;
    let undone = undo(world, without_parents(world).await, &[]).await;
    assert_eq!((undone.rows, undone.reason), (8, None));
    let change = |name: &str, key, column| {
        let fields = fields([(column, text("theirs"))]);
        Change::Update { collection: name.into(), key, fields }
    };
    for theirs in [
        change("parents", vec![text("p")], "title"),
        change("children", vec![text("p"), Value::Integer(2)], "state"),
    ] {
        world.write(vec![theirs]).await;
        let found = rehearsed(world, undone.id).await;
        let name = |stay: &besom_ports::store::Staying| {
            besom_core::undo::row_name(&stay.collection, &stay.key)
        };
        let mut stay: Vec<String> = found.stay.iter().map(name).collect();
        stay.sort_unstable();
        let mut expected = OF_P;
        expected.sort_unstable();
        assert_eq!((found.rows, stay), (4, expected.map(str::to_owned).to_vec()));
        let belong = found.stay.iter().filter(|stay| stay.why.contains("it belongs to")).count();
        assert!((2..=3).contains(&belong), "{:?}", found.stay);
    }
    let again = undo(world, undone.id, &[]).await;
    assert_eq!(again.rows, 4);
    assert!(
        again.reason.is_some_and(
            |reason| reason.starts_with(STAY) && reason.contains("4, the first of them")
        )
    );
    let mut expected = OF_P.map(str::to_owned);
    let mut left = families(world).await;
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected);
    world.balanced().await;
}

/// Somebody has put a row under a parent since: neither it nor the parent's family goes.
pub async fn rows_of_others_are_never_deleted_with_those_that_are_removed(world: &mut World) {
    two_families(world).await;
    let undone = undo(world, without_parents(world).await, &[]).await;
    world.write(vec![child("q", 9, "theirs")]).await;
    let again = undo(world, undone.id, &[]).await;
    assert_eq!(again.rows, 4);
    let mut left = families(world).await;
    let mut expected = [&OF_Q[..], &["children (\"q\", 9)"]].concat();
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected);
    // As soon as it is gone, the rest goes.
    let key = vec![text("q"), Value::Integer(9)];
    world.write(vec![Change::Delete { collection: "children".into(), key }]).await;
    assert_eq!(undo(world, undone.id, &[]).await.rows, 4);
    assert_eq!(families(world).await, Vec::<String>::new());
}

/// A stranger has the key of a parent: what belonged to the parent does not come under the stranger.
pub async fn rows_of_a_parent_that_stays_away_stay_away(world: &mut World) {
    two_families(world).await;
    let item = without_parents(world).await;
    let title = fields([("id", text("p")), ("title", text("stranger"))]);
    world.write(vec![Change::Insert { collection: "parents".into(), fields: title }]).await;
    let found = rehearsed(world, item).await;
    let of = |name: &str| {
        let all = found.stay.iter().filter(|stay| stay.collection == name);
        all.map(|stay| stay.why.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(of("parents"), ["its key is taken by another row"]);
    assert_eq!(of("children"), ["it belongs to parents (\"p\"), which stays as it is"; 2]);
    assert_eq!(of("leaves"), ["it belongs to children (\"p\", 1), which stays as it is"]);
    let undone = undo(world, item, &[]).await;
    assert_eq!(undone.rows, 4);
    let mut left = families(world).await;
    let mut expected = [&OF_Q[..], &OF_P[..1]].concat();
    left.sort_unstable();
    expected.sort_unstable();
    assert_eq!(left, expected);
    // Forced, the parent gets its values, and its children come back.
    assert_eq!(undo(world, item, &["parents (\"p\")"]).await.rows, 4);
    assert_eq!(families(world).await.len(), 8);
    world.balanced().await;
}

/// Its children go with a parent, up and down; a child alone stays away with its parent, until that is back.
pub async fn what_went_with_a_chosen_row_comes_back_with_it(world: &mut World) {
    two_families(world).await;
    let item = without_parents(world).await;
    let child_of_p = [OF_P[1]];
    let alone = only(world, item, &child_of_p).await;
    let found = world.store().rehearse(Some(&tenant("a")), &alone).await.unwrap();
    let mut why: Vec<&str> = found.stay.iter().map(|stay| &*stay.why).collect();
    why.sort_unstable();
    let expected = [
        "it belongs to children (\"p\", 1), which stays as it is",
        "it belongs to parents (\"p\"), which stays as it is",
    ];
    assert_eq!((found.rows, why), (0, expected.to_vec()));
    let first = undo_as(world, only(world, item, &OF_P[..1]).await).await;
    assert_eq!((first.rows, first.reason), (4, Some(format!("{UNCHOSEN}4"))));
    let sorted = async |world: &World| {
        let mut all = families(world).await;
        all.sort_unstable();
        all
    };
    let mut of_p = OF_P.map(str::to_owned).to_vec();
    of_p.sort_unstable();
    assert_eq!(sorted(world).await, of_p);
    // Of what has come back, a child goes with its leaf, and comes back below its parent.
    let taken = undo_as(world, only(world, first.id, &child_of_p).await).await;
    assert_eq!((taken.rows, taken.reason), (2, Some(format!("{UNCHOSEN}2"))));
    assert_eq!(families(world).await, [OF_P[0], OF_P[2]]);
    let (earlier, reverted) = (vec![first.id], vec![taken.id]);
    let back = undo_as(world, Restore { earlier, reverted, ..alone }).await;
    assert_eq!((back.rows, back.reason), (2, Some(format!("{UNCHOSEN}4"))));
    assert_eq!(sorted(world).await, of_p);
    // A parent that was only changed took no child with it.
    let set = |name: &str, key, column| {
        let fields = fields([(column, text("set"))]);
        Change::Update { collection: name.into(), key, fields }
    };
    let child = vec![text("p"), Value::Integer(2)];
    let changes = vec![set("parents", vec![text("p")], "title"), set("children", child, "state")];
    world.settle(candidate("l"), apply(vec![], changes)).await;
    let item = latest(world).await;
    assert_eq!(undo_as(world, only(world, item, &OF_P[..1]).await).await.rows, 1);
    assert_eq!(undo_as(world, only(world, item, &OF_P[2..3]).await).await.rows, 1);
    world.balanced().await;
}

/// A moved row stays where it is if its copy was changed or removed, or if its key is taken.
pub async fn an_archived_row_that_was_changed_stays_archived(world: &mut World) {
    world.write(vec![thing("a", 1), thing("b", 1), thing("c", 1), thing("d", 1)]).await;
    let moved = Change::MoveRange { range: all(), into: "archived".into() };
    world.settle(candidate("k"), apply(vec![], vec![moved])).await;
    let item = latest(world).await;
    let archived = |id: &str| ("archived".to_owned(), vec![text(id)]);
    let (collection, key) = archived("a");
    let change = Change::Update { collection, key, fields: fields([("n", Value::Integer(5))]) };
    let (collection, key) = archived("b");
    world.write(vec![change, Change::Delete { collection, key }, thing("c", 7)]).await;
    let found = rehearsed(world, item).await;
    let mut why: Vec<&str> = found.stay.iter().map(|stay| &*stay.why).collect();
    why.sort_unstable();
    let expected = [
        "its key is taken by another row",
        "its row in \"archived\" is gone",
        "its row in \"archived\" was changed since",
    ];
    assert_eq!((found.rows, why), (1, expected.to_vec()));
    undo(world, item, &[]).await;
    assert_eq!(world.rows("things", &["id"]).await, [[text("c")], [text("d")]]);
    assert_eq!(world.rows("archived", &["id"]).await, [[text("a")], [text("c")]]);
}

/// What was not kept, or is kept no longer, is said; nothing is changed.
pub async fn what_is_kept_no_longer_is_said(world: &mut World) {
    world.write(vec![thing("a", 1)]).await;
    world.settle(candidate("k"), apply(vec![], vec![delete("a")])).await;
    assert_eq!(world.store().kept(9_999).await.unwrap(), None);
    let nothing = Restore { history: 9_999, ..Restore::default() };
    let found = world.store().rehearse(Some(&tenant("a")), &nothing).await.unwrap();
    assert_eq!((found.rows, found.notes.len()), (0, 1));
    assert!(found.notes[0].starts_with(STAY), "{:?}", found.notes);
    let undone = undo_as(world, nothing).await;
    assert!(!is_whole(undone.reason.as_deref()), "{:?}", undone.reason);
    assert_eq!(things(world).await, Vec::<Row>::new());
}

/// With it, the call of the plugin can be repeated.
pub async fn what_an_item_was_given_is_kept_with_its_rows(world: &mut World) {
    world.write(vec![thing("a", 1)]).await;
    let payload = vec![0, 7, 255];
    let (one, two) = (candidate("k"), candidate("l"));
    let one = Candidate { payload: payload.clone(), route: "elsewhere".into(), ..one };
    let decision = |id: &str| apply(vec![], vec![delete(id)]);
    world.settle(one, decision("a")).await;
    let row = world.history().await.pop().expect("a history row");
    let kept = world.store().kept(row.id).await.unwrap().expect("it is kept");
    let given = kept.given.expect("what it was given");
    let of = |decision: Decision| match decision {
        Decision::Apply { proposal, .. } => proposal.digest(),
        Decision::Settle(_) => panic!("it is applied"),
    };
    assert_eq!((given.payload, given.route), (payload, Some("elsewhere".to_owned())));
    assert_eq!((given.proposal, given.attempts, given.guard_retries), (of(decision("a")), 0, 0));
    assert!(given.now <= row.at && given.planned_at <= row.at, "{row:?}");
    // Of one that finds no row as well; the route is that of its key.
    world.settle(Candidate { route: "l".into(), ..two }, decision("none")).await;
    let row = world.history().await.pop().expect("a history row");
    let kept = world.store().kept(row.id).await.unwrap().expect("it is kept");
    let given = kept.given.expect("what it was given");
    assert_eq!((kept.rows, given.route, given.proposal), (0, None, of(decision("none"))));
}

/// A collection that is no longer mapped is named, and nothing is changed.
pub async fn rows_of_a_collection_that_is_gone_stay_kept(world: &mut World) {
    world.write(vec![thing("a", 1)]).await;
    world.settle(candidate("k"), apply(vec![], vec![delete("a")])).await;
    let item = latest(world).await;
    let mut fewer = (*collections()).clone();
    fewer.remove("things");
    world.store().set_collections(Arc::new(fewer));
    let undone = undo(world, item, &[]).await;
    let reason = undone.reason.expect("nothing could be done");
    assert!(reason.starts_with(STAY) && reason.contains("things"), "{reason}");
    world.store().set_collections(collections());
    assert_eq!(undo(world, item, &[]).await.rows, 1);
}

/// Deletes a thing as the item `k`, and undoes that. Returns the history row of the item, and the request.
async fn undone_item(world: &World) -> (besom_ports::store::HistoryRow, Candidate) {
    world.write(vec![thing("a", 1)]).await;
    world.settle(candidate("k"), apply(vec![], vec![delete("a")])).await;
    let row = world.history().await.pop().expect("a history row");
    let kept = world.store().kept(row.id).await.unwrap().expect("it is kept");
    assert_eq!((kept.version.as_deref(), kept.rows), (Some("v1"), 1));
    assert_eq!(kept.collections, ["things"]);
    let run = world.planned("task", vec![candidate("other")]).await;
    let mut undone = world.only("task").await.item;
    undone.identity.key = "k".into();
    undone.run = run;
    let restore = Restore { undone: Some(undone), ..restore_of(world, row.id, &[]).await };
    let request = Candidate { version: "r1".into(), ..candidate("1/#1") };
    world.planned("undo", vec![request.clone()]).await;
    let waiting = world.only("undo").await;
    let change = Change::Restore(Arc::new(restore));
    world.commit(vec![(&waiting, apply(vec![], vec![change]))]).await;
    (row, request)
}

/// The undone item is not planned again while its version is the same, nor is the same request.
pub async fn an_undone_item_is_not_planned_again_until_its_version_changes(world: &mut World) {
    let (_, request) = undone_item(world).await;
    let (task, undo) = (world.run("task").await, world.run("undo").await);
    assert_eq!(world.plan("task", task, vec![candidate("k")]).await.blocked, 1);
    let newer = Candidate { version: "v2".into(), ..candidate("k") };
    assert_eq!(world.plan("task", task, vec![newer]).await.planned, 1);
    assert_eq!(world.plan("undo", undo, vec![request.clone()]).await.blocked, 1);
    let later = Candidate { version: "r2".into(), ..request };
    assert_eq!(world.plan("undo", undo, vec![later]).await.planned, 1);
    world.balanced().await;
}

/// Whether an item is held back can be asked beforehand; on request it may be planned again, and nothing else is done.
pub async fn what_was_undone_may_be_planned_again_on_request(world: &mut World) {
    let (row, request) = undone_item(world).await;
    let rows = things(world).await;
    assert_eq!(rows.len(), 1);
    let newer = Candidate { version: "v2".into(), ..candidate("k") };
    let asked = [candidate("k"), newer, candidate("never planned")];
    let blocked = async |task: &str| world.store().blocked(&task.into(), &asked).await.unwrap();
    assert_eq!(blocked("task").await, [true, false, false]);
    assert_eq!(blocked("no such task").await, [false; 3]);
    world.planned("undo", vec![Candidate { version: "r2".into(), ..request }]).await;
    let waiting = world.only("undo").await;
    let mut undone = waiting.item.clone();
    undone.identity = row.identity.clone();
    let lift = Restore { again: Again::Only, undone: Some(undone), ..Restore::default() };
    let change = Change::Restore(Arc::new(lift));
    world.commit(vec![(&waiting, apply(vec![], vec![change]))]).await;
    assert_eq!(blocked("task").await, [false; 3]);
    assert_eq!(things(world).await, rows);
    let task = world.run("task").await;
    assert_eq!(world.plan("task", task, vec![candidate("k")]).await.planned, 1);
    world.balanced().await;
}

/// How each change has left its row is kept with it.
pub async fn images_say_how_their_rows_were_left(world: &mut World) {
    world.write(vec![thing("a", 1), thing("b", 1), thing("c", 1)]).await;
    let only = |id: &str| {
        let whole = range("things", None, &[]);
        Arc::new(RowRange {
            prefix: vec![text(id)],
            rows: 1,
            ..RowRange { collection: whole.collection, ..RowRange::default() }
        })
    };
    let set = || fields([("n", Value::Integer(5))]);
    let changes = vec![
        set_n("a", 5),
        Change::Increment { collection: "things".into(), key: vec![text("a")], fields: set() },
        Change::UpdateRange { range: only("b"), fields: set(), increments: vec![] },
        delete("b"),
        Change::MoveRange { range: only("c"), into: "archived".into() },
    ];
    world.settle(candidate("k"), apply(vec![], changes)).await;
    let left: Vec<Left> = world.latest_images().await.into_iter().map(|image| image.left).collect();
    let ten = Left::Set(fields([("n", Value::Integer(10))]));
    let expected = [
        Left::Set(set()),
        ten,
        Left::Set(set()),
        Left::Gone,
        Left::Moved("archived".into()),
        Left::Copy,
    ];
    assert_eq!(left, expected);
}
