//! Who owns what, and where the load is. Drawn.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::RingScreen;
use crate::dash::context::Context;
use crate::dash::theme::Theme;
use crate::dash::widgets::put;

impl RingScreen {
    /// Draws it.
    pub fn view(&self, cx: &Context<'_>, theme: &Theme, area: Rect, buf: &mut Buffer) {
        let text = format!(" {} nodes, {} tasks", cx.snap.nodes.len(), cx.snap.tasks.len());
        put(buf, area, 0, 0, &text, theme.dim);
    }
}
