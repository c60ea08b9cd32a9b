//! Sets or removes one key in the text of a TOML document without changing any other byte.
//!
//! `toml_edit` locates the key. The text itself is spliced, because serializing the document would
//! normalize its line endings. A value keeps its kind of quotes if possible. A new key is placed after a
//! given one and copies its style (indentation, dotted prefix, alignment of `=`). A comment after a
//! removed value becomes a line of its own.

use std::ops::Range;

use toml_edit::{Document, Item, TableLike};

/// A value to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written<'a> {
    /// A string; quotes are added.
    Text(&'a str),
    /// A number, written unchanged.
    Number(&'a str),
    /// An array of strings.
    List(&'a [&'a str]),
}

/// The key cannot be set in this text: its table does not exist, or a new key has no place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nowhere;

/// The location of a key and its value.
struct Found {
    /// The last part of the key.
    key: Range<usize>,
    value: Range<usize>,
    /// Whether the key is in an inline table.
    inline: bool,
}

/// Sets `path` to a value. A new key is placed after the first path of `anchors` that exists, or else at the
/// beginning of its table.
pub fn set(
    text: &str,
    path: &[&str],
    value: Written<'_>,
    anchors: &[Vec<&str>],
) -> Result<String, Nowhere> {
    let document = Document::parse(text).map_err(|_| Nowhere)?;
    let root = document.as_item();
    if let Some(found) = find(root, path) {
        let old = &text[found.value.clone()];
        // Comments within an array would be lost.
        if matches!(value, Written::List(_)) && old.contains('\n') && old.contains('#') {
            return Err(Nowhere);
        }
        let new = write(value, Some(old));
        return Ok(splice(text, found.value, &new));
    }
    let (key, table) = path.split_last().ok_or(Nowhere)?;
    let value = write(value, None);
    let item = lookup(root, table);
    let closed = item.is_some_and(|item| !is_dotted(item));
    for anchor in anchors {
        // The anchor is in the same table, or in an enclosing one where a dotted key can be added.
        let depth = anchor.len() - 1;
        let beside = depth == table.len() || !closed;
        if let Some(found) = find(root, anchor)
            && beside
            && path.starts_with(&anchor[..depth])
        {
            return Ok(behind(text, &found, &path[depth..].join("."), &value));
        }
    }
    first(text, item.ok_or(Nowhere)?, key, &value)
}

fn is_dotted(item: &Item) -> bool {
    match item {
        Item::Table(table) => table.is_dotted(),
        other => other.as_inline_table().is_some_and(toml_edit::InlineTable::is_dotted),
    }
}

/// Removes `path`. A text without it is returned unchanged.
pub fn remove(text: &str, path: &[&str]) -> Result<String, Nowhere> {
    let document = Document::parse(text).map_err(|_| Nowhere)?;
    let Some(found) = find(document.as_item(), path) else { return Ok(text.to_owned()) };
    Ok(if found.inline { remove_inline(text, &found) } else { remove_line(text, &found) })
}

fn lookup<'a>(root: &'a Item, path: &[&str]) -> Option<&'a Item> {
    path.iter().try_fold(root, |item, key| item.as_table_like()?.get(key))
}

fn find(root: &Item, path: &[&str]) -> Option<Found> {
    let (last, tables) = path.split_last()?;
    let mut item = root;
    let mut inline = false;
    for key in tables {
        item = item.as_table_like()?.get(key)?;
        inline |= item.is_inline_table();
    }
    let table: &dyn TableLike = item.as_table_like()?;
    let (key, value) = table.get_key_value(last)?;
    Some(Found { key: key.span()?, value: value.as_value()?.span()?, inline })
}

fn splice(text: &str, at: Range<usize>, new: &str) -> String {
    [&text[..at.start], new, &text[at.end..]].concat()
}

