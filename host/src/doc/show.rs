//! What is stored of a document, and the last word of the compaction on it.

use besom_core::ids::TaskName;

use super::attached::{Attached, attached};
use super::history::{item_key, of_document};
use super::{Document, Error, Name, SNAPSHOT_MAX, document, stored};
use crate::ports::store::{self, DeadLetter, DeadSelector, HistoryRow, Letters, Store};

/// History rows and dead letters looked through for the last word on a document.
const LOOKED_AT_MAX: u32 = 1_000;

/// What is stored of a document, and the last word on it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its row.
    pub document: Document,
    /// Changes that are edits.
    pub edits: u64,
    /// Changes that are presence.
    pub presences: u64,
    /// Snapshots.
    pub snapshots: u64,
    /// Bytes of all their payloads.
    pub bytes: u64,
    /// The last compaction that changed it.
    pub last_compaction: Option<HistoryRow>,
    /// The last word on it.
    pub state: State,
    /// Why it was left alone or set aside, if that is the last word.
    pub left_alone: Option<String>,
    /// Who is attached, those first that have seen least; none: the mapping has no such table.
    pub attached: Option<Vec<Attached>>,
}

/// The last word of the compaction on a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing has been decided about it so far.
    Untouched,
    /// Its changes were exchanged for one; what came later waits for the next time.
    Compacted,
    /// It stays as it is, for a reason.
    LeftAlone,
    /// It was set aside: its log is broken, or every attempt has failed.
    Dead,
}

/// How a reason for leaving a document alone begins in the history.
pub(super) const LEFT_ALONE: &str = "left-alone: ";

/// The state that a history row leaves a document in, if it is a last word: a skip that is
/// not settled only postpones, and one that finds nothing to do changes no verdict.
pub(super) fn state_after(row: &HistoryRow, was_compacted: bool) -> Option<State> {
    match row.outcome.as_str() {
        "committed" => Some(State::Compacted),
        "dead" => Some(State::Dead),
        "skipped" if row.settled => {
            let is_refusal = row.reason.as_deref().is_some_and(|r| r.starts_with(LEFT_ALONE));
            (is_refusal || !was_compacted).then_some(State::LeftAlone)
        }
        _ => None,
    }
}

/// Looks a document up, and what `tasks` (those that compact) last said of it.
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
    let history = of_document(store, name, tasks, LOOKED_AT_MAX).await?;
    shown.last_compaction = history.iter().find(|row| row.outcome == "committed").cloned();
    let was_compacted = shown.last_compaction.is_some();
    let mut last_word = history.into_iter().find_map(|row| {
        let state = state_after(&row, was_compacted)?;
        Some((state, row.reason))
    });
    if last_word.is_none() {
        // The history is kept for a time only; dead letters and the document itself stay.
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
