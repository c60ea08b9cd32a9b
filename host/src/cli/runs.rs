//! `besom runs`: lists, shows and cancels runs, and prints their logs.

mod logs;

use besom_core::ids::{RunId, TaskName};
use besom_core::snapshot::RunState;
use clap::Subcommand;
use serde::Serialize;

use super::output::{self, Facts, Stamp, Table};
use super::submit::Asking;
use super::{Exit, Failure, Global, open};
use crate::ports::store::{Command, HistoryQuery, HistoryRow, Run, Store, Trigger};

/// `besom runs`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List runs, newest first.
    Ls {
        /// Only runs of this task.
        #[arg(long)]
        task: Option<String>,
        /// Maximum number of rows.
        #[arg(short, long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Show one run with the items it planned.
    Show {
        /// Number of the run.
        run: u64,
        /// Maximum number of items.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Cancel a run: its scan stops, items already planned are still executed.
    Cancel {
        /// Number of the run.
        run: u64,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Print what the plugin of a run has logged; only the newest lines are kept.
    Logs {
        /// Number of the run.
        run: u64,
        /// Keep printing new lines until the run has ended.
        #[arg(short, long)]
        follow: bool,
    },
}

/// A run as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    run: u64,
    task: String,
    slot: Stamp,
    trigger: String,
    by: Option<String>,
    reason: Option<String>,
    term: u64,
    plugin_digest: String,
    started_at: Stamp,
    ended_at: Option<Stamp>,
    state: String,
    error: Option<String>,
    planned: u64,
    deduplicated: u64,
    blocked: u64,
    open: u64,
    scanned: u64,
}

impl From<&Run> for Row {
    fn from(run: &Run) -> Row {
        let (trigger, by, reason) = match &run.trigger {
            Trigger::Schedule => ("schedule", None, None),
            Trigger::Manual { by, reason } => ("manual", Some(by.clone()), Some(reason.clone())),
            Trigger::Takeover => ("takeover", None, None),
            Trigger::Pass => ("pass", None, None),
        };
        Row {
            run: run.id.0,
            task: run.task.to_string(),
            slot: Stamp(run.slot),
            trigger: trigger.to_owned(),
            by,
            reason,
            term: run.term.0,
            plugin_digest: run.digest.clone(),
            started_at: Stamp(run.started_at),
            ended_at: run.ended_at.map(Stamp),
            state: RunState::of(run).as_str().to_owned(),
            error: run.error.clone(),
            planned: run.planned,
            deduplicated: run.deduplicated,
            blocked: run.blocked,
            open: run.open,
            scanned: run.scanned,
        }
    }
}

impl Row {
    /// Describes the run in one line.
    pub fn line(&self) -> String {
        format!(
            "{} ({}, started {}, {} planned)",
            self.run, self.state, self.started_at, self.planned
        )
    }
}

/// The outcome of an item as it is printed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ItemRow {
    tenant: Option<String>,
    key: String,
    due: Option<Stamp>,
    at: Stamp,
    outcome: String,
    settled: bool,
    reason: Option<String>,
    notes: serde_json::Map<String, serde_json::Value>,
    node: String,
    commit: String,
    undo_bytes: u64,
}

impl From<&HistoryRow> for ItemRow {
    fn from(h: &HistoryRow) -> ItemRow {
        ItemRow {
            tenant: h.identity.tenant.as_ref().map(ToString::to_string),
            key: h.identity.key.clone(),
            due: h.identity.due.map(Stamp),
            at: Stamp(h.at),
            outcome: h.outcome.clone(),
            settled: h.settled,
            reason: h.reason.clone(),
            notes: h.notes.iter().map(|f| (f.name.clone(), plain(&f.value))).collect(),
            node: h.node.to_string(),
            commit: h.commit.to_string(),
            undo_bytes: h.undo_bytes,
        }
    }
}

/// Converts a value to JSON: bytes become hexadecimal, instants RFC 3339.
pub fn plain(value: &besom_core::value::Value) -> serde_json::Value {
    use besom_core::value::Value;
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(b) => (*b).into(),
        Value::Integer(n) => (*n).into(),
        Value::Float(n) => (*n).into(),
        Value::Decimal(s) | Value::Text(s) => s.as_str().into(),
        Value::Bytes(b) => hex::encode(b).into(),
        Value::Timestamp(t) => t.to_string().into(),
        Value::Uuid(b) => hex::encode(b).into(),
        Value::Json(s) => serde_json::from_str(s).unwrap_or_else(|_| s.as_str().into()),
    }
}

