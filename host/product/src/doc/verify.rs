//! Verifies past compactions of a document: the input is rebuilt from the rows kept for undo and
//! compared with the row that was written.
//!
//! This module decides what can still be compared. The row that a compaction wrote is either still
//! stored, or among the rows kept by the next compaction. The formats decide whether two documents
//! are equal, natively and not in the component that compacted. They run in a separate process,
//! because documents come from users and a few bytes can make a library use excessive resources.

use std::collections::HashMap;

use besom_compaction::decide;
pub use besom_compaction::format::Format;
use besom_compaction::outcome::Digests;
use besom_core::ids::TaskName;
use besom_core::value::{Field, Value};
use bytes::Bytes;

use super::history::of_document;
use super::{Error, Name, SNAPSHOT_MAX, count, document, read_log, stored, write_log};
use besom_ports::store::{BeforeImage, End, Error as StoreError, HistoryRow, Store};
use besom_ports::undone::is_undone;
use besom_system::child::{self, Failure, Limits, Work};

/// Maximum number of compactions of one document that are verified, newest first.
const COMPACTIONS_MAX: u32 = 10_000;

/// The result of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both documents are equal and match what was recorded.
    Verified,
    /// They differ, or one of them cannot be read.
    Differs,
    /// Nothing is left to compare: the rows are no longer kept.
    Gone,
    /// They could not be compared this time: the verifying process failed, not because of the
    /// documents.
    Unverified,
}

/// A verified compaction.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Compaction {
    /// The id of its history row.
    pub history: u64,
    /// When it was committed.
    pub at: String,
    /// The compaction mode.
    pub mode: String,
    /// The library that was used.
    pub library: String,
    /// The recorded size of the input, in bytes.
    pub bytes_before: u64,
    /// The recorded size of the output, in bytes.
    pub bytes_after: u64,
    /// The recorded digests of both.
    pub recorded: Pair,
    /// The recomputed digests of both.
    pub rebuilt: Option<Pair>,
    /// The result of the comparison.
    pub verdict: Verdict,
    /// Why it is not verified.
    pub why: Option<String>,
}

/// The digests before and after a compaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pair {
    /// The digest of the input.
    pub before: String,
    /// The digest of the output.
    pub after: String,
}

impl From<Digests> for Pair {
    fn from(digests: Digests) -> Pair {
        Pair { before: digests.before, after: digests.after }
    }
}

/// The work of a verifying child process. Input: the format, the mode, and an update log of the
/// output followed by the input. Output: the digests of both.
pub const VERIFYING: Work =
    Work { name: "verify", output_bytes_max: ANSWER_BYTES_MAX, function: verified };
/// Maximum size of the result: two digests as JSON, in bytes.
const ANSWER_BYTES_MAX: u64 = 4 * 1024;

fn verified(args: &[String], log: Vec<u8>) -> Result<Vec<u8>, String> {
    let [format, mode] = args else { return Err("a format and a mode are missing".into()) };
    let format = Format::parse(format).ok_or("no such format")?;
    let mode = format.modes().iter().find(|known| known.as_str() == mode).ok_or("no such mode")?;
    let log = read_log(&log).map_err(|error| error.to_string())?;
    let (after, updates) = log.split_first().ok_or("nothing to verify")?;
    let digests = format.verify(updates, after, *mode).map_err(|left| left.to_string())?;
    serde_json::to_vec(&Pair::from(digests)).map_err(|error| error.to_string())
}

