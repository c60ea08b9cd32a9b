//! A dashboard with a stopped clock.

#![allow(dead_code, reason = "each suite uses a part of it")]

use std::path::PathBuf;
use std::sync::Arc;

use besom_samples::NOW;
use besom_snapshot::Snapshot;
use besom_tui::dash::{Code, Effect, Feed, Input, Key, Options, Place, State, view};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A key without modifiers, as an input.
pub const fn key(code: Code) -> Input {
    Input::Key(Key::plain(code))
}

/// Compares a screen with its golden file, or writes the file.
pub fn check(name: &str, picture: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/screens/{name}.txt"));
    if std::env::var_os("BESOM_BLESS").is_some() {
        std::fs::write(&path, picture).expect("the picture is written");
        return;
    }
    let known = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        known == picture,
        "{name} differs from {} (BESOM_BLESS=1 rewrites the file):\n{picture}",
        path.display()
    );
}

/// A dashboard and its requests to the shell.
pub struct Dashboard {
    /// The dashboard.
    pub state: State,
    /// All effects so far.
    pub effects: Vec<Effect>,
}

impl Dashboard {
    /// A dashboard without a snapshot yet.
    pub fn empty() -> Dashboard {
        let options = Options { name: "/run/besom.sock".into(), ..Options::default() };
        let mut dashboard = Dashboard { state: State::new(options), effects: Vec::new() };
        dashboard.input(Input::Tick(NOW));
        dashboard
    }

    /// A dashboard with a snapshot.
    pub fn of(snapshot: Snapshot) -> Dashboard {
        let mut dashboard = Dashboard::empty();
        dashboard.input(Input::Feed(Feed::Connected));
        dashboard.input(Input::Feed(Feed::Snapshot(Arc::new(snapshot))));
        dashboard
    }

    /// Handles an input.
    pub fn input(&mut self, input: Input) -> &mut Dashboard {
        self.effects.extend(self.state.update(input));
        self
    }

    /// The effects for the shell, without queries about what is shown.
    pub fn done(&self) -> Vec<Effect> {
        let asks = |effect: &&Effect| matches!(effect, Effect::Ask { .. });
        self.effects.iter().filter(|effect| !asks(effect)).cloned().collect()
    }

    /// Types a text, key by key.
    pub fn type_in(&mut self, text: &str) -> &mut Dashboard {
        for c in text.chars() {
            self.input(key(Code::Char(c)));
        }
        self
    }

    /// Goes to a screen.
    pub fn go(&mut self, place: Place) -> &mut Dashboard {
        let number = char::from_digit(place.number() as u32, 10).expect("a digit");
        self.input(key(Code::Char(number)))
    }

    /// The picture of that size, with its styles.
    pub fn buffer(&mut self, columns: u16, rows: u16) -> Buffer {
        self.input(Input::Resize(columns, rows));
        let area = Rect::new(0, 0, columns, rows);
        let mut buffer = Buffer::empty(area);
        view(&self.state, area, &mut buffer);
        buffer
    }

    /// The picture of that size as text, without trailing blanks.
    pub fn picture(&mut self, columns: u16, rows: u16) -> String {
        let buffer = self.buffer(columns, rows);
        let row = |y| (0..columns).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..rows).map(|y| row(y).trim_end().to_owned() + "\n").collect()
    }
}
