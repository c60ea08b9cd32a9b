//! The record of what a batch is about to execute, kept while the batch is in flight.

use besom_core::ids::Partition;
use besom_core::item::{Identity, Item, Source};

/// Where an item waits and what it is.
pub type Begun = (Source, Partition, Identity);

/// The record of a batch.
pub fn pack(items: &[(Source, &Item)]) -> postcard::Result<Vec<u8>> {
    let begun: Vec<(Source, Partition, &Identity)> =
        items.iter().map(|(source, item)| (*source, item.partition, &item.identity)).collect();
    postcard::to_stdvec(&begun)
}

/// The items of a record.
pub fn unpack(record: &[u8]) -> postcard::Result<Vec<Begun>> {
    postcard::from_bytes(record)
}
