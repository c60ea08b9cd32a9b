//! Inputs: keys, pasted text, the mouse, the clock, and messages from the host.
//!
//! The shell translates its library's events into these types, so that the model does not depend on
//! a terminal.

use std::sync::Arc;

use besom_core::time::Time;
use besom_snapshot::{Answer, Snapshot};

/// A key without its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A character as the keyboard layout produces it (`S`, not shift and `s`).
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Delete.
    Delete,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// Home.
    Home,
    /// End.
    End,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// A function key, by its number.
    F(u8),
    /// Any other key; it has no effect.
    Other,
}

/// A key press, or a repetition while the key is held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// The key without its modifiers.
    pub code: Code,
    /// Whether control is held.
    pub ctrl: bool,
    /// Whether alt is held.
    pub alt: bool,
    /// Whether shift is held; already applied to characters.
    pub shift: bool,
}

impl Key {
    /// A key without modifiers.
    pub const fn plain(code: Code) -> Key {
        Key { code, ctrl: false, alt: false, shift: false }
    }

    /// A character without modifiers.
    pub const fn char(c: char) -> Key {
        Key::plain(Code::Char(c))
    }

    /// A character with control.
    pub const fn ctrl(c: char) -> Key {
        Key { code: Code::Char(c), ctrl: true, alt: false, shift: false }
    }

    /// The character, if it is one and neither control nor alt is held.
    pub fn as_char(self) -> Option<char> {
        match self.code {
            Code::Char(c) if !self.ctrl && !self.alt => Some(c),
            _ => None,
        }
    }
}

/// The kind of a mouse event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MouseKind {
    /// The first button was pressed.
    Click,
    /// The wheel went up.
    ScrollUp,
    /// The wheel went down.
    ScrollDown,
}

/// A message from the connection.
#[derive(Debug, Clone, PartialEq)]
pub enum Feed {
    /// A host has accepted the connection; its first snapshot follows.
    Connected,
    /// A snapshot, newer than all before.
    Snapshot(Arc<Snapshot>),
    /// There is no connection.
    Lost {
        /// The error, as text.
        why: String,
        /// When the next attempt is made; none: it is under way.
        retry_at: Option<Time>,
    },
    /// The answer to an [`Effect::Ask`](super::Effect::Ask) or an
    /// [`Effect::Act`](super::Effect::Act).
    Answer {
        /// The ticket of the question or action.
        ticket: u64,
        /// What.
        answer: Answer,
    },
}

/// An input of the model.
///
/// The shell sends a [`Input::Tick`] before any other input, so that every input has a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A key.
    Key(Key),
    /// Pasted text: it is inserted into an open text field, or ignored.
    Paste(String),
    /// A mouse event, while the mouse is enabled.
    Mouse {
        /// The column, from 0.
        x: u16,
        /// The row, from 0.
        y: u16,
        /// What it did.
        kind: MouseKind,
    },
    /// The terminal now has this many columns and rows.
    Resize(u16, u16),
    /// The current time, by the local machine's clock.
    Tick(Time),
    /// The connection.
    Feed(Feed),
}
