//! Comparisons of columns with values: the conditions of a filter, and the prefix and bounds of a
//! range.

use besom_core::proposal::{Comparison, Condition};
use besom_core::value::Value;
use besom_ports::store::Range;

use crate::encoding::Round;

/// One comparison. It is true or false, never unknown: NULL equals NULL and has no order.
#[derive(Clone, Copy, Debug)]
pub struct Term<'v> {
    /// The column.
    pub column: &'v str,
    /// How it is compared.
    pub comparison: Comparison,
    /// The value that it is compared with.
    pub value: &'v Value,
}

impl<'v> From<&'v Condition> for Term<'v> {
    fn from(condition: &'v Condition) -> Term<'v> {
        let Condition { column, comparison, value } = condition;
        Term { column, comparison: *comparison, value }
    }
}

impl Term<'_> {
    /// The rounding of its value.
    pub fn round(&self) -> Round {
        match self.comparison {
            Comparison::AtLeast => Round::Up,
            Comparison::Equal | Comparison::NotEqual | Comparison::AtMost => Round::Down,
        }
    }
}

/// The prefix and the bounds of a range over an index with these columns.
pub fn within<'v>(range: &'v Range, index: &'v [String]) -> impl Iterator<Item = Term<'v>> {
    let term = |comparison| move |(column, value)| Term { column, comparison, value };
    let columns = || index.iter().map(String::as_str);
    let bounded = move |bound: &'v Option<Value>| columns().skip(range.prefix.len()).zip(bound);
    (columns().zip(&range.prefix).map(term(Comparison::Equal)))
        .chain(bounded(&range.lower).map(term(Comparison::AtLeast)))
        .chain(bounded(&range.upper).map(term(Comparison::AtMost)))
}

/// All comparisons of a range: its prefix, its bounds, its conditions.
pub fn of_range<'v>(range: &'v Range, index: &'v [String]) -> impl Iterator<Item = Term<'v>> {
    within(range, index).chain(range.conditions.iter().map(Term::from))
}
