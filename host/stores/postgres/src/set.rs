//! Rows of values for one statement: arrays that the server unnests, so that the statement's text
//! does not depend on the number of rows.

use super::session::Param;
use super::values::{Cell, Wire};

/// Numbered rows: `u.i` is the number, `u.v0`, `u.v1`, ... are the columns.
#[derive(Default)]
pub(super) struct Set {
    wires: Vec<Wire>,
    numbers: Vec<i32>,
    columns: Vec<Vec<Cell>>,
}

impl Set {
    /// A set of rows of these forms.
    pub(super) fn new(wires: Vec<Wire>) -> Set {
        let columns = wires.iter().map(|_| Vec::new()).collect();
        Set { wires, numbers: Vec::new(), columns }
    }

    /// Adds a row.
    pub(super) fn push(&mut self, number: usize, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len());
        self.numbers.push(number as i32);
        for (column, cell) in self.columns.iter_mut().zip(cells) {
            column.push(cell);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    /// The rows' cells, in order.
    pub(super) fn rows(&self) -> impl Iterator<Item = Vec<Cell>> + '_ {
        (0..self.numbers.len()).map(|at| self.columns.iter().map(|c| c[at].clone()).collect())
    }

    /// `unnest(...) AS u(i, v0, ...)`, with parameters from `$first` on.
    pub(super) fn sql(&self, first: usize) -> String {
        let mut arrays = format!("${first}::int4[]");
        let mut names = "i".to_owned();
        for (at, wire) in self.wires.iter().enumerate() {
            arrays.push_str(&format!(", ${}::{}[]", first + 1 + at, wire.sql()));
            names.push_str(&format!(", v{at}"));
        }
        format!("unnest({arrays}) AS u({names})")
    }

    /// The parameters of [`Set::sql`].
    pub(super) fn params<'a>(self) -> Vec<Param<'a>> {
        let mut params: Vec<Param<'a>> = vec![Box::new(self.numbers)];
        for column in self.columns {
            params.push(Box::new(column));
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_names_its_columns_and_numbers_its_parameters() {
        let mut set = Set::new(vec![Wire::Text, Wire::Integer]);
        set.push(7, vec![Cell::Text("a".into()), Cell::Null]);
        assert_eq!(set.sql(1), "unnest($1::int4[], $2::text[], $3::int8[]) AS u(i, v0, v1)");
        assert_eq!((set.len(), set.params().len()), (1, 3));
    }
}
