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

/// An index that was created explicitly (not one implied by a key), over all rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Created {
    name: String,
    columns: Vec<String>,
}

/// Reads the explicitly created indexes of a table.
pub(super) fn created(conn: &Connection, table: &str) -> Job<Vec<Created>> {
    let list =
        "SELECT name FROM pragma_index_list(?1) WHERE origin = 'c' AND partial = 0 ORDER BY name";
    let info = "SELECT coalesce(name, '') FROM pragma_index_info(?1) ORDER BY seqno";
    let names: Vec<String> = conn.all(list, [table], |r| r.get(0))?;
    let found = names
        .into_iter()
        .map(|name| Ok(Created { columns: conn.all(info, [&name], |r| r.get(0))?, name }));
    found.collect()
}

/// ` INDEXED BY ...` for a range over an index with these columns, after the tenant's; empty if a
/// key provides the order, or if the index does not exist. Of several indexes, the one that
/// continues furthest with the key, which orders equal rows.
pub(super) fn of_range(conn: &Connection, table: &Table, columns: &[String]) -> Job<String> {
    let tenant = table.collection.tenant.iter();
    let wanted: Vec<&String> = tenant.chain(columns).collect();
    let fits = |index: &&Created| {
        index.columns.len() >= wanted.len()
            && index.columns.iter().zip(&wanted).all(|(has, wants)| has.eq_ignore_ascii_case(wants))
    };
    let order = table.collection.order_of(columns);
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
        let by_guest = ["guest".to_owned()];
        for (indexes, hint) in [
            ("CREATE INDEX g ON seats (house, GUEST, state);", " INDEXED BY \"g\""),
            ("CREATE INDEX \"a\"\"b\" ON seats (house, guest);", " INDEXED BY \"a\"\"b\""),
            ("CREATE INDEX g ON seats (guest, house);", ""),
            ("CREATE INDEX g ON seats (house, guest) WHERE state = 'x';", ""),
            ("", ""),
        ] {
            assert_eq!(of_range(&database(indexes), &table(), &by_guest).unwrap(), hint);
        }
        // The key is the table itself.
        let key = ["room".to_owned()];
        assert_eq!(of_range(&database(""), &table(), &key).unwrap(), "");
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
