//! Describes a stored document and the last result of compaction.

use besom_core::ids::TaskName;

use super::attached::{Attached, attached};
use super::history::{item_key, of_document};
use super::{Document, Error, Name, SNAPSHOT_MAX, document, stored};
use besom_ports::store::{self, DeadLetter, DeadSelector, End, HistoryRow, Letters, Store};
use besom_ports::undone::is_undone;

/// Maximum number of history rows and dead letters searched for the last result of a document.
const LOOKED_AT_MAX: u32 = 1_000;

/// A stored document and its last result.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// The row of the document.
    pub document: Document,
    /// Number of changes that are edits.
    pub edits: u64,
    /// Number of changes that are presence.
    pub presences: u64,
    /// Number of snapshots.
    pub snapshots: u64,
    /// Size of all their payloads, in bytes.
    pub bytes: u64,
    /// The last compaction that changed the document.
    pub last_compaction: Option<HistoryRow>,
    /// The last result.
    pub state: State,
    /// Why it was left alone or set aside, if that is the last result.
    pub left_alone: Option<String>,
    /// The attached clients, those that have seen the least first; `None`: the required tables are
    /// not mapped.
    pub attached: Option<Vec<Attached>>,
}

/// The last result of compaction for a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing has been decided about it so far.
    Untouched,
    /// Its changes were replaced by one; later changes wait for the next compaction.
    Compacted,
    /// It is left unchanged, for a reason.
    LeftAlone,
    /// It was set aside: its log is damaged, or every attempt has failed.
    Dead,
}

/// The prefix of a reason for leaving a document alone, as stored in the history.
pub(super) const LEFT_ALONE: &str = "left-alone: ";

/// The state that a history row implies, if it is a final result. A skip that is not settled only
/// postpones, and a skip because there is nothing to do does not change the state.
pub(super) fn state_after(row: &HistoryRow, was_compacted: bool) -> Option<State> {
    match row.outcome {
        End::Committed => Some(State::Compacted),
        End::Dead => Some(State::Dead),
        End::Skipped if row.settled => {
            let is_refusal = row.reason.as_deref().is_some_and(|r| r.starts_with(LEFT_ALONE));
            (is_refusal || !was_compacted).then_some(State::LeftAlone)
        }
        End::Skipped | End::Discarded | End::Unknown => None,
    }
}

/// Finds a document and the last result of `tasks` (those that compact).
pub async fn show(store: &dyn Store, name: &Name, tasks: &[TaskName]) -> Result<Shown, Error> {
    let view = store.snapshot(SNAPSHOT_MAX).await?;
    let Some(document) = document(&*view, name).await? else {
        return Err(Error::Missing(name.to_string()));
    };
    let changes = stored(&*view, name, "changes").await?;
    let snapshots = stored(&*view, name, "snapshots").await?;
    drop(view);
    let bytes = changes.iter().chain(&snapshots).map(|row| row.payload.len() as u64).sum();
    let edits = changes.iter().filter(|row| row.edit).count() as u64;
    let mut shown = Shown {
        document,
        edits,
        presences: changes.len() as u64 - edits,
        snapshots: snapshots.len() as u64,
        bytes,
        last_compaction: None,
        state: State::Untouched,
        left_alone: None,
        attached: attached(store, name).await?,
    };
    let mut history = of_document(store, name, tasks, LOOKED_AT_MAX).await?;
    // Only the last compaction that was not undone counts.
    while let Some(last) = history.iter().position(|row| row.outcome == End::Committed)
        && is_undone(store, &history[last]).await?
    {
        history.remove(last);
    }
    shown.last_compaction = history.iter().find(|row| row.outcome == End::Committed).cloned();
    let was_compacted = shown.last_compaction.is_some();
    let mut last_word = history.into_iter().find_map(|row| {
        let state = state_after(&row, was_compacted)?;
        Some((state, row.reason))
    });
    if last_word.is_none() {
        // The history is kept for a limited time; dead letters and the document itself remain.
        last_word = match dead(store, tasks, name).await? {
            Some(letter) => Some((State::Dead, letter.item.errors.last().cloned())),
            None => shown.document.compacted_at.map(|_| (State::Compacted, None)),
        };
    }
    if let Some((state, reason)) = last_word {
        shown.state = state;
        if state != State::Compacted {
            shown.left_alone = reason
                .map(|reason| reason.strip_prefix(LEFT_ALONE).map(str::to_owned).unwrap_or(reason));
        }
    }
    Ok(shown)
}

async fn dead(
    store: &dyn Store,
    tasks: &[TaskName],
    name: &Name,
) -> store::Result<Option<DeadLetter>> {
    for task in tasks {
        let selector = DeadSelector { task: Some(task.clone()), ..DeadSelector::default() };
        let letters = store.dead_letters(&selector, Letters::Open, None, LOOKED_AT_MAX).await?;
        let found = letters.into_iter().find(|letter| {
            letter.item.identity.tenant.as_ref() == Some(&name.tenant)
                && letter.item.identity.key == item_key(&name.key)
        });
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}
