//! Encodings of values in columns whose database type is less specific than their kind: instants as
//! numbers, UUIDs as text. Shared by the adapters.

use besom_core::collection::Encoding;
use besom_core::time::Time;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The rounding of an instant that its column cannot store exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// For values that are stored or compared for equality, and for upper bounds.
    Down,
    /// For lower bounds.
    Up,
}

fn unit(encoding: Encoding) -> i64 {
    match encoding {
        Encoding::Seconds => 1_000_000,
        Encoding::Millis => 1_000,
        _ => 1,
    }
}

/// Microseconds as the number that the encoding stores.
pub fn scaled(micros: i64, encoding: Encoding, round: Round) -> i64 {
    let unit = unit(encoding);
    let down = micros.div_euclid(unit);
    if round == Round::Up && micros.rem_euclid(unit) != 0 { down + 1 } else { down }
}

/// The microseconds of a stored number; none: no instant is that far away.
pub fn unscaled(number: i64, encoding: Encoding) -> Option<i64> {
    number.checked_mul(unit(encoding))
}

/// An instant as the text that the encoding stores. Texts of one encoding are in the order of their instants, except
/// within a second in RFC 3339 without a fixed number of decimals.
///
/// # Errors
/// The instant is before the year 0 or after 9999-12-30, and the encoding has no place for that.
pub fn instant_text(instant: Time, encoding: Encoding, round: Round) -> Result<String, String> {
    let (between, decimals, zone) = match encoding {
        Encoding::Datetime if instant.0.rem_euclid(1_000_000) == 0 => (' ', 0, ""),
        Encoding::Datetime | Encoding::Datetime6 => (' ', 6, ""),
        Encoding::Datetime3 => (' ', 3, ""),
        Encoding::Rfc3339Millis => ('T', 3, "Z"),
        Encoding::Rfc3339Micros => ('T', 6, "Z"),
        Encoding::Rfc3339
        | Encoding::Native
        | Encoding::Seconds
        | Encoding::Millis
        | Encoding::Raw => return Ok(instant.to_string()),
    };
    let instant = match decimals {
        3 => Time(scaled(instant.0, Encoding::Millis, round).saturating_mul(1_000)),
        _ => instant,
    };
    let clamped = instant.to_jiff();
    let at = clamped.to_zoned(TimeZone::UTC).datetime();
    if Time::from_jiff(clamped) != instant || !(0..=9999).contains(&at.year()) {
        return Err(format!("{instant} is before the year 0 or after 9999-12-30"));
    }
    let (day, second) = (at.strftime("%Y-%m-%d"), at.strftime("%H:%M:%S"));
    let micros = format!(".{:06}", instant.0.rem_euclid(1_000_000));
    let fraction = if decimals == 0 { "" } else { &micros[..=decimals] };
    Ok(format!("{day}{between}{second}{fraction}{zone}"))
}

/// The instant of a text; none: it is not what the encoding stores, so that a comparison with the instant
/// would not find it.
pub fn instant_of(text: &str, encoding: Encoding) -> Option<Time> {
    let instant = match encoding {
        Encoding::Datetime | Encoding::Datetime3 | Encoding::Datetime6 => {
            let at: DateTime = text.parse().ok()?;
            Time::from_jiff(at.to_zoned(TimeZone::UTC).ok()?.timestamp())
        }
        Encoding::Rfc3339Millis | Encoding::Rfc3339Micros => Time::from_jiff(text.parse().ok()?),
        // Of any spelling.
        _ => return text.parse().ok().map(Time::from_jiff),
    };
    (instant_text(instant, encoding, Round::Down).ok()? == text).then_some(instant)
}

