//! Other processes, a full disk, newer files: nothing is lost, and the store continues.

use std::sync::atomic::Ordering;
use std::time::Duration;

use besom_core::delivery::{Attempt, Claim, Claimed, End};
use besom_core::ids::{CommitId, FencingToken, Seq, Term};
use besom_core::proposal::Settle;
use rusqlite::Connection;

use super::super::SqliteStore;
use super::fixture::{Fixture, START, apply, change, document, node, options, update};
use besom_core::value::Value;

use besom_ports::guests::Lane;
use besom_ports::store::{
    Command, CommandEffect, Decision, EndOfScan, Entered, Error, MessageSelector, Offered, Outcome,
    Repaired, Retention, Store,
};

#[tokio::test]
async fn another_process_that_writes_makes_a_commit_busy_and_loses_nothing() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let batch =
        f.batch(vec![(waiting, apply(vec![], vec![update("a", "server_seq", Value::Integer(2))]))]);
    let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE documents SET epoch = 7").unwrap();
    assert!(matches!(f.store.commit(&batch).await, Err(Error::Busy(_))));
    // Reads continue meanwhile.
    assert_eq!(f.store.backlog(None).await.unwrap().len(), 1);
    other.execute_batch("COMMIT").unwrap();
    assert_eq!(f.store.commit(&batch).await.unwrap().outcomes, [Outcome::Committed]);
    let row: (i64, i64) = other
        .query_row("SELECT server_seq, epoch FROM documents", [], |r| Ok((r.get(0)?, r.get(1)?)))
        .unwrap();
    assert_eq!(row, (2, 7));
    f.balanced().await;
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_the_store_goes_on_when_there_is_room() {
    let f = Fixture::new().await;
    f.write(vec![document("a")]).await;
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    f.store
        .writer
        .with(super::super::Priority::Normal, |writing| writing.limit_pages(Some(1)))
        .await
        .unwrap();
    let big = vec![7_u8; 1 << 20];
    let batch = f.batch(vec![(waiting, apply(vec![], vec![change("a", 1, &big)]))]);
    assert!(matches!(f.store.commit(&batch).await, Err(Error::Unavailable(_))));
    f.balanced().await;
    assert_eq!(f.store.backlog(None).await.unwrap().len(), 1);
    f.store
        .writer
        .with(super::super::Priority::Normal, |writing| writing.limit_pages(None))
        .await
        .unwrap();
    assert_eq!(f.store.commit(&batch).await.unwrap().outcomes, [Outcome::Committed]);
    f.balanced().await;
}

#[tokio::test]
async fn a_file_of_a_newer_schema_is_refused_with_both_versions_named() {
    let f = Fixture::new().await;
    let path = f.dir.path().join("besom.db");
    Connection::open(&path)
        .unwrap()
        .execute("UPDATE besom_meta SET value = 99 WHERE key = 'schema_version'", [])
        .unwrap();
    let Err(said) = SqliteStore::open(&path, options(&f.clock)) else { panic!("it opened") };
    let said = said.to_string();
    assert!(said.contains("99") && said.contains("besom.db"), "{said}");
}

/// The migration runs in a transaction that excludes other writers; the switch to the write-ahead
/// log before it does not wait for others by itself.
#[test]
fn processes_that_open_a_new_file_together_create_one_store() {
    for _ in 0..16 {
        open_a_new_file_together();
    }
}

fn open_a_new_file_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("besom.db");
    let opened: Vec<_> = std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| SqliteStore::open(&path, super::super::Options::default())))
            .collect();
        opening.into_iter().map(|thread| thread.join().unwrap().unwrap()).collect()
    });
    assert!(opened.iter().all(|store| store.identity() == opened[0].identity()));
    let counted: u32 = Connection::open(&path)
        .unwrap()
        .query_row("SELECT count(*) FROM besom_partition", [], |r| r.get(0))
        .unwrap();
    assert_eq!(counted, opened[0].partitions());
}

#[tokio::test]
async fn a_store_that_is_opened_again_goes_on_with_its_own_partitions() {
    let f = Fixture::new().await;
    f.plan(&["a", "b"]).await;
    let path = f.dir.path().join("besom.db");
    let other = super::super::Options { partitions: 7, ..options(&f.clock) };
    let again = SqliteStore::open(&path, other).unwrap();
    assert_eq!(again.partitions(), f.store.partitions());
    assert_eq!(again.backlog(None).await.unwrap(), f.store.backlog(None).await.unwrap());
    assert!(matches!(
        again
            .raise_fence(&FencingToken { term: Term(1), token_hash: [8; 32] }, &node(), None)
            .await,
        Err(Error::Fenced)
    ));
}

