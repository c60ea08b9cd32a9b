//! Before-images: rows as they were, packed into one compressed record per item.
//!
//! The record is a sequence: the name and columns of a table once, then its rows as they come,
//! so that 260,000 rows neither repeat their column names nor stand in memory as values.

use besom_core::ids::Tenant;
use besom_core::value::{Field, RowKey, Value};
use serde::{Deserialize, Serialize};

use super::error::Job;
use super::mapping::Table;
use crate::ports::store::{BeforeImage, Error};

#[derive(Serialize, Deserialize)]
enum Record {
    Table {
        collection: String,
        tenant: Option<Tenant>,
        key: Vec<String>,
        columns: Vec<String>,
    },
    /// The row's values, in the order of the columns.
    Row(Vec<Value>),
    /// There was no row with this key.
    Absent(RowKey),
}

/// The before-images of one item, while they are collected.
#[derive(Default)]
pub(super) struct Images {
    bytes: Vec<u8>,
    collection: Option<String>,
}

impl Images {
    /// Adds a row as it was, or the key of a row that was not there.
    pub(super) fn push(
        &mut self,
        table: &Table,
        tenant: Option<&Tenant>,
        row: Result<Vec<Value>, RowKey>,
    ) -> Job<()> {
        if self.collection.as_deref() != Some(&table.collection.name) {
            self.collection = Some(table.collection.name.clone());
            self.record(&Record::Table {
                collection: table.collection.name.clone(),
                tenant: tenant.filter(|_| table.tenant().is_some()).cloned(),
                key: table.collection.key.clone(),
                columns: table.columns.iter().map(|(name, _)| name.clone()).collect(),
            })?;
        }
        self.record(&match row {
            Ok(values) => Record::Row(values),
            Err(key) => Record::Absent(key),
        })
    }

    fn record(&mut self, record: &Record) -> Job<()> {
        self.bytes = postcard::to_extend(record, std::mem::take(&mut self.bytes))?;
        Ok(())
    }

    /// The packed record.
    pub(super) fn pack(self) -> Vec<u8> {
        lz4_flex::compress_prepend_size(&self.bytes)
    }
}

/// The images of a packed record, oldest first.
pub(super) fn unpack(packed: &[u8]) -> Job<Vec<BeforeImage>> {
    let bytes = lz4_flex::decompress_size_prepended(packed)
        .map_err(|e| Error::Invalid(format!("before-images cannot be read: {e}")))?;
    let mut rest = bytes.as_slice();
    let mut images = Vec::new();
    let mut head = (String::new(), None, Vec::new(), Vec::new());
    while !rest.is_empty() {
        let (record, after) = postcard::take_from_bytes::<Record>(rest)?;
        rest = after;
        let (key, row) = match record {
            Record::Table { collection, tenant, key, columns } => {
                head = (collection, tenant, key, columns);
                continue;
            }
            Record::Absent(key) => (key, None),
            Record::Row(values) => {
                let fields: Vec<Field> = head
                    .3
                    .iter()
                    .zip(values)
                    .map(|(name, value)| Field::new(name, value))
                    .collect();
                let of = |name: &String| fields.iter().find(|f| f.name == *name);
                let key = head.2.iter().filter_map(of).map(|f| f.value.clone()).collect();
                (key, Some(fields))
            }
        };
        images.push(BeforeImage { collection: head.0.clone(), tenant: head.1.clone(), key, row });
    }
    Ok(images)
}
