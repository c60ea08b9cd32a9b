//! Runs whose plans were never released: how they stand, and what the database refuses of them.

use besom_core::ids::RunId;
use besom_core::review::{Review, State};
use besom_snapshot::{RefusedPlan, Run, RunState};

use besom_ports::store::{self, Store};

/// What the database refuses of the plan of a run that has ended and was never released.
///
/// # Errors
/// Those of the store.
pub async fn refused_of(store: &dyn Store, run: RunId) -> store::Result<Option<RefusedPlan>> {
    Ok(store.review_of(run).await?.as_ref().and_then(RefusedPlan::of))
}

/// A run as it stands by its review: whether it was rejected is known there.
///
/// # Errors
/// Those of the store.
pub async fn standing(store: &dyn Store, run: &store::Run) -> store::Result<Run> {
    let shown = Run::from(run);
    Ok(match shown.state {
        RunState::Rejected => by_review(shown, store.review_of(run.id).await?.as_ref()),
        _ => shown,
    })
}

/// Runs as they stand by their reviews, in the same order.
///
/// # Errors
/// Those of the store.
pub async fn standings(store: &dyn Store, runs: &[store::Run]) -> store::Result<Vec<Run>> {
    let mut shown = Vec::with_capacity(runs.len());
    for run in runs {
        shown.push(standing(store, run).await?);
    }
    Ok(shown)
}

/// A run as it stands by its review, which was read before.
pub fn by_review(run: Run, review: Option<&Review>) -> Run {
    let state = run.state.by_review(review.map_or(State::Done, |review| review.state));
    Run { state, ..run }
}
