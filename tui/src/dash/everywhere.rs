//! The keys that work on every screen, as data.
//!
//! The line of keys, the help, the palette and the table in `docs/dashboard.md` are made from it.

use super::bindings::Hint;
use super::key::{Code, Key};
use super::palette::Command;
use super::screens::Place;
use super::state::ThemeChoice;

/// Keys and the command that they give.
#[derive(Debug)]
pub struct Press {
    /// The keys; empty: only the palette offers the command.
    pub keys: &'static [Key],
    /// The words in the palette; empty: the palette does not offer it.
    pub words: &'static str,
    /// Makes the command.
    pub command: fn() -> Command,
}

/// A line of the help, and the keys that it is about.
#[derive(Debug)]
pub struct Line {
    /// The keys as shown.
    pub shown: &'static str,
    /// What they do; empty: the help does not list them.
    pub does: &'static str,
    /// Their place on the line of keys, and what they do in a word; none: they are not there.
    pub hint: Option<(u8, &'static str)>,
    /// The keys.
    pub presses: &'static [Press],
}

const fn press(keys: &'static [Key], words: &'static str, command: fn() -> Command) -> Press {
    Press { keys, words, command }
}

const fn line(shown: &'static str, does: &'static str, presses: &'static [Press]) -> Line {
    Line { shown, does, hint: None, presses }
}

impl Line {
    const fn hint(mut self, place: u8, word: &'static str) -> Line {
        self.hint = Some((place, word));
        self
    }
}

/// All of them, in the order of the help.
pub static EVERYWHERE: &[Line] = &[
    line(
        "1-6 tab",
        "screens",
        &[
            press(&[Key::char('1')], "overview", || Command::Go(Place::Overview)),
            press(&[Key::char('2')], "tasks", || Command::Go(Place::Tasks)),
            press(&[Key::char('3')], "queues", || Command::Go(Place::Queues)),
            press(&[Key::char('4')], "ring", || Command::Go(Place::Ring)),
            press(&[Key::char('5')], "runs", || Command::Go(Place::Runs)),
            press(&[Key::char('6')], "edit", || Command::Go(Place::Edit)),
            press(&[Key::plain(Code::Tab)], "", || Command::NextScreen),
            press(&[Key::plain(Code::BackTab)], "", || Command::PreviousScreen),
        ],
    ),
    line("j k ↓ ↑", "move; g G PgUp PgDn: jump", &[]),
    line("⏎ esc", "open; go back", &[press(&[Key::plain(Code::Esc)], "", || Command::Escape)]),
    line("/", "filter; esc clears it", &[press(&[Key::char('/')], "", || Command::Filter)])
        .hint(2, "filter"),
    line(
        "s S",
        "sort by the next column; reverse the order",
        &[
            press(&[Key::char('s')], "", || Command::SortNext),
            press(&[Key::char('S')], "", || Command::Reverse),
        ],
    ),
    line(": ^P", "commands", &[press(&[Key::char(':'), Key::ctrl('p')], "", || Command::Palette)])
        .hint(1, "command"),
    line(
        "f",
        "freeze or resume the display",
        &[press(&[Key::char('f')], "freeze or resume the display", || Command::Freeze)],
    )
    .hint(3, "freeze"),
    line(
        "< >",
        "step back and forward through the last 15 minutes",
        &[
            press(&[Key::char('<'), Key::char(',')], "step back in time", || Command::Back),
            press(&[Key::char('>'), Key::char('.')], "step forward in time", || Command::Forward),
        ],
    )
    .hint(4, "time"),
    line(
        "{ } (",
        "step by a minute; back to the previous event",
        &[
            press(&[Key::char('{')], "back by a minute", || Command::BackMinute),
            press(&[Key::char('}')], "forward by a minute", || Command::ForwardMinute),
            press(&[Key::char('(')], "back to the previous event", || Command::BackEvent),
        ],
    ),
    line("y", "copy the selection", &[]),
    line("m", "mouse on or off", &[press(&[Key::char('m')], "mouse on or off", || Command::Mouse)]),
    line(
        "",
        "",
        &[
            press(&[], "theme auto", || Command::Theme(ThemeChoice::Auto)),
            press(&[], "theme light", || Command::Theme(ThemeChoice::Light)),
            press(&[], "theme dark", || Command::Theme(ThemeChoice::Dark)),
            press(&[], "theme mono", || Command::Theme(ThemeChoice::Mono)),
        ],
    ),
    line("?", "", &[press(&[Key::char('?')], "help", || Command::Help)]),
    line("q ^C", "quit", &[press(&[Key::char('q')], "quit", || Command::Quit)]).hint(5, "quit"),
];

/// The command of a key.
pub fn command(key: Key) -> Option<Command> {
    let mut presses = EVERYWHERE.iter().flat_map(|line| line.presses);
    // A terminal may or may not report shift with a character or with shift and tab.
    let key = Key { shift: false, ..key };
    presses.find(|press| press.keys.contains(&key)).map(|press| (press.command)())
}

/// The commands of the palette, with their words.
pub fn commands() -> impl Iterator<Item = (&'static str, Command)> {
    let presses = EVERYWHERE.iter().flat_map(|line| line.presses);
    let named = presses.filter(|press| !press.words.is_empty());
    named.map(|press| (press.words, (press.command)()))
}

/// The lines of the help.
pub fn help() -> impl Iterator<Item = Hint> {
    EVERYWHERE.iter().filter(|line| !line.does.is_empty()).map(|line| (line.shown, line.does))
}

/// The line of keys: the first key of each, in order.
pub fn hints() -> Vec<Hint> {
    let mut hints: Vec<_> =
        EVERYWHERE.iter().filter_map(|line| Some((line.hint?, line.shown))).collect();
    hints.sort_unstable();
    let first = |shown: &'static str| shown.split(" ^").next().unwrap_or(shown);
    hints.into_iter().map(|((_, word), shown)| (first(shown), word)).collect()
}
