//! Sets the brakes of runs as they begin to plan, and requests a pause where one has tripped.
//!
//! What trips is decided in [`besom_core::brake`], and enforced by the store. A pause is a command to the
//! leader like any other, so it is recorded with its author, `brake`, and the numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use besom_core::brake::{self, Brake, LETTERS, Trip, Wanted};
use besom_core::ids::{FencingToken, RunId, TaskName};
use besom_ports::store::{self, Command, Store};
use besom_ports::task::TaskDefinition;

/// The number of rows up to which a collection without an estimate is counted.
const COUNT_MAX: u64 = 100_000;
/// Maximum number of brakes that are read to find those of a run: its retries and timers may outlive
/// many later runs.
const BRAKES_READ: u32 = 10_000;
/// Maximum number of runs whose brakes are known to be set.
const RUNS_KEPT: usize = 1_000;
/// How long a request for a pause is expected to take before it is repeated.
const REQUESTED_FOR: Duration = Duration::from_secs(5);

/// Which brakes are set, and which pauses were requested.
#[derive(Debug, Default)]
pub struct Braking {
    set: Mutex<BTreeSet<RunId>>,
    requested: Mutex<BTreeMap<TaskName, Instant>>,
}

impl Braking {
    /// Sets the brakes of a run, once, before it plans its first items.
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
        let is_set = || self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if !limits.counts() || is_set().contains(&run) {
            return Ok(());
        }
        let mut brakes = Vec::new();
        if limits.deletes.is_some() {
            let deletes = definition.grants.iter().filter(|(_, operations)| operations.delete);
            for (collection, _) in deletes {
                let estimate = store.estimate(collection, COUNT_MAX).await?;
                brakes.push(Brake::new(limits, run, collection, Some(estimate)));
            }
        }
        if limits.letters.is_some() {
            brakes.push(Brake::new(limits, run, LETTERS, None));
        }
        store.set_brakes(fence, &brakes).await?;
        let mut set = is_set();
        if set.len() >= RUNS_KEPT {
            set.clear();
        }
        set.insert(run);
        Ok(())
    }

    /// Requests a pause after a batch was left out that wanted this, by run.
    pub async fn trip(&self, store: &dyn Store, task: &TaskName, runs: &BTreeMap<RunId, Wanted>) {
        let brakes = match store.brakes(task, BRAKES_READ).await {
            Ok(brakes) => brakes,
            Err(error) => return say(task, &error),
        };
        let trip = runs.iter().find_map(|(run, wanted)| Trip::of(&brakes, *run, wanted));
        self.request(store, task, trip).await;
    }

    /// Requests a pause after a run has failed, if it was the last of too many.
    pub async fn look_at_runs(&self, store: &dyn Store, task: &TaskName, max: NonZeroU32) {
        // One more may be scanning already.
        match store.runs(Some(task), max.get().saturating_add(1)).await {
            Ok(runs) => self.request(store, task, Trip::by_failures(&runs, max)).await,
            Err(error) => say(task, &error),
        }
    }

    async fn request(&self, store: &dyn Store, task: &TaskName, trip: Option<Trip>) {
        let Some(trip) = trip else { return };
        {
            let mut requested = self.requested.lock().unwrap_or_else(PoisonError::into_inner);
            if requested.get(task).is_some_and(|at| at.elapsed() < REQUESTED_FOR) {
                return;
            }
            requested.insert(task.clone(), Instant::now());
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

fn say(task: &TaskName, error: &store::Error) {
    tracing::warn!(%task, %error, "a brake could not be examined; it is tried again");
}
