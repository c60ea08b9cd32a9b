//! The product's own hand on its database: its tables, and the rows that its own code writes.
//!
//! The engine changes rows only through its commit. What a product does beside it (creating the
//! tables of the entity model, writing rows for the demo and for tests) is SQL of the product's own,
//! without guards and without history, and no operation of the engine's store.

use std::sync::Arc;

use besom_core::collection::Collections;
use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::date_text;
use besom_core::value::{Field, Value};

use besom_ports::embedded::{Dialect, Scripts};
use besom_ports::store::{Error, Result};

const SQLITE: &str = include_str!("sqlite.sql");
const POSTGRES: &str = include_str!("postgres.sql");

/// Creates the missing tables of the entity model.
///
/// # Errors
/// The database refuses it or cannot be reached.
pub async fn create_tables(scripts: &dyn Scripts) -> Result<()> {
    let text = match scripts.dialect() {
        Dialect::Sqlite => SQLITE,
        Dialect::Postgres => POSTGRES,
    };
    scripts.run(vec![text.to_owned()]).await
}

/// Writes rows of mapped tables.
#[derive(Clone)]
pub struct Product {
    scripts: Arc<dyn Scripts>,
    collections: Arc<Collections>,
}

impl Product {
    /// Writes to the tables of these collections.
    pub fn new(scripts: Arc<dyn Scripts>, collections: Arc<Collections>) -> Product {
        Product { scripts, collections }
    }

    /// Applies changes in one transaction, each under its tenant.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a collection that is not mapped, or a change other than one of rows;
    /// otherwise an error of the database. Nothing is changed then.
    pub async fn write(&self, changes: &[(Option<Tenant>, Change)]) -> Result<()> {
        let dialect = self.scripts.dialect();
        self.scripts.run(statements(dialect, &self.collections, changes)?).await
    }
}

/// The statements for these changes, one for each. Columns have the native encoding of their kind.
///
/// # Errors
/// As for [`Product::write`].
pub fn statements(
    dialect: Dialect,
    collections: &Collections,
    changes: &[(Option<Tenant>, Change)],
) -> Result<Vec<String>> {
    let one = |(tenant, change): &(Option<Tenant>, Change)| {
        one(dialect, collections, tenant.as_ref(), change)
    };
    changes.iter().map(one).collect()
}

