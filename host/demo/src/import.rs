//! Imports traces as documents. They are replayed before anything is written, so that an invalid
//! file leaves nothing behind, and are then written under a separate tenant.
//!
//! The licence of a public trace may require attribution wherever it is shown (the editing-traces
//! collection is CC BY 4.0): the file remains with the user, and nothing of it is kept in this
//! repository.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use besom_core::command::counted;
use besom_core::ids::Tenant;
use besom_core::time::Time;
use besom_core::value::Value;
use serde::Serialize;

use super::document::{Attached, Document};
use super::log::UpdateLog;
use super::rows::{Writer, at, text};
use super::trace;
use besom_ports::embedded::Scripts;
use besom_ports::store::Store;
use besom_product::model::default_collections;
use besom_product::model::product::Product;

/// The tenant of imported traces.
pub const TENANT: &str = "traces";

/// How long the snapshot may be open that checks whether a document exists.
const LOOK_MAX: Duration = Duration::from_secs(10);

/// A replayed trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// The key of the document: the name of the file.
    pub document: String,
    /// The update log of the document.
    pub log: UpdateLog,
}

/// The result for a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Imported {
    /// The key of the document in the tenant [`TENANT`].
    pub document: String,
    /// Number of updates of the document.
    pub updates: u64,
    /// Whether the document already existed and was left unchanged.
    pub existed: bool,
}

/// Two traces map to the same document.
#[derive(Debug, thiserror::Error)]
#[error("{} and another trace both map to the document `{document}`; rename one of the files", path.display())]
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

/// Writes replayed traces. An existing document is left unchanged.
pub async fn write(
    store: &dyn Store,
    scripts: Arc<dyn Scripts>,
    traces: &[Replayed],
    now: Time,
    progress: &mut (dyn FnMut(&str) + Send),
) -> anyhow::Result<Vec<Imported>> {
    let tenant = Tenant::from(TENANT);
    let mut imported = Vec::new();
    let mut writer = Writer::new(Product::new(scripts, Arc::new(default_collections())));
    if !traces.is_empty() {
        writer.project(&tenant).await?;
    }
    for trace in traces {
        let existed = exists(store, &tenant, &trace.document).await?;
        if !existed {
            write_one(&tenant, trace, now, &mut writer).await?;
        }
        let said = if existed { "already exists" } else { "written" };
        let changes = counted(trace.log.edits.len() as u64, "change");
        progress(&format!("{}: {changes} {said}", trace.document));
        imported.push(Imported {
            document: trace.document.clone(),
            updates: trace.log.edits.len() as u64,
            existed,
        });
    }
    writer.flush().await?;
    Ok(imported)
}

/// Whether the document exists with all its changes. A document from an interrupted import still
/// has the sequence number 0.
async fn exists(store: &dyn Store, tenant: &Tenant, document: &str) -> anyhow::Result<bool> {
    let view = store.snapshot(LOOK_MAX).await?;
    let (key, columns) = (vec![text(document)], ["server_seq".to_owned()]);
    let rows = view.get_many(Some(tenant), "documents", &[key], &columns).await?;
    let seq = rows.into_iter().flatten().flatten().next();
    Ok(seq.is_some_and(|seq| seq != Value::Integer(0)))
}

/// Writes one document, with its authors as active clients that are attached and up to date.
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
