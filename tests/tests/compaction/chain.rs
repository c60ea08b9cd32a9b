//! From a stale client to collected garbage: the client holds the history back, it is detached, and
//! the next compaction collects. On documents that Loro has written from an editing trace.

use std::collections::HashMap;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::value::Value;
use besom_oracle::trace::{Patch, Trace, Transaction};
use besom_ports::store::Outcome;
use besom_product::doc::{self, Name, Verdict};
use loro::{ExportMode, LoroDoc, VersionVector};

use besom_tests::site::{DEACTIVATION, Place, Site, TASK, TENANT, notes};

const TRIM: &str = "min_changes = 1\nmode_loro = \"trim\"";
const DAY: Duration = Duration::from_secs(86_400);
/// Transactions of the trace in one row.
const PER_ROW: usize = 50;
/// Transactions that are replayed.
const TRANSACTIONS_MAX: usize = 6_000;

/// A document as one replica has written it: its rows, what it had seen after each, its end.
pub(super) struct Written {
    pub(super) rows: Vec<Vec<u8>>,
    vectors: Vec<Vec<u8>>,
    doc: LoroDoc,
}

fn replay(trace: &Trace) -> Written {
    let doc = LoroDoc::new();
    doc.set_peer_id(7).unwrap();
    let text = doc.get_text("text");
    text.insert(0, &trace.start).unwrap();
    let mut written = Written { rows: Vec::new(), vectors: Vec::new(), doc: doc.clone() };
    let mut known = VersionVector::default();
    let transactions = &trace.transactions[..trace.transactions.len().min(TRANSACTIONS_MAX)];
    for some in transactions.chunks(PER_ROW) {
        for patch in some.iter().flat_map(|transaction| &transaction.patches) {
            text.delete(patch.position, patch.deleted).unwrap();
            text.insert(patch.position, &patch.inserted).unwrap();
        }
        doc.commit();
        written.rows.push(doc.export(ExportMode::updates(&known)).unwrap());
        known = doc.oplog_vv();
        written.vectors.push(known.encode());
    }
    written
}

/// The public trace if it is present, and one that is always present.
fn traces() -> Vec<Trace> {
    let sentence = |n: usize| Transaction {
        parents: n.checked_sub(1).into_iter().collect(),
        agent: 0,
        patches: vec![Patch {
            position: if n.is_multiple_of(3) { 0 } else { n },
            deleted: usize::from(n % 4 == 3) * 9,
            inserted: format!("sentence {n}. "),
        }],
    };
    let own = Trace {
        start: "begin ".repeat(1_000),
        end: String::new(),
        agents: 1,
        transactions: (0..2_000).map(sentence).collect(),
    };
    Trace::named("sveltecomponent").into_iter().chain([own]).collect()
}

/// A document that is always present.
pub(super) fn short() -> Written {
    replay(traces().last().expect("one that is always there"))
}

/// The text of the rows, loaded into a new replica.
pub(super) fn text(rows: &[Vec<u8>]) -> String {
    let doc = LoroDoc::new();
    // One by one: `import_batch` loads a trimmed snapshot after the changes that depend on it.
    for row in rows {
        let status = doc.import(row).unwrap();
        assert!(status.pending.is_none(), "{status:?}");
    }
    doc.get_text("text").to_string()
}

fn size(rows: &[Vec<u8>]) -> usize {
    rows.iter().map(Vec::len).sum()
}

async fn last_notes(site: &Site) -> HashMap<String, Value> {
    notes(&site.shown("d").await)
}

fn word(text: &str) -> Value {
    Value::Text(text.into())
}

