//! Draws the overview: as much of it as the size allows, and always the attention list.

mod panels;

use besom_snapshot::{Attention, Node, Urgency};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::nodes::{self, Row};
use super::{Focus, OverviewScreen, attention_ids, timeline};
use crate::dash::context::Context;
use crate::dash::frame::Frame;
use crate::dash::table::{Column, Emphasis, Width};
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{put, put_all, rows, rule};

/// Below this size, only the attention list is shown.
const NODES_SIZE_MIN: (u16, u16) = (60, 12);
/// From this size on, panels are shown.
const PANELS_SIZE_MIN: (u16, u16) = (150, 36);
/// Rows that the others leave for the nodes, the tasks and the attention list, including their
/// headings.
const NODES_ROWS_MIN: u16 = 3;
const TASKS_ROWS_MIN: u16 = 3;
const ATTENTION_ROWS_MIN: u16 = 6;

type Col = Column<Attention>;

/// The column of the attention list.
const ATTENTION: &[Col] =
    &[Col::left("ATTENTION, most urgent first", Width::Fill(20), 0, |item, cx| {
        (format!("{} {}", sign(item.urgency), words(item, cx)), emphasis(item.urgency))
    })];

/// How many rows the nodes and the tasks have, including their headings. The rest is for a
/// separator, two lines about the cluster, and the attention list or an open node.
struct Parts {
    nodes: u16,
    /// Zero: the tasks are not shown.
    tasks: u16,
    /// The height of each further separator; with little room, the headings have to do.
    rule: u16,
}

impl Parts {
    fn of(cx: &Context<'_>, height: u16, opened: bool) -> Parts {
        let rest = height - 3;
        let wanted = |rows: usize| rows.max(1).min(usize::from(rest)) as u16 + 1;
        let nodes = wanted(cx.snap.nodes.len()).max(NODES_ROWS_MIN);
        let (tasks, attention) = (wanted(cx.snap.tasks.len()), wanted(cx.attention.len()));
        let (tasks_min, attention_min) =
            (tasks.min(TASKS_ROWS_MIN), attention.min(ATTENTION_ROWS_MIN));
        let least = NODES_ROWS_MIN + tasks_min + attention_min;
        if opened || rest < least {
            let rest = rest - 1;
            let attention = attention.min(ATTENTION_ROWS_MIN.max(rest / 2));
            return Parts { nodes: nodes.min(rest - attention), tasks: 0, rule: 1 };
        }
        let rule = u16::from(nodes + tasks + attention + 2 <= rest);
        // The nodes come first; the tasks leave half of the remainder to the attention list.
        let left = rest - least - 2 * rule;
        let nodes = nodes.min(NODES_ROWS_MIN + left);
        let left = left - (nodes - NODES_ROWS_MIN);
        let more = left.saturating_sub(attention - attention_min).max(left.div_ceil(2));
        Parts { nodes, tasks: tasks.min(tasks_min + more), rule }
    }
}

/// Whether a terminal of this size shows only the attention list.
pub(super) fn only_attention(size: (u16, u16)) -> bool {
    let height = Frame::of(size.1).body.1;
    size.0 < NODES_SIZE_MIN.0 || height < NODES_SIZE_MIN.1
}

