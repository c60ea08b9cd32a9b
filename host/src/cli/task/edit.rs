//! `besom task edit`: edits the keys of a task in the configuration file.
//!
//! [`besom_config::edit`] changes the text and [`besom_config::file`] replaces the file. This module
//! shows the difference, the next runs before and after, and a forecast from past runs. It needs neither
//! a host nor a store: a running host reloads the file, and the edit is recorded if there is a store.

use std::fmt::Write as _;

use besom_core::command::counted;
use besom_core::cron::{PreviewRow, Schedule};
use besom_core::ids::TaskName;
use besom_core::plan::forecast::{self, Forecast};
use besom_core::time::Time;
use besom_core::window::Windows;
use serde_json::json;

use crate::cli::open::{self, Loader};
use crate::cli::output::{self, Stamp, Table};
use crate::cli::{Exit, Failure, Global, submit};
use besom_config::edit::{self, Base, Change, Edited, Field, Finding, Refusal};
use besom_config::file::{self, FileDigest};
use besom_config::hunk::{Fate, Hunk};
use besom_config::{Diagnostic, Overrides, Problems, RawConfig, TaskOutline, printable, read};
use besom_engine::gather::resumed::Stops;
use besom_ports::store::{Command, Store};
use besom_product::model::collections_for;

/// Number of past runs from which the duration of a run is estimated.
pub const PAST_RUNS: u32 = besom_snapshot::RUNS_JUDGED;
/// Number of slots shown before and after the edit.
const SLOTS_SHOWN: usize = 5;

/// `besom task edit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the task.
    task: String,
    /// Five fields, six with seconds first, a macro such as `@hourly`, or `@every 30s`.
    #[arg(long, value_name = "EXPR", allow_hyphen_values = true)]
    schedule: Option<String>,
    /// IANA time zone of the schedule.
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// What to do with a slot while the previous run is active: skip, queue or allow.
    #[arg(long, value_name = "WORD")]
    overlap: Option<String>,
    /// What to do with slots that passed while no host led: skip, coalesce or all.
    #[arg(long, value_name = "WORD")]
    catch_up: Option<String>,
    /// With `--catch-up all`, the maximum number of passed slots that run.
    #[arg(long, value_name = "N")]
    catch_up_max: Option<String>,
    /// Maximum delay of a run after its slot; delays are distributed evenly.
    #[arg(long, value_name = "SPAN")]
    jitter: Option<String>,
    /// How long rows are kept for undo.
    #[arg(long, value_name = "SPAN")]
    keep_removed: Option<String>,
    /// Maximum number of rows, or part of a collection such as 5%, that one run may delete.
    #[arg(long, value_name = "ROWS|PART")]
    max_delete: Option<String>,
    /// When the task may work, such as `Mon-Fri 22:00-05:00 Europe/Berlin`; repeatable. Replaces all windows.
    #[arg(long, value_name = "WINDOW")]
    windows: Vec<String>,
    /// How far a run goes by itself: preview, approve or live.
    #[arg(long, value_name = "WORD")]
    mode: Option<String>,
    /// Maximum wall-clock time of one call of the plugin.
    #[arg(long, value_name = "SPAN")]
    wall: Option<String>,
    /// Remove one of these keys, so that its default applies; repeatable.
    #[arg(long, value_name = "KEY", value_parser = field)]
    unset: Vec<Field>,
    /// Show the changes without writing them.
    #[arg(long)]
    dry_run: bool,
    /// Reason, recorded with the edit.
    #[arg(long, default_value = "")]
    reason: String,
}

fn field(name: &str) -> Result<Field, String> {
    Field::named(name).ok_or_else(|| {
        let names: Vec<String> = Field::ALL.iter().map(|field| field.name()).collect();
        format!("choose one of {}; remove any other key from the file by hand", names.join(", "))
    })
}

