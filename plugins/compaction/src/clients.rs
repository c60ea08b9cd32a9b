//! Reads the attached clients and the version vectors of a document.
//!
//! Decides whose vectors count. A vector of a client that is not attached does not: it may
//! have been sent before the detachment and written after it.

use besom_sdk::prelude::*;
use besom_sdk::{ReadSetId, RowKey};

use crate::wish::{Attached, CLIENTS_MAX, Client, Vector};

/// The state of an attachment that has ended.
pub(crate) const DETACHED: &str = "detached";

/// The maximum number of vectors that one trim reads to find those that do not count. Later ones
/// wait for the next trim.
const VECTORS_LOOKED_AT_MAX: u32 = 512;

/// The attached clients. An attaching client counts, because it may be reading the log right now.
pub(crate) fn attached(item: &Item, doc_id: &[Value]) -> Result<Attached> {
    let range = doc_id
        .iter()
        .fold(Range::of("attachments").index("by_document"), |range, value| range.prefix(value))
        .not_equal("state", DETACHED)
        .columns(["client_id", "server_seq"]);
    let mut attached = Attached::default();
    for row in store::rows(Some(item), range) {
        let row = row?;
        let checkpoint = row.get::<Option<i64>>("server_seq")?.unwrap_or(0);
        attached.checkpoint = Some(attached.checkpoint.map_or(checkpoint, |c| c.min(checkpoint)));
        attached.count += 1;
        if attached.clients.len() <= CLIENTS_MAX {
            let id = row.value("client_id")?;
            attached.clients.push(Client { name: name(&id), id, vector: None });
        }
    }
    Ok(attached)
}

/// A client's id as text, whatever its type.
fn name(id: &Value) -> String {
    key::plain(id)
        .or_else(|_| key::encode(std::slice::from_ref(id)))
        .unwrap_or_else(|_| "with an id that cannot be shown".into())
}

/// Reads the vectors of the clients in `attached`.
pub(crate) fn read_vectors(item: &Item, doc_id: &[Value], attached: &mut Attached) -> Result<()> {
    let keys: Vec<RowKey> =
        attached.clients.iter().map(|client| vector_key(doc_id, client)).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let rows = store::get_many(Some(item), "version_vectors", &keys, &["vector", "server_seq"])?;
    for (client, row) in attached.clients.iter_mut().zip(rows) {
        let Some(row) = row else { continue };
        let told = (row.get::<Option<Vec<u8>>>("vector")?, row.get::<Option<i64>>("server_seq")?);
        if let (Some(bytes), Some(server_seq)) = told {
            client.vector = Some(Vector { bytes, server_seq });
        }
    }
    Ok(())
}

/// The key of a client's vector.
pub(crate) fn vector_key(doc_id: &[Value], client: &Client) -> RowKey {
    doc_id.iter().cloned().chain([client.id.clone()]).collect()
}

/// The keys of the vectors of clients that are not attached.
pub(crate) fn unattached_vectors(
    item: &Item,
    doc_id: &[Value],
    attached: &Attached,
) -> Result<Vec<RowKey>> {
    let range = of_document(doc_id).limit(VECTORS_LOOKED_AT_MAX);
    let mut keys = Vec::new();
    for row in store::page(Some(item), &range)?.rows {
        let id = row.value("client_id")?;
        if !attached.clients.iter().any(|client| client.id == id) {
            keys.push(doc_id.iter().cloned().chain([id]).collect());
        }
    }
    Ok(keys)
}

/// The read set of all vectors of the document; none if there is none.
pub(crate) fn every_vector(item: &Item, doc_id: &[Value]) -> Result<Option<ReadSetId>> {
    let mut range = store::rows(Some(item), of_document(doc_id).collecting());
    let mut found = false;
    for row in range.by_ref() {
        row?;
        found = true;
    }
    Ok(range.read_set().filter(|_| found))
}

fn of_document(doc_id: &[Value]) -> Range {
    doc_id
        .iter()
        .fold(Range::of("version_vectors"), |range, value| range.prefix(value))
        .columns(["client_id"])
}
