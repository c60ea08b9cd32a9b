//! `besom stream`: lists the streams of the log, and repairs broken ones.

use std::collections::HashSet;

use besom_core::ids::TaskName;
use clap::Subcommand;
use serde::Serialize;

use super::output::{self, Table};
use super::submit::Asking;
use super::task::{known, known_if_none};
use super::{Exit, Failure, Global, open};
use besom_ports::store::{Command, LogRead, Store, Stream, StreamRow};

/// `besom stream`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List streams with waiting items, and why broken streams are broken.
    Ls {
        /// Only streams of this task.
        task: Option<String>,
        /// Only broken streams.
        #[arg(long)]
        broken: bool,
    },
    /// Repair the broken streams of a task: the remaining items are renumbered, lost items count as
    /// discarded and are planned again by the next scan that finds them. Requires --reason.
    Repair {
        /// Name of the task.
        task: String,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
}

/// A stream as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct Row {
    task: String,
    partition: u32,
    acked: u64,
    tail: u64,
    items: u64,
    missing: u64,
    broken: Option<String>,
}

impl Row {
    fn new(row: &StreamRow, why: Option<String>) -> Row {
        let stream = &row.stream;
        let missing = (stream.tail.0 - stream.acked.0).saturating_sub(row.items);
        let lost = match missing {
            0 => None,
            1 => Some("1 of its items is missing".to_owned()),
            missing => Some(format!("{missing} of its items are missing")),
        };
        Row {
            task: stream.task.to_string(),
            partition: stream.partition.0,
            acked: stream.acked.0,
            tail: stream.tail.0,
            items: row.items,
            missing,
            broken: why.or(lost),
        }
    }
}

/// Reads the streams, and for each the error of reading its next item.
async fn rows(store: &dyn Store, task: Option<&TaskName>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for of_task in store.streams(task).await?.chunk_by(|a, b| a.stream.task == b.stream.task) {
        // Reads the next item of each stream in one read.
        let heads: Vec<_> = of_task.iter().map(|r| (r.stream.partition, r.stream.acked)).collect();
        let limit = u32::try_from(heads.len()).unwrap_or(u32::MAX);
        let name = &of_task[0].stream.task;
        let LogRead { broken, .. } = store.read_logs(name, &heads, 1, limit, usize::MAX).await?;
        let why = |row: &StreamRow| {
            let broken = broken.iter().find(|broken| broken.partition == row.stream.partition);
            broken.map(|broken| broken.why.clone())
        };
        rows.extend(of_task.iter().map(|row| (row.clone(), why(row))));
    }
    if rows.iter().any(|(_, why)| why.is_some()) {
        // An item that was acknowledged since the listing is not missing.
        let still: HashSet<Stream> =
            store.streams(task).await?.into_iter().map(|row| row.stream).collect();
        for (row, why) in &mut rows {
            why.take_if(|_| !still.contains(&row.stream));
        }
    }
    Ok(rows.into_iter().map(|(row, why)| Row::new(&row, why)).collect())
}

impl Verb {
    /// Prints streams, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, outline) = open::reading(global).await?;
        match self {
            Verb::Ls { task, broken } => {
                let task = task.map(TaskName::from);
                let mut rows = rows(&*store, task.as_ref()).await?;
                let name = task.as_ref().map(TaskName::as_str);
                known_if_none(&*store, &outline, rows.len(), name).await?;
                rows.retain(|row| !broken || row.broken.is_some());
                let none = match broken {
                    true => "No streams are broken.",
                    false => "No items are waiting in streams.",
                };
                output::show(global.output, &rows, || list(&rows, none))?;
                Ok(Exit::Fine)
            }
            Verb::Repair { task, asking } => {
                let task = known(&*store, &outline, &task).await?;
                let command = Command::RepairStreams { task };
                asking.run(global, &*store, &command).await
            }
        }
    }
}

fn list(rows: &[Row], none: &'static str) -> String {
    let mut table = Table::new(none);
    for row in rows {
        let state = row.broken.as_ref().map_or("ok".into(), |why| format!("broken: {why}"));
        table.row([
            ("TASK", &row.task),
            (">PARTITION", &row.partition),
            (">ACKED", &row.acked),
            (">TAIL", &row.tail),
            (">ITEMS", &row.items),
            ("STATE", &state),
        ]);
    }
    let mut out = table.render();
    if let Some(row) = rows.iter().find(|row| row.broken.is_some()) {
        out.push_str(&format!(
            "`besom stream repair {} --reason TEXT` renumbers the remaining items and counts the lost ones as discarded.\n",
            row.task
        ));
    }
    out
}

#[cfg(test)]
mod tests {
    use besom_core::ids::{Partition, Seq};

    use super::*;

    fn row(acked: u64, tail: u64, items: u64) -> StreamRow {
        let (task, partition) = (TaskName::from("sweep"), Partition(3));
        StreamRow { stream: Stream { task, partition, acked: Seq(acked), tail: Seq(tail) }, items }
    }

    #[test]
    fn a_broken_stream_is_told_with_its_repair() {
        let whole = Row::new(&row(2, 5, 3), None);
        assert_eq!((whole.missing, &whole.broken), (0, &None));
        assert!(!list(std::slice::from_ref(&whole), "").contains("repair"));
        let gap = Row::new(&row(2, 5, 1), None);
        let text = list(&[whole, gap], "");
        assert!(text.contains("broken: 2 of its items are missing"), "{text}");
        assert!(text.contains("`besom stream repair sweep --reason TEXT`"), "{text}");
        let damaged = Row::new(&row(2, 5, 3), Some("3 cannot be read".into()));
        assert_eq!(damaged.broken.as_deref(), Some("3 cannot be read"));
    }
}
