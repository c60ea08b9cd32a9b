//! Sets the brakes of runs as they begin to plan, and requests a pause where one has tripped.
//!
//! What trips is decided in [`besom_core::brake`], and enforced by the store. A pause is a command to the
//! leader like any other, so it is recorded with its author, `brake`, and the numbers.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use besom_core::brake::{self, Brake, LETTERS, Trip, Wanted};
use besom_core::command::counted;
use besom_core::ids::{FencingToken, RunId, TaskName};
use besom_core::review::{Plan, Sizes};
use besom_core::time::Mono;
use besom_ports::store::{self, Command, Store};
use besom_ports::task::TaskDefinition;

/// The number of rows up to which a collection without an estimate is counted.
const COUNT_MAX: u64 = 100_000;
/// Maximum number of brakes that are read to find those of a run: its retries and timers may outlive
/// many later runs.
const BRAKES_READ: u32 = 10_000;
/// Maximum number of brakes that are read to know whether those of a run that plans are set.
const NEWEST: u32 = 100;
/// How long a request for a pause is expected to take before it is repeated.
const REQUESTED_FOR: Duration = Duration::from_secs(5);

/// Which pauses were requested.
#[derive(Debug, Default)]
pub struct Braking {
    requested: Mutex<BTreeMap<TaskName, Mono>>,
}

impl Braking {
    /// Sets the brakes of a run before each page of items that it plans. Whether they are set is read every
    /// time: a restored database may have lost them, and gives the number of a lost run again.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn set(
        &self,
        store: &dyn Store,
        fence: &FencingToken,
        run: RunId,
        definition: &TaskDefinition,
    ) -> store::Result<()> {
        let limits = &definition.brakes;
        if !limits.counts() {
            return Ok(());
        }
        // Those of the newest runs; to set one again changes nothing.
        let known = store.brakes(&definition.name, NEWEST).await?;
        let is_set = |what: &str| known.iter().any(|brake| brake.run == run && brake.what == what);
        let mut brakes = Vec::new();
        if limits.deletes.is_some() {
            for collection in counted_of(definition).filter(|collection| !is_set(collection)) {
                let estimate = store.estimate(collection, COUNT_MAX).await?;
                brakes.push(Brake::new(limits, run, collection, Some(estimate)));
            }
        }
        if limits.letters.is_some() && !is_set(LETTERS) {
            brakes.push(Brake::new(limits, run, LETTERS, None));
        }
        if !brakes.is_empty() {
            store.set_brakes(fence, &brakes).await?;
        }
        Ok(())
    }

    /// Requests a pause after a batch was left out that wanted this, by run.
    pub async fn trip(
        &self,
        store: &dyn Store,
        now: Mono,
        task: &TaskName,
        runs: &BTreeMap<RunId, Wanted>,
    ) {
        let brakes = match store.brakes(task, BRAKES_READ).await {
            Ok(brakes) => brakes,
            Err(error) => return say(task, &error),
        };
        let trip = runs.iter().find_map(|(run, wanted)| Trip::of(&brakes, *run, wanted));
        self.request(store, now, task, trip).await;
    }

    /// Requests a pause after a run has failed, if it was the last of too many.
    pub async fn look_at_runs(
        &self,
        store: &dyn Store,
        now: Mono,
        task: &TaskName,
        max: NonZeroU32,
    ) {
        // One more may be scanning already.
        match store.runs(Some(task), max.get().saturating_add(1)).await {
            Ok(runs) => {
                self.request(store, now, task, Trip::by_failures(&runs, max)).await;
            }
            Err(error) => say(task, &error),
        }
    }

    async fn request(&self, store: &dyn Store, now: Mono, task: &TaskName, trip: Option<Trip>) {
        let Some(trip) = trip else { return };
        {
            let mut requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
            if requested.get(task).is_some_and(|at| now.since(*at) < REQUESTED_FOR) {
                return;
            }
            requested.insert(task.clone(), now);
        }
        let reason = trip.to_string();
        tracing::warn!(%task, reason, "a brake has tripped: the task is paused");
        let command = Command::Brake { task: task.clone(), trip };
        if let Err(error) = store.submit(&command, brake::BY, &reason).await {
            self.requested.lock().unwrap_or_else(PoisonError::into_inner).remove(task);
            say(task, &error);
        }
    }
}

/// About how many rows these collections have. One that cannot be estimated is left out, and so is one of which the
/// database has no statistics and that has more rows than are counted.
pub async fn sizes<'a>(store: &dyn Store, collections: impl IntoIterator<Item = &'a str>) -> Sizes {
    let mut sizes = Sizes::new();
    for collection in collections {
        match store.estimate(collection, COUNT_MAX).await {
            Ok(size) if size != COUNT_MAX => drop(sizes.insert(collection.to_owned(), size)),
            Ok(_) => {}
            Err(error) => tracing::debug!(collection, %error, "its rows are not estimated"),
        }
    }
    sizes
}

