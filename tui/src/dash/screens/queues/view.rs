//! Draws the queues and the dead letters.

use besom_core::snapshot::Letter;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::depth::{Drain, Row};
use super::letters::{self, Letters};
use super::{By, Focus, QueuesScreen, group_ids};
use crate::dash::context::Context;
use crate::dash::table::{Column, Width};
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::spark::spark;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{columns, put, put_n, put_right, rows, rule};

/// Samples of the depth that are drawn.
const SAMPLES: usize = 15;
/// From this width on, the selected letter is shown at the side.
const BESIDE_WIDTH_MIN: u16 = 150;
/// Rows of the selected letter below the list.
const LETTER_ROWS: u16 = 5;
/// An item that has waited longer is highlighted.
const OLDEST_MAX_S: u64 = 60;

/// The columns of the queues.
pub(super) const COLUMNS: [Column; 11] = [
    Column::left("NAME", Width::Fill(12), 0),
    Column::right("READY", Width::Fixed(6), 0),
    Column::right("TIMERS", Width::Fixed(6), 7),
    Column::right("RETRY", Width::Fixed(5), 4),
    Column::right("RUN", Width::Fixed(4), 5),
    Column::right("DEAD", Width::Fixed(5), 2),
    Column::right("IN/s", Width::Fixed(5), 6),
    Column::right("OUT/s", Width::Fixed(5), 6),
    Column::right("DRAIN", Width::Fixed(6), 1),
    Column::right("OLDEST", Width::Fixed(6), 3),
    Column::left("DEPTH 15m", Width::Fixed(SAMPLES as u16), 8),
];

pub(super) const GROUP_COLUMNS: [Column; 5] = [
    Column::left("ERROR", Width::Fill(20), 0),
    Column::right("COUNT", Width::Fixed(6), 0),
    Column::right("FIRST", Width::Fixed(8), 3),
    Column::right("LAST", Width::Fixed(8), 1),
    Column::left("TASK", Width::Fixed(16), 2),
];

/// The columns of letters; the last two are for letters of several groups.
const LETTER_COLUMNS: [Column; 7] = [
    Column::right("LETTER", Width::Fixed(8), 0),
    Column::left("KEY", Width::Fill(20), 0),
    Column::right("TRIES", Width::Fixed(5), 3),
    Column::right("SET ASIDE", Width::Fixed(9), 1),
    Column::left("TENANT", Width::Fixed(12), 2),
    Column::left("TASK", Width::Fixed(16), 4),
    Column::left("ERROR", Width::Fill(20), 5),
];

/// The columns for these letters.
pub(super) fn letter_columns(letters: &Letters) -> &'static [Column] {
    match letters.of {
        Some(_) => &LETTER_COLUMNS[..letters::TASK],
        None => &LETTER_COLUMNS,
    }
}

