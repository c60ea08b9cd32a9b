//! Errors in schedules, with their place in the text.

use std::fmt;
use std::ops::Range;

/// Which of a schedule's two texts is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// The cron expression.
    Expression,
    /// The name of the time zone.
    Zone,
}

/// An invalid schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleError {
    /// The text that is invalid.
    pub place: Place,
    /// The invalid bytes of that text. The range never splits a character; it is empty only where
    /// something is missing.
    pub range: Range<usize>,
    /// What is wrong, without the fix.
    pub message: String,
    /// How to fix it.
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

    /// Two lines for a terminal: `text`, and carets below the invalid part.
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

#[cfg(test)]
mod tests {
    use super::super::Schedule;
    use super::*;

    #[test]
    fn errors_name_the_bytes_and_the_fix() {
        let table = [
            ("", "", "the schedule is empty"),
            ("* * * *", "* * * *", "4 fields instead of five or six"),
            ("0 0 0 1 1 * 2027", "2027", "a seventh field (a year) is not supported"),
            ("60 * * * *", "60", "`60` is out of bounds"),
            ("0 24 * * *", "24", "`24` is out of bounds"),
            ("0 0 0 * *", "0", "`0` is out of bounds"),
            ("0 0 * 13 *", "13", "`13` is out of bounds"),
            ("0 0 * * 8", "8", "`8` is out of bounds"),
            ("MON * * * *", "MON", "`MON` is not a valid minute"),
            ("0 0 * * MONDAY", "MONDAY", "`MONDAY` is not a valid weekday"),
            ("0 L * * *", "L", "`L` is not a valid hour"),
            ("0 22-2 * * *", "22-2", "the range `22-2` runs backwards"),
            ("0 0 1--100000000 * *", "1--100000000", "`1--100000000` is not a range"),
            ("0 0 1-100000000 * *", "100000000", "`100000000` is out of bounds"),
            (
                "0 0 99999999999999999999 * *",
                "99999999999999999999",
                "`99999999999999999999` is out of bounds",
            ),
            ("*/0 * * * *", "0", "a step of 0 is not valid"),
            ("*/60 * * * *", "60", "a step of 60 exceeds the last minute, 59"),
            ("5/10 * * * *", "5/10", "`5/10` has no range to step through"),
            ("1,,2 * * * *", ",", "an entry of the list is empty"),
            ("*,5 * * * *", "*", "`*` in a list means every minute"),
            ("0 0 * * L", "L", "`L` needs a weekday before it"),
            ("0 0 * * 5#6", "5#6", "`6` is not an occurrence in a month"),
            ("0 0 30 2 *", "30 2 *", "this never runs: no date has day 30 in month 2"),
            ("0 0 31 4,6 *", "31 4,6 *", "this never runs: no date has day 31 in month 4,6"),
            ("@reboot", "@reboot", "`@reboot` is not a schedule"),
            ("@every", "", "`@every` has no duration"),
            ("@every 0s", "0s", "`0s` is too short"),
            ("@every -5s", "-", "a duration cannot be negative"),
            ("@every 500ms", "500ms", "`500ms` is too short"),
            ("@every 5", "5", "`5` has no unit"),
            ("@every 5 parsecs", "5", "`5` has no unit"),
            ("@every 5y", "y", "`y` is not a unit of time"),
            (
                "@every 99999999999999999999d",
                "99999999999999999999d",
                "`99999999999999999999d` is too long",
            ),
            ("ä 0 * * *", "ä", "`ä` is not a valid minute"),
        ];
        for (expression, bytes, message) in table {
            let error = Schedule::parse(expression, "UTC").expect_err(expression);
            assert_eq!(error.message, message);
            assert_eq!(&expression[error.range.clone()], bytes, "{expression}: {message}");
            assert!(!error.fix.is_empty(), "{expression}");
        }
        let error = Schedule::parse("0 22-2 * * *", "UTC").unwrap_err();
        assert_eq!(error.fix, "write `22-23,0-2` to wrap around");
        assert_eq!(error.caret("0 22-2 * * *"), "0 22-2 * * *\n  ^^^^");
        let error = Schedule::parse("@hourly", "Berlin").unwrap_err();
        assert_eq!((error.place, error.fix.as_str()), (Place::Zone, "write `Europe/Berlin`"));
    }
}
