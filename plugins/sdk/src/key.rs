//! Item keys: the values of a row's key, encoded as one readable text that can be decoded.
//!
//! Text is written unchanged (`doc-1`), and `/` joins several values (`doc-1/client-7`). Other
//! kinds have a prefix: `#42` is an integer, `@...` a UUID, `=0aff` bytes, `!2026-01-31T08:00:00Z` a
//! timestamp and `~2026-01-31` a date. A timestamp before the year 1 or after 9999 is `!` and its
//! microseconds, such a date `~` and its days.
//! In text, `/`, `%`, NUL and a leading prefix character are escaped as `%XX`.

use crate::value::kind;
use crate::{Day, Error, Result, Time, Value};

/// The code of the error of a value that cannot be part of a key.
pub const UNFIT: &str = "unfit-key";

const MARKS: [char; 5] = ['#', '@', '=', '!', '~'];

/// Encodes a key as text.
///
/// # Errors
/// `unfit-key` for a null, bool, float, decimal or JSON value.
pub fn encode(values: &[Value]) -> Result<String> {
    let parts: Vec<String> = values.iter().map(encode_value).collect::<Result<_>>()?;
    Ok(parts.join("/"))
}

/// Decodes the text of a key into its values.
///
/// # Errors
/// `malformed-key` if [`encode`] cannot have produced the text.
pub fn decode(key: &str) -> Result<Vec<Value>> {
    key.split('/')
        .map(|part| {
            decode_value(part).ok_or_else(|| {
                Error::permanent(
                    "malformed-key",
                    format!("{part:?} in {key:?} is not a valid key part"),
                )
            })
        })
        .collect()
}

/// A key value as plain text, as products write it into a URL or an activity key: text unchanged,
/// an integer in decimal, a UUID in lower case with hyphens.
///
/// # Errors
/// `unfit-key` for any other kind of value.
pub fn plain(value: &Value) -> Result<String> {
    match value {
        Value::Text(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Uuid((high, low)) => Ok(uuid(*high, *low)),
        other => Err(unfit(other)),
    }
}

fn encode_value(value: &Value) -> Result<String> {
    Ok(match value {
        Value::Text(text) => escape(text),
        Value::Integer(number) => format!("#{number}"),
        Value::Uuid((high, low)) => format!("@{}", uuid(*high, *low)),
        Value::Bytes(bytes) => {
            bytes.iter().fold("=".to_owned(), |text, byte| format!("{text}{byte:02x}"))
        }
        Value::Timestamp(micros) => {
            format!("!{}", Time(*micros).text().unwrap_or_else(|| micros.to_string()))
        }
        Value::Date(days) => format!("~{}", Day(*days).text().unwrap_or_else(|| days.to_string())),
        other => return Err(unfit(other)),
    })
}

fn unfit(value: &Value) -> Error {
    Error::permanent(UNFIT, format!("{} cannot be part of an item's key", kind(value)))
}

fn decode_value(part: &str) -> Option<Value> {
    let Some(mark) = part.chars().next().filter(|c| MARKS.contains(c)) else {
        return unescape(part).map(Value::Text);
    };
    let rest = &part[1..];
    match mark {
        '#' => rest.parse().ok().map(Value::Integer),
        '@' => u128::from_str_radix(&rest.replace('-', ""), 16)
            .ok()
            .map(|bits| Value::Uuid(((bits >> 64) as u64, bits as u64))),
        '=' => hex(rest).map(Value::Bytes),
        '~' => match Day::parse(rest) {
            Some(Day(days)) => Some(Value::Date(days)),
            None => rest.parse().ok().map(Value::Date),
        },
        _ => match Time::parse(rest) {
            Some(Time(micros)) => Some(Value::Timestamp(micros)),
            None => rest.parse().ok().map(Value::Timestamp),
        },
    }
}

fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for (at, c) in text.chars().enumerate() {
        if matches!(c, '/' | '%' | '\0') || (at == 0 && MARKS.contains(&c)) {
            out.push_str(&format!("%{:02X}", c as u32));
        } else {
            out.push(c);
        }
    }
    out
}

fn unescape(part: &str) -> Option<String> {
    let mut pieces = part.split('%');
    let mut out = pieces.next()?.to_owned();
    for piece in pieces {
        let byte = u8::from_str_radix(piece.get(..2)?, 16).ok()?;
        out.push(char::from(byte));
        out.push_str(&piece[2..]);
    }
    Some(out)
}

fn uuid(high: u64, low: u64) -> String {
    let digits = format!("{high:016x}{low:016x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    if !digits.is_ascii() || !digits.len().is_multiple_of(2) {
        return None;
    }
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Value {
        Value::Text(s.into())
    }

    #[test]
    fn keys_are_readable_and_reversible() {
        for (values, expected) in [
            (vec![text("doc-1")], "doc-1"),
            (vec![text("doc-1"), text("client-7")], "doc-1/client-7"),
            (vec![text("a/b"), text("c")], "a%2Fb/c"),
            (vec![text("a"), text("b/c")], "a/b%2Fc"),
            (vec![text("100%")], "100%25"),
            (vec![text("a\0b")], "a%00b"),
            (vec![text("#42")], "%2342"),
            (vec![text("a#42")], "a#42"),
            (vec![text("")], ""),
            (vec![text(""), text("")], "/"),
            (vec![text("문서/α")], "문서%2Fα"),
            (vec![Value::Integer(-42)], "#-42"),
            (vec![Value::Bytes(vec![0, 255])], "=00ff"),
            (vec![Value::Bytes(vec![])], "="),
            (vec![Value::Timestamp(7)], "!1970-01-01T00:00:00.000007Z"),
            (vec![Value::Timestamp(1_769_846_400_000_000)], "!2026-01-31T08:00:00Z"),
            (vec![Value::Timestamp(i64::MAX)], "!9223372036854775807"),
            (vec![Value::Date(20_484)], "~2026-01-31"),
            (vec![Value::Date(i32::MIN)], "~-2147483648"),
            (vec![text("~x")], "%7Ex"),
            (
                vec![Value::Uuid((0x550e_8400_e29b_41d4, 0xa716_4466_5544_0000))],
                "@550e8400-e29b-41d4-a716-446655440000",
            ),
            (vec![Value::Uuid((0, 1)), text("x")], "@00000000-0000-0000-0000-000000000001/x"),
        ] {
            assert_eq!(encode(&values).as_deref(), Ok(expected), "{values:?}");
            assert_eq!(decode(expected), Ok(values));
        }
    }

    #[test]
    fn what_identifies_nothing_is_refused() {
        for value in [Value::Null, Value::Float(0.5), Value::Bool(true), Value::Json("1".into())] {
            assert_eq!(encode(&[value]).unwrap_err().code, "unfit-key");
        }
        for key in ["a%2", "a%zz", "#", "#4x", "=0", "=0é", "@", "@xyz", "!"] {
            assert_eq!(decode(key).unwrap_err().code, "malformed-key", "{key:?}");
        }
    }
}
