//! A batch that one transaction commits, and what a commit would have done.

use besom_core::books::{Committed, Entry, LeftOut, Outcome};
use besom_core::brake::Used;
use besom_core::ids::{CommitId, Incarnation, RunId, Term};
use besom_core::item::Source;
use besom_core::proposal::Settle;
use besom_core::queue::Decision;
use besom_core::time::Time;

use super::{BeforeImage, Error, Result};
use crate::guests::Lane;

/// A batch to be committed in one transaction, with entries of any number of tasks and streams. The
/// entries of one stream are in the order of their sequence numbers and follow its cursor without
/// gaps; a stream that violates this is left out completely ([`LeftOut::NotThere`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The unique id of this commit. It makes an unknown result decidable ([`super::Store::find_commit`]).
    pub id: CommitId,
    /// The incarnation that commits.
    pub node: Incarnation,
    /// The entries. The executor lets no two of them change the same row, but a guard may read a row
    /// that an earlier entry changes: they take effect as if committed one after the other.
    pub entries: Vec<Entry>,
    /// The latest instant that a guest was given as the present. Its decisions hold from that
    /// instant on: while the store's clock is behind it, the batch is left out
    /// ([`LeftOut::NotDue`]).
    pub as_of: Time,
    /// For [`besom_core::proposal::Guard::Idle`]: the activity keys that the caller observed as
    /// idle just before the commit, by entry index. Ignored if `activity_in_store` is set.
    pub idle: Vec<(usize, String)>,
    /// Whether the activity is kept in this store. If so, it is read inside the transaction and
    /// `idle` is ignored.
    pub activity_in_store: bool,
    /// The lane of the task. It determines the order among the requests that wait for the store.
    pub lane: Lane,
    /// Whether the task has brakes, so that the commit counts what its runs delete. If a run would exceed
    /// its limit, every entry is left out ([`LeftOut::Braked`]), and nothing is written. Held runs need no
    /// brake.
    pub braked: bool,
}

impl Batch {
    /// The lowest term under which an entry that was never queued is committed: the store refuses
    /// the batch if its fence is higher. `None`: every entry was queued.
    ///
    /// # Errors
    /// [`Error::Invalid`] if such an entry could be retried or set aside: it ends with its commit.
    pub fn unqueued(&self) -> Result<Option<Term>> {
        let ends = |settle: &Settle| matches!(settle, Settle::Skip { .. });
        let mut lowest: Option<Term> = None;
        for Entry { source, decision, item, .. } in &self.entries {
            let Source::Unqueued(term) = source else { continue };
            let sound = match decision {
                Decision::Apply { on_guard_failed, on_violation, .. } => {
                    ends(on_guard_failed) && ends(on_violation)
                }
                Decision::Settle(settle) => ends(settle),
            };
            if !sound || item.run != RunId::NONE {
                let key = &item.identity.key;
                let why = format!("the item {key} was never queued: it has no run and no retry");
                return Err(Error::Invalid(why));
            }
            lowest = Some(lowest.map_or(*term, |lowest| lowest.min(*term)));
        }
        Ok(lowest)
    }

    /// The result that leaves out every entry for this reason. The store then writes nothing, not even
    /// the commit id.
    pub fn all_left(&self, why: LeftOut, now: Time) -> Committed {
        Committed {
            outcomes: vec![Outcome::Left(why); self.entries.len()],
            at: now,
            runs_ended: Vec::new(),
            braked: Used::new(),
        }
    }

    /// The result that leaves out every entry because a brake forbids what they would have used.
    pub fn stopped(&self, braked: Used, now: Time) -> Committed {
        Committed { braked, ..self.all_left(LeftOut::Braked, now) }
    }

    /// If the store's clock is behind [`Batch::as_of`], returns the result that leaves out every
    /// entry. The store then writes nothing, not even the commit id.
    pub fn ahead_of(&self, now: Time) -> Option<Committed> {
        (self.as_of > now).then(|| self.all_left(LeftOut::NotDue, now))
    }
}

/// What a commit would have done, had it not been rolled back.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Tried {
    /// What would have become of each entry.
    pub outcomes: Vec<Outcome>,
    /// What each entry would have changed.
    pub changes: Vec<TriedChanges>,
}

/// What an entry would have changed.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TriedChanges {
    /// Number of rows.
    pub rows: u64,
    /// The rows as they are now, as far as they would be kept.
    pub images: Vec<BeforeImage>,
    /// Their size as they would be kept, in bytes.
    pub bytes: u64,
    /// Why rows would be left as they are.
    pub said: Option<String>,
    /// The rows that another session has locked, so that they were left out of the trial.
    pub locked: Option<LockedRows>,
}

/// Rows of an entry that another session has locked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockedRows {
    /// How many rows; 1 if the statement has ended with the first.
    pub rows: u64,
    /// The key of the first of them, if it is known.
    pub first: Option<String>,
}
