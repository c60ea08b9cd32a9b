//! One number for what a document says, whatever bytes it is written in.
//!
//! Decides: what counts in each mode. In both: the version vector and the frontiers, what the
//! document shows ([`super::state`]), and its history ([`super::history`]) from where it
//! begins after the compaction. For a merge that is where it began before.

use loro::{Frontiers, LoroDoc, VersionVector};

use super::{history, state};
use crate::canon::Canon;
use crate::outcome::LeftAlone;

/// Where a document's history begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// What is no longer in it.
    pub vv: VersionVector,
    /// The first operations in it, which the state at the start includes; empty when the
    /// history is whole.
    pub frontiers: Frontiers,
}

impl Start {
    /// Where that document begins.
    pub fn of(doc: &LoroDoc) -> Start {
        let vv = doc.shallow_since_vv().to_vv();
        Start { vv, frontiers: doc.shallow_since_frontiers() }
    }

    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.vv.is_empty() && self.frontiers.is_empty()
    }

    /// What a replica has to have so that it can go on with a document that begins here:
    /// all that is gone, and the first operations as well, as what depends on something
    /// before them is refused.
    pub fn needed(&self) -> VersionVector {
        let mut needed = self.vv.clone();
        for id in self.frontiers.iter() {
            needed.extend_to_include_last_id(id);
        }
        needed
    }
}

/// SHA-256 of the document in hexadecimal, its history from `start` on.
///
/// # Errors
/// Where it cannot be read.
pub fn digest(doc: &LoroDoc, start: &Start) -> Result<String, LeftAlone> {
    let mut canon = Canon::new("loro 2");
    version(&mut canon, &doc.oplog_vv(), &doc.oplog_frontiers());
    version(&mut canon, &start.vv, &start.frontiers);
    state::write(&mut canon, doc)?;
    history::write(&mut canon, doc, &start.vv, &doc.oplog_vv())?;
    Ok(canon.finish_hex())
}

/// SHA-256 of what the document shows as it stands, wherever it is checked out.
///
/// # Errors
/// Where it cannot be read.
pub fn shown(doc: &LoroDoc) -> Result<String, LeftAlone> {
    let mut canon = Canon::new("loro state");
    state::write(&mut canon, doc)?;
    Ok(canon.finish_hex())
}

fn version(canon: &mut Canon, vv: &VersionVector, frontiers: &Frontiers) {
    let mut peers: Vec<_> = vv.iter().filter(|(_, end)| **end > 0).collect();
    peers.sort_unstable();
    canon.unsigned(peers.len() as u64);
    for (peer, end) in peers {
        canon.wide(*peer);
        canon.number(i64::from(*end));
    }
    let mut heads: Vec<_> = frontiers.iter().collect();
    heads.sort_unstable();
    canon.unsigned(heads.len() as u64);
    for head in heads {
        canon.id(head);
    }
}

/// A start in words, the same for the same one: `peer:counter` of its first operations.
pub fn start_words(start: &Start) -> String {
    let mut heads: Vec<_> = start.frontiers.iter().collect();
    heads.sort_unstable();
    let heads: Vec<_> =
        heads.iter().map(|head| format!("{}:{}", head.peer, head.counter)).collect();
    heads.join(", ")
}
