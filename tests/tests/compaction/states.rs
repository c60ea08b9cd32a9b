//! The output of `besom doc show` for every state of a document.

use besom_core::value::Value;
use besom_ports::store::Outcome;
use besom_product::doc::State;

use besom_tests::site::{Site, notes, text, typed};

const WORDS: [&str; 3] = ["one ", "two ", "three "];

#[tokio::test]
async fn a_document_that_was_never_touched_has_no_last_word() {
    let site = Site::new().await;
    site.document("d", &typed(1, &WORDS[..1]));
    assert_eq!(site.to_the_end().await, None);
    let shown = site.shown("d").await;
    assert_eq!((shown.edits, shown.last_compaction, shown.left_alone), (1, None, None));
    assert_eq!(shown.state, State::Untouched);
}

#[tokio::test]
async fn a_document_that_was_compacted_says_what_it_was() {
    let site = Site::new().await;
    // A name that is escaped in an item's key.
    let name = "#1/100% sure";
    site.document(name, &typed(1, &WORDS));
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    let shown = site.shown(name).await;
    let notes = notes(&shown);
    assert_eq!((shown.edits, shown.state, shown.left_alone), (1, State::Compacted, None));
    assert_eq!(notes["mode"], Value::Text("merge".into()));
    assert_eq!(notes["rows_before"], Value::Integer(3));
    assert_eq!(notes["verified"], Value::Bool(true));
    assert_eq!(notes["digest_before"], notes["digest_after"]);
}

#[tokio::test]
async fn a_row_that_cannot_be_decoded_is_dead_with_its_number_and_untouched() {
    let site = Site::new().await;
    let mut updates = typed(1, &WORDS);
    updates[1] = vec![255; 7];
    site.document("d", &updates);
    let outcome = site.to_the_end().await;
    let Some(Outcome::Dead(reason)) = outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("undecodable") && reason.contains("(change 2)"), "{reason}");
    assert_eq!(site.changes("d").len(), 3);
    let shown = site.shown("d").await;
    assert_eq!((shown.state, shown.left_alone), (State::Dead, Some(reason)));
    // The unchanged document is not tried again.
    assert_eq!(site.plan().await, 0);
    site.balanced().await;
}

#[tokio::test]
async fn a_checksum_that_differs_is_dead_with_both_values_and_untouched() {
    let site = Site::new().await;
    site.document("d", &typed(1, &WORDS));
    site.product().execute("UPDATE changes SET checksum = 7 WHERE server_seq = 2", []).unwrap();
    let outcome = site.to_the_end().await;
    let Some(Outcome::Dead(reason)) = outcome else { panic!("{outcome:?}") };
    assert!(reason.starts_with("checksum: the payload of change 2 has CRC-32"), "{reason}");
    assert!(reason.ends_with("its row has 00000007"), "{reason}");
    assert_eq!(site.changes("d").len(), 3);
    let shown = site.shown("d").await;
    assert_eq!((shown.state, shown.left_alone), (State::Dead, Some(reason)));
}

#[tokio::test]
async fn a_document_with_a_hole_is_dead_and_looked_at_again_when_it_has_doubled() {
    let site = Site::new().await;
    // The first update is lost, which the sequence numbers do not show.
    let updates = typed(1, &["zero ", "one ", "two ", "three "]);
    site.document("d", &updates[1..3]);
    assert!(matches!(site.to_the_end().await, Some(Outcome::Dead(_))));
    let shown = site.shown("d").await;
    let reason = shown.left_alone.unwrap();
    assert!(shown.state == State::Dead && reason.starts_with("hole: "), "{reason}");
    site.append("d", "edit", &updates[3]);
    assert_eq!(site.plan().await, 0, "one more change is no reason");
    // The lost update arrives late.
    site.append("d", "edit", &updates[0]);
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    let shown = site.shown("d").await;
    assert_eq!((shown.edits, shown.state, shown.left_alone), (1, State::Compacted, None));
    site.balanced().await;
}

#[tokio::test]
async fn presence_that_somebody_has_yet_to_pass_holds_up_no_edit() {
    let site = Site::new().await;
    let updates = typed(1, &["one ", "two ", "three ", "four ", "five "]);
    let kept = |numbers: &[(i64, &str)]| -> Vec<(i64, String)> {
        numbers.iter().map(|(n, kind)| (*n, (*kind).to_owned())).collect()
    };
    site.document("d", &updates[..1]);
    site.append("d", "presence", b"here");
    site.append("d", "presence", b"there");
    site.attach("d", 0);

    // One edit, and nothing can be removed: `compacted_seq` advances once.
    let before = site.changes("d");
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    assert_eq!(site.changes("d"), before);
    assert_eq!(site.shown("d").await.document.compacted_seq, 3);
    assert_eq!(site.plan().await, 0, "nothing is new");
    site.append("d", "edit", &updates[1]);
    assert_eq!(site.plan().await, 0, "fewer than min_changes");
    site.append("d", "edit", &updates[2]);
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    assert_eq!(site.changes("d"), kept(&[(2, "presence"), (3, "presence"), (5, "edit")]));

    // Presence rows are removed by the first compaction after every attached client has passed
    // them.
    site.product().execute("UPDATE attachments SET state = 'detached'", []).unwrap();
    site.append("d", "edit", &updates[3]);
    site.append("d", "edit", &updates[4]);
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    assert_eq!(site.changes("d"), kept(&[(7, "edit")]));
    assert_eq!(site.text("d").await, text(&updates));
    site.balanced().await;
}

#[tokio::test]
async fn a_document_that_is_left_alone_says_why_as_long_as_it_is_so() {
    let site = Site::new().await;
    // Two clients with one client id.
    site.document("d", &[typed(1, &["one"]), typed(1, &["two"])].concat());
    assert!(matches!(site.to_the_end().await, Some(Outcome::Skipped(_))));
    let shown = site.shown("d").await;
    let reason = shown.left_alone.unwrap();
    assert!(shown.state == State::LeftAlone && reason.starts_with("conflict: "), "{reason}");
    assert_eq!(site.changes("d").len(), 2);
}
