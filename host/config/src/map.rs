//! The section of a table: what `besom config map` prints, and adds to the file.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use besom_core::collection::{Anchor, Collection, Collections, Column, Encoding};
use besom_ports::shape::Shape;

use super::collection::{ENCODINGS, name_of};
use super::diagnostic::{Diagnostic, Source, printable};
use super::keys::{quoted, written};
use super::quantity::show_duration;
use super::resolve::{Overrides, RawConfig};
use super::task::is_of_a_name;
use super::tree;

/// The section of a collection that was made from a table, with comments about what a person has to know.
pub fn section(shape: &Shape, collection: &Collection) -> String {
    let Collection { name, table, tenant, key, columns, indexes, not_null, anchors, .. } =
        collection;
    let head = format!("collections.{}", written(name));
    let mut text = format!("[{head}]\n");
    // Writing to a text cannot fail.
    if table != name {
        let _ = writeln!(text, "table = {}", quoted(table));
    }
    match (tenant, shape.likely_tenant()) {
        (Some(tenant), _) => {
            let _ = writeln!(text, "tenant = {}", quoted(tenant));
        }
        (None, Some(likely)) => {
            let likely = printable(likely);
            let _ = writeln!(text, "# If {likely} names the tenant of a row: --tenant {likely}");
        }
        (None, None) => {}
    }
    let _ = writeln!(text, "key = {}", list(key));
    for reference in &shape.references {
        let (own, to) = (reference.columns.join(", "), reference.theirs.join(", "));
        let to = if to.is_empty() { String::new() } else { format!(" ({to})") };
        let stays = match reference.clears {
            true => {
                "; no anchor: the row stays, without the reference, when the other one is deleted"
            }
            false => "",
        };
        let line = format!("foreign key: {own} refers to {}{to}{stays}", reference.table);
        let _ = writeln!(text, "# {}", printable(&line));
    }
    let anchor = |anchor: &Anchor| {
        let (to, columns) = (quoted(&anchor.collection), list(&anchor.columns));
        format!("{{ collection = {to}, columns = {columns} }}")
    };
    let _ = match &anchors[..] {
        [] => Ok(()),
        [one] => writeln!(text, "anchor = {}", anchor(one)),
        several => {
            let all: Vec<String> = several.iter().map(anchor).collect();
            writeln!(text, "anchor = [{}]", all.join(", "))
        }
    };
    for index in &shape.partial {
        let line = format!("the index {index} covers only some of the rows, and is not used");
        let _ = writeln!(text, "# {}", printable(&line));
    }
    let _ = writeln!(text, "\n[{head}.columns]");
    for found in shape.columns.iter().filter(|found| Some(&found.name) != tenant.as_ref()) {
        let declared = match found.declared.as_str() {
            "" => "no declared type".to_owned(),
            declared => printable(declared),
        };
        let remark = found
            .remark
            .as_ref()
            .map_or_else(String::new, |remark| format!("; {}", printable(remark)));
        let _ = match columns.get(&found.name) {
            Some(column) => {
                writeln!(text, "{} = {}  # {declared}{remark}", written(&found.name), kind(*column))
            }
            None => {
                writeln!(text, "# {} is not mapped: {declared}{remark}", printable(&found.name))
            }
        };
    }
    if !indexes.is_empty() {
        let _ = writeln!(text, "\n[{head}.indexes]");
        for (name, columns) in indexes {
            let columns = list(columns);
            let _ = match &not_null.get(name) {
                None => writeln!(text, "{} = {columns}", written(name)),
                Some(not_null) => {
                    let not_null = list(not_null);
                    let name = written(name);
                    writeln!(text, "{name} = {{ columns = {columns}, not_null = {not_null} }}")
                }
            };
        }
    }
    text
}

/// Which rows a task of `retention` deletes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// How old they are at least.
    pub older_than: Option<Duration>,
    /// How many of the newest rows stay.
    pub keep: Option<u32>,
    /// The column of which each value has its own newest rows.
    pub per: Option<String>,
}

impl Rule {
    /// Whether it says which rows go.
    pub fn is_given(&self) -> bool {
        self.older_than.is_some() || self.keep.is_some()
    }
}

/// A task of `retention` for a collection. Without a mode, it only shows what it would delete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retaining {
    /// Name of the task.
    pub task: String,
    /// The column that tells the age of a row.
    pub by: String,
    /// Which rows it deletes.
    pub rule: Rule,
}

impl Retaining {
    /// The task, named by the collection.
    pub fn of(collection: &str, by: String, rule: Rule) -> Retaining {
        let named = collection.chars().map(|c| if is_of_a_name(c) { c } else { '-' });
        Retaining { task: format!("old-{}", named.collect::<String>()), by, rule }
    }

