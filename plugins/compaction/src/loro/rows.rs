//! Checks the rows of a document, before anything is built from them.
//!
//! Decides whether a row is a well-formed Loro payload. Its checksum must match, and the bytes
//! that the checksum does not cover must have the values that every writer sets: a flipped bit
//! anywhere makes a broken row, never a changed document.

use loro::{EncodedBlobMode, ImportBlobMetadata, LoroDoc, LoroError, VersionVector};

use crate::outcome::{Code, LeftAlone};

/// Cheap facts of all rows together, and the order in which they are imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The number of rows.
    pub rows: usize,
    /// The bytes of the rows.
    pub bytes: usize,
    /// Operations in the rows, with repetitions.
    pub ops: usize,
    /// Changes in the rows, with repetitions.
    pub changes: usize,
    /// Rows that are snapshots: whole ones first, then shallow ones. Within each kind the one with
    /// the most changes comes first, because it makes the others cheap.
    pub snapshots: Vec<usize>,
    /// Whether each row is a snapshot.
    pub is_snapshot: Vec<bool>,
    /// Whether there are only shallow snapshots, and updates that begin before or with the history
    /// of one, so that the rows may contain more history than the snapshot. An equal beginning
    /// counts, because a snapshot can be shallow although its history begins with the first
    /// operation.
    pub reaches_behind: bool,
}

impl Facts {
    /// Whether a row is a snapshot.
    pub fn is_snapshot(&self, row: usize) -> bool {
        self.is_snapshot.get(row).copied().unwrap_or(false)
    }

    /// The rows that are not snapshots, in their order.
    pub fn others(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.rows).filter(|row| !self.is_snapshot(*row))
    }
}

const SHALLOW: EncodedBlobMode = EncodedBlobMode::ShallowSnapshot;

/// Bytes before the checksum: `loro`, and twelve bytes that are unused since Loro 1.0.
const UNUSED: std::ops::Range<usize> = 4..16;
/// The end of the checksum, and the beginning of the bytes that it covers: two bytes for the kind,
/// and the body.
const CHECKED: usize = 20;
const BODY: usize = 22;

/// Checks every row.
///
/// # Errors
/// The first row that is not well formed.
pub fn check(updates: &[&[u8]]) -> Result<Facts, LeftAlone> {
    let mut facts = Facts { rows: updates.len(), ..Facts::default() };
    let mut snapshots = Vec::new();
    let mut shallow = VersionVector::default();
    let mut held = VersionVector::default();
    let mut firsts = VersionVector::default();
    for (row, update) in updates.iter().enumerate() {
        let meta = meta(update).map_err(|left| left.at(row))?;
        facts.bytes += update.len();
        facts.changes += meta.change_num as usize;
        facts.ops += ops(&meta);
        facts.is_snapshot.push(meta.mode.is_snapshot());
        if meta.mode.is_snapshot() {
            snapshots.push((meta.mode, std::cmp::Reverse(meta.change_num), row));
            shallow.merge(&meta.partial_start_vv);
            held.merge(&meta.partial_end_vv);
        } else {
            for (peer, start) in meta.partial_start_vv.iter() {
                let first = firsts.entry(*peer).or_insert(*start);
                *first = (*first).min(*start);
            }
        }
    }
    snapshots.sort_unstable();
    facts.reaches_behind = snapshots.first().is_some_and(|(mode, ..)| *mode == SHALLOW)
        && firsts.iter().any(|(peer, first)| {
            let of = |vector: &VersionVector| vector.get(peer).copied().unwrap_or(0);
            *first <= of(&shallow) && *first < of(&held)
        });
    facts.snapshots = snapshots.into_iter().map(|(_, _, row)| row).collect();
    Ok(facts)
}

