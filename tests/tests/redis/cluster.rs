//! A Redis Cluster: the places of the keys, and faults of one of its primaries.

use std::sync::Arc;

use besom_ports::activity::{Activity, State};
use besom_services::activity::redis::keys::{Names, Template, slot};
use besom_services::activity::redis::{Options, RedisActivity};
use besom_tests::adapters::redis::{cluster, listening, open};
use besom_tests::conformance::block_on;
use besom_tests::servers::redis::{Cluster, wait_for};

async fn state(activity: &dyn Activity, id: &str) -> State {
    activity.states(&[id.to_owned()]).await.expect("states")[0]
}

async fn observed(cluster: &Cluster) -> Arc<RedisActivity> {
    let activity = listening(cluster.urls()).await;
    cluster.nodes.iter().for_each(|node| node.pass(301_000));
    assert_eq!(state(&*activity, "ws-1").await, State::Idle);
    activity
}

/// Which node holds the count of an id.
fn holder(id: &str) -> usize {
    match slot(&format!("ws_conn:{id}")) {
        0..=5_460 => 0,
        5_461..=10_922 => 1,
        _ => 2,
    }
}

/// An id whose count that node holds.
fn id_on(node: usize) -> String {
    (0..).map(|n| format!("ws-{n}")).find(|id| holder(id) == node).expect("one of many")
}

#[test]
fn the_literal_keys_lie_where_the_cluster_says() {
    let cluster = cluster();
    for id in ["ws-1", "ws-2", "a{b}c"] {
        let template = |text| Template::parse(text).expect("a template");
        let names = Names::of(&template("ws_conn:{id}"), &template("idle_timer:{id}"), id);
        for key in [&names.count, &names.members, &names.timer] {
            let said: u16 = cluster.nodes[0].command(&format!("CLUSTER KEYSLOT {key}"));
            assert_eq!(slot(key), said, "{key}");
        }
        assert!(names.fit(), "{id}");
    }
}

#[test]
fn one_flushed_primary_makes_everything_unknown() {
    block_on(async {
        let cluster = cluster();
        let activity = observed(&cluster).await;
        for node in 0..3 {
            let _: String = cluster.nodes[node].command("FLUSHALL");
            for id in (0..3).map(id_on) {
                assert_eq!(state(&*activity, &id).await, State::Unknown, "{id} after {node}");
            }
            cluster.nodes.iter().for_each(|node| node.pass(301_000));
            assert_eq!(state(&*activity, &id_on(node)).await, State::Idle);
        }
    });
}

#[test]
fn a_primary_that_is_away_makes_nothing_idle_and_the_others_are_written() {
    block_on(async {
        let mut cluster = Cluster::start();
        let activity = observed(&cluster).await;
        cluster.nodes[1].kill();
        assert_eq!(state(&*activity, &id_on(1)).await, State::Unknown);
        assert_eq!(state(&*activity, &id_on(2)).await, State::Unknown, "the youngest speaks");
        let there = id_on(2);
        activity.connect(&there, "a").await.expect("its slot is there");
        assert_eq!(state(&*activity, &there).await, State::Active);
        activity.connect(&id_on(1), "a").await.expect_err("its slot is away");
        cluster.nodes[1].restart();
        cluster.settle();
        while activity.connect(&id_on(1), "a").await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(state(&*activity, &id_on(0)).await, State::Unknown, "one was restarted");
        cluster.nodes.iter().for_each(|node| node.pass(301_000));
        assert_eq!(state(&*activity, &id_on(0)).await, State::Idle);
    });
}

#[test]
fn a_slot_that_moves_is_followed_with_what_is_in_it() {
    block_on(async {
        let cluster = Cluster::start();
        let activity = observed(&cluster).await;
        let id = id_on(0);
        let names = Names::of(
            &Template::parse("ws_conn:{id}").expect("a template"),
            &Template::parse("idle_timer:{id}").expect("a template"),
            &id,
        );
        activity.connect(&id, "a").await.expect("a connect");
        let moving = slot(&names.count);
        let name = |n: usize| -> String { cluster.nodes[n].command("CLUSTER MYID") };
        let (from, to) = (name(0), name(1));
        let set = |n: usize, how: &str| -> String {
            cluster.nodes[n].command(&format!("CLUSTER SETSLOT {moving} {how}"))
        };
        set(1, &format!("IMPORTING {from}"));
        set(0, &format!("MIGRATING {to}"));
        let port = cluster.nodes[1].port();
        // Two spaces: the command has an empty argument instead of its key.
        let Names { count, members, .. } = &names;
        let _: String = cluster.nodes[0]
            .command(&format!("MIGRATE 127.0.0.1 {port}  0 5000 KEYS {count} {members}"));
        assert_eq!(state(&*activity, &id).await, State::Active, "on its way");
        activity.connect(&id, "b").await.expect("a connect on its way");
        for n in [1, 0, 2] {
            set(n, &format!("NODE {to}"));
        }
        wait_for("the new table", || {
            let count: i64 = cluster.nodes[1].command(&format!("GET {}", names.count));
            count == 2
        });
        assert_eq!(state(&*activity, &id).await, State::Active, "moved");
        activity.disconnect(&id, "a").await.expect("a disconnect");
        activity.disconnect(&id, "b").await.expect("a disconnect");
        assert_eq!(state(&*activity, &id).await, State::Waiting);
    });
}

#[test]
fn an_id_that_no_script_can_hold_is_refused_and_unknown() {
    block_on(async {
        let cluster = cluster();
        let activity = observed(&cluster).await;
        let refused = activity.connect("a}b", "1").await.expect_err("it cannot be counted");
        assert!(refused.0.contains("remove `}` from it"), "{refused}");
        let ids = ["a}b".to_owned(), "ws-1".to_owned()];
        let states = activity.states(&ids).await.expect("states");
        assert_eq!(states, [State::Unknown, State::Idle]);
    });
}

#[test]
fn a_template_with_a_hash_tag_is_one_slot() {
    block_on(async {
        let cluster = cluster();
        let options = Options {
            servers: cluster.urls(),
            connections_key: "ws_conn:{{id}}".into(),
            timer_key: "idle_timer:{{id}}".into(),
            ..Options::default()
        };
        let activity = open(options, true).await;
        activity.connect("ws-1", "a").await.expect("a connect");
        activity.disconnect("ws-1", "a").await.expect("a disconnect");
        assert_eq!(state(&*activity, "ws-1").await, State::Waiting);
        let held: i64 = cluster
            .nodes
            .iter()
            .map(|node| {
                let keys: Vec<String> = node.command("KEYS idle_timer:{ws-1}");
                keys.len() as i64
            })
            .sum();
        assert_eq!(held, 1);
    });
}
