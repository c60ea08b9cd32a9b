//! Reads a document: its changes, snapshots and attached clients.
//!
//! Decides which rows are collected for deletion (exactly those that were read), and when a
//! document is too large to read. All reads of one `act` share a snapshot of the database.

use std::ops::RangeInclusive;

use besom_sdk::ReadSetId;
use besom_sdk::prelude::*;
use besom_sdk::store::ColumnPage;
use bytes::Bytes;

use crate::checksum::crc32;
use crate::clients;
use crate::decide::{self, Document, Kind, Snapshot};
use crate::outcome::Code;
use crate::wish::Attached;

/// The rows per page; the host also limits pages by bytes.
const PAGE_ROWS: u32 = 8_192;

/// Everything that was read of a document.
pub(crate) struct Log {
    /// All changes up to `server_seq`, ascending.
    pub rows: Vec<decide::Row>,
    /// The latest snapshot, unless a later edit was compacted already.
    pub snapshot: Option<Snapshot>,
    /// The read set of the edits.
    pub edits: Option<ReadSetId>,
    /// The read set of the presence changes that every attached client has passed, if any.
    pub passed_presence: Option<ReadSetId>,
    /// The read set of the snapshots, if any.
    pub snapshots: Option<ReadSetId>,
    /// The numbers of the snapshots, ascending.
    pub snapshot_numbers: Vec<i64>,
    /// The attached clients.
    pub attached: Attached,
    /// The number up to which presence changes are deleted.
    pub presence_until: i64,
    /// Whether at least one row that was read has a checksum.
    pub has_checksums: bool,
}

/// A row of `documents`.
pub(crate) fn document(row: &Row) -> Result<Document> {
    Ok(Document {
        epoch: row.get("epoch")?,
        server_seq: row.get("server_seq")?,
        compacted_seq: row.get::<Option<i64>>("compacted_seq")?.unwrap_or(0),
    })
}

/// Reads the log. The inner error is the verdict for a log that no mode can compact.
pub(crate) fn log(
    item: &Item,
    document: &Document,
    checksums: bool,
    bytes_max: usize,
) -> Result<Result<Log, Verdict>> {
    let doc_id = &item.key_values()?[..];
    let target = document.server_seq;
    let mut edits =
        Edits { checksums, bytes_max, bytes: 0, rows: Vec::new(), has_checksums: false };
    let snapshots = match read_snapshots(item, doc_id, target, &mut edits)? {
        Ok(read) => read,
        Err(verdict) => return Ok(Err(verdict)),
    };
    let mut range = store::columns(Some(item), edits_of(doc_id, target, checksums));
    for page in range.by_ref() {
        if let Err(verdict) = edits.take(page?)? {
            return Ok(Err(verdict));
        }
    }
    let edits_set = range.read_set();

    let attached = clients::attached(item, doc_id)?;
    let presence_until = decide::presence_until(target, attached.checkpoint);
    let mut rows = edits.rows;
    let presence = read_presence(item, doc_id, decide::gaps(&rows, target), presence_until)?;
    if !presence.rows.is_empty() {
        rows.extend(presence.rows);
        rows.sort_by_key(|row| row.server_seq);
    }
    Ok(Ok(Log {
        rows,
        snapshot: snapshots.last,
        edits: edits_set,
        passed_presence: presence.passed,
        snapshots: snapshots.read_set,
        snapshot_numbers: snapshots.numbers,
        attached,
        presence_until,
        has_checksums: edits.has_checksums,
    }))
}

fn changes_of(doc_id: &[Value]) -> Range {
    doc_id.iter().fold(Range::of("changes").limit(PAGE_ROWS), |range, value| range.prefix(value))
}

fn edits_of(doc_id: &[Value], target: i64, checksums: bool) -> Range {
    let columns: &[&str] = if checksums {
        &["server_seq", "lamport", "payload", "checksum"]
    } else {
        &["server_seq", "lamport", "payload"]
    };
    changes_of(doc_id)
        .upper(target)
        .equal("kind", Kind::Edit.as_str())
        .columns(columns.iter().copied())
        .collecting()
}

/// The presence changes of a document.
#[derive(Default)]
struct Presence {
    rows: Vec<decide::Row>,
    /// The read set of those that every attached client has passed, if any.
    passed: Option<ReadSetId>,
}

/// Reads presence in the gaps between the edits' numbers, and collects the rows with a number up to
/// `until`.
fn read_presence(
    item: &Item,
    doc_id: &[Value],
    gaps: Vec<RangeInclusive<i64>>,
    until: i64,
) -> Result<Presence> {
    let (mut presence, mut read_set) = (Presence::default(), None);
    for gap in gaps {
        let (from, to) = gap.into_inner();
        if from <= until {
            let passed = presence_within(doc_id, from, to.min(until)).collecting_into(read_set);
            let mut range = store::rows(Some(item), passed);
            presence.take(&mut range)?;
            read_set = range.read_set();
            presence.passed = read_set.filter(|_| !presence.rows.is_empty());
        }
        if to > until {
            let kept = presence_within(doc_id, from.max(until + 1), to);
            presence.take(&mut store::rows(Some(item), kept))?;
        }
    }
    Ok(presence)
}

