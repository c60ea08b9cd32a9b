//! Draws the form with all its surroundings: the whole file with the changed hunk at the right, the
//! agenda of all tasks at the bottom.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use besom_core::command::counted;
use besom_snapshot::DiffKind;

use super::super::agenda::{CELLS, Lane, SLOTS};
use super::super::section::Section;
use super::super::{Open, agenda::Agenda};
use super::{below, form};
use crate::dash::context::Context;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::{columns, put, put_n, rows, spark, strip};

/// The width of a lane's name.
const NAME: u16 = 22;
/// Rows of the agenda: its border, the days, the lanes.
const AGENDA_MAX: u16 = 12;

/// Draws the screen.
pub fn draw(open: &Open, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let lanes = open.agenda.lanes.len() as u16;
    let bottom = (lanes + 4).min(AGENDA_MAX).min(area.height / 3);
    let upper = rows(area, 0, area.height - bottom);
    let half = area.width * 5 / 8;
    let left = columns(upper, 0, half);
    let right = columns(upper, half, upper.width - half);
    let taken = form(open, cx, theme, left, buf);
    let left = rows(left, taken, left.height - taken);
    // The forecast and the diff keep their lines below the twenty slots.
    let diff = below::diff_lines(open, theme, left.width);
    let keep = (diff.len() as u16).clamp(1, 8).min(left.height / 3);
    let slots = usize::from(left.height.saturating_sub(keep + 6)).min(SLOTS);
    let top = rows(left, 0, left.height - keep);
    let taken = below::preview(open, cx, theme, (slots, true), top, buf);
    let taken = taken + below::outlook(open, cx, theme, rows(top, taken, top.height - taken), buf);
    let rest = rows(left, taken + 1, left.height.saturating_sub(taken + 1));
    below::difference(&diff, rest, buf);
    file(open, theme, right, buf);
    agenda(&open.agenda, &open.form.task, theme, rows(area, area.height - bottom, bottom), buf);
}

/// Draws the file with the diff in place.
fn file(open: &Open, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let Some(file) = &open.exchange.file else {
        let inside = panel(buf, theme, area, "File");
        put(buf, inside, 1, 0, "reading ...", theme.dim);
        return;
    };
    let inside = panel(buf, theme, area, &format!("{} of {}", file.path, file.host));
    let lines = merged(open, theme, &file.text);
    let section = Section::find(&file.text, &open.form.task).map_or(0, |section| section.line);
    let changed = lines.iter().position(|(_, _, changed)| *changed);
    let around = changed.unwrap_or(section.saturating_sub(1) as usize);
    let height = usize::from(inside.height);
    let from = around.saturating_sub(height / 3).min(lines.len().saturating_sub(height));
    for (y, (words, style, _)) in (0..inside.height).zip(&lines[from..]) {
        put(buf, inside, 0, y, words, *style);
    }
}

/// The lines of the file, with removed and added lines in place, and whether each is changed.
fn merged(open: &Open, theme: &Theme, file: &str) -> Vec<(String, Style, bool)> {
    let current = open.exchange.preview.as_ref().filter(|(of, _)| *of == open.form.changes());
    let diff = current.map(|(_, edited)| edited.diff.as_slice()).unwrap_or_default();
    let mut removed = diff.iter().filter(|line| line.kind == DiffKind::Removed).peekable();
    let mut added = diff.iter().filter(|line| line.kind == DiffKind::Added).peekable();
    let mut lines = Vec::new();
    // Removed lines are numbered in the old file, added ones in the new.
    let mut new = 1_u32;
    for (old, text) in (1_u32..).zip(file.lines()) {
        if removed.next_if(|line| line.line == old).is_some() {
            lines.push((format!("{old:>4} - {text}"), theme.bad, true));
            continue;
        }
        // An added line is placed after the removed lines, where the kept lines have reached its
        // number.
        while let Some(line) = added.next_if(|line| line.line == new) {
            lines.push((format!("{new:>4} + {}", line.text), theme.good, true));
            new += 1;
        }
        lines.push((format!("{old:>4}   {text}"), theme.text, false));
        new += 1;
    }
    lines.extend(added.map(|line| (format!("{:>4} + {}", line.line, line.text), theme.good, true)));
    lines
}

/// Draws the slots of the next 7 days per hour.
fn agenda(agenda: &Agenda, task: &str, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let inside = panel(buf, theme, area, "The next 7 days, hour by hour (UTC)");
    let body = columns(inside, NAME, inside.width.saturating_sub(NAME + 1));
    if agenda.lanes.is_empty() || body.width < 7 {
        put(
            buf,
            inside,
            1,
            0,
            "No valid schedule yet, and no other task has a schedule.",
            theme.dim,
        );
        return;
    }
    for day in 0..7_u16 {
        let at = besom_core::time::Time(agenda.from.0 + i64::from(day) * 86_400_000_000);
        let name = at.to_jiff().strftime("%a %d %H:%M").to_string();
        let x = u32::from(body.width) * u32::from(day) / 7;
        put_n(buf, body, x as u16, 0, body.width / 7, &name, theme.dim);
    }
    let most = |lane: &Lane| lane.hours.iter().copied().max().unwrap_or(0);
    for (y, lane) in (1..inside.height.saturating_sub(1)).zip(&agenda.lanes) {
        let edited = lane.task == task;
        let style = if edited { theme.accent } else { theme.text };
        let sign = if edited { ">" } else { " " };
        let name = text::clean(&lane.task);
        let name = format!("{sign}{}", text::cut(&name, usize::from(NAME) - 2));
        put(buf, inside, 0, y, &name, style);
        let most = u64::from(most(lane));
        let cells = (0..usize::from(body.width)).map(|x| {
            let hours = strip::part(x, usize::from(body.width), CELLS);
            let n = lane.hours[hours].iter().copied().max().unwrap_or(0);
            let sign = if n == 0 { '·' } else { spark::step(u64::from(n), most) };
            (sign, if n == 0 { theme.dim } else { style })
        });
        strip::strip(buf, body, y, cells);
    }
    let y = inside.height.saturating_sub(1);
    let together = agenda.collisions.len();
    let mut words = match together {
        0 => "None of the next 20 runs coincides with another task's".to_owned(),
        n => {
            let mut others: Vec<&str> =
                agenda.collisions.values().flatten().map(String::as_str).collect();
            others.sort_unstable();
            others.dedup();
            format!("{n} of the next {SLOTS} runs coincide with {}", others.join(", "))
        }
    };
    if agenda.left_out > 0 {
        words += &format!(" ({} not checked)", counted(agenda.left_out as u64, "task"));
    }
    put(buf, inside, 1, y, &words, if together > 0 { theme.warn } else { theme.dim });
}
