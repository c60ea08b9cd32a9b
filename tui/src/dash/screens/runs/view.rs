//! Draws the Runs screen.

mod figures;
mod lines;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use besom_snapshot::RunState;

use super::detail::Detail;
use super::{COLUMNS, RunsScreen};
use crate::dash::context::Context;
use crate::dash::theme::Theme;
use crate::dash::widgets::panel::panel;
use crate::dash::widgets::table::Table;
use crate::dash::widgets::{columns, put, put_all, rows};

/// From this width on, nodes and items are shown beside the log.
const WIDE_MIN: u16 = 140;
/// Their width.
const SIDE: u16 = 70;

impl RunsScreen {
    /// Draws the screen.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        match &self.detail {
            Some(detail) => self.one(detail, cx, theme, area, buf),
            None => self.list(cx, theme, area, buf),
        }
    }

    fn list(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let order = self.rows(cx);
        let runs = self.older.with(cx.snap);
        let active = runs.iter().filter(|run| run.state.is_active()).count();
        let failed = runs.iter().filter(|run| run.state == RunState::Failed).count();
        let more = if self.older.more() { ", the newest" } else { "" };
        let reading = if self.older.waits() { "  reading …" } else { "" };
        let counts =
            format!("{} read{more}  {active} active  {failed} failed{reading}", runs.len());
        let mut pieces = vec![("Runs  ", theme.title), (counts.as_str(), theme.text)];
        let filter = format!("  filter: {}  ({} shown)", self.filter, order.len());
        if !self.filter.is_empty() {
            pieces.push((&filter, theme.accent));
        }
        put_all(buf, area, 1, 0, &pieces);
        let ids: Vec<u64> = order.iter().map(|run| run.id).collect();
        let table = Table {
            columns: COLUMNS,
            rows: &order,
            selected: self.table.place(&ids),
            focused: true,
            order: self.table.order,
            empty: if self.older.waits() {
                "Reading runs …"
            } else if runs.is_empty() {
                "No runs yet. A task first runs at its next slot; start a run now with t on the \
                 Tasks screen or with `besom task trigger TASK`."
            } else {
                "None of the runs read so far matches; esc clears the filter."
            },
            seen: &self.table.seen,
        };
        table.draw(cx, theme, rows(area, 1, area.height.saturating_sub(1)), buf);
    }

    fn one(&self, detail: &Detail, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let Some(run) = detail.run(cx.snap) else {
            let why = match detail.refusal() {
                Some(why) => format!("Run {}: {why}", detail.id),
                None => format!("Reading run {} ...", detail.id),
            };
            put(buf, area, 1, 0, &why, theme.dim);
            return;
        };
        let figures = figures::Figures { run, detail, cx, theme, pace: &self.pace };
        // The log gets at least a third.
        let room = area.height.saturating_sub((area.height / 3).max(4));
        let taken = figures.draw(rows(area, 0, room.max(1)), buf);
        let below = rows(area, taken, area.height.saturating_sub(taken));
        if area.width < WIDE_MIN || below.height < 10 {
            lines::draw(detail, run, cx, theme, below, buf);
            return;
        }
        lines::draw(detail, run, cx, theme, columns(below, 0, area.width - SIDE), buf);
        let side = columns(below, area.width - SIDE, SIDE);
        let upper = below.height / 2;
        let inside = panel(buf, theme, rows(side, 0, upper), "Nodes");
        figures::nodes(run.id, detail, cx, theme, inside, buf);
        let lower = rows(side, upper, below.height - upper);
        let inside = panel(buf, theme, lower, "Items without effect");
        lines::items(detail, run, theme, inside, buf);
    }
}
