//! What happens between the reading and the commit, in each mode and on both databases.

use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::proposal::{Change, Settle};
use besom_core::value::{Field, Value};
use besom_ports::store::Outcome;
use besom_product::doc::{self, Name, Verdict};

use besom_tests::site::{DEACTIVATION, Decided, Place, Site, TASK, TENANT, notes, text, typed};

const WORDS: [&str; 4] = ["one ", "two ", "three ", "four "];
const RESET: &str = "min_changes = 2\nmode_yjs = \"reset\"";

fn note(decided: &Decided, name: &str) -> Option<Value> {
    let proposal = match &decided.decision {
        besom_ports::store::Decision::Apply { proposal, .. } => proposal,
        other => panic!("{other:?}"),
    };
    proposal.notes.iter().find(|note| note.name == name).map(|note| note.value.clone())
}

fn said(text: &str) -> Option<Value> {
    Some(Value::Text(text.into()))
}

fn retried(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Retried(_))
}

/// The row of the document: epoch, compacted_seq, server_seq.
async fn document(site: &Site) -> [i64; 3] {
    let d = site.shown("d").await.document;
    [d.epoch, d.compacted_seq, d.server_seq].map(|n| i64::try_from(n).unwrap())
}

#[tokio::test]
async fn a_reset_begins_a_new_epoch_without_what_spoke_of_the_old_one() {
    for place in Place::ALL {
        let site = Site::on(place, RESET).await;
        let updates = typed(1, &WORDS);
        site.create("d", "yjs", &updates).await;
        site.attachment("d", "ann", "detached", 4).await;
        site.vector("d", "ann", b"late", 2).await;
        site.snapshot("d", 2, &yrs::merge_updates_v1(&updates[..2]).unwrap()).await;
        assert_eq!(site.to_the_end().await, Some(Outcome::Committed), "{place:?}");

        assert_eq!(document(&site).await, [1, 4, 4]);
        let edits = site.edits("d").await;
        assert_eq!((edits.len(), text(&edits)), (1, text(&updates)));
        assert!(
            site.told().await.is_empty() && site.rows("snapshots", &["doc_id"]).await.is_empty()
        );
        let notes = notes(&site.shown("d").await);
        assert_eq!(notes["mode"], Value::Text("reset".into()));
        assert_eq!(
            (&notes["epoch_before"], &notes["epoch_after"]),
            (&Value::Integer(0), &Value::Integer(1))
        );
        assert!(!notes.contains_key("wanted"), "{notes:?}");
        // The identities are new: a replica with the former ones shows everything twice.
        let both = [updates.clone(), edits].concat();
        assert_eq!(text(&both), text(&updates).repeat(2));
        site.balanced().await;
    }
}

#[tokio::test]
async fn whoever_is_attached_or_about_to_be_makes_it_a_merge_with_the_reason() {
    for place in Place::ALL {
        for state in ["attached", "attaching"] {
            let site = Site::on(place, RESET).await;
            let updates = typed(1, &WORDS);
            site.create("d", "yjs", &updates).await;
            site.attachment("d", "ann", state, 2).await;
            site.vector("d", "ann", b"told", 2).await;
            assert_eq!(site.to_the_end().await, Some(Outcome::Committed), "{place:?}");
            let notes = notes(&site.shown("d").await);
            for (name, value) in
                [("mode", "merge"), ("wanted", "reset"), ("instead", "attached: 1 client")]
            {
                assert_eq!(notes[name], Value::Text(value.into()), "{place:?} {state}");
            }
            assert_eq!(document(&site).await, [0, 4, 4]);
            assert_eq!(site.told().await, ["ann"], "a merge leaves vectors where they are");
        }
    }
}

