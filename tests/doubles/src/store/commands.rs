//! Operators' commands, and their effects under the leader's fence.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::num::NonZeroU32;

use besom_core::books::{self, LetterPage, Progress, Tally, Write};
use besom_core::command::DeadCriteria;
use besom_core::ids::{CommitId, FencingToken, Incarnation, RunId, TaskName};
use besom_core::item::{Item, Source};
use besom_core::plan::{Pause, Run, TaskState, last_slot_on_resume};
use besom_core::review::State as Standing;
use besom_core::time::Time;
use besom_snapshot::DeadGroup;

use super::ledger::By;
use super::state::{Numbered, State};
use besom_ports::store::{
    Applied, Command, CommandEffect, CommandRow, DeadLetter, DeadSelector, Error, Letters, Result,
    broken,
};

impl State {
    pub(super) fn submit(&mut self, command: &Command, by: &str, reason: &str, now: Time) -> u64 {
        let id = self.next_id(Numbered::Command);
        let row = CommandRow {
            id,
            command: command.clone(),
            by: by.to_owned(),
            reason: reason.to_owned(),
            at: now,
            applied_at: None,
            result: None,
            refused: false,
        };
        self.commands.insert(id, row);
        id
    }

    pub(super) fn apply_command(
        &mut self,
        fence: &FencingToken,
        command: &CommandRow,
        (effect, result): (&CommandEffect, &str),
        letters: NonZeroU32,
        now: Time,
    ) -> Result<Applied> {
        self.check_fence(fence)?;
        let id = command.id;
        let done = self.done.get(&id).cloned().unwrap_or_default();
        let row = match self.commands.get(&id) {
            None => return Err(Error::Invalid(format!("there is no command {id}"))),
            Some(row) => row.clone(),
        };
        command.check_is(&row)?;
        if row.applied_at.is_some() {
            return Ok(done);
        }
        let mut applied = Applied { dead: done.dead, purged: done.purged, ..Applied::default() };
        let begun = done.progress;
        match effect {
            CommandEffect::Slots(decision) => {
                applied.runs = self.decide_slots(fence, decision, now)?;
            }
            CommandEffect::Pause(task) => {
                let pause = Pause { by: row.by.clone(), reason: row.reason.clone(), since: row.at };
                self.task_state(task).paused = Some(pause);
            }
            CommandEffect::Resume(task, brakes) => {
                let state = self.task_state(task);
                if state.paused.take().is_some() {
                    state.last_slot = Some(last_slot_on_resume(state.last_slot, now));
                }
                self.resume_brakes(task, brakes);
            }
            CommandEffect::DiscardPlanned(task, error) => {
                if begun.is_none() {
                    self.reject_reviews(task, &row, now);
                    self.end_scans(task, error, now);
                }
                match self.planned_of(task, letters) {
                    Ok(planned) => {
                        let reason = format!("{}: {}", row.by, row.reason);
                        let (writes, mut tally) = books::discard_planned(&planned, &reason);
                        self.command(writes, &mut tally, now);
                        applied.planned_discarded(planned.len() as u64, letters);
                    }
                    Err(why) => applied.refused = Some(why),
                }
            }
            CommandEffect::Approve(run, brakes) => {
                applied.refused = self.decide_review(*run, Standing::Approved, &row, now).err();
                if applied.refused.is_none() {
                    self.approve_brakes(*run, brakes);
                }
            }
            CommandEffect::Reject { task, run, state, error } => {
                if begun.is_none() {
                    applied.refused = self.decide_review(*run, *state, &row, now).err();
                }
                if applied.refused.is_none() {
                    self.stop_scan(*run, error.as_deref(), now);
                    match self.planned_of_run(task, *run, letters.get() as usize) {
                        Ok(planned) => {
                            let reason = format!("{}: {}", row.by, row.reason);
                            let (writes, mut tally) = books::discard_planned(&planned, &reason);
                            self.command(writes, &mut tally, now);
                            applied.planned_discarded(planned.len() as u64, letters);
                        }
                        Err(why) => applied.refused = Some(why),
                    }
                }
            }
            CommandEffect::Cancel(run, error) => self.stop_scan(*run, Some(error), now),
            CommandEffect::RetryDead(selector) => match self.page(selector, begun, letters) {
                Ok(page) => self.retry_dead(page, now, &mut applied),
                Err(why) => applied.refused = Some(why),
            },
            CommandEffect::DiscardDead(selector) => match self.page(selector, begun, letters) {
                Ok(page) => {
                    let reason = format!("{}: {}", row.by, row.reason);
                    self.discard_dead(page, &reason, now, &mut applied);
                }
                Err(why) => applied.refused = Some(why),
            },
            CommandEffect::RetryMessages(selector) => {
                applied.messages = self.retry_messages(selector, now);
            }
            CommandEffect::DiscardMessages(selector) => {
                applied.messages = self.discard_messages(selector, now);
            }
            CommandEffect::RepairStreams(task) => {
                applied.repaired = self.repair_streams(task, now);
                applied.refused = applied.repaired.refusal(task);
                self.arrived(applied.refused.is_none(), None, None);
            }
            CommandEffect::Purge(which) => self.purge_kept(which, &mut applied, letters),
            CommandEffect::NotWaiting(run, why) => {
                applied.refused = Some(self.not_waiting(*run, why));
            }
            CommandEffect::Note | CommandEffect::Refuse(_) => {}
        }
        if let Some(row) = self.commands.get_mut(&id) {
            row.applied_at = applied.progress.is_none().then_some(now);
            let (refused, result) = effect.outcome(result, &applied);
            row.result = Some(result);
            row.refused = refused;
        }
        self.done.insert(id, applied.clone());
        Ok(applied)
    }

