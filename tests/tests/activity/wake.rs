//! Wakes while the database is unavailable, rows that are not changed, the history of a wake, and a
//! host that has missed a change of leader.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use besom_config::{Config, Overrides, RawConfig};
use besom_core::ids::{FencingToken, RunId, Term};
use besom_core::time::Time;
use besom_core::value::{Field, Value};
use besom_engine::host::wake::{TASK, Wake};
use besom_ports::coordination::{Campaign, Coordination, LeaderRecord, Result};
use besom_ports::store::{End, HistoryQuery, HistoryRow};
use besom_product::model::default_collections;
use besom_tests::conformance::block_on;
use besom_tests::conformance::world::fence;

use super::site::{Host, Kind, Site, wait_for};
use super::tab::Tab;

/// The history of wakes, newest first.
async fn wakes(site: &Site) -> Vec<HistoryRow> {
    let query = HistoryQuery { task: Some(TASK.into()), limit: 100, ..HistoryQuery::default() };
    site.store.history(&query).await.expect("the history")
}

#[test]
fn a_connect_does_not_wait_for_the_database_and_wakes_later() {
    block_on(async {
        let site = Site::new(Kind::SqliteAndRedis).await;
        site.set("desired_state", "STANDBY").await;
        site.set("status", "STANDBY").await;
        let host = Host::start(&site, "a").await;
        let busy = rusqlite::Connection::open(site.file()).expect("the file opens");
        busy.execute_batch("BEGIN IMMEDIATE").expect("the only writer");
        let tab = Tab::open(&site.socket("a"), "ws-1").await;
        site.known("a", "active").await;
        assert_eq!(site.workspace().await.desired_state, "STANDBY", "nobody can write");
        busy.execute_batch("ROLLBACK").expect("it lets go");
        site.wanted("RUNNING").await;
        tab.close().await;
        host.kill();
    });
}

#[test]
fn what_is_being_deleted_is_not_woken_and_its_last_access_is_noted() {
    block_on(async {
        let site = Site::new(Kind::Sqlite).await;
        site.set("desired_state", "DELETED").await;
        let before = site.workspace().await;
        let host = Host::start(&site, "a").await;
        let tab = Tab::open(&site.socket("a"), "ws-1").await;
        super::site::wait_for("the access to be noted", async || {
            let now = site.workspace().await;
            (now.last_access_at > before.last_access_at).then_some(())
        })
        .await;
        let after = site.workspace().await;
        assert_eq!((&*after.desired_state, after.version), ("DELETED", before.version));
        tab.close().await;
        host.kill();
    });
}

#[test]
fn a_wake_leaves_its_history_its_image_and_balanced_books() {
    block_on(async {
        let site = Site::new(Kind::Sqlite).await;
        site.set("desired_state", "STANDBY").await;
        site.set("status", "STANDBY").await;
        let host = Host::start(&site, "a").await;
        let tab = Tab::open(&site.socket("a"), "ws-1").await;
        site.wanted("RUNNING").await;
        let all = wakes(&site).await;
        let [wake] = &*all else { panic!("one wake: {all:?}") };
        assert_eq!((&*wake.identity.key, wake.outcome), ("ws-1", End::Committed));
        assert_eq!(wake.run, RunId::NONE);
        let note = |name: &str, value: &str| Field::new(name, Value::Text(value.into()));
        assert_eq!(wake.notes, [note("from", "STANDBY"), note("to", "RUNNING")]);
        let images = site.store.before_images(wake.id).await.expect("read").expect("kept");
        let before = images[0].row.as_ref().expect("a row that was there");
        let state = before.iter().find(|field| field.name == "desired_state");
        assert_eq!(state.map(|field| &field.value), Some(&Value::Text("STANDBY".into())));
        let audit = site.store.audit().await.expect("an audit");
        assert!(audit.balanced(), "{audit:#?}");
        tab.close().await;
        host.kill();
    });
}

