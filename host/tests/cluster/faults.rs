//! Hosts and servers are killed, frozen or stopped: the books balance, and every effect happens
//! once.

use std::time::Duration;

use besom_demo::cluster::Which;
use rustix::process::Signal;

use crate::site::Site;
use crate::wait::wait_for;

/// Shares that fall due during a fault.
const SHARES: u32 = 3_000;
/// How long etcd is unavailable: longer than any lease (`BESOM_ETCD_AWAY_S`, in seconds).
const ETCD_AWAY_S: u64 = 12;

#[test]
fn any_host_may_be_killed_at_any_time() {
    let mut site = Site::new(3);
    site.create_tables();
    site.start();
    for round in 0..3 {
        site.add_shares(&format!("round-{round}"), SHARES, 1.0, 8.0);
        let leader = site.leader();
        // The leader, a follower, and the leader again.
        let victim = if round == 1 { (leader + 1) % 3 } else { leader };
        let (term, done) = (site.term(), site.number("SELECT count(*) FROM seen_unshared"));
        wait_for("some of them to end", || {
            (site.number("SELECT count(*) FROM seen_unshared") > done + 100).then_some(())
        });
        site.signal(victim, Signal::KILL);
        if victim == leader {
            wait_for("another to lead", || (site.term() > term).then_some(()));
            assert_ne!(site.leader(), victim);
        }
        site.shared_out();
        site.start_host(victim);
        site.shared_out();
        site.comes_to_rest();
    }
    site.balanced();
}

#[test]
fn a_leader_that_is_frozen_past_its_lease_within_a_transaction_changes_nothing_afterwards() {
    let mut site = Site::new(2);
    site.create_tables();
    site.start();
    site.add_shares("frozen", SHARES, 2.0, 6.0);
    let leader = site.leader();
    let term = site.term();
    wait_for("them to be planned", || {
        (site.number("SELECT count(*) FROM besom.item") > 100).then_some(())
    });
    // A commit waits for the rows that the product has locked, with its transaction open.
    let lock = site.transaction("SELECT * FROM shares FOR UPDATE");
    let waiting = "SELECT count(*) FROM pg_stat_activity
                   WHERE wait_event_type = 'Lock' AND application_name LIKE 'besom%'";
    wait_for("commits to wait for the lock", || (site.number(waiting) >= 2).then_some(()));
    site.signal(leader, Signal::STOP);
    lock.roll_back();
    wait_for("the other to lead", || (site.term() > term).then_some(()));
    assert_ne!(site.leader(), leader);
    let alone = site.hosts[1 - leader].name().to_owned();
    wait_for("the other to own everything", || {
        let sql = format!("SELECT count(*) FROM besom.partition WHERE owner NOT LIKE '{alone}-%'");
        (site.number(&sql) == 0).then_some(())
    });
    site.comes_to_rest();
    let epochs = "SELECT sum(owner_epoch)::int8 FROM besom.partition";
    let before = site.number(epochs);
    site.signal(leader, Signal::CONT);
    site.shared_out();
    assert!(site.number(epochs) > before, "the thawed host came back as a new owner");
    site.balanced();
}

#[test]
fn etcd_may_be_away_under_load_and_nobody_works_meanwhile() {
    let away = std::env::var("BESOM_ETCD_AWAY_S").ok().and_then(|text| text.parse().ok());
    let away = Duration::from_secs(away.unwrap_or(ETCD_AWAY_S));
    let mut site = Site::new(3);
    site.create_tables();
    site.start();
    site.add_shares("away", SHARES, 1.0, away.as_secs_f64() + 4.0);
    wait_for("some of them to end", || {
        (site.number("SELECT count(*) FROM seen_unshared") > 50).then_some(())
    });
    let members = [0, 1, 2].map(Which::Etcd);
    for member in members {
        site.servers.stop(member);
    }
    let stopped = site.number("SELECT extract(epoch FROM clock_timestamp())::int8");
    wait_for("the status to say what is missing", || {
        let (_, status) = site.json(&["status"]);
        let fault = status["leader_fault"].as_str()?;
        let node = &status["nodes"][0]["missing"][0];
        let known = fault.contains("etcd") && node["what"] == "the coordination";
        (known && node["since"].is_string()).then_some(())
    });
    let until = stopped + away.as_secs() as i64;
    wait_for("etcd to have been away for long enough", || {
        let now = site.number("SELECT extract(epoch FROM clock_timestamp())::int8");
        (now >= until).then_some(())
    });
    // A lease lasts four seconds from its last renewal, and its holder stops before it ends.
    let late = format!(
        "SELECT count(*) FROM seen_unshared
         WHERE extract(epoch FROM at) BETWEEN {stopped} + 5 AND {until}"
    );
    assert_eq!(site.number(&late), 0, "nobody works without a lease");
    let term = site.term();
    site.servers.restart_all(&members).expect("etcd is back");
    wait_for("somebody to lead again", || (site.term() > term).then_some(()));
    site.shared_out();
    site.comes_to_rest();
    site.balanced();
}

#[test]
fn postgresql_may_be_killed_under_load() {
    let mut site = Site::new(2);
    site.create_tables();
    site.start();
    for round in 0..2 {
        site.add_shares(&format!("round-{round}"), SHARES, 1.0, 6.0);
        wait_for("some of them to end", || {
            let sql =
                format!("SELECT count(*) FROM seen_unshared WHERE share LIKE '%round-{round}%'");
            (site.number(&sql) > 100).then_some(())
        });
        let server = site.servers.process(Which::Postgres).expect("it runs");
        server.signal(Signal::KILL).expect("killed");
        wait_for("the hosts to know that the store is missing, and since when", || {
            let (code, said) = site.said(&["status"]);
            (code == 69 && said.contains("cannot reach the store since")).then_some(())
        });
        site.servers.restart(Which::Postgres).expect("it recovers");
        site.comes_to_rest();
    }
    site.shared_out();
    site.balanced();
}

#[test]
fn a_leader_that_stops_hands_over_at_once() {
    let mut site = Site::new(2);
    site.create_tables();
    site.start();
    site.add_shares("handover", 200, 1.0, 4.0);
    let leader = site.leader();
    let term = site.term();
    site.hosts[leader].stop();
    // The leader has released the lease: no node waits for its end.
    assert_eq!(site.leader(), 1 - leader);
    wait_for("the other to raise the fence", || (site.term() == term + 1).then_some(()));
    site.shared_out();
    site.comes_to_rest();
    site.balanced();
}
