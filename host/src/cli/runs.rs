//! `besom runs`: lists, shows, cancels and replays runs, and prints their logs.

mod logs;
mod replay;

use std::collections::{BTreeMap, BTreeSet};

use besom_core::ids::{RunId, TaskName};
use besom_core::item::End;
use besom_snapshot::{ItemRow, Run, Stop};
use clap::Subcommand;
use serde_json::Value;

use super::open::Outline;
use super::output::{self, Facts, Stamp, Table};
use super::printed::{self, Printed};
use super::stayed::Stayed;
use super::submit::Asking;
use super::{Exit, Failure, Global, open, task};
use besom_engine::gather::refused::{standing, standings};
use besom_engine::gather::rows;
use besom_ports::store::{Command, HistoryQuery, ReviewQuery, Store};

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
        #[arg(value_parser = super::number)]
        run: u64,
        /// Maximum number of items.
        #[arg(short, long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
        limit: u32,
    },
    /// Cancel a run: its scan stops, items already planned are still executed.
    Cancel {
        /// Number of the run.
        #[arg(value_parser = super::number)]
        run: u64,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Print what the plugin of a run has logged; only the newest lines are kept.
    Logs {
        /// Number of the run.
        #[arg(value_parser = super::number)]
        run: u64,
        /// Keep printing new lines until the run has ended.
        #[arg(short, long)]
        follow: bool,
    },
    /// Let the plugin of a run decide about its items again, and compare; commits nothing.
    Replay(replay::Args),
}

/// Returns a run as JSON for scripts: its number is `run` as well as `id`, and its trigger is a word
/// beside who requested it and why.
pub fn json(run: &Run) -> Value {
    let request = run.trigger.request();
    let mut fields = printed::json(run);
    fields["run"] = run.id.into();
    fields["trigger"] = run.trigger.as_str().into();
    fields["by"] = request.map(|(by, _)| by).into();
    fields["reason"] = request.map(|(_, reason)| reason).into();
    fields
}

/// Describes a run in one line.
pub fn line(run: &Run) -> String {
    let (state, started) = (run.state.as_str(), Stamp(run.started_at));
    format!("{} ({state}, started {started}, {} planned)", run.id, run.planned)
}

/// Maximum number of reviews that wait.
const REVIEWS_READ: u32 = 10_000;

/// What keeps runs from going on.
#[derive(Debug, Default)]
pub struct Kept {
    /// The numbers of the runs whose plans wait for an approval.
    waiting: BTreeSet<u64>,
    /// Why the runs of a task stand.
    stopped: BTreeMap<String, Stop>,
}

impl Kept {
    /// What keeps these runs from going on.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub async fn of(store: &dyn Store, outline: &Outline, runs: &[Run]) -> Result<Kept, Failure> {
        let mut kept = Kept::default();
        let active = || runs.iter().filter(|run| run.state.is_active());
        if active().any(|run| run.held) {
            let limit = REVIEWS_READ;
            let query = ReviewQuery { waiting: true, limit, ..ReviewQuery::default() };
            kept.waiting = store.reviews(&query).await?.iter().map(|review| review.run.0).collect();
        }
        if active().next().is_none() {
            return Ok(kept);
        }
        let (now, states) = (store.now().await?, store.task_states().await?);
        let paused =
            |name: &str| states.iter().find(|state| state.task.as_str() == name)?.paused.as_ref();
        for run in active() {
            let pause = paused(&run.task).or_else(|| paused(TaskName::ALL));
            let defined = outline.tasks.get(&TaskName::from(run.task.as_str()));
            let opens_at = defined.and_then(|task| task.windows.opens_at(now));
            let stop = Stop::of(pause, opens_at);
            kept.stopped.extend(stop.map(|stop| (run.task.clone(), stop)));
        }
        Ok(kept)
    }

    /// Why a run stands although it has not ended; none: it goes on, or waits for an approval.
    fn stop(&self, run: &Run) -> Option<&Stop> {
        let works = run.state.is_active() && !self.waiting.contains(&run.id);
        self.stopped.get(&run.task).filter(|_| works)
    }

    /// How a run stands, in a word.
    fn state(&self, run: &Run) -> &'static str {
        match self.stop(run) {
            _ if self.waiting.contains(&run.id) => besom_core::review::State::Waiting.as_str(),
            Some(stop) => stop.word,
            None => run.state.as_str(),
        }
    }

    /// A run as JSON: what keeps it from going on is told beside its state.
    pub fn json(&self, run: &Run) -> Value {
        let (mut fields, stop) = (json(run), self.stop(run));
        fields["waiting"] = self.waiting.contains(&run.id).into();
        fields["stands"] = stop.map(|stop| stop.word).into();
        fields["stands_because"] = stop.map(|stop| stop.why.as_str()).into();
        fields
    }
}

/// Renders runs as a table.
pub fn table(runs: &[Run], kept: &Kept) -> String {
    let mut table = Table::new("No runs yet.");
    for run in runs {
        table.row([
            (">RUN", &run.id),
            ("TASK", &run.task),
            ("SLOT", &Stamp(run.slot)),
            ("TRIGGER", &run.trigger.as_str()),
            ("STATE", &kept.state(run)),
            (">PLANNED", &run.planned),
            (">IN LOG", &run.open),
            (">SCANNED", &run.scanned),
            ("ENDED", &output::text(run.ended_at.map(Stamp))),
            ("ERROR", &run.error.as_deref().unwrap_or_default()),
        ]);
    }
    table.render()
}

