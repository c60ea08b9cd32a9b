//! Compaction in trim mode: removes history that every attached client has.
//!
//! Decides where the history begins afterwards, and when only a merge is possible. Loro begins a
//! history at a version that everything later depends on, at or before the requested one (but after
//! the first half of a mark), so the history that every client must have is checked again after it
//! was written. A client that lacks part of it could never synchronise again, and would not learn
//! of it.
//!
//! ```text
//! document ──merge──> snapshot ─────────────────────────────────> smaller? ──> the trimmed one
//!    ├──minimum of the vectors──> trimmed ──> document ──gate──┘       └──no──> the snapshot
//!    └──digest from its start───────────────────digest──> the same?
//! ```

use loro::{ExportMode, LoroDoc, VersionVector};

use super::digest::{self, Start};
use super::heads;
use super::merge::{self, DOCUMENT};
use super::places;
use super::rebuild::{self, guarded};
use super::vectors::Vectors;
use crate::outcome::{Code, Compacted, Digests, LeftAlone, Mode};

/// Compacts a document. See [`super::compact`].
pub fn trim(updates: &[&[u8]], vectors: &[&[u8]]) -> Result<Compacted, LeftAlone> {
    guarded(|| {
        let facts = merge::facts(updates)?;
        let doc = rebuild::build(updates, &facts)?;
        let merged = merge::merged(&doc, &facts)?;
        // A failure from here on does not affect the merge.
        let trimmed = guarded(|| match Vectors::decode(vectors) {
            Ok(vectors) => trimmed(&doc, &vectors, &merged),
            Err(why) => Ok(Err(format!("undecodable-vector: {why}"))),
        });
        match trimmed {
            Ok(Ok(trimmed)) => Ok(trimmed),
            Ok(Err(because)) => Ok(Compacted { merged_because: Some(because), ..merged }),
            Err(left) => Ok(Compacted { merged_because: Some(left.to_string()), ..merged }),
        }
    })
}

/// The trimmed and verified document. The inner error is the reason for a merge instead.
fn trimmed(
    doc: &LoroDoc,
    vectors: &Vectors,
    merged: &Compacted,
) -> Result<Result<Compacted, String>, LeftAlone> {
    let former = Start::of(doc);
    let minimum = vectors.minimum(&doc.oplog_vv());
    if let Some(because) = held_back(vectors, &minimum, &former) {
        return Ok(Err(because));
    }
    let version = heads::of(doc, &minimum).map_err(|error| {
        LeftAlone::new(Code::Unsupported, format!("the minimum is not a version: {error}"))
    })?;

    let update = merge::export(doc, ExportMode::shallow_snapshot(&version))?;
    let after = rebuild::loaded(&update)?;
    let start = Start::of(&after);
    let needed = start.needed();
    if start.is_whole() || start == former {
        let because = "nothing-to-trim: the history already begins at the latest version that \
                       everything depends on";
        return Ok(Err(because.into()));
    }
    if let Some(client) = vectors.first_without(&needed) {
        return Ok(Err(format!(
            "held-back: client {} would lack the beginning of the history ({})",
            client + 1,
            digest::start_words(&start)
        )));
    }
    if let Some((client, peer)) = vectors.first_ahead(&doc.oplog_vv(), &start.vv) {
        return Ok(Err(format!(
            "held-back: client {} has changes of peer {peer} that the document does not have, \
             which may depend on history to be removed",
            client + 1
        )));
    }
    if update.len() >= merged.update.len() {
        let (bytes, whole) = (update.len(), merged.update.len());
        return Ok(Err(format!("nothing-to-trim: {bytes} bytes trimmed, {whole} merged")));
    }

    let digests =
        merge::same(DOCUMENT, digest::digest(doc, &start)?, digest::digest(&after, &start)?)?;
    let compacted = Compacted {
        update,
        mode: Mode::Trim,
        merged_because: None,
        digests,
        bytes_before: merged.bytes_before,
        remarks: merge::remarks(&after, &start),
    };
    // Last, because it checks out another version of both documents.
    same_beginning(doc, &after, &start)?;
    Ok(Ok(compacted))
}

/// The reason why the minimum permits no trim, if there is one.
fn held_back(vectors: &Vectors, minimum: &VersionVector, former: &Start) -> Option<String> {
    let needed = former.needed();
    if minimum.is_empty() {
        let nobody = "held-back: the attached clients have no history in common";
        return Some(nobody.into());
    }
    if !minimum.includes_vv(&needed) {
        let who = vectors.first_without(&needed).map_or(0, |client| client + 1);
        return Some(format!(
            "held-back: client {who} lacks the current beginning of the history ({})",
            digest::start_words(former)
        ));
    }
    (*minimum == needed).then(|| {
        format!(
            "held-back: the attached clients share only the current beginning ({})",
            digest::start_words(former)
        )
    })
}

/// Checks that the state at the beginning is the same as well, because later changes are applied to
/// it and made on it.
fn same_beginning(before: &LoroDoc, after: &LoroDoc, start: &Start) -> Result<(), LeftAlone> {
    for doc in [before, after] {
        doc.checkout(&start.frontiers).map_err(|error| {
            LeftAlone::new(Code::Unsupported, format!("the start cannot be checked out: {error}"))
        })?;
    }
    merge::same("the state at the beginning", digest::shown(before)?, digest::shown(after)?)?;
    places::same(before, after)
}

/// Checks that `after` is equivalent to the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    guarded(|| {
        let before = rebuild::build(updates, &merge::facts(updates)?)?;
        let after = rebuild::loaded(after)?;
        let start = Start::of(&after);
        if !start.needed().includes_vv(&Start::of(&before).needed()) {
            let words = "the history begins before that of its source";
            return Err(LeftAlone::new(Code::Changed, words));
        }
        let digests = merge::same(
            DOCUMENT,
            digest::digest(&before, &start)?,
            digest::digest(&after, &start)?,
        )?;
        same_beginning(&before, &after, &start)?;
        Ok(digests)
    })
}
