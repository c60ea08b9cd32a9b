//! `[tasks.NAME]`: reads a task from its table, in two steps.
//!
//! The first step reads what does not depend on the plugin. The second step checks settings and grants
//! against the manifest of the plugin.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use besom_core::brake::{Brakes, DeletesMax};
use besom_core::collection::{Collection, Collections, Column, Grants, Operations};
use besom_core::cron::Schedule;
use besom_core::ids::TaskName;
use besom_core::lane;
use besom_core::mode::{self, Mode};
use besom_core::pace::Yielding;
use besom_core::plan::{GRACE_DEFAULT, Policy};
use besom_core::value::{Field, Value};
use besom_core::window::{Window, Windows};

use super::collection::name_of;
use super::keys::{Fault, RowsOrShare, defaults, keys, suggestion, written};
use super::limits::{self, LimitsTable};
use super::quantity::{days, ms, secs, show_duration};
use super::settings;
use super::tree::{Entry, Node, Span, Table};
use super::walk::{Spans, Walker};
use super::{Plugin, PluginFault};
use besom_ports::guests::{Described, Lane, Manifest};
use besom_ports::task::{Aliases, CatchUp, Columns, Overlap, RetryPolicy, TaskDefinition};

/// The key of grants that lists topics.
pub const TOPICS: &str = "topics";
/// The key of grants that allows reading activity.
pub const ACTIVITY: &str = "activity";
/// The key of grants that allows scanning all tenants at once.
pub const ALL_TENANTS: &str = "all_tenants";
/// Reserved names that no collection can have.
pub const RESERVED: [&str; 3] = [TOPICS, ACTIVITY, ALL_TENANTS];

/// Default horizon of a task without a schedule.
const HORIZON_UNSCHEDULED: Duration = Duration::from_secs(86_400);

/// Maximum length of the name of a task, in characters: it is a label of metrics and a column.
const NAME_CHARS_MAX: usize = 64;

keys! {
    /// A task.
    #[derive(Debug, Clone, Default)]
    pub struct TaskTable {
        /// A built-in plugin, or a file in the plugin directory.
        plugin: String;
        /// Five fields as in crontab(5), six with seconds first, a macro such as @hourly, or "@every 30s";
        /// without it, the task runs only when triggered.
        schedule: Option<String>;
        /// IANA time zone of the schedule.
        timezone: String = "UTC";
        /// What to do with a slot while the previous run is active.
        overlap: Option<Overlap> = "skip", one of &["skip", "queue", "allow"] => |word| Some(match word {
            "queue" => Overlap::Queue,
            "allow" => Overlap::Allow,
            _ => Overlap::Skip,
        });
        /// What to do with slots that passed while no host led.
        catch_up: String = "coalesce", one of &["skip", "coalesce", "all"] => str::to_owned;
        /// With catch_up = "all", the maximum number of passed slots that run, the latest ones.
        catch_up_max: u32 = 10, within 1..=1_000;
        /// Maximum delay of a run after its slot; delays are distributed evenly.
        jitter: Duration = "0s", within secs(0)..=days(1);
        /// Whether the task also runs when a leader starts, and when its settings change.
        at_start: bool = false;
        /// How far ahead due items are planned (default: twice the widest gap of the schedule).
        horizon: Duration, within secs(1)..=days(366);
        /// How long before-images of rows are kept; "0s" keeps none.
        keep_removed: Duration = "7d", within secs(0)..=days(3_650);
        /// Maximum number of items waiting in the log; above it, nothing more is planned until the nodes have
        /// caught up.
        queue_max: u32 = 100000, within 1..=1_000_000_000;
        /// Maximum number of timers and retries; at the limit, nothing more is planned (default: 10000000 in
        /// the lane due, 1000000 in other lanes).
        timers_max: u32, within 1..=1_000_000_000;
        /// Maximum number of open dead letters; at the limit, nothing more is planned until some are retried
        /// or discarded.
        dead_max: u32 = 100000, within 1..=1_000_000_000;
        /// Maximum number of rows that all nodes together change per second for this task; 0 means no limit.
        rows_per_second: u32 = 0, within 0..=1_000_000_000;
        /// Maximum number of rows that one run may delete from each collection, or the maximum part of the
        /// collection, such as "5%"; a run that wants more is stopped and the task paused.
        max_delete: Option<RowsOrShare>;
        /// Number of rows that one run may delete however small the part in max_delete is.
        max_delete_floor: u64 = 1000, within 0..=1_000_000_000_000;
        /// Maximum number of items of one run that are set aside; a run that wants more is stopped and the
        /// task paused. Without the key there is no limit.
        max_dead_letters: Option<NonZeroU32>, within 1..=1_000_000_000;
        /// Number of runs in a row that fail before the task is paused. Without the key there is no limit.
        max_failed_runs: Option<NonZeroU32>, within 1..=1_000;
        /// When the task may scan and execute, such as ["Mon-Fri 22:00-05:00 Europe/Berlin"]; without it,
        /// always. A window that names no time zone follows `timezone`.
        windows: Vec<String>;
        /// How far a run goes by itself: preview shows what it would change, approve waits for an approval of
        /// what it has planned, live executes it (default: host.default_mode).
        mode: Option<Mode>, one of mode::NAMES => Mode::parse;
        /// With mode = "approve", how long what a run has planned may wait; then it is discarded.
        approve_within: Duration = "7d", within secs(1)..=days(366);
        /// Lane granted to your own plugin if it requests another than normal: due has the highest priority,
        /// heavy the largest limits.
        lane: String, one of lane::NAMES => str::to_owned;
        /// SHA-256 of the plugin file, in hexadecimal; any other file is refused. `besom task pin` writes it.
        sha256: Option<String>;
    }
}

