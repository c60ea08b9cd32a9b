//! The user's tables, as the SQL stores see them: what a mapping has to match, which columns and
//! values a statement names, and where a page of a range ends. A store adds its SQL. This crate
//! depends on no database.

pub mod check;
pub mod conditions;
pub mod encoding;
pub mod late;
pub mod mapping;
pub mod moves;
pub mod plan;
pub mod range;
pub mod readset;
pub mod room;
pub mod sample;
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
        let name = if self.names_indexes { format!("{} ", named(name)) } else { String::new() };
        let beside = if self.builds_concurrently { "CONCURRENTLY " } else { "" };
        let columns: Vec<String> = columns.iter().map(|column| named(column)).collect();
        format!("CREATE {what} {beside}{name}ON {} ({})", qualified(table), columns.join(", "))
    }
}

/// Words that need quotes as the name of a table or a column in one of the databases.
const RESERVED: [&str; 36] = [
    "all",
    "and",
    "as",
    "asc",
    "case",
    "check",
    "column",
    "constraint",
    "create",
    "default",
    "desc",
    "distinct",
    "else",
    "end",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "index",
    "into",
    "limit",
    "not",
    "null",
    "on",
    "or",
    "order",
    "primary",
    "select",
    "table",
    "to",
    "unique",
    "user",
    "when",
    "where",
];

/// A name in a statement that a person copies, in quotes if it needs them.
pub fn named(name: &str) -> String {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_plain = name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit());
    match is_plain && !name.is_empty() && !RESERVED.contains(&name) {
        true => name.to_owned(),
        false => mapping::quote(name),
    }
}

/// The same for a table; a dot separates the schema from it.
pub fn qualified(table: &str) -> String {
    table.split('.').map(named).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_quoted_if_it_needs_it() {
        for (name, written) in [
            ("sessions", "sessions"),
            ("a_1", "a_1"),
            ("1a", "\"1a\""),
            ("Closed At", "\"Closed At\""),
            ("when", "\"when\""),
            ("a\"b", "\"a\"\"b\""),
            ("", "\"\""),
        ] {
            assert_eq!(named(name), written);
        }
        assert_eq!(qualified("crm.Deals"), "crm.\"Deals\"");
    }
}
