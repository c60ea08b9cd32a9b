//! Diagnostics of a configuration: what is wrong, where, and the fix.
//!
//! A diagnostic contains everything that it shows (line, column, text), so it does not depend on the
//! file: it is printed, kept as the reason why a reload was refused, and sent as JSON.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use besom_system::secret;

/// Maximum length of the shown part of a line, in characters. The rest is replaced by an ellipsis, so that
/// a minified file does not fill the screen.
const LINE_CHARS_MAX: usize = 160;

/// Whether the configuration can still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but is probably not what is intended.
    Warning,
}

/// The place of a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// A part of a line in a file.
    Line {
        /// Name of the file as given.
        file: String,
        /// Line number, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// The whole line without its line ending.
        text: String,
        /// Number of marked characters; 0 at the end of the line.
        chars: usize,
    },
    /// A file as a whole.
    File {
        /// Name of the file as given.
        file: String,
    },
    /// An environment variable.
    Variable {
        /// Name of the variable.
        name: String,
        /// Value of the variable.
        value: String,
    },
    /// A `--set` flag.
    Flag {
        /// The argument of the flag.
        text: String,
    },
}

/// Masks passwords, because diagnostics are printed, logged, stored and sent.
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

/// One problem of a configuration. Passwords in its texts are masked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// Error or warning.
    pub severity: Severity,
    /// Where the problem is.
    pub place: Place,
    /// What is wrong.
    pub message: String,
    /// How to fix it.
    pub fix: Option<String>,
}

impl Diagnostic {
    /// Creates an error without a fix.
    pub fn error(place: Place, message: impl Into<String>) -> Diagnostic {
        let message = shown(message.into());
        Diagnostic { severity: Severity::Error, place: place.shown(), message, fix: None }
    }

    /// Creates a warning without a fix.
    pub fn warning(place: Place, message: impl Into<String>) -> Diagnostic {
        Diagnostic { severity: Severity::Warning, ..Diagnostic::error(place, message) }
    }

    /// Adds a fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Diagnostic {
        self.fix = Some(shown(fix.into()));
        self
    }

    /// Whether it makes the configuration unusable.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// Sort key: first the file as a whole, then its lines in order, then variables and flags.
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

/// The part of a line around a place, and the marks below.
struct Excerpt {
    text: String,
    pad: String,
    caret: String,
}

impl Excerpt {
    fn new(line: &str, column: usize, chars: usize) -> Excerpt {
        let all: Vec<char> = line.chars().collect();
        let column = column.min(all.len());
        // In a long line, the place stays visible with some text before it.
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

/// Escapes control characters and characters that reorder or hide text, so that a key from a database
/// cannot move the cursor, recolour the screen or disguise itself.
pub fn printable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unprintable(c) => {
                out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out
}

/// Whether a terminal would obey a character, or a reader not see it.
pub fn is_unprintable(c: char) -> bool {
    c.is_control() || invisible(c)
}

fn invisible(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
        || (c.width() == Some(0) && matches!(c, '\u{e0000}'..='\u{e007f}'))
}

/// The text of a file with its name; converts offsets to places.
#[derive(Debug, Clone)]
pub struct Source {
    file: String,
    text: Arc<str>,
    /// The text with its passwords masked: one can be longer than the line that a place shows.
    redacted: Arc<str>,
}

impl Source {
    /// Creates a source from the name and the text of a file.
    pub fn new(file: impl Into<String>, text: impl Into<Arc<str>>) -> Source {
        let text = text.into();
        let redacted = match secret::redact(&text) {
            Cow::Borrowed(_) => Arc::clone(&text),
            Cow::Owned(redacted) => redacted.into(),
        };
        Source { file: file.into(), text, redacted }
    }

    /// The text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the span of some bytes of a string value, or of the whole value if it is written otherwise.
    pub fn inside(
        &self,
        value: &Range<usize>,
        text: Option<&str>,
        range: &Range<usize>,
    ) -> Range<usize> {
        let written = self.text.get(value.clone()).unwrap_or_default();
        let found = text.and_then(|text| {
            let places = places(written, text)?;
            Some(value.start + *places.get(range.start)?..value.start + *places.get(range.end)?)
        });
        found.unwrap_or_else(|| value.clone())
    }

    /// Returns the place of a range of bytes. A range over several lines is reduced to its first line.
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
        // A byte order mark does not count as a column.
        let begin =
            if line_start == 0 && self.text.starts_with('\u{feff}') { 3 } else { line_start };
        let start = start.max(begin);
        let text = self.text[begin..line_end.max(begin)].trim_end_matches('\r');
        let stop = end.clamp(start, begin + text.len().max(start - begin));
        let lines_before = self.text[..line_start].matches('\n').count();
        let line = self.redacted.split('\n').nth(lines_before).unwrap_or_default();
        Place::Line {
            file: self.file.clone(),
            line: lines_before + 1,
            column: self.text[begin..start].chars().count() + 1,
            text: line.trim_start_matches('\u{feff}').trim_end_matches('\r').to_owned(),
            chars: self.text[start..stop].chars().count(),
        }
    }

    /// Returns the place of an unknown key, with its value masked as far as the line shows it: the value of
    /// a misspelt key may be a secret.
    pub fn at_key(&self, key: &Range<usize>, value: &Range<usize>) -> Place {
        let mut place = self.at(key);
        // The value of a table is everything under its header.
        if let Place::Line { column, text, .. } = &mut place
            && value.start >= key.end
        {
            let chars = |range: Range<usize>| self.text[range].chars().count();
            let begin = *column - 1 + chars(key.start..value.start);
            let chars = begin..begin + chars(value.clone());
            let masked = |(at, c): (usize, char)| match chars.contains(&at) && c.is_alphanumeric() {
                true => secret::MASK,
                false => c,
            };
            *text = text.chars().enumerate().map(masked).collect();
        }
        place
    }

    /// Returns the place of a range of bytes, or the file as a whole.
    pub fn place(&self, span: Option<&Range<usize>>) -> Place {
        span.map_or_else(|| self.whole(), |span| self.at(span))
    }

    /// Returns the file as a whole.
    pub fn whole(&self) -> Place {
        Place::File { file: self.file.clone() }
    }
}

/// Where each byte of a text is in its TOML string, and its end; none: that is not the string of the text.
fn places(written: &str, text: &str) -> Option<Vec<usize>> {
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| {
        written.len() >= 2 * quote.len() && written.starts_with(quote) && written.ends_with(quote)
    })?;
    let inner = &written[quote.len()..written.len() - quote.len()];
    // The first line ending behind three quotes is not part of the text.
    let begin = match quote.len() {
        3 if inner.starts_with("\r\n") => 2,
        3 if inner.starts_with('\n') => 1,
        _ => 0,
    };
    let (mut all, mut read) = (Vec::with_capacity(text.len() + 1), String::new());
    let mut rest = &inner[begin..];
    while let Some(first) = rest.chars().next() {
        let (c, length) = match first {
            '\\' if quote.starts_with('"') => escaped(rest)?,
            c => (c, c.len_utf8()),
        };
        all.resize(all.len() + c.len_utf8(), quote.len() + inner.len() - rest.len());
        read.push(c);
        rest = &rest[length..];
    }
    all.push(quote.len() + inner.len());
    (read == text).then_some(all)
}

