//! `besom task`: lists, shows, controls and edits tasks.

mod edit;

use std::time::Duration;

use besom_core::cron::Schedule;
use besom_core::ids::TaskName;
use besom_core::snapshot::Run;
use besom_core::time::Time;
use clap::Subcommand;
use serde::{Serialize, Serializer};
use serde_json::Value;

use super::open::Outline;
use super::output::{self, Facts, Stamp, Table};
use super::submit::Asking;
use super::{Exit, Failure, Global, open, printed, status};
use crate::config::TaskOutline;
use crate::config::keys::suggestion;
use crate::ports::store::{self, Command, SlotRecord, Store};

/// Maximum number of slot records and runs shown for a task.
const SHOWN: u32 = 10;

/// `besom task`.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// List tasks with their next slot and waiting items.
    Ls,
    /// Show one task with its next slots, last slots and last runs.
    Show {
        /// Name of the task.
        task: String,
    },
    /// Start a run now.
    Trigger {
        /// Name of the task.
        task: String,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Pause a task: no more runs are planned, items already planned are still executed.
    Pause {
        /// Name of the task.
        task: String,
        /// Reason, shown with the task.
        #[arg(long)]
        reason: String,
        /// How long to wait for a leader to apply the command.
        #[arg(long, default_value = "5s", value_name = "SPAN", value_parser = crate::config::quantity::duration_argument)]
        wait: Duration,
    },
    /// Resume a paused task from now on.
    Resume {
        /// Name of the task.
        task: String,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Edit the schedule and other keys of a task in the configuration file.
    Edit(edit::Args),
    /// Explain why a slot ran, or why it did not.
    Explain {
        /// Task and time of the slot, such as TASK@2026-03-29T01:30:00Z.
        #[arg(value_name = "TASK@TIME")]
        slot: String,
    },
}

impl Verb {
    /// Runs the verb and prints its result.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let verb = match self {
            // Editing the file needs no store.
            Verb::Edit(args) => return args.run(global).await,
            verb => verb,
        };
        let (store, outline) = open::reading(global).await?;
        let store = &*store;
        match verb {
            Verb::Edit(args) => args.run(global).await,
            Verb::Ls => {
                let report = status::report(store, &outline).await?;
                output::show(global.output, &report.tasks, || {
                    status::tasks(&report.tasks, report.now)
                })?;
                Ok(Exit::Fine)
            }
            Verb::Show { task } => {
                let task = known(store, &outline, &task).await?;
                show(global, store, &outline, &task).await
            }
            Verb::Trigger { task, asking } => {
                let task = known(store, &outline, &task).await?;
                asking.run(global, store, &Command::Trigger { task }).await
            }
            Verb::Pause { task, reason, wait } => {
                let task = known(store, &outline, &task).await?;
                if reason.trim().is_empty() {
                    return Err(Failure::Usage("--reason must not be empty".into()));
                }
                Asking { reason, wait }.run(global, store, &Command::Pause { task }).await
            }
            Verb::Resume { task, asking } => {
                let task = known(store, &outline, &task).await?;
                asking.run(global, store, &Command::Resume { task }).await
            }
            Verb::Explain { slot } => {
                let (task, time) = slot.rsplit_once('@').ok_or_else(|| {
                    Failure::Usage(format!(
                        "`{slot}` is not a slot: write it as TASK@2026-03-29T01:30:00Z"
                    ))
                })?;
                let time = super::schedule::instant(time)
                    .map_err(|e| Failure::Usage(format!("`{time}`: {e}")))?;
                let task = known(store, &outline, task).await?;
                let found = explain(store, outline.tasks.get(&task), &task, time).await?;
                output::show(global.output, &found, || found.text())?;
                Ok(Exit::Fine)
            }
        }
    }
}

/// Returns the name of a task that the configuration or the store knows, or an error with a suggestion.
async fn known(store: &dyn Store, outline: &Outline, name: &str) -> Result<TaskName, Failure> {
    let task = TaskName::from(name);
    if outline.tasks.contains_key(&task) {
        return Ok(task);
    }
    if store.task_states().await?.iter().any(|s| s.task == task) {
        return Ok(task);
    }
    let fix = suggestion(name, outline.tasks.keys().map(TaskName::as_str));
    Err(Failure::Usage(format!("there is no task `{name}`; {fix}")))
}

async fn show(
    global: &Global,
    store: &dyn Store,
    outline: &Outline,
    task: &TaskName,
) -> Result<Exit, Failure> {
    let report = status::report(store, outline).await?;
    let now = store.now().await?;
    let row = report.tasks.iter().find(|t| t.task == task.as_str());
    let defined = outline.tasks.get(task);
    let schedule = defined.and_then(|t| Schedule::parse(t.schedule.as_deref()?, &t.timezone).ok());
    let upcoming = schedule.map(|s| s.upcoming(now, 5)).unwrap_or_default();
    let slots = store.slots(task, Time(i64::MIN), Time::MAX, SHOWN).await?;
    let runs = store.runs(Some(task), SHOWN).await?;
    let runs: Vec<Run> = runs.iter().map(Run::from).collect();
    let forecast = match defined {
        Some(defined) => edit::forecast_of(store, task, defined, now).await?,
        None => None,
    };
    let json = serde_json::json!({
        "task": task,
        "plugin": defined.map(|t| &t.plugin),
        "schedule": defined.and_then(|t| t.schedule.as_ref()),
        "timezone": defined.map(|t| &t.timezone),
        "status": row,
        "upcoming": upcoming
            .iter()
            .map(|u| serde_json::json!({ "utc": u.utc.to_string(), "local": u.local, "note": u.note }))
            .collect::<Vec<_>>(),
        "forecast": forecast,
        "slots": slots.iter().map(slot_json).collect::<Vec<_>>(),
        "runs": runs.iter().map(super::runs::json).collect::<Vec<_>>(),
    });
    output::show(global.output, &json, || {
        let mut facts = Facts::default();
        facts.add("task", task);
        facts.add("plugin", output::text(defined.map(|t| &t.plugin)));
        facts.add("schedule", output::text(defined.and_then(|t| t.schedule.as_ref())));
        facts.add("time zone", output::text(defined.map(|t| &t.timezone)));
        if let Some(forecast) = &forecast {
            facts.add("forecast", &forecast.sentence);
        }
        let mut next = Table::new(&["NEXT", "LOCAL", "NOTE"], "No upcoming slots.");
        for u in &upcoming {
            next.row([
                Stamp(u.utc).to_string(),
                u.local.clone(),
                u.note.clone().unwrap_or_default(),
            ]);
        }
        let state =
            row.map(|r| status::tasks(std::slice::from_ref(r), report.now)).unwrap_or_default();
        format!(
            "{}\n{state}\n{}\n{}\n{}",
            facts.render(),
            next.render(),
            slot_table(&slots),
            super::runs::table(&runs)
        )
    })?;
    Ok(Exit::Fine)
}

