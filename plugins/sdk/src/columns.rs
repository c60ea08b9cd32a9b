//! Pages of rows that were read by column.

use std::ops::Range;
use std::rc::Rc;

use crate::bindings::besom::task::store::Column;
use crate::row::{not_read, place, typed};
use crate::value::kind;
use crate::{Error, FromValue, Result, Value};

/// A page of rows, stored by column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnPage {
    names: Rc<[String]>,
    columns: Vec<Column>,
    count: usize,
}

/// Byte strings, concatenated in one block of memory.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Packed {
    /// The concatenated byte strings.
    pub bytes: Vec<u8>,
    /// The range of each byte string in `bytes`.
    pub ranges: Vec<Range<usize>>,
}

impl ColumnPage {
    /// A page of `count` rows of these columns.
    pub fn new(names: Rc<[String]>, columns: Vec<Column>, count: usize) -> ColumnPage {
        ColumnPage { names, columns, count }
    }

    /// The number of rows.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether the page has no rows.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The values of an integer column without nulls.
    ///
    /// # Errors
    /// `no-such-column` if the column was not read, `unexpected-value` if a value is not an
    /// integer.
    pub fn integers(&self, name: &str) -> Result<&[i64]> {
        match self.column(name)? {
            Column::Integers(integers) => Ok(integers),
            Column::Values(values) if values.is_empty() => Ok(&[]),
            other => Err(unexpected(name, other, "integers")),
        }
    }

    /// Moves the values of a column of byte strings without nulls out of the page.
    ///
    /// # Errors
    /// `no-such-column` if the column was not read, `unexpected-value` if a value is not bytes.
    pub fn take_bytes(&mut self, name: &str) -> Result<Packed> {
        let at = place(&self.names, name)?;
        match self.columns.get_mut(at).ok_or_else(|| not_read(&self.names, name))? {
            Column::Bytes(packed) => {
                let bytes = std::mem::take(&mut packed.bytes);
                let ends = std::mem::take(&mut packed.ends);
                let mut start = 0;
                let ranges = ends.into_iter().map(|end| {
                    let range = start..end as usize;
                    start = range.end;
                    range
                });
                Ok(Packed { ranges: ranges.collect(), bytes })
            }
            Column::Values(values) if values.is_empty() => Ok(Packed::default()),
            other => Err(unexpected(name, other, "byte strings")),
        }
    }

    /// The value of a column in a row as `T`; use `Option<T>` if it may be null.
    ///
    /// # Errors
    /// `no-such-row`, `no-such-column`, or `unexpected-value` if the value is not a `T`.
    pub fn get<T: FromValue>(&self, row: usize, name: &str) -> Result<T> {
        typed(name, &self.value(row, name)?)
    }

    /// The value of a column in a row, of any kind.
    ///
    /// # Errors
    /// `no-such-row` beyond the last row, `no-such-column` if the column was not read.
    pub fn value(&self, row: usize, name: &str) -> Result<Value> {
        let column = self.column(name)?;
        let range = |ends: &[u32]| {
            let start = row.checked_sub(1).map_or(Some(0), |before| ends.get(before).copied())?;
            Some(start as usize..*ends.get(row)? as usize)
        };
        let value = match column {
            Column::Integers(integers) => integers.get(row).copied().map(Value::Integer),
            Column::Timestamps(times) => times.get(row).copied().map(Value::Timestamp),
            Column::Texts(packed) => range(&packed.ends)
                .and_then(|range| packed.text.get(range))
                .map(|text| Value::Text(text.to_owned())),
            Column::Bytes(packed) => range(&packed.ends)
                .and_then(|range| packed.bytes.get(range))
                .map(|bytes| Value::Bytes(bytes.to_vec())),
            Column::Values(values) => values.get(row).cloned(),
        };
        value.ok_or_else(|| {
            let count = self.count;
            Error::permanent("no-such-row", format!("no row {row} in a page of {count} rows"))
        })
    }

