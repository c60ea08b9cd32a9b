//! Reports keys of sections that are valid alone but not in combination.

use std::collections::BTreeMap;

use super::diagnostic::{Diagnostic, Source};
use super::tree::Span;
use super::walk::Spans;

/// Places of keys, by section.
pub type Places = BTreeMap<&'static str, Spans>;

/// Where the keys of the sections are, and the problems found so far.
pub struct Judge<'a> {
    pub places: &'a Places,
    pub source: &'a Source,
    pub problems: &'a mut Vec<Diagnostic>,
}

impl Judge<'_> {
    /// Whether the file sets `section.key`.
    pub fn is_set(&self, path: &str) -> bool {
        self.span(path).is_some()
    }

    fn span(&self, path: &str) -> Option<&Span> {
        let (section, key) = path.split_once('.')?;
        self.places.get(section)?.get(key)
    }

    /// Reports an error at `section.key`. It is about the whole file if the file does not set that key, or if
    /// `path` names none.
    pub fn error(&mut self, path: &str, message: impl Into<String>, fix: impl Into<String>) {
        let place = self.source.place(self.span(path));
        self.problems.push(Diagnostic::error(place, message).fix(fix));
    }

    /// Reports one key of a section that is set without the other. Each is given with whether it is set.
    pub fn require_both(&mut self, section: &str, one: (&str, bool), other: (&str, bool)) {
        self.require(section, one, other);
        self.require(section, other, one);
    }

    /// Reports the first key of a section if it is set without the second.
    pub fn require(&mut self, section: &str, one: (&str, bool), other: (&str, bool)) {
        if let ((key, true), (other, false)) = (one, other) {
            let path = format!("{section}.{key}");
            let message = format!("{path} requires {section}.{other}");
            let fix = format!("set {section}.{other} as well, or remove {key}");
            self.error(&path, message, fix);
        }
    }
}
