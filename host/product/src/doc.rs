//! Imports and exports documents as update logs, and describes a stored document.
//!
//! An update log is a little-endian `u32` count, followed by a `u32` length and the bytes of each
//! update in the document's format. This module interprets only the client id in the first struct
//! of a Yjs update; the meaning of updates is left to the compaction.

mod attached;
mod history;
mod show;
mod verify;
mod words;

use std::time::Duration;

use besom_core::ids::{CommitId, Incarnation, Tenant, Term};
use besom_core::item::Identity;
use besom_core::proposal::{Change, OnGuardFailed, Proposal};
use besom_core::time::Time;
use besom_core::value::{Field, Row, Value};

pub use attached::Attached;
pub use show::{Shown, State, show};
pub use verify::{Compaction, Format, Pair, VERIFYING, Verdict, verify};
pub use words::{LeftAlone, Words, left_alone};

use crate::model::TENANT;
use besom_ports::guests::Lane;
use besom_ports::store::{self, Batch, Entry, Outcome, Range, ReadView, Store};

/// Maximum size of an update log to import, in bytes.
pub const LOG_BYTES_MAX: u64 = 1 << 30;
/// The actor of an update that names no client: one that only deletes, or one of another format
/// than Yjs.
pub const IMPORT_ACTOR: &str = "import";
/// The plugin that compacts documents.
pub const COMPACTION: &str = "compaction";
/// The name under which imports are recorded in the history. The colon keeps it apart from the names
/// of configured tasks.
pub const TASK: &str = "doc:import";
/// The incarnation recorded with an import: the command line is no member of a cluster.
const NODE: &str = "besom-doc";
/// The recorded reason of an import that the database refuses, followed by its message.
const NOT_IMPORTED: &str = "the document cannot be written";
/// Number of rows per page of a read.
const PAGE_ROWS: u32 = 4096;
/// Number of bytes per page of a read.
const PAGE_BYTES: usize = 8 << 20;
/// How long an export may hold its snapshot.
const SNAPSHOT_MAX: Duration = Duration::from_secs(600);

/// Why a file is not a valid update log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset}: {message}")]
pub struct LogError {
    /// The position of the error, in bytes from the beginning.
    pub offset: usize,
    /// What is wrong there.
    pub message: String,
}

/// Why an operation on a document failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Error {
    /// The document already exists.
    #[error("the document {0} already exists; export it, or choose another tenant")]
    Exists(String),
    /// The document does not exist.
    #[error("the document {0} does not exist")]
    Missing(String),
    /// Several tenants have a document with this name.
    #[error("{} exists in several tenants: {}; write TENANT/{}", .0, .1.join(", "), .0)]
    Ambiguous(String, Vec<String>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Reads an update log. Every byte of the file must belong to it.
///
/// # Errors
/// The file is truncated or has trailing bytes.
pub fn read_log(bytes: &[u8]) -> Result<Vec<&[u8]>, LogError> {
    let fail = |offset, message: String| Err(LogError { offset, message });
    let number = |offset: usize| -> Option<usize> {
        let four = bytes.get(offset..offset.checked_add(4)?)?;
        Some(u32::from_le_bytes(four.try_into().ok()?) as usize)
    };
    let Some(count) = number(0) else {
        return fail(bytes.len(), "the file is truncated within its update count".into());
    };
    // Each update occupies at least the 4 bytes of its length, so a larger count is rejected before
    // memory is reserved.
    if count > (bytes.len() - 4) / 4 {
        let message = format!("the file announces {count} updates but is too short for them");
        return fail(0, message);
    }
    let (mut updates, mut at) = (Vec::with_capacity(count), 4);
    for n in 1..=count {
        let Some(length) = number(at) else {
            return fail(
                at,
                format!("the file is truncated within the length of update {n} of {count}"),
            );
        };
        let Some(update) = (at + 4).checked_add(length).and_then(|end| bytes.get(at + 4..end))
        else {
            let left = bytes.len() - at - 4;
            return fail(
                at,
                format!(
                    "update {n} of {count} has {length} bytes, but only {left} are left in the file"
                ),
            );
        };
        updates.push(update);
        at += 4 + length;
    }
    if at < bytes.len() {
        return fail(
            at,
            format!("{} unexpected bytes follow the last of {count} updates", bytes.len() - at),
        );
    }
    Ok(updates)
}

/// Writes an update log.
///
/// # Panics
/// If there are 2^32 or more updates, or an update has 2^32 or more bytes. No store holds that.
pub fn write_log(updates: &[impl AsRef<[u8]>]) -> Vec<u8> {
    let length = |n: usize| u32::try_from(n).expect("fits the format").to_le_bytes();
    let mut out =
        Vec::with_capacity(4 + updates.iter().map(|u| 4 + u.as_ref().len()).sum::<usize>());
    out.extend(length(updates.len()));
    for update in updates.iter().map(AsRef::as_ref) {
        out.extend(length(update.len()));
        out.extend(update);
    }
    out
}

/// The client of the first struct of a V1 update. The update begins with the number of clients,
/// followed for the first client by the number of its structs and the client id, each a
/// variable-length integer.
fn first_client(update: &[u8]) -> Option<u64> {
    let mut rest = update.iter();
    let mut number = || {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let byte = *rest.next()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(value);
            }
            shift += 7;
        }
    };
    (number()? > 0).then_some(())?;
    number()?;
    number()
}

