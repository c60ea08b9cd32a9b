//! Whether rows of one table can be moved into another one, whatever is in them.

use crate::mapping::quote;

/// A column of one of the tables.
#[derive(Clone, Copy, Debug)]
pub struct Column<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its type, as it is declared.
    pub declared: &'a str,
    /// Whether the database computes it.
    pub computed: bool,
}

/// The refusal of a move from one collection into another.
pub fn refused(from: &str, into: &str, why: &str) -> String {
    format!("rows of {from:?} cannot be moved into {into:?}, {why}")
}

/// Why a column cannot be moved into a table, which is named as in SQL; none: it can, or both tables compute it.
/// `other` is the column of the same name there, and whether it keeps every value as it is.
pub fn misfit(column: Column<'_>, other: Option<(Column<'_>, bool)>, into: &str) -> Option<String> {
    let Column { name, declared, computed } = column;
    match other {
        None => Some(format!(
            "which has no column {name:?}: ALTER TABLE {into} ADD COLUMN {} {declared}, or rename the column that \
             holds it there",
            quote(name)
        )),
        Some((other, _)) if other.computed && !computed => {
            Some(format!("which computes the column {name:?} itself, so its values would be lost"))
        }
        Some((other, false)) if !other.computed => Some(format!(
            "where {name:?} is {}, and not {declared}: its values would be converted",
            other.declared
        )),
        Some(_) => None,
    }
}
