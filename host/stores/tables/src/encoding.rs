//! Encodings of values in columns whose database type is less specific than their kind: instants as
//! numbers, UUIDs as text. Shared by the adapters.

use besom_core::collection::Encoding;

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
        Encoding::Native | Encoding::Rfc3339 | Encoding::Raw => 1,
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
    fn a_uuid_comes_back_from_its_text() {
        let uuid = [0xab; 16];
        assert_eq!(uuid_parse(&uuid_text(&uuid)), Some(uuid));
        assert_eq!(uuid_parse("not a uuid"), None);
    }
}
