//! Rows are put back into tables that have changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use besom_core::ids::RunId;
use besom_core::item::Candidate;
use besom_core::proposal::{Again, Change, Restore, RowRange};
use besom_core::undo::STAY;
use besom_core::value::Value;
use besom_ports::store::{HistoryRow, Outcome, Restored};
use besom_ports::undone::key_of;
use besom_record::restore::ASTRAY;

use crate::conformance::World;
use crate::conformance::tables::{fields, text, thing};
use crate::conformance::world::{apply, candidate, tenant};

/// What a restore of a history row is told.
pub async fn restore_of(world: &World, history: u64, forced: &[&str]) -> Restore {
    let kept = world.store().kept(history).await.expect("it is read").unwrap_or_default();
    let forced: BTreeSet<String> = forced.iter().map(|name| (*name).to_owned()).collect();
    Restore {
        history,
        undone: None,
        collections: kept.collections,
        rows: kept.rows,
        forced: Arc::new(forced),
        only: None,
        earlier: Vec::new(),
        reverted: Vec::new(),
        again: Again::No,
        purged: kept.purged,
        purged_of: kept.purged_of,
        whole: false,
    }
}

/// Undoes a history row in a commit of its own, and returns the history row of that.
pub async fn undo_as(world: &World, restore: Restore) -> HistoryRow {
    let version = format!("request {}", world.history().await.len());
    let item = Candidate { version, ..candidate(&key_of(RunId(1), restore.history)) };
    world.planned("undo", vec![item]).await;
    let waiting = world.only("undo").await;
    let change = Change::Restore(Arc::new(restore));
    let committed = world.commit(vec![(&waiting, apply(vec![], vec![change]))]).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    world.history().await.pop().expect("a history row")
}

/// Undoes a history row, and returns the history row of that.
pub async fn undo(world: &World, history: u64, forced: &[&str]) -> HistoryRow {
    undo_as(world, restore_of(world, history, forced).await).await
}

/// What undoing a history row would do.
pub async fn rehearsed(world: &World, history: u64) -> Restored {
    let restore = restore_of(world, history, &[]).await;
    world.store().rehearse(Some(&tenant("a")), &restore).await.expect("a rehearsal")
}

/// The number of the latest history row.
pub async fn latest(world: &World) -> u64 {
    world.history().await.last().expect("a history row").id
}

fn delete(id: &str) -> Change {
    Change::Delete { collection: "things".into(), key: vec![text(id)] }
}

/// Deletes things, and returns the number of the history row.
async fn deleted(world: &World, ids: &[&str]) -> u64 {
    let changes = ids.iter().map(|id| delete(id)).collect();
    let committed = world.settle(candidate("k"), apply(vec![], changes)).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    latest(world).await
}

async fn ids(world: &World) -> Vec<Value> {
    world.rows("things", &["id"]).await.into_iter().flatten().collect()
}

/// A column that was added gets its default, and one that was dropped is reported.
pub async fn columns_that_were_added_or_dropped_are_told(
    world: &World,
    product: impl AsyncFn(&str),
) {
    product("ALTER TABLE things ADD former INTEGER").await;
    world.write(vec![thing("t", 1)]).await;
    product("UPDATE things SET former = 5").await;
    let item = deleted(world, &["t"]).await;
    product("ALTER TABLE things DROP COLUMN former").await;
    product("ALTER TABLE things ADD later INTEGER NOT NULL DEFAULT 7").await;
    let undone = undo(world, item, &[]).await;
    let reason = undone.reason.expect("a column is gone");
    assert!(!reason.starts_with(STAY) && reason.contains("former"), "{reason}");
    assert_eq!((undone.rows, ids(world).await), (1, vec![text("t")]));
    deleted(world, &["t"]).await;
    let [image] = world.latest_images().await.try_into().expect("one image");
    let later = image.stored.iter().find(|field| field.name == "later").map(|field| &field.value);
    assert!(matches!(later, Some(Value::Integer(7))) || later == Some(&text("7")), "{later:?}");
    // The value is still with what was kept.
    let kept = world.store().before_images(item).await.expect("read").expect("kept");
    assert!(
        kept[0].stored.iter().any(|field| field.name == "former" && field.value != Value::Null)
    );
}

