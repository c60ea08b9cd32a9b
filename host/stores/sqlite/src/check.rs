//! Compares the mapping with SQLite's tables (see [`besom_tables::check`]).

use std::collections::{BTreeMap, BTreeSet};

use besom_core::collection::{Anchor, Collections, Operations};
use rusqlite::Connection;

use super::error::Job;
use super::mapping::{DIALECT, Table, quote};
use super::range::{NextPage, fault_of_next_page};
use super::range_change::common;
use super::statements::Statements;
use super::stored::{self, Declared};
use besom_ports::shape::ROWS_LOOKED_AT;
use besom_ports::store::MappingFault;
use besom_tables::check::{Check, Index, Keeper, Reaction, Reference, present};

/// All faults of all collections, in the order of their names.
pub(super) fn check(conn: &Connection, collections: &Collections) -> Job<Vec<MappingFault>> {
    let mut faults = Vec::new();
    let tables = tables(conn)?;
    for collection in collections.values() {
        let mut found = Check { dialect: &DIALECT, collection, faults: &mut faults };
        let is_meant = |(name, _): &&(String, String)| DIALECT.same(name, &collection.table);
        let Some((_, kind)) = tables.iter().find(is_meant) else {
            found.no_table(tables.iter().map(|(name, _)| name.as_str()));
            continue;
        };
        let columns = stored::declared(conn, &collection.table)?;
        compare_columns(&mut found, conn, &columns)?;
        if kind == "table" {
            let indexes = indexes(conn, &collection.table, &columns)?;
            if found.key(&indexes) {
                compare_key(&mut found, conn, &columns)?;
            }
            compare_indexes(&mut found, conn, &indexes)?;
        }
        for anchor in &collection.anchors {
            compare_anchor(&mut found, conn, anchor, collections)?;
        }
    }
    Ok(faults)
}

/// What the database does by itself beside the granted operations.
pub(super) fn check_granted(
    conn: &Connection,
    collections: &Collections,
    granted: &BTreeMap<String, Operations>,
) -> Job<Vec<MappingFault>> {
    let (mut faults, reactions, keepers) = (Vec::new(), reactions(conn)?, keepers(conn)?);
    for (name, operations) in granted {
        let Some(collection) = collections.get(name) else { continue };
        let mut found = Check { dialect: &DIALECT, collection, faults: &mut faults };
        if operations.delete {
            let name = collection.table.to_lowercase();
            found.cascades(&name, &reactions, collections);
            found.keepers(&name, &keepers, collections);
        }
        if operations.insert || operations.update || operations.delete {
            found.triggers(&triggers(conn, &collection.table)?);
        }
    }
    Ok(faults)
}

/// The tables into which rows are moved have the columns of these.
pub(super) fn check_moves(
    conn: &Connection,
    collections: &Collections,
    moves: &[(String, String)],
) -> Job<Vec<MappingFault>> {
    let mut faults = Vec::new();
    for (from, into) in moves {
        let (Some(from), Some(into)) = (collections.get(from), collections.get(into)) else {
            continue;
        };
        if let Err(message) = common(conn, from, into)? {
            let (collection, place) = (into.name.clone(), "table".to_owned());
            faults.push(MappingFault { collection, place, message, warning: false });
        }
    }
    Ok(faults)
}

