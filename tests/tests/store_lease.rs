//! The store lease over a real file: its holder when processes die, freeze and return.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::{FencingToken, Incarnation, Term};
use besom_ports::coordination::{Campaign, Coordination};
use besom_ports::store::Error;
use besom_services::coordination::store_lease::{LEASE_TTL_DEFAULT, LeaseClock, StoreLease};
use besom_sqlite::{Options, SqliteStore};
use besom_tests::adapters::lease::Machine;
use besom_tests::adapters::sqlite::Sqlite;
use besom_tests::conformance::world::{START, fence};
use besom_tests::conformance::{Fixture, block_on};

/// Names the file to the process that is to be killed.
const FILE: &str = "BESOM_TEST_LEASE_FILE";

async fn won(lease: &StoreLease) -> FencingToken {
    match lease.campaign(None).await.expect("a campaign") {
        Campaign::Won(fence) => fence,
        held => panic!("the lease is free: {held:?}"),
    }
}

async fn holder(lease: &StoreLease) -> Incarnation {
    match lease.campaign(None).await.expect("a campaign") {
        Campaign::Held { leader, .. } => leader.node,
        won => panic!("the lease is held: {won:?}"),
    }
}

#[test]
fn a_holder_that_ended_is_followed_at_once_and_a_living_one_is_not() {
    block_on(async {
        let (sqlite, machine) = (Sqlite::open(), Machine::new());
        let one = machine.lease(sqlite.inner(), "n1".into());
        let two = machine.lease(sqlite.another(), "n2".into());
        let old = won(&one).await;
        assert_eq!(holder(&two).await.as_str(), "n1");
        drop(one);
        assert_eq!(two.leader().await.expect("an answer"), None);
        assert!(won(&two).await.term > old.term);
    });
}

#[test]
fn a_frozen_holder_keeps_its_lock_and_loses_the_lease() {
    block_on(async {
        let (sqlite, machine) = (Sqlite::open(), Machine::new());
        let frozen = machine.lease(sqlite.inner(), "n1".into());
        let [two, three] = ["n2", "n3"].map(|name| machine.lease(sqlite.another(), name.into()));
        let old = won(&frozen).await;
        machine.advance(LEASE_TTL_DEFAULT);
        let new = won(&two).await;
        assert!(!frozen.renew(&old).await.expect("an answer"), "an old leader stays refused");
        // The new holder never had the lock: a free lock does not mean that it is dead.
        drop(frozen);
        assert_eq!(holder(&three).await.as_str(), "n2");
        assert!(two.renew(&new).await.expect("an answer"));
        drop(two);
        assert!(won(&three).await.term > new.term);
    });
}

#[test]
fn a_term_is_above_the_fence_of_the_store() {
    block_on(async {
        let (sqlite, machine) = (Sqlite::open(), Machine::new());
        let lease = machine.lease(sqlite.inner(), "n1".into());
        let first = won(&lease).await;
        // A fence that was raised without the lease, as after a backup was restored.
        sqlite.store().raise_fence(&fence(41), &"n9".into(), None).await.expect("it is raised");
        let refused = sqlite.store().raise_fence(&first, &"n1".into(), None).await;
        assert!(matches!(refused, Err(Error::Fenced)), "{refused:?}");
        lease.resign(&first).await.expect("it resigns");
        let second = won(&lease).await;
        assert_eq!(second.term, Term(42));
        sqlite.store().raise_fence(&second, &"n1".into(), None).await.expect("it is raised");
    });
}

#[test]
fn of_many_campaigns_at_once_one_wins() {
    let sqlite = Sqlite::open();
    let machine = Machine::new();
    let nodes = ["n1", "n2", "n3", "n4"].map(|name| machine.lease(sqlite.another(), name.into()));
    for round in 0..10 {
        let wins: Vec<FencingToken> = std::thread::scope(|scope| {
            let campaigns: Vec<_> = nodes
                .iter()
                .map(|node| scope.spawn(|| block_on(node.campaign(None)).expect("a campaign")))
                .collect();
            let ended = campaigns.into_iter().map(|campaign| campaign.join().expect("an answer"));
            ended
                .filter_map(|ended| match ended {
                    Campaign::Won(fence) => Some(fence),
                    Campaign::Held { .. } => None,
                })
                .collect()
        });
        assert_eq!(wins.len(), 1, "round {round}: {wins:?}");
        assert_eq!(wins[0].term, Term(round + 1));
        for node in &nodes {
            block_on(node.resign(&wins[0])).expect("it resigns");
        }
    }
}

/// The lease of this process, under the machine's own clocks.
fn of_this_process(path: &std::path::Path, node: &str) -> StoreLease {
    let store: Arc<SqliteStore> =
        SqliteStore::open(path, Options::default()).expect("the store opens");
    let clock =
        LeaseClock::of_machine(Arc::new(besom_engine::host::clock::since_boot), Arc::new(|| START));
    // Longer than any test: only the death of its holder frees the lease.
    StoreLease::new(store, node.into(), Duration::from_secs(3_600), clock)
}

#[test]
fn a_killed_process_is_followed_at_once() {
    let sqlite = Sqlite::open();
    let mut child = Command::new(std::env::current_exe().expect("this test's program"))
        .args(["--exact", "the_process_that_is_killed", "--ignored", "--nocapture"])
        .env(FILE, sqlite.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let said = BufReader::new(child.stdout.take().expect("its output")).lines();
    let leads = said.map_while(Result::ok).any(|line| line.contains("leading under term 1"));
    let lease = of_this_process(sqlite.path(), "survivor");
    let before = block_on(lease.campaign(None));
    child.kill().expect("it is killed");
    child.wait().expect("it is dead");
    assert!(leads, "the process took the lease");
    let Ok(Campaign::Held { leader, .. }) = before else { panic!("it was held: {before:?}") };
    assert_eq!(leader.node.as_str(), "victim");
    assert_eq!(block_on(won(&lease)).term, Term(2));
}

/// Not a separate test: the process that [`a_killed_process_is_followed_at_once`] starts and kills.
#[test]
#[ignore = "started by another test"]
fn the_process_that_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let lease = of_this_process(path.as_ref(), "victim");
    let fence = block_on(won(&lease));
    let mut out = std::io::stdout();
    writeln!(out, "leading under term {}", fence.term).expect("its parent listens");
    out.flush().expect("its parent listens");
    // Waits until it is killed or, if its parent is gone, until the end of the input.
    let _ = std::io::stdin().read(&mut [0]);
}
