//! `besom pause --all` and `besom resume --all`: one stop for all tasks.

use besom_core::ids::TaskName;

use super::submit::{Asking, Reasoned};
use super::{Exit, Failure, Global, open};
use besom_ports::store::Command;

/// `besom pause`.
#[derive(Debug, clap::Args)]
pub struct Pause {
    /// Pause all tasks, including those that are configured later.
    #[arg(long, required = true)]
    all: bool,
    /// Reason and waiting time.
    #[command(flatten)]
    reasoned: Reasoned,
}

/// `besom resume`.
#[derive(Debug, clap::Args)]
pub struct Resume {
    /// Resume all tasks, except those that are paused by themselves.
    #[arg(long, required = true)]
    all: bool,
    /// Reason and waiting time.
    #[command(flatten)]
    asking: Asking,
}

impl Pause {
    /// Records the command and prints its result.
    ///
    /// # Errors
    /// An empty reason, or a store that cannot be written.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let asking = self.reasoned.asking()?;
        let (store, _) = open::reading(global).await?;
        asking.run(global, &*store, &Command::Pause { task: TaskName::from(TaskName::ALL) }).await
    }
}

impl Resume {
    /// Records the command and prints its result.
    ///
    /// # Errors
    /// A store that cannot be written.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        let task = TaskName::from(TaskName::ALL);
        self.asking.run(global, &*store, &Command::Resume { task, release: false }).await
    }
}