/// A unique value that another row has since is a conflict of its row, named by the database; `refuse` makes the
/// database refuse things with 13 as their `n`, which stay as well. All others come back.
pub async fn rows_that_constraints_refuse_stay_alone(
    world: &World,
    product: impl AsyncFn(&str),
    refuse: &str,
) {
    let names: Vec<String> = (0..20).map(|n| format!("t{n:02}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    world.write(names.iter().enumerate().map(|(n, id)| thing(id, n as i64)).collect()).await;
    let item = deleted(world, &names).await;
    product("CREATE UNIQUE INDEX one_title ON things (title)").await;
    product(refuse).await;
    let other = fields([("id", text("other")), ("title", text("t05")), ("n", Value::Integer(1))]);
    world.write(vec![Change::Insert { collection: "things".into(), fields: other }]).await;
    let found = rehearsed(world, item).await;
    let mut stay: Vec<_> =
        found.stay.iter().map(|stay| (stay.key[0].shown(), stay.why.clone())).collect();
    stay.sort_unstable();
    let [(five, taken), (thirteen, refused)] = &stay[..] else { panic!("{stay:?}") };
    assert_eq!((five.as_str(), thirteen.as_str()), ("\"t05\"", "\"t13\""));
    assert!(taken.contains("title"), "{taken}");
    assert!(refused.contains("thirteen"), "{refused}");
    let undone = undo(world, item, &[]).await;
    assert_eq!((undone.rows, ids(world).await.len()), (18, 19));
    assert!(
        undone.reason.is_some_and(
            |reason| reason.starts_with(STAY) && reason.contains("2, the first of them")
        )
    );
    world.balanced().await;
}

/// What triggers set beside the columns that get their old values is told, with the row: after a change by a trigger for
/// updates (`on_update`), after an insert by one for inserts (`on_insert`). Each adds 100 to the `n` of a thing.
pub async fn what_triggers_have_set_is_told(
    world: &World,
    product: impl AsyncFn(&str),
    (on_update, on_insert): (&str, &str),
) {
    let title = fields([("title", text("set"))]);
    let set = Change::Update { collection: "things".into(), key: vec![text("t")], fields: title };
    world.write(vec![thing("t", 1)]).await;
    world.settle(candidate("k"), apply(vec![], vec![set])).await;
    let item = latest(world).await;
    product(on_update).await;
    let told = "1 row came back with other values in n (of things (\"t\")): ";
    let undone = undo(world, item, &[]).await;
    assert!(undone.reason.is_some_and(|reason| reason.starts_with(told)));
    let again = undo(world, undone.id, &[]).await;
    assert!(again.rows == 1 && again.reason.is_some_and(|reason| reason.starts_with(told)));
    let now = world.rows("things", &["title", "n"]).await;
    assert_eq!(now, [[text("set"), Value::Integer(201)]]);
    // What was inserted is known with what the trigger has set, and can be removed again.
    let item = deleted(world, &["t"]).await;
    product(on_insert).await;
    let undone = undo(world, item, &[]).await;
    assert!(undone.reason.is_some_and(|reason| reason.starts_with(told)));
    let now = world.rows("things", &["title", "n"]).await;
    let Value::Integer(n) = now[0][1] else { panic!("{now:?}") };
    assert!(n > 201, "{n}");
    assert_eq!(undo(world, undone.id, &[]).await.reason, None);
    assert_eq!(ids(world).await, Vec::<Value>::new());
}

/// `astray` makes the database remove `b` again as soon as it is inserted, and give `c` another key.
pub async fn rows_that_a_trigger_leads_astray_stay_kept(
    world: &World,
    product: impl AsyncFn(&str),
    astray: &str,
) {
    world.write(vec![thing("a", 1), thing("b", 2), thing("c", 3), thing("d", 4)]).await;
    let item = deleted(world, &["a", "b", "c", "d"]).await;
    product(astray).await;
    let found = rehearsed(world, item).await;
    assert_eq!(found.rows, 2, "{found:?}");
    let mut stay: Vec<_> = found.stay.iter().map(|stay| (&stay.key[..], &*stay.why)).collect();
    stay.sort_by_key(|(key, _)| key[0].shown());
    let (b, c) = ([text("b")], [text("c")]);
    assert_eq!(stay, [(&b[..], ASTRAY), (&c[..], ASTRAY)]);
    let undone = undo(world, item, &[]).await;
    assert_eq!((undone.rows, ids(world).await), (2, vec![text("a"), text("d")]));
    assert_eq!(undo(world, undone.id, &[]).await.rows, 2);
    world.balanced().await;
}

/// `keep` makes the database refuse to remove the archived `b`: it stays archived, and is nowhere twice.
pub async fn a_row_whose_copy_cannot_be_removed_stays_archived(
    world: &World,
    product: impl AsyncFn(&str),
    keep: &str,
) {
    world.write(vec![thing("a", 1), thing("b", 2), thing("c", 3)]).await;
    let (collection, rows) = ("things".to_owned(), 10);
    let range = Arc::new(RowRange { collection, rows, ..RowRange::default() });
    let moved = Change::MoveRange { range, into: "archived".into() };
    world.settle(candidate("k"), apply(vec![], vec![moved])).await;
    let item = latest(world).await;
    product(keep).await;
    let found = rehearsed(world, item).await;
    let [stay] = &found.stay[..] else { panic!("{found:?}") };
    assert_eq!((found.rows, &stay.key), (2, &vec![text("b")]));
    assert!(stay.why.starts_with("its row in \"archived\" could not be removed: "), "{}", stay.why);
    let undone = undo(world, item, &[]).await;
    assert_eq!((undone.rows, ids(world).await), (2, vec![text("a"), text("c")]));
    assert_eq!(world.rows("archived", &["id"]).await, [[text("b")]]);
    // Two rows are removed, and two inserted into the archive.
    let again = undo(world, undone.id, &[]).await;
    assert_eq!((again.rows, again.reason), (4, None));
    assert_eq!(world.rows("archived", &["id"]).await.len(), 3);
    world.balanced().await;
}

/// A table that no mapping knows refers to inserted rows, and its rows would be deleted with them: they stay.
pub async fn rows_to_which_others_refer_are_not_removed(
    world: &World,
    product: impl AsyncFn(&str),
) {
    world.settle(candidate("k"), apply(vec![], vec![thing("a", 1), thing("b", 1)])).await;
    let item = latest(world).await;
    product(
        "CREATE TABLE notes (tenant_id text, thing text,
           FOREIGN KEY (tenant_id, thing) REFERENCES things (tenant_id, id) ON DELETE CASCADE);
         INSERT INTO notes VALUES ('a', 'a')",
    )
    .await;
    let found = rehearsed(world, item).await;
    let [stay] = &found.stay[..] else { panic!("{found:?}") };
    assert_eq!((found.rows, &stay.key), (1, &vec![text("a")]));
    assert!(stay.why.contains("notes") && stay.why.contains("refer to it"), "{}", stay.why);
    assert_eq!(undo(world, item, &[]).await.rows, 1);
    assert_eq!(ids(world).await, [text("a")]);
    product("DELETE FROM notes").await;
    assert_eq!(undo(world, item, &[]).await.rows, 1);
    assert_eq!(ids(world).await, Vec::<Value>::new());
}

/// Without its table nothing can come back, and what was kept stays.
pub async fn rows_of_a_table_that_is_gone_stay_kept(world: &World, product: impl AsyncFn(&str)) {
    world.write(vec![thing("gone", 1)]).await;
    let item = deleted(world, &["gone"]).await;
    product("DROP TABLE things").await;
    let undone = undo(world, item, &[]).await;
    let reason = undone.reason.expect("there is no table");
    assert!(reason.starts_with(STAY) && reason.contains("no table"), "{reason}");
    assert!(world.store().before_images(item).await.expect("read").is_some());
}
