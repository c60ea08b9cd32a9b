//! `[tasks.NAME]`: reads a task from its table, in two steps.
//!
//! The first step, here, reads what does not depend on the plugin. The second step, `resolve`, checks settings
//! and grants against the manifest of the plugin.

mod grants;
mod resolve;
mod table;

use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::brake::{Brakes, DeletesMax};
use besom_core::collection::Collections;
use besom_core::cron::Schedule;
use besom_core::mode::Mode;
use besom_core::pace::Yielding;
use besom_core::plan::{GRACE_DEFAULT, Policy};
use besom_core::window::{Window, Windows};

use super::keys::{RowsOrShare, defaults, written};
use super::quantity::show_duration;
use super::tree::{Entry, Span, Table};
use super::walk::{Spans, Walker, unknown};
use besom_ports::guests::Manifest;
use besom_ports::task::{CatchUp, Overlap, RetryPolicy};
use grants::Alias;

pub use grants::{ACTIVITY, ALL_TENANTS, RESERVED, TOPICS, words};
pub use resolve::{is_digest, schedule_for};
pub use table::{PIN, RetryTable, TABLES, TaskTable, YieldTable, default_retry, judge};

/// Maximum length of the name of a task, in characters: it is a label of metrics and a column.
const NAME_CHARS_MAX: usize = 64;

/// A task as read from its table, before its plugin is known.
#[derive(Debug, Clone)]
pub struct RawTask {
    name: String,
    name_span: Span,
    plain: TaskTable,
    spans: Spans,
    retry: RetryPolicy,
    yields: Option<Yielding>,
    settings: Table,
    limits: Table,
    grants: Option<Table>,
    aliases: Vec<Alias>,
    /// The widest gap between two slots; `None` without a valid schedule.
    gap: Option<Duration>,
    windows: Windows,
}

impl RawTask {
    /// The place of its name.
    pub fn name_span(&self) -> &Span {
        &self.name_span
    }

    /// The settings that the file has: their names, and the places of their values.
    pub fn settings_written(&self) -> impl Iterator<Item = (&str, &Span)> {
        self.settings.0.iter().map(|entry| (entry.key.as_str(), &entry.span))
    }

    /// Whether the table of the task has a key that is none of its own: it is reported there.
    fn has_unknown(&self, key: &str) -> bool {
        let is_known = TaskTable::KEYS.iter().any(|known| known.name == key)
            || TABLES.iter().any(|(name, _)| *name == key);
        !is_known && self.spans.contains_key(key)
    }

    /// Says of unknown keys in the table of the task that they are settings of its plugin.
    fn send_settings(&self, walker: &mut Walker<'_>, path: &str, manifest: &Manifest) {
        for setting in manifest.settings.iter().filter(|one| self.has_unknown(&one.name)) {
            let message = unknown(&setting.name, path);
            let found = walker.problems.iter_mut().find(|problem| problem.message == message);
            if let Some(problem) = found {
                problem.fix = Some(format!("write it in [{path}.settings]"));
            }
        }
    }

    /// The place of a key's value, or of the name of the task without the key.
    fn span(&self, key: &str) -> &Span {
        self.spans.get(key).unwrap_or(&self.name_span)
    }

