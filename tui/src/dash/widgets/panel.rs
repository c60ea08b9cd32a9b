//! Bordered panels with a title, and boxes in the middle of the screen.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{clear, put_n};
use crate::dash::theme::Theme;

/// Draws a border with a title in its upper line; returns the area inside.
pub fn panel(buf: &mut Buffer, theme: &Theme, area: Rect, title: &str) -> Rect {
    let area = area.intersection(buf.area);
    if area.width < 2 || area.height < 2 {
        return Rect { width: 0, height: 0, ..area };
    }
    let (left, right) = (area.left(), area.right() - 1);
    let (top, bottom) = (area.top(), area.bottom() - 1);
    for x in left..=right {
        for y in [top, bottom] {
            buf[(x, y)].set_char('─').set_style(theme.line);
        }
    }
    for y in top..=bottom {
        for x in [left, right] {
            buf[(x, y)].set_char('│').set_style(theme.line);
        }
    }
    for (x, y, corner) in
        [(left, top, '┌'), (right, top, '┐'), (left, bottom, '└'), (right, bottom, '┘')]
    {
        buf[(x, y)].set_char(corner);
    }
    if !title.is_empty() {
        put_n(buf, area, 2, 0, area.width.saturating_sub(4), &format!(" {title} "), theme.title);
    }
    Rect { x: left + 1, y: top + 1, width: area.width - 2, height: area.height - 2 }
}

/// Draws an empty bordered box in the middle of an area; returns the area inside. What does not fit
/// is left out.
pub fn middle(buf: &mut Buffer, theme: &Theme, area: Rect, size: (u16, u16), title: &str) -> Rect {
    let width = size.0.saturating_add(2).min(area.width);
    let height = size.1.saturating_add(2).min(area.height);
    let place = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    clear(buf, place);
    panel(buf, theme, place, title)
}
