//! The user's tables, as the SQL stores see them: what a mapping has to match, which columns and
//! values a statement names, and where a page of a range ends. A store adds its SQL. This crate
//! depends on no database.

pub mod check;
pub mod conditions;
pub mod encoding;
pub mod late;
pub mod mapping;
pub mod plan;
pub mod range;
pub mod readset;
pub mod room;
pub mod units;

/// How a database differs from the others.
pub struct Dialect {
    /// Whether names are compared case-insensitively (for ASCII).
    pub folds_names: bool,
    /// Whether `CREATE INDEX` requires a name.
    pub names_indexes: bool,
    /// Whether an index can be built while others write to the table.
    pub builds_concurrently: bool,
    /// Whether an index has NULL before every value, which is the order of a range.
    pub nulls_first: bool,
}

impl Dialect {
    /// Whether two names are the same to the database.
    pub fn same(&self, a: &str, b: &str) -> bool {
        if self.folds_names { a.eq_ignore_ascii_case(b) } else { a == b }
    }

    /// `CREATE what [CONCURRENTLY] [name] ON table (columns)`.
    fn create(&self, what: &str, name: &str, table: &str, columns: &[&str]) -> String {
        let name = if self.names_indexes { format!("{name} ") } else { String::new() };
        let beside = if self.builds_concurrently { "CONCURRENTLY " } else { "" };
        format!("CREATE {what} {beside}{name}ON {table} ({})", columns.join(", "))
    }
}
