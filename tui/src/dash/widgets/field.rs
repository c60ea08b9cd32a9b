//! A text field, with its cursor.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::{put, put_n};
use crate::dash::field::Field;
use crate::dash::text;
use crate::dash::theme::Theme;

/// Draws a field of this many columns. A long text is scrolled to its cursor; the cursor is drawn
/// only while the field is edited.
pub fn field(
    buf: &mut Buffer,
    theme: &Theme,
    area: Rect,
    (x, y, columns): (u16, u16, u16),
    field: &Field,
    typed: bool,
) {
    let blank = " ".repeat(usize::from(columns));
    put_n(buf, area, x, y, columns, &blank, theme.field);
    if columns == 0 {
        return;
    }
    let room = usize::from(columns) - 1;
    let mut before = field.before();
    // The cursor stays within the field, so the text to its left scrolls out.
    while text::width(&text::clean(before)) > room {
        let mut chars = before.chars();
        chars.next();
        before = chars.as_str();
    }
    let at = x + put_n(buf, area, x, y, columns, before, theme.field);
    let rest = columns.saturating_sub(at - x);
    put_n(buf, area, at, y, rest, field.after(), theme.field);
    if typed {
        let under = field.after().chars().next().unwrap_or(' ');
        put(buf, area, at, y, under.encode_utf8(&mut [0; 4]), theme.cursor);
    }
}
