//! The tasks, drawn: the table, and the chosen task below it or beside it.

pub(in crate::dash) mod cell;

use besom_core::cron::Schedule;
use besom_core::snapshot::{RunState, Task};
use besom_core::time::Time;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::slots::{self, Fate, Slot};
use super::{TasksScreen, ending, row};
use crate::dash::context::Context;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{columns, put, put_all, rows, rule};

/// From this width on the chosen task stands beside the table.
const BESIDE_WIDTH_MIN: u16 = 150;
/// From this height on it stands below it.
const BELOW_HEIGHT_MIN: u16 = 12;
/// Rows of the chosen task below the table: heading, limits, next slots, time line, why, legend.
const DETAIL_ROWS: u16 = 8;
/// Upcoming slots that are told.
const NEXT_SLOTS: usize = 5;

impl TasksScreen {
    /// Draws it.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        self.summary(cx, theme, rows(area, 0, 1), buf);
        let area = rows(area, 1, area.height);
        let task = self.task(cx);
        if area.width >= BESIDE_WIDTH_MIN && area.height >= 2 * DETAIL_ROWS {
            let left = area.width * 3 / 5;
            let lanes = DETAIL_ROWS + 1;
            let upper = area.height - lanes;
            self.table(cx, theme, columns(rows(area, 0, upper), 0, left), buf);
            let title = task.map_or("", |task| &task.name);
            let side = columns(rows(area, 0, upper), left, area.width);
            let inside = panel(buf, theme, side, title);
            let below = panel(buf, theme, rows(area, upper, lanes), "Slots of the last 2 h");
            if let Some(task) = task {
                side_by_side(task, cx, theme, inside, buf);
                self.line(task, cx, theme, below, buf);
            }
        } else if area.height >= BELOW_HEIGHT_MIN {
            let detail = DETAIL_ROWS.min(area.height / 2);
            let table = area.height - detail - 1;
            self.table(cx, theme, rows(area, 0, table), buf);
            rule(buf, area, table, theme.line);
            let below = rows(area, table + 1, detail);
            if let Some(task) = task {
                heading(task, cx, theme, rows(below, 0, 1), buf);
                limits(task, theme, rows(below, 1, 1), buf);
                next(task, cx, theme, rows(below, 2, 1), buf);
                self.line(task, cx, theme, rows(below, 3, below.height), buf);
            }
        } else {
            self.table(cx, theme, area, buf);
        }
    }

    fn summary(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let tasks = &cx.snap.tasks;
        let paused = tasks.iter().filter(|task| task.paused.is_some()).count();
        let failing = |task: &Task| {
            let ended = task.last.iter().rev().find(|run| !run.state.is_active());
            ended.is_some_and(|run| run.state == RunState::Failed)
        };
        let failing = tasks.iter().filter(|task| failing(task)).count();
        let failing_style = if failing > 0 { theme.bad } else { theme.text };
        let filter = match self.filter.as_str() {
            "" => String::new(),
            filter => format!("   filter: {filter}"),
        };
        let pieces = [
            (format!("{} tasks", tasks.len()), theme.title),
            (format!("  {paused} paused"), theme.text),
            (format!("  {failing} failing"), failing_style),
            (filter, theme.dim),
        ];
        let pieces: Vec<_> = pieces.iter().map(|(words, style)| (words.as_str(), *style)).collect();
        put_all(buf, area, 1, 0, &pieces);
    }

    fn table(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let order = row::order(self, cx);
        let table = Table {
            columns: &row::COLUMNS,
            rows: order.len(),
            selected: self.table.place(&row::ids(cx, &order)),
            focused: true,
            sort: self.table.sort.map(|column| (column, self.table.descending)),
            empty: match self.filter.is_empty() {
                true => {
                    "No tasks yet. A table [tasks.NAME] with `plugin` and `schedule` in \
                         besom.toml makes one; `besom config init` writes an example."
                }
                false => "No task has that in its name or plugin; esc shows all of them.",
            },
            seen: &self.table.seen,
        };
        table.draw(theme, area, buf, |at, column| {
            cell::cell(&cx.snap.tasks[order[at]], column, cx, theme)
        });
    }

    /// The slots around now, the chosen one, and why it is as it is.
    fn line(&self, task: &Task, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let Some(_) = &task.schedule else {
            put(
                buf,
                area,
                1,
                0,
                "It has no schedule: it runs when it is triggered (t).",
                theme.dim,
            );
            return;
        };
        let slots = slots::around(task, cx.now);
        let line = columns(area, 10, area.width.saturating_sub(11));
        let wide = usize::from(line.width);
        axis(cx.now, theme, line, buf);
        put(buf, area, 1, 0, "timeline", theme.dim);
        let mut cells: Vec<Option<Fate>> = vec![None; wide];
        for slot in &slots {
            if let Some(column) = slots::column(slot.at, cx.now, wide) {
                cells[column] = cells[column].max(Some(slot.fate));
            }
        }
        let now = slots::column(cx.now, cx.now, wide);
        for (x, fate) in cells.into_iter().enumerate() {
            let (sign, style) = match fate {
                Some(fate) => (fate.sign(), tone(fate, theme)),
                None if Some(x) == now => ('▏', theme.accent),
                None => (' ', theme.text),
            };
            put(buf, line, x as u16, 1, sign.encode_utf8(&mut [0; 4]), style);
        }
        let Some(place) = self.slot_place(&slots, cx.now) else {
            put(
                buf,
                area,
                10,
                2,
                "No slot in the last two hours, none in the next minutes.",
                theme.dim,
            );
            return legend(theme, area, 4, buf);
        };
        let slot = &slots[place];
        if let Some(x) = slots::column(slot.at, cx.now, wide) {
            put(buf, line, x as u16, 2, "▲", theme.accent);
        }
        self.why(task, slot, cx, theme, area, buf);
        legend(theme, area, 4, buf);
    }

    fn why(
        &self,
        task: &Task,
        slot: &Slot,
        cx: &Context<'_>,
        theme: &Theme,
        area: Rect,
        buf: &mut Buffer,
    ) {
        let at = text::clock(slot.at);
        let explained = self.explained.as_ref();
        let explained = explained.filter(|(of, at, _)| *of == task.name && *at == slot.at);
        let run = slot.run.map(|run| format!(" (run {run})")).unwrap_or_default();
        let why = match (explained, slot.fate) {
            (Some((_, _, text)), _) => format!(": {text}"),
            (None, Fate::Planned) => format!(" in {}", text::span(slot.at.since(cx.now))),
            (None, Fate::Unknown) => ": w asks the host why".to_owned(),
            (None, _) if slot.why.is_empty() => run,
            (None, _) => format!(": {}{run}", slot.why),
        };
        let x = put(buf, area, 1, 3, &format!("{at}Z "), theme.title) + 1;
        let x = x + put(buf, area, x, 3, slot.fate.word(), tone(slot.fate, theme));
        put(buf, area, x, 3, &why, theme.text);
    }
}

