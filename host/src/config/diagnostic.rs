//! What is wrong with a configuration, where, and how to mend it.
//!
//! A diagnostic carries everything that it shows (the line, the column, the text), so that
//! it outlives the file it speaks of: it is printed, kept as the reason why a reload was
//! refused, and sent as JSON.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::secret;

/// The longest piece of a line that is shown, in characters. What is cut off is replaced by
/// an ellipsis, so that a minified file does not fill the screen.
const LINE_CHARS_MAX: usize = 160;

/// Whether the configuration can be used all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// It cannot.
    Error,
    /// It can, but somebody should look at it.
    Warning,
}

/// Where something is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A piece of a line of a file.
    Line {
        /// The file's name as it was given.
        file: String,
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The whole line, without its end.
        text: String,
        /// How many characters of it are meant; 0 at the end of the line.
        chars: usize,
    },
    /// A file as a whole.
    File {
        /// Its name as it was given.
        file: String,
    },
    /// An environment variable.
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// A `--set` flag.
    Flag {
        /// What was given.
        text: String,
    },
}

/// A text without passwords: what a diagnostic says is printed, logged, stored and sent.
fn shown(text: String) -> String {
    match secret::redact(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(redacted) => redacted,
    }
}

impl Place {
    fn shown(self) -> Place {
        match self {
            Place::Line { file, line, column, text, chars } => {
                Place::Line { text: shown(text), file, line, column, chars }
            }
            Place::File { file } => Place::File { file },
            Place::Variable { name, value } => Place::Variable { name, value: shown(value) },
            Place::Flag { text } => Place::Flag { text: shown(text) },
        }
    }
}

/// One thing that is wrong. Passwords in URLs do not stand in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Where.
    pub place: Place,
    /// What, in words for a person.
    pub message: String,
    /// How to mend it.
    pub fix: Option<String>,
}

impl Diagnostic {
    /// An error.
    pub fn error(place: Place, message: impl Into<String>) -> Diagnostic {
        let message = shown(message.into());
        Diagnostic { severity: Severity::Error, place: place.shown(), message, fix: None }
    }

    /// A warning.
    pub fn warning(place: Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(place, message) }
    }

    /// The same with a way to mend it.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Diagnostic {
        self.fix = Some(shown(fix.into()));
        self
    }

    /// Whether it makes the configuration unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The order in which diagnostics are shown: as the file is read, then the rest.
    pub(super) fn order(&self) -> (u8, usize, usize) {
        match &self.place {
            Place::File { .. } => (0, 0, 0),
            Place::Line { line, column, .. } => (1, *line, *column),
            Place::Variable { .. } => (2, 0, 0),
            Place::Flag { .. } => (3, 0, 0),
        }
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let message = printable(&self.message);
        let fix = self.fix.as_deref().map(printable);
        match &self.place {
            Place::Line { file, line, column, text, chars } => {
                writeln!(f, "{}:{line}:{column}: {word}: {message}", printable(file))?;
                let excerpt = Excerpt::new(text, column - 1, *chars);
                let gutter = line.to_string().len();
                writeln!(f, "  {line} | {}", excerpt.text)?;
                write!(f, "  {:gutter$} | {}{}", "", excerpt.pad, excerpt.caret)?;
                if let Some(fix) = fix {
                    write!(f, " {fix}")?;
                }
                return Ok(());
            }
            Place::File { file } => write!(f, "{}: {word}: {message}", printable(file))?,
            Place::Variable { name, value } => write!(
                f,
                "environment: {word}: {message}\n  {}={}",
                printable(name),
                printable(value)
            )?,
            Place::Flag { text } => {
                write!(f, "flags: {word}: {message}\n  --set {}", printable(text))?;
            }
        }
        match fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

/// The part of a line around a place, and the marks below it.
struct Excerpt {
    text: String,
    pad: String,
    caret: String,
}

impl Excerpt {
    fn new(line: &str, column: usize, chars: usize) -> Excerpt {
        let all: Vec<char> = line.chars().collect();
        let column = column.min(all.len());
        // The place stays visible, with some text before it, however long the line is.
        let from = if all.len() <= LINE_CHARS_MAX { 0 } else { column.saturating_sub(40) };
        let to = all.len().min(from + LINE_CHARS_MAX);
        let visible = |range: Range<usize>| -> String {
            all[range].iter().map(|c| if *c == '\t' { ' ' } else { *c }).collect()
        };
        let shown = |text: &str| UnicodeWidthStr::width(printable(text).as_str());
        let lead = if from > 0 { "…" } else { "" };
        let tail = if to < all.len() { "…" } else { "" };
        let before = visible(from..column.min(to));
        let marked = visible(column.min(to)..(column + chars).min(to));
        Excerpt {
            text: format!("{lead}{}{tail}", printable(&visible(from..to))),
            pad: " ".repeat(shown(&before) + lead.chars().count()),
            caret: "^".repeat(shown(&marked).max(1)),
        }
    }
}

/// Text as a terminal may show it: control characters (and those that reorder or hide
/// text) are written as escapes, so that a key from a database cannot move the cursor,
/// recolour the screen or disguise itself.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() || invisible(c) => {
                out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

fn invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || (c.width() == Some(0) && matches!(c, '\u{e0000}'..='\u{e007f}'))
}

