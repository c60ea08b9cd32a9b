//! What was undone, as the history of the task `undo` tells it.

use std::collections::HashMap;

use besom_core::ids::{RunId, TaskName};
use besom_core::item::End;
use besom_core::undo::{self, Target, is_whole};

use crate::history::Rows;
use crate::store::{self, HistoryQuery, HistoryRow, Store};

/// Maximum number of undos of undos that are looked at.
pub const DEPTH_MAX: u32 = 8;
/// Maximum number of attempts to undo one item that are looked at.
const ATTEMPTS: u32 = 100;

/// The note of an item that has put nothing back, because that was done before: what was undone may be planned again.
pub const ONLY_PLANNED_AGAIN: &str = "only_planned_again";

/// Whether a row of the history of this task only lets its task plan again what was undone before.
pub fn is_only_planned_again(row: &HistoryRow) -> bool {
    row.notes.iter().any(|note| note.name == ONLY_PLANNED_AGAIN)
}

/// The key of the item that undoes a history row, and how `besom undo` takes it.
pub fn key_of(run: RunId, history: u64) -> String {
    format!("{run}/#{history}")
}

/// Whether all of a history row is undone. For many rows, [`Recorded::read`] asks less of the store.
///
/// # Errors
/// The store cannot be read.
pub async fn is_undone(store: &dyn Store, row: &HistoryRow) -> store::Result<bool> {
    let recorded = Recorded::of_item(store, row.run, row.id).await?;
    Ok(recorded.of(row.run, row.id) == Undone::Whole)
}

/// How far an item is undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Undone {
    /// It is not, or that was undone in turn.
    No,
    /// Rows of it stay as they are.
    Partly,
    /// All of it.
    Whole,
}

/// The undos that are recorded.
#[derive(Debug, Default)]
pub struct Recorded {
    /// By the run and the number of what they have undone.
    attempts: HashMap<(RunId, u64), Vec<Attempt>>,
}

#[derive(Debug, Clone, Copy)]
struct Attempt {
    own: (RunId, u64),
    whole: bool,
}

/// What earlier attempts to undo an item have put back.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Standing {
    /// The history rows of what has put back rows.
    pub earlier: Vec<u64>,
    /// The history rows of what has taken back some of these.
    pub reverted: Vec<u64>,
}

