//! Draws the overview with much room: summaries of the other screens.

use besom_snapshot::{EventKind, Latency, RunState, Snapshot};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use crate::dash::context::Context;
use crate::dash::screens::overview::nodes::Totals;
use crate::dash::screens::overview::{OverviewScreen, view};
use crate::dash::screens::tasks::ending;
use crate::dash::screens::tasks::row;
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::spark::{spark, step};
use crate::dash::widgets::strip::{part, strip};
use crate::dash::widgets::{columns, put, put_n, put_right, rows};

/// Rows of the ring's panel and of the trends, including their borders.
const RING_ROWS: u16 = 8;
const TRENDS_ROWS: u16 = 6;
/// The minimum width of a task's name.
const TASK_NAME: u16 = 20;
/// Owners with a letter of their own on the strip.
const SIGNS: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

/// The letter of an owner, by its index.
fn sign(place: u16) -> char {
    SIGNS.get(usize::from(place)).map_or('▪', |sign| char::from(*sign))
}

pub(super) fn panels(
    screen: &OverviewScreen,
    cx: &Context<'_>,
    theme: &Theme,
    area: Rect,
    buf: &mut Buffer,
) {
    let left = area.width * 3 / 5;
    let upper = area.height - TRENDS_ROWS;
    let rest = upper - RING_ROWS;
    let nodes = (cx.snap.nodes.len() as u16).saturating_add(3).clamp(8, rest / 2 + 2);
    let (west, east) = (columns(area, 0, left), columns(area, left, area.width));
    let title = format!("Nodes ({})", cx.snap.nodes.len());
    let inside = panel(buf, theme, rows(west, 0, nodes), &title);
    screen.nodes(cx, theme, inside, buf);
    let inside = panel(buf, theme, rows(west, nodes, RING_ROWS), "Ring (unrolled)");
    ring(screen, cx, theme, inside, buf);
    let below = rows(west, nodes + RING_ROWS, upper - nodes - RING_ROWS);
    match screen.opened.as_ref().and_then(|name| cx.snap.node(name)) {
        Some(node) => {
            let inside = panel(buf, theme, below, "Node");
            view::detail(node, cx, theme, inside, buf);
        }
        None => {
            let inside = panel(buf, theme, below, "Attention");
            screen.attention(cx, theme, inside, buf);
        }
    }
    let half = upper / 2;
    let title = format!("Tasks ({}) by next run", cx.snap.tasks.len());
    let inside = panel(buf, theme, rows(east, 0, half), &title);
    tasks(cx, theme, inside, buf);
    let inside = panel(buf, theme, rows(east, half, upper - half), "Events");
    events(cx, theme, inside, buf);
    let inside = panel(buf, theme, rows(area, upper, TRENDS_ROWS), "Trends");
    trends(cx, theme, inside, buf);
}

