//! Reads tables according to their lists of keys, and collects all problems.

use std::collections::BTreeMap;

use super::diagnostic::{Diagnostic, Source};
use super::keys::{Fault, Key, suggestion};
use super::limits::LimitsTable;
use super::sections::{SECTIONS, Section};
use super::settings::HostSettings;
use super::task::{RetryTable, TABLES, TaskTable, YieldTable};
use super::tree::{Entry, Node, Span, Table};

/// Keys of earlier versions, and what they are called now.
const RENAMED: [(&str, &str); 1] = [("undo_retention", "keep_removed")];

/// Reads the tables of a document and collects their problems.
pub struct Walker<'a> {
    /// The document, which provides the places of problems.
    pub source: &'a Source,
    /// The problems found so far.
    pub problems: &'a mut Vec<Diagnostic>,
}

/// Places of the values of a table, by key.
pub type Spans = BTreeMap<String, Span>;

impl Walker<'_> {
    /// Reports an error.
    pub fn error(&mut self, span: &Span, message: impl Into<String>, fix: impl Into<String>) {
        let place = self.source.at(span);
        self.problems.push(Diagnostic::error(place, message).fix(fix));
    }

    /// Reports a warning.
    pub fn warn(&mut self, span: &Span, message: impl Into<String>, fix: impl Into<String>) {
        let place = self.source.at(span);
        self.problems.push(Diagnostic::warning(place, message).fix(fix));
    }

    /// Reports a fault of a value.
    pub fn fault(&mut self, span: &Span, fault: Fault) {
        self.problems.push(fault.at(self.source.at(span)));
    }

    /// Returns the table of an entry, or reports that its value is not a table.
    pub fn table<'t>(&mut self, entry: &'t Entry, shape: &str) -> Option<&'t Table> {
        match &entry.node {
            Node::Table(table) => Some(table),
            other => {
                let message = format!("`{}` must be a table, not {}", entry.key, other.noun());
                self.error(&entry.span, message, format!("write {shape}"));
                None
            }
        }
    }

    /// Returns the tables of an entry, such as those of `[tasks.NAME]`, with the entries that name them, and
    /// reports what is not a table.
    pub fn tables<'t>(&mut self, entry: &'t Entry, shape: &str) -> Vec<(&'t Entry, &'t Table)> {
        let entries = self.table(entry, shape).into_iter().flat_map(|table| &table.0);
        entries.filter_map(|entry| Some((entry, self.table(entry, shape)?))).collect()
    }

    /// Returns a string that is not empty, or reports an error.
    pub fn text<'t>(&mut self, what: &str, span: &Span, node: &'t Node) -> Option<&'t str> {
        match node {
            Node::Text(text) if !text.is_empty() => Some(text),
            Node::Text(_) => {
                self.error(span, format!("{what} is empty"), "set a value or remove it");
                None
            }
            other => {
                self.error(
                    span,
                    format!("{what} must be a string, not {}", other.noun()),
                    "put it in double quotes",
                );
                None
            }
        }
    }

    /// Returns a boolean, or reports an error.
    pub fn flag(&mut self, what: &str, span: &Span, node: &Node) -> Option<bool> {
        match node {
            Node::Bool(word) => Some(*word),
            other => {
                let message = format!("`{what}` must be true or false, not {}", other.noun());
                self.error(span, message, format!("write {what} = true, or remove it"));
                None
            }
        }
    }

    /// Returns the strings of an array with their places. Reports anything else, and duplicates.
    pub fn texts(&mut self, what: &str, span: &Span, node: &Node) -> Vec<(Span, String)> {
        let Node::Array(items) = node else {
            let fix = match node {
                Node::Text(text) => format!("write [\"{text}\"]"),
                _ => "write, for example, [\"name\"]".to_owned(),
            };
            self.error(
                span,
                format!("{what} must be an array of strings, not {}", node.noun()),
                fix,
            );
            return Vec::new();
        };
        let mut texts = Vec::with_capacity(items.len());
        for (span, item) in items {
            if let Some(text) = self.text(&format!("an entry of {what}"), span, item) {
                if texts.iter().any(|(_, t)| t == text) {
                    self.error(
                        span,
                        format!("`{text}` is listed twice in {what}"),
                        "remove one of them",
                    );
                } else {
                    texts.push((span.clone(), text.to_owned()));
                }
            }
        }
        texts
    }

    /// Reads a table into `target`, and reports unknown keys. `more` are keys that the caller reads.
    pub fn read<T>(
        &mut self,
        path: &str,
        table: &Table,
        keys: &[Key<T>],
        more: &[&str],
        target: &mut T,
    ) -> Spans {
        let mut spans = Spans::new();
        for entry in &table.0 {
            spans.insert(entry.key.clone(), entry.span.clone());
            if let Some(key) = keys.iter().find(|k| k.name == entry.key) {
                if let Err(fault) = key.read(target, &entry.node) {
                    self.fault(&entry.span, fault);
                }
            } else if !more.contains(&entry.key.as_str()) {
                let names = keys.iter().map(|k| k.name).chain(more.iter().copied());
                self.unknown(entry, path, names);
            }
        }
        spans
    }

    /// Reports an unknown key.
    pub fn unknown<'n>(
        &mut self,
        entry: &Entry,
        path: &str,
        names: impl IntoIterator<Item = &'n str> + Clone,
    ) {
        let renamed = RENAMED.iter().find(|(old, _)| *old == entry.key);
        let fix = match renamed {
            Some((_, new)) => format!("it is called `{new}` now"),
            None => home(path, entry).unwrap_or_else(|| suggestion(&entry.key, names)),
        };
        let shown = self.source.at_key(&entry.key_span, &entry.span);
        self.problems.push(Diagnostic::error(shown, unknown(&entry.key, path)).fix(fix));
    }
}

