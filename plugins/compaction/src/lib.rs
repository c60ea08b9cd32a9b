//! Compaction: the log of a document becomes one change that says the same.
//!
//! This is the glue: what is read, and which guarded changes follow. Which rows are fed
//! and where the new one stands is decided in [`decide`]; whether the result is the same
//! document in [`yjs`]. A document about which there is any doubt is left as it is, with
//! the reason.
//!
//! Merge mode: identities stay. A change that arrives or a client that attaches between
//! the reading and the commit loses nothing and hinders nothing: its row is not among
//! those read, and the checkpoints are not touched.

pub mod checksum;
pub mod decide;
pub mod format;
pub mod loro;
pub mod outcome;
mod read;
pub mod room;
pub mod yjs;

use besom_sdk::prelude::*;

use decide::{Decision, Document, Plan};
use format::Format;
use outcome::{BYTES_MAX_DEFAULT, Compacted, Job, KeepDeleted, LeftAlone, Said, Wish};
use read::Log;

/// Changes since the last compaction that make a document a candidate, by default.
pub const MIN_CHANGES_DEFAULT: i64 = 1_000;

/// How long a gap in the sequence is waited for before it is looked at again, in
/// milliseconds: a commit under way takes less.
pub const GAP_RETRY_MS: u64 = 2_000;

/// The actor of compacted changes. Products filter out a client's own changes, so it is
/// no client's.
pub const ZERO_ACTOR: &str = "000000000000000000000000";

/// The notes of how large a document was and is.
const BYTES_BEFORE: &str = "bytes_before";
const BYTES_AFTER: &str = "bytes_after";

/// The task.
pub struct Compaction;

impl Task for Compaction {
    fn describe() -> Manifest {
        Manifest::new("compaction", env!("CARGO_PKG_VERSION"))
            .doc("Replaces the changes of a document by one that says the same.")
            .lane(Lane::Heavy)
            .setting(
                Setting::integer("min_changes", MIN_CHANGES_DEFAULT)
                    .minimum(1i64)
                    .doc("Changes since the last compaction that make a document a candidate."),
            )
            .setting(Setting::integer("max_bytes", BYTES_MAX_DEFAULT as i64).minimum(1i64).doc(
                "A document with more bytes of updates is left alone: it bounds the memory needed.",
            ))
            .setting(Setting::text("deleted_content", "detect").doc(
                "What becomes of deleted content: `collect`, `keep` (documents with `gc: false`), \
                 or `detect`: kept where a change carries content together with its deletion.",
            ))
            .setting(
                Setting::text("zero_actor", ZERO_ACTOR)
                    .doc("The actor of compacted changes; no client may have it."),
            )
            .setting(
                Setting::bool("checksums", true).doc(
                    "Whether changes and snapshots have a column `checksum` (CRC-32, or null).",
                ),
            )
            .collection(Access::to("documents").read().update().columns([
                "doc_id",
                "format",
                "server_seq",
                "compacted_seq",
                "pending",
                "epoch",
                "compacted_at",
            ]))
            // All columns: `checksum` is asked for only where the settings say it is there.
            .collection(Access::to("changes").read().insert().delete())
            .collection(Access::to("snapshots").read().delete())
            .collection(Access::to("attachments").read().columns([
                "doc_id",
                "client_id",
                "state",
                "server_seq",
            ]))
    }

    fn candidates(ctx: &Context) -> Result<Range> {
        Ok(Range::of("documents")
            .index("by_pending")
            .lower(ctx.setting::<i64>("min_changes")?)
            .columns(["doc_id", "format", "server_seq", "compacted_seq", "epoch"]))
    }

    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        if Format::parse(&row.get::<String>("format")?).is_none() {
            return Ok(None);
        }
        let document = read::document(row)?;
        let settings = Settings::of(ctx)?;
        let version = decide::version(&document, settings.min_changes, &settings.version());
        Ok(Some(Candidate::of(&[row.value("doc_id")?])?.version(version)))
    }

    fn act(ctx: &Context, items: &[Item]) -> Result<Vec<Verdict>> {
        let settings = Settings::of(ctx)?;
        let columns = ["format", "server_seq", "compacted_seq", "epoch"];
        let rows = store::get_each(items, "documents", &columns, Item::key_values)?;
        let verdicts = each(items, rows, |item, row| {
            let Some(row) = row else { return Ok(Verdict::skip("the document is gone")) };
            let word: String = row.get("format")?;
            let Some(format) = Format::parse(&word) else {
                return Ok(Verdict::skip_settled(format!(
                    "left-alone: the format {word} is not compacted"
                )));
            };
            act_on(ctx, &settings, item, format, read::document(&row)?)
        })?;
        log::batch(items, &verdicts, "documents", "to be compacted", &shrinkage(&verdicts));
        Ok(verdicts)
    }
}