    /// Reads the table of a task.
    pub fn read(walker: &mut Walker<'_>, entry: &Entry, table: &Table) -> RawTask {
        let path = format!("tasks.{}", written(&entry.key));
        named(walker, entry);
        let mut plain = defaults(TaskTable::KEYS);
        let tables = TABLES.map(|(name, _)| name);
        let spans = walker.read(&path, table, TaskTable::KEYS, &tables, &mut plain);
        let sub = |walker: &mut Walker<'_>, name: &str| {
            let entry = table.get(name)?;
            walker.table(entry, &format!("[{path}.{name}]")).cloned()
        };
        if plain.plugin.is_empty() && !spans.contains_key("plugin") {
            walker.error(
                &entry.key_span,
                format!("the task `{}` names no plugin", entry.key),
                "add, for example, plugin = \"compaction\"",
            );
        }
        if spans.contains_key("catch_up_max") && plain.catch_up != "all" {
            walker.warn(
                &spans["catch_up_max"],
                format!("`catch_up_max` has no effect with catch_up = \"{}\"", plain.catch_up),
                "write catch_up = \"all\" or remove it",
            );
        }
        let mut retry = defaults(RetryTable::KEYS);
        if let Some(table) = sub(walker, "retry") {
            let path = format!("{path}.retry");
            let spans = walker.read(&path, &table, RetryTable::KEYS, &[], &mut retry);
            if retry.backoff > retry.backoff_max {
                let span = spans.get("backoff").or_else(|| spans.get("backoff_max"));
                let span = span.unwrap_or(&entry.key_span).clone();
                walker.error(&span, "`backoff` is longer than `backoff_max`", "raise backoff_max");
            }
        }
        let yields = sub(walker, "yield").map(|table| {
            let mut own = defaults(YieldTable::KEYS);
            let path = format!("{path}.yield");
            let spans = walker.read(&path, &table, YieldTable::KEYS, &[], &mut own);
            let ceiling = plain.rows_per_second;
            if let Some(span) = spans.get("floor")
                && (1..own.floor).contains(&ceiling)
            {
                let message = format!("`floor` is above rows_per_second = {ceiling}");
                walker.error(span, message, "lower it, or raise rows_per_second");
            }
            let floor = NonZeroU32::new(own.floor).unwrap_or(NonZeroU32::MIN);
            Yielding { latency: own.latency, lag: own.lag, floor }
        });
        let mut aliases = Vec::new();
        for entry in sub(walker, "collections").iter().flat_map(|table| &table.0) {
            let what = format!("the collection for `{}`", entry.key);
            if let Some(collection) = walker.text(&what, &entry.span, &entry.node) {
                aliases.push(Alias {
                    name: entry.key.clone(),
                    name_span: entry.key_span.clone(),
                    collection: collection.to_owned(),
                    collection_span: entry.span.clone(),
                });
            }
        }
        let mut task = RawTask {
            name: entry.key.clone(),
            name_span: entry.key_span.clone(),
            settings: sub(walker, "settings").unwrap_or_default(),
            limits: sub(walker, "limits").unwrap_or_default(),
            grants: sub(walker, "grants"),
            aliases,
            plain,
            spans,
            retry: retry.policy(),
            yields,
            gap: None,
            windows: Windows::default(),
        };
        task.gap = super::schedule::judge(walker, &task.schedule_of());
        task.windows = task.read_windows(walker);
        task.judge_brakes(walker);
        task
    }

    /// Name of the task.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Name of the plugin; empty if the task names none, which is already reported.
    pub fn plugin(&self) -> &str {
        &self.plain.plugin
    }

    /// The digest that the plugin file must have; `None` accepts any file.
    pub fn pin(&self) -> Option<&str> {
        self.plain.sha256.as_deref()
    }

    /// Whether the plugin reads rows of several tenants at once in this task. Only tables with a column
    /// for the tenant divide their rows by it; one that is not mapped is assumed to.
    pub fn spans_tenants(&self, manifest: &Manifest, collections: &Collections) -> bool {
        let has_tenants = |name: &str| {
            let alias = self.aliases.iter().find(|alias| alias.name == name);
            let real = alias.map_or(name, |alias| alias.collection.as_str());
            collections.get(real).is_none_or(|collection| collection.tenant.is_some())
        };
        !manifest.per_tenant && manifest.collections.iter().any(|r| has_tenants(&r.collection))
    }

    /// The schedule and time zone, with their places.
    pub fn schedule_of(&self) -> super::schedule::Written<'_> {
        super::schedule::Written {
            expression: self.plain.schedule.as_deref(),
            expression_span: self.span("schedule"),
            timezone: &self.plain.timezone,
            timezone_span: self.span("timezone"),
            horizon: (!self.plain.horizon.is_zero()).then_some(self.plain.horizon),
            horizon_span: self.span("horizon"),
        }
    }

    /// When the task may scan and execute.
    pub fn windows(&self) -> &Windows {
        &self.windows
    }

    /// How far a run goes by itself, if tasks that name no mode have the given one.
    pub(super) fn mode(&self, default: Mode) -> Mode {
        self.plain.mode.unwrap_or(default)
    }

    /// How long before-images are kept.
    pub(super) fn keep_removed(&self) -> Duration {
        self.plain.keep_removed
    }

    /// How the slots of the schedule are handled.
    pub fn policy(&self) -> Policy {
        Policy {
            overlap: self.plain.overlap.unwrap_or(Overlap::Skip),
            catch_up: self.catch_up(),
            jitter: self.plain.jitter,
            grace: GRACE_DEFAULT,
        }
    }

    fn catch_up(&self) -> CatchUp {
        match self.plain.catch_up.as_str() {
            "skip" => CatchUp::Skip,
            "all" => CatchUp::All(self.plain.catch_up_max),
            _ => CatchUp::Coalesce,
        }
    }

    /// How many rows per second the task changes at most, and when it changes fewer; in words.
    pub(super) fn rate(&self) -> Option<String> {
        let most =
            NonZeroU32::new(self.plain.rows_per_second).map(|n| format!("at most {n} rows/s"));
        let yields = self.yields.map(|Yielding { latency, lag, floor }| {
            let lag = match lag {
                Duration::ZERO => String::new(),
                lag => format!(" or lag of {}", show_duration(lag)),
            };
            format!("down to {floor} rows/s from a latency of {}{lag} on", show_duration(latency))
        });
        let parts: Vec<String> = most.into_iter().chain(yields).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    /// What stops a run of the task.
    pub fn brakes(&self) -> Brakes {
        let floor = self.plain.max_delete_floor;
        Brakes {
            deletes: self.plain.max_delete.map(|max| match max {
                RowsOrShare::Rows(rows) => DeletesMax::Rows(rows),
                RowsOrShare::Share(millionths) => DeletesMax::Share { millionths, floor },
            }),
            letters: self.plain.max_dead_letters,
            failures: self.plain.max_failed_runs,
        }
    }

    /// Reads the windows, and reports what is wrong with them.
    fn read_windows(&self, walker: &mut Walker<'_>) -> Windows {
        let Some(span) = self.spans.get("windows") else { return Windows::default() };
        if self.plain.windows.is_empty() {
            let fix = "name a window, or remove the key, so that the task may always work";
            walker.error(span, "`windows` names no window, so the task never works", fix);
        }
        let mut read = Vec::new();
        for text in &self.plain.windows {
            match Window::read(text, &self.plain.timezone) {
                Ok(window) => read.push(window),
                Err(message) => {
                    let fix = "write, for example, \"Mon-Fri 22:00-05:00 Europe/Berlin\"";
                    walker.error(span, format!("the window `{text}`: {message}"), fix);
                    return Windows::default();
                }
            }
        }
        let windows = Windows::new(read);
        let zone = &self.plain.timezone;
        let schedule = self.plain.schedule.as_deref().map(|text| Schedule::parse(text, zone));
        if let Some(Ok(schedule)) = schedule
            && !windows.is_empty()
            && !super::schedule::meets(&schedule, &windows)
        {
            walker.error(
                span,
                format!(
                    "no slot of the schedule lies in a window ({windows}): the task would never run"
                ),
                "change the schedule or the windows",
            );
        }
        windows
    }

    /// Reports brakes that have no effect.
    fn judge_brakes(&self, walker: &mut Walker<'_>) {
        let is_share = matches!(self.plain.max_delete, Some(RowsOrShare::Share(_)));
        if let Some(span) = self.spans.get("max_delete_floor").filter(|_| !is_share) {
            let message = "`max_delete_floor` has no effect without a part in `max_delete`";
            walker.warn(span, message, "write, for example, max_delete = \"5%\", or remove it");
        }
    }
}

/// Whether the name of a task may have this character.
pub(super) fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn named(walker: &mut Walker<'_>, entry: &Entry) {
    if entry.key.is_empty()
        || entry.key.chars().count() > NAME_CHARS_MAX
        || !entry.key.chars().all(is_of_a_name)
    {
        walker.error(
            &entry.key_span,
            format!("`{}` is not a valid name for a task", entry.key),
            format!("use letters, digits, `-`, `_` and `.`, at most {NAME_CHARS_MAX}"),
        );
    }
    if entry.key == besom_core::undo::TASK {
        walker.error(
            &entry.key_span,
            format!("`{}` is a reserved name", entry.key),
            "choose another name for the task: `undo` is the task that takes back what others have done".to_owned(),
        );
    }
}
