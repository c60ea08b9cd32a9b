//! The digest of a document, independent of the bytes that it is written in.
//!
//! Decides what each mode covers. Both cover the version vector and the frontiers, the visible
//! state ([`super::state`]), and the history ([`super::history`]) from its beginning after the
//! compaction. For a merge that equals the beginning before it.

use loro::{Frontiers, LoroDoc, VersionVector};

use super::{history, state};
use crate::canon::Canon;
use crate::outcome::LeftAlone;

/// The beginning of a document's history.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The version of the removed history.
    pub vv: VersionVector,
    /// The first operations of the history, which the state at its beginning includes; empty if
    /// the history is whole.
    pub frontiers: Frontiers,
}

impl Start {
    /// The beginning of a document's history.
    pub fn of(doc: &LoroDoc) -> Start {
        let vv = doc.shallow_since_vv().to_vv();
        Start { vv, frontiers: doc.shallow_since_frontiers() }
    }

    /// Whether the history is whole.
    pub fn is_whole(&self) -> bool {
        self.vv.is_empty() && self.frontiers.is_empty()
    }

    /// The version that a replica must include to continue with a document that begins here: the
    /// removed history and the first operations, because Loro rejects changes that depend on
    /// anything before them.
    pub fn needed(&self) -> VersionVector {
        let mut needed = self.vv.clone();
        for id in self.frontiers.iter() {
            needed.extend_to_include_last_id(id);
        }
        needed
    }
}

/// The SHA-256 of the document in hexadecimal, with its history from `start`.
///
/// # Errors
/// The reason why the document cannot be read.
pub fn digest(doc: &LoroDoc, start: &Start) -> Result<String, LeftAlone> {
    let mut canon = Canon::new("loro 2");
    version(&mut canon, &doc.oplog_vv(), &doc.oplog_frontiers());
    version(&mut canon, &start.vv, &start.frontiers);
    state::write(&mut canon, doc)?;
    history::write(&mut canon, doc, &start.vv, &doc.oplog_vv())?;
    Ok(canon.finish_hex())
}

/// The SHA-256 of the visible state at the version that is checked out.
///
/// # Errors
/// The reason why the document cannot be read.
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

/// A start as text, equal for equal starts: `peer:counter` of its first operations.
pub fn start_words(start: &Start) -> String {
    let mut heads: Vec<_> = start.frontiers.iter().collect();
    heads.sort_unstable();
    let heads: Vec<_> =
        heads.iter().map(|head| format!("{}:{}", head.peer, head.counter)).collect();
    heads.join(", ")
}
