//! Compaction in merge mode: many updates become one, identities stay.
//!
//! Decides the order of the steps, and verifies every result. yrs applies the updates and decides
//! what is collected; the independent reader of this crate decides whether the result is the same
//! document. yrs never verifies its own work.
//!
//! ```text
//! rows ──tally──> room?
//! rows ──reader──> former model ───────────────────────┬──────────────┐
//!   └──yrs, one transaction per row──reader──> collected model        │
//!                                               compare, splice       │
//!                                                      └──> update ──reader──> compare
//!                                                             └──yrs, from nothing──> compare
//! ```
//!
//! If yrs cannot read the rows, or would split what cannot be split, it is called again with
//! stand-ins for all contents ([`stand_in`]): what is collected does not depend on contents, and
//! every content is copied from the former model anyway.

use super::compare::{self, Change, Difference};
use super::content::{self, Kind};
use super::digest::digest;
use super::fragment;
use super::layout::{Layout, Unfit};
use super::library::rebuild;
use super::model::Model;
use super::names::Names;
use super::tally::{self, Facts};
use super::union::{self, Fault};
use super::{memory, splice, stand_in, writer};
use crate::outcome::{Code, Compacted, Digests, Job, KeepDeleted, LeftAlone, Mode, Remark, Said};

/// A verified merge.
pub struct Merged {
    /// The names of both models.
    pub names: Names,
    /// The model of the rows.
    pub old: Model,
    /// The model of the one update.
    pub new: Model,
    /// The one update.
    pub update: Vec<u8>,
    /// Whether deleted content was kept.
    pub keep_deleted: bool,
    /// The counts over the rows.
    pub facts: Facts,
    digests: Digests,
    spliced: bool,
    stood_in: Option<LeftAlone>,
}

/// Compacts a document. See [`super::compact`].
pub fn merge(job: &Job<'_>) -> Result<Merged, LeftAlone> {
    let facts = tally::tally(job.updates)?;
    memory::require(&facts)?;
    let mut names = Names::default();
    let old = union::read(&mut names, job.updates.iter().copied()).map_err(LeftAlone::from)?;
    let keep_deleted = match job.settings.keep_deleted {
        KeepDeleted::Always => true,
        KeepDeleted::Never => false,
        KeepDeleted::Detect => old.keeps_deleted,
    };
    check_settled(&names, &old)?;
    let mut stood_in = None;
    let rows = match unreadable(&old) {
        None => by_rows(&mut names, &old, job.updates, keep_deleted),
        Some(words) => Err(LeftAlone::new(Code::Unsupported, words)),
    };
    let verified = match rows {
        Ok(verified) => verified,
        Err(left) if stand_in::units(&old) <= stand_in::UNITS_MAX => {
            match by_stand_ins(&mut names, &old, keep_deleted) {
                Ok(verified) => {
                    stood_in = Some(left);
                    verified
                }
                // A difference in the rows themselves is the clearer reason.
                Err(_) => return Err(left),
            }
        }
        Err(left) => return Err(left),
    };
    let Verified { new, update, spliced } = verified;

    let before = digest(&names, &old, &new);
    let after = digest(&names, &new, &new);
    if before != after {
        let words = format!("the digests differ: {before} and {after}");
        return Err(LeftAlone::new(Code::Changed, words));
    }
    Ok(Merged {
        names,
        old,
        new,
        update,
        keep_deleted,
        facts,
        digests: Digests { before, after },
        spliced,
        stood_in,
    })
}

impl Merged {
    /// The outcome, with the reason if another mode was requested.
    pub fn compacted(self, because: Option<String>) -> Compacted {
        Compacted {
            remarks: self.remarks(),
            update: self.update,
            mode: Mode::Merge,
            merged_because: because,
            digests: self.digests,
            bytes_before: self.facts.bytes,
        }
    }

    /// The notes of the merge for the history.
    pub fn remarks(&self) -> Vec<Remark> {
        let mut remarks = vec![
            Remark { name: "spliced", said: Said::Flag(self.spliced) },
            Remark { name: "kept_deleted", said: Said::Flag(self.keep_deleted) },
        ];
        remarks.extend(
            self.stood_in
                .iter()
                .map(|left| Remark { name: "stood_in", said: Said::Words(left.to_string()) }),
        );
        remarks
    }
}

/// Checks that every replica shows the same content, whichever row it received first. A row that
/// was modified after it was written can violate this.
fn check_settled(names: &Names, old: &Model) -> Result<(), LeftAlone> {
    match Layout::is_settled(names, old) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let words = "the order of the content depends on the order of the rows";
            Err(LeftAlone::new(Code::Changed, words))
        }
        Err(Unfit::TooLarge) => {
            let words =
                format!("more than {} fragments by several authors", fragment::FRAGMENTS_MAX);
            Err(LeftAlone::new(Code::TooLarge, words))
        }
        Err(Unfit::Circle) => {
            Err(LeftAlone::new(Code::MissingDependency, "changes depend on each other in a cycle"))
        }
    }
}

/// Contents that yrs is known to misread: it continues at the wrong byte and may panic on the
/// lengths that it reads there, or it exhausts its stack.
fn unreadable(old: &Model) -> Option<&'static str> {
    const HOOK: u8 = 5;
    let runs = old.clients.iter().flat_map(|client| client.runs.iter().map(move |r| (client, r)));
    for (client, run) in runs {
        match run.kind {
            Kind::Json => return Some("yrs cannot read JSON texts"),
            Kind::Type if client.arena[run.bytes.0 as usize] == HOOK => {
                return Some("yrs cannot read the name of an XmlHook");
            }
            Kind::Any | Kind::Doc
                if content::is_deep(
                    run.kind,
                    &client.arena[run.bytes.0 as usize..run.bytes.1 as usize],
                ) =>
            {
                return Some("yrs has too little stack for values nested this deep");
            }
            _ => {}
        }
    }
    None
}

