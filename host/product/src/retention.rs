//! The settings of the built-in task `retention`, judged when the configuration is read: by the plugin's
//! own code, so that its language is defined once.

use besom_core::collection::{Collection, Collections, Column, Operations};
use besom_core::time::Time;
use besom_core::value::{Kind, Value};
use besom_ports::embedded::Dialect;
use besom_ports::guests;
use besom_ports::task::TaskDefinition;
use besom_retention::{Described, INTO, PartialIndex, Plan, ROWS, Rules, plan};

pub use besom_retention::{Written, Wrong};

use crate::model::product::quoted;

/// The name of the plugin.
pub const RETENTION: &str = "retention";

/// What a task needs of the operations that the plugin requests: it either deletes or moves rows, or sets columns.
pub fn needed(task: &TaskDefinition) -> Option<(String, Operations)> {
    if task.plugin != RETENTION {
        return None;
    }
    let name = rows_of(task);
    let mut operations = task.grants.get(name).copied()?;
    match text(task, "action") {
        "set" => operations.delete = false,
        _ => operations.update = false,
    }
    Some((name.to_owned(), operations))
}

/// Whether a task reads rows of a collection by this index; `None`: the plugin decides that itself.
pub fn reads(task: &TaskDefinition, collection: &str, index: &str) -> Option<bool> {
    let plan = plan_of(task)?.ok()?;
    let rows = rows_of(task);
    Some(rows == collection && plan.index() == Some(index))
}

/// The collections between which a task moves rows: from the first into the second.
pub fn moved(task: &TaskDefinition) -> Option<(String, String)> {
    if task.plugin != RETENTION || text(task, "action") != "archive" {
        return None;
    }
    let name = |name: &str| task.aliases.get(name).cloned();
    Some((name(ROWS).unwrap_or_else(|| ROWS.to_owned()), name(INTO)?))
}

/// The faults of a task's settings; none also for a task with another plugin or without its collection, which is
/// reported elsewhere. Statements in them are for this database.
pub fn faults(task: &TaskDefinition, collections: &Collections, on: Dialect) -> Vec<Wrong> {
    let Some((rows, into, rules)) = judged(task) else { return Vec::new() };
    let mut all = besom_retention::faults(&rows, into.as_ref(), &rules);
    // An action that is none is reported with the other settings, and decides about these.
    if rules.action.is_empty() {
        all.retain(|wrong| !matches!(wrong.setting, "action" | "set"));
    }
    if let Some((rows, _)) = moved(task)
        && let Some(dependant) = collections.get(&rows).and_then(|rows| rows.dependants.first())
    {
        let message = format!(
            "rows of `{rows}` cannot be moved: rows of `{dependant}` refer to them (`dependants`), and would have to \
             be moved with them"
        );
        all.push(Wrong { setting: "action", range: None, message });
    }
    let (name, by) = (rows_of(task), text(task, "by"));
    let rows = collections.get(name);
    let kind = rows.and_then(|rows| rows.columns.get(by)).map(|column| column.kind);
    // The plugin does not know the table.
    for wrong in all.iter_mut().filter(|wrong| wrong.setting == "by") {
        match (rows, kind) {
            // Of a column that tells an age, only the index can be missing.
            (Some(rows), Some(Kind::Timestamp | Kind::Date)) => {
                let per = Some(text(task, "per")).filter(|per| rows.columns.contains_key(*per));
                let (create, views) = (index_for(rows, per, by, on), of_views(on));
                wrong.message =
                    format!("{}. If the table has none: {create} ({views})", wrong.message);
            }
            (Some(rows), Some(Kind::Float | Kind::Decimal)) => {
                let computed = computed_for(rows, by, on);
                wrong.message =
                    format!("{}, for example, of seconds since 1970: {computed}", wrong.message);
            }
            _ => {}
        }
    }
    all
}