/// The name of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    /// The tenant of the document.
    pub tenant: Tenant,
    /// The key of the document.
    pub key: String,
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.tenant, self.key)
    }
}

/// The size of an import.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Imported {
    /// Number of updates written.
    pub updates: u64,
    /// Size of the updates, in bytes.
    pub bytes: u64,
}

fn text(s: impl Into<String>) -> Value {
    Value::Text(s.into())
}

fn integer(n: u64) -> Value {
    Value::Integer(i64::try_from(n).unwrap_or(i64::MAX))
}

fn columns(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Imports the updates of one document in one transaction, and creates its project if it is
/// missing. An existing document is not changed.
///
/// The import goes through the commit of the engine as an item of the task [`TASK`] that was never
/// queued, so that the history has its time and its size. The guard is the primary key of
/// documents: an absence of rows holds only under a row that inserters lock, and no such row exists
/// for a document. The command line follows no leader; the fence is the term of the store at the
/// time of the call. No before-images are kept, because no row existed before.
///
/// # Errors
/// [`Error::Exists`] for an existing document, or an error of the store.
pub async fn import(
    store: &dyn Store,
    name: &Name,
    format: Format,
    updates: &[&[u8]],
) -> Result<Imported, Error> {
    let (now, fence) = (store.now().await?, store.fence().await?);
    let view = store.snapshot(SNAPSHOT_MAX).await?;
    if document(&*view, name).await?.is_some() {
        return Err(Error::Exists(name.to_string()));
    }
    drop(view);
    let bytes = updates.iter().map(|update| update.len() as u64).sum();
    let imported = Imported { updates: updates.len() as u64, bytes };
    let identity = Identity {
        task: TASK.into(),
        tenant: Some(name.tenant.clone()),
        key: name.key.clone(),
        due: None,
    };
    let proposal = Proposal {
        guards: Vec::new(),
        changes: changes(name, format, updates, now),
        on_guard_failed: OnGuardFailed::Skip(NOT_IMPORTED.into()),
        notes: vec![
            Field::new("updates", integer(imported.updates)),
            Field::new("bytes", integer(imported.bytes)),
        ],
    };
    let followed = fence.map_or(Term(0), |fence| fence.term);
    let batch = Batch {
        id: CommitId(rand::random()),
        node: Incarnation::from(NODE),
        entries: vec![Entry::unqueued(followed, identity, now, proposal, NOT_IMPORTED, false)],
        as_of: now,
        idle: Vec::new(),
        activity_in_store: false,
        lane: Lane::Heavy,
        braked: false,
    };
    let committed = match store.commit(&batch).await {
        Err(error @ store::Error::Unknown(_)) => store.find_commit(batch.id).await?.ok_or(error)?,
        committed => committed?,
    };
    match committed.outcomes.into_iter().next() {
        Some(Outcome::Committed) => Ok(imported),
        other => {
            let view = store.snapshot(SNAPSHOT_MAX).await?;
            if document(&*view, name).await?.is_some() {
                return Err(Error::Exists(name.to_string()));
            }
            let words = match other {
                Some(Outcome::Skipped(words)) => words,
                _ => NOT_IMPORTED.to_owned(),
            };
            Err(store::Error::Invalid(words).into())
        }
    }
}

/// The rows of an imported document.
fn changes(name: &Name, format: Format, updates: &[&[u8]], now: Time) -> Vec<Change> {
    let mut changes = Vec::with_capacity(updates.len() + 2);
    changes.push(Change::Upsert {
        collection: "projects".into(),
        fields: vec![Field::new(TENANT, text(name.tenant.as_str()))],
    });
    changes.push(Change::Insert {
        collection: "documents".into(),
        fields: vec![
            Field::new("doc_id", text(&name.key)),
            Field::new("format", text(format.as_str())),
            Field::new("server_seq", integer(updates.len() as u64)),
            Field::new("compacted_seq", integer(0)),
            Field::new("epoch", integer(0)),
            Field::new("created_at", Value::Timestamp(now)),
            Field::new("updated_at", Value::Timestamp(now)),
        ],
    });
    let mut sent = std::collections::HashMap::new();
    for (seq, update) in (1_u64..).zip(updates) {
        let actor = match format {
            Format::Yjs => first_client(update).map(|id| id.to_string()),
            Format::Loro | Format::Automerge => None,
        };
        let actor = actor.unwrap_or_else(|| IMPORT_ACTOR.into());
        let client_seq = sent.entry(actor.clone()).and_modify(|n| *n += 1).or_insert(1_u64);
        changes.push(Change::Insert {
            collection: "changes".into(),
            fields: vec![
                Field::new("doc_id", text(&name.key)),
                Field::new("server_seq", integer(seq)),
                Field::new("actor_id", text(actor)),
                Field::new("client_seq", integer(*client_seq)),
                Field::new("lamport", integer(seq)),
                Field::new("kind", text("edit")),
                Field::new("payload", Value::Bytes(update.to_vec())),
            ],
        });
    }
    changes
}

/// Finds a document by `TENANT/KEY`, or by `KEY` alone if it is unique. A key may contain slashes,
/// so that every possible split is tried.
pub async fn find(store: &dyn Store, name: &str) -> Result<Name, Error> {
    let view = store.snapshot(SNAPSHOT_MAX).await?;
    let mut found = Vec::new();
    if let Some((tenant, key)) = name.split_once('/') {
        let name = Name { tenant: Tenant::from(tenant), key: key.to_owned() };
        if document(&*view, &name).await?.is_some() {
            found.push(name);
        }
    }
    let range = Range {
        collection: "documents".into(),
        prefix: vec![text(name)],
        limit: PAGE_ROWS,
        bytes_max: PAGE_BYTES,
        ..Range::default()
    };
    let tenants = view.tenants(&range, None, PAGE_ROWS).await?;
    found.extend(tenants.into_iter().map(|tenant| Name { tenant, key: name.to_owned() }));
    match found.len() {
        0 => Err(Error::Missing(name.to_owned())),
        1 => Ok(found.remove(0)),
        _ => {
            let tenants = found.iter().map(|name| name.tenant.to_string()).collect();
            Err(Error::Ambiguous(name.to_owned(), tenants))
        }
    }
}

/// The row of a document.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The library of its updates: `yjs`, `loro` or `automerge`.
    pub format: String,
    /// The last sequence number assigned.
    pub server_seq: u64,
    /// The sequence number up to which its changes have been compacted.
    pub compacted_seq: u64,
    /// How often the document was reset.
    pub epoch: u64,
    /// When it was last compacted.
    pub compacted_at: Option<Time>,
}

