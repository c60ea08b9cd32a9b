//! Every screen opens at every size of the terminal, and while the size changes.

use super::terminal::Terminal;
use super::{leader, stage};

/// The screens' keys, and a text of each that is shown even in a small terminal.
const SCREENS: [(&str, &str); 6] = [
    ("1", "ATTENTION"),
    ("2", "3 tasks"),
    ("3", "Queues  by task"),
    ("4", "Ring  64 partitions"),
    ("5", "Runs  1 read"),
    ("6", "Edit  choose the task"),
];

/// The sizes that the screens were drawn for, with the smallest between them.
const SIZES: [(u16, u16); 5] = [(160, 48), (80, 24), (1, 1), (40, 10), (160, 48)];

/// Whether a sequence (ECMA-48, SGR) sets a colour.
fn colours(parameters: &str) -> bool {
    let mut numbers = parameters.split([';', ':']).filter_map(|number| number.parse::<u8>().ok());
    numbers.any(|number| matches!(number, 30..=38 | 40..=48 | 58 | 90..=97 | 100..=107))
}

/// The parameters of the SGR sequences of a screen.
fn parameters(looks: &str) -> Vec<String> {
    let sequences = looks.split("\x1b[").skip(1);
    let ends = sequences.filter_map(|rest| rest.split_once('m'));
    ends.map(|(parameters, _)| parameters.to_owned()).collect()
}

fn is_reverse(parameters: &str) -> bool {
    parameters.split(';').any(|number| number == "7")
}

#[test]
fn every_screen_opens_at_every_size_and_follows_a_change_of_it() {
    let site = stage();
    let host = leader(&site);
    let terminal = Terminal::open(&site, 120, 30);
    terminal.top("");
    for (columns, rows) in SIZES {
        terminal.resize(columns, rows);
        if (columns, rows) == (1, 1) {
            // Nothing can be read at this size, but keys are handled.
            terminal.keys(&["1", "2", "3", "4", "5", "6", "j", "k", "Tab"]);
            continue;
        }
        for (key, title) in SCREENS {
            terminal.keys(&[key]);
            // The status line is always shown, above the screen.
            let screen = terminal.until(&format!("the status and `{title}`"), |screen| {
                let (first, rest) = screen.split_once('\n').unwrap_or_default();
                first.contains("●live") && rest.contains(title)
            });
            let widest = screen.lines().map(|line| line.chars().count()).max();
            assert!(widest <= Some(usize::from(columns)), "{columns} columns:\n{screen}");
        }
    }
    // The theme decides about colours, which are on by default.
    assert!(parameters(&terminal.looks()).iter().any(|looks| colours(looks)));
    // The size changes back and forth while it draws: the last size counts.
    for (columns, rows) in [(3, 2), (200, 60), (1, 1), (41, 11), (80, 24)] {
        terminal.resize(columns, rows);
    }
    terminal.keys(&["1"]);
    let clock = |line: &str| line.len() > 1 && line.trim_end().ends_with('Z');
    terminal.until("the status at 80 columns", |screen| {
        screen.lines().next().is_some_and(|line| clock(line) && line.chars().count() <= 80)
    });
    drop(terminal);
    host.stop();
}

#[test]
fn no_color_takes_every_colour_away_and_leaves_reverse_video() {
    let site = stage();
    let host = leader(&site);
    let terminal = Terminal::open_with(&site, 160, 48, &[("NO_COLOR", "1")]);
    terminal.top("");
    let mut reversed = 0;
    for (key, title) in SCREENS {
        terminal.keys(&[key]);
        terminal.shows(title);
        let looks = parameters(&terminal.looks());
        let coloured: Vec<_> = looks.iter().filter(|looks| colours(looks)).collect();
        assert!(coloured.is_empty(), "{title}: {coloured:?}");
        reversed += looks.iter().filter(|looks| is_reverse(looks)).count();
    }
    assert!(reversed >= SCREENS.len(), "what is chosen is to be seen: {reversed}");
    drop(terminal);
    host.stop();
}
