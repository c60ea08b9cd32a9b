//! Converts a page of rows into columns. Values of one type are passed as one list: a list of
//! numbers is copied as a whole, and texts and bytes need one allocation instead of one per value.

use besom_core::value::{Row, Value};

use super::bindings::besom::task::store::{Column, PackedBytes, PackedTexts};
use super::convert;

/// The columns of rows with `width` values each.
pub(super) fn to_wit(width: usize, mut rows: Vec<Row>) -> Vec<Column> {
    (0..width).map(|at| column(&mut rows, at)).collect()
}

fn column(rows: &mut [Row], at: usize) -> Column {
    let packed = match rows.first().map(|row| &row[at]) {
        Some(Value::Integer(_)) => all(rows, at, |value| match value {
            Value::Integer(integer) => Some(*integer),
            _ => None,
        })
        .map(Column::Integers),
        Some(Value::Timestamp(_)) => all(rows, at, |value| match value {
            Value::Timestamp(time) => Some(time.micros()),
            _ => None,
        })
        .map(Column::Timestamps),
        Some(Value::Text(_)) => texts(rows, at).map(Column::Texts),
        Some(Value::Bytes(_)) => bytes(rows, at).map(Column::Bytes),
        _ => None,
    };
    packed.unwrap_or_else(|| {
        let values = rows.iter_mut().map(|row| std::mem::replace(&mut row[at], Value::Null));
        Column::Values(values.map(convert::to_wit).collect())
    })
}

/// Applies `of` to every value of a column; `None` if it does not apply to all of them.
fn all<'v, T>(rows: &'v [Row], at: usize, of: impl Fn(&'v Value) -> Option<T>) -> Option<Vec<T>> {
    let mut made = Vec::with_capacity(rows.len());
    for row in rows {
        made.push(of(&row[at])?);
    }
    Some(made)
}

fn texts(rows: &[Row], at: usize) -> Option<PackedTexts> {
    let texts = all(rows, at, |value| match value {
        Value::Text(text) => Some(text.as_str()),
        _ => None,
    })?;
    Some(PackedTexts { ends: ends(texts.iter().map(|text| text.len()))?, text: texts.concat() })
}

fn bytes(rows: &[Row], at: usize) -> Option<PackedBytes> {
    let bytes = all(rows, at, |value| match value {
        Value::Bytes(bytes) => Some(bytes.as_slice()),
        _ => None,
    })?;
    Some(PackedBytes { ends: ends(bytes.iter().map(|bytes| bytes.len()))?, bytes: bytes.concat() })
}

/// The end offsets of values with these lengths, if they can be represented.
fn ends(lengths: impl ExactSizeIterator<Item = usize>) -> Option<Vec<u32>> {
    let mut end = 0_u32;
    let mut ends = Vec::with_capacity(lengths.len());
    for length in lengths {
        end = end.checked_add(u32::try_from(length).ok()?)?;
        ends.push(end);
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    use besom_core::time::Time;

    use super::*;

    #[test]
    fn values_of_one_kind_are_one_list_and_others_stay_as_they_are() {
        let text = |text: &str| Value::Text(text.to_owned());
        let rows = vec![
            vec![
                Value::Integer(7),
                Value::Timestamp(Time(1)),
                text("é"),
                Value::Bytes(vec![1, 2]),
                Value::Integer(1),
                Value::Bool(true),
            ],
            vec![
                Value::Integer(-8),
                Value::Timestamp(Time(-2)),
                text(""),
                Value::Bytes(Vec::new()),
                Value::Null,
                Value::Bool(false),
            ],
            vec![
                Value::Integer(9),
                Value::Timestamp(Time(3)),
                text("ab"),
                Value::Bytes(vec![3]),
                Value::Integer(2),
                Value::Bool(true),
            ],
        ];
        let said: Vec<String> =
            to_wit(6, rows).iter().map(|column| format!("{column:?}")).collect();
        assert!(said[0].contains("Integers([7, -8, 9])"), "{}", said[0]);
        assert!(said[1].contains("Timestamps([1, -2, 3])"), "{}", said[1]);
        assert!(said[2].contains("[2, 2, 4]") && said[2].contains("\"éab\""), "{}", said[2]);
        assert!(said[3].contains("[2, 2, 3]") && said[3].contains("[1, 2, 3]"), "{}", said[3]);
        assert!(said[4].contains("Values") && said[4].contains("Null"), "{}", said[4]);
        assert!(said[5].contains("Values"), "{}", said[5]);
    }

    #[test]
    fn a_page_without_rows_has_all_columns() {
        let columns = to_wit(2, Vec::new());
        assert_eq!(columns.len(), 2);
        assert!(columns.iter().all(|column| matches!(column, Column::Values(v) if v.is_empty())));
    }
}
