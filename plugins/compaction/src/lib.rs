//! Compaction: the log of a document becomes one change that says the same.
//!
//! This is the glue: what is read, and who is asked. Which rows are fed and where the new one
//! stands is decided in [`decide`]; which mode is allowed now in [`wish`]; whether the result is
//! the same document in the formats ([`format`](mod@format)). A document about which there is
//! any doubt is left as it is, with the reason.

pub mod allocator;
pub mod automerge;
mod canon;
pub mod checksum;
mod clients;
pub mod decide;
pub mod format;
pub mod loro;
pub mod outcome;
mod propose;
mod read;
pub mod room;
pub mod wish;
pub mod yjs;

use besom_sdk::prelude::*;

use decide::{Decision, Document, Plan, Rest};
use format::Format;
use outcome::{BYTES_MAX_DEFAULT, Compacted, Job, KeepDeleted, LeftAlone, Mode, Wish};
use propose::Subject;

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
        let manifest = Manifest::new("compaction", env!("CARGO_PKG_VERSION"))
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
            .choice(
                Setting::text("deleted_content", "keep").doc(
                    "What becomes of deleted content of Yjs documents: `keep`, `collect` (where no \
                     document has `gc: false`), or `detect`: kept where a change carries content \
                     together with its deletion.",
                ),
                DELETED.map(|(word, _)| word),
            )
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
            .collection(Access::to("version_vectors").read().delete().columns([
                "doc_id",
                "client_id",
                "vector",
                "server_seq",
            ]));
        Format::ALL.into_iter().fold(manifest, |manifest, format| {
            let doc = format!(
                "What compaction does to {format} documents: `reset` needs clients that check the \
                 epoch, and nobody attached; `trim` drops what every attached client has seen.",
                format = format.as_str()
            );
            let setting = Setting::text(&mode_setting(format), Mode::Merge.as_str()).doc(&doc);
            manifest.choice(setting, format.modes().iter().map(|mode| mode.as_str()))
        })
    }

    fn candidates(ctx: &Context) -> Result<Range> {
        Ok(Range::of("documents")
            .index("by_pending")
            .lower(ctx.setting::<i64>("min_changes")?)
            .columns(["doc_id", "format", "server_seq", "compacted_seq", "epoch"]))
    }

    fn candidate(ctx: &Context, row: &Row) -> Result<Option<Candidate>> {
        let Some(format) = Format::parse(&row.get::<String>("format")?) else { return Ok(None) };
        let document = read::document(row)?;
        let settings = Settings::of(ctx)?;
        let version = decide::version(&document, settings.min_changes, &settings.version(format));
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

/// The setting that has the mode of a format.
fn mode_setting(format: Format) -> String {
    format!("mode_{}", format.as_str())
}

/// What `deleted_content` may be.
const DELETED: [(&str, KeepDeleted); 3] = [
    ("detect", KeepDeleted::Detect),
    ("keep", KeepDeleted::Always),
    ("collect", KeepDeleted::Never),
];

/// The settings, parsed.
struct Settings {
    min_changes: i64,
    zero_actor: String,
    checksums: bool,
    compact: outcome::Settings,
    deleted: &'static str,
    modes: Vec<(Format, Mode)>,
}

impl Settings {
    fn of(ctx: &Context) -> Result<Settings> {
        let (deleted, keep_deleted) = choice(ctx, "deleted_content", &DELETED)?;
        let bytes_max = usize::try_from(ctx.setting::<i64>("max_bytes")?).unwrap_or(usize::MAX);
        let modes = Format::ALL.into_iter().map(|format| {
            let modes: Vec<_> = format.modes().iter().map(|mode| (mode.as_str(), *mode)).collect();
            Ok((format, choice(ctx, &mode_setting(format), &modes)?.1))
        });
        Ok(Settings {
            min_changes: ctx.setting("min_changes")?,
            zero_actor: ctx.setting("zero_actor")?,
            checksums: ctx.setting("checksums")?,
            compact: outcome::Settings { keep_deleted, bytes_max },
            deleted,
            modes: modes.collect::<Result<_>>()?,
        })
    }

    /// The mode that is wanted of documents of that format.
    fn mode(&self, format: Format) -> Mode {
        let wanted = self.modes.iter().find(|(of, _)| *of == format);
        wanted.map_or(Mode::Merge, |(_, mode)| *mode)
    }

    /// What of the settings may change the outcome for a document that was left alone. The mode
    /// is that of its own format, and told only where it is another than [`Mode::Merge`].
    fn version(&self, format: Format) -> String {
        let mode = match self.mode(format) {
            Mode::Merge => String::new(),
            mode @ (Mode::Reset | Mode::Trim) => format!("{mode}."),
        };
        format!("{}.{}.{mode}{}", self.compact.bytes_max, self.deleted, env!("CARGO_PKG_VERSION"))
    }
}

/// The word of a setting that is a choice, and what it stands for. The host has checked it by the
/// manifest; one that does not know of choices has not.
fn choice<T: Copy>(
    ctx: &Context,
    setting: &str,
    words: &[(&'static str, T)],
) -> Result<(&'static str, T)> {
    let given: String = ctx.setting(setting)?;
    words.iter().find(|(word, _)| *word == given).copied().ok_or_else(|| {
        let possible: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let possible = possible.join(" or ");
        let message = format!("the setting {setting} cannot be {given:?}: write {possible}");
        Error::permanent("invalid-setting", message)
    })
}

fn act_on(
    ctx: &Context,
    settings: &Settings,
    item: &Item,
    format: Format,
    document: Document,
) -> Result<Verdict> {
    let read = read::log(item, &document, settings.checksums, settings.compact.bytes_max)?;
    let mut log = match read {
        Ok(log) => log,
        Err(refusal) => return Ok(refusal),
    };
    let wanted = settings.mode(format);
    if wanted == Mode::Trim && log.attached.count <= wish::CLIENTS_MAX {
        clients::read_vectors(item, &item.key_values()?, &mut log.attached)?;
    }
    let snapshots = log.snapshot_numbers.len();
    let allowed = wish::allowed(wanted, &log.attached, snapshots, item.guard_retries);
    let mode = *allowed.as_ref().unwrap_or(&Mode::Merge);
    let (instead, zero_actor) = (allowed.as_ref().err(), &settings.zero_actor);
    let instead = instead.map(String::as_str);
    let subject =
        Subject { item, document: &document, log: &log, format, wanted, instead, zero_actor };
    let compact = |plan: &Plan<'_>| compact(settings, &subject, mode, plan);
    let snapshot = log.snapshot.as_ref();
    match decide::decide(&document, snapshot, &log.rows, log.presence_until, mode) {
        Decision::Compact(plan) => match compact(&plan) {
            Ok(compacted) => Ok(subject.exchange(ctx, &plan, &compacted)?.into()),
            Err(left) => Ok(left_alone(&left, &plan)),
        },
        Decision::Shrink { plan, otherwise } => match compact(&plan) {
            Ok(compacted) if is_smaller(&compacted, mode) => {
                Ok(subject.exchange(ctx, &plan, &compacted)?.into())
            }
            // The row stays, as any row that is alone: whatever it says, it says it in one.
            Ok(_) | Err(_) => rest(ctx, &subject, otherwise),
        },
        Decision::Rest(other) => rest(ctx, &subject, other),
    }
}

/// What is done where no edits are exchanged.
fn rest(ctx: &Context, subject: &Subject<'_>, rest: Rest) -> Result<Verdict> {
    match rest {
        Rest::Settled(reason) => Ok(Verdict::skip_settled(reason.to_string())),
        Rest::Gap { missing } => Ok(Verdict::retry(
            GAP_RETRY_MS,
            format!("gap: change {missing} is missing; a commit may be under way"),
        )),
        Rest::Prune { target, snapshots } => Ok(subject.prune(ctx, target, snapshots)?.into()),
    }
}

fn compact(
    settings: &Settings,
    subject: &Subject<'_>,
    mode: Mode,
    plan: &Plan<'_>,
) -> Result<Compacted, LeftAlone> {
    let vectors = subject.log.attached.clients.iter().filter_map(|client| client.vector.as_ref());
    let vectors: Vec<&[u8]> = vectors.map(|vector| vector.bytes.as_slice()).collect();
    let wish = match mode {
        Mode::Merge => Wish::Merge,
        Mode::Reset => Wish::Reset,
        Mode::Trim => Wish::Trim(&vectors),
    };
    subject.format.compact(&Job { updates: &plan.feed, wish, settings: &settings.compact })
}

/// Whether the one row became a smaller one, by the mode that may make it so.
fn is_smaller(compacted: &Compacted, mode: Mode) -> bool {
    compacted.mode == mode && compacted.update.len() < compacted.bytes_before
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

#[cfg(test)]
#[path = "lib_tests.rs"]
mod tests;
