//! The digest of a document's content, independent of the runs that it is written in.
//!
//! Covers the state vector, the deletions, and place, kind and raw content of every living unit.
//! Deleted content is excluded, so the digest does not change when it is collected.

use sha2::{Digest as _, Sha256};

use super::content::Kind;
use super::model::{Model, Parent, Place};
use super::names::{Id, Names};
use super::ranges::Ranges;

/// The SHA-256 of the document, in hexadecimal. `deleted` is the model whose deletions count:
/// before a compaction, those that integration implies are not yet recorded.
pub fn digest(names: &Names, model: &Model, deleted: &Model) -> String {
    let mut hash = Sha256::new();
    for number in names.descending() {
        let client = model.client(number);
        hash.update(names.client_id(number).to_le_bytes());
        hash.update(client.end().to_le_bytes());
        let deleted = &deleted.client(number).deleted;
        hash_ranges(&mut hash, deleted);
        let mut before: Option<(u32, Kind, Place)> = None;
        let mut bytes_of_run = 0u64;
        let mut walk = model.walk(number);
        while let Some((clock, left)) = walk.next_units() {
            let (is_deleted, until) = deleted.at(clock);
            let piece = walk.take(left.min(until - clock));
            if is_deleted {
                before = None;
                continue;
            }
            let origin = Id { client: number, clock: clock.wrapping_sub(1) };
            let goes_on = before.is_some_and(|(end, kind, place)| {
                end == clock
                    && kind == piece.kind
                    && kind.is_run()
                    && piece.place.origin == origin
                    && piece.place.right_origin == place.right_origin
            });
            if !goes_on {
                hash.update(std::mem::take(&mut bytes_of_run).to_le_bytes());
                hash.update([0xff, piece.kind as u8]);
                hash.update(clock.to_le_bytes());
                hash_place(&mut hash, names, &piece.place);
            }
            for bytes in piece.bytes.shown() {
                hash.update(bytes);
                bytes_of_run += bytes.len() as u64;
            }
            before = Some((clock + piece.len, piece.kind, piece.place));
        }
        hash.update(bytes_of_run.to_le_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn hash_ranges(hash: &mut Sha256, ranges: &Ranges) {
    hash.update((ranges.iter().len() as u64).to_le_bytes());
    for (start, end) in ranges.iter() {
        hash.update(start.to_le_bytes());
        hash.update(end.to_le_bytes());
    }
}

fn hash_place(hash: &mut Sha256, names: &Names, place: &Place) {
    hash_id(hash, names, place.origin);
    hash_id(hash, names, place.right_origin);
    match place.parent {
        Parent::Inherited => hash.update([0]),
        Parent::Root(name) => hash_text(hash, 1, names.text_of(name)),
        Parent::Item(id) => {
            hash.update([2]);
            hash_id(hash, names, id);
        }
    }
    if place.parent_sub.is_some() {
        hash_text(hash, 3, names.text_of(place.parent_sub));
    }
}

fn hash_id(hash: &mut Sha256, names: &Names, id: Id) {
    if id.is_some() {
        hash.update(names.client_id(id.client).to_le_bytes());
        hash.update(id.clock.to_le_bytes());
    } else {
        hash.update(u64::MAX.to_le_bytes());
    }
}

fn hash_text(hash: &mut Sha256, tag: u8, text: &str) {
    hash.update([tag]);
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text.as_bytes());
}
