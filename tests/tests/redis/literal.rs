//! A product's own proxy, which uses only INCR, DECR, DEL and SETEX.

use std::time::Duration;

use besom_ports::activity::{Activity, State};
use besom_tests::adapters::redis::{Servers, cluster, listening, single};
use besom_tests::conformance::block_on;
use besom_tests::servers::redis::{Cluster, Redis};
use redis::{Cmd, FromRedisValue, RedisError, cmd};

/// A client that sends the literal commands to the server that holds the key.
trait Proxy {
    fn urls(&self) -> Vec<String>;
    fn servers(&self) -> Vec<&Redis>;

    fn say<T: FromRedisValue>(&self, command: &Cmd) -> T {
        let mut moved = None;
        for server in self.servers() {
            match command.query(&mut server.connect()) {
                Ok(answer) => return answer,
                Err(error) => moved = Some(error),
            }
        }
        let error: RedisError = moved.expect("a server");
        panic!("nobody holds the key: {error}");
    }

    /// `on_websocket_connect` of the product.
    fn connect(&self, id: &str) {
        let _: i64 = self.say(cmd("INCR").arg(format!("ws_conn:{id}")));
        let _: i64 = self.say(cmd("DEL").arg(format!("idle_timer:{id}")));
    }

    /// `on_websocket_disconnect` of the product.
    fn disconnect(&self, id: &str) {
        let count: i64 = self.say(cmd("DECR").arg(format!("ws_conn:{id}")));
        if count <= 0 {
            let _: i64 = self.say(cmd("DEL").arg(format!("ws_conn:{id}")));
            let _: String =
                self.say(cmd("SETEX").arg(format!("idle_timer:{id}")).arg(300).arg("1"));
        }
    }

    fn count(&self, id: &str) -> Option<i64> {
        self.say(cmd("GET").arg(format!("ws_conn:{id}")))
    }

    fn life_ms(&self, key: &str) -> i64 {
        self.say(cmd("PTTL").arg(key))
    }

    /// Lets time pass in every server.
    fn pass(&self, seconds: i64) {
        self.servers().iter().for_each(|server| server.pass(seconds * 1_000));
    }
}

impl Proxy for Servers<Redis> {
    fn urls(&self) -> Vec<String> {
        vec![self.url()]
    }

    fn servers(&self) -> Vec<&Redis> {
        vec![self]
    }
}

impl Proxy for Servers<Cluster> {
    fn urls(&self) -> Vec<String> {
        Cluster::urls(self)
    }

    fn servers(&self) -> Vec<&Redis> {
        self.nodes.iter().collect()
    }
}

async fn state(activity: &dyn Activity, id: &str) -> State {
    activity.states(&[id.to_owned()]).await.expect("states")[0]
}

/// Two tabs, a short loss of connection, and the end.
async fn a_proxy_alone(proxy: &impl Proxy) {
    let activity = listening(proxy.urls()).await;
    proxy.pass(301);
    assert_eq!(state(&*activity, "ws-1").await, State::Idle);
    proxy.connect("ws-1");
    proxy.connect("ws-1");
    assert_eq!(state(&*activity, "ws-1").await, State::Active);
    proxy.disconnect("ws-1");
    assert_eq!(state(&*activity, "ws-1").await, State::Active, "one tab is open");
    proxy.disconnect("ws-1");
    assert_eq!(state(&*activity, "ws-1").await, State::Waiting);
    proxy.pass(3);
    proxy.connect("ws-1");
    assert_eq!(state(&*activity, "ws-1").await, State::Active, "a short loss");
    proxy.disconnect("ws-1");
    proxy.pass(299);
    assert_eq!(state(&*activity, "ws-1").await, State::Waiting);
    proxy.pass(2);
    assert_eq!(state(&*activity, "ws-1").await, State::Idle);
}

#[test]
fn what_a_proxy_writes_literally_is_read_rightly() {
    block_on(async { a_proxy_alone(&single()).await });
}