/// A UUID as text, in groups.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let n = u128::from_be_bytes(*uuid);
    let hex = format!("{n:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// The UUID of such a text.
pub fn uuid_parse(text: &str) -> Option<[u8; 16]> {
    if text.len() != 36 || !text.is_ascii() {
        return None;
    }
    let hex: String = text.split('-').collect();
    let n = (hex.len() == 32).then(|| u128::from_str_radix(&hex, 16).ok())??;
    Some(n.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_bound_between_two_seconds_is_rounded_up() {
        let seconds = Encoding::Seconds;
        assert_eq!(scaled(1_500_000, seconds, Round::Up), 2);
        assert_eq!(scaled(1_500_000, seconds, Round::Down), 1);
        assert_eq!(scaled(-1_500_000, seconds, Round::Down), -2);
        assert_eq!(scaled(2_000_000, seconds, Round::Up), 2);
    }

    #[test]
    fn a_number_beyond_every_instant_is_none() {
        let last = i64::MAX / 1_000_000;
        assert_eq!(unscaled(last, Encoding::Seconds), Some(last * 1_000_000));
        assert_eq!(unscaled(last + 1, Encoding::Seconds), None);
        assert_eq!(unscaled(i64::MIN, Encoding::Millis), None);
        assert_eq!(unscaled(i64::MIN, Encoding::Native), Some(i64::MIN));
    }

    #[test]
    fn a_text_is_an_instant_if_it_is_what_its_encoding_stores() {
        use Encoding::{
            Datetime, Datetime3, Datetime6, Rfc3339, Rfc3339Micros, Rfc3339Millis, Seconds,
        };
        for (text, read) in [
            // SQLite, Laravel; Django without microseconds.
            ("2026-01-31 08:00:00", vec![Datetime]),
            // SQLite's `%f`.
            ("2026-01-31 08:00:00.000", vec![Datetime3]),
            ("2026-01-31 08:00:00.120", vec![Datetime3]),
            // Rails, SQLAlchemy.
            ("2026-01-31 08:00:00.000000", vec![Datetime6]),
            ("2026-01-31 08:00:00.000001", vec![Datetime, Datetime6]),
            ("2026-01-31 08:00:00.123450", vec![Datetime, Datetime6]),
            ("2026-01-31 08:00:00.12345", vec![]),
            ("2026-01-31 08:00:00.1234567", vec![]),
            ("2026-01-31T08:00:00", vec![]),
            ("2026-01-31T08:00:00.000", vec![]),
            ("2026-01-31 08:00", vec![]),
            ("2026-01-31", vec![]),
            ("20260131 08:00:00", vec![]),
            ("2026-02-30 08:00:00", vec![]),
            ("2026-01-31 08:00:00Z", vec![Rfc3339, Seconds]),
            ("2026-01-31T08:00:00Z", vec![Rfc3339, Seconds]),
            ("2026-01-31T08:00:00+00:00", vec![Rfc3339, Seconds]),
            ("2026-01-31T08:00:00.000+00:00", vec![Rfc3339, Seconds]),
            // JavaScript.
            ("2026-01-31T08:00:00.000Z", vec![Rfc3339, Rfc3339Millis, Seconds]),
            ("2026-01-31T08:00:00.678Z", vec![Rfc3339, Rfc3339Millis, Seconds]),
            ("2026-01-31t08:00:00.678z", vec![Rfc3339, Seconds]),
            ("2026-01-31T08:00:00.678000Z", vec![Rfc3339, Rfc3339Micros, Seconds]),
            ("0000-00-00 00:00:00", vec![]),
            ("never", vec![]),
            ("", vec![]),
        ] {
            let all =
                [Datetime, Datetime3, Datetime6, Rfc3339, Rfc3339Millis, Rfc3339Micros, Seconds];
            let found: Vec<_> =
                all.into_iter().filter(|encoding| instant_of(text, *encoding).is_some()).collect();
            assert_eq!(found, read, "{text:?}");
        }
    }

    /// Of encodings with a fixed number of decimals, so that a text compares as its instant does.
    #[test]
    fn texts_are_in_the_order_of_their_instants() {
        use Encoding::{Datetime, Datetime3, Datetime6, Rfc3339Micros, Rfc3339Millis};
        let micros =
            [-62_167_219_200_000_000, -1, 0, 1, 999_999, 1_000_000, 253_402_207_199_999_000];
        for encoding in [Datetime, Datetime3, Datetime6, Rfc3339Millis, Rfc3339Micros] {
            let unit = if matches!(encoding, Datetime3 | Rfc3339Millis) { 1_000 } else { 1 };
            let text = |micros, round| instant_text(Time(micros), encoding, round);
            for round in [Round::Down, Round::Up] {
                let texts = micros.map(|micros| text(micros, round).expect("a text"));
                assert!(texts.is_sorted(), "{texts:?}");
                // A bound is never on the other side of the instant.
                for (micros, text) in micros.into_iter().zip(&texts) {
                    let whole = micros.div_euclid(unit) * unit;
                    let up = if whole < micros { whole + unit } else { whole };
                    let expected = if round == Round::Down { whole } else { up };
                    assert_eq!(instant_of(text, encoding), Some(Time(expected)), "{text}");
                }
            }
            for beyond in [micros[0] - 1, 253_402_207_201_000_000, i64::MAX, i64::MIN] {
                for round in [Round::Down, Round::Up] {
                    let is_whole = round == Round::Up && beyond == micros[0] - 1 && unit > 1;
                    assert_eq!(text(beyond, round).is_err(), !is_whole, "{beyond}");
                }
            }
        }
    }

    #[test]
    fn a_uuid_comes_back_from_its_text() {
        let uuid = [0xab; 16];
        assert_eq!(uuid_parse(&uuid_text(&uuid)), Some(uuid));
        assert_eq!(uuid_parse("not a uuid"), None);
    }
}
