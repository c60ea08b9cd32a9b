//! Slots whose runs are started again after a lost answer, and reviews of what runs would do.

use besom_core::ids::{RunId, TaskName, Term};
use besom_core::plan::{NewRun, SlotDecision};
use besom_core::review;

use super::{Error, Result};

/// The run of a slot that already has one, for a leader that starts it again: it is the same if this
/// leadership has started it, and only the answer was lost.
///
/// # Errors
/// [`Error::Invalid`] if another leadership has started it.
pub fn started(run: &NewRun, term: Term, (id, of): (RunId, Term)) -> Result<RunId> {
    if of == term {
        return Ok(id);
    }
    let NewRun { task, slot, .. } = run;
    Err(Error::Invalid(format!("{task} already has a run for the slot {slot}")))
}

/// The answer to a slot decision that was based on an outdated state of the store: the runs that
/// the same term has already started for these slots (`started`).
///
/// # Errors
/// [`Error::Invalid`] if they are fewer than the decision starts.
pub fn late_copy(
    task: &TaskName,
    decision: &SlotDecision,
    started: Vec<RunId>,
) -> Result<Vec<RunId>> {
    if started.is_empty() || started.len() < decision.runs.len() {
        let why = format!("the slots of {task} were decided again since this decision");
        return Err(Error::Invalid(why));
    }
    Ok(started)
}

/// Selects reviews. A review must match all fields that are set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReviewQuery {
    /// The review of this run only.
    pub run: Option<RunId>,
    /// Reviews of this task only.
    pub task: Option<TaskName>,
    /// Only those that wait for a decision.
    pub waiting: bool,
    /// Reviews with lower numbers than this one, for paging.
    pub before: Option<RunId>,
    /// Maximum number of reviews, newest first.
    pub limit: u32,
}

/// Why a review cannot be decided: it does not wait for a decision.
pub fn not_waiting(run: RunId, found: Option<&review::Standing>) -> String {
    match found {
        None => format!("there is no review of run {run}"),
        Some(review::Standing { state: review::State::Shown, .. }) => {
            format!("the review of run {run} is a preview: there is nothing to decide")
        }
        Some(decided) => format!("the review of run {run} is {decided}"),
    }
}

/// Why a run cannot be decided: the decision that was made about it, or else `why`.
pub fn decided_or(run: RunId, found: Option<review::Standing>, why: &str) -> String {
    let decided = found.filter(|found| found.state != review::State::Waiting);
    decided.map_or_else(|| why.to_owned(), |decided| not_waiting(run, Some(&decided)))
}
