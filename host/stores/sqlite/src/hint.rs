//! Chooses the index for a read of a user's table.
//!
//! Without statistics SQLite considers one more equal column nearly worthless and prefers the
//! primary key, that is the table itself: a read by client would examine every row of the tenant.
//! The mapping declares the index of each read, so the query names it (`INDEXED BY`). Statistics
//! would help as well, but they belong to the database's owner.

use rusqlite::Connection;

use super::error::Job;
use super::mapping::{Table, quote};
use super::statements::Statements;
use besom_core::proposal::Condition;
use besom_tables::check::present;
use besom_tables::mapping::Order;

/// An index that was created explicitly (not one implied by a key), over all rows or those without certain NULLs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Created {
    name: String,
    columns: Vec<String>,
    /// The columns that are not NULL in its rows.
    not_null: Vec<String>,
}

/// Reads the explicitly created indexes of a table.
pub(super) fn created(conn: &Connection, table: &str) -> Job<Vec<Created>> {
    let list = "SELECT l.name, iif(l.partial, s.sql, '') FROM pragma_index_list(?1) l
                JOIN sqlite_schema s ON s.type = 'index' AND s.name = l.name
                WHERE l.origin = 'c' ORDER BY l.name";
    let info = "SELECT coalesce(name, '') FROM pragma_index_info(?1) ORDER BY seqno";
    let all: Vec<(String, String)> = conn.all(list, [table], |r| r.try_into())?;
    let mut found = Vec::new();
    for (name, sql) in all {
        let not_null = if sql.is_empty() { Some(Vec::new()) } else { present(&sql) };
        let Some(not_null) = not_null else { continue };
        found.push(Created { columns: conn.all(info, [&name], |r| r.get(0))?, name, not_null });
    }
    Ok(found)
}

/// ` INDEXED BY ...` for a range over an index with the same columns, after the tenant's; empty if a
/// key provides the order, or if the index does not exist. Of several indexes, the one that
/// continues furthest with the key, which orders equal rows.
pub(super) fn of_range(conn: &Connection, table: &Table, index: Order<'_>) -> Job<String> {
    let tenant = table.collection.tenant.iter();
    let wanted: Vec<&String> = tenant.clone().chain(index.columns).collect();
    let present: Vec<&String> = tenant.chain(index.not_null).collect();
    let fits = |index: &&Created| {
        index.columns.len() >= wanted.len()
            && index.columns.iter().zip(&wanted).all(|(has, wants)| same(has, wants))
            && index.not_null.iter().all(|has| present.iter().any(|one| same(has, one)))
    };
    let order = table.collection.order_of(index.columns);
    let order: Vec<&String> = table.collection.tenant.iter().chain(&order).collect();
    let further = |index: &Created| {
        index.columns.iter().zip(&order).take_while(|(has, wants)| same(has, wants)).count()
    };
    let best = table
        .created(conn)?
        .iter()
        .filter(fits)
        .reduce(|best, other| if further(other) > further(best) { other } else { best });
    Ok(phrase(best))
}

/// Like `of_range`, for a question about a tenant's rows under these conditions: the index that
/// begins with the most of its equal columns, if that is more than the key does.
pub(super) fn of_question(
    conn: &Connection,
    table: &Table,
    tenant: bool,
    conditions: &[Condition],
) -> Job<String> {
    let fixed = |column: &String| {
        let of_tenant = table.collection.tenant.as_ref().is_some_and(|t| same(t, column));
        (tenant && of_tenant)
            || conditions.iter().any(|c| c.fixed().is_some() && same(&c.column, column))
    };
    let led = |columns: &mut dyn Iterator<Item = &String>| columns.take_while(|c| fixed(c)).count();
    let key = led(&mut table.collection.tenant.iter().chain(&table.collection.key));
    let best = table
        .created(conn)?
        .iter()
        .filter(|index| index.not_null.is_empty())
        .map(|index| (led(&mut index.columns.iter()), index))
        .filter(|(columns, _)| *columns > key)
        // Of equal ones, the first.
        .reduce(|best, other| if other.0 > best.0 { other } else { best });
    Ok(phrase(best.map(|(_, index)| index)))
}

fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
}

