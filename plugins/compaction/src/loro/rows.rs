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
    /// Of each row whether it is one.
    pub is_snapshot: Vec<bool>,
    /// There are only shallow snapshots, and updates that begin before the history of one, or
    /// with it: the rows may hold more history than the snapshot. Equal counts, as a snapshot
    /// whose history begins with the very first operation is shallow all the same.
    pub reaches_behind: bool,
}

impl Facts {
    /// Whether that row is a snapshot.
    pub fn is_snapshot(&self, row: usize) -> bool {
        self.is_snapshot.get(row).copied().unwrap_or(false)
    }

    /// The rows that are none, in their order.
    pub fn others(&self) -> impl Iterator<Item = usize> + Clone + '_ {
        (0..self.rows).filter(|row| !self.is_snapshot(*row))
    }
}

const SHALLOW: EncodedBlobMode = EncodedBlobMode::ShallowSnapshot;

/// Bytes before the checksum: `loro` and twelve that hold nothing since Loro 1.0.
const UNUSED: std::ops::Range<usize> = 4..16;
/// Where the checksum ends and what it covers begins: two bytes that say what it is, and
/// the body.
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

/// One update with the changes of two, which were checked. The body of an update is its
/// blocks, one after the other.
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
