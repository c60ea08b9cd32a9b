//! Draws a table: its heading and its visible rows. The cost does not depend on the number of rows.

use std::borrow::Borrow;
use std::cell::Cell;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::{put_n, put_right};
use crate::dash::context::Context;
use crate::dash::table::{Column, Heading, Order, Seen, Width};
use crate::dash::text;
use crate::dash::theme::Theme;

/// Blank columns between two columns.
const GAP: u16 = 1;

/// A table to be drawn, with columns of `R`.
#[derive(Debug)]
pub struct Table<'a, R, T> {
    /// Its columns.
    pub columns: &'a [Column<R>],
    /// Its rows.
    pub rows: &'a [T],
    /// The index of the selected row.
    pub selected: Option<usize>,
    /// Whether this table has the focus; the selected row is marked in any case.
    pub focused: bool,
    /// Its order, shown in the heading.
    pub order: Order,
    /// The text shown when there are no rows.
    pub empty: &'a str,
    /// Records what was drawn.
    pub seen: &'a Cell<Seen>,
}

/// The columns that fit into a width, each with its position and width.
fn layout<R>(columns: &[Column<R>], width: u16) -> Vec<(usize, u16, u16)> {
    let columns: Vec<Heading> = columns.iter().map(|column| column.heading).collect();
    let least = |column: &Heading| match column.width {
        Width::Fixed(n) | Width::Fill(n) => n,
    };
    let mut shown: Vec<usize> = (0..columns.len()).collect();
    let needed = |shown: &[usize]| -> u32 {
        shown.iter().map(|at| u32::from(least(&columns[*at]) + GAP)).sum::<u32>()
    };
    while needed(&shown) > u32::from(width) {
        // Of several columns with the highest value, the last is dropped first.
        let last = shown.iter().enumerate().max_by_key(|(i, at)| (columns[**at].priority, *i));
        match last {
            Some((i, at)) if columns[*at].priority > 0 => {
                shown.remove(i);
            }
            _ => break,
        }
    }
    let rest = u32::from(width).saturating_sub(needed(&shown)) as u16;
    let fills = shown.iter().filter(|at| matches!(columns[**at].width, Width::Fill(_))).count();
    let (mut left, mut fills) = (rest, fills as u16);
    let mut x = 1;
    let place = |at: usize| {
        let mut wide = least(&columns[at]);
        if matches!(columns[at].width, Width::Fill(_)) {
            let share = left / fills.max(1);
            (left, fills) = (left - share, fills - 1);
            wide += share;
        }
        let from = x;
        x += wide + GAP;
        (at, from, wide)
    };
    shown.into_iter().map(place).collect()
}

