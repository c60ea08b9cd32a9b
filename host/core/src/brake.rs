//! Brakes: how much one run of a task may delete, how many of its items may be set aside, and how many
//! runs in a row may fail. A run that wants more is stopped, and its task is paused.
//!
//! The leader sets the limits of a run before its first items are planned, with the size of the
//! collections as the database estimates it. Each commit adds what it has deleted and set aside, in its
//! own transaction: a commit beyond a limit is left out as a whole ([`LeftOut::Braked`]), so the limit
//! holds exactly, whichever nodes execute the run. Rows of dependants count towards the limits of their own
//! collections. What the product's foreign keys delete by themselves is not counted.
//!
//! [`LeftOut::Braked`]: crate::books::LeftOut::Braked

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::books::{Entry, Outcome};
use crate::command::counted;
use crate::ids::RunId;
use crate::plan::Run;
use crate::proposal::{Change, Proposal, Settle};
use crate::queue::Decision;

/// The author of a pause that a brake has requested.
pub const BY: &str = "brake";

/// What the brake for dead letters counts. No collection has this name.
pub const LETTERS: &str = "";

/// The number of earlier runs that tell what is usual.
pub const USUAL_RUNS: usize = 20;

/// The whole, in the unit of [`DeletesMax::Share`].
const WHOLE: u128 = 1_000_000;

/// The brakes of a task; the default has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Brakes {
    /// Maximum number of rows that one run may delete from each collection.
    pub deletes: Option<DeletesMax>,
    /// Maximum number of items that one run may set aside.
    pub letters: Option<NonZeroU32>,
    /// The number of runs in a row that fail before the task is paused.
    pub failures: Option<NonZeroU32>,
}

/// A limit of deleted rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletesMax {
    /// At most this many rows, however large the collection is.
    Rows(u64),
    /// This part of the collection, but never fewer than `floor` rows.
    Share {
        /// The part, in millionths.
        millionths: u32,
        /// The number of rows up to which the share does not apply.
        floor: u64,
    },
}

impl DeletesMax {
    /// The number of rows that a run may delete from a collection of about so many rows. Of an empty
    /// collection it is the floor.
    pub fn of(self, estimate: u64) -> u64 {
        match self {
            DeletesMax::Rows(rows) => rows,
            DeletesMax::Share { millionths, floor } => {
                let part = u128::from(estimate) * u128::from(millionths) / WHOLE;
                u64::try_from(part).unwrap_or(u64::MAX).max(floor)
            }
        }
    }
}

impl Brakes {
    /// Whether its runs are counted as they are committed.
    pub fn counts(&self) -> bool {
        self.deletes.is_some() || self.letters.is_some()
    }

    /// The limit for rows of a collection of about so many rows, or for [`LETTERS`]; none: no limit.
    pub fn allowed(&self, what: &str, estimate: Option<u64>) -> Option<u64> {
        match what {
            LETTERS => self.letters.map(|max| u64::from(max.get())),
            _ => self.deletes.map(|max| max.of(estimate.unwrap_or(0))),
        }
    }
}

/// The limit of one run, and what counts towards it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Brake {
    /// The run's number in the store.
    pub run: RunId,
    /// The collection whose deleted rows are counted, or [`LETTERS`].
    pub what: String,
    /// The number of rows deleted, or of items set aside.
    pub used: u64,
    /// The limit; none: an operator has released the run, or the task has no limit any more.
    pub allowed: Option<u64>,
    /// The number of rows of the collection when the run was started, as far as it was known.
    pub estimate: Option<u64>,
}

impl Brake {
    /// A limit of which nothing is used.
    pub fn new(brakes: &Brakes, run: RunId, what: &str, estimate: Option<u64>) -> Brake {
        let allowed = brakes.allowed(what, estimate);
        Brake { run, what: what.to_owned(), used: 0, allowed, estimate }
    }

    /// What an operator's `resume` makes of it, with the task's present brakes. Rows that were deleted
    /// stay counted, because the limit is the run's; the count of dead letters starts again.
    #[must_use]
    pub fn resumed(self, brakes: &Brakes) -> Brake {
        let allowed = brakes.allowed(&self.what, self.estimate);
        let used = if self.what == LETTERS { 0 } else { self.used };
        Brake { allowed, used, ..self }
    }

