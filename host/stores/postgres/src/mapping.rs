//! Collections as SQL: values in the forms of their columns. The forms need the catalog, so the
//! first job that uses a mapping completes it.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use besom_core::collection::{Collection, Collections, Column, named};
use besom_core::ids::Tenant;
use besom_core::value::Value;

use super::catalog::{TableFound, tables};
use super::error::Job;
use super::session::Session;
use super::values::{Cell, Form};
use super::whole::Whole;
use besom_tables::Dialect;
use besom_tables::encoding::Round;
use besom_tables::mapping::Mapped;
pub(super) use besom_tables::mapping::quote;

/// How PostgreSQL differs from other databases.
pub(super) const DIALECT: Dialect = Dialect {
    folds_names: false,
    names_indexes: false,
    builds_concurrently: true,
    nulls_first: false,
};

/// The same about a partitioned table, of which no index is built concurrently.
pub(super) const PARTITIONED: Dialect = Dialect { builds_concurrently: false, ..DIALECT };

/// How long a table whose units were found to be those of the mapping is not looked at again.
const UNITS_FOR: Duration = Duration::from_secs(10);

/// Why something cannot be read or changed: a name that is not mapped, a value of another kind.
pub(super) type Refusal = String;

/// A collection with the SQL that is the same for every use, and what the catalog says of its table.
pub(super) struct Table {
    mapped: Mapped<Form>,
    /// None: the table does not exist.
    pub(super) found: Option<TableFound>,
    /// How its rows are kept.
    pub(super) whole: Whole,
    /// When the units of its instants were found to be those of the mapping.
    units: Mutex<Option<Instant>>,
}

impl Deref for Table {
    type Target = Mapped<Form>;

    fn deref(&self) -> &Mapped<Form> {
        &self.mapped
    }
}

/// All collections.
pub(super) struct Mapping {
    tables: BTreeMap<String, Arc<Table>>,
}

impl Mapping {
    /// The collections with the forms of their columns.
    pub(super) async fn complete(session: &Session, collections: &Collections) -> Job<Mapping> {
        let names: Vec<String> = collections.values().map(|c| qualified(&c.table)).collect();
        let mut found = tables(session, &names).await?;
        let tables = collections
            .iter()
            .map(|(name, c)| {
                let table = Table::new(c, found.remove(&qualified(&c.table)));
                (name.clone(), Arc::new(table))
            })
            .collect();
        Ok(Mapping { tables })
    }

    pub(super) fn table(&self, collection: &str) -> Result<&Arc<Table>, Refusal> {
        named(&self.tables, collection)
    }

    /// Whether rows go before those of a table to which they refer by these columns, as its dependants. `of` is the oid
    /// of the table that has the columns.
    pub(super) fn go_first(&self, table: &Table, of: u32, columns: &[&str]) -> bool {
        let dependants = table.collection.dependants.iter();
        dependants.filter_map(|name| self.table(name).ok()).any(|other| {
            other.found.as_ref().is_some_and(|found| found.oid == of)
                && other.collection.anchors_by(&table.collection.name, columns, |a, b| a == b)
        })
    }
}

/// A table's name, quoted; a dot separates the schema from it.
pub(super) fn qualified(name: &str) -> String {
    name.split('.').map(quote).collect::<Vec<_>>().join(".")
}

impl Table {
    fn new(collection: &Collection, found: Option<TableFound>) -> Table {
        let form = |name: &str, column: Column| match found.as_ref().and_then(|t| t.column(name)) {
            Some(of) => Form::of(column.kind, column.encoding, &of.ty, &of.full),
            None => Form::unknown(column.kind, column.encoding),
        };
        // A trigger may change the search path of its session.
        let name = match &found {
            Some(found) => found.name.clone(),
            None => qualified(&collection.table),
        };
        let units = Mutex::default();
        let whole = found.as_ref().map(Whole::of).unwrap_or_default();
        let mut mapped = Mapped::new(collection, name, form);
        mapped.declared = found.as_ref().map(|_| whole.digest());
        Table { mapped, found, whole, units }
    }

    /// Whether the units of its instants were found to be those of the mapping a moment ago.
    pub(super) fn has_known_units(&self) -> bool {
        let units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        units.is_some_and(|at| at.elapsed() < UNITS_FOR)
    }

    /// See [`Table::has_known_units`].
    pub(super) fn note_units(&self) {
        *self.units.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// A value as the column stores it.
    pub(super) fn cell(&self, name: &str, value: &Value, round: Round) -> Result<Cell, Refusal> {
        self.form(name)?
            .encode(value, round)
            .map_err(|e| format!("{}.{name}: {e}", self.collection.name))
    }

    /// A value to write: of a mapped column, never the tenant's.
    pub(super) fn written(&self, name: &str, value: &Value) -> Result<Cell, Refusal> {
        self.written_form(name)?;
        self.cell(name, value, Round::Down)
    }

    /// The tenant as its column stores it; none if the table has no tenants. Otherwise a tenant is
    /// required.
    pub(super) fn tenant_cell(&self, tenant: Option<&Tenant>) -> Result<Option<Cell>, Refusal> {
        let given = self.given_tenant(tenant)?;
        Ok(given.map(|tenant| Cell::Text(tenant.as_str().to_owned())))
    }

    /// The values that identify one row: the tenant, then the key.
    pub(super) fn key_cells(
        &self,
        tenant: Option<&Tenant>,
        key: &[Value],
    ) -> Result<Vec<Cell>, Refusal> {
        self.collection.require_key(key.len())?;
        let mut cells: Vec<Cell> = self.tenant_cell(tenant)?.into_iter().collect();
        for (name, value) in self.collection.key.iter().zip(key) {
            cells.push(self.cell(name, value, Round::Down)?);
        }
        Ok(cells)
    }

    /// The columns that [`Table::key_cells`] has values for, quoted, with their forms.
    pub(super) fn key_columns(&self) -> Result<Vec<(String, Form)>, Refusal> {
        let mut columns: Vec<(String, Form)> = self.tenant.iter().cloned().collect();
        for name in &self.collection.key {
            columns.push((quote(name), self.form(name)?.clone()));
        }
        Ok(columns)
    }

    /// Whether nothing goes with its rows and no trigger keeps one: the rows that a statement does not delete are
    /// those that others hold.
    pub(super) fn is_plain(&self) -> bool {
        self.collection.dependants.is_empty()
            && !self.found.as_ref().is_some_and(|found| found.keeps_rows)
    }

    /// Whether its rows are in several tables: partitions, or tables that inherit from it.
    pub(super) fn is_several(&self) -> bool {
        self.found.as_ref().is_some_and(|found| found.kind == "p" || found.inherited)
    }

    /// Whether a column may hold NULL, as far as it is known.
    pub(super) fn nullable(&self, name: &str) -> bool {
        let column = self.found.as_ref().and_then(|found| found.column(name));
        column.is_none_or(|column| column.nullable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_separates_the_schema() {
        assert_eq!(qualified("app.docs"), r#""app"."docs""#);
    }

    #[test]
    fn a_row_of_a_table_with_tenants_needs_a_tenant() {
        let table = Table::new(&besom_product::model::default_collections()["documents"], None);
        let key = [Value::Text("d".into())];
        assert!(table.key_cells(None, &key).is_err());
        assert_eq!(table.key_cells(Some(&Tenant::from("t")), &key).unwrap().len(), 2);
        assert!(table.key_cells(Some(&Tenant::from("t")), &[]).is_err());
    }
}
