//! Edits the keys of a task in the text of a `besom.toml`.
//!
//! This module decides the new text, the difference, and whether the text may be saved. The text keeps
//! its comments, order, quotes and line endings (`splice`), and is validated by the code that loads the
//! file of a host. Reading and replacing the file is left to [`super::file`].

mod splice;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use besom_core::collection::Collections;
use besom_core::cron::{self, Schedule};
use besom_core::ids::TaskName;
use besom_core::time::Time;
use besom_core::window::Window;
use serde::{Deserialize, Serialize};

use super::diagnostic::{Diagnostic, Place, Problems, Source};
use super::hunk::{self, Hunk};
use super::keys::suggestion;
use super::limits::{self, LimitsTable};
use super::resolve::{Overrides, Parsed, RawConfig, TaskOutline};
use super::schedule::remark;
use super::task::{self, TaskTable};
use super::tree::{self, Node, Table};
use splice::{Nowhere, Written};

/// A key of a task that can be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// The schedule.
    Schedule,
    /// The time zone of the schedule.
    Timezone,
    /// What to do with a slot while the previous run is active.
    Overlap,
    /// What to do with slots that passed while no host led.
    CatchUp,
    /// Maximum number of passed slots that run.
    CatchUpMax,
    /// Maximum delay of a run after its slot.
    Jitter,
    /// How long rows are kept as they were.
    KeepRemoved,
    /// Maximum number, or part, of the rows that one run may delete.
    MaxDelete,
    /// When the task may scan and execute.
    Windows,
    /// How far a run goes by itself.
    Mode,
    /// Maximum wall-clock time of one call of the plugin.
    Wall,
}

impl Field {
    /// All fields, in the order in which they are written to the file.
    pub const ALL: [Field; 11] = [
        Field::Schedule,
        Field::Timezone,
        Field::Overlap,
        Field::CatchUp,
        Field::CatchUpMax,
        Field::Jitter,
        Field::KeepRemoved,
        Field::MaxDelete,
        Field::Windows,
        Field::Mode,
        Field::Wall,
    ];

    /// The path of the key, relative to the table of the task.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Field::Schedule => &["schedule"],
            Field::Timezone => &["timezone"],
            Field::Overlap => &["overlap"],
            Field::CatchUp => &["catch_up"],
            Field::CatchUpMax => &["catch_up_max"],
            Field::Jitter => &["jitter"],
            Field::KeepRemoved => &["keep_removed"],
            Field::MaxDelete => &["max_delete"],
            Field::Windows => &["windows"],
            Field::Mode => &["mode"],
            Field::Wall => &["limits", "wall"],
        }
    }

    /// Returns the field with this dotted name.
    pub fn named(key: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == key)
    }

    /// The dotted name of the key, such as `limits.wall`.
    pub fn name(self) -> String {
        self.path().join(".")
    }

    fn judge(self, text: &str) -> Result<(), super::keys::Fault> {
        match self.path() {
            [key] => task::judge(key, text),
            [_, key, ..] => limits::judge(key, text),
            [] => Ok(()),
        }
    }
}

/// A requested change of one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The key to change.
    pub field: Field,
    /// The new value without quotes, of several windows separated by `;`; `None` removes the key, so that its default
    /// applies.
    pub value: Option<String>,
}

/// The text to edit, and the context in which it is validated.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// The text of the file.
    pub text: &'a str,
    /// Path of the file, for messages.
    pub origin: &'a Path,
    /// Environment and flags that override the file.
    pub overrides: &'a Overrides,
    /// Returns the default collections for the plugins that the text names.
    pub collections: fn(&[&str]) -> Collections,
    /// The current time; clock changes after it are checked against the schedule.
    pub now: Time,
}