impl<R, T: Borrow<R>> Table<'_, R, T> {
    /// Draws the table.
    pub fn draw(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let area = area.intersection(buf.area);
        let body = area.height.saturating_sub(1);
        let offset = self.offset(usize::from(body));
        let rows = (self.rows.len() - offset.min(self.rows.len())).min(usize::from(body));
        self.seen.set(Seen {
            offset,
            rows: body,
            top: area.y.saturating_add(1),
            left: area.x,
            width: area.width,
        });
        if area.is_empty() {
            return;
        }
        let columns = layout(self.columns, area.width);
        for (at, x, wide) in &columns {
            let column = &self.columns[*at].heading;
            let sign = match (self.order.by == Some(*at), self.order.descending) {
                (true, true) => "▼",
                (true, false) => "▲",
                (false, _) => "",
            };
            let name = format!("{}{sign}", column.name);
            write(buf, area, (*x, 0, *wide), column.right, &name, theme.title);
        }
        if self.rows.is_empty() {
            let lines = text::wrap(self.empty, usize::from(area.width.saturating_sub(2)));
            for (y, line) in lines.iter().enumerate().take(usize::from(body)) {
                put_n(buf, area, 1, y as u16 + 1, area.width - 1, line, theme.dim);
            }
        }
        for y in 0..rows {
            let row = offset + y;
            let line = y as u16 + 1;
            for (at, x, wide) in &columns {
                let column = &self.columns[*at];
                let (words, emphasis) = (column.cell)(self.rows[row].borrow(), cx);
                let style = theme.style(emphasis);
                write(buf, area, (*x, line, *wide), column.heading.right, &words, style);
            }
            if self.selected == Some(row) {
                put_n(buf, area, 0, line, 1, ">", theme.accent);
                if self.focused {
                    let whole = Rect { y: area.y + line, height: 1, ..area };
                    buf.set_style(whole, theme.selected);
                }
            }
        }
        self.tell_hidden(theme, area, buf, (offset, rows), &columns);
    }

    /// Indicates hidden rows: by arrows, and by numbers if the heading leaves room.
    fn tell_hidden(
        &self,
        theme: &Theme,
        area: Rect,
        buf: &mut Buffer,
        (offset, rows): (usize, usize),
        columns: &[(usize, u16, u16)],
    ) {
        if rows == 0 || rows >= self.rows.len() {
            return;
        }
        let chosen = |row| self.selected == Some(row);
        if offset > 0 && !chosen(offset) {
            put_n(buf, area, 0, 1, 1, "↑", theme.accent);
        }
        let last = offset + rows;
        if last < self.rows.len() && !chosen(last - 1) {
            put_n(buf, area, 0, rows as u16, 1, "↓", theme.accent);
        }
        let told = format!(" {}-{last} of {}", offset + 1, self.rows.len());
        let heading = columns.last().map_or(0, |(at, x, wide)| {
            let column = self.columns[*at].heading;
            let name = text::width(column.name) as u16 + 1;
            if column.right { x + wide } else { x + name.min(*wide) }
        });
        if usize::from(area.width.saturating_sub(heading)) >= told.len() {
            put_right(buf, area, area.width, 0, &told, theme.dim);
        }
    }

    /// The first row shown: unchanged, unless the selected row would be hidden.
    fn offset(&self, body: usize) -> usize {
        let was = self.seen.get().offset;
        let most = self.rows.len().saturating_sub(body);
        let Some(selected) = self.selected else { return was.min(most) };
        let least = (selected + 1).saturating_sub(body);
        was.clamp(least, selected.max(least)).min(most)
    }
}

fn write(
    buf: &mut Buffer,
    area: Rect,
    (x, y, wide): (u16, u16, u16),
    right: bool,
    words: &str,
    style: Style,
) {
    if !right {
        put_n(buf, area, x, y, wide, words, style);
        return;
    }
    let words = text::clean(words);
    let words = text::cut(&words, usize::from(wide));
    let blank = usize::from(wide) - text::width(&words).min(usize::from(wide));
    put_n(buf, area, x + blank as u16, y, wide, &words, style);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dash::table::plain;

    fn column(name: &'static str, width: Width, priority: u8) -> Column<Cell<bool>> {
        Column::left(name, width, priority, |row, _| {
            row.set(true);
            plain("x")
        })
    }

    #[test]
    fn columns_go_by_their_priority_and_the_rest_is_shared() {
        let columns = [
            column("A", Width::Fill(4), 0),
            column("B", Width::Fixed(5), 2),
            column("C", Width::Fixed(5), 1),
            column("D", Width::Fixed(5), 2),
        ];
        for (width, expected) in [
            (23, vec![(0, 1, 4), (1, 6, 5), (2, 12, 5), (3, 18, 5)]),
            (30, vec![(0, 1, 11), (1, 13, 5), (2, 19, 5), (3, 25, 5)]),
            (17, vec![(0, 1, 4), (1, 6, 5), (2, 12, 5)]),
            (11, vec![(0, 1, 4), (2, 6, 5)]),
            (7, vec![(0, 1, 6)]),
            (0, vec![(0, 1, 4)]),
        ] {
            assert_eq!(layout(&columns, width), expected, "{width} columns");
        }
    }

    #[test]
    fn ten_thousand_rows_ask_for_those_that_are_visible() {
        let columns = [column("A", Width::Fill(4), 0)];
        let rows = vec![Cell::new(false); 10_000];
        let seen = Cell::default();
        let table = Table {
            columns: &columns,
            rows: &rows,
            selected: Some(9_000),
            focused: true,
            order: Order::default(),
            empty: "",
            seen: &seen,
        };
        let area = Rect::new(0, 0, 20, 11);
        let theme = Theme::of(crate::dash::ThemeChoice::Mono);
        let state = crate::dash::State::default();
        table.draw(&state.context(), &theme, area, &mut Buffer::empty(area));
        let asked = (0..rows.len()).filter(|row| rows[*row].get());
        assert_eq!(asked.collect::<Vec<_>>(), (8_991..9_001).collect::<Vec<_>>());
        assert_eq!(seen.get().offset, 8_991);
    }
}
