//! Commands from outside: read in order, applied under the fence.

use besom_core::command::with_reason;
use besom_core::plan::{Admission, admit};

use super::*;
use besom_ports::store::Command as Asked;

impl Planner {
    /// Checks for commands now, because one was submitted.
    pub fn nudge(&mut self, now: Time) {
        if self.fence.is_some() {
            self.fetch_at = Some(now);
        }
    }

    pub(super) fn poll_commands(&mut self, fence: &FencingToken, out: &mut Vec<Command>) {
        if self.applying || self.fetching {
            return;
        }
        if let Some(applying) = self.unanswered.take() {
            self.applying = true;
            out.push(Command::Apply(fence.clone(), applying));
            return;
        }
        while let Some(row) = self.commands.pop_front() {
            if self.is_for_a_host(&row) {
                self.left.insert(row.id);
                continue;
            }
            let Some((effect, result)) = self.effect(fence, &row) else {
                self.parked.push(row);
                continue;
            };
            self.applying = true;
            let letters = self.letters(row.id);
            let applying = Applying { row, effect, result, letters };
            out.push(Command::Apply(fence.clone(), Box::new(applying)));
            return;
        }
        if self.fetch_at.is_some_and(|at| at <= self.now) {
            self.fetching = true;
            out.push(Command::FetchCommands);
        }
    }

    /// Whether a pass has to leave this command to a running host, because only a host can apply
    /// it: its task is not in the configuration, its run is not part of the pass, it starts a run of
    /// a task that the pass leaves out, or it concerns the leadership.
    fn is_for_a_host(&self, row: &CommandRow) -> bool {
        self.settings.pass
            && match &row.command {
                Asked::Trigger { task } => !self.tasks.contains_key(task),
                Asked::Pause { task }
                | Asked::Resume { task, .. }
                | Asked::Brake { task, .. }
                | Asked::DiscardPlanned { task } => self.own_pause(task).is_none(),
                Asked::Cancel { run }
                | Asked::Approve { run }
                | Asked::Reject { run }
                | Asked::Lapse { run } => !self.runs.contains_key(run) && !self.over.contains(run),
                Asked::Resign => row.at >= self.since,
                Asked::Undo(_) => !self.tasks.contains_key(undo::TASK),
                Asked::Edited { .. }
                | Asked::Loaded { .. }
                | Asked::Reloaded { .. }
                | Asked::Imported { .. }
                | Asked::Drained { .. }
                | Asked::Rejoined { .. }
                | Asked::RetryDead(_)
                | Asked::DiscardDead(_)
                | Asked::RetryMessages(_)
                | Asked::DiscardMessages(_)
                | Asked::Purge(_)
                | Asked::RepairStreams { .. } => false,
                // A later version may know it.
                Asked::Unknown => true,
            }
    }

    /// Whether the commands that were waiting when the leadership began have been applied, and none
    /// of those read since then is left.
    pub(super) fn has_applied_commands(&self) -> bool {
        let none = self.commands.is_empty() && self.unanswered.is_none();
        self.has_fetched && none && !self.applying && !self.fetching
    }

    pub(super) fn fetched(
        &mut self,
        result: store::Result<Vec<CommandRow>>,
        notices: &mut Vec<Notice>,
    ) {
        self.fetching = false;
        if std::mem::take(&mut self.fetch_is_old) {
            // A restored database gives the number of a command that it has lost to another one.
            self.fetch_at = Some(self.now);
            return;
        }
        self.fetch_at = Some(self.now + self.settings.command_poll);
        match result {
            Ok(rows) => {
                self.has_fetched = true;
                let is_full = rows.len() >= COMMANDS_PAGE as usize;
                let mut known: HashSet<u64> =
                    self.commands.iter().chain(&self.parked).map(|row| row.id).collect();
                known.extend(&self.left);
                let before = self.commands.len();
                self.commands.extend(rows.into_iter().filter(|row| !known.contains(&row.id)));
                // A page of known commands only would be read again and again.
                if is_full && self.commands.len() > before {
                    self.fetch_at = Some(self.now);
                }
            }
            Err(error) => self.failed(&error, notices),
        }
    }

    /// How often in a row the store could not apply this command.
    fn failures(&self, id: u64) -> u32 {
        self.failing.get(&id).map_or(0, |failing| failing.0)
    }

