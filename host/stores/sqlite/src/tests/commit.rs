//! The commit on SQLite: violations, before-images, read sets, repetition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use besom_core::ids::TaskName;
use besom_core::proposal::{Change, Comparison, Condition, Filter, Guard, ReadSet, Settle};
use besom_core::value::{Field, Value};

use super::super::queue::Priority;
use super::super::writer::Durability;
use super::super::{LONG_FOR, Options, turn_of_batch};
use super::fixture::{Fixture, apply, change, document, text, update};
use besom_ports::store::{Decision, Error, HistoryQuery, LeftOut, Outcome, Store};

fn dead(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Dead(reason) => reason,
        other => panic!("expected a dead letter, found {other:?}"),
    }
}

#[tokio::test]
async fn a_violation_settles_its_item_alone_with_the_words_of_the_database() {
    let f = Fixture::new().await;
    f.write(vec![document("a"), document("b"), document("c")]).await;
    let waiting = f.plan(&["a", "b", "c", "d", "e"]).await;
    let changes = vec![
        vec![update("a", "server_seq", Value::Integer(5))],
        // The second change fails: the first one is undone.
        vec![update("b", "server_seq", Value::Integer(5)), document("a")],
        vec![update("c", "server_seq", Value::Integer(5))],
        vec![update("d", "server_seq", Value::Integer(5))],
        vec![update("a", "format", text("word"))],
    ];
    let entries = waiting.into_iter().zip(changes).map(|(w, c)| (w, apply(vec![], c))).collect();
    let done = f.commit(entries).await;
    assert_eq!(done.outcomes[0], Outcome::Committed);
    assert!(dead(&done.outcomes[1]).starts_with("violation: UNIQUE constraint failed"));
    assert_eq!(done.outcomes[2], Outcome::Committed);
    assert!(dead(&done.outcomes[3]).contains("no such row"));
    assert!(dead(&done.outcomes[4]).contains("CHECK constraint failed"));
    let view = f.store.snapshot(std::time::Duration::from_secs(5)).await.unwrap();
    let keys: Vec<_> = ["a", "b", "c"].iter().map(|k| vec![text(k)]).collect();
    let columns = ["server_seq".to_owned()];
    let rows = view.get_many(Some(&f.tenant), "documents", &keys, &columns).await.unwrap();
    let seqs: Vec<_> = rows.into_iter().map(|row| row.unwrap()[0].clone()).collect();
    assert_eq!(seqs, [Value::Integer(5), Value::Integer(0), Value::Integer(5)]);
    f.balanced().await;
}

/// The check refuses such a table, but the key may lose its index later.
#[tokio::test]
async fn a_key_of_several_rows_changes_none_of_them() {
    let f = Fixture::new().await;
    f.write(vec![document("a"), document("twin")]).await;
    let product = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    // A reference needs a unique key.
    let references =
        "SELECT 'DROP TABLE ' || group_concat(name, '; DROP TABLE ') FROM sqlite_schema
                      WHERE sql LIKE '%REFERENCES documents%'";
    let dropped: String = product.query_row(references, [], |row| row.get(0)).unwrap();
    product.execute_batch(&format!("PRAGMA foreign_keys = OFF; {dropped}")).unwrap();
    let again = "PRAGMA foreign_keys = OFF;
                 CREATE TABLE copy AS SELECT * FROM documents;
                 INSERT INTO copy SELECT * FROM documents WHERE doc_id = 'twin';
                 DROP TABLE documents; ALTER TABLE copy RENAME TO documents";
    product.execute_batch(again).unwrap();
    let deleted =
        |key: &str| Change::Delete { collection: "documents".into(), key: vec![text(key)] };
    let changes = [update("twin", "server_seq", Value::Integer(5)), deleted("twin")];
    for (of_twin, items) in changes.into_iter().zip([["1", "2"], ["3", "4"]]) {
        let waiting = f.plan(&items).await;
        let changes = [of_twin, update("a", "server_seq", Value::Integer(5))];
        let entries = waiting.into_iter().zip(changes);
        let done = f.commit(entries.map(|(w, c)| (w, apply(vec![], vec![c]))).collect()).await;
        assert!(dead(&done.outcomes[0]).contains("several rows"), "{done:?}");
        assert_eq!(done.outcomes[1], Outcome::Committed);
        let kept = "SELECT count(*) FROM documents WHERE doc_id = 'twin' AND server_seq = 0";
        assert_eq!(product.query_row(kept, [], |row| row.get::<_, i64>(0)).unwrap(), 2);
    }
    f.balanced().await;
}

