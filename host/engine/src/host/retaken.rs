//! Whether a task takes rows again that an undo has put back.
//!
//! An undone item is not planned again while its version is the same. A range of rows has another version as soon as
//! it begins or ends elsewhere, which one new row does to all ranges behind it. So a task that plans ranges is paused
//! before its rows come back.

use std::sync::Arc;

use besom_core::command::Command;
use besom_core::ids::TaskName;
use besom_core::mode::Mode;
use besom_core::undo::Target;
use besom_ports::store::{self, Store};
use besom_ports::task::TaskDefinition;
use besom_ports::undone::Recorded;
use besom_product::retention::in_ranges;

use super::asking::submit_once;
use super::undo::{is_candidate, page};

/// Number of history rows read at a time.
const PAGE: u32 = 1_000;

/// A live task that may take the rows of an undo again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retaken {
    /// The task.
    pub task: TaskName,
    /// Whether it plans ranges, and something of the target is not undone yet.
    pub in_ranges: bool,
}

/// The task that may take the rows of a target again; none: it is not live, or paused. `known` finds a task of the
/// configuration.
///
/// # Errors
/// Those of the store.
pub async fn retaken(
    store: &dyn Store,
    known: impl Fn(&TaskName) -> Option<Arc<TaskDefinition>>,
    target: &Target,
) -> store::Result<Option<Retaken>> {
    let task = match target {
        Target::Run(id) | Target::Item(id, _) => store.run(*id).await?.map(|run| run.task),
        Target::Span { task, .. } => Some(task.clone()),
    };
    let Some(definition) = task.and_then(|task| known(&task)) else { return Ok(None) };
    let states = store.task_states().await?;
    let is_stopped = states.iter().any(|state| {
        state.paused.is_some() && (state.task == definition.name || state.task.is_all())
    });
    if definition.mode != Mode::Live || is_stopped {
        return Ok(None);
    }
    let is_planned_in_ranges = in_ranges(&definition, store.now().await?).is_some();
    let in_ranges = is_planned_in_ranges && is_open(store, target).await?;
    Ok(Some(Retaken { task: definition.name.clone(), in_ranges }))
}

/// Whether something of a target is not undone yet.
async fn is_open(store: &dyn Store, target: &Target) -> store::Result<bool> {
    let mut before = None;
    loop {
        let (rows, more) = page(store, target, before, PAGE).await?;
        for row in rows.iter().filter(|row| is_candidate(row)) {
            let recorded = Recorded::of_item(store, row.run, row.id).await?;
            if recorded.by(row.run, row.id).is_none() {
                return Ok(true);
            }
        }
        before = rows.last().map(|row| row.id).or(before);
        if !more || rows.is_empty() {
            return Ok(false);
        }
    }
}

/// Requests to pause the task, in front of the undo of a target.
///
/// # Errors
/// Those of the store.
pub async fn pause(
    store: &dyn Store,
    task: &TaskName,
    target: &str,
    (by, reason): (&str, &str),
) -> store::Result<()> {
    let colon = if reason.is_empty() { "" } else { ": " };
    let reason = format!("undo of {target}{colon}{reason}");
    submit_once(store, &Command::Pause { task: task.clone() }, by, &reason).await?;
    Ok(())
}
