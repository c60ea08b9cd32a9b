//! The brakes of runs.

use besom_core::brake::{Brake, Brakes, Used};
use besom_core::ids::{FencingToken, RunId, TaskName};

use super::state::State;
use besom_ports::store::{BRAKES_RESUMED, Result};

impl State {
    pub(super) fn set_brakes(&mut self, fence: &FencingToken, brakes: &[Brake]) -> Result<()> {
        self.check_fence(fence)?;
        for brake in brakes {
            let place = (brake.run, brake.what.clone());
            self.brakes.entry(place).or_insert_with(|| brake.clone());
        }
        Ok(())
    }

    /// The brakes of a task's runs, newest first.
    pub(super) fn list_brakes(&self, task: &TaskName, limit: u32) -> Vec<Brake> {
        let of_task = |brake: &&Brake| self.runs.get(&brake.run).is_some_and(|r| r.task == *task);
        let mut brakes: Vec<&Brake> = self.brakes.values().rev().filter(of_task).collect();
        brakes.sort_by(|a, b| b.run.cmp(&a.run).then_with(|| a.what.cmp(&b.what)));
        brakes.into_iter().take(limit as usize).cloned().collect()
    }

    /// Adds what a commit uses. Returns whether all of it is allowed.
    pub(super) fn uses(&mut self, used: &Used) -> bool {
        used.iter().all(|((run, what), more)| {
            let Some(brake) = self.brakes.get_mut(&(*run, what.clone())) else { return true };
            brake.used += more;
            !Brake::forbids(brake.used, brake.allowed)
        })
    }

    /// Sets the brakes of a task's newest unfinished runs anew.
    pub(super) fn resume_brakes(&mut self, task: &TaskName, brakes: &Brakes) {
        let with_items = self.runs_with_items();
        let is_unfinished = |brake: &Brake| {
            let scans = self.runs.get(&brake.run).is_some_and(|run| run.ended_at.is_none());
            scans || with_items.contains(&brake.run)
        };
        let mut found = self.list_brakes(task, u32::MAX);
        found.retain(is_unfinished);
        found.truncate(BRAKES_RESUMED as usize);
        for brake in found {
            let place = (brake.run, brake.what.clone());
            self.brakes.insert(place, brake.resumed(brakes));
        }
    }

    /// Sets the brakes of a run anew.
    pub(super) fn approve_brakes(&mut self, run: RunId, brakes: &Brakes) {
        for brake in self.brakes.values_mut().filter(|brake| brake.run == run) {
            *brake = brake.clone().resumed(brakes);
        }
    }
}
