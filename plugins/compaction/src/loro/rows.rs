//! The rows of a document, before anything is built of them.
//!
//! Decides: whether a row is a well-formed Loro payload. The checksum that every payload
//! carries has to be right, and the bytes that it does not cover have to be what every writer
//! leaves there: a flipped bit anywhere is a broken row, never a changed document.

use loro::{EncodedBlobMode, ImportBlobMetadata, LoroDoc, LoroError, VersionVector};

use crate::outcome::{Code, LeftAlone};

/// Cheap facts of all rows together, and in which order they are to be imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// How many.
    pub rows: usize,
    /// Their bytes.
    pub bytes: usize,
    /// Operations in them, with repetitions.
    pub ops: usize,
    /// Changes in them, with repetitions.
    pub changes: usize,
    /// Rows that are snapshots, whole ones first, then the shallow ones. Within each kind the
    /// one with the most changes comes first: it spares the others.
    pub snapshots: Vec<usize>,
    /// There are only shallow snapshots, and updates from before the history of one begins:
    /// the rows may hold more history than the snapshot.
    pub reaches_behind: bool,
}

const SHALLOW: EncodedBlobMode = EncodedBlobMode::ShallowSnapshot;

/// Bytes before the checksum: `loro` and twelve that hold nothing since Loro 1.0.
const UNUSED: std::ops::Range<usize> = 4..16;

/// Checks every row.
///
/// # Errors
/// The first row that is not well formed.
pub fn check(updates: &[&[u8]]) -> Result<Facts, LeftAlone> {
    let mut facts = Facts { rows: updates.len(), ..Facts::default() };
    let mut snapshots = Vec::new();
    let mut shallow = VersionVector::default();
    let mut firsts = VersionVector::default();
    for (row, update) in updates.iter().enumerate() {
        let meta = meta(update).map_err(|left| left.at(row))?;
        facts.bytes += update.len();
        facts.changes += meta.change_num as usize;
        facts.ops += ops(&meta);
        if meta.mode.is_snapshot() {
            snapshots.push((meta.mode, std::cmp::Reverse(meta.change_num), row));
            shallow.merge(&meta.partial_start_vv);
        } else {
            for (peer, start) in meta.partial_start_vv.iter() {
                let first = firsts.entry(*peer).or_insert(*start);
                *first = (*first).min(*start);
            }
        }
    }
    snapshots.sort_unstable();
    facts.reaches_behind = snapshots.first().is_some_and(|(mode, ..)| *mode == SHALLOW)
        && firsts.iter().any(|(peer, first)| *first < shallow.get(peer).copied().unwrap_or(0));
    facts.snapshots = snapshots.into_iter().map(|(_, _, row)| row).collect();
    Ok(facts)
}

/// What the header of one row says, its checksum being right.
pub fn meta(update: &[u8]) -> Result<ImportBlobMetadata, LeftAlone> {
    let undecodable = |words: String| LeftAlone::new(Code::Undecodable, words);
    let meta = LoroDoc::decode_import_blob_meta(update, true).map_err(|error| refused(&error))?;
    if let Some(at) = update[UNUSED].iter().position(|byte| *byte != 0) {
        let at = UNUSED.start + at;
        return Err(undecodable(format!("byte {at} of the header is not 0, as Loro writes it")));
    }
    match meta.mode {
        EncodedBlobMode::Updates | EncodedBlobMode::Snapshot | EncodedBlobMode::ShallowSnapshot => {
            Ok(meta)
        }
        EncodedBlobMode::OutdatedRle | EncodedBlobMode::OutdatedSnapshot => {
            Err(LeftAlone::new(Code::Unsupported, format!("encoding {} of old", meta.mode)))
        }
    }
}

fn ops(meta: &ImportBlobMetadata) -> usize {
    let span = |(peer, end): (&u64, &i32)| {
        let start = meta.partial_start_vv.get(peer).copied().unwrap_or(0);
        usize::try_from(end.saturating_sub(start)).unwrap_or(0)
    };
    meta.partial_end_vv.iter().map(span).sum()
}

/// Why Loro does not take a row.
pub fn refused(error: &LoroError) -> LeftAlone {
    let code = match error {
        LoroError::DecodeError(_)
        | LoroError::DecodeDataCorruptionError
        | LoroError::DecodeChecksumMismatchError
        | LoroError::DecodeVersionVectorError => Code::Undecodable,
        LoroError::UsedOpID { .. } | LoroError::ConcurrentOpsWithSamePeerID { .. } => {
            Code::Conflict
        }
        LoroError::ImportUpdatesThatDependsOnOutdatedVersion => Code::MissingDependency,
        _ => Code::Unsupported,
    };
    LeftAlone::new(code, format!("Loro does not take it: {error}"))
}