impl Args {
    /// Edits the file, or shows the result with `--dry-run`.
    ///
    /// # Errors
    /// A file that cannot be read or replaced, an unknown task, or an invalid result.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        submit::checked(&self.reason)?;
        let changes = self.changes()?;
        let overrides = Overrides::from_env(global.set.clone());
        // Reports a configuration that cannot be read at all.
        read(&global.config, &overrides)?;
        let version = file::read(&global.config).map_err(refused)?;
        let task = TaskName::from(self.task.as_str());
        let now = Time::from_jiff(jiff::Timestamp::now());
        let base = Base {
            text: &version.text,
            origin: &global.config,
            overrides: &overrides,
            collections: collections_for,
            now,
        };
        let edited = edit::edit(&base, &task, &changes).map_err(|refusal| match refusal {
            Refusal::Syntax(problems) => Failure::Configuration(problems),
            Refusal::NoTask { .. } => Failure::Usage(refusal.to_string()),
            Refusal::Layout { .. } => Failure::Failed(refusal.to_string()),
        })?;
        let in_the_way = edited.in_the_way();
        let others = edited.findings.iter().filter(|finding| !finding.is_in_the_way());
        let mut others: Vec<_> = others.map(|finding| finding.diagnostic.clone()).collect();
        if in_the_way.is_empty() {
            let mut found = others_of_a_host(&edited.text, global, &overrides).await?;
            found.retain(|error| !others.contains(error));
            others.extend(found);
        }
        if !others.is_empty() {
            to_stderr!("{}", Problems(others.clone()));
        }
        let errors = others.iter().filter(|other| other.is_error()).map(ToString::to_string);
        let errors = errors.collect();
        let store = open::beside(global).await;
        let forecast = match &store {
            Some(store) => forecast_of(&**store, &task, &edited.after, now).await?,
            None => None,
        };
        let mut report = Report { edited: &edited, task, now, forecast, errors, saved: None };
        if !in_the_way.is_empty() {
            // A preview of a schedule that is invalid would contradict the error.
            if global.output == output::Format::Json {
                report.show(global)?;
            }
            return Err(Failure::Configuration(Problems(in_the_way)));
        }
        if !self.dry_run && !edited.hunks.is_empty() {
            let digest = file::replace(&global.config, &version.digest, &edited.text);
            report.saved = Some(digest.map_err(refused)?);
            self.note(&version.text, &report, store.as_deref()).await;
        }
        report.show(global)?;
        Ok(Exit::Fine)
    }

    fn changes(&self) -> Result<Vec<Change>, Failure> {
        let windows = (!self.windows.is_empty()).then(|| self.windows.join(";"));
        let set = [
            (Field::Schedule, &self.schedule),
            (Field::Timezone, &self.timezone),
            (Field::Overlap, &self.overlap),
            (Field::CatchUp, &self.catch_up),
            (Field::CatchUpMax, &self.catch_up_max),
            (Field::Jitter, &self.jitter),
            (Field::KeepRemoved, &self.keep_removed),
            (Field::MaxDelete, &self.max_delete),
            (Field::Windows, &windows),
            (Field::Mode, &self.mode),
            (Field::Wall, &self.wall),
        ];
        let mut changes = Vec::new();
        for (field, value) in set {
            let unset = self.unset.contains(&field);
            if unset && value.is_some() {
                let name = field.name();
                return Err(Failure::Usage(format!(
                    "`{name}` is both set and removed: do only one of them"
                )));
            }
            if unset || value.is_some() {
                changes.push(Change { field, value: value.clone() });
            }
        }
        if changes.is_empty() {
            return Err(Failure::Usage(
                "no changes given: add --schedule, --timezone, --overlap, --catch-up, --catch-up-max, --jitter, --keep-removed, --max-delete, --windows, --mode, --wall or --unset KEY".into(),
            ));
        }
        Ok(changes)
    }

    /// Records in the store who has edited what and why. If that fails, the edit still holds and only a
    /// warning is logged.
    async fn note(&self, before: &str, report: &Report<'_>, store: Option<&dyn Store>) {
        let task = report.task.clone();
        let change = edit::summary(before, &report.edited.text, &task);
        let noted = match store {
            Some(store) => {
                let command = Command::Edited { task, change };
                store.submit(&command, &submit::caller(), &self.reason).await.map(|_| ())
            }
            None => return tracing::info!("there is no store to record who edited the task"),
        };
        if let Err(error) = noted {
            tracing::warn!(%error, "cannot record in the store who edited the task");
        }
    }
}

/// The errors for which a running host would refuse a text, those that only plugins find as well. A plugin
/// whose file is refused is no such error: the host keeps its code, and takes up the rest.
async fn others_of_a_host(
    text: &str,
    global: &Global,
    overrides: &Overrides,
) -> Result<Vec<Diagnostic>, Failure> {
    let parsed = RawConfig::parse(text, &global.config, overrides);
    let loader = Loader::start(&parsed)?;
    let mut resolved = loader.resolve(parsed).await;
    resolved.leave_out_refused(|_| true);
    Ok(resolved.problems().iter().filter(|found| found.is_error()).cloned().collect())
}

fn refused(error: file::Error) -> Failure {
    Failure::Failed(error.to_string())
}

/// Forecasts from the past runs of a task whether its runs fit the schedule. `None` without a schedule or
/// without enough runs.
pub async fn forecast_of(
    store: &dyn Store,
    task: &TaskName,
    outline: &TaskOutline,
    now: Time,
) -> Result<Option<Forecast>, Failure> {
    let Some(schedule) = schedule_of(outline) else { return Ok(None) };
    let mut runs = store.runs(Some(task), PAST_RUNS).await?;
    let stops = Stops::read(store, task).await?;
    runs.retain(|run| !stops.between(run.started_at, run.ended_at));
    let durations = forecast::durations(&runs);
    let slots = forecast::SLOTS_DEFAULT;
    Ok(forecast::forecast(task, &schedule, &outline.policy, &durations, now, slots))
}

fn schedule_of(outline: &TaskOutline) -> Option<Schedule> {
    Schedule::parse(outline.schedule.as_deref()?, &outline.timezone).ok()
}

