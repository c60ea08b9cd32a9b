//! Traces as documents: replayed before anything is written, so that a bad file leaves
//! nothing behind, and then written under a tenant of their own.
//!
//! A public trace may carry a licence that asks for attribution wherever it is shown (the
//! editing-traces collection is CC BY 4.0): the file stays the user's, nothing of it is kept in
//! this repository.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use serde::Serialize;

use super::document::{Attached, Document};
use super::log::UpdateLog;
use super::rows::{Writer, at, text};
use super::trace;
use crate::ports::store::Store;

/// The tenant of imported traces.
pub const TENANT: &str = "traces";

/// How long the store's view may stay open for a look whether a document is there.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// A trace, replayed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The document's name: that of the file.
    pub document: String,
    /// Its log.
    pub log: UpdateLog,
}

/// What became of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The document in the tenant [`TENANT`].
    pub document: String,
    /// How many updates it has.
    pub updates: u64,
    /// Whether it was there already and was left as it is.
    pub existed: bool,
}

/// Two traces would become one document.
#[derive(Debug, thiserror::Error)]
#[error("{} and another trace would both become the document `{document}`; rename one", path.display())]
pub struct SameName {
    path: PathBuf,
    document: String,
}

/// Reads and replays traces.
pub fn replay(
    traces: &[PathBuf],
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Vec<Replayed>> {
    let mut replayed: Vec<Replayed> = Vec::new();
    for path in traces {
        let trace = trace::load(path)?;
        let document = trace.name();
        if replayed.iter().any(|other| other.document == document) {
            return Err(SameName { path: path.clone(), document }.into());
        }
        let log = trace.replay(&mut |done, total| {
            progress(&format!("{document}: {done} of {total} transactions replayed"));
        })?;
        replayed.push(Replayed { document, log });
    }
    Ok(replayed)
}

/// Writes replayed traces; a document that is there already is left as it is.
pub async fn write(
    store: &Arc<dyn Store>,
    traces: &[Replayed],
    now: Time,
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Vec<Imported>> {
    let tenant = Tenant::from(TENANT);
    let mut imported = Vec::new();
    let mut writer = Writer::new(Arc::clone(store));
    if !traces.is_empty() {
        writer.project(&tenant).await?;
    }
    for trace in traces {
        let existed = exists(store, &tenant, &trace.document).await?;
        if !existed {
            write_one(&tenant, trace, now, &mut writer).await?;
        }
        let said = if existed { "is there already" } else { "written" };
        progress(&format!("{}: {} changes {said}", trace.document, trace.log.edits.len()));
        imported.push(Imported {
            document: trace.document.clone(),
            updates: trace.log.edits.len() as u64,
            existed,
        });
    }
    writer.flush().await?;
    Ok(imported)
}

/// Whether the document is there with all its changes: one that an interrupted import has
/// begun still has the number 0.
async fn exists(store: &Arc<dyn Store>, tenant: &Tenant, document: &str) -> anyhow::Result<bool> {
    let view = store.snapshot(LOOK_MAX).await?;
    let (key, columns) = (vec![text(document)], ["server_seq".to_owned()]);
    let rows = view.get_many(Some(tenant), "documents", &[key], &columns).await?;
    let seq = rows.into_iter().flatten().flatten().next();
    Ok(seq.is_some_and(|seq| seq != Value::Integer(0)))
}

/// The authors are clients in use, attached and up to date.
async fn write_one(
    tenant: &Tenant,
    trace: &Replayed,
    now: Time,
    writer: &mut Writer,
) -> anyhow::Result<()> {
    let actors: Vec<String> =
        (0..trace.log.authors.len()).map(|n| format!("{}-author-{n}", trace.document)).collect();
    let mut document = Document::from_log(&trace.document, &trace.log, &actors, false, now);
    let server_seq = document.server_seq();
    for client in actors {
        let row =
            [("client_id", text(&client)), ("status", text("activated")), ("updated_at", at(now))];
        writer.row(tenant, "clients", row).await?;
        let attached = Attached { client, state: "attached", server_seq, updated_at: now };
        document.attached.push(attached);
    }
    document.write(tenant, writer).await
}
