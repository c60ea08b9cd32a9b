//! Drawing primitives. Everything is drawn by [`put`], which sanitizes text and cuts it by display
//! width: nothing else writes foreign text to the screen.

pub mod bar;
pub mod field;
pub mod panel;
pub mod spark;
pub mod strip;
pub mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::text;

/// Writes text at a position within an area, cut at the area's right edge; returns the number of
/// columns used. Nothing is drawn outside the area.
pub fn put(buf: &mut Buffer, area: Rect, x: u16, y: u16, words: &str, style: Style) -> u16 {
    put_n(buf, area, x, y, area.width, words, style)
}

/// Writes at most this many columns of a text.
pub fn put_n(
    buf: &mut Buffer,
    area: Rect,
    x: u16,
    y: u16,
    columns: u16,
    words: &str,
    style: Style,
) -> u16 {
    let area = area.intersection(buf.area);
    if y >= area.height || x >= area.width {
        return 0;
    }
    let room = usize::from((area.width - x).min(columns));
    let words = text::clean(words);
    let words = text::cut(&words, room);
    let from = area.x + x;
    let (to, _) = buf.set_stringn(from, area.y + y, &words, room, style);
    to - from
}

/// Writes text that ends before a column.
pub fn put_right(buf: &mut Buffer, area: Rect, end: u16, y: u16, words: &str, style: Style) {
    let words = text::clean(words);
    let wide = text::width(&words).min(usize::from(u16::MAX)) as u16;
    put_n(buf, area, end.saturating_sub(wide), y, end, &words, style);
}

/// Writes styled pieces one after the other; returns the column after them.
pub fn put_all(buf: &mut Buffer, area: Rect, x: u16, y: u16, pieces: &[(&str, Style)]) -> u16 {
    pieces.iter().fold(x, |x, (words, style)| x + put(buf, area, x, y, words, *style))
}

/// Draws a horizontal line.
pub fn rule(buf: &mut Buffer, area: Rect, y: u16, style: Style) {
    let area = area.intersection(buf.area);
    if y < area.height {
        for x in area.left()..area.right() {
            buf[(x, area.y + y)].set_char('─').set_style(style);
        }
    }
}

/// Fills an area with blanks.
pub fn clear(buf: &mut Buffer, area: Rect) {
    let area = area.intersection(buf.area);
    for position in area.positions() {
        buf[position].reset();
    }
}

/// A part of an area: this many rows from a row on.
pub fn rows(area: Rect, from: u16, count: u16) -> Rect {
    let from = from.min(area.height);
    Rect { y: area.y + from, height: count.min(area.height - from), ..area }
}

/// A part of an area: this many columns from a column on.
pub fn columns(area: Rect, from: u16, count: u16) -> Rect {
    let from = from.min(area.width);
    Rect { x: area.x + from, width: count.min(area.width - from), ..area }
}