fn tone(fate: Fate, theme: &Theme) -> Style {
    match fate {
        Fate::Ok => theme.good,
        Fate::Runs => theme.accent,
        Fate::Failed | Fate::Fenced | Fate::Missed => theme.bad,
        Fate::Skipped | Fate::Queued | Fate::Paused | Fate::Coalesced => theme.warn,
        Fate::Planned | Fate::Unknown => theme.dim,
    }
}

fn axis(now: Time, theme: &Theme, line: Rect, buf: &mut Buffer) {
    let half_hour = 1_800_000_000;
    let mut at = Time(((now - slots::BACK).0.div_euclid(half_hour) + 1) * half_hour);
    while at < now + slots::AHEAD {
        if let Some(x) = slots::column(at, now, usize::from(line.width)) {
            put(buf, line, x as u16, 0, &text::clock(at)[..5], theme.dim);
        }
        at = Time(at.0 + half_hour);
    }
}

fn legend(theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    let mut x = 1;
    for fate in Fate::LEGEND {
        let word = fate.word();
        if usize::from(x) + word.len() + 2 > usize::from(area.width) {
            break;
        }
        x += put(buf, area, x, y, fate.sign().encode_utf8(&mut [0; 4]), tone(fate, theme)) + 1;
        x += put(buf, area, x, y, word, theme.dim) + 1;
    }
}

fn heading(task: &Task, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let x = 1 + put(buf, area, 1, 0, &task.name, theme.title) + 2;
    let (words, style) = heading_words(task, cx, theme);
    put(buf, area, x, 0, &words, style);
}

/// What it works by, or that it does not.
fn heading_words(task: &Task, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    let words = match &task.paused {
        Some(pause) => {
            let since = text::span(cx.now.since(pause.since));
            format!("paused by {} for {since}: \"{}\"", pause.by, pause.reason)
        }
        None => {
            let digest: String = task.digest.chars().take(8).collect();
            let digest = if digest.is_empty() { "?".to_owned() } else { digest };
            format!(
                "{}  sha256:{digest}  lane {}  catch up {}",
                task.plugin, task.lane, task.catch_up
            )
        }
    };
    (words, if task.paused.is_some() { theme.warn } else { theme.dim })
}

fn limit_words(task: &Task) -> String {
    let limits = &task.limits;
    let known = |n: u64, words: String| if n == 0 { "?".to_owned() } else { words };
    // A call ends by its time where fuel is not counted; one that has no time is not known.
    let fuel = match (limits.fuel, limits.wall_ms) {
        (0, 1..) => "not counted".to_owned(),
        (fuel, _) => known(fuel, text::count(fuel)),
    };
    let wall = std::time::Duration::from_millis(limits.wall_ms);
    format!(
        "fuel {}  mem {}  timeout {}  attempts {}  overlap {}  jitter {}",
        fuel,
        known(limits.memory_bytes, text::bytes(limits.memory_bytes)),
        known(limits.wall_ms, text::span(wall)),
        known(u64::from(limits.attempts), limits.attempts.to_string()),
        task.overlap,
        text::span(std::time::Duration::from_millis(task.jitter_ms)),
    )
}

