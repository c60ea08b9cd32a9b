//! Draws what is below the form: the next slots, the forecast, and the preview of the edit.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use besom_snapshot::{DiffKind, DiffLine};

use super::super::Open;
use super::super::check::{Reading, Slot};
use super::inside;
use crate::dash::context::Context;
use crate::dash::screens::figure::date_clock;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::{put, put_all, rows, rule};

/// Slots shown when there is little room.
const SLOTS: usize = 5;
/// Lines of the diff kept when there is little room.
const DIFF_MIN: u16 = 4;

/// With fewer rows, only the slots are shown.
const TINY: u16 = 7;
/// With fewer columns, the day is left out.
const DAY_MIN: u16 = 60;

/// Draws the area below the form.
pub fn draw(open: &Open, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    // The diff keeps a few lines; the slots matter most while typing.
    let diff = diff_lines(open, theme, area.width);
    let keep = (diff.len() as u16 + 1).min(DIFF_MIN.max(area.height / 3)).min(area.height / 2);
    let keep = if area.height < TINY { 0 } else { keep };
    let top = rows(area, 0, area.height - keep);
    let slots = (usize::from(top.height).saturating_sub(4)).clamp(1, SLOTS);
    let taken = preview(open, cx, theme, (slots, false), top, buf);
    let taken = taken + outlook(open, cx, theme, rows(top, taken, top.height - taken), buf);
    let bottom = rows(area, taken, area.height - taken);
    if bottom.height < 2 {
        return;
    }
    rule(buf, bottom, 0, theme.line);
    difference(&diff, rows(bottom, 1, bottom.height - 1), buf);
}

/// Draws the next slots of the last valid schedule; returns the number of rows used.
pub fn preview(
    open: &Open,
    cx: &Context<'_>,
    theme: &Theme,
    (slots, others): (usize, bool),
    area: Rect,
    buf: &mut Buffer,
) -> u16 {
    let Some(valid) = &open.check.valid else {
        let words = match open.check.reading {
            Reading::None => "No schedule: it runs only when triggered (besom task trigger)",
            Reading::Valid | Reading::Wrong(_) => "No next runs: the schedule is invalid",
        };
        put(buf, area, 1, 0, words, theme.dim);
        return 1.min(area.height);
    };
    let of = match open.check.reading {
        Reading::Valid => "NEXT RUNS of ",
        Reading::None => "It would run only when triggered; previously: ",
        Reading::Wrong(_) => "NEXT RUNS of the last valid value: ",
    };
    let windows = cx.snap.task(&open.form.task).map(|task| task.windows.clone());
    let windows = windows.unwrap_or_default();
    let within = if windows.is_empty() { "" } else { ", within its windows" };
    let zone = format!("   in {}{within}", valid.zone);
    let pieces = [(of, theme.title), (&valid.expression, theme.accent), (&zone, theme.dim)];
    put_all(buf, inside(area), 0, 0, &pieces);
    let room = usize::from(area.height.saturating_sub(2));
    let next = valid.next(&windows, cx.now, slots.min(room));
    // The day is shown if it differs from the day in UTC.
    let local = |slot: &Slot| match date_clock(slot.at).starts_with(&slot.date) {
        true => slot.local.clone(),
        false => format!("{} {}", slot.date.get(5..).unwrap_or(&slot.date), slot.local),
    };
    let wide = next.iter().map(|slot| text::width(&local(slot))).max().unwrap_or(5);
    let full = area.width >= DAY_MIN;
    let utc_wide = if full { 19 } else { 8 };
    let head = format!("  #  {:<utc_wide$}  {:<wide$} from now  note", "UTC", "local");
    put(buf, area, 0, 1, &head, theme.dim);
    let mut y = 2;
    for (number, slot) in (1..).zip(&next) {
        let utc = if full { date_clock(slot.at) } else { text::clock(slot.at) };
        let with = others.then(|| open.agenda.collisions.get(&slot.at)).flatten();
        let with = with.map(|tasks| format!("with {}", tasks.join(", ")));
        // The date is already shown at the left.
        let clocks = slot.note.as_ref().map(|note| note.replace(&format!(" on {}", slot.date), ""));
        let note = [clocks, with].into_iter().flatten().collect::<Vec<_>>().join("; ");
        let from_now = format!("in {}", text::span(slot.at.since(cx.now)));
        let line = format!(" {number:>2}  {utc}  {:<wide$} {from_now:<9} ", local(slot));
        let x = put(buf, area, 0, y, &line, theme.text);
        put(buf, area, x, y, &note, theme.warn);
        y += 1;
    }
    if next.is_empty() && room > 0 {
        put(buf, area, 1, y, "none before the end of the calendar", theme.warn);
        y += 1;
    }
    y.min(area.height)
}

