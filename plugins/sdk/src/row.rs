//! Rows that were read, with the names of their columns.

use std::rc::Rc;

use crate::value::kind;
use crate::{Error, FromValue, Result, Value};

/// A row: the values of the requested columns, by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    columns: Rc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// A row with these columns and their values, in the same order.
    pub fn new(columns: Rc<[String]>, values: Vec<Value>) -> Row {
        Row { columns, values }
    }

    /// The value of a column as `T`; use `Option<T>` if it may be null.
    ///
    /// # Errors
    /// `no-such-column` if the column was not read, `unexpected-value` if the value is not a `T`.
    pub fn get<T: FromValue>(&self, column: &str) -> Result<T> {
        typed(column, self.borrow(column)?)
    }

    /// The value of a column, of any kind.
    ///
    /// # Errors
    /// `no-such-column` if the column was not read.
    pub fn value(&self, column: &str) -> Result<Value> {
        self.borrow(column).cloned()
    }

    fn borrow(&self, column: &str) -> Result<&Value> {
        let at = place(&self.columns, column)?;
        self.values.get(at).ok_or_else(|| not_read(&self.columns, column))
    }
}

/// The position of a column among the columns that were read.
pub(crate) fn place(columns: &[String], column: &str) -> Result<usize> {
    let place = columns.iter().position(|name| name == column);
    place.ok_or_else(|| not_read(columns, column))
}

pub(crate) fn not_read(columns: &[String], column: &str) -> Error {
    Error::permanent(
        "no-such-column",
        format!("the column {column} was not read, only {}", columns.join(", ")),
    )
}

/// The value of a column as `T`.
pub(crate) fn typed<T: FromValue>(column: &str, value: &Value) -> Result<T> {
    T::from_value(value).ok_or_else(|| {
        let (found, wanted) = (kind(value), T::WANTED);
        Error::permanent(
            "unexpected-value",
            format!("the column {column} has {found}, but {wanted} is expected"),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;

    fn row() -> Row {
        Row::new(
            ["id".to_owned(), "at".to_owned(), "gone_at".to_owned()].into(),
            vec![Value::Text("a".into()), Value::Timestamp(7), Value::Null],
        )
    }

    #[test]
    fn a_column_is_read_by_name_and_type() {
        assert_eq!(row().get::<String>("id"), Ok("a".to_owned()));
        assert_eq!(row().get::<Time>("at"), Ok(Time(7)));
        assert_eq!(row().get::<Option<Time>>("gone_at"), Ok(None));
        assert_eq!(row().get::<Option<Time>>("at"), Ok(Some(Time(7))));
    }

    #[test]
    fn an_error_names_the_column_and_what_was_found() {
        let error = row().get::<i64>("id").unwrap_err();
        assert_eq!(error.message, "the column id has text, but an integer is expected");
        let error = row().get::<Time>("gone_at").unwrap_err();
        assert_eq!(error.message, "the column gone_at has null, but a timestamp is expected");
        let error = row().get::<i64>("size").unwrap_err();
        assert_eq!(error.message, "the column size was not read, only id, at, gone_at");
    }
}
