//! Turns a decision into a proposal: guards, deletions and the new row.
//!
//! | mode | documents row | attachments | vectors | afterwards |
//! | --- | --- | --- | --- | --- |
//! | merge | `epoch`, `compacted_seq` as read, `server_seq` not below | | | identities and vectors stay |
//! | trim | the same | only those that were read | each at least as it was read | vectors of unattached clients go |
//! | reset | all three as read | none | | `epoch + 1`; snapshots and vectors go |
//!
//! A change that arrives or a client that attaches between the read and the commit does not
//! affect a merge: its row is not among those read, and checkpoints do not change.

use besom_sdk::prelude::*;

use crate::checksum;
use crate::clients::{self, DETACHED};
use crate::decide::{self, Document, Plan};
use crate::format::Format;
use crate::outcome::{Compacted, Mode, Said};
use crate::read::Log;
use crate::{BYTES_AFTER, BYTES_BEFORE};

/// The time in milliseconds until a document is decided again after a guard of a trim or a reset
/// has failed.
const GUARD_RETRY_MS: u64 = 200;

/// A document with everything that was read of it.
pub(crate) struct Subject<'a> {
    pub item: &'a Item,
    pub document: &'a Document,
    pub log: &'a Log,
    pub format: Format,
    /// The mode of the settings.
    pub wanted: Mode,
    /// Why a merge is requested from the format instead.
    pub instead: Option<&'a str>,
    pub zero_actor: &'a str,
}

