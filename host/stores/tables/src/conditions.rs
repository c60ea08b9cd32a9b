//! What columns have to meet: the conditions of a filter, and the prefix and bounds of a range.

use besom_core::proposal::{Comparison, Condition, Test};
use besom_core::value::Value;
use besom_ports::store::Range;

use crate::encoding::Round;
use crate::mapping::Order;

/// A column and what it has to meet. It is true or false, never unknown: NULL equals NULL and has no order.
#[derive(Clone, Copy, Debug)]
pub struct Term<'v> {
    /// The column.
    pub column: &'v str,
    /// What it has to meet.
    pub tested: Tested<'v>,
}

impl<'v> Term<'v> {
    /// The columns that it compares.
    pub fn columns(self) -> impl Iterator<Item = &'v str> {
        let other = match self.tested {
            Tested::Column(_, other) => Some(other),
            Tested::Value(..) | Tested::Listed { .. } | Tested::StartsWith(_) => None,
        };
        std::iter::once(self.column).chain(other)
    }
}

/// See [`Test`].
#[derive(Clone, Copy, Debug)]
pub enum Tested<'v> {
    /// It compares so with a value.
    Value(Comparison, &'v Value),
    /// It compares so with another column.
    Column(Comparison, &'v str),
    /// It equals one of the values, or none of them.
    Listed {
        /// The values.
        values: &'v [Value],
        /// Whether it equals one of them.
        inside: bool,
    },
    /// It is a text that begins with this text.
    StartsWith(&'v str),
}

impl<'v> From<&'v Condition> for Term<'v> {
    fn from(Condition { column, test }: &'v Condition) -> Term<'v> {
        let tested = match test {
            Test::Value(comparison, value) => Tested::Value(*comparison, value),
            Test::Column(comparison, other) => Tested::Column(*comparison, other),
            Test::OneOf(values) => Tested::Listed { values, inside: true },
            Test::NoneOf(values) => Tested::Listed { values, inside: false },
            Test::StartsWith(text) => Tested::StartsWith(text),
        };
        Term { column, tested }
    }
}

/// The rounding of a value that a column is compared with.
pub fn round(comparison: Comparison) -> Round {
    match comparison {
        Comparison::AtLeast | Comparison::Below => Round::Up,
        Comparison::Equal | Comparison::NotEqual | Comparison::AtMost | Comparison::Above => {
            Round::Down
        }
    }
}

/// The prefix and the bounds of a range over an index, and which rows that contains.
pub fn within<'v>(range: &'v Range, index: Order<'v>) -> impl Iterator<Item = Term<'v>> {
    const PRESENT: Tested<'static> = Tested::Value(Comparison::NotEqual, &Value::Null);
    let term = |comparison| {
        move |(column, value)| Term { column, tested: Tested::Value(comparison, value) }
    };
    let columns = move || index.columns.iter().map(String::as_str);
    let bounded = move |bound: &'v Option<Value>| columns().skip(range.prefix.len()).zip(bound);
    (columns().zip(&range.prefix).map(term(Comparison::Equal)))
        .chain(bounded(&range.lower).map(term(Comparison::AtLeast)))
        .chain(bounded(&range.upper).map(term(Comparison::AtMost)))
        .chain(bounded(&range.beyond).map(move |(column, value)| match value {
            Value::Null => term(Comparison::NotEqual)((column, value)),
            value => term(Comparison::Above)((column, value)),
        }))
        .chain(index.not_null.iter().map(|column| Term { column, tested: PRESENT }))
}

/// The columns that the comparisons of a range name, each once.
pub fn columns_of_range<'v>(range: &'v Range, index: Order<'v>) -> Vec<&'v str> {
    let mut named: Vec<&str> = Vec::new();
    for column in of_range(range, index).flat_map(Term::columns) {
        if !named.contains(&column) {
            named.push(column);
        }
    }
    named
}

/// All comparisons of a range: its prefix, its bounds, its conditions.
pub fn of_range<'v>(range: &'v Range, index: Order<'v>) -> impl Iterator<Item = Term<'v>> {
    within(range, index).chain(range.conditions.iter().map(Term::from))
}
