//! Decides what to do with a document: which rows are fed to its format, which number the new row
//! gets, and which rows are deleted.
//!
//! Pure: it takes rows and returns a plan. It does not compact and does not read.
//!
//! # The base
//!
//! `compacted_seq` (C below) is the target of the last compaction, which read everything up to
//! it. What remains of that is one edit row, the **base row**, at the number of the last edit
//! that was read, and the presence rows that some attached client had not passed. So the numbers
//! up to C have gaps, and only the numbers after C show whether a commit is still in progress:
//!
//! ```text
//!  server_seq   1 2 3 4 5 6 7 8 9 ...          e edit, p presence, . deleted
//!  first time   e e p e p                      C = 0, target 5: every number in (0, 5]
//!  afterwards   . . p B p                      B at 4, the last edit; C = 5
//!  later        . . p B p e e p                target 8: feed B, 6, 7; numbers in (5, 8]
//!  afterwards   . . . . . . B p                C = 8; clients had passed 3 and 5
//!
//!  a snapshot   . . . S . e p e                a product's snapshot at 4 and C = 0:
//!                                              feed S, 6, 8; every number in (4, 8]:
//!                                              5 is missing, so a commit is in progress
//! ```
//!
//! The base is the last edit row at or below C, or a later snapshot that is not beyond the
//! target; every number in `(max(C, base), target]` must exist. A snapshot represents everything
//! up to its number, so rows at or below it may have been deleted. The remaining ones are
//! fed as well: a CRDT accepts an update twice, and nothing is lost if the snapshot is incomplete.
//! With a base row after the snapshot, the snapshot is superseded and not fed.
//!
//! # What is deleted
//!
//! - Every edit row that was read. The new row gets the number of the last one: a client below
//!   that number pulls it whole, and `server_seq` and the checkpoints stay.
//! - Presence rows that every attached client has passed.
//! - Snapshots up to the target, unless one of them is the whole content.
//!
//! # If there is nothing to replace
//!
//! The content is one row or none, and all later changes are presence. If such a document were
//! left alone, later edits would wait until the changes since C have doubled (see [`version`]). So
//! C advances to the target anyway: everything up to it was read, which is all that C means,
//! and the document is a candidate again after `min_changes` more. Presence that some client has
//! not passed stays, as after any compaction; rows are read from the start of the log, so the
//! first compaction after it was passed deletes it. A document is left alone only if it has at most
//! one change since C: the next change doubles that.
//!
//! If a reset or a trim is allowed, even one row may shrink: it was merged while a client was
//! attached that has since detached, or the minimum that all clients have seen has advanced. Then
//! the row is fed again ([`Decision::Shrink`]) and replaced only by a smaller one. This is
//! tried whenever the document is a candidate, that is, once per `min_changes` changes, including
//! presence and the change by which a client is detached.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::outcome::Mode;

/// The columns of `documents` that the decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Document {
    /// The generation of the document's history.
    pub epoch: i64,
    /// The number of the last change.
    pub server_seq: i64,
    /// The target of the last compaction; 0 before the first.
    pub compacted_seq: i64,
}

impl Document {
    /// Changes since the last compaction, as the column `pending` counts them.
    pub fn pending(&self) -> i64 {
        self.server_seq - self.compacted_seq
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An update of the content, fed to the CRDT.
    Edit,
    /// A presence update: it counts in the sequence and does not affect the content.
    Presence,
}

impl Kind {
    /// The word in `changes.kind`.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Edit => "edit",
            Kind::Presence => "presence",
        }
    }
}

/// A row of `changes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The number of the change in its document.
    pub server_seq: i64,
    /// Whether the change is an edit or presence.
    pub kind: Kind,
    /// The Lamport time of the change.
    pub lamport: i64,
    /// The update; empty for presence rows, which are read without it.
    pub payload: Bytes,
}

/// The latest row of `snapshots` not beyond the document's `server_seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The number of the last change that the snapshot contains.
    pub server_seq: i64,
    /// An update with the whole content.
    pub payload: Bytes,
}

/// The outcome for a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Replace the edits by one.
    Compact(Plan<'a>),
    /// The content is one row: replace it if the mode makes it smaller.
    Shrink {
        /// The replacement.
        plan: Plan<'a>,
        /// The outcome if the row does not become smaller.
        otherwise: Rest,
    },
    /// There is nothing to replace.
    Rest(Rest),
}

/// The outcome if no edits are replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Delete passed presence and advance `compacted_seq`.
    Prune {
        /// The new `compacted_seq`.
        target: i64,
        /// Whether snapshots are deleted: not if one of them is the content.
        snapshots: bool,
    },
    /// Skip the document until its version changes.
    Settled(Reason),
    /// Retry: a number is missing. A commit is still in progress, or a row is lost.
    Gap {
        /// The first missing number.
        missing: i64,
    },
}

/// Why a document is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The content is one row.
    AlreadyCompact,
    /// The document has no edits and no snapshot.
    NoEdits,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::AlreadyCompact => "already-compact: the content is one row",
            Reason::NoEdits => "no-edits: the document has no content",
        })
    }
}

/// How the edits are replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// The new `compacted_seq`, which is `server_seq` as it was read.
    pub target: i64,
    /// The number of the new row, which is that of the last edit.
    pub server_seq: i64,
    /// The highest Lamport time of all rows, so that the new row is not before those it replaces.
    pub lamport: i64,
    /// The updates to be compacted, in order.
    pub feed: Vec<&'a [u8]>,
    /// The number of the row that each update of `feed` comes from.
    pub numbers: Vec<i64>,
}

