//! The clients that are attached to a document and so prevent a reset or a trim.
//!
//! This module decides the order of the clients. It does not interpret version vectors, which
//! belong to the format.

use besom_core::proposal::{Comparison, Condition};
use besom_core::time::Time;
use besom_core::value::Value;

use super::{Name, PAGE_BYTES, SNAPSHOT_MAX, columns, count, fixed, text};
use besom_ports::store::{self, Range, ReadView, Store};

/// Maximum number of clients that are read.
const CLIENTS_MAX: u32 = 1_000;

/// A client that is attached or attaching.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Attached {
    /// The id of the client.
    pub client: String,
    /// `attaching` or `attached`.
    pub state: String,
    /// The sequence number up to which it has received changes.
    pub server_seq: u64,
    /// The sequence number of its version vector; `None`: it has reported none, so it may have seen
    /// nothing.
    pub vector_seq: Option<u64>,
    /// Its last activity.
    pub last_seen: Option<String>,
}

/// The clients of a document; those that have seen the least come first. `None` if the required
/// tables are not mapped.
pub(super) async fn attached(
    store: &dyn Store,
    name: &Name,
) -> store::Result<Option<Vec<Attached>>> {
    let view = store.snapshot(SNAPSHOT_MAX).await?;
    match read(&*view, name).await {
        Ok(attached) => Ok(Some(attached)),
        // A product need not have these tables.
        Err(store::Error::Invalid(_) | store::Error::Refused(..)) => Ok(None),
        Err(error) => Err(error),
    }
}

async fn read(view: &dyn ReadView, name: &Name) -> store::Result<Vec<Attached>> {
    let not_detached = Condition::of("state", Comparison::NotEqual, text("detached"));
    let range = Range {
        collection: "attachments".into(),
        index: Some("by_document".into()),
        prefix: vec![text(&name.key)],
        conditions: vec![not_detached],
        columns: columns(&["client_id", "state", "server_seq"]),
        limit: CLIENTS_MAX,
        bytes_max: PAGE_BYTES,
        ..Range::default()
    };
    let tenant = Some(&name.tenant);
    let rows = view.read_range(tenant, &range).await?.rows;
    let rows = rows.into_iter().map(fixed::<3>).collect::<store::Result<Vec<_>>>()?;
    let clients: Vec<_> = rows.iter().map(|[client, ..]| vec![client.clone()]).collect();
    let vectors: Vec<_> =
        rows.iter().map(|[client, ..]| vec![text(&name.key), client.clone()]).collect();
    let seen = view.get_many(tenant, "clients", &clients, &columns(&["updated_at"])).await?;
    let told =
        view.get_many(tenant, "version_vectors", &vectors, &columns(&["server_seq"])).await?;
    let mut attached: Vec<Attached> = rows
        .into_iter()
        .zip(seen.into_iter().zip(told))
        .map(|([client, state, server_seq], (seen, vector))| Attached {
            client: shown(&client),
            state: shown(&state),
            server_seq: count(&server_seq),
            vector_seq: vector.and_then(|row| row.first().map(count)),
            last_seen: seen.and_then(|row| match row.first() {
                Some(Value::Timestamp(at)) => Some(Time::to_string(at)),
                _ => None,
            }),
        })
        .collect();
    attached.sort_by(|a, b| (a.vector_seq, &a.client).cmp(&(b.vector_seq, &b.client)));
    Ok(attached)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Integer(n) => n.to_string(),
        other => format!("{other:?}"),
    }
}
