//! The order of values, and whether a condition holds, for rows that no database compares.
//!
//! NULL comes before every value and equals itself. Values of one kind compare by meaning: text and
//! bytes byte by byte, decimals as numbers, JSON as its text.

use std::cmp::Ordering;

use besom_core::proposal::{Comparison, Condition, Test};
use besom_core::value::{Kind, Value};

/// The order of two values. Values of different kinds never occur in one column; they are ordered
/// by kind so that the order is total.
pub fn order(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Null, Value::Null) => Ordering::Equal,
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Integer(a), Value::Integer(b)) => a.cmp(b),
        // Positive and negative zero are the same value.
        (Value::Float(a), Value::Float(b)) => (a + 0.0).total_cmp(&(b + 0.0)),
        (Value::Decimal(a), Value::Decimal(b)) => order_decimals(a, b),
        (Value::Text(a), Value::Text(b)) | (Value::Json(a), Value::Json(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.cmp(b),
        (Value::Uuid(a), Value::Uuid(b)) => a.cmp(b),
        (Value::Date(a), Value::Date(b)) => a.cmp(b),
        (a, b) => rank(a.kind()).cmp(&rank(b.kind())),
    }
}

fn rank(kind: Option<Kind>) -> u8 {
    match kind {
        None => 0,
        Some(Kind::Bool) => 1,
        Some(Kind::Integer) => 2,
        Some(Kind::Float) => 3,
        Some(Kind::Decimal) => 4,
        Some(Kind::Text) => 5,
        Some(Kind::Bytes) => 6,
        Some(Kind::Timestamp) => 7,
        Some(Kind::Uuid) => 8,
        Some(Kind::Json) => 9,
        Some(Kind::Date) => 10,
    }
}

/// Compares two decimal numbers exactly, whatever their leading and trailing zeros.
fn order_decimals(a: &str, b: &str) -> Ordering {
    let (a, b) = (Digits::of(a), Digits::of(b));
    match (a.negative, b.negative) {
        (false, true) => Ordering::Greater,
        (true, false) => Ordering::Less,
        (false, false) => a.magnitude(&b),
        (true, true) => b.magnitude(&a),
    }
}

/// A decimal number without its insignificant zeros.
struct Digits<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
}

impl<'a> Digits<'a> {
    fn of(text: &'a str) -> Digits<'a> {
        let (negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
        let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
        let zero = whole.is_empty() && fraction.is_empty();
        Digits { negative: negative && !zero, whole, fraction }
    }

    fn magnitude(&self, other: &Digits<'_>) -> Ordering {
        (self.whole.len().cmp(&other.whole.len()))
            .then_with(|| self.whole.cmp(other.whole))
            .then_with(|| self.fraction.cmp(other.fraction))
    }
}

/// Whether a row with these values meets a condition.
pub fn holds(value: &dyn Fn(&str) -> Value, condition: &Condition) -> bool {
    let actual = value(&condition.column);
    match &condition.test {
        Test::Value(comparison, other) => compares(&actual, *comparison, other),
        Test::Column(comparison, other) => compares(&actual, *comparison, &value(other)),
        Test::OneOf(all) => all.iter().any(|one| order(&actual, one).is_eq()),
        Test::NoneOf(all) => all.iter().all(|one| order(&actual, one).is_ne()),
        Test::StartsWith(beginning) => {
            matches!(actual, Value::Text(text) if text.starts_with(beginning.as_str()))
        }
    }
}

fn compares(a: &Value, comparison: Comparison, b: &Value) -> bool {
    let ordering = order(a, b);
    let known = *a != Value::Null && *b != Value::Null;
    match comparison {
        Comparison::Equal => ordering.is_eq(),
        Comparison::NotEqual => ordering.is_ne(),
        Comparison::Below => known && ordering.is_lt(),
        Comparison::AtMost => known && ordering.is_le(),
        Comparison::AtLeast => known && ordering.is_ge(),
        Comparison::Above => known && ordering.is_gt(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_compare_as_numbers_and_not_as_texts() {
        for (a, b, expected) in [
            ("9.5", "12.50", Ordering::Less),
            ("12.5", "12.50", Ordering::Equal),
            ("-9.5", "-12.50", Ordering::Greater),
            ("-0.0", "0", Ordering::Equal),
            ("+1", "1.000", Ordering::Equal),
            ("0.09", "0.1", Ordering::Less),
            ("-1", "1", Ordering::Less),
        ] {
            assert_eq!(order_decimals(a, b), expected, "{a} beside {b}");
        }
    }

    #[test]
    fn null_equals_null_and_is_neither_above_nor_below_anything() {
        use Comparison::{Above, AtLeast, AtMost, Below, Equal, NotEqual};
        let (null, one) = (Value::Null, Value::Integer(1));
        for (actual, comparison, value, expected) in [
            (&null, Equal, &null, true),
            (&null, NotEqual, &null, false),
            (&null, Equal, &one, false),
            (&null, NotEqual, &one, true),
            (&one, NotEqual, &null, true),
            (&null, AtLeast, &null, false),
            (&null, AtMost, &null, false),
            (&one, AtLeast, &null, false),
            (&null, AtMost, &one, false),
            (&one, AtMost, &one, true),
            (&null, Below, &one, false),
            (&one, Above, &null, false),
            (&one, Below, &one, false),
            (&one, Above, &one, false),
        ] {
            let said = format!("{actual:?} {comparison:?} {value:?}");
            assert_eq!(compares(actual, comparison, value), expected, "{said}");
        }
    }
}
