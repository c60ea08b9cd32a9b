//! `besom task`: lists, shows, controls, edits and pins tasks.

mod edit;

use besom_core::command::counted;
use besom_core::cron::Schedule;
use besom_core::ids::TaskName;
use besom_core::time::Time;
use besom_snapshot::Explained;
use clap::Subcommand;
use serde_json::Value;

use super::open::Outline;
use super::output::{self, Facts, Stamp, Table};
use super::submit::{Asking, Reasoned};
use super::{Exit, Failure, Global, open, plugin, printed, status};
use besom_config::TaskOutline;
use besom_config::keys::suggestion;
use besom_engine::gather::explain::explain;
use besom_engine::gather::refused::standings;
use besom_ports::store::{Command, SlotRecord, Store, Waiting};

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
    /// Pause a task: it plans nothing more, and what is planned waits until the task is resumed.
    Pause {
        /// Name of the task.
        task: String,
        /// Reason and waiting time.
        #[command(flatten)]
        reasoned: Reasoned,
    },
    /// Resume a paused task from now on.
    Resume {
        /// Name of the task.
        task: String,
        /// Let the runs that are planned go beyond their brakes.
        #[arg(long)]
        release: bool,
        /// Reason and waiting time.
        #[command(flatten)]
        asking: Asking,
    },
    /// Discard what is planned of a paused task; the next run may plan it again.
    Discard {
        /// Name of the task.
        task: String,
        /// Reason and waiting time.
        #[command(flatten)]
        reasoned: Reasoned,
    },
    /// Edit the schedule and other keys of a task in the configuration file.
    Edit(Box<edit::Args>),
    /// Pin the plugin's file by its SHA-256, and print what it requests beside the one before.
    Pin(plugin::PinArgs),
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
            Verb::Pin(args) => return args.run(global).await,
            verb => verb,
        };
        let (store, outline) = open::reading(global).await?;
        let store = &*store;
        match verb {
            Verb::Edit(args) => args.run(global).await,
            Verb::Pin(args) => args.run(global).await,
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
            Verb::Pause { task, reasoned } => {
                let asking = reasoned.asking()?;
                let task = known(store, &outline, &task).await?;
                asking.run(global, store, &Command::Pause { task }).await
            }
            Verb::Resume { task, release, asking } => {
                let task = known(store, &outline, &task).await?;
                let warning = match release {
                    true => None,
                    false => beyond(store, &outline, &task).await?,
                };
                asking.run_warned(global, store, &Command::Resume { task, release }, warning).await
            }
            Verb::Discard { task, reasoned } => {
                let asking = reasoned.asking()?;
                let task = known(store, &outline, &task).await?;
                asking.run(global, store, &Command::DiscardPlanned { task }).await
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
                let defined = outline.tasks.get(&task);
                let schedule = defined.and_then(schedule_of);
                let windows = defined.map(|task| task.windows.clone()).unwrap_or_default();
                let found = explain(store, schedule.as_ref(), &windows, &task, time).await?;
                output::show(global.output, &explained_json(&found), || explained_text(&found))?;
                Ok(Exit::Fine)
            }
        }
    }
}

/// Maximum number of commands among which the last brake of a task is looked for.
const COMMANDS_READ: u32 = 1_000;

/// Maximum number of brakes among which those of a run are looked for.
const BRAKES_READ: u32 = 10_000;

/// Says that what is planned of a task is more than its brakes allow, if that is known: the run whose brake
/// has tripped last has not ended, and its limit has not been raised enough.
async fn beyond(
    store: &dyn Store,
    outline: &Outline,
    task: &TaskName,
) -> Result<Option<String>, Failure> {
    let Some(defined) = outline.tasks.get(task) else { return Ok(None) };
    let rows = store.commands(None, COMMANDS_READ).await?;
    let tripped = rows.iter().find_map(|row| match &row.command {
        Command::Brake { task: of, trip } if of == task && !row.refused => Some(trip),
        _ => None,
    });
    let Some(trip) = tripped else { return Ok(None) };
    let run = trip.run();
    // What is planned is discarded first.
    let waiting = store.pending_commands(COMMANDS_READ).await?;
    let discards = waiting.iter().any(|row| match &row.command {
        Command::DiscardPlanned { task: of } => of == task,
        Command::Cancel { run: of } => *of == run,
        _ => false,
    });
    if discards {
        return Ok(None);
    }
    if store.run(run).await?.is_none_or(|run| run.ended_at.is_some()) {
        return Ok(None);
    }
    let brakes = store.brakes(task, BRAKES_READ).await?;
    let brake = brakes.iter().find(|brake| brake.run == run && trip.what() == Some(&*brake.what));
    Ok(brake.and_then(|brake| trip.again(&defined.brakes, brake)))
}

