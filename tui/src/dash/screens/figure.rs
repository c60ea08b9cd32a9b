//! Formats figures that are neither counts nor durations ([`text`] has those):
//! percentages, and instants with more than the time of day.

use besom_core::time::Time;

use crate::dash::text;

/// The sign for an unknown figure.
pub const UNKNOWN: &str = "?";

/// A fraction (0 to 1) as a percentage with one decimal and no sign: `23.4`.
pub fn per_cent(part: f64) -> String {
    if part.is_finite() { format!("{:.1}", part * 100.0) } else { UNKNOWN.to_owned() }
}

/// The time of day in UTC with milliseconds: `14:03:27.204`.
pub fn clock_ms(time: Time) -> String {
    format!("{}.{:03}", text::clock(time), time.millis().rem_euclid(1_000))
}

/// A day and the time of day in UTC: `2026-10-25 00:56:00`.
pub fn date_clock(time: Time) -> String {
    time.to_jiff().strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// A count in at most five columns, also above a thousand million: `82.4k`, `2.0G`.
pub fn count(n: u64) -> String {
    const TERA: u64 = 1_000_000_000_000;
    if n >= TERA { format!("{:.1}T", (n / (TERA / 10)) as f64 / 10.0) } else { text::count(n) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_say_what_is_not_known() {
        assert_eq!(per_cent(0.2344), "23.4");
        assert_eq!(per_cent(f64::NAN), "?");
        let time = Time::from_millis(1_793_112_960_204);
        assert_eq!(clock_ms(time), "14:56:00.204");
        assert_eq!(date_clock(time), "2026-10-27 14:56:00");
        assert_eq!(count(3_450_000_000_000), "3.4T");
    }
}
