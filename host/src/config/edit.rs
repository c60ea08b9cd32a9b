//! Changing a task's keys in the text of a `besom.toml`.
//!
//! Decided here: what the new text is, what differs, and whether it may be saved. The text
//! keeps its comments, order, quotes and line ends (`splice`), and is judged by the code
//! that a host loads its file with. Not decided here: where the text comes from and how it is
//! put back ([`super::file`]).

mod splice;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use besom_core::collection::Collections;
use besom_core::cron::{self, Schedule};
use besom_core::ids::TaskName;
use besom_core::time::Time;
use serde::{Deserialize, Serialize};

use super::diagnostic::{Diagnostic, Place, Problems, Source};
use super::hunk::{self, Hunk};
use super::keys::suggestion;
use super::resolve::{Overrides, Parsed, RawConfig, TaskOutline};
use super::schedule::remark;
use super::tree::{self, Node, Table};
use super::{limits, task};
use splice::{Nowhere, Written};

/// A key of a task that can be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Field {
    /// When it runs.
    Schedule,
    /// Where the schedule's clock hangs.
    Timezone,
    /// What becomes of a slot while the run before is active.
    Overlap,
    /// What becomes of slots that passed while nobody led.
    CatchUp,
    /// How many of these are run at most.
    CatchUpMax,
    /// How late a run may start after its slot.
    Jitter,
    /// Wall-clock time of one call of the plugin.
    Wall,
}

impl Field {
    /// All of them, in the order in which they are written.
    pub const ALL: [Field; 7] = [
        Field::Schedule,
        Field::Timezone,
        Field::Overlap,
        Field::CatchUp,
        Field::CatchUpMax,
        Field::Jitter,
        Field::Wall,
    ];

    /// Its key, below the task's table.
    pub fn path(self) -> &'static [&'static str] {
        match self {
            Field::Schedule => &["schedule"],
            Field::Timezone => &["timezone"],
            Field::Overlap => &["overlap"],
            Field::CatchUp => &["catch_up"],
            Field::CatchUpMax => &["catch_up_max"],
            Field::Jitter => &["jitter"],
            Field::Wall => &["limits", "wall"],
        }
    }

    /// The field of that key, written with dots.
    pub fn named(key: &str) -> Option<Field> {
        Field::ALL.into_iter().find(|field| field.name() == key)
    }

    /// The same with dots.
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

/// What a key is to be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The key.
    pub field: Field,
    /// Its value, without quotes; none: it is removed, and its default counts.
    pub value: Option<String>,
}

/// The text that is edited, and what stands around it.
#[derive(Debug, Clone, Copy)]
pub struct Base<'a> {
    /// The text.
    pub text: &'a str,
    /// The name of its file, for messages.
    pub origin: &'a Path,
    /// What stands above it.
    pub overrides: &'a Overrides,
    /// The collections that need not be in it, by the plugins that it names.
    pub collections: fn(&[&str]) -> Collections,
    /// The present: what the clocks will do to a schedule is told from it on.
    pub now: Time,
}

/// Why there is no new text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The text is no TOML.
    #[error("{0}")]
    Syntax(Problems),
    /// The text defines no such task.
    #[error("there is no task `{task}` in the file; {fix}")]
    NoTask {
        /// The name that was given.
        task: TaskName,
        /// A name that is like it, or all there are.
        fix: String,
    },
    /// The table is written in a way that cannot be changed by itself.
    #[error("`{key}` of `{task}` cannot be changed without rewriting the file: edit it by hand")]
    Layout {
        /// The task.
        task: TaskName,
        /// The key, with dots.
        key: String,
    },
}

/// What is wrong inside a value that was given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fault {
    /// The key.
    pub field: Field,
    /// The bytes of the value that are wrong; empty only where something is missing.
    pub range: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub fix: Option<String>,
}

/// What is said of the new text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What, and where.
    pub diagnostic: Diagnostic,
    /// Whether it stands in the edited task.
    pub of_task: bool,
    /// Whether it was not said of the old text.
    pub new: bool,
}

impl Finding {
    /// Whether the new text may not be saved because of it.
    pub fn is_in_the_way(&self) -> bool {
        self.diagnostic.is_error() && (self.of_task || self.new)
    }
}

/// A text that was edited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edited {
    /// The new text.
    pub text: String,
    /// What differs from the old one; empty: nothing does.
    pub hunks: Vec<Hunk>,
    /// What is wrong inside the given values.
    pub faults: Vec<Fault>,
    /// What is said of the new text, as the file is read.
    pub findings: Vec<Finding>,
    /// What the old text says of the task.
    pub before: TaskOutline,
    /// What the new one says.
    pub after: TaskOutline,
}

impl Edited {
    /// What hinders the new text from being saved.
    pub fn in_the_way(&self) -> Vec<Diagnostic> {
        let findings = self.findings.iter().filter(|finding| finding.is_in_the_way());
        findings.map(|finding| finding.diagnostic.clone()).collect()
    }
}

