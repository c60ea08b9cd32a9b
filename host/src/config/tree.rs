//! A TOML document as a tree that owns its values and remembers where each stands.
//!
//! serde stops at the first error; this tree lets the walkers go on, so that everything
//! that is wrong is reported at once.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Source};

/// A place in the document, in bytes.
pub type Span = Range<usize>;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A date or a time: nothing in a configuration is one.
    Datetime,
    /// A number that does not fit; it was reported.
    Broken,
    /// A list.
    Array(Vec<(Span, Node)>),
    /// A table.
    Table(Table),
}

impl Node {
    /// What it is, with its article.
    pub fn noun(&self) -> &'static str {
        match self {
            Node::Text(_) => "text",
            Node::Integer(_) => "a whole number",
            Node::Float(_) => "a number",
            Node::Bool(_) => "true or false",
            Node::Datetime => "a date or time",
            Node::Broken => "a broken number",
            Node::Array(_) => "a list",
            Node::Table(_) => "a table",
        }
    }
}

/// An entry of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Its key.
    pub key: String,
    /// Where the key stands.
    pub key_span: Span,
    /// Where the value stands.
    pub span: Span,
    /// The value.
    pub node: Node,
}

/// A table: its entries as they stand in the document.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table(pub Vec<Entry>);

impl Table {
    /// The entry of that key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.key == key)
    }
}

/// Reads a document. What could be read is returned together with what could not.
pub fn parse(source: &Source) -> (Table, Vec<Diagnostic>) {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    let mut problems = Vec::new();
    let mut broken_lines = std::collections::BTreeSet::new();
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        let diagnostic = Diagnostic::error(source.at(&span), error.message());
        // The parser goes on in the middle of a line that it could not read: what it
        // says next of the same line is a consequence.
        if broken_lines.insert(diagnostic.order().1) {
            let fix = syntax_fix(error.message());
            problems.push(match fix {
                Some(fix) => diagnostic.fix(fix),
                None => diagnostic,
            });
        }
    }
    let table = table(source, root.get_ref(), &mut problems);
    (table, problems)
}

fn syntax_fix(message: &str) -> Option<&'static str> {
    if message.contains("must be quoted") || message.contains("string values") {
        Some("put the text between double quotes")
    } else if message.contains("duplicate") {
        Some("remove one of the two")
    } else if message.contains("unclosed") {
        Some("close it on the same line")
    } else {
        None
    }
}

fn table(source: &Source, table: &DeTable<'_>, problems: &mut Vec<Diagnostic>) -> Table {
    let mut entries: Vec<Entry> = table
        .iter()
        .map(|(key, value)| Entry {
            key: key.get_ref().to_string(),
            key_span: key.span(),
            span: value.span(),
            node: node(source, value, problems),
        })
        .collect();
    entries.sort_by_key(|e| e.key_span.start);
    Table(entries)
}

fn node(source: &Source, value: &Spanned<DeValue<'_>>, problems: &mut Vec<Diagnostic>) -> Node {
    match value.get_ref() {
        DeValue::String(s) => Node::Text(s.to_string()),
        DeValue::Integer(i) => match i64::from_str_radix(i.as_str(), i.radix()) {
            Ok(n) => Node::Integer(n),
            Err(_) => {
                let place = source.at(&value.span());
                problems.push(
                    Diagnostic::error(place, "the number does not fit into 64 bits")
                        .fix("write a smaller one"),
                );
                Node::Broken
            }
        },
        DeValue::Float(f) => match f.as_str().parse() {
            Ok(n) => Node::Float(n),
            Err(_) => Node::Broken,
        },
        DeValue::Boolean(b) => Node::Bool(*b),
        DeValue::Datetime(_) => Node::Datetime,
        DeValue::Array(items) => {
            Node::Array(items.iter().map(|v| (v.span(), node(source, v, problems))).collect())
        }
        DeValue::Table(t) => Node::Table(table(source, t, problems)),
    }
}