    /// How many dead letters a command takes at once: half as many after each failure, because a
    /// smaller transaction may be fast enough.
    fn letters(&self, id: u64) -> NonZeroU32 {
        let all = self.settings.command_letters;
        let halved = all.get().checked_shr(self.failures(id)).unwrap_or(0);
        NonZeroU32::new(halved).unwrap_or(NonZeroU32::MIN)
    }

    /// Reconsiders the commands that were waiting for a run to end.
    pub(super) fn unpark(&mut self) {
        self.commands.extend(self.parked.drain(..));
    }

    /// Starts a run of a task for a command; `None`: it waits for a run to end.
    fn begins(
        &self,
        fence: &FencingToken,
        row: &CommandRow,
        known: &Task,
        scheduled: &Scheduled,
    ) -> Option<(CommandEffect, String)> {
        let trigger = Trigger::Manual { by: row.by.clone(), reason: row.reason.clone() };
        let policy = scheduled.policy(self.settings.grace);
        let active = self.active_of(&scheduled.definition.name);
        let state = self.effective(&scheduled.definition.name, &known.state);
        match admit(self.now, fence.term, trigger, &policy, &state, &active) {
            Admission::Start { start, record } => {
                let decision = SlotDecision {
                    slots: vec![record],
                    runs: vec![scheduled.run(start.slot, start.trigger)],
                    ..SlotDecision::default()
                };
                Some((CommandEffect::Slots(decision), "started".into()))
            }
            Admission::Wait(_) => None,
            Admission::Refuse(words) => Some((CommandEffect::Refuse(words.clone()), words)),
        }
    }

