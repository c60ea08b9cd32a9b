//! `besom check`: finds everything wrong with a configuration that can be found without starting a host.

mod age;

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::collection::{Collections, Operations, all_dependants};
use besom_core::command::counted;
use besom_core::ids::TaskName;
use besom_core::proposal::{Comparison, Condition};
use besom_core::time::Time;
use besom_core::value::Value;

use super::open::{Loader, Opening, STORE_RISK_FIX, is_there, no_file, store_risk};
use super::output;
use super::{Exit, Failure, Global, endpoints, exposed, open, status};
use besom_config::diagnostic::Place;
use besom_config::keys::{suggestion, written};
use besom_config::quantity::show_duration;
use besom_config::schedule::{longest_gap, remark};
use besom_config::task::schedule_for;
use besom_config::{Config, Diagnostic, Problems, Resolved, printable};
use besom_engine::host::reads;
use besom_ports::guests::Guests;
use besom_ports::shape::{Described, Shape};
use besom_ports::store::{self, MappingFault, Range, Store};
use besom_ports::task::TaskDefinition;
use besom_product::doc;
use besom_product::retention::{self, UpToNow, Written, Wrong, in_ranges, moved};
use besom_runtime::built_in::{self, Absence};

/// `besom check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Also compare the mapping with the database.
    #[arg(long)]
    store: bool,
}

impl Args {
    /// Loads the configuration and its plugins, and prints the diagnostics to stderr and the verdict
    /// to stdout. With JSON output, stdout contains both.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let parsed = global.parsed()?;
        let loader = Loader::start(&parsed)?;
        let mut resolved = loader.resolve(parsed).await;
        tokens(&mut resolved);
        notes(&mut resolved, Time::from_jiff(jiff::Timestamp::now()));
        match store_risk(resolved.partial()) {
            Ok(None) => {}
            Ok(Some(risk)) => resolved.store_fault(false, risk, STORE_RISK_FIX),
            Err(error) => {
                resolved.store_fault(
                    true,
                    error.to_string(),
                    "correct the URL, or the file that it refers to",
                );
            }
        }
        for words in exposed::files(resolved.partial()) {
            resolved.store_fault(false, words, exposed::FIX);
        }
        if let Some(words) = exposed::configuration(&global.config) {
            resolved.warn(words, exposed::CONFIGURATION_FIX);
        }
        for words in endpoints::faults(resolved.partial()) {
            resolved.fault(words, endpoints::FIX);
        }
        let (mut unreachable, mut kept_bytes) = (None, None);
        if let Some(words) = no_file(resolved.partial()) {
            resolved.store_fault(true, words, open::NO_FILE_FIX);
        } else if self.store {
            if !is_there(resolved.partial()) {
                unreachable = Some(open::absent(resolved.partial()).to_string());
            } else {
                let used = resolved.used_collections();
                let lack = open::lack(resolved.partial()).await.unwrap_or_default();
                if let Some(lack) = &lack {
                    resolved.store_fault(lack.is_error, &*lack.message, &lack.fix);
                }
                let unusable = lack.is_some_and(|lack| lack.is_error);
                match looked(&resolved, &used, loader.runtime()).await {
                    Ok(Looked { faults, remarks, refused, views, values, past, kept }) => {
                        kept_bytes = Some(kept);
                        for (task, Wrong { setting, range, message }) in values {
                            let message = format!("{setting}: {message}");
                            resolved.setting_fault(&task, setting, range, message);
                        }
                        let faults = open::needed(resolved.partial(), faults);
                        resolved.mapping_faults(&faults);
                        absences(&mut resolved);
                        age::by_rows(&mut resolved, &past);
                        for (task, message, fix) in remarks {
                            resolved.warn_schedule(&task, message, &fix);
                        }
                        for (task, why) in refused {
                            let message = format!("the scan of `{task}` fails: {why}");
                            resolved.task_fault(&task, message, READS_FIX);
                        }
                        for (task, message, fix) in views {
                            resolved.task_fault(&task, message, &fix);
                        }
                    }
                    Err(_) if unusable => {}
                    Err(error) => unreachable = Some(error.to_string()),
                }
            }
        }
        let (tasks, diagnostics) = match resolved.finish() {
            Ok(config) => (config.tasks.len(), config.warnings),
            Err(Problems(all)) => (0, all),
        };
        let errors = diagnostics.iter().filter(|d| d.is_error()).count();
        let warnings = diagnostics.len() - errors;
        if !diagnostics.is_empty() {
            to_stderr!("{}", Problems(diagnostics.clone()));
        }
        let json = serde_json::json!({
            "ok": errors == 0 && unreachable.is_none(),
            "errors": errors,
            "warnings": warnings,
            "unreachable": unreachable,
            "kept_bytes": kept_bytes,
            "diagnostics": diagnostics.iter().map(shown).collect::<Vec<_>>(),
        });
        output::show(global.output, &json, || {
            let file = subject(&global.config.display().to_string(), &diagnostics);
            let valid = match (errors, warnings) {
                (0, 0) => format!("{file}: valid, {}\n", counted(tasks as u64, "task")),
                (0, n) => {
                    format!(
                        "{file}: valid, {}, {}\n",
                        counted(tasks as u64, "task"),
                        counted(n as u64, "warning")
                    )
                }
                (n, m) => {
                    format!(
                        "{file}: {}, {}\n",
                        counted(n as u64, "error"),
                        counted(m as u64, "warning")
                    )
                }
            };
            valid + &status::kept_line(&kept_bytes.clone().unwrap_or_default())
        })?;
        match (errors, unreachable) {
            (0, None) => Ok(Exit::Fine),
            (0, Some(message)) => Err(Failure::Unreachable(message)),
            _ => Ok(Exit::Configuration),
        }
    }
}