fn slot_table(slots: &[SlotRecord]) -> String {
    let mut table = Table::new(
        &["FROM", "TO", ">SLOTS", "OUTCOME", "RUN", "REASON"],
        "No slots have been decided yet.",
    );
    for slot in slots {
        table.row([
            Stamp(slot.from).to_string(),
            Stamp(slot.to).to_string(),
            slot.count.to_string(),
            slot.outcome.as_str().to_owned(),
            output::text(slot.run),
            slot.reason.clone(),
        ]);
    }
    table.render()
}

/// Returns a row of the slot history as JSON for scripts, with the outcome as a word.
fn slot_json(slot: &SlotRecord) -> Value {
    let mut fields = printed::json(slot);
    fields["outcome"] = slot.outcome.as_str().into();
    fields
}

/// The outcome of a slot.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Name of the task.
    pub task: String,
    /// Time of the slot.
    pub time: String,
    /// `ran`, `coalesced`, `skipped`, `queued`, `missed`, `paused`, `fenced`; `to_come` for a future slot,
    /// `undecided` for a past slot that no leader has decided, `no_slot` for a time that is not a slot of
    /// the schedule.
    pub outcome: String,
    /// The reason for the outcome.
    pub reason: String,
    /// The records in the slot history that cover the time.
    #[serde(serialize_with = "slots_json")]
    pub records: Vec<SlotRecord>,
    /// The run that the slot started, or that prevented it.
    #[serde(serialize_with = "run_json")]
    pub run: Option<Run>,
}

fn slots_json<S: Serializer>(slots: &[SlotRecord], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(slots.iter().map(slot_json))
}

fn run_json<S: Serializer>(run: &Option<Run>, to: S) -> Result<S::Ok, S::Error> {
    run.as_ref().map(super::runs::json).serialize(to)
}

/// Explains a slot from the history, or from the schedule if the history has no record of it.
pub async fn explain(
    store: &dyn Store,
    defined: Option<&TaskOutline>,
    task: &TaskName,
    time: Time,
) -> Result<Explanation, store::Error> {
    let now = store.now().await?;
    let schedule = defined.and_then(|t| Schedule::parse(t.schedule.as_deref()?, &t.timezone).ok());
    let on_schedule = schedule.as_ref().map(|s| s.is_slot(time));
    let mut records = store.slots(task, time, time, SHOWN).await?;
    if records.is_empty() {
        // A triggered run or a pass may start at any microsecond, but times are given to the second.
        let second = time + Duration::from_micros(999_999);
        records = store.slots(task, time, second, SHOWN).await?;
        records.retain(|record| record.from == record.to);
    }
    // A record may cover many slots, and the time may lie between two of them.
    let decided = records.first().filter(|record| {
        record.from == record.to
            || record.from == time
            || record.to == time
            || on_schedule != Some(false)
    });
    let (outcome, reason) = match (decided, on_schedule) {
        (Some(record), _) => (record.outcome.as_str().to_owned(), record.reason.clone()),
        (None, Some(true)) if time > now => {
            ("to_come".to_owned(), "the schedule has a slot at that time".to_owned())
        }
        (None, Some(true)) => (
            "undecided".to_owned(),
            "the schedule has a slot at that time, but no leader has decided it: there was no leader yet, the history was pruned, or the schedule was different".to_owned(),
        ),
        (None, Some(false)) => {
            let near = schedule.as_ref().and_then(|s| s.next_after(time));
            let near = near.map_or_else(String::new, |t| format!("; the next slot is {t}"));
            ("no_slot".to_owned(), format!("the schedule has no slot at that time{near}"))
        }
        (None, None) => ("no_slot".to_owned(), "the task has no schedule and runs only when triggered".into()),
    };
    let run = match decided.and_then(|record| record.run) {
        Some(id) => store.run(id).await?.as_ref().map(Run::from),
        None => None,
    };
    Ok(Explanation {
        task: task.to_string(),
        time: time.to_string(),
        outcome,
        reason,
        records,
        run,
    })
}

impl Explanation {
    fn text(&self) -> String {
        let mut facts = Facts::default();
        facts.add("task", &self.task).add("slot", &self.time);
        facts.add("outcome", self.outcome.replace('_', " ")).add("reason", &self.reason);
        for record in &self.records {
            facts.add(
                "recorded",
                format!(
                    "{} to {}, {} slots, term {}",
                    Stamp(record.from),
                    Stamp(record.to),
                    record.count,
                    record.term
                ),
            );
        }
        if let Some(run) = &self.run {
            facts.add("run", super::runs::line(run));
        }
        facts.render()
    }
}
