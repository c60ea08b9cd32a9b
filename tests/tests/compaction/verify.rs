//! Compactions are compared again, from the rows that were kept for undo.

use std::time::Duration;

use besom_core::ids::{TaskName, Tenant};
use besom_core::proposal::Change;
use besom_core::value::{Field, Value};
use besom_ports::store::{Outcome, Retention};
use besom_product::doc::{self, Compaction, Name, Verdict};
use besom_system::child::Limits;

use besom_tests::site::{Place, Site, TASK, TENANT, typed};

async fn verify(site: &Site) -> Vec<Compaction> {
    verify_by(site, None).await
}

async fn verify_by(site: &Site, child: Option<&Limits>) -> Vec<Compaction> {
    let name = Name { tenant: Tenant::from(TENANT), key: "d".into() };
    doc::verify(site.store(), &name, &[TaskName::from(TASK)], child).await.unwrap()
}

fn verdicts(found: &[Compaction]) -> Vec<Verdict> {
    found.iter().map(|compaction| compaction.verdict).collect()
}

/// Replaces the payload of the row with this number.
async fn tamper(site: &Site, number: i64, payload: &[u8]) {
    let fields = vec![Field::new("payload", Value::Bytes(payload.to_vec()))];
    let key = vec![Value::Text("d".into()), Value::Integer(number)];
    site.write(vec![Change::Update { collection: "changes".into(), key, fields }]).await;
}

/// Three compactions: of three edits, of the row and two more, and of a snapshot with an edit.
async fn compacted_three_times(site: &Site) {
    let updates = typed(1, &["one ", "two ", "three ", "four ", "five ", "six ", "seven "]);
    site.create("d", "yjs", &updates[..3]).await;
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    for update in &updates[3..5] {
        site.push("d", "edit", update).await;
    }
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
    for update in &updates[5..] {
        site.push("d", "edit", update).await;
    }
    let so_far = yrs::merge_updates_v1(&updates[..6]).unwrap();
    site.snapshot("d", 6, &so_far).await;
    assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
}

#[tokio::test]
async fn every_compaction_is_verified_from_what_it_has_read() {
    for place in Place::ALL {
        let site = Site::on(place, "min_changes = 2").await;
        compacted_three_times(&site).await;
        // A pass that exchanges no row is not a compaction.
        for _ in 0..2 {
            site.push("d", "presence", b"here").await;
        }
        assert_eq!(site.to_the_end().await, Some(Outcome::Committed));

        let found = verify(&site).await;
        assert_eq!(verdicts(&found), [Verdict::Verified; 3], "{found:#?}");
        for compaction in &found {
            assert_eq!(compaction.rebuilt.as_ref(), Some(&compaction.recorded));
            assert!(compaction.bytes_after > 0 && !compaction.library.is_empty());
            assert_eq!((compaction.mode.as_str(), &compaction.why), ("merge", &None));
        }
    }
}

/// If the comparing process cannot be started, the document is unverified, not different.
#[tokio::test]
async fn what_nobody_could_compare_neither_differs_nor_is_verified() {
    let site = Site::on(Place::ALL[0], "min_changes = 2").await;
    compacted_three_times(&site).await;
    let (program, processor) = ("/nowhere".into(), Duration::from_secs(60));
    let nowhere = Limits { program, memory_bytes: 1 << 30, processor };
    let found = verify_by(&site, Some(&nowhere)).await;
    assert_eq!(verdicts(&found), [Verdict::Unverified; 3], "{found:#?}");
    let why = found[0].why.as_deref().unwrap();
    assert!(why.starts_with("verification failed: child process: "), "{why}");
}

#[tokio::test]
async fn a_row_that_says_something_else_by_now_differs() {
    for place in Place::ALL {
        let site = Site::on(place, "min_changes = 2").await;
        compacted_three_times(&site).await;
        let row = site.edits("d").await.remove(0);
        // The same length, well-formed, with one letter changed.
        let mut other = row.clone();
        let at = other.windows(3).position(|letters| letters == b"one").unwrap();
        other[at] = b'u';
        for (payload, expected) in [
            (other, "changed"),
            (vec![0; row.len()], "undecodable"),
            (row[1..].to_vec(), "bytes before"),
        ] {
            tamper(&site, 7, &payload).await;
            let found = verify(&site).await;
            let [first, second, third] = &found[..] else { panic!("{found:#?}") };
            assert_eq!((first.verdict, second.verdict), (Verdict::Verified, Verdict::Verified));
            assert_eq!(third.verdict, Verdict::Differs);
            let why = third.why.as_deref().unwrap();
            assert!(why.contains(expected) || expected == "undecodable", "{expected}: {why}");
        }
        let key = vec![Value::Text("d".into()), Value::Integer(7)];
        site.write(vec![Change::Delete { collection: "changes".into(), key }]).await;
        let found = verify(&site).await;
        assert_eq!(found[2].verdict, Verdict::Differs);
        assert_eq!(
            found[2].why.as_deref(),
            Some("the row that it wrote, change 7, no longer exists")
        );
    }
}

#[tokio::test]
async fn rows_that_are_not_kept_any_more_are_gone_and_said_to_be() {
    for place in Place::ALL {
        let site = Site::on(place, "min_changes = 2").await;
        compacted_three_times(&site).await;
        let long = Duration::from_secs(3_600);
        let undo = [(TaskName::from(TASK), Duration::ZERO)];
        let keep = Retention { history: long, undo: &undo, nodes: long, routed: None };
        let pruned = site.store().prune(site.fence(), keep, 1_000).await.unwrap();
        assert_eq!(pruned.undo, 3, "{place:?}");
        let found = verify(&site).await;
        assert_eq!(verdicts(&found), [Verdict::Gone; 3], "{found:#?}");
        let why = found[0].why.as_deref().unwrap();
        assert!(why.contains("no longer kept"), "{why}");
    }
}

/// The others can still be compared, as far as they do not depend on its rows.
#[tokio::test]
async fn a_record_that_cannot_be_read_is_reported_with_the_others() {
    let site = Site::on(Place::Sqlite, "min_changes = 2").await;
    compacted_three_times(&site).await;
    let damage = "UPDATE besom_history SET undo = x'0a' WHERE id =
        (SELECT max(id) FROM besom_history WHERE undo IS NOT NULL)";
    assert_eq!(site.product().execute(damage, []), Ok(1));
    let found = verify(&site).await;
    assert_eq!(found.len(), 3, "{found:#?}");
    assert_eq!(found[2].verdict, Verdict::Differs);
    let why = found[2].why.as_deref().unwrap();
    assert!(why.starts_with("the rows kept for undo cannot be read: "), "{why}");
    let earlier = verdicts(&found[..2]);
    assert!(!earlier.contains(&Verdict::Differs), "{found:#?}");
}
