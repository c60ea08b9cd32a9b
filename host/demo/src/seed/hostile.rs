//! Documents that are difficult to compact, spread over the tenants: the sound documents beside
//! them still have to be compacted.

use besom_core::time::Time;

use super::Fate;
use crate::authors::{self, Session};
use crate::document::Document;
use crate::log::UpdateLog;

/// The length of their logs, which makes them candidates for compaction.
const SESSION: Session = Session { seed: 0xBAD, authors: 2, transactions: 60 };

/// `map.set("k", 5n)` as encoded by Yjs 13.6: one struct of client 77 in the root map `m`, a BigInt
/// (type 122, eight bytes). yrs reads it as the number 5 and would write that.
const BIG_INT: [u8; 21] = [1, 1, 77, 0, 40, 1, 1, b'm', 1, b'k', 1, 122, 0, 0, 0, 0, 0, 0, 0, 5, 0];

/// `map.set("k", 6)` by another client with the same id: valid by itself.
const TWIN: [u8; 14] = [1, 1, 77, 0, 40, 1, 1, b'm', 1, b'k', 1, 125, 6, 0];

/// `map.set("k", 5)` by client 77.
const NUMBER: [u8; 14] = [1, 1, 77, 0, 40, 1, 1, b'm', 1, b'k', 1, 125, 5, 0];

/// The byte of [`NUMBER`] that contains the number.
const NUMBER_AT: usize = 12;

/// An insertion of client 77 after its own clock 1, which was never sent.
const ORPHAN: [u8; 10] = [1, 1, 77, 2, 132, 77, 1, 1, b'c', 0];

/// An edit that ends in the middle of a struct.
const TRUNCATED: [u8; 5] = [1, 1, 77, 0, 40];

/// The hostile documents of the tenant with that index.
pub(super) fn of(tenant: usize, now: Time) -> anyhow::Result<Vec<(Document, Fate, &'static str)>> {
    let log = authors::write(&SESSION)?;
    let hostile = |id: &str, log: &UpdateLog| Document::from_log(id, log, &[], true, now);
    let with = |payloads: &[&[u8]]| {
        let mut log = log.clone();
        let author = log.authors.len() as u32;
        log.authors.push(77);
        payloads.iter().for_each(|payload| log.push(author, payload.to_vec()));
        log
    };
    Ok(match tenant {
        0 => {
            let mut gap = hostile("hostile-gap", &log);
            gap.changes.remove(gap.changes.len() / 2);
            vec![(gap, Fate::Dead, "a number is missing in the sequence of its changes")]
        }
        1 => {
            let undecodable = hostile("hostile-undecodable", &with(&[&TRUNCATED]));
            vec![(undecodable, Fate::Dead, "its last change ends in the middle of a struct")]
        }
        2 => {
            let twins = hostile("hostile-twins", &with(&[&NUMBER, &TWIN]));
            let big_int = hostile("hostile-bigint", &with(&[&BIG_INT]));
            vec![
                (twins, Fate::LeftAlone, "one client id was used for two different changes"),
                (big_int, Fate::CarriedOver, "Yjs wrote a BigInt, which yrs would make a number"),
            ]
        }
        3 => {
            let orphan = hostile("hostile-orphan", &with(&[&ORPHAN]));
            vec![(orphan, Fate::Dead, "a change depends on one that was never received")]
        }
        _ => {
            let mut flipped = hostile("hostile-bitflip", &with(&[&NUMBER]));
            let number = flipped.changes.iter_mut().find(|change| change.payload == NUMBER);
            if let Some(change) = number {
                change.damaged_from = Some(change.payload.clone());
                change.payload[NUMBER_AT] ^= 1;
            }
            vec![(
                flipped,
                Fate::Dead,
                "a bit of a change has flipped: it can be read, but its checksum differs",
            )]
        }
    })
}