    /// Whether a commit that brings the count to `used` must be left out.
    pub fn forbids(used: u64, allowed: Option<u64>) -> bool {
        allowed.is_some_and(|allowed| used > allowed)
    }
}

/// What a commit counts towards the brakes: by run, and by collection or [`LETTERS`].
pub type Used = BTreeMap<(RunId, String), u64>;

/// The rows that went as dependants of others, by collection.
pub type Dependants = BTreeMap<String, u64>;

/// What entries of a commit count towards the brakes. `rows` returns the number of rows that an entry has
/// changed, and those of them that went as dependants.
pub fn used<'a>(
    entries: &'a [Entry],
    outcomes: &[Outcome],
    rows: impl Fn(usize) -> (u64, Option<&'a Dependants>),
) -> Used {
    let mut used: BTreeMap<(RunId, &str), u64> = BTreeMap::new();
    let mut add = |run: RunId, what: &'a str, more: u64| {
        *used.entry((run, what)).or_default() += more;
    };
    for (at, (entry, outcome)) in entries.iter().zip(outcomes).enumerate() {
        let run = entry.item.run;
        match (outcome, &entry.decision) {
            _ if run == RunId::NONE => {}
            (Outcome::Committed, Decision::Apply { proposal, .. }) => {
                let (rows, dependants) = rows(at);
                let went: u64 = dependants.iter().flat_map(|all| all.values()).sum();
                for (collection, deleted) in deleted(proposal, rows.saturating_sub(went)) {
                    add(run, collection, deleted);
                }
                for (collection, went) in dependants.into_iter().flatten() {
                    add(run, collection, *went);
                }
            }
            (Outcome::Dead(_), _) => add(run, LETTERS, 1),
            _ => {}
        }
    }
    used.into_iter().map(|((run, what), used)| ((run, what.to_owned()), used)).collect()
}

/// How many rows a proposal deletes of each collection, or moves out of it, at most, given how many rows it
/// has changed. Dependants are not among them.
pub fn deleted(proposal: &Proposal, rows: u64) -> BTreeMap<&str, u64> {
    let mut deleted = BTreeMap::new();
    let removes = |change: &&Change| change.deletes() || Change::into(change).is_some();
    for change in proposal.changes.iter().filter(removes) {
        if let Some(collection) = change.collection() {
            *deleted.entry(collection).or_default() += change.rows();
        }
    }
    // A range names the most that it may change.
    deleted.values_mut().for_each(|most: &mut u64| *most = (*most).min(rows));
    deleted.retain(|_, rows| *rows > 0);
    deleted
}

/// Characters of an error that are shown with a trip.
const ERROR_CHARS: usize = 200;

/// What a batch wanted for one run when a brake left it out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The number of rows that it would have deleted at most, by collection.
    pub deletes: BTreeMap<String, u64>,
    /// The number of items that it would have set aside.
    pub letters: u64,
    /// The number of further items that it would have set aside if the database refused their changes, or
    /// if their guards did not hold.
    pub letters_more: u64,
    /// Why the first of the items was to be set aside.
    pub error: Option<String>,
}

impl Wanted {
    /// What the entries of a batch wanted, by run. `used` is what they would have used, with the dependants,
    /// which no proposal names.
    pub fn by_run(entries: &[Entry], used: &Used) -> BTreeMap<RunId, Wanted> {
        let mut runs: BTreeMap<RunId, Wanted> = BTreeMap::new();
        for entry in entries {
            let wanted = runs.entry(entry.item.run).or_default();
            match &entry.decision {
                Decision::Apply { proposal, on_guard_failed, on_violation, .. } => {
                    for (collection, rows) in deleted(proposal, u64::MAX) {
                        *wanted.deletes.entry(collection.to_owned()).or_default() += rows;
                    }
                    let is_dead = |settle: &Settle| matches!(settle, Settle::Dead { .. });
                    wanted.letters_more +=
                        u64::from(is_dead(on_guard_failed) || is_dead(on_violation));
                }
                Decision::Settle(Settle::Dead { reason, .. }) => {
                    wanted.letters += 1;
                    let bounded = || reason.chars().take(ERROR_CHARS).collect();
                    wanted.error.get_or_insert_with(bounded);
                }
                Decision::Settle(_) => {}
            }
        }
        for ((run, what), rows) in used.iter().filter(|((_, what), _)| what != LETTERS) {
            let known = runs.entry(*run).or_default().deletes.entry(what.clone()).or_default();
            *known = (*known).max(*rows);
        }
        runs
    }
}