/// What is true of views, which have no indexes.
fn of_views(on: Dialect) -> &'static str {
    match on {
        Dialect::Sqlite => "not for a view: Besom changes no rows of a view of SQLite",
        Dialect::Postgres => "of a view: on the table below it",
    }
}

/// The statement that adds a column with the instant of a number with a fraction.
fn computed_for(rows: &Collection, by: &str, on: Dialect) -> String {
    let (table, column) = (quoted(&rows.table), quoted(by));
    match on {
        Dialect::Sqlite => {
            let new = quoted(&format!("{by}_us"));
            format!(
                "ALTER TABLE {table} ADD COLUMN {new} INTEGER AS (CAST({column} * 1000000 AS INTEGER)), mapped as \
                 \"timestamp\""
            )
        }
        Dialect::Postgres => {
            let new = quoted(&format!("{by}_at"));
            format!(
                "ALTER TABLE {table} ADD COLUMN {new} timestamptz GENERATED ALWAYS AS \
                 (to_timestamp({column}::float8)) STORED, which writes the whole table, mapped as \"timestamp\""
            )
        }
    }
}

/// What a task's settings write out for columns of its rows: the collection, and for each setting a text, or NULL in
/// `set`.
pub fn written(task: &TaskDefinition) -> Option<(String, Vec<(&'static str, Written)>)> {
    let (rows, _, rules) = judged(task)?;
    let name = rows_of(task);
    Some((name.to_owned(), besom_retention::written(&rows, &rules)))
}

/// The columns that a task sets.
pub fn columns_set(task: &TaskDefinition) -> Vec<String> {
    judged(task)
        .map(|(rows, _, rules)| besom_retention::columns_set(&rows, &rules))
        .unwrap_or_default()
}

/// A comment for the mapping of a table of which no index begins with a timestamp or a date, after the column of the
/// groups if there is one; none: one does, or the table has no such column.
pub fn remark(rows: &Collection, per: Option<&str>, on: Dialect) -> Option<String> {
    let by = ages(rows).next()?;
    if ages(rows).any(|name| begins_an_index(rows, per, name)) {
        return None;
    }
    let begins = match per {
        None => "a timestamp or a date, as `retention` needs it unless its `where` or `per` names the columns".to_owned(),
        Some(per) => {
            format!("{per} and a timestamp or a date, as `retention` needs it unless its `where` names the columns")
        }
    };
    Some(format!("# no index begins with {begins} before it: {}", index_for(rows, per, by, on)))
}

/// The columns that can tell the age of a row.
fn ages(rows: &Collection) -> impl Iterator<Item = &str> {
    let tells = |column: &Column| matches!(column.kind, Kind::Timestamp | Kind::Date);
    rows.columns.iter().filter(move |(_, column)| tells(column)).map(|(name, _)| name.as_str())
}

/// Whether an index begins with this column, after the tenant and the column of the groups.
fn begins_an_index(rows: &Collection, per: Option<&str>, column: &str) -> bool {
    let wanted: Vec<&str> = per.into_iter().chain([column]).collect();
    let mut all = std::iter::once(&rows.key).chain(rows.indexes.values());
    all.any(|columns| {
        columns.iter().map(String::as_str).take(wanted.len()).eq(wanted.iter().copied())
    })
}

/// The column that tells the age of the rows: the only timestamp or date, or else the only one with which an index
/// begins, after the column of the groups.
///
/// # Errors
/// The columns to choose from, as a sentence.
pub fn age_of<'a>(rows: &'a Collection, per: Option<&str>) -> Result<&'a str, String> {
    let all: Vec<&str> = ages(rows).collect();
    let read: Vec<&str> = ages(rows).filter(|name| begins_an_index(rows, per, name)).collect();
    let (among, note) = match (&all[..], &read[..]) {
        ([], _) => {
            return Err(
                "no column of it is a timestamp or a date, by which rows have an age".into()
            );
        }
        ([one], _) | (_, [one]) => return Ok(one),
        (all, []) => (all, " (no index begins with one of them)"),
        (_, read) => (read, ""),
    };
    let among: Vec<String> = among.iter().map(|name| format!("`{name}`")).collect();
    let among = among.join(", ");
    Err(format!("name the column that tells the age of a row with --by: {among}{note}"))
}

