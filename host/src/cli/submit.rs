//! Asking the leader for something: a command row, and a bounded wait for its result.

use std::time::Duration;

use super::output::{self, Facts};
use super::{Exit, Failure, Global};
use crate::host::asking::ask;
use crate::ports::store::{Command, Store};

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

impl Asking {
    /// Asks, and prints what became of it.
    pub async fn run(
        &self,
        global: &Global,
        store: &dyn Store,
        command: &Command,
    ) -> Result<Exit, Failure> {
        let asked = ask(store, command, &caller(), &self.reason, self.wait).await?;
        output::show(global.output, &asked, || {
            let mut facts = Facts::default();
            facts.add("command", asked.command);
            match &asked.result {
                Some(result) if asked.refused => facts.add("refused", result),
                Some(result) => facts.add("result", result),
                None if asked.applied => facts.add("result", "applied"),
                None => facts.add("result", "no host has applied it yet; the next leader will"),
            };
            facts.render()
        })?;
        Ok(if asked.refused { Exit::Failed } else { Exit::Fine })
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
