//! Builds rows by column name and writes them in large batches.
//!
//! Every write is an upsert, so that an interrupted import can be repeated.

use besom_core::ids::Tenant;
use besom_core::proposal::Change;
use besom_core::time::Time;
use besom_core::value::{Field, Value};

use besom_ports::store::Result;
use besom_product::model::TENANT;
use besom_product::model::product::Product;

/// Maximum number of rows per transaction.
pub const BATCH_ROWS: usize = 5_000;

/// Approximate maximum size of the values per transaction, in bytes.
pub const BATCH_BYTES: usize = 8 << 20;

/// Collects rows and writes them when a batch is full.
pub(super) struct Writer {
    product: Product,
    batch: Vec<(Option<Tenant>, Change)>,
    bytes: usize,
}

impl Writer {
    pub(super) fn new(product: Product) -> Writer {
        Writer { product, batch: Vec::new(), bytes: 0 }
    }

    /// Adds a project, the only table without a separate tenant column.
    pub(super) async fn project(&mut self, tenant: &Tenant) -> Result<()> {
        let fields = vec![Field::new(TENANT, Value::Text(tenant.to_string()))];
        self.add(None, "projects", fields).await
    }

    /// Adds a row of a tenant.
    pub(super) async fn row<const N: usize>(
        &mut self,
        tenant: &Tenant,
        collection: &str,
        columns: [(&str, Value); N],
    ) -> Result<()> {
        let fields = columns.into_iter().map(|(name, value)| Field::new(name, value)).collect();
        self.add(Some(tenant.clone()), collection, fields).await
    }

    async fn add(
        &mut self,
        tenant: Option<Tenant>,
        collection: &str,
        fields: Vec<Field>,
    ) -> Result<()> {
        self.bytes += fields.iter().map(|field| field.value.weight()).sum::<usize>();
        self.batch.push((tenant, Change::Upsert { collection: collection.to_owned(), fields }));
        if self.batch.len() >= BATCH_ROWS || self.bytes >= BATCH_BYTES {
            self.flush().await?;
        }
        Ok(())
    }

    /// Writes the remaining rows.
    pub(super) async fn flush(&mut self) -> Result<()> {
        if !self.batch.is_empty() {
            self.product.write(&self.batch).await?;
            self.batch.clear();
            self.bytes = 0;
        }
        Ok(())
    }
}

/// A text value.
pub(super) fn text(value: impl Into<String>) -> Value {
    Value::Text(value.into())
}

/// A timestamp value.
pub(super) fn at(time: Time) -> Value {
    Value::Timestamp(time)
}

/// An integer value, far below 2^63.
pub(super) fn integer(value: u64) -> Value {
    Value::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}

/// The CRC-32 (IEEE) of a payload, for the checksum columns.
pub(super) fn checksum(payload: &[u8]) -> Value {
    let mut crc = flate2::Crc::new();
    crc.update(payload);
    Value::Integer(i64::from(crc.sum()))
}