/// After an attach, a change, a snapshot or another reset, the reset is not committed.
#[tokio::test]
async fn nothing_that_happens_meanwhile_is_overrun_by_a_reset() {
    type Meanwhile = (&'static str, [i64; 3]);
    let cases: [Meanwhile; 4] = [
        ("attach", [0, 0, 3]),
        ("change", [0, 0, 4]),
        ("snapshot", [0, 0, 3]),
        ("epoch", [7, 0, 3]),
    ];
    for place in Place::ALL {
        for (what, expected) in cases {
            let site = Site::on(place, RESET).await;
            let updates = typed(1, &WORDS);
            site.create("d", "yjs", &updates[..3]).await;
            let decided = site.decide_one().await;
            assert_eq!(note(&decided, "mode"), said("reset"));
            match what {
                "attach" => site.attachment("d", "ann", "attaching", 0).await,
                "change" => site.push("d", "edit", &updates[3]).await,
                "snapshot" => site.snapshot("d", 3, b"of the former identities").await,
                _ => site.begin_epoch("d", 7).await,
            }
            let outcome = site.commit(&decided).await;
            assert!(retried(&outcome), "{place:?} {what}: {outcome:?}");
            assert_eq!(document(&site).await, expected, "{place:?} {what}");
            let edits = if what == "change" { &updates[..] } else { &updates[..3] };
            assert_eq!(site.edits("d").await, edits, "{place:?} {what}");
        }
    }
}

#[tokio::test]
async fn a_document_at_which_somebody_is_always_at_work_is_merged_after_two_failures() {
    for place in Place::ALL {
        let site = Site::on(place, RESET).await;
        let updates = typed(1, &["a", "b", "c", "d", "e", "f"]);
        site.create("d", "yjs", &updates[..3]).await;
        site.plan().await;
        for update in &updates[3..5] {
            let waiting = site.waiting().await;
            let decided = site.decide(&waiting[0]).await;
            assert_eq!(note(&decided, "mode"), said("reset"));
            site.push("d", "edit", update).await;
            assert!(retried(&site.commit(&decided).await));
        }
        let waiting = site.waiting().await;
        let decided = site.decide(&waiting[0]).await;
        assert_eq!(note(&decided, "mode"), said("merge"));
        assert_eq!(note(&decided, "instead"), said("contended: its guards failed 2 times"));
        site.push("d", "edit", &updates[5]).await;
        assert_eq!(site.commit(&decided).await, Outcome::Committed);
        assert_eq!(text(&site.edits("d").await), "abcdef");
        site.balanced().await;
    }
}

/// A detach between the reading and the commit leaves it a merge, which is committed; the next
/// compaction is a reset.
#[tokio::test]
async fn a_client_that_detaches_meanwhile_is_gone_the_next_time() {
    for place in Place::ALL {
        let site = Site::on(place, RESET).await;
        let updates = typed(1, &WORDS);
        site.create("d", "yjs", &updates[..2]).await;
        site.attachment("d", "ann", "attached", 0).await;
        let decided = site.decide_one().await;
        site.attachment("d", "ann", "detached", 2).await;
        assert_eq!(site.commit(&decided).await, Outcome::Committed);
        assert_eq!(document(&site).await, [0, 2, 2]);
        site.push("d", "edit", &updates[2]).await;
        site.push("d", "edit", &updates[3]).await;
        assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
        assert_eq!(document(&site).await, [1, 4, 4]);
        assert_eq!(site.text("d").await, text(&updates));
    }
}

#[tokio::test]
async fn a_lower_number_that_commits_late_is_waited_for_in_either_mode() {
    for place in Place::ALL {
        for settings in ["min_changes = 2", RESET] {
            let site = Site::on(place, settings).await;
            let updates = typed(1, &WORDS);
            site.create("d", "yjs", &updates[..2]).await;
            let late = site.reserve("d").await;
            site.push("d", "edit", &updates[3]).await;
            let decided = site.decide_one().await;
            assert!(retried(&site.commit(&decided).await), "{place:?}");
            site.deliver("d", late, "edit", &updates[2]).await;
            assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
            assert_eq!(site.text("d").await, text(&updates));
            assert_eq!(site.edits("d").await.len(), 1);
        }
    }
}

#[tokio::test]
async fn of_two_compactors_in_any_two_modes_one_commits() {
    for place in Place::ALL {
        for settings in ["min_changes = 2", RESET] {
            let site = Site::on(place, settings).await;
            let updates = typed(1, &WORDS);
            site.create("d", "yjs", &updates).await;
            let decided = site.decide_one().await;
            // The other compaction was faster: its row has the same number and the same content.
            let one = yrs::merge_updates_v1(&updates).unwrap();
            let key = |n| vec![Value::Text("d".into()), Value::Integer(n)];
            let delete = |n| Change::Delete { collection: "changes".into(), key: key(n) };
            let set = |collection: &str, key, name: &str, value| Change::Update {
                collection: collection.into(),
                key,
                fields: vec![Field::new(name, value)],
            };
            let mut other: Vec<Change> = (1..4).map(delete).collect();
            other.push(set("changes", key(4), "payload", Value::Bytes(one.clone())));
            let mark = Value::Integer(4);
            other.push(set("documents", vec![Value::Text("d".into())], "compacted_seq", mark));
            site.write(other).await;
            let outcome = site.commit(&decided).await;
            assert!(!matches!(outcome, Outcome::Committed | Outcome::Dead(_)), "{outcome:?}");
            assert_eq!(site.edits("d").await, [one]);
            assert_eq!(document(&site).await, [0, 4, 4]);
        }
    }
}

#[tokio::test]
async fn a_document_that_cannot_be_loaded_stays_and_its_neighbour_is_compacted() {
    for place in Place::ALL {
        let site = Site::on(place, RESET).await;
        let updates = typed(1, &WORDS);
        site.create("d", "yjs", &updates).await;
        // A row that is not an update: it cannot be loaded in any mode.
        site.create("e", "yjs", &[updates[0].clone(), b"junk".to_vec()]).await;
        site.plan().await;
        for waiting in site.waiting().await {
            let is_whole = waiting.item.identity.key == "d";
            let decided = site.decide(&waiting).await;
            let dead = matches!(
                &decided.decision,
                besom_ports::store::Decision::Settle(Settle::Dead { reason, .. })
                    if reason.starts_with("undecodable")
            );
            assert_eq!(dead, !is_whole, "{:?}", decided.decision);
            site.commit(&decided).await;
        }
        assert_eq!(site.edits("e").await, [updates[0].clone(), b"junk".to_vec()]);
        assert_eq!(site.edits("d").await.len(), 1);
        site.balanced().await;
    }
}

/// How long a client may be silent.
const DAY: Duration = Duration::from_secs(86_400);

/// A detachment by `client-deactivation` allows a reset, through the change that it appends.
#[tokio::test]
async fn a_stale_client_blocks_a_reset_until_it_is_detached() {
    for place in Place::ALL {
        let site = Site::on(place, "min_changes = 1\nmode_yjs = \"reset\"").await;
        site.client("bob", 2 * DAY).await;
        let updates = typed(1, &WORDS);
        site.create("d", "yjs", &updates).await;
        site.attachment("d", "bob", "attached", 1).await;
        site.vector("d", "bob", b"told", 1).await;
        assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
        assert_eq!(document(&site).await, [0, 4, 4], "merged: bob is attached");
        let merged = site.edits("d").await[0].len();

        let detached = site.to_the_end_of(DEACTIVATION).await;
        assert_eq!(detached, Some(Outcome::Committed));
        assert!(site.told().await.is_empty(), "its vector went with it");
        assert_eq!(document(&site).await, [0, 4, 5], "its presence was cleared by a change");
        // It was in transit when the client was detached.
        site.vector("d", "bob", b"late", 1).await;

        // There is no new edit: the single row is compacted again, because the mode now allows
        // more.
        let outcome = site.to_the_end().await;
        assert_eq!(outcome, Some(Outcome::Committed), "{place:?}");
        let edits = site.edits("d").await;
        assert_eq!(text(&edits), text(&updates));
        assert!(site.shown("d").await.bytes > 0 && edits.len() == 1);
        let notes = notes(&site.shown("d").await);
        // Four words typed one after the other are already one item: nothing can be saved.
        let mode = if edits[0].len() < merged { "reset" } else { "prune" };
        assert_eq!(notes["mode"], Value::Text(mode.into()));
        site.balanced().await;
    }
}

#[tokio::test]
async fn what_was_reset_is_verified_by_what_it_shows() {
    for place in Place::ALL {
        let site = Site::on(place, "min_changes = 2\nmode_yjs = \"reset\"").await;
        let updates = typed(1, &["one ", "two ", "three "]);
        site.create("d", "yjs", &updates).await;
        assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
        let name = Name { tenant: Tenant::from(TENANT), key: "d".into() };
        let found = doc::verify(site.store(), &name, &[TASK.into()], None).await.unwrap();
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Verified), "{found:#?}");
        assert_eq!(found[0].mode, "reset");
    }
}
