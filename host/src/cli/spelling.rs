//! Compares a key that a person has typed with the value of a column, by the type of the column: in each spelling
//! that the databases accept for it, and in those that Besom prints.

use besom_core::time::{Time, date_of, date_text};
use besom_core::value::{Value, is_decimal};
use besom_ports::compare::order;

/// Whether the text is a spelling of the value.
pub fn is(value: &Value, text: &str) -> bool {
    let text = text.trim();
    let word = text.to_ascii_lowercase();
    match value {
        Value::Null => word == "null",
        // Digits would name every row with such a column.
        Value::Bool(true) => matches!(word.as_str(), "true" | "t" | "yes" | "y" | "on"),
        Value::Bool(false) => matches!(word.as_str(), "false" | "f" | "no" | "n" | "off"),
        Value::Integer(n) => text.strip_prefix('#').unwrap_or(text).parse() == Ok(*n),
        Value::Float(n) => {
            text.parse().is_ok_and(|typed: f64| typed == *n || typed.is_nan() && n.is_nan())
        }
        Value::Decimal(kept) => {
            let is_same = || order(value, &Value::Decimal(text.to_owned())).is_eq();
            kept == text || is_decimal(kept) && is_decimal(text) && is_same()
        }
        Value::Text(kept) => kept == text || format!("{kept:?}") == text,
        Value::Json(kept) => {
            let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).ok();
            kept == text || read(kept).is_some_and(|json| read(text) == Some(json))
        }
        Value::Uuid(kept) => uuid(&word) == Some(*kept),
        Value::Bytes(kept) => kept == text.as_bytes() || bytes(&word).as_ref() == Some(kept),
        Value::Timestamp(kept) => instant(text, &word) == Some(*kept) || kept.to_string() == text,
        Value::Date(kept) => day(text, &word) == Some(*kept) || date_text(*kept) == text,
    }
}

/// With and without hyphens, in braces, and behind `@`, as in the keys of items.
fn uuid(word: &str) -> Option<[u8; 16]> {
    let word = word.strip_prefix('@').unwrap_or(word);
    let inner = word.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or(word);
    let digits: String = inner.split('-').collect();
    hex::decode(digits).ok()?.try_into().ok()
}

/// `\x00ff` as PostgreSQL writes them, `x'00ff'` as SQLite does, or digits only, as in the keys of items behind `=`.
fn bytes(word: &str) -> Option<Vec<u8>> {
    let quoted = word.strip_prefix("x'").and_then(|rest| rest.strip_suffix('\''));
    let bare = quoted.or_else(|| word.strip_prefix("\\x")).or_else(|| word.strip_prefix('='));
    hex::decode(bare.unwrap_or(word)).ok()
}

/// RFC 3339 or SQL, with an offset or in UTC, or a day, whose beginning is meant.
fn instant(text: &str, word: &str) -> Option<Time> {
    match word {
        "infinity" | "inf" => return Some(Time(i64::MAX)),
        "-infinity" | "-inf" => return Some(Time(i64::MIN)),
        _ => {}
    }
    let text = text.strip_prefix('!').unwrap_or(text);
    let text = text.strip_suffix(" UTC").unwrap_or(text);
    if let Ok(instant) = text.parse() {
        return Some(Time::from_jiff(instant));
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    Some(Time::from_jiff(local.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp()))
}

fn day(text: &str, word: &str) -> Option<i32> {
    match word {
        "infinity" => Some(i32::MAX),
        "-infinity" => Some(i32::MIN),
        _ => date_of(&text.parse::<jiff::civil::Date>().ok()?.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_spelling_of_a_value_is_known_and_no_other() {
        let uuid = Value::Uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef_u128.to_be_bytes());
        let at = |text: &str| Value::Timestamp(Time::from_jiff(text.parse().expect("an instant")));
        let cases: [(Value, &[&str], &[&str]); 12] = [
            (
                uuid,
                &[
                    "0123456789abcdef0123456789abcdef",
                    "01234567-89ab-cdef-0123-456789abcdef",
                    "01234567-89AB-CDEF-0123-456789ABCDEF",
                    "{01234567-89ab-cdef-0123-456789abcdef}",
                    "@01234567-89ab-cdef-0123-456789abcdef",
                    "@0123456789abcdef0123456789abcdef",
                ],
                &[
                    "0123456789abcdef0123456789abcdee",
                    "0123",
                    "",
                    "zz234567-89ab-cdef-0123-456789abcdef",
                ],
            ),
            (
                Value::Bytes(vec![0, 0xff]),
                &["\\x00ff", "\\x00FF", "x'00ff'", "X'00FF'", "00ff", "=00ff"],
                &["\\x00", "x'00ff", "0ff", "2 bytes", ""],
            ),
            (Value::Bytes(b"ab".to_vec()), &["ab", "6162", "\\x6162"], &["a"]),
            (
                at("2026-01-02T03:04:05Z"),
                &[
                    "2026-01-02 03:04:05+00",
                    "2026-01-02 03:04:05+00:00",
                    "2026-01-02 04:04:05+01",
                    "2026-01-02T03:04:05Z",
                    "2026-01-02 03:04:05",
                    "2026-01-02 03:04:05.000000",
                    "2026-01-02 03:04:05 UTC",
                    "!2026-01-02T03:04:05Z",
                ],
                &["2026-01-02 03:04:06+00", "2026-01-02", "infinity", "yesterday"],
            ),
            (at("2026-01-02T00:00:00Z"), &["2026-01-02"], &["2026-01-03"]),
            (Value::Timestamp(Time(i64::MAX)), &["infinity", "Infinity"], &["-infinity"]),
            (Value::Timestamp(Time(i64::MIN)), &["-infinity"], &["infinity"]),
            (Value::Date(1), &["1970-01-02", "19700102"], &["1970-01-03", "infinity"]),
            (Value::Integer(7), &["7", "+7", "007", "#7", " 7 "], &["7.0", "8", ""]),
            (Value::Decimal("1.50".into()), &["1.50", "1.5", "+01.500"], &["1.05", "-1.5", "."]),
            (Value::Text("a b".into()), &["a b", "\"a b\""], &["a", "A B"]),
            (Value::Bool(true), &["true", "T", "on"], &["1", "false"]),
        ];
        for (value, known, others) in cases {
            for text in known {
                assert!(is(&value, text), "{text}: {value:?}");
            }
            for text in others {
                assert!(!is(&value, text), "{text}: {value:?}");
            }
        }
        assert!(is(&Value::Float(f64::NAN), "NaN") && is(&Value::Float(0.5), ".5"));
        assert!(is(&Value::Json("{\"a\": 1}".into()), "{\"a\":1}"));
    }
}
