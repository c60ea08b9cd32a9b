//! Draws the Edit screen.

mod below;
mod wide;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::values::Name;
use super::{COLUMNS, EditScreen, Open, ROWS, WIDE, fault};
use crate::dash::context::Context;
use crate::dash::field::Field;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::field::field;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{columns, put, put_all, rows, rule};

/// With fewer rows, only the field that is edited is shown.
const TINY: u16 = 12;
/// The minimum width of a text field.
const FIELD_MIN: u16 = 12;

impl EditScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let Some(open) = &self.open else {
            self.list(cx, theme, area, buf);
            return;
        };
        if cx.size.0 >= WIDE.0 && cx.size.1 >= WIDE.1 {
            wide::draw(open, cx, theme, area, buf);
        } else {
            let taken = form(open, cx, theme, area, buf);
            below::draw(open, cx, theme, rows(area, taken, area.height - taken), buf);
        }
    }

    fn list(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let tasks = self.rows(cx);
        let filter = match self.filter.as_str() {
            "" => String::new(),
            filter => format!("  filter: {filter}"),
        };
        let hint = "  choose the task to edit";
        let pieces = [("Edit", theme.title), (hint, theme.dim), (&filter, theme.accent)];
        put_all(buf, area, 1, 0, &pieces);
        // An invalid file is shown first, because it has to be fixed first.
        let mut top = 1;
        if let Some(fault) = fault(cx) {
            let place = fault.place().map(|(_, line)| format!("  (E opens line {line})"));
            let words = format!("! {}: {}{}", fault.node, fault.text, place.unwrap_or_default());
            for line in text::wrap(&words, usize::from(area.width.saturating_sub(2))).iter().take(5)
            {
                put(buf, area, 1, top, line, theme.warn);
                top += 1;
            }
            top += 1;
        }
        let names: Vec<String> = tasks.iter().map(|task| task.name.clone()).collect();
        let table = Table {
            columns: COLUMNS,
            rows: &tasks,
            selected: self.table.place(&names),
            focused: true,
            order: self.table.order,
            empty: if cx.snap.tasks.is_empty() {
                "No tasks yet: add a section [tasks.NAME] to besom.toml; \
                 `besom config init` writes an example."
            } else {
                "No task name matches; esc clears the filter."
            },
            seen: &self.table.seen,
        };
        table.draw(cx, theme, rows(area, top, area.height.saturating_sub(top)), buf);
    }
}

/// Which file applies, and what prevents a save; most important first.
fn banners(open: &Open, cx: &Context<'_>, theme: &Theme) -> Vec<(String, Style)> {
    let mut banners = Vec::new();
    if open.exchange.is_stale() {
        let what = "The file has changed on disk since you opened it. \
                    R reloads it and keeps your changes.";
        banners.push((what.to_owned(), theme.bad));
    }
    if let Some(why) = &open.exchange.refusal {
        banners.push((format!("The file cannot be read: {why}"), theme.bad));
    }
    if let Some(file) = &open.exchange.file {
        if let Some(why) = &file.locked {
            banners.push((format!("The file cannot be replaced: {why}"), theme.warn));
        }
        let leader = cx.snap.leadership.leader.as_ref().map(|leader| leader.node.as_str());
        if leader != Some(file.host.as_str()) {
            banners.push((
                match leader {
                    Some(leader) => format!(
                        "This is {}'s file, but the leader's ({leader}) applies: connect there to \
                         change what runs.",
                        file.host
                    ),
                    None => format!("This is {}'s file; there is no leader.", file.host),
                },
                theme.warn,
            ));
        }
    }
    banners
}

/// Draws the form; returns the number of rows used.
fn form(open: &Open, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) -> u16 {
    let mut y = heading(open, theme, area, buf);
    // With very little room, the edited field and its next runs matter most.
    let tiny = area.height < TINY;
    for (words, style) in banners(open, cx, theme).into_iter().take(if tiny { 1 } else { 3 }) {
        let lines = text::wrap(&words, usize::from(area.width.saturating_sub(2)));
        for line in lines.iter().take(if tiny { 1 } else { 2 }) {
            put(buf, area, 1, y, line, style);
            y += 1;
        }
    }
    let focus = [open.form.focus];
    let shown: &[&[Name]] = if tiny { &[&focus] } else { &ROWS };
    for names in shown {
        y += form_row(open, names, theme, rows(area, y, area.height.saturating_sub(y)), buf);
    }
    if let Some(reason) = &open.reason {
        let label = " reason (optional) ";
        put(buf, area, 0, y, label, theme.accent);
        let at = text::width(label) as u16;
        let wide = area.width.saturating_sub(at + 1);
        field(buf, theme, area, (at, y, wide), reason, true);
        y += 1;
    }
    rule(buf, area, y, theme.line);
    (y + 1).min(area.height)
}

fn heading(open: &Open, theme: &Theme, area: Rect, buf: &mut Buffer) -> u16 {
    let place = match &open.exchange.file {
        Some(file) => {
            let digest: String = file.digest.chars().take(8).collect();
            format!("{}:{}  {digest}", file.path, open.line())
        }
        None => "reading the file ...".to_owned(),
    };
    let (state, style) = match (open.exchange.saves(), open.form.is_changed()) {
        (true, _) => ("  (saving ...)", theme.accent),
        (false, true) => ("  (changed)", theme.warn),
        (false, false) => ("  (as in the file)", theme.dim),
    };
    let pieces = [
        ("Edit ", theme.title),
        (open.form.task.as_str(), theme.accent),
        ("  ", theme.text),
        (place.as_str(), theme.text),
        (state, style),
    ];
    put_all(buf, area, 1, 0, &pieces);
    1
}