/// Renders runs as a table.
pub fn table(runs: &[Run]) -> String {
    let mut table = Table::new(
        &[
            ">RUN", "TASK", "SLOT", "TRIGGER", "STATE", ">PLANNED", ">OPEN", ">SCANNED", "ENDED",
            "ERROR",
        ],
        "No runs yet.",
    );
    for r in runs.iter().map(Row::from) {
        table.row([
            r.run.to_string(),
            r.task,
            r.slot.to_string(),
            r.trigger,
            r.state,
            r.planned.to_string(),
            r.open.to_string(),
            r.scanned.to_string(),
            output::text(r.ended_at),
            r.error.unwrap_or_default(),
        ]);
    }
    table.render()
}

impl Verb {
    /// Prints runs, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let (store, _) = open::reading(global).await?;
        match self {
            Verb::Ls { task, limit } => {
                let task = task.map(TaskName::from);
                let runs = store.runs(task.as_ref(), limit).await?;
                let rows: Vec<Row> = runs.iter().map(Row::from).collect();
                output::show_list(global.output, &rows, (rows.len(), limit), || table(&runs))?;
            }
            Verb::Cancel { run: number, asking } => {
                let run = known(&*store, number).await?;
                if let Some(ended) = run.ended_at {
                    let ended = Stamp(ended);
                    return Err(Failure::Failed(format!("run {number} already ended at {ended}")));
                }
                return asking.run(global, &*store, &Command::Cancel { run: run.id }).await;
            }
            Verb::Show { run: number, limit } => {
                let run = known(&*store, number).await?;
                let id = run.id;
                let query = HistoryQuery { run: Some(id), limit, ..HistoryQuery::default() };
                let items: Vec<ItemRow> =
                    store.history(&query).await?.iter().map(ItemRow::from).collect();
                let row = Row::from(&run);
                let json = serde_json::json!({ "run": row, "items": items });
                output::show_list(global.output, &json, (items.len(), limit), || {
                    text(&row, &items)
                })?;
            }
            Verb::Logs { run, follow } => {
                logs::print(store.as_ref(), global.output, RunId(run), follow).await?;
            }
        }
        Ok(Exit::Fine)
    }
}

async fn known(store: &dyn Store, number: u64) -> Result<Run, Failure> {
    store.run(RunId(number)).await?.ok_or_else(|| {
        Failure::Usage(format!("there is no run {number}; list runs with `besom runs ls`"))
    })
}

fn text(row: &Row, items: &[ItemRow]) -> String {
    let mut facts = Facts::default();
    facts.add("run", row.run).add("task", &row.task).add("slot", row.slot);
    facts.add("trigger", &row.trigger);
    if let (Some(by), Some(reason)) = (&row.by, &row.reason) {
        facts.add("by", by).add("reason", reason);
    }
    facts.add("term", row.term).add("plugin", &row.plugin_digest).add("state", &row.state);
    facts.add("started", row.started_at).add("ended", output::text(row.ended_at));
    facts.add("planned", row.planned).add("deduplicated", row.deduplicated);
    facts.add("blocked", row.blocked).add("open", row.open).add("rows scanned", row.scanned);
    if let Some(error) = &row.error {
        facts.add("error", error);
    }
    let mut table = Table::new(
        &["TENANT", "KEY", "AT", "OUTCOME", "REASON", "NOTES"],
        "No items of this run have ended yet.",
    );
    for item in items {
        table.row([
            output::text(item.tenant.clone()),
            item.key.clone(),
            item.at.to_string(),
            item.outcome.clone(),
            item.reason.clone().unwrap_or_default(),
            noted(&item.notes),
        ]);
    }
    format!("{}\n{}", facts.render(), table.render())
}

/// Renders the notes of an item in one line.
fn noted(notes: &serde_json::Map<String, serde_json::Value>) -> String {
    let note = |(name, value): (&String, &serde_json::Value)| match value {
        serde_json::Value::String(text) => format!("{name}={text}"),
        other => format!("{name}={other}"),
    };
    notes.iter().map(note).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_notes_of_an_item_are_shown_in_one_line() {
        let notes = json!({ "late_us": 12, "due": "1970-01-01T00:01:00Z", "merged": true });
        let serde_json::Value::Object(notes) = notes else { unreachable!("it is an object") };
        let shown = noted(&notes);
        let mut parts: Vec<_> = shown.split(' ').collect();
        parts.sort_unstable();
        assert_eq!(parts, ["due=1970-01-01T00:01:00Z", "late_us=12", "merged=true"]);
        assert_eq!(noted(&serde_json::Map::new()), "");
    }
}
