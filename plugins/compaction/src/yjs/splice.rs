//! Combines two models: which units are collected comes from the model that yrs has written,
//! everything else from the former one.
//!
//! yrs decodes values into its own types and encodes them again, which changes the bytes of some
//! values (a BigInt, -0, the order of an object's keys). So every content is copied from the former
//! model, byte by byte. The result is also deterministic, unlike the encoding of yrs. It is
//! verified like any other.
//!
//! A surrogate pair with one deleted half keeps both halves: Yjs splits it when it applies the
//! deletion, and an update cannot contain the remaining half.

use super::compare::{Pairs, Part, Side};
use super::content::Kind;
use super::model::{Client, Model, Piece, Run};
use super::names::Names;

/// The compacted model with the former contents. Both hold the same units
/// ([`super::compare::compare`] has said so, but for halves of pairs).
pub fn splice(names: &Names, old: &Model, new: &Model) -> Model {
    let mut clients = Vec::with_capacity(names.clients());
    for number in 0..names.clients() as u32 {
        let deleted = new.client(number).deleted.clone();
        let mut spliced =
            Spliced { number, client: Client { deleted, ..Client::default() }, pair_taken: false };
        let (old, new) = (Side::new(old, number), Side::new(new, number));
        let mut pairs = Pairs { old, new }.peekable();
        while let Some((a, b)) = pairs.next() {
            let next_kept = pairs.peek().is_some_and(|(_, next)| next.piece.kind.has_content());
            spliced.take(&a, &b, next_kept);
        }
        clients.push(spliced.client);
    }
    Model { clients, keeps_deleted: new.keeps_deleted, ..Model::default() }
}

/// One client's part as it grows.
struct Spliced {
    number: u32,
    client: Client,
    /// The next unit is the second half of a pair that was taken whole.
    pair_taken: bool,
}

impl Spliced {
    fn take(&mut self, old: &Part<'_>, new: &Part<'_>, next_kept: bool) {
        let kept = new.piece.kind.has_content();
        let piece = if kept { &old.piece } else { &new.piece };
        let ends_in_pair = !old.piece.bytes.after.is_empty() && (kept || next_kept);
        let start = piece.clock + u32::from(std::mem::take(&mut self.pair_taken));
        let end = piece.clock + piece.len - u32::from(ends_in_pair);
        if start < end {
            let bytes = if kept { old.piece.bytes.whole } else { &[] };
            self.push(piece, start, end - start, piece.kind, bytes);
        }
        if ends_in_pair {
            self.push(&old.piece, end, 2, Kind::String, old.piece.bytes.after);
            self.pair_taken = true;
        }
    }

    fn push(&mut self, piece: &Piece<'_>, clock: u32, len: u32, kind: Kind, bytes: &[u8]) {
        let start = self.client.arena.len() as u32;
        self.client.arena.extend_from_slice(bytes);
        let bytes = (start, self.client.arena.len() as u32);
        let place = piece.place_at(self.number, clock);
        self.client.push(self.number, Run { clock, len, place, kind, bytes });
    }
}