/// Draws a row of the form with its errors below; returns the number of rows used.
fn form_row(open: &Open, names: &[Name], theme: &Theme, area: Rect, buf: &mut Buffer) -> u16 {
    let narrow = area.width < 70 && names.len() > 1;
    if narrow {
        // One field per row.
        let mut y = 0;
        for name in names {
            let below = rows(area, y, area.height.saturating_sub(y));
            y += form_row(open, std::slice::from_ref(name), theme, below, buf);
        }
        return y;
    }
    let (mut x, mut errors) = (1, 0);
    for (at, name) in names.iter().enumerate() {
        let label = format!("{} ", name.key());
        let focused = open.form.focus == *name;
        let style = if focused { theme.accent } else { theme.dim };
        let mark = if focused { ">" } else { " " };
        put(buf, area, x - 1, 0, mark, theme.accent);
        x += put(buf, area, x, 0, &label, style);
        match name.choices() {
            Some(choices) => x += choice(open, *name, choices, theme, area, x, buf),
            None => {
                let left = names.len() - at - 1;
                let share = area.width.saturating_sub(x) / (left as u16 + 1);
                let wide = match name {
                    Name::Jitter => FIELD_MIN,
                    _ if left == 0 => share.saturating_sub(1),
                    _ => share.max(FIELD_MIN).min(share + 8),
                };
                text_field(open, *name, theme, area, (x, 0, wide), buf);
                errors = errors.max(error(open, *name, theme, area, (x, wide), buf));
                x += wide + 2;
            }
        }
        x += 1;
    }
    1 + errors
}

fn text_field(
    open: &Open,
    name: Name,
    theme: &Theme,
    area: Rect,
    place: (u16, u16, u16),
    buf: &mut Buffer,
) {
    let typed = open.form.field().filter(|_| open.form.focus == name && open.reason.is_none());
    match typed {
        Some(typed) => field(buf, theme, area, place, typed, true),
        None => {
            // A field that is not edited is shown from its start.
            let mut value = Field::with(open.form.values().get(name));
            value.place(0);
            field(buf, theme, area, place, &value, false);
        }
    }
}

/// Draws carets below the invalid part of a field, and the message; returns the number of rows
/// used.
fn error(
    open: &Open,
    name: Name,
    theme: &Theme,
    area: Rect,
    (x, wide): (u16, u16),
    buf: &mut Buffer,
) -> u16 {
    if let Some((from, chars, error)) = open.check.error(name) {
        let value = open.form.values().get(name);
        let column = |chars: usize| text::width(&value.chars().take(chars).collect::<String>());
        let (start, end) = (column(from), column(from + chars).max(column(from) + 1));
        // A scrolled field shows its end.
        let hidden = (column(usize::MAX) + 1).saturating_sub(usize::from(wide));
        let scrolled = if open.form.field().is_some() { hidden } else { 0 };
        let start = start.saturating_sub(scrolled).min(usize::from(wide));
        let end = end.saturating_sub(scrolled).clamp(start, usize::from(wide).max(start));
        let carets = "^".repeat((end - start).max(1));
        let (mut at, mut y) = (x + start as u16, 1);
        let message = format!("error: {}", error.message);
        let after = carets.len() + 1 + text::width(&message);
        put(buf, area, at, y, &carets, theme.bad);
        if usize::from(area.width.saturating_sub(at)) >= after {
            put(buf, area, at + carets.len() as u16 + 1, y, &message, theme.bad);
        } else {
            (at, y) = (x.min(2), 2);
            put(buf, area, at, y, &message, theme.bad);
        }
        let fix = format!("help: {}", error.fix);
        let room = usize::from(area.width.saturating_sub(at));
        let fix_at = if text::width(&fix) > room { 1 } else { at };
        put(buf, area, fix_at, y + 1, &fix, theme.accent);
        return y + 1;
    }
    let preview = open.exchange.preview.as_ref().filter(|(of, _)| *of == open.form.changes());
    let problems = preview.map(|(_, edited)| edited.problems.as_slice()).unwrap_or_default();
    let mine = problems.iter().find(|p| p.key.as_deref() == Some(name.key()));
    let Some(problem) = mine else { return 0 };
    let style = if problem.warning { theme.warn } else { theme.bad };
    let sign = if problem.warning { "warning" } else { "error" };
    let words = format!("{sign}: {}; {}", problem.message, problem.fix);
    put(buf, area, 1, 1, &words, style);
    1
}

/// Draws the choices of a field; returns the number of columns used.
fn choice(
    open: &Open,
    name: Name,
    choices: &[&str],
    theme: &Theme,
    area: Rect,
    x: u16,
    buf: &mut Buffer,
) -> u16 {
    let value = open.form.values().get(name);
    // With little room, only the focused field shows all its choices.
    if area.width < 100 && open.form.focus != name {
        return put(buf, area, x, 0, &format!("{value}  "), theme.text);
    }
    let mut at = x;
    for choice in choices {
        let chosen = *choice == value;
        let sign = if chosen { "(•)" } else { "( )" };
        let style = if chosen { theme.title } else { theme.dim };
        at += put(buf, area, at, 0, &format!("{sign}{choice} "), style);
    }
    if !choices.contains(&value) {
        at += put(buf, area, at, 0, &format!("(•){value} "), theme.warn);
    }
    at - x
}

/// The area indented by one column.
fn inside(area: Rect) -> Rect {
    columns(area, 1, area.width.saturating_sub(1))
}
