//! A database that is away while somebody connects, and rows that are left alone.

use besom_tests::conformance::block_on;

use super::site::{Host, Kind, Site};
use super::tab::Tab;

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