/// Verifies all compactions of a document that are still in the history, oldest first. `child`: the
/// limits of the process that verifies each; `None`: this process verifies.
///
/// # Errors
/// The document does not exist, or the store fails.
pub async fn verify(
    store: &dyn Store,
    name: &Name,
    tasks: &[TaskName],
    child: Option<&Limits>,
) -> Result<Vec<Compaction>, Error> {
    let view = store.snapshot(SNAPSHOT_MAX).await?;
    if document(&*view, name).await?.is_none() {
        return Err(Error::Missing(name.to_string()));
    }
    let now = stored(&*view, name, "changes").await?;
    drop(view);
    let mut written = Written { known: HashMap::new(), whole: true };
    written
        .put_back(now.into_iter().filter(|row| row.edit).map(|row| (row.seq, row.payload.into())));
    let mut found = Vec::new();
    for row in of_document(store, name, tasks, COMPACTIONS_MAX).await? {
        if row.outcome != End::Committed || note(&row, "digest_after").is_none() {
            continue;
        }
        if is_undone(store, &row).await? {
            found.push(gone(&row, "it was undone: the rows that it read are back"));
            continue;
        }
        let images = match store.before_images(row.id).await {
            Ok(images) => Ok(images),
            // The record of this compaction cannot be read; the others can.
            Err(StoreError::Invalid(why)) => Err(why),
            Err(error) => return Err(error.into()),
        };
        let read = images.map(|images| images.as_deref().map(Read::of));
        found.push(match &read {
            Ok(Some(read)) => compared(&row, read, &written, child).await,
            Ok(None) => gone(&row, "the rows that it read are no longer kept"),
            Err(why) => differs(&row, format!("the rows kept for undo cannot be read: {why}")),
        });
        match read.ok().flatten() {
            Some(read) => {
                let edits = read.edits.into_iter();
                written.put_back(edits.map(|edit| (edit.server_seq.unsigned_abs(), edit.payload)));
            }
            None => written.forget(),
        }
    }
    found.reverse();
    Ok(found)
}

/// The edits as they were after a compaction, by sequence number: the present ones and, going back
/// in time, those that later compactions have removed.
struct Written {
    known: HashMap<u64, Bytes>,
    /// Whether the rows removed by all later compactions are known.
    whole: bool,
}

impl Written {
    fn put_back(&mut self, edits: impl Iterator<Item = (u64, Bytes)>) {
        self.known.extend(edits);
    }

    fn forget(&mut self) {
        self.known.clear();
        self.whole = false;
    }
}

/// Rebuilds the input of a compaction and compares it with the row that it wrote, which has the
/// sequence number of the last edit.
async fn compared(
    row: &HistoryRow,
    read: &Read,
    written: &Written,
    child: Option<&Limits>,
) -> Compaction {
    let format = words(row, "format");
    let Some(format) = Format::parse(&format) else {
        return differs(row, format!("unknown document format {format:?}"));
    };
    let mode = words(row, "mode");
    let Some(mode) = format.modes().iter().find(|known| known.as_str() == mode) else {
        return differs(row, format!("unknown compaction mode {mode:?}"));
    };
    let Some(number) = read.edits.last().map(|edit| edit.server_seq.unsigned_abs()) else {
        return differs(row, "none of the rows that are kept of it is an edit".into());
    };
    let after = match written.known.get(&number) {
        Some(after) => after,
        None if written.whole => {
            return differs(
                row,
                format!("the row that it wrote, change {number}, no longer exists"),
            );
        }
        None => {
            return gone(
                row,
                "the row that it wrote was replaced by a later compaction whose rows are not kept",
            );
        }
    };
    let fed = decide::feed(&read.document, read.snapshot.as_ref(), &read.edits);
    let outline = outline(row, Verdict::Verified);
    let bytes = [fed.updates.iter().map(|update| update.len()).sum(), after.len()];
    let recorded = [outline.bytes_before, outline.bytes_after];
    if bytes.map(|n| n as u64) != recorded {
        let [before, after] = recorded;
        let words = format!(
            "found {} bytes before and {} after, but {before} and {after} were recorded",
            bytes[0], bytes[1]
        );
        return differs(row, words);
    }
    let log = write_log(&[&[after.as_ref()], &fed.updates[..]].concat());
    match judged(format, mode.as_str(), log, child).await {
        Ok(rebuilt) => {
            let rebuilt = Some(rebuilt);
            if rebuilt.as_ref() == Some(&outline.recorded) {
                return Compaction { rebuilt, ..outline };
            }
            let why = format!(
                "both documents are equal, but differ from what was recorded ({} then, {} now)",
                outline.library,
                format.library()
            );
            Compaction { rebuilt, ..differs(row, why) }
        }
        Err(failure) if is_of_the_process(&failure) => {
            let why = format!("verification failed: {failure}");
            Compaction { why: Some(why), ..self::outline(row, Verdict::Unverified) }
        }
        Err(failure) => differs(row, failure.to_string()),
    }
}

