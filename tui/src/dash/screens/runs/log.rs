//! A run's log as it comes: pages one after the other, a bounded number of lines, the way it
//! is looked at (following, a least level, a search), and the questions it has to ask.
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

use besom_core::snapshot::{LOG_PAGE, LogLine, LogPage, Query};
use besom_core::time::Time;

/// Between two questions while the run may still log.
pub const ASK_EVERY: Duration = Duration::from_secs(1);
/// A question that was not answered is asked again after this.
pub const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Lines that are kept; the oldest go first, and it is said that they did.
pub const LINES_MAX: usize = 5_000;

/// How grave a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Everything.
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
    /// The level of that name; what is not known counts as the gravest, so as not to be hidden.
    pub fn of(name: &str) -> Level {
        match name {
            "trace" | "debug" => Level::Debug,
            "info" => Level::Info,
            "warn" => Level::Warn,
            _ => Level::Error,
        }
    }

    /// The next one, from the gravest back to all.
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

/// The place of a line: nodes write their lines in batches, so that their numbers are not in the
/// order of time.
pub type Place = (Time, u64);

/// The place of a line.
pub fn place(line: &LogLine) -> Place {
    (line.at, line.no)
}

/// A run's log.
#[derive(Debug, Clone, Default)]
pub struct Log {
    lines: VecDeque<LogLine>,
    /// The number of the last line that came.
    after: u64,
    /// Lines that the host did not keep.
    dropped: u64,
    /// Lines that came and were too many to keep here.
    forgotten: u64,
    /// The last page said that nothing more will come.
    complete: bool,
    /// Something was answered.
    answered: bool,
    refusal: Option<String>,
    asked: Option<Time>,
    due: Option<Time>,
    /// The line that is looked at; none: the last.
    at: Option<Place>,
    /// Whether lines of more than one node came.
    nodes_many: bool,
    /// Lines that are less grave are left out.
    pub level: Level,
    /// Whether long lines go on below.
    pub wrap: bool,
    pattern: String,
}

impl Log {
    /// The question that is due, if one is; it counts as asked.
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

    /// Takes a page in.
    pub fn page(&mut self, page: LogPage, now: Time) {
        let full = page.lines.len() >= LOG_PAGE as usize;
        (self.answered, self.asked, self.refusal) = (true, None, None);
        self.dropped = page.dropped;
        for line in page.lines {
            // A question that was asked twice is answered twice.
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

    /// The question was refused: it is asked again later.
    pub fn refused(&mut self, message: String, now: Time) {
        (self.refusal, self.asked) = (Some(message), None);
        self.due = Some(now + ANSWER_MAX);
    }

    /// The connection was lost, and with it the answers: what is open is asked again.
    pub fn reconnected(&mut self) {
        (self.asked, self.due) = (None, None);
    }

    /// The lines that are not left out, oldest first.
    pub fn shown(&self) -> impl DoubleEndedIterator<Item = &LogLine> {
        self.lines.iter().filter(|line| Level::of(&line.level) >= self.level)
    }

    /// All lines that are here.
    pub fn lines(&self) -> impl Iterator<Item = &LogLine> {
        self.lines.iter()
    }

    /// Whether lines of more than one node are here.
    pub fn nodes_many(&self) -> bool {
        self.nodes_many
    }

    /// Lines that neither the host nor this log has kept.
    pub fn lost(&self) -> u64 {
        self.dropped + self.forgotten
    }

    /// Lines that came and were too many to keep.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Why the last question was refused.
    pub fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// Whether anything was ever answered.
    pub fn answered(&self) -> bool {
        self.answered
    }

    /// Whether nothing more will come.
    pub fn complete(&self) -> bool {
        self.complete
    }

    /// Whether the newest line is always shown.
    pub fn follows(&self) -> bool {
        self.at.is_none()
    }

    /// Follows, or stops at the newest line.
    pub fn follow(&mut self, follow: bool) {
        self.at = if follow { None } else { self.shown().next_back().map(place) };
    }

    /// The line that is looked at: the one chosen, the next one that is still here, or the
    /// last.
    pub fn current(&self) -> Option<&LogLine> {
        match self.at {
            None => self.shown().next_back(),
            Some(at) => {
                self.shown().find(|line| place(line) >= at).or_else(|| self.shown().next_back())
            }
        }
    }

    /// Moves by so many shown lines; a move beyond the last one follows again.
    pub fn step(&mut self, by: isize) {
        let places: Vec<Place> = self.shown().map(place).collect();
        let Some(current) = self.current().map(place) else { return };
        let at = places.partition_point(|place| *place < current);
        let to = at.saturating_add_signed(by);
        self.at = if to >= places.len() { None } else { Some(places[to]) };
    }

    /// What is searched for.
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Searches; upper and lower case are alike.
    pub fn search(&mut self, pattern: &str) {
        self.pattern = pattern.to_lowercase();
    }

    /// Whether a line is found by the search.
    pub fn is_match(&self, line: &LogLine) -> bool {
        !self.pattern.is_empty() && line.text.to_lowercase().contains(&self.pattern)
    }

    /// Shown lines that are found, and the place of the current one among them, from 1.
    pub fn matches(&self) -> (usize, Option<usize>) {
        let current = self.current().map(|line| line.no);
        let mut count = 0;
        let mut place = None;
        for line in self.shown().filter(|line| self.is_match(line)) {
            count += 1;
            if Some(line.no) == current {
                place = Some(count);
            }
        }
        (count, place)
    }

    /// Goes to the next line that is found, or to the one before; round the end.
    pub fn next_match(&mut self, forward: bool) {
        let found: Vec<Place> =
            self.shown().filter(|line| self.is_match(line)).map(place).collect();
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
