//! Reports keys of sections that are valid alone but not in combination.

use std::collections::BTreeMap;

use super::diagnostic::{Diagnostic, Place, Source};
use super::walk::Spans;

/// Places of the keys of sections: in the file, and of the variables and flags that override it.
#[derive(Debug, Default)]
pub struct Places {
    /// In the file, by section.
    pub file: BTreeMap<&'static str, Spans>,
    /// Of what overrides the file, by `section.key`.
    pub overriding: BTreeMap<String, Place>,
}

impl Places {
    /// Where the value of `section.key` comes from; none: it is the default.
    pub fn of(&self, path: &str, source: &Source) -> Option<Place> {
        let in_file = || {
            let (section, key) = path.split_once('.')?;
            Some(source.at(self.file.get(section)?.get(key)?))
        };
        self.overriding.get(path).cloned().or_else(in_file)
    }
}

/// Where the keys of the sections are, and the problems found so far.
pub struct Judge<'a> {
    pub places: &'a Places,
    pub source: &'a Source,
    pub problems: &'a mut Vec<Diagnostic>,
}

impl Judge<'_> {
    /// Whether `section.key` is set, in the file or above it.
    pub fn is_set(&self, path: &str) -> bool {
        self.places.of(path, self.source).is_some()
    }

    /// Whether a variable or a flag sets `section.key`.
    pub fn is_overridden(&self, path: &str) -> bool {
        self.places.overriding.contains_key(path)
    }

    /// Reports an error where `section.key` is set. It is about the whole file if nothing sets that key, or if
    /// `path` names none.
    pub fn error(&mut self, path: &str, message: impl Into<String>, fix: impl Into<String>) {
        let place = self.places.of(path, self.source).unwrap_or_else(|| self.source.whole());
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