#[tokio::test]
async fn a_value_of_another_kind_is_a_violation_and_no_error() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let waiting = f.plan(&["a", "b"]).await;
    let changes =
        [update("a", "server_seq", text("five")), update("a", "no_such_column", Value::Integer(1))];
    let entries =
        waiting.into_iter().zip(changes).map(|(w, c)| (w, apply(vec![], vec![c]))).collect();
    let done = f.commit(entries).await;
    assert!(dead(&done.outcomes[0]).contains("documents.server_seq: expected integer, found text"));
    assert!(dead(&done.outcomes[1]).contains("has no column \"no_such_column\""));
    f.balanced().await;
}

#[tokio::test]
async fn a_read_set_is_deleted_exactly_and_can_be_had_back() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    f.write((1..=500).map(|seq| change("a", seq, &seq.to_le_bytes())).collect()).await;
    let kept = [100_i64, 101, 250];
    let rest = (1..=400).filter(|s| !kept.contains(s)).map(|s| vec![Value::Integer(s)]);
    let set = Arc::new(ReadSet {
        collection: "changes".into(),
        prefix: vec![text("a")],
        rest: rest.collect(),
    });
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let changes = vec![Change::DeleteReadSet(Arc::clone(&set))];
    let done =
        f.commit(vec![(waiting, apply(vec![Guard::Complete(Arc::clone(&set))], changes))]).await;
    assert_eq!(done.outcomes, [Outcome::Committed]);
    let left = rusqlite::Connection::open(f.dir.path().join("besom.db"))
        .unwrap()
        .prepare("SELECT server_seq FROM changes ORDER BY 1")
        .unwrap()
        .query_map([], |r| r.get(0))
        .unwrap()
        .collect::<rusqlite::Result<Vec<i64>>>()
        .unwrap();
    assert_eq!(left, kept.into_iter().chain(401..=500).collect::<Vec<_>>());
    let history = f.store.history(&HistoryQuery { limit: 10, ..Default::default() }).await.unwrap();
    let images = f.store.before_images(history[0].id).await.unwrap().unwrap();
    assert_eq!(images.len(), set.len());
    assert_eq!(images[0].key, [text("a"), Value::Integer(1)]);
    let payload = images[0].row.as_ref().unwrap().iter().find(|f| f.name == "payload").unwrap();
    assert_eq!(payload.value, Value::Bytes(1_i64.to_le_bytes().to_vec()));
    assert_eq!(history[0].undo_bytes, f.store.depths().await.unwrap()[0].undo_bytes);
    f.balanced().await;
}

#[tokio::test]
async fn a_row_of_the_read_set_that_is_gone_fails_its_guard() {
    let f = Fixture::new().await;
    f.write(vec![document("a"), change("a", 1, b"x"), change("a", 2, b"y")]).await;
    let set = Arc::new(ReadSet {
        collection: "changes".into(),
        prefix: vec![text("a")],
        rest: (1..=3).map(|s| vec![Value::Integer(s)]).collect(),
    });
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let decision = apply(vec![Guard::Complete(Arc::clone(&set))], vec![Change::DeleteReadSet(set)]);
    let done = f.commit(vec![(waiting, decision)]).await;
    assert_eq!(done.outcomes, [Outcome::Skipped("guard".into())]);
    f.balanced().await;
}

