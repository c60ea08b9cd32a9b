//! What happens between the reading and the commit.

use besom_core::proposal::Settle;
use besom_ports::store::{Decision, Outcome};

use besom_tests::site::{Site, text, typed};

const WORDS: [&str; 4] = ["one ", "two ", "three ", "four "];

fn edits(numbers: &[i64]) -> Vec<(i64, String)> {
    numbers.iter().map(|n| (*n, "edit".to_owned())).collect()
}

#[tokio::test]
async fn a_change_that_arrives_meanwhile_is_kept_and_hinders_nothing() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates[..3]);
    let decided = site.decide_one().await;
    site.append("d", "edit", &updates[3]);
    assert_eq!(site.commit(&decided).await, Outcome::Committed);
    assert_eq!(site.changes("d"), edits(&[3, 4]));
    assert_eq!(site.text("d").await, text(&updates));
    let document = site.shown("d").await.document;
    assert_eq!((document.compacted_seq, document.server_seq), (3, 4));
    // The new change is part of the next compaction.
    site.append("d", "edit", &typed(2, &["five"])[0]);
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    assert_eq!(site.changes("d"), edits(&[5]));
    site.balanced().await;
}

#[tokio::test]
async fn a_client_that_attaches_meanwhile_pulls_the_whole_row() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates);
    let decided = site.decide_one().await;
    site.attach("d", 2);
    assert_eq!(site.commit(&decided).await, Outcome::Committed);
    // The client pulls what follows its checkpoint, and gets the new row.
    assert_eq!(site.changes("d"), edits(&[4]));
    let checkpoint: i64 = site
        .product()
        .query_row("SELECT server_seq FROM attachments", [], |row| row.get(0))
        .unwrap();
    assert_eq!(checkpoint, 2, "a checkpoint was moved");
    assert_eq!(site.text("d").await, text(&updates));
}

#[tokio::test]
async fn of_two_compactors_one_commits() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates);
    let decided = site.decide_one().await;
    // The other compactor belongs to the product and does not use the queue.
    let one = yrs::merge_updates_v1(&updates).unwrap();
    site.product()
        .execute_batch(
            "BEGIN;
             DELETE FROM changes WHERE doc_id = 'd' AND server_seq < 4;
             UPDATE documents SET compacted_seq = 4 WHERE doc_id = 'd';
             COMMIT;",
        )
        .unwrap();
    site.product().execute("UPDATE changes SET payload = ?1 WHERE doc_id = 'd'", [&one]).unwrap();
    let outcome = site.commit(&decided).await;
    assert_eq!(outcome, Outcome::Skipped("compacted or reset since it was read".into()));
    assert_eq!(site.changes("d"), edits(&[4]));
    assert_eq!(site.text("d").await, text(&updates));
    assert!(site.waiting().await.is_empty());
    site.balanced().await;
}

#[tokio::test]
async fn a_row_that_is_gone_meanwhile_keeps_all_others() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates);
    let decided = site.decide_one().await;
    site.product().execute("DELETE FROM changes WHERE server_seq = 2", []).unwrap();
    assert!(matches!(site.commit(&decided).await, Outcome::Skipped(_)));
    assert_eq!(site.changes("d"), edits(&[1, 3, 4]));
}

#[tokio::test]
async fn a_document_that_is_reset_meanwhile_stays_as_it_was_reset() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates);
    let decided = site.decide_one().await;
    site.product().execute("UPDATE documents SET epoch = epoch + 1", []).unwrap();
    assert!(matches!(site.commit(&decided).await, Outcome::Skipped(_)));
    assert_eq!(site.changes("d"), edits(&[1, 2, 3, 4]));
}

#[tokio::test]
async fn presence_that_an_attached_client_has_not_passed_survives() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates[..1]);
    site.append("d", "presence", b"here");
    site.append("d", "edit", &updates[1]);
    site.append("d", "presence", b"there");
    site.append("d", "edit", &updates[2]);
    site.append("d", "presence", b"gone");
    site.attach("d", 3);
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    let kept: Vec<(i64, String)> =
        [(4, "presence"), (5, "edit"), (6, "presence")].map(|(n, kind)| (n, kind.into())).into();
    assert_eq!(site.changes("d"), kept);
    assert_eq!(site.text("d").await, text(&updates[..3]));
    site.balanced().await;
}

#[tokio::test]
async fn a_gap_is_waited_for_and_dead_in_the_end_with_the_log_untouched() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates[..3]);
    site.give_out_a_number("d");
    site.append("d", "edit", &updates[3]);
    let decided = site.decide_one().await;
    let Decision::Settle(Settle::Retry { run_at, attempts: 1, reason, .. }) = &decided.decision
    else {
        panic!("{:?}", decided.decision)
    };
    assert!(reason.starts_with("gap: change 4 is missing"), "{reason}");
    assert!(*run_at > site.now().await);
    let mut outcome = site.commit(&decided).await;
    for _ in 1..site.attempts_max() {
        assert!(matches!(outcome, Outcome::Retried(_)), "{outcome:?}");
        let waiting = site.waiting().await;
        outcome = site.commit(&site.decide(&waiting[0]).await).await;
    }
    assert!(matches!(&outcome, Outcome::Dead(reason) if reason.starts_with("gap")), "{outcome:?}");
    assert_eq!(site.changes("d"), edits(&[1, 2, 3, 5]));
    assert!(site.waiting().await.is_empty());
    site.balanced().await;
}

#[tokio::test]
async fn a_gap_that_closes_is_compacted_at_the_next_attempt() {
    let site = Site::new().await;
    let updates = typed(1, &WORDS);
    site.document("d", &updates[..3]);
    site.give_out_a_number("d");
    let decided = site.decide_one().await;
    assert!(matches!(site.commit(&decided).await, Outcome::Retried(_)));
    site.product()
        .execute(
            "INSERT INTO changes VALUES ('a', 'd', 4, 'ann', 4, 4, 'edit', ?1, NULL)",
            [&updates[3]],
        )
        .unwrap();
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    assert_eq!(site.changes("d"), edits(&[4]));
    assert_eq!(site.text("d").await, text(&updates));
}
