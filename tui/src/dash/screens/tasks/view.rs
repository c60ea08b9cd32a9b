//! Draws the Tasks screen: the table, and the selected task below it or beside it.

use besom_core::command::counted;
use besom_core::cron::Schedule;
use besom_core::time::Time;
use besom_snapshot::{RunState, Task};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::slots::{self, Fate, Slot, Span};
use super::{TasksScreen, row};
use crate::dash::context::Context;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{columns, put, rows, rule};

/// From this width on, the selected task is shown beside the table.
const BESIDE_WIDTH_MIN: u16 = 150;
/// From this height on, it is shown below the table.
const BELOW_HEIGHT_MIN: u16 = 12;
/// Rows of the selected task below the table: heading, limits, next slots, and its line of slots.
const DETAIL_ROWS: u16 = HEADING_ROWS + LINE_ROWS;
/// Heading, limits, next slots.
const HEADING_ROWS: u16 = 3;
/// Axis, line of slots, the mark below it, the reason, the legend.
const LINE_ROWS: u16 = 5;
/// The maximum number of rows of a long reason, if there is room.
const WHY_ROWS_MAX: u16 = 6;
/// The number of upcoming slots shown.
const NEXT_SLOTS: usize = 5;

impl TasksScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        self.summary(cx, theme, rows(area, 0, 1), buf);
        let area = rows(area, 1, area.height);
        let task = self.task(cx);
        let beside = area.width >= BESIDE_WIDTH_MIN;
        let wide = area.width.saturating_sub(if beside { 2 } else { 0 });
        let why = task.map(|task| self.why(task, cx, theme, wide)).unwrap_or_default();
        let more = (why.len() as u16).clamp(1, WHY_ROWS_MAX) - 1;
        if area.width >= BESIDE_WIDTH_MIN && area.height >= 2 * DETAIL_ROWS {
            let left = area.width * 3 / 5;
            let lanes = LINE_ROWS + 4 + more;
            let upper = area.height - lanes;
            self.table(cx, theme, columns(rows(area, 0, upper), 0, left), buf);
            let title = task.map_or("", |task| &task.name);
            let side = columns(rows(area, 0, upper), left, area.width);
            let inside = panel(buf, theme, side, title);
            let title = format!("Slots of the last {}", self.span.name());
            let below = panel(buf, theme, rows(area, upper, lanes), &title);
            if let Some(task) = task {
                side_by_side(task, cx, theme, inside, buf);
                self.line(task, &why, cx, theme, below, buf);
            }
        } else if area.height >= BELOW_HEIGHT_MIN {
            // A long reason takes the rows that the table leaves.
            let listed = row::order(self, cx).len() as u16 + 2;
            let room = area.height.saturating_sub(listed).saturating_sub(DETAIL_ROWS);
            let detail = DETAIL_ROWS.min(area.height / 2) + more.min(room);
            let table = area.height - detail - 1;
            self.table(cx, theme, rows(area, 0, table), buf);
            rule(buf, area, table, theme.line);
            let below = rows(area, table + 1, detail);
            if let Some(task) = task {
                if heading(task, cx, theme, rows(below, 0, 2), buf) < 2 {
                    limits(task, theme, rows(below, 1, 1), buf);
                }
                next(task, cx, theme, rows(below, 2, 1), buf);
                let line = rows(below, HEADING_ROWS, below.height);
                self.line(task, &why, cx, theme, line, buf);
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
            (counted(tasks.len() as u64, "task"), theme.title),
            (format!("  {paused} paused"), theme.text),
            (format!("  {failing} failing"), failing_style),
            (filter, theme.dim),
        ];
        pieces.iter().fold(1, |x, (words, style)| x + put(buf, area, x, 0, words, *style));
    }

    fn table(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let tasks = row::order(self, cx);
        let table = Table {
            columns: row::COLUMNS,
            rows: &tasks,
            selected: self.table.place(&row::ids(&tasks)),
            focused: true,
            order: self.table.order,
            empty: match self.filter.is_empty() {
                true => {
                    "No tasks yet: add a section [tasks.NAME] with `plugin` and `schedule` \
                         to besom.toml; `besom config init` writes an example."
                }
                false => "No task name or plugin matches; esc clears the filter.",
            },
            seen: &self.table.seen,
        };
        table.draw(cx, theme, area, buf);
    }

    /// Draws the slots around now, the selected one, and its reason.
    fn line(
        &self,
        task: &Task,
        why: &[(String, Style)],
        cx: &Context<'_>,
        theme: &Theme,
        area: Rect,
        buf: &mut Buffer,
    ) {
        let slots = self.slots(task, cx);
        if task.schedule.is_none() && slots.is_empty() {
            let words = "No schedule: it runs only when triggered (t).";
            put(buf, area, 1, 0, words, theme.dim);
            return;
        }
        let line = columns(area, 10, area.width.saturating_sub(11));
        let wide = usize::from(line.width);
        let column = |at| slots::column(at, self.span, cx.now, wide);
        axis(self.span, cx.now, theme, line, buf);
        put(buf, area, 1, 0, &format!("last {}", self.span.name()), theme.dim);
        let schedule = slots::schedule(task);
        let mut cells: Vec<Option<Fate>> = vec![None; wide];
        for slot in &slots {
            for x in slot.times(schedule.as_ref()).into_iter().filter_map(column) {
                cells[x] = cells[x].max(Some(slot.fate));
            }
        }
        // To the left of this, nothing was read, which is different from having no slots.
        let read = self.past.since(task).unwrap_or(cx.now);
        let known = slots.first().map_or(cx.now, |slot| slot.at).min(read);
        let unread = if read <= cx.now - self.span.back() { 0 } else { column(known).unwrap_or(0) };
        let now = column(cx.now);
        for (x, fate) in cells.iter().enumerate() {
            let (sign, style) = match fate {
                Some(fate) => (fate.sign(), tone(*fate, theme)),
                None if Some(x) == now => ('▏', theme.accent),
                None if x < unread => ('╌', theme.dim),
                None => (' ', theme.text),
            };
            put(buf, line, x as u16, 1, sign.encode_utf8(&mut [0; 4]), style);
        }
        let changed = schedule
            .as_ref()
            .and_then(|schedule| slots::changed(schedule, self.past.records(task)));
        let chosen = self.slot_place(&slots, cx.now).and_then(|place| column(slots[place].until));
        if let Some(x) = changed.and_then(column) {
            let (words, width) = ("different schedule before", 25);
            put(buf, line, x as u16, 2, "◇", theme.warn);
            // On the side where the mark of the selected slot is not.
            let right = x + 2;
            let left = (x > width).then(|| x - width - 1);
            let free = |from: &usize| {
                from + width <= wide
                    && chosen.is_none_or(|mark| mark < *from || mark >= from + width)
            };
            if let Some(from) = Some(right).filter(free).or(left.filter(free)) {
                put(buf, line, from as u16, 2, words, theme.warn);
            }
        }
        if let Some(x) = chosen {
            put(buf, line, x as u16, 2, "▲", theme.accent);
        }
        let room = area.height.saturating_sub(LINE_ROWS - 1).max(1);
        for (y, (words, style)) in why.iter().enumerate().take(usize::from(room)) {
            put(buf, area, 1, 3 + y as u16, words, *style);
        }
        let shown: Vec<Fate> = cells.iter().flatten().copied().collect();
        let y = 3 + room.min(why.len().max(1) as u16);
        legend(&shown, unread > 0, theme, area, y, buf);
    }

    /// The outcome of the selected slot and its reason, in as many lines as needed.
    fn why(&self, task: &Task, cx: &Context<'_>, theme: &Theme, wide: u16) -> Vec<(String, Style)> {
        let slots = self.slots(task, cx);
        let Some(slot) = self.slot_place(&slots, cx.now).map(|place| slots[place]) else {
            let name = self.span.name();
            let words = match self.past.since(task) {
                Some(_) => format!("No slot in the last {name} and none soon; z zooms out."),
                None if self.past.is_refused() => "The host could not list its slots.".into(),
                None => "Reading its slots …".into(),
            };
            return vec![(words, theme.dim)];
        };
        let explained = self.explained.as_ref();
        let explained = explained.filter(|(of, at, _)| *of == task.name && *at == slot.at);
        let words = match explained {
            Some((_, _, text)) => text.clone(),
            None => told(&slot, cx.now),
        };
        let words = text::times(&words, cx.now);
        let wide = usize::from(wide.saturating_sub(2));
        let lines = words.lines().flat_map(|line| text::wrap(line, wide));
        lines.map(|line| (line, tone(slot.fate, theme))).collect()
    }
}

