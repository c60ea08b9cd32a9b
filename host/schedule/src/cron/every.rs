//! `@every 1h30m`: a fixed duration, counted from the Unix epoch.

use std::fmt::Write as _;

use super::ScheduleError;

/// The minimum duration, in microseconds. A leader queries its store for every slot, so slots
/// cannot be closer together.
pub const EVERY_MIN_US: i64 = 1_000_000;
/// The maximum duration, in microseconds: 366 days.
pub const EVERY_MAX_US: i64 = 366 * 86_400 * 1_000_000;

const UNITS: [(&str, i64); 5] = [
    ("d", 86_400_000_000),
    ("h", 3_600_000_000),
    ("m", 60_000_000),
    ("s", 1_000_000),
    ("ms", 1_000),
];

/// Parses the duration in microseconds. `text` begins at byte `at` of the expression.
pub(super) fn parse(text: &str, at: usize) -> Result<i64, ScheduleError> {
    let example = "write a duration such as `@every 30s` or `@every 1h30m`";
    let trimmed = text.trim();
    let start = at + (text.len() - text.trim_start().len());
    let whole = start..start + trimmed.len();
    if trimmed.is_empty() {
        return Err(ScheduleError::new(whole, "`@every` has no duration", example));
    }
    let mut total: i64 = 0;
    let mut rest = trimmed;
    while !rest.is_empty() {
        let here = start + (trimmed.len() - rest.len());
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        if digits == 0 {
            let character = rest.chars().next().map_or(0, char::len_utf8);
            let message = if rest.starts_with('-') {
                "a duration cannot be negative".to_owned()
            } else {
                format!("`{}` is not a number", &rest[..character])
            };
            return Err(ScheduleError::new(here..here + character, message, example));
        }
        let after = &rest[digits..];
        let letters =
            after.len() - after.trim_start_matches(|c: char| c.is_ascii_alphabetic()).len();
        let unit = &after[..letters];
        let Some((_, micros)) = UNITS.iter().find(|(name, _)| *name == unit) else {
            let message = if unit.is_empty() {
                format!("`{}` has no unit", &rest[..digits])
            } else {
                format!("`{unit}` is not a unit of time")
            };
            let bad = if unit.is_empty() {
                here..here + digits
            } else {
                here + digits..here + digits + letters
            };
            return Err(ScheduleError::new(bad, message, "the units are ms, s, m, h and d"));
        };
        // A value that overflows is far above the maximum.
        let part = rest[..digits].parse::<i64>().ok().and_then(|n| n.checked_mul(*micros));
        total = part.and_then(|part| total.checked_add(part)).unwrap_or(i64::MAX);
        rest = &after[letters..];
    }
    if total < EVERY_MIN_US {
        let message = format!("`{trimmed}` is too short");
        return Err(ScheduleError::new(whole, message, "the minimum is 1s"));
    }
    if total > EVERY_MAX_US {
        let message = format!("`{trimmed}` is too long");
        return Err(ScheduleError::new(whole, message, "the maximum is 366d"));
    }
    Ok(total)
}

/// The canonical spelling of the duration, largest units first.
pub(super) fn canonical(mut micros: i64) -> String {
    let mut text = String::from("@every ");
    for (name, unit) in UNITS {
        if micros >= unit {
            let _ = write!(text, "{}{name}", micros / unit);
            micros %= unit;
        }
    }
    text
}
