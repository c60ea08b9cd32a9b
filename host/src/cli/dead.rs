//! `besom dead`: lists, retries and discards dead letters.

use besom_core::ids::TaskName;
use clap::Subcommand;
use serde::Serialize;

use super::output::{self, Facts, Stamp, Table};
use super::submit::Asking;
use super::{Exit, Failure, Global, open};
use crate::ports::store::{Command, DeadLetter, DeadSelector, Letters};

/// `besom dead`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List dead letters, newest first.
    Ls {
        /// The selection.
        #[command(flatten)]
        which: Which,
        /// Include dead letters that a later commit of the same item has resolved.
        #[arg(long)]
        all: bool,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        limit: u32,
    },
    /// Show one dead letter with every error.
    Show {
        /// Number of the dead letter.
        id: u64,
    },
    /// Retry dead letters immediately, with the attempt counter reset.
    Retry {
        /// Numbers of the dead letters.
        ids: Vec<u64>,
        /// The selection.
        #[command(flatten)]
        which: Which,
        /// Select all dead letters.
        #[arg(long)]
        all: bool,
        /// Refuse unless exactly N dead letters match.
        #[arg(long, value_name = "N")]
        expect: Option<u64>,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Discard dead letters: their items are not planned again until their version changes.
    Discard {
        /// Numbers of the dead letters.
        ids: Vec<u64>,
        /// The selection.
        #[command(flatten)]
        which: Which,
        /// Select all dead letters.
        #[arg(long)]
        all: bool,
        /// Refuse unless exactly N dead letters match.
        #[arg(long, value_name = "N")]
        expect: Option<u64>,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
}

/// Selects dead letters by task and error.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Which {
    /// Only dead letters of this task.
    #[arg(long)]
    task: Option<String>,
    /// Only dead letters whose last error is exactly this text.
    #[arg(long)]
    error: Option<String>,
}

impl Which {
    fn selector(self, ids: Vec<u64>) -> DeadSelector {
        let task = self.task.map(TaskName::from);
        DeadSelector { ids, task, error: self.error, expect: None }
    }
}

/// Returns an explicit selection. No selection at all is an error and does not mean everything.
fn chosen(which: Which, ids: Vec<u64>, all: bool) -> Result<DeadSelector, Failure> {
    let selector = which.selector(ids);
    match (selector.is_narrow(), all) {
        (true, false) | (false, true) => Ok(selector),
        (false, false) => Err(Failure::Usage(
            "no dead letters selected: give numbers, --task, --error or --all".into(),
        )),
        (true, true) => {
            Err(Failure::Usage("--all cannot be combined with numbers, --task or --error".into()))
        }
    }
}

/// A dead letter as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    id: u64,
    task: String,
    tenant: Option<String>,
    key: String,
    due: Option<Stamp>,
    version: String,
    run: u64,
    at: Stamp,
    resolved_at: Option<Stamp>,
    attempts: u32,
    deaths: u32,
    error: Option<String>,
    errors: Vec<String>,
}

impl From<&DeadLetter> for Row {
    fn from(dead: &DeadLetter) -> Row {
        let item = &dead.item;
        Row {
            id: dead.id,
            task: item.identity.task.to_string(),
            tenant: item.identity.tenant.as_ref().map(ToString::to_string),
            key: item.identity.key.clone(),
            due: item.identity.due.map(Stamp),
            version: item.version.clone(),
            run: item.run.0,
            at: Stamp(dead.at),
            resolved_at: dead.resolved_at.map(Stamp),
            attempts: item.attempts,
            deaths: item.deaths,
            error: item.errors.last().cloned(),
            errors: item.errors.clone(),
        }
    }
}

impl Verb {
    /// Prints dead letters, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        match self {
            Verb::Ls { which, all, limit } => {
                let selector = which.selector(Vec::new());
                let letters = if all { Letters::All } else { Letters::Open };
                let found = store.dead_letters(&selector, letters, None, limit).await?;
                let rows: Vec<Row> = found.iter().map(Row::from).collect();
                output::show_list(global.output, &rows, (rows.len(), limit), || list(&rows))?;
                Ok(Exit::Fine)
            }
            Verb::Show { id } => {
                let selector = DeadSelector { ids: vec![id], ..DeadSelector::default() };
                let found = store.dead_letters(&selector, Letters::All, None, 1).await?;
                let row = found.first().map(Row::from).ok_or_else(|| {
                    Failure::Usage(format!(
                        "there is no dead letter {id}; list dead letters with `besom dead ls`"
                    ))
                })?;
                output::show(global.output, &row, || row.text())?;
                Ok(Exit::Fine)
            }
            Verb::Retry { ids, which, all, expect, asking } => {
                let selector = DeadSelector { expect, ..chosen(which, ids, all)? };
                let command = Command::RetryDead(selector);
                asking.run(global, &*store, &command).await
            }
            Verb::Discard { ids, which, all, expect, asking } => {
                let selector = DeadSelector { expect, ..chosen(which, ids, all)? };
                let command = Command::DiscardDead(selector);
                asking.run(global, &*store, &command).await
            }
        }
    }
}

fn list(rows: &[Row]) -> String {
    let mut table = Table::new(
        &[">ID", "TASK", "TENANT", "KEY", "SINCE", ">ATTEMPTS", "ERROR"],
        "There are no dead letters.",
    );
    for r in rows {
        table.row([
            r.id.to_string(),
            r.task.clone(),
            output::text(r.tenant.clone()),
            r.key.clone(),
            r.at.to_string(),
            r.attempts.to_string(),
            match (&r.resolved_at, r.error.clone().unwrap_or_default()) {
                (Some(_), error) => format!("(resolved) {error}"),
                (None, error) => error,
            },
        ]);
    }
    table.render()
}

impl Row {
    fn text(&self) -> String {
        let mut facts = Facts::default();
        facts.add("id", self.id).add("task", &self.task);
        facts.add("tenant", output::text(self.tenant.clone())).add("key", &self.key);
        facts.add("due", output::text(self.due)).add("version", &self.version);
        facts.add("planned by run", self.run).add("set aside", self.at);
        if let Some(at) = &self.resolved_at {
            facts.add("resolved by a later commit", at);
        }
        facts.add("attempts", self.attempts).add("host deaths", self.deaths);
        for (i, error) in self.errors.iter().enumerate() {
            facts.add(format!("error {}", i + 1), error);
        }
        facts.render()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_has_to_be_asked_for() {
        assert!(chosen(Which::default(), vec![], false).is_err());
        assert!(chosen(Which::default(), vec![1], true).is_err());
        assert_eq!(chosen(Which::default(), vec![], true).ok(), Some(DeadSelector::default()));
        let task = Which { task: Some("compaction".into()), error: None };
        assert!(chosen(task, vec![], false).is_ok());
    }
}
