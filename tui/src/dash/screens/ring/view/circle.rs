//! Draws the ring as a circle, where there is spare room. The strips show the same information.

use std::f64::consts::TAU;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::{selected_sign, selected_style};
use crate::dash::screens::ring::strip::Strip;
use crate::dash::theme::Theme;
use crate::dash::widgets::put;

/// A smaller circle is not drawn.
const ROWS_MIN: u16 = 7;

/// Draws a strip as a circle; [`points`] gives the number of cells for an area. The selected node's
/// cells are full, and the sought partition is marked.
pub fn draw(buf: &mut Buffer, theme: &Theme, area: Rect, strip: &Strip, sought: Option<u32>) {
    let area = area.intersection(buf.area);
    let rows = area.height.min(area.width / 2);
    if rows < ROWS_MIN || strip.cells.is_empty() {
        return;
    }
    // A column is about half as wide as a row is high.
    let radius = f64::from(rows - 1) / 2.0;
    let mut point = |turn: f64, sign: &str, style: Style, inset: f64| {
        let angle = turn * TAU;
        let (sin, cos) = angle.sin_cos();
        let x = (radius + (radius - inset) * sin) * 2.0;
        let y = radius - (radius - inset) * cos;
        put(buf, area, x.round() as u16, y.round() as u16, sign, style);
    };
    for (at, cell) in strip.cells.iter().enumerate() {
        // A cell belongs to the node fully, partly or not at all; heights would have no meaning on
        // a circle.
        let sign = match selected_sign(cell) {
            '·' => "·",
            '█' => "█",
            _ => "▓",
        };
        point(at as f64 / strip.cells.len() as f64, sign, selected_style(theme, cell), 0.0);
    }
    if let Some(at) = sought.and_then(|partition| strip.cell_of(partition)) {
        point(at as f64 / strip.cells.len() as f64, "▲", theme.warn, 1.2);
    }
}

/// The number of cells for the circle of an area: about one for each position on it.
pub fn points(area: Rect) -> u16 {
    let rows = area.height.min(area.width / 2);
    (rows * 5).max(1)
}
