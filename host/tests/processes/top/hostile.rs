//! Hostile text controls neither the terminal nor the dashboard.

use super::terminal::Terminal;
use super::{add_with_a_gap, asked, leader, stage};
use crate::site::wait_for;

/// A key that would set the title, clear the screen, turn it red and write elsewhere: with C0 and
/// C1 sequences, a bell, a carriage return and a change of the text direction.
const KEY: &str = "\x1b]2;owned\x07\x1b[2J\x1b[31mevil\r\n\u{9b}5;5Hmoved\u{202e}turned";

#[test]
fn a_hostile_key_is_shown_and_does_not_reach_the_terminal() {
    let site = stage();
    add_with_a_gap(&mut site.database(), KEY);
    let host = leader(&site);
    let (code, triggered) = site.json(&["task", "trigger", "compaction"]);
    assert_eq!(code, 0, "{triggered}");
    wait_for("the dead letter", || {
        let (_, dead) = site.json(&["dead", "ls"]);
        (dead[0]["key"] == KEY).then_some(())
    });
    // Without colours, so that any colour would be the key's.
    let terminal = Terminal::open_with(&site, 160, 48, &[("NO_COLOR", "1")]);
    let title = terminal.format("#{pane_title}");
    terminal.top("");
    terminal.keys(&["3"]);
    terminal.shows("Dead letters (1)");
    terminal.keys(&["d", "Enter"]);
    terminal.shows(" key ␛]2;owned");
    let harmless = |screen: &str| {
        assert!(!screen.chars().any(|c| c.is_control() && c != '\n'), "{screen:?}");
        assert!(!screen.contains('\u{202e}'), "{screen:?}");
        assert!(screen.contains("●live") && screen.contains("␛]2;owned␇␛[2J"), "{screen}");
    };
    for (keys, told) in [
        (["Enter"].as_slice(), "attempts"),
        (&["x"], "Discard 1 dead letter?"),
        (&["Escape"], "nothing was changed"),
        (&["y"], "copied"),
    ] {
        terminal.keys(keys);
        let screen = terminal.shows(told);
        harmless(&screen);
        assert!(!terminal.looks().contains("\x1b[31m"), "{told}: the key has a say in the colours");
        assert_eq!(terminal.format("#{pane_title}"), title, "{told}");
    }
    // The same on all other screens, at every size.
    for (columns, rows) in [(80_usize, 24_u16), (40, 10)] {
        terminal.resize(u16::try_from(columns).expect("few"), rows);
        let drawn = |screen: &str| {
            let fits = screen.lines().all(|line| line.chars().count() <= columns);
            fits && screen.contains("●live") && screen.contains("␛]2;owned␇␛[2J")
        };
        harmless(&terminal.until("the size", drawn));
    }
    terminal.keys(&["q"]);
    drop(terminal);
    host.stop();
}

#[test]
fn pasted_text_is_no_command() {
    let site = stage();
    let host = leader(&site);
    let terminal = Terminal::open(&site, 100, 30);
    terminal.top("");
    terminal.keys(&["2"]);
    terminal.shows("3 tasks");
    // Each of these letters is a command when it is typed; the last one would leave.
    terminal.paste("t\rp\r6\r:\rquit\rq");
    // Keys are handled in order: when this is shown, the paste has been handled.
    terminal.keys(&["?"]);
    let screen = terminal.shows("Tasks: keys");
    assert!(screen.contains("On this screen"), "{screen}");
    terminal.keys(&["Escape"]);
    terminal.until("the screen without help", |screen| !screen.contains("Tasks: keys"));
    // In a field it is one line, and a line end in it does not confirm.
    terminal.keys(&["p"]);
    terminal.shows("reason (required)");
    terminal.paste("first\rsecond\n\x1b[31mthird");
    let screen = terminal.shows("third");
    assert!(screen.contains("reason (required) first"), "{screen}");
    assert!(asked(&site).is_empty());
    terminal.keys(&["Escape"]);
    terminal.shows("nothing was changed");
    assert!(asked(&site).is_empty());
    drop(terminal);
    host.stop();
}
