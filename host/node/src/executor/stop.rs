//! Tasks of which nothing is executed, because they are paused or outside their windows.
//!
//! What is planned waits where it is. A batch that is being executed is not committed any more, unless
//! its commit has been sent already.

use super::*;

impl Executor {
    /// Sets the tasks that are paused.
    pub fn pause(&mut self, paused: BTreeSet<TaskName>) {
        let before = std::mem::replace(&mut self.paused, paused);
        self.stopped_were(|task| before.contains(task), |executor| &executor.paused);
    }

    /// Whether a task is paused or outside its windows.
    pub(super) fn is_stopped(&self, task: &TaskName) -> bool {
        self.paused.contains(task) || self.closed.contains(task)
    }

    /// Closes and opens tasks whose windows have ended or begun.
    pub(super) fn look_at_windows(&mut self) {
        // A pass completes what it has begun.
        if self.settings.ignore_backoff || self.windows_at.is_none_or(|at| self.now < at) {
            return;
        }
        let of_tasks = self.definitions.values().filter(|d| !d.windows.is_empty());
        let (mut closed, mut next) = (BTreeSet::new(), None);
        for definition in of_tasks {
            let is_open = definition.windows.is_open(self.now);
            if !is_open {
                closed.insert(definition.name.clone());
            }
            let at = definition.windows.changes_at(self.now);
            next = [next, at].into_iter().flatten().min();
        }
        self.windows_at = next;
        let before = std::mem::replace(&mut self.closed, closed);
        self.stopped_were(|task| before.contains(task), |executor| &executor.closed);
    }

    /// Gives batches of tasks that have been stopped back, and reads again what was left out of memory
    /// of tasks that were stopped before.
    fn stopped_were(
        &mut self,
        before: impl Fn(&TaskName) -> bool,
        stopped: impl Fn(&Executor) -> &BTreeSet<TaskName>,
    ) {
        let now = stopped(self).clone();
        for flight in self.flights.values_mut() {
            flight.revoked |= now.contains(&flight.task);
        }
        if self.definitions.keys().any(|task| before(task) && !now.contains(task)) {
            self.timers.added(Time(i64::MIN));
            self.retries.added(Time(i64::MIN));
        }
    }
}
