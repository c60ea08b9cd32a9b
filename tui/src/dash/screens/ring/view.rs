//! Draws the Ring screen.

mod circle;
mod strips;

use strips::{selected_sign, selected_style};

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::RingScreen;
use super::load::{Loads, Share};
use super::strip::Strip;
use super::verdict::{Mood, Verdict};
use super::what_if::Outcome;
use crate::dash::context::Context;
use crate::dash::screens::figure::{UNKNOWN, per_cent};
use crate::dash::text;
use crate::dash::theme::Theme;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{bar, columns, panel, put, put_all, put_right, rows, rule};

/// The width of the names before the strips.
const LABEL: u16 = 10;
/// From this width on, the hot keys and the circle are shown at the right.
const WIDE_MIN: u16 = 120;
/// Their width.
const SIDE: u16 = 52;
/// The minimum rows of the table, including its heading.
const TABLE_MIN: u16 = 4;

/// The data to draw, computed once.
struct Sight<'a> {
    cx: &'a Context<'a>,
    theme: &'a Theme,
    loads: &'a Loads<'a>,
    /// The shares in the order of the table, and the row of the selected one.
    shares: Vec<&'a Share<'a>>,
    chosen: Option<usize>,
}

impl<'a> Sight<'a> {
    fn share(&self) -> Option<&'a Share<'a>> {
        self.shares.get(self.chosen?).copied()
    }
}

impl RingScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let loads = Loads::of(cx.snap);
        let shares = self.rows(&loads, cx);
        let names: Vec<String> = shares.iter().map(|share| share.name.to_owned()).collect();
        let chosen = self.table.place(&names);
        let sight = Sight { cx, theme, loads: &loads, shares, chosen };
        let wide = area.width >= WIDE_MIN;
        let main = columns(area, 0, if wide { area.width - SIDE } else { area.width });
        self.main(&sight, main, buf);
        if wide {
            self.side(&sight, columns(area, area.width - SIDE, SIDE), buf);
        }
    }

    fn main(&self, sight: &Sight<'_>, area: Rect, buf: &mut Buffer) {
        let theme = sight.theme;
        self.heading(sight, area, buf);
        // From the bottom: the verdict, the peaks, the what-if; then the strips, as far as the
        // table leaves room.
        let verdict = Verdict::of(sight.cx.snap, sight.loads);
        let words = text::wrap(&verdict.text, usize::from(area.width.saturating_sub(11)));
        let what_if = self.what_if_lines(sight);
        let feet = 2 + words.len().min(3) as u16 + what_if.len() as u16;
        let feet = feet.min(area.height.saturating_sub(1 + TABLE_MIN));
        let left = area.height.saturating_sub(1 + TABLE_MIN + feet);
        let strips = self.strips(sight, rows(area, 1, left.min(7)), buf);
        let table = rows(area, 1 + strips, area.height.saturating_sub(1 + strips + feet));
        self.table(sight, table, buf);
        if feet == 0 {
            return;
        }
        let foot = rows(area, area.height - feet, feet);
        rule(buf, foot, 0, theme.line);
        let style = match verdict.mood {
            Mood::Good => theme.good,
            Mood::Change => theme.accent,
            Mood::Uneven => theme.warn,
        };
        let mut y = 1;
        for line in words.iter().take(3) {
            let label = if y == 1 { "verdict: " } else { "" };
            put(buf, foot, 1, y, label, theme.dim);
            put(buf, foot, 10, y, line, style);
            y += 1;
        }
        put(buf, foot, 1, y, &peaks(sight.loads), theme.text);
        for (number, line) in (1..).zip(&what_if) {
            put(buf, foot, 1, y + number, line, theme.text);
        }
    }

    fn heading(&self, sight: &Sight<'_>, area: Rect, buf: &mut Buffer) {
        let (ring, theme) = (&sight.cx.snap.ring, sight.theme);
        let decided = match ring.virtual_nodes {
            0 => "no ring".to_owned(),
            points => format!("{} points each", text::grouped(u64::from(points))),
        };
        let members = ring.owners.iter().filter(|owner| owner.weight > 0).count();
        let words = format!(
            "{} partitions  {members} members  {decided}  revision {}",
            text::grouped(u64::from(ring.partitions)),
            ring.revision
        );
        let x = put_all(buf, area, 1, 0, &[("Ring  ", theme.title), (&words, theme.text)]);
        if ring.moving > 0 {
            let part = f64::from(ring.moving) / f64::from(ring.partitions.max(1));
            let moving = format!("  moving {} ({}%)", ring.moving, per_cent(part));
            put(buf, area, x, 0, &moving, theme.accent);
        }
    }

    fn table(&self, sight: &Sight<'_>, area: Rect, buf: &mut Buffer) {
        let theme = sight.theme;
        let table = Table {
            columns: &Share::COLUMNS,
            rows: &sight.shares,
            selected: sight.chosen,
            focused: true,
            order: self.table.order,
            empty: "No node owns a partition yet. A host takes its share when `besom serve` starts it.",
            seen: &self.table.seen,
        };
        table.draw(sight.cx, theme, area, buf);
    }

    fn what_if_lines(&self, sight: &Sight<'_>) -> Vec<String> {
        let Some(what) = &self.what_if else { return Vec::new() };
        let stale = if what.revision == sight.cx.snap.ring.revision {
            ""
        } else {
            "  (the members have changed; w recomputes)"
        };
        let line = |name: String, outcome: &Outcome, most: &str| {
            let named: Vec<String> =
                outcome.most.iter().map(|(name, count)| format!("{name} {count}")).collect();
            format!(
                "{name} moves {} ({}%), peak/mean own {:.2} → {:.2}; {most} {}",
                text::grouped(outcome.moved as u64),
                per_cent(outcome.part()),
                outcome.peak.0,
                outcome.peak.1,
                named.join(", ")
            )
        };
        let join = line(format!("what-if{stale}  +1 node:"), &what.join, "from");
        let leave = match (&what.leave, &what.node) {
            (Some(leave), Some(node)) => line(format!("         -{node}:"), leave, "to"),
            (None, Some(node)) => {
                format!("         -{node}: it has no share, or it is the last node")
            }
            (_, None) => "         choose a node to see what its removal would move".to_owned(),
        };
        vec![join, leave]
    }

    /// Draws the hot keys with bars, and the circle.
    fn side(&self, sight: &Sight<'_>, area: Rect, buf: &mut Buffer) {
        let theme = sight.theme;
        let hot = sight.share().and_then(|share| sight.cx.snap.node(share.name));
        let hot = hot.and_then(|node| node.report.as_ref()).map_or(0, |report| report.hot.len());
        let keys = (hot.clamp(2, 10) as u16 + 2).min(area.height / 2 + 1);
        let name = sight.share().map_or("", |share| share.name);
        let inside = panel::panel(buf, theme, rows(area, 0, keys), &format!("Hot keys of {name}"));
        hot_keys(sight, inside, buf);
        let below = rows(area, keys, area.height.saturating_sub(keys));
        let inside = panel::panel(buf, theme, below, "The ring as a circle");
        let ring = &sight.cx.snap.ring;
        let selected = sight.share().and_then(|share| u16::try_from(share.place).ok());
        let cells = Strip::of(ring, 0..ring.partitions, circle::points(inside), selected);
        let sought = self.place.as_ref().map(|place| place.partition);
        circle::draw(buf, theme, inside, &cells, sought);
        if !name.is_empty() {
            let words = format!("█ {name}");
            put_right(
                buf,
                inside,
                inside.width,
                inside.height.saturating_sub(1),
                &words,
                theme.accent,
            );
        }
    }
}