besom_sdk::export!(Compaction);

/// The settings, parsed.
struct Settings {
    min_changes: i64,
    zero_actor: String,
    checksums: bool,
    compact: outcome::Settings,
}

impl Settings {
    fn of(ctx: &Context) -> Result<Settings> {
        let deleted: String = ctx.setting("deleted_content")?;
        let keep_deleted = match deleted.as_str() {
            "detect" => KeepDeleted::Detect,
            "keep" => KeepDeleted::Always,
            "collect" => KeepDeleted::Never,
            other => {
                let message = format!(
                    "the setting deleted_content is {other:?}; write \"detect\", \"keep\" or \"collect\""
                );
                return Err(Error::permanent("invalid-setting", message));
            }
        };
        let bytes_max = usize::try_from(ctx.setting::<i64>("max_bytes")?).unwrap_or(usize::MAX);
        Ok(Settings {
            min_changes: ctx.setting("min_changes")?,
            zero_actor: ctx.setting("zero_actor")?,
            checksums: ctx.setting("checksums")?,
            compact: outcome::Settings { keep_deleted, bytes_max },
        })
    }

    /// What of the settings may change the outcome for a document that was left alone.
    fn version(&self) -> String {
        let deleted = match self.compact.keep_deleted {
            KeepDeleted::Detect => "detect",
            KeepDeleted::Always => "keep",
            KeepDeleted::Never => "collect",
        };
        format!("{}.{deleted}.{}", self.compact.bytes_max, env!("CARGO_PKG_VERSION"))
    }
}

fn act_on(
    ctx: &Context,
    settings: &Settings,
    item: &Item,
    format: Format,
    document: Document,
) -> Result<Verdict> {
    let log = match read::log(item, &document, settings.checksums, settings.compact.bytes_max)? {
        Ok(log) => log,
        Err(refusal) => return Ok(refusal),
    };
    let decision = decide::decide(&document, log.snapshot.as_ref(), &log.rows, log.presence_until);
    match decision {
        Decision::Settled(reason) => Ok(Verdict::skip_settled(reason.to_string())),
        Decision::Gap { missing } => Ok(Verdict::retry(
            GAP_RETRY_MS,
            format!("gap: change {missing} is missing; a commit may be under way"),
        )),
        Decision::Prune { target, snapshots } => {
            let proposal = guarded(item, &document, &log, snapshots)?;
            Ok(finish(ctx, proposal.note("mode", "prune"), item, target)?.into())
        }
        Decision::Compact(plan) => match compact(format, settings, &plan) {
            Ok(compacted) => {
                let proposal = guarded(item, &document, &log, true)?;
                let proposal = exchange(proposal, settings, item, &log, &plan, &compacted)?;
                let proposal = notes(proposal, format, &log, &plan, &compacted);
                Ok(finish(ctx, proposal, item, plan.target)?.into())
            }
            Err(left) => Ok(left_alone(&left, &plan)),
        },
    }
}

fn compact(format: Format, settings: &Settings, plan: &Plan<'_>) -> Result<Compacted, LeftAlone> {
    format.compact(&Job { updates: &plan.feed, wish: Wish::Merge, settings: &settings.compact })
}

/// How much smaller the documents of a batch become, for the log.
fn shrinkage(verdicts: &[Verdict]) -> String {
    let total = |name: &str| -> i64 {
        let proposals = verdicts.iter().filter_map(|verdict| match verdict {
            Verdict::Propose(proposal) => Some(&proposal.notes),
            Verdict::Skip(_) | Verdict::Retry(_) | Verdict::Dead(_) => None,
        });
        let notes = proposals.flatten().filter(|note| note.name == name);
        notes.map(|note| if let Value::Integer(bytes) = note.value { bytes } else { 0 }).sum()
    };
    format!("{} -> {} bytes", total(BYTES_BEFORE), total(BYTES_AFTER))
}

