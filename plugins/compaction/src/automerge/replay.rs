//! Builds the document with the library from the ordered changes.
//!
//! Decides that the library reads exactly what was read here: the same hashes, the same numbers of
//! changes and operations, the same heads. It applies a few thousand changes at a time, because a
//! parsed change needs a kilobyte and a log can have hundreds of thousands.

use std::panic::{AssertUnwindSafe, catch_unwind};

use automerge::{ActorId, Automerge, Change, ReadDoc, TextEncoding};

use super::chunk::Hash;
use super::history::{self, Document, Log, Plan, Step, hex};
use crate::outcome::{Code, LeftAlone};

/// The number of changes that are parsed and applied at a time.
const BATCH_CHANGES: usize = 4_096;

/// The bytes of changes that are parsed and applied at a time, unless a single one has more.
const BATCH_BYTES: usize = 1 << 20;

/// A document with its heads and changes.
pub struct Built {
    /// The document.
    pub doc: Automerge,
    /// The heads, ascending.
    pub heads: Vec<Hash>,
    /// The hashes of all changes, ascending.
    pub hashes: Vec<Hash>,
}

/// Runs a call of the library, which has panicked on well-formed updates. In a guest a panic ends
/// the batch; natively it becomes a reason.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, LeftAlone>) -> Result<T, LeftAlone> {
    catch_unwind(AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err(LeftAlone::new(Code::Unsupported, "automerge panicked")))
}

/// Builds the document of all rows.
pub fn build(mut log: Log<'_>) -> Result<Built, LeftAlone> {
    let documents = std::mem::take(&mut log.documents);
    let mut doc = empty();
    // The others are added to the largest document.
    let base = (0..documents.len()).max_by_key(|&i| (documents[i].changes, documents.len() - i));
    if let Some(base) = base {
        doc = load(&documents[base])?;
    }
    for (index, document) in documents.iter().enumerate() {
        if Some(index) != base {
            let other = load(document)?;
            let row = document.row;
            doc.apply_changes(doc.get_changes_added(&other)).map_err(|error| {
                let words = format!("update {row} cannot be added to another document: {error}");
                LeftAlone::new(Code::Conflict, words).at(row)
            })?;
        }
    }
    drop(documents);
    let heads: Vec<Hash> = doc.get_heads().iter().map(|hash| hash.0).collect();
    let applied = steps(&doc, &mut log);
    let Plan { order, heads, hashes } = history::plan(&log, &applied, &heads)?;
    drop(applied);
    apply(&mut doc, &log, &order)?;
    let built = Built { doc, heads, hashes };
    built.check()?;
    Ok(built)
}

/// A document whose positions are those of JavaScript. The identity is never used.
pub fn empty() -> Automerge {
    Automerge::new_with_encoding(TextEncoding::Utf16CodeUnit).with_actor(ActorId::from([0u8; 16]))
}

/// Loads one document chunk alone.
pub fn load(document: &Document<'_>) -> Result<Automerge, LeftAlone> {
    let row = document.row;
    let unsupported =
        |words: String| LeftAlone::new(Code::Unsupported, format!("update {row}: {words}")).at(row);
    let options = automerge::LoadOptions::new().text_encoding(TextEncoding::Utf16CodeUnit);
    let doc = Automerge::load_with_options(document.bytes, options)
        .map_err(|error| unsupported(format!("automerge cannot load the document: {error}")))?;
    let stats = doc.stats();
    if (stats.num_changes, stats.num_ops) != (document.changes, document.operations) {
        return Err(unsupported(format!(
            "automerge finds {} changes and {} operations, but the columns have {} and {}",
            stats.num_changes, stats.num_ops, document.changes, document.operations
        )));
    }
    let mut heads = document.heads.clone();
    heads.sort_unstable();
    if !doc.get_heads().iter().map(|hash| hash.0).eq(heads) {
        return Err(unsupported("automerge finds other heads".into()));
    }
    Ok(doc.with_actor(ActorId::from([0u8; 16])))
}

fn steps(doc: &Automerge, log: &mut Log<'_>) -> Vec<Step> {
    if doc.is_empty() {
        return Vec::new();
    }
    doc.get_changes_meta(&[])
        .into_iter()
        .map(|meta| Step {
            hash: meta.hash.0,
            actor: log.actor(meta.actor.to_bytes()),
            seq: meta.seq,
            start_op: meta.start_op,
            end_op: meta.max_op + 1,
        })
        .collect()
}

fn apply(doc: &mut Automerge, log: &Log<'_>, order: &[usize]) -> Result<(), LeftAlone> {
    let mut left = order;
    while !left.is_empty() {
        let mut bytes = 0;
        let fits = left.iter().take(BATCH_CHANGES).take_while(|&&index| {
            bytes += log.changes[index].bytes.len();
            bytes <= BATCH_BYTES
        });
        let (batch, rest) = left.split_at(fits.count().max(1));
        left = rest;
        let changes = batch
            .iter()
            .map(|&index| parse(&log.changes[index]))
            .collect::<Result<Vec<Change>, LeftAlone>>()?;
        doc.apply_changes(changes).map_err(|error| {
            let row = log.changes[batch[0]].row;
            let words =
                format!("automerge cannot apply changes of update {row} and after: {error}");
            LeftAlone::new(Code::Unsupported, words)
        })?;
    }
    Ok(())
}

fn parse(known: &history::Change<'_>) -> Result<Change, LeftAlone> {
    let row = known.row;
    let unsupported = |words: String| LeftAlone::new(Code::Unsupported, words).at(row);
    let change = Change::try_from(known.bytes)
        .map_err(|error| unsupported(format!("automerge cannot read update {row}: {error}")))?;
    if change.hash().0 != known.step.hash || change.len() as u64 != known.operations {
        let hash = hex(&known.step.hash);
        return Err(unsupported(format!(
            "automerge reads change {hash} of update {row} differently"
        )));
    }
    Ok(change)
}

impl Built {
    /// Checks that the library's document equals the plan.
    fn check(&self) -> Result<(), LeftAlone> {
        let changed = |words: &str| Err(LeftAlone::new(Code::Changed, words));
        if !self.doc.get_missing_deps(&[]).is_empty() {
            return changed("automerge waits for a change that the updates do not contain");
        }
        if self.doc.stats().num_changes != self.hashes.len() as u64 {
            return changed("automerge has another number of changes than the updates");
        }
        if !self.doc.get_heads().iter().map(|hash| &hash.0).eq(&self.heads) {
            return changed("automerge has other heads than the updates");
        }
        Ok(())
    }
}