/// The statement that creates an index for reads by this column: with the tenant and the column of the groups before
/// it, and the key after it.
fn index_for(rows: &Collection, per: Option<&str>, by: &str, on: Dialect) -> String {
    let first: Vec<String> = per.into_iter().chain([by]).map(str::to_owned).collect();
    let order = rows.order_of(&first);
    let columns: Vec<String> = rows.tenant.iter().chain(&order).map(|name| quoted(name)).collect();
    let table = rows.table.rsplit('.').next().unwrap_or_default();
    let (name, columns) = (quoted(&format!("{table}_by_{}", first.join("_"))), columns.join(", "));
    let beside = match on {
        Dialect::Sqlite => "",
        // Others write to the table meanwhile.
        Dialect::Postgres => "CONCURRENTLY ",
    };
    format!("CREATE INDEX {beside}{name} ON {} ({columns})", quoted(&rows.table))
}

/// The collection whose rows a task changes by ranges, as it would at this time; none: each row is an item.
pub fn in_ranges(task: &TaskDefinition, now: Time) -> Option<String> {
    let older_than = age(task).saturating_mul(1_000);
    let plan = plan_of(task)?.ok()?;
    let oldest = now.0.saturating_sub(older_than);
    let rows = rows_of(task);
    plan.is_in_sets(number(task, "chunk")?, now.0, oldest).then(|| rows.to_owned())
}

/// Which rows a task takes at this time, in words: `rows of events with at before 2026-01-31T08:00:00Z, where kind !=
/// 'purchase'`; none: it has another plugin.
pub fn rule(task: &TaskDefinition, at: Time) -> Option<String> {
    let by = Some(text(task, "by")).filter(|by| task.plugin == RETENTION && !by.is_empty())?;
    let age = age(task).saturating_mul(1_000);
    let before = Time(at.0.saturating_sub(age));
    let mut rule = format!("rows of {} with {by} before {before}", rows_of(task));
    match (keep(task), text(task, "per")) {
        (0, _) => {}
        (keep, "") => rule.push_str(&format!(", beyond the newest {keep}")),
        (keep, per) => rule.push_str(&format!(", beyond the newest {keep} of each {per}")),
    }
    match text(task, "where") {
        "" => {}
        condition => rule.push_str(&format!(", where {condition}")),
    }
    Some(rule)
}

/// What the name of a column says of its instants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    /// Something has happened then.
    Past,
    /// Something expires then.
    Expiry,
    /// It does not say when its rows may go.
    Nothing,
}

/// Words in the names of columns that hold when something has happened.
const PAST: [&str; 30] = [
    "created",
    "creation",
    "inserted",
    "updated",
    "modified",
    "changed",
    "started",
    "begun",
    "added",
    "registered",
    "joined",
    "received",
    "sent",
    "posted",
    "logged",
    "occurred",
    "happened",
    "recorded",
    "finished",
    "completed",
    "closed",
    "ended",
    "failed",
    "seen",
    "visited",
    "accessed",
    "used",
    "read",
    "deleted",
    "last",
];

/// Words in the names of columns that hold an expiry, whatever the other words are.
const EXPIRY: [&str; 12] = [
    "expire",
    "expires",
    "expired",
    "expiry",
    "expiration",
    "exp",
    "until",
    "ttl",
    "due",
    "valid",
    "purge",
    "after",
];