fn ring(screen: &OverviewScreen, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let ring = &cx.snap.ring;
    if ring.virtual_nodes == 0 {
        put(buf, area, 1, 0, "No ring: the leader owns every partition.", theme.dim);
        return;
    }
    let label = 10;
    let line = columns(area, label, area.width.saturating_sub(label + 1));
    let wide = usize::from(line.width);
    let chosen = screen.node(cx).map(|node| node.name.as_str());
    let place = |of: &str| ring.owners.iter().position(|owner| owner.name == of);
    let chosen = chosen.and_then(place);
    // A cell covers several partitions: it shows the owner of the first.
    let owner = |cell: usize| {
        let first = part(cell, wide, ring.owner.len()).next()?;
        ring.owner.get(first).copied().flatten()
    };
    put(buf, area, 1, 0, "owner", theme.dim);
    let mine = |place: u16| Some(usize::from(place)) == chosen;
    strip(
        buf,
        line,
        0,
        (0..wide).map(|cell| match owner(cell) {
            Some(place) => (sign(place), if mine(place) { theme.accent } else { theme.text }),
            None => ('·', theme.dim),
        }),
    );
    if let Some(chosen) = chosen {
        put_n(buf, area, 1, 1, label - 2, &ring.owners[chosen].name, theme.dim);
        strip(
            buf,
            line,
            1,
            (0..wide).map(|cell| {
                let own = owner(cell).is_some_and(mine);
                if own { ('█', theme.bar) } else { ('·', theme.dim) }
            }),
        );
    }
    put(buf, area, 1, 2, "load", theme.dim);
    let load: Vec<u64> = (0..wide)
        .map(|cell| {
            ring.queued[..].get(part(cell, wide, ring.queued.len())).unwrap_or(&[]).iter().sum()
        })
        .collect();
    let most = load.iter().copied().max().unwrap_or(0);
    strip(buf, line, 2, load.iter().map(|load| (step(*load, most), theme.spark)));
    let totals = Totals::of(cx);
    let parts = |y, label: &str, buf: &mut Buffer, of: &dyn Fn(&besom_snapshot::Owner) -> f64| {
        let mut x = 1 + put(buf, area, 1, y, label, theme.dim) + 2;
        for (place, owner) in ring.owners.iter().enumerate() {
            if x + 9 > area.width {
                put(buf, area, x, y, "…", theme.dim);
                break;
            }
            let words = format!("{} {:.1}  ", sign(place as u16), of(owner));
            x += put(buf, area, x, y, &words, theme.text);
        }
    };
    let percent = |part: u64, all: u64| 100.0 * part as f64 / all.max(1) as f64;
    parts(3, "own% ", buf, &|owner| percent(u64::from(owner.owned), totals.owned.into()));
    parts(4, "load%", buf, &|owner| percent(owner.queued, totals.queued));
    let moving = match ring.moving {
        0 => String::new(),
        n => format!("   {n} partitions are being moved"),
    };
    let words = format!(
        "{} owners, {} virtual nodes each, {} partitions{moving}",
        ring.owners.len(),
        ring.virtual_nodes,
        ring.partitions,
    );
    put(buf, area, 1, 5, &words, theme.dim);
}

/// Draws the tasks in the order of their next runs, as many as there is room for.
pub(super) fn tasks(cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut order: Vec<_> = cx.snap.tasks.iter().collect();
    order.sort_by_key(|task| (task.next.is_none(), task.next));
    put(buf, area, 1, 0, "TASK", theme.title);
    let next = (area.width / 3).max(TASK_NAME + 2).min(area.width / 2);
    let (last, runs) = (next + 12, next + 22);
    put(buf, area, next, 0, "NEXT", theme.title);
    put(buf, area, last, 0, "LAST", theme.title);
    put(buf, area, runs, 0, "LAST 16 RUNS", theme.title);
    let (shown, all) = (usize::from(area.height.saturating_sub(1)), order.len());
    if shown < all {
        put_right(buf, area, area.width, 0, &format!("1-{shown} of {all}"), theme.dim);
    }
    for (y, task) in (1..area.height).zip(order) {
        put_n(buf, area, 1, y, next.saturating_sub(2), &task.name, theme.text);
        let (words, emphasis) = row::next_in(task, cx);
        put_n(buf, area, next, y, 11, &words, theme.style(emphasis));
        let (words, emphasis) = row::last(task, cx);
        put_n(buf, area, last, y, 9, &words, theme.style(emphasis));
        put(buf, area, runs, y, &ending::curve(&task.last, 16), theme.spark);
    }
    if cx.snap.tasks.is_empty() {
        put(buf, area, 1, 1, "No tasks yet: add a section [tasks.NAME] to besom.toml.", theme.dim);
    }
}

