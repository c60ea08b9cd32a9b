//! Rows for one INSERT: arrays that the server unnests, except for columns whose values are all
//! equal. Those are sent once and repeated by the server, because one more array costs the server
//! about as much per row as a written column.

use tokio_postgres::types::ToSql;

use super::session::Param;

/// The columns of an INSERT while they are collected, in order.
#[derive(Default)]
pub(super) struct Columns<'a> {
    names: Vec<&'static str>,
    selected: Vec<String>,
    arrays: Vec<String>,
    params: Vec<Param<'a>>,
}

impl<'a> Columns<'a> {
    /// Adds a column with a value for each row.
    pub(super) fn each<T>(&mut self, name: &'static str, ty: &str, values: Vec<T>)
    where
        Vec<T>: ToSql + Sync + Send + 'a,
    {
        self.params.push(Box::new(values));
        self.selected.push(format!("u.c{}", self.arrays.len()));
        self.arrays.push(format!("${}::{ty}[]", self.params.len()));
        self.names.push(name);
    }

    /// Adds a column with one value for all rows.
    pub(super) fn one<T>(&mut self, name: &'static str, ty: &str, value: T)
    where
        T: ToSql + Sync + Send + 'a,
    {
        self.params.push(Box::new(value));
        self.selected.push(format!("${}::{ty}", self.params.len()));
        self.names.push(name);
    }

    /// Adds a column; `alike` says whether its values are all equal.
    pub(super) fn add<T>(&mut self, name: &'static str, ty: &str, values: Vec<T>, alike: bool)
    where
        T: ToSql + Sync + Send + 'a,
        Vec<T>: ToSql + Sync + Send + 'a,
    {
        if !alike {
            return self.each(name, ty, values);
        }
        if let Some(value) = values.into_iter().next() {
            self.one(name, ty, value);
        }
    }

    /// The statement and its parameters; at least one column must have a value for each row.
    pub(super) fn insert(self, table: &str) -> (String, Vec<Param<'a>>) {
        let places: Vec<String> = (0..self.arrays.len()).map(|at| format!("c{at}")).collect();
        let sql = format!(
            "INSERT INTO {table} ({}) SELECT {} FROM unnest({}) u({})",
            self.names.join(", "),
            self.selected.join(", "),
            self.arrays.join(", "),
            places.join(", ")
        );
        (sql, self.params)
    }
}

/// Whether all values are the same.
pub(super) fn alike<T: PartialEq>(values: &[T]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_the_same_for_all_rows_travels_once() {
        for (values, expected) in [
            (
                vec![1_i32, 1],
                "INSERT INTO t (id, task) SELECT u.c0, $2::int4 FROM unnest($1::int8[]) u(c0)",
            ),
            (
                vec![1, 2],
                "INSERT INTO t (id, task) SELECT u.c0, u.c1 FROM unnest($1::int8[], $2::int4[]) u(c0, c1)",
            ),
        ] {
            let same = alike(&values);
            let mut columns = Columns::default();
            columns.each("id", "int8", vec![7_i64, 8]);
            columns.add("task", "int4", values, same);
            let (sql, params) = columns.insert("t");
            assert_eq!((sql.as_str(), params.len()), (expected, 2));
        }
    }
}
