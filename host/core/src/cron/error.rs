//! What is wrong with a schedule, and where.

use std::fmt;
use std::ops::Range;

/// Which of a schedule's two texts is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The expression.
    Expression,
    /// The name of the time zone.
    Zone,
}

/// A schedule that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleError {
    /// Which text is wrong.
    pub place: Place,
    /// The bytes of that text which are wrong. Never inside a character; empty only where
    /// something is missing.
    pub range: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// How to mend it.
    pub fix: String,
}

impl ScheduleError {
    pub(super) fn new(
        range: Range<usize>,
        message: impl Into<String>,
        fix: impl Into<String>,
    ) -> ScheduleError {
        ScheduleError { place: Place::Expression, range, message: message.into(), fix: fix.into() }
    }

    /// Two lines for a terminal: `text`, and carets under what is wrong with it.
    pub fn caret(&self, text: &str) -> String {
        let width = |bytes: Range<usize>| text.get(bytes).map_or(0, |part| part.chars().count());
        let indent = width(0..self.range.start);
        let carets = width(self.range.clone()).max(1);
        format!("{text}\n{}{}", " ".repeat(indent), "^".repeat(carets))
    }
}

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.message, self.fix)
    }
}

impl std::error::Error for ScheduleError {}