/// The result of an edit that was saved, refused or only shown.
struct Report<'a> {
    edited: &'a Edited,
    task: TaskName,
    now: Time,
    forecast: Option<Forecast>,
    /// Errors that the new text has nevertheless, as a host would print them: it refuses the file.
    errors: Vec<String>,
    saved: Option<FileDigest>,
}

impl Report<'_> {
    fn show(&self, global: &Global) -> Result<(), Failure> {
        let json = json!({
            "task": self.task,
            "changed": !self.edited.hunks.is_empty(),
            "saved": self.saved.is_some(),
            "digest": self.saved,
            "diff": self.edited.hunks,
            "faults": self.edited.faults,
            "errors": self.errors,
            "findings": self.edited.findings.iter().map(found).collect::<Vec<_>>(),
            "before": self.side(&self.edited.before),
            "after": self.side(&self.edited.after),
            "forecast": self.forecast,
        });
        output::show(global.output, &json, || self.text(global))
    }

    fn side(&self, outline: &TaskOutline) -> serde_json::Value {
        let rows: Vec<_> = self.upcoming(outline).iter().map(row).collect();
        json!({
            "schedule": outline.schedule,
            "timezone": outline.timezone,
            "windows": outline.windows,
            "upcoming": rows,
        })
    }

    fn upcoming(&self, outline: &TaskOutline) -> Vec<PreviewRow> {
        let shown = |s| outline.windows.preview(&s, self.now, SLOTS_SHOWN);
        schedule_of(outline).map(shown).unwrap_or_default()
    }

    fn text(&self, global: &Global) -> String {
        let file = printable(&global.config.display().to_string());
        if self.edited.hunks.is_empty() {
            return format!("{file}: no changes.\n");
        }
        let mut text = diff(&file, &self.edited.hunks);
        let (before, after) = (&self.edited.before, &self.edited.after);
        fn of(outline: &TaskOutline) -> (&Option<String>, &String, &Windows) {
            (&outline.schedule, &outline.timezone, &outline.windows)
        }
        if of(before) != of(after) {
            text += &format!("\nnext runs before{}", self.table(before));
            text += &format!("\nnext runs after{}", self.table(after));
        } else {
            text += &format!("\nnext runs (unchanged){}", self.table(after));
        }
        if let Some(forecast) = &self.forecast {
            let word = if forecast.is_warning() { "warning: " } else { "" };
            let _ = write!(text, "\n{word}{}\n", forecast.sentence);
        }
        text += &match &self.saved {
            Some(digest) => {
                let then = match self.errors.len() as u64 {
                    0 => "A running host reloads it.".to_owned(),
                    n => format!(
                        "A running host refuses it, and goes on with what it runs, until {} of the file {} \
                         corrected (`besom check`).",
                        counted(n, "error"),
                        if n == 1 { "is" } else { "are" }
                    ),
                };
                format!("\nSaved {file} ({}). {then}\n", digest.short())
            }
            None => "\nNothing was written.\n".to_owned(),
        };
        text
    }

    fn table(&self, outline: &TaskOutline) -> String {
        let (within, none) = match (outline.windows.is_empty(), &outline.schedule) {
            (false, Some(_)) => (", within its windows", "No slots within two weeks."),
            _ => ("", "No slots: runs only when triggered."),
        };
        let mut table = Table::new(none);
        for row in self.upcoming(outline) {
            table.row([
                (">#", &row.number),
                ("UTC", &Stamp(row.utc)),
                ("LOCAL", &row.local),
                ("FROM NOW", &Stamp(row.utc).beside(Stamp(self.now))),
                ("NOTE", &row.note.unwrap_or_default()),
            ]);
        }
        format!("{within}\n{}", table.render())
    }
}

fn row(row: &PreviewRow) -> serde_json::Value {
    json!({
        "utc": row.utc.to_string(),
        "local": row.local,
        "wait_s": row.wait.as_secs(),
        "note": row.note,
    })
}

fn found(finding: &Finding) -> serde_json::Value {
    let mut json = serde_json::to_value(finding).unwrap_or_default();
    json["text"] = finding.diagnostic.to_string().into();
    json
}

/// Renders hunks in the format of `diff -u`.
fn diff(file: &str, hunks: &[Hunk]) -> String {
    let mut text = format!("--- {file}\n+++ {file}\n");
    for hunk in hunks {
        let place = |number: fn(&besom_config::hunk::Line) -> Option<usize>| {
            let mut numbers = hunk.lines.iter().filter_map(number);
            let first = numbers.next();
            format!("{},{}", first.unwrap_or(0), usize::from(first.is_some()) + numbers.count())
        };
        let _ = writeln!(text, "@@ -{} +{} @@", place(|line| line.old), place(|line| line.new));
        for line in &hunk.lines {
            let sign = match line.fate {
                Fate::Kept => ' ',
                Fate::Removed => '-',
                Fate::Added => '+',
            };
            let _ = writeln!(text, "{sign}{}", printable(&line.text));
        }
    }
    text
}
