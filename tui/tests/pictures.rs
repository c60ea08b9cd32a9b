//! The screens as golden files: nothing panics over a sweep of sizes, and at the common sizes the
//! screens match their files. `BESOM_BLESS=1` rewrites the files.

mod common;

use std::path::PathBuf;

use besom_samples::{large, small};
use besom_tui::dash::screens::Screens;
use besom_tui::dash::{Code, Feed, Input, Place, ThemeChoice, everywhere};
use common::{Dashboard, check, key};

#[test]
fn screens_are_as_they_were() {
    for (place, name) in
        [(Place::Overview, "overview"), (Place::Tasks, "tasks"), (Place::Queues, "queues")]
    {
        for (columns, rows) in [(80, 24), (120, 36), (160, 48), (40, 10)] {
            let mut dashboard = Dashboard::of(small());
            dashboard.go(place);
            let picture = dashboard.picture(columns, rows);
            check(&format!("{name}-{columns}x{rows}"), &picture);
        }
    }
}

#[test]
fn what_is_open_above_a_screen_is_as_it_was() {
    let cases: &[(&str, Place, &[Input])] = &[
        ("help", Place::Overview, &[key(Code::Char('?'))]),
        ("palette", Place::Tasks, &[key(Code::Char(':')), Input::Paste("pause".into())]),
        ("pause", Place::Tasks, &[key(Code::Char('p')), Input::Paste("until INC-9".into())]),
        ("filter", Place::Tasks, &[key(Code::Char('/')), Input::Paste("share".into())]),
        ("node", Place::Overview, &[key(Code::Down), key(Code::Down), key(Code::Enter)]),
        ("frozen", Place::Overview, &[key(Code::Char('f'))]),
    ];
    for (name, place, inputs) in cases {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(*place);
        for input in *inputs {
            dashboard.input(input.clone());
        }
        check(name, &dashboard.picture(80, 24));
    }
}

/// The keys as `docs/dashboard.md` lists them: those of every screen, then those of each. A key that
/// does several things, depending on what is open, is listed once.
fn keys() -> String {
    let mut text = "| key | on every screen |\n| --- | --- |\n".to_owned();
    for (shown, does) in everywhere::help() {
        text += &format!("| `{shown}` | {does} |\n");
    }
    text += "\n| screen | keys |\n| --- | --- |\n";
    let screens = Screens::default();
    for place in Place::ALL {
        let mut keys: Vec<(&str, String)> = Vec::new();
        for (shown, name) in screens.at(place).all() {
            match keys.iter_mut().find(|(known, _)| *known == shown) {
                Some((_, names)) => *names += &format!(" / {name}"),
                None => keys.push((shown, format!("`{shown}` {name}"))),
            }
        }
        let keys: Vec<String> = keys.into_iter().map(|(_, names)| names).collect();
        text += &format!("| {} | {} |\n", place.name(), keys.join(" · "));
    }
    text
}

#[test]
fn the_documented_keys_are_those_of_the_tables() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/dashboard.md");
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let (before, rest) = text.split_once("<!-- keys: ").expect("the beginning is marked");
    let (mark, rest) = rest.split_once("-->\n").expect("a comment ends");
    let (known, after) = rest.split_once("<!-- end of keys -->").expect("the end is marked");
    let keys = keys();
    if std::env::var_os("BESOM_BLESS").is_some() {
        let text = format!("{before}<!-- keys: {mark}-->\n{keys}<!-- end of keys -->{after}");
        std::fs::write(&path, text).expect("the page is written");
        return;
    }
    assert_eq!(known, keys, "BESOM_BLESS=1 rewrites {}", path.display());
}

#[test]
fn before_there_is_a_picture_it_is_said_what_is_waited_for() {
    let mut dashboard = Dashboard::empty();
    check("connecting", &dashboard.picture(80, 24));
    let why = "no such file: /run/besom.sock".to_owned();
    dashboard.input(Input::Feed(Feed::Lost { why, retry_at: None }));
    check("lost", &dashboard.picture(80, 24));
}

