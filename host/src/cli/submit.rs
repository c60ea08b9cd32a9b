//! Asking the leader for something: a command row, and a bounded wait for its result.

use std::time::Duration;

use serde::Serialize;

use super::output::{self, Facts};
use super::{Exit, Failure, Global};
use crate::ports::store::{Command, Store};

/// How often the row is looked at while waiting.
const POLL: Duration = Duration::from_millis(50);

/// What everything that asks the leader understands.
#[derive(Debug, Clone, clap::Args)]
pub struct Asking {
    /// Why; kept with the command.
    #[arg(long, default_value = "")]
    pub reason: String,
    /// How long to wait for a leader to apply it.
    #[arg(long, default_value = "5s", value_name = "SPAN", value_parser = crate::config::quantity::duration_argument)]
    pub wait: Duration,
}

/// What became of a command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Asked {
    /// The command's number.
    pub command: u64,
    /// Whether a leader has applied it.
    pub applied: bool,
    /// What the leader said.
    pub result: Option<String>,
}

/// Puts a command down and waits for its result, at most `wait`.
pub async fn ask(
    store: &dyn Store,
    command: &Command,
    reason: &str,
    wait: Duration,
) -> Result<Asked, Failure> {
    let id = store.submit(command, &caller(), reason).await?;
    let deadline = tokio::time::Instant::now() + wait;
    loop {
        let row = store.command(id).await?;
        let done = row.filter(|row| row.applied_at.is_some());
        if done.is_some() || tokio::time::Instant::now() >= deadline {
            let applied = done.is_some();
            return Ok(Asked { command: id, applied, result: done.and_then(|row| row.result) });
        }
        tokio::time::sleep(POLL).await;
    }
}

impl Asking {
    /// Asks, and prints what became of it.
    pub async fn run(
        &self,
        global: &Global,
        store: &dyn Store,
        command: &Command,
    ) -> Result<Exit, Failure> {
        let asked = ask(store, command, &self.reason, self.wait).await?;
        output::show(global.output, &asked, || {
            let mut facts = Facts::default();
            facts.add("command", asked.command);
            match &asked.result {
                Some(result) => facts.add("result", result),
                None if asked.applied => facts.add("result", "applied"),
                None => facts.add("result", "no host has applied it yet; the next leader will"),
            };
            facts.render()
        })?;
        Ok(Exit::Fine)
    }
}

/// Who asks: the user's name where the environment has one, and the user's number.
pub fn caller() -> String {
    let uid = rustix::process::getuid().as_raw();
    match std::env::var("USER").ok().filter(|name| !name.is_empty()) {
        Some(name) => format!("{name} (uid {uid})"),
        None => format!("uid {uid}"),
    }
}
