//! `besom stream`: what waits in the log, stream by stream, and the repair of a broken one.

use std::collections::HashSet;

use besom_core::ids::TaskName;
use clap::Subcommand;
use serde::Serialize;

use super::output::{self, Table};
use super::submit::Asking;
use super::{Exit, Failure, Global, open};
use crate::ports::store::{Command, LogRead, Store, Stream, StreamRow};

/// `besom stream`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Streams with items that wait, and what is wrong with those that are broken.
    Ls {
        /// Of this task.
        task: Option<String>,
        /// Only those that are broken.
        #[arg(long)]
        broken: bool,
    },
    /// Number the broken streams of a task anew, without what they have lost. What was lost is
    /// counted as discarded, and planned again by the next scan that finds it.
    Repair {
        /// The task.
        task: String,
        /// How it is asked for.
        #[command(flatten)]
        asking: Asking,
    },
}

/// A stream, as it is printed.
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
        let lost = (missing > 0).then(|| format!("{missing} of its items are missing"));
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

/// The streams, and why the next item of one cannot be read.
async fn rows(store: &dyn Store, task: Option<&TaskName>) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for of_task in store.streams(task).await?.chunk_by(|a, b| a.stream.task == b.stream.task) {
        // The next item of each, in one read.
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
        // What was acknowledged since it was listed is not missing.
        let still: HashSet<Stream> =
            store.streams(task).await?.into_iter().map(|row| row.stream).collect();
        for (row, why) in &mut rows {
            why.take_if(|_| !still.contains(&row.stream));
        }
    }
    Ok(rows.into_iter().map(|(row, why)| Row::new(&row, why)).collect())
}

impl Verb {
    /// Looks up and prints, or asks the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        match self {
            Verb::Ls { task, broken } => {
                let task = task.map(TaskName::from);
                let mut rows = rows(&*store, task.as_ref()).await?;
                rows.retain(|row| !broken || row.broken.is_some());
                let none = match broken {
                    true => "No stream is broken.",
                    false => "Nothing waits in a stream.",
                };
                output::show(global.output, &rows, || list(&rows, none))?;
                Ok(Exit::Fine)
            }
            Verb::Repair { task, asking } => {
                let command = Command::RepairStreams { task: TaskName::from(task) };
                asking.run(global, &*store, &command).await
            }
        }
    }
}

fn list(rows: &[Row], none: &'static str) -> String {
    let headings = ["TASK", ">PARTITION", ">ACKED", ">TAIL", ">ITEMS", "STATE"];
    let mut table = Table::new(&headings, none);
    for row in rows {
        let numbers = [u64::from(row.partition), row.acked, row.tail, row.items];
        let [partition, acked, tail, items] = numbers.map(|n| n.to_string());
        let state = row.broken.as_ref().map_or("fine".into(), |why| format!("broken: {why}"));
        table.row([row.task.clone(), partition, acked, tail, items, state]);
    }
    let mut out = table.render();
    if let Some(row) = rows.iter().find(|row| row.broken.is_some()) {
        out.push_str(&format!(
            "`besom stream repair {}` numbers what is there anew and writes off the rest.\n",
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
        assert!(text.contains("`besom stream repair sweep`"), "{text}");
        let damaged = Row::new(&row(2, 5, 3), Some("3 cannot be read".into()));
        assert_eq!(damaged.broken.as_deref(), Some("3 cannot be read"));
    }
}
