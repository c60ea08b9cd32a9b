//! Which tasks are paused or outside their windows, and the scans that wait for that to end.

use super::*;

impl Planner {
    /// Why a task may not work: an operator or a brake has paused it, or all tasks, or it is outside its
    /// windows. In a pass, which leaves paused tasks out, only a pause since its beginning counts.
    pub(super) fn pause_of(&self, name: &TaskName) -> Option<Pause> {
        let task = self.tasks.get(name)?;
        if self.settings.pass && !self.stopped.contains(name) {
            return None;
        }
        let paused = self.paused_by_command(name, task);
        let windows = &task.scheduled.definition.windows;
        paused.cloned().or_else(|| Pause::until_open(windows, self.now))
    }

    /// The pause of a task, or that of all tasks.
    fn paused_by_command<'a>(&'a self, name: &TaskName, task: &'a Task) -> Option<&'a Pause> {
        let all = self.all_paused.as_ref().filter(|_| undo::stops_with_all(name));
        task.state.paused.as_ref().or(all)
    }

    /// Whether a task may neither scan nor execute.
    pub(super) fn is_stopped(&self, name: &TaskName) -> bool {
        match self.settings.pass {
            true => self.stopped.contains(name),
            false => self.pause_of(name).is_some(),
        }
    }

    /// A task's state with the pause that applies to it.
    pub(super) fn effective(&self, name: &TaskName, state: &TaskState) -> TaskState {
        TaskState { paused: self.pause_of(name), ..state.clone() }
    }

    /// Whether the task is paused by a command of its own.
    pub(super) fn own_pause(&self, name: &TaskName) -> Option<Option<&Pause>> {
        match name.is_all() {
            true => Some(self.all_paused.as_ref()),
            false => self.state_of(name).map(|state| state?.paused.as_ref()),
        }
    }

    /// The state of a task of the configuration, as far as the store has one. In a pass the task may be
    /// left out.
    fn state_of(&self, name: &TaskName) -> Option<Option<&TaskState>> {
        match self.tasks.get(name) {
            Some(task) => Some(Some(&task.state)),
            None => self.left_out.contains_key(name).then(|| self.absent.get(name)),
        }
    }

    /// The brakes of a task of the configuration.
    pub(super) fn brakes_of(&self, name: &TaskName) -> Option<Brakes> {
        let own = self.tasks.get(name).map(|task| task.scheduled.definition.brakes);
        own.or_else(|| self.left_out.get(name).copied())
    }

    /// What becomes of a task's brake that has tripped, while the task is paused already. A pass that
    /// includes paused tasks ends its part of it; whoever has paused it stays named.
    pub(super) fn brake_paused(&self, task: &TaskName, pause: &Pause) -> (CommandEffect, String) {
        let (by, reason) = (&pause.by, &pause.reason);
        let runs_on = self.settings.pass && !self.stopped.contains(task);
        match (runs_on && self.tasks.contains_key(task), pause.is_brake()) {
            (true, true) => (CommandEffect::Pause(task.clone()), "paused".into()),
            (true, false) => {
                let words = format!("the pass stops {task}, which stays paused by {by}: {reason}");
                (CommandEffect::Note, words)
            }
            (false, _) => {
                let words = format!("{task} is already paused by {by}: {reason}");
                (CommandEffect::Refuse(words.clone()), words)
            }
        }
    }

    /// Ends the pass's part of a task, because one of its brakes has tripped.
    pub(super) fn stop_in_pass(&mut self, name: &TaskName) {
        if self.settings.pass && self.tasks.contains_key(name) {
            self.pauses_changed = true;
            self.unfinished.remove(name);
            self.stopped.insert(name.clone());
        }
    }

    /// A command has paused or resumed a task, or all tasks.
    pub(super) fn note_pause(&mut self, name: &TaskName, pause: Option<&Pause>) {
        self.pauses_changed = true;
        if name.is_all() {
            self.all_paused = pause.cloned();
        }
        if self.left_out.contains_key(name) {
            let state = self.absent.entry(name.clone());
            state.or_insert_with(|| TaskState::initial(name.clone())).paused = pause.cloned();
        }
        let now = self.now;
        let (all, pass) = (name.is_all(), self.settings.pass);
        let of_command = self.tasks.iter_mut().filter(|(task, _)| all || *task == name);
        for (name, task) in of_command {
            if !all {
                task.state.paused = pause.cloned();
            }
            task.next = Some(now);
            // A pass begins no further run of a task that is paused meanwhile.
            match pause {
                Some(pause) if pass && pause.since >= self.since => {
                    self.unfinished.remove(name);
                    self.stopped.insert(name.clone());
                }
                None if self.stopped.remove(name) => {
                    self.unfinished.insert(name.clone());
                }
                _ => {}
            }
        }
    }

    /// Takes the pause of all tasks out of the states that the store has.
    pub(super) fn take_pause_of_all(&mut self) {
        let all = self.absent.remove(&TaskName::from(TaskName::ALL));
        self.all_paused = all.and_then(|state| state.paused);
        self.pauses_changed = true;
    }

    /// The paused tasks, if they may have changed since the last call.
    pub fn changed_pauses(&mut self) -> Option<BTreeSet<TaskName>> {
        let changed = std::mem::take(&mut self.pauses_changed) && self.fence.is_some();
        let tasks = self.tasks.iter();
        let paused = tasks.filter(|(name, task)| self.paused_by_command(name, task).is_some());
        changed.then(|| match self.settings.pass {
            true => self.stopped.iter().chain(self.held_tasks()).cloned().collect(),
            false => paused.map(|(name, _)| name).chain(self.held_tasks()).cloned().collect(),
        })
    }

    /// Continues the scans of tasks that were stopped.
    pub(super) fn go_on_where_open(&mut self, out: &mut Vec<Command>) {
        let stopped = self.runs.iter().filter(|(_, active)| active.stopped.is_some());
        let open: Vec<RunId> = stopped
            .filter(|(_, active)| !self.is_stopped(&active.run.task))
            .map(|(id, _)| *id)
            .collect();
        for id in open {
            let command = self.runs.get_mut(&id).and_then(|active| active.stopped.take());
            self.go_on(id, command.into_iter().collect(), out);
        }
    }
}
