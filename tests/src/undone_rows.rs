//! Rows are put back into tables that have changed since.

use besom_core::proposal::Change;
use besom_core::undo::STAY;
use besom_core::value::Value;
use besom_ports::store::Outcome;

use crate::conformance::World;
use crate::conformance::store::undo::{latest, rehearsed, undo};
use crate::conformance::tables::{fields, text, thing};
use crate::conformance::world::{apply, candidate};

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