/// Whether a failure says nothing about the documents: the process failed, or its limits were not enough.
fn is_of_the_process(failure: &Failure) -> bool {
    match failure {
        Failure::Failed(_) | Failure::Limit(_) => true,
        Failure::Refused(why) => why.starts_with("too-large"),
    }
}

/// The digests of an update log, or why they cannot be computed.
async fn judged(
    format: Format,
    mode: &str,
    log: Vec<u8>,
    child: Option<&Limits>,
) -> Result<Pair, Failure> {
    let (args, child) = ([format.as_str().to_owned(), mode.to_owned()], child.cloned());
    let judge = move || match child {
        None => verified(&args, log).map_err(Failure::Refused),
        Some(limits) => child::run(&limits, &VERIFYING, &args.each_ref().map(String::as_str), &log),
    };
    let failed = |error: &dyn std::fmt::Display| Failure::Failed(error.to_string());
    let answer = tokio::task::spawn_blocking(judge).await.map_err(|error| failed(&error))??;
    serde_json::from_slice(&answer).map_err(|error| failed(&error))
}

/// The input of a compaction, as far as the compaction has removed it.
struct Read {
    document: decide::Document,
    edits: Vec<decide::Row>,
    snapshot: Option<decide::Snapshot>,
}

impl Read {
    fn of(images: &[BeforeImage]) -> Read {
        let mut read = Read {
            document: decide::Document { epoch: 0, server_seq: i64::MAX, compacted_seq: 0 },
            edits: Vec::new(),
            snapshot: None,
        };
        for image in images {
            let Some(row) = &image.row else { continue };
            let number = |name: &str| match value(row, name) {
                Some(Value::Integer(n)) => *n,
                _ => 0,
            };
            let payload = || match value(row, "payload") {
                Some(Value::Bytes(bytes)) => Bytes::from(bytes.clone()),
                _ => Bytes::new(),
            };
            let server_seq = number("server_seq");
            match image.collection.as_str() {
                "documents" => {
                    let (epoch, compacted_seq) = (number("epoch"), number("compacted_seq"));
                    read.document = decide::Document { epoch, server_seq, compacted_seq };
                }
                "changes" if value(row, "kind") == Some(&Value::Text("edit".into())) => {
                    let kind = decide::Kind::Edit;
                    let lamport = number("lamport");
                    let payload = payload();
                    read.edits.push(decide::Row { server_seq, kind, lamport, payload });
                }
                "snapshots" if read.snapshot.as_ref().is_none_or(|s| s.server_seq < server_seq) => {
                    let payload = payload();
                    read.snapshot = Some(decide::Snapshot { server_seq, payload });
                }
                _ => {}
            }
        }
        read.edits.sort_by_key(|edit| edit.server_seq);
        read
    }
}

fn value<'a>(row: &'a [Field], name: &str) -> Option<&'a Value> {
    row.iter().find(|field| field.name == name).map(|field| &field.value)
}

fn note<'a>(row: &'a HistoryRow, name: &str) -> Option<&'a Value> {
    value(&row.notes, name)
}

fn words(row: &HistoryRow, name: &str) -> String {
    match note(row, name) {
        Some(Value::Text(text)) => text.clone(),
        _ => String::new(),
    }
}

fn outline(row: &HistoryRow, verdict: Verdict) -> Compaction {
    let number = |name: &str| note(row, name).map_or(0, count);
    Compaction {
        history: row.id,
        at: row.at.to_string(),
        mode: words(row, "mode"),
        library: words(row, "library"),
        bytes_before: number("bytes_before"),
        bytes_after: number("bytes_after"),
        recorded: Pair { before: words(row, "digest_before"), after: words(row, "digest_after") },
        rebuilt: None,
        verdict,
        why: None,
    }
}

fn gone(row: &HistoryRow, why: &str) -> Compaction {
    Compaction { why: Some(why.into()), ..outline(row, Verdict::Gone) }
}

fn differs(row: &HistoryRow, why: String) -> Compaction {
    Compaction { why: Some(why), ..outline(row, Verdict::Differs) }
}