impl Verb {
    /// Prints runs, or records a command for the leader.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let verb = match self {
            // It needs the plugin, and the mapping for its reads.
            Verb::Replay(args) => return args.run(global).await,
            verb => verb,
        };
        let (store, outline) = open::reading(global).await?;
        match verb {
            Verb::Replay(args) => return args.run(global).await,
            Verb::Ls { task, limit } => {
                let task = task.map(TaskName::from);
                let runs = store.runs(task.as_ref(), limit).await?;
                let name = task.as_ref().map(TaskName::as_str);
                task::known_if_none(&*store, &outline, runs.len(), name).await?;
                let runs = standings(&*store, &runs).await?;
                let kept = Kept::of(&*store, &outline, &runs).await?;
                let rows: Vec<Value> = runs.iter().map(|run| kept.json(run)).collect();
                let text = || table(&runs, &kept);
                output::show_list(global.output, &rows, (rows.len(), limit), text)?;
            }
            Verb::Cancel { run: number, asking } => {
                let run = known(&*store, number).await?;
                if let Some(ended) = run.ended_at {
                    let ended = Stamp(ended);
                    return Err(Failure::Failed(format!("run {number} already ended at {ended}")));
                }
                return asking.run(global, &*store, &Command::Cancel { run: RunId(run.id) }).await;
            }
            Verb::Show { run: number, limit } => {
                let run = known(&*store, number).await?;
                let id = RunId(run.id);
                let query = HistoryQuery { run: Some(id), limit, ..HistoryQuery::default() };
                let history = store.history(&query).await?;
                let stayed = Stayed::of_run(&*store, id, (&history, limit)).await?;
                let items: Vec<ItemRow> = history.iter().map(rows::item).collect();
                let kept = Kept::of(&*store, &outline, std::slice::from_ref(&run)).await?;
                let mut of_run = kept.json(&run);
                of_run["planned_rows"] = stayed.map(|rows| rows.planned_rows).into();
                of_run["stayed"] = stayed.map(|rows| rows.stayed).into();
                let json = serde_json::json!({ "run": of_run, "items": Printed(&items) });
                output::show_list(global.output, &json, (items.len(), limit), || {
                    text(&run, &items, &kept, stayed)
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
    let run = store.run(RunId(number)).await?.ok_or_else(|| {
        Failure::Usage(format!("there is no run {number}; list runs with `besom runs ls`"))
    })?;
    Ok(standing(store, &run).await?)
}

/// Why a run has no items in the history.
fn nothing(run: &Run) -> &'static str {
    match (run.ended_at, run.blocked) {
        (None, _) => "No items of this run have ended yet.",
        (Some(_), 0) => "The history has no items of this run.",
        (Some(_), _) => {
            "The history has no items of this run. What it found is blocked: these versions were decided or set \
             aside before."
        }
    }
}

fn text(run: &Run, items: &[ItemRow], kept: &Kept, stayed: Option<Stayed>) -> String {
    let mut facts = Facts::default();
    facts.add("run", run.id).add("task", &run.task).add("slot", Stamp(run.slot));
    facts.add("trigger", run.trigger.as_str());
    if let Some((by, reason)) = run.trigger.request() {
        facts.add("by", by).add("reason", reason);
    }
    facts.add("term", run.term).add("plugin", &run.plugin_digest);
    facts.add("state", kept.state(run));
    if let Some(stop) = kept.stop(run) {
        facts.add("stands", &stop.why);
    }
    facts.add("started", Stamp(run.started_at));
    facts.add("ended", output::text(run.ended_at.map(Stamp)));
    facts.add("planned", run.planned).add("deduplicated", run.deduplicated);
    facts.add("blocked", run.blocked).add("in the log", run.open).add("rows scanned", run.scanned);
    if let Some(stayed) = stayed {
        let is_refused = |item: &ItemRow| item.outcome == End::Committed && item.reason.is_some();
        facts.add("rows stayed", stayed.words(items.iter().any(is_refused)));
    }
    if let Some(error) = &run.error {
        facts.add("error", error);
    }
    let mut table = Table::new(nothing(run));
    for item in items {
        table.row([
            ("TENANT", &output::text(item.tenant.as_ref())),
            ("KEY", &item.key),
            ("AT", &Stamp(item.at)),
            ("OUTCOME", &item.outcome),
            (">ROWS", &item.rows),
            (">STAYED", &output::text(item.stayed)),
            ("REASON", &item.reason.as_deref().unwrap_or_default()),
            ("NOTES", &noted(&item.notes)),
        ]);
    }
    format!("{}\n{}", facts.render(), table.render())
}

/// Renders the notes of an item in one line.
fn noted(notes: &serde_json::Map<String, Value>) -> String {
    let note = |(name, value): (&String, &Value)| match value {
        Value::String(text) => format!("{name}={text}"),
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
        let Value::Object(notes) = notes else { unreachable!("it is an object") };
        let shown = noted(&notes);
        let mut parts: Vec<_> = shown.split(' ').collect();
        parts.sort_unstable();
        assert_eq!(parts, ["due=1970-01-01T00:01:00Z", "late_us=12", "merged=true"]);
        assert_eq!(noted(&serde_json::Map::new()), "");
    }
}