/// The key that pins the plugin of a task.
pub const PIN: &str = "sha256";

/// The tables of a task, and their descriptions.
pub const TABLES: [(&str, &str); 6] = [
    ("settings", "Settings of the plugin, and projects_per_run and candidates_per_project."),
    ("limits", LimitsTable::DOC),
    ("retry", RetryTable::DOC),
    ("yield", YieldTable::DOC),
    (
        "collections",
        "The collections that this task uses under the plugin's names: NAME = \"COLLECTION\".",
    ),
    (
        "grants",
        "What the task may do: COLLECTION = [\"read\", \"insert\", \"update\", \"delete\"], topics = [...].",
    ),
];

keys! {
    /// How failures are retried.
    #[derive(Debug, Clone, Default)]
    pub struct RetryTable {
        /// Maximum number of executions, after which an item becomes a dead letter.
        attempts_max: u32 = 5, within 1..=1_000;
        /// Pause after the first failure; it doubles with each further failure.
        backoff: Duration = "1s", within ms(1)..=days(1);
        /// Longest pause between two executions.
        backoff_max: Duration = "10m", within ms(1)..=days(30);
        /// Maximum number of failed guards, after which an item is skipped as contended.
        guard_retries_max: u32 = 10, within 0..=1_000;
        /// Maximum number of host deaths during an item, after which it becomes a dead letter.
        deaths_max: u32 = 3, within 1..=1_000;
    }
}

keys! {
    /// Changes fewer rows per second while the product is served late, and as many as rows_per_second
    /// otherwise. Without the table, the task does not yield.
    #[derive(Debug, Clone, Default)]
    pub struct YieldTable {
        /// How late the database may answer, and how long others may wait for locks of Besom, before the task
        /// changes fewer rows.
        latency: Duration = "20ms", within ms(1)..=secs(60);
        /// How far replicas of PostgreSQL may be behind; "0s" does not look at them.
        lag: Duration = "10s", within secs(0)..=days(1);
        /// Rows per second that are always allowed.
        floor: u32 = 500, within 1..=1_000_000_000;
    }
}

impl RetryTable {
    fn policy(self) -> RetryPolicy {
        let RetryTable { attempts_max, backoff, backoff_max, guard_retries_max, deaths_max } = self;
        RetryPolicy { attempts_max, backoff, backoff_max, guard_retries_max, deaths_max }
    }
}

/// Checks a value of one of the keys of a task.
///
/// # Errors
/// An unknown key, or what is wrong with the value.
pub fn judge(key: &str, text: &str) -> Result<(), Fault> {
    match TaskTable::KEYS.iter().find(|known| known.name == key) {
        Some(known) => known.read_text(&mut TaskTable::default(), text),
        None => Err(Fault::new(format!("there is no task key `{key}`"))),
    }
}

