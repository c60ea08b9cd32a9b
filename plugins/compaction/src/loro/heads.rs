//! Finds the heads of a version: its last operations, on which no other operation depends.
//!
//! The result equals that of Loro, which checks for each peer's last operation whether any other
//! depends on it. That takes minutes for thousands of peers; here one pass over all changes
//! suffices.

use std::collections::HashMap;

use loro::{Frontiers, ID, LoroDoc, LoroError, PeerID, VersionVector};

/// The number of peers up to which Loro's own function, which compares them in pairs, is used.
const PEERS_COMPARED_MAX: usize = 64;

/// The heads of a version of the document.
///
/// # Errors
/// The reason why it is not a version of the document.
pub fn of(doc: &LoroDoc, version: &VersionVector) -> Result<Frontiers, LoroError> {
    if *version == doc.oplog_vv() {
        return Ok(doc.oplog_frontiers());
    }
    let found = if version.len() > PEERS_COMPARED_MAX { of_closed(doc, version) } else { None };
    found.map_or_else(|| doc.try_vv_to_frontiers(version), Ok)
}

/// The heads of a version that includes all dependencies of its operations; none if it does not.
///
/// In such a version the last operation of a peer is a head unless another peer's change
/// depends on that operation.
fn of_closed(doc: &LoroDoc, version: &VersionVector) -> Option<Frontiers> {
    let start = doc.shallow_since_vv().to_vv();
    let of = |vv: &VersionVector, peer: &PeerID| vv.get(peer).copied().unwrap_or(0);
    let mut heads: HashMap<PeerID, i32> = version
        .iter()
        .filter(|(peer, end)| **end > of(&start, peer))
        .map(|(peer, end)| (*peer, *end - 1))
        .collect();
    for (peer, end) in version.iter() {
        let mut next = of(&start, peer);
        while next < *end {
            let change = doc.get_change(ID::new(*peer, next))?;
            for dep in change.deps.iter() {
                if dep.counter >= of(version, &dep.peer) {
                    return None;
                }
                if dep.peer != *peer && heads.get(&dep.peer) == Some(&dep.counter) {
                    heads.remove(&dep.peer);
                }
            }
            next = change.id.counter.checked_add(i32::try_from(change.len).ok()?)?;
        }
    }
    let heads: Vec<ID> = heads.into_iter().map(|(peer, counter)| ID::new(peer, counter)).collect();
    (!heads.is_empty()).then(|| Frontiers::from(heads))
}

#[cfg(test)]
mod tests {
    use loro::ExportMode;

    use super::*;

    const PEERS: u64 = 5;

    /// Authors who hear of each other now and then, and all that they wrote.
    fn company(seed: u32) -> (Vec<LoroDoc>, LoroDoc) {
        let author = |peer| {
            let doc = LoroDoc::new();
            doc.set_peer_id(peer).unwrap();
            doc
        };
        let docs: Vec<LoroDoc> = (1..=PEERS).map(author).collect();
        let mut state = seed;
        let mut chance = |below: usize| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 16) as usize % below
        };
        for _ in 0..60 {
            let doc = &docs[chance(docs.len())];
            doc.get_text("text").insert(0, &"x".repeat(1 + chance(3))).unwrap();
            doc.commit();
            let (from, to) = (&docs[chance(docs.len())], &docs[chance(docs.len())]);
            to.import(&from.export(ExportMode::updates(&to.oplog_vv())).unwrap()).unwrap();
        }
        let all = author(PEERS + 1);
        for doc in &docs {
            all.import(&doc.export(ExportMode::all_updates()).unwrap()).unwrap();
        }
        (docs, all)
    }

    fn sorted(frontiers: &Frontiers) -> Vec<ID> {
        let mut ids: Vec<ID> = frontiers.iter().collect();
        ids.sort_unstable();
        ids
    }

    #[test]
    fn the_heads_are_those_that_loro_finds() {
        let mut several = 0;
        for seed in 0..40 {
            let (docs, all) = company(seed);
            let versions: Vec<VersionVector> = docs.iter().map(LoroDoc::oplog_vv).collect();
            for one in &versions {
                for other in &versions {
                    let mut both = one.clone();
                    both.merge(other);
                    // What both have, as the minimum of their vectors is.
                    let common: VersionVector = one
                        .iter()
                        .map(|(peer, end)| (*peer, other.get(peer).copied().unwrap_or(0).min(*end)))
                        .filter(|(_, end)| *end > 0)
                        .collect();
                    for version in [one, &both, &common] {
                        if version.is_empty() {
                            continue;
                        }
                        let expected = sorted(&all.try_vv_to_frontiers(version).unwrap());
                        let found = of_closed(&all, version).map(|heads| sorted(&heads));
                        assert_eq!(found.as_ref(), Some(&expected), "seed {seed}");
                        assert_eq!(sorted(&of(&all, version).unwrap()), expected, "seed {seed}");
                        several += usize::from(expected.len() > 1);
                    }
                }
            }
        }
        assert!(several > 100, "only {several} with several heads");
    }

    #[test]
    fn a_version_that_lacks_what_it_builds_upon_is_left_to_loro() {
        let (_, all) = company(7);
        let whole = all.oplog_vv();
        let (peer, end) = whole.iter().max().map(|(peer, end)| (*peer, *end)).unwrap();
        let alone: VersionVector = [(peer, end)].into_iter().collect();
        assert_eq!(of_closed(&all, &alone), None);
    }
}
