//! Results on stdout: tables for people, JSON for programs.
//!
//! Text output is escaped, because keys and messages come from databases and plugins. JSON escapes
//! control characters by itself.

use std::cmp::Ordering;
use std::fmt;
use std::io::Write as _;
use std::time::Duration;

use besom_core::time::Time;
use serde::Serialize;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr};

use super::Failure;
use besom_config::{is_unprintable, printable};

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text for people.
    Table,
    /// One JSON document for programs.
    Json,
}

/// Maximum width of a cell, in columns of the terminal. JSON contains the whole text.
const CELL_WIDTH_MAX: usize = 200;
/// Ends a cell whose text is cut off.
const CUT: char = '…';

/// The first line of a text, up to the maximum width of a cell.
fn cell(text: &str) -> String {
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    // No character is wider than two columns, but it may have none, or be escaped.
    let near = first.floor_char_boundary(4 * CELL_WIDTH_MAX);
    let mut cell = printable(&first[..near]);
    let is_cut = near < first.len()
        || cell.width() > CELL_WIDTH_MAX
        || lines.any(|line| !line.trim().is_empty());
    if is_cut {
        let mut width = 0;
        let end = cell.char_indices().find(|(_, c)| {
            width += c.width().unwrap_or(0);
            width >= CELL_WIDTH_MAX
        });
        if let Some((at, _)) = end {
            cell.truncate(at);
        }
        cell.push(CUT);
    }
    cell
}

/// A table with headings. A column whose heading starts with `>` is right-aligned.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Those of the first row.
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Printed instead of a table without rows.
    empty: &'static str,
}

impl Table {
    /// Creates a table; `empty` is printed if it has no rows.
    pub fn new(empty: &'static str) -> Table {
        Table { empty, ..Table::default() }
    }

    /// Adds a row of headings and cells, with the same headings in every row. The cells are escaped,
    /// and cut off after their first line or [`CELL_WIDTH_MAX`].
    pub fn row<const N: usize>(&mut self, cells: [(&'static str, &dyn fmt::Display); N]) {
        let headings = cells.map(|(heading, _)| heading);
        if self.rows.is_empty() {
            self.headings = headings.to_vec();
        }
        debug_assert_eq!(headings[..], self.headings);
        self.rows.push(cells.iter().map(|(_, shown)| cell(&shown.to_string())).collect());
    }

    /// Renders the table with aligned columns.
    pub fn render(&self) -> String {
        if self.rows.is_empty() {
            return format!("{}\n", self.empty);
        }
        let heads: Vec<(bool, &str)> = self
            .headings
            .iter()
            .map(|h| h.strip_prefix('>').map_or((false, *h), |h| (true, h)))
            .collect();
        let widths: Vec<usize> = heads
            .iter()
            .enumerate()
            .map(|(i, (_, head))| {
                self.rows.iter().map(|r| r[i].width()).max().unwrap_or(0).max(head.width())
            })
            .collect();
        let line = |cells: Vec<&str>| {
            let mut line = String::new();
            for (i, cell) in cells.iter().enumerate() {
                let pad = " ".repeat(widths[i] - cell.width());
                if i > 0 {
                    line.push_str("  ");
                }
                if heads[i].0 {
                    line.push_str(&pad);
                    line.push_str(cell);
                } else {
                    line.push_str(cell);
                    line.push_str(&pad);
                }
            }
            format!("{}\n", line.trim_end())
        };
        let mut out = line(heads.iter().map(|(_, h)| *h).collect());
        for row in &self.rows {
            out.push_str(&line(row.iter().map(String::as_str).collect()));
        }
        out
    }
}

/// Names and values, printed as one pair per line.
#[derive(Debug, Clone, Default)]
pub struct Facts(Vec<(String, String)>);

impl Facts {
    /// Appends a pair.
    pub fn add(&mut self, name: impl Into<String>, value: impl ToString) -> &mut Facts {
        self.0.push((name.into(), value.to_string()));
        self
    }

    /// Renders the pairs with aligned values; names and values are escaped.
    pub fn render(&self) -> String {
        let width = self.0.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
        self.0
            .iter()
            .map(|(name, value)| {
                let pad = " ".repeat(width - name.width());
                format!("{}{pad}  {}\n", printable(name), printable(value))
            })
            .collect()
    }
}

/// Prints a result as JSON or as text.
///
/// # Errors
/// stdout cannot be written, or the value cannot be serialized.
pub fn show(
    format: Format,
    value: &impl Serialize,
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    let text = match format {
        Format::Table => text(),
        Format::Json => {
            let mut json = json(value)?;
            json.push('\n');
            json
        }
    };
    write(text.as_bytes())
}

/// Encodes a result as JSON, with escapes for the characters that [`printable`] escapes in a text: it
/// may be read in a terminal.
///
/// # Errors
/// The value cannot be serialized.
pub fn json(value: &impl Serialize) -> Result<String, Failure> {
    let json = serde_json::to_string(value)
        .map_err(|e| Failure::Failed(format!("the result cannot be encoded as JSON: {e}")))?;
    if !json.contains(is_unprintable) {
        return Ok(json);
    }
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_unprintable(c) {
            // Only texts contain such characters.
            for unit in c.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            escaped.push(c);
        }
    }
    Ok(escaped)
}

/// Like [`show`] for a list of at most `limit` rows; says on stderr if there may be more.
///
/// # Errors
/// stdout cannot be written.
pub fn show_list(
    format: Format,
    value: &impl Serialize,
    (rows, limit): (usize, u32),
    text: impl FnOnce() -> String,
) -> Result<(), Failure> {
    show(format, value, text)?;
    if rows == limit as usize {
        to_stderr!("cut at --limit {limit}: there may be more");
    }
    Ok(())
}

/// Writes to stdout. A closed pipe (`besom runs ls | head`) is not an error.
///
/// # Errors
/// stdout cannot be written.
pub fn write(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Failed(format!("stdout cannot be written: {e}")))
        }
        _ => Ok(()),
    }
}