/// The keys of a task as a text has them, without quotes; none: it has no such task.
pub fn current(text: &str, task: &TaskName) -> Option<BTreeMap<Field, String>> {
    let (root, _) = tree::parse(&Source::new("", text));
    let table = task_table(&root, task)?;
    let value = |field: Field| -> Option<String> {
        let (last, tables) = field.path().split_last()?;
        let table = tables.iter().try_fold(table, |table, key| inner(table, key))?;
        match &table.get(last)?.node {
            Node::Text(text) => Some(text.clone()),
            Node::Integer(number) => Some(number.to_string()),
            _ => None,
        }
    };
    Some(Field::ALL.into_iter().filter_map(|field| Some((field, value(field)?))).collect())
}

/// What became of the keys of a task from one text to another, in a line.
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

/// What is wrong inside values, before they are anywhere: for whoever is still typing.
/// `timezone` is the zone in which a schedule is read where the changes name none.
pub fn faults(changes: &[Change], timezone: &str) -> Vec<Fault> {
    let value =
        |field: Field| changes.iter().rev().find(|change| change.field == field)?.value.as_deref();
    let mut faults = Vec::new();
    for field in Field::ALL {
        let Some(text) = value(field) else { continue };
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
        } else if let Err(fault) =
            field.judge(&as_written(field, text).unwrap_or_else(str::to_owned))
        {
            let (message, fix) = (fault.message, fault.fix);
            faults.push(Fault { field, range: 0..text.len(), message, fix });
        }
    }
    faults
}

/// Changes keys of a task. The new text is returned even where it may not be saved
/// ([`Edited::in_the_way`]), so that it can be shown with what is wrong with it.
///
/// # Errors
/// There is no new text.
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

/// Writes the pin of a task's plugin.
///
/// # Errors
/// There is no new text.
pub fn pin(text: &str, task: &TaskName, digest: &str) -> Result<String, Refusal> {
    let key = || Refusal::Layout { task: task.clone(), key: task::PIN.to_owned() };
    let path = ["tasks", task.as_str(), task::PIN];
    let behind: Vec<Vec<&str>> =
        task::KEYS.iter().map(|known| vec!["tasks", task.as_str(), known.name]).collect();
    let new = splice::set(text, &path, Written::Text(digest), &behind);
    let new = new.map_err(|Nowhere| key())?;
    // Nothing but the pin may have changed, however the file is written.
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

/// A text as the host judges it, plugins aside.
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

/// The text with all changes made.
fn changed(text: &str, task: &TaskName, changes: &[Change]) -> Result<String, Refusal> {
    let layout = |field: Field| Refusal::Layout { task: task.clone(), key: field.name() };
    let mut new = text.to_owned();
    // In their order, so that each finds the one before it to stand behind; what is removed
    // goes last, and may have been stood behind.
    for field in Field::ALL {
        let last = changes.iter().rev().find(|change| change.field == field);
        if let Some(Change { value: Some(value), .. }) = last {
            let value = as_written(field, value);
            let value = match &value {
                Ok(number) => Written::Number(number),
                Err(text) => Written::Text(text),
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
    // Nothing but what was asked for may have changed, however the file is written.
    match changes.iter().rev().find(|change| !is_so(&new, task, change)) {
        Some(change) => Err(layout(change.field)),
        None if rest(text, task, changes) == rest(&new, task, changes) => Ok(new),
        None => Err(layout(changes.first().map_or(Field::Schedule, |change| change.field))),
    }
}

/// A value as a number, where it is one, or else as text: what should be a number and is
/// none gets quotes, and is refused for what it is.
fn as_written(field: Field, value: &str) -> Result<String, &str> {
    match (field, value.trim().parse::<i64>()) {
        (Field::CatchUpMax, Ok(number)) => Ok(number.to_string()),
        _ => Err(value),
    }
}

fn path(task: &TaskName, field: Field) -> Vec<&str> {
    [&["tasks", task.as_str()], field.path()].concat()
}

/// What a new key stands behind, the best place first: the last of those that are written
/// before it, of its own table and then of the task's.
fn anchors(task: &TaskName, field: Field) -> Vec<Vec<&str>> {
    let of_task = |key| vec!["tasks", task.as_str(), key];
    let plain: Vec<&str> = task::KEYS.iter().map(|key| key.name).collect();
    let mut anchors = Vec::new();
    let end = match field.path() {
        [key] => plain.iter().position(|known| known == key).unwrap_or(plain.len()),
        [table, key, ..] => {
            let known = limits::KEYS.iter().take_while(|known| known.name != *key);
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

/// Whether the text says what a change asks for.
fn is_so(text: &str, task: &TaskName, change: &Change) -> bool {
    let Some(current) = current(text, task) else { return false };
    let wanted = change.value.as_deref();
    let wanted = wanted.map(|value| as_written(change.field, value).unwrap_or_else(str::to_owned));
    current.get(&change.field) == wanted.as_ref()
}

/// A document without the changed keys.
fn rest(text: &str, task: &TaskName, changes: &[Change]) -> Option<toml::Table> {
    let mut root: toml::Table = toml::from_str(text).ok()?;
    for change in changes {
        take(&mut root, &path(task, change.field));
    }
    // A table that only the changed key needs may come and go.
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

/// What is said of the new text, beside what was said of the old one.
fn findings(old: &[Diagnostic], new: Vec<Diagnostic>, lines: &BTreeSet<usize>) -> Vec<Finding> {
    // Lines may have moved: what is said counts, and how often.
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

/// The lines that a task stands on.
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
