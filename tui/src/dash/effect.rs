//! What goes out: everything the shell is to do. The model itself does nothing.

use besom_core::command::Action;
use besom_core::snapshot::{Query, Subject};

use super::confirm::Confirm;
use super::screens::Place;

/// Something for the shell to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// End.
    Quit,
    /// Ask the host; the answer comes back with the ticket.
    Ask {
        /// By which the answer is known.
        ticket: u64,
        /// What.
        query: Query,
    },
    /// Have something done; what came of it comes back with the ticket.
    Act {
        /// By which the answer is known.
        ticket: u64,
        /// What.
        action: Action,
        /// Why; kept in the audit.
        reason: String,
    },
    /// Put a text on the clipboard (OSC 52).
    Copy(String),
    /// Write a file of that name into the working directory, never over one that is there.
    Export {
        /// Its name, without a directory.
        name: String,
        /// What it says.
        text: String,
    },
    /// Open a file in the user's editor, at a line.
    Editor {
        /// Its path.
        path: String,
        /// The line, from 1.
        line: u32,
    },
    /// Show a text in the user's pager.
    Pager(String),
    /// Listen to the mouse, or leave it to the terminal.
    Mouse(bool),
    /// Ring the bell.
    Bell,
}

/// How a message is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Something has worked.
    Good,
    /// Good to know.
    Info,
    /// Something has not worked.
    Bad,
}

/// Where a screen puts what it wants: effects, and what the frame around it is to do.
///
/// It hands out the tickets, which are never used twice.
#[derive(Debug, Default)]
pub struct Outbox {
    next: u64,
    effects: Vec<Effect>,
    /// Where to jump, and what to look at there.
    pub(super) jump: Option<(Place, Subject)>,
    /// What to say.
    pub(super) message: Option<(Tone, String)>,
    /// What to ask the person.
    pub(super) confirm: Option<Confirm>,
}

impl Outbox {
    /// An empty one; its first ticket follows `last`.
    pub(super) fn after(last: u64) -> Outbox {
        Outbox { next: last, ..Outbox::default() }
    }

    /// The last ticket handed out.
    pub(super) fn last(&self) -> u64 {
        self.next
    }

    /// What the shell is to do.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Anything.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Asks the host. The answer comes to the screen that asked, and is kept in the details.
    pub fn ask(&mut self, query: Query) -> u64 {
        let ticket = self.ticket();
        self.effects.push(Effect::Ask { ticket, query });
        ticket
    }

    /// Has something done without a question; screens use [`Outbox::confirm`].
    pub fn act(&mut self, action: Action, reason: String) -> u64 {
        let ticket = self.ticket();
        self.effects.push(Effect::Act { ticket, action, reason });
        ticket
    }

    /// Asks the person first, and then has it done.
    pub fn confirm(&mut self, confirm: Confirm) {
        self.confirm = Some(confirm);
    }

    /// Puts a text on the clipboard, and says so. Control characters are escaped: pasted into a
    /// shell, a line feed in a key would run it.
    pub fn copy(&mut self, text: String) {
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            if c.is_control() {
                plain.extend(c.escape_default());
            } else {
                plain.push(c);
            }
        }
        let text = plain;
        self.say(Tone::Info, format!("copied {text}"));
        self.effects.push(Effect::Copy(text));
    }

    /// Writes a file; the shell says what came of it.
    pub fn export(&mut self, name: String, text: String) {
        self.effects.push(Effect::Export { name, text });
    }

    /// Says something in the line above the keys.
    pub fn say(&mut self, tone: Tone, text: impl Into<String>) {
        self.message = Some((tone, text.into()));
    }

    /// Leads to the screen where something is looked at, and to it there.
    pub fn go(&mut self, subject: Subject) {
        self.jump = Some((Place::of(&subject), subject));
    }

    /// Leads to a screen, and to something there: the schedule of a task on the Edit screen, its
    /// runs on the Runs screen.
    pub fn go_to(&mut self, place: Place, subject: Subject) {
        self.jump = Some((place, subject));
    }
}