/// What earlier runs used: the median of the newest [`USUAL_RUNS`] that used anything. None: there was no
/// such run. A run that an operator has released, or that has no limit any more, is not usual. `brakes` is
/// in the order newest first.
pub fn usual(brakes: &[Brake], what: &str, except: RunId) -> Option<u64> {
    let of_others = |brake: &&Brake| {
        brake.what == what
            && brake.run != except
            && brake.used > 0
            && brake.allowed.is_some_and(|allowed| !Brake::forbids(brake.used, Some(allowed)))
    };
    let newest = brakes.iter().filter(of_others).take(USUAL_RUNS);
    let mut used: Vec<u64> = newest.map(|brake| brake.used).collect();
    used.sort_unstable();
    used.get(used.len().checked_sub(1)? / 2).copied()
}

/// Why a brake has stopped a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "limit", rename_all = "snake_case")]
pub enum Trip {
    /// A run wanted to delete more rows than it may.
    Deletes {
        /// The run's number in the store.
        run: RunId,
        /// The collection that they are deleted from.
        collection: String,
        /// The number of rows that the run wanted to delete so far; it may want more.
        wanted: u64,
        /// The number of rows that it may delete.
        allowed: u64,
        /// The number of rows that its runs delete usually; none: it has not deleted any before.
        usual: Option<u64>,
        /// The number of rows of the collection, as the limit was set.
        estimate: Option<u64>,
    },
    /// A run wanted to set aside more items than it may.
    Letters {
        /// The run's number in the store.
        run: RunId,
        /// The number of items that were set aside or were to be set aside; there may be more.
        wanted: u64,
        /// The number that it may set aside.
        allowed: u64,
        /// The number in earlier runs that set any aside; none: there was no such run.
        usual: Option<u64>,
        /// Why the first of the items was to be set aside that waits now; none: the database refused its
        /// change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<String>,
    },
    /// Runs have failed, one after the other.
    Failures {
        /// The last of them.
        run: RunId,
        /// Their number.
        wanted: u64,
        /// The number that pauses the task.
        allowed: u64,
    },
}

impl Trip {
    /// The brake of a run beyond which a commit went: that of its dead letters if those alone explain it,
    /// then the first of its collections, by name. `brakes` has the run's and those of earlier runs.
    pub fn of(brakes: &[Brake], run: RunId, wanted: &Wanted) -> Option<Trip> {
        let letters = |more| Trip::by_letters(brakes, run, more, wanted.error.as_ref());
        letters(wanted.letters)
            .or_else(|| Trip::by_deletes(brakes, run, &wanted.deletes))
            .or_else(|| letters(wanted.letters + wanted.letters_more))
    }

    fn by_deletes(brakes: &[Brake], run: RunId, more: &BTreeMap<String, u64>) -> Option<Trip> {
        brakes.iter().filter(|brake| brake.run == run && brake.what != LETTERS).find_map(|brake| {
            let wanted = brake.used.saturating_add(*more.get(&brake.what)?);
            let allowed = brake.allowed.filter(|allowed| wanted > *allowed)?;
            Some(Trip::Deletes {
                run,
                collection: brake.what.clone(),
                wanted,
                allowed,
                usual: usual(brakes, &brake.what, run),
                estimate: brake.estimate,
            })
        })
    }

    fn by_letters(brakes: &[Brake], run: RunId, more: u64, error: Option<&String>) -> Option<Trip> {
        let brake = brakes.iter().find(|brake| brake.run == run && brake.what == LETTERS)?;
        let wanted = brake.used.saturating_add(more);
        let allowed = brake.allowed.filter(|allowed| wanted > *allowed)?;
        let usual = usual(brakes, LETTERS, run);
        Some(Trip::Letters { run, wanted, allowed, usual, error: error.cloned() })
    }