/// What is said of an unknown key.
pub fn unknown(key: &str, path: &str) -> String {
    let place = if path.is_empty() { String::new() } else { format!(" in [{path}]") };
    format!("unknown key `{key}`{place}")
}

/// The tables of a task with keys of the host.
fn is_of_task(table: &str, key: &str) -> bool {
    fn has<T>(keys: &[Key<T>], key: &str) -> bool {
        keys.iter().any(|known| known.name == key)
    }
    match table {
        "" => has(TaskTable::KEYS, key) || TABLES.iter().any(|(name, _)| *name == key),
        "settings" => has(HostSettings::KEYS, key),
        "limits" => has(LimitsTable::KEYS, key),
        "retry" => has(RetryTable::KEYS, key),
        "yield" => has(YieldTable::KEYS, key),
        _ => false,
    }
}

/// Where a key belongs that is unknown in the table of this path; none: it is a key of no other.
fn home(path: &str, entry: &Entry) -> Option<String> {
    let key = entry.key.as_str();
    let tables = ["", "settings", "limits", "retry", "yield"];
    if let Some(task) = path.strip_prefix("tasks.") {
        // The name of a task that contains a dot is in quotes.
        let part = TABLES
            .iter()
            .find_map(|(name, _)| Some((task.strip_suffix(name)?.strip_suffix('.')?, *name)));
        let (task, own) = part.unwrap_or((task, ""));
        let table = tables.into_iter().find(|table| *table != own && is_of_task(table, key))?;
        return Some(match table {
            "" => format!("write it in [tasks.{task}]"),
            table => format!("write it in [tasks.{task}.{table}]"),
        });
    }
    let has_key = |section: &&Section| section.name != path && section.key(key).is_some();
    let sections: Vec<String> =
        SECTIONS.iter().filter(has_key).map(|section| format!("[{}]", section.name)).collect();
    let is_top = path.is_empty() || SECTIONS.iter().any(|section| section.name == path);
    match (&sections[..], is_top) {
        (_, false) => None,
        (_, true) if is_of_task("", key) => {
            let table = matches!(entry.node, Node::Table(_));
            Some(match table {
                true => format!("`{key}` is set for each task: write [tasks.NAME.{key}]"),
                false => format!("`{key}` is set for each task: write it in [tasks.NAME]"),
            })
        }
        ([], true) => None,
        ([one], true) => Some(format!("write it in {one}")),
        (several, true) => {
            Some(format!("write it in the section that is meant: {}", several.join(", ")))
        }
    }
}
