//! `besom commands`: the commands recorded for the leader, and their results.

use clap::Subcommand;
use serde::Serialize;

use super::output::{self, Facts, Stamp, Table};
use super::printed::Printed;
use super::{Exit, Failure, Global, open};
use besom_ports::store::{Command, CommandRow, DeadSelector, MessageSelector};

/// `besom commands`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List commands, newest first.
    Ls {
        /// Only commands with a lower number (for paging).
        #[arg(long, value_name = "ID")]
        before: Option<u64>,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show one command.
    Show {
        /// Number of the command.
        #[arg(value_parser = super::number)]
        id: u64,
    },
}

/// A command as it is printed: with its description.
#[derive(Debug, Serialize)]
struct Row<'a> {
    what: String,
    #[serde(flatten)]
    row: Printed<&'a CommandRow>,
}

impl<'a> From<&'a CommandRow> for Row<'a> {
    fn from(row: &'a CommandRow) -> Row<'a> {
        Row { what: what(&row.command), row: Printed(row) }
    }
}

/// Describes a command in the terms of the command line.
pub fn what(command: &Command) -> String {
    match command {
        Command::RetryDead(which) => format!("retry {}", letters(which)),
        Command::DiscardDead(which) => format!("discard {}", letters(which)),
        Command::RetryMessages(which) => {
            let superseded = if which.force { ", also superseded ones" } else { "" };
            format!("retry {}{superseded}", messages(which, "that were given up"))
        }
        Command::DiscardMessages(which) => {
            format!("discard {}", messages(which, "that wait for delivery"))
        }
        Command::Edited { task, change } => format!("edit {task}: {change}"),
        Command::Loaded { plugin, digest, version, grants, .. } => {
            let digest = digest.get(..12).unwrap_or(digest);
            format!("load {plugin} ({version}, {digest}): {grants}")
        }
        Command::Reloaded { before, after, change } => {
            let short = |digest: &String| digest.get(..12).unwrap_or(digest).to_owned();
            format!("reload ({} -> {}): {change}", short(before), short(after))
        }
        Command::Imported { tenant, documents } => format!("import into {tenant}: {documents}"),
        other => format!("{} {}", other.verb(), other.subject()),
    }
}

/// Describes a command for people: like [`what`], with the name of the verb where the recorded word is
/// another one.
fn told(command: &Command) -> String {
    match command {
        Command::Rejoined { node } => format!("node resume {node}"),
        Command::Drained { node } => format!("node drain {node}"),
        other => what(other),
    }
}

/// Describes a selection of dead letters: by number, or by task and error.
fn letters(which: &DeadSelector) -> String {
    if !which.ids.is_empty() {
        return format!("dead letters {}", listed(&which.ids));
    }
    let count = which.expect.map(|count| format!("{count} ")).unwrap_or_default();
    let task = which.task.as_ref().map(|task| format!(" of {task}"));
    let error = which.error.as_ref().map(|error| format!(" with the error `{error}`"));
    match (task, error) {
        (None, None) => format!("all {count}dead letters"),
        (task, error) => {
            let (task, error) = (task.unwrap_or_default(), error.unwrap_or_default());
            format!("{count}dead letters{task}{error}")
        }
    }
}

/// Describes a selection of messages: by number, or by topic.
fn messages(which: &MessageSelector, state: &str) -> String {
    match (which.ids.as_slice(), &which.topic) {
        ([], None) => format!("all messages {state}"),
        ([], Some(topic)) => format!("messages of {topic} {state}"),
        (ids, _) => format!("messages {}", listed(ids)),
    }
}

fn listed(ids: &[u64]) -> String {
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(", ")
}

impl Verb {
    /// Reads the commands from the store and prints them.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        match self {
            Verb::Ls { before, limit } => {
                let found = store.commands(before, limit).await?;
                let rows: Vec<Row<'_>> = found.iter().map(Row::from).collect();
                output::show_list(global.output, &rows, (rows.len(), limit), || list(&found))?;
            }
            Verb::Show { id } => {
                let row = store.command(id).await?.ok_or_else(|| {
                    Failure::Usage(format!(
                        "there is no command {id}; list commands with `besom commands ls`"
                    ))
                })?;
                output::show(global.output, &Row::from(&row), || text(&row))?;
            }
        }
        Ok(Exit::Fine)
    }
}

