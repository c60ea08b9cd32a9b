//! What `?` tells: the keys of the screen, then those that are the same everywhere.

use super::context::Context;
use super::screens::{Hint, Screen};

/// The keys that are the same everywhere.
pub const EVERYWHERE: &[Hint] = &[
    ("1-6 tab", "screens"),
    ("j k ↓ ↑", "move; g G PgUp PgDn: further"),
    ("⏎ esc", "open, and back to where one came from"),
    ("/", "filter; esc clears it"),
    ("s S", "sort by the next column, turn the order around"),
    (": ^P", "commands"),
    ("f", "freeze the picture, and let it go on"),
    ("< >", "step back and forth in the last 15 minutes"),
    ("{ } (", "by a minute; back to the event before"),
    ("y", "copy what is chosen"),
    ("m", "mouse on or off"),
    ("q ^C", "quit"),
];

/// All lines of help; an empty key is a heading.
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
        lines.push(("", "Columns, signs and words"));
        lines.extend(words);
    }
    lines
}