    fn column(&self, name: &str) -> Result<&Column> {
        let at = place(&self.names, name)?;
        self.columns.get(at).ok_or_else(|| not_read(&self.names, name))
    }
}

fn unexpected(name: &str, column: &Column, wanted: &str) -> Error {
    let found = match column {
        Column::Integers(_) => "integers".to_owned(),
        Column::Timestamps(_) => "timestamps".to_owned(),
        Column::Texts(_) => "texts".to_owned(),
        Column::Bytes(_) => "byte strings".to_owned(),
        Column::Values(values) => {
            let mut kinds: Vec<_> = values.iter().map(kind).collect();
            kinds.sort_unstable();
            kinds.dedup();
            kinds.join(" and ")
        }
    };
    Error::permanent(
        "unexpected-value",
        format!("the column {name} has {found}, but only {wanted} are expected"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bindings::besom::task::store::{PackedBytes, PackedTexts};

    fn page() -> ColumnPage {
        let names = ["no", "text", "data", "at", "mixed"].map(str::to_owned);
        let columns = vec![
            Column::Integers(vec![1, 2, 3]),
            Column::Texts(PackedTexts { ends: vec![2, 2, 3], text: "éa".into() }),
            Column::Bytes(PackedBytes { ends: vec![0, 2, 3], bytes: vec![7, 8, 9] }),
            Column::Timestamps(vec![5, 6, 7]),
            Column::Values(vec![Value::Null, Value::Integer(4), Value::Bool(true)]),
        ];
        ColumnPage::new(names.into(), columns, 3)
    }

    #[test]
    fn each_value_is_found_by_its_row_and_column() {
        let page = page();
        assert_eq!((page.len(), page.is_empty()), (3, false));
        assert_eq!(page.integers("no"), Ok(&[1, 2, 3][..]));
        let texts: Result<Vec<String>> = (0..3).map(|row| page.get(row, "text")).collect();
        assert_eq!(texts, Ok(vec!["é".to_owned(), String::new(), "a".to_owned()]));
        let data: Result<Vec<Vec<u8>>> = (0..3).map(|row| page.get(row, "data")).collect();
        assert_eq!(data, Ok(vec![vec![], vec![7, 8], vec![9]]));
        assert_eq!(page.get::<crate::Time>(2, "at"), Ok(crate::Time(7)));
        assert_eq!(page.get::<Option<i64>>(0, "mixed"), Ok(None));
        assert_eq!(page.get::<Option<i64>>(1, "mixed"), Ok(Some(4)));
    }

    #[test]
    fn byte_strings_are_taken_out_in_one_piece() {
        let mut page = page();
        let packed = page.take_bytes("data").unwrap();
        assert_eq!(packed, Packed { bytes: vec![7, 8, 9], ranges: vec![0..0, 0..2, 2..3] });
        let nothing = Column::Values(Vec::new());
        let mut none = ColumnPage::new(page.names, vec![nothing; 5], 0);
        assert_eq!(none.take_bytes("data"), Ok(Packed::default()));
        assert_eq!(none.integers("no"), Ok(&[][..]));
    }

    #[test]
    fn an_error_names_the_column_and_what_was_found() {
        let mut page = page();
        let said = |error: Error| error.message;
        assert_eq!(
            said(page.integers("mixed").unwrap_err()),
            "the column mixed has a bool and an integer and null, but only integers are expected"
        );
        assert_eq!(
            said(page.take_bytes("no").unwrap_err()),
            "the column no has integers, but only byte strings are expected"
        );
        assert_eq!(
            said(page.get::<bool>(0, "no").unwrap_err()),
            "the column no has an integer, but a bool is expected"
        );
        assert_eq!(
            said(page.integers("size").unwrap_err()),
            "the column size was not read, only no, text, data, at, mixed"
        );
        assert_eq!(said(page.value(3, "no").unwrap_err()), "no row 3 in a page of 3 rows");
    }
}
