//! The question before something is changed: what would be done, why, and the verb of the
//! command line that does the same.
//!
//! What cannot be undone wants the count typed, and offers to write what would be lost to a
//! file first. Nothing happens by a single key.

use besom_core::command::Action;

use super::effect::Outbox;
use super::field::Field;
use super::key::{Code, Key};

/// Something to write to a file before it is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    /// The file's name.
    pub name: String,
    /// What it says.
    pub text: String,
}

/// Where what is typed goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Focus {
    /// The reason.
    Reason,
    /// The count.
    Count,
    /// The button that exports.
    Export,
    /// The button that changes nothing.
    Cancel,
    /// The button that does it.
    Do,
}

/// A question before something is changed.
#[derive(Debug, Clone, PartialEq)]
pub struct Confirm {
    /// The question: `Pause compact-docs?`.
    pub title: String,
    /// What it means, line by line.
    pub lines: Vec<String>,
    /// What the button says: `Pause`.
    pub button: &'static str,
    /// What is done.
    pub action: Action,
    /// The verb of the command line, without its reason: `besom task pause compact-docs`.
    pub verb: String,
    /// Why.
    pub reason: Field,
    /// Whether there has to be a reason.
    pub reason_required: bool,
    /// How many are affected, to be typed; and what was typed.
    pub count: Option<(u64, Field)>,
    /// What can be exported first.
    pub export: Option<Export>,
    /// Where what is typed goes.
    pub focus: Focus,
}

/// What became of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answered {
    /// It is still open.
    Open,
    /// Nothing is to be done.
    Cancelled,
    /// It was asked for, under this ticket.
    Asked(u64),
}

impl Confirm {
    /// A question; a reason may be given.
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

    /// With a line that says what it means.
    #[must_use]
    pub fn line(mut self, line: impl Into<String>) -> Confirm {
        self.lines.push(line.into());
        self
    }

    /// With a reason that has to be given.
    #[must_use]
    pub fn because(mut self) -> Confirm {
        self.reason_required = true;
        self
    }

    /// With a count that has to be typed.
    #[must_use]
    pub fn counted(mut self, count: u64) -> Confirm {
        self.count = Some((count, Field::default()));
        self
    }

    /// With something that can be written to a file first.
    #[must_use]
    pub fn exporting(mut self, name: impl Into<String>, text: String) -> Confirm {
        self.export = Some(Export { name: name.into(), text });
        self
    }

    /// What is missing before it can be done.
    pub fn missing(&self) -> Option<&'static str> {
        if self.reason_required && self.reason.is_blank() {
            return Some("say why");
        }
        match &self.count {
            Some((count, typed)) if typed.text().trim() != count.to_string() => {
                Some("type the count")
            }
            _ => None,
        }
    }

    /// The same on the command line, with the reason as it is typed so far.
    pub fn command(&self) -> String {
        match self.reason.text().trim() {
            "" if self.reason_required => format!("{} --reason …", self.verb),
            "" => self.verb.clone(),
            reason => format!("{} --reason {}", self.verb, quoted(reason)),
        }
    }

    /// Where what is typed can go, in the order of the tab key.
    pub fn stops(&self) -> Vec<Focus> {
        let count = self.count.is_some().then_some(Focus::Count);
        let export = self.export.is_some().then_some(Focus::Export);
        let rest = [Focus::Cancel, Focus::Do];
        [Focus::Reason].into_iter().chain(count).chain(export).chain(rest).collect()
    }

    /// Types a key.
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

    /// Takes pasted text into the reason or the count.
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

/// A word for a shell, in quotes where it needs them.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@=+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}