impl QueuesScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let opened =
            self.letters.as_ref().and_then(|letters| Some((letters.chosen()?, letters.opened?)));
        if let Some((letter, top)) = opened {
            return whole(letter, top, theme, area, buf);
        }
        let beside = area.width >= BESIDE_WIDTH_MIN && area.height >= 12;
        let (main, side) = match beside {
            true => (area.width * 3 / 5, area.width - area.width * 3 / 5),
            false => (area.width, 0),
        };
        let main = columns(area, 0, main);
        // Without room for both, the part with the focus is shown.
        if main.height < 10 {
            match self.focus {
                Focus::Queues => self.queues(cx, theme, main, buf),
                Focus::Dead => self.dead(cx, theme, main, buf),
            }
            return;
        }
        let short = self.letters.is_some() && !beside && main.height >= 16;
        let below = if short { LETTER_ROWS + 1 } else { 0 };
        let wanted = self.rows(cx).len().saturating_add(2).min(usize::from(main.height)) as u16;
        let upper = wanted.clamp(4, (main.height - below) / 2 + 1);
        self.queues(cx, theme, rows(main, 0, upper), buf);
        rule(buf, main, upper, theme.line);
        let dead = main.height - upper - 1 - below;
        self.dead(cx, theme, rows(main, upper + 1, dead), buf);
        if below > 0 {
            rule(buf, main, main.height - below, theme.line);
            self.short(theme, rows(main, main.height - below + 1, LETTER_ROWS), buf);
        }
        if beside {
            let inside = panel(buf, theme, columns(area, main.width, side), "Letter");
            self.short(theme, inside, buf);
        }
    }

    fn queues(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let by = match self.by {
            By::Task => "by task (b: by node)",
            By::Node => "by node (b: by task)",
        };
        put(buf, area, 1, 0, "Queues", theme.title);
        let filter = match self.filter.as_str() {
            "" => String::new(),
            filter => format!("   filter: {filter}"),
        };
        put(buf, area, 9, 0, &format!("{by}{filter}"), theme.dim);
        let all = self.rows(cx);
        let ids: Vec<String> = all.iter().map(|row| row.name.to_owned()).collect();
        let table = Table {
            columns: &COLUMNS,
            rows: all.len(),
            selected: self.queues.place(&ids),
            focused: self.focus == Focus::Queues,
            sort: self.queues.sort.map(|column| (column, self.queues.descending)),
            empty: match (self.filter.is_empty(), self.by) {
                (true, By::Task) => "No tasks yet: add a section [tasks.NAME] to besom.toml.",
                (true, By::Node) => "No node has reported yet. `besom serve` starts one.",
                (false, _) => "No name matches; esc clears the filter.",
            },
            seen: &self.queues.seen,
        };
        table.draw(theme, rows(area, 1, area.height), buf, |at, column| {
            let row = &all[at];
            if column + 1 == COLUMNS.len() {
                let depths = match self.by {
                    By::Task => cx.trends.task(row.name, cx.now, SAMPLES * 4),
                    By::Node => cx.trends.node(row.name, cx.now, SAMPLES * 4),
                };
                return (spark(&minutes(&depths), SAMPLES), theme.spark);
            }
            cell(row, column, cx, theme)
        });
    }

    fn dead(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let title = rows(area, 0, 1);
        let body = rows(area, 1, area.height);
        let count = text::grouped(cx.snap.dead_letters());
        match &self.letters {
            None => {
                let filter = match self.groups_filter.as_str() {
                    "" => String::new(),
                    filter => format!("   filter: {filter}"),
                };
                let words = format!("Dead letters ({count}) by error");
                let x = 1 + put(buf, title, 1, 0, &words, theme.title);
                put(buf, title, x, 0, &filter, theme.dim);
                self.draw_groups(cx, theme, body, buf);
            }
            Some(letters) => {
                let words = match &letters.of {
                    Some((task, error)) => format!("{task}: {error}"),
                    None => format!("All dead letters ({count}), newest first"),
                };
                let held = letters.list.len();
                let more = if letters.more { "+" } else { "" };
                let waits = if letters.waits() { " …" } else { "" };
                let held = match letters.filter.as_str() {
                    "" => format!(" {held}{more}{waits} "),
                    filter => {
                        let shown = letters.shown().len();
                        format!(" filter: {filter}  {shown} of {held}{more}{waits} ")
                    }
                };
                let room = area.width.saturating_sub(1 + text::width(&held) as u16);
                put_n(buf, title, 1, 0, room, &words, theme.title);
                put_right(buf, title, area.width, 0, &held, theme.dim);
                self.letters(letters, theme, body, buf);
            }
        }
    }

    fn draw_groups(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let groups = self.groups(cx);
        let focused = self.focus == Focus::Dead;
        let table = Table {
            columns: &GROUP_COLUMNS,
            rows: groups.len(),
            selected: self.groups.exact(&group_ids(&groups)),
            focused,
            sort: self.groups.sort.map(|column| (column, self.groups.descending)),
            empty: match self.groups_filter.is_empty() {
                true => {
                    "None: an item that fails permanently is listed here with all its errors, to \
                         be retried or discarded."
                }
                false => "No error or task matches; esc clears the filter.",
            },
            seen: &self.groups.seen,
        };
        table.draw(theme, area, buf, |at, column| {
            let group = groups[at];
            match column {
                0 => (group.error.clone(), theme.warn),
                1 => (text::count(group.count), theme.text),
                2 => (text::clock(group.first), theme.text),
                3 => (text::clock(group.last), theme.text),
                _ => (group.task.clone(), theme.text),
            }
        });
    }

    fn letters(&self, letters: &Letters, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let shown = letters.shown();
        let ids: Vec<u64> = shown.iter().map(|at| letters.list[*at].id).collect();
        let table = Table {
            columns: letter_columns(letters),
            rows: shown.len(),
            selected: letters.table.place(&ids),
            focused: self.focus == Focus::Dead,
            sort: letters.table.sort.map(|column| (column, letters.table.descending)),
            empty: match (letters.waits(), letters.filter.is_empty()) {
                (true, _) => "Fetching …",
                (false, true) => "None left.",
                (false, false) => "No key, tenant or error matches; esc clears the filter.",
            },
            seen: &letters.table.seen,
        };
        table.draw(theme, area, buf, |at, column| {
            let letter = &letters.list[shown[at]];
            let words = match column {
                letters::LETTER => letter.id.to_string(),
                letters::KEY => letter.key.clone(),
                letters::TRIES => letter.attempts.to_string(),
                letters::ASIDE => text::clock(letter.at),
                letters::TENANT => letter.tenant.clone().unwrap_or_else(|| "-".to_owned()),
                letters::TASK => letter.task.clone(),
                _ => letter.errors.last().cloned().unwrap_or_default(),
            };
            (words, theme.text)
        });
    }

    /// Draws the selected letter in a few lines.
    fn short(&self, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let letter = self.letters.as_ref().and_then(Letters::chosen);
        let Some(letter) = letter else {
            let words = "⏎ on an error shows its letters, with every attempt and the payload.";
            for (y, line) in
                text::wrap(words, usize::from(area.width.saturating_sub(2))).iter().enumerate()
            {
                put(buf, area, 1, y as u16, line, theme.dim);
            }
            return;
        };
        draw(letter, 0, theme, area, buf);
    }
}