/// The state is read before another writer changes it, and the wake is committed after.
#[test]
fn a_choice_made_between_the_read_and_the_commit_is_not_overwritten() {
    block_on(async {
        let site = Site::new(Kind::SqliteAndRedis).await;
        site.set("desired_state", "STANDBY").await;
        let before = site.workspace().await;
        let host = Host::start(&site, "a").await;
        let product = rusqlite::Connection::open(site.file()).expect("the file opens");
        let delete = "BEGIN IMMEDIATE; UPDATE workspaces SET desired_state = 'DELETED'";
        product.execute_batch(delete).expect("the only writer");
        let tab = Tab::open(&site.socket("a"), "ws-1").await;
        site.known("a", "active").await;
        // The wake has most probably read STANDBY, and waits for the writer.
        tokio::time::sleep(Duration::from_millis(300)).await;
        product.execute_batch("COMMIT").expect("it is deleted");
        wait_for("the access to be noted", async || {
            (site.workspace().await.last_access_at > before.last_access_at).then_some(())
        })
        .await;
        let after = site.workspace().await;
        assert_eq!((&*after.desired_state, after.version), ("DELETED", before.version));
        let written = |wake: &&HistoryRow| wake.outcome == End::Committed;
        assert_eq!(wakes(&site).await.iter().filter(written).count(), 1);
        tab.close().await;
        host.kill();
    });
}

/// A coordination service that names a leader, and counts how often it is asked.
#[derive(Default)]
struct Named {
    term: Mutex<Option<Term>>,
    asked: AtomicUsize,
}

#[async_trait]
impl Coordination for Named {
    async fn campaign(&self, _: Option<Term>) -> Result<Campaign> {
        unreachable!("nobody campaigns")
    }

    async fn renew(&self, _: &FencingToken) -> Result<bool> {
        unreachable!("nobody leads")
    }

    async fn resign(&self, _: &FencingToken) -> Result<()> {
        unreachable!("nobody leads")
    }

    async fn leader(&self) -> Result<Option<LeaderRecord>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.term.lock().expect("not poisoned").map(|term| LeaderRecord {
            node: "other".into(),
            hostname: String::new(),
            term,
            token_hash: [0; 32],
            elected_at: Time::EPOCH,
            renewed_at: Time::EPOCH,
        }))
    }

    async fn changed(&self, timeout: Duration) {
        tokio::time::sleep(timeout).await;
    }
}

#[test]
fn a_host_that_has_missed_a_change_of_leader_wakes_nothing_until_it_knows_the_new_one() {
    block_on(async {
        let site = Site::new(Kind::Sqlite).await;
        let text = "[collections.workspaces]\ntable = \"workspaces\"\ntenant = \"project_id\"\n\
             key = [\"workspace_id\"]\ncolumns = { workspace_id = \"text\", desired_state = \"text\", \
             last_access_at = \"timestamp\", version = \"integer\", \
             last_manual_change_at = \"timestamp\" }\n";
        let config: Config = RawConfig::parse(text, Path::new("besom.toml"), &Overrides::default())
            .outline(&default_collections())
            .finish()
            .unwrap_or_else(|problems| panic!("{problems}"));
        let raise = async |term| site.store.raise_fence(&fence(term), &"other".into(), None).await;
        raise(1).await.expect("a first leader");
        let leader = Arc::new(Named::default());
        let wake = Wake::of(&config, site.store.clone(), leader.clone(), &"a-00000001".into());
        let wake = wake.expect("waking is enabled");
        site.set("desired_state", "STANDBY").await;
        wake.connected("ws-1");
        site.wanted("RUNNING").await;

        raise(2).await.expect("another leader");
        site.set("desired_state", "STANDBY").await;
        wake.connected("ws-1");
        wait_for("two refusals", async || (leader.asked.load(Ordering::SeqCst) >= 2).then_some(()))
            .await;
        assert_eq!(site.workspace().await.desired_state, "STANDBY");
        assert_eq!(wakes(&site).await.len(), 1);

        *leader.term.lock().expect("not poisoned") = Some(Term(2));
        site.wanted("RUNNING").await;
        assert_eq!(wakes(&site).await.len(), 2);
    });
}