    fn task_state(&mut self, task: &TaskName) -> &mut TaskState {
        self.tasks.entry(task.clone()).or_insert_with(|| TaskState::initial(task.clone()))
    }

    /// Dead letters that match, newest first.
    pub(super) fn select_dead(
        &self,
        selector: &DeadSelector,
        letters: Letters,
    ) -> Vec<&DeadLetter> {
        let criteria = selector.criteria();
        let wanted = |letter: &&DeadLetter| {
            (letters == Letters::All || letter.is_open()) && matches(criteria, letter)
        };
        self.dead.values().rev().filter(wanted).collect()
    }

    /// Open dead letters by task and last error.
    pub(super) fn dead_groups(&self, limit: u32) -> Vec<DeadGroup> {
        let mut groups: BTreeMap<(&str, &str), (DeadGroup, u64)> = BTreeMap::new();
        for letter in self.dead.values().filter(|letter| letter.is_open()) {
            let task = letter.item.identity.task.as_str();
            let error = letter.item.errors.last().map_or("", String::as_str);
            let fresh = || {
                let (task, error) = (task.to_owned(), error.to_owned());
                let (first, last) = (letter.at, letter.at);
                (DeadGroup { task, error, count: 0, first, last }, letter.id)
            };
            let (group, newest) = groups.entry((task, error)).or_insert_with(fresh);
            group.count += 1;
            group.first = group.first.min(letter.at);
            group.last = group.last.max(letter.at);
            *newest = letter.id;
        }
        let mut groups: Vec<_> = groups.into_values().collect();
        groups.sort_by_key(|(group, newest)| Reverse((group.last, *newest)));
        groups.into_iter().take(limit as usize).map(|(group, _)| group).collect()
    }

