//! What was undone, as the history of the task `undo` tells it.

use std::collections::HashMap;

use besom_core::ids::{RunId, TaskName};
use besom_core::item::End;
use besom_core::undo::{self, Target, is_whole};

use crate::store::{self, HistoryQuery, HistoryRow, Store};

/// Number of history rows read at a time.
const PAGE: u32 = 1_000;
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

/// What was committed to undo a history row, newest first.
///
/// # Errors
/// The store cannot be read.
pub async fn attempts(
    store: &dyn Store,
    run: RunId,
    history: u64,
) -> store::Result<Vec<HistoryRow>> {
    let query = HistoryQuery {
        task: Some(TaskName::from(undo::TASK)),
        key: Some(key_of(run, history)),
        limit: ATTEMPTS,
        ..HistoryQuery::default()
    };
    let mut rows = store.history(&query).await?;
    rows.retain(|row| row.outcome == End::Committed && !is_only_planned_again(row));
    Ok(rows)
}

/// Whether all of a history row is undone. For many rows, [`Recorded`] reads less.
///
/// # Errors
/// The store cannot be read.
pub async fn is_undone(store: &dyn Store, row: &HistoryRow) -> store::Result<bool> {
    is_undone_within(store, row, DEPTH_MAX).await
}

async fn is_undone_within(store: &dyn Store, row: &HistoryRow, depth: u32) -> store::Result<bool> {
    if depth == 0 {
        return Ok(false);
    }
    for attempt in attempts(store, row.run, row.id).await? {
        let whole = is_whole(attempt.reason.as_deref());
        if whole && !Box::pin(is_undone_within(store, &attempt, depth - 1)).await? {
            return Ok(true);
        }
    }
    Ok(false)
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

#[derive(Debug)]
struct Attempt {
    own: (RunId, u64),
    whole: bool,
}

impl Recorded {
    /// Reads them, at most so many, the newest ones first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read(store: &dyn Store, max: usize) -> store::Result<Recorded> {
        let (mut recorded, mut before, mut read) = (Recorded::default(), None, 0);
        loop {
            let task = Some(TaskName::from(undo::TASK));
            let query = HistoryQuery { task, before, limit: PAGE, ..HistoryQuery::default() };
            let rows = store.history(&query).await?;
            for row in &rows {
                let target = Target::parse(&row.identity.key).ok();
                let number = target.as_ref().and_then(Target::number);
                let (Some(Target::Item(run, _)), Some(number)) = (target, number) else { continue };
                if row.outcome == End::Committed && !is_only_planned_again(row) {
                    let attempt =
                        Attempt { own: (row.run, row.id), whole: is_whole(row.reason.as_deref()) };
                    recorded.attempts.entry((run, number)).or_default().push(attempt);
                }
            }
            read += rows.len();
            before = rows.last().map(|row| row.id);
            if rows.len() < PAGE as usize || read >= max {
                return Ok(recorded);
            }
        }
    }

    /// How far the item with this number of a run is undone.
    pub fn of(&self, run: RunId, number: u64) -> Undone {
        self.within((run, number), DEPTH_MAX)
    }

    fn within(&self, item: (RunId, u64), depth: u32) -> Undone {
        let mut found = Undone::No;
        for attempt in self.attempts.get(&item).into_iter().flatten() {
            if depth > 0 && self.within(attempt.own, depth - 1) == Undone::Whole {
                continue;
            }
            if attempt.whole {
                return Undone::Whole;
            }
            found = Undone::Partly;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_undo_that_was_undone_counts_no_longer() {
        let key = |run: u64, number: u64| (RunId(run), number);
        let mut recorded = Recorded::default();
        let mut add = |of, own, whole| {
            recorded.attempts.entry(of).or_default().push(Attempt { own, whole });
        };
        add(key(1, 10), key(2, 20), true);
        add(key(1, 11), key(2, 21), true);
        add(key(2, 21), key(3, 31), true);
        add(key(1, 12), key(2, 22), false);
        add(key(1, 13), key(2, 23), true);
        add(key(2, 23), key(3, 33), true);
        add(key(3, 33), key(4, 43), true);
        let of = [10, 11, 12, 13, 14].map(|number| recorded.of(RunId(1), number));
        let expected = [Undone::Whole, Undone::No, Undone::Partly, Undone::Whole, Undone::No];
        assert_eq!(of, expected);
    }
}
