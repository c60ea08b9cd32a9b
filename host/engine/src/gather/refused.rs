//! Plans that have ended by themselves because the database refuses them.

use besom_core::ids::RunId;
use besom_snapshot::RefusedPlan;

use besom_ports::store::{self, ReviewQuery, Store};

/// What the database refuses of the plan of a run that has ended and was never released.
///
/// # Errors
/// Those of the store.
pub async fn refused_of(store: &dyn Store, run: RunId) -> store::Result<Option<RefusedPlan>> {
    let query = ReviewQuery { run: Some(run), limit: 1, ..ReviewQuery::default() };
    Ok(store.reviews(&query).await?.first().and_then(RefusedPlan::of))
}
