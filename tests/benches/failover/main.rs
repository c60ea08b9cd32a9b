//! How long a cluster takes to go on: after its leader was killed, after a follower was, and
//! after the leader was asked to stop. Real servers and real `besom serve` processes.
//!
//! `cargo bench -p besom-tests --bench failover [-- --binary PATH] [--lease TTL/RENEW]...
//! [--rounds N] [--hosts N]`. The hosts run the binary that is named here or in `BESOM_BIN`, by
//! default the one that `cargo build --release -p besom` leaves beside this program.
//!
//! Three members of etcd, and a PostgreSQL that waits for the disk, on this machine. About 100
//! shares fall due every second, most of them planned long before, some within the second.
//! Beside each figure stands its limit, measured in the same rounds: how soon etcd itself tells
//! a watcher that a bare lease has ended, or was given up.

mod books;
mod limit;
mod report;
mod rounds;
mod site;

use std::path::PathBuf;

use anyhow::{Context as _, Error, Result, bail, ensure};
use besom_tests::measured;

use site::{Site, Span};

/// Rounds of each kind, if nothing else is said.
const ROUNDS: usize = 20;
/// Hosts, if nothing else is said.
const HOSTS: usize = 3;
/// The leases, if none is named: the demo's and the shipped one.
const LEASES: [&str; 2] = ["5s/1s", "15s/5s"];

/// What is to be measured.
struct Wanted {
    binary: PathBuf,
    leases: Vec<String>,
    rounds: usize,
    hosts: usize,
}

fn main() -> Result<()> {
    // `cargo bench` adds `--bench`, `cargo test --benches` nothing: then only the build counts.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    let wanted = wanted(std::env::args().skip(1))?;
    report::run(&wanted.binary)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        for lease in &wanted.leases {
            let lease = Span::parse(lease)?;
            let mut site = Site::start(&wanted.binary, wanted.hosts, &lease).await?;
            rounds::kill_leader(&mut site, wanted.rounds).await?;
            rounds::kill_follower(&mut site, wanted.rounds).await?;
            rounds::hand_over(&mut site, wanted.rounds).await?;
            site.balanced().await?;
        }
        report::ring(&wanted.binary)
    })
}

fn wanted(mut args: impl Iterator<Item = String>) -> Result<Wanted> {
    let (mut binary, mut leases, mut rounds, mut hosts) = (None, Vec::new(), ROUNDS, HOSTS);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--bench" => {}
            "--binary" => binary = Some(value()?.into()),
            "--lease" => leases.push(value()?),
            "--rounds" => rounds = value()?.parse().context("--rounds")?,
            "--hosts" => hosts = value()?.parse().context("--hosts")?,
            _ => bail!("`{arg}`: there are --binary, --lease, --rounds and --hosts"),
        }
    }
    if leases.is_empty() {
        leases = LEASES.map(str::to_owned).into();
    }
    ensure!(hosts >= 2, "--hosts: somebody has to be there to take over");
    let binary = measured::binary(binary).map_err(Error::msg)?;
    Ok(Wanted { binary, leases, rounds, hosts })
}