/// Why a text cannot be edited.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text is not valid TOML.
    #[error("{0}")]
    Syntax(Problems),
    /// The text defines no such task.
    #[error("there is no task `{task}` in the file; {fix}")]
    NoTask {
        /// The name given by the caller.
        task: TaskName,
        /// The closest name, or all names.
        fix: String,
    },
    /// The layout of the table does not allow changing only this key.
    #[error(
        "`{key}` of `{task}` cannot be changed without rewriting the file: edit the file by hand"
    )]
    Layout {
        /// The edited task.
        task: TaskName,
        /// The dotted key.
        key: String,
    },
}

/// A fault inside a given value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The key of the value.
    pub field: Field,
    /// The invalid bytes of the value; empty only if something is missing there.
    pub range: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: Option<String>,
}

/// A diagnostic of the new text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The diagnostic with its place.
    pub diagnostic: Diagnostic,
    /// Whether its place is in the edited task.
    pub of_task: bool,
    /// Whether the old text did not have it.
    pub new: bool,
}

impl Finding {
    /// Whether it blocks saving: an error that is new, or that is in the edited task. Existing errors
    /// elsewhere do not block the edit.
    pub fn is_in_the_way(&self) -> bool {
        self.diagnostic.is_error() && (self.of_task || self.new)
    }
}

/// The result of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The new text.
    pub text: String,
    /// The difference from the old text; empty if nothing changes.
    pub hunks: Vec<Hunk>,
    /// Faults inside the given values.
    pub faults: Vec<Fault>,
    /// Diagnostics of the new text, in the order of the file.
    pub findings: Vec<Finding>,
    /// The task in the old text.
    pub before: TaskOutline,
    /// The task in the new text.
    pub after: TaskOutline,
}

impl Edited {
    /// The diagnostics that block saving the new text.
    pub fn in_the_way(&self) -> Vec<Diagnostic> {
        let findings = self.findings.iter().filter(|finding| finding.is_in_the_way());
        findings.map(|finding| finding.diagnostic.clone()).collect()
    }
}

/// Returns the keys of a task in a text, without quotes; `None` if the text has no such task.
pub fn current(text: &str, task: &TaskName) -> Option<BTreeMap<Field, String>> {
    let (root, _) = tree::parse(&Source::new("", text));
    let table = task_table(&root, task)?;
    let value = |field: Field| -> Option<String> {
        let (last, tables) = field.path().split_last()?;
        let table = tables.iter().try_fold(table, |table, key| inner(table, key))?;
        match &table.get(last)?.node {
            Node::Text(text) => Some(text.clone()),
            Node::Integer(number) => Some(number.to_string()),
            Node::Array(entries) => {
                let text = |(_, node): &(_, Node)| match node {
                    Node::Text(text) => Some(text.clone()),
                    _ => None,
                };
                let texts: Option<Vec<String>> = entries.iter().map(text).collect();
                texts.map(|texts| texts.join(BETWEEN))
            }
            _ => None,
        }
    };
    Some(Field::ALL.into_iter().filter_map(|field| Some((field, value(field)?))).collect())
}

