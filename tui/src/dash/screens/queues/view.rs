//! Draws the queues and the dead letters.

use besom_snapshot::Letter;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::depth::Row;
use super::letters::{self, Letters};
use super::{By, Focus, GROUPS, QueuesScreen, group_ids};
use crate::dash::context::Context;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{columns, put, put_n, put_right, rows, rule};

/// From this width on, the selected letter is shown at the side.
const BESIDE_WIDTH_MIN: u16 = 150;
/// Rows of the selected letter below the list.
const LETTER_ROWS: u16 = 5;

impl QueuesScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let opened =
            self.letters.as_ref().and_then(|letters| Some((letters.chosen(cx)?, letters.opened?)));
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
            self.short(cx, theme, rows(main, main.height - below + 1, LETTER_ROWS), buf);
        }
        if beside {
            let inside = panel(buf, theme, columns(area, main.width, side), "Letter");
            self.short(cx, theme, inside, buf);
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
            columns: &Row::COLUMNS,
            rows: &all,
            selected: self.queues.place(&ids),
            focused: self.focus == Focus::Queues,
            order: self.queues.order,
            empty: match (self.filter.is_empty(), self.by) {
                (true, By::Task) => "No tasks yet: add a section [tasks.NAME] to besom.toml.",
                (true, By::Node) => "No node has reported yet. `besom serve` starts one.",
                (false, _) => "No name matches; esc clears the filter.",
            },
            seen: &self.queues.seen,
        };
        table.draw(cx, theme, rows(area, 1, area.height), buf);
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
                        let shown = letters.shown(cx).len();
                        format!(" filter: {filter}  {shown} of {held}{more}{waits} ")
                    }
                };
                let room = area.width.saturating_sub(1 + text::width(&held) as u16);
                put_n(buf, title, 1, 0, room, &words, theme.title);
                put_right(buf, title, area.width, 0, &held, theme.dim);
                self.draw_letters(letters, cx, theme, body, buf);
            }
        }
    }

    fn draw_groups(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let groups = self.groups(cx);
        let focused = self.focus == Focus::Dead;
        let table = Table {
            columns: GROUPS,
            rows: &groups,
            selected: self.groups.exact(&group_ids(&groups)),
            focused,
            order: self.groups.order,
            empty: match self.groups_filter.is_empty() {
                true => {
                    "None: an item that fails permanently is listed here with all its errors, to \
                         be retried or discarded."
                }
                false => "No error or task matches; esc clears the filter.",
            },
            seen: &self.groups.seen,
        };
        table.draw(cx, theme, area, buf);
    }

    fn draw_letters(
        &self,
        letters: &Letters,
        cx: &Context<'_>,
        theme: &Theme,
        area: Rect,
        buf: &mut Buffer,
    ) {
        let shown = letters.shown(cx);
        let ids: Vec<u64> = shown.iter().map(|letter| letter.id).collect();
        let table = Table {
            columns: letters.columns(),
            rows: &shown,
            selected: letters.table.place(&ids),
            focused: self.focus == Focus::Dead,
            order: letters.table.order,
            empty: match (letters.waits(), letters.filter.is_empty()) {
                (true, _) => "Fetching …",
                (false, true) => "None left.",
                (false, false) => "No key, tenant or error matches; esc clears the filter.",
            },
            seen: &letters.table.seen,
        };
        table.draw(cx, theme, area, buf);
    }

    /// Draws the selected letter in a few lines.
    fn short(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let letter = self.letters.as_ref().and_then(|letters| letters.chosen(cx));
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