/// The number up to which presence rows may be deleted, because every attached client has passed
/// them. `checkpoint` is the lowest of the attached clients; none: no client is attached.
pub fn presence_until(target: i64, checkpoint: Option<i64>) -> i64 {
    checkpoint.map_or(target, |checkpoint| checkpoint.min(target))
}

/// The ranges of numbers up to `target` that contain no edit, ascending: below the edits, from
/// their first gap to their last, and above them. `edits` ascend. All other rows of the log are in
/// these ranges, because a number belongs to one row; reading elsewhere would read edits again.
/// The range below the edits starts at the lowest number.
pub fn gaps(edits: &[Row], target: i64) -> Vec<RangeInclusive<i64>> {
    let (Some(first), Some(last)) = (edits.first(), edits.last()) else {
        return vec![i64::MIN..=target];
    };
    let mut gaps = vec![i64::MIN..=first.server_seq.saturating_sub(1)];
    let holes = || {
        let pairs = edits.windows(2).map(|pair| (pair[0].server_seq, pair[1].server_seq));
        pairs.filter(|(before, after)| after.saturating_sub(*before) > 1)
    };
    if let (Some((before, _)), Some((_, after))) = (holes().next(), holes().next_back()) {
        gaps.push(before + 1..=after - 1);
    }
    gaps.push(last.server_seq.saturating_add(1)..=target);
    gaps.retain(|gap| !gap.is_empty());
    gaps
}

/// Decides on a document. `rows` are all its changes up to `server_seq`, ascending,
/// `presence_until` comes from the function of that name, and `mode` is the mode allowed now.
pub fn decide<'a>(
    document: &Document,
    snapshot: Option<&'a Snapshot>,
    rows: &'a [Row],
    presence_until: i64,
    mode: Mode,
) -> Decision<'a> {
    let target = document.server_seq;
    let rows = &rows[..rows.partition_point(|row| row.server_seq <= target)];
    let fed = feed(document, snapshot, rows);
    if let Some(missing) = first_missing(rows, document.compacted_seq.max(fed.base), target) {
        return Decision::Rest(Rest::Gap { missing });
    }
    let edit = rows.iter().rfind(|row| row.kind == Kind::Edit);
    let is_alone = fed.updates.len() == 1;
    let lamport = rows.iter().map(|row| row.lamport).max().unwrap_or_default();
    let passed = |row: &Row| row.kind == Kind::Presence && row.server_seq <= presence_until;
    let rest = if document.pending() > 1 || rows.iter().any(passed) {
        Rest::Prune { target, snapshots: !fed.snapshot }
    } else if edit.is_some() {
        Rest::Settled(Reason::AlreadyCompact)
    } else {
        Rest::Settled(Reason::NoEdits)
    };
    let Some(edit) = edit else { return Decision::Rest(rest) };
    let Feed { updates: feed, numbers, .. } = fed;
    let plan = Plan { target, server_seq: edit.server_seq, lamport, feed, numbers };
    match mode {
        _ if !is_alone => Decision::Compact(plan),
        Mode::Merge => Decision::Rest(rest),
        Mode::Reset | Mode::Trim => Decision::Shrink { plan, otherwise: rest },
    }
}

/// The updates that make up a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed<'a> {
    /// The number up to which numbers may be missing.
    pub base: i64,
    /// Whether the first update is the snapshot.
    pub snapshot: bool,
    /// The updates, in order.
    pub updates: Vec<&'a [u8]>,
    /// The number of the row that each update comes from.
    pub numbers: Vec<i64>,
}

/// The updates of a document whose rows, ascending, end with `server_seq`.
pub fn feed<'a>(document: &Document, snapshot: Option<&'a Snapshot>, rows: &'a [Row]) -> Feed<'a> {
    let edits = || rows.iter().filter(|row| row.kind == Kind::Edit);
    let base_row = edits()
        .take_while(|row| row.server_seq <= document.compacted_seq)
        .last()
        .map_or(0, |row| row.server_seq);
    let snapshot =
        snapshot.filter(|s| s.server_seq > base_row && s.server_seq <= document.server_seq);
    let (updates, numbers) = snapshot
        .map(|s| (&*s.payload, s.server_seq))
        .into_iter()
        .chain(edits().map(|row| (&*row.payload, row.server_seq)))
        .unzip();
    let base = snapshot.map_or(base_row, |s| s.server_seq);
    Feed { base, snapshot: snapshot.is_some(), updates, numbers }
}

/// The first number in `(after, target]` without a row.
fn first_missing(rows: &[Row], after: i64, target: i64) -> Option<i64> {
    let behind = rows.partition_point(|row| row.server_seq <= after);
    let mut expected = after;
    for row in &rows[behind..] {
        expected += 1;
        if row.server_seq != expected {
            return Some(expected);
        }
    }
    (expected < target).then_some(expected + 1)
}

/// The version of the item, which has to change before a document that was left alone or set
/// aside is decided again.
///
/// The cost of a rebuild grows with the log, so one more change is not enough. The version
/// changes with a new epoch, a compaction, other settings or another version of this task,
/// and whenever the changes since the last compaction have **doubled**: all attempts
/// together then cost at most twice the last one.
pub fn version(document: &Document, min_changes: i64, settings: &str) -> String {
    let doublings = (document.pending() / min_changes.max(1)).max(1).ilog2();
    format!("{}.{}.{doublings}.{settings}", document.epoch, document.compacted_seq)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