/// Formats a value, in the quotes of the previous value if it can be written with them.
fn write(value: Written<'_>, before: Option<&str>) -> String {
    let text = match value {
        Written::Number(number) => return number.to_owned(),
        Written::Text(text) => text,
        Written::List(texts) => {
            let texts: Vec<String> =
                texts.iter().map(|text| write(Written::Text(text), None)).collect();
            return format!("[{}]", texts.join(", "));
        }
    };
    let literal = before.is_some_and(|old| old.starts_with('\'') && !old.starts_with("'''"));
    if literal && !text.chars().any(|c| c == '\'' || (c.is_control() && c != '\t')) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\t' => quoted.push_str("\\t"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04X}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Inserts `key = value` after the found key, in the same style.
fn behind(text: &str, found: &Found, key: &str, value: &str) -> String {
    let between = &text[found.key.end..found.value.start];
    let (before, after) = between.split_once('=').unwrap_or((" ", " "));
    if found.inline {
        let prefix = text[inline_begin(text, found)..found.key.start].trim_start();
        let at = found.value.end;
        return splice(text, at..at, &format!(", {prefix}{key}{before}={after}{value}"));
    }
    let begin = line_begin(text, found.key.start);
    let width = found.key.len() + before.len();
    let before = match is_lined_up(text, begin, found.key.end + before.len()) {
        true => " ".repeat(width.saturating_sub(key.len()).max(1)),
        false => before.to_owned(),
    };
    let prefix = &text[begin..found.key.start];
    insert_line(text, found.value.end, &format!("{prefix}{key}{before}={after}{value}"))
}

/// Whether the `=` at `equals` is aligned with others on purpose: it has more than one space before it, or
/// matches the column of such a one in the line above.
fn is_lined_up(text: &str, begin: usize, equals: usize) -> bool {
    let line = &text[begin..equals];
    let above = text[..begin].lines().next_back().unwrap_or_default();
    let above = above.split_once('=').map_or("", |(before, _)| before);
    let padded = |before: &str| before.ends_with("  ");
    padded(line) || (padded(above) && above.chars().count() == line.chars().count())
}

/// Inserts `key = value` at the beginning of a table, if it has no anchor for the key.
fn first(text: &str, table: &Item, key: &str, value: &str) -> Result<String, Nowhere> {
    let span = table.span().ok_or(Nowhere)?;
    match table {
        Item::Value(_) => {
            let open = span.start + 1;
            let rest = text.get(open..span.end - 1).ok_or(Nowhere)?;
            let comma = if rest.trim().is_empty() { " " } else { "," };
            Ok(splice(text, open..open, &format!(" {key} = {value}{comma}")))
        }
        Item::Table(table) if !table.is_dotted() && !table.is_implicit() => {
            let begin = line_begin(text, span.start);
            let indent = &text[begin..span.start];
            Ok(insert_line(text, span.end, &format!("{indent}{key} = {value}")))
        }
        Item::Table(_) | Item::ArrayOfTables(_) | Item::None => Err(Nowhere),
    }
}

/// Inserts a line after the line at `at`, with the same line ending.
fn insert_line(text: &str, at: usize, line: &str) -> String {
    match text[at..].find('\n') {
        Some(length) => {
            let end = at + length + 1;
            let ending = if text[..end].ends_with("\r\n") { "\r\n" } else { "\n" };
            splice(text, end..end, &format!("{line}{ending}"))
        }
        None => {
            let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
            format!("{text}{ending}{line}")
        }
    }
}

fn line_begin(text: &str, at: usize) -> usize {
    let begin = text[..at].rfind('\n').map_or(0, |end| end + 1);
    // A byte order mark is not part of the line.
    if begin == 0 && text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { begin }
}

/// Returns the start of an entry of an inline table, including the first parts of a dotted key.
fn inline_begin(text: &str, found: &Found) -> usize {
    text[..found.key.start].rfind([',', '{', '\n']).map_or(0, |at| at + 1)
}

fn remove_line(text: &str, found: &Found) -> String {
    let begin = line_begin(text, found.key.start);
    let rest = &text[found.value.end..];
    let length = rest.find('\n').unwrap_or(rest.len());
    let comment = rest[..length].trim();
    if comment.is_empty() {
        let end = (found.value.end + length + 1).min(text.len());
        return splice(text, begin..end, "");
    }
    // Keeps the comment.
    let line = &text[begin..found.key.start];
    let indent = &line[..line.len() - line.trim_start().len()];
    let end = found.value.end + rest[..length].trim_end().len();
    splice(text, begin..end, &format!("{indent}{comment}"))
}

fn remove_inline(text: &str, found: &Found) -> String {
    let begin = inline_begin(text, found);
    let rest = &text[found.value.end..];
    let blank = rest.len() - rest.trim_start().len();
    if rest[blank..].starts_with(',') {
        let gap = text[begin..].len() - text[begin..].trim_start().len();
        let after = &rest[blank + 1..];
        let spaces = after.len() - after.trim_start_matches([' ', '\t']).len();
        let end = found.value.end + blank + 1 + spaces;
        return splice(text, begin + gap..end, "");
    }
    // The last entry: removes the comma before it and keeps the space before the brace.
    let lead = text[..begin].trim_end();
    let begin = if lead.ends_with(',') { lead.len() - 1 } else { begin };
    splice(text, begin..found.value.end, "")
}
