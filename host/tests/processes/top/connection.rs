//! A host dies while the dashboard is open: the age of the data is shown, and another host is used.

use super::terminal::Terminal;
use super::{asked, leader, stage};

#[test]
fn the_death_of_the_host_is_shown_with_the_age_until_another_one_is_there() {
    let site = stage();
    let host = leader(&site);
    let terminal = Terminal::open(&site, 100, 30);
    let before = terminal.modes();
    terminal.top("");
    terminal.keys(&["2"]);
    terminal.shows("3 tasks");
    host.kill();
    terminal.shows("✕lost");
    // The age increases, and the last known state stays visible.
    terminal.shows("✕lost 2s old");
    let screen = terminal.shows("✕lost 3s old");
    assert!(screen.contains("3 tasks"), "{screen}");
    terminal.keys(&["t"]);
    terminal.shows("not connected: nothing can be changed now");

    let host = leader(&site);
    terminal.shows("●live");
    terminal.shows("term 2 ");
    terminal.keys(&["q"]);
    terminal.is_given_back(&before);
    host.stop();
    assert!(asked(&site).is_empty());
}

#[test]
fn a_dashboard_without_any_host_says_what_to_do_and_finds_the_first_one() {
    let site = stage();
    let terminal = Terminal::open(&site, 100, 30);
    let before = terminal.modes();
    terminal.line("\"$BESOM\" top");
    terminal.shows("No host answers");
    terminal.shows("`besom serve` starts one");
    let host = leader(&site);
    terminal.shows("●live");
    // The host does not come back: the dashboard can still be left.
    host.kill();
    terminal.shows("✕lost");
    terminal.keys(&["q"]);
    terminal.is_given_back(&before);
}