/// A model equivalent to the former one, with the update that it was read from.
struct Verified {
    new: Model,
    update: Vec<u8>,
    spliced: bool,
}

/// yrs is given the rows.
fn by_rows(
    names: &mut Names,
    old: &Model,
    updates: &[&[u8]],
    keep_deleted: bool,
) -> Result<Verified, LeftAlone> {
    let collected = read_collected(names, &rebuild(updates, keep_deleted)?)?;
    let spliced = compare::compare(names, old, &collected, keep_deleted)?.drift.is_some();
    let (new, update) = spliced_and_read(names, old, &collected, keep_deleted)?;

    // Clients will build the document from this row alone.
    let again = read_collected(names, &rebuild(&[&update], keep_deleted)?)?;
    compare::compare(names, &new, &again, keep_deleted)?;
    Ok(Verified { new, update, spliced })
}

/// yrs is given the former model with other contents.
fn by_stand_ins(names: &mut Names, old: &Model, keep_deleted: bool) -> Result<Verified, LeftAlone> {
    let letters = stand_in::letters(old);
    let collected = rebuild(&[&writer::write(names, &letters)], keep_deleted)?;
    let collected = read_collected(names, &collected)?;
    compare::compare(names, &letters, &collected, keep_deleted)?;
    let (new, update) = spliced_and_read(names, old, &collected, keep_deleted)?;
    from_stand_ins(names, &new, keep_deleted)?;
    Ok(Verified { new, update, spliced: true })
}

/// Checks that yrs builds the same document from the update alone, or from stand-ins if it cannot
/// read the update.
pub fn from_nothing(names: &mut Names, new: &Model, update: &[u8]) -> Result<(), LeftAlone> {
    if unreadable(new).is_none()
        && let Ok(again) = rebuild(&[update], false)
        && let Ok(again) = read_collected(names, &again)
        && compare::compare(names, new, &again, false).is_ok()
    {
        return Ok(());
    }
    from_stand_ins(names, new, false)
}

/// Checks that yrs builds the document from the update alone, except for its contents.
fn from_stand_ins(names: &mut Names, new: &Model, keep_deleted: bool) -> Result<(), LeftAlone> {
    let letters = stand_in::letters(new);
    let again = rebuild(&[&writer::write(names, &letters)], keep_deleted)?;
    let again = read_collected(names, &again)?;
    compare::compare(names, &letters, &again, keep_deleted)?;
    Ok(())
}

fn spliced_and_read(
    names: &mut Names,
    old: &Model,
    collected: &Model,
    keep_deleted: bool,
) -> Result<(Model, Vec<u8>), LeftAlone> {
    let update = writer::write(names, &splice::splice(names, old, collected));
    let new = read_own(names, &update, "the compacted update cannot be read")?;
    same(names, old, &new, keep_deleted)?;
    Ok((new, update))
}

/// Checks that `after` is equivalent to the updates. See [`super::verify`].
pub fn verify(updates: &[&[u8]], after: &[u8]) -> Result<Digests, LeftAlone> {
    memory::require(&tally::tally(updates)?)?;
    let names = &mut Names::default();
    let old = union::read(names, updates.iter().copied()).map_err(LeftAlone::from)?;
    let new = read_own(names, after, "the compacted update cannot be read")?;
    same(names, &old, &new, false)?;
    Ok(Digests { before: digest(names, &old, &new), after: digest(names, &new, &new) })
}

/// Checks that there is no difference, not even in the bytes of a value.
fn same(names: &Names, old: &Model, new: &Model, keep_deleted: bool) -> Result<(), LeftAlone> {
    match compare::compare(names, old, new, keep_deleted)?.drift {
        None => Ok(()),
        Some((client, clock)) => {
            let words = format!("a value would change (client {client}, clock {clock})");
            Err(LeftAlone::new(Code::Changed, words))
        }
    }
}

fn read_collected(names: &mut Names, update: &[u8]) -> Result<Model, LeftAlone> {
    read_own(names, update, "yrs wrote an update that cannot be read")
}

/// Reads an update that this crate or yrs wrote.
pub fn read_own(names: &mut Names, update: &[u8], what: &str) -> Result<Model, LeftAlone> {
    union::read(names, [update]).map_err(|fault| {
        let words = format!("{what}: {}", LeftAlone::from(fault).words);
        LeftAlone::new(Code::Changed, words)
    })
}

impl From<Fault> for LeftAlone {
    fn from(fault: Fault) -> Self {
        let mut update = None;
        let (code, words) = match fault {
            Fault::Malformed { row, error } => {
                update = Some(row);
                (Code::Undecodable, format!("update {row} cannot be decoded: {error}"))
            }
            Fault::Hole { client, clock } => {
                (Code::Hole, format!("client {client} has a hole at clock {clock}"))
            }
            Fault::Missing { client, clock } => (
                Code::MissingDependency,
                format!("a change depends on client {client}, clock {clock}, which is missing"),
            ),
            Fault::Conflict { client, clock } => (
                Code::Conflict,
                format!("client {client}, clock {clock} was used for two different changes"),
            ),
        };
        LeftAlone { code, words, update }
    }
}

impl From<Difference> for LeftAlone {
    fn from(difference: Difference) -> Self {
        let code = match difference.change {
            Change::SplitPair => Code::SplitPair,
            Change::StateVector
            | Change::Revived
            | Change::Deleted
            | Change::Kind
            | Change::Place
            | Change::Dropped
            | Change::Unplaced => Code::Changed,
        };
        LeftAlone::new(code, difference.to_string())
    }
}
