//! Reset: the present document as one change, under an identity that is derived from its
//! content.
//!
//! Decides: whether anything but history would be lost, and then a merge is done instead, with
//! the reason. Whoever still has the former history must be kept away by the document's
//! epoch: to the library the two are strangers, and it would show the content twice.

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

/// The most identities that are tried until one is new.
const IDENTITIES_MAX: u32 = 1_000;

/// Compacts, or says why not. See [`super::compact`].
pub fn reset(updates: &[&[u8]]) -> Result<Compacted, LeftAlone> {
    let log = history::read(updates)?;
    if memory::require(&log.facts, Mode::Reset).is_err() {
        memory::require(&log.facts, Mode::Merge)?;
        return guarded(|| {
            let because = Some("memory: a reset needs more than there is".to_owned());
            merge::merged(replay::build(log)?, updates, because)
        });
    }
    let mut built = guarded(|| replay::build(log))?;
    match guarded(|| Ok(renewed(&mut built, updates)))?? {
        Ok(compacted) => Ok(compacted),
        Err(because) => guarded(|| merge::merged(built, updates, Some(because))),
    }
}

/// Inner error: why nothing less than a merge says the same.
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
        return Ok(Err("content: what was written anew shows something else".into()));
    }
    let digests = Digests {
        before: digest(&before, &mut built.doc, &places)?,
        after: digest(&after, &mut again.doc, &places)?,
    };
    if digests.before != digests.after {
        return Ok(Err("expand: a mark would take in what is typed beside it otherwise".into()));
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

/// Writes it under the first identity that the document does not know. A document that is
/// nothing but such a change already comes out as it is.
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
    Ok(Err("identities: the document knows all that were tried".into()))
}

/// The actor of a content.
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

/// Whether `after` says the same as the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    let log = history::read(updates)?;
    memory::require(&log.facts, Mode::Reset)?;
    guarded(|| {
        let mut former = replay::build(log)?;
        let mut again = merge::read_back(after)?;
        let changed = |words: String| LeftAlone::new(Code::Changed, words);
        if again.hashes.len() != 1 {
            let words = format!("a reset holds one change, not {}", again.hashes.len());
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
            return Err(changed("the marks expand otherwise".into()));
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