fn one(
    dialect: Dialect,
    collections: &Collections,
    tenant: Option<&Tenant>,
    change: &Change,
) -> Result<String> {
    let invalid = |what: &str| Error::Invalid(format!("{what}: not a row of the product"));
    let (name, fields, key) = match change {
        Change::Insert { collection, fields } | Change::Upsert { collection, fields } => {
            (collection, &**fields, &[][..])
        }
        Change::Update { collection, key, fields }
        | Change::Increment { collection, key, fields } => (collection, &**fields, &**key),
        Change::Delete { collection, key } => (collection, &[][..], &**key),
        Change::DeleteReadSet(set) => return Err(invalid(&set.collection)),
        Change::DeleteRange(range)
        | Change::UpdateRange { range, .. }
        | Change::MoveRange { range, .. } => {
            return Err(invalid(&range.collection));
        }
        Change::Emit { topic, .. } => return Err(invalid(topic)),
        Change::Restore(_) => return Err(invalid("restore")),
    };
    let collection = collections.get(name).ok_or_else(|| invalid(name))?;
    let table = quoted(&collection.table);
    let of_tenant = collection
        .tenant
        .iter()
        .zip(tenant)
        .map(|(column, tenant)| Field::new(column.as_str(), Value::Text(tenant.to_string())));
    let of_tenant: Vec<Field> = of_tenant.collect();
    let is_key = |column: &str| {
        collection.tenant.as_deref() == Some(column) || collection.key.iter().any(|k| k == column)
    };
    let equal =
        |field: &Field| format!("{} = {}", quoted(&field.name), literal(dialect, &field.value));
    let keys = collection.key.iter().zip(key);
    let keys = keys.map(|(column, value)| Field::new(column.as_str(), value.clone()));
    let place: Vec<String> = of_tenant.iter().cloned().chain(keys).map(|f| equal(&f)).collect();
    let place = place.join(" AND ");
    Ok(match change {
        Change::Insert { .. } | Change::Upsert { .. } => {
            let all: Vec<&Field> = of_tenant.iter().chain(fields).collect();
            let columns: Vec<String> = all.iter().map(|field| quoted(&field.name)).collect();
            let values: Vec<String> =
                all.iter().map(|field| literal(dialect, &field.value)).collect();
            let (columns, values) = (columns.join(", "), values.join(", "));
            let inserted = format!("INSERT INTO {table} ({columns}) VALUES ({values})");
            match change {
                Change::Upsert { .. } => {
                    let target = collection.tenant.iter().chain(&collection.key);
                    let target: Vec<String> = target.map(|column| quoted(column)).collect();
                    let set = all.iter().filter(|field| !is_key(&field.name));
                    let set: Vec<String> = set.map(|field| equal(field)).collect();
                    let action = match set.is_empty() {
                        true => "NOTHING".to_owned(),
                        false => format!("UPDATE SET {}", set.join(", ")),
                    };
                    format!("{inserted} ON CONFLICT ({}) DO {action}", target.join(", "))
                }
                _ => inserted,
            }
        }
        Change::Increment { .. } => {
            let set = fields.iter().map(|field| {
                let column = quoted(&field.name);
                format!("{column} = {column} + {}", literal(dialect, &field.value))
            });
            let set: Vec<String> = set.collect();
            format!("UPDATE {table} SET {} WHERE {place}", set.join(", "))
        }
        Change::Delete { .. } => format!("DELETE FROM {table} WHERE {place}"),
        _ => {
            let set: Vec<String> = fields.iter().map(equal).collect();
            format!("UPDATE {table} SET {} WHERE {place}", set.join(", "))
        }
    })
}

/// A name of a table or column; a table may be named with its schema.
pub(crate) fn quoted(name: &str) -> String {
    let part = |part: &str| format!("\"{}\"", part.replace('"', "\"\""));
    name.split('.').map(part).collect::<Vec<_>>().join(".")
}

/// A value as it stands in a statement. PostgreSQL takes the type of a quoted one from its column.
fn literal(dialect: Dialect, value: &Value) -> String {
    let text = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match (value, dialect) {
        (Value::Null, _) => "NULL".to_owned(),
        (Value::Bool(b), Dialect::Sqlite) => i64::from(*b).to_string(),
        (Value::Bool(b), Dialect::Postgres) => b.to_string(),
        (Value::Integer(i), _) => i.to_string(),
        (Value::Float(f), Dialect::Sqlite) => format!("{f:e}"),
        (Value::Float(f), Dialect::Postgres) => text(&f.to_string()),
        // SQLite ends a statement at a NUL.
        (Value::Text(s), Dialect::Sqlite) if s.contains('\0') => {
            format!("CAST(X'{}' AS TEXT)", hex::encode(s))
        }
        (Value::Text(s) | Value::Json(s) | Value::Decimal(s), _) => text(s),
        (Value::Bytes(b), Dialect::Sqlite) => format!("X'{}'", hex::encode(b)),
        (Value::Bytes(b), Dialect::Postgres) => format!("'\\x{}'", hex::encode(b)),
        (Value::Uuid(u), _) => {
            let [a, b, c, d, e] =
                [&u[..4], &u[4..6], &u[6..8], &u[8..10], &u[10..]].map(hex::encode);
            format!("'{a}-{b}-{c}-{d}-{e}'")
        }
        (Value::Date(days), _) => text(&date_text(*days)),
        (Value::Timestamp(t), Dialect::Sqlite) => t.micros().to_string(),
        (Value::Timestamp(t), Dialect::Postgres) => text(&t.to_string()),
    }
}