#[test]
fn what_a_proxy_writes_literally_is_read_rightly_on_a_cluster() {
    block_on(async { a_proxy_alone(&cluster()).await });
}

/// The count is the sum of Besom's and the proxy's connections, and a reader of the literal keys
/// sees it.
async fn beside_each_other(proxy: &impl Proxy) {
    let activity = listening(proxy.urls()).await;
    activity.connect("ws-1", "a").await.expect("a connect");
    activity.connect("ws-1", "a").await.expect("the same once more");
    assert_eq!(proxy.count("ws-1"), Some(1));
    proxy.connect("ws-1");
    activity.connect("ws-1", "b").await.expect("a connect");
    assert_eq!(proxy.count("ws-1"), Some(3));
    activity.disconnect("ws-1", "a").await.expect("a disconnect");
    activity.disconnect("ws-1", "b").await.expect("a disconnect");
    assert_eq!(proxy.count("ws-1"), Some(1));
    assert_eq!(state(&*activity, "ws-1").await, State::Active, "the proxy's is open");
    proxy.disconnect("ws-1");
    assert_eq!(proxy.count("ws-1"), None);
    assert_eq!(state(&*activity, "ws-1").await, State::Waiting);

    activity.connect("ws-2", "a").await.expect("a connect");
    activity.disconnect("ws-2", "a").await.expect("a disconnect");
    assert_eq!(proxy.count("ws-2"), None, "at zero the key goes");
    let life_ms = proxy.life_ms("idle_timer:ws-2");
    assert!((290_000..=300_000).contains(&life_ms), "{life_ms}");
    let timer: String = proxy.say(cmd("GET").arg("idle_timer:ws-2"));
    assert_eq!(timer, "1", "as SETEX would have set it");
    activity.connect("ws-2", "b").await.expect("a connect");
    assert_eq!(state(&*activity, "ws-2").await, State::Active);
    if proxy.servers().len() == 1 {
        assert_eq!(proxy.life_ms("idle_timer:ws-2"), -2, "the timer goes with a connection");
    }
}

#[test]
fn our_connections_and_a_proxys_add_up() {
    block_on(async { beside_each_other(&single()).await });
}

#[test]
fn our_connections_and_a_proxys_add_up_on_a_cluster() {
    block_on(async { beside_each_other(&cluster()).await });
}

/// A host that is gone leaves no key behind that another reader would count forever.
async fn a_host_that_died(proxy: &impl Proxy) {
    let activity = listening(proxy.urls()).await;
    activity.connect("ws-1", "a").await.expect("a connect");
    let life_ms = proxy.life_ms("ws_conn:ws-1");
    assert!((350_000..=360_000).contains(&life_ms), "heartbeat and idle time-out: {life_ms}");
    proxy.pass(61);
    assert_eq!(state(&*activity, "ws-1").await, State::Waiting, "it ended when it expired");
    assert_eq!(proxy.count("ws-1"), Some(1), "no other reader takes it for idle before it is");
    proxy.pass(300);
    assert_eq!(proxy.count("ws-1"), None);
    assert_eq!(state(&*activity, "ws-1").await, State::Idle);
}

#[test]
fn a_connection_of_a_dead_host_leaves_the_literal_count() {
    block_on(async { a_host_that_died(&single()).await });
}

#[test]
fn a_connection_of_a_dead_host_leaves_the_literal_count_on_a_cluster() {
    block_on(async { a_host_that_died(&cluster()).await });
}