impl OverviewScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        if area.width < NODES_SIZE_MIN.0 || area.height < NODES_SIZE_MIN.1 {
            self.attention(cx, theme, area, buf);
        } else if area.width >= PANELS_SIZE_MIN.0 && area.height >= PANELS_SIZE_MIN.1 {
            panels::panels(self, cx, theme, area, buf);
        } else {
            self.stacked(cx, theme, area, buf);
        }
    }

    /// Draws all parts below each other.
    fn stacked(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let opened = self.opened.as_ref().and_then(|name| cx.snap.node(name));
        let parts = Parts::of(cx, area.height, opened.is_some());
        self.nodes(cx, theme, rows(area, 0, parts.nodes), buf);
        let mut y = parts.nodes;
        rule(buf, area, y, theme.line);
        cluster(cx, theme, rows(area, y + 1, 1), buf);
        leaders(cx, theme, rows(area, y + 2, 1), buf);
        y += 3;
        if parts.tasks > 0 {
            rule(buf, rows(area, y, parts.rule), 0, theme.line);
            y += parts.rule;
            panels::tasks(cx, theme, rows(area, y, parts.tasks), buf);
            y += parts.tasks;
        }
        if cx.lost {
            buf.set_style(rows(area, 0, y), theme.dim);
        }
        rule(buf, rows(area, y, parts.rule), 0, theme.line);
        y += parts.rule;
        let below = rows(area, y, area.height);
        match opened {
            Some(node) => detail(node, cx, theme, below, buf),
            None => self.attention(cx, theme, below, buf),
        }
    }

    /// Draws the nodes.
    pub(super) fn nodes(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let nodes = nodes::rows(self, cx);
        let table = Table {
            columns: &Row::COLUMNS,
            rows: &nodes,
            selected: self.nodes.place(&nodes::ids(&nodes)),
            focused: self.focus == Focus::Nodes,
            order: self.nodes.order,
            empty: match self.filter.is_empty() {
                true => "No node has reported yet. `besom serve` starts one.",
                false => "No node name matches; esc clears the filter.",
            },
            seen: &self.nodes.seen,
        };
        table.draw(cx, theme, area, buf);
    }

    /// Draws the attention list.
    pub(super) fn attention(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let ids = attention_ids(cx.attention);
        let only = only_attention(cx.size);
        let chosen = self.attention.place(&ids).filter(|_| only || self.focus == Focus::Attention);
        let table = Table {
            columns: ATTENTION,
            rows: cx.attention,
            selected: chosen,
            focused: true,
            order: self.attention.order,
            empty: "Nothing: all nodes are present and everything works as expected.",
            seen: &self.attention.seen,
        };
        table.draw(cx, theme, area, buf);
        // Items that are truncated above are repeated below in full if there is room: the selected
        // one, or all in their order.
        let items = match chosen {
            Some(place) => &cx.attention[place..=place],
            None => cx.attention,
        };
        let wide = usize::from(area.width.saturating_sub(5));
        let mut y = (cx.attention.len() as u16).saturating_add(2);
        for item in items {
            let words = words(item, cx);
            let lines = text::wrap(&words, wide);
            let room = area.height.saturating_sub(y);
            if text::width(&text::clean(&words)) <= wide || lines.len() as u16 > room {
                continue;
            }
            let style = theme.style(emphasis(item.urgency));
            put(buf, area, 1, y, sign(item.urgency), style);
            for line in &lines {
                put(buf, area, 4, y, line, style);
                y += 1;
            }
        }
    }
}

fn sign(urgency: Urgency) -> &'static str {
    match urgency {
        Urgency::Alarm => "!!",
        Urgency::Warning => "! ",
        Urgency::Notice => "i ",
    }
}

fn emphasis(urgency: Urgency) -> Emphasis {
    match urgency {
        Urgency::Alarm => Emphasis::Bad,
        Urgency::Warning => Emphasis::Warn,
        Urgency::Notice => Emphasis::Text,
    }
}

fn words(item: &Attention, cx: &Context<'_>) -> String {
    let cause = item.cause.as_ref().map(|cause| format!("  ← {cause}"));
    text::times(&format!("{}{}", item.text, cause.unwrap_or_default()), cx.now)
}