/// A text and its origin, to turn offsets into places.
#[derive(Debug, Clone)]
pub struct Source {
    file: String,
    text: Arc<str>,
}

impl Source {
    /// The text of a file of that name.
    pub fn new(file: impl Into<String>, text: impl Into<Arc<str>>) -> Source {
        Source { file: file.into(), text: text.into() }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The place of a range of bytes; a range over several lines means its first line.
    pub fn at(&self, span: &Range<usize>) -> Place {
        let floor = |mut at: usize| {
            at = at.min(self.text.len());
            while !self.text.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (start, end) = (floor(span.start), floor(span.end));
        let line_start = self.text[..start].rfind('\n').map_or(0, |n| n + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |n| start + n);
        // A byte order mark takes no column.
        let begin =
            if line_start == 0 && self.text.starts_with('\u{feff}') { 3 } else { line_start };
        let start = start.max(begin);
        let text = self.text[begin..line_end.max(begin)].trim_end_matches('\r');
        let stop = end.clamp(start, begin + text.len().max(start - begin));
        Place::Line {
            file: self.file.clone(),
            line: self.text[..line_start].matches('\n').count() + 1,
            column: self.text[begin..start].chars().count() + 1,
            text: text.to_owned(),
            chars: self.text[start..stop].chars().count(),
        }
    }

    /// The file as a whole.
    pub fn whole(&self) -> Place {
        Place::File { file: self.file.clone() }
    }
}

/// A configuration that cannot be used, and everything that is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Problems(pub Vec<Diagnostic>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, diagnostic) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Problems {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, span: Range<usize>, expected: &str) {
        let place = Source::new("besom.toml", text).at(&span);
        let shown = Diagnostic::error(place, "wrong").fix("mend it").to_string();
        assert_eq!(shown, expected);
    }

    #[test]
    fn the_caret_stands_under_the_text() {
        check(
            "a = 1\nbb = 2\n",
            6..8,
            "besom.toml:2:1: error: wrong\n  2 | bb = 2\n    | ^^ mend it",
        );
        check(
            "a = 1\r\nbb = 2\r\n",
            7..9,
            "besom.toml:2:1: error: wrong\n  2 | bb = 2\n    | ^^ mend it",
        );
        check("\u{feff}a = 1", 3..4, "besom.toml:1:1: error: wrong\n  1 | a = 1\n    | ^ mend it");
        check(
            "n = \"日本\" # x",
            13..14,
            "besom.toml:1:10: error: wrong\n  1 | n = \"日本\" # x\n    |            ^ mend it",
        );
        check("", 0..0, "besom.toml:1:1: error: wrong\n  1 | \n    | ^ mend it");
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let line = "url = \"postgres://u:S3cr3t@h/d\" oops";
        let place = Source::new("f", line).at(&(33..37));
        let of_line =
            Diagnostic::error(place, "no end of the line").fix("write https://u:S3cr3t@h");
        let value = "postgres://u:S3cr3t@h/d".to_owned();
        let variable = Place::Variable { name: "BESOM_STORE_URL".into(), value: value.clone() };
        let flag = Place::Flag { text: format!("store.url={value}") };
        for diagnostic in [
            of_line,
            Diagnostic::error(variable, format!("`{value}`")),
            Diagnostic::warning(flag, "m"),
        ] {
            let json = serde_json::to_string(&diagnostic).unwrap();
            assert!(
                !format!("{diagnostic} {diagnostic:?} {json}").contains("S3cr3t"),
                "{diagnostic}"
            );
        }
    }

    #[test]
    fn a_long_line_is_cut_around_the_place() {
        let text = format!("k = \"{}\" # end", "x".repeat(1000));
        let at = text.len() - 3;
        let shown =
            Diagnostic::error(Source::new("f", text.as_str()).at(&(at..at + 3)), "m").to_string();
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[1].ends_with("end") && lines[1].chars().count() < 60, "{shown}");
        assert_eq!(lines[1].find("end").map(|b| lines[1][..b].chars().count()), lines[2].find('^'));
    }

    #[test]
    fn nothing_reaches_the_terminal_as_a_control_character() {
        assert_eq!(printable("a\x1b[2Jb\u{202e}\u{9b}\n"), "a\\u{1b}[2Jb\\u{202e}\\u{9b}\\n");
        let place = Source::new("f", "k = \"\x1b[31m\"").at(&(4..9));
        let shown = Diagnostic::error(place, "bad \x07").to_string();
        assert!(!shown.chars().any(|c| c.is_control() && c != '\n'), "{shown:?}");
    }
}
