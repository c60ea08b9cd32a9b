//! Draws the dashboard: the status, the tabs, the screen, the keys, and the overlay. A pure
//! function of the state and the size, except that tables record what they showed.

mod overlay;
mod status;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::effect::Tone;
use super::everywhere;
use super::frame::Frame;
use super::screens::Place;
use super::state::{Message, Overlay, State};
use super::tabs;
use super::text;
use super::theme::Theme;
use super::widgets::{put, put_right, rows, rule};

/// The maximum number of lines of a message.
const MESSAGE_LINES_MAX: usize = 4;

/// Draws the dashboard.
pub fn view(state: &State, area: Rect, buf: &mut Buffer) {
    let area = area.intersection(buf.area);
    let theme = Theme::of(state.options.theme);
    let frame = Frame::of(area.height);
    let cx = state.context();
    status::status(state, &theme, area, buf);
    if let Some(y) = frame.tabs {
        tab_line(state, &theme, area, y, buf);
    }
    if let Some((above, below)) = frame.rules {
        rule(buf, area, above, theme.line);
        rule(buf, area, below, theme.line);
        let screen = state.screens.at(state.place);
        let filter = screen.filter();
        if !filter.is_empty() && !screen.typing() {
            let words = format!(" /{filter}  (esc clears it) ");
            put(buf, area, 1, below, &words, theme.accent);
        }
    }
    let body = rows(area, frame.body.0, frame.body.1);
    if state.data.has_picture() {
        let screens = &state.screens;
        match state.place {
            Place::Overview => screens.overview.view(&cx, &theme, body, buf),
            Place::Tasks => screens.tasks.view(&cx, &theme, body, buf),
            Place::Queues => screens.queues.view(&cx, &theme, body, buf),
            Place::Ring => screens.ring.view(&cx, &theme, body, buf),
            Place::Runs => screens.runs.view(&cx, &theme, body, buf),
            Place::Edit => screens.edit.view(&cx, &theme, body, buf),
        }
        // The data is old. The overview keeps its style, because its attention list says so.
        if cx.lost && state.place != Place::Overview {
            buf.set_style(body, theme.dim);
        }
    } else {
        status::nothing_yet(state, &theme, body, buf);
    }
    if let Some(y) = frame.keys {
        key_line(state, &theme, area, y, buf);
    }
    overlay::overlay(state, &theme, area, buf);
    // The message is drawn over everything but the status.
    if let Some(message) = &state.message {
        let y = frame.rules.map(|(_, below)| below).or(frame.keys);
        message_lines(message, &theme, area, y.unwrap_or(area.height.saturating_sub(1)), buf);
    }
}

/// Draws a message in as many lines as it needs and may use; the last one is at `bottom`.
fn message_lines(message: &Message, theme: &Theme, area: Rect, bottom: u16, buf: &mut Buffer) {
    let style = match message.tone {
        Tone::Good => theme.good,
        Tone::Info => theme.text,
        Tone::Bad => theme.bad,
    };
    let sign = match message.tone {
        Tone::Good => "✓",
        Tone::Info => "i",
        Tone::Bad => "!",
    };
    let indent = 3;
    let columns = usize::from(area.width.saturating_sub(indent + 1)).max(1);
    let mut lines = text::wrap(&message.text, columns);
    // The status line is never covered.
    let most = MESSAGE_LINES_MAX.min(usize::from(bottom)).max(1);
    if lines.len() > most {
        let rest = lines.split_off(most - 1).join(" ");
        lines.push(text::cut(&rest, columns).into_owned());
    }
    let top = bottom.saturating_sub(lines.len().saturating_sub(1) as u16);
    for (y, line) in (top..=bottom).zip(&lines) {
        let row = rows(area, y, 1);
        super::widgets::clear(buf, row);
        let sign = if y == top { sign } else { " " };
        put(buf, row, 1, 0, sign, style);
        put(buf, row, indent, 0, line, style);
    }
}

fn tab_line(state: &State, theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    for (place, label, x) in tabs::places() {
        let style = if place == state.place { theme.active } else { theme.text };
        put(buf, area, x, y, &label, style);
    }
    let cx = state.context();
    let mode = if cx.readonly { "[readonly]" } else { "[read-write]" };
    let host = text::clean(&cx.snap.host);
    let mode = match (cx.lost, host.is_empty()) {
        (true, _) => "no host answers".to_owned(),
        (false, true) => mode.to_owned(),
        (false, false) => format!("{} answers  {mode}", text::cut(&host, 20)),
    };
    let tabs_end = tabs::places().last().map_or(0, |(_, label, x)| x + label.len() as u16);
    let room = usize::from(area.width.saturating_sub(tabs_end)).saturating_sub(2);
    let mode = if text::width(&mode) > room {
        if cx.readonly { "[readonly]".to_owned() } else { "[read-write]".to_owned() }
    } else {
        mode
    };
    let mode = if area.width >= 120 {
        let mouse = if state.options.mouse { "on" } else { "off" };
        format!("mouse {mouse}  theme {}  {mode} ", state.options.theme.name())
    } else {
        format!("{mode} ")
    };
    if usize::from(area.width) > usize::from(tabs_end) + text::width(&mode) {
        put_right(buf, area, area.width, y, &mode, theme.dim);
    }
}

fn key_line(state: &State, theme: &Theme, area: Rect, y: u16, buf: &mut Buffer) {
    let cx = state.context();
    let screen = state.screens.at(state.place);
    let own = match &state.overlay {
        Overlay::None if !state.data.has_picture() => Vec::new(),
        Overlay::None => screen.hints(&cx),
        _ => return,
    };
    let frame = everywhere::hints();
    // While text is typed, the frame has no keys; and a screen's own key takes precedence.
    let taken = |key: &str| own.iter().any(|(mine, _)| mine.split(' ').any(|mine| mine == key));
    let frame = frame.iter().filter(|(key, _)| !screen.typing() && !taken(key));
    let mut end = usize::from(area.width);
    if !screen.typing() && !taken("?") {
        // The key for the help is always shown.
        let inside = screen.depth() > 0 || !state.trail.is_empty();
        let help = match (inside && area.width >= 60, taken("esc")) {
            (true, false) => "esc back  ? help ",
            _ => "? help ",
        };
        put_right(buf, area, area.width, y, help, theme.dim);
        end = end.saturating_sub(help.len() + 1);
    }
    let mut x = 1;
    for (key, what) in own.iter().chain(frame) {
        let wide = super::text::width(key) + 1 + super::text::width(what);
        if usize::from(x) + wide > end {
            continue;
        }
        x += put(buf, area, x, y, key, theme.accent) + 1;
        x += put(buf, area, x, y, what, theme.dim) + 2;
    }
}
