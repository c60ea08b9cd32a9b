//! Changes of the rows of a range: each row is judged in the commit.

use std::sync::Arc;

use besom_core::proposal::{Change, Comparison, Condition, Guard, RowRange, Settle};
use besom_core::value::{Field, Row, Value};
use besom_ports::store::{Committed, Decision, Left, MessageQuery, Outcome, Range};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::conformance::World;
use crate::conformance::tables::{child, fields, full_thing, parent, text, thing};
use crate::conformance::world::{apply, apply_to, candidate, range, tenant};

fn n(n: i64) -> Value {
    Value::Integer(n)
}

fn condition(column: &str, comparison: Comparison, value: Value) -> Condition {
    Condition::of(column, comparison, value)
}

/// The rows of a read after one place, up to another.
fn part(read: &Range, after: Option<Vec<u8>>, until: Option<Vec<u8>>, rows: u32) -> RowRange {
    RowRange {
        collection: read.collection.clone(),
        index: read.index.clone(),
        prefix: read.prefix.clone(),
        lower: read.lower.clone(),
        upper: read.upper.clone(),
        conditions: read.conditions.clone(),
        after,
        until,
        rows,
    }
}

fn delete(range: RowRange) -> Change {
    Change::DeleteRange(Arc::new(range))
}

async fn commit(world: &World, changes: Vec<Change>) -> Committed {
    // An open dead letter would keep its item from being planned again.
    let key = format!("k{}", world.history().await.len());
    world.settle(candidate(&key), apply(vec![], changes)).await
}

/// Things whose `n` does not follow their ids, two of them without one, and one of another tenant.
async fn write_things(world: &World) {
    let nothing = |id: &str| {
        let fields = fields([("id", text(id)), ("title", text(id))]);
        Change::Insert { collection: "things".into(), fields }
    };
    let (a, b, c, d) = (thing("a", 3), thing("b", 1), thing("c", 2), thing("d", 2));
    world.write(vec![a, b, c, d, nothing("e"), thing("f", 5), nothing("g"), thing("h", 2)]).await;
    world.write_as(&[(Some(tenant("b")), thing("z", 2))]).await;
}

async fn clear(world: &World) {
    let rows = world.rows("things", &["id"]).await;
    let gone = |row: Row| Change::Delete { collection: "things".into(), key: row };
    world.write(rows.into_iter().map(gone).collect()).await;
    let theirs = Change::Delete { collection: "things".into(), key: vec![text("z")] };
    world.write_as(&[(Some(tenant("b")), theirs)]).await;
}

fn joined(rows: &[Row]) -> String {
    let id = |row: &Row| match &row[0] {
        Value::Text(id) => id.clone(),
        other => panic!("a text: {other:?}"),
    };
    rows.iter().map(id).collect()
}

