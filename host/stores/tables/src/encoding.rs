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
        Encoding::Native
        | Encoding::Rfc3339
        | Encoding::Datetime
        | Encoding::Datetime6
        | Encoding::Raw => 1,
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

/// An instant as the text that the encoding stores. Texts of one encoding are in the order of their instants.
///
/// # Errors
/// The instant is before the year 0 or after 9999-12-30, and the encoding has no place for that.
pub fn instant_text(instant: Time, encoding: Encoding) -> Result<String, String> {
    let decimals = match encoding {
        Encoding::Datetime => instant.0.rem_euclid(1_000_000) != 0,
        Encoding::Datetime6 => true,
        _ => return Ok(instant.to_string()),
    };
    let clamped = instant.to_jiff();
    let at = clamped.to_zoned(TimeZone::UTC).datetime();
    if Time::from_jiff(clamped) != instant || !(0..=9999).contains(&at.year()) {
        return Err(format!("{instant} is before the year 0 or after 9999-12-30"));
    }
    let second = at.strftime("%Y-%m-%d %H:%M:%S");
    Ok(match decimals {
        true => format!("{second}.{:06}", instant.0.rem_euclid(1_000_000)),
        false => second.to_string(),
    })
}

/// The instant of a text; none: it is not what the encoding stores, so that a comparison with the instant
/// would not find it.
pub fn instant_of(text: &str, encoding: Encoding) -> Option<Time> {
    if !matches!(encoding, Encoding::Datetime | Encoding::Datetime6) {
        return text.parse().ok().map(Time::from_jiff);
    }
    let at: DateTime = text.parse().ok()?;
    let instant = Time::from_jiff(at.to_zoned(TimeZone::UTC).ok()?.timestamp());
    (instant_text(instant, encoding).ok()? == text).then_some(instant)
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
        use Encoding::{Datetime, Datetime6, Rfc3339, Seconds};
        for (text, read) in [
            // SQLite, Laravel; Django without microseconds.
            ("2026-01-31 08:00:00", vec![Datetime]),
            // Rails, SQLAlchemy.
            ("2026-01-31 08:00:00.000000", vec![Datetime6]),
            ("2026-01-31 08:00:00.000001", vec![Datetime, Datetime6]),
            ("2026-01-31 08:00:00.123450", vec![Datetime, Datetime6]),
            ("2026-01-31 08:00:00.12345", vec![]),
            ("2026-01-31 08:00:00.1234567", vec![]),
            ("2026-01-31T08:00:00", vec![]),
            ("2026-01-31 08:00", vec![]),
            ("2026-01-31", vec![]),
            ("20260131 08:00:00", vec![]),
            ("2026-02-30 08:00:00", vec![]),
            ("2026-01-31 08:00:00Z", vec![Rfc3339, Seconds]),
            ("2026-01-31T08:00:00Z", vec![Rfc3339, Seconds]),
            ("0000-00-00 00:00:00", vec![]),
            ("never", vec![]),
            ("", vec![]),
        ] {
            let all = [Datetime, Datetime6, Rfc3339, Seconds];
            let found: Vec<_> =
                all.into_iter().filter(|encoding| instant_of(text, *encoding).is_some()).collect();
            assert_eq!(found, read, "{text:?}");
        }
    }

    #[test]
    fn texts_are_in_the_order_of_their_instants() {
        let micros =
            [-62_167_219_200_000_000, -1, 0, 1, 999_999, 1_000_000, 253_402_207_200_999_999];
        for encoding in [Encoding::Datetime, Encoding::Datetime6] {
            let texts = micros.map(|micros| instant_text(Time(micros), encoding).expect("a text"));
            assert!(texts.is_sorted(), "{texts:?}");
            assert_eq!(
                texts.each_ref().map(|text| instant_of(text, encoding)),
                micros.map(|m| Some(Time(m)))
            );
            for beyond in [micros[0] - 1, micros[6] + 1, i64::MAX] {
                assert!(instant_text(Time(beyond), encoding).is_err(), "{beyond}");
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
