//! Merge: writes all changes into one document chunk, and keeps identities.
//!
//! Verifies every result: the chunk is loaded into a new document, which must contain the same
//! changes (by their hashes, which cover every operation, time, message and dependency) and show
//! the same content.

use automerge::ReadDoc;
use sha2::{Digest as _, Sha256};

use super::chunk::Hash;
use super::content::{self, Content, Identities};
use super::history::{self, Log, hex};
use super::memory;
use super::replay::{self, Built, guarded};
use crate::outcome::{Code, Compacted, Digests, LeftAlone, Mode, Remark, Said};

/// Compacts a document. See [`super::compact`].
pub fn merge(updates: &[&[u8]]) -> Result<Compacted, LeftAlone> {
    let log = history::read(updates)?;
    memory::require(&log.facts, Mode::Merge)?;
    guarded(|| {
        let built = replay::build(log)?;
        merged(built, updates, None)
    })
}

/// The compaction of a document that was built.
pub fn merged(
    built: Built,
    updates: &[&[u8]],
    merged_because: Option<String>,
) -> Result<Compacted, LeftAlone> {
    let said = State::of(&built)?;
    let (changes, operations) = (built.hashes.len() as u64, built.doc.stats().num_ops);
    let update = built.doc.save();
    drop(built);
    let again = State::of(&read_back(&update)?)?;
    said.compare(&again)?;
    Ok(Compacted {
        update,
        mode: Mode::Merge,
        merged_because,
        digests: Digests { before: said.digest, after: again.digest },
        bytes_before: updates.iter().map(|update| update.len()).sum(),
        remarks: vec![
            Remark { name: "changes", said: Said::Count(changes) },
            Remark { name: "operations", said: Said::Count(operations) },
            Remark { name: "conflicts", said: Said::Flag(said.content.conflict.is_some()) },
        ],
    })
}

/// Checks that `after` is equivalent to the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    let log = history::read(updates)?;
    memory::require(&log.facts, Mode::Merge)?;
    guarded(|| {
        let said = State::of(&replay::build(log)?)?;
        let again = State::of(&read_back(after)?)?;
        said.compare(&again)?;
        Ok(Digests { before: said.digest, after: again.digest })
    })
}

/// Reads a compacted update like any other, and checks that it is one document.
pub fn read_back(update: &[u8]) -> Result<Built, LeftAlone> {
    let changed = |left: LeftAlone| {
        let words = format!("the compacted update cannot be read: {}", left.words);
        LeftAlone::new(Code::Changed, words)
    };
    let log: Log<'_> = history::read(&[update]).map_err(changed)?;
    if log.documents.len() != 1 || !log.changes.is_empty() {
        return Err(LeftAlone::new(Code::Changed, "the compacted update is not one document"));
    }
    replay::build(log).map_err(changed)
}

/// Compares everything that must be the same before and after.
struct State {
    heads: Vec<Hash>,
    hashes: Vec<Hash>,
    content: Content,
    digest: String,
}

impl State {
    fn of(built: &Built) -> Result<State, LeftAlone> {
        let content = content::walk(&built.doc, Identities::Kept)?;
        let mut hash = Sha256::new();
        for list in [&built.heads, &built.hashes] {
            hash.update((list.len() as u64).to_le_bytes());
            for name in list {
                hash.update(name);
            }
        }
        hash.update(content.digest);
        let digest = hex(&hash.finalize());
        Ok(State { heads: built.heads.clone(), hashes: built.hashes.clone(), content, digest })
    }

    fn compare(&self, other: &State) -> Result<(), LeftAlone> {
        let differs = if self.heads != other.heads {
            "the heads differ"
        } else if self.hashes != other.hashes {
            "the changes differ"
        } else if self.content != other.content {
            "the content differs"
        } else if self.digest != other.digest {
            "the digests differ"
        } else {
            return Ok(());
        };
        Err(LeftAlone::new(Code::Changed, differs))
    }
}