#[tokio::test]
async fn an_upsert_keeps_the_row_or_its_absence() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let upsert = |seq: i64| Change::Upsert {
        collection: "snapshots".into(),
        fields: vec![
            Field::new("doc_id", text("a")),
            Field::new("server_seq", Value::Integer(1)),
            Field::new("payload", Value::Bytes(vec![seq as u8])),
        ],
    };
    let waiting = f.plan(&["a", "b"]).await;
    let entries =
        waiting.into_iter().zip([1, 2]).map(|(w, n)| (w, apply(vec![], vec![upsert(n)]))).collect();
    f.commit(entries).await;
    let history = f.store.history(&HistoryQuery { limit: 10, ..Default::default() }).await.unwrap();
    let first = f.store.before_images(history[1].id).await.unwrap().unwrap();
    let second = f.store.before_images(history[0].id).await.unwrap().unwrap();
    assert_eq!(first[0].row, None);
    assert_eq!(first[0].key, [text("a"), Value::Integer(1)]);
    let payload =
        |fields: &[Field]| fields.iter().find(|f| f.name == "payload").unwrap().value.clone();
    assert_eq!(payload(second[0].row.as_ref().unwrap()), Value::Bytes(vec![1]));
}

#[tokio::test]
async fn a_batch_that_is_sent_twice_is_applied_once() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let increment = Change::Increment {
        collection: "documents".into(),
        key: vec![text("a")],
        fields: vec![Field::new("server_seq", Value::Integer(1))],
    };
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let batch = f.batch(vec![(waiting.clone(), apply(vec![], vec![increment.clone()]))]);
    let first = f.store.commit(&batch).await.unwrap();
    assert_eq!(f.store.commit(&batch).await.unwrap(), first);
    assert_eq!(f.store.find_commit(batch.id).await.unwrap(), Some(first));
    let again = f.commit(vec![(waiting, apply(vec![], vec![increment]))]).await;
    assert_eq!(again.outcomes, [Outcome::Left(LeftOut::NotThere)]);
    let guard = Guard::Columns {
        collection: "documents".into(),
        key: vec![text("a")],
        conditions: vec![Condition::equal("server_seq", Value::Integer(1))],
    };
    let waiting = f.plan(&["b"]).await.pop().unwrap();
    let done = f.commit(vec![(waiting, apply(vec![guard], vec![]))]).await;
    assert_eq!(done.outcomes, [Outcome::Committed]);
    f.balanced().await;
}

#[tokio::test]
async fn a_mark_that_was_looked_up_in_vain_is_never_committed() {
    let f = Fixture::new().await;
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let skip = Settle::Skip { reason: "nothing".into(), settled: false };
    let batch = f.batch(vec![(waiting, Decision::Settle(skip))]);
    assert_eq!(f.store.find_commit(batch.id).await.unwrap(), None);
    assert!(f.store.commit(&batch).await.is_err());
    assert_eq!(f.store.find_commit(batch.id).await.unwrap(), None);
    assert_eq!(f.plan(&[]).await.len(), 1);
    f.balanced().await;
}