/// Why the brake of a run would stop it if what it has planned were executed, by what all of its items ask for, or the
/// examined ones alone change; none: no limit would be exceeded.
///
/// # Errors
/// Those of the store.
pub(super) async fn would_trip(
    store: &dyn Store,
    run: RunId,
    definition: &TaskDefinition,
    plan: &Plan,
) -> store::Result<Option<String>> {
    if definition.brakes.deletes.is_none() {
        return Ok(None);
    }
    let known = store.brakes(&definition.name, NEWEST).await?;
    for collection in counted_of(definition) {
        // Of a plan that was examined as a whole, the rows are known.
        let asked = plan.partial.as_ref().and_then(|_| plan.goes_at_most(collection));
        let rows = plan.goes(collection).max(asked.unwrap_or(0));
        if rows == 0 {
            continue;
        }
        let set = known.iter().find(|brake| brake.run == run && brake.what == *collection);
        let brake = match set {
            Some(brake) => brake.clone(),
            None => {
                let estimate = store.estimate(collection, COUNT_MAX).await?;
                Brake::new(&definition.brakes, run, collection, Some(estimate))
            }
        };
        if let Some(allowed) = brake.allowed.filter(|allowed| rows > *allowed) {
            let most = if asked == Some(rows) { "at most" } else { "at least" };
            let rows = counted(rows, "row");
            let of = brake.estimate.map(|all| format!(" (of about {all})")).unwrap_or_default();
            return Ok(Some(format!(
                "max_delete would stop it and pause the task: it wants {most} {rows} of \
                 {collection}; allowed: {allowed}{of}"
            )));
        }
    }
    Ok(None)
}

/// The collections whose deleted rows are counted: those that the task may delete, and those whose rows go with them.
fn counted_of(definition: &TaskDefinition) -> impl Iterator<Item = &String> {
    let own = definition.grants.iter().filter(|(_, granted)| granted.delete).map(|(name, _)| name);
    let others = definition.dependants.iter();
    own.chain(others.filter(|name| !definition.grants.get(*name).is_some_and(|own| own.delete)))
}

fn say(task: &TaskName, error: &store::Error) {
    tracing::warn!(%task, %error, "a brake could not be examined; it is tried again");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use besom_core::activity::Timeouts;
    use besom_core::brake::Brakes;
    use besom_core::ids::Term;
    use besom_core::plan::{NewRun, SlotDecision, Trigger};
    use besom_core::time::Time;
    use besom_doubles::store::MemoryStore;
    use besom_ports::store::Store as _;

    use super::*;

    const BEGIN: Time = Time::from_secs(1_750_000_000);
    const FENCE: FencingToken = FencingToken { term: Term(1), token_hash: [1; 32] };

    fn definition() -> TaskDefinition {
        let letters = NonZeroU32::new(2);
        let brakes = Brakes { letters, ..Brakes::default() };
        let any = super::super::undo::definition(std::iter::empty());
        TaskDefinition { name: "sweep".into(), brakes, ..any }
    }

    async fn store_with_a_run() -> (MemoryStore, RunId) {
        let store = MemoryStore::new(1, Timeouts::default(), Arc::new(|| BEGIN));
        store.raise_fence(&FENCE, &"n".into(), None).await.expect("a fence");
        let run = NewRun {
            task: "sweep".into(),
            slot: BEGIN,
            trigger: Trigger::Schedule,
            digest: "d".into(),
            definition: String::new(),
            mode: Default::default(),
        };
        let decision = SlotDecision { runs: vec![run], ..SlotDecision::default() };
        let runs = store.decide_slots(&FENCE, &decision).await.expect("a run");
        (store, runs[0])
    }

    #[tokio::test]
    async fn a_brake_that_a_restored_database_has_lost_is_set_again() {
        let (store, run) = store_with_a_run().await;
        let (braking, definition) = (Braking::default(), definition());
        let backup = store.back_up();
        for restored in [false, true] {
            if restored {
                store.restore(backup.clone());
            }
            assert_eq!(store.brakes(&definition.name, 10).await.expect("brakes"), []);
            braking.set(&store, &FENCE, run, &definition).await.expect("set");
            let set = store.brakes(&definition.name, 10).await.expect("brakes");
            assert_eq!(set.iter().map(|brake| brake.run).collect::<Vec<_>>(), [run]);
        }
    }
}