/// Reads the header of one row and verifies its checksum.
pub fn meta(update: &[u8]) -> Result<ImportBlobMetadata, LeftAlone> {
    let undecodable = |words: String| LeftAlone::new(Code::Undecodable, words);
    let meta = LoroDoc::decode_import_blob_meta(update, true).map_err(|error| refused(&error))?;
    if let Some(at) = update[UNUSED].iter().position(|byte| *byte != 0) {
        let at = UNUSED.start + at;
        return Err(undecodable(format!("byte {at} of the header is not 0")));
    }
    match meta.mode {
        EncodedBlobMode::Updates | EncodedBlobMode::Snapshot | EncodedBlobMode::ShallowSnapshot => {
            Ok(meta)
        }
        EncodedBlobMode::OutdatedRle | EncodedBlobMode::OutdatedSnapshot => {
            Err(LeftAlone::new(Code::Unsupported, format!("the old encoding {}", meta.mode)))
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

/// One update with the changes of two checked updates. The body of an update is the concatenation
/// of its blocks.
pub fn joined(one: &[u8], other: &[u8]) -> Vec<u8> {
    let mut joined = [one, &other[BODY..]].concat();
    let checksum = xxh32(&joined[CHECKED..]);
    joined[UNUSED.end..CHECKED].copy_from_slice(&checksum.to_le_bytes());
    joined
}

/// XXH32 with the seed that Loro uses.
fn xxh32(bytes: &[u8]) -> u32 {
    const PRIME: [u32; 5] = [2_654_435_761, 2_246_822_519, 3_266_489_917, 668_265_263, 374_761_393];
    const SEED: u32 = u32::from_le_bytes(*b"LORO");
    let word =
        |bytes: &[u8]| bytes.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte));
    let (stripes, rest) = bytes.as_chunks::<16>();
    let mut hash = if stripes.is_empty() {
        SEED.wrapping_add(PRIME[4])
    } else {
        let first = SEED.wrapping_add(PRIME[0]);
        let mut lanes = [
            first.wrapping_add(PRIME[1]),
            SEED.wrapping_add(PRIME[1]),
            SEED,
            SEED.wrapping_sub(PRIME[0]),
        ];
        for stripe in stripes {
            for (lane, bytes) in lanes.iter_mut().zip(stripe.as_chunks::<4>().0) {
                let mixed = lane.wrapping_add(word(bytes).wrapping_mul(PRIME[1]));
                *lane = mixed.rotate_left(13).wrapping_mul(PRIME[0]);
            }
        }
        let turned = lanes.iter().zip([1, 7, 12, 18]).map(|(lane, by)| lane.rotate_left(by));
        turned.fold(0u32, u32::wrapping_add)
    };
    hash = hash.wrapping_add(bytes.len() as u32);
    let (words, rest) = rest.as_chunks::<4>();
    for bytes in words {
        let mixed = hash.wrapping_add(word(bytes).wrapping_mul(PRIME[2]));
        hash = mixed.rotate_left(17).wrapping_mul(PRIME[3]);
    }
    for byte in rest {
        let mixed = hash.wrapping_add(u32::from(*byte).wrapping_mul(PRIME[4]));
        hash = mixed.rotate_left(11).wrapping_mul(PRIME[0]);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(PRIME[1]);
    hash = (hash ^ (hash >> 13)).wrapping_mul(PRIME[2]);
    hash ^ (hash >> 16)
}

/// The reason why Loro rejects a row.
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
    LeftAlone::new(code, format!("Loro rejects it: {error}"))
}

#[cfg(test)]
mod tests {
    use loro::ExportMode;

    use super::*;

    #[test]
    fn the_checksum_is_that_of_loro() {
        let doc = LoroDoc::new();
        for len in 0..70 {
            doc.get_text("text").insert(0, &"x".repeat(len)).unwrap();
            doc.commit();
            for mode in [ExportMode::all_updates(), ExportMode::Snapshot] {
                let row = doc.export(mode).unwrap();
                assert_eq!(xxh32(&row[CHECKED..]).to_le_bytes(), row[UNUSED.end..CHECKED]);
            }
        }
    }

    #[test]
    fn joined_updates_hold_the_changes_of_both() {
        let by = |peer: u64| {
            let doc = LoroDoc::new();
            doc.set_peer_id(peer).unwrap();
            doc.get_text("text").insert(0, &peer.to_string()).unwrap();
            doc.commit();
            doc.export(ExportMode::all_updates()).unwrap()
        };
        let doc = LoroDoc::new();
        doc.import(&joined(&by(1), &by(22))).unwrap();
        assert_eq!(doc.oplog_vv(), [(1, 1), (22, 2)].into_iter().collect());
    }
}
