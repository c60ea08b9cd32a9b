//! The first line: the cluster, the age of the data, and the leader.

use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::Snapshot;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::dash::data::{Connection, Shown};
use crate::dash::state::State;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::bar::gauge;
use crate::dash::widgets::{put, put_right};

/// The width of the lease's gauge, including its marks.
const GAUGE: u16 = 12;

/// The remaining time of the leader's lease, and its full length.
fn lease(snap: &Snapshot, now: Time) -> Option<(Duration, Duration)> {
    let leader = snap.leadership.leader.as_ref()?;
    let whole = Duration::from_millis(snap.leadership.lease_ms);
    Some((whole.saturating_sub(now.since(leader.renewed_at)), whole))
}

fn seconds(span: Duration) -> String {
    format!("{:.1}", span.as_secs_f64())
}

/// How current the data is; always includes its age.
fn standing(state: &State, theme: &Theme) -> (String, Style) {
    let age = state.data.age().map_or_else(|| "-".to_owned(), text::span);
    match (&state.data.connection, &state.data.shown) {
        (_, Shown::Rewound(snap)) => (format!("◂{} {age} ago", text::clock(snap.at)), theme.warn),
        (Connection::Lost { .. }, _) => (format!("✕lost {age} old"), theme.bad),
        (_, Shown::Frozen(_)) => (format!("‖frozen {age} ago"), theme.warn),
        (Connection::Connecting, _) => ("…connecting".to_owned(), theme.warn),
        (Connection::Live, Shown::Live) => (format!("●live {age}"), theme.good),
    }
}

/// Draws the status.
pub(super) fn status(state: &State, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let snap = state.data.snap();
    let now = state.data.now();
    let (standing, style) = standing(state, theme);
    let wide = area.width >= 60;
    let name = text::clean(state.name());
    let name = text::cut(&name, if wide { 24 } else { 12 });
    let mut x = 1;
    x += put(buf, area, x, 0, &name, theme.title) + 1;
    x += put(buf, area, x, 0, &standing, style);
    let clock = format!("{}Z ", text::clock(now));
    // Without enough room, the clock is dropped first, then the gauge, then the words.
    let with_clock = area.width >= 72;
    if with_clock {
        put_right(buf, area, area.width, 0, &clock, theme.text);
    }
    let end = area.width.saturating_sub(if with_clock { 12 } else { 0 });
    let area = Rect { width: end, ..area };
    x += put(buf, area, x, 0, " │ ", theme.line);
    let Some(leader) = &snap.leadership.leader else {
        let what = match (state.data.has_picture(), &snap.leadership.fault) {
            (false, _) => return connection(state, theme, area, x, buf),
            (true, None) => "NO LEADER",
            (true, Some(_)) => "leader unknown",
        };
        put(buf, area, x, 0, what, theme.bad);
        return;
    };
    let lease = lease(snap, now);
    let room = usize::from(end.saturating_sub(x));
    let node = text::clean(&leader.node);
    let term = leader.term.to_string();
    // The variants by width: all words, then without the gauge, then only node, term and time.
    let counted = lease.map(|(left, whole)| format!("{}/{}s", seconds(left), whole.as_secs()));
    let counted = counted.unwrap_or_else(|| "?".to_owned());
    let words = format!("leader {node}  term {term}  lease ");
    let full = text::width(&words) + usize::from(GAUGE) + counted.len();
    let over = lease.is_none_or(|(left, _)| left.is_zero());
    let lost = matches!(state.data.connection, Connection::Lost { .. });
    // While the connection is lost, the state of the lease is unknown.
    let (tone, bar) = match (lost, over) {
        (true, _) => (theme.dim, theme.dim),
        (false, true) => (theme.bad, theme.bar),
        (false, false) => (theme.text, theme.bar),
    };
    if full <= room {
        x += put(buf, area, x, 0, "leader ", theme.dim);
        x += put(buf, area, x, 0, &node, if lost { theme.dim } else { theme.accent });
        x += put(buf, area, x, 0, "  term ", theme.dim);
        x += put(buf, area, x, 0, &term, if lost { theme.dim } else { theme.text });
        x += put(buf, area, x, 0, "  lease ", theme.dim);
        if let Some((left, whole)) = lease.filter(|(_, whole)| !whole.is_zero()) {
            let ratio = left.as_secs_f64() / whole.as_secs_f64();
            x += put(buf, area, x, 0, &gauge(ratio, GAUGE), bar);
        }
        put(buf, area, x, 0, &counted, tone);
    } else {
        x += put(buf, area, x, 0, &node, theme.accent);
        x += put(buf, area, x, 0, &format!(" t{term} "), theme.text);
        put(buf, area, x, 0, &counted, tone);
    }
}

/// Draws the connection's error while there is no snapshot.
fn connection(state: &State, theme: &Theme, area: Rect, x: u16, buf: &mut Buffer) {
    if let Connection::Lost { why, .. } = &state.data.connection {
        put(buf, area, x, 0, why, theme.bad);
    }
}

/// Draws the state of the connection while there is no snapshot.
pub(super) fn nothing_yet(state: &State, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let lines = match &state.data.connection {
        Connection::Connecting => vec![format!("Connecting to {} …", state.name())],
        Connection::Live => vec!["Connected; waiting for the first snapshot …".to_owned()],
        Connection::Lost { why, retry_at, .. } => {
            let again = retry_at.map_or_else(
                || "Retrying.".to_owned(),
                |at| format!("Retrying in {}.", text::span(at.since(state.data.local()))),
            );
            vec![
                format!("No host answers: {why}"),
                again,
                "Is a host running? `besom serve` starts one; `besom demo` starts a demo."
                    .to_owned(),
            ]
        }
    };
    let columns = usize::from(area.width.saturating_sub(2));
    let lines = lines.iter().flat_map(|line| text::wrap(line, columns));
    for (y, line) in lines.enumerate().take(usize::from(area.height)) {
        put(buf, area, 1, y as u16, &line, theme.text);
    }
}
