//! Collections as SQL: quoted names, and values in the forms of their columns.
//!
//! A plugin's names never reach the database; only names that the mapping contains do, quoted. The
//! forms need the catalog, so the first job that uses a mapping completes it.

use std::collections::BTreeMap;
use std::sync::Arc;

use besom_core::collection::{Collection, Collections, Encoding, named};
use besom_core::ids::Tenant;
use besom_core::value::{Kind, Value};

use super::catalog::{TableFound, tables};
use super::error::Job;
use super::session::Session;
use super::values::{Cell, Form};
use besom_record::encoding::Round;
use besom_record::images::Origin;

/// Why something cannot be read or changed: a name that is not mapped, a value of another kind.
pub(super) type Refusal = String;

/// A collection with the SQL that is the same for every use.
pub(super) struct Table {
    /// The definition.
    pub(super) collection: Collection,
    /// The quoted name of the table.
    pub(super) name: String,
    /// Every mapped column, in the order of their names.
    pub(super) columns: Vec<(String, Form)>,
    /// The tenant column, quoted, and its form.
    pub(super) tenant: Option<(String, Form)>,
    /// The catalog's information; none: the table does not exist.
    pub(super) found: Option<TableFound>,
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
}

/// An identifier, quoted.
pub(super) fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table's name, quoted; a dot separates the schema from it.
pub(super) fn qualified(name: &str) -> String {
    name.split('.').map(quote).collect::<Vec<_>>().join(".")
}

impl Table {
    fn new(collection: &Collection, found: Option<TableFound>) -> Table {
        let form = |name: &str, kind: Kind, encoding: Encoding| match found
            .as_ref()
            .and_then(|table| table.column(name))
        {
            Some(column) => Form::of(kind, encoding, &column.ty, &column.full),
            None => Form::unknown(kind, encoding),
        };
        Table {
            name: qualified(&collection.table),
            columns: collection
                .columns
                .iter()
                .map(|(name, c)| (name.clone(), form(name, c.kind, c.encoding)))
                .collect(),
            tenant: collection
                .tenant
                .as_deref()
                .map(|name| (quote(name), form(name, Kind::Text, Encoding::Native))),
            collection: collection.clone(),
            found,
        }
    }

    /// The origin of before-images of its rows.
    pub(super) fn origin<'a>(&'a self, tenant: Option<&'a Tenant>) -> Origin<'a> {
        Origin {
            collection: &self.collection.name,
            tenant: tenant.filter(|_| self.tenant.is_some()),
            key: &self.collection.key,
        }
    }

    /// The form of a mapped column.
    pub(super) fn form(&self, name: &str) -> Result<&Form, Refusal> {
        let at = self.columns.binary_search_by(|(column, _)| column.as_str().cmp(name));
        match (at, &self.tenant) {
            (Ok(at), _) => Ok(&self.columns[at].1),
            // The tenant column can be read as text.
            (Err(_), Some((_, form))) if self.collection.tenant.as_deref() == Some(name) => {
                Ok(form)
            }
            _ => Err(self.collection.lacks(name)),
        }
    }

    /// A value as the column stores it.
    pub(super) fn cell(&self, name: &str, value: &Value, round: Round) -> Result<Cell, Refusal> {
        self.form(name)?
            .encode(value, round)
            .map_err(|e| format!("{}.{name}: {e}", self.collection.name))
    }

    /// A value to write: of a mapped column, never the tenant's.
    pub(super) fn written(&self, name: &str, value: &Value) -> Result<Cell, Refusal> {
        self.collection.column_to_write(name)?;
        self.cell(name, value, Round::Down)
    }

    /// The tenant as its column stores it; none if the table has no tenants. Otherwise a tenant is
    /// required.
    pub(super) fn tenant_cell(&self, tenant: Option<&Tenant>) -> Result<Option<Cell>, Refusal> {
        self.collection.require_tenant(tenant.is_some())?;
        let tenant = tenant.filter(|_| self.tenant.is_some());
        Ok(tenant.map(|tenant| Cell::Text(tenant.as_str().to_owned())))
    }

    /// The values that identify one row: the tenant, then the key.
    pub(super) fn key_cells(
        &self,
        tenant: Option<&Tenant>,
        key: &[Value],
    ) -> Result<Vec<Cell>, Refusal> {
        let columns = &self.collection.key;
        self.collection.require_key(key.len())?;
        let mut cells: Vec<Cell> = self.tenant_cell(tenant)?.into_iter().collect();
        for (name, value) in columns.iter().zip(key) {
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

    /// Every mapped column as it is read, from the alias `t`.
    pub(super) fn read_all(&self) -> String {
        let read = |(name, form): &(String, Form)| form.read(&format!("t.{}", quote(name)));
        self.columns.iter().map(read).collect::<Vec<_>>().join(", ")
    }

    /// Whether a column may hold NULL, as far as it is known.
    pub(super) fn nullable(&self, name: &str) -> bool {
        let column = self.found.as_ref().and_then(|found| found.column(name));
        column.is_none_or(|column| column.nullable)
    }

    /// The names of its mapped columns, in their order.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.columns.iter().map(|(name, _)| name)
    }

    /// The mapped columns of a row, from a column on, in the order of their names.
    pub(super) fn values(
        &self,
        row: &tokio_postgres::Row,
        from: usize,
    ) -> Result<Vec<Value>, tokio_postgres::Error> {
        let value = |(i, (_, form)): (usize, &(String, Form))| form.value_in(row, from + i);
        self.columns.iter().enumerate().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_quotes_stays_one_identifier() {
        assert_eq!(quote(r#"a"; DROP TABLE b; --"#), r#""a""; DROP TABLE b; --""#);
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
