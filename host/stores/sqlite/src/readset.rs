//! Read sets as SQL.

use besom_core::ids::Tenant;
use besom_core::proposal::ReadSet;
use rusqlite::params_from_iter;
use rusqlite::types::ToSqlOutput;

use super::effects::{Effects, Stop};
use super::mapping::{Params, Table, push_quoted};
use super::statements::Statements;
use besom_record::kept;
use besom_tables::readset::{Shape, shape};

/// ` tenant = ? AND prefix = ? AND last BETWEEN ? AND ?`
fn push_run<'v>(
    table: &Table,
    tenant: Option<&'v Tenant>,
    set: &'v ReadSet,
    (from, to): (i64, i64),
    sql: &mut String,
    params: &mut Params<'v>,
) -> Result<(), Stop> {
    table.push_tenant(tenant, sql, params)?;
    table.push_equal(set.prefix.iter(), sql, params)?;
    sql.push_str(" AND ");
    push_quoted(table.collection.key.last().map_or("", String::as_str), sql);
    sql.push_str(" BETWEEN ? AND ?");
    params.push(ToSqlOutput::from(from));
    params.push(ToSqlOutput::from(to));
    Ok(())
}

impl Effects<'_> {
    /// Whether every row of the set still exists.
    pub(super) fn complete(&self, set: &ReadSet) -> Result<bool, Stop> {
        let table = self.mapping.table(&set.collection)?;
        match shape(&table.collection, set) {
            Shape::Runs(runs) => {
                for (from, to) in runs {
                    let mut sql = format!("SELECT count(*) FROM {} WHERE ", table.name);
                    let mut params = Vec::new();
                    push_run(table, self.tenant, set, (from, to), &mut sql, &mut params)?;
                    let found: i64 =
                        self.conn.one(&sql, params_from_iter(params.iter()), |r| r.get(0))?;
                    if found != to - from + 1 {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            Shape::Keys => {
                for key in set.keys() {
                    let mut sql = format!("SELECT 1 FROM {} WHERE ", table.name);
                    let mut params = Vec::new();
                    table.push_key(self.tenant, key.iter(), &mut sql, &mut params)?;
                    if !self.conn.exists(&sql, params_from_iter(params.iter()))? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// Deletes exactly the rows of the set, and keeps their images. A row that the database keeps (a
    /// trigger may) is a violation: what replaces the set would stand beside it.
    pub(super) fn delete_read_set(&mut self, set: &ReadSet) -> Result<(), Stop> {
        let mapping = self.mapping;
        let table = mapping.table(&set.collection)?;
        match shape(&table.collection, set) {
            Shape::Runs(runs) => {
                for run in runs {
                    let (mut condition, mut params) = (String::new(), Vec::new());
                    push_run(table, self.tenant, set, run, &mut condition, &mut params)?;
                    self.delete_all(table, &condition, &params)?;
                }
            }
            Shape::Keys => {
                for key in set.keys() {
                    let (mut condition, mut params) = (String::new(), Vec::new());
                    table.push_key(self.tenant, key.iter(), &mut condition, &mut params)?;
                    self.delete_all(table, &condition, &params)?;
                }
            }
        }
        Ok(())
    }

    /// Deletes the rows of a condition, and makes sure that none is left.
    fn delete_all(
        &mut self,
        table: &Table,
        condition: &str,
        params: &Params<'_>,
    ) -> Result<(), Stop> {
        self.delete_where(table, condition, params)?;
        let sql = format!("SELECT 1 FROM {} WHERE {condition} LIMIT 1", table.name);
        match self.conn.exists(&sql, params_from_iter(params.iter()))? {
            true => Err(Stop::Violation(kept(&table.collection.name))),
            false => Ok(()),
        }
    }
}
