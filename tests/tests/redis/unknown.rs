//! The events after which activity in Redis is *unknown*, which is never *idle*.

use std::sync::Arc;

use besom_ports::activity::{Activity, State};
use besom_services::activity::redis::{Options, RedisActivity};
use besom_tests::adapters::redis::{listening, open, single};
use besom_tests::conformance::block_on;
use besom_tests::servers::redis::Redis;

async fn state(activity: &dyn Activity, id: &str) -> State {
    activity.states(&[id.to_owned()]).await.expect("states")[0]
}

/// An activity on its own server, which was observed for long enough.
async fn observed(more: &[&str]) -> (Redis, Arc<RedisActivity>) {
    let server = Redis::start(more);
    let activity = listening(vec![server.url()]).await;
    server.pass(301_000);
    assert_eq!(state(&*activity, "ws-1").await, State::Idle);
    (server, activity)
}

/// The key is unknown now, and idle after it was observed for long enough.
async fn unknown_for_the_idle_timeout(server: &Redis, activity: &dyn Activity) {
    assert_eq!(state(activity, "ws-1").await, State::Unknown);
    server.pass(290_000);
    assert_eq!(state(activity, "ws-1").await, State::Unknown);
    server.pass(11_000);
    assert_eq!(state(activity, "ws-1").await, State::Idle);
}

#[test]
fn a_flushed_server_knows_nothing() {
    block_on(async {
        for flush in ["FLUSHALL", "FLUSHDB"] {
            let (server, activity) = observed(&[]).await;
            let _: String = server.command(flush);
            unknown_for_the_idle_timeout(&server, &*activity).await;
        }
    });
}

#[test]
fn a_restarted_server_knows_nothing() {
    block_on(async {
        let (mut server, activity) = observed(&[]).await;
        server.kill();
        assert_eq!(state(&*activity, "ws-1").await, State::Unknown, "it is away");
        let away = activity.connect("ws-1", "a").await.expect_err("it is away");
        assert!(away.0.contains("Redis"), "{away}");
        server.restart();
        // The pause after a failed attempt ends eventually.
        while activity.connect("ws-2", "a").await.is_err() {
            tokio::task::yield_now().await;
        }
        unknown_for_the_idle_timeout(&server, &*activity).await;
    });
}

#[test]
fn a_server_that_comes_back_with_what_it_had_saved_is_not_believed() {
    block_on(async {
        let (mut server, activity) = observed(&[]).await;
        let _: String = server.command("SAVE");
        activity.connect("ws-1", "a").await.expect("a connect that is not saved");
        server.kill();
        server.restart();
        let kept: i64 = server.command("EXISTS besom:observed");
        assert_eq!(kept, 1, "the marker came back");
        while activity.connect("ws-2", "a").await.is_err() {
            tokio::task::yield_now().await;
        }
        unknown_for_the_idle_timeout(&server, &*activity).await;
    });
}

#[test]
fn a_server_that_evicts_is_not_believed() {
    block_on(async {
        let (server, activity) = observed(&["--maxmemory-policy", "allkeys-lru"]).await;
        let used: String = server.command("INFO memory");
        let used = used.lines().find_map(|line| line.strip_prefix("used_memory:"));
        let used: u64 = used.and_then(|n| n.trim().parse().ok()).expect("a number");
        let _: String = server.command(&format!("CONFIG SET maxmemory {}", used + 300_000));
        let full = "x".repeat(10_000);
        for n in 0..200 {
            let _: String = server.command(&format!("SET filler:{n} {full}"));
        }
        let stats: String = server.command("INFO stats");
        assert!(!stats.contains("evicted_keys:0\r"), "it has evicted: {stats}");
        let _: String = server.command("CONFIG SET maxmemory 0");
        unknown_for_the_idle_timeout(&server, &*activity).await;
    });
}

#[test]
fn a_replica_that_took_over_is_not_believed() {
    block_on(async {
        let primary = Redis::start(&[]);
        let (server, activity) = observed(&[]).await;
        let keep = server.port();
        // It becomes a replica, copies the other's data, and is a primary again: its run id is the
        // same.
        let _: String = server.command(&format!("REPLICAOF 127.0.0.1 {}", primary.port()));
        assert_eq!(state(&*activity, "ws-1").await, State::Unknown, "a replica, port {keep}");
        let _: String = server.command("REPLICAOF NO ONE");
        unknown_for_the_idle_timeout(&server, &*activity).await;
    });
}

#[test]
fn a_time_in_which_no_host_looked_is_unknown() {
    block_on(async {
        let (server, activity) = observed(&[]).await;
        drop(activity);
        // As if the last check were 31 s ago: half of the heartbeat timeout is 30 s.
        let _: i64 = server.command("HINCRBY besom:observed heard -31000");
        let reader =
            open(Options { servers: vec![server.url()], ..Options::default() }, false).await;
        assert_eq!(state(&*reader, "ws-1").await, State::Unknown, "nobody observes");
        let host = listening(vec![server.url()]).await;
        unknown_for_the_idle_timeout(&server, &*host).await;
        assert_eq!(state(&*reader, "ws-1").await, State::Idle, "a host observes, anybody reads");
    });
}

#[test]
fn a_server_that_does_not_answer_is_unknown_within_the_time_outs() {
    block_on(async {
        let (server, activity) = observed(&[]).await;
        server.freeze();
        let begun = std::time::Instant::now();
        assert_eq!(state(&*activity, "ws-1").await, State::Unknown);
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        server.thaw();
        while activity.connect("ws-2", "a").await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(state(&*activity, "ws-1").await, State::Idle, "nothing was lost");
    });
}

#[test]
fn what_stands_in_redis_holds_without_observation() {
    block_on(async {
        let server = single();
        let activity = listening(vec![server.url()]).await;
        let _: i64 = server.command("INCR ws_conn:ws-1");
        let _: String = server.command("SETEX idle_timer:ws-2 300 1");
        let ids = ["ws-1", "ws-2", "ws-3"].map(str::to_owned);
        let states = activity.states(&ids).await.expect("states");
        assert_eq!(states, [State::Active, State::Waiting, State::Unknown]);
    });
}

#[test]
fn scripts_that_somebody_has_flushed_are_loaded_again() {
    block_on(async {
        let server = single();
        let activity = listening(vec![server.url()]).await;
        let _: String = server.command("SCRIPT FLUSH");
        activity.connect("ws-1", "a").await.expect("a connect");
        let _: String = server.command("SCRIPT FLUSH");
        assert_eq!(state(&*activity, "ws-1").await, State::Active);
    });
}
