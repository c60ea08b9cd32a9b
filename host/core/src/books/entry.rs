//! The input and the result of a settlement: entries, and their outcomes.

use serde::{Deserialize, Serialize};

use crate::brake::Used;
use crate::ids::{OwnerEpoch, Partition, RunId, Term};
use crate::item::{Identity, Item, Source};
use crate::proposal::{OnGuardFailed, Proposal, Settle};
use crate::queue::Decision;
use crate::time::Time;

/// What to do with one item in a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Where the item is waiting. The commit acknowledges it there.
    pub source: Source,
    /// The item.
    pub item: Item,
    /// The owner epoch under which the committing node owns the item's partition.
    pub epoch: OwnerEpoch,
    /// What happens to the item.
    pub decision: Decision,
}

impl Entry {
    /// Guarded changes that no scan has planned ([`Source::Unqueued`]). If a guard does not hold, or
    /// with the reason `violation` if the database refuses a change, the item is skipped. `followed`
    /// is the term that the writer follows; `undo`: before-images are kept.
    pub fn unqueued(
        followed: Term,
        identity: Identity,
        now: Time,
        proposal: Proposal,
        violation: &str,
        undo: bool,
    ) -> Entry {
        let skip = |reason: String| Settle::Skip { reason, settled: false };
        let on_guard_failed = skip(match &proposal.on_guard_failed {
            OnGuardFailed::Skip(reason) => reason.clone(),
            OnGuardFailed::Retry(_) => "a guard did not hold".into(),
        });
        Entry {
            source: Source::Unqueued(followed),
            item: Item {
                route: identity.key.clone(),
                identity,
                partition: Partition(0),
                version: String::new(),
                payload: Vec::new(),
                run: RunId::NONE,
                planned_at: now,
                attempts: 0,
                guard_retries: 0,
                deaths: 0,
                errors: Vec::new(),
            },
            epoch: OwnerEpoch(0),
            decision: Decision::Apply {
                proposal,
                on_guard_failed,
                on_violation: skip(violation.into()),
                undo,
            },
        }
    }
}

/// What a store has found out about an entry that may be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Judged {
    /// Its decision holds: the guards held and the changes are applied, or there are none.
    Held,
    /// As [`Judged::Held`], but of the rows that were to be put back, each stays as it is. Its messages, which say
    /// that rows are back, are not sent.
    Unchanged,
    /// Of the rows of its ranges, foreign keys keep each; nothing is changed, and no message is sent. Another run tries
    /// it again.
    Kept(String),
    /// A guard does not hold; nothing of the entry is applied.
    GuardFailed,
    /// The database refuses a change, in these words; nothing of the entry is applied.
    Violated(String),
}

impl Judged {
    /// What follows from changes that the database has applied to so many rows; `refused`: why it has left rows of
    /// ranges as they were, and whether foreign keys `keep` all of these. An item that stands for the rows of ranges and
    /// has changed none of them has done nothing: others hold the rows, or they no longer match.
    pub fn of_rows(proposal: &Proposal, rows: u64, refused: Option<&str>, keep: bool) -> Judged {
        match refused {
            _ if rows == 0 && proposal.restores() => Judged::Unchanged,
            _ if rows > 0 || !proposal.is_of_ranges() => Judged::Held,
            Some(said) if keep => Judged::Kept(said.to_owned()),
            Some(said) => Judged::Violated(said.to_owned()),
            None => Judged::GuardFailed,
        }
    }

    /// Whether the entry is committed.
    pub fn is_applied(&self) -> bool {
        matches!(self, Judged::Held | Judged::Unchanged | Judged::Kept(_))
    }

    /// As in a trial, which names what the database refuses.
    #[must_use]
    pub fn of_trial(self) -> Judged {
        match self {
            Judged::Kept(said) => Judged::Violated(said),
            judged => judged,
        }
    }
}

/// The result of one entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// The guards held and the changes were applied.
    Committed,
    /// Skipped, with the reason given by the item or by the guard that failed.
    Skipped(String),
    /// Moved to the retries, to be executed at this time.
    Retried(Time),
    /// Moved to the dead letters, with the error.
    Dead(String),
    /// Left out of the commit. Nothing of this entry has changed.
    Left(LeftOut),
    /// Committed without a change, because foreign keys keep all of its rows.
    Kept,
}

/// Why an entry was left out of a commit. The entry has changed nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LeftOut {
    /// The partition has another owner or another epoch.
    NotOwner,
    /// The stream's cursor is not where the batch expects it, or the timer or retry does not exist:
    /// the entry was acknowledged by another commit.
    NotThere,
    /// By the store's clock, the timer is before its due time or the batch is before the latest
    /// instant that a guest was given as the present. A retry may be executed before its time: the
    /// host chooses the back-off, and a one-off pass without a host has none.
    NotDue,
    /// The run would delete more rows than it may ([`crate::brake`]): the batch is left out as a whole.
    Braked,
}

/// The result of a commit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// The outcome of each entry, in the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// The time of the transaction, by the store's clock.
    pub at: Time,
    /// Runs that ended with this commit.
    pub runs_ended: Vec<RunId>,
    /// If a brake has left the batch out: what it would have used ([`crate::brake::used`]). Such a commit
    /// writes nothing, so this is never stored.
    #[serde(skip)]
    pub braked: Used,
}
