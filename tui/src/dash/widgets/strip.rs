//! A strip of cells along an axis, each with a character and a style: an unrolled ring, a timeline.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

/// Draws one cell per column of the area's row `y`, from its first column on.
pub fn strip(buf: &mut Buffer, area: Rect, y: u16, cells: impl IntoIterator<Item = (char, Style)>) {
    let area = area.intersection(buf.area);
    if y >= area.height {
        return;
    }
    for (x, (sign, style)) in (area.left()..area.right()).zip(cells) {
        let harmless = crate::dash::text::width(sign.encode_utf8(&mut [0; 4])) == 1;
        let sign = if harmless && !sign.is_control() { sign } else { '?' };
        buf[(x, area.y + y)].set_char(sign).set_style(style);
    }
}

/// The range of `all` things that a column covers: from, to (exclusive); at least one if there are
/// any.
pub fn part(column: usize, columns: usize, all: usize) -> std::ops::Range<usize> {
    if columns == 0 || all == 0 {
        return 0..0;
    }
    let from = (column * all / columns).min(all - 1);
    let to = ((column + 1) * all / columns).clamp(from + 1, all);
    from..to
}
