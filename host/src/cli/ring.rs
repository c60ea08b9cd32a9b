//! `besom ring`: shows the ring of the cluster, and simulates or serves separate rings.

mod experiments;
mod positions;
mod serve;
mod show;
mod simulate;

use clap::Subcommand;

use super::{Exit, Failure, Global};

/// `besom ring`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Simulate the distribution of keys over servers, with a server lost or added.
    ///
    /// Without --mode, runs all experiments: distribution, a lost server, an added server, and the
    /// cost of virtual nodes.
    Simulate(simulate::Args),
    /// Show how many partitions each node should own and does own.
    Show(show::Show),
    /// Show the partition of a key, and the node that should own it.
    Owner(show::Owner),
    /// Serve a ring of servers and keys over HTTP, configured in the section `ring`.
    Serve(serve::Args),
}

impl Verb {
    /// Runs the verb and prints its result.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Simulate(args) => args.run(global),
            Verb::Show(args) => args.run(global).await,
            Verb::Owner(args) => args.run(global).await,
            Verb::Serve(args) => args.run(global).await,
        }
    }
}
