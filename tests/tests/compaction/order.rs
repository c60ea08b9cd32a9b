//! Forced orders of events: which transaction holds a lock, which waits, and which host dies.

use besom_core::value::Value;
use besom_ports::store::{LeftOut, Outcome};
use tokio_postgres::Client;

use besom_tests::site::{Place, Site, notes, typed};

use super::chain;

/// A mode that locks more rows than a merge.
struct Way {
    settings: &'static str,
    format: &'static str,
    mode: &'static str,
    rows: Vec<Vec<u8>>,
    text: fn(&[Vec<u8>]) -> String,
    /// Whether a change or a snapshot that arrives meanwhile prevents it.
    wants_silence: bool,
}

fn ways() -> Vec<Way> {
    let trim = Way {
        settings: "min_changes = 2\nmode_loro = \"trim\"",
        format: "loro",
        mode: "trim",
        rows: chain::short().rows,
        text: chain::text,
        wants_silence: false,
    };
    let reset = Way {
        settings: "min_changes = 2\nmode_yjs = \"reset\"",
        format: "yjs",
        mode: "reset",
        rows: typed(1, &["one ", "two ", "three "]),
        text: besom_tests::site::text,
        wants_silence: true,
    };
    vec![trim, reset]
}

impl Way {
    async fn site(&self, place: Place) -> Site {
        let site = Site::on(place, self.settings).await;
        site.create("d", self.format, &self.rows).await;
        site
    }
}

/// Returns once this many statements wait for a lock.
async fn until_waiting(onlooker: &Client, statements: i64) {
    let sql = "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND wait_event_type = 'Lock'";
    loop {
        let row = onlooker.query_one(sql, &[]).await.expect("the activity is read");
        if row.get::<_, i64>(0) == statements {
            return;
        }
        tokio::task::yield_now().await;
    }
}

/// The guards see what the product commits while they wait for the document's lock.
#[tokio::test]
async fn what_commits_while_the_guards_wait_for_their_anchor_is_not_overrun() {
    let attach = "INSERT INTO attachments (project_id, doc_id, client_id, state)
         VALUES ('a', 'd', 'ann', 'attaching')";
    let again = "SELECT 1 FROM documents WHERE doc_id = 'd' FOR KEY SHARE;
         UPDATE attachments SET state = 'attached' WHERE doc_id = 'd'";
    let snapshot = "INSERT INTO snapshots (project_id, doc_id, server_seq, payload)
         VALUES ('a', 'd', 1, 'of the former identities')";
    let change = "WITH next AS (UPDATE documents SET server_seq = server_seq + 1
             WHERE doc_id = 'd' RETURNING server_seq)
         INSERT INTO changes (project_id, doc_id, server_seq, actor_id, client_seq, lamport, payload)
         SELECT 'a', 'd', server_seq, 'ann', server_seq, server_seq, 'an edit' FROM next";
    for way in ways() {
        let count = way.rows.len();
        for (what, is_known, sql, more, holds_up) in [
            ("an attach", false, attach, 0, true),
            ("another attach of a client that was detached", true, again, 0, true),
            ("a snapshot", false, snapshot, 0, way.wants_silence),
            ("a change", false, change, 1, way.wants_silence),
        ] {
            let what = format!("{}: {what}", way.mode);
            let site = way.site(Place::Postgres).await;
            let database = site.database().expect("on the server");
            let (product, onlooker) = (database.connect().await, database.connect().await);
            if is_known {
                site.attachment("d", "ann", "detached", 0).await;
            }
            let decided = site.decide_one().await;
            product.batch_execute(&format!("BEGIN; {sql}")).await.expect(&what);
            let (outcome, ()) = tokio::join!(site.commit(&decided), async {
                until_waiting(&onlooker, 1).await;
                product.batch_execute("COMMIT").await.expect(&what);
            });
            let edits = site.edits("d").await.len();
            if holds_up {
                assert!(matches!(outcome, Outcome::Retried(_)), "{what}: {outcome:?}");
                assert_eq!(edits, count + more, "{what}");
                assert_eq!(site.shown("d").await.document.compacted_seq, 0, "{what}");
            } else {
                assert_eq!(outcome, Outcome::Committed, "{what}");
                assert_eq!(edits, 1 + more, "{what}");
            }
            site.balanced().await;
        }
    }
}

/// A writer that arrives during the commit waits for it, and finds its result.
#[tokio::test]
async fn who_attaches_while_it_is_under_way_waits_for_what_it_makes() {
    for way in ways() {
        let site = way.site(Place::Postgres).await;
        let database = site.database().expect("on the server");
        let (product, rival) = (database.connect().await, database.connect().await);
        let onlooker = database.connect().await;
        let decided = site.decide_one().await;
        // The product holds a row that is deleted after the guards.
        let hold = "BEGIN; SELECT 1 FROM changes WHERE doc_id = 'd' FOR UPDATE";
        product.batch_execute(hold).await.expect("held");
        let attach = "INSERT INTO attachments (project_id, doc_id, client_id, state)
             VALUES ('a', 'd', 'ann', 'attached')";
        let (outcome, attached, ()) = tokio::join!(
            site.commit(&decided),
            async {
                until_waiting(&onlooker, 1).await;
                rival.execute(attach, &[]).await
            },
            async {
                until_waiting(&onlooker, 2).await;
                product.batch_execute("COMMIT").await.expect("released");
            }
        );
        assert_eq!(outcome, Outcome::Committed, "{}", way.mode);
        assert_eq!(attached.expect("attached"), 1, "and after it");
        assert_eq!(site.edits("d").await.len(), 1);
        assert_eq!((way.text)(&site.edits("d").await), (way.text)(&way.rows));
    }
}

/// A host dies after its decision or after its commit: the effect happens once.
#[tokio::test]
async fn what_a_host_dies_of_happens_once() {
    for way in ways() {
        for place in Place::ALL {
            for committed in [false, true] {
                let mut site = way.site(place).await;
                let decided = site.decide_one().await;
                if committed {
                    assert_eq!(site.commit(&decided).await, Outcome::Committed);
                }
                let before = site.edits("d").await;
                let old = site.lead(2).await;
                // The dead host's request may still arrive.
                let late = site.commit_as(old, &decided).await;
                let is_left = matches!(late, Outcome::Left(LeftOut::NotOwner | LeftOut::NotThere));
                assert!(is_left, "{place:?} {}: {late:?}", way.mode);
                assert_eq!(site.edits("d").await, before, "{place:?}");
                let outcome = site.to_the_end().await;
                assert_eq!(outcome, (!committed).then_some(Outcome::Committed), "{place:?}");
                let shown = site.shown("d").await;
                assert_eq!(shown.document.epoch, u64::from(way.mode == "reset"));
                assert_eq!(notes(&shown)["mode"], Value::Text(way.mode.into()));
                assert_eq!((way.text)(&site.edits("d").await), (way.text)(&way.rows));
                site.balanced().await;
            }
        }
    }
}
