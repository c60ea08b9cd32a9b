//! However the dashboard ends, the terminal is restored.

use std::mem::ManuallyDrop;

use besom_tui::console::Console;
use rustix::process::{Pid, Signal, kill_process};

use super::terminal::Terminal;
use super::{leader, stage};
use crate::site::wait_for;

fn signal(terminal: &Terminal, signal: Signal) {
    let pid = Pid::from_raw(terminal.foreground()).expect("a process");
    kill_process(pid, signal).expect("sent");
}

#[test]
fn the_terminal_is_given_back_after_leaving_and_after_every_signal_that_ends() {
    let site = stage();
    let host = leader(&site);
    type End = fn(&Terminal);
    let ends: [(&str, End); 5] = [
        ("q", |terminal| terminal.keys(&["q"])),
        ("ctrl-c", |terminal| terminal.keys(&["C-c"])),
        ("SIGTERM", |terminal| signal(terminal, Signal::TERM)),
        ("SIGINT", |terminal| signal(terminal, Signal::INT)),
        ("SIGHUP", |terminal| signal(terminal, Signal::HUP)),
    ];
    let terminal = Terminal::open(&site, 100, 30);
    let before = terminal.modes();
    for (what, end) in ends {
        terminal.clear();
        // With the mouse, so that there is more to restore.
        terminal.top("--mouse");
        assert_ne!(terminal.modes(), before, "{what}: it has taken the terminal");
        end(&terminal);
        terminal.is_given_back(&before);
    }
    host.stop();
}

/// A program in a session of its own gets no signal when the terminal is closed.
#[test]
fn a_closed_terminal_ends_the_dashboard_without_a_signal() {
    let site = stage();
    let host = leader(&site);
    let terminal = Terminal::open(&site, 100, 30);
    let noted = site.path("top.pid");
    terminal.line("setsid --wait sh -c 'echo $$ >top.pid; exec \"$BESOM\" top'");
    terminal.shows("●live");
    let pid = std::fs::read_to_string(noted).expect("its number");
    let process = format!("/proc/{}", pid.trim());
    assert!(std::fs::exists(&process).expect("asked"), "{process} shows the dashboard");
    drop(terminal);
    wait_for("the dashboard to end", || (!std::fs::exists(&process).ok()?).then_some(()));
    host.stop();
}

#[test]
fn what_cannot_be_shown_leaves_the_terminal_alone() {
    let site = stage();
    let terminal = Terminal::open(&site, 100, 30);
    let before = terminal.modes();
    // Without a terminal, it prints lines.
    terminal.line("\"$BESOM\" top </dev/null");
    terminal.shows("no host listens");
    terminal.is_given_back(&before);
}

/// Takes the terminal, and neither leaves it nor drops it: only the panic hook restores it.
#[test]
#[ignore = "the test below runs it in a terminal"]
fn a_panic_with_the_terminal_taken() {
    let _console = ManuallyDrop::new(Console::take(true).expect("a terminal"));
    panic!("a fault with the terminal taken");
}

#[test]
fn a_panic_gives_the_terminal_back_before_it_says_what_was_wrong() {
    let site = stage();
    let terminal = Terminal::open(&site, 100, 30);
    let before = terminal.modes();
    let tests = std::env::current_exe().expect("this program");
    let which = "--exact top::modes::a_panic_with_the_terminal_taken";
    terminal.line(&format!("{tests:?} {which} --ignored --nocapture"));
    terminal.shows("a fault with the terminal taken");
    terminal.is_given_back(&before);
}

#[test]
fn the_pager_and_the_editor_get_the_terminal_and_give_it_back() {
    let site = stage();
    let host = leader(&site);
    let (code, triggered) = site.json(&["task", "trigger", "compaction"]);
    assert_eq!(code, 0, "{triggered}");
    let variables = [("PAGER", "less"), ("EDITOR", "less")];
    let terminal = Terminal::open_with(&site, 100, 30, &variables);
    let before = terminal.modes();
    terminal.top("");
    for _ in 0..2 {
        terminal.keys(&["5"]);
        terminal.shows(" read  ");
        terminal.keys(&["Enter"]);
        terminal.shows(" progress ");
        terminal.keys(&["o"]);
        terminal.shows("(END)");
        terminal.keys(&["q"]);
        terminal.shows("●live");
        terminal.shows(" progress ");
        terminal.keys(&["Escape"]);
        terminal.shows(" read  ");
    }
    terminal.keys(&["6"]);
    terminal.shows("Edit  choose the task");
    terminal.keys(&["Enter"]);
    terminal.shows("besom.toml:");
    terminal.keys(&["Escape"]);
    terminal.until("the field to be left", |screen| !screen.contains("esc leave the field"));
    terminal.keys(&["E"]);
    terminal.until("the file", |screen| {
        !screen.contains("●live") && screen.contains("[tasks.endless]")
    });
    terminal.keys(&["q"]);
    terminal.shows("●live");
    terminal.keys(&["q"]);
    terminal.is_given_back(&before);
    host.stop();
}
