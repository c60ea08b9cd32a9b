//! Asking the leader for something: a command row, and a bounded wait for its result.

use std::time::Duration;

use super::output::{self, Facts};
use super::{Exit, Failure, Global};
use crate::api::admin::user;
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
        if command.discards() && self.reason.trim().is_empty() {
            let verb = command.verb();
            return Err(Failure::Usage(format!("say why: {verb} is kept with its --reason")));
        }
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

/// Who asks: the user as the system knows them. The environment says what anybody likes.
pub fn caller() -> String {
    user(rustix::process::getuid().as_raw())
}
