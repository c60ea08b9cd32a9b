//! The lease in a database that several machines share: a leader's death is seen when it expires.

use std::fs::File;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use besom_ports::coordination::{Campaign, Coordination as _};
use besom_ports::embedded::LeaseLedger as _;
use besom_ports::store::Error;
use besom_postgres::{Options, PostgresStore};
use besom_tests::adapters::lease::Machine;
use besom_tests::adapters::postgres::{Postgres, patient};
use besom_tests::conformance::world::START;
use besom_tests::conformance::{Fixture as _, block_on};

use super::granted::{SHARES, SUPERUSER, Site};

const LEADS_MAX: Duration = Duration::from_secs(120);

/// A host; it is killed at the latest when it goes out of scope.
struct Host<'s> {
    site: &'s Site,
    child: Child,
    log: std::path::PathBuf,
}

impl<'s> Host<'s> {
    fn start(site: &'s Site, name: &str) -> Host<'s> {
        let log = site.directory.path().join(format!("{name}.log"));
        let to = File::create(&log).expect("a log");
        let mut command = site.command(SUPERUSER, &["serve"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(to);
        Host { site, child: command.spawn().expect("started"), log }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    fn until(&self, words: &str) {
        let since = Instant::now();
        while !self.log().contains(words) {
            assert!(since.elapsed() < LEADS_MAX, "{words}: {}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    fn leader(&self) -> String {
        let status = self.site.json(SUPERUSER, &["status"]);
        status["leader"].as_str().expect("a leader").to_owned()
    }
}

impl Drop for Host<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn whoever_waits_for_the_lease_of_a_killed_host_says_whose_it_is_and_for_how_long() {
    let site = Site::with("[lease]\nttl = \"12s\"\nrenew = \"3s\"");
    site.product(SHARES);
    let mut first = Host::start(&site, "first");
    first.until("Leading");
    let leader = first.leader();
    first.kill();

    let refused = site.besom(SUPERUSER, &["run"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("{leader} on ")), "{said}");
    let left = said.split_once("expires in at most ").expect(&said).1;
    let left: u64 = left.split(' ').next().and_then(|n| n.parse().ok()).expect(&said);
    assert!((1..=12).contains(&left), "{said}");

    let second = Host::start(&site, "second");
    second.until("another node holds the lease");
    let log = second.log();
    let line = log.lines().find(|line| line.contains("another node holds the lease"));
    let line = line.expect("the line");
    assert!(line.contains(&leader) && line.contains("at_most="), "{line}");
    second.until("Leading");
}

/// Somebody else's `store.url` would otherwise take a store away from the host that works with it.
#[test]
fn a_store_becomes_a_clusters_only_while_no_host_without_one_leads() {
    block_on(async {
        let alone = Postgres::open().await;
        alone.set_now(START);
        let store = alone.inner();
        let open = async |cluster: &str| {
            let options = Options { cluster: cluster.into(), ..patient() };
            PostgresStore::open(&alone.database().url(), options).await
        };
        // Whoever only opens it records nothing.
        assert!(open("east").await.is_ok() && open("").await.is_ok() && open("west").await.is_ok());

        let lease = Machine::booted("boot-1").lease(alone.inner(), "n1".into());
        let Campaign::Won(fence) = lease.campaign(None).await.expect("a campaign") else {
            panic!("the lease is free");
        };
        let refused = store.assign_to("east").await;
        let Err(Error::Invalid(said)) = refused else { panic!("{refused:?}") };
        assert!(said.contains("the host n1 on ") && said.contains("without a cluster"), "{said}");
        lease.resign(&fence).await.expect("it resigns");

        store.assign_to("east").await.expect("nobody leads");
        let theirs = |said: &str| said.contains("belongs to the cluster \"east\"");
        assert!(matches!(open("").await, Err(Error::Invalid(said)) if theirs(&said)));
        assert!(
            matches!(store.assign_to("west").await, Err(Error::Invalid(said)) if theirs(&said))
        );
        assert!(open("east").await.is_ok());
    });
}
