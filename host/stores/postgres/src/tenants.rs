//! Skip scans: the tenants of a table without reading their rows.

use besom_core::ids::Tenant;
use besom_core::value::Value;

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::lookup::looked_at;
use super::mapping::{Table, quote};
use super::plan::refuse_full_scan;
use super::session::{Param, Pipeline, only};
use super::snapshot::View;
use super::values::{Cell, Form};
use besom_ports::store::Range;
use besom_record::encoding::Round;

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
    let Some((column, form)) = &table.tenant else {
        return Err(invalid(format!("the collection {:?} has no tenants", range.collection)));
    };
    let mut params: Vec<Param<'_>> = vec![Box::new(i64::from(limit))];
    let beyond = match after {
        Some(after) => {
            params.push(Box::new(Cell::Text(after.as_str().to_owned())));
            format!("t.{column} > {}", form.meets("$2::text"))
        }
        None => format!("t.{column} IS NOT NULL"),
    };
    let matches = in_range(table, range, &mut params)?;
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
           AND (SELECT true FROM {name} t WHERE t.{column} = w.tenant AND {matches} LIMIT 1)
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
    let row = view.session.row(&sql, params).await?;
    Ok(row.map(|row| row.try_get::<_, String>(0)).transpose()?.map(Tenant::from))
}

/// The columns of the index of a range.
pub(super) fn index_columns<'t>(table: &'t Table, range: &Range) -> Job<&'t [String]> {
    table.collection.index_columns(range.index.as_deref()).ok_or_else(|| {
        let known: Vec<_> = table.collection.indexes.keys().cloned().collect();
        invalid(format!(
            "the collection {:?} has no index {:?}; it has: {}",
            range.collection,
            range.index.as_deref().unwrap_or_default(),
            known.join(", ")
        ))
    })
}

/// The prefix, the bounds and the conditions of a range as SQL over `t`.
pub(super) fn in_range(table: &Table, range: &Range, params: &mut Vec<Param<'_>>) -> Job<String> {
    let index = index_columns(table, range)?;
    let mut parts = bounds(table, range, index, params)?;
    let of = Conditions::of(table, &range.conditions).map_err(invalid)?;
    let behind = params.len() + 1;
    let rest = of.sql(|place| format!("${}::{}", behind + place, of.wires[place].sql()));
    params.extend(of.cells.into_iter().map(|cell| Box::new(cell) as Param<'_>));
    parts.push(format!("true{rest}"));
    Ok(parts.join(" AND "))
}

/// The prefix and the bounds of a range, each as one condition.
pub(super) fn bounds(
    table: &Table,
    range: &Range,
    index: &[String],
    params: &mut Vec<Param<'_>>,
) -> Job<Vec<String>> {
    let mut parts = Vec::new();
    let mut add = |name: &String, value: &Value, operator: Option<&str>, round| -> Job<()> {
        let form = table.form(name).map_err(invalid)?;
        let column = format!("t.{}", quote(name));
        if *value == Value::Null {
            parts.push(match operator {
                None => format!("{column} IS NULL"),
                Some(_) => "false".to_owned(),
            });
            return Ok(());
        }
        params.push(Box::new(table.cell(name, value, round).map_err(invalid)?));
        let given = format!("${}::{}", params.len(), form.wire.sql());
        parts.push(match operator {
            None => form.equals(&column, &given),
            Some(operator) => format!("{column} {operator} {}", form.meets(&given)),
        });
        Ok(())
    };
    for (name, value) in index.iter().zip(&range.prefix) {
        add(name, value, None, Round::Down)?;
    }
    if let Some(bounded) = index.get(range.prefix.len()) {
        if let Some(lower) = &range.lower {
            add(bounded, lower, Some(">="), Round::Up)?;
        }
        if let Some(upper) = &range.upper {
            add(bounded, upper, Some("<="), Round::Down)?;
        }
    }
    Ok(parts)
}

/// The form of a column, for an order.
pub(super) fn form_of<'t>(table: &'t Table, name: &str) -> Job<&'t Form> {
    table.form(name).map_err(invalid)
}