#[tokio::test]
async fn a_stale_client_blocks_is_detached_and_then_its_history_is_collected() {
    for trace in traces() {
        for place in Place::ALL {
            let written = replay(&trace);
            let site = Site::on(place, TRIM).await;
            site.client("ann", Duration::ZERO).await;
            site.client("bob", 2 * DAY).await;
            site.create("d", "loro", &written.rows).await;
            let (count, seen) = (written.rows.len() as i64, written.vectors.last().unwrap());
            site.attachment("d", "ann", "attached", count).await;
            site.vector("d", "ann", seen, count).await;
            // Bob's vector lacks this document's only author, which counts as 0.
            site.attachment("d", "bob", "attached", 0).await;
            site.vector("d", "bob", &VersionVector::default().encode(), 0).await;

            // The stale client blocks: everything stays in the history.
            assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
            let blocked = site.edits("d").await;
            let (notes, end) = (last_notes(&site).await, written.doc.get_text("text").to_string());
            assert_eq!((&notes["mode"], &notes["wanted"]), (&word("merge"), &word("trim")));
            assert_eq!(text(&blocked), end);

            // The client is detached: its vector is deleted, and no other.
            let detached = site.to_the_end_of(DEACTIVATION).await;
            assert_eq!(detached, Some(Outcome::Committed));
            assert_eq!(site.told().await, ["ann"]);
            // A vector in transit arrives after the detachment.
            site.vector("d", "bob", &VersionVector::default().encode(), 0).await;

            // Only the change that cleared bob's presence was written since.
            assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
            let collected = site.edits("d").await;
            let notes = last_notes(&site).await;
            assert_eq!(notes["mode"], word("trim"), "{place:?}: {notes:?}");
            assert!(!notes.contains_key("wanted"));
            assert_eq!(text(&collected), end);
            assert_eq!(site.told().await, ["ann"], "the late vector was ignored and removed");
            let [log, before, after] = [&written.rows, &blocked, &collected].map(|r| size(r));
            assert!(after < before && before < log, "{log} bytes, {before}, {after}");
            #[expect(clippy::print_stdout, reason = "shown with --nocapture: the bytes")]
            {
                println!("{place:?}: log {log} bytes, bob attached {before}, bob detached {after}");
            }

            // No more history can be removed, and it is not tried every time.
            assert_eq!(site.plan().await, 0);
            // A replica with the old log continues to merge, in both directions.
            let text_of = written.doc.get_text("text");
            let known = written.doc.oplog_vv();
            text_of.insert(0, "on and ").unwrap();
            written.doc.commit();
            let next = written.doc.export(ExportMode::updates(&known)).unwrap();
            site.push("d", "edit", &next).await;
            assert_eq!(text(&site.edits("d").await), text_of.to_string());
            let name = Name { tenant: Tenant::from(TENANT), key: "d".into() };
            let found = doc::verify(site.store(), &name, &[TASK.into()], None).await.unwrap();
            assert!(found.len() == 2 && found.iter().all(|c| c.verdict == Verdict::Verified));
            site.balanced().await;
        }
    }
}

/// An attaching client counts, a client without a vector is named, and one that attaches meanwhile
/// is detected.
#[tokio::test]
async fn a_client_that_has_told_nothing_holds_everything_back() {
    let written = short();
    let (rows, count) = (&written.rows, written.rows.len() as i64);
    for place in Place::ALL {
        for state in ["attached", "attaching"] {
            let site = Site::on(place, TRIM).await;
            site.create("d", "loro", rows).await;
            site.attachment("d", "ann", state, count).await;
            // Bob is not attached: his vector does not count.
            site.client("bob", Duration::ZERO).await;
            site.attachment("d", "bob", "detached", 0).await;
            site.vector("d", "bob", &VersionVector::default().encode(), 0).await;
            assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
            let notes = last_notes(&site).await;
            assert_eq!(notes["mode"], word("merge"));
            assert_eq!(notes["instead"], word("no vector: the client ann has none"));
            assert_eq!(site.told().await, ["bob"], "a merge leaves vectors where they are");
        }
    }
}

/// What happens between the reading and the commit of a trim.
#[tokio::test]
async fn a_trim_is_held_up_by_who_comes_and_by_a_vector_that_goes_but_by_no_change() {
    let written = short();
    let rows = &written.rows;
    let count = rows.len() as i64;
    let (early, late) = (&written.vectors[3], written.vectors.last().unwrap());
    for place in Place::ALL {
        for (what, held_up) in [
            ("change", false),
            ("vector grows", false),
            ("detach of somebody else", false),
            ("new client", true),
            ("vector goes", true),
            ("vector shrinks", true),
            ("epoch", true),
        ] {
            let site = Site::on(place, TRIM).await;
            site.client("bob", Duration::ZERO).await;
            site.create("d", "loro", rows).await;
            site.attachment("d", "ann", "attached", count).await;
            site.vector("d", "ann", late, count).await;
            site.attachment("d", "bob", "detached", 0).await;
            let decided = site.decide_one().await;
            match what {
                "change" => site.push("d", "presence", b"here").await,
                "vector grows" => site.vector("d", "ann", late, count + 1).await,
                "detach of somebody else" => site.attachment("d", "bob", "detached", 1).await,
                "new client" => site.attachment("d", "bob", "attaching", 0).await,
                "vector goes" => site.forget_vector("d", "ann").await,
                "vector shrinks" => site.vector("d", "ann", early, 3).await,
                _ => site.begin_epoch("d", 7).await,
            }
            let outcome = site.commit(&decided).await;
            match held_up {
                false => assert_eq!(outcome, Outcome::Committed, "{place:?} {what}"),
                true => {
                    assert!(
                        matches!(outcome, Outcome::Retried(_)),
                        "{place:?} {what}: {outcome:?}"
                    );
                    assert_eq!(&site.edits("d").await, rows, "{place:?} {what}");
                }
            }
            site.balanced().await;
        }
    }
}

/// Without attached clients there is no minimum, not an old one.
#[tokio::test]
async fn with_nobody_attached_everything_that_the_format_can_do_without_goes() {
    let written = short();
    for place in Place::ALL {
        let site = Site::on(place, TRIM).await;
        site.create("d", "loro", &written.rows).await;
        assert_eq!(site.to_the_end().await, Some(Outcome::Committed));
        assert_eq!(last_notes(&site).await["mode"], word("trim"));
        let rows = site.edits("d").await;
        assert_eq!(text(&rows), written.doc.get_text("text").to_string());
        assert!(size(&rows) * 2 < size(&written.rows));
    }
}