    /// The effect and result of a command; `None`: it waits for a run to end.
    fn effect(&self, fence: &FencingToken, row: &CommandRow) -> Option<(CommandEffect, String)> {
        let refuse = |words: String| (CommandEffect::Refuse(words.clone()), words);
        // It would otherwise be tried for ever, and nothing else be planned in the meantime.
        if let Some((failures, why)) = self.failing.get(&row.id)
            && *failures >= self.settings.command_attempts_max
        {
            return Some(refuse(format!("it failed {failures} times in a row: {why}")));
        }
        Some(match &row.command {
            Asked::Trigger { task } => match self.tasks.get(task) {
                None => refuse(unknown(task)),
                Some(known) => return self.begins(fence, row, known, &known.scheduled),
            },
            Asked::Undo(undo) => match self.tasks.get(undo::TASK) {
                None => refuse("the leader has no task that undoes anything".into()),
                Some(known) => {
                    let request = format!("command {}", row.id);
                    let settings = undo::settings(undo, &request);
                    let current = TaskDefinition::clone(&known.scheduled.definition);
                    let definition = Arc::new(TaskDefinition { settings, ..current });
                    let scheduled = Scheduled { definition, schedule: None };
                    return self.begins(fence, row, known, &scheduled);
                }
            },
            Asked::Brake { task, .. } => match self.own_pause(task) {
                None => refuse(unknown(task)),
                Some(Some(pause)) => self.brake_paused(task, pause),
                Some(None) => (CommandEffect::Pause(task.clone()), "paused".into()),
            },
            Asked::Pause { task } => match self.own_pause(task) {
                None => refuse(unknown(task)),
                // Whoever looks at it takes it over.
                Some(Some(pause)) if pause.is_brake() => {
                    let words = format!("paused, in place of the brake: {}", pause.reason);
                    (CommandEffect::Pause(task.clone()), words)
                }
                Some(Some(pause)) => {
                    let by = &pause.by;
                    refuse(format!("{} already paused by {by}: {}", is(task), pause.reason))
                }
                Some(None) => (CommandEffect::Pause(task.clone()), "paused".into()),
            },
            Asked::Resume { task, release } => match self.own_pause(task) {
                None => refuse(unknown(task)),
                Some(None) if task.is_all() => {
                    refuse("there is no pause of all tasks: resume each task by itself".into())
                }
                Some(None) => refuse(match &self.all_paused {
                    Some(_) => format!(
                        "{task} is not paused by itself, but with all tasks: resume them with \
                         `besom resume --all`"
                    ),
                    None => format!("{task} is not paused"),
                }),
                Some(Some(_)) => {
                    let brakes = self.brakes_of(task).filter(|_| !release);
                    let words =
                        if *release { "resumed, and its brakes released" } else { "resumed" };
                    let rest = match &self.all_paused {
                        Some(_) if !task.is_all() => {
                            "; all tasks are paused: resume them with `besom resume --all`"
                        }
                        _ => "",
                    };
                    let effect = CommandEffect::Resume(task.clone(), brakes.unwrap_or_default());
                    (effect, format!("{words}{rest}"))
                }
            },
            Asked::DiscardPlanned { task } => match self.own_pause(task) {
                None => refuse(unknown(task)),
                Some(None) if self.all_paused.is_none() => refuse(format!(
                    "{task} is not paused: pause it first with `besom task pause {task} --reason TEXT`, so \
                         that nothing of it is executed or planned in the meantime"
                )),
                Some(_) => {
                    let words = with_reason(&format!("cancelled by {}", row.by), &row.reason);
                    (CommandEffect::DiscardPlanned(task.clone(), words), "discarded".into())
                }
            },
            Asked::Cancel { run } => match self.runs.get(run) {
                None => refuse(format!("run {run} is not active")),
                // What it has planned would wait for ever.
                Some(active) if active.run.held => {
                    let words = with_reason(&format!("cancelled by {}", row.by), &row.reason);
                    match self.rejection(*run, State::Rejected, Some(words)) {
                        Ok(effect) => (effect, "cancelled, and what was planned discarded".into()),
                        Err(why) => refuse(why),
                    }
                }
                Some(active) if active.cancelled.is_some() => {
                    refuse(format!("run {run} is already cancelled"))
                }
                // The planned items keep their places in the streams: they are executed, not
                // removed.
                Some(active) if active.cycle.is_none() => refuse(format!(
                    "run {run} has nothing left to cancel: its scan has ended; the planned items \
                     are still executed"
                )),
                Some(_) => {
                    let words = with_reason(&format!("cancelled by {}", row.by), &row.reason);
                    (CommandEffect::Cancel(*run, words), "cancelled".into())
                }
            },
            Asked::Approve { run } => match self.approval(*run, row.at) {
                Ok(effect) => (effect, "approved".into()),
                Err(why) => (CommandEffect::NotWaiting(*run, why.clone()), why),
            },
            Asked::Reject { run } => match self.rejection(*run, State::Rejected, None) {
                Ok(effect) => (effect, "rejected, and what was planned discarded".into()),
                Err(why) => (CommandEffect::NotWaiting(*run, why.clone()), why),
            },
            Asked::Lapse { run } => self.lapse(*run).unwrap_or_else(refuse),
            // The request was meant for an earlier leader.
            Asked::Resign if row.at < self.since => refuse(format!(
                "that leadership has already ended: term {} has begun since",
                fence.term
            )),
            Asked::Resign => (CommandEffect::Note, format!("resigned term {}", fence.term)),
            Asked::Edited { .. }
            | Asked::Loaded { .. }
            | Asked::Reloaded { .. }
            | Asked::Imported { .. }
            | Asked::Drained { .. }
            | Asked::Rejoined { .. } => (CommandEffect::Note, "noted".into()),
            Asked::RetryDead(selector) => {
                (CommandEffect::RetryDead(selector.clone()), "will be retried".into())
            }
            Asked::DiscardDead(selector) => {
                (CommandEffect::DiscardDead(selector.clone()), "discarded".into())
            }
            Asked::Unknown => {
                refuse("the leader's version of Besom does not know this command".into())
            }
            Asked::RepairStreams { task } => {
                (CommandEffect::RepairStreams(task.clone()), "renumbered".into())
            }
            Asked::Purge(purge) => (CommandEffect::Purge(purge.clone()), "purged".into()),
            Asked::RetryMessages(selector) => {
                (CommandEffect::RetryMessages(selector.clone()), "will be delivered again".into())
            }
            Asked::DiscardMessages(selector) => {
                (CommandEffect::DiscardMessages(selector.clone()), "given up".into())
            }
        })
    }

