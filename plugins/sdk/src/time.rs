//! Instants in microseconds and durations in milliseconds, the units of the contract.

use std::fmt;

/// An instant: microseconds since 1970-01-01T00:00:00Z (negative before).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

impl Time {
    /// Adds `ms` milliseconds; saturates at the last representable instant.
    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_add(micros(ms)))
    }

    /// Subtracts `ms` milliseconds; saturates at the first representable instant.
    pub fn minus_ms(self, ms: u64) -> Time {
        Time(self.0.saturating_sub(micros(ms)))
    }

    /// The microseconds since the epoch, negative before it.
    pub fn micros(self) -> i64 {
        self.0
    }
}

fn micros(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX).saturating_mul(1_000)
}

impl fmt::Display for Time {
    /// Writes the microseconds since the epoch: a form for versions, not for operators.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The milliseconds of a duration such as `250ms`, `90s`, `5m`, `24h`, `7d` or `2w`; none if the
/// text is not a duration or the result overflows.
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