impl Recorded {
    /// Reads what was committed to undo this item, and to undo that in turn.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn of_item(store: &dyn Store, run: RunId, number: u64) -> store::Result<Recorded> {
        let (mut recorded, mut open) = (Recorded::default(), vec![(run, number)]);
        for _ in 0..DEPTH_MAX {
            for item in std::mem::take(&mut open) {
                let query = HistoryQuery {
                    task: Some(TaskName::from(undo::TASK)),
                    key: Some(key_of(item.0, item.1)),
                    limit: ATTEMPTS,
                    ..HistoryQuery::default()
                };
                for row in store.history(&query).await? {
                    open.extend(recorded.add(item, &row));
                }
            }
        }
        Ok(recorded)
    }

    /// Reads them, at most so many, the newest ones first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read(store: &dyn Store, max: usize) -> store::Result<Recorded> {
        let (mut recorded, mut read) = (Recorded::default(), 0);
        let task = Some(TaskName::from(undo::TASK));
        let mut rows = Rows::of(store, HistoryQuery { task, ..HistoryQuery::default() });
        while read < max
            && let Some(row) = rows.next().await?
        {
            read += 1;
            let target = Target::parse(&row.identity.key).ok();
            let number = target.as_ref().and_then(Target::number);
            let (Some(Target::Item(run, _)), Some(number)) = (target, number) else { continue };
            recorded.add((run, number), &row);
        }
        Ok(recorded)
    }

    /// Adds a history row of the task that undoes, if it has changed something, and returns what it is called.
    fn add(&mut self, item: (RunId, u64), row: &HistoryRow) -> Option<(RunId, u64)> {
        let whole = is_whole(row.reason.as_deref());
        let is_effective = row.outcome == End::Committed && (whole || row.rows > 0);
        if !is_effective || is_only_planned_again(row) {
            return None;
        }
        let own = (row.run, row.id);
        self.attempts.entry(item).or_default().push(Attempt { own, whole });
        Some(own)
    }

    /// How far the item with this number of a run is undone.
    pub fn of(&self, run: RunId, number: u64) -> Undone {
        self.within((run, number), DEPTH_MAX)
    }

    /// The run that has undone all of the item, if it is [whole](Undone::Whole).
    pub fn by(&self, run: RunId, number: u64) -> Option<RunId> {
        self.whole((run, number), DEPTH_MAX).map(|attempt| attempt.own.0)
    }

    /// What earlier attempts have put back of the item with this number of a run.
    pub fn standing(&self, run: RunId, number: u64) -> Standing {
        let mut standing = Standing::default();
        self.gather((run, number), DEPTH_MAX, &mut standing);
        standing
    }

    /// The attempts whose rows stand, at least in part.
    fn effective(&self, item: (RunId, u64), depth: u32) -> impl Iterator<Item = Attempt> {
        let attempts = self.attempts.get(&item).into_iter().flatten().copied();
        attempts.filter(move |attempt| match depth.checked_sub(1) {
            Some(depth) => self.within(attempt.own, depth) != Undone::Whole,
            None => true,
        })
    }

    fn within(&self, item: (RunId, u64), depth: u32) -> Undone {
        match self.whole(item, depth) {
            Some(_) => Undone::Whole,
            None if self.effective(item, depth).next().is_some() => Undone::Partly,
            None => Undone::No,
        }
    }

    /// The attempt that has undone all that was left. What it has found put back by earlier ones, and its own
    /// rows, were not taken back since.
    fn whole(&self, item: (RunId, u64), depth: u32) -> Option<Attempt> {
        let taken_back = |attempt: &Attempt| {
            let undos = self.effective(attempt.own, depth.saturating_sub(1));
            undos.map(|undo| undo.own.1).max().unwrap_or_default()
        };
        let attempts = || self.attempts.get(&item).into_iter().flatten();
        let whole = attempts().find(|whole| {
            let at = whole.own.1;
            let mut until = attempts().filter(|earlier| earlier.own.1 <= at);
            whole.whole && until.all(|earlier| taken_back(earlier) < at)
        });
        whole.copied()
    }

    fn gather(&self, item: (RunId, u64), depth: u32, into: &mut Standing) {
        let Some(below) = depth.checked_sub(1) else { return };
        for attempt in self.effective(item, depth) {
            into.earlier.push(attempt.own.1);
            let mut taken = Standing::default();
            self.gather(attempt.own, below, &mut taken);
            into.earlier.append(&mut taken.reverted);
            into.reverted.append(&mut taken.earlier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was undone, by what, and whether as a whole.
    type Entry = ((u64, u64), (u64, u64), bool);

    fn recorded(of: &[Entry]) -> Recorded {
        let key = |(run, number): (u64, u64)| (RunId(run), number);
        let mut recorded = Recorded::default();
        for (item, own, whole) in of {
            let attempt = Attempt { own: key(*own), whole: *whole };
            recorded.attempts.entry(key(*item)).or_default().push(attempt);
        }
        recorded
    }

    #[test]
    fn an_undo_that_was_undone_counts_no_longer() {
        let recorded = recorded(&[
            ((1, 10), (2, 20), true),
            ((1, 11), (2, 21), true),
            ((2, 21), (3, 31), true),
            ((1, 12), (2, 22), false),
            ((1, 13), (2, 23), true),
            ((2, 23), (3, 33), true),
            ((3, 33), (4, 43), true),
        ]);
        let of = [10, 11, 12, 13, 14].map(|number| recorded.of(RunId(1), number));
        let expected = [Undone::Whole, Undone::No, Undone::Partly, Undone::Whole, Undone::No];
        assert_eq!(of, expected);
        let by = [10, 11, 13].map(|number| recorded.by(RunId(1), number));
        assert_eq!(by, [Some(RunId(2)), None, Some(RunId(2))]);
    }

    /// Some rows of an undo were taken back: these, and only these, can be put back again.
    #[test]
    fn what_was_taken_back_in_part_is_undone_in_part() {
        let mut all = vec![((1, 10), (2, 20), true), ((2, 20), (3, 30), false)];
        let item =
            |recorded: &Recorded| (recorded.of(RunId(1), 10), recorded.standing(RunId(1), 10));
        let standing = |earlier: &[u64], reverted: &[u64]| Standing {
            earlier: earlier.to_vec(),
            reverted: reverted.to_vec(),
        };
        assert_eq!(item(&recorded(&all)), (Undone::Partly, standing(&[20], &[30])));
        // They are put back, which leaves none.
        all.push(((1, 10), (4, 40), true));
        assert_eq!(item(&recorded(&all)).0, Undone::Whole);
        // What was put back by the first is taken back once more, then by the second.
        let taken = [&all[..], &[((2, 20), (5, 50), true)]].concat();
        assert_eq!(item(&recorded(&taken)), (Undone::Partly, standing(&[40], &[])));
        let taken = [&all[..], &[((4, 40), (5, 50), true)]].concat();
        assert_eq!(item(&recorded(&taken)), (Undone::Partly, standing(&[20], &[30])));
        // The undo of the undo is undone: everything is as it was before.
        all[1].2 = true;
        let back = [&all[..2], &[((3, 30), (4, 40), false)]].concat();
        assert_eq!(item(&recorded(&back)), (Undone::Partly, standing(&[20, 40], &[30])));
    }

    /// A second attempt completes a first one, which is taken back afterwards.
    #[test]
    fn a_whole_of_two_attempts_needs_both() {
        let both = [((1, 10), (2, 20), false), ((1, 10), (3, 30), true)];
        assert_eq!(recorded(&both).of(RunId(1), 10), Undone::Whole);
        let first = [&both[..], &[((2, 20), (4, 40), true)]].concat();
        assert_eq!(recorded(&first).of(RunId(1), 10), Undone::Partly);
    }
}
