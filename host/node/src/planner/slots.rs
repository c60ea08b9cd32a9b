//! Slots: decided by the core when their time comes, written under the fence, turned into runs.

use besom_core::cron::Schedule;
use besom_core::plan::{ActiveRun, Admission, Leadership, Overlap, Policy, Seen, admit, decide};

use super::*;

/// A task with its parsed schedule.
#[derive(Debug, Clone)]
pub struct Scheduled {
    /// The definition of the task.
    pub definition: Arc<TaskDefinition>,
    /// The schedule; `None`: the task runs only when triggered.
    pub schedule: Option<Schedule>,
}

impl Scheduled {
    /// A new run of the task.
    pub(super) fn run(&self, slot: Time, trigger: Trigger) -> NewRun {
        NewRun {
            task: self.definition.name.clone(),
            slot,
            trigger,
            digest: self.definition.digest.clone(),
            definition: serde_json::to_string(&*self.definition).unwrap_or_default(),
            mode: self.definition.mode,
        }
    }

    /// How its slots are treated. `grace` is how late a slot may start and still count as on time.
    pub fn policy(&self, grace: Duration) -> Policy {
        Policy {
            overlap: match (self.definition.mode, self.definition.overlap) {
                // What one run has planned is approved or discarded before the next one plans.
                (Mode::Approve, Overlap::Allow) => Overlap::Skip,
                (_, overlap) => overlap,
            },
            catch_up: self.definition.catch_up,
            jitter: self.definition.jitter,
            grace,
        }
    }
}

impl Planner {
    pub(super) fn active_of(&self, task: &TaskName) -> Vec<ActiveRun> {
        self.runs
            .values()
            .filter(|active| active.run.task == *task)
            .map(|active| ActiveRun::from(&active.run))
            .collect()
    }

    /// Decides about every task whose time has come, each in its own transaction, so that a
    /// rejection concerns only one task.
    pub(super) fn decide_due(&mut self, fence: &FencingToken, out: &mut Vec<Command>) {
        let now = self.now;
        let due: Vec<TaskName> = self
            .tasks
            .iter()
            .filter(|(_, task)| !task.deciding && task.wanted_at().is_some_and(|at| at <= now))
            .map(|(name, _)| name.clone())
            .collect();
        let leadership = Leadership { term: fence.term, since: self.since };
        for name in due {
            let active = self.active_of(&name);
            let Some(state) = self.tasks.get(&name).map(|task| self.effective(&name, &task.state))
            else {
                continue;
            };
            let Some(task) = self.tasks.get_mut(&name) else { continue };
            let policy = task.scheduled.policy(self.settings.grace);
            let seen = vec![Seen::of(&task.state)];
            let schedule = task.scheduled.schedule.as_ref();
            let mut decided = decide(now, leadership, schedule, &policy, &state, &active);
            // Only commands pause a task.
            decided.state.paused.clone_from(&task.state.paused);
            if let Some(ahead) = decided.set_back {
                tracing::warn!(
                    task = %name,
                    "its slots were decided by a clock {} s ahead of the store's: the schedule \
                     restarts from the present",
                    ahead.as_secs()
                );
            }
            let mut slots = decided.slots;
            let mut starts = decided.starts;
            task.leave_what_ran(&mut starts, &mut slots);
            let mut runs: Vec<NewRun> = starts
                .into_iter()
                .map(|start| task.scheduled.run(start.slot, start.trigger))
                .collect();
            if std::mem::take(&mut task.at_start) && runs.is_empty() {
                let asked = admit(now, fence.term, Trigger::Takeover, &policy, &state, &active);
                match asked {
                    Admission::Start { start, record } => {
                        runs.push(task.scheduled.run(start.slot, start.trigger));
                        slots.push(record);
                    }
                    Admission::Wait(_) => task.at_start = true,
                    Admission::Refuse(_) => {}
                }
            }
            if !decided.changed && runs.is_empty() {
                task.next = decided.next;
                continue;
            }
            task.deciding = true;
            let decision = SlotDecision { slots, runs, states: vec![decided.state], seen };
            let decided = Decided { decision, next: vec![(name, decided.next)] };
            self.asked.push(decided.clone());
            out.push(Command::Decide(fence.clone(), Box::new(decided)));
        }
    }

