//! Draws the pane below a run's figures: its log, its items without effects, or its nodes.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use besom_core::item::End;
use besom_snapshot::{LogLine, Run};

use super::super::detail::{Detail, Pane};
use super::super::log::{Level, Log, Place, place};
use super::figures;
use crate::dash::context::Context;
use crate::dash::screens::figure::clock_ms;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::{put, put_all, put_right, rows};

/// From this width on, each line shows its node.
const NODE_MIN: u16 = 100;
/// From this width on, each line shows its node if several nodes have logged.
const NODE_OF_MANY_MIN: u16 = 60;
/// Columns of the node's name.
const NODE: usize = 12;

/// Draws the pane.
pub fn draw(
    detail: &Detail,
    run: &Run,
    cx: &Context<'_>,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    if area.is_empty() {
        return;
    }
    let body = rows(area, 0, area.height - 1);
    match detail.pane {
        Pane::Log => log(&detail.log, run, theme, body, buf),
        Pane::Items => items(detail, run, theme, body, buf),
        Pane::Nodes => figures::nodes(run.id, detail, cx, theme, body, buf),
        Pane::Plan => plan(detail, theme, body, buf),
    }
    footer(detail, theme, rows(area, area.height - 1, 1), buf);
}

/// A row of the screen: its log line, and whether it reports missing lines.
struct Shown {
    words: String,
    style: Style,
    chosen: bool,
    found: bool,
}

fn log(log: &Log, run: &Run, theme: &Theme, area: Rect, buf: &mut Buffer) {
    if log.shown().next().is_none() {
        put(buf, area, 1, 0, &nothing(log, run), theme.dim);
        return;
    }
    let current = log.current().map(place);
    let height = usize::from(area.height);
    // From the current line upwards until the screen is full, then downwards if it is not.
    let mut above: Vec<Shown> = Vec::new();
    let mut below: Vec<Shown> = Vec::new();
    let mut before = log.shown().rev().skip_while(|line| Some(place(line)) > current);
    while above.len() < height {
        let Some(line) = before.next() else { break };
        let mut block = block(log, line, current, theme, area.width);
        block.reverse();
        above.append(&mut block);
    }
    if before.next().is_none() && above.len() < height && log.forgotten() > 0 {
        let words = format!(
            "⋮ {} earlier lines are not kept by the dashboard",
            text::grouped(log.forgotten())
        );
        above.push(Shown { words, style: theme.warn, chosen: false, found: false });
    }
    above.truncate(height);
    for line in log.shown().skip_while(|line| Some(place(line)) <= current) {
        if above.len() + below.len() >= height {
            break;
        }
        below.append(&mut block(log, line, current, theme, area.width));
    }
    for (y, shown) in (0..area.height).zip(above.iter().rev().chain(&below)) {
        let sign = match (shown.chosen && !log.follows(), shown.found) {
            (true, _) => ">",
            (false, true) => "*",
            _ => " ",
        };
        let style = if shown.found { shown.style.patch(theme.title) } else { shown.style };
        put_all(buf, area, 0, y, &[(sign, theme.accent), (&shown.words, style)]);
    }
}

/// The rows of a log line: missing lines before it, then its text.
fn block(
    log: &Log,
    line: &LogLine,
    current: Option<Place>,
    theme: &Theme,
    width: u16,
) -> Vec<Shown> {
    let mut block = Vec::new();
    let dropped = |words| Shown { words, style: theme.warn, chosen: false, found: false };
    if line.dropped > 0 {
        let lines = if line.dropped == 1 { "line" } else { "lines" };
        let on = text::clean(&line.node).into_owned();
        block.push(dropped(format!("⋮ {} {lines} dropped on {on}", text::grouped(line.dropped))));
    }
    let node = if width >= NODE_MIN || (log.nodes_many() && width >= NODE_OF_MANY_MIN) {
        let name = text::clean(&line.node);
        let name = text::cut(&name, NODE);
        format!("{name}{}  ", " ".repeat(NODE - text::width(&name).min(NODE)))
    } else {
        String::new()
    };
    let level = Level::of(&line.level);
    let style = match level {
        Level::Debug => theme.dim,
        Level::Info => theme.text,
        Level::Warn => theme.warn,
        Level::Error => theme.bad,
    };
    let name = text::clean(&line.level).to_uppercase();
    let head = format!("{} {:<5} {node}", clock_ms(line.at), text::cut(&name, 5));
    let room = usize::from(width).saturating_sub(text::width(&head) + 1);
    let words = text::clean(&line.text);
    let pieces = match log.wrap && room > 0 {
        true => text::wrap(&words, room),
        false => vec![words.into_owned()],
    };
    let (chosen, found) = (Some(place(line)) == current, log.is_match(&line.text));
    let indent = " ".repeat(text::width(&head));
    for (at, piece) in pieces.iter().enumerate() {
        let lead = if at == 0 { &head } else { &indent };
        let words = format!("{lead}{piece}");
        block.push(Shown { words, style, chosen: chosen && at == 0, found });
    }
    block
}

/// The text shown when there is no line.
fn nothing(log: &Log, run: &Run) -> String {
    if let Some(why) = log.refusal() {
        return format!("The log cannot be read: {why}");
    }
    if !log.answered() {
        return "Reading the log ...".to_owned();
    }
    match (log.lines().next().is_some(), run.state.is_active()) {
        (true, _) => format!("No line of level {} or above; L shows more.", log.level.name()),
        (false, true) => "Nothing logged yet. A plugin logs through the import `log`.".to_owned(),
        (false, false) => "This run logged nothing, or its log is no longer kept.".to_owned(),
    }
}