fn events(cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    // If there is room, all events are shown in full; the newest come first in any case.
    let indent = 10;
    let wide = usize::from(area.width.saturating_sub(indent + 1));
    let mut y = 0;
    for (at, event) in cx.snap.events.iter().enumerate() {
        if y >= area.height {
            break;
        }
        let style: Style = match event.kind {
            EventKind::Run | EventKind::Dead => theme.warn,
            EventKind::Leader | EventKind::Node => theme.accent,
            EventKind::Config | EventKind::Command | EventKind::Other => theme.text,
        };
        let by = event.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        // An event whose text names its subject is not prefixed with it.
        let named = event.text.split(' ').any(|word| word == event.subject);
        let (subject, sign) = if named { ("", "") } else { (event.subject.as_str(), " ") };
        let words = text::times(&format!("{subject}{sign}{}{by}", event.text), cx.now);
        let old = cx.now.since(event.at).as_secs() >= 86_400;
        let when = if old {
            format!("{:>8}", text::short(cx.now.since(event.at)) + " ago")
        } else {
            text::clock(event.at)
        };
        put(buf, area, 1, y, &when, theme.dim);
        // An event may use the rows that the others leave, up to three.
        let rest = (cx.snap.events.len() - at - 1).min(usize::from(area.height)) as u16;
        let spare = area.height.saturating_sub(y + 1).saturating_sub(rest.min(area.height / 2));
        let lines = text::wrap(&words, wide.max(1));
        let taken = lines.len().min(1 + usize::from(spare.min(2)));
        for (n, line) in lines.iter().take(taken).enumerate() {
            let last = n + 1 == taken && taken < lines.len();
            let line = if last { lines[n..].join(" ") } else { line.clone() };
            put_n(buf, area, indent, y, wide as u16, &line, if named { style } else { theme.text });
            if n == 0 && !named {
                put_n(
                    buf,
                    area,
                    indent,
                    y,
                    text::width(&text::clean(subject)) as u16,
                    subject,
                    style,
                );
            }
            y += 1;
        }
    }
    if cx.snap.events.is_empty() {
        put(buf, area, 1, 0, "No events yet.", theme.dim);
    }
}

fn trends(cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut x = 1 + put(buf, area, 1, 0, "depth 15m  ", theme.dim);
    let all = cx.trends.all(cx.now, 30);
    x += put(buf, area, x, 0, "all ", theme.text);
    x += put(buf, area, x, 0, &format!("{:>30}", spark(&all, 30)), theme.spark) + 3;
    // The nodes with the most queued items.
    let mut nodes: Vec<_> = cx.snap.nodes.iter().collect();
    nodes.sort_by_key(|node| std::cmp::Reverse(node.queued));
    for node in nodes {
        if x + 30 > area.width {
            break;
        }
        let name = text::clean(&node.name);
        x += put_n(buf, area, x, 0, 12, &name, theme.text) + 1;
        x += put(
            buf,
            area,
            x,
            0,
            &format!("{:>16}", spark(&cx.trends.node(&node.name, cx.now, 16), 16)),
            theme.spark,
        ) + 3;
    }
    view::leaders(cx, theme, rows(columns(area, 0, area.width), 1, 1), buf);
    view::cluster(cx, theme, rows(area, 2, 1), buf);
    let latency = latency(cx.snap);
    let quantile = |part| latency.quantile(part).map_or_else(|| "?".to_owned(), text::took);
    let ended = cx.snap.runs.iter().filter(|run| !run.state.is_active());
    let failed = ended.clone().filter(|run| run.state == RunState::Failed).count();
    let words = format!(
        " items    p50 {}  p95 {}  p99 {}    runs   {} of the last {} failed",
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        failed,
        ended.count(),
    );
    put(buf, area, 0, 3, &words, theme.text);
    put_right(
        buf,
        area,
        area.width.saturating_sub(1),
        3,
        &format!("besom {}", cx.snap.version),
        theme.dim,
    );
}

/// The latencies of all nodes' items.
fn latency(snap: &Snapshot) -> Latency {
    let mut all = Latency::default();
    for report in snap.nodes.iter().filter_map(|node| node.report.as_ref()) {
        all.merge(&report.latency);
    }
    all
}