/// The character of an escape at the beginning of a text, and its length there.
fn escaped(text: &str) -> Option<(char, usize)> {
    let code = |digits: usize| {
        let code = u32::from_str_radix(text.get(2..2 + digits)?, 16).ok()?;
        Some((char::from_u32(code)?, 2 + digits))
    };
    let c = match text.chars().nth(1)? {
        'b' => '\u{8}',
        't' => '\t',
        'n' => '\n',
        'f' => '\u{c}',
        'r' => '\r',
        'e' => '\u{1b}',
        c @ ('"' | '\\') => c,
        'x' => return code(2),
        'u' => return code(4),
        'U' => return code(8),
        _ => return None,
    };
    Some((c, 2))
}

/// All diagnostics of a configuration, usually with at least one error.
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
    fn a_part_of_a_string_is_found_in_each_of_its_spellings() {
        for (written, text, part) in [
            ("\"a = 'b'\"", "a = 'b'", "'b'"),
            ("'a = \"b\"'", "a = \"b\"", "\"b\""),
            ("\"a = \\\"b\\\"\"", "a = \"b\"", "\\\"b\\\""),
            ("\"\\u00fc = \\t'b'\"", "\u{fc} = \t'b'", "'b'"),
            ("\"\"\"\na\n= 'b'\"\"\"", "a\n= 'b'", "'b'"),
            ("'''\r\na = \\'b''''", "a = \\'b'", "'b'"),
            // Another text.
            ("\"a\"", "b 'b'", "\"a\""),
            ("\"\"\"a \\\n  'b'\"\"\"", "a 'b'", "\"\"\"a \\\n  'b'\"\"\""),
        ] {
            let file = format!("where = {written} # x");
            let at = text.find(['\'', '"']).expect("a quote");
            let source = Source::new("besom.toml", file.as_str());
            let value = 8..8 + written.len();
            let found = source.inside(&value, Some(text), &(at..text.len()));
            assert_eq!(&file[found], part, "{written}");
        }
    }

    #[test]
    fn a_password_of_several_lines_is_shown_nowhere() {
        let text = "password = \"\"\"\nS3cr3t\nS3cr3t\"\"\" oops\nb = 1\n";
        for span in [0..1, 15..16, 22..23, 32..33] {
            let shown = Diagnostic::error(Source::new("f", text).at(&span), "wrong").to_string();
            assert!(!shown.contains("S3cr3t"), "{shown}");
        }
        let last = text.find("b =").expect("it is there");
        let place = Source::new("f", text).at(&(last..last + 1));
        let shown = Diagnostic::error(place, "wrong").to_string();
        assert!(shown.starts_with("f:4:1: error: wrong\n  4 | b = 1\n"), "{shown}");
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