fn phrase(index: Option<&Created>) -> String {
    index.map_or_else(String::new, |index| format!(" INDEXED BY {}", quote(&index.name)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use besom_core::collection::{Collection, Column, Encoding};
    use besom_core::value::{Kind, Value};

    use super::*;

    fn table() -> Table {
        let column = |kind| Column { kind, encoding: Encoding::Native };
        Table::new(&Collection {
            name: "seats".into(),
            table: "seats".into(),
            key: vec!["room".into(), "seat".into()],
            columns: ["room", "seat", "guest", "state"]
                .into_iter()
                .map(|name| (name.to_owned(), column(Kind::Text)))
                .collect(),
            tenant: Some("house".into()),
            indexes: BTreeMap::from([("by_guest".to_owned(), vec!["guest".to_owned()])]),
            anchors: Vec::new(),
            dependants: Vec::new(),
            not_null: Default::default(),
            accept_cascades: false,
        })
    }

    fn database(indexes: &str) -> Connection {
        let conn = Connection::open_in_memory().unwrap();
        let create = "CREATE TABLE seats (house TEXT, room TEXT, seat TEXT, guest TEXT,
             state TEXT, PRIMARY KEY (house, room, seat)) WITHOUT ROWID;";
        conn.execute_batch(&format!("{create}{indexes}")).unwrap();
        conn
    }

    fn equal(column: &str) -> Condition {
        Condition::equal(column, Value::Text("x".into()))
    }

    #[test]
    fn a_range_goes_by_the_index_that_begins_with_its_columns() {
        let guest = ["guest".to_owned()];
        let of = |indexes: &str, not_null: &[String]| {
            let index = Order { columns: &guest, not_null };
            of_range(&database(indexes), &table(), index).unwrap()
        };
        for (indexes, hint) in [
            ("CREATE INDEX g ON seats (house, GUEST, state);", " INDEXED BY \"g\""),
            ("CREATE INDEX \"a\"\"b\" ON seats (house, guest);", " INDEXED BY \"a\"\"b\""),
            ("CREATE INDEX g ON seats (guest, house);", ""),
            ("CREATE INDEX g ON seats (house, guest) WHERE state = 'x';", ""),
            ("CREATE INDEX g ON seats (house, guest) WHERE state IS NOT NULL;", ""),
            (
                "CREATE INDEX g ON seats (house, guest) WHERE HOUSE IS NOT NULL;",
                " INDEXED BY \"g\"",
            ),
            ("", ""),
        ] {
            assert_eq!(of(indexes, &[]), hint);
        }
        let partial =
            "CREATE INDEX g ON seats (house, guest) WHERE (GUEST IS NOT NULL AND state NOTNULL);";
        let named = ["guest", "seat", "state"].map(str::to_owned);
        assert_eq!(of(partial, &named), " INDEXED BY \"g\"");
        assert_eq!(of(partial, &named[..2]), "", "it lacks rows");
        // The key is the table itself.
        let key = Order { columns: &["room".to_owned()], not_null: &[] };
        assert_eq!(of_range(&database(""), &table(), key).unwrap(), "");
    }

    #[test]
    fn a_question_goes_by_the_index_with_most_of_its_columns_unless_the_key_has_as_many() {
        let conn = database(
            "CREATE INDEX g ON seats (house, guest); CREATE INDEX gs ON seats (house, guest, state);",
        );
        let ask =
            |conditions: &[Condition]| of_question(&conn, &table(), true, conditions).unwrap();
        assert_eq!(ask(&[equal("guest")]), " INDEXED BY \"g\"");
        assert_eq!(ask(&[equal("state"), equal("guest")]), " INDEXED BY \"gs\"");
        assert_eq!(ask(&[equal("room"), equal("guest")]), "", "the key has as many");
        assert_eq!(ask(&[equal("state")]), "");
    }

    #[test]
    fn without_statistics_the_plan_follows_the_hint_and_not_the_key() {
        let conn = database("CREATE INDEX g ON seats (house, guest);");
        let hint = of_question(&conn, &table(), true, &[equal("guest")]).unwrap();
        let plan: String = conn
            .query_row(
                &format!(
                    "EXPLAIN QUERY PLAN SELECT 1 FROM seats{hint}
                     WHERE house = ? AND guest IS ? AND state IS ?"
                ),
                ["h", "g", "s"],
                |row| row.get(3),
            )
            .unwrap();
        assert!(plan.contains("USING INDEX g (house=? AND guest=?)"), "{plan}");
    }
}