/// Draws the forecast and, if there is one, a day without a run; returns the number of rows used.
pub fn outlook(open: &Open, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) -> u16 {
    let mut words: Vec<(String, Style)> = Vec::new();
    match open.forecast(cx) {
        Some(forecast) if forecast.is_warning() => {
            words.push((format!("WARN {}", forecast.sentence), theme.warn));
        }
        Some(forecast) => words.push((forecast.sentence, theme.dim)),
        None if open.check.valid.is_some() => {
            let words_of = match open.past(cx) {
                Some(_) => "No run has succeeded yet: there is no data to forecast overlaps",
                None => "Reading past runs to forecast overlaps …",
            };
            words.push((words_of.to_owned(), theme.dim));
        }
        None => {}
    }
    let valid = open.check.valid.as_ref();
    if let Some(day) = valid.and_then(|valid| valid.schedule.day_without_run(cx.now)) {
        words.push((format!("WARN {}", day.warning), theme.warn));
    }
    let mut y = 0;
    for (words, style) in words {
        let lines = text::wrap(&words, usize::from(area.width.saturating_sub(2)));
        for line in lines.iter().take(3) {
            if y < area.height {
                put(buf, area, 1, y, line, style);
                y += 1;
            }
        }
    }
    y
}

/// The preview of the edit, line by line: problems, wrapped at `columns`, then the diff.
pub fn diff_lines(open: &Open, theme: &Theme, columns: u16) -> Vec<(String, Style)> {
    let exchange = &open.exchange;
    if let Some(why) = &exchange.preview_refusal {
        return vec![(format!("The preview failed: {why}"), theme.bad)];
    }
    if !open.form.is_changed() {
        return vec![("No change: the file stays the same".to_owned(), theme.dim)];
    }
    let Some((of, edited)) = &exchange.preview else {
        return vec![("Previewing the change to the file ...".to_owned(), theme.dim)];
    };
    let mut lines = Vec::new();
    if *of != open.form.changes() {
        lines.push(("outdated; previewing your latest changes ...".to_owned(), theme.dim));
    }
    for problem in &edited.problems {
        let (sign, style) = match problem.warning {
            true => ("warning", theme.warn),
            false => ("error", theme.bad),
        };
        let place = match problem.line {
            0 => String::new(),
            line => format!(" line {line}:{}", problem.column),
        };
        let words = format!("{sign}{place}: {}; {}", problem.message, problem.fix);
        let broken = text::wrap(&words, usize::from(columns.saturating_sub(2)));
        lines.extend(broken.into_iter().map(|line| (line, style)));
    }
    lines.extend(edited.diff.iter().map(|line| diff_line(line, theme)));
    lines
}

/// A line of a diff with its sign.
pub fn diff_line(line: &DiffLine, theme: &Theme) -> (String, Style) {
    let (sign, style) = match line.kind {
        DiffKind::Kept => (' ', theme.dim),
        DiffKind::Removed => ('-', theme.bad),
        DiffKind::Added => ('+', theme.good),
    };
    (format!("{sign} {:>4} {}", line.line, line.text), style)
}

/// Draws lines of a diff; if there are too many, those around the changes.
pub fn difference(lines: &[(String, Style)], area: Rect, buf: &mut Buffer) {
    let height = usize::from(area.height);
    // Without room for the context lines, only the changes are drawn.
    let changes: Vec<(String, Style)>;
    let mut lines = lines;
    if lines.len() > height {
        let kept = |(words, _): &&(String, Style)| !words.starts_with(' ');
        changes = lines.iter().filter(kept).cloned().collect();
        lines = &changes;
    }
    let changed = lines.iter().position(|(words, _)| !words.starts_with(' ')).unwrap_or(0);
    let from = changed.saturating_sub(1).min(lines.len().saturating_sub(height));
    for (y, (words, style)) in (0..area.height).zip(&lines[from..]) {
        put(buf, area, 1, y, words, *style);
    }
}