    pub(super) fn applied(
        &mut self,
        applying: Box<Applying>,
        result: store::Result<Applied>,
        notices: &mut Vec<Notice>,
        out: &mut Vec<Command>,
    ) {
        self.applying = false;
        let applied = match result {
            Ok(applied) => applied,
            Err(error) => {
                // A store that cannot be reached is waited for, and a stale leader decides nothing.
                if let store::Error::Busy(_)
                | store::Error::Raised(_)
                | store::Error::TimedOut(_)
                | store::Error::GuardsTimedOut(_)
                | store::Error::Invalid(_)
                | store::Error::TooLarge(_) = &error
                {
                    let failures = self.failures(applying.row.id).saturating_add(1);
                    self.failing.insert(applying.row.id, (failures, error.to_string()));
                }
                match error {
                    // The command is sent again unchanged: a new decision could differ.
                    store::Error::Unknown(_) => {
                        self.doubt = true;
                        self.unanswered = Some(applying);
                    }
                    // The command cannot be applied as decided, or no longer exists. The others
                    // continue; if it is still pending, it is read again.
                    store::Error::GuardsTimedOut(_)
                    | store::Error::Invalid(_)
                    | store::Error::TooLarge(_) => self.doubt = true,
                    store::Error::Busy(_)
                    | store::Error::Unavailable(_)
                    | store::Error::Raised(_)
                    | store::Error::TimedOut(_)
                    | store::Error::Damaged(_)
                    | store::Error::Denied(_)
                    | store::Error::Refused(..)
                    | store::Error::Fenced => self.commands.push_front(applying.row),
                }
                self.failed(&error, notices);
                return;
            }
        };
        self.failing.remove(&applying.row.id);
        let Applying { effect, row, .. } = *applying;
        self.commands.retain(|waiting| waiting.id != row.id);
        if applied.progress.is_some() {
            // The other commands keep their turn behind it.
            self.commands.push_front(row);
            match effect {
                CommandEffect::RetryDead(_) => notices.push(Notice::Revived),
                CommandEffect::DiscardPlanned(..) | CommandEffect::Reject { .. } => {
                    notices.push(Notice::Discarded);
                }
                _ => {}
            }
            return;
        }
        match effect {
            CommandEffect::Slots(decision) => {
                self.start_all(&decision.runs, &applied.runs, notices, out);
            }
            CommandEffect::Pause(task) => {
                let pause = Pause { by: row.by, reason: row.reason, since: row.at };
                self.note_pause(&task, Some(&pause));
            }
            CommandEffect::Resume(task, _) => {
                self.note_pause(&task, None);
                if let Some(task) = self.tasks.get_mut(&task) {
                    task.state.last_slot = Some(self.now);
                }
                // The store has decided from when the schedule counts.
                self.doubt = true;
            }
            CommandEffect::Approve(run, _) if applied.refused.is_none() => self.approved(run, out),
            // Its runs may have ended with it.
            CommandEffect::DiscardPlanned(..) | CommandEffect::Reject { .. } => {
                self.doubt = true;
                notices.push(Notice::Discarded);
            }
            CommandEffect::Cancel(run, words) => {
                // The run ends with its scan, or with the last of its items.
                if let Some(active) = self.runs.get_mut(&run) {
                    active.cancelled = Some(words);
                }
                self.stop_waiting(run, out);
            }
            CommandEffect::RetryDead(_) if applied.dead > 0 => notices.push(Notice::Revived),
            // It is marked as applied only now, so that the next leader does not resign as well.
            CommandEffect::Note if row.command == Asked::Resign => {
                notices.push(Notice::Resign);
            }
            CommandEffect::Note if let Asked::Brake { task, .. } = &row.command => {
                self.stop_in_pass(task);
            }
            // The courier and the executor discover these changes themselves.
            CommandEffect::Approve(..)
            | CommandEffect::RetryMessages(_)
            | CommandEffect::DiscardMessages(_)
            | CommandEffect::RepairStreams(_)
            | CommandEffect::Purge(_)
            | CommandEffect::Note
            | CommandEffect::RetryDead(_)
            | CommandEffect::DiscardDead(_)
            | CommandEffect::Refuse(_)
            | CommandEffect::NotWaiting(..) => {}
        }
    }
}

fn unknown(task: &TaskName) -> String {
    format!("there is no task {task} in the leader's configuration")
}

fn is(task: &TaskName) -> String {
    if task.is_all() { "all tasks are".to_owned() } else { format!("{task} is") }
}