#[test]
fn a_proxys_connection_outlives_a_dead_hosts_in_the_same_count() {
    block_on(async {
        let proxy = single();
        let activity = listening(vec![proxy.url()]).await;
        activity.connect("ws-1", "a").await.expect("a connect");
        proxy.connect("ws-1");
        assert!(proxy.life_ms("ws_conn:ws-1") > 0, "it was to end with ours");
        assert_eq!(state(&*activity, "ws-1").await, State::Active);
        assert_eq!(proxy.life_ms("ws_conn:ws-1"), -1, "seen: it stays");
        for _ in 0..10 {
            proxy.pass(100);
            assert_eq!(state(&*activity, "ws-1").await, State::Active, "the proxy's is open");
        }
        proxy.disconnect("ws-1");
        assert_eq!(proxy.count("ws-1"), Some(1), "ours is still in it");
        assert_eq!(state(&*activity, "ws-1").await, State::Idle, "but nobody takes it for open");
        assert_eq!(proxy.count("ws-1"), None, "and it was taken out");
    });
}

#[test]
fn what_is_no_count_is_unknown_and_its_neighbours_are_read() {
    block_on(async {
        let proxy = single();
        let activity = listening(vec![proxy.url()]).await;
        proxy.pass(301);
        let _: String = proxy.command("SET ws_conn:words many");
        let _: i64 = proxy.command("LPUSH ws_conn:list 1");
        let _: String = proxy.command("SET ws_conn:below -3");
        let _: String = proxy.command("SET ws_conn:above 2");
        let ids = ["words", "list", "below", "above", "none"].map(str::to_owned);
        let states = activity.states(&ids).await.expect("states");
        let unknown = State::Unknown;
        assert_eq!(states, [unknown, unknown, State::Idle, State::Active, State::Idle]);
        let refused = activity.connect("words", "a").await.expect_err("it holds no number");
        assert!(refused.0.contains("ws_conn:words"), "{refused}");
    });
}

#[test]
fn many_keys_are_read_in_few_round_trips() {
    block_on(async {
        let proxy = cluster();
        let activity = listening(Cluster::urls(&proxy)).await;
        proxy.pass(301);
        let ids: Vec<String> = (0..2_000).map(|n| format!("ws-{n}")).collect();
        for id in ids.iter().step_by(500) {
            activity.connect(id, "a").await.expect("a connect");
        }
        let reads = || -> i64 {
            let read = |server: &Redis| {
                let info: String = server.command("INFO stats");
                let line = info.lines().find_map(|l| l.strip_prefix("total_reads_processed:"));
                line.and_then(|n| n.trim().parse::<i64>().ok()).expect("a number")
            };
            proxy.nodes.iter().map(read).sum()
        };
        let before = reads();
        let states = activity.states(&ids).await.expect("states");
        let used = reads() - before;
        for (n, state) in states.iter().enumerate() {
            let expected = if n % 500 == 0 { State::Active } else { State::Idle };
            assert_eq!(*state, expected, "{n}");
        }
        // A server reads a batch of 500 commands in a few pieces of its buffer.
        assert!(used < 400, "{used} reads for 2,000 keys");
    });
}

#[test]
fn a_timer_that_is_due_is_seen_at_every_moment_of_a_disconnect() {
    block_on(async {
        let proxy = cluster();
        let host = listening(Cluster::urls(&proxy)).await;
        let reader = listening(Cluster::urls(&proxy)).await;
        proxy.pass(301);
        let done = std::sync::atomic::AtomicBool::new(false);
        let busy = async {
            for n in 0..300 {
                host.connect("ws-1", &format!("{n}")).await.expect("a connect");
                host.disconnect("ws-1", &format!("{n}")).await.expect("a disconnect");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        let look = async {
            // Until the first connection it is rightly idle.
            while state(&*reader, "ws-1").await == State::Idle {
                tokio::time::timeout(Duration::ZERO, std::future::pending::<()>()).await.ok();
            }
            let mut looks = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let seen = state(&*reader, "ws-1").await;
                assert_ne!(seen, State::Idle, "after {looks} looks");
                looks += 1;
            }
            looks
        };
        let (looks, ()) = tokio::join!(look, busy);
        assert!(looks > 10, "{looks} looks");
    });
}
