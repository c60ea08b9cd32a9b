//! Reads by key and by conditions.

use besom_core::ids::Tenant;
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params_from_iter};

use super::error::{Failure, Job};
use super::hint;
use super::mapping::{Mapping, Refusal, Table, quote};
use super::plan::refuse_full_scan;
use super::statements::Statements;
use super::values::cells;
use besom_ports::store::Error;
use besom_tables::room::Room;

/// A refusal is the caller's fault, on any attempt, unless it is that of the mapping.
pub(super) fn invalid(refusal: impl Into<Refusal>) -> Failure {
    match refusal.into() {
        Refusal::Said(said) => Failure::Port(Error::Invalid(said)),
        Refusal::Unlike(unlike) => Failure::Unlike(unlike),
    }
}

/// The named columns, quoted, with their definitions.
pub(super) fn selected(
    table: &Table,
    columns: &[String],
) -> Job<(String, Vec<besom_core::collection::Column>)> {
    let kinds = columns.iter().map(|c| table.form(c).copied()).collect::<Result<Vec<_>, _>>();
    let names: Vec<_> = columns.iter().map(|c| quote(c)).collect();
    Ok((names.join(", "), kinds.map_err(invalid)?))
}

/// Rows by key.
pub(super) fn get_many(
    conn: &Connection,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    collection: &str,
    keys: &[RowKey],
    columns: &[String],
    mut room: Room,
) -> Job<Vec<Option<Row>>> {
    let table = mapping.table(collection).map_err(invalid)?;
    let (names, kinds) = selected(table, columns)?;
    let names = if names.is_empty() { "1".to_owned() } else { names };
    let mut found = Vec::with_capacity(keys.len());
    // The keys differ only in their values, so all of them use one statement.
    let (mut sql, mut statement) = (String::new(), None);
    for key in keys {
        let mut text = format!("SELECT {names} FROM {} WHERE ", table.name);
        let mut params = Vec::new();
        if tenant.is_none() && table.tenant().is_some() {
            table.collection.require_key(key.len()).map_err(invalid)?;
            text.push('1');
            table.push_equal(key.iter(), &mut text, &mut params).map_err(invalid)?;
        } else {
            table.push_key(tenant, key.iter(), &mut text, &mut params).map_err(invalid)?;
        }
        let statement = match &mut statement {
            Some(prepared) if text == sql => prepared,
            other => {
                refuse_full_scan(conn, table, &text, &params)?;
                sql = text;
                other.insert(conn.prepare_cached(&sql)?)
            }
        };
        let mut rows = statement.query(params_from_iter(params.iter()))?;
        found.push(match rows.next()? {
            None => None,
            Some(row) => {
                room.take(weight(row, kinds.len())?)?;
                let values = cells(row, 0, kinds.iter())?;
                table.refuse_unlike(conn, columns, &kinds, &values)?;
                Some(values)
            }
        });
        // Which of them is meant cannot be known.
        if found.last().is_some_and(Option::is_some) && rows.next()?.is_some() {
            return Err(invalid(table.collection.ambiguous()));
        }
    }
    Ok(found)
}

/// The size of the first cells of a row, before they are copied.
pub(super) fn weight(row: &rusqlite::Row<'_>, cells: usize) -> rusqlite::Result<usize> {
    let of = |at| {
        Ok(match row.get_ref(at)? {
            ValueRef::Null => 1,
            ValueRef::Integer(_) | ValueRef::Real(_) => 8,
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len().max(1),
        })
    };
    (0..cells).map(of).sum()
}

/// The number of rows that match all conditions, up to a limit.
pub(super) fn count(
    conn: &Connection,
    mapping: &Mapping,
    tenant: Option<&Tenant>,
    collection: &str,
    conditions: &[Condition],
    limit: u32,
) -> Job<u32> {
    let table = mapping.table(collection).map_err(invalid)?;
    let hint = hint::of_question(conn, table, tenant.is_some(), conditions)?;
    let mut sql = format!("SELECT 1 FROM {}{hint} WHERE ", table.name);
    let mut params = Vec::new();
    if tenant.is_none() {
        sql.push('1');
    } else {
        table.push_tenant(tenant, &mut sql, &mut params).map_err(invalid)?;
    }
    table.push_terms(conditions, &mut sql, &mut params).map_err(invalid)?;
    sql.push_str(" LIMIT ?");
    params.push(i64::from(limit).into());
    // Without any condition the first rows answer, however they are found.
    if !(conditions.is_empty() && params.len() == 1) {
        refuse_full_scan(conn, table, &sql, &params)?;
    }
    let sql = format!("SELECT count(*) FROM ({sql})");
    Ok(conn.one(&sql, params_from_iter(params.iter()), |row| row.get(0))?)
}