fn presence_within(doc_id: &[Value], from: i64, to: i64) -> Range {
    let range = changes_of(doc_id)
        .upper(to)
        .equal("kind", Kind::Presence.as_str())
        .columns(["server_seq", "lamport"]);
    // No bound at the lowest number, which the column may be unable to hold.
    if from > i64::MIN { range.lower(from) } else { range }
}

impl Presence {
    fn take(&mut self, range: &mut store::Rows) -> Result<()> {
        for row in range {
            let row = row?;
            self.rows.push(decide::Row {
                server_seq: row.get("server_seq")?,
                kind: Kind::Presence,
                lamport: row.get("lamport")?,
                payload: Bytes::new(),
            });
        }
        Ok(())
    }
}

/// The snapshots of a document.
#[derive(Default)]
struct Snapshots {
    last: Option<Snapshot>,
    read_set: Option<ReadSetId>,
    numbers: Vec<i64>,
}

/// Collects the snapshots up to the target, and reads the payload of the last.
fn read_snapshots(
    item: &Item,
    doc_id: &[Value],
    target: i64,
    edits: &mut Edits,
) -> Result<Result<Snapshots, Verdict>> {
    let range = doc_id.iter().fold(Range::of("snapshots"), |range, value| range.prefix(value));
    let mut range =
        store::rows(Some(item), range.upper(target).columns(["server_seq"]).collecting());
    let mut numbers = Vec::new();
    for row in range.by_ref() {
        numbers.push(row?.get::<i64>("server_seq")?);
    }
    let Some(&server_seq) = numbers.last() else { return Ok(Ok(Snapshots::default())) };
    let key: Vec<Value> = doc_id.iter().cloned().chain([server_seq.into()]).collect();
    let columns: &[&str] = if edits.checksums { &["payload", "checksum"] } else { &["payload"] };
    let found = store::get_many(Some(item), "snapshots", &[key], columns)?;
    let Some(row) = found.into_iter().next().flatten() else {
        return Err(Error::transient("no-answer", "the host returned no row for a snapshot"));
    };
    let payload = Bytes::from(row.get::<Vec<u8>>("payload")?);
    let checksum = if edits.checksums { row.get("checksum")? } else { None };
    let what = || format!("snapshot {server_seq}");
    Ok(edits.checked(&payload, checksum, what).map(|()| Snapshots {
        last: Some(Snapshot { server_seq, payload }),
        read_set: range.read_set(),
        numbers,
    }))
}

/// The edits read so far.
struct Edits {
    checksums: bool,
    bytes_max: usize,
    bytes: usize,
    rows: Vec<decide::Row>,
    has_checksums: bool,
}

impl Edits {
    /// Takes a page of the log.
    fn take(&mut self, mut page: ColumnPage) -> Result<Result<(), Verdict>> {
        let packed = page.take_bytes("payload")?;
        let (numbers, lamports) = (page.integers("server_seq")?, page.integers("lamport")?);
        let payloads = Bytes::from(packed.bytes);
        self.rows.reserve(page.len());
        for (row, range) in packed.ranges.into_iter().enumerate() {
            let (server_seq, lamport) = (numbers[row], lamports[row]);
            let payload = payloads.slice(range);
            let checksum = if self.checksums { page.get(row, "checksum")? } else { None };
            let what = || format!("change {server_seq}");
            if let Err(verdict) = self.checked(&payload, checksum, what) {
                return Ok(Err(verdict));
            }
            self.rows.push(decide::Row { server_seq, kind: Kind::Edit, lamport, payload });
        }
        Ok(Ok(()))
    }

    /// Checks the checksum of a payload, if it has one, and the limit on bytes.
    fn checked(
        &mut self,
        payload: &[u8],
        checksum: Option<i64>,
        what: impl Fn() -> String,
    ) -> Result<(), Verdict> {
        self.bytes += payload.len();
        if self.bytes > self.bytes_max {
            return Err(Verdict::skip_settled(format!(
                "left-alone: {}: more than max_bytes = {} bytes of updates",
                Code::TooLarge,
                self.bytes_max
            )));
        }
        let Some(expected) = checksum else { return Ok(()) };
        self.has_checksums = true;
        let found = i64::from(crc32(payload));
        if found != expected {
            return Err(Verdict::dead(format!(
                "checksum: the payload of {} has CRC-32 {found:08x}, its row has {expected:08x}",
                what()
            )));
        }
        Ok(())
    }
}
