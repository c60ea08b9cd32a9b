//! Changes of the simulated product, built by column name.

use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::value::{Field, RowKey, Value};

/// A change of one tenant, as passed to the store.
pub(super) type Written = (Option<Tenant>, Change);

/// Inserts a row that must not exist.
pub(super) fn insert<const N: usize>(
    tenant: &Tenant,
    collection: &str,
    columns: [(&str, Value); N],
) -> Written {
    let change = Change::Insert { collection: collection.to_owned(), fields: fields(columns) };
    (Some(tenant.clone()), change)
}

/// Inserts or replaces a row.
pub(super) fn upsert<const N: usize>(
    tenant: &Tenant,
    collection: &str,
    columns: [(&str, Value); N],
) -> Written {
    let change = Change::Upsert { collection: collection.to_owned(), fields: fields(columns) };
    (Some(tenant.clone()), change)
}

/// Updates columns of an existing row.
pub(super) fn update<const N: usize>(
    tenant: &Tenant,
    collection: &str,
    key: RowKey,
    columns: [(&str, Value); N],
) -> Written {
    let (collection, fields) = (collection.to_owned(), fields(columns));
    (Some(tenant.clone()), Change::Update { collection, key, fields })
}

/// Deletes a row.
pub(super) fn delete(tenant: &Tenant, collection: &str, key: RowKey) -> Written {
    (Some(tenant.clone()), Change::Delete { collection: collection.to_owned(), key })
}

fn fields<const N: usize>(columns: [(&str, Value); N]) -> Vec<Field> {
    columns.into_iter().map(|(name, value)| Field::new(name, value)).collect()
}
