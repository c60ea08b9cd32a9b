//! Compactions of a document, looked at once more: what they have read is rebuilt from the rows
//! kept for undo, and compared with the row that they have written.
//!
//! Decides: what can still be compared. The row that a compaction has written is where it was
//! put, or among the rows kept by the compaction that came after it. Whether two documents say
//! the same is decided by the formats, natively and not by the component that compacted; in a
//! process of its own, because documents are their users' and a library may make of a few bytes what
//! it likes.

use std::collections::HashMap;

use besom_compaction::decide;
pub use besom_compaction::format::Format;
use besom_compaction::outcome::Digests;
use besom_core::ids::TaskName;
use besom_core::value::{Field, Value};
use bytes::Bytes;

use super::history::of_document;
use super::{Error, Name, SNAPSHOT_MAX, count, document, read_log, stored, write_log};
use crate::child::{self, Failure, Limits, Work};
use crate::ports::store::{BeforeImage, HistoryRow, Store};

/// Compactions of one document that are looked at, from the newest on.
const COMPACTIONS_MAX: u32 = 10_000;

/// How a comparison ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Both say the same, and what was recorded then.
    Verified,
    /// They do not, or one of them cannot be read.
    Differs,
    /// There is nothing left to compare: the rows are not kept any more.
    Gone,
    /// They could not be compared this time: the process that does it has failed, and not by them.
    Unverified,
}

/// A compaction, looked at once more.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Compaction {
    /// Its row of the history.
    pub history: u64,
    /// When.
    pub at: String,
    /// What was done.
    pub mode: String,
    /// By which library.
    pub library: String,
    /// Bytes of what was read, as recorded.
    pub bytes_before: u64,
    /// Bytes of what was written, as recorded.
    pub bytes_after: u64,
    /// The digests of both, as recorded.
    pub recorded: Pair,
    /// The same, as rebuilt.
    pub rebuilt: Option<Pair>,
    /// What came of it.
    pub verdict: Verdict,
    /// Why it is not verified.
    pub why: Option<String>,
}

/// Digests before and after.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pair {
    /// Of what was read.
    pub before: String,
    /// Of what was written.
    pub after: String,
}

impl From<Digests> for Pair {
    fn from(digests: Digests) -> Pair {
        Pair { before: digests.before, after: digests.after }
    }
}

/// The work of a child that verifies: from the format, the mode, and an update log of what was
/// written and what it was made of, to the digests of both.
pub const VERIFYING: Work =
    Work { name: "verify", output_bytes_max: ANSWER_BYTES_MAX, function: verified };
/// Two digests, as JSON.
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

/// Verifies every compaction of a document that the history still knows, oldest first. `child`:
/// the bounds of the process that does it for each; none: this process does.
///
/// # Errors
/// There is no such document, or the store fails.
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
        if row.outcome != "committed" || note(&row, "digest_after").is_none() {
            continue;
        }
        let images = store.before_images(row.id).await?;
        let read = images.as_deref().map(Read::of);
        found.push(match &read {
            Some(read) => compared(&row, read, &written, child).await,
            None => gone(&row, "the rows that it has read are not kept any more"),
        });
        match read {
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

/// The edits as they stood after a compaction, by their numbers: those that are there now, and,
/// going back in time, those that later ones have removed.
struct Written {
    known: HashMap<u64, Bytes>,
    /// Whether no later compaction has removed rows that are not known.
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

/// What a compaction has read is rebuilt, and compared with the row that it has written: that
/// at the number of the last edit.
async fn compared(
    row: &HistoryRow,
    read: &Read,
    written: &Written,
    child: Option<&Limits>,
) -> Compaction {
    let format = words(row, "format");
    let Some(format) = Format::parse(&format) else {
        return differs(row, format!("this version does not know the format {format:?}"));
    };
    let mode = words(row, "mode");
    let Some(mode) = format.modes().iter().find(|known| known.as_str() == mode) else {
        return differs(row, format!("this version does not know the mode {mode:?}"));
    };
    let Some(number) = read.edits.last().map(|edit| edit.server_seq.unsigned_abs()) else {
        return differs(row, "the rows that are kept of it have no edit among them".into());
    };
    let after = match written.known.get(&number) {
        Some(after) => after,
        None if written.whole => {
            return differs(row, format!("the row that it has written, change {number}, is gone"));
        }
        None => {
            return gone(
                row,
                "the row that it has written went with a later compaction, of which no rows are kept",
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
            "there are {} bytes before and {} after; {before} and {after} were recorded",
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
                "they say the same, but not what was recorded ({} then, {} now)",
                outline.library,
                format.library()
            );
            Compaction { rebuilt, ..differs(row, why) }
        }
        Err(failure @ Failure::Failed(_)) => {
            let why = format!("could not be verified: {failure}");
            Compaction { why: Some(why), ..self::outline(row, Verdict::Unverified) }
        }
        Err(failure) => differs(row, failure.to_string()),
    }
}

/// The digests of what a log holds, or why there are none.
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

/// What a compaction has read, as far as it has removed it.
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