fn peaks(loads: &Loads<'_>) -> String {
    let figure = |peak: Option<f64>| peak.map_or(UNKNOWN.to_owned(), |peak| format!("{peak:.2}"));
    let load = match loads.waits {
        0 => "- (nothing waiting)".to_owned(),
        _ => figure(loads.peak_load()),
    };
    format!("peak/mean own {}   peak/mean load {load}", figure(loads.peak_own()))
}

fn hot_keys(sight: &Sight<'_>, area: Rect, buf: &mut Buffer) {
    let theme = sight.theme;
    let Some(share) = sight.share() else { return };
    let report = sight.cx.snap.node(share.name).and_then(|node| node.report.as_ref());
    let Some(report) = report else {
        put(buf, area, 1, 0, "the node has not reported yet", theme.dim);
        return;
    };
    if report.hot.is_empty() || report.hot_of == 0 {
        put(buf, area, 1, 0, "no work in the last 15 minutes", theme.dim);
        return;
    }
    for (y, key) in (0..area.height).zip(&report.hot) {
        let part = key.count as f64 / report.hot_of as f64;
        let name = match &key.tenant {
            Some(tenant) => format!("{} of {tenant}", key.key),
            None => key.key.clone(),
        };
        let room = usize::from(area.width.saturating_sub(22));
        put(buf, area, 1, y, &text::cut(&text::clean(&name), room), theme.text);
        put_right(buf, area, area.width.saturating_sub(14), y, &per_cent(part), theme.text);
        put(buf, area, area.width.saturating_sub(13), y, &bar::bar(part, 12), theme.bar);
    }
}