#[tokio::test]
async fn a_deferred_foreign_key_fails_its_item_and_not_the_commit() {
    let f = Fixture::new().await;
    let user = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    user.execute_batch(
        "CREATE TABLE parent (id INTEGER PRIMARY KEY);
         CREATE TABLE child (id INTEGER PRIMARY KEY,
           parent INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
         CREATE TABLE harsh (id INTEGER PRIMARY KEY ON CONFLICT ROLLBACK);
         INSERT INTO parent VALUES (1); INSERT INTO harsh VALUES (1);",
    )
    .unwrap();
    let mut collections = besom_product::model::default_collections();
    for (name, columns) in [("child", vec!["id", "parent"]), ("harsh", vec!["id"])] {
        let mut collection = collections["projects"].clone();
        collection.name = name.into();
        collection.table = name.into();
        collection.key = vec!["id".into()];
        let column = besom_core::collection::Column {
            kind: besom_core::value::Kind::Integer,
            encoding: besom_core::collection::Encoding::Native,
        };
        collection.columns = columns.into_iter().map(|c| (c.to_owned(), column)).collect();
        collections.insert(name.into(), collection);
    }
    f.store.set_collections(Arc::new(collections));
    let insert = |table: &str, fields: &[(&str, i64)]| Change::Insert {
        collection: table.into(),
        fields: fields.iter().map(|(n, v)| Field::new(*n, Value::Integer(*v))).collect(),
    };
    let waiting = f.plan(&["a", "b", "c", "d"]).await;
    let changes = [
        insert("child", &[("id", 1), ("parent", 1)]),
        insert("child", &[("id", 2), ("parent", 9)]),
        insert("harsh", &[("id", 1)]),
        insert("child", &[("id", 3), ("parent", 1)]),
    ];
    let entries =
        waiting.into_iter().zip(changes).map(|(w, c)| (w, apply(vec![], vec![c]))).collect();
    let done = f.commit(entries).await;
    assert_eq!(done.outcomes[0], Outcome::Committed);
    assert!(dead(&done.outcomes[1]).contains("FOREIGN KEY constraint failed"));
    assert!(dead(&done.outcomes[2]).contains("UNIQUE constraint failed"));
    assert_eq!(done.outcomes[3], Outcome::Committed);
    f.balanced().await;
}

/// All tasks share the writer: guards that examine many rows have a time limit, the batch is
/// refused as a whole so that its items are tried one by one, and other writes continue.
#[tokio::test]
async fn guards_that_take_too_long_are_interrupted_and_change_nothing() {
    let f = Fixture::with(|o| Options { guard_timeout: Duration::ZERO, ..o }).await;
    f.write((0..2_000).map(|i| document(&format!("d{i:04}"))).collect()).await;
    let waiting = f.plan(&["slow", "quick", "plain"]).await;
    let [slow, quick, plain] = waiting.try_into().expect("three items");
    let exists = |column: &str, value| {
        let conditions = vec![Condition::equal(column, value)];
        Guard::Exists(Filter { collection: "documents".into(), conditions })
    };
    let advance = |key: &str| vec![update(key, "server_seq", Value::Integer(5))];
    // No row has that epoch, and there is no index on it.
    let looks = apply(vec![exists("epoch", Value::Integer(77))], advance("d0000"));
    let seeks = apply(vec![exists("doc_id", text("d1999"))], advance("d0001"));
    let entries = vec![(slow, looks), (quick, seeks), (plain, apply(vec![], advance("d0002")))];
    let said = f.store.commit(&f.batch(entries.clone())).await;
    let Err(Error::GuardsTimedOut(said)) = said else { panic!("{said:?}") };
    assert!(said.contains("store.guard_timeout"), "{said}");
    f.balanced().await;
    // Other statements are not interrupted, however many rows they examine.
    f.write(vec![document("later")]).await;
    assert!(f.store.audit().await.is_ok());
    // The items alone, from the stream's cursor: the item to blame has failed.
    let failed = Settle::Dead { attempts: 1, reason: said };
    let [(slow, _), quick, plain] = entries.try_into().expect("three items");
    let committed = f.commit(vec![(slow, Decision::Settle(failed)), quick, plain]).await.outcomes;
    assert!(matches!(committed[0], Outcome::Dead(_)), "{committed:?}");
    assert_eq!(committed[1..], [Outcome::Committed, Outcome::Committed]);
    f.balanced().await;
}

/// A guard on one row is not interrupted, but no more of them begin once the time is used up.
#[tokio::test]
async fn guards_on_large_rows_have_the_same_time_limit() {
    let limit = Duration::from_millis(5);
    let f = Fixture::with(|o| Options { guard_timeout: limit, ..o }).await;
    let large = vec![b'x'; 8 << 20];
    let rows = vec![
        document("large"),
        change("large", 1, &large),
        document("small"),
        change("small", 1, b"y"),
    ];
    f.write(rows).await;
    let waiting = f.plan(&["slow", "quick"]).await;
    let [slow, quick] = waiting.try_into().expect("two items");
    let guard = |key: &str| Guard::Columns {
        collection: "changes".into(),
        key: vec![text(key), Value::Integer(1)],
        conditions: vec![
            Condition::of("payload", Comparison::AtLeast, Value::Bytes(b"x".to_vec()));
            10
        ],
    };
    let advance = |key: &str| vec![update(key, "server_seq", Value::Integer(5))];
    let compares = apply(vec![guard("large"); 100], advance("large"));
    let plain = apply(vec![guard("small")], advance("small"));
    let entries = vec![(slow, compares), (quick, plain)];
    let said = f.store.commit(&f.batch(entries.clone())).await;
    let Err(Error::GuardsTimedOut(said)) = said else { panic!("{said:?}") };
    assert!(said.contains("store.guard_timeout"), "{said}");
    f.balanced().await;
    let failed = Settle::Dead { attempts: 1, reason: said };
    let [(slow, _), quick] = entries.try_into().expect("two items");
    let committed = f.commit(vec![(slow, Decision::Settle(failed)), quick]).await.outcomes;
    assert_eq!(committed[1], Outcome::Committed, "{committed:?}");
}

/// The index by key has blocks of ids: a key is found in each of them, newest first.
#[tokio::test]
async fn the_history_of_a_key_is_found_in_every_block() {
    let f = Fixture::new().await;
    let mut ids = Vec::new();
    for round in 0..4 {
        let waiting = f.plan(&["often", "other"]).await;
        let entries = waiting.into_iter().map(|w| (w, apply(vec![], vec![]))).collect();
        f.commit(entries).await;
        let query =
            |key: &str| HistoryQuery { key: Some(key.into()), limit: 10, ..Default::default() };
        let found = f.store.history(&query("often")).await.unwrap();
        assert_eq!(found.len(), round + 1);
        ids.insert(0, found[0].id);
        assert_eq!(found.iter().map(|row| row.id).collect::<Vec<_>>(), ids);
        assert!(f.store.history(&query("never")).await.unwrap().is_empty());
        let before = HistoryQuery { before: Some(ids[0]), ..query("often") };
        assert_eq!(f.store.history(&before).await.unwrap().len(), round);
        // The second and the third round are in one block, the others each in their own.
        let skipped = if round == 1 { 0 } else { 5_000 };
        rusqlite::Connection::open(f.dir.path().join("besom.db"))
            .unwrap()
            .execute("UPDATE besom_sequence SET next = next + ?1", [skipped])
            .unwrap();
    }
    f.balanced().await;
}

#[tokio::test]
async fn a_task_with_long_commits_lets_others_go_first() {
    let f = Fixture::new().await;
    let waiting = f.plan(&["k"]).await;
    let batch = f.batch(waiting.into_iter().map(|w| (w, apply(vec![], vec![]))).collect());
    let of = |long: &[(&str, Duration)]| {
        let ago =
            |ago: Duration| Instant::now().checked_sub(ago).expect("a machine up for minutes");
        let long = long.iter().map(|(task, past)| (TaskName::from(*task), ago(*past))).collect();
        turn_of_batch(&batch, &long).priority
    };
    let name = f.task.to_string();
    assert_eq!(of(&[]), Priority::Normal);
    assert_eq!(of(&[("another", Duration::ZERO)]), Priority::Normal);
    assert_eq!(of(&[(&name, Duration::ZERO)]), Priority::Heavy);
    assert_eq!(of(&[(&name, LONG_FOR)]), Priority::Normal);
}

#[tokio::test]
async fn other_connections_that_write_are_noticed() {
    let f = Fixture::new().await;
    let looked = || {
        f.store.writer.with(Priority::Normal, |writing| {
            writing.transaction(Durability::Full, |_| Ok(()))?;
            Ok(writing.others_write())
        })
    };
    for round in 0..8 {
        f.plan(&[&format!("k{round}")]).await;
        assert!(!looked().await.unwrap(), "its own commits are no others'");
    }
    let other = rusqlite::Connection::open(f.dir.path().join("besom.db")).unwrap();
    other.execute_batch("CREATE TABLE other (x)").unwrap();
    let mut noticed = Vec::new();
    for _ in 0..3 {
        other.execute_batch("INSERT INTO other VALUES (1)").unwrap();
        noticed.push(looked().await.unwrap());
    }
    assert_eq!(noticed, [false, false, true]);
}