/// Of a broken log somebody has to know; a whole document is simply left as it is.
fn left_alone(left: &LeftAlone, plan: &Plan<'_>) -> Verdict {
    let number = left.update.and_then(|index| plan.numbers.get(index));
    let place = number.map_or(String::new(), |number| format!(" (change {number})"));
    if left.code.is_broken_log() {
        Verdict::dead(format!("{left}{place}"))
    } else {
        Verdict::skip_settled(format!("left-alone: {left}{place}"))
    }
}

/// The guards of merge mode, and the removal of what was read besides the edits.
fn guarded(item: &Item, document: &Document, log: &Log, snapshots: bool) -> Result<Proposal> {
    let mut proposal = Proposal::new()
        .guard(
            Guard::row("documents", item.key_values()?)
                .equal("epoch", document.epoch)
                .equal("compacted_seq", document.compacted_seq)
                .at_least("server_seq", document.server_seq),
        )
        .or_skip("compacted or reset since it was read");
    let snapshots = log.snapshots.filter(|_| snapshots);
    for read_set in [log.passed_presence, snapshots].into_iter().flatten() {
        proposal = proposal.delete_read_set(read_set);
    }
    Ok(proposal)
}

/// The edits that were read for the one that says the same. The new row stands at the
/// number of the last of them, so they go first; both happen in one transaction, after
/// the verification.
fn exchange(
    mut proposal: Proposal,
    settings: &Settings,
    item: &Item,
    log: &Log,
    plan: &Plan<'_>,
    compacted: &Compacted,
) -> Result<Proposal> {
    if let Some(edits) = log.edits {
        proposal = proposal.guard(Guard::Complete(edits)).delete_read_set(edits);
    }
    let key = item.key_values()?;
    let [doc_id] = &key[..] else {
        return Err(Error::permanent("malformed-key", format!("{:?} is no document", item.key)));
    };
    let mut row = vec![
        ("doc_id", doc_id.clone()),
        ("server_seq", plan.server_seq.into()),
        ("actor_id", Value::from(&settings.zero_actor)),
        ("client_seq", 0i64.into()),
        ("lamport", plan.lamport.into()),
        ("kind", decide::Kind::Edit.as_str().into()),
        ("payload", compacted.update.clone().into()),
    ];
    if log.has_checksums {
        row.push(("checksum", i64::from(checksum::crc32(&compacted.update)).into()));
    }
    Ok(proposal.insert("changes", row))
}

fn notes(
    proposal: Proposal,
    format: Format,
    log: &Log,
    plan: &Plan<'_>,
    compacted: &Compacted,
) -> Proposal {
    let count = |n: usize| Value::Integer(n as i64);
    let proposal = proposal
        .note("mode", compacted.mode.as_str())
        .note("format", format.as_str())
        .note("library", format.library())
        .note("verified", true)
        .note("rows_before", count(log.rows.len()))
        .note("edits_before", count(plan.feed.len()))
        .note(BYTES_BEFORE, count(compacted.bytes_before))
        .note(BYTES_AFTER, count(compacted.update.len()))
        .note("digest_before", compacted.digests.before.as_str())
        .note("digest_after", compacted.digests.after.as_str());
    compacted.remarks.iter().fold(proposal, |proposal, remark| {
        let value = match &remark.said {
            Said::Flag(yes) => Value::Bool(*yes),
            Said::Count(n) => Value::Integer(i64::try_from(*n).unwrap_or(i64::MAX)),
            Said::Words(words) => Value::Text(words.clone()),
        };
        proposal.note(remark.name, value)
    })
}

fn finish(ctx: &Context, proposal: Proposal, item: &Item, target: i64) -> Result<Proposal> {
    Ok(proposal.update(
        "documents",
        item.key_values()?,
        [("compacted_seq", target.into()), ("compacted_at", ctx.now.into())],
    ))
}

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
