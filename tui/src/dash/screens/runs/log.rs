//! A run's log: it is read page by page and keeps a bounded number of lines. This module holds the
//! display state (following, minimum level, search) and decides when to ask for more.
//!
//! ```text
//!            due                    page, full or log open
//!   idle ──────────> asked ─────────────────────────────> idle, due at once | in a second
//!                      │ page, not full and log closed
//!                      └────────────────────────────────> complete
//! ```

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use besom_core::time::Time;
use besom_snapshot::{LOG_PAGE, LogLine, LogPage, Query};

/// The interval between questions while the run may still log.
pub const ASK_EVERY: Duration = Duration::from_secs(1);
/// A question without an answer is repeated after this time.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Lines that are kept; older ones are dropped, and their number is shown.
pub const LINES_MAX: usize = 5_000;

/// The level of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// All lines.
    #[default]
    Debug,
    /// What happens.
    Info,
    /// What is remarkable.
    Warn,
    /// What went wrong.
    Error,
}

impl Level {
    /// The level of that name; an unknown one counts as the highest, so that its lines are not
    /// hidden.
    pub fn of(name: &str) -> Level {
        match name {
            "trace" | "debug" => Level::Debug,
            "info" => Level::Info,
            "warn" => Level::Warn,
            _ => Level::Error,
        }
    }

    /// The next level, from the highest back to the lowest.
    pub fn next(self) -> Level {
        match self {
            Level::Debug => Level::Info,
            Level::Info => Level::Warn,
            Level::Warn => Level::Error,
            Level::Error => Level::Debug,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        }
    }
}

/// The position of a line. Nodes write their lines in batches, so numbers are not in the order of
/// time.
pub type Place = (Time, u64);

/// The place of a line.
pub fn place(line: &LogLine) -> Place {
    (line.at, line.no)
}

/// A run's log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    lines: VecDeque<LogLine>,
    /// The number of the last line received.
    after: u64,
    /// Lines that the host dropped.
    dropped: u64,
    /// Lines that this log received and dropped.
    forgotten: u64,
    /// Whether the last page was marked as final.
    complete: bool,
    /// Whether any answer has arrived.
    answered: bool,
    refusal: Option<String>,
    asked: Option<Time>,
    due: Option<Time>,
    /// The selected line; none: the last.
    at: Option<Place>,
    /// Whether lines of more than one node have arrived.
    nodes_many: bool,
    /// The minimum level of the lines shown.
    pub level: Level,
    /// Whether long lines are wrapped.
    pub wrap: bool,
    pattern: String,
}

impl Log {
    /// The question that is due, if any; it counts as asked.
    pub fn ask(&mut self, run: u64, now: Time) -> Option<Query> {
        let overdue = self.asked.is_some_and(|at| now.since(at) >= ANSWER_MAX);
        let waits = self.asked.is_some() && !overdue;
        if self.complete || waits || self.due.is_some_and(|due| now < due) {
            return None;
        }
        self.asked = Some(now);
        Some(Query::Log { run, after: self.after })
    }

    /// When the next question is due; none: never, or not before an answer.
    pub fn due(&self, now: Time) -> Option<Time> {
        match (self.complete, self.asked) {
            (true, _) => None,
            (false, Some(asked)) => Some(asked + ANSWER_MAX),
            (false, None) => Some(self.due.unwrap_or(now)),
        }
    }

    /// Adds a page.
    pub fn page(&mut self, page: LogPage, now: Time) {
        let full = page.lines.len() >= LOG_PAGE as usize;
        (self.answered, self.asked, self.refusal) = (true, None, None);
        self.dropped = page.dropped;
        for line in page.lines {
            // A question that was repeated is answered twice.
            if line.no > self.after {
                self.after = line.no;
                let other = self.lines.back().is_some_and(|last| last.node != line.node);
                self.nodes_many |= other;
                let at = self.lines.partition_point(|known| place(known) < place(&line));
                self.lines.insert(at, line);
            }
        }
        while self.lines.len() > LINES_MAX {
            self.lines.pop_front();
            self.forgotten += 1;
        }
        self.complete = !page.open && !full;
        self.due = Some(if full { now } else { now + ASK_EVERY });
    }

    /// The question was refused: it is repeated later.
    pub fn refused(&mut self, message: String, now: Time) {
        (self.refusal, self.asked) = (Some(message), None);
        self.due = Some(now + ANSWER_MAX);
    }

    /// The connection was lost and with it the answers: a pending question is repeated.
    pub fn reconnected(&mut self) {
        (self.asked, self.due) = (None, None);
    }

    /// The lines that are shown, oldest first.
    pub fn shown(&self) -> impl DoubleEndedIterator<Item = &LogLine> {
        self.lines.iter().filter(|line| Level::of(&line.level) >= self.level)
    }

    /// All lines kept.
    pub fn lines(&self) -> impl Iterator<Item = &LogLine> {
        self.lines.iter()
    }

    /// Whether lines of more than one node are here.
    pub fn nodes_many(&self) -> bool {
        self.nodes_many
    }

    /// Lines that were dropped by the host or by this log.
    pub fn lost(&self) -> u64 {
        self.dropped + self.forgotten
    }

    /// Lines that were received and dropped.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Why the last question was refused.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Whether any answer has arrived.
    pub fn answered(&self) -> bool {
        self.answered
    }

    /// Whether no further lines will come.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Whether the newest line is always shown.
    pub fn follows(&self) -> bool {
        self.at.is_none()
    }

    /// Starts following, or stops at the newest line.
    pub fn follow(&mut self, follow: bool) {
        self.at = if follow { None } else { self.shown().next_back().map(place) };
    }

    /// The current line: the selected one, the next one that is still kept, or the last.
    pub fn current(&self) -> Option<&LogLine> {
        match self.at {
            None => self.shown().next_back(),
            Some(at) => {
                self.shown().find(|line| place(line) >= at).or_else(|| self.shown().next_back())
            }
        }
    }

    /// Moves by this many shown lines; moving beyond the last one starts following again.
    pub fn step(&mut self, by: isize) {
        let places: Vec<Place> = self.shown().map(place).collect();
        let Some(current) = self.current().map(place) else { return };
        let at = places.partition_point(|place| *place < current);
        let to = at.saturating_add_signed(by);
        self.at = if to >= places.len() { None } else { Some(places[to]) };
    }

    /// The search text.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Sets the search text; the search ignores case.
    pub fn search(&mut self, pattern: &str) {
        self.pattern = pattern.to_lowercase();
    }

    /// Whether a text matches the search.
    pub fn is_match(&self, text: &str) -> bool {
        !self.pattern.is_empty() && text.to_lowercase().contains(&self.pattern)
    }

    /// The number of shown lines that match, and the index of the current one among them, from 1.
    pub fn matches(&self) -> (usize, Option<usize>) {
        let current = self.current().map(|line| line.no);
        let mut count = 0;
        let mut place = None;
        for line in self.shown().filter(|line| self.is_match(&line.text)) {
            count += 1;
            if Some(line.no) == current {
                place = Some(count);
            }
        }
        (count, place)
    }

    /// Goes to the next or the previous match, wrapping around.
    pub fn next_match(&mut self, forward: bool) {
        let found: Vec<Place> =
            self.shown().filter(|line| self.is_match(&line.text)).map(place).collect();
        let Some(current) = self.current().map(place) else { return };
        let next = if forward {
            found.iter().find(|place| **place > current).or(found.first())
        } else {
            found.iter().rev().find(|place| **place < current).or(found.last())
        };
        if let Some(next) = next {
            self.at = Some(*next);
        }
    }
}
