//! Takes from the model that yrs has written what is collected, and everything else from
//! the former one.
//!
//! yrs reads a value into its own types and writes it again, and some values come out in
//! other bytes (a BigInt, -0, the order of an object's keys). So no content is taken from
//! it: every one is copied from the former model, byte by byte. The result is also the
//! same whenever it is made again, which yrs's own encoding is not. It is verified like
//! any other.

use super::compare::{Pairs, Side};
use super::model::{Client, Model, Run};
use super::names::Names;

/// The compacted model with the former contents. Both hold the same units
/// ([`super::compare::compare`] has said so) and no surrogate pair is cut.
pub fn splice(names: &Names, old: &Model, new: &Model) -> Model {
    let mut clients = Vec::with_capacity(names.clients());
    for number in 0..names.clients() as u32 {
        let mut client =
            Client { deleted: new.client(number).deleted.clone(), ..Client::default() };
        let (old, new) = (Side::new(old, number), Side::new(new, number));
        for (a, b) in (Pairs { old, new }) {
            let piece = if b.piece.kind.has_content() { a.piece } else { b.piece };
            let start = client.arena.len() as u32;
            client.arena.extend_from_slice(piece.bytes.unwrap_or_default());
            let bytes = (start, client.arena.len() as u32);
            let run = Run {
                clock: piece.clock,
                len: piece.len,
                place: piece.place,
                kind: piece.kind,
                bytes,
            };
            client.push(number, run);
        }
        clients.push(client);
    }
    Model { clients, keeps_deleted: new.keeps_deleted }
}
