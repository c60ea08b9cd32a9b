//! The content of the help overlay: the screen's keys, then the global keys, then the screen's
//! terms.

use super::context::Context;
use super::screens::{Hint, Screen};

/// The keys that work on every screen.
pub const EVERYWHERE: &[Hint] = &[
    ("1-6 tab", "screens"),
    ("j k ↓ ↑", "move; g G PgUp PgDn: jump"),
    ("⏎ esc", "open; go back"),
    ("/", "filter; esc clears it"),
    ("s S", "sort by the next column; reverse the order"),
    (": ^P", "commands"),
    ("f", "freeze or resume the display"),
    ("< >", "step back and forward through the last 15 minutes"),
    ("{ } (", "step by a minute; back to the previous event"),
    ("y", "copy the selection"),
    ("m", "mouse on or off"),
    ("q ^C", "quit"),
];

/// All lines of the help; an empty key marks a heading.
pub fn lines(screen: &dyn Screen, cx: &Context<'_>) -> Vec<Hint> {
    let here = screen.hints(cx);
    let mut lines = Vec::new();
    if !here.is_empty() {
        lines.push(("", "On this screen"));
        lines.extend(here);
    }
    lines.push(("", "Everywhere"));
    lines.extend(EVERYWHERE);
    let words = screen.words();
    if !words.is_empty() {
        lines.push(("", "Columns, symbols and terms"));
        lines.extend(words);
    }
    lines
}
