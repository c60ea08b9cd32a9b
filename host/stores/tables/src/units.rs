//! Instants that are stored as numbers in another unit than the mapping says. Read in a wrong unit,
//! everything has expired.

use std::collections::BTreeMap;

use besom_core::collection::{Column, Encoding};
use besom_core::time::Time;
use besom_core::value::Value;

use crate::encoding::{Round, scaled, unscaled};

/// The numbers among a column's values that are implausible in its unit: how often another unit makes
/// them plausible.
#[derive(Debug, Default)]
pub struct Units(BTreeMap<&'static str, u64>);

impl Units {
    /// Adds a number.
    pub fn add(&mut self, number: i64, encoding: Encoding) {
        if let Some(unit) = other_unit(number, encoding) {
            *self.0.entry(unit).or_default() += 1;
        }
    }

    /// The fault of the mapping, if most of `values` values are plausible only in another unit. Some
    /// may mean something else, such as 0.
    pub fn fault(&self, column: Column, values: u64) -> Option<String> {
        let (unit, count) = self.0.iter().find(|(_, count)| **count * 2 > values)?;
        let found = match (*count, values) {
            (1, 1) => "the only value looked at is an instant".to_owned(),
            (count, values) if count == values => {
                format!("each of the {values} values looked at is an instant")
            }
            (count, values) => format!("{count} of {values} values looked at are instants"),
        };
        Some(format!(
            "the column is mapped as {}, but {found} of our time only in another unit: write \
             encoding = \"{unit}\"",
            in_words(column)
        ))
    }
}

/// The encoding in which a number is an instant between 1973 and 5138, if it is before 1980 or after
/// the year 9999 in its column's encoding. Smaller and larger numbers, such as 0 and the last
/// instant, stand for none.
fn other_unit(number: i64, encoding: Encoding) -> Option<&'static str> {
    const UNITS: [(&str, Encoding, std::ops::Range<i64>); 3] = [
        ("seconds", Encoding::Seconds, 100_000_000..100_000_000_000),
        ("millis", Encoding::Millis, 100_000_000_000..100_000_000_000_000),
        ("native", Encoding::Native, 100_000_000_000_000..100_000_000_000_000_000),
    ];
    const YEAR_1980: i64 = 315_532_800_000_000;
    const YEAR_10000: i64 = 253_402_300_800_000_000;
    let is_plausible =
        unscaled(number, encoding).is_some_and(|micros| (YEAR_1980..YEAR_10000).contains(&micros));
    let (unit, other, _) = UNITS.iter().find(|(.., range)| range.contains(&number))?;
    (!is_plausible && *other != encoding).then_some(*unit)
}

/// Whether an instant that was read from a column of numbers is implausible in that column's unit, and
/// plausible in another one.
pub fn is_in_another_unit(column: Column, value: &Value) -> bool {
    let Value::Timestamp(Time(micros)) = value else { return false };
    !column.encoding.is_text()
        && other_unit(scaled(*micros, column.encoding, Round::Down), column.encoding).is_some()
}

/// A kind and an encoding as people write them.
pub fn in_words(column: Column) -> String {
    format!("{} ({})", format!("{:?}", column.kind).to_lowercase(), column.encoding.name())
}

/// What is said of such an instant when it is read.
pub const READ: &str = "an instant was read that is one of our time only in another unit";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_is_an_instant_of_our_time_in_another_unit_names_it() {
        use Encoding::{Millis, Native, Seconds};
        for (number, encoding, expected) in [
            (1_700_000_000, Seconds, None),
            (1_700_000_000, Millis, Some("seconds")),
            (1_700_000_000, Native, Some("seconds")),
            (1_700_000_000_000, Millis, None),
            (1_700_000_000_000, Seconds, Some("millis")),
            (1_700_000_000_000, Native, Some("millis")),
            (1_700_000_000_000_000, Native, None),
            (1_700_000_000_000_000, Seconds, Some("native")),
            (1_700_000_000_000_000, Millis, Some("native")),
            // In the last year with four digits, and what stands for no instant.
            (253_402_300_799, Seconds, None),
            (253_402_300_799_000, Millis, None),
            (0, Native, None),
            (7, Native, None),
            (-1, Native, None),
            (i64::MAX, Native, None),
            (i64::MAX, Seconds, None),
        ] {
            assert_eq!(other_unit(number, encoding), expected, "{number} ({encoding:?})");
        }
    }
}
