//! Compaction in merge mode: many updates become one, identities stay.
//!
//! Decides: the order of the steps, and that nothing leaves here unverified. yrs applies
//! the updates and decides what is collected; the independent reader of this crate says
//! whether the result is the same document. yrs is never asked about its own work.
//!
//! ```text
//! rows ──reader──> former model ───────────────────────┬──────────────┐
//!   └──yrs, one transaction per row──reader──> collected model        │
//!                                               compare, splice       │
//!                                                      └──> update ──reader──> compare
//!                                                             └──yrs, from nothing──> compare
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use yrs::block::ClientID;
use yrs::updates::decoder::Decode;
use yrs::{Doc, OffsetKind, Options, ReadTxn, StateVector, Transact, Update};

use super::compare::{self, Change, Difference};
use super::digest::digest;
use super::model::Model;
use super::names::Names;
use super::union::{self, Fault};
use super::{splice, writer};
use crate::outcome::{
    Code, Compacted, Digests, KeepDeleted, LeftAlone, Mode, Remark, Said, Settings,
};

/// Compacts, or says why not. See [`super::compact`].
pub fn merge(updates: &[&[u8]], settings: &Settings) -> Result<Compacted, LeftAlone> {
    let bytes_before = updates.iter().map(|update| update.len()).sum();
    let names = &mut Names::default();
    let old = union::read(names, updates.iter().copied()).map_err(LeftAlone::from)?;
    let keep_deleted = match settings.keep_deleted {
        KeepDeleted::Always => true,
        KeepDeleted::Never => false,
        KeepDeleted::Detect => old.keeps_deleted,
    };

    let collected = rebuild(updates, keep_deleted)?;
    let collected = read_own(names, &collected, "yrs wrote an update that cannot be read")?;
    let spliced = compare::compare(names, &old, &collected, keep_deleted)?.drift.is_some();

    let update = writer::write(names, &splice::splice(names, &old, &collected));
    let new = read_own(names, &update, "the compacted update cannot be read")?;
    if let Some((client, clock)) = compare::compare(names, &old, &new, keep_deleted)?.drift {
        return Err(drifted(client, clock));
    }

    // What others will do with the row: build the document from nothing.
    let again = rebuild(&[&update], keep_deleted)?;
    let again = read_own(names, &again, "the rebuilt document cannot be read")?;
    compare::compare(names, &new, &again, keep_deleted)?;

    let before = digest(names, &old, &new);
    let after = digest(names, &new, &new);
    if before != after {
        let words = format!("the digests differ: {before} and {after}");
        return Err(LeftAlone::new(Code::Changed, words));
    }
    Ok(Compacted {
        update,
        mode: Mode::Merge,
        merged_because: None,
        digests: Digests { before, after },
        bytes_before,
        remarks: vec![
            Remark { name: "spliced", said: Said::Flag(spliced) },
            Remark { name: "kept_deleted", said: Said::Flag(keep_deleted) },
        ],
    })
}

/// Whether `after` says the same as the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    let names = &mut Names::default();
    let old = union::read(names, updates.iter().copied()).map_err(LeftAlone::from)?;
    let new = read_own(names, after, "the compacted update cannot be read")?;
    if let Some((client, clock)) = compare::compare(names, &old, &new, false)?.drift {
        return Err(drifted(client, clock));
    }
    Ok(Digests { before: digest(names, &old, &new), after: digest(names, &new, &new) })
}

fn drifted(client: u64, clock: u32) -> LeftAlone {
    let words = format!("a value would change (client {client}, clock {clock})");
    LeftAlone::new(Code::Changed, words)
}

fn read_own(names: &mut Names, update: &[u8], what: &str) -> Result<Model, LeftAlone> {
    union::read(names, [update]).map_err(|fault| {
        let words = format!("{what}: {}", LeftAlone::from(fault).words);
        LeftAlone::new(Code::Changed, words)
    })
}

/// Applies the updates with yrs, each in its own transaction, and encodes the document.
///
/// yrs is given only what the reader has understood, but it has panicked on less; within a
/// guest a panic ends the batch, and natively it is turned into a reason here.
fn rebuild(updates: &[&[u8]], skip_gc: bool) -> Result<Vec<u8>, LeftAlone> {
    let unsupported = |words: String| LeftAlone::new(Code::Unsupported, words);
    catch_unwind(AssertUnwindSafe(|| rebuild_unguarded(updates, skip_gc)))
        .unwrap_or_else(|_| Err("yrs panicked".into()))
        .map_err(unsupported)
}

fn rebuild_unguarded(updates: &[&[u8]], skip_gc: bool) -> Result<Vec<u8>, String> {
    // Any fixed identity will do: the document makes no change of its own.
    let identity = Options::with_guid_and_client_id(Arc::from("besom"), ClientID::new(0));
    let doc = Doc::with_options(Options {
        offset_kind: OffsetKind::Utf16,
        skip_gc,
        // Cleaning up would delete marks that the document still has.
        cleanup_formatting: false,
        ..identity
    });
    for (row, bytes) in updates.iter().enumerate() {
        let update = Update::decode_v1(bytes)
            .map_err(|error| format!("yrs cannot read update {row}: {error}"))?;
        doc.transact_mut()
            .apply_update(update)
            .map_err(|error| format!("yrs cannot apply update {row}: {error}"))?;
    }
    let txn = doc.transact();
    if txn.store().pending_update().is_some() || txn.store().pending_ds().is_some() {
        return Err("yrs waits for something that the updates do not hold".into());
    }
    Ok(txn.encode_state_as_update_v1(&StateVector::default()))
}

impl From<Fault> for LeftAlone {
    fn from(fault: Fault) -> Self {
        let mut update = None;
        let (code, words) = match fault {
            Fault::Malformed { row, error } => {
                update = Some(row);
                (Code::Undecodable, format!("update {row} cannot be decoded: {error}"))
            }
            Fault::Hole { client, clock } => {
                (Code::Hole, format!("client {client} has a hole at clock {clock}"))
            }
            Fault::Missing { client, clock } => (
                Code::MissingDependency,
                format!("something depends on client {client}, clock {clock}, which is missing"),
            ),
            Fault::Conflict { client, clock } => (
                Code::Conflict,
                format!("client {client}, clock {clock} was used for two different changes"),
            ),
        };
        LeftAlone { code, words, update }
    }
}

impl From<Difference> for LeftAlone {
    fn from(difference: Difference) -> Self {
        let code = match difference.change {
            Change::SplitPair => Code::SplitPair,
            Change::StateVector
            | Change::Revived
            | Change::Deleted
            | Change::Kind
            | Change::Place
            | Change::Dropped
            | Change::Unplaced => Code::Changed,
        };
        LeftAlone::new(code, difference.to_string())
    }
}