/// Returns what the diagnostics are about: the file, and what overrides it if that is at fault as well.
fn subject(file: &str, diagnostics: &[Diagnostic]) -> String {
    let any = |is: fn(&Place) -> bool| diagnostics.iter().any(|d| is(&d.place));
    let with = [
        (any(|place| matches!(place, Place::Variable { .. })), "the environment"),
        (any(|place| matches!(place, Place::Flag { .. })), "--set"),
    ];
    let with: Vec<_> = with.into_iter().filter_map(|(any, what)| any.then_some(what)).collect();
    match with.as_slice() {
        [] => printable(file),
        with => format!("{} with {}", printable(file), with.join(" and ")),
    }
}

/// The fix for a read that the store refuses.
const READS_FIX: &str =
    "create the index, or correct [collections.NAME] or the settings of the task";

/// Checks the mapping, the granted operations, the reads of scans and the shares in the database; all but the
/// mapping only if the mapping has no errors.
async fn looked(
    resolved: &Resolved,
    used: &Collections,
    guests: &dyn Guests,
) -> Result<Looked, Failure> {
    let config = resolved.partial();
    let store = Opening::looking().open(config).await?;
    let mut faults = store.check(used).await?;
    let mut values = wrong_values(config).await?;
    let is_whole = faults.iter().all(|fault| fault.warning);
    let mut found = store.check_granted(used, &granted(config, used)).await?;
    found.retain(|fault| fault.place != MappingFault::UNDO || is_kept(config, &fault.collection));
    faults.extend(found);
    if !is_whole {
        // Nothing can be read from tables that do not match the mapping.
        return Ok(Looked { faults, values, ..Looked::default() });
    }
    let moves: Vec<_> = config.tasks.values().filter_map(|task| moved(task)).collect();
    faults.extend(store.check_moves(used, &moves).await?);
    let mut refused = Vec::new();
    for task in config.tasks.values() {
        // A value that the database refuses is told at its place.
        if values.iter().any(|(name, _)| *name == task.name) {
            continue;
        }
        for why in reads::refused(&*store, guests, task).await? {
            match refused_value(task, &why) {
                Some(wrong) => values.push((task.name.clone(), wrong)),
                None => refused.push((task.name.clone(), why)),
            }
        }
    }
    // A database that no host has used yet keeps nothing.
    let kept = status::kept_bytes(&store.depths().await.unwrap_or_default());
    let (remarks, views) = (short_shares(&*store, config).await?, over_views(config).await?);
    let past = age::past(&*store, resolved).await?;
    Ok(Looked { faults, remarks, refused, views, values, past, kept })
}

/// The value in `where` that the database names when it refuses a read, because it is none of the column's type.
fn refused_value(task: &TaskDefinition, why: &str) -> Option<Wrong> {
    let (_, written) = retention::written(task)?;
    let is_named = |one: &Written| {
        one.text.as_ref().is_some_and(|text| why.contains(&format!(": \"{text}\" ")))
    };
    let (setting, found) = written.into_iter().find(|(of, one)| *of == "where" && is_named(one))?;
    let message = format!("the database refuses this value: {why}");
    Some(Wrong { setting, range: Some(found.range), message })
}

