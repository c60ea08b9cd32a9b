//! What is to be done with a document: which rows are fed, where the new row stands, what
//! may go.
//!
//! Pure: rows in, plan out. Does not know how a format is compacted, and does not read.
//!
//! # The base
//!
//! `compacted_seq` (C below) is the target of the last compaction: everything up to it was
//! read then. What was left of it is one edit row, the **base row**, at the number of the
//! last edit that was read, and the presence rows that some attached client had not passed.
//! So the numbers up to C have holes, and only the numbers behind C tell whether a commit
//! is still under way:
//!
//! ```text
//!  server_seq   1 2 3 4 5 6 7 8 9 ...          e edit, p presence, . gone
//!  first time   e e p e p                      C = 0, target 5: every number in (0, 5]
//!  afterwards   . . p B p                      B at 4, the last edit; C = 5
//!  later        . . p B p e e p                target 8: feed B, 6, 7; numbers in (5, 8]
//!  afterwards   . . . . . . B p                C = 8; clients had passed 3 and 5
//!
//!  a snapshot   . . . S . e p e                a product's snapshot at 4 and C = 0:
//!                                              feed S, 6, 8; every number in (4, 8]:
//!                                              5 is missing, so a commit is under way
//! ```
//!
//! The base is the last edit row at or below C, or a later snapshot that is not beyond the
//! target; complete must be `(max(C, base), target]`. A snapshot stands for everything up
//! to its number, so rows at or below it may have been removed already. Those that are
//! still there are fed as well: a CRDT takes no harm from hearing something twice, and
//! nothing is lost should the snapshot say less than it ought to. With a base row behind
//! the snapshot, the snapshot is superseded and not fed.
//!
//! # What goes
//!
//! Every edit row that was read, in exchange for the new row at the number of the last one:
//! a client below that number pulls it whole, and `server_seq` and the checkpoints stay.
//! Presence rows that every attached client has passed. Snapshots up to the target, unless
//! one of them is all the content there is.
//!
//! # When there is nothing to exchange
//!
//! The content is one row, or none, and what came since is presence. Were it left alone, the
//! edits that follow would wait until the changes since C have doubled (see [`version`]). So C
//! moves up to the target all the same: everything up to it was read, which is all that C says,
//! and the document is a candidate again after `min_changes` more. Presence that somebody has
//! yet to pass stays, as after any compaction; rows are read from the start of the log, so it
//! goes with the first compaction after it was passed. Left alone is only what has at most one
//! change since C: the next one doubles that.
//!
//! With a reset or a trim allowed, one row is not the end of it: it was merged while somebody
//! was attached who is not any more, or the least that every client has seen has moved on. Then
//! the row is fed once more ([`Decision::Shrink`]) and exchanged only for a smaller one. It is
//! tried as often as a document is looked at, which is once in `min_changes` changes: presence
//! counts, and so does the change by which a client is detached.

use std::fmt;
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::outcome::Mode;

/// A row of `documents`, as far as it matters here.
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

/// What a change is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Content, fed to the CRDT.
    Edit,
    /// Who is there; counts in the sequence, means nothing for the content.
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
    /// Its number in the document.
    pub server_seq: i64,
    /// What it is.
    pub kind: Kind,
    /// Its Lamport time.
    pub lamport: i64,
    /// The update; not needed of presence rows.
    pub payload: Bytes,
}

/// The latest row of `snapshots` not beyond the document's `server_seq`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Up to where it stands for the log.
    pub server_seq: i64,
    /// An update with all of it.
    pub payload: Bytes,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision<'a> {
    /// Exchange the edits for one.
    Compact(Plan<'a>),
    /// The content is one row: exchange it if the mode makes it smaller.
    Shrink {
        /// The exchange.
        plan: Plan<'a>,
        /// What is done if it does not.
        otherwise: Rest,
    },
    /// There is nothing to exchange.
    Rest(Rest),
}

/// What to do where no edits are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Passed presence goes, and `compacted_seq` moves up.
    Prune {
        /// The new `compacted_seq`.
        target: i64,
        /// Whether the snapshots go: not if the content is one of them.
        snapshots: bool,
    },
    /// Nothing.
    Settled(Reason),
    /// Wait: a number is missing. A commit is still under way, or a row is lost.
    Gap {
        /// The first number that is not there.
        missing: i64,
    },
}

/// Why nothing is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The content is one row.
    AlreadyCompact,
    /// There is no content at all.
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

/// How the edits are exchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// The new `compacted_seq`: the `server_seq` as read.
    pub target: i64,
    /// Where the new row stands: at the last edit.
    pub server_seq: i64,
    /// The highest of all rows, so that the new row is not before what it replaces.
    pub lamport: i64,
    /// The updates, in order.
    pub feed: Vec<&'a [u8]>,
    /// The number of the row that each update of `feed` comes from.
    pub numbers: Vec<i64>,
}

/// Up to which number presence rows may go: every attached client has passed them.
/// `checkpoint` is the lowest of the attached clients; none: nobody is attached.
pub fn presence_until(target: i64, checkpoint: Option<i64>) -> i64 {
    checkpoint.map_or(target, |checkpoint| checkpoint.min(target))
}

/// The numbers up to `target` that no edit has, from the lowest to the highest: below the edits,
/// from their first hole to their last, and above them. `edits` ascend. Whatever else the log
/// holds is there, as a number is one row's: to look for it anywhere else is to read the edits
/// once more. Below the edits there is no lower end but that of numbers.
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

/// Decides about a document. `rows` are all its changes up to `server_seq`, ascending;
/// `presence_until` comes from the function of that name, and `mode` is what is allowed now.
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

/// The updates that make a document up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feed<'a> {
    /// Up to here numbers may be missing.
    pub base: i64,
    /// Whether the snapshot is the first of them.
    pub snapshot: bool,
    /// They, in order.
    pub updates: Vec<&'a [u8]>,
    /// The number of the row that each comes from.
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

/// The first number of `(after, target]` that no row has.
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

/// The version of the item: what has to change before a document that was left alone, or
/// set aside, is looked at again.
///
/// A rebuild costs as much as the log is long, so one more change is no reason. The version
/// changes with a new epoch, a compaction, other settings or another version of this task,
/// and whenever the changes since the last compaction have **doubled**: all attempts
/// together then cost no more than twice the last one.
pub fn version(document: &Document, min_changes: i64, settings: &str) -> String {
    let doublings = (document.pending() / min_changes.max(1)).max(1).ilog2();
    format!("{}.{}.{doublings}.{settings}", document.epoch, document.compacted_seq)
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