/// Describes in one line how the keys of a task differ between two texts.
pub fn summary(old: &str, new: &str, task: &TaskName) -> String {
    let (old, new) = (current(old, task), current(new, task));
    let (old, new) = (old.unwrap_or_default(), new.unwrap_or_default());
    let value = |value: Option<&String>| {
        value.map_or_else(|| "(default)".to_owned(), |value| format!("\"{value}\""))
    };
    let changed = Field::ALL.into_iter().filter(|field| old.get(field) != new.get(field));
    let words = changed.map(|field| {
        format!("{} {} -> {}", field.name(), value(old.get(&field)), value(new.get(&field)))
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Returns the faults inside the values of `changes`, without applying them, for input that is still being
/// typed. `timezone` is used for a schedule if the changes do not set one.
pub fn faults(changes: &[Change], timezone: &str) -> Vec<Fault> {
    let value =
        |field: Field| changes.iter().rev().find(|change| change.field == field)?.value.as_deref();
    let mut faults = Vec::new();
    for field in Field::ALL {
        let Some(text) = value(field) else { continue };
        if field == Field::Windows {
            let zone = value(Field::Timezone).unwrap_or(timezone);
            let fault = parts(text).into_iter().find_map(|window| Window::read(window, zone).err());
            faults.extend(fault.map(|message| Fault {
                field,
                range: 0..text.len(),
                message,
                fix: None,
            }));
            continue;
        }
        let error = match field {
            Field::Schedule => Schedule::parse(text, value(Field::Timezone).unwrap_or(timezone))
                .err()
                .filter(|error| error.place == cron::Place::Expression),
            Field::Timezone => Schedule::parse("@daily", text).err(),
            _ => None,
        };
        if let Some(error) = error {
            let (message, fix) = (error.message, Some(error.fix));
            faults.push(Fault { field, range: error.range, message, fix });
        } else if let Err(fault) = field.judge(&normal(field, text)) {
            let (message, fix) = (fault.message, fault.fix);
            faults.push(Fault { field, range: 0..text.len(), message, fix });
        }
    }
    faults
}

/// Changes keys of a task. Returns the new text even if it must not be saved ([`Edited::in_the_way`]), so
/// that it can be shown with its diagnostics.
///
/// # Errors
/// Invalid TOML, an unknown task, or a layout in which the keys cannot be changed alone.
pub fn edit(base: &Base<'_>, task: &TaskName, changes: &[Change]) -> Result<Edited, Refusal> {
    let old = judged(base, base.text, task);
    let before = old.outlines.get(task).cloned();
    if old.is_broken() {
        return Err(Refusal::Syntax(Problems(old.syntax)));
    }
    let Some(before) = before else {
        let fix = suggestion(task.as_str(), old.outlines.keys().map(TaskName::as_str));
        return Err(Refusal::NoTask { task: task.clone(), fix });
    };
    let text = changed(base.text, task, changes)?;
    let new = judged(base, &text, task);
    let after = new.outlines.get(task).cloned().unwrap_or_else(|| before.clone());
    Ok(Edited {
        hunks: hunk::hunks(base.text, &text),
        faults: faults(changes, &after.timezone),
        findings: findings(&old.problems, new.problems, &lines_of(&new.source, task)),
        before,
        after,
        text,
    })
}

/// Sets the pin of the plugin of a task and returns the new text.
///
/// # Errors
/// Invalid TOML, or a layout in which the pin cannot be written alone.
pub fn pin(text: &str, task: &TaskName, digest: &str) -> Result<String, Refusal> {
    let key = || Refusal::Layout { task: task.clone(), key: task::PIN.to_owned() };
    let path = ["tasks", task.as_str(), task::PIN];
    let behind: Vec<Vec<&str>> =
        TaskTable::KEYS.iter().map(|known| vec!["tasks", task.as_str(), known.name]).collect();
    let new = splice::set(text, &path, Written::Text(digest), &behind);
    let new = new.map_err(|Nowhere| key())?;
    // Verifies that nothing but the pin has changed, whatever the layout of the file.
    let without = |text: &str| {
        let mut root: toml::Table = toml::from_str(text).ok()?;
        take(&mut root, &path);
        Some(root)
    };
    let (root, _) = tree::parse(&Source::new("", new.as_str()));
    let written = task_table(&root, task).and_then(|table| table.get(task::PIN));
    match written.map(|entry| &entry.node) {
        Some(Node::Text(pin)) if pin == digest && without(text) == without(&new) => Ok(new),
        _ => Err(key()),
    }
}

/// A text with the diagnostics that a host would report, except those of plugins.
struct Judged {
    source: Source,
    syntax: Vec<Diagnostic>,
    problems: Vec<Diagnostic>,
    outlines: BTreeMap<TaskName, TaskOutline>,
}

impl Judged {
    fn is_broken(&self) -> bool {
        self.syntax.iter().any(Diagnostic::is_error)
    }
}

fn judged(base: &Base<'_>, text: &str, task: &TaskName) -> Judged {
    let source = Source::new(base.origin.display().to_string(), text);
    let (_, syntax) = tree::parse(&source);
    let parsed: Parsed = RawConfig::parse(text, base.origin, base.overrides);
    let outlines = parsed.outlines();
    let model = (base.collections)(&parsed.plugins());
    let mut resolved = parsed.outline(&model);
    if let Some(outline) = outlines.get(task)
        && let Some(expression) = &outline.schedule
        && let Some((warning, fix)) = remark(expression, &outline.timezone, base.now)
    {
        resolved.warn_schedule(task, warning, fix);
    }
    let mut problems = resolved.problems().to_vec();
    problems.sort_by_key(Diagnostic::order);
    problems.dedup();
    Judged { source, syntax, problems, outlines }
}

/// Applies all changes to the text.
fn changed(text: &str, task: &TaskName, changes: &[Change]) -> Result<String, Refusal> {
    let layout = |field: Field| Refusal::Layout { task: task.clone(), key: field.name() };
    let mut new = text.to_owned();
    // Sets keys in order, so that each can be placed after the previous one. Removes keys last, because
    // a removed key may still serve as the anchor of a new one.
    for field in Field::ALL {
        let last = changes.iter().rev().find(|change| change.field == field);
        if let Some(Change { value: Some(value), .. }) = last {
            let value = normal(field, value);
            let list = parts(&value);
            let value = match field {
                Field::Windows => Written::List(&list),
                Field::CatchUpMax | Field::MaxDelete if value.parse::<i64>().is_ok() => {
                    Written::Number(&value)
                }
                _ => Written::Text(&value),
            };
            let done = splice::set(&new, &path(task, field), value, &anchors(task, field));
            new = done.map_err(|Nowhere| layout(field))?;
        }
    }
    for field in Field::ALL {
        let last = changes.iter().rev().find(|change| change.field == field);
        if let Some(Change { value: None, .. }) = last {
            new = splice::remove(&new, &path(task, field)).map_err(|Nowhere| layout(field))?;
        }
    }
    // Verifies that only the requested keys have changed, whatever the layout of the file.
    match changes.iter().rev().find(|change| !is_so(&new, task, change)) {
        Some(change) => Err(layout(change.field)),
        None if rest(text, task, changes) == rest(&new, task, changes) => Ok(new),
        None => Err(layout(changes.first().map_or(Field::Schedule, |change| change.field))),
    }
}

/// What separates windows in a value.
const BETWEEN: &str = "; ";

/// The windows of a value.
fn parts(value: &str) -> Vec<&str> {
    value.split(';').map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// A value as [`current`] returns it once it is in the file. An invalid number is written as a string, and
/// validation then refuses it.
fn normal(field: Field, value: &str) -> String {
    match (field, value.trim().parse::<i64>()) {
        (Field::CatchUpMax | Field::MaxDelete, Ok(number)) => number.to_string(),
        (Field::Windows, _) => parts(value).join(BETWEEN),
        _ => value.to_owned(),
    }
}

fn path(task: &TaskName, field: Field) -> Vec<&str> {
    [&["tasks", task.as_str()], field.path()].concat()
}

/// Returns the keys after which a new key may be placed, best first: the preceding keys of its own table,
/// then those of the task.
fn anchors(task: &TaskName, field: Field) -> Vec<Vec<&str>> {
    let of_task = |key| vec!["tasks", task.as_str(), key];
    let plain: Vec<&str> = TaskTable::KEYS.iter().map(|key| key.name).collect();
    let mut anchors = Vec::new();
    let end = match field.path() {
        [key] => plain.iter().position(|known| known == key).unwrap_or(plain.len()),
        [table, key, ..] => {
            let known = LimitsTable::KEYS.iter().take_while(|known| known.name != *key);
            anchors.extend(known.map(|known| vec!["tasks", task.as_str(), table, known.name]));
            anchors.reverse();
            plain.len()
        }
        [] => 0,
    };
    anchors.extend(plain[..end].iter().rev().map(|key| of_task(key)));
    anchors.extend(plain[end..].iter().map(|key| of_task(key)));
    anchors
}

/// Whether the text contains the requested change.
fn is_so(text: &str, task: &TaskName, change: &Change) -> bool {
    let Some(current) = current(text, task) else { return false };
    let wanted = change.value.as_deref();
    let wanted = wanted.map(|value| normal(change.field, value));
    current.get(&change.field) == wanted.as_ref()
}

/// Returns the document without the changed keys.
fn rest(text: &str, task: &TaskName, changes: &[Change]) -> Option<toml::Table> {
    let mut root: toml::Table = toml::from_str(text).ok()?;
    for change in changes {
        take(&mut root, &path(task, change.field));
    }
    // A `limits` table that contained only the changed key may appear or disappear.
    if let Some(toml::Value::Table(tasks)) = root.get_mut("tasks")
        && let Some(toml::Value::Table(task)) = tasks.get_mut(task.as_str())
        && let Some(toml::Value::Table(limits)) = task.get("limits")
        && limits.is_empty()
    {
        task.remove("limits");
    }
    Some(root)
}

fn take(table: &mut toml::Table, path: &[&str]) {
    match path {
        [] => {}
        [last] => {
            table.remove(*last);
        }
        [first, rest @ ..] => {
            if let Some(toml::Value::Table(inner)) = table.get_mut(*first) {
                take(inner, rest);
            }
        }
    }
}

/// Marks each diagnostic of the new text as new or already present in the old text.
fn findings(old: &[Diagnostic], new: Vec<Diagnostic>, lines: &BTreeSet<usize>) -> Vec<Finding> {
    // Lines may have moved, so messages and their number are compared instead of places.
    let mut known: Vec<&Diagnostic> = old.iter().collect();
    let finding = |diagnostic: Diagnostic| {
        let same = |other: &&Diagnostic| {
            (other.severity, &other.message) == (diagnostic.severity, &diagnostic.message)
        };
        let before = known.iter().position(same);
        let new = before.map(|at| known.swap_remove(at)).is_none();
        let of_task = matches!(diagnostic.place, Place::Line { line, .. } if lines.contains(&line));
        Finding { diagnostic, of_task, new }
    };
    new.into_iter().map(finding).collect()
}

fn inner<'t>(table: &'t Table, key: &str) -> Option<&'t Table> {
    match &table.get(key)?.node {
        Node::Table(table) => Some(table),
        _ => None,
    }
}

fn task_table<'t>(root: &'t Table, task: &TaskName) -> Option<&'t Table> {
    inner(inner(root, "tasks")?, task.as_str())
}

/// Returns the numbers of the lines that define a task.
fn lines_of(source: &Source, task: &TaskName) -> BTreeSet<usize> {
    let (root, _) = tree::parse(source);
    let mut lines = BTreeSet::new();
    let entry = inner(&root, "tasks").and_then(|tasks| tasks.get(task.as_str()));
    if let Some(entry) = entry {
        add_line(source, &entry.key_span, &mut lines);
        if let Node::Table(table) = &entry.node {
            add_lines(source, table, &mut lines);
        }
    }
    lines
}

fn add_lines(source: &Source, table: &Table, lines: &mut BTreeSet<usize>) {
    for entry in &table.0 {
        add_line(source, &entry.key_span, lines);
        add_line(source, &entry.span, lines);
        if let Node::Table(table) = &entry.node {
            add_lines(source, table, lines);
        }
    }
}

fn add_line(source: &Source, span: &Range<usize>, lines: &mut BTreeSet<usize>) {
    if let Place::Line { line, .. } = source.at(span) {
        lines.insert(line);
    }
}

#[cfg(test)]
mod tests;