    /// The section of the task.
    pub fn section(&self, collection: &str) -> String {
        let Retaining { task, by, rule } = self;
        let (task, rows) = (written(task), quoted(collection));
        let mut settings = format!("by = {}", quoted(by));
        if let Some(span) = rule.older_than {
            settings.push_str(&format!(", older_than = \"{}\"", show_duration(span)));
        }
        if let Some(keep) = rule.keep {
            settings.push_str(&format!(", keep = {keep}"));
        }
        if let Some(per) = &rule.per {
            settings.push_str(&format!(", per = {}", quoted(per)));
        }
        format!(
            "[tasks.{task}]  # without a mode, it only shows what it would delete\nplugin = \"retention\"\nschedule = \
             \"@hourly\"\ncollections.rows = {rows}\nsettings = {{ {settings} }}\n"
        )
    }
}

/// The anchors of a collection: its foreign keys to the keys of mapped tables. Not those with `ON DELETE SET NULL`:
/// as dependants, these rows would be deleted, and they are to stay.
pub fn anchors(shape: &Shape, collection: &Collection, mapped: &Collections) -> Vec<Anchor> {
    let same = |table: &str, other: &str| {
        table == other || (!table.contains('.') && other.rsplit('.').next() == Some(table))
    };
    let mut found: Vec<Anchor> = Vec::new();
    for reference in shape.references.iter().filter(|reference| !reference.clears) {
        // A row that comes back stays with the one above it, also in a table that refers to itself.
        let others = mapped.values().filter(|other| other.table != collection.table);
        let target = std::iter::once(collection).chain(others).find(|other| {
            same(&other.table, &reference.table)
                && other.tenant.is_some() == collection.tenant.is_some()
        });
        let Some(target) = target else { continue };
        // In the order of the target's key; the tenant is implied.
        let theirs = match reference.theirs.is_empty() {
            true => target.tenant.iter().chain(&target.key).cloned().collect(),
            false => reference.theirs.clone(),
        };
        let own = |name: &String| {
            let at = theirs.iter().position(|known| known == name)?;
            reference.columns.get(at).filter(|own| collection.columns.contains_key(*own)).cloned()
        };
        let columns: Option<Vec<String>> = target.key.iter().map(own).collect();
        let is_whole = theirs.len() == target.key.len() + usize::from(target.tenant.is_some());
        if let Some(columns) =
            columns.filter(|_| is_whole && theirs.len() == reference.columns.len())
        {
            found.push(Anchor { collection: target.name.clone(), columns });
        }
    }
    found
}

fn kind(column: Column) -> String {
    let name = name_of(column.kind);
    if column.encoding == Encoding::Native {
        return format!("\"{name}\"");
    }
    let encoding = ENCODINGS.iter().find(|(_, encoding, _)| *encoding == column.encoding);
    let encoding = encoding.map_or("", |(name, ..)| name);
    format!("{{ type = \"{name}\", encoding = \"{encoding}\" }}")
}

fn list(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| quoted(name)).collect();
    format!("[{}]", names.join(", "))
}

/// Why a section cannot be added to a file.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The file is not valid TOML.
    #[error("{}", super::Problems(.0.clone()))]
    Syntax(Vec<Diagnostic>),
    /// The file has this collection already.
    #[error(
        "the file has [collections.{0}] already, and it is not changed: remove it, or name the new one \
         differently with --name"
    )]
    Known(String),
    /// The file has this task already.
    #[error(
        "the file has [tasks.{0}] already, and it is not changed: remove it, or name the collection differently \
         with --name"
    )]
    KnownTask(String),
    /// The new text is not valid.
    #[error("the section cannot be added at the end of the file: {}", super::Problems(.0.clone()))]
    Invalid(Vec<Diagnostic>),
}

/// The text of a file with a section at its end, of a collection and perhaps of a task. Everything before it stays as it is.
///
/// # Errors
/// Why it cannot be added.
pub fn added(
    text: &str,
    origin: &Path,
    overrides: &Overrides,
    name: &str,
    task: Option<&str>,
    section: &str,
) -> Result<String, Refusal> {
    let (root, syntax) = tree::parse(&Source::new(origin.display().to_string(), text));
    if syntax.iter().any(Diagnostic::is_error) {
        return Err(Refusal::Syntax(syntax));
    }
    let has = |section: &str, name: &str| match root.get(section).map(|entry| &entry.node) {
        Some(tree::Node::Table(table)) => table.get(name).is_some(),
        _ => false,
    };
    if has("collections", name) {
        return Err(Refusal::Known(written(name).into_owned()));
    }
    if let Some(task) = task.filter(|task| has("tasks", task)) {
        return Err(Refusal::KnownTask(written(task).into_owned()));
    }
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut new = text.to_owned();
    if !text.is_empty() && !text.ends_with('\n') {
        new.push_str(end);
    }
    if !text.trim().is_empty() {
        new.push_str(end);
    }
    new.push_str(&section.replace('\n', end));
    let faults = |text: &str| {
        let parsed = RawConfig::parse(text, origin, overrides);
        let model = besom_core::collection::Collections::new();
        let mut all: Vec<Diagnostic> = parsed.outline(&model).problems().to_vec();
        all.retain(Diagnostic::is_error);
        all
    };
    let (before, after) = (faults(text).len(), faults(&new));
    if after.len() > before {
        return Err(Refusal::Invalid(after));
    }
    Ok(new)
}

#[cfg(test)]
mod tests;