fn list(rows: &[CommandRow]) -> String {
    let mut table = Table::new("No commands have been recorded.");
    for row in rows {
        table.row([
            (">ID", &row.id),
            ("AT", &Stamp(row.at)),
            ("BY", &row.by),
            ("WHAT", &told(&row.command)),
            ("REASON", &row.reason),
            ("RESULT", &result(row)),
        ]);
    }
    table.render()
}

/// Describes what came of a command.
fn result(row: &CommandRow) -> String {
    match (&row.result, row.applied_at) {
        (Some(result), _) if row.refused => format!("refused: {result}"),
        (Some(result), _) => result.clone(),
        (None, Some(_)) => "applied".to_owned(),
        (None, None) if row.command.is_record() => "done".to_owned(),
        (None, None) => "waiting for a leader".to_owned(),
    }
}

fn text(row: &CommandRow) -> String {
    let mut facts = Facts::default();
    facts.add("id", row.id).add("what", told(&row.command));
    facts.add("by", &row.by).add("reason", &row.reason).add("at", Stamp(row.at));
    facts.add("applied", output::text(row.applied_at.map(Stamp))).add("result", result(row));
    facts.render()
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{RunId, TaskName};

    use super::*;

    #[test]
    fn a_node_that_rejoins_is_told_by_the_verb_and_keeps_its_word_for_scripts() {
        let command = Command::Rejoined { node: "b".into() };
        assert_eq!(
            (told(&command).as_str(), what(&command).as_str()),
            ("node resume b", "rejoin b")
        );
        let command = Command::Drained { node: "b".into() };
        assert_eq!((told(&command).as_str(), what(&command).as_str()), ("node drain b", "drain b"));
    }

    #[test]
    fn every_command_is_told_in_the_words_of_the_command_line() {
        let task = || TaskName::from("sweep");
        let of = |ids: &[u64], task: Option<TaskName>, error: Option<&str>| DeadSelector {
            ids: ids.to_vec(),
            task,
            error: error.map(str::to_owned),
            expect: None,
        };
        for (command, words) in [
            (Command::Trigger { task: task() }, "trigger sweep"),
            (Command::Pause { task: task() }, "pause sweep"),
            (Command::Resume { task: task(), release: false }, "resume sweep"),
            (Command::Cancel { run: RunId(7) }, "cancel run 7"),
            (Command::RetryDead(of(&[3, 4], None, None)), "retry dead letters 3, 4"),
            (Command::RetryDead(of(&[], None, None)), "retry all dead letters"),
            (
                Command::DiscardDead(DeadSelector {
                    expect: Some(7),
                    ..of(&[], Some(task()), None)
                }),
                "discard 7 dead letters of sweep",
            ),
            (
                Command::DiscardDead(of(&[], Some(task()), Some("corrupt"))),
                "discard dead letters of sweep with the error `corrupt`",
            ),
            (
                Command::RetryMessages(MessageSelector {
                    ids: vec![5],
                    ..MessageSelector::default()
                }),
                "retry messages 5",
            ),
            (
                Command::RetryMessages(MessageSelector {
                    topic: Some("t".into()),
                    ..MessageSelector::default()
                }),
                "retry messages of t that were given up",
            ),
            (
                Command::DiscardMessages(MessageSelector {
                    topic: Some("t".into()),
                    ..MessageSelector::default()
                }),
                "discard messages of t that wait for delivery",
            ),
            (
                Command::RetryMessages(MessageSelector::default()),
                "retry all messages that were given up",
            ),
            (Command::Resign, "resign the leadership"),
            (
                Command::Edited { task: task(), change: "jitter = \"5s\"".into() },
                "edit sweep: jitter = \"5s\"",
            ),
        ] {
            assert_eq!(what(&command), words);
        }
    }
}