impl Subject<'_> {
    /// Replaces the edits that were read by the compacted one.
    pub(crate) fn exchange(
        &self,
        ctx: &Context,
        plan: &Plan<'_>,
        compacted: &Compacted,
    ) -> Result<Proposal> {
        let mut proposal = self.guarded(compacted.mode)?;
        let log = self.log;
        for read_set in [log.passed_presence, log.snapshots].into_iter().flatten() {
            proposal = proposal.delete_read_set(read_set);
        }
        proposal = self.drop_vectors(proposal, compacted.mode)?;
        if let Some(edits) = log.edits {
            proposal = proposal.guard(Guard::Complete(edits)).delete_read_set(edits);
        }
        // The new row has the number of the last edit, which therefore is deleted first. Both
        // happen in one transaction, after the verification.
        let mut row = vec![
            ("doc_id", self.doc_id()?),
            ("server_seq", plan.server_seq.into()),
            ("actor_id", Value::from(self.zero_actor)),
            ("client_seq", 0i64.into()),
            ("lamport", plan.lamport.into()),
            ("kind", decide::Kind::Edit.as_str().into()),
            ("payload", compacted.update.clone().into()),
        ];
        if log.has_checksums {
            row.push(("checksum", i64::from(checksum::crc32(&compacted.update)).into()));
        }
        let proposal = self.notes(proposal.insert("changes", row), plan, compacted);
        self.finish(ctx, proposal, compacted.mode, plan.target)
    }

    /// Replaces no edits: deletes passed presence and advances `compacted_seq`.
    pub(crate) fn prune(&self, ctx: &Context, target: i64, snapshots: bool) -> Result<Proposal> {
        let mut proposal = self.guarded(Mode::Merge)?;
        let snapshots = self.log.snapshots.filter(|_| snapshots);
        for read_set in [self.log.passed_presence, snapshots].into_iter().flatten() {
            proposal = proposal.delete_read_set(read_set);
        }
        self.finish(ctx, proposal.note("mode", "prune"), Mode::Merge, target)
    }

    fn doc_id(&self) -> Result<Value> {
        match &self.item.key_values()?[..] {
            [doc_id] => Ok(doc_id.clone()),
            _ => {
                let message = format!("{:?} does not name a document", self.item.key);
                Err(Error::permanent("malformed-key", message))
            }
        }
    }

    /// A proposal with the guards of a mode.
    fn guarded(&self, mode: Mode) -> Result<Proposal> {
        let (key, read) = (self.item.key_values()?, self.document);
        let document = Guard::row("documents", key.clone())
            .equal("epoch", read.epoch)
            .equal("compacted_seq", read.compacted_seq);
        Ok(match mode {
            Mode::Merge => Proposal::new()
                .guard(document.at_least("server_seq", read.server_seq))
                .or_skip("compacted or reset since it was read"),
            Mode::Trim => {
                let attached = &self.log.attached.clients;
                let mut nobody_else = self.attachments()?;
                let mut proposal =
                    Proposal::new().guard(document.at_least("server_seq", read.server_seq));
                for client in attached {
                    // A client's vector only grows, so a later one includes this one.
                    let read = client.vector.as_ref().map_or(0, |vector| vector.server_seq);
                    let vector = Guard::row("version_vectors", clients::vector_key(&key, client));
                    proposal = proposal.guard(vector.at_least("server_seq", read));
                    nobody_else = nobody_else.not_equal("client_id", &client.id);
                }
                proposal.guard(nobody_else.absent()).or_retry(GUARD_RETRY_MS)
            }
            Mode::Reset => {
                // A snapshot written since the read would bring the former identities back.
                let mut no_snapshot = Filter::of("snapshots").equal("doc_id", self.doc_id()?);
                for server_seq in &self.log.snapshot_numbers {
                    no_snapshot = no_snapshot.not_equal("server_seq", *server_seq);
                }
                Proposal::new()
                    .guard(document.equal("server_seq", read.server_seq))
                    .guard(self.attachments()?.absent())
                    .guard(no_snapshot.absent())
                    .or_retry(GUARD_RETRY_MS)
            }
        })
    }

    /// The attachments of the document that are not detached.
    fn attachments(&self) -> Result<Filter> {
        let of_document = Filter::of("attachments").equal("doc_id", self.doc_id()?);
        Ok(of_document.not_equal("state", DETACHED))
    }

    /// Deletes the vectors that no longer count.
    fn drop_vectors(&self, proposal: Proposal, mode: Mode) -> Result<Proposal> {
        let doc_id = &self.item.key_values()?[..];
        Ok(match mode {
            Mode::Merge => proposal,
            Mode::Trim => clients::unattached_vectors(self.item, doc_id, &self.log.attached)?
                .into_iter()
                .fold(proposal, |proposal, key| proposal.delete("version_vectors", key)),
            Mode::Reset => clients::every_vector(self.item, doc_id)?
                .into_iter()
                .fold(proposal, Proposal::delete_read_set),
        })
    }

    fn notes(&self, proposal: Proposal, plan: &Plan<'_>, compacted: &Compacted) -> Proposal {
        let count = |n: usize| Value::Integer(n as i64);
        let mut proposal = proposal
            .note("mode", compacted.mode.as_str())
            .note("format", self.format.as_str())
            .note("library", self.format.library())
            .note("verified", true)
            .note("rows_before", count(self.log.rows.len()))
            .note("edits_before", count(plan.feed.len()))
            .note(BYTES_BEFORE, count(compacted.bytes_before))
            .note(BYTES_AFTER, count(compacted.update.len()))
            .note("digest_before", compacted.digests.before.as_str())
            .note("digest_after", compacted.digests.after.as_str());
        if compacted.mode != self.wanted {
            proposal = proposal.note("wanted", self.wanted.as_str());
            let why = self.instead.or(compacted.merged_because.as_deref());
            proposal = proposal.note("instead", why.unwrap_or("the format gave no reason"));
        }
        if compacted.mode == Mode::Reset {
            let epoch = self.document.epoch;
            proposal = proposal.note("epoch_before", epoch).note("epoch_after", epoch + 1);
        }
        compacted.remarks.iter().fold(proposal, |proposal, remark| {
            let value = match &remark.said {
                Said::Flag(yes) => Value::Bool(*yes),
                Said::Count(n) => Value::Integer(i64::try_from(*n).unwrap_or(i64::MAX)),
                Said::Words(words) => Value::Text(words.clone()),
            };
            proposal.note(remark.name, value)
        })
    }

    fn finish(
        &self,
        ctx: &Context,
        proposal: Proposal,
        mode: Mode,
        target: i64,
    ) -> Result<Proposal> {
        let mut columns = vec![("compacted_seq", target.into()), ("compacted_at", ctx.now.into())];
        if mode == Mode::Reset {
            columns.push(("epoch", (self.document.epoch + 1).into()));
        }
        Ok(proposal.update("documents", self.item.key_values()?, columns))
    }
}

#[cfg(test)]
#[path = "propose_tests.rs"]
mod tests;
