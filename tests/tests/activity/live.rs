//! Tabs that open and close: the edge cases of a workspace's activity.

use besom_tests::conformance::block_on;

use super::site::{Host, KINDS, Kind, Site};
use super::tab::Tab;

/// The tabs of one workspace on a new site with one host.
fn on_each(test: impl AsyncFn(Kind, &Site, &std::path::Path)) {
    for kind in KINDS {
        block_on(async {
            let site = Site::new(kind).await;
            let host = Host::start(&site, "a").await;
            test(kind, &site, &site.socket("a")).await;
            host.kill();
        });
    }
}

#[test]
fn a_short_loss_of_the_network_changes_nothing() {
    on_each(async |kind, site, socket| {
        let tab = Tab::open(socket, "ws-1").await;
        site.known("a", "active").await;
        for _ in 0..3 {
            tab_is_lost_and_comes_back(kind, site, socket).await;
        }
        tab.close().await;
        // The task has run all the time: now that there is no connection, it acts.
        assert_eq!(site.workspace().await.version, 1, "{kind:?}");
        site.wanted("STANDBY").await;
    });
}

async fn tab_is_lost_and_comes_back(kind: Kind, site: &Site, socket: &std::path::Path) {
    let tab = Tab::open(socket, "ws-1").await;
    tab.lose().await;
    let back = Tab::open(socket, "ws-1").await;
    site.known("a", "active").await;
    assert_eq!(site.workspace().await.desired_state, "RUNNING", "{kind:?}");
    back.close().await;
}

#[test]
fn the_only_tab_that_is_lost_starts_the_timer_and_a_new_one_stops_it() {
    on_each(async |kind, site, socket| {
        let tab = Tab::open(socket, "ws-1").await;
        site.known("a", "active").await;
        tab.lose().await;
        site.known("a", "waiting").await;
        let tab = Tab::open(socket, "ws-1").await;
        site.known("a", "active").await;
        let workspace = site.workspace().await;
        assert_eq!(workspace.desired_state, "RUNNING", "{kind:?}");
        tab.close().await;
        site.known("a", "waiting").await;
        site.wanted("STANDBY").await;
    });
}

/// Waits until Redis, if it is used, has this many connections.
async fn counted(site: &Site, connections: i64) {
    if let Some(redis) = &site.redis {
        super::site::wait_for("the connections to be counted", async || {
            let count: Option<i64> = redis.command("GET ws_conn:ws-1");
            (count == Some(connections)).then_some(())
        })
        .await;
    }
}

#[test]
fn of_several_tabs_the_last_one_starts_the_timer() {
    on_each(async |kind, site, socket| {
        let first = Tab::open(socket, "ws-1").await;
        let second = Tab::open(socket, "ws-1").await;
        site.known("a", "active").await;
        counted(site, 2).await;
        first.close().await;
        counted(site, 1).await;
        if let Some(redis) = &site.redis {
            assert_eq!(redis.command::<i64>("EXISTS idle_timer:ws-1"), 0, "{kind:?}");
        }
        assert_eq!(site.state("a").await, "active", "{kind:?}: one tab is open");
        second.close().await;
        site.known("a", "waiting").await;
        if let Some(redis) = &site.redis {
            assert_eq!(redis.command::<i64>("EXISTS ws_conn:ws-1"), 0, "{kind:?}");
        }
        site.wanted("STANDBY").await;
    });
}

#[test]
fn what_sleeps_is_woken_by_the_next_connection() {
    on_each(async |kind, site, socket| {
        let tab = Tab::open(socket, "ws-1").await;
        site.known("a", "active").await;
        // The laptop is suspended.
        tab.lose().await;
        site.wanted("STANDBY").await;
        site.set("status", "STANDBY").await;
        let asleep = site.workspace().await;
        let tab = Tab::open(socket, "ws-1").await;
        let awake = site.wanted("RUNNING").await;
        assert_eq!(awake.version, asleep.version + 1, "{kind:?}: a choice of its user");
        assert!(awake.last_access_at > asleep.last_access_at, "{kind:?}: {awake:?}");
        assert_eq!(awake.last_manual_change_at, Some(awake.last_access_at), "{kind:?}");
        // The reconciler starts the workspace, and it runs while there is a connection.
        site.set("status", "RUNNING").await;
        site.known("a", "active").await;
        assert_eq!(site.workspace().await, awake, "{kind:?}");
        tab.close().await;
        site.wanted("STANDBY").await;
    });
}

#[test]
fn a_tab_that_stays_open_keeps_its_workspace_running() {
    on_each(async |kind, site, socket| {
        let tab = Tab::open(socket, "ws-1").await;
        site.known("a", "active").await;
        // Another workspace goes to standby meanwhile: the task runs, for longer than any timeout.
        let begun = std::time::Instant::now();
        super::site::wait_for("three time-outs", async || {
            assert_eq!(site.state("a").await, "active", "{kind:?}");
            (begun.elapsed().as_secs() >= 6).then_some(())
        })
        .await;
        assert_eq!(site.workspace().await.desired_state, "RUNNING", "{kind:?}");
        tab.close().await;
        site.wanted("STANDBY").await;
    });
}