/// Draws the reasons of items without effects; returns the remaining area.
fn summary(detail: &Detail, run: &Run, theme: &Theme, area: Rect, buf: &mut Buffer) -> Rect {
    let mut lines: Vec<(String, Style)> = Vec::new();
    if run.blocked > 0 {
        let words = format!(
            "{} left alone: settled or set aside before, unchanged since",
            text::grouped(run.blocked)
        );
        lines.push((words, theme.text));
    }
    let reasons = detail.reasons();
    if reasons.iter().any(|(_, n)| *n > 1) {
        for (reason, n) in reasons.iter().take(3) {
            lines.push((format!("{n:>5} {reason}"), theme.warn));
        }
    }
    let room = usize::from(area.height / 2);
    let taken = lines.len().min(room) as u16;
    for (y, (words, style)) in (0..taken).zip(&lines) {
        put(buf, area, 1, y, words, *style);
    }
    rows(area, taken, area.height.saturating_sub(taken))
}

/// Draws items without effects, with the reason.
pub fn items(detail: &Detail, run: &Run, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let area = summary(detail, run, theme, area, buf);
    put(buf, area, 1, 0, "OUTCOME    AT        KEY                      REASON", theme.title);
    let mut shown = detail.without_effect().skip(detail.top).peekable();
    if shown.peek().is_none() {
        let words = match (detail.answered(), detail.refusal()) {
            (_, Some(why)) => format!("The items cannot be read: {why}"),
            (None, None) => "Reading the items ...".to_owned(),
            (Some(_), None) => "None of its newest items was skipped or set aside.".to_owned(),
        };
        put(buf, area, 1, 1, &words, theme.dim);
        return;
    }
    for (y, item) in (1..area.height).zip(shown) {
        let style = if item.outcome == End::Dead { theme.bad } else { theme.text };
        put(buf, area, 1, y, item.outcome.as_str(), style);
        put(buf, area, 12, y, &text::clock(item.at), theme.dim);
        let key = match &item.tenant {
            Some(tenant) => format!("{} of {tenant}", item.key),
            None => item.key.clone(),
        };
        put(buf, area, 22, y, &text::cut(&text::clean(&key), 24), theme.text);
        put(buf, area, 47, y, item.reason.as_deref().unwrap_or(""), theme.dim);
    }
}

/// Draws what the run would change, from the line that the pane is scrolled to.
fn plan(detail: &Detail, theme: &Theme, area: Rect, buf: &mut Buffer) {
    if detail.review().is_none() {
        put(buf, area, 1, 0, "Nothing was examined.", theme.dim);
    }
    let lines = detail.plan().into_iter().skip(detail.top).flat_map(|line| {
        let words = text::clean(&line.words);
        let wide = usize::from(area.width.saturating_sub(1)).max(1);
        let pieces = match detail.log.wrap && text::width(&words) > wide {
            true => text::wrap(&words, wide),
            false => vec![words.into_owned()],
        };
        let sign = if detail.log.is_match(&line.words) { "*" } else { " " };
        pieces.into_iter().map(move |piece| (sign, piece, line.tone))
    });
    for (y, (sign, piece, tone)) in (0..area.height).zip(lines) {
        put_all(buf, area, 0, y, &[(sign, theme.accent), (&piece, theme.style(tone))]);
    }
}

fn footer(detail: &Detail, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let log = &detail.log;
    let (state, style) = match detail.pane {
        Pane::Items => ("ITEMS without effect", theme.title),
        Pane::Nodes => ("NODES", theme.title),
        Pane::Plan => ("WHAT IT WOULD CHANGE", theme.title),
        Pane::Log if log.complete() && log.follows() => ("COMPLETE", theme.dim),
        Pane::Log if log.follows() => ("FOLLOWING", theme.good),
        Pane::Log => ("STOPPED", theme.warn),
    };
    let mut x = put(buf, area, 1, 0, state, style) + 2;
    if detail.pane == Pane::Plan && !log.pattern().is_empty() {
        let words = format!("  /{}  {} found", log.pattern(), detail.plan_matches().len());
        put(buf, area, x, 0, &words, theme.accent);
    }
    if detail.pane != Pane::Log {
        return;
    }
    if log.level != Level::Debug {
        x += put(buf, area, x, 0, &format!("  level>={}", log.level.name()), theme.accent);
    }
    if log.lost() > 0 {
        let lost = format!("  {} lines dropped", text::grouped(log.lost()));
        x += put(buf, area, x, 0, &lost, theme.warn);
    }
    if log.answered()
        && let Some(why) = log.refusal()
    {
        x += put(buf, area, x, 0, &format!("  {why}"), theme.bad);
    }
    if !log.pattern().is_empty() {
        let (count, at) = log.matches();
        let at = at.map_or(String::new(), |at| format!("{at} of "));
        let words = format!("  /{}  {at}{count} found", log.pattern());
        x += put(buf, area, x, 0, &words, theme.accent);
    }
    let lines = match log.shown().count() {
        1 => "1 line".to_owned(),
        count => format!("{} lines", text::grouped(count as u64)),
    };
    if usize::from(area.width.saturating_sub(x)) > text::width(&lines) + 2 {
        put_right(buf, area, area.width.saturating_sub(1), 0, &lines, theme.dim);
    }
}
