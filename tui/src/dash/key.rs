//! What comes in: keys, pasted text, the mouse, the clock, and what the host tells.
//!
//! The shell translates its library's events into these, so that the model knows no terminal.

use std::sync::Arc;

use besom_core::snapshot::{Answer, Snapshot};
use besom_core::time::Time;

/// A key without its modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// A character, as the layout makes it (`S`, not shift and `s`).
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
    /// Any other one: it does nothing.
    Other,
}

/// A key that was pressed, or repeated while it is held down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key {
    /// Which.
    pub code: Code,
    /// Whether control is held.
    pub ctrl: bool,
    /// Whether alt is held.
    pub alt: bool,
    /// Whether shift is held; characters have taken it in already.
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

    /// The character, where it is one and neither control nor alt is held.
    pub fn as_char(self) -> Option<char> {
        match self.code {
            Code::Char(c) if !self.ctrl && !self.alt => Some(c),
            _ => None,
        }
    }
}

/// What the mouse did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MouseKind {
    /// The first button was pressed.
    Click,
    /// The wheel went up.
    ScrollUp,
    /// The wheel went down.
    ScrollDown,
}

/// What the connection tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Feed {
    /// A host has accepted the connection; its picture is on its way.
    Connected,
    /// A picture, newer than any before.
    Snapshot(Arc<Snapshot>),
    /// There is no connection.
    Lost {
        /// Why, in words.
        why: String,
        /// When it is tried again.
        retry_at: Option<Time>,
    },
    /// The answer to an [`Effect::Ask`](super::Effect::Ask) or an
    /// [`Effect::Act`](super::Effect::Act).
    Answer {
        /// Whose.
        ticket: u64,
        /// What.
        answer: Answer,
    },
}

/// What comes in.
///
/// The shell sends a [`Input::Tick`] before any other input, so that whatever happens has its
/// time.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// A key.
    Key(Key),
    /// Text that was pasted: it goes into an open text field, or nowhere.
    Paste(String),
    /// The mouse, while it is listened to.
    Mouse {
        /// The column, from 0.
        x: u16,
        /// The row, from 0.
        y: u16,
        /// What it did.
        kind: MouseKind,
    },
    /// The terminal has this many columns and rows.
    Resize(u16, u16),
    /// It is now so late, by the clock of the machine that shows.
    Tick(Time),
    /// The connection.
    Feed(Feed),
}
