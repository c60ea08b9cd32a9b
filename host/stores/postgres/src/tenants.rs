//! Skip scans: the tenants of a table without reading their rows.

use besom_core::ids::Tenant;

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::lookup::looked_at;
use super::mapping::Table;
use super::plan::refuse_full_scan;
use super::session::{Param, Pipeline, cell, only};
use super::snapshot::View;
use super::values::Cell;
use besom_ports::store::Range;
use besom_tables::conditions::of_range;

/// Tenants after `after`, in order, with at least one row in the range.
///
/// One statement walks from tenant to tenant, one seek each, and checks each for a row: the number
/// of round trips does not grow with the tenants that have none.
///
/// The order is that of the walk. The check for a row is a separate subquery, which the planner
/// evaluates for each tenant as the walk reaches it. An `EXISTS` would become a join, in an
/// arbitrary order when statistics are missing; an `ORDER BY` would check all tenants before the
/// first is returned.
pub(super) async fn tenants(
    view: &View<'_>,
    range: &Range,
    after: Option<&Tenant>,
    limit: u32,
) -> Job<Vec<Tenant>> {
    let table = view.mapping.table(&range.collection).map_err(invalid)?;
    let (column, form) = table.tenants().map_err(invalid)?;
    let mut params: Vec<Param<'_>> = vec![Box::new(i64::from(limit))];
    let beyond = match after {
        Some(after) => {
            params.push(Box::new(Cell::Text(after.as_str().to_owned())));
            format!("t.{column} > {}", form.meets("$2::text"))
        }
        None => format!("t.{column} IS NOT NULL"),
    };
    let index = table.index(range).map_err(invalid)?;
    let matches = Conditions::of(table, of_range(range, index)).map_err(invalid)?;
    let matches = matches.numbered(&mut params);
    let name = &table.name;
    let first =
        format!("SELECT t.{column} AS tenant FROM {name} t WHERE {beyond} ORDER BY 1 LIMIT 1");
    let next = format!(
        "SELECT (SELECT t.{column} FROM {name} t WHERE t.{column} > w.tenant
                 ORDER BY t.{column} LIMIT 1)
         FROM walk w WHERE w.tenant IS NOT NULL"
    );
    let sql = format!(
        "WITH RECURSIVE walk(tenant) AS (({first}) UNION ALL {next})
         SELECT {} FROM walk w WHERE w.tenant IS NOT NULL
           AND (SELECT true FROM {name} t WHERE t.{column} = w.tenant {matches} LIMIT 1)
         LIMIT $1",
        form.read("w.tenant")
    );
    // The first tenant is at the end of the index; from there on the plan has to seek.
    if after.is_some() {
        refuse_full_scan(view.session, view.good, table, &sql, &params).await?;
    }
    let looked = format!("SELECT {}", looked_at(table));
    let mut pipeline = Pipeline::default();
    let before = pipeline.push(looked.as_str(), Vec::new());
    let asked = pipeline.push(sql, params);
    let after = pipeline.push(looked, Vec::new());
    let answers = view.session.run(pipeline).await?;
    view.look(only::<i64>(&answers[after])? - only::<i64>(&answers[before])?);
    let rows = &answers[asked];
    rows.iter().map(|row| Ok(Tenant::from(row.try_get::<_, String>(0)?))).collect()
}

/// The tenant after (or before) another: one seek.
pub(super) async fn next_tenant(
    view: &View<'_>,
    table: &Table,
    after: Option<&Tenant>,
    descending: bool,
) -> Job<Option<Tenant>> {
    let Some((column, form)) = &table.tenant else { return Ok(None) };
    let (operator, direction) = if descending { ('<', " DESC") } else { ('>', "") };
    let mut params: Vec<Param<'_>> = Vec::new();
    let beyond = match after {
        Some(after) => {
            params.push(Box::new(Cell::Text(after.as_str().to_owned())));
            format!("t.{column} {operator} {}", form.meets("$1::text"))
        }
        None => format!("t.{column} IS NOT NULL"),
    };
    let sql = format!(
        "SELECT {} FROM {} t WHERE {beyond} ORDER BY t.{column}{direction} LIMIT 1",
        form.read(&format!("t.{column}")),
        table.name
    );
    if after.is_some() {
        refuse_full_scan(view.session, view.good, table, &sql, &params).await?;
    }
    let found: Option<String> = view.session.maybe(&sql, params, cell).await?;
    Ok(found.map(Tenant::from))
}
