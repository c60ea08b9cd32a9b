//! Effects: everything that the shell has to do. The model itself performs nothing.

use besom_core::command::Action;
use besom_snapshot::{Query, Subject};

use super::confirm::Confirm;
use super::screens::Place;
use super::text::harmless;

/// A task for the shell.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// End the program.
    Quit,
    /// Send a question to the host; the answer carries the ticket.
    Ask {
        /// Identifies the answer.
        ticket: u64,
        /// The question.
        query: Query,
    },
    /// Send an action to the host; the result carries the ticket.
    Act {
        /// Identifies the result.
        ticket: u64,
        /// The action.
        action: Action,
        /// The reason, recorded with the command.
        reason: String,
    },
    /// Copy a text to the clipboard (OSC 52).
    Copy(String),
    /// Write a file into the working directory, never over an existing one.
    Export {
        /// Its name, without a directory.
        name: String,
        /// Its content.
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
    /// Enable or disable mouse events.
    Mouse(bool),
    /// Ring the bell.
    Bell,
}

/// The tone of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// A success.
    Good,
    /// Information.
    Info,
    /// A failure.
    Bad,
}

/// Collects the effects of a screen, and its requests to the frame around it.
///
/// It assigns the tickets, which are never reused.
#[derive(Debug, Default)]
pub struct Outbox {
    next: u64,
    effects: Vec<Effect>,
    /// The screen to jump to, and the object to show there.
    pub(super) jump: Option<(Place, Subject)>,
    /// The message to show.
    pub(super) message: Option<(Tone, String)>,
    /// The dialog to open.
    pub(super) confirm: Option<Confirm>,
}

impl Outbox {
    /// An empty outbox; its first ticket follows `last`.
    pub(super) fn after(last: u64) -> Outbox {
        Outbox { next: last, ..Outbox::default() }
    }

    /// The last ticket assigned.
    pub(super) fn last(&self) -> u64 {
        self.next
    }

    /// Takes the effects for the shell.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    fn ticket(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds an effect.
    pub fn push(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Sends a question. The answer is passed to the screen that asked and kept in the details.
    pub fn ask(&mut self, query: Query) -> u64 {
        let ticket = self.ticket();
        self.effects.push(Effect::Ask { ticket, query });
        ticket
    }

    /// Sends an action without confirmation; screens use [`Outbox::confirm`].
    pub fn act(&mut self, action: Action, reason: String) -> u64 {
        let ticket = self.ticket();
        self.effects.push(Effect::Act { ticket, action, reason });
        ticket
    }

    /// Opens a confirmation dialog, which sends the action.
    pub fn confirm(&mut self, confirm: Confirm) {
        self.confirm = Some(confirm);
    }

    /// Copies a text to the clipboard and reports it. What the screen replaces is escaped: a line feed
    /// in a pasted key would run a command in a shell, and an invisible character would disguise it.
    pub fn copy(&mut self, text: String) {
        let mut plain = String::with_capacity(text.len());
        for c in text.chars() {
            if harmless(c).is_some() {
                plain.extend(c.escape_default());
            } else {
                plain.push(c);
            }
        }
        let text = plain;
        self.say(Tone::Info, format!("copied {text}"));
        self.effects.push(Effect::Copy(text));
    }

    /// Writes a file; the shell reports the result.
    pub fn export(&mut self, name: String, text: String) {
        self.effects.push(Effect::Export { name, text });
    }

    /// Shows a message in the line above the keys.
    pub fn say(&mut self, tone: Tone, text: impl Into<String>) {
        self.message = Some((tone, text.into()));
    }

    /// Jumps to the screen that shows an object, and to the object.
    pub fn go(&mut self, subject: Subject) {
        self.jump = Some((Place::of(&subject), subject));
    }

    /// Jumps to a screen and an object on it: a task's schedule on the Edit screen, its runs on the
    /// Runs screen.
    pub fn go_to(&mut self, place: Place, subject: Subject) {
        self.jump = Some((place, subject));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_has_no_control_characters() {
        let mut outbox = Outbox::default();
        outbox.copy("a\nb\u{1b}]52;c\u{7}é\u{202e}\u{200b}".into());
        let copied = "a\\nb\\u{1b}]52;c\\u{7}é\\u{202e}\\u{200b}";
        assert_eq!(outbox.effects(), [Effect::Copy(copied.into())]);
    }
}