/// Returns the schedule of a task, or `None` if it has no valid one.
fn schedule_of(task: &TaskOutline) -> Option<Schedule> {
    Schedule::parse(task.schedule.as_deref()?, &task.timezone).ok()
}

/// Returns the name of a task that the configuration or the store knows.
///
/// # Errors
/// Neither knows it; with a suggestion.
pub async fn known(store: &dyn Store, outline: &Outline, name: &str) -> Result<TaskName, Failure> {
    let task = TaskName::from(name);
    if outline.tasks.contains_key(&task) {
        return Ok(task);
    }
    let states = store.task_states().await?;
    if states.iter().any(|s| s.task == task && !task.is_all()) {
        return Ok(task);
    }
    // Passes leave runs, but no state of the schedule.
    if !store.runs(Some(&task), 1).await?.is_empty()
        || store.depths().await?.iter().any(|depth| depth.task.as_ref() == Some(&task))
    {
        return Ok(task);
    }
    let fix = match outline.tasks.is_empty() {
        true => "no tasks are configured".to_owned(),
        false => suggestion(name, outline.tasks.keys().map(TaskName::as_str)),
    };
    Err(Failure::Usage(format!(
        "there is no task `{name}`, neither in the configuration nor in the store; {fix}"
    )))
}

/// Checks the name of a task for which nothing was found.
///
/// # Errors
/// As for [`known`].
pub async fn known_if_none(
    store: &dyn Store,
    outline: &Outline,
    found: usize,
    name: Option<&str>,
) -> Result<(), Failure> {
    if let Some(name) = name.filter(|_| found == 0) {
        known(store, outline, name).await?;
    }
    Ok(())
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
    let schedule = defined.and_then(schedule_of);
    let windows = defined.map(|task| task.windows.clone()).unwrap_or_default();
    let upcoming = schedule.map(|s| windows.upcoming(&s, now, 5)).unwrap_or_default();
    let slots = store.slots(task, Time(i64::MIN), Time::MAX, SHOWN).await?;
    let runs = store.runs(Some(task), SHOWN).await?;
    let runs = standings(store, &runs).await?;
    let kept = super::runs::Kept::of(store, outline, &runs).await?;
    let retried = status::retried(store, task).await?;
    let forecast = match defined {
        Some(defined) => edit::forecast_of(store, task, defined, now).await?,
        None => None,
    };
    let json = serde_json::json!({
        "task": task,
        "plugin": defined.map(|t| &t.plugin),
        "schedule": defined.and_then(|t| t.schedule.as_ref()),
        "timezone": defined.map(|t| &t.timezone),
        "windows": windows,
        "rate": defined.and_then(|t| t.rate.as_ref()),
        "status": row,
        "upcoming": upcoming
            .iter()
            .map(|u| serde_json::json!({ "utc": u.utc.to_string(), "local": u.local, "note": u.note }))
            .collect::<Vec<_>>(),
        "forecast": forecast,
        "slots": slots.iter().map(slot_json).collect::<Vec<_>>(),
        "runs": runs.iter().map(|run| kept.json(run)).collect::<Vec<_>>(),
        "retries": retried.iter().map(retry_json).collect::<Vec<_>>(),
    });
    output::show(global.output, &json, || {
        let mut facts = Facts::default();
        facts.add("task", task);
        facts.add("plugin", output::text(defined.map(|t| &t.plugin)));
        facts.add("schedule", output::text(defined.and_then(|t| t.schedule.as_ref())));
        facts.add("time zone", output::text(defined.map(|t| &t.timezone)));
        if !windows.is_empty() {
            facts.add("windows", &windows);
        }
        if let Some(rate) = defined.and_then(|task| task.rate.as_ref()) {
            facts.add("rate", rate);
        }
        for pace in row.iter().flat_map(|row| &row.paces) {
            facts.add("pace now", &pace.0);
        }
        if let Some(forecast) = &forecast {
            facts.add("forecast", &forecast.sentence);
        }
        let mut next = Table::new("No upcoming slots.");
        for u in &upcoming {
            next.row([
                ("NEXT", &Stamp(u.utc)),
                ("LOCAL", &u.local),
                ("NOTE", &u.note.as_deref().unwrap_or_default()),
            ]);
        }
        let state =
            row.map(|r| status::tasks(std::slice::from_ref(r), report.now)).unwrap_or_default();
        let retries = match retried.is_empty() {
            true => String::new(),
            false => format!("\n{}", retry_table(&retried)),
        };
        format!(
            "{}\n{state}\n{}\n{}\n{}{retries}",
            facts.render(),
            next.render(),
            slot_table(&slots),
            super::runs::table(&runs, &kept)
        )
    })?;
    Ok(Exit::Fine)
}

