//! A TOML document as a tree that owns its values and knows the place of each.
//!
//! serde stops at the first error. With this tree, all errors can be reported at once.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::diagnostic::{Diagnostic, Source};

/// A byte range in the document.
pub type Span = Range<usize>;

/// A value of the document.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A string.
    Text(String),
    /// A 64-bit signed integer.
    Integer(i64),
    /// A float.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A date or a time; no key has this type.
    Datetime,
    /// A number that is out of range; already reported.
    Broken,
    /// An array, with the place of each entry.
    Array(Vec<(Span, Node)>),
    /// A table.
    Table(Table),
}

impl Node {
    /// Describes the type, with its article, for messages.
    pub fn noun(&self) -> &'static str {
        match self {
            Node::Text(_) => "a string",
            Node::Integer(_) => "an integer",
            Node::Float(_) => "a float",
            Node::Bool(_) => "a boolean",
            Node::Datetime => "a date or time",
            Node::Broken => "an invalid number",
            Node::Array(_) => "an array",
            Node::Table(_) => "a table",
        }
    }
}

/// A key of a table with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Place of the key.
    pub key_span: Span,
    /// Place of the value.
    pub span: Span,
    /// The value.
    pub node: Node,
}

/// A table; its entries are in the order of the document.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table(pub Vec<Entry>);

impl Table {
    /// Returns the entry with this key.
    pub fn get(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|e| e.key == key)
    }
}

/// Parses a document. Returns what could be parsed, together with the syntax errors.
pub fn parse(source: &Source) -> (Table, Vec<Diagnostic>) {
    let (root, errors) = DeTable::parse_recoverable(source.text());
    let mut problems = Vec::new();
    let mut broken_lines = std::collections::BTreeSet::new();
    let mut repeated = 0..0;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // The keys of a table that is there twice are consequences of its header.
        if error.message().contains("duplicate") {
            if repeated.contains(&span.start) {
                continue;
            }
            repeated = rest_of_table(source.text(), &span);
        }
        let diagnostic = Diagnostic::error(source.at(&span), error.message());
        // After an error, the parser continues in the middle of the line: further errors in the same
        // line are consequences of the first.
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

/// What follows a header up to the next one; empty: the place is not in a header.
fn rest_of_table(text: &str, span: &Range<usize>) -> Range<usize> {
    let line = text.get(..span.start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let is_header = text.get(line..).is_some_and(|line| line.trim_start().starts_with('['));
    let next = text.get(span.end..).and_then(|rest| rest.find("\n["));
    let end = if is_header { next.map_or(text.len(), |at| span.end + at) } else { span.end };
    span.end..end
}

fn syntax_fix(message: &str) -> Option<&'static str> {
    if message.contains("must be quoted") || message.contains("string values") {
        Some("put the string in double quotes")
    } else if message.contains("duplicate") {
        Some("remove one of them")
    } else if message.contains("unclosed") {
        Some("close it on the same line")
    } else if message.contains("invalid basic string") || message.contains("invalid literal string")
    {
        Some("close the quote on the same line")
    } else if message.contains("missing comma") {
        Some(
            "write a comma; if this belongs to the text before it, that text ended at its second quote: within \"...\", \
             write 'single quotes', as in where = \"state = 'closed'\"",
        )
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
                        .fix("write a smaller number"),
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
