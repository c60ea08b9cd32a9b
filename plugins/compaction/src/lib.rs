//! Built-in task `compaction`: replaces the log of a document by one equivalent change.
//!
//! This file reads and connects the parts. [`decide`] decides which rows are fed and the number of
//! the new row, [`wish`] which mode is allowed now, and the formats ([`format`](mod@format))
//! whether the result is the same document. A document that cannot be proven the same is left
//! unchanged, with the reason.

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

/// The time in milliseconds until a gap in the sequence is examined again. A commit in progress
/// takes less.
pub const GAP_RETRY_MS: u64 = 2_000;

/// The default actor of compacted changes. No client may have it, because products filter out a
/// client's own changes.
pub const ZERO_ACTOR: &str = "000000000000000000000000";

/// The names of the notes with the bytes of the edits before and after.
const BYTES_BEFORE: &str = "bytes_before";
const BYTES_AFTER: &str = "bytes_after";

/// The task, with the settings of its manifest.
pub struct Compaction;

impl Task for Compaction {
    fn describe() -> Manifest {
        let manifest = Manifest::new("compaction", env!("CARGO_PKG_VERSION"))
            .doc("Replaces the changes of a document by one equivalent change.")
            .lane(Lane::Heavy)
            .setting(
                Setting::integer("min_changes", MIN_CHANGES_DEFAULT)
                    .minimum(1i64)
                    .doc("Changes since the last compaction that make a document a candidate."),
            )
            .setting(Setting::integer("max_bytes", BYTES_MAX_DEFAULT as i64).minimum(1i64).doc(
                "Documents with more bytes of updates are left alone; this bounds the memory used.",
            ))
            .setting(
                Setting::text("deleted_content", "keep")
                    .choices(DELETED.map(|(word, _)| word))
                    .doc(
                        "Deleted content of Yjs documents: `keep`, `collect` (if no document has \
                         `gc: false`), or `detect`: keep it if a change carries content together \
                         with its deletion.",
                    ),
            )
            .setting(
                Setting::text("zero_actor", ZERO_ACTOR)
                    .doc("The actor of compacted changes; no client may use it."),
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
            // All columns, because `checksum` exists only if the settings say so.
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
                "The mode for {format} documents. `reset` requires clients that check the epoch, \
                 and no attached client; `trim` removes history that all attached clients have.",
                format = format.as_str()
            );
            let setting = Setting::text(&mode_setting(format), Mode::Merge.as_str()).doc(&doc);
            manifest.setting(setting.choices(format.modes().iter().map(|mode| mode.as_str())))
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

/// The name of the setting for the mode of a format.
fn mode_setting(format: Format) -> String {
    format!("mode_{}", format.as_str())
}

/// The words of the setting `deleted_content`.
const DELETED: [(&str, KeepDeleted); 3] = [
    ("detect", KeepDeleted::Detect),
    ("keep", KeepDeleted::Always),
    ("collect", KeepDeleted::Never),
];

/// The parsed settings.
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

    /// The mode that the settings request for a format.
    fn mode(&self, format: Format) -> Mode {
        let wanted = self.modes.iter().find(|(of, _)| *of == format);
        wanted.map_or(Mode::Merge, |(_, mode)| *mode)
    }

    /// The settings that may change the outcome for a document that was left alone, as part of its
    /// version. The mode is that of its format, and omitted if it is [`Mode::Merge`].
    fn version(&self, format: Format) -> String {
        let mode = match self.mode(format) {
            Mode::Merge => String::new(),
            mode @ (Mode::Reset | Mode::Trim) => format!("{mode}."),
        };
        format!("{}.{}.{mode}{}", self.compact.bytes_max, self.deleted, env!("CARGO_PKG_VERSION"))
    }
}

/// The word of a setting with fixed words, and its meaning. It is checked here too, because a host
/// older than `choice` in the manifest does not check it.
fn choice<T: Copy>(
    ctx: &Context,
    setting: &str,
    words: &[(&'static str, T)],
) -> Result<(&'static str, T)> {
    let given: String = ctx.setting(setting)?;
    words.iter().find(|(word, _)| *word == given).copied().ok_or_else(|| {
        let possible: Vec<String> = words.iter().map(|(word, _)| format!("{word:?}")).collect();
        let possible = possible.join(" or ");
        let message =
            format!("{given:?} is not a valid value for the setting {setting}: write {possible}");
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
            // A single row stays, whatever it contains: it is already one change.
            Ok(_) | Err(_) => rest(ctx, &subject, otherwise),
        },
        Decision::Rest(other) => rest(ctx, &subject, other),
    }
}

/// The verdict if no edits are replaced.
fn rest(ctx: &Context, subject: &Subject<'_>, rest: Rest) -> Result<Verdict> {
    match rest {
        Rest::Settled(reason) => Ok(Verdict::skip_settled(reason.to_string())),
        Rest::Gap { missing } => Ok(Verdict::retry(
            GAP_RETRY_MS,
            format!("gap: change {missing} is missing; a commit may be in progress"),
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

/// Whether the requested mode was applied and made the one row smaller.
fn is_smaller(compacted: &Compacted, mode: Mode) -> bool {
    compacted.mode == mode && compacted.update.len() < compacted.bytes_before
}

/// The bytes of the batch before and after, for the log.
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

/// A broken log becomes a dead letter, for a person to examine; an intact document is left
/// unchanged.
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