/// The outcome of a slot as a sentence.
fn told(slot: &Slot<'_>, now: Time) -> String {
    let at = match slot.count {
        0 | 1 => format!("{}", slot.at),
        count => format!("{} to {} ({count} slots)", slot.at, slot.until),
    };
    let run = slot.run.map(|run| format!(" (run {run})")).unwrap_or_default();
    let why = match slot.fate {
        Fate::Planned => format!(" in {}", text::span(slot.at.since(now))),
        Fate::Undecided => ": w asks the host why".to_owned(),
        _ if slot.why.is_empty() => run,
        _ => format!(": {}{run}", slot.why),
    };
    format!("{at} {}{why}", slot.fate.word())
}

fn tone(fate: Fate, theme: &Theme) -> Style {
    match fate {
        Fate::Ok => theme.good,
        Fate::Runs => theme.accent,
        Fate::Failed | Fate::Fenced | Fate::Missed => theme.bad,
        Fate::Skipped | Fate::Queued | Fate::Paused | Fate::Coalesced => theme.warn,
        Fate::Ran => theme.text,
        Fate::Planned | Fate::Undecided => theme.dim,
    }
}

fn axis(span: Span, now: Time, theme: &Theme, line: Rect, buf: &mut Buffer) {
    let tick = span.tick().as_micros() as i64;
    let mut at = Time(((now - span.back()).0.div_euclid(tick) + 1) * tick);
    while at < now + span.ahead() {
        if let Some(x) = slots::column(at, span, now, usize::from(line.width)) {
            let words = match span {
                Span::Hours | Span::Day => text::clock(at)[..5].to_owned(),
                Span::Fortnight => at.to_jiff().strftime("%m-%d").to_string(),
            };
            put(buf, line, x as u16, 0, &words, theme.dim);
        }
        at = Time(at.0 + tick);
    }
}

