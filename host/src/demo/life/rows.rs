//! Changes of the product, built by name.

use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::value::{Field, RowKey, Value};

/// A change of one tenant, as the store takes it.
pub(super) type Written = (Option<Tenant>, Change);

/// A row that must be new.
pub(super) fn insert<const N: usize>(
    tenant: &Tenant,
    collection: &str,
    columns: [(&str, Value); N],
) -> Written {
    let change = Change::Insert { collection: collection.to_owned(), fields: fields(columns) };
    (Some(tenant.clone()), change)
}

/// A row that may be there already.
pub(super) fn upsert<const N: usize>(
    tenant: &Tenant,
    collection: &str,
    columns: [(&str, Value); N],
) -> Written {
    let change = Change::Upsert { collection: collection.to_owned(), fields: fields(columns) };
    (Some(tenant.clone()), change)
}

/// Columns of a row that is there.
pub(super) fn update<const N: usize>(
    tenant: &Tenant,
    collection: &str,
    key: RowKey,
    columns: [(&str, Value); N],
) -> Written {
    let (collection, fields) = (collection.to_owned(), fields(columns));
    (Some(tenant.clone()), Change::Update { collection, key, fields })
}

/// A row that goes.
pub(super) fn delete(tenant: &Tenant, collection: &str, key: RowKey) -> Written {
    (Some(tenant.clone()), Change::Delete { collection: collection.to_owned(), key })
}

fn fields<const N: usize>(columns: [(&str, Value); N]) -> Vec<Field> {
    columns.into_iter().map(|(name, value)| Field::new(name, value)).collect()
}
