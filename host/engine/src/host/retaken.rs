//! Whether a task takes rows again that an undo has put back.
//!
//! An undone item is not planned again while its version is the same. A range of rows has another version as soon as
//! it begins or ends elsewhere, which one new row does to all ranges behind it. So a task that plans ranges is paused
//! before its rows come back.

use std::sync::Arc;

use besom_core::command::Command;
use besom_core::ids::TaskName;
use besom_core::mode::Mode;
use besom_core::undo::{self, Target};
use besom_ports::history;
use besom_ports::store::{self, Store};
use besom_ports::task::TaskDefinition;
use besom_ports::undone::{DEPTH_MAX, Recorded};
use besom_product::retention::in_ranges;

use super::asking::submit_once;
use super::undo::is_candidate;

/// Number of recorded commands among which a pause is looked for.
const PENDING_READ: u32 = 1_000;

/// A live task that may take the rows of an undo again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retaken {
    /// The task.
    pub task: TaskName,
    /// Whether it plans ranges, and something of the target is kept and not undone yet.
    pub in_ranges: bool,
}

/// The task that may take the rows of a target again; none: it is not live, or paused by itself. `known` finds a task of the
/// configuration.
///
/// # Errors
/// Those of the store.
pub async fn retaken(
    store: &dyn Store,
    known: impl Fn(&TaskName) -> Option<Arc<TaskDefinition>>,
    target: &Target,
) -> store::Result<Option<Retaken>> {
    let Some(definition) = put_back(store, target).await?.and_then(|task| known(&task)) else {
        return Ok(None);
    };
    // A pause of all tasks ends without a look at this one.
    let own = |task: &TaskName| *task == definition.name;
    let states = store.task_states().await?;
    let mut is_stopped = states.iter().any(|state| state.paused.is_some() && own(&state.task));
    for row in store.pending_commands(PENDING_READ).await? {
        match &row.command {
            Command::Pause { task } if own(task) => is_stopped = true,
            Command::Resume { task, .. } if own(task) => is_stopped = false,
            _ => {}
        }
    }
    if definition.mode != Mode::Live || is_stopped {
        return Ok(None);
    }
    let is_planned_in_ranges = in_ranges(&definition, store.now().await?).is_some();
    let in_ranges = is_planned_in_ranges && is_open(store, target).await?;
    Ok(Some(Retaken { task: definition.name.clone(), in_ranges }))
}

/// The task whose rows come back with an undo of this target; none: they go away again, because it is an undo, or it
/// is not known.
async fn put_back(store: &dyn Store, target: &Target) -> store::Result<Option<TaskName>> {
    let (mut target, mut comes_back) = (target.clone(), true);
    for _ in 0..=DEPTH_MAX {
        let id = match target {
            Target::Run(id) | Target::Item(id, _) => id,
            Target::Span { task, .. } => return Ok(Some(task).filter(|_| comes_back)),
        };
        let Some(run) = store.run(id).await? else { return Ok(None) };
        if run.task.as_str() != undo::TASK {
            return Ok(Some(run.task).filter(|_| comes_back));
        }
        let settings = TaskDefinition::of_run(&run).map(|definition| definition.settings);
        let Some((of, _)) = undo::requested(&settings.unwrap_or_default()) else { return Ok(None) };
        let Ok(of) = Target::parse(&of.target) else { return Ok(None) };
        (target, comes_back) = (of, !comes_back);
    }
    Ok(None)
}

/// Whether something of a target is kept and not undone yet.
async fn is_open(store: &dyn Store, target: &Target) -> store::Result<bool> {
    let mut rows = history::Rows::of_target(store, target);
    while let Some(row) = rows.next().await? {
        if is_candidate(&row)
            && row.undo_bytes > 0
            && Recorded::of_item(store, row.run, row.id).await?.by(row.run, row.id).is_none()
            && store.kept(row.id).await?.is_some_and(|kept| kept.rows > 0)
        {
            return Ok(true);
        }
    }
    Ok(false)
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