fn limits(task: &Task, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let x = 1 + put(buf, area, 1, 0, "limits   ", theme.dim);
    put(buf, area, x, 0, &limit_words(task), theme.text);
}

/// The next slots in UTC and in the task's own zone, with what daylight saving does to them.
fn upcoming(task: &Task, cx: &Context<'_>) -> Vec<(String, String, Option<String>)> {
    let expression = task.schedule.as_deref().unwrap_or_default();
    let Ok(schedule) = Schedule::parse(expression, slots::zone(task)) else { return Vec::new() };
    let next = schedule.upcoming(cx.now, NEXT_SLOTS);
    // Seconds only where there are any.
    let whole = next.iter().all(|slot| slot.utc.micros() % 60_000_000 == 0);
    let length = if whole { 16 } else { 19 };
    let local =
        |text: &str| text.get(..length).map(|text| text.replace('T', " ")).unwrap_or_default();
    next.into_iter()
        .map(|slot| (local(&slot.utc.to_string()), local(&slot.local), slot.note))
        .collect()
}

fn next(task: &Task, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut x = 1 + put(buf, area, 1, 0, "next 5   ", theme.dim);
    if task.paused.is_some() || task.schedule.is_none() {
        put(buf, area, x, 0, "none", theme.dim);
        return;
    }
    let all = upcoming(task, cx);
    let today = cx.now.to_string();
    for (utc, _, _) in &all {
        // The day only where it is another one than today.
        let shown = if today.get(..10) == utc.get(..10) { &utc[11..] } else { &utc[5..] };
        x += put(buf, area, x, 0, shown, theme.text) + 2;
    }
    if let Some((_, local, note)) = all.first()
        && (slots::zone(task) != "UTC" || note.is_some())
    {
        let note = note.as_ref().map(|note| format!(" {note}")).unwrap_or_default();
        let words = format!("({} {}{note})", slots::zone(task), &local[11..]);
        put(buf, area, x, 0, &words, theme.dim);
    }
}

/// The chosen task where there is a panel for it.
fn side_by_side(task: &Task, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let (words, style) = heading_words(task, cx, theme);
    let mut y = 0;
    for (words, style) in [(words, style), (limit_words(task), theme.text)] {
        for line in text::wrap(&words, usize::from(area.width.saturating_sub(2))) {
            put(buf, area, 1, y, &line, style);
            y += 1;
        }
    }
    let zone = slots::zone(task);
    let all = if task.paused.is_some() { Vec::new() } else { upcoming(task, cx) };
    let wide = all.iter().map(|(utc, _, _)| text::width(utc) as u16).max().unwrap_or(0);
    let local_x = 1 + wide.max(16) + 2;
    let note_x = local_x + wide.max(16) + 2;
    put(buf, area, 1, y, "next 5 (UTC)", theme.title);
    put(buf, area, local_x, y, zone, theme.title);
    y += 1;
    if all.is_empty() {
        put(buf, area, 1, y, "none", theme.dim);
        y += 1;
    }
    for (utc, local, note) in &all {
        put(buf, area, 1, y, utc, theme.text);
        put(buf, area, local_x, y, local, theme.text);
        put(buf, area, note_x, y, note.as_deref().unwrap_or_default(), theme.warn);
        y += 1;
    }
    y += 1;
    put(buf, area, 1, y, "RUN", theme.title);
    put(buf, area, 10, y, "STARTED", theme.title);
    put(buf, area, 21, y, "TOOK", theme.title);
    put(buf, area, 29, y, "ITEMS", theme.title);
    put(buf, area, 38, y, "STATE", theme.title);
    for run in task.last.iter().rev() {
        y += 1;
        let (state, style) = match run.state {
            RunState::Ok => ("ok", theme.good),
            RunState::Failed => ("FAIL", theme.bad),
            RunState::Scanning => ("scans", theme.accent),
            RunState::Executing => ("executes", theme.accent),
            RunState::Unknown => ("?", theme.dim),
        };
        let took = ending::took(run).unwrap_or_else(|| cx.now.since(run.started_at));
        put(buf, area, 1, y, &run.id.to_string(), theme.text);
        put(buf, area, 10, y, &text::clock(run.started_at), theme.text);
        put(buf, area, 21, y, &text::took_span(took), theme.text);
        put(buf, area, 29, y, &text::count(run.planned), theme.text);
        put(buf, area, 38, y, state, style);
    }
    if task.last.is_empty() {
        put(buf, area, 1, y + 1, "It has not run yet; t starts a run.", theme.dim);
    }
}
