//! Instants and spans, in the contract's units: microseconds and milliseconds.

use std::fmt;

/// An instant: microseconds since 1970-01-01T00:00:00Z (negative before).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Later by so many milliseconds; at most the last instant there is.
    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(micros(ms)))
    }

    /// Earlier by so many milliseconds; at least the first instant there is.
    pub fn minus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_sub(micros(ms)))
    }

    /// Microseconds since the epoch.
    pub fn micros(self) -> i64 {
        self.0
    }
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)
}

impl fmt::Display for Time {
    /// Microseconds since the epoch: meant for versions, not for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Milliseconds of a span such as `250ms`, `90s`, `5m`, `24h`, `7d` or `2w`. None: it is
/// no such span, or too long to count.
pub fn parse_duration_ms(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "w" => 604_800_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_has_a_number_and_a_unit() {
        for (text, expected) in [
            ("0s", Some(0)),
            ("250ms", Some(250)),
            ("90s", Some(90_000)),
            ("5m", Some(300_000)),
            ("24h", Some(86_400_000)),
            ("7d", Some(604_800_000)),
            ("2w", Some(1_209_600_000)),
            ("", None),
            ("7", None),
            ("d", None),
            ("7 d", None),
            ("-7d", None),
            ("99999999999999999999d", None),
            ("18446744073709551615s", None),
        ] {
            assert_eq!(parse_duration_ms(text), expected, "{text:?}");
        }
    }

    #[test]
    fn instants_saturate_instead_of_wrapping() {
        assert_eq!(Time(5_000).minus_ms(3), Time(2_000));
        assert_eq!(Time(i64::MAX).plus_ms(1), Time(i64::MAX));
        assert_eq!(Time(i64::MIN).minus_ms(u64::MAX), Time(i64::MIN));
    }
}
