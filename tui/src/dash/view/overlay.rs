//! Draws the overlay above a screen: help, commands, the filter, dialogs.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use crate::dash::confirm::{Confirm, Focus};
use crate::dash::field::Field;
use crate::dash::help;
use crate::dash::palette::{Palette, SHOWN_MAX};
use crate::dash::state::{Overlay, State};
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::field::field;
use crate::dash::widgets::panel::middle;
use crate::dash::widgets::{clear, put, put_all, put_n, put_right, rows};

/// The maximum width of a box.
const WIDE: u16 = 74;

pub(super) fn overlay(state: &State, theme: &Theme, area: Rect, buf: &mut Buffer) {
    // The status line stays visible.
    let below = rows(area, 1, area.height);
    match &state.overlay {
        Overlay::None => {}
        Overlay::Help(top) => help_box(state, *top, theme, below, buf),
        Overlay::Palette(palette) => palette_box(palette, theme, below, buf),
        Overlay::Confirm(confirm) => confirm_box(confirm, theme, below, buf),
        Overlay::Filter(typed) => filter_line(typed, theme, area, buf),
        Overlay::Leave => {
            let inside = middle(buf, theme, below, (WIDE, 2), "Leave?");
            put(buf, inside, 1, 0, "The form has unsaved changes.", theme.warn);
            let keys = [("y", theme.accent), (" leave   ", theme.text)];
            let x = put_all(buf, inside, 1, 1, &keys);
            put_all(buf, inside, x, 1, &[("any other key", theme.accent), (" stay", theme.text)]);
        }
    }
}

fn help_box(state: &State, top: u16, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let lines = help::lines(state.screens.at(state.place), &state.context());
    let title = format!("{}: keys and terms", state.place.name());
    let inside = middle(buf, theme, area, (WIDE, lines.len() as u16 + 1), &title);
    let rows = usize::from(inside.height);
    // The last page is full.
    let top = usize::from(top).min(lines.len().saturating_sub(rows));
    let more = lines.len().saturating_sub(top + rows);
    if more > 0 {
        let words = format!("j: {more} more lines ");
        put_right(buf, inside, inside.width, inside.height.saturating_sub(1), &words, theme.accent);
    }
    for (y, (key, what)) in lines.iter().skip(top).take(rows).enumerate() {
        let y = y as u16;
        if key.is_empty() {
            put(buf, inside, 1, y, what, theme.title);
        } else {
            put_n(buf, inside, 2, y, 15, key, theme.accent);
            put(buf, inside, 18, y, what, theme.text);
        }
    }
}

fn palette_box(palette: &Palette, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let height = SHOWN_MAX as u16 + 1;
    let inside = middle(buf, theme, area, (WIDE.min(60), height), "Commands");
    put(buf, inside, 1, 0, ":", theme.accent);
    let columns = inside.width.saturating_sub(4);
    field(buf, theme, inside, (3, 0, columns), &palette.field, true);
    let shown = usize::from(inside.height.saturating_sub(1));
    let from = (palette.at + 1).saturating_sub(shown);
    for (y, (at, entry)) in palette.found().enumerate().skip(from).take(shown).enumerate() {
        let line = rows(inside, y as u16 + 1, 1);
        put(buf, line, 2, 0, &entry.words, theme.text);
        if at == palette.at {
            put(buf, line, 0, 0, ">", theme.accent);
            buf.set_style(line, theme.selected);
        }
    }
    let more = palette.found().len().saturating_sub(from + shown);
    if more > 0 {
        put_right(buf, inside, inside.width, 0, &format!("{more} more below "), theme.dim);
    }
    if palette.found().len() == 0 {
        put(buf, inside, 2, 1, "no such command; esc closes", theme.dim);
    }
}

fn filter_line(typed: &Field, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let line = rows(area, area.height.saturating_sub(1), 1);
    clear(buf, line);
    let x = put(buf, line, 1, 0, "/", theme.accent) + 2;
    let keys = "⏎ keep  esc clear";
    let columns = line.width.saturating_sub(x + 20).max(line.width.min(10));
    field(buf, theme, line, (x, 0, columns), typed, true);
    put(buf, line, x + columns + 2, 0, keys, theme.dim);
}

fn confirm_box(confirm: &Confirm, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let wide = WIDE.min(area.width.saturating_sub(2));
    let columns = usize::from(wide.saturating_sub(2));
    let lines: Vec<String> =
        confirm.lines.iter().flat_map(|line| text::wrap(line, columns)).collect();
    let command = text::wrap(&confirm.command(), columns.saturating_sub(2));
    let counted = u16::from(confirm.count.is_some());
    // With little room the explanation is shortened, never the fields and buttons.
    let fixed = 3 + counted;
    let room = usize::from(area.height.saturating_sub(2 + fixed));
    let command = &command[..command.len().min(room.min(4))];
    let lines = &lines[..lines.len().min(room - command.len())];
    let height = (lines.len() + command.len()) as u16 + fixed;
    let inside = middle(buf, theme, area, (wide, height), &confirm.title);
    let mut y = 0;
    for line in lines {
        put(buf, inside, 1, y, line, theme.text);
        y += 1;
    }
    for line in command {
        let x =
            put(buf, inside, 1, y, if y as usize == lines.len() { "$ " } else { "  " }, theme.dim);
        put(buf, inside, 1 + x, y, line, theme.dim);
        y += 1;
    }
    let asked = if confirm.reason_required { "reason (required) " } else { "reason (optional) " };
    let x = 1 + put(buf, inside, 1, y, asked, theme.text);
    let rest = inside.width.saturating_sub(x + 1);
    field(buf, theme, inside, (x, y, rest), &confirm.reason, confirm.focus == Focus::Reason);
    y += 1;
    if let Some((count, typed)) = &confirm.count {
        let asked = format!("type the count, {count}, to confirm ");
        let x = 1 + put(buf, inside, 1, y, &asked, theme.text);
        field(buf, theme, inside, (x, y, 10), typed, confirm.focus == Focus::Count);
        y += 1;
    }
    let mut x = 1;
    for stop in confirm.stops() {
        let label = match stop {
            Focus::Reason | Focus::Count => continue,
            Focus::Export => "Export first",
            Focus::Cancel => "Cancel",
            Focus::Do => confirm.button,
        };
        let here = stop == confirm.focus;
        let label = if here { format!("[>{label}<]") } else { format!("[ {label} ]") };
        let style = if here { theme.active } else { theme.text };
        x += put(buf, inside, x, y, &label, style) + 2;
    }
    y += 1;
    let missing = confirm.missing().unwrap_or("⏎ confirms");
    put_all(buf, inside, 1, y, &[(missing, theme.dim), ("   tab moves   esc cancels", theme.dim)]);
}
