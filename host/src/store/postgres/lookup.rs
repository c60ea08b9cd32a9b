//! Reads by key and by conditions.

use besom_core::ids::Tenant;
use besom_core::proposal::Condition;
use besom_core::value::{Row, RowKey};

use super::conditions::Conditions;
use super::error::{Job, invalid};
use super::guards::matched;
use super::mapping::{Refusal, Table, quote};
use super::plan::refuse_full_scan;
use super::session::Param;
use super::set::Set;
use super::snapshot::View;
use super::values::{Cell, Form};
use crate::store::record::encoding::Round;

/// The named columns as they are read, and their forms.
pub(super) fn selected(
    table: &Table,
    columns: &[String],
) -> Result<(Vec<String>, Vec<Form>), Refusal> {
    let (mut read, mut forms) = (Vec::new(), Vec::new());
    for name in columns {
        let form = table.form(name)?;
        read.push(form.read(&format!("t.{}", quote(name))));
        forms.push(form.clone());
    }
    Ok((read, forms))
}

/// Rows by key.
pub(super) async fn get_many(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    collection: &str,
    keys: &[RowKey],
    columns: &[String],
) -> Job<Vec<Option<Row>>> {
    let table = view.mapping.table(collection).map_err(invalid)?;
    let (mut read, forms) = selected(table, columns).map_err(invalid)?;
    // Without a tenant the key alone finds the row, in whichever tenant it is.
    let mut by = table.key_columns().map_err(invalid)?;
    let everybody = tenant.is_none() && table.tenant.is_some();
    if everybody {
        by.remove(0);
    }
    let mut set = Set::new(by.iter().map(|(_, form)| form.wire).collect());
    for (at, key) in keys.iter().enumerate() {
        let cells = if everybody { plain_key(table, key) } else { table.key_cells(tenant, key) };
        set.push(at, cells.map_err(invalid)?);
    }
    let mut found: Vec<Option<Row>> = vec![None; keys.len()];
    if keys.is_empty() {
        return Ok(found);
    }
    read.insert(0, "u.i".to_owned());
    let sql = format!(
        "SELECT {} FROM {} JOIN {} t ON {}",
        read.join(", "),
        set.sql(1),
        table.name,
        matched(&by)
    );
    let params = set.params();
    refuse_full_scan(view.session, view.good, table, &sql, &params).await?;
    for row in view.session.query(&sql, params).await? {
        let at = row.try_get::<_, i32>(0)? as usize;
        let value = |(i, form): (usize, &Form)| form.value_in(&row, i + 1);
        found[at] = Some(forms.iter().enumerate().map(value).collect::<Result<Row, _>>()?);
    }
    Ok(found)
}

fn plain_key(table: &Table, key: &RowKey) -> Result<Vec<Cell>, Refusal> {
    let columns = &table.collection.key;
    if key.len() != columns.len() {
        return Err(format!("the key of {:?} is incomplete", table.collection.name));
    }
    columns.iter().zip(key).map(|(name, value)| table.cell(name, value, Round::Down)).collect()
}

/// Whether a row matches all conditions.
pub(super) async fn exists(
    view: &View<'_>,
    tenant: Option<&Tenant>,
    collection: &str,
    conditions: &[Condition],
) -> Job<bool> {
    let table = view.mapping.table(collection).map_err(invalid)?;
    let mut sql = format!("SELECT 1 FROM {} t WHERE ", table.name);
    let mut params: Vec<Param<'_>> = Vec::new();
    match (tenant, &table.tenant) {
        (Some(tenant), Some((name, form))) => {
            params.push(Box::new(Cell::Text(tenant.as_str().to_owned())));
            sql.push_str(&form.equals(&format!("t.{name}"), "$1::text"));
        }
        _ => sql.push_str("true"),
    }
    let of = Conditions::of(table, conditions).map_err(invalid)?;
    let behind = params.len() + 1;
    sql.push_str(&of.sql(|place| format!("${}::{}", behind + place, of.wires[place].sql())));
    params.extend(of.cells.into_iter().map(|cell| Box::new(cell) as Param<'_>));
    sql.push_str(" LIMIT 1");
    // Without any condition the first row answers, however it is found.
    if !(conditions.is_empty() && params.is_empty()) {
        refuse_full_scan(view.session, view.good, table, &sql, &params).await?;
    }
    Ok(view.session.row(&sql, params).await?.is_some())
}