/// An entry of `[tasks.NAME.collections]`.
#[derive(Debug, Clone)]
struct Alias {
    /// The plugin's name for the collection.
    name: String,
    name_span: Span,
    /// The collection of the configuration.
    collection: String,
    collection_span: Span,
}

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
    /// Returns the place of a setting's value, or of the name of the task if the setting is not in the file.
    pub fn setting_span(&self, setting: &str) -> &Span {
        self.settings.get(setting).map_or(&self.name_span, |entry| &entry.span)
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
        let span = |key: &str| self.spans.get(key).unwrap_or(&self.name_span);
        super::schedule::Written {
            expression: self.plain.schedule.as_deref(),
            expression_span: span("schedule"),
            timezone: &self.plain.timezone,
            timezone_span: span("timezone"),
            horizon: (!self.plain.horizon.is_zero()).then_some(self.plain.horizon),
            horizon_span: span("horizon"),
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

    /// Reports what is wrong with the limits when the plugin is not known; its lane affects only their
    /// defaults.
    pub fn judge_limits(&self, walker: &mut Walker<'_>) {
        let path = format!("tasks.{}", written(&self.name));
        limits::read(walker, &path, &self.limits, Lane::Normal, &self.plain.plugin);
    }

    /// Reports that the plugin cannot be used.
    pub fn without_plugin(
        &self,
        walker: &mut Walker<'_>,
        fault: &PluginFault,
        collections: &Collections,
        require_pin: bool,
    ) {
        match &fault.refused {
            Some(digest) => {
                self.judge_pin(walker, digest, false, require_pin);
            }
            None => {
                let span = self.spans.get("plugin").unwrap_or(&self.name_span);
                walker.error(span, fault.message.as_str(), fault.fix.as_str());
            }
        }
        self.judge_unknown(walker, collections);
    }

    /// Whether the file of the plugin is refused, which concerns this task alone: it is not the pinned one, or
    /// no trusted key vouches for it. [`RawTask::resolve`] and [`RawTask::without_plugin`] report that first.
    pub fn is_refused(&self, found: &Result<Plugin, PluginFault>) -> bool {
        let digest = match found {
            Ok(plugin) => Some(&plugin.digest),
            Err(fault) if fault.untrusted => return true,
            Err(fault) => fault.refused.as_ref(),
        };
        let pin = self.pin().filter(|pin| is_digest(pin));
        pin.zip(digest).is_some_and(|(pin, digest)| !pin.eq_ignore_ascii_case(digest))
    }

    /// Reports what is wrong with the task whatever its plugin requests.
    fn judge_unknown(&self, walker: &mut Walker<'_>, collections: &Collections) {
        self.judge_limits(walker);
        for entry in self.grants.iter().flat_map(|table| &table.0) {
            match entry.key.as_str() {
                TOPICS => drop(walker.texts("the topics", &entry.span, &entry.node)),
                ACTIVITY | ALL_TENANTS => {
                    walker.flag(&entry.key, &entry.span, &entry.node);
                }
                _ => drop(granted(walker, entry, collections)),
            }
        }
    }

    /// Refuses a `limits.wall` that is longer than the snapshot of a call stays open.
    pub fn judge_wall(&self, walker: &mut Walker<'_>, wall: Duration, snapshot_max: Duration) {
        if wall <= snapshot_max {
            return;
        }
        let span = self.limits.get("wall").map_or(&self.name_span, |entry| &entry.span);
        let (name, longest) = (&self.name, show_duration(wall));
        let closed = show_duration(snapshot_max);
        let message = format!(
            "a call of `{name}` may take {longest} (limits.wall), but its snapshot is closed \
             after {closed} (host.act_snapshot_max)"
        );
        let fix = format!(
            "write act_snapshot_max = \"{longest}\" in [host], or a shorter wall in \
             [tasks.{}.limits]",
            written(name)
        );
        walker.error(span, message, fix);
    }

    /// Resolves the task with the manifest of its plugin. Problems are reported; the result is valid only if
    /// there are none.
    pub fn resolve(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
        require_pin: bool,
    ) -> TaskDefinition {
        let is_another = self.judge_pin(walker, &plugin.digest, plugin.built_in, require_pin);
        let said = walker.problems.len();
        let definition = self.judged(walker, plugin, collections);
        if is_another {
            // Requests of a file that nobody has reviewed must not be suggested as grants.
            walker.problems.truncate(said);
            self.judge_unknown(walker, collections);
        }
        definition
    }

    fn judged(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
    ) -> TaskDefinition {
        let plugin = &self.requesting(plugin);
        let manifest = &plugin.manifest;
        let path = format!("tasks.{}", written(&self.name));
        let read = settings::read(walker, &path, &self.name_span, &self.settings, manifest);
        let limits = limits::read(walker, &path, &self.limits, manifest.lane, &self.plain.plugin);
        let aliases = self.aliases(walker, plugin, collections);
        let real = |name: &str| aliases.get(name).map_or(name, String::as_str).to_owned();
        let Granted { grants, columns, topics, activity, all_tenants } =
            self.grants(walker, plugin, collections, &aliases);
        self.judge_lane(walker, plugin);
        self.judge_lateness(walker, manifest.lane, &read.fields);
        let optional = manifest.collections.iter().flat_map(|request| {
            let columns = request.columns.iter().map(|column| (&request.collection, column));
            columns.filter(|(collection, column)| manifest.is_optional(collection, column))
        });
        let unmapped = optional.filter(|(collection, column)| {
            !collections.get(&real(collection)).is_some_and(|mapped| is_mapped(mapped, column))
        });
        // Without tenants in any collection, there is one scan over everything.
        let has_tenants =
            grants.keys().any(|name| collections.get(name).is_some_and(|c| c.tenant.is_some()));
        if has_tenants && !manifest.per_tenant && !all_tenants && self.grants.is_some() {
            let span = self.spans.get("plugin").unwrap_or(&self.name_span);
            walker.error(
                span,
                format!(
                    "the plugin `{}` requests to scan all tenants at once, which is not granted",
                    self.plain.plugin
                ),
                format!(
                    "write {ALL_TENANTS} = true in [tasks.{}.grants] if the plugin names the tenant of each \
                     candidate; otherwise remove `tenant` from the collections",
                    written(&self.name)
                ),
            );
        }
        TaskDefinition {
            name: TaskName::from(self.name.as_str()),
            plugin: self.plain.plugin.clone(),
            digest: plugin.digest.clone(),
            schedule: self.plain.schedule.clone(),
            timezone: self.plain.timezone.clone(),
            overlap: self.plain.overlap.unwrap_or(Overlap::Skip),
            catch_up: self.catch_up(),
            jitter: self.plain.jitter,
            // A new leader must find the items that are due.
            at_start: self.plain.at_start
                || (manifest.lane.row().punctual && !self.spans.contains_key("at_start")),
            horizon: match (self.plain.horizon, self.gap) {
                (Duration::ZERO, Some(gap)) => gap.saturating_mul(2) + self.plain.jitter,
                (Duration::ZERO, None) => HORIZON_UNSCHEDULED,
                (given, _) => given,
            },
            settings: read.fields,
            limits,
            grants,
            columns,
            all_tenants,
            topics,
            described: manifest
                .described()
                .filter_map(|name| Some((name, collections.get(&real(name))?)))
                .map(|(name, mapped)| described(name, mapped))
                .collect(),
            unmapped: unmapped.map(|(of, column)| (of.clone(), column.clone())).collect(),
            aliases,
            per_tenant: manifest.per_tenant && has_tenants,
            activity,
            lane: manifest.lane,
            tenants_per_run: read.host.projects_per_run,
            candidates_per_tenant: read.host.candidates_per_project,
            retry: self.retry,
            keep_removed: self.plain.keep_removed,
            queue_max: self.plain.queue_max,
            timers_max: match self.plain.timers_max {
                0 => manifest.lane.row().timers_max,
                given => given,
            },
            dead_max: self.plain.dead_max,
            rows_per_second: NonZeroU32::new(self.plain.rows_per_second),
            yields: self.yields,
            brakes: self.brakes(),
            windows: self.windows.clone(),
            mode: self.plain.mode.unwrap_or_default(),
            approve_within: self.plain.approve_within,
            mapping: String::new(),
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

    /// The plugin with the collections that it requests for this task: optional ones only if the task names them.
    fn requesting(&self, plugin: &Plugin) -> Plugin {
        let is_named = |name: &str| self.aliases.iter().any(|alias| alias.name == name);
        let mut requesting = Manifest::clone(&plugin.manifest);
        let is_asked = |name: &str| is_named(name) || !plugin.manifest.needs_no(name);
        requesting.collections.retain(|request| is_asked(&request.collection));
        Plugin { manifest: requesting.into(), ..plugin.clone() }
    }

    /// The fix for a collection that the plugin knows by another name.
    fn alias(&self, name: &str, collection: &str) -> String {
        format!(
            "if the plugin's `{name}` is your collection `{collection}`, write collections = {{ {} = {:?} }} \
             in [tasks.{}]",
            written(name),
            collection,
            written(&self.name)
        )
    }

    /// Resolves the plugin's names of collections. Each must be a name that the plugin requests and a mapped
    /// collection, and no two names may share a collection.
    fn aliases(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
    ) -> Aliases {
        let asked: Vec<&str> =
            plugin.manifest.collections.iter().map(|r| r.collection.as_str()).collect();
        let mut aliases = Aliases::new();
        for alias in &self.aliases {
            if !asked.contains(&alias.name.as_str()) {
                walker.error(
                    &alias.name_span,
                    format!(
                        "the plugin `{}` does not request a collection `{}`",
                        self.plain.plugin, alias.name
                    ),
                    suggestion(&alias.name, asked.iter().copied()),
                );
                continue;
            }
            if !collections.contains_key(&alias.collection) {
                walker.error(
                    &alias.collection_span,
                    format!("the collection `{}` is not mapped", alias.collection),
                    format!("add [collections.{}]", written(&alias.collection)),
                );
            }
            aliases.insert(alias.name.clone(), alias.collection.clone());
        }
        let mut taken = BTreeMap::new();
        for name in asked {
            let collection = aliases.get(name).map_or(name, String::as_str).to_owned();
            if let Some(first) = taken.insert(collection.clone(), name) {
                let span = self.aliases.iter().find(|a| a.name == name || a.name == first);
                let span = span.map_or(&self.name_span, |alias| &alias.collection_span);
                walker.error(
                    span,
                    format!("`{first}` and `{name}` both refer to the collection `{collection}`"),
                    "use a different collection for each name",
                );
            }
        }
        aliases
    }

    /// Warns if more time than the shortest limit may pass between two scans: what begins and ends between
    /// them is late. Applies to plugins in a punctual lane with a setting `limit`.
    fn judge_lateness(&self, walker: &mut Walker<'_>, lane: Lane, settings: &[Field]) {
        let Some(gap) = self.gap.filter(|_| lane.row().punctual) else { return };
        let Some(shortest) = shortest_limit(settings) else { return };
        let between = gap.saturating_add(self.plain.jitter);
        if between > shortest {
            let span = self.spans.get("schedule").unwrap_or(&self.name_span);
            walker.warn(
                span,
                format!(
                    "up to {} may pass between two scans, but the shortest limit is {}: what begins \
                     in between ends up to {} late",
                    show_duration(between),
                    show_duration(shortest),
                    show_duration(between - shortest)
                ),
                format!("write schedule = \"{}\"", schedule_for(shortest)),
            );
        }
    }

    fn grants(
        &self,
        walker: &mut Walker<'_>,
        plugin: &Plugin,
        collections: &Collections,
        aliases: &Aliases,
    ) -> Granted {
        let real = |name: &'_ str| aliases.get(name).map_or(name, String::as_str).to_owned();
        let manifest = &plugin.manifest;
        let plugin_span = self.spans.get("plugin").unwrap_or(&self.name_span).clone();
        for request in &manifest.collections {
            let name = &real(&request.collection);
            let said = match *name == request.collection {
                true => String::new(),
                false => format!(" (its `{}`)", request.collection),
            };
            let Some(mapped) = collections.get(name) else {
                if aliases.contains_key(&request.collection) {
                    continue; // Already reported at the alias.
                }
                walker.error(
                    &plugin_span,
                    format!(
                        "the plugin `{}` requests the collection `{name}`, which is not mapped",
                        self.plain.plugin
                    ),
                    format!(
                        "add [collections.{of}], or name the one to use: collections = {{ {of} = \"...\" }}",
                        of = written(name)
                    ),
                );
                continue;
            };
            for column in &request.columns {
                if !is_mapped(mapped, column) && !manifest.is_optional(&request.collection, column)
                {
                    walker.error(
                        &plugin_span,
                        format!("the plugin `{}` requests the column `{name}.{column}`{said}, which is not mapped", self.plain.plugin),
                        format!("add it to [collections.{}.columns]", written(name)),
                    );
                }
            }
        }
        let asked: BTreeMap<String, Operations> = manifest
            .collections
            .iter()
            .map(|request| (real(&request.collection), request.operations))
            .collect();
        let Some(table) = &self.grants else {
            if plugin.built_in {
                return Granted {
                    grants: asked,
                    columns: Columns::new(),
                    topics: manifest.topics.clone(),
                    activity: manifest.activity,
                    all_tenants: true,
                };
            }
            if !asked.is_empty() || !manifest.topics.is_empty() || manifest.activity {
                let mut needs: Vec<_> = asked
                    .iter()
                    .map(|(name, ops)| format!("{} = {}", written(name), words(*ops)))
                    .collect();
                if !manifest.topics.is_empty() {
                    needs.push(format!("{TOPICS} = {:?}", manifest.topics));
                }
                if manifest.activity {
                    needs.push(format!("{ACTIVITY} = true"));
                }
                let has_tenants = |name: &String| {
                    collections.get(name).is_some_and(|collection| collection.tenant.is_some())
                };
                if !manifest.per_tenant && asked.keys().any(has_tenants) {
                    needs.push(format!("{ALL_TENANTS} = true"));
                }
                walker.error(
                    &plugin_span,
                    format!(
                        "the plugin `{}` requests grants, but the task has none",
                        self.plain.plugin
                    ),
                    format!("add [tasks.{}.grants] with {}", written(&self.name), needs.join(", ")),
                );
            }
            return Granted::default();
        };
        let mut rights = Granted { all_tenants: plugin.built_in, ..Granted::default() };
        let mut broken = Vec::new();
        for entry in &table.0 {
            if entry.key == TOPICS {
                let texts = walker.texts("the topics", &entry.span, &entry.node);
                rights.topics = texts.into_iter().map(|(_, text)| text).collect();
                continue;
            }
            if [ACTIVITY, ALL_TENANTS].contains(&entry.key.as_str()) {
                let Some(word) = walker.flag(&entry.key, &entry.span, &entry.node) else {
                    continue;
                };
                match entry.key == ACTIVITY {
                    true => rights.activity = word,
                    false => rights.all_tenants = word,
                }
                continue;
            }
            let Some((operations, columns)) = granted(walker, entry, collections) else {
                broken.push(entry.key.as_str());
                continue;
            };
            if let Some(columns) = columns {
                rights.columns.insert(entry.key.clone(), columns);
            }
            if collections.contains_key(&entry.key) && !asked.contains_key(&entry.key) {
                let message = format!("the plugin does not request `{}`", entry.key);
                let fix = match asked.keys().find(|name| table.get(name).is_none()) {
                    Some(name) => {
                        format!("{}; otherwise remove the grant", self.alias(name, &entry.key))
                    }
                    None => "remove the grant".to_owned(),
                };
                walker.warn(&entry.key_span, message, fix);
            }
            rights.grants.insert(entry.key.clone(), operations);
        }
        for (name, wanted) in &asked {
            let has = rights.grants.get(name).copied().unwrap_or_default();
            if !has.covers(*wanted) && !broken.contains(&name.as_str()) {
                let granted = table.get(name);
                let span = granted.map_or(&plugin_span, |e| &e.span).clone();
                let grant = format!(
                    "write {} = {} in [tasks.{}.grants]",
                    written(name),
                    words(*wanted),
                    written(&self.name)
                );
                // A forgotten alias: the grant alone would let the task work on another table.
                let other = rights.grants.keys().find(|other| {
                    granted.is_none()
                        && !asked.contains_key(*other)
                        && collections.contains_key(*other)
                });
                walker.error(
                    &span,
                    format!(
                        "the plugin `{}` requests to {} `{name}`, which is not granted",
                        self.plain.plugin,
                        missing(has, *wanted)
                    ),
                    match other {
                        Some(other) => format!("{}; otherwise {grant}", self.alias(name, other)),
                        None => grant,
                    },
                );
            }
        }
        for topic in &manifest.topics {
            if !rights.topics.contains(topic) {
                let span = table.get(TOPICS).map_or(&plugin_span, |e| &e.span).clone();
                walker.error(
                    &span,
                    format!(
                        "the plugin `{}` emits to `{topic}`, which is not granted",
                        self.plain.plugin
                    ),
                    format!("add it to {TOPICS} in [tasks.{}.grants]", written(&self.name)),
                );
            }
        }
        for request in &manifest.collections {
            let name = real(&request.collection);
            let Some(granted) = rights.columns.get(&name) else { continue };
            let key = collections.get(&name).map(|collection| collection.key.as_slice());
            let lacks = |column: &&String| {
                !granted.contains(column)
                    && !key.is_some_and(|key| key.contains(column))
                    && !manifest.is_optional(&request.collection, column)
            };
            if let Some(column) = request.columns.iter().find(lacks) {
                let span = table.get(&name).map_or(&plugin_span, |e| &e.span).clone();
                walker.error(
                    &span,
                    format!(
                        "the plugin `{}` requests the column `{name}.{column}`, which is not granted",
                        self.plain.plugin
                    ),
                    format!(
                        "add it to the columns of `{name}` in [tasks.{}.grants]",
                        written(&self.name)
                    ),
                );
            }
        }
        if manifest.activity && !rights.activity {
            if plugin.built_in {
                rights.activity = true;
            } else {
                walker.error(
                    &plugin_span,
                    format!(
                        "the plugin `{}` reads activity, which is not granted",
                        self.plain.plugin
                    ),
                    format!("write {ACTIVITY} = true in [tasks.{}.grants]", written(&self.name)),
                );
            }
        }
        // A plugin that may name a row always knows its key.
        for (name, columns) in &mut rights.columns {
            columns.extend(collections.get(name).into_iter().flat_map(|c| c.key.iter().cloned()));
            columns.sort_unstable();
            columns.dedup();
        }
        rights
    }

    /// Checks the pin. Returns whether the plugin differs from the pinned file.
    fn judge_pin(
        &self,
        walker: &mut Walker<'_>,
        digest: &str,
        built_in: bool,
        require_pin: bool,
    ) -> bool {
        let (task, name) = (&self.name, &self.plain.plugin);
        let span = self.spans.get(PIN).or_else(|| self.spans.get("plugin"));
        let span = span.unwrap_or(&self.name_span);
        match &self.plain.sha256 {
            Some(pin) if pin.eq_ignore_ascii_case(digest) => {}
            Some(pin) => {
                let message = match is_digest(pin) {
                    true => format!("`{name}` is not the pinned file: its SHA-256 is {digest}"),
                    false => "a pin must be a SHA-256 with 64 hexadecimal digits".to_owned(),
                };
                let fix = format!(
                    "review the file with `besom plugin diff {task}`, then run `besom task pin {task}`"
                );
                walker.error(span, message, fix);
                return true;
            }
            None if require_pin && !built_in => {
                let message = format!("`{name}` is not pinned, but plugins.require_pin is set");
                let fix = format!("review the file, then run `besom task pin {task}`");
                walker.error(span, message, fix);
            }
            None => {}
        }
        false
    }

    /// Checks the lane: your own plugin needs a grant for most of them.
    fn judge_lane(&self, walker: &mut Walker<'_>, plugin: &Plugin) {
        let lane = plugin.manifest.lane.row();
        let (word, asked, given) = (lane.name, lane.granted, self.plain.lane.as_str());
        let span = self.spans.get("lane").or_else(|| self.spans.get("plugin"));
        let span = span.unwrap_or(&self.name_span);
        match given {
            "" if asked && !plugin.built_in => walker.error(
                span,
                format!(
                    "the plugin `{}` requests the lane `{word}`, which is not granted",
                    self.plain.plugin
                ),
                format!("write lane = \"{word}\" in [tasks.{}]", written(&self.name)),
            ),
            "" => {}
            given if given != word => walker.error(
                span,
                format!("the plugin `{}` works in the lane `{word}`", self.plain.plugin),
                format!("write lane = \"{word}\", or remove it"),
            ),
            _ => {}
        }
    }
}

/// Reads the grant for a collection, which has to be mapped.
fn granted(
    walker: &mut Walker<'_>,
    entry: &Entry,
    collections: &Collections,
) -> Option<(Operations, Option<Vec<String>>)> {
    if !collections.contains_key(&entry.key) {
        let fix = suggestion(&entry.key, collections.keys().map(String::as_str));
        let message =
            format!("the grant is for the collection `{}`, which is not mapped", entry.key);
        walker.error(&entry.key_span, message, fix);
    }
    grant(walker, entry, collections.get(&entry.key))
}

/// Whether a text is a SHA-256 in hexadecimal.
pub fn is_digest(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The grants of a task.
#[derive(Default)]
struct Granted {
    grants: Grants,
    columns: Columns,
    topics: Vec<String>,
    activity: bool,
    all_tenants: bool,
}

/// Returns the shortest limit in the settings of a task with due items: the lower one of `limit` and
/// `limit_min`. A `limit_min` of zero is ignored.
fn shortest_limit(settings: &[Field]) -> Option<Duration> {
    let duration = |name: &str| {
        let value = &settings.iter().find(|field| field.name == name)?.value;
        let Value::Integer(ms) = value else { return None };
        Some(Duration::from_millis(u64::try_from(*ms).ok()?))
    };
    let limit = duration("limit")?;
    let least = duration("limit_min").filter(|least| !least.is_zero());
    Some(least.map_or(limit, |least| least.min(limit)))
}

/// Returns a schedule that finds things with such a limit in time: every tenth of the limit, between one
/// second and one day.
pub fn schedule_for(limit: Duration) -> String {
    let every = (limit.as_secs() / 10).clamp(1, 86_400);
    format!("@every {}", show_duration(Duration::from_secs(every)))
}

/// Returns the retry policy of a task without `[tasks.NAME.retry]`.
pub fn default_retry() -> RetryPolicy {
    defaults(RetryTable::KEYS).policy()
}

fn named(walker: &mut Walker<'_>, entry: &Entry) {
    let ok = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if entry.key.is_empty()
        || entry.key.chars().count() > NAME_CHARS_MAX
        || !entry.key.chars().all(ok)
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

const OPERATIONS: [&str; 4] = ["read", "insert", "update", "delete"];

/// Reads a grant, `["read"]` or `{ ops = ["read"], columns = ["state"] }`: its operations, and its columns
/// if it names them. Returns `None` if any of it is invalid.
fn grant(
    walker: &mut Walker<'_>,
    entry: &Entry,
    collection: Option<&Collection>,
) -> Option<(Operations, Option<Vec<String>>)> {
    let Node::Table(table) = &entry.node else {
        return operations(walker, entry).map(|operations| (operations, None));
    };
    let before = walker.problems.len();
    let (mut granted, mut columns) = (Operations::default(), None);
    for part in &table.0 {
        match part.key.as_str() {
            "ops" => granted = operations(walker, part)?,
            "columns" => {
                let named = walker.texts("the columns", &part.span, &part.node);
                for (span, name) in &named {
                    if collection.is_some_and(|c| !c.columns.contains_key(name)) {
                        let known = collection.into_iter().flat_map(|c| c.columns.keys());
                        let fix = suggestion(name, known.map(String::as_str));
                        let message = format!("`{name}` is not a column of `{}`", entry.key);
                        walker.error(span, message, fix);
                    }
                }
                columns = Some(named.into_iter().map(|(_, name)| name).collect());
            }
            _ => walker.unknown(part, &entry.key, ["ops", "columns"]),
        }
    }
    if table.get("ops").is_none() {
        let message = format!("the grant of `{}` names no operations", entry.key);
        walker.error(&entry.key_span, message, "add, for example, ops = [\"read\"]");
    }
    (walker.problems.len() == before).then_some((granted, columns))
}

/// Reads the operations of a grant. Returns `None` if any of them is invalid.
fn operations(walker: &mut Walker<'_>, entry: &Entry) -> Option<Operations> {
    let before = walker.problems.len();
    let mut operations = Operations::default();
    for (span, word) in walker.texts("a grant", &entry.span, &entry.node) {
        match word.as_str() {
            "read" => operations.read = true,
            "insert" => operations.insert = true,
            "update" => operations.update = true,
            "delete" => operations.delete = true,
            _ => {
                let fix = suggestion(&word, OPERATIONS);
                walker.error(&span, format!("`{word}` is not an operation"), fix);
            }
        }
    }
    (walker.problems.len() == before).then_some(operations)
}

fn list(ops: Operations) -> Vec<&'static str> {
    let flags = [ops.read, ops.insert, ops.update, ops.delete];
    OPERATIONS.iter().zip(flags).filter(|(_, set)| *set).map(|(word, _)| *word).collect()
}

/// Formats operations as in a grant.
pub fn words(ops: Operations) -> String {
    format!("{:?}", list(ops))
}

fn missing(has: Operations, wanted: Operations) -> String {
    let has = list(has);
    let rest: Vec<_> = list(wanted).into_iter().filter(|word| !has.contains(word)).collect();
    rest.join(", ")
}

/// A collection as a plugin is told of it.
fn described(name: &str, mapped: &Collection) -> Described {
    let column = |(column, of): (&String, &Column)| (column.clone(), name_of(of.kind).to_owned());
    let indexes = mapped.indexes.iter();
    Described {
        collection: name.to_owned(),
        key: mapped.key.clone(),
        columns: mapped.columns.iter().map(column).collect(),
        indexes: indexes.map(|(name, columns)| (name.clone(), columns.clone())).collect(),
    }
}

/// Whether a task can use this column.
fn is_mapped(collection: &Collection, column: &str) -> bool {
    collection.columns.contains_key(column) || collection.tenant.as_deref() == Some(column)
}
