//! Rows are put back into tables that have changed since.

use std::collections::BTreeSet;
use std::sync::Arc;

use besom_core::item::Candidate;
use besom_core::proposal::{Change, Restore};
use besom_core::undo::STAY;
use besom_core::value::Value;
use besom_ports::store::{HistoryRow, Outcome, Restored};

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
        earlier: Vec::new(),
    }
}

/// Undoes a history row in a commit of its own, and returns the history row of that.
pub async fn undo_as(world: &World, restore: Restore) -> HistoryRow {
    let version = format!("request {}", world.history().await.len());
    let item = Candidate { version, ..candidate(&format!("#{}", restore.history)) };
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
    assert!(undone.reason.is_some_and(|reason| reason.starts_with(STAY) && reason.contains("2;")));
    world.balanced().await;
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