/// All foreign keys that change rows by themselves, with the names of tables in small letters.
fn reactions(conn: &Connection) -> Job<Vec<Reaction>> {
    conn.all(
        "SELECT lower(s.name), lower(f.\"table\"), upper(f.on_delete) = 'CASCADE',
           group_concat(f.\"from\", char(0) ORDER BY f.seq)
         FROM sqlite_schema s JOIN pragma_foreign_key_list(s.name) f
         WHERE s.type = 'table' AND upper(f.on_delete) IN ('CASCADE', 'SET NULL', 'SET DEFAULT')
         GROUP BY s.name, f.id ORDER BY s.name, f.id",
        [],
        |row| {
            let columns = split(row.get(3)?);
            Ok(Reaction { of: row.get(0)?, to: row.get(1)?, columns, deletes: row.get(2)? })
        },
    )
}

/// All foreign keys that keep the rows that they refer to, as pairs of tables in small letters; a row may refer to its
/// own table.
fn keepers(conn: &Connection) -> Job<Vec<Keeper>> {
    conn.all(
        "SELECT lower(s.name), lower(f.\"table\"), group_concat(f.\"from\", char(0) ORDER BY f.seq)
         FROM sqlite_schema s JOIN pragma_foreign_key_list(s.name) f
         WHERE s.type = 'table' AND upper(f.on_delete) IN ('NO ACTION', 'RESTRICT')
           AND lower(s.name) <> lower(f.\"table\")
         GROUP BY s.name, f.id",
        [],
        |row| Ok(Keeper { of: row.get(0)?, to: row.get(1)?, columns: split(row.get(2)?) }),
    )
}

/// Names with NULs between.
fn split(names: String) -> Vec<String> {
    names.split('\0').map(str::to_owned).collect()
}

/// The triggers of a table, whatever operation they are for.
fn triggers(conn: &Connection, table: &str) -> Job<Vec<String>> {
    Ok(conn.all(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND lower(tbl_name) = lower(?1)
         ORDER BY name",
        [table],
        |row| row.get(0),
    )?)
}

/// The tenant column and every mapped column exist and fit their kinds.
fn compare_columns(found: &mut Check<'_>, conn: &Connection, columns: &[Declared]) -> Job<()> {
    let collection = found.collection;
    let is_present = |name: &str| columns.iter().any(|c| DIALECT.same(&c.name, name));
    let present = collection.columns.iter().filter(|(name, _)| is_present(name));
    let present: Vec<_> = present.map(|(name, column)| (name, *column)).collect();
    let mut samples = stored::samples(conn, &collection.table, &present)?.into_iter();
    let names: Vec<&str> = columns.iter().map(|c| c.name.as_str()).collect();
    found.columns(&names, |at, column| {
        let (_, column) = column?;
        let fault = stored::fault(&columns[at], column, &samples.next().unwrap_or_default())?;
        Some((fault.message, fault.warning))
    });
    Ok(())
}

/// No row has NULL in its key. A primary key that may hold it, as most texts may, is a fault of its rows alone.
fn compare_key(found: &mut Check<'_>, conn: &Connection, columns: &[Declared]) -> Job<()> {
    let collection = found.collection;
    for name in &collection.key {
        let Some(own) = columns.iter().find(|own| DIALECT.same(&own.name, name)) else { continue };
        if own.not_null {
            continue;
        }
        match has_null(conn, &collection.table, name)? {
            true => found.null_key(name, true, "give them a value"),
            false if own.key_position == 0 => found.null_key(name, false, "declare it NOT NULL"),
            false => {}
        }
    }
    Ok(())
}

/// Whether a column is NULL in one of the first rows, or in any if an index begins with it.
pub(super) fn has_null(conn: &Connection, table: &str, column: &str) -> Job<bool> {
    let limit = match begins_index(conn, table, column)? {
        true => String::new(),
        false => format!(" LIMIT {ROWS_LOOKED_AT}"),
    };
    let (table, column) = (quote(table), quote(column));
    let sql = format!("SELECT 1 FROM (SELECT {column} AS c FROM {table}{limit}) WHERE c IS NULL");
    Ok(conn.exists(&sql, [])?)
}

/// Whether an index of all rows begins with a column.
pub(super) fn begins_index(conn: &Connection, table: &str, column: &str) -> Job<bool> {
    let sql = "SELECT 1 FROM pragma_index_list(?1) l JOIN pragma_index_info(l.name) i
               WHERE l.partial = 0 AND i.seqno = 0 AND lower(i.name) = lower(?2)";
    Ok(conn.exists(sql, [table, column])?)
}

/// Each declared index is covered by an index of the database that begins with it, and pages over
/// it need no sort.
fn compare_indexes(found: &mut Check<'_>, conn: &Connection, indexes: &[Index]) -> Job<()> {
    // A missing column has been reported already.
    let is_whole = found.is_whole();
    let table = Table::new(found.collection);
    for (name, columns) in &found.collection.indexes {
        if !found.index(indexes, name, columns) || !is_whole || found.is_unique(indexes, columns) {
            continue;
        }
        let done = match fault_of_next_page(conn, &table, name)? {
            None => continue,
            Some(NextPage::Refused(fault)) => {
                format!("is refused at its second page, which {fault},")
            }
            Some(NextPage::SortsEquals) => "sorts the equal rows at the end of a page,".to_owned(),
        };
        found.next_page(name, columns, &done);
    }
    Ok(())
}

/// The anchor exists, and an insert here waits for its lock. On SQLite the single writer makes
/// every guard hold anyway, so a missing foreign key is only a warning.
fn compare_anchor<'a>(
    found: &mut Check<'a>,
    conn: &Connection,
    anchor: &'a Anchor,
    all: &'a Collections,
) -> Job<()> {
    let table = &found.collection.table;
    if let Some(reference) = found.anchor(anchor, all)
        && !foreign_key(conn, table, &reference)?
    {
        let (own, theirs) = (reference.own.join(", "), reference.theirs.join(", "));
        let other = &reference.target.table;
        let said = format!(
            "{table:?} has no foreign key on its anchor, so rows can be inserted without their \
             {other:?}: add FOREIGN KEY ({own}) REFERENCES {other} ({theirs})"
        );
        found.warning("anchor", said);
    }
    Ok(())
}

/// Tables and views of the user, with their kind.
pub(super) fn tables(conn: &Connection) -> Job<Vec<(String, String)>> {
    Ok(conn.all(
        "SELECT name, type FROM sqlite_schema
         WHERE type IN ('table', 'view') AND name NOT LIKE 'besom\\_%' ESCAPE '\\'
           AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        [],
        |r| r.try_into(),
    )?)
}

pub(super) fn indexes(conn: &Connection, table: &str, columns: &[Declared]) -> Job<Vec<Index>> {
    let named =
        "SELECT l.name, l.\"unique\", l.partial, coalesce(s.sql, '') FROM pragma_index_list(?1) l
                 LEFT JOIN sqlite_schema s ON s.type = 'index' AND s.name = l.name";
    let named: Vec<(String, bool, bool, String)> = conn.all(named, [table], |r| r.try_into())?;
    let keys = "SELECT coalesce(name, '') FROM pragma_index_xinfo(?1) WHERE key = 1 ORDER BY seqno";
    let mut indexes = Vec::new();
    for (name, unique, partial, sql) in named {
        let not_null = if partial { present(&sql) } else { Some(Vec::new()) };
        let Some(not_null) = not_null else { continue };
        let columns = conn.all(keys, [name], |r| r.get(0))?;
        indexes.push(Index { unique, primary: false, columns, not_null });
    }
    // An INTEGER PRIMARY KEY is the table itself and is in no list of indexes.
    let mut key: Vec<&Declared> = columns.iter().filter(|c| c.key_position > 0).collect();
    key.sort_by_key(|c| c.key_position);
    if !key.is_empty() {
        let columns = key.iter().map(|c| c.name.clone()).collect();
        indexes.push(Index { unique: true, primary: true, columns, not_null: Vec::new() });
    }
    Ok(indexes)
}

fn foreign_key(conn: &Connection, table: &str, reference: &Reference<'_>) -> Job<bool> {
    let mut pairs: BTreeMap<i64, BTreeSet<(String, String)>> = BTreeMap::new();
    conn.each(
        "SELECT id, lower(\"table\"), lower(\"from\"), lower(coalesce(\"to\", ''))
         FROM pragma_foreign_key_list(?1) ORDER BY id, seq",
        [table],
        |r| -> Job<()> {
            if r.get::<_, String>(1)? == reference.target.table.to_lowercase() {
                pairs.entry(r.get(0)?).or_default().insert((r.get(2)?, r.get(3)?));
            }
            Ok(())
        },
    )?;
    let own = || reference.own.iter().map(|name| name.to_lowercase());
    let theirs = reference.theirs.iter().map(|name| name.to_lowercase());
    let wanted: BTreeSet<(String, String)> = own().zip(theirs).collect();
    // Without named columns, a foreign key refers to the primary key, in its order.
    let implied: BTreeSet<(String, String)> = own().map(|name| (name, String::new())).collect();
    Ok(pairs.values().any(|pairs| *pairs == wanted || *pairs == implied))
}
