//! Reads tables according to their lists of keys, and collects all problems.

use std::collections::BTreeMap;

use super::diagnostic::{Diagnostic, Source};
use super::keys::{Fault, Key, suggestion};
use super::tree::{Entry, Node, Span, Table};

/// Keys of a task that are looked for in `[retention]`.
const OF_TASKS: [&str; 1] = ["keep_removed"];
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
        let place = if path.is_empty() { String::new() } else { format!(" in [{path}]") };
        let renamed = RENAMED.iter().find(|(old, _)| *old == entry.key);
        let fix = match renamed {
            Some((_, new)) => format!("it is called `{new}` now"),
            None if path == "retention" && OF_TASKS.contains(&entry.key.as_str()) => {
                format!("`{}` is set for each task: write it in [tasks.NAME]", entry.key)
            }
            None => suggestion(&entry.key, names),
        };
        let shown = self.source.at_key(&entry.key_span, &entry.span);
        let message = format!("unknown key `{}`{place}", entry.key);
        self.problems.push(Diagnostic::error(shown, message).fix(fix));
    }
}
