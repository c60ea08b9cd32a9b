//! `besom check`: everything that can be known to be wrong before anything is started.

use std::collections::BTreeMap;
use std::time::Duration;

use besom_core::collection::{Collections, Operations};
use besom_core::command::counted;
use besom_core::ids::TaskName;
use besom_core::proposal::{Comparison, Condition};
use besom_core::time::Time;
use besom_core::value::Value;

use super::open::{Loader, is_there, open_store, store_risk};
use super::output;
use super::{Exit, Failure, Global, endpoints, exposed};
use crate::config::quantity::show_duration;
use crate::config::schedule::{longest_gap, remark};
use crate::config::task::schedule_for;
use crate::config::{Config, Diagnostic, Overrides, Problems, Resolved, printable, read};
use crate::courier::look_at_token;
use crate::model::{ABSENCES, Absence};
use crate::ports::guests::Lane;
use crate::ports::store::{self, MappingFault, Range, Store};

/// `besom check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Compare the mapping with the database as well.
    #[arg(long)]
    store: bool,
}

impl Args {
    /// Loads everything, and prints what is wrong. Diagnostics are on stderr, the verdict on
    /// stdout; as JSON stdout has both.
    pub async fn run(self, global: &Global) -> Result<Exit, Failure> {
        let parsed = read(&global.config, &Overrides::from_env(global.set.clone()))?;
        let loader = Loader::start(&parsed)?;
        let mut resolved = loader.resolve(parsed).await;
        tokens(&mut resolved);
        notes(&mut resolved, Time::from_jiff(jiff::Timestamp::now()));
        match store_risk(resolved.partial()) {
            Ok(None) => {}
            Ok(Some(risk)) => resolved.store_fault(
                false,
                risk,
                "write sslmode=verify-full, and name the authority in store.root_certificate",
            ),
            Err(error) => {
                resolved.store_fault(true, error.to_string(), "mend it, or the file it names");
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
        let mut unreachable = None;
        if let Some(words) = no_file(resolved.partial()) {
            unreachable = Some(words);
        } else if self.store {
            if !is_there(resolved.partial()) {
                let path = resolved.partial().store.path.display();
                unreachable = Some(format!("there is no database {path}"));
            } else {
                let used = resolved.used_collections();
                match looked(resolved.partial(), &used).await {
                    Ok((faults, remarks)) => {
                        resolved.mapping_faults(&faults);
                        absences(&mut resolved);
                        for (task, message, fix) in remarks {
                            resolved.warn_schedule(&task, message, &fix);
                        }
                    }
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
            eprintln!("{}", Problems(diagnostics.clone()));
        }
        let json = serde_json::json!({
            "ok": errors == 0 && unreachable.is_none(),
            "errors": errors,
            "warnings": warnings,
            "unreachable": unreachable,
            "diagnostics": diagnostics.iter().map(shown).collect::<Vec<_>>(),
        });
        output::show(global.output, &json, || {
            let file = printable(&global.config.display().to_string());
            match (errors, warnings) {
                (0, 0) => format!("{file}: fine, {}\n", counted(tasks as u64, "task")),
                (0, n) => {
                    format!(
                        "{file}: usable, {}, {}\n",
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
            }
        })?;
        match (errors, unreachable) {
            (0, None) => Ok(Exit::Fine),
            (0, Some(message)) => Err(Failure::Unreachable(message)),
            _ => Ok(Exit::Configuration),
        }
    }
}

/// What is wrong with the database, and remarks on schedules.
async fn looked(config: &Config, used: &Collections) -> Result<Looked, store::Error> {
    let store = open_store(config).await?;
    let mut faults = store.check(used).await?;
    if faults.iter().any(|fault| !fault.warning) {
        // What cannot be read is said already.
        return Ok((faults, Vec::new()));
    }
    let mut granted: BTreeMap<String, Operations> = BTreeMap::new();
    for (name, operations) in config.tasks.values().flat_map(|task| &task.grants) {
        let all = granted.entry(name.clone()).or_default();
        all.insert |= operations.insert;
        all.update |= operations.update;
        all.delete |= operations.delete;
    }
    faults.extend(store.privileges(used, &granted).await?);
    Ok((faults, short_shares(&*store, config).await?))
}

/// Faults of the mapping; and of tasks, what is wrong with their schedules and what to write.
type Looked = (Vec<MappingFault>, Vec<(TaskName, String, String)>);

/// Why the store's path cannot be a database, whatever is in it.
fn no_file(config: &Config) -> Option<String> {
    let path = &config.store.path;
    let kind = std::fs::metadata(path).ok().filter(|_| config.store.url.is_none())?.file_type();
    let what = match (kind.is_file(), kind.is_dir()) {
        (true, _) => return None,
        (false, true) => "a directory",
        (false, false) => "no regular file",
    };
    Some(format!("store.path names {}, which is {what}: name a file", path.display()))
}

/// Tenants whose shares are looked at.
const TENANTS_LOOKED_AT: u32 = 1_000;
/// Shares of a tenant that are looked at, among those that are too short.
const SHARES_LOOKED_AT: u32 = 100;
/// How long the look may take.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// Shares, as a task ends them, whose own limit is shorter than what may pass between two scans:
/// the task, what is wrong, and what to write.
async fn short_shares(
    store: &dyn Store,
    config: &Config,
) -> Result<Vec<(TaskName, String, String)>, store::Error> {
    let mut remarks = Vec::new();
    for task in config.tasks.values().filter(|task| task.lane == Lane::Due) {
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
        let range = Range {
            collection: name.to_owned(),
            index: None,
            scan_max: 0,
            prefix: Vec::new(),
            lower: None,
            upper: None,
            conditions: vec![
                Condition::equal("unshared_at", Value::Null),
                Condition {
                    column: "limit_seconds".into(),
                    comparison: Comparison::AtMost,
                    value: Value::Integer(
                        i64::try_from(between.max(least).as_secs()).unwrap_or(i64::MAX),
                    ),
                },
            ],
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
                    "there are shares with limit_seconds = {}, and limit_min is {}: they stay open \
                     for longer than their {limit}",
                    shortest.as_secs(),
                    show_duration(least)
                ),
                format!("lower limit_min in [tasks.{}.settings], or remove it", task.name),
            ));
        }
        if shortest < between {
            remarks.push((
                task.name.clone(),
                format!(
                    "there are shares with limit_seconds = {}, and {} may pass between two scans: \
                     one that begins in between ends up to {} late",
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

/// The shortest limit of the shares in the range, over their tenants.
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

/// A diagnostic as JSON, with its text as it is printed.
fn shown(diagnostic: &Diagnostic) -> serde_json::Value {
    let mut json = serde_json::to_value(diagnostic).unwrap_or_default();
    json["text"] = diagnostic.to_string().into();
    json
}

/// A host does not start with a token that it cannot send.
fn tokens(resolved: &mut Resolved) {
    let topics = resolved.partial().topics.clone();
    for (name, route) in &topics {
        if let Some(Err(message)) = route.token_file.as_deref().map(look_at_token) {
            resolved.token_fault(name, format!("the topic `{name}`: {message}"));
        }
    }
}

/// Absences that a server's locks do not hold by themselves: an insert waits for the anchor's row, an
/// update of the column that the guard looks at does not. A file has one writer at a time.
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
        let is_asked = |absence: &&Absence| {
            absence.plugin == task.plugin && (absence.modes.is_empty() || has_mode(absence.modes))
        };
        for Absence { collection, column, anchor, .. } in ABSENCES.iter().filter(is_asked) {
            let alias = |name: &str| task.aliases.get(name).map_or(name, String::as_str).to_owned();
            let (own, anchor) = (alias(collection), alias(anchor));
            resolved.warn_collection(
                &own,
                format!(
                    "`{}` asks that no row of `{own}` is there by its `{column}`: an INSERT waits for the \
                     row of `{anchor}`, an UPDATE or upsert of `{column}` does not",
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

/// What is allowed but deserves a look.
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
                "the topic `{topic}` has no route: what `{}` emits to it is delivered to nobody, and \
                 removed after {kept}",
                tasks.join("`, `")
            ),
            format!("add [topics.\"{topic}\"], or read the table of the outbox in time; see docs/delivery.md"),
        );
    }
    for task in tasks.iter().filter(|task| task.plugin == "compaction") {
        let text = |name: &str| {
            let field = task.settings.iter().find(|field| field.name == name);
            field.and_then(|field| match &field.value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            })
        };
        let (message, fix) = match (text("deleted_content"), text("mode_yjs")) {
            (Some("keep"), Some("reset")) => (
                "keeps what is deleted in Yjs documents (deleted_content = \"keep\"), so a reset of one that \
                 has deleted anything becomes a merge",
                "if no client has `gc: false`, write deleted_content = \"collect\"",
            ),
            (Some("detect"), _) => (
                "knows a Yjs document with `gc: false` only by a row that is a whole state; of one that is \
                 written edit by edit it drops what is deleted, and versions can no longer show it",
                "write deleted_content = \"keep\", or \"collect\" if no client has `gc: false`",
            ),
            _ => continue,
        };
        let message = format!("`{}` {message}", task.name);
        resolved.warn_setting(&task.name, "deleted_content", message, fix);
    }
    let workspaces = resolved.used_collections().remove("workspaces");
    if let Some(workspaces) = workspaces {
        let guarded = ["version", "last_manual_change_at"];
        if !guarded.iter().any(|column| workspaces.columns.contains_key(*column)) {
            resolved.warn_collection(
                "workspaces",
                "without `version` or `last_manual_change_at`, a user who chooses the state that already stands may be overruled",
                "map a column that changes with every choice of a user",
            );
        }
    }
}
