//! A collection as a table: its quoted names, and the form in which each column stores values.
//!
//! A plugin's names never reach the database; only names that the mapping contains do, quoted.

use besom_core::collection::{Collection, Column};
use besom_core::ids::Tenant;
use besom_ports::store::Range;
use besom_record::images::Origin;

/// A collection with the SQL that is the same for every use.
pub struct Mapped<F> {
    /// The definition.
    pub collection: Collection,
    /// The quoted name of the table.
    pub name: String,
    /// Every mapped column, in the order of their names.
    pub columns: Vec<(String, F)>,
    /// The tenant column, quoted, and its form.
    pub tenant: Option<(String, F)>,
    /// See [`Origin::declared`].
    pub declared: Option<u64>,
}

/// An index of the mapping.
#[derive(Clone, Copy, Debug)]
pub struct Order<'a> {
    /// Its columns.
    pub columns: &'a [String],
    /// The columns that are not NULL in its rows: every read by it says so, so that the database can use an index
    /// that contains no others.
    pub not_null: &'a [String],
}

/// An identifier, quoted.
pub fn quote(name: &str) -> String {
    let mut sql = String::with_capacity(name.len() + 2);
    push_quoted(name, &mut sql);
    sql
}

/// Like [`quote`], appended to `sql`.
pub fn push_quoted(name: &str, sql: &mut String) {
    sql.push('"');
    for (i, part) in name.split('"').enumerate() {
        if i > 0 {
            sql.push_str("\"\"");
        }
        sql.push_str(part);
    }
    sql.push('"');
}

impl<F> Mapped<F> {
    /// A table with its quoted name and the forms of its columns.
    pub fn new(
        collection: &Collection,
        name: String,
        form: impl Fn(&str, Column) -> F,
    ) -> Mapped<F> {
        let of = |(name, column): (&String, &Column)| (name.clone(), form(name, *column));
        Mapped {
            name,
            columns: collection.columns.iter().map(of).collect(),
            tenant: collection
                .tenant
                .as_deref()
                .map(|name| (quote(name), form(name, Collection::TENANT))),
            collection: collection.clone(),
            declared: None,
        }
    }

    /// The origin of before-images of its rows.
    pub fn origin<'a>(&'a self, tenant: Option<&'a Tenant>) -> Origin<'a> {
        Origin {
            collection: &self.collection.name,
            tenant: tenant.filter(|_| self.tenant.is_some()),
            key: &self.collection.key,
            columns: &self.collection.columns,
            declared: self.declared,
        }
    }

    /// The form of a column that can be read: a mapped one, or the tenant's.
    ///
    /// # Errors
    /// A refusal if there is no such column.
    pub fn form(&self, name: &str) -> Result<&F, String> {
        match (self.written_form(name), &self.tenant) {
            (Err(_), Some((_, form))) if self.collection.tenant.as_deref() == Some(name) => {
                Ok(form)
            }
            (found, _) => found,
        }
    }

    /// The form of a column that can be written: a mapped one.
    ///
    /// # Errors
    /// See [`Mapped::form`].
    pub fn written_form(&self, name: &str) -> Result<&F, String> {
        match self.columns.binary_search_by(|(column, _)| column.as_str().cmp(name)) {
            Ok(at) => Ok(&self.columns[at].1),
            Err(_) => Err(self.collection.lacks(name)),
        }
    }

    /// The tenant whose rows are meant; none if the table has no tenants.
    ///
    /// # Errors
    /// A refusal if the table has tenants and none is given.
    pub fn given_tenant<'t>(
        &self,
        tenant: Option<&'t Tenant>,
    ) -> Result<Option<&'t Tenant>, String> {
        self.collection.require_tenant(tenant.is_some())?;
        Ok(tenant.filter(|_| self.tenant.is_some()))
    }

    /// The quoted tenant column, and its form.
    ///
    /// # Errors
    /// A refusal if the table has no tenants.
    pub fn tenants(&self) -> Result<&(String, F), String> {
        let name = &self.collection.name;
        self.tenant.as_ref().ok_or_else(|| format!("the collection {name:?} has no tenants"))
    }

    /// The index of a range.
    ///
    /// # Errors
    /// A refusal if there is no such index.
    pub fn index(&self, range: &Range) -> Result<Order<'_>, String> {
        let (of, name) = (&self.collection, range.index.as_deref());
        let order = |columns| Order { columns, not_null: of.not_null(name) };
        of.index_columns(name).map(order).ok_or_else(|| {
            let known: Vec<_> = self.collection.indexes.keys().cloned().collect();
            format!(
                "the collection {:?} has no index {:?}; it has: {}",
                range.collection,
                range.index.as_deref().unwrap_or_default(),
                known.join(", ")
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_quotes_stays_one_identifier() {
        assert_eq!(quote(r#"a"; DROP TABLE b; --"#), r#""a""; DROP TABLE b; --""#);
    }

    #[test]
    fn the_tenant_column_can_be_read_and_not_written() {
        let model = besom_product::model::default_collections();
        let table = Mapped::new(&model["documents"], quote("documents"), |name, _| name.to_owned());
        assert_eq!(table.form("project_id").unwrap(), "project_id");
        assert!(table.written_form("project_id").is_err());
        assert_eq!(table.written_form("doc_id").unwrap(), "doc_id");
        assert!(table.form("other").is_err());
    }
}