    /// The run that wanted more.
    pub fn run(&self) -> RunId {
        match self {
            Trip::Deletes { run, .. } | Trip::Letters { run, .. } | Trip::Failures { run, .. } => {
                *run
            }
        }
    }

    /// What is limited, in the words of [`Brake::what`]; none: failed runs.
    pub fn what(&self) -> Option<&str> {
        match self {
            Trip::Deletes { collection, .. } => Some(collection),
            Trip::Letters { .. } => Some(LETTERS),
            Trip::Failures { .. } => None,
        }
    }

    /// The key of the task's configuration that has the limit.
    pub fn key(&self) -> &'static str {
        match self {
            Trip::Deletes { .. } => "max_delete",
            Trip::Letters { .. } => "max_dead_letters",
            Trip::Failures { .. } => "max_failed_runs",
        }
    }

    /// Why a resumption with these limits would trip again; none: what is planned is allowed now, as far as
    /// it is known, or has been done. `brake` is the one that tripped, as it is now.
    pub fn again(&self, brakes: &Brakes, brake: &Brake) -> Option<String> {
        let resumed = brake.clone().resumed(brakes);
        let (run, allowed) = (self.run(), resumed.allowed?);
        let (wanted, of) = match self {
            // It counts from where it is; what waits is more.
            Trip::Deletes { wanted, collection, .. } if brake.used < *wanted => {
                (*wanted, format!("{} of {collection}", counted(*wanted, "row")))
            }
            Trip::Letters { wanted, .. } if brake.used < *wanted => {
                let more = wanted - brake.used;
                (resumed.used + more, format!("{} to be set aside", counted(more, "further item")))
            }
            _ => return None,
        };
        let key = self.key();
        (wanted > allowed).then(|| {
            format!(
                "run {run} is still beyond {key}: it wants at least {of}; allowed: {allowed}. It will be \
                 stopped again unless {key} is raised, what is planned is discarded, or the task is \
                 resumed with --release"
            )
        })
    }

    /// Whether the newest runs have all failed: `runs` is in the order newest first. A run that is still
    /// scanning says nothing yet, and one that an operator has cancelled did not fail.
    pub fn by_failures(runs: &[Run], max: NonZeroU32) -> Option<Trip> {
        let scanned = || runs.iter().filter(|run| run.scan_done || run.ended_at.is_some());
        let failed = |run: &&Run| {
            run.error.as_deref().is_some_and(|error| !error.starts_with("cancelled by "))
        };
        let failures = scanned().take_while(failed).count() as u64;
        let last = scanned().next()?;
        let allowed = u64::from(max.get());
        (failures >= allowed).then_some(Trip::Failures { run: last.id, wanted: failures, allowed })
    }
}

impl fmt::Display for Trip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let usually = |f: &mut fmt::Formatter<'_>, usual: &Option<u64>| match usual {
            Some(usual) => write!(f, "; usual: {usual}"),
            None => f.write_str("; usual: unknown, no earlier run counted any within its limit"),
        };
        match self {
            Trip::Deletes { run, collection, wanted, allowed, usual, estimate } => {
                let rows = counted(*wanted, "row");
                write!(f, "run {run} wanted to delete at least {rows} of {collection}")?;
                write!(f, "; allowed: {allowed}")?;
                if let Some(estimate) = estimate {
                    write!(f, " (of about {estimate})")?;
                }
                usually(f, usual)
            }
            Trip::Letters { run, wanted, allowed, usual, error } => {
                let items = counted(*wanted, "item");
                write!(f, "run {run} wanted to set aside at least {items}; allowed: {allowed}")?;
                usually(f, usual)?;
                match error {
                    Some(error) => write!(f, "; the next one: {error}"),
                    None => Ok(()),
                }
            }
            Trip::Failures { run, wanted, allowed } => {
                let runs = counted(*wanted, "run");
                write!(f, "{runs} in a row failed, the last is {run}; allowed: {allowed}")
            }
        }
    }
}

#[cfg(test)]
mod tests;