/// Draws the meaning of the symbols on the line.
fn legend(shown: &[Fate], unread: bool, theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    let fates = Fate::LEGEND.into_iter().filter(|fate| shown.contains(fate));
    let signs = fates.map(|fate| (fate.sign(), fate.word(), tone(fate, theme)));
    let unread = unread.then_some(('╌', "not read", theme.dim));
    let mut x = 1;
    for (sign, word, style) in signs.chain(unread) {
        if usize::from(x) + word.len() + 2 > usize::from(area.width) {
            break;
        }
        x += put(buf, area, x, y, sign.encode_utf8(&mut [0; 4]), style) + 1;
        x += put(buf, area, x, y, word, theme.dim) + 1;
    }
}

/// Draws the heading; returns the number of its rows: what hinders the task takes the next one if it is long.
fn heading(task: &Task, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) -> usize {
    let x = 1 + put(buf, area, 1, 0, &task.name, theme.title) + 2;
    let (words, style) = heading_words(task, cx, theme);
    let wide = if style == theme.warn { area.width.saturating_sub(x).max(1) } else { u16::MAX };
    let lines = text::wrap(&words, usize::from(wide));
    for (y, line) in (0..area.height).zip(&lines) {
        put(buf, area, x, y, line, style);
    }
    lines.len()
}

