//! `besom ring`: the cluster's ring, and consistent hashing on its own, to be tried and used.

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
    /// Distribute keys over servers, and see what a lost or added server does to them.
    ///
    /// Without --mode all experiments run: distribution, a lost server, an added server,
    /// and what virtual nodes cost.
    Simulate(simulate::Args),
    /// Show how many partitions each node of the cluster should have.
    Show(show::Show),
    /// Say which partition a key belongs to, and which node should own it.
    Owner(show::Owner),
    /// Serve a ring of servers and keys over HTTP, as [ring] in the configuration says.
    Serve(serve::Args),
}

impl Verb {
    /// Runs the verb.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Simulate(args) => args.run(global),
            Verb::Show(args) => args.run(global).await,
            Verb::Owner(args) => args.run(global).await,
            Verb::Serve(args) => args.run(global).await,
        }
    }
}