    pub(super) fn decided(
        &mut self,
        decided: Decided,
        result: store::Result<Vec<RunId>>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let Some(asked) = self.asked.iter().position(|asked| *asked == decided) else { return };
        self.asked.remove(asked);
        let names = decided.next.iter().map(|(name, _)| name);
        for name in names.chain(decided.decision.runs.iter().map(|run| &run.task)) {
            if let Some(task) = self.tasks.get_mut(name) {
                task.deciding = false;
            }
        }
        let ids = match result {
            Ok(ids) => ids,
            Err(error) => {
                self.not_decided(&decided, &error, notices);
                return;
            }
        };
        self.failures = 0;
        for (name, _) in &decided.next {
            if let Some(task) = self.tasks.get_mut(name) {
                task.refusals = 0;
                task.ran.clear();
            }
        }
        for state in decided.decision.states {
            if let Some(task) = self.tasks.get_mut(&state.task) {
                // Only commands pause a task, and only the cycle moves its own cursor.
                task.state = TaskState {
                    paused: task.state.paused.take(),
                    tenant_cursor: task.state.tenant_cursor.take(),
                    ..state
                };
            }
        }
        for (name, next) in decided.next {
            if let Some(task) = self.tasks.get_mut(&name) {
                task.next = next;
            }
        }
        self.start_all(&decided.decision.runs, &ids, notices, out);
    }

    /// Schedules a new decision about the same slots: from the state of the store, if it may have
    /// written them (the answer is lost) or reports that they were written before.
    fn not_decided(&mut self, decided: &Decided, error: &store::Error, notices: &mut Vec<Notice>) {
        // If the decision was written after all, the run that is found shows it.
        for run in &decided.decision.runs {
            if let Some(task) = self.tasks.get_mut(&run.task) {
                task.at_start |= run.trigger == Trigger::Takeover;
            }
        }
        let invalid = matches!(error, store::Error::Invalid(_));
        self.doubt |= invalid || matches!(error, store::Error::Unknown(_));
        if !invalid || self.settings.pass {
            return self.failed(error, notices);
        }
        for (name, _) in &decided.next {
            if let Some(task) = self.tasks.get_mut(name) {
                // The first rejection may be caused by something that an earlier term did and this
                // one had not read. The second is caused by a slot that ran under a wrong clock.
                if task.refusals > 0 {
                    task.ran = decided.decision.runs.iter().map(|run| run.slot).collect();
                }
                task.hold_until = Some(self.now + HOLDS.pause(task.refusals, 0));
                task.refusals = task.refusals.saturating_add(1);
            }
        }
    }

    /// Adds the runs that the store has numbered.
    pub(super) fn start_all(
        &mut self,
        runs: &[NewRun],
        ids: &[RunId],
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        let Some(term) = self.fence.as_ref().map(|fence| fence.term) else { return };
        // The decision was written before, and its first answer was lost.
        self.doubt |= ids.len() < runs.len();
        for (new, id) in runs.iter().zip(ids) {
            let Some(task) = self.tasks.get(&new.task) else { continue };
            let current = Arc::clone(&task.scheduled.definition);
            let run = Run {
                id: *id,
                task: new.task.clone(),
                slot: new.slot,
                trigger: new.trigger.clone(),
                term,
                digest: new.digest.clone(),
                definition: new.definition.clone(),
                started_at: self.now,
                ended_at: None,
                scan_done: false,
                error: None,
                planned: 0,
                deduplicated: 0,
                blocked: 0,
                open: 0,
                scanned: 0,
                mode: new.mode,
                held: new.mode == Mode::Approve,
            };
            // What a command has asked for is in the run's own settings.
            let definition = definition_of(&run, &current);
            self.adopt(run, definition, None, notices, out);
        }
    }
}