/// Maximum number of retried items shown as text.
const RETRIED_SHOWN: usize = 10;

/// Renders the items that have failed and wait for another attempt.
fn retry_table(retried: &[Waiting]) -> String {
    let mut table = Table::new("No items are retried.");
    for Waiting { item, run_at, .. } in retried.iter().take(RETRIED_SHOWN) {
        table.row([
            ("RETRIED", &item.identity.key),
            ("TENANT", &output::text(item.identity.tenant.as_ref())),
            ("AGAIN", &Stamp(*run_at)),
            (">ATTEMPTS", &item.attempts),
            ("ERROR", &item.errors.last().map_or("", String::as_str)),
        ]);
    }
    let hidden = retried.len().saturating_sub(RETRIED_SHOWN);
    let more = match hidden {
        0 => String::new(),
        hidden => format!("... and {hidden} more (--output json lists them)\n"),
    };
    table.render() + &more
}

/// Returns a retried item as JSON for scripts.
fn retry_json(waiting: &Waiting) -> Value {
    let item = &waiting.item;
    serde_json::json!({
        "tenant": item.identity.tenant,
        "key": item.identity.key,
        "due": item.identity.due.map(Stamp),
        "run": item.run,
        "again": Stamp(waiting.run_at),
        "attempts": item.attempts,
        "errors": item.errors,
    })
}

fn slot_table(slots: &[SlotRecord]) -> String {
    let mut table = Table::new("No slots have been decided yet.");
    for slot in slots {
        table.row([
            ("FROM", &Stamp(slot.from)),
            ("TO", &Stamp(slot.to)),
            (">SLOTS", &slot.count),
            ("OUTCOME", &slot.outcome.as_str()),
            ("RUN", &output::text(slot.run)),
            ("REASON", &slot.reason),
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

/// Returns an explanation as JSON for scripts: its instant is `time` as well as `at`.
fn explained_json(found: &Explained) -> Value {
    let mut fields = printed::json(found);
    fields["time"] = fields["at"].clone();
    fields["records"] = found.records.iter().map(slot_json).collect();
    fields["run"] = found.run.as_ref().map(super::runs::json).into();
    fields
}

fn explained_text(found: &Explained) -> String {
    let mut facts = Facts::default();
    facts.add("task", &found.task).add("slot", found.at);
    facts.add("outcome", found.outcome.replace('_', " ")).add("reason", &found.reason);
    for record in &found.records {
        let (from, to) = (Stamp(record.from), Stamp(record.to));
        let (count, term) = (record.count, record.term);
        facts.add("recorded", format!("{from} to {to}, {}, term {term}", counted(count, "slot")));
    }
    if let Some(run) = &found.run {
        facts.add("run", super::runs::line(run));
    }
    facts.render()
}
