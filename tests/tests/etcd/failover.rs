//! Three members of etcd, of which one is killed, frozen or restarted, and real leases.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

use besom_core::ids::FencingToken;
use besom_ports::coordination::{Campaign, Coordination, Error};
use besom_ports::members::{Announcement, MemberState, Members};
use besom_services::coordination::etcd::{Etcd, Identity, Options};
use besom_tests::adapters::etcd::{Cluster, clocks};
use besom_tests::conformance::block_on;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

fn node(urls: Vec<String>, name: &str, ttl: Duration) -> Etcd {
    with_options(name, Options::new(urls, "failover", ttl))
}

fn with_options(name: &str, options: Options) -> Etcd {
    incarnation(name, "a", options)
}

fn incarnation(name: &str, number: &str, mut options: Options) -> Etcd {
    let identity = Identity {
        name: name.into(),
        incarnation: format!("{name}-{number}").as_str().into(),
        hostname: "host".into(),
    };
    options.jitter_max = Duration::ZERO;
    Etcd::new(identity, options, clocks()).expect("a handle")
}

/// Campaigns until it is answered and wins: etcd may be electing its own leader.
async fn win(node: &Etcd) -> FencingToken {
    let started = Instant::now();
    loop {
        match node.campaign(None).await {
            Ok(Campaign::Won(fence)) => return fence,
            Ok(Campaign::Held { .. }) | Err(_) if started.elapsed() < PATIENCE => {
                node.changed(Duration::from_millis(200)).await;
            }
            other => panic!("nobody else leads: {other:?}"),
        }
    }
}

/// Renews until it is answered.
async fn renew(node: &Etcd, fence: &FencingToken) -> bool {
    let started = Instant::now();
    loop {
        match node.renew(fence).await {
            Ok(kept) => return kept,
            Err(error) => assert!(started.elapsed() < PATIENCE, "{error}"),
        }
    }
}

fn announcement() -> Announcement {
    Announcement { addr: String::new(), weight: NonZeroU32::MIN, state: MemberState::Active }
}

#[test]
fn a_leader_outlives_any_one_member_of_etcd() {
    let mut cluster = Cluster::start(3);
    block_on(async {
        // Long enough that only a loss of etcd could end it.
        let node = node(cluster.urls(), "n1", Duration::from_secs(300));
        node.join(&announcement()).await.expect("it joins");
        let fence = win(&node).await;
        for index in 0..3 {
            cluster.member(index).kill();
            assert!(renew(&node, &fence).await, "without member {index}");
            cluster.member(index).restart();
            cluster.member(index).freeze();
            assert!(renew(&node, &fence).await, "with member {index} frozen");
            cluster.member(index).thaw();
        }
        assert!(node.keep_alive().await.is_ok_and(|kept| kept));
        assert_eq!(node.leader().await.expect("an answer").expect("it leads").term, fence.term);
    });
}

/// A follower of etcd: without it no election is necessary.
async fn follower(urls: &[String]) -> usize {
    for (index, url) in urls.iter().enumerate() {
        let mut client = etcd_client::Client::connect([url], None).await.expect("a client");
        let status = client.status().await.expect("a status");
        let own = status.header().expect("a header").member_id();
        if status.leader() != own {
            return index;
        }
    }
    panic!("everybody leads");
}

#[test]
fn a_member_that_is_silent_is_not_waited_for() {
    let mut cluster = Cluster::start(3);
    block_on(async {
        let mut urls = cluster.urls();
        let silent = follower(&urls).await;
        // The member that is called first.
        urls.rotate_left(silent);
        let mut options = Options::new(urls, "failover", Duration::from_secs(300));
        // A single attempt would use up the whole timeout.
        options.attempt_timeout = PATIENCE;
        options.hedge_after = Duration::from_millis(50);
        let node = with_options("n1", options);
        node.members().await.expect("the first is asked");
        cluster.member(silent).freeze();
        let started = Instant::now();
        for _ in 0..3 {
            node.members().await.expect("an answer of another");
        }
        assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
        cluster.member(silent).thaw();
    });
}

#[test]
fn without_a_majority_nothing_is_answered_and_nothing_is_believed() {
    let mut cluster = Cluster::start(3);
    block_on(async {
        let node = node(cluster.urls(), "n1", Duration::from_secs(300));
        let fence = win(&node).await;
        cluster.member(0).kill();
        cluster.member(1).kill();
        assert!(node.renew(&fence).await.is_err());
        assert!(node.leader().await.is_err());
        cluster.member(0).restart();
        assert!(renew(&node, &fence).await, "the lease has lasted");
        cluster.member(1).restart();
    });
}

#[test]
fn a_silent_leaders_lease_ends_by_itself_and_a_watcher_hears_of_it() {
    let ttl = Duration::from_secs(2);
    let urls = Cluster::shared().urls();
    block_on(async {
        let one = node(urls.clone(), "silent", ttl);
        let two = node(urls, "waiting", Duration::from_secs(300));
        let old = win(&one).await;
        let held = two.campaign(None).await.expect("an answer");
        assert!(matches!(held, Campaign::Held { .. }), "{held:?}");
        let started = Instant::now();
        two.changed(PATIENCE).await;
        assert!(started.elapsed() < PATIENCE);
        let new = win(&two).await;
        assert!(new.term > old.term);
        assert!(!one.renew(&old).await.expect("an answer"));
        assert!(!one.keep_alive().await.expect("an answer"));
        two.leave().await.expect("it leaves");
    });
}

#[test]
fn a_watch_goes_on_over_a_restart_of_the_server() {
    let mut cluster = Cluster::start(1);
    block_on(async {
        let (one, two) = (
            node(cluster.urls(), "n1", Duration::from_secs(300)),
            node(cluster.urls(), "n2", Duration::from_secs(300)),
        );
        let fence = win(&one).await;
        assert!(matches!(two.campaign(None).await, Ok(Campaign::Held { .. })));
        let since = two.members().await.expect("an answer").revision;
        let changes = async {
            tokio::join!(two.changed(PATIENCE), two.members_changed(since, PATIENCE));
        };
        let restarts = async {
            tokio::task::yield_now().await;
            cluster.member(0).kill();
            cluster.member(0).restart();
            one.resign(&fence).await.expect("it resigns");
            one.leave().await.expect("it leaves");
        };
        let started = Instant::now();
        tokio::join!(changes, restarts);
        assert!(started.elapsed() < PATIENCE);
        assert!(win(&two).await.term > fence.term);
    });
}

/// etcd extends its leases when it starts, so that a dead incarnation stays longer than its lease.
#[test]
fn a_node_that_restarts_together_with_etcd_waits_for_its_dead_incarnation() {
    let mut cluster = Cluster::start(1);
    block_on(async {
        let ttl = Duration::from_secs(5);
        let of = |number| incarnation("n1", number, Options::new(cluster.urls(), "failover", ttl));
        let (dead, heir) = (of("a"), of("b"));
        dead.join(&announcement()).await.expect("it joins");
        let joined = heir.join(&announcement()).await;
        assert!(matches!(joined, Err(Error::Unavailable(_))), "{joined:?}");
        tokio::time::sleep(ttl / 2).await;
        cluster.member(0).kill();
        let joined = heir.join(&announcement()).await;
        assert!(matches!(joined, Err(Error::Unavailable(_))), "{joined:?}");
        cluster.member(0).restart();
        let started = Instant::now();
        while let Err(error) = heir.join(&announcement()).await {
            let waits = matches!(error, Error::Unavailable(_)) && started.elapsed() < PATIENCE;
            assert!(waits, "{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}
