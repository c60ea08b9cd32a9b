//! A node that reaches etcd but not PostgreSQL: the others take over its work and report it.

use std::time::{Duration, SystemTime};

use besom_demo::cluster::Which;
use besom_snapshot::{Subject, Thresholds, attention};

use crate::proxy::Proxy;
use crate::site::{LEASE, Site};
use crate::wait::{wait_at_most, wait_for};

/// Shares that fall due while a node is cut off.
const SHARES: u32 = 2_000;
/// The lease of the tests.
const TTL: Duration = Duration::from_secs(4);
/// How long the others may take to own everything: a lease until the node stands aside, and the
/// time that a loaded machine needs for the takeover.
const HANDED_OVER_MAX: Duration = Duration::from_secs(60);

/// The first host always reaches PostgreSQL; each of the others has its own proxy.
fn site() -> (Site, Vec<Proxy>) {
    assert_eq!(LEASE.0, "4s");
    let mut site = Site::new(1);
    let postgres = site.servers.postgres();
    let address = postgres.trim_end_matches("/demo?sslmode=disable");
    let port: u16 = address.rsplit_once(':').expect("a port").1.parse().expect("a port");
    let mut ways = Vec::new();
    for number in 2..=3 {
        let way = Proxy::to(port);
        let by = format!(":{}/", way.port());
        let host = site
            .prepare(&format!("node-{number}"), |config| config.replace(&format!(":{port}/"), &by));
        site.hosts.push(host);
        ways.push(way);
    }
    site.create_tables();
    // The second host leads.
    site.start_host(1);
    assert_eq!(site.leader(), 1);
    site.start_host(0);
    site.start_host(2);
    site.shared_out();
    (site, ways)
}

fn owned_by(site: &mut Site, name: &str) -> i64 {
    site.number(&format!("SELECT count(*) FROM besom.partition WHERE owner LIKE '{name}-%'"))
}

#[test]
fn a_node_that_does_not_reach_the_store_leaves_its_work_to_the_others_and_is_named() {
    let (mut site, ways) = site();
    for victim in [1, 2] {
        let name = site.hosts[victim].name().to_owned();
        let (term, leads) = (site.term(), site.leader() == victim);
        site.add_shares(&name, SHARES, 1.0, 10.0);
        ways[victim - 1].set_cut(true);
        wait_at_most(HANDED_OVER_MAX, "the others to own everything", || {
            (owned_by(&mut site, &name) == 0).then_some(())
        });
        if leads {
            wait_at_most(HANDED_OVER_MAX, "another to lead", || (site.term() > term).then_some(()));
            assert_ne!(site.leader(), victim);
        }
        site.comes_to_rest();
        // The node cannot write this into the store: the others learn it from etcd.
        let (_, status) = site.json(&["status"]);
        let nodes = status["nodes"].as_array().expect("a list");
        let of_name = |node: &&serde_json::Value| {
            node["node"].as_str().is_some_and(|node| node.starts_with(&format!("{name}-")))
        };
        let node = nodes.iter().find(of_name).expect("the node");
        assert_eq!(node["state"], "aside", "{status:#}");
        let missing = &node["missing"][0];
        assert_eq!(missing["what"], "the store", "{status:#}");
        assert!(missing["why"].as_str().is_some_and(|why| why.contains("stands aside")));
        wait_for("the dashboard of another to name it", || {
            let snapshot = site.snapshot(0)?;
            let list = attention(&snapshot, &Thresholds::default());
            let about = list.iter().filter(|a| a.subject == Subject::Node(name.clone()));
            about.map(|a| &a.text).find(|text| text.contains("has not reached the store")).cloned()
        });
        ways[victim - 1].set_cut(false);
        site.shared_out();
    }
    site.balanced();
}

#[test]
fn where_nobody_reaches_the_store_nothing_changes_hands() {
    let mut site = Site::new(2);
    site.create_tables();
    site.start();
    let (leader, term) = (site.leader(), site.term());
    let epochs = "SELECT sum(owner_epoch)::int8 FROM besom.partition";
    let before = site.number(epochs);
    site.servers.stop(Which::Postgres);
    wait_at_most(TTL * 10, "all to have missed it for three leases", || {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time");
        let members = site.members();
        let missed = |member: &serde_json::Value| {
            let since = member["store_away"]["since"].as_u64()?;
            Some(now.saturating_sub(Duration::from_micros(since)))
        };
        let all = members.iter().all(|member| missed(member).is_some_and(|for_| for_ > TTL * 3));
        (members.len() == 2 && all).then_some(())
    });
    site.servers.restart(Which::Postgres).expect("it is back");
    site.add_shares("back", 100, 0.0, 2.0);
    site.comes_to_rest();
    assert_eq!((site.leader(), site.term()), (leader, term));
    assert_eq!(site.number(epochs), before, "nothing was taken over");
    site.balanced();
}