async fn document(view: &dyn ReadView, name: &Name) -> store::Result<Option<Document>> {
    let wanted = columns(&["format", "server_seq", "compacted_seq", "epoch", "compacted_at"]);
    let keys = [vec![text(&name.key)]];
    let rows = view.get_many(Some(&name.tenant), "documents", &keys, &wanted).await?;
    let Some(Some(row)) = rows.into_iter().next() else { return Ok(None) };
    let [format, server_seq, compacted_seq, epoch, compacted_at] = fixed(row)?;
    Ok(Some(Document {
        format: match format {
            Value::Text(s) => s,
            _ => String::new(),
        },
        server_seq: count(&server_seq),
        compacted_seq: count(&compacted_seq),
        epoch: count(&epoch),
        compacted_at: match compacted_at {
            Value::Timestamp(t) => Some(t),
            _ => None,
        },
    }))
}

fn fixed<const N: usize>(row: Row) -> store::Result<[Value; N]> {
    row.try_into().map_err(|row: Row| {
        store::Error::Invalid(format!("the store returned {} columns instead of {N}", row.len()))
    })
}

fn count(value: &Value) -> u64 {
    match value {
        Value::Integer(n) => u64::try_from(*n).unwrap_or(0),
        _ => 0,
    }
}

/// A row of a document's changes or snapshots.
struct Stored {
    seq: u64,
    edit: bool,
    payload: Vec<u8>,
}