#[tokio::test]
async fn attach_is_refused() {
    let f = Fixture::new().await;
    let attached = f
        .store
        .writer
        .run(super::super::Priority::Normal, |tx| {
            Ok(tx.conn.execute_batch("ATTACH ':memory:' AS other").is_ok())
        })
        .await
        .unwrap();
    assert!(!attached);
}

#[tokio::test]
async fn a_leader_below_the_fence_writes_nothing() {
    let f = Fixture::new().await;
    let waiting = f.plan(&["a"]).await;
    let next = FencingToken { term: Term(2), token_hash: [9; 32] };
    f.store.raise_fence(&next, &node(), None).await.unwrap();
    let ended = f.store.end_scan(&f.fence, &EndOfScan::of(f.task.clone(), f.run)).await;
    assert!(matches!(ended, Err(Error::Fenced)));
    let skip = Settle::Skip { reason: "late".into(), settled: false };
    let entries = waiting.into_iter().map(|w| (w, Decision::Settle(skip.clone()))).collect();
    let done = f.commit(entries).await;
    assert!(matches!(done.outcomes[0], Outcome::Left(_)), "an older epoch acknowledges nothing");
    f.balanced().await;
}

#[tokio::test]
async fn a_death_is_counted_once_for_what_a_lost_process_had_begun() {
    let f = Fixture::new().await;
    let waiting = f.plan(&["a"]).await.pop().unwrap();
    let batch = f.batch(vec![]);
    f.store
        .begin(batch.id, &node(), Lane::Normal, &[(waiting.source, &waiting.item)])
        .await
        .unwrap();
    assert!(f.store.bury(&f.fence, &["other".into()]).await.unwrap().is_empty());
    let counted = f.store.bury(&f.fence, &[node()]).await.unwrap();
    assert_eq!(counted, std::slice::from_ref(&waiting.item.identity));
    assert!(f.store.bury(&f.fence, &[node()]).await.unwrap().is_empty());
    assert_eq!(f.plan(&[]).await[0].item.deaths, 1);
    // A clock that is slewed was not set back.
    f.clock.store(START.micros() - 500_000, Ordering::Relaxed);
    assert!(f.store.now().await.unwrap() >= START);
}

/// A damaged row of the log is named with its place, and removed by a repair.
#[tokio::test]
async fn a_row_that_cannot_be_read_is_named_and_removed_by_a_repair() {
    let f = Fixture::new().await;
    let items = f.plan(&["a", "b", "c"]).await;
    let partition = items[0].item.partition;
    Connection::open(f.dir.path().join("besom.db"))
        .expect("opens")
        .execute("UPDATE besom_log SET version = x'ff' WHERE key = 'b'", [])
        .expect("is spoilt");
    let read = f.store.read_logs(&f.task, &[(partition, Seq(0))], 10, 10, 1_000).await;
    let why = &read.expect("the others are read").broken[0].why;
    assert!(why.starts_with("2 of the stream of sweep in partition"), "{why}");

    let command = Command::RepairStreams { task: f.task.clone() };
    let id = f.store.submit(&command, "ada", "").await.expect("asks");
    let effect = CommandEffect::RepairStreams(f.task.clone());
    let asked = f.store.command(id).await.expect("reads").expect("it is there");
    let applied = f
        .store
        .apply_command(&f.fence, &asked, &effect, "numbered anew", std::num::NonZeroU32::MAX)
        .await;
    assert_eq!(applied.expect("applies").repaired, Repaired { streams: 1, lost: 1 });
    let row = f.store.command(id).await.expect("reads").expect("it is there");
    assert_eq!(row.result.as_deref(), Some("numbered anew: 1 stream, 1 item lost"));
    f.balanced().await;
    let stream = f.store.backlog(None).await.expect("reads").remove(0);
    let rest = f.store.read_log(&f.task, partition, stream.acked, 10, 1_000).await;
    let keys: Vec<_> = rest.expect("reads").into_iter().map(|w| w.item.identity.key).collect();
    assert_eq!(keys, ["a", "c"]);
}