/// Converts samples of a quarter of a minute to minutes: the maximum of each.
fn minutes(depths: &[Option<u64>]) -> Vec<Option<u64>> {
    depths.rchunks(4).rev().map(|four| four.iter().flatten().copied().max()).collect()
}

fn cell(row: &Row<'_>, column: usize, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    let count = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), text::count);
    let plain = |words: String| (words, theme.text);
    match column {
        0 => plain(row.name.to_owned()),
        1 => plain(count(row.ready)),
        2 => plain(count(row.timers)),
        3 => plain(count(row.retries)),
        4 => plain(count(row.running)),
        5 => {
            let style = if row.dead.is_some_and(|n| n > 0) { theme.warn } else { theme.text };
            (count(row.dead), style)
        }
        6 => plain(text::rate(row.arriving)),
        7 => plain(text::rate(row.leaving)),
        8 => match row.drain() {
            Drain::Empty => ("-".to_owned(), theme.dim),
            Drain::After(span) => plain(text::short(span)),
            Drain::Never => ("NEVER".to_owned(), theme.bad),
            Drain::Unknown => plain("?".to_owned()),
        },
        _ => match (row.oldest, row.ready) {
            (Some(at), _) => {
                let waits = cx.now.since(at);
                let late = waits.as_secs() > OLDEST_MAX_S;
                (text::short(waits), if late { theme.warn } else { theme.text })
            }
            (None, Some(0)) => ("-".to_owned(), theme.dim),
            (None, _) => plain("?".to_owned()),
        },
    }
}

/// Draws a letter from its line `top` on; returns its number of lines.
fn draw(letter: &Letter, top: usize, theme: &Theme, area: Rect, buf: &mut Buffer) -> usize {
    let wide = usize::from(area.width.saturating_sub(2));
    let lines = letters::lines(letter);
    let wrapped: Vec<(String, Style)> = lines
        .iter()
        .flat_map(|line| {
            let style = if line.starts_with('#') { theme.warn } else { theme.text };
            text::wrap(line, wide).into_iter().map(move |line| (line, style))
        })
        .collect();
    for (y, (line, style)) in wrapped.iter().skip(top).enumerate().take(usize::from(area.height)) {
        put(buf, area, 1, y as u16, line, *style);
    }
    wrapped.len()
}

/// Draws a letter on the whole screen.
fn whole(letter: &Letter, top: u16, theme: &Theme, area: Rect, buf: &mut Buffer) {
    put(buf, area, 1, 0, &format!("Dead letter {} of {}", letter.id, letter.task), theme.title);
    let below = rows(area, 2, area.height);
    draw(letter, usize::from(top), theme, below, buf);
}
