//! Records a command for the leader, and waits a limited time for its result.

use std::time::Duration;

use besom_core::command::check_reason;

use super::output::{self, Facts};
use super::{Exit, Failure, Global};
use besom_engine::api::admin::user;
use besom_engine::host::asking::{Asked, ask};
use besom_ports::store::{self, Command, Store};
use besom_snapshot::Cause;

/// Options of every verb that records a command for the leader.
#[derive(Debug, Clone, clap::Args)]
pub struct Asking {
    /// Reason, recorded with the command.
    #[arg(long, default_value = "")]
    pub reason: String,
    /// How long to wait for a leader to apply the command.
    #[arg(long, default_value = "5s", value_name = "SPAN", value_parser = besom_config::quantity::duration_argument)]
    pub wait: Duration,
}

/// Options of a verb that records a command and requires a reason.
#[derive(Debug, Clone, clap::Args)]
pub struct Reasoned {
    /// Reason, recorded with the command (required).
    #[arg(long)]
    reason: String,
    /// How long to wait for a leader to apply the command.
    #[arg(long, default_value = "5s", value_name = "SPAN", value_parser = besom_config::quantity::duration_argument)]
    wait: Duration,
}

impl Reasoned {
    /// The options.
    ///
    /// # Errors
    /// An empty reason.
    pub fn asking(self) -> Result<Asking, Failure> {
        let Reasoned { reason, wait } = self;
        match reason.trim().is_empty() {
            true => Err(Failure::Usage("--reason must not be empty".into())),
            false => Ok(Asking { reason, wait }),
        }
    }
}

/// The result of a command, and what its requester should know besides.
#[derive(serde::Serialize)]
struct Answer {
    #[serde(flatten)]
    asked: Asked,
    /// What will happen although the command is carried out; none: nothing is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<String>,
}

impl Asking {
    /// Checks what a command needs before it is recorded.
    ///
    /// # Errors
    /// A discarding command without a reason, or a reason that is too long.
    pub fn check(&self, command: &Command) -> Result<(), Failure> {
        checked(&self.reason)?;
        if command.discards() && self.reason.trim().is_empty() {
            let verb = command.verb();
            return Err(Failure::Usage(format!("{verb} requires a reason: add --reason TEXT")));
        }
        Ok(())
    }

    /// Records the command and prints its result. Exits with 1 if the leader refuses it.
    ///
    /// # Errors
    /// A discarding command without a reason, a reason that is too long, or a store that cannot be written.
    pub async fn run(
        &self,
        global: &Global,
        store: &dyn Store,
        command: &Command,
    ) -> Result<Exit, Failure> {
        self.run_warned(global, store, command, None).await
    }

    /// Like [`Asking::run`]; the warning is printed with a result that is no refusal.
    ///
    /// # Errors
    /// Those of [`Asking::run`].
    pub async fn run_warned(
        &self,
        global: &Global,
        store: &dyn Store,
        command: &Command,
        warning: Option<String>,
    ) -> Result<Exit, Failure> {
        self.check(command)?;
        let asked = ask(store, command, &caller(), &self.reason, self.wait).await;
        let asked = asked.map_err(unwritten)?;
        let warning = warning.filter(|_| !asked.refused);
        let answer = Answer { asked, warning };
        let asked = &answer.asked;
        output::show(global.output, &answer, || {
            let mut facts = Facts::default();
            facts.add("command", asked.command);
            if asked.repeated {
                facts.add("recorded", "already: you have asked for the same before, and it waited");
            }
            match &asked.result {
                Some(result) if asked.refused => facts.add("refused", result),
                Some(result) => facts.add("result", result),
                None if asked.applied => facts.add("result", "applied"),
                None => facts.add("result", unapplied(command)),
            };
            if let Some(warning) = &answer.warning {
                facts.add("warning", warning);
            }
            facts.render()
        })?;
        Ok(if asked.refused { Exit::Failed } else { Exit::Fine })
    }
}

/// The failure of a command that could not be recorded. A role that may only read needs no grant for
/// what it is meant for, so none is suggested.
fn unwritten(error: store::Error) -> Failure {
    match error.once() {
        store::Error::Refused(Cause::Privilege, said) => {
            let said =
                said.strip_suffix(store::GRANTS).map_or(&*said, |s| s.trim_end_matches("; "));
            Failure::Denied(format!(
                "the database role of this configuration may not record commands: {said}; use the \
                 configuration of a host"
            ))
        }
        error => error.into(),
    }
}

/// Checks the text of `--reason`, before anything is changed.
///
/// # Errors
/// It is too long. The error does not repeat it.
pub fn checked(reason: &str) -> Result<(), Failure> {
    check_reason(reason).map_err(|why| Failure::Usage(format!("--reason: {why}")))
}

/// Says what will apply a command that no leader has applied in time.
fn unapplied(command: &Command) -> &'static str {
    match command {
        Command::RetryDead(_)
        | Command::DiscardDead(_)
        | Command::RetryMessages(_)
        | Command::DiscardMessages(_)
        | Command::RepairStreams { .. }
        | Command::Purge(_)
        | Command::Pause { .. }
        | Command::Resume { .. }
        | Command::DiscardPlanned { .. } => {
            "not applied yet; the next `besom serve` or `besom run` applies it"
        }
        Command::Trigger { .. } | Command::Approve { .. } | Command::Reject { .. } => {
            "not applied yet; the next `besom serve`, or a `besom run` of the task, applies it"
        }
        Command::Resign => "not applied; a later leader refuses it",
        _ => "not applied yet; the next `besom serve` applies it",
    }
}

/// Returns the name of the calling user by its user ID, because environment variables can be forged.
pub fn caller() -> String {
    user(rustix::process::getuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Exit;

    #[test]
    fn a_role_that_may_only_read_is_not_told_to_be_granted_more() {
        let said = format!(
            "permission denied for table command (42501); {}{}",
            store::GRANTS,
            store::UNTIL_GRANTED
        );
        let failure = unwritten(store::Error::Refused(Cause::Privilege, said));
        let words = failure.to_string();
        assert!(words.contains("may not record commands: permission denied"), "{words}");
        assert!(!words.contains("besom grants") && !words.contains("continues"), "{words}");
        assert_eq!(Exit::from(failure), Exit::Unreachable);
    }
}
