//! The content of the help overlay: the screen's keys, then the global keys, then the screen's
//! terms.

use super::bindings::Hint;
use super::context::Context;
use super::everywhere;
use super::screens::Screen;

/// All lines of the help; an empty key marks a heading.
pub fn lines(screen: &dyn Screen, cx: &Context<'_>) -> Vec<Hint> {
    let here = screen.hints(cx);
    let mut lines = Vec::new();
    if !here.is_empty() {
        lines.push(("", "On this screen"));
        lines.extend(here);
    }
    lines.push(("", "Everywhere"));
    lines.extend(everywhere::help());
    let words = screen.words();
    if !words.is_empty() {
        lines.push(("", "Columns, symbols and terms"));
        lines.extend(words);
    }
    lines
}
