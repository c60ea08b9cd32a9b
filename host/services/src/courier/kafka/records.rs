//! A message as a record of Kafka, in the form of CloudEvents 1.0.

use besom_core::delivery::Claimed;
use besom_core::delivery::event::{self, Envelope, Origin};
use besom_core::delivery::producer::RecordBatch;
use bytes::{Bytes, BytesMut};
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, Record, RecordBatchEncoder, RecordEncodeOptions,
    TimestampType,
};

/// What a record and each of its headers take beside their texts, in bytes, at most.
const OVERHEAD: usize = 40;
/// The version of record batches since Kafka 0.11.
const VERSION: i8 = 2;

/// The record of a message, without its place in a batch. `id` is the idempotency key.
pub(super) fn record(
    origin: Origin<'_>,
    envelope: Envelope,
    message: &Claimed,
    id: &str,
) -> Record {
    let bytes = |text: &str| Some(Bytes::copy_from_slice(text.as_bytes()));
    let mut headers = IndexMap::new();
    let content_type = StrBytes::from_static_str("content-type");
    let value = match envelope {
        Envelope::Binary => {
            for (name, value) in event::attributes(origin, message, id) {
                let name = match name {
                    "datacontenttype" => content_type.clone(),
                    name => StrBytes::from_string(format!("ce_{name}")),
                };
                headers.insert(name, bytes(&value));
            }
            Bytes::copy_from_slice(&message.payload)
        }
        Envelope::Structured => {
            headers.insert(content_type, bytes(event::STRUCTURED));
            Bytes::from(event::structured(origin, message, id))
        }
    };
    Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: 0,
        producer_epoch: 0,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: 0,
        timestamp: message.at.0 / 1_000,
        key: bytes(&message.key),
        value: Some(value),
        headers,
    }
}

/// The size of a record, in bytes; it is never larger.
pub(super) fn size(record: &Record) -> usize {
    let of = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
    let headers: usize =
        record.headers.iter().map(|(name, value)| name.len() + of(value) + OVERHEAD).sum();
    OVERHEAD + of(&record.key) + of(&record.value) + headers
}

/// A record batch as a broker takes it.
pub(super) fn encoded<'a>(
    batch: &RecordBatch,
    records: impl Iterator<Item = &'a Record>,
) -> Result<Bytes, String> {
    let in_place = |(at, record): (i32, &Record)| Record {
        producer_id: batch.identity.id,
        producer_epoch: batch.identity.epoch,
        offset: at.into(),
        // Only the first number of a batch is written.
        sequence: batch.sequence.wrapping_add(at),
        ..record.clone()
    };
    let records: Vec<Record> = (0..).zip(records).map(in_place).collect();
    let options = RecordEncodeOptions { version: VERSION, compression: Compression::None };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, &records, &options)
        .map_err(|error| format!("the messages cannot be encoded: {error}"))?;
    Ok(bytes.freeze())
}