/// The plugin and the main settings of a task, its pause, or why it is slow.
fn heading_words(task: &Task, cx: &Context<'_>, theme: &Theme) -> (String, Style) {
    let slowed = cx.snap.slowed(&task.name);
    let is_hindered = task.paused.is_some() || slowed.is_some() || task.held_back.is_some();
    let words = match &task.paused {
        Some(pause) => {
            let since = text::span(cx.now.since(pause.since));
            match pause.is_brake() {
                true => format!("stopped by a brake for {since}: {}", pause.reason),
                false => format!("paused by {} for {since}: \"{}\"", pause.by, pause.reason),
            }
        }
        None if task.opens_at.is_some() => {
            format!("closed: works in its windows only ({})", task.windows)
        }
        None if let Some((node, pace)) = slowed => format!("yields at {node}: {pace}"),
        None if let Some(held_back) = &task.held_back => held_back.words(),
        None => {
            let digest: String = task.digest.chars().take(8).collect();
            let digest = if digest.is_empty() { "?".to_owned() } else { digest };
            let Task { plugin, lane, catch_up, .. } = task;
            format!("{plugin}  sha256:{digest}  lane {lane}  catch up {catch_up}")
        }
    };
    (words, if is_hindered { theme.warn } else { theme.dim })
}

fn limit_words(task: &Task) -> String {
    let limits = &task.limits;
    let known = |n: u64, words: String| if n == 0 { "?".to_owned() } else { words };
    // If fuel is not counted, a call ends by its time; without a time, the limits are unknown.
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

/// The next slots in UTC and in the task's zone, with the effect of daylight saving.
fn upcoming(task: &Task, cx: &Context<'_>) -> Vec<(String, String, Option<String>)> {
    let expression = task.schedule.as_deref().unwrap_or_default();
    let Ok(schedule) = Schedule::parse(expression, slots::zone(task)) else { return Vec::new() };
    let next = task.windows.upcoming(&schedule, cx.now, NEXT_SLOTS);
    // Seconds are shown only if any slot has them.
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
        // The date is shown only if it is not today.
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

/// Draws the selected task in its panel.
fn side_by_side(task: &Task, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut y = 0;
    for (words, style) in [heading_words(task, cx, theme), (limit_words(task), theme.text)] {
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
    // For UTC, one column suffices.
    let local_too = zone != "UTC";
    if local_too {
        put(buf, area, local_x, y, zone, theme.title);
    }
    y += 1;
    if all.is_empty() {
        put(buf, area, 1, y, "none", theme.dim);
        y += 1;
    }
    for (utc, local, note) in &all {
        put(buf, area, 1, y, utc, theme.text);
        if local_too {
            put(buf, area, local_x, y, local, theme.text);
        }
        put(buf, area, note_x, y, note.as_deref().unwrap_or_default(), theme.warn);
        y += 1;
    }
    y += 1;
    put(buf, area, 1, y, "RUN      STARTED    TOOK    ITEMS    STATE", theme.title);
    for run in task.last.iter().rev() {
        y += 1;
        let (state, style) = match run.state {
            RunState::Ok => ("ok", theme.good),
            RunState::Failed => ("FAIL", theme.bad),
            RunState::Rejected | RunState::Lapsed => (run.state.as_str(), theme.warn),
            _ if task.waits(run.id) => ("waits for an approval", theme.warn),
            RunState::Unknown => ("?", theme.dim),
            _ if let Some(stop) = task.stop() => (stop.word, theme.warn),
            RunState::Scanning => ("scans", theme.accent),
            RunState::Executing => ("executes", theme.accent),
        };
        let took = run.ended_at.unwrap_or(cx.now).since(run.started_at);
        put(buf, area, 1, y, &run.id.to_string(), theme.text);
        put(buf, area, 10, y, &text::clock(run.started_at), theme.text);
        put(buf, area, 21, y, &text::took_span(took), theme.text);
        put(buf, area, 29, y, &text::count(run.planned), theme.text);
        put(buf, area, 38, y, state, style);
    }
    if task.last.is_empty() {
        let words = "No recorded runs; t starts one.";
        put(buf, area, 1, y + 1, words, theme.dim);
    }
}