/// What the name of a column says of its instants.
fn says(column: &str) -> Says {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in column.chars() {
        // createdAt and created_at have the same words.
        if !c.is_alphanumeric() || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphanumeric()) {
            word.extend(c.to_lowercase());
        }
    }
    let any = |of: &[&str]| words.iter().any(|word| of.contains(&word.as_str()));
    match (any(&EXPIRY), any(&PAST)) {
        (true, _) => Says::Expiry,
        (false, true) => Says::Past,
        (false, false) => Says::Nothing,
    }
}

/// A task that takes every row up to now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpToNow {
    /// The collection of the rows.
    pub rows: String,
    /// The column that tells their age.
    pub by: String,
    /// What its name says.
    pub says: Says,
    /// What is done with the rows: `deleted`.
    pub done: &'static str,
}

/// A task of which all rows are old enough as soon as their instant has passed; none: they have to be older, the
/// newest of them stay, or it has another plugin.
pub fn up_to_now(task: &TaskDefinition) -> Option<UpToNow> {
    let by = Some(text(task, "by")).filter(|by| task.plugin == RETENTION && !by.is_empty())?;
    if age(task) != 0 || keep(task) != 0 {
        return None;
    }
    Some(UpToNow {
        rows: rows_of(task).to_owned(),
        by: by.to_owned(),
        says: says(by),
        done: match text(task, "action") {
            "set" => "changed",
            "archive" => "moved",
            _ => "deleted",
        },
    })
}

/// The plan of a task; none: it has another plugin, or lacks its collection or `by`.
fn plan_of(task: &TaskDefinition) -> Option<Result<Plan, Wrong>> {
    let (rows, into, rules) = judged(task)?;
    // A missing setting is reported with the others.
    (!rules.by.is_empty()).then(|| plan(&rows, into.as_ref(), &rules))
}

/// The collections and settings of a task; none: it has another plugin, or lacks its collection.
fn judged(task: &TaskDefinition) -> Option<(Described, Option<Described>, Rules)> {
    if task.plugin != RETENTION {
        return None;
    }
    let partial = |(name, columns, not_null): &(String, Vec<String>, Vec<String>)| PartialIndex {
        name: name.clone(),
        columns: columns.clone(),
        not_null: not_null.clone(),
    };
    let described = |of: &guests::Described| Described {
        collection: of.collection.clone(),
        key: of.key.clone(),
        columns: of.columns.clone(),
        indexes: of.indexes.clone(),
        partial: of.partial.iter().map(partial).collect(),
    };
    let of = |name: &str| task.described.iter().find(|one| one.collection == name).map(described);
    let text = |name: &str| text(task, name).to_owned();
    let rules = Rules {
        by: text("by"),
        index: text("index"),
        condition: text("where"),
        action: text("action"),
        set: text("set"),
        keep: keep(task),
        per: text("per"),
        chunk: number(task, "chunk").unwrap_or(0),
    };
    Some((of(ROWS)?, of(INTO), rules))
}

/// The collection of the rows of a task.
fn rows_of(task: &TaskDefinition) -> &str {
    task.aliases.get(ROWS).map_or(ROWS, String::as_str)
}

/// How old the rows of a task are at least, in milliseconds.
fn age(task: &TaskDefinition) -> i64 {
    number(task, "older_than").unwrap_or(0)
}

/// How many of the newest rows of each group stay.
fn keep(task: &TaskDefinition) -> i64 {
    number(task, "keep").unwrap_or(0)
}

/// A setting that is a number.
fn number(task: &TaskDefinition, name: &str) -> Option<i64> {
    let field = task.settings.iter().find(|field| field.name == name)?;
    if let Value::Integer(number) = field.value { Some(number) } else { None }
}

/// A setting that is a text; empty: the task does not have it.
fn text<'a>(task: &'a TaskDefinition, name: &str) -> &'a str {
    let field = task.settings.iter().find(|field| field.name == name);
    match field.map(|field| &field.value) {
        Some(Value::Text(text)) => text,
        _ => "",
    }
}