/// A host has died while it executed items whose rows were damaged since: its successor can lead.
#[tokio::test]
async fn notes_of_what_was_begun_that_cannot_be_read_keep_nobody_from_leading() {
    let f = Fixture::new().await;
    let items = f.plan(&["a", "b"]).await;
    let due = f.candidate("timer", Some(START));
    f.plan_candidates(vec![due, f.candidate("spoilt", Some(START))]).await;
    for (mark, item) in [(1, &items[0]), (2, &items[1])] {
        let begun = [(item.source, &item.item)];
        f.store.begin(CommitId(mark), &"gone".into(), Lane::Normal, &begun).await.expect("begins");
    }
    Connection::open(f.dir.path().join("besom.db"))
        .expect("opens")
        .execute_batch(
            "UPDATE besom_log SET progress = x'ff' WHERE key = 'a';
             UPDATE besom_inflight SET items = x'ff' WHERE commit_id = x'00000000000000000000000000000002';
             UPDATE besom_timer SET version = x'ff' WHERE key = 'spoilt'",
        )
        .expect("is spoilt");
    let counted = f.store.bury(&f.fence, &["gone".into()]).await.expect("buries");
    let keys: Vec<_> = counted.iter().map(|identity| identity.key.as_str()).collect();
    assert_eq!(keys, ["a"]);
    assert_eq!(f.store.begun_by().await.expect("reads"), []);
    let timers = f.store.read_timers(None, None, None, 10).await.expect("the others are read");
    let keys: Vec<_> = timers.iter().map(|w| w.item.identity.key.as_str()).collect();
    assert_eq!(keys, ["timer"]);
}

/// Ten messages of a topic.
fn ten() -> Claim {
    let minute = Duration::from_secs(60);
    Claim { room: vec![("t".to_owned(), 10)], hold: minute, wait_max: minute }
}

fn offered(key: &str) -> Offered {
    let (topic, key) = ("t".to_owned(), key.to_owned());
    Offered { topic, tenant: None, key, number: None, payload: b"{}".to_vec() }
}

#[tokio::test]
async fn a_sequence_whose_row_was_deleted_goes_on_after_its_messages() {
    let f = Fixture::new().await;
    f.store.enter_messages(&[offered("a"), offered("a"), offered("b")]).await.unwrap();
    let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
    other.execute("DELETE FROM besom_outbox_sequence WHERE key = 'a'", []).unwrap();
    let entered = f.store.enter_messages(&[offered("a"), offered("b")]).await.unwrap();
    assert_eq!(entered, [Entered::Stored { sequence: 3 }, Entered::Stored { sequence: 2 }]);
    // From its first message on.
    let claimed = f.store.claim_messages(&f.fence, &[], &ten()).await.unwrap();
    let mut claimed: Vec<_> = claimed.into_iter().map(|one| (one.key, one.sequence)).collect();
    claimed.sort();
    assert_eq!(claimed, [("a".into(), 1), ("b".into(), 1)]);
}

#[tokio::test]
async fn a_number_of_attempts_that_is_none_holds_up_no_message() {
    let f = Fixture::new().await;
    f.store.enter_messages(&[offered("a"), offered("b")]).await.unwrap();
    let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
    for wrong in [i64::MAX, 4_294_967_295, 2_147_483_647, -5] {
        let set = "UPDATE besom_outbox SET attempts = ?1 WHERE key = 'a'";
        other.execute(set, [wrong]).unwrap();
        other.execute("UPDATE besom_outbox_sequence SET due = 0", []).unwrap();
        let claimed = f.store.claim_messages(&f.fence, &[], &ten()).await.unwrap();
        assert_eq!(claimed.len(), 2, "{wrong}");
    }
    other.execute("UPDATE besom_outbox_sequence SET due = 0", []).unwrap();
    other.execute("UPDATE besom_outbox SET attempts = -5 WHERE key = 'a'", []).unwrap();
    let claimed = f.store.claim_messages(&f.fence, &[], &ten()).await.unwrap();
    assert_eq!(claimed.iter().find(|one| one.key == "a").unwrap().attempt, 1);
    let end =
        |one: &Claimed| Attempt { id: one.id, attempt: one.attempt, end: End::Delivered(None) };
    let ends: Vec<_> = claimed.iter().map(end).collect();
    f.store.claim_messages(&f.fence, &ends, &Claim::default()).await.unwrap();
    let waiting = "SELECT count(*) FROM besom_outbox WHERE delivered_at IS NULL";
    assert_eq!(other.query_row(waiting, [], |r| r.get::<_, i64>(0)).unwrap(), 0);
}

