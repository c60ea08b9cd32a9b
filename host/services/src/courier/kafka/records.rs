//! A message as a record of Kafka, in the form of CloudEvents 1.0.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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
/// What a record batch takes beside its records, in bytes, at most.
const BATCH_OVERHEAD: usize = 100;
/// As many headers as a message has, unless it has all attributes.
const HEADERS: usize = 12;
/// The header of the attribute `datacontenttype`.
const CONTENT_TYPE: &str = "content-type";
/// The version of record batches since Kafka 0.11.
const VERSION: i8 = 2;

/// The room that the values of a message's headers need beside its own texts, in bytes, as a rule.
const VALUES: usize = 200;

/// Memory for the records of a batch.
pub(super) fn room(batch: &[Claimed]) -> BytesMut {
    let of = |message: &Claimed| 3 * message.key.len() + message.payload.len() + VALUES;
    BytesMut::with_capacity(batch.iter().map(of).sum())
}

/// The record of a message, without its place in a batch; its texts are put into `room`. `id` is the idempotency
/// key.
pub(super) fn record(
    origin: Origin<'_>,
    envelope: Envelope,
    message: &Claimed,
    id: &str,
    room: &mut BytesMut,
) -> Record {
    let mut put = |bytes: &[u8]| {
        room.extend_from_slice(bytes);
        room.split().freeze()
    };
    let key = put(message.key.as_bytes());
    let mut headers = IndexMap::with_capacity(HEADERS);
    let value = match envelope {
        Envelope::Binary => {
            let payload = put(&message.payload);
            for (name, value) in event::attributes(origin, message, id) {
                // Writing into memory does not fail.
                let _ = write!(room, "{value}");
                headers.insert(header(name), Some(room.split().freeze()));
            }
            payload
        }
        Envelope::Structured => {
            let value = Bytes::from_static(event::STRUCTURED.as_bytes());
            headers.insert(StrBytes::from_static_str(CONTENT_TYPE), Some(value));
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
        key: Some(key),
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

/// A record batch as a broker takes it. Its records get their places in it.
pub(super) fn encoded(
    batch: &RecordBatch,
    records: &mut BTreeMap<u64, Record>,
) -> Result<Bytes, String> {
    let mut size = BATCH_OVERHEAD;
    for (at, id) in (0..).zip(&batch.ids) {
        let Some(record) = records.get_mut(id) else { continue };
        size += self::size(record);
        record.producer_id = batch.identity.id;
        record.producer_epoch = batch.identity.epoch;
        record.offset = i64::from(at);
        // Only the first number of a batch is written.
        record.sequence = batch.sequence.wrapping_add(at);
    }
    let all = batch.ids.iter().filter_map(|id| records.get(id));
    let options = RecordEncodeOptions { version: VERSION, compression: Compression::None };
    let mut bytes = BytesMut::with_capacity(size);
    RecordBatchEncoder::encode(&mut bytes, all, &options)
        .map_err(|error| format!("the messages cannot be encoded: {error}"))?;
    Ok(bytes.freeze())
}

/// The name of an attribute's header.
fn header(attribute: &'static str) -> StrBytes {
    StrBytes::from_static_str(match attribute {
        "specversion" => "ce_specversion",
        "id" => "ce_id",
        "source" => "ce_source",
        "type" => "ce_type",
        "subject" => "ce_subject",
        "time" => "ce_time",
        "datacontenttype" => CONTENT_TYPE,
        "partitionkey" => "ce_partitionkey",
        "sequence" => "ce_sequence",
        "dataschema" => "ce_dataschema",
        "besomtenant" => "ce_besomtenant",
        "besomtask" => "ce_besomtask",
        "besomrun" => "ce_besomrun",
        name => return StrBytes::from_string(format!("ce_{name}")),
    })
}
