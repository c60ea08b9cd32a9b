//! Reset: writes the current document as one change, with an identity derived from its content.
//!
//! Decides whether anything but history would be lost; then it merges instead, with the reason. The
//! product has to reject clients with the former history by the document's epoch: to the library
//! the two histories are unrelated, and it would show the content twice.

use automerge::{ActorId, ReadDoc};
use sha2::{Digest as _, Sha256};

use super::chunk::Hash;
use super::content::{self, Content, Identities};
use super::history::{self, hex};
use super::live::{Live, Present, Reason};
use super::probe::{self, Places};
use super::replay::{self, Built, guarded};
use super::{memory, merge, rebuild};
use crate::outcome::{Code, Compacted, Digests, LeftAlone, Mode, Remark, Said};

/// The maximum number of identities that are tried to find a new one.
const IDENTITIES_MAX: u32 = 1_000;

/// Compacts a document. See [`super::compact`].
pub fn reset(updates: &[&[u8]]) -> Result<Compacted, LeftAlone> {
    let log = history::read(updates)?;
    if memory::require(&log.facts, Mode::Reset).is_err() {
        memory::require(&log.facts, Mode::Merge)?;
        return guarded(|| {
            let because = Some("memory: a reset needs more memory than available".to_owned());
            merge::merged(replay::build(log)?, updates, because)
        });
    }
    let mut built = guarded(|| replay::build(log))?;
    match guarded(|| Ok(renewed(&mut built, updates)))?? {
        Ok(compacted) => Ok(compacted),
        Err(because) => guarded(|| merge::merged(built, updates, Some(because))),
    }
}

/// The inner error is the reason for a merge instead.
fn renewed(built: &mut Built, updates: &[&[u8]]) -> Result<Result<Compacted, Reason>, LeftAlone> {
    let before = content::walk(&built.doc, Identities::Left)?;
    if let Some(place) = &before.conflict {
        return Ok(Err(format!("conflicts: {place}")));
    }
    if let Some(place) = &before.unknown {
        return Ok(Err(format!("unknown: {place}")));
    }
    let (present, live) = match read(built) {
        Ok(read) => read,
        Err(because) => return Ok(Err(because)),
    };
    let update = match write(built, &before, &present, &live)? {
        Ok(update) => update,
        Err(because) => return Ok(Err(because)),
    };
    let places = probe::places(&present);
    drop((present, live));
    let mut again = merge::read_back(&update)?;
    let after = content::walk(&again.doc, Identities::Left)?;
    if before != after {
        return Ok(Err("content: the rewritten document differs".into()));
    }
    let digests = Digests {
        before: digest(&before, &mut built.doc, &places)?,
        after: digest(&after, &mut again.doc, &places)?,
    };
    if digests.before != digests.after {
        return Ok(Err("expand: a mark would expand differently".into()));
    }
    Ok(Ok(Compacted {
        update,
        mode: Mode::Reset,
        merged_because: None,
        digests,
        bytes_before: updates.iter().map(|update| update.len()).sum(),
        remarks: vec![
            Remark { name: "changes", said: Said::Count(built.hashes.len() as u64) },
            Remark { name: "operations", said: Said::Count(built.doc.stats().num_ops) },
            Remark { name: "actor", said: Said::Words(actor_of(&again)) },
        ],
    }))
}

fn read(built: &Built) -> Result<(Vec<(u32, Present)>, Live), Reason> {
    let mut live = Live::default();
    for change in built.doc.get_changes(&[]) {
        live.take(&change)?;
    }
    Ok((live.present()?, live))
}

/// Writes the change with the first identity that the document does not contain. A document that
/// consists of such a change already stays unchanged.
fn write(
    built: &Built,
    content: &Content,
    present: &[(u32, Present)],
    live: &Live,
) -> Result<Result<Vec<u8>, Reason>, LeftAlone> {
    for attempt in 0..IDENTITIES_MAX {
        let id = identity(&content.digest, attempt);
        let is_known = live.has_actor(&id);
        if is_known && built.hashes.len() > 1 {
            continue;
        }
        let change = match rebuild::change(present, &ActorId::from(id)) {
            Ok(change) => change,
            Err(because) => return Ok(Err(because)),
        };
        if is_known && built.hashes != [change.hash().0] {
            continue;
        }
        let mut doc = replay::empty();
        doc.apply_changes([change]).map_err(|error| {
            LeftAlone::new(Code::Unsupported, format!("automerge cannot apply a reset: {error}"))
        })?;
        return Ok(Ok(doc.save()));
    }
    Ok(Err("identities: every identity that was tried is in use".into()))
}

/// The actor id derived from a content.
fn identity(content: &Hash, attempt: u32) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(b"besom automerge reset 1");
    hash.update(content);
    hash.update(attempt.to_le_bytes());
    let hash: Hash = hash.finalize().into();
    *hash.first_chunk().expect("a hash has more bytes")
}

fn actor_of(built: &Built) -> String {
    let metas = built.doc.get_changes_meta(&[]);
    metas.first().map(|meta| hex(meta.actor.to_bytes())).unwrap_or_default()
}

/// Checks that `after` is equivalent to the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    let log = history::read(updates)?;
    memory::require(&log.facts, Mode::Reset)?;
    guarded(|| {
        let mut former = replay::build(log)?;
        let mut again = merge::read_back(after)?;
        let changed = |words: String| LeftAlone::new(Code::Changed, words);
        if again.hashes.len() != 1 {
            let words = format!("a reset has one change, not {}", again.hashes.len());
            return Err(changed(words));
        }
        let before = content::walk(&former.doc, Identities::Left)?;
        let now = content::walk(&again.doc, Identities::Left)?;
        if before != now {
            return Err(changed("the content differs".into()));
        }
        let (present, _) = read(&again).map_err(changed)?;
        let places = probe::places(&present);
        let digests = Digests {
            before: digest(&before, &mut former.doc, &places)?,
            after: digest(&now, &mut again.doc, &places)?,
        };
        if digests.before != digests.after {
            return Err(changed("the marks expand differently".into()));
        }
        Ok(digests)
    })
}

fn digest(
    content: &Content,
    doc: &mut automerge::Automerge,
    places: &Places,
) -> Result<String, LeftAlone> {
    let mut hash = Sha256::new();
    hash.update(content.digest);
    hash.update(probe::probe(doc, places)?);
    Ok(hex(&hash.finalize()))
}