/// Finds values in `where` and `set` that the columns of the database refuse, so that every row would be refused.
async fn wrong_values(config: &Config) -> Result<Vec<(TaskName, Wrong)>, Failure> {
    let mut all = Vec::new();
    for task in config.tasks.values() {
        let Some((rows, written)) = retention::written(task) else { continue };
        let set = retention::columns_set(task);
        let Some(mapped) = config.collections.get(&rows) else { continue };
        if written.is_empty() && set.is_empty() {
            continue;
        }
        let Described::Table(shape) = open::describe(config, &mapped.table).await? else {
            continue;
        };
        let of = |name: &str| shape.columns.iter().find(|found| found.name == name);
        for (setting, Written { column, text, range }) in written {
            let Some(found) = of(&column) else { continue };
            let message = match text {
                None if found.not_null => format!(
                    "`{column}` is NOT NULL in the database, which would refuse every row: set another value"
                ),
                Some(text) if !found.labels.is_empty() && !found.labels.contains(&text) => {
                    let fix = suggestion(&text, found.labels.iter().map(String::as_str));
                    format!(
                        "'{text}' is no label of the type {} of `{column}`: {fix}",
                        found.declared
                    )
                }
                _ => continue,
            };
            all.push((task.name.clone(), Wrong { setting, range: Some(range), message }));
        }
        for column in set.iter().filter(|column| of(column).is_some_and(|found| found.computed)) {
            let message = format!("`{column}` is computed by the database, and cannot be set");
            all.push((task.name.clone(), Wrong { setting: "set", range: None, message }));
        }
    }
    Ok(all)
}

/// Finds tasks that change rows of a view in a way that the database has not: by ranges, or on SQLite at all.
/// Returns the task, the error and the fix.
async fn over_views(config: &Config) -> Result<Vec<(TaskName, String, String)>, Failure> {
    let mut found = Vec::new();
    let mut views: BTreeMap<&str, bool> = BTreeMap::new();
    let now = Time::from_jiff(jiff::Timestamp::now());
    for task in config.tasks.values() {
        let ranges = in_ranges(task, now);
        let changed = task.grants.iter().filter(|(name, operations)| match config.store.url {
            Some(_) => ranges.as_ref() == Some(*name),
            None => operations.insert || operations.update || operations.delete,
        });
        for (name, _) in changed {
            let Some(table) = config.collections.get(name).map(|of| of.table.as_str()) else {
                continue;
            };
            let is_view = match views.get(table) {
                Some(known) => *known,
                None => {
                    let shape = open::describe(config, table).await?;
                    matches!(shape, Described::Table(Shape { is_view: true, .. }))
                }
            };
            views.insert(table, is_view);
            if !is_view {
                continue;
            }
            let how = if ranges.as_ref() == Some(name) { " by ranges" } else { "" };
            let message = format!(
                "`{}` changes rows of {table:?}{how}, and that is a view: every item would fail",
                task.name
            );
            let fix = match config.store.url {
                Some(_) => format!(
                    "write chunk = 0 in the settings of [tasks.{}], so that its rows are changed one by one, or map the table",
                    written(task.name.as_str())
                ),
                None => "map the table: Besom changes no rows of a view of SQLite".to_owned(),
            };
            found.push((task.name.clone(), message, fix));
        }
    }
    Ok(found)
}

/// The operations that tasks may perform on each collection, and on those whose rows go with its rows.
pub(super) fn granted(config: &Config, used: &Collections) -> BTreeMap<String, Operations> {
    let mut granted: BTreeMap<String, Operations> = BTreeMap::new();
    for (name, operations) in config.tasks.values().flat_map(|task| &task.grants) {
        let all = granted.entry(name.clone()).or_default();
        all.insert |= operations.insert;
        all.update |= operations.update;
        all.delete |= operations.delete;
        if operations.delete {
            for dependant in all_dependants(used, name) {
                granted.entry(dependant.name.clone()).or_default().delete = true;
            }
        }
    }
    granted
}

/// Whether a task keeps what it takes from this collection or adds to it, so that it can be undone.
fn is_kept(config: &Config, collection: &str) -> bool {
    let mut keeping = config.tasks.values().filter(|task| !task.keep_removed.is_zero());
    keeping.any(|task| {
        let own = task.grants.get(collection).is_some_and(|own| own.delete || own.insert);
        own || task.dependants.iter().any(|name| name == collection)
    })
}

/// What the database shows about a configuration.
#[derive(Default)]
struct Looked {
    /// Faults of the mapping.
    faults: Vec<MappingFault>,
    /// For tasks: a warning about the schedule with its fix.
    remarks: Vec<(TaskName, String, String)>,
    /// For tasks: why the store refuses a read of the scan.
    refused: Vec<(TaskName, String)>,
    /// For tasks: an error about their view with its fix.
    views: Vec<(TaskName, String, String)>,
    /// For tasks: values that the database refuses.
    values: Vec<(TaskName, Wrong)>,
    /// Tasks without an age, of whose rows none has an instant that is still to come.
    past: Vec<(TaskName, UpToNow)>,
    /// Bytes of the rows that are kept for undo, by task.
    kept: BTreeMap<String, u64>,
}