/// Rows of sequences that somebody has changed or deleted are put right, so that no message waits for ever.
#[tokio::test]
async fn a_sequence_that_has_lost_its_first_message_finds_it_again() {
    for damage in [
        "UPDATE besom_outbox_sequence SET head = NULL",
        "UPDATE besom_outbox_sequence SET head = 100",
        "UPDATE besom_outbox_sequence SET last = 0, head = 1",
        "DELETE FROM besom_outbox_sequence",
    ] {
        let f = Fixture::new().await;
        f.store.enter_messages(&[offered("a"), offered("a")]).await.unwrap();
        let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
        other.execute(damage, []).unwrap();
        let hour = Duration::from_secs(3_600);
        let keep = Retention { history: hour, undo: &[], nodes: hour, routed: None };
        f.store.prune(&f.fence, keep, 1_000).await.unwrap();
        let claimed = f.store.claim_messages(&f.fence, &[], &ten()).await.unwrap();
        assert_eq!(claimed.iter().map(|one| one.sequence).collect::<Vec<_>>(), [1], "{damage}");
        let entered = f.store.enter_messages(&[offered("a")]).await.unwrap();
        assert_eq!(entered, [Entered::Stored { sequence: 3 }], "{damage}");
    }
}

/// A binding that writes bytes as text, or a tenant of another type: no message is held up by it.
#[tokio::test]
async fn a_message_that_cannot_be_read_is_given_up_and_holds_up_no_other() {
    for damage in [
        "UPDATE besom_outbox SET key = CAST(x'ff61' AS TEXT) WHERE key = 'a'",
        "UPDATE besom_outbox SET tenant = 1.5 WHERE key = 'a'",
    ] {
        for is_read in [false, true] {
            let f = Fixture::new().await;
            f.store.enter_messages(&[offered("a"), offered("b")]).await.unwrap();
            let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
            other.execute(damage, []).unwrap();
            let sequence = damage.replace("besom_outbox", "besom_outbox_sequence");
            other.execute(&sequence, []).unwrap();
            let claimed = match is_read {
                true => f.store.read_messages("t", &[], &[], 10, 1 << 20).await.unwrap(),
                false => f.store.claim_messages(&f.fence, &[], &ten()).await.unwrap(),
            };
            assert_eq!(claimed.iter().map(|one| one.key.as_str()).collect::<Vec<_>>(), ["b"]);
            let given_up = "SELECT error FROM besom_outbox WHERE given_up_at IS NOT NULL";
            let error: String = other.query_row(given_up, [], |r| r.get(0)).unwrap();
            assert!(error.starts_with("row 1 of besom_outbox: "), "{error}");
        }
    }
}

/// An operator can remove it as well, with any other.
#[tokio::test]
async fn a_message_that_cannot_be_read_can_be_discarded() {
    let f = Fixture::new().await;
    f.store.enter_messages(&[offered("a"), offered("b")]).await.unwrap();
    let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
    other
        .execute("UPDATE besom_outbox SET key = CAST(x'ff61' AS TEXT) WHERE key = 'a'", [])
        .unwrap();
    let which = MessageSelector { ids: vec![], topic: Some("t".into()), force: false };
    let command = Command::DiscardMessages(which.clone());
    let id = f.store.submit(&command, "ada", "").await.unwrap();
    let asked = f.store.command(id).await.unwrap().unwrap();
    let effect = CommandEffect::DiscardMessages(which);
    let max = std::num::NonZeroU32::MAX;
    let applied = f.store.apply_command(&f.fence, &asked, &effect, "given up", max).await;
    assert_eq!(applied.unwrap().messages, 2);
}

#[tokio::test]
async fn a_topic_of_the_feed_that_is_no_text_is_named_and_holds_up_no_other() {
    let f = Fixture::new().await;
    let other = Connection::open(f.dir.path().join("besom.db")).unwrap();
    let insert =
        "INSERT INTO besom_feed (topic, key, payload) VALUES (CAST(?1 AS TEXT), 'k', '{}')";
    for topic in [&b"t"[..], b"\xff\xfe", b"z"] {
        other.execute(insert, [topic]).unwrap();
    }
    let topics = f.store.feed_topics(&["t".into()], 5).await.unwrap();
    assert_eq!(
        (topics.known, topics.others),
        (vec!["t".into()], vec!["z".into(), "\u{fffd}\u{fffd}".into()])
    );
    assert_eq!(f.store.collect_messages(&f.fence, &["t".into()], 10, 1 << 20).await.unwrap(), 1);
}
