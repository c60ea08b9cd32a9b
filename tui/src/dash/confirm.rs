//! The confirmation dialog of an action: what it does, its reason, and the equivalent verb of the
//! command line.
//!
//! An action that cannot be undone requires the affected count to be typed, and offers to export
//! what would be lost. No action is triggered by a single key.

use besom_core::command::Action;

use super::effect::Outbox;
use super::field::Field;
use super::key::{Code, Key};

/// Text that can be written to a file before it is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The file's name.
    pub name: String,
    /// The file's content.
    pub text: String,
}

/// The part of the dialog that has the keyboard focus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    /// The reason.
    Reason,
    /// The count.
    Count,
    /// The button that exports.
    Export,
    /// The button that cancels.
    Cancel,
    /// The button that confirms.
    Do,
}

/// A confirmation dialog.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirm {
    /// The question: `Pause compact-docs?`.
    pub title: String,
    /// The consequences, line by line.
    pub lines: Vec<String>,
    /// The label of the confirming button: `Pause`.
    pub button: &'static str,
    /// The action to perform.
    pub action: Action,
    /// The verb of the command line, without its reason: `besom task pause compact-docs`.
    pub verb: String,
    /// The reason as typed so far.
    pub reason: Field,
    /// Whether a reason is required.
    pub reason_required: bool,
    /// The number of affected items, which has to be typed, and the input; none: no count is
    /// required.
    pub count: Option<(u64, Field)>,
    /// The text that can be exported first.
    pub export: Option<Export>,
    /// The part that has the keyboard focus.
    pub focus: Focus,
}

/// The result of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It is still open.
    Open,
    /// The dialog was cancelled.
    Cancelled,
    /// The action was sent, with this ticket.
    Asked(u64),
}

impl Confirm {
    /// A dialog with an optional reason.
    pub fn new(title: String, button: &'static str, action: Action, verb: String) -> Confirm {
        Confirm {
            title,
            lines: Vec::new(),
            button,
            action,
            verb,
            reason: Field::default(),
            reason_required: false,
            count: None,
            export: None,
            focus: Focus::Reason,
        }
    }

    /// Adds a line about the consequences.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Confirm {
        self.lines.push(line.into());
        self
    }

    /// Requires a reason.
    #[must_use]
    pub fn because(mut self) -> Confirm {
        self.reason_required = true;
        self
    }

    /// Requires the count to be typed.
    #[must_use]
    pub fn counted(mut self, count: u64) -> Confirm {
        self.count = Some((count, Field::default()));
        self
    }

    /// Adds a text that can be exported first.
    #[must_use]
    pub fn exporting(mut self, name: impl Into<String>, text: String) -> Confirm {
        self.export = Some(Export { name: name.into(), text });
        self
    }

    /// The input that is missing before the action can be confirmed.
    pub fn missing(&self) -> Option<&'static str> {
        if self.reason_required && self.reason.is_blank() {
            return Some("enter a reason");
        }
        match &self.count {
            Some((count, typed)) if typed.text().trim() != count.to_string() => {
                Some("type the count")
            }
            _ => None,
        }
    }

    /// The equivalent command, with the reason as typed so far.
    pub fn command(&self) -> String {
        match self.reason.text().trim() {
            "" if self.reason_required => format!("{} --reason …", self.verb),
            "" => self.verb.clone(),
            reason => format!("{} --reason {}", self.verb, quoted(reason)),
        }
    }

    /// The parts that can have the focus, in the order of the tab key.
    pub fn stops(&self) -> Vec<Focus> {
        let count = self.count.is_some().then_some(Focus::Count);
        let export = self.export.is_some().then_some(Focus::Export);
        let rest = [Focus::Cancel, Focus::Do];
        [Focus::Reason].into_iter().chain(count).chain(export).chain(rest).collect()
    }

    /// Handles a key.
    pub fn key(&mut self, key: Key, out: &mut Outbox) -> Answered {
        match (key.code, self.focus) {
            (Code::Esc, _) | (Code::Enter, Focus::Cancel) => return Answered::Cancelled,
            (Code::Tab | Code::Down, _) => self.step(1),
            (Code::BackTab | Code::Up, _) => self.step(-1),
            (Code::Right, Focus::Export | Focus::Cancel | Focus::Do) => self.step(1),
            (Code::Left, Focus::Export | Focus::Cancel | Focus::Do) => self.step(-1),
            (Code::Enter, Focus::Export) => {
                if let Some(Export { name, text }) = self.export.clone() {
                    out.export(name, text);
                }
            }
            (Code::Enter, Focus::Reason | Focus::Count | Focus::Do) => {
                if self.missing().is_none() {
                    let reason = self.reason.text().trim().to_owned();
                    return Answered::Asked(out.act(self.action.clone(), reason));
                }
                self.focus = match self.reason_required && self.reason.is_blank() {
                    true => Focus::Reason,
                    false => Focus::Count,
                };
            }
            (_, Focus::Reason) => {
                self.reason.key(key);
            }
            (_, Focus::Count) => {
                if let Some((_, typed)) = &mut self.count {
                    typed.key(key);
                }
            }
            (_, Focus::Export | Focus::Cancel | Focus::Do) => {}
        }
        Answered::Open
    }

    /// Inserts pasted text into the reason or the count.
    pub fn paste(&mut self, text: &str) {
        match (self.focus, &mut self.count) {
            (Focus::Reason, _) => self.reason.insert(text),
            (Focus::Count, Some((_, typed))) => typed.insert(text),
            _ => {}
        }
    }

    fn step(&mut self, by: isize) {
        let stops = self.stops();
        let at = stops.iter().position(|stop| *stop == self.focus).unwrap_or(0);
        let to = (at as isize + by).rem_euclid(stops.len() as isize);
        self.focus = stops[to as usize];
    }
}

/// Quotes a word for a shell, if necessary.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
