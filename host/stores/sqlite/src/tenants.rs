//! Skip scans: the tenants of a table without reading their rows.

use besom_core::ids::Tenant;
use rusqlite::{Connection, params_from_iter};

use super::error::Job;
use super::lookup::invalid;
use super::mapping::{Mapping, Table, text};
use super::plan::refuse_full_scan;
use super::statements::Statements;
use besom_ports::store::Range;
use besom_tables::conditions::of_range;

/// Tenants after `after`, in order, with at least one row in the range.
pub(super) fn tenants(
    conn: &Connection,
    mapping: &Mapping,
    range: &Range,
    after: Option<&Tenant>,
    limit: u32,
) -> Job<Vec<Tenant>> {
    let table = mapping.table(&range.collection).map_err(invalid)?;
    table.tenants().map_err(invalid)?;
    let mut found = Vec::new();
    let mut current = next_tenant(conn, table, after, false)?;
    while let Some(tenant) = current {
        if found.len() >= limit as usize {
            break;
        }
        if has_row(conn, table, range, &tenant)? {
            found.push(tenant.clone());
        }
        current = next_tenant(conn, table, Some(&tenant), false)?;
    }
    Ok(found)
}

/// The tenant after (or before) another: one seek.
pub(super) fn next_tenant(
    conn: &Connection,
    table: &Table,
    after: Option<&Tenant>,
    descending: bool,
) -> Job<Option<Tenant>> {
    let Some(column) = table.tenant() else { return Ok(None) };
    let (operator, direction) = if descending { ('<', " DESC") } else { ('>', "") };
    let mut params = Vec::new();
    let mut sql = format!("SELECT CAST({column} AS TEXT) FROM {} WHERE ", table.name);
    match after {
        Some(after) => {
            sql.push_str(&format!("{column} {operator} ?"));
            params.push(text(after.as_str()));
        }
        None => sql.push_str(&format!("{column} IS NOT NULL")),
    }
    sql.push_str(&format!(" ORDER BY {column}{direction} LIMIT 1"));
    // The first tenant is at the end of the index; from there on the plan has to seek.
    if after.is_some() {
        refuse_full_scan(conn, table, &sql, &params)?;
    }
    let found: Option<String> = conn.first(&sql, params_from_iter(params.iter()), |r| r.get(0))?;
    Ok(found.map(Tenant::from))
}

fn has_row(conn: &Connection, table: &Table, range: &Range, tenant: &Tenant) -> Job<bool> {
    let index = table.index(range).map_err(invalid)?;
    let mut sql = format!("SELECT 1 FROM {} WHERE ", table.name);
    let mut params = Vec::new();
    table.push_tenant(Some(tenant), &mut sql, &mut params).map_err(invalid)?;
    table.push_terms(of_range(range, index), &mut sql, &mut params).map_err(invalid)?;
    sql.push_str(" LIMIT 1");
    refuse_full_scan(conn, table, &sql, &params)?;
    Ok(conn.exists(&sql, params_from_iter(params.iter()))?)
}