/// Maximum number of tenants whose shares are checked.
const TENANTS_LOOKED_AT: u32 = 1_000;
/// Maximum number of shares checked per tenant, of those whose limit is too short.
const SHARES_LOOKED_AT: u32 = 100;
/// Maximum time for reading the shares.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Finds shares whose own limit is shorter than the longest time between two scans of the task that
/// ends them. Returns the task, the warning and the fix.
async fn short_shares(
    store: &dyn Store,
    config: &Config,
) -> Result<Vec<(TaskName, String, String)>, store::Error> {
    let mut remarks = Vec::new();
    for task in config.tasks.values().filter(|task| task.lane.row().punctual) {
        let gap = task.schedule.as_deref().and_then(|s| longest_gap(s, &task.timezone));
        let name = task.aliases.get("shares").map_or("shares", String::as_str);
        let (Some(gap), Some(mapped), true) =
            (gap, config.collections.get(name), task.grants.contains_key(name))
        else {
            continue;
        };
        let least = task.settings.iter().find(|field| field.name == "limit_min");
        let least = least.and_then(|field| match field.value {
            Value::Integer(ms) => u64::try_from(ms).ok(),
            _ => None,
        });
        let between = gap.saturating_add(task.jitter);
        let least = Duration::from_millis(least.unwrap_or(0));
        // The task reads open shares by this index; without a tenant, a read by the key would scan the table.
        let by_end = |(_, columns): &(&String, &Vec<String>)| {
            columns.first().is_some_and(|column| column == "unshared_at")
        };
        let Some((index, _)) = mapped.indexes.iter().find(by_end) else { continue };
        let range = Range {
            collection: name.to_owned(),
            index: Some(index.clone()),
            scan_max: 0,
            prefix: vec![Value::Null],
            lower: None,
            upper: None,
            beyond: None,
            conditions: vec![Condition::of(
                "limit_seconds",
                Comparison::AtMost,
                Value::Integer(i64::try_from(between.max(least).as_secs()).unwrap_or(i64::MAX)),
            )],
            columns: vec!["limit_seconds".into()],
            descending: false,
            limit: SHARES_LOOKED_AT,
            bytes_max: 1 << 20,
            after: None,
            keys: false,
        };
        let Some(shortest) = shortest(store, mapped.tenant.is_some(), &range).await? else {
            continue;
        };
        let limit = show_duration(shortest);
        if shortest < least {
            remarks.push((
                task.name.clone(),
                format!(
                    "there are shares with limit_seconds = {}, which is below limit_min ({}): they \
                     stay open for longer than {limit}",
                    shortest.as_secs(),
                    show_duration(least)
                ),
                format!(
                    "lower limit_min in [tasks.{}.settings], or remove it",
                    written(task.name.as_str())
                ),
            ));
        }
        if shortest < between {
            remarks.push((
                task.name.clone(),
                format!(
                    "there are shares with limit_seconds = {}, and up to {} may pass between two \
                     scans: a share that begins in between ends up to {} late",
                    shortest.as_secs(),
                    show_duration(between),
                    show_duration(between - shortest)
                ),
                format!("write schedule = \"{}\"", schedule_for(shortest)),
            ));
        }
    }
    Ok(remarks)
}

/// Returns the shortest limit of the shares in the range, over all tenants.
async fn shortest(
    store: &dyn Store,
    tenants: bool,
    range: &Range,
) -> Result<Option<Duration>, store::Error> {
    let view = store.snapshot(LOOK_MAX).await?;
    let tenants = match tenants {
        true => {
            let all = view.tenants(range, None, TENANTS_LOOKED_AT).await?;
            all.into_iter().map(Some).collect()
        }
        false => vec![None],
    };
    let mut shortest: Option<u64> = None;
    for tenant in tenants {
        let page = view.read_range(tenant.as_ref(), range).await?;
        let limits = page.rows.iter().filter_map(|row| match row.first() {
            Some(Value::Integer(seconds)) => Some(u64::try_from(*seconds).unwrap_or(0)),
            _ => None,
        });
        shortest = shortest.into_iter().chain(limits).min();
    }
    Ok(shortest.map(Duration::from_secs))
}

/// Returns a diagnostic as JSON, including its printed text.
fn shown(diagnostic: &Diagnostic) -> serde_json::Value {
    let mut json = serde_json::to_value(diagnostic).unwrap_or_default();
    json["text"] = diagnostic.to_string().into();
    json
}