/// Every page of a range is deleted as a part of it, and nothing else is.
pub async fn the_parts_of_a_range_are_its_pages(world: &mut World) {
    let by_n = || range("things", Some("by_n"), &["id"]);
    let by_flag = || range("things", Some("by_flag"), &["id"]);
    for read in [
        by_n(),
        Range { lower: Some(n(2)), ..by_n() },
        Range { upper: Some(n(2)), ..by_n() },
        Range { lower: Some(n(2)), upper: Some(n(3)), ..by_n() },
        Range { prefix: vec![n(2)], ..by_n() },
        Range { prefix: vec![Value::Null], ..by_n() },
        Range { prefix: vec![Value::Null], upper: Some(n(2)), ..by_flag() },
        by_flag(),
        range("things", None, &["id"]),
        Range { conditions: vec![condition("n", Comparison::AtLeast, n(3))], ..by_n() },
        Range { conditions: vec![condition("n", Comparison::Equal, Value::Null)], ..by_flag() },
    ] {
        for limit in [1, 2, 3, 100] {
            write_things(world).await;
            let whole = world.read(&read).await.unwrap();
            let (mut after, mut gone) = (None, 0);
            loop {
                let page = Range { limit, after: after.clone(), ..read.clone() };
                let page = world.read(&page).await.unwrap();
                let part = part(&read, after, page.next.clone(), limit);
                let committed = commit(world, vec![delete(part)]).await;
                match page.rows.is_empty() {
                    true => assert!(matches!(&committed.outcomes[..], [Outcome::Skipped(_)])),
                    false => assert_eq!(committed.outcomes, [Outcome::Committed]),
                }
                let images = world.latest_images().await;
                let keys = images.into_iter().map(|image| image.key).collect::<Vec<_>>();
                let mut expected = page.rows.clone();
                assert_eq!(keys.len(), expected.len(), "{limit}: {read:?}");
                expected.retain(|row| !keys.contains(row));
                assert!(expected.is_empty(), "{limit}: {expected:?} of {read:?}");
                gone += keys.len();
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(gone, whole.rows.len());
            assert_eq!(world.read(&read).await.unwrap().rows, Vec::<Row>::new());
            assert_eq!(world.rows("things", &["id"]).await.len(), 8 - gone);
            let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
            let all = range("things", None, &["id"]);
            let theirs = view.read_range(Some(&tenant("b")), &all).await.unwrap();
            assert_eq!(joined(&theirs.rows), "z");
            clear(world).await;
        }
    }
}

/// What the index does not contain stays, also if the row was in it when it was read.
pub async fn a_range_of_an_index_of_some_rows_changes_no_others(world: &mut World) {
    write_things(world).await;
    let set = |id: &str, column: &str, value| Change::Update {
        collection: "things".into(),
        key: vec![text(id)],
        fields: fields([(column, value)]),
    };
    world.write("abceh".chars().map(|id| set(&id.to_string(), "most", n(7))).collect()).await;
    let by_most = range("things", Some("by_most"), &["id"]);
    let first = world.read(&Range { limit: 2, ..by_most.clone() }).await.unwrap();
    assert_eq!(joined(&first.rows), "ab");
    world.write(vec![set("a", "n", Value::Null)]).await;
    commit(world, vec![delete(part(&by_most, None, first.next.clone(), 9))]).await;
    assert_eq!(joined(&world.rows("things", &["id"]).await), "acdefgh", "b");
    commit(world, vec![delete(part(&by_most, first.next, None, 9))]).await;
    assert_eq!(joined(&world.rows("things", &["id"]).await), "adefg", "c and h");
}

/// A row that was changed, moved or inserted since it was read is judged as it is now, and no more rows are
/// taken than were planned.
pub async fn rows_of_a_range_are_judged_in_the_commit(world: &mut World) {
    write_things(world).await;
    let kept = condition("title", Comparison::NotEqual, text("kept"));
    let read = Range {
        upper: Some(n(3)),
        conditions: vec![kept],
        ..range("things", Some("by_n"), &["id"])
    };
    let page = world.read(&Range { limit: 3, ..read.clone() }).await.unwrap();
    assert_eq!(joined(&page.rows), "bcd");
    let set = |id: &str, column: &str, value| Change::Update {
        collection: "things".into(),
        key: vec![text(id)],
        fields: fields([(column, value)]),
    };
    // `b` no longer meets the condition, `c` has left the part, `i` has come into it.
    let changes = vec![set("b", "title", text("kept")), set("c", "n", n(3)), thing("i", 1)];
    world.write(changes).await;
    let first = part(&read, None, page.next.clone(), 3);
    commit(world, vec![delete(first)]).await;
    assert_eq!(joined(&world.rows("things", &["id"]).await), "abcefgh");
    assert_eq!(world.latest_images().await.len(), 2);
    // Two of three rows, whichever they are.
    let rest = part(&read, page.next, None, 2);
    commit(world, vec![delete(rest)]).await;
    assert_eq!(world.latest_images().await.len(), 2);
    assert_eq!(world.rows("things", &["id"]).await.len(), 5);
    // Rows are counted as well as items.
    let rows: Vec<u64> = world.history().await.iter().map(|row| row.rows).collect();
    assert_eq!(rows, [2, 2]);
    assert_eq!(world.balanced().await.rows[0].counted.rows, 4);
    assert_eq!(world.store().depths().await.unwrap()[0].rows, 4);
}

/// The columns of a range's rows are set, and the rows are kept as they were.
pub async fn columns_of_a_range_are_set(world: &mut World) {
    write_things(world).await;
    let read = Range { upper: Some(n(2)), ..range("things", Some("by_n"), &["id"]) };
    let range = Arc::new(part(&read, None, None, 100));
    // The column by which the rows are found may be set as well.
    let fields = fields([("n", n(9)), ("title", text("old"))]);
    let committed =
        commit(world, vec![Change::UpdateRange { range, fields, increments: vec![] }]).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    let rows = world.rows("things", &["id", "n", "title"]).await;
    let set: Vec<Row> = rows.into_iter().filter(|row| row[2] == text("old")).collect();
    assert_eq!(set, ["b", "c", "d", "h"].map(|id| vec![text(id), n(9), text("old")]));
    let images = world.latest_images().await;
    let titles = images.iter().map(|image| {
        let fields = image.row.as_ref().unwrap();
        fields.iter().find(|field| field.name == "title").unwrap().value.clone()
    });
    let mut titles: Vec<Value> = titles.collect();
    titles.sort_by_key(|title| format!("{title:?}"));
    assert_eq!(titles, ["b", "c", "d", "h"].map(text));
}

/// Columns of a range's rows are added to, by which they are found as well, and others are set beside them. Nothing is
/// added to null, or beyond 64 bits: beside a guard, one such row fails the item.
pub async fn columns_of_a_range_are_added_to(world: &mut World) {
    write_things(world).await;
    let change = |read: &Range, fields: Vec<Field>, by| Change::UpdateRange {
        range: Arc::new(part(read, None, None, 100)),
        fields,
        increments: vec![Field::new("n", n(by))],
    };
    let read = Range { upper: Some(n(2)), ..range("things", Some("by_n"), &["id"]) };
    let few = || Range { upper: Some(n(12)), lower: Some(n(10)), ..read.clone() };
    let set = fields([("title", text("old"))]);
    assert_eq!(commit(world, vec![change(&read, set, 10)]).await.outcomes, [Outcome::Committed]);
    assert_eq!(
        commit(world, vec![change(&few(), vec![], -1)]).await.outcomes,
        [Outcome::Committed]
    );
    let rows = world.rows("things", &["id", "n", "title"]).await;
    let set: Vec<Row> = rows.into_iter().filter(|row| row[2] == text("old")).collect();
    let expected = [("b", 10), ("c", 11), ("d", 11), ("h", 11)];
    assert_eq!(set, expected.map(|(id, to)| vec![text(id), n(to), text("old")]));
    let mut left: Vec<String> = Vec::new();
    for image in world.latest_images().await {
        let Left::Set(fields) = image.left else { panic!("{image:?}") };
        left.push(fields.iter().map(|f| format!("{} {}", f.name, f.value.shown())).collect());
    }
    left.sort_unstable();
    assert_eq!(left, ["n 10", "n 11", "n 11", "n 11"]);
    assert_eq!(world.balanced().await.rows[0].counted.rows, 8);
    let before = world.rows("things", &["id", "n"]).await;
    let whole = range("things", None, &["id"]);
    let valued = vec![condition("n", Comparison::NotEqual, Value::Null)];
    let valued = Range { conditions: valued, ..whole.clone() };
    for (at, (read, by)) in [(&whole, 1), (&valued, i64::MAX - 4)].into_iter().enumerate() {
        let guard = crate::conformance::world::n_is("f", 5);
        let decision = apply(vec![guard], vec![change(read, vec![], by)]);
        let dead = world.settle(candidate(&format!("dead{at}")), decision).await;
        assert!(matches!(&dead.outcomes[..], [Outcome::Dead(_)]), "{dead:?}");
    }
    assert_eq!(world.rows("things", &["id", "n"]).await, before);
    world.balanced().await;
}

/// What is changed by one item is what the next one finds.
pub async fn ranges_of_one_batch_take_effect_one_after_the_other(world: &mut World) {
    write_things(world).await;
    let read = Range { upper: Some(n(3)), ..range("things", Some("by_n"), &["id"]) };
    let whole = || delete(part(&read, None, None, 3));
    let run = world.run("sweep").await;
    world.plan("sweep", run, vec![candidate("one"), candidate("two")]).await;
    let waiting = world.log("sweep").await;
    let decisions = waiting.iter().map(|waiting| (waiting, apply(vec![], vec![whole()])));
    let committed = world.commit(decisions.collect()).await;
    assert_eq!(committed.outcomes, [Outcome::Committed, Outcome::Committed]);
    assert_eq!(joined(&world.rows("things", &["id"]).await), "efg");
}

fn moved(range: RowRange, into: &str) -> Change {
    Change::MoveRange { range: Arc::new(range), into: into.into() }
}

/// Rows are moved with all their values, counted once, and kept so that undoing an item removes them there first.
pub async fn rows_of_a_range_are_moved(world: &mut World) {
    write_things(world).await;
    let full = Change::Insert { collection: "things".into(), fields: full_thing("x", 2) };
    world.write(vec![full]).await;
    let columns = ["id", "title", "n", "ratio", "data", "at", "flag", "doc", "reference", "price"];
    let before = world.rows("things", &columns).await;
    let read = Range { upper: Some(n(2)), ..range("things", Some("by_n"), &["id"]) };
    let changes = vec![moved(part(&read, None, None, 100), "archived")];
    let committed = commit(world, changes).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    assert_eq!(joined(&world.rows("things", &["id"]).await), "aefg");
    let archived = world.rows("archived", &columns).await;
    let expected: Vec<&Row> =
        before.iter().filter(|row| matches!(row[2], Value::Integer(1 | 2))).collect();
    assert_eq!(archived.iter().collect::<Vec<_>>(), expected);
    assert_eq!(world.history().await[0].rows, 5);
    let images = world.latest_images().await;
    let (of, keys): (Vec<_>, Vec<_>) = images
        .iter()
        .map(|image| ((image.collection.as_str(), image.row.is_some()), image.key.clone()))
        .unzip();
    assert_eq!(of[..5], [("things", true); 5]);
    assert_eq!(of[5..], [("archived", false); 5]);
    let [mut gone, mut put] = [&keys[..5], &keys[5..]].map(<[Row]>::to_vec);
    gone.sort_by_key(|key| format!("{key:?}"));
    put.sort_by_key(|key| format!("{key:?}"));
    assert_eq!(gone, put);
    // One row by its key, and none that is there no longer.
    let whole = range("things", None, &[]);
    let one = |id: &str| RowRange { prefix: vec![text(id)], ..part(&whole, None, None, 1) };
    assert_eq!(
        commit(world, vec![moved(one("a"), "archived")]).await.outcomes,
        [Outcome::Committed]
    );
    let none = commit(world, vec![moved(one("a"), "archived")]).await;
    assert!(matches!(&none.outcomes[..], [Outcome::Skipped(_)]), "{none:?}");
    assert_eq!(joined(&world.rows("things", &["id"]).await), "efg");
    assert_eq!(world.balanced().await.rows[0].counted.rows, 6);
}

/// A guard keeps rows where they are, and so does another row of the same key beside a guard.
pub async fn rows_are_moved_only_where_they_can_be(world: &mut World) {
    world.write(vec![thing("a", 1), thing("b", 1)]).await;
    let taken = fields([("id", text("a")), ("title", text("other"))]);
    world.write(vec![Change::Insert { collection: "archived".into(), fields: taken }]).await;
    let all = || part(&range("things", None, &[]), None, None, 10);
    let row = |id: &str, n: i64| Guard::Columns {
        collection: "things".into(),
        key: vec![text(id)],
        conditions: vec![condition("n", Comparison::Equal, Value::Integer(n))],
    };
    let skipped = world
        .settle(candidate("skipped"), apply(vec![row("a", 7)], vec![moved(all(), "archived")]));
    assert!(matches!(&skipped.await.outcomes[..], [Outcome::Skipped(_)]));
    let dead =
        world.settle(candidate("dead"), apply(vec![row("a", 1)], vec![moved(all(), "archived")]));
    assert!(matches!(&dead.await.outcomes[..], [Outcome::Dead(_)]));
    let unknown = world.settle(candidate("unknown"), apply(vec![], vec![moved(all(), "nowhere")]));
    assert!(matches!(&unknown.await.outcomes[..], [Outcome::Dead(_)]));
    assert_eq!(joined(&world.rows("things", &["id"]).await), "ab");
    assert_eq!(joined(&world.rows("archived", &["id"]).await), "a");
    world.balanced().await;
}

/// An item whose ranges hold no row has done nothing: it is skipped, and its message is not sent.
pub async fn a_range_without_rows_is_skipped(world: &mut World) {
    write_things(world).await;
    let beyond = Range { lower: Some(n(100)), ..range("things", Some("by_n"), &["id"]) };
    let none = || delete(part(&beyond, None, None, 100));
    let emit = || Change::Emit { topic: "t".into(), key: "k".into(), payload: vec![1] };
    let run = world.run("sweep").await;
    let all = ["none", "some", "other", "told"];
    world.plan("sweep", run, all.map(candidate).to_vec()).await;
    let waiting = world.log("sweep").await;
    let read = Range { upper: Some(n(2)), ..range("things", Some("by_n"), &["id"]) };
    let changes = [
        vec![none(), emit()],
        vec![delete(part(&read, None, None, 100)), none(), emit()],
        vec![none(), thing("i", 9)],
        vec![emit()],
    ];
    let decisions =
        waiting.iter().zip(changes).map(|(item, changes)| (item, apply(vec![], changes)));
    let committed = world.commit(decisions.collect()).await;
    let [Outcome::Skipped(_), rest @ ..] = &committed.outcomes[..] else { panic!("{committed:?}") };
    assert_eq!(rest, [Outcome::Committed, Outcome::Committed, Outcome::Committed]);
    assert_eq!(world.balanced().await.rows[0].counted.rows, 5);
    assert_eq!(joined(&world.rows("things", &["id"]).await), "aefgi");
    let sent = world.store().messages(&MessageQuery { limit: 10, ..MessageQuery::default() }).await;
    assert_eq!(sent.unwrap().len(), 2);
}

/// Of the rows that were planned with an item, those that it has not changed are counted: once, however often it is
/// tried, and also if it has changed none.
pub async fn rows_that_stay_are_counted(world: &mut World) {
    write_things(world).await;
    let read = Range { upper: Some(n(2)), ..range("things", Some("by_n"), &["id"]) };
    let whole = || vec![delete(part(&read, None, None, 4))];
    let later =
        Settle::Retry { run_at: world.now, attempts: 0, guard_retries: 1, reason: "held".into() };
    let set_n = |id: &str, to: i64| Change::Update {
        collection: "things".into(),
        key: vec![text(id)],
        fields: fields([("n", n(to))]),
    };
    // Nothing matches any more, and then two of the four rows do again.
    world.write(["b", "c", "d", "h"].map(|id| set_n(id, 9)).to_vec()).await;
    let mut tried = apply_to(4, whole());
    if let Decision::Apply { on_guard_failed, .. } = &mut tried {
        *on_guard_failed = later;
    }
    let committed = world.settle(candidate("item"), tried).await;
    assert!(matches!(&committed.outcomes[..], [Outcome::Retried(_)]), "{committed:?}");
    assert_eq!(world.history().await, []);
    world.write(["b", "h"].map(|id| set_n(id, 1)).to_vec()).await;
    let retry = world.retries().await.remove(0);
    let committed = world.commit(vec![(&retry, apply_to(4, whole()))]).await;
    assert_eq!(committed.outcomes, [Outcome::Committed]);
    let skipped = world.settle(candidate("none"), apply_to(4, whole())).await;
    assert!(matches!(&skipped.outcomes[..], [Outcome::Skipped(_)]), "{skipped:?}");
    // A task that does not say what it has found.
    let one = part(&range("things", None, &[]), None, None, 1);
    world.settle(candidate("unknown"), apply(vec![], vec![delete(one)])).await;
    let rows = world.history().await;
    let stayed: Vec<_> =
        rows.iter().map(|row| (row.rows, row.planned_rows(), row.stayed())).collect();
    assert_eq!(stayed, [(2, Some(4), Some(2)), (0, Some(4), Some(4)), (1, None, None)]);
    world.balanced().await;
}

/// A range over part of a key of two columns.
pub async fn a_range_of_a_key_of_two_columns_is_changed(world: &mut World) {
    world.write(vec![parent("p"), parent("q")]).await;
    world.write((1..=6).map(|seq| child("p", seq, "x")).collect()).await;
    world.write(vec![child("q", 3, "x")]).await;
    let read = Range {
        prefix: vec![text("p")],
        lower: Some(n(2)),
        upper: Some(n(5)),
        ..range("children", None, &["seq"])
    };
    let first = world.read(&Range { limit: 2, ..read.clone() }).await.unwrap();
    commit(world, vec![delete(part(&read, first.next, None, 9))]).await;
    let left = world.rows("children", &["parent", "seq"]).await;
    let mut expected: Vec<Row> = [1, 2, 3, 6].map(|seq| vec![text("p"), n(seq)]).to_vec();
    expected.push(vec![text("q"), n(3)]);
    assert_eq!(left, expected);
}

/// What cannot be a range of the collection is the item's fault, and places of any bytes never reach the rows of
/// another tenant.
pub async fn a_range_that_is_none_changes_nothing(world: &mut World) {
    write_things(world).await;
    let read = range("things", Some("by_n"), &["id"]);
    let page = world.read(&Range { limit: 2, ..read.clone() }).await.unwrap();
    let place = page.next.expect("there is more");
    let whole = || part(&read, None, None, 100);
    for wrong in [
        RowRange { index: Some("by_nothing".into()), ..whole() },
        RowRange { prefix: vec![n(1), n(2)], ..whole() },
        RowRange { after: Some(vec![0xff; 3]), ..whole() },
        RowRange { index: Some("by_flag".into()), after: Some(place.clone()), ..whole() },
    ] {
        let committed = commit(world, vec![delete(wrong.clone())]).await;
        assert!(matches!(&committed.outcomes[..], [Outcome::Dead(_)]), "{wrong:?}: {committed:?}");
    }
    assert_eq!(world.rows("things", &["id"]).await.len(), 8);
    let (mut done, mut refused) = (0, 0);
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut bent = place.clone();
        for _ in 0..random.random_range(1..5) {
            let at = random.random_range(0..=bent.len());
            match random.random_range(0..3) {
                0 if at < bent.len() => bent[at] = random.random(),
                1 => bent.truncate(at),
                _ => bent.insert(at, random.random()),
            }
        }
        let bent = RowRange { until: Some(bent), ..whole() };
        match &commit(world, vec![delete(bent.clone())]).await.outcomes[..] {
            [Outcome::Committed | Outcome::Skipped(_)] => done += 1,
            [Outcome::Dead(_)] => refused += 1,
            other => panic!("seed {seed}: {bent:?}: {other:?}"),
        }
    }
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
    let view = world.store().snapshot(std::time::Duration::from_secs(60)).await.unwrap();
    let theirs = view.read_range(Some(&tenant("b")), &range("things", None, &["id"])).await;
    assert_eq!(joined(&theirs.unwrap().rows), "z");
}
