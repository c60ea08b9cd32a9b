//! `besom ring`: consistent hashing on its own, to be tried out and to be used.

mod experiments;
mod serve;
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
    /// Serve a ring of servers and keys over HTTP, as [ring] in the configuration says.
    Serve(serve::Args),
}

impl Verb {
    /// Runs the verb.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        match self {
            Verb::Simulate(args) => args.run(global),
            Verb::Serve(args) => args.run(global).await,
        }
    }
}