#[test]
fn no_size_is_too_small_or_too_large() {
    let sizes: Vec<u16> =
        (0..13).chain([16, 20, 24, 40, 59, 60, 61, 79, 80, 120, 149, 150, 200]).collect();
    for snapshot in [small(), besom_snapshot::Snapshot::default()] {
        for place in Place::ALL {
            let mut dashboard = Dashboard::of(snapshot.clone());
            dashboard.go(place);
            for columns in &sizes {
                for rows in sizes.iter().filter(|rows| **rows <= 60) {
                    dashboard.input(Input::Resize(*columns, *rows));
                    dashboard.picture(*columns, *rows);
                }
            }
        }
    }
}

#[test]
fn whatever_is_open_fits_into_any_size() {
    let opened: &[&[Input]] = &[
        &[key(Code::Char('?'))],
        &[key(Code::Char(':'))],
        &[key(Code::Char('/'))],
        &[key(Code::Char('p'))],
        &[key(Code::Char('c'))],
    ];
    for inputs in opened {
        let mut dashboard = Dashboard::of(small());
        dashboard.go(Place::Tasks);
        for input in *inputs {
            dashboard.input(input.clone());
        }
        for (columns, rows) in (0..30).flat_map(|n| [(n, 24), (80, n), (n * 3, n)]) {
            dashboard.input(Input::Resize(columns, rows));
            dashboard.picture(columns, rows);
        }
    }
}

#[test]
fn a_thousand_nodes_show_those_that_fit_and_where_they_are() {
    let mut dashboard = Dashboard::of(large());
    dashboard.input(key(Code::Char('G')));
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains("node-0999"), "{picture}");
    assert!(picture.contains("↑node-09"), "there are more above: {picture}");
    dashboard.input(key(Code::Char('g')));
    let picture = dashboard.picture(80, 24);
    assert!(picture.contains(">node-0000") && picture.contains("↓node-00"), "{picture}");
}

#[test]
fn at_forty_columns_the_status_and_what_deserves_attention_remain() {
    let mut dashboard = Dashboard::of(small());
    let picture = dashboard.picture(40, 10);
    let lines: Vec<&str> = picture.lines().collect();
    for word in ["prod", "●live", "node-b", "t42"] {
        assert!(lines[0].contains(word), "{word}: {picture}");
    }
    assert!(picture.contains("ATTENTION"), "{picture}");
    assert!(picture.contains("node-e is lost"), "{picture}");
}

#[test]
fn foreign_text_never_steers_the_terminal() {
    let hostile =
        "\x1b]0;owned\x07\x1b[2J\u{202e}evil\u{200b}\u{9b}31m\r\n\tz\u{301}\u{301}\u{301}\u{301}";
    let mut snapshot = small();
    for node in &mut snapshot.nodes {
        let node = std::sync::Arc::make_mut(node);
        node.name = format!("{}{hostile}", node.name);
    }
    for task in &mut snapshot.tasks {
        let task = std::sync::Arc::make_mut(task);
        task.name = format!("{hostile}{}", task.name);
        if let Some(pause) = &mut task.paused {
            pause.reason = hostile.into();
        }
    }
    for group in &mut snapshot.dead {
        std::sync::Arc::make_mut(group).error = hostile.into();
    }
    for event in &mut snapshot.events {
        std::sync::Arc::make_mut(event).text = hostile.into();
    }
    snapshot.cluster = hostile.into();
    let mut dashboard = Dashboard::of(snapshot);
    for place in Place::ALL {
        dashboard.go(place);
        for (columns, rows) in [(80, 24), (160, 48), (40, 10)] {
            let picture = dashboard.picture(columns, rows);
            let steers = |c: char| {
                c != '\n'
                    && (c.is_control()
                        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'))
            };
            assert_eq!(picture.chars().find(|c| steers(*c)), None, "{place:?}: {picture}");
        }
    }
    assert!(dashboard.go(Place::Overview).picture(160, 48).contains('␛'), "it is seen");
}

#[test]
fn no_colour_reaches_the_terminal_without_colour() {
    let mut dashboard = Dashboard::of(small());
    dashboard.state.options.theme = ThemeChoice::Mono;
    for place in Place::ALL {
        dashboard.go(place);
        for (columns, rows) in [(80, 24), (160, 48)] {
            let buffer = dashboard.buffer(columns, rows);
            for cell in buffer.content() {
                let none = ratatui::style::Color::Reset;
                assert_eq!((cell.fg, cell.bg), (none, none), "{place:?}");
            }
        }
    }
}