/// All rows of a document in `collection`, in the order of their sequence numbers.
async fn stored(view: &dyn ReadView, name: &Name, collection: &str) -> store::Result<Vec<Stored>> {
    let changes = collection == "changes";
    let mut range = Range {
        collection: collection.into(),
        prefix: vec![text(&name.key)],
        columns: columns(if changes {
            &["server_seq", "payload", "kind"]
        } else {
            &["server_seq", "payload"]
        }),
        limit: PAGE_ROWS,
        bytes_max: PAGE_BYTES,
        ..Range::default()
    };
    let mut rows = Vec::new();
    loop {
        let page = view.read_range(Some(&name.tenant), &range).await?;
        for mut row in page.rows {
            let kind = if changes { row.pop() } else { None };
            let [seq, payload] = fixed(row)?;
            let Value::Bytes(payload) = payload else { continue };
            let edit = kind.is_none_or(|kind| kind == text("edit"));
            rows.push(Stored { seq: count(&seq), edit, payload });
        }
        if page.next.is_none() {
            return Ok(rows);
        }
        range.after = page.next;
    }
}

/// The updates that make up a document: its base and the edits after it. The base is the last edit
/// at or below `compacted_seq`, or a later snapshot. Presence is omitted.
pub async fn export(store: &dyn Store, name: &Name) -> Result<Vec<Vec<u8>>, Error> {
    let view = store.snapshot(SNAPSHOT_MAX).await?;
    let Some(document) = document(&*view, name).await? else {
        return Err(Error::Missing(name.to_string()));
    };
    let edits = stored(&*view, name, "changes").await?.into_iter().filter(|row| row.edit);
    let edits: Vec<Stored> = edits.collect();
    let snapshot = stored(&*view, name, "snapshots").await?.pop();
    let base = edits.iter().rev().map(|edit| edit.seq).find(|seq| *seq <= document.compacted_seq);
    let (base, from) = match snapshot.filter(|s| s.seq <= document.server_seq) {
        Some(s) if base.is_none_or(|base| s.seq >= base) => (Some(s.payload), s.seq + 1),
        _ => (None, base.unwrap_or(0)),
    };
    let edits = edits.into_iter().filter(|edit| edit.seq >= from).map(|edit| edit.payload);
    Ok(base.into_iter().chain(edits).collect())
}

#[cfg(test)]
mod tests;
