//! Runs whose plans were never released: how they stand, and what the database refuses of them.

use besom_core::ids::RunId;
use besom_core::review::{Review, State};
use besom_snapshot::{RefusedPlan, Run, RunState};

use besom_ports::store::{self, ReviewQuery, Store};

/// What the database refuses of the plan of a run that has ended and was never released.
///
/// # Errors
/// Those of the store.
pub async fn refused_of(store: &dyn Store, run: RunId) -> store::Result<Option<RefusedPlan>> {
    Ok(review_of(store, run).await?.as_ref().and_then(RefusedPlan::of))
}

/// A run as it stands by its review: whether it was rejected is known there.
///
/// # Errors
/// Those of the store.
pub async fn standing(store: &dyn Store, run: &store::Run) -> store::Result<Run> {
    let mut shown = Run::from(run);
    if shown.state == RunState::Rejected {
        let review = review_of(store, run.id).await?.map(|review| review.state);
        shown.state = shown.state.by_review(review.unwrap_or(State::Done));
    }
    Ok(shown)
}

async fn review_of(store: &dyn Store, run: RunId) -> store::Result<Option<Review>> {
    let query = ReviewQuery { run: Some(run), limit: 1, ..ReviewQuery::default() };
    Ok(store.reviews(&query).await?.pop())
}