    /// The next page of a command, or why it is refused.
    fn page(
        &self,
        selector: &DeadSelector,
        begun: Option<Progress>,
        limit: NonZeroU32,
    ) -> std::result::Result<LetterPage, String> {
        let newest = self.dead.keys().next_back().copied().unwrap_or(0);
        let progress = begun.unwrap_or_else(|| Progress::begin(newest));
        let place = |letter: &DeadLetter| (letter.item.identity.clone(), Reverse(letter.id));
        let after = progress.after.as_ref().map(|at| (at.identity.clone(), Reverse(at.letter)));
        let mut letters: Vec<DeadLetter> = self
            .select_dead(selector, Letters::Open)
            .into_iter()
            .filter(|letter| letter.id <= progress.newest && Some(place(letter)) > after)
            .cloned()
            .collect();
        letters.sort_by_key(place);
        let found = letters.len() as u64;
        letters.truncate(limit.get() as usize);
        LetterPage::new(progress, selector, letters, found, limit.get())
    }

    /// Ends the scans of a task's active runs.
    fn end_scans(&mut self, task: &TaskName, error: &str, now: Time) {
        let active = |run: &&Run| run.task == *task && run.ended_at.is_none();
        let runs: Vec<RunId> = self.runs.values().filter(active).map(|run| run.id).collect();
        for run in runs {
            self.stop_scan(run, Some(error), now);
        }
    }

    /// The items that wait of a task, at most so many, or why they cannot be read.
    fn planned_of(
        &self,
        task: &TaskName,
        limit: NonZeroU32,
    ) -> Result<Vec<(Source, Item)>, String> {
        let of_task = |item: &&Item| item.identity.task == *task;
        let retries = self.retries.iter().map(|(id, (_, item))| (Source::Retry(*id), item));
        let timers = self.timers.iter().map(|(id, item)| (Source::Timer(*id), item));
        let waiting = retries.chain(timers).filter(|(_, item)| of_task(item));
        let limit = limit.get() as usize;
        let mut planned: Vec<(Source, Item)> =
            waiting.take(limit).map(|(source, item)| (source, item.clone())).collect();
        for ((_, partition), stream) in self.streams.iter().filter(|((name, _), _)| name == task) {
            let room = u32::try_from(limit - planned.len()).unwrap_or(u32::MAX);
            if room == 0 || stream.acked == stream.tail {
                continue;
            }
            let items = self.read_log(task, *partition, stream.acked, room, usize::MAX);
            let items = items.map_err(|error| broken(task, &error.to_string()))?;
            planned.extend(items.into_iter().map(|waiting| (waiting.source, waiting.item)));
        }
        Ok(planned)
    }

    fn retry_dead(&mut self, page: LetterPage, now: Time, applied: &mut Applied) {
        let dead = self.dead.len();
        let mut tally = Tally::default();
        let writes = books::retry(&page.letters, page.after(), now);
        self.command(writes, &mut tally, now);
        let moved = (dead - self.dead.len()) as u64;
        self.arrived(false, None, (moved > 0).then_some(now));
        (applied.dead, applied.progress) = page.end(moved);
    }

    fn discard_dead(&mut self, page: LetterPage, reason: &str, now: Time, applied: &mut Applied) {
        let (writes, mut tally) = books::discard(&page.letters, reason);
        self.command(writes, &mut tally, now);
        let all = page.letters.len() as u64;
        (applied.dead, applied.progress) = page.end(all);
    }

    /// Executes writes of a command, which have no commit, in the name of the leader.
    fn command<'a>(&mut self, writes: Vec<Write<'a>>, tally: &mut Tally<'a>, now: Time) {
        let node = self.fence.as_ref().map(|(fence, _)| fence.node.clone());
        let node = node.unwrap_or_else(|| Incarnation::from(""));
        let by = By { node: &node, commit: CommitId(0), now };
        self.write(writes, tally, by, Vec::new());
        self.add(tally, now);
    }
}

fn matches(criteria: DeadCriteria<'_>, letter: &DeadLetter) -> bool {
    let (DeadCriteria { ids, task, error }, item) = (criteria, &letter.item);
    ids.is_none_or(|ids| ids.contains(&letter.id))
        && task.is_none_or(|task| *task == item.identity.task)
        && error.is_none_or(|error| item.errors.last().is_some_and(|last| last == error))
}