/// Reports files with tokens, passwords and keys of topics that cannot be used: a host would not start with them.
fn tokens(resolved: &mut Resolved) {
    for (topic, words) in endpoints::topic_faults(resolved.partial()) {
        resolved.token_fault(&topic, words);
    }
}

/// Warns of guards for the absence of a row that row locks on a server cannot enforce alone: an INSERT
/// waits for the row of the anchor, an UPDATE of the guarded column does not. SQLite has a single
/// writer and needs no warning.
fn absences(resolved: &mut Resolved) {
    if resolved.partial().store.url.is_none() {
        return;
    }
    let tasks: Vec<_> = resolved.partial().tasks.values().cloned().collect();
    for task in &tasks {
        let has_mode = |modes: &[&str]| {
            task.settings.iter().filter(|field| field.name.starts_with("mode_")).any(
                |field| matches!(&field.value, Value::Text(mode) if modes.contains(&mode.as_str())),
            )
        };
        let is_asked = |absence: &&Absence| absence.modes.is_empty() || has_mode(absence.modes);
        let absences = built_in::entry(&task.plugin).map_or(&[][..], |entry| entry.absences);
        for Absence { collection, column, anchor, .. } in absences.iter().filter(is_asked) {
            let alias = |name: &str| task.aliases.get(name).map_or(name, String::as_str).to_owned();
            let (own, anchor) = (alias(collection), alias(anchor));
            resolved.warn_collection(
                &own,
                format!(
                    "`{}` requires that no row of `{own}` matches by `{column}`: an INSERT waits for the \
                     locked row of `{anchor}`, an UPDATE or upsert of `{column}` does not",
                    task.name
                ),
                &format!(
                    "lock the row of `{anchor}` (SELECT ... FOR KEY SHARE) wherever your product sets \
                     `{column}`; see docs/compaction.md"
                ),
            );
        }
    }
}

/// Adds warnings about valid settings that are probably not intended.
fn notes(resolved: &mut Resolved, now: Time) {
    let tasks: Vec<_> = resolved.partial().tasks.values().cloned().collect();
    for task in &tasks {
        let schedule = task.schedule.as_deref();
        if let Some((warning, fix)) = schedule.and_then(|s| remark(s, &task.timezone, now)) {
            resolved.warn_schedule(&task.name, warning, fix);
        }
    }
    let mut unrouted: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for task in &tasks {
        for topic in &task.topics {
            unrouted.entry(topic).or_default().push(task.name.as_str());
        }
    }
    unrouted.retain(|topic, _| !resolved.partial().topics.contains_key(*topic));
    let kept = show_duration(resolved.partial().retention.history);
    for (topic, tasks) in unrouted {
        resolved.warn(
            format!(
                "the topic `{topic}` has no route: messages that `{}` emits to it are not delivered \
                 and are removed after {kept}",
                tasks.join("`, `")
            ),
            format!("add [topics.\"{topic}\"], or read the outbox table before that; see docs/delivery.md"),
        );
    }
    for task in tasks.iter().filter(|task| task.plugin == doc::COMPACTION) {
        let text = |name: &str| {
            let field = task.settings.iter().find(|field| field.name == name);
            field.and_then(|field| match &field.value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            })
        };
        let (message, fix) = match (text("deleted_content"), text("mode_yjs")) {
            (Some("keep"), Some("reset")) => (
                "keeps deleted content of Yjs documents (deleted_content = \"keep\"), so a document that \
                 contains deletions is merged instead of reset",
                "if no client has `gc: false`, write deleted_content = \"collect\"",
            ),
            (Some("detect"), _) => (
                "recognizes a Yjs document with `gc: false` only if one of its rows is a complete state; from \
                 a document written edit by edit it drops deleted content, which saved versions can then no longer show",
                "write deleted_content = \"keep\", or \"collect\" if no client has `gc: false`",
            ),
            _ => continue,
        };
        let message = format!("`{}` {message}", task.name);
        resolved.warn_setting(&task.name, "deleted_content", message, fix);
    }
    age::by_name(resolved);
    let workspaces = resolved.used_collections().remove("workspaces");
    if let Some(workspaces) = workspaces {
        let guarded = ["version", "last_manual_change_at"];
        if !guarded.iter().any(|column| workspaces.columns.contains_key(*column)) {
            resolved.warn_collection(
                "workspaces",
                "neither `version` nor `last_manual_change_at` is mapped: the task may override a user who chooses the state that is already set",
                "map a column that changes whenever a user chooses a state",
            );
        }
    }
}