/// Draws the waiting items of the whole deployment in one line.
pub(super) fn cluster(cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let snap = cx.snap;
    let sum = |rate: fn(&besom_snapshot::Task) -> Option<f64>| {
        let known: Vec<f64> = snap.tasks.iter().filter_map(|task| rate(task)).collect();
        (!known.is_empty()).then(|| known.into_iter().sum::<f64>())
    };
    let (arriving, leaving) = (sum(|task| task.in_per_s), sum(|task| task.out_per_s));
    let growth = arriving.zip(leaving).map(|(arriving, leaving)| arriving - leaving);
    let growth = growth.map_or_else(|| "?".to_owned(), |growth| format!("{growth:+.1}/s"));
    let reports: Vec<_> = snap.nodes.iter().filter_map(|node| node.report.as_ref()).collect();
    let running = match reports.is_empty() {
        true => "?".to_owned(),
        false => text::grouped(reports.iter().map(|report| u64::from(report.running)).sum()),
    };
    let count = |of: fn(&besom_snapshot::Depth) -> u64| {
        text::grouped(snap.tasks.iter().map(|task| of(&task.depth)).sum())
    };
    let dead = snap.dead_letters();
    let timers = count(|depth| depth.timers);
    let pieces = [
        (" cluster  ", theme.dim),
        ("queued ", theme.dim),
        (&text::grouped(snap.queued()), theme.text),
        (&format!(" ({growth})"), theme.text),
        ("  running ", theme.dim),
        (&running, theme.text),
        ("  retry ", theme.dim),
        (&count(|depth| depth.retries), theme.text),
        ("  dead ", theme.dim),
        (&text::grouped(dead), if dead > 0 { theme.warn } else { theme.text }),
        ("  done ", theme.dim),
        (&format!("{}/s", text::rate(leaving)), theme.text),
    ];
    let x = put_all(buf, area, 0, 0, &pieces);
    if usize::from(area.width.saturating_sub(x)) > "  timers ".len() + timers.len() {
        put_all(buf, area, x, 0, &[("  timers ", theme.dim), (&timers, theme.text)]);
    }
}

/// Draws the leaders in one line.
pub(super) fn leaders(cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let told = |changes| match changes {
        1 => " 1 change/h".to_owned(),
        changes => format!(" {changes} changes/h"),
    };
    let columns = usize::from(area.width).saturating_sub(10 + told(99).len());
    let terms = &cx.snap.leadership.terms;
    let (line, changes) = timeline::leaders(terms, &cx.snap.passes(), cx.now, columns);
    let x = put(buf, area, 0, 0, " leaders  ", theme.dim);
    let x = x + put(buf, area, x, 0, &line, theme.text);
    put(buf, area, x, 0, &told(changes), theme.dim);
}

/// Draws a node's details.
pub(super) fn detail(node: &Node, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
    let mut lines: Vec<(String, Style)> = Vec::new();
    let plain = theme.text;
    let address = match node.address.as_str() {
        "" => "no address: it is not part of a cluster".to_owned(),
        address => format!("address {address}"),
    };
    lines.push((format!("weight {}  partitions {}  {address}", node.weight, node.owned), plain));
    if let Some(drained) = &node.drained {
        let since = text::span(cx.now.since(drained.since));
        let words = format!("drained by {} {since} ago: {}", drained.by, drained.reason);
        lines.push((words, theme.warn));
    }
    for missing in &node.missing {
        let since = text::span(cx.now.since(missing.since));
        let words = format!("! has not reached {} for {since}: {}", missing.what, missing.why);
        lines.push((words, theme.bad));
    }
    match &node.report {
        None => lines.push(("It has not reported yet.".to_owned(), theme.dim)),
        Some(report) => {
            let up = text::span(cx.now.since(report.started_at));
            lines.push((
                format!("version {}  up {up}  {}", report.version, node.incarnation),
                plain,
            ));
            let digest: String = node.config_digest.chars().take(12).collect();
            let taken = text::span(cx.now.since(report.config_at));
            let path = &report.config_path;
            lines.push((format!("configuration {digest}, loaded {taken} ago, {path}"), plain));
            if let Some(fault) = &report.config_fault {
                let what = report.file_refused().map_or("", |_| "the file is invalid: ");
                lines.push((format!("! {what}{fault}"), theme.warn));
            }
            for hot in report.hot.iter().take(3) {
                let part = 100.0 * hot.count as f64 / report.hot_of.max(1) as f64;
                let words = format!("{part:>4.0}% of its work is {} of {}", hot.key, hot.task);
                lines.push((words, if part > 25.0 { theme.warn } else { plain }));
            }
        }
    }
    put(buf, area, 1, 0, &format!("{}  (esc closes)", node.name), theme.title);
    let wide = usize::from(area.width.saturating_sub(3));
    let lines = lines.iter().flat_map(|(words, style)| {
        text::wrap(&text::times(words, cx.now), wide).into_iter().map(move |line| (line, *style))
    });
    for (y, (words, style)) in lines.enumerate().take(usize::from(area.height)) {
        put(buf, area, 2, y as u16 + 1, &words, style);
    }
}