/// An instant as it is printed: with microseconds in JSON, to the second in text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub Time);

impl Serialize for Stamp {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&self.0)
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Time::from_secs(self.0.micros().div_euclid(1_000_000)).fmt(f)
    }
}

impl Stamp {
    /// Describes the distance from `now` in its two largest units, such as `in 4m 12s` or `3h 5m ago`.
    pub fn beside(self, now: Stamp) -> String {
        let span = |d: Duration| {
            let s = d.as_secs();
            match s {
                0..60 => format!("{s}s"),
                60..3_600 => format!("{}m {}s", s / 60, s % 60),
                3_600..86_400 => format!("{}h {}m", s / 3_600, s % 3_600 / 60),
                _ => format!("{}d {}h", s / 86_400, s % 86_400 / 3_600),
            }
        };
        // Both are rounded to the second, so that the distance matches the printed instants.
        let (at, now) = (self.0.micros() / 1_000_000, now.0.micros() / 1_000_000);
        match at.cmp(&now) {
            Ordering::Equal => "now".to_owned(),
            Ordering::Greater => format!("in {}", span(Duration::from_secs(at.abs_diff(now)))),
            Ordering::Less => format!("{} ago", span(Duration::from_secs(at.abs_diff(now)))),
        }
    }
}

/// Returns the text of an optional cell, `-` for `None`.
pub fn text(s: Option<impl ToString>) -> String {
    s.map_or_else(|| "-".to_owned(), |s| s.to_string())
}

/// Width of the longest bar, in characters.
const BAR_CELLS_MAX: u64 = 40;

/// Draws a bar whose length is proportional to `value`; `most` gets the full width.
pub fn bar(value: u64, most: u64) -> String {
    let cells = (value * BAR_CELLS_MAX + most / 2).checked_div(most).unwrap_or(0);
    // A value above zero gets at least one character.
    let cells = cells.max(u64::from(value > 0));
    "█".repeat(usize::try_from(cells).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values_and_never_lie_about_nothing() {
        for (value, most, cells) in [(0, 0, 0), (0, 9, 0), (1, 1_000, 1), (5, 10, 20), (7, 7, 40)] {
            assert_eq!(bar(value, most).chars().count(), cells, "{value} of {most}");
        }
    }

    #[test]
    fn json_shows_no_character_that_a_terminal_obeys() {
        let texts =
            ["\u{1b}[2J", "\u{9b}2J", "a\u{202e}b", "\u{7f}", "\u{e0041}", "\u{e9}\u{1f9f9}"];
        let shown = json(&texts).unwrap();
        assert!(!shown.contains(is_unprintable), "{shown:?}");
        assert!(shown.ends_with("\"\u{e9}\u{1f9f9}\"]"), "{shown:?}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&shown).unwrap(), texts);
    }

    #[test]
    fn programs_get_the_instant_and_people_the_second() {
        let stamp = Stamp(Time(1_750_000_000_999_999));
        assert_eq!(serde_json::to_string(&stamp).unwrap(), "\"2025-06-15T15:06:40.999999Z\"");
        assert_eq!(stamp.to_string(), "2025-06-15T15:06:40Z");
    }

    #[test]
    fn a_distance_has_its_two_largest_units() {
        let now = Stamp(Time::from_secs(1_750_000_000));
        for (seconds, text) in [
            (0, "now"),
            (59, "in 59s"),
            (-1, "1s ago"),
            (252, "in 4m 12s"),
            (-11_100, "3h 5m ago"),
            (100_000, "in 1d 3h"),
        ] {
            let at = Stamp(Time::from_secs(1_750_000_000 + seconds));
            assert_eq!(at.beside(now), text);
        }
    }

    #[test]
    fn a_cell_is_one_line_of_a_bounded_width() {
        for (text, expected) in [
            ("", String::new()),
            ("one line", "one line".into()),
            ("one line\n", "one line".into()),
            ("act: panicked\n  at spin\n  at main", "act: panicked…".into()),
            ("two\r\nlines", "two…".into()),
        ] {
            assert_eq!(cell(text), expected, "{text:?}");
        }
        let whole = "x".repeat(CELL_WIDTH_MAX);
        assert_eq!(cell(&whole), whole);
        for long in ["x", "日", "e\u{301}", "\u{1b}"] {
            let cell = cell(&long.repeat(1 << 20));
            assert!(cell.ends_with(CUT) && cell.width() <= CELL_WIDTH_MAX, "{long:?}: {cell}");
            assert!(cell.width() > CELL_WIDTH_MAX - 3, "{long:?}: {cell}");
        }
        let mut table = Table::new("nothing");
        table.row([("ERROR", &"panicked\n  at spin"), ("KEY", &"k")]);
        assert_eq!(table.render(), "ERROR      KEY\npanicked…  k\n");
    }

    #[test]
    fn columns_line_up_and_control_characters_stay_out() {
        let mut table = Table::new("nothing");
        assert_eq!(table.render(), "nothing\n");
        table.row([("KEY", &"日本"), (">N", &7)]);
        table.row([("KEY", &"a\x1b[2J"), (">N", &100)]);
        assert_eq!(
            table.render(),
            "KEY          N\n日本         7\na\\u{1b}[2J  100\n"
                .replace("KEY          N", "KEY           N")
                .replace("日本         7", "日本          7")
        );
    }
}
